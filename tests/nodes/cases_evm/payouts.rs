//! Payments in a batch, coin that a contract passes on inside a transaction, and movements between own
//! addresses.

use serde_json::json;

use super::{
    COIN, Chain, E1, E2, ELSEWHERE, books, inner, journal, log, mine, nets, node_with_token, wait_books,
    watch,
};
use crate::common::anvil::AnvilNode;
use crate::common::daemon::Daemon;
use crate::common::evm::Splitter;
use crate::common::evm_proxy::EvmProxy;

#[test]
fn batch_payout_in_tokens_credits_every_transfer_of_it() {
    let (node, token) = node_with_token();
    let daemon = Chain::at(&node.url()).tusd(&token).follow(&node);
    let batch = [(ELSEWHERE, 1), (E1, 2), (E2, 3), (E1, 4), (E1, 4), (E2, 0)];
    let tx = token.pay(&node, &node.account(1), &batch);
    mine(&node, &daemon, 6);
    wait_books(
        &daemon,
        &[
            "log 1: 2 to E1 credited",
            "log 2: 3 to E2 credited",
            "log 3: 4 to E1 credited",
            "log 4: 4 to E1 credited",
        ],
    );
    for place in 1..=4 {
        assert_eq!(journal(&daemon, &tx, log(place)), ["credit"]);
    }
    assert_eq!(daemon.credits().len(), 4);
    daemon.assert_sound();
}

/// Several receivers, one deeper than another, after a branch that was undone, and from a delegate call.
fn split_four_times(node: &AnvilNode, splitter: &Splitter) -> [String; 4] {
    let payer = |index: usize| node.account(index);
    [
        splitter.split(node, &payer(1), &[(E1, 15), (ELSEWHERE, 16), (E2, 17)], 50),
        splitter.nest(node, &payer(2), &[(E2, 18), (E1, 19)], 37),
        splitter.split_by_delegate(node, &payer(3), &[(E1, 20)], 20),
        splitter.split_around_revert(node, &payer(4), (E1, 21), &[(E2, 22)], 43),
    ]
}

#[test]
fn coin_passed_on_inside_transactions_is_credited_by_either_kind_of_trace() {
    let node = AnvilNode::start(super::CHAIN_ID);
    let splitter = Splitter::deploy(&node);
    let inner_lines = [
        "\"traces\"\ntrace_method = \"debug\"",
        "\"traces\"\ntrace_method = \"trace\"",
        "\"traces\"",
    ];
    let daemons = inner_lines.map(|lines| Chain::at(&node.url()).coin(lines).follow(&node));
    let txs = split_four_times(&node, &splitter);
    node.mine(6);
    for daemon in &daemons {
        daemon.wait_height_of("dev", node.height());
        wait_books(
            daemon,
            &[
                "inner call 0: 15 to E1 credited",
                "inner call 0: 18 to E2 credited",
                "inner call 0: 20 to E1 credited",
                "inner call 0: 22 to E2 credited",
                "inner call 1: 19 to E1 credited",
                "inner call 2: 17 to E2 credited",
            ],
        );
        assert_eq!(journal(daemon, &txs[0], inner(2)), ["credit"]);
        daemon.assert_sound();
    }
    // Whatever tells of it, a movement has one identity.
    let ids = daemons.each_ref().map(|daemon| {
        let credits = daemon.credits().into_iter();
        let mut ids: Vec<String> = credits
            .map(|credit| credit["id"].as_str().unwrap().to_owned())
            .collect();
        ids.sort();
        ids
    });
    assert!(ids[0] == ids[1] && ids[1] == ids[2], "{ids:#?}");
}

