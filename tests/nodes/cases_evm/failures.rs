//! C20: a transaction in a block is no payment before it ran to its end.

use serde_json::{Value, json};

use super::{
    COIN, Chain, E1, books, journal, log, mine, nets, node_with_token, signed, wait_books, wait_state,
};
use crate::common::anvil::{AnvilNode, hex};
use crate::common::contracts::{Contract, Token};
use crate::common::daemon::Daemon;
use crate::common::evm_proxy::EvmProxy;
use crate::common::evm_proxy::script::Fault;

#[test]
fn c20_coin_that_was_refused_is_a_failed_deposit_and_no_credit() {
    let node = AnvilNode::start(super::CHAIN_ID);
    let chain = Chain::at(&node.url()).with("pending_ms = 50").coin("\"traces\"");
    let daemon = chain.follow(&node);
    node.refuse_coin_at(E1);
    let tx = node.invoke(&node.account(1), E1, "0x", COIN);
    daemon.wait_deposit(&tx, 0, "seen");
    mine(&node, &daemon, 7);
    wait_books(&daemon, &["native: 1000000000000000000 to E1 failed"]);
    assert_eq!(node.receipt(&tx).unwrap()["status"], "0x0");
    assert_eq!(daemon.credits().len(), 0);
    let kinds: Vec<String> = daemon.events().into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["deposit.seen", "deposit.failed"]);
    // One that was never seen waiting leaves no trace.
    let tx = node.invoke(&node.account(2), E1, "0x", COIN);
    node.mine(1);
    mine(&node, &daemon, 6);
    assert!(
        daemon
            .deposit(&tx, 0)
            .is_none_or(|deposit| deposit["state"] == "failed")
    );
    assert_eq!(daemon.credits().len(), 0);
    node.accept_coin_at(E1);
    let tx = node.pay(&node.account(3), E1, COIN);
    mine(&node, &daemon, 6);
    daemon.wait_deposit(&tx, 0, "credited");
    daemon.assert_sound();
}

#[test]
fn c20_transfer_by_a_sender_without_a_balance_is_nothing() {
    let (node, token) = node_with_token();
    let chain = Chain::at(&node.url())
        .with("pending_ms = 50")
        .coin("\"traces\"")
        .tusd(&token);
    let daemon = chain.follow(&node);
    let tx = token.transfer(&node, &node.account(9), E1, 100_000_000);
    mine(&node, &daemon, 7);
    let receipt = node.receipt(&tx).unwrap();
    assert_eq!(
        (&receipt["status"], &receipt["logs"]),
        (&json!("0x0"), &json!([]))
    );
    assert_eq!(books(&daemon), Vec::<String>::new());
    assert_eq!(daemon.credits().len(), 0);
    assert_eq!(daemon.count("SELECT count(*) FROM outputs"), 0);
    daemon.assert_sound();
}

/// The sender gets what it pays in the block before: without that block, its payment fails.
fn fails_after_a_reorg(is_credited: bool) {
    let (node, token) = node_with_token();
    let daemon = Chain::at(&node.url()).tusd(&token).follow(&node);
    let poor = node.account(9);
    node.set_balance(&poor, 100 * COIN);
    let top_up = token.transfer(&node, &node.account(1), &poor, 8_000_000);
    let kept = token.transfer(&node, &node.account(2), E1, 3_000_000);
    node.mine(1);
    let tx = token.transfer(&node, &poor, E1, 8_000_000);
    let raw = node.raw(&tx);
    let (rich, other) = (node.raw(&top_up), node.raw(&kept));
    mine(&node, &daemon, if is_credited { 6 } else { 2 });
    let state = if is_credited { "credited" } else { "confirming" };
    daemon.wait_deposit(&tx, log(0), state);
    let depth = if is_credited { 7 } else { 3 };
    // Without what made it good.
    node.reorg(depth, &[(other.clone(), 0), (raw.clone(), 1)]);
    mine(&node, &daemon, 1);
    assert_eq!(node.receipt(&tx).unwrap()["status"], "0x0");
    let failed = daemon.wait_deposit(&tx, log(0), "failed");
    let reversed = daemon.events_of("credit.reversed");
    let told = daemon.events_of("deposit.failed");
    if is_credited {
        assert_eq!(journal(&daemon, &tx, log(0)), ["credit", "reversal"]);
        assert_eq!((reversed.len(), told.len()), (1, 0));
        assert_eq!(reversed[0].body["data"]["reason"], "failed");
        assert_eq!(reversed[0].body["data"]["reorg_depth"], json!(depth));
    } else {
        assert_eq!(failed["credit"], Value::Null);
        assert_eq!((reversed.len(), told.len()), (0, 1));
    }
    mine(&node, &daemon, 6);
    wait_books(
        &daemon,
        &["log 0: 3000000 to E1 credited", "log 0: 8000000 to E1 failed"],
    );
    assert_eq!(nets(&daemon), ["3000000"]);
    // And back: with the block before it, it is good again.
    let depth = node.height()
        - daemon.deposit(&kept, log(0)).unwrap()["block_height"]
            .as_u64()
            .unwrap()
        + 1;
    node.reorg(depth, &[(rich, 0), (other, 0), (raw, 1)]);
    mine(&node, &daemon, 7);
    wait_books(
        &daemon,
        &["log 0: 3000000 to E1 credited", "log 0: 8000000 to E1 credited"],
    );
    assert_eq!(nets(&daemon), ["3000000", "8000000"]);
    let entries: &[&str] = match is_credited {
        true => &["credit", "reversal", "reinstatement"],
        false => &["credit"],
    };
    assert_eq!(journal(&daemon, &tx, log(0)), entries);
    daemon.assert_sound();
}

