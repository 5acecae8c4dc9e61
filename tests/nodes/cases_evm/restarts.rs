//! Node and daemon go away and come back, at any moment.

use std::time::Duration;

use super::{Chain, E1, E2, journal, log, mine, nets, node_with_token, wait_books, wait_state};
use crate::common::anvil::AnvilNode;
use crate::common::evm_proxy::EvmProxy;
use crate::common::wait::let_pass;

#[test]
fn node_and_daemon_restart_in_the_middle_and_nothing_is_lost_or_doubled() {
    let (mut node, token) = node_with_token();
    let chain = Chain::at(&node.url()).coin("\"traces\"").tusd(&token);
    let mut daemon = chain.follow(&node);
    let coin = node.pay(&node.account(1), E1, 5);
    let tokens = token.transfer(&node, &node.account(2), E2, 6);
    mine(&node, &daemon, 3);
    wait_books(
        &daemon,
        &["log 0: 6 to E2 confirming", "native: 5 to E1 confirming"],
    );
    // The node alone, twice; then both at once.
    node.restart();
    mine(&node, &daemon, 1);
    let state = node.state();
    node.kill9();
    wait_state(&daemon, "unreachable", "");
    daemon.kill9();
    node.start_again();
    node.use_state(&state);
    node.mine(2);
    daemon.start_again();
    daemon.wait_height_of("dev", node.height());
    wait_books(&daemon, &["log 0: 6 to E2 credited", "native: 5 to E1 credited"]);
    for (tx, vout) in [(&coin, 0), (&tokens, log(0))] {
        assert_eq!(journal(&daemon, tx, vout), ["credit"]);
    }
    assert_eq!(daemon.events_of("credit.reversed").len(), 0);
    daemon.assert_sound();
}

/// A node that was begun anew under the same number is no node of this chain.
#[test]
fn c12_node_that_was_begun_anew_is_another_chain_and_reverses_nothing() {
    let (node, token) = node_with_token();
    let proxy = EvmProxy::in_front_of(&node.url());
    let daemon = Chain::at(&proxy.url()).tusd(&token).follow(&node);
    token.transfer(&node, &node.account(1), E1, 6);
    mine(&node, &daemon, 6);
    wait_books(&daemon, &["log 0: 6 to E1 credited"]);
    let height = node.height();
    let anew = AnvilNode::start_with(super::CHAIN_ID, &["--timestamp=1700000000"]);
    anew.mine(20);
    proxy.lead_to(&anew.url());
    proxy.cut_connections();
    let status = wait_state(&daemon, "wrong_network", "");
    assert_eq!(status["height"], height);
    assert_eq!(nets(&daemon), ["6"]);
    assert_eq!(daemon.events_of("credit.reversed").len(), 0);
    daemon.assert_sound();
}

/// Small numbers from a fixed seed (xorshift), so that a failure can be played again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// With three payments each, as many as one list shows.
const KILLS: u64 = 33;

#[test]
fn daemon_killed_while_blocks_with_payments_arrive_credits_each_once() {
    let (node, token) = node_with_token();
    let proxy = EvmProxy::in_front_of(&node.url());
    let chain = Chain::at(&proxy.url())
        .with("pending_ms = 50")
        .coin("\"traces\"")
        .tusd(&token);
    let mut daemon = chain.follow(&node);
    let mut dice = Dice(0x5eed_0fe7);
    let mut expected = Vec::new();
    for kill in 1..=KILLS {
        let amount = u128::from(kill);
        let payer = node.account(usize::try_from(kill % 3).unwrap());
        node.pay(&payer, E1, amount);
        token.pay(&node, &payer, &[(E2, amount), (E1, amount)]);
        expected.extend([
            format!("native: {amount} to E1 credited"),
            format!("log 0: {amount} to E2 credited"),
            format!("log 1: {amount} to E1 credited"),
        ]);
        node.mine(1);
        // Every few kills a reorg that keeps what it finds, a block lower or higher.
        if kill % 6 == 0 {
            let txs: Vec<String> = node.block(node.height())["transactions"]
                .as_array()
                .unwrap()
                .iter()
                .map(|hash| hash.as_str().unwrap().to_owned())
                .collect();
            let kept: Vec<&str> = txs.iter().map(String::as_str).collect();
            node.reorg_keeping(1, &kept);
            node.mine(1);
        }
        let_pass(Duration::from_millis(dice.below(150)));
        daemon.kill9();
        daemon.start_again();
    }
    mine(&node, &daemon, 6);
    expected.sort();
    let lines: Vec<&str> = expected.iter().map(String::as_str).collect();
    wait_books(&daemon, &lines);
    assert_eq!(nets(&daemon).len(), 3 * usize::try_from(KILLS).unwrap());
    assert_eq!(daemon.credits().len(), 3 * usize::try_from(KILLS).unwrap());
    let sum: u64 = (1..=KILLS).sum();
    assert_eq!(daemon.net_sum(), 3 * sum);
    daemon.assert_sound();
}
