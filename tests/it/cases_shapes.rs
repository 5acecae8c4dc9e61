//! C29: the node's answers change shape between versions.

use serde_json::{Value, json};

use crate::common::asks::{D1, script};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::stub::Reply;
use crate::common::wait::{PATIENCE, wait_until};

/// A way of speaking: fields laid over `getblockchaininfo`, the whole `getnetworkinfo`, and the fields of
/// `getblockheader` and `getchaintips` that come beside those that are always there.
struct Dialect {
    name: &'static str,
    info: Value,
    network: Value,
    extra: Value,
}

fn network(version: u64, name: &str, warnings: &Value) -> Value {
    json!({ "version": version, "subversion": name, "warnings": warnings, "localservices": "0409" })
}

fn dialects() -> Vec<Dialect> {
    vec![
        Dialect {
            name: "warnings are a text",
            info: json!({ "warnings": "", "softforks": { "taproot": { "active": true } } }),
            network: network(250_000, "/Satoshi:25.0.0/", &json!("")),
            extra: json!({ "addresses": ["x"], "reqSigs": 1 }),
        },
        Dialect {
            name: "warnings are an empty list",
            info: json!({ "warnings": [], "bits": "207fffff", "target": "7f".repeat(32) }),
            network: network(280_100, "/Satoshi:28.1.0/", &json!([])),
            extra: json!({ "address": "x", "target": "7f".repeat(32) }),
        },
        Dialect {
            name: "warnings are a list, fields that nobody knows",
            info: json!({ "warnings": ["a", "b"], "size_on_disk": 1e300, "next": { "deep": [null] } }),
            network: network(310_000, "/Satoshi:31.0.0/", &json!(["a"])),
            extra: json!({ "hex": "00", "new_field": [{ "a": 1.5 }] }),
        },
        Dialect {
            name: "as little as there can be",
            info: json!({
                "warnings": null, "time": null, "mediantime": null, "pruned": null,
                "verificationprogress": null,
            }),
            network: json!({ "subversion": "/Satoshi:27.0.0/" }),
            extra: json!({}),
        },
    ]
}

#[test]
fn c29_one_credit_in_every_dialect() {
    for dialect in dialects() {
        let node = FakeNode::regtest(3);
        {
            let mut state = node.state();
            state.info = dialect.info;
            state.network_info = dialect.network;
            state.header_extra = dialect.extra;
        }
        let daemon = Daemon::watching(&Setup::for_stub(&node.stub), D1, 3);
        let paid = tx(&[coin(1)], &[(script(D1), 1_000_000)]);
        let txid = paid.compute_txid().to_string();
        node.state().mempool.push(paid.clone());
        daemon.wait_deposit(&txid, 0, "seen");
        node.mine(vec![paid]);
        node.mine(Vec::new());
        node.mine(Vec::new());
        daemon.wait_deposit(&txid, 0, "credited");
        assert_eq!(daemon.net_sum(), 1_000_000, "{}", dialect.name);
        assert_eq!(daemon.credits().len(), 1, "{}", dialect.name);
        daemon.assert_sound();
        // Outputs are read from the raw bytes, so no dialect of theirs matters.
        for call in node.stub.calls() {
            let is_raw = match call.method.as_str() {
                "getblock" => call.params.get(1) == Some(&json!(0)),
                "getrawtransaction" => call.params.len() == 1,
                "getrawmempool" => call.params.is_empty(),
                "decoderawtransaction" | "gettxout" | "getblockstats" | "scantxoutset" => false,
                _ => true,
            };
            assert!(is_raw, "{call:?}");
        }
    }
}

#[test]
fn c29_what_cannot_be_read_is_named_and_is_no_connection_error() {
    // Field, what it is instead, and the words in the status.
    let cases = [
        ("blocks", json!("3"), "blocks in the answer to getblockchaininfo"),
        ("blocks", json!(3.5), "blocks in the answer to getblockchaininfo"),
        ("blocks", json!(-1), "blocks in the answer to getblockchaininfo"),
        ("headers", json!([]), "headers in the answer to getblockchaininfo"),
        (
            "chainwork",
            json!("0x1"),
            "chainwork in the answer to getblockchaininfo",
        ),
        (
            "bestblockhash",
            json!("00"),
            "bestblockhash in the answer to getblockchaininfo",
        ),
        (
            "initialblockdownload",
            json!("no"),
            "initialblockdownload in the answer to getblockchaininfo",
        ),
        // Absent.
        ("chain", Value::Null, "the answer to getblockchaininfo"),
        ("blocks", Value::Null, "the answer to getblockchaininfo"),
        (
            "initialblockdownload",
            Value::Null,
            "the answer to getblockchaininfo",
        ),
    ];
    let node = FakeNode::regtest(3);
    let daemon = Daemon::start(&Setup::for_stub(&node.stub));
    daemon.wait_height(3);
    for (field, value, words) in cases {
        node.state().info = json!({ field: value });
        let reason = daemon.wait_state("unreachable", words)["reason"].clone();
        let reason = reason.as_str().unwrap();
        assert!(reason.contains(field), "the field: {reason}");
        assert!(
            reason.contains("/Satoshi:28.1.0/"),
            "the node's version: {reason}"
        );
        assert!(reason.contains("cannot read"), "in words: {reason}");
        for word in ["connect", "refused", "timed out", "unauthorized"] {
            assert!(!reason.contains(word), "no connection error: {reason}");
        }
        node.state().info = json!({});
        follow_again(&daemon);
    }
}

#[test]
fn c29_other_answers_that_cannot_be_read_are_named_too() {
    let node = FakeNode::regtest(3);
    let daemon = Daemon::start(&Setup::for_stub(&node.stub));
    daemon.wait_height(3);
    for (method, answer, words) in [
        (
            "getrawmempool",
            json!({ "txids": [] }),
            "the result in the answer to getrawmempool",
        ),
        ("getrawmempool", json!([7]), "[0] in the answer to getrawmempool"),
        ("getbestblockhash", json!(null), "the answer to getbestblockhash"),
        ("getblockhash", json!({}), "the answer to getblockhash"),
        ("getblock", json!({ "hash": "00" }), "the answer to getblock"),
        ("getblock", json!("0g"), "the answer to getblock"),
    ] {
        node.state()
            .overrides
            .insert(method.to_owned(), Reply::Result(answer));
        // A new block makes the daemon ask for all of it.
        let height = node.height() + 1;
        node.mine(Vec::new());
        let reason = daemon.wait_state("unreachable", words)["reason"].clone();
        assert!(reason.as_str().unwrap().contains("/Satoshi:28.1.0/"), "{reason}");
        node.state().overrides.clear();
        daemon.wait_height(height);
    }
    assert_eq!(daemon.events().len(), 0);
}

#[test]
fn c29_node_older_than_we_can_use_is_told_so() {
    let node = FakeNode::regtest(3);
    node.state().network_info = json!({ "version": 240_100, "subversion": "/Satoshi:24.1.0/" });
    let daemon = Daemon::start(&Setup::for_stub(&node.stub));
    let reason = daemon.wait_state("unreachable", "/Satoshi:24.1.0/")["reason"].clone();
    assert!(reason.as_str().unwrap().contains("25 or later"), "{reason}");
}

#[track_caller]
fn follow_again(daemon: &Daemon) {
    wait_until("it is followed again", PATIENCE, || {
        (daemon.chain("btc")?["state"] == "following").then_some(())
    });
}
