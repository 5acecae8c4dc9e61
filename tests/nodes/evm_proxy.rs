//! The proxy before a real EVM node: it passes everything through as it is, and logs movements of coin where
//! it is told to.

use serde_json::{Value, json};

use crate::common::accounts::TRANSFER_TOPIC;
use crate::common::anvil::{AnvilNode, hex, quantity};
use crate::common::bloom;
use crate::common::contracts::{Contract, Token, address, address_word};
use crate::common::evm::Splitter;
use crate::common::evm_proxy::EvmProxy;
use crate::common::evm_proxy::lag::Head;
use crate::common::evm_proxy::transfers::SYSTEM;
use crate::common::http::{self, Request};

const CHAIN_ID: u64 = 73_574;

const D1: &str = "0xd1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1";
const D2: &str = "0xd2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2";
const D3: &str = "0xd3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3";

fn question(id: usize, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// Status, type and bytes of the answer.
fn post(port: u16, body: &str) -> (u16, String, String) {
    let request = Request {
        verb: "POST".to_owned(),
        path: "/".to_owned(),
        authorization: None,
        body: body.as_bytes().to_vec(),
    };
    let (status, content_type, body) = http::forward(port, &request, "nobody:").unwrap();
    (status, content_type, String::from_utf8(body).unwrap())
}

#[track_caller]
fn ask(proxy: &EvmProxy, method: &str, params: &Value) -> Value {
    let (_, _, body) = post(proxy.port(), &question(1, method, params).to_string());
    let mut answer: Value = serde_json::from_str(&body).unwrap();
    assert!(answer.get("error").is_none(), "{method}: {answer}");
    answer["result"].take()
}

/// What a watcher asks about one block.
fn questions(number: u64, hash: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("eth_chainId", json!([])),
        ("eth_blockNumber", json!([])),
        ("eth_getBlockByNumber", json!([hex(number.into()), false])),
        ("eth_getBlockByNumber", json!(["latest", true])),
        ("eth_getBlockByHash", json!([hash, false])),
        ("eth_getBlockByHash", json!([hash, true])),
        ("eth_getBlockReceipts", json!([hash])),
        (
            "eth_getLogs",
            json!([{ "blockHash": hash, "topics": [TRANSFER_TOPIC] }]),
        ),
        (
            "debug_traceBlockByHash",
            json!([hash, { "tracer": "callTracer" }]),
        ),
        ("trace_block", json!([hex(number.into())])),
        ("eth_unheardOf", json!([])),
    ]
}

#[test]
fn proxy_passes_on_every_byte() {
    let node = AnvilNode::start(CHAIN_ID);
    let token = Token::deploy(&node, "TST", 6);
    token.mint(&node, D1, 5);
    node.pay(&node.account(1), D2, 7);
    let hash = node.mine(1).remove(0);
    let proxy = EvmProxy::in_front_of(&node.url());
    let asked = questions(node.height(), &hash);
    for (method, params) in &asked {
        let body = question(3, method, params).to_string();
        let (ours, theirs) = (post(proxy.port(), &body), post(node.port(), &body));
        assert_eq!(ours, theirs, "{method} {params}");
    }
    let batch: Vec<Value> = asked
        .iter()
        .zip(5..)
        .map(|((method, params), id)| question(id, method, params))
        .collect();
    let batch = json!(batch).to_string();
    for body in [batch.as_str(), "[]", "not JSON", "{}"] {
        assert_eq!(post(proxy.port(), body), post(node.port(), body), "{body}");
    }
    assert_eq!(proxy.count("eth_getLogs"), 2);

    // A view that changes nothing takes every answer apart and puts it together again.
    proxy.set_head(Some(Head::Behind(0)));
    let parsed = |(status, content_type, body): (u16, String, String)| {
        (
            status,
            content_type,
            serde_json::from_str::<Value>(&body).unwrap(),
        )
    };
    assert_eq!(
        parsed(post(proxy.port(), &batch)),
        parsed(post(node.port(), &batch))
    );
}