#[test]
fn coin_passed_on_inside_transactions_is_credited_by_logs_of_the_chain() {
    let node = AnvilNode::start(super::CHAIN_ID);
    let splitter = Splitter::deploy(&node);
    let proxy = EvmProxy::in_front_of(&node.url());
    proxy.set_transfer_logs(Some(node.height()));
    let daemon = Chain::at(&proxy.url()).coin("\"eip7708\"").follow(&node);
    split_four_times(&node, &splitter);
    let plain = node.pay(&node.account(5), E1, 23);
    mine(&node, &daemon, 6);
    // The log of the payment itself comes first in each; that of a plain one is the payment, and no second.
    // What a contract passes to itself has none.
    wait_books(
        &daemon,
        &[
            "log 1: 15 to E1 credited",
            "log 1: 18 to E2 credited",
            "log 1: 20 to E1 credited",
            "log 1: 22 to E2 credited",
            "log 2: 19 to E1 credited",
            "log 3: 17 to E2 credited",
            "native: 23 to E1 credited",
        ],
    );
    assert_eq!(journal(&daemon, &plain, 0), ["credit"]);
    daemon.assert_sound();
}

#[test]
fn coin_passed_on_inside_transactions_is_no_deposit_where_nobody_looks_inside() {
    let node = AnvilNode::start(super::CHAIN_ID);
    let splitter = Splitter::deploy(&node);
    let daemon = Chain::at(&node.url()).coin("\"none\"").follow(&node);
    split_four_times(&node, &splitter);
    node.pay(&node.account(5), E1, 23);
    mine(&node, &daemon, 6);
    wait_books(&daemon, &["native: 23 to E1 credited"]);
    daemon.assert_sound();
}

/// Own money that moves: gas for a watched address from the hot wallet, tokens from it to the wallet, and
/// from one watched address to another.
#[test]
fn top_up_and_sweep_of_own_addresses_are_no_payments() {
    let (node, token) = node_with_token();
    let chain = Chain::at(&node.url()).coin("\"traces\"").tusd(&token);
    let mut daemon = Daemon::prepare(&chain.setup());
    watch(&daemon, E1);
    watch(&daemon, E2);
    let hot = node.account(8);
    daemon.json(&["watch", "own", &hot, "--merchant", "shop"]);
    daemon.start_again();
    daemon.wait_height_of("dev", node.height());
    node.impersonate(E1);
    let customer = token.transfer(&node, &node.account(1), E1, 5_000_000);
    let top_up = node.pay(&hot, E1, COIN);
    mine(&node, &daemon, 6);
    wait_books(&daemon, &["log 0: 5000000 to E1 credited"]);
    let sweep = token.transfer(&node, E1, &hot, 2_000_000);
    let across = token.transfer(&node, E1, E2, 1_000_000);
    let coin_back = node.pay(E1, &hot, 1_000);
    // A contract of nobody's passes own coin on: it comes from outside, though we sent the transaction.
    let splitter = Splitter::deploy(&node);
    mine(&node, &daemon, 6);
    let mixed = splitter.split(&node, &hot, &[(E2, 700)], 700);
    mine(&node, &daemon, 6);
    wait_books(
        &daemon,
        &[
            "inner call 0: 700 to E2 confirming held own_inputs",
            "log 0: 5000000 to E1 credited",
        ],
    );
    assert_eq!(nets(&daemon), ["5000000"]);
    assert_eq!(daemon.credits().len(), 1);
    for (tx, vout) in [(&top_up, 0), (&sweep, log(0)), (&across, log(0)), (&coin_back, 0)] {
        let found = daemon.tx(tx).unwrap();
        let outputs = found["outputs"].as_array().unwrap();
        let output = outputs
            .iter()
            .find(|output| output["vout"] == json!(vout))
            .unwrap();
        assert_eq!(
            (&output["origin"], &output["deposit"]),
            (&json!("internal"), &json!(null)),
            "{output}"
        );
    }
    assert_eq!(journal(&daemon, &customer, log(0)), ["credit"]);
    assert!(daemon.deposit(&mixed, inner(0)).is_some() && books(&daemon).len() == 2);
    daemon.assert_sound();
}
