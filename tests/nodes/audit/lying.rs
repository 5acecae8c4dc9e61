//! A node that lies: it is named, and nobody else is blamed.

use std::process::Command;

use bitcoincore_rpc::bitcoin::{Amount, Block, consensus};
use serde_json::{Value, json};

use super::{AUDIT, audit, begun, credited, open};
use crate::common::daemon::Setup;
use crate::common::stub::{Call, Reply, StubNode};
use crate::common::wait::{PATIENCE, wait_until};
use crate::common::wallet::RawTx;
use crate::shop::Shop;

/// A shop that was paid once and whose daemon is stopped; from now on it asks a node that may lie.
fn shop_before() -> (Shop, StubNode, RawTx) {
    let mut shop = open();
    let payment = credited(&shop, 10_000_000);
    shop.node.mine(2);
    shop.settle();
    shop.daemon.stop();
    let stub = StubNode::in_front_of(&shop.node);
    let mut setup = Setup::for_stub(&stub);
    setup.tables += AUDIT;
    shop.daemon.write_config(&setup);
    (shop, stub, payment)
}

/// The block of a payment, as the node has it.
fn block_of(shop: &Shop, payment: &RawTx) -> (String, Block) {
    for below in 0.. {
        let hash = shop.node.block_hash(shop.node.height() - below);
        let block = shop.node.call("getblock", &[json!(hash), json!(0)]);
        let block = const_hex::decode(block.as_str().unwrap()).unwrap();
        let block: Block = consensus::deserialize(&block).unwrap();
        let mut ids = block.txdata.iter().map(|tx| tx.compute_txid().to_string());
        if ids.any(|id| id == payment.txid) {
            return (hash, block);
        }
    }
    unreachable!("it is in a block")
}

#[test]
fn a_node_that_lies_is_named_and_the_books_are_not_blamed() {
    let (shop, stub, payment) = shop_before();
    let (hash, block) = block_of(&shop, &payment);
    let mut other_amount = block.clone();
    other_amount.txdata.last_mut().unwrap().output[0].value += Amount::from_sat(1);
    let mut without = block.clone();
    without.txdata.pop();
    let mut twice = block.clone();
    twice.txdata.push(block.txdata.last().unwrap().clone());
    let mut other_header = block.clone();
    other_header.header.nonce ^= 1;
    let blocks = [
        ("another amount", other_amount, "merkle root"),
        ("a payment left out", without, "merkle root"),
        ("a payment twice", twice, "bad block"),
        ("another header", other_header, "another block"),
    ];
    for (name, block, why) in blocks {
        let bytes = const_hex::encode(consensus::serialize(&block));
        let hash = hash.clone();
        let is_it = move |call: &Call| call.method == "getblock" && call.params[0] == hash.as_str();
        stub.handle(move |call| is_it(call).then(|| Reply::Result(json!(bytes))));
        assert_blamed(&shop, name, why);
    }
    let txid = payment.txid.clone();
    for (name, value) in [("another coin", json!(0.123)), ("a larger coin", json!(1))] {
        let mut coin = shop.node.call("gettxout", &[json!(txid), json!(0), json!(false)]);
        coin["value"] = value;
        let txid = txid.clone();
        let is_it = move |call: &Call| call.method == "gettxout" && call.params[0] == txid.as_str();
        stub.handle(move |call| is_it(call).then(|| Reply::Result(coin.clone())));
        assert_blamed(&shop, name, "contradicts itself");
    }
    // A coin that it denies is looked for in its block.
    let is_coin = |call: &Call| call.method == "gettxout";
    stub.handle(move |call| is_coin(call).then_some(Reply::Result(Value::Null)));
    let (answer, code) = audit(&shop.daemon, &["--again", "--chain", "btc"]);
    assert_eq!((&answer["found"], code), (&json!([]), 0), "{answer:#}");
}

#[track_caller]
fn assert_blamed(shop: &Shop, name: &str, why: &str) {
    let (answer, code) = audit(&shop.daemon, &["--again", "--chain", "btc"]);
    assert_eq!((&answer["found"], code), (&json!([]), 2), "{name}: {answer:#}");
    let chain = answer["chains"][0].to_string();
    assert!(chain.contains(why), "{name}: {answer:#}");
    let height = shop.node.height();
    assert_eq!(
        answer["chains"][0]["outputs"]["to_height"], height,
        "{name}: it goes on: {answer:#}"
    );
}

/// Ctrl-C ends what the node does for us, too: it walks through its coins for one at a time.
#[test]
fn ctrl_c_stops_the_walk_of_the_node() {
    let (shop, stub, _payment) = shop_before();
    stub.handle(|call| {
        let what = call.params.first().and_then(Value::as_str).unwrap_or_default();
        (call.method == "scantxoutset").then(|| match what {
            "start" => Reply::Hang,
            "abort" => Reply::Result(json!(true)),
            _ => Reply::Result(json!({ "progress": 7 })),
        })
    });
    let was_asked = |what: &str| {
        let calls = stub.calls().into_iter();
        let mut walks = calls.filter(|call| call.method == "scantxoutset");
        walks.any(|call| call.params[0] == what)
    };
    let mut child = begun(&shop.daemon, &["--unspent"]);
    wait_until("the node walks", PATIENCE, || was_asked("start").then_some(()));
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert!(was_asked("abort"), "it still walks");
}