/// A movement of coin in the name of the chain itself, or another log's contract.
fn told(log: &Value) -> (String, String, u128) {
    if log["address"] != SYSTEM {
        return (log["address"].as_str().unwrap().to_owned(), String::new(), 0);
    }
    assert_eq!(log["topics"].as_array().unwrap().len(), 3);
    assert_eq!(log["topics"][0], TRANSFER_TOPIC);
    let party = |place: usize| {
        let topic = log["topics"][place].as_str().unwrap();
        assert!(topic.starts_with(&format!("0x{}", "0".repeat(24))), "{topic}");
        format!("0x{}", &topic[26..])
    };
    let data = log["data"].as_str().unwrap();
    assert_eq!(data.len(), 66);
    let wei = u128::from_str_radix(&data[34..], 16).unwrap();
    (party(1), party(2), wei)
}

#[track_caller]
fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap()
}

/// Numbers, blooms and the three ways to the same log agree.
#[track_caller]
fn is_consistent(proxy: &EvmProxy, hash: &str) -> Vec<Value> {
    let block = ask(proxy, "eth_getBlockByHash", &json!([hash, false]));
    let receipts = ask(proxy, "eth_getBlockReceipts", &json!([hash]));
    let receipts = receipts.as_array().unwrap();
    assert_eq!(list(&block, "transactions").len(), receipts.len());
    let all: Vec<Value> = receipts
        .iter()
        .flat_map(|receipt| list(receipt, "logs"))
        .cloned()
        .collect();
    for (index, log) in (0_u128..).zip(&all) {
        assert_eq!(quantity(&log["logIndex"]), index);
        assert_eq!(
            (&log["blockHash"], &log["removed"]),
            (&json!(hash), &json!(false))
        );
    }
    assert_eq!(block["logsBloom"], bloom::of_logs(&all));
    let by_number = ask(
        proxy,
        "eth_getBlockByNumber",
        &json!([block["number"].clone(), false]),
    );
    assert_eq!(block, by_number);
    for receipt in receipts {
        let logs = list(receipt, "logs");
        assert_eq!(receipt["logsBloom"], bloom::of_logs(logs));
        assert!(
            logs.iter()
                .all(|log| log["transactionHash"] == receipt["transactionHash"])
        );
        let alone = ask(
            proxy,
            "eth_getTransactionReceipt",
            &json!([receipt["transactionHash"].clone()]),
        );
        assert_eq!(alone, *receipt);
    }
    assert_eq!(
        ask(proxy, "eth_getLogs", &json!([{ "blockHash": hash }])),
        json!(all)
    );
    receipts.clone()
}

/// Writes a log, pays 7 wei to D1 and writes another log.
fn noisy_code() -> String {
    let call = format!("6000600060006000600773{}5af150", &D1[2..]);
    format!("0x60006000a0{call}60006000a000")
}

