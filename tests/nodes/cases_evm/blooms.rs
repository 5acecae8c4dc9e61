//! C09: a list of logs that is short or empty, without an error.

use serde_json::{Value, json};

use super::{
    Chain, E1, E2, ELSEWHERE, LOG_MISMATCHES, books, counter, mine, nets, node_with_token, wait_books,
};
use crate::common::anvil::AnvilNode;
use crate::common::contracts::Token;
use crate::common::daemon::Daemon;
use crate::common::evm_proxy::lag::Head;
use crate::common::evm_proxy::script::Fault;
use crate::common::evm_proxy::{Balance, EvmProxy};
use crate::common::wait::{PATIENCE, wait_until};

#[test]
fn c09_balancer_over_a_node_that_lags_loses_no_payment() {
    let (node, token) = node_with_token();
    let lagging = EvmProxy::in_front_of(&node.url());
    let balancer = EvmProxy::balancing(&[&node.url(), &lagging.url()], Balance::Questions);
    let daemon = Chain::at(&balancer.url()).tusd(&token).follow(&node);
    let below = node.height();
    lagging.set_head(Some(Head::At(below)));
    token.transfer(&node, &node.account(1), E1, 9_000_000);
    node.mine(1);
    // Whichever of the two answers what: the block and its payment come together, or neither does.
    let looks = balancer.count("eth_getBlockByNumber");
    wait_until("many looks through the balancer", PATIENCE, || {
        let height = daemon.chain("dev")?["height"].as_u64()?;
        let expected: &[&str] = match height > below {
            true => &["log 0: 9000000 to E1 confirming"],
            false => &[],
        };
        // The books were read after the height, so they are no older.
        assert!(
            height == below || books(&daemon) == expected,
            "at {height}: {:?}",
            books(&daemon)
        );
        (balancer.count("eth_getBlockByNumber") > looks + 40).then_some(())
    });
    lagging.set_head(None);
    mine(&node, &daemon, 5);
    wait_books(&daemon, &["log 0: 9000000 to E1 credited"]);
    assert_eq!(nets(&daemon), ["9000000"]);
    daemon.assert_sound();
}

/// The node behind the balancer that is asked for logs does not know the block.
#[test]
fn c09_block_that_the_asked_node_does_not_know_keeps_the_cursor_below_it() {
    let (node, token) = node_with_token();
    let proxy = EvmProxy::in_front_of(&node.url());
    let daemon = Chain::at(&proxy.url()).tusd(&token).follow(&node);
    let below = node.height();
    let gate = proxy.always("eth_getLogs", Fault::Result(Value::Null));
    token.transfer(&node, &node.account(1), E1, 9_000_000);
    node.mine(1);
    for fault in [
        Fault::Error(-32_000, "unknown block"),
        Fault::Error(-32_001, "resource not found"),
        Fault::Result(Value::Null),
    ] {
        // Before what is said already: the list of faults never runs empty.
        for _ in 0..3 {
            proxy.once("eth_getLogs", fault.clone());
        }
        let asked = proxy.count("eth_getLogs");
        wait_until("asked again and again", PATIENCE, || {
            (proxy.count("eth_getLogs") > asked + 3).then_some(())
        });
        assert_eq!(daemon.chain("dev").unwrap()["height"], below, "the cursor waits");
        assert_eq!(books(&daemon), Vec::<String>::new());
    }
    proxy.lift(gate);
    mine(&node, &daemon, 5);
    wait_books(&daemon, &["log 0: 9000000 to E1 credited"]);
    assert_eq!(
        (nets(&daemon), counter(&daemon, LOG_MISMATCHES)),
        (vec!["9000000".to_owned()], 0)
    );
    daemon.assert_sound();
}

/// A daemon on a node whose lists of logs are cut by `cut`.
fn cut_lists(cut: fn(&mut Vec<Value>), with_coin: bool) -> (AnvilNode, Token, EvmProxy, Daemon) {
    let (node, token) = node_with_token();
    let proxy = EvmProxy::in_front_of(&node.url());
    let fault = Fault::edit(move |_, mut logs| {
        logs.as_array_mut().into_iter().for_each(cut);
        logs
    });
    proxy.always("eth_getLogs", fault);
    let chain = Chain::at(&proxy.url()).tusd(&token);
    let chain = match with_coin {
        true => chain.coin("\"traces\""),
        false => chain,
    };
    let daemon = chain.follow(&node);
    (node, token, proxy, daemon)
}

