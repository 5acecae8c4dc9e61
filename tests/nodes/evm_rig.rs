//! What the rig over Anvil does in one call each, and what Anvil itself offers to a watcher.

use serde_json::{Value, json};

use crate::common::anvil::{AnvilNode, hex, quantity};
use crate::common::bloom;
use crate::common::contracts::Token;
use crate::common::evm::Splitter;

const CHAIN_ID: u64 = 73_575;
const UNKNOWN: &str = "0x1212121212121212121212121212121212121212121212121212121212121212";

const D1: &str = "0xd1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1";
const D2: &str = "0xd2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2";

fn status(node: &AnvilNode, hash: &str) -> Value {
    node.receipt(hash).unwrap()["status"].clone()
}

#[test]
fn splitter_pays_in_every_way() {
    let node = AnvilNode::start(CHAIN_ID);
    let splitter = Splitter::deploy(&node);
    let a = node.account(0);
    let to = [(D1, 10), (D2, 20)];
    let sent = [
        splitter.split(&node, &a, &to, 30),
        splitter.nest(&node, &a, &to, 40),
        splitter.split_by_delegate(&node, &a, &to, 50),
        splitter.split_around_revert(&node, &a, (D1, 7), &to, 60),
    ];
    node.mine(1);
    for hash in &sent {
        assert_eq!(status(&node, hash), "0x1");
    }
    assert_eq!([D1, D2].map(|who| node.balance(who)), [40, 80]);
}

#[test]
fn payment_fails_while_the_receiver_refuses() {
    let node = AnvilNode::start(CHAIN_ID);
    let a = node.account(0);
    node.refuse_coin_at(D1);
    let failed = node.invoke(&a, D1, "0x", 5);
    node.mine(1);
    assert_eq!(status(&node, &failed), "0x0");

    // The same transaction succeeds in one branch and fails in the other.
    node.accept_coin_at(D1);
    let paid = node.invoke(&a, D1, "0x", 6);
    node.mine(1);
    assert_eq!(status(&node, &paid), "0x1");
    let raw = node.raw(&paid);
    node.rollback(1);
    node.refuse_coin_at(D1);
    node.send_raw(&raw);
    node.mine(1);
    assert_eq!(status(&node, &paid), "0x0");
    assert_eq!(node.balance(D1), 0);
}

#[test]
fn nonces_are_chosen_and_replaced() {
    let node = AnvilNode::start(CHAIN_ID);
    let a = node.account(0);
    assert_eq!(node.next_nonce(&a), 0);
    let later = node.pay_with_nonce(&a, D1, 2, 1);
    node.mine(1);
    assert_eq!(node.receipt(&later), None, "it waits behind a gap");
    let first = node.pay_with_nonce(&a, D1, 1, 0);
    let instead = node.replace(&first, D2, 1);
    assert_eq!(node.next_nonce(&a), 2);
    assert_eq!(node.wait_for_payment_to(D2), instead);
    node.mine(1);
    assert_eq!(
        (status(&node, &instead), status(&node, &later)),
        (json!("0x1"), json!("0x1"))
    );
    assert_eq!(node.transaction(&first), None);
    assert_eq!([D1, D2].map(|who| node.balance(who)), [2, 1]);
}

#[test]
fn reorgs_keep_what_they_are_told() {
    let node = AnvilNode::start(CHAIN_ID);
    let (a, b) = (node.account(0), node.account(1));
    let first = node.pay(&a, D1, 1);
    let second = node.pay(&b, D2, 2);
    node.mine(2);
    let new = node.reorg_keeping(2, &[&second]);
    assert_eq!(node.height(), 2);
    assert_eq!(node.receipt(&second).unwrap()["blockHash"], json!(new[0]));
    assert_eq!(node.receipt(&first), None);
    let new = node.reorg_away(2);
    assert_eq!((node.height(), new.len()), (3, 3));
    assert_eq!(node.receipt(&second), None);
    assert_eq!(node.tip(), new[2]);
}

/// What a watcher asks that not every node offers. Where this fails, Anvil has changed, and with it what the
/// tests can show.
#[test]
fn anvil_offers_what_a_watcher_asks() {
    let node = AnvilNode::start(CHAIN_ID);
    let token = Token::deploy(&node, "TST", 6);
    let minted = token.mint(&node, D1, 5);
    let hash = node.mine(1).remove(0);
    node.mine(70);
    let call = |method: &str, params: Value| node.try_call(method, params);

    let receipts = call("eth_getBlockReceipts", json!([hash])).unwrap();
    assert_eq!(receipts[0]["transactionHash"], json!(minted));
    let block = call("eth_getBlockByHash", json!([hash, false])).unwrap();
    let logs = receipts[0]["logs"].as_array().unwrap();
    assert_eq!(block["logsBloom"], bloom::of_logs(logs), "real blooms");
    assert_eq!(receipts[0]["logsBloom"], block["logsBloom"]);

    let traced = json!([hash, { "tracer": "callTracer", "tracerConfig": { "withLog": true } }]);
    let traces = call("debug_traceBlockByHash", traced).unwrap();
    assert_eq!(traces[0]["txHash"], json!(minted));
    assert_eq!(traces[0]["result"]["logs"][0]["position"], "0x0");
    let flat = call("trace_block", json!(["0x2"])).unwrap();
    assert_eq!(flat[0]["transactionPosition"], 0);

    let number = |tag: &str| {
        let block = call("eth_getBlockByNumber", json!([tag, false])).unwrap();
        quantity(&block["number"])
    };
    assert_eq!(["latest", "safe", "finalized"].map(number), [72, 40, 8]);

    // A state is looked up by the block's hash (EIP-1898).
    let balance = call("eth_getBalance", json!([D1, { "blockHash": hash }]));
    assert_eq!(balance, Ok(json!(hex(0))));

    // A hash that the node does not know.
    for method in ["eth_getBlockByHash", "eth_getBlockReceipts"] {
        let params = match method {
            "eth_getBlockByHash" => json!([UNKNOWN, false]),
            _ => json!([UNKNOWN]),
        };
        assert_eq!(call(method, params), Ok(Value::Null), "{method}");
    }
    let unknown = call("eth_getLogs", json!([{ "blockHash": UNKNOWN }])).unwrap_err();
    assert_eq!(
        (unknown.code, unknown.message.as_str()),
        (-32000, "unknown block")
    );
    let tracer = json!({ "tracer": "callTracer" });
    let unknown = call("debug_traceBlockByHash", json!([UNKNOWN, tracer])).unwrap_err();
    assert_eq!(unknown.code, -32001);
    let above = call("eth_getBlockByNumber", json!(["0x1000", false]));
    assert_eq!(above, Ok(Value::Null));
}
