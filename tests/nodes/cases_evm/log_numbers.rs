//! C03: the number of a log is neither unique in a block nor the same in the next one.

use serde_json::{Value, json};

use super::{Chain, E1, E2, journal, log, mine, nets, node_with_token, wait_books};
use crate::common::accounts::TRANSFER_TOPIC;
use crate::common::anvil::{AnvilNode, hex};
use crate::common::contracts::{Token, address, uint};
use crate::common::daemon::Daemon;
use crate::common::evm_proxy::EvmProxy;
use crate::common::evm_proxy::script::Fault;

/// Numbers the logs of a list anew in each transaction.
fn number_per_transaction(logs: &mut Value) {
    let mut before: Option<(Value, u128)> = None;
    for one in logs.as_array_mut().into_iter().flatten() {
        let tx = one["transactionHash"].clone();
        let number = match &before {
            Some((last, number)) if *last == tx => number + 1,
            _ => 0,
        };
        one["logIndex"] = json!(hex(number));
        before = Some((tx, number));
    }
}

/// A client of the kind that counts logs per transaction.
fn counts_per_transaction(proxy: &EvmProxy) {
    let of_list = Fault::edit(|_, mut logs| {
        // Only those that are asked for; what stands before them in the transaction counts as well.
        logs.as_array_mut()
            .into_iter()
            .flatten()
            .for_each(|one| one["logIndex"] = json!("0x0"));
        logs
    });
    proxy.always("eth_getLogs", of_list);
    let of_receipt = Fault::edit(|_, mut receipt| {
        number_per_transaction(&mut receipt["logs"]);
        receipt
    });
    proxy.always("eth_getTransactionReceipt", of_receipt);
    let of_receipts = Fault::edit(|_, mut receipts| {
        let each = receipts.as_array_mut().into_iter().flatten();
        each.for_each(|receipt| number_per_transaction(&mut receipt["logs"]));
        receipts
    });
    proxy.always("eth_getBlockReceipts", of_receipts);
}

const PAYMENTS: [(&str, u128); 2] = [(E1, 5_000_000), (E2, 7_000_000)];

/// X logs something else, then Y pays twice. Their hashes.
fn two_transactions(node: &AnvilNode, token: &Token) -> [String; 2] {
    let x = token.invoke(node, &node.account(1), "approve", &[address(E1), uint(1)]);
    [x, token.pay(node, &node.account(2), &PAYMENTS)]
}

fn log_indexes(node: &AnvilNode, tx: &str) -> Vec<Value> {
    let receipt = node.receipt(tx).unwrap();
    let logs = receipt["logs"].as_array().unwrap().iter();
    logs.map(|one| one["logIndex"].clone()).collect()
}

const CREDITED: [&str; 2] = ["log 0: 5000000 to E1 credited", "log 1: 7000000 to E2 credited"];

#[track_caller]
fn assert_paid_once(daemon: &Daemon, y: &str) {
    wait_books(daemon, &CREDITED);
    assert_eq!(nets(daemon), ["5000000", "7000000"]);
    for place in [0, 1] {
        assert_eq!(journal(daemon, y, log(place)), ["credit"]);
    }
    assert_eq!(daemon.events_of("credit.created").len(), 2);
    daemon.assert_sound();
}

#[test]
fn c03_failover_to_a_client_that_numbers_logs_otherwise_credits_once() {
    let (node, token) = node_with_token();
    let (mut p, q) = (
        EvmProxy::in_front_of(&node.url()),
        EvmProxy::in_front_of(&node.url()),
    );
    counts_per_transaction(&q);
    let chain = Chain::of(&[("p", &p.url()), ("q", &q.url())]).tusd(&token);
    let mut daemon = chain.follow(&node);
    let [_, y] = two_transactions(&node, &token);
    mine(&node, &daemon, 1);
    assert_eq!(log_indexes(&node, &y), ["0x1", "0x2"]);
    wait_books(
        &daemon,
        &[
            "log 0: 5000000 to E1 confirming",
            "log 1: 7000000 to E2 confirming",
        ],
    );
    let first = node.height();
    p.refuse();
    mine(&node, &daemon, 5);
    assert_paid_once(&daemon, &y);
    // Read again from the start by the other's numbers, they are still the same two.
    let from = first.to_string();
    daemon.json(&[
        "rescan",
        "--from",
        &from,
        "--backfill",
        "all",
        "--reason",
        "again",
        "--apply",
    ]);
    daemon.wait_for("the rescan is over", &["chain", "status"], |status| {
        status["chains"][0]["rescans"]
            .as_array()?
            .is_empty()
            .then_some(())
    });
    assert!(q.count("eth_getLogs") > 0, "the other one was asked for logs");
    assert_paid_once(&daemon, &y);
    daemon.stop();
}

/// Y first in its block, so that its logs have other numbers there.
fn moved_to_the_front(is_credited: bool) {
    let (node, token) = node_with_token();
    let daemon = Chain::at(&node.url()).tusd(&token).follow(&node);
    let [x, y] = two_transactions(&node, &token);
    mine(&node, &daemon, if is_credited { 6 } else { 2 });
    assert_eq!(log_indexes(&node, &y), ["0x1", "0x2"]);
    if is_credited {
        assert_paid_once(&daemon, &y);
    }
    let depth = if is_credited { 6 } else { 2 };
    node.reorg_keeping(depth, &[&y, &x]);
    assert_eq!(log_indexes(&node, &y), ["0x0", "0x1"], "first in its block");
    mine(&node, &daemon, 6);
    assert_paid_once(&daemon, &y);
    assert_eq!(daemon.events_of("credit.reversed").len(), 0);
}

#[test]
fn c03_reorg_that_moves_a_transaction_to_the_front_credits_it_once() {
    moved_to_the_front(false);
}

#[test]
fn c03_reorg_that_moves_a_credited_transaction_to_the_front_keeps_its_credits() {
    moved_to_the_front(true);
}

#[test]
fn c03_two_transactions_whose_logs_have_one_number_are_two_payments() {
    let (node, token) = node_with_token();
    let proxy = EvmProxy::in_front_of(&node.url());
    counts_per_transaction(&proxy);
    let daemon = Chain::at(&proxy.url()).tusd(&token).follow(&node);
    let txs = [1, 2].map(|payer| token.transfer(&node, &node.account(payer), E1, 4_000_000));
    mine(&node, &daemon, 6);
    let from = hex(u128::from(node.height()) - 5);
    let filter = json!({ "address": token.address, "topics": [TRANSFER_TOPIC], "fromBlock": from });
    assert_eq!(node.logs(filter).len(), 2);
    wait_books(
        &daemon,
        &["log 0: 4000000 to E1 credited", "log 0: 4000000 to E1 credited"],
    );
    assert_eq!(nets(&daemon), ["4000000", "4000000"]);
    for tx in &txs {
        assert_eq!(journal(&daemon, tx, log(0)), ["credit"]);
    }
    daemon.assert_sound();
}