#[test]
fn c20_payment_that_fails_after_a_reorg_is_failed() {
    fails_after_a_reorg(false);
}

#[test]
fn c20_credited_payment_that_fails_after_a_reorg_is_reversed_and_failed() {
    fails_after_a_reorg(true);
}

/// In the other branch a contract that takes no coin is made at the payee's address first.
fn coin_fails_after_a_reorg(is_credited: bool) {
    let node = AnvilNode::start(super::CHAIN_ID);
    let (maker, payer) = (node.account(0), node.account(1));
    let creation = Contract::named("Reverter").creation(&[]);
    let before = node.snapshot();
    let payee = node.deploy(&creation, 0);
    node.revert(&before);
    let chain = Chain::at(&node.url()).with("pending_ms = 50").coin("\"traces\"");
    let mut daemon = Daemon::prepare(&chain.setup());
    super::watch(&daemon, &payee);
    daemon.start_again();
    daemon.wait_height_of("dev", node.height());
    let nonce = hex(node.next_nonce(&maker).into());
    let made = json!({ "from": maker, "data": creation, "gas": "0x1e8480", "nonce": nonce });
    let made = signed(&node, made);
    let tx = node.invoke(&payer, &payee, "0x", 5_000);
    let raw = node.raw(&tx);
    let depth = if is_credited { 6 } else { 2 };
    mine(&node, &daemon, depth);
    daemon.wait_deposit(&tx, 0, if is_credited { "credited" } else { "confirming" });
    node.reorg(depth.into(), &[(made, 0), (raw, 0)]);
    mine(&node, &daemon, 7);
    assert_eq!(node.receipt(&tx).unwrap()["status"], "0x0");
    daemon.wait_deposit(&tx, 0, "failed");
    assert_eq!(nets(&daemon), Vec::<String>::new());
    let told = |kind: &str| daemon.events_of(kind).len();
    let expected = if is_credited { (1, 0) } else { (0, 1) };
    assert_eq!((told("credit.reversed"), told("deposit.failed")), expected);
    let entries: &[&str] = if is_credited { &["credit", "reversal"] } else { &[] };
    assert_eq!(journal(&daemon, &tx, 0), entries);
    daemon.assert_sound();
}

#[test]
fn c20_coin_that_is_refused_after_a_reorg_is_failed() {
    coin_fails_after_a_reorg(false);
}

#[test]
fn c20_credited_coin_that_is_refused_after_a_reorg_is_reversed_and_failed() {
    coin_fails_after_a_reorg(true);
}

#[test]
fn c20_receipt_without_a_status_is_held_and_never_assumed_good() {
    for status in [None, Some(Value::Null)] {
        let (node, token) = node_with_token();
        let proxy = EvmProxy::in_front_of(&node.url());
        let fault = match status {
            None => Fault::edit(|_, mut receipt| {
                receipt.as_object_mut().unwrap().remove("status");
                receipt["root"] = json!(format!("0x{}", "ab".repeat(32)));
                receipt
            }),
            Some(null) => Fault::field("status", null),
        };
        let fault = proxy.always("eth_getTransactionReceipt", fault);
        let mut daemon = Chain::at(&proxy.url())
            .coin("\"traces\"")
            .tusd(&token)
            .follow(&node);
        let coin = node.pay(&node.account(1), E1, 5);
        let paid: Token = token;
        let tokens = paid.transfer(&node, &node.account(2), E1, 6);
        mine(&node, &daemon, 8);
        let held = [
            "log 0: 6 to E1 confirming held status_unknown",
            "native: 5 to E1 confirming held status_unknown",
        ];
        wait_books(&daemon, &held);
        assert_eq!(daemon.credits().len(), 0);
        assert_eq!(daemon.events_of("deposit.held").len(), 2);
        // A restart, and a node that has the status now, release nothing: an operator does.
        proxy.lift(fault);
        daemon.stop();
        daemon.start_again();
        mine(&node, &daemon, 2);
        wait_state(&daemon, "following", "");
        wait_books(&daemon, &held);
        for (tx, vout) in [(&coin, 0), (&tokens, log(0))] {
            let id = daemon.deposit(tx, vout).unwrap()["id"]
                .as_str()
                .unwrap()
                .to_owned();
            super::release(&daemon, &id);
        }
        wait_books(&daemon, &["log 0: 6 to E1 credited", "native: 5 to E1 credited"]);
        daemon.assert_sound();
    }
}