#[test]
fn every_lasting_movement_of_coin_is_logged_in_its_place() {
    let node = AnvilNode::start(CHAIN_ID);
    let (a, b) = (node.account(0), node.account(1));
    let (a, b) = (a.as_str(), b.as_str());
    let token = Token::deploy(&node, "TST", 6);
    let splitter = Splitter::deploy(&node);
    let at = splitter.address.as_str();
    let contract = Contract::named("SelfDestructor");
    let destructor = node.deploy(&contract.creation(&[]), 5);
    let noisy = "0xc0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0";
    node.call("anvil_setCode", json!([noisy, noisy_code()]));
    node.refuse_coin_at(D3);
    let before = node.height();

    let destroy = contract.call_data("destroy", &[address(D2)]);
    let creation = contract.creation(&[]);
    node.pay(a, D1, 11);
    node.pay(b, b, 12);
    node.pay(a, D2, 0);
    token.mint(&node, D1, 9);
    node.invoke(a, D3, "0x", 13);
    node.invoke(a, noisy, "0x", 20);
    splitter.nest(&node, a, &[(D1, 1), (D2, 2)], 10);
    splitter.split_around_revert(&node, a, (D2, 3), &[(D1, 4)], 7);
    splitter.split_by_delegate(&node, a, &[(D1, 5)], 5);
    node.invoke(a, &destructor, &destroy, 6);
    node.send(json!({ "from": a, "data": creation, "value": "0x8", "gas": "0x1e8480" }));
    let hash = node.mine(1).remove(0);

    let proxy = EvmProxy::in_front_of(&node.url());
    proxy.set_transfer_logs(Some(before + 1));
    let receipts = is_consistent(&proxy, &hash);
    let created = receipts[10]["contractAddress"].as_str().unwrap();
    let own = |contract: &str| (contract.to_owned(), String::new(), 0);
    let moved = |from: &str, to: &str, wei| (from.to_owned(), to.to_owned(), wei);
    let expected = [
        vec![moved(a, D1, 11)],
        vec![],
        vec![],
        vec![own(&token.address)],
        vec![],
        vec![moved(a, noisy, 20), own(noisy), moved(noisy, D1, 7), own(noisy)],
        // What the contract hands to itself one call deeper moves nothing.
        vec![
            moved(a, at, 10),
            moved(at, D1, 1),
            moved(at, D2, 2),
            moved(at, a, 7),
        ],
        vec![moved(a, at, 7), moved(at, D1, 4), moved(at, a, 3)],
        vec![moved(a, at, 5), moved(at, D1, 5)],
        vec![moved(a, &destructor, 6), moved(&destructor, D2, 11)],
        vec![moved(a, created, 8)],
    ];
    for (place, (receipt, expected)) in receipts.iter().zip(&expected).enumerate() {
        let found: Vec<_> = list(receipt, "logs").iter().map(told).collect();
        assert_eq!(found, *expected, "transaction {place}");
    }
    assert_eq!(receipts.len(), expected.len());
    assert_eq!(
        [D1, D2, D3].map(|who| node.balance(who)),
        [11 + 7 + 1 + 4 + 5, 2 + 11, 0]
    );

    let to_d1 = format!("0x{}", address_word(D1));
    let filter = json!([{ "blockHash": hash, "address": SYSTEM, "topics": [TRANSFER_TOPIC, null, to_d1] }]);
    let to_d1 = ask(&proxy, "eth_getLogs", &filter);
    let wei: Vec<u128> = to_d1.as_array().unwrap().iter().map(|log| told(log).2).collect();
    assert_eq!(wei, [11, 7, 1, 4, 5]);
    let filter = json!([{ "fromBlock": "0x0", "toBlock": "latest", "topics": [TRANSFER_TOPIC] }]);
    let all = ask(&proxy, "eth_getLogs", &filter);
    assert_eq!(all.as_array().unwrap().len(), 16, "none of the blocks before");
}

#[test]
fn movements_are_logged_from_a_block_on() {
    let node = AnvilNode::start(CHAIN_ID);
    let pay = || {
        node.pay(&node.account(0), D1, 5);
        node.mine(1).remove(0)
    };
    let (before, after) = (pay(), pay());
    let proxy = EvmProxy::in_front_of(&node.url());
    proxy.set_transfer_logs(Some(2));
    let logs = |hash: &str| {
        is_consistent(&proxy, hash)
            .iter()
            .map(|receipt| list(receipt, "logs").len())
            .sum::<usize>()
    };
    assert_eq!((logs(&before), logs(&after)), (0, 1));
    let new = node.reorg(1, &[]);
    assert_eq!(logs(&new[0]), 0);
    let gone = ask(&proxy, "eth_getBlockReceipts", &json!([after]));
    assert_eq!(gone, Value::Null, "what the node has forgotten stays forgotten");
    proxy.set_transfer_logs(None);
    let paid = pay();
    assert_eq!(logs(&paid), 0);
}