#[test]
fn c09_empty_list_of_logs_that_the_bloom_contradicts_is_read_from_the_receipts() {
    for with_coin in [false, true] {
        let (node, token, _proxy, daemon) = cut_lists(Vec::clear, with_coin);
        token.transfer(&node, &node.account(1), E1, 9_000_000);
        mine(&node, &daemon, 6);
        wait_books(&daemon, &["log 0: 9000000 to E1 credited"]);
        assert_eq!(nets(&daemon), ["9000000"]);
        assert_eq!(counter(&daemon, LOG_MISMATCHES), 1);
        daemon.assert_sound();
    }
}

/// Receipts that are asked for one by one, by a node that gives them in no other way.
#[test]
fn c09_receipts_are_asked_for_one_by_one_where_there_is_no_call_for_all() {
    let (node, token, proxy, daemon) = cut_lists(Vec::clear, false);
    proxy.always(
        "eth_getBlockReceipts",
        Fault::Error(-32_601, "the method does not exist"),
    );
    token.pay(&node, &node.account(1), &[(ELSEWHERE, 1), (E1, 9_000_000)]);
    token.transfer(&node, &node.account(2), E2, 3_000_000);
    mine(&node, &daemon, 6);
    wait_books(
        &daemon,
        &["log 0: 3000000 to E2 credited", "log 1: 9000000 to E1 credited"],
    );
    assert_eq!(counter(&daemon, LOG_MISMATCHES), 1);
    daemon.assert_sound();
}

#[test]
fn c09_list_without_one_of_two_logs_of_a_transaction_loses_neither() {
    let (node, token, _proxy, daemon) = cut_lists(|logs| logs.truncate(1), false);
    token.pay(&node, &node.account(1), &[(E1, 9_000_000), (E2, 8_000_000)]);
    mine(&node, &daemon, 6);
    wait_books(
        &daemon,
        &["log 0: 9000000 to E1 credited", "log 1: 8000000 to E2 credited"],
    );
    daemon.assert_sound();
}

/// The lists of one token are whole, those of the other lack a payment.
#[test]
fn c09_list_without_the_logs_of_one_token_loses_none_of_them() {
    let (node, token) = node_with_token();
    let other = Token::deploy(&node, "TEUR", 6);
    other.mint(&node, &node.account(1), 1_000_000_000);
    node.mine(1);
    let proxy = EvmProxy::in_front_of(&node.url());
    let lost = other.address.to_lowercase();
    let fault = Fault::edit(move |_, mut logs| {
        let all = logs.as_array_mut().into_iter();
        all.for_each(|all| all.retain(|one| one["address"] != lost.as_str()));
        logs
    });
    proxy.always("eth_getLogs", fault);
    let daemon = Chain::at(&proxy.url())
        .tusd(&token)
        .token(&other.address, "TEUR", 6)
        .follow(&node);
    token.transfer(&node, &node.account(1), E1, 5_000_000);
    other.transfer(&node, &node.account(1), E1, 6_000_000);
    mine(&node, &daemon, 6);
    wait_books(
        &daemon,
        &["log 0: 5000000 to E1 credited", "log 0: 6000000 to E1 credited"],
    );
    assert_eq!(counter(&daemon, LOG_MISMATCHES), 1);
    daemon.assert_sound();
}

/// Receipts that lack what the bloom names are not believed either: the cursor waits.
#[test]
fn c09_receipts_that_lack_what_the_bloom_names_are_waited_out() {
    let (node, token, proxy, daemon) = cut_lists(Vec::clear, false);
    let below = node.height();
    let without = |mut receipts: Value| {
        let each = receipts.as_array_mut().into_iter().flatten();
        each.for_each(|receipt| receipt["logs"] = json!([]));
        receipts
    };
    let fault = proxy.always("eth_getBlockReceipts", Fault::edit(move |_, all| without(all)));
    token.transfer(&node, &node.account(1), E1, 9_000_000);
    node.mine(1);
    wait_until("asked again and again", PATIENCE, || {
        (proxy.count("eth_getBlockReceipts") > 4).then_some(())
    });
    let status = daemon.chain("dev").unwrap();
    assert_eq!(status["height"], below, "the cursor waits: {status}");
    assert_eq!(books(&daemon), Vec::<String>::new());
    proxy.lift(fault);
    mine(&node, &daemon, 5);
    wait_books(&daemon, &["log 0: 9000000 to E1 credited"]);
    assert_eq!(counter(&daemon, LOG_MISMATCHES), 1);
    daemon.assert_sound();
}
