//! The simulated EVM node as whoever asks it over HTTP sees it: the envelope, blocks, receipts and logs here;
//! blooms, accounts, traces, the pool, reorgs and rivals beside.

mod accounts;
mod blooms;
mod reorgs;
mod rivals;

use crate::common::http;
use creditd::clock::Clock;
use creditd::sandbox::evm::{Address, EvmSandbox, Log, Mark, Token, Tx, U256};
use serde_json::{Value, json};

const CHAIN: u64 = 31_337;
const UNKNOWN: &str = "0x1212121212121212121212121212121212121212121212121212121212121212";

/// A chain of the genesis block, and two accounts with coin.
struct Node {
    sandbox: EvmSandbox,
    ann: Address,
    bob: Address,
    token: Address,
}

impl Node {
    fn start() -> Node {
        let sandbox = EvmSandbox::at_genesis(CHAIN, Clock::real()).unwrap();
        let [ann, bob, token] = ["ann", "bob", "token"].map(Address::of);
        for account in [ann, bob] {
            sandbox.endow(account, ether(10));
        }
        let symbol = "TKN".to_owned();
        sandbox.set_token(token, Token { decimals: 6, symbol });
        Node {
            sandbox,
            ann,
            bob,
            token,
        }
    }

    /// The status and text of an answer to any body.
    fn post(&self, path: &str, body: &str) -> (u16, String) {
        let port = self.sandbox.url().rsplit_once(':').unwrap().1.parse().unwrap();
        let request = http::Request {
            verb: "POST".to_owned(),
            path: path.to_owned(),
            authorization: None,
            body: body.as_bytes().to_vec(),
        };
        let (status, kind, body) = http::forward(port, &request, "nobody:").unwrap();
        assert!(body.is_empty() || kind == "application/json", "{kind}");
        (status, String::from_utf8(body).unwrap())
    }

    fn json(&self, body: &Value) -> Value {
        let (status, text) = self.post("/", &body.to_string());
        assert_eq!(status, 200);
        serde_json::from_str(&text).unwrap()
    }

    /// The result of a call; every number in it is written as numbers must be.
    fn ask(&self, method: &str, params: &Value) -> Value {
        let question = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let mut answer = self.json(&question);
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)));
        assert_eq!(answer.get("error"), None, "{method} {params}");
        let result = answer["result"].take();
        assert_plain_numbers(method, &result);
        result
    }

    /// The code of the error that a call ends in.
    fn code(&self, method: &str, params: &Value) -> i64 {
        let answer = self.json(&json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}));
        assert_eq!(answer.get("result"), None, "{method} {params}: {answer}");
        assert!(answer["error"]["message"].is_string());
        answer["error"]["code"].as_i64().unwrap()
    }

    fn block(&self, tag: impl Into<Value>) -> Value {
        self.ask("eth_getBlockByNumber", &json!([tag.into(), false]))
    }

    fn receipt(&self, txid: impl std::fmt::Display) -> Value {
        self.ask("eth_getTransactionReceipt", &json!([hex(txid)]))
    }

    fn tx(&self, txid: impl std::fmt::Display) -> Value {
        self.ask("eth_getTransactionByHash", &json!([hex(txid)]))
    }

    fn pay(&self, wei: u64) -> Tx {
        Tx::pay(self.ann, self.bob, U256::from(wei))
    }

    fn pay_token(&self, amount: u64) -> Tx {
        Tx::pay_token(self.token, self.ann, self.bob, U256::from(amount))
    }
}

fn ether(whole: u64) -> U256 {
    U256::from(whole) * U256::from(1_000_000_000_000_000_000_u64)
}

fn hex(hash: impl std::fmt::Display) -> String {
    format!("0x{hash}")
}

fn word(number: u64) -> String {
    format!("0x{number:064x}")
}

/// Bytes and hashes have leading zeros, quantities do not.
fn assert_plain_numbers(name: &str, value: &Value) {
    const BYTES: &[&str] = &[
        "input",
        "data",
        "extraData",
        "logsBloom",
        "output",
        "init",
        "code",
        "eth_call",
    ];
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, value)| assert_plain_numbers(name, value)),
        Value::Array(list) => list.iter().for_each(|value| assert_plain_numbers(name, value)),
        Value::String(text) if text.starts_with("0x") => {
            let is_sized = text.len() == 66 || text.len() == 42 || text == "0x0000000000000000";
            let digits = &text[2..];
            let is_plain = digits == "0" || !digits.is_empty() && !digits.starts_with('0');
            assert!(is_sized || BYTES.contains(&name) || is_plain, "{name}: {text}");
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

// ---- the envelope ----

#[test]
fn evm_node_says_who_it_is() {
    let node = Node::start();
    assert_eq!(node.ask("eth_chainId", &json!([])), "0x7a69");
    assert_eq!(node.ask("net_version", &json!([])), "31337");
    let name = node.ask("web3_clientVersion", &json!([]));
    assert!(name.as_str().unwrap().starts_with("creditd-sandbox/"));
    assert_eq!(node.ask("eth_syncing", &json!([])), false);
    assert_eq!(node.ask("eth_blockNumber", &json!([])), "0x0");
    node.sandbox.mine(16).unwrap();
    assert_eq!(node.ask("eth_blockNumber", &json!([])), "0x10");
    node.sandbox.set_syncing(Some(255));
    assert_eq!(
        node.ask("eth_syncing", &json!([])),
        json!({"startingBlock": "0x0", "currentBlock": "0x10", "highestBlock": "0xff"})
    );
    let again = EvmSandbox::at_genesis(CHAIN, Clock::real()).unwrap();
    let other = EvmSandbox::at_genesis(CHAIN + 1, Clock::real()).unwrap();
    assert_eq!(again.block_hash(0), node.sandbox.block_hash(0));
    assert_ne!(other.block_hash(0), node.sandbox.block_hash(0));
    let anew = EvmSandbox::of_instance(CHAIN, "anew", Clock::real()).unwrap();
    assert_ne!(anew.block_hash(0), node.sandbox.block_hash(0));
}

#[test]
fn evm_batch_is_answered_question_by_question() {
    let node = Node::start();
    let answers = node.json(&json!([
        {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId"},
        {"jsonrpc": "2.0", "method": "eth_chainId"},
        {"jsonrpc": "2.0", "id": "two", "method": "eth_accounts", "params": []},
        {"jsonrpc": "2.0", "id": 3, "method": "eth_getBlockByHash", "params": [UNKNOWN, false]},
    ]));
    let why = "the method eth_accounts does not exist/is not available";
    assert_eq!(
        answers,
        json!([
            {"jsonrpc": "2.0", "id": 1, "result": "0x7a69"},
            {"jsonrpc": "2.0", "id": "two", "error": {"code": -32601, "message": why}},
            {"jsonrpc": "2.0", "id": 3, "result": null},
        ])
    );
    // A provider's key is part of the path.
    let question = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}"#;
    assert!(node.post("/v2/some-key", question).1.contains("0x7a69"));
    let silent = r#"{"jsonrpc":"2.0","method":"eth_chainId"}"#;
    assert_eq!(node.post("/", silent), (200, String::new()));
    assert_eq!(node.post("/", &format!("[{silent}]")), (200, String::new()));
}

#[test]
fn evm_question_that_is_none_is_refused_by_its_code() {
    let node = Node::start();
    for (body, code) in [
        ("{", -32_700),
        ("5", -32_600),
        ("[]", -32_600),
        ("{}", -32_600),
        (r#"{"id":1,"method":"eth_chainId"}"#, -32_600),
        (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, -32_600),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":{}}"#,
            -32_602,
        ),
    ] {
        let (status, text) = node.post("/", body);
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &answer["error"]["code"]), (200, &json!(code)), "{body}");
    }
    let entry = node.json(&json!([1]));
    assert_eq!(entry[0]["error"]["code"], -32_600);
}

#[test]
fn evm_arguments_are_read_strictly() {
    let node = Node::start();
    for (method, params) in [
        ("eth_getBlockByNumber", json!(["0x00", false])),
        ("eth_getBlockByNumber", json!(["0x", false])),
        ("eth_getBlockByNumber", json!(["0", false])),
        ("eth_getBlockByNumber", json!([0, false])),
        ("eth_getBlockByNumber", json!(["newest", false])),
        ("eth_getBlockByNumber", json!(["0x0"])),
        ("eth_getBlockByHash", json!([])),
        ("eth_getBlockByHash", json!(["0x12", false])),
        ("eth_getBlockByHash", json!([UNKNOWN[2..], false])),
        ("eth_getBalance", json!(["0x12", "latest"])),
        ("eth_getBalance", json!([node.ann.to_string()])),
        ("eth_getLogs", json!([])),
        ("eth_getLogs", json!([{"fromBlock": "0x2", "toBlock": "0x1"}])),
        ("eth_getLogs", json!([{"blockHash": UNKNOWN, "fromBlock": "0x1"}])),
        ("eth_call", json!([{"data": "0x"}, "latest"])),
        ("debug_traceBlockByHash", json!([UNKNOWN])),
        (
            "debug_traceBlockByHash",
            json!([UNKNOWN, {"tracer": "prestateTracer"}]),
        ),
    ] {
        assert_eq!(node.code(method, &params), -32_602, "{method} {params}");
    }
}

#[test]
fn evm_unknown_blocks_and_transactions_are_null_or_an_error() {
    let node = Node::start();
    for (method, params) in [
        ("eth_getBlockByHash", json!([UNKNOWN, true])),
        ("eth_getBlockByNumber", json!(["0x1", true])),
        ("eth_getBlockReceipts", json!([UNKNOWN])),
        ("eth_getBlockReceipts", json!(["0x1"])),
        ("eth_getTransactionReceipt", json!([UNKNOWN])),
        ("eth_getTransactionByHash", json!([UNKNOWN])),
        ("trace_block", json!(["0x1"])),
    ] {
        assert_eq!(node.ask(method, &params), Value::Null, "{method}");
    }
    let account = node.ann.to_string();
    for (method, params) in [
        ("eth_getLogs", json!([{"blockHash": UNKNOWN}])),
        ("eth_getBalance", json!([account, "0x1"])),
        ("eth_getBalance", json!([account, {"blockHash": UNKNOWN}])),
        ("eth_getTransactionCount", json!([account, "0x1"])),
        (
            "debug_traceBlockByHash",
            json!([UNKNOWN, {"tracer": "callTracer"}]),
        ),
    ] {
        assert_eq!(node.code(method, &params), -32_000, "{method}");
    }
}

#[test]
fn evm_hidden_call_is_unknown() {
    let node = Node::start();
    assert!(node.ask("trace_block", &json!(["0x0"])).is_array());
    node.sandbox.hide_calls(&["trace_block", "txpool_content"]);
    for method in ["trace_block", "txpool_content", "eth_sendTransaction"] {
        assert_eq!(node.code(method, &json!(["0x0"])), -32_601);
    }
    assert_eq!(node.ask("eth_chainId", &json!([])), "0x7a69");
    assert_eq!(node.code("eth_sendRawTransaction", &json!(["0x0"])), -32_000);
}

// ---- blocks ----

#[test]
fn evm_block_has_one_shape_by_number_and_by_hash() {
    let node = Node::start();
    let paid = node.sandbox.send(node.pay(5)).unwrap();
    let hash = node.sandbox.mine(1).unwrap()[0];
    let slim = node.block("0x1");
    let parent = hex(node.sandbox.block_hash(0).unwrap());
    assert_eq!(
        (&slim["hash"], &slim["parentHash"]),
        (&json!(hex(hash)), &json!(parent))
    );
    assert_eq!(
        (&slim["number"], &slim["difficulty"]),
        (&json!("0x1"), &json!("0x0"))
    );
    assert_eq!(
        (&slim["transactions"], &slim["gasUsed"]),
        (&json!([hex(paid)]), &json!("0x5208"))
    );
    assert_eq!(slim["uncles"], json!([]));
    let seconds =
        |block: &Value| u64::from_str_radix(&block["timestamp"].as_str().unwrap()[2..], 16).unwrap();
    assert!(seconds(&slim) > seconds(&node.block("earliest")));
    let by_hash = |is_whole: bool| node.ask("eth_getBlockByHash", &json!([hex(hash), is_whole]));
    assert_eq!(by_hash(false), slim);
    let mut whole = by_hash(true);
    assert_eq!(whole, node.ask("eth_getBlockByNumber", &json!(["latest", true])));
    assert_eq!(whole["transactions"][0].take(), node.tx(paid));
    let mut slim = slim;
    slim["transactions"][0].take();
    assert_eq!(whole, slim);
}

#[test]
fn evm_tags_stand_where_they_are_put() {
    let node = Node::start();
    node.sandbox.mine(100).unwrap();
    let at = |tag: &str| node.block(tag)["number"].clone();
    let tags = || ["earliest", "finalized", "safe", "latest"].map(at);
    assert_eq!(tags(), ["0x0", "0x24", "0x44", "0x64"]);
    node.sandbox.set_safe(Mark::At(99));
    node.sandbox.set_finalized(Mark::Behind(2));
    assert_eq!(tags(), ["0x0", "0x62", "0x63", "0x64"]);
    node.sandbox.mine(1).unwrap();
    assert_eq!(tags(), ["0x0", "0x63", "0x63", "0x65"]);
    node.sandbox.set_finalized(Mark::Missing);
    assert_eq!(
        node.code("eth_getBlockByNumber", &json!(["finalized", false])),
        -32_000
    );
    node.sandbox.set_safe(Mark::At(1_000));
    assert_eq!(at("safe"), "0x65", "no tag is above the tip");
}

// ---- receipts and logs ----

#[test]
fn evm_receipt_counts_gas_and_logs_through_the_block() {
    let node = Node::start();
    let first = node.sandbox.send(node.pay_token(1)).unwrap();
    let mut two = node.pay_token(2);
    two.effects.logs.push(Log {
        address: node.bob,
        topics: Vec::new(),
        data: vec![0, 9],
    });
    let second = node.sandbox.send(two).unwrap();
    let mut creation = node.pay(3);
    creation.to = None;
    let created = node.sandbox.send(creation).unwrap();
    let hash = node.sandbox.mine(1).unwrap()[0];
    let receipt = node.receipt(second);
    let place = [
        "blockHash",
        "blockNumber",
        "transactionHash",
        "transactionIndex",
        "status",
        "type",
    ];
    let values = [&hex(hash), "0x1", &hex(second), "0x1", "0x1", "0x2"];
    assert_eq!(place.map(|name| receipt[name].clone()), values);
    assert_eq!(
        (&receipt["from"], &receipt["to"]),
        (&json!(node.ann.to_string()), &json!(node.token.to_string()))
    );
    assert_eq!(
        (&receipt["gasUsed"], &receipt["cumulativeGasUsed"]),
        (&json!("0x61a8"), &json!("0xbb80"))
    );
    assert_eq!(receipt["contractAddress"], Value::Null);
    let logs = receipt["logs"].as_array().unwrap();
    assert_eq!(
        (&logs[0]["logIndex"], &logs[1]["logIndex"]),
        (&json!("0x1"), &json!("0x2"))
    );
    assert_eq!(
        logs[0]["topics"][1].as_str().unwrap()[26..],
        node.ann.to_string()[2..]
    );
    assert_eq!(
        (&logs[0]["data"], &logs[0]["removed"]),
        (&json!(word(2)), &json!(false))
    );
    assert_eq!(
        (&logs[1]["data"], &logs[1]["topics"]),
        (&json!("0x0009"), &json!([]))
    );
    for name in ["blockHash", "blockNumber", "transactionHash", "transactionIndex"] {
        assert_eq!(logs[1][name], receipt[name], "{name}");
    }
    let made = node.receipt(created);
    assert_eq!(
        (&made["to"], node.tx(created)["to"].clone()),
        (&Value::Null, Value::Null)
    );
    let contract = Address::from_hex(made["contractAddress"].as_str().unwrap()).unwrap();
    assert_eq!(node.sandbox.balance(contract), U256::from(3));
    let all = json!([node.receipt(first), receipt, made]);
    assert_eq!(node.ask("eth_getBlockReceipts", &json!([hex(hash)])), all);
    assert_eq!(node.ask("eth_getBlockReceipts", &json!(["0x1"])), all);
    assert_eq!(node.ask("eth_getBlockReceipts", &json!(["0x0"])), json!([]));
}

#[test]
fn evm_failed_transaction_costs_its_fee_and_leaves_nothing() {
    let node = Node::start();
    let mut tx = node.pay_token(5);
    tx.value = U256::from(7);
    tx.effects.is_success = false;
    let failed = node.sandbox.send(tx).unwrap();
    node.sandbox.mine(1).unwrap();
    let receipt = node.receipt(failed);
    assert_eq!(
        (&receipt["status"], &receipt["logs"]),
        (&json!("0x0"), &json!([]))
    );
    assert_eq!(node.ask("eth_getLogs", &json!([{}])), json!([]));
    assert_eq!(node.sandbox.balance(node.token), U256::ZERO);
    let fee = U256::from(23_000_u64 * 2_000_000_000);
    assert_eq!(node.sandbox.balance(node.ann), ether(10) - fee);
}

#[test]
fn evm_logs_are_found_by_block_contract_and_topic() {
    let node = Node::start();
    let other = Address::of("other token");
    let first = node.sandbox.prepare(node.pay_token(1));
    let second = Tx::pay_token(other, node.bob, node.ann, U256::from(2));
    let second = node.sandbox.prepare(second);
    let hash = hex(node.sandbox.mine_with(&[first, second]).unwrap());
    node.sandbox.send(node.pay_token(3)).unwrap();
    node.sandbox.mine(2).unwrap();
    let (token, other) = (node.token.to_string(), other.to_string());
    let transfer = format!(
        "0x{}",
        "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
    );
    let to_ann = format!("0x{}{}", "00".repeat(12), &node.ann.to_string()[2..]);
    for (filter, amounts) in [
        (json!({"blockHash": hash}), vec![1, 2]),
        (json!({"blockHash": hash, "address": token}), vec![1]),
        (
            json!({"blockHash": hash, "address": [token, other], "topics": [transfer]}),
            vec![1, 2],
        ),
        (
            json!({"blockHash": hash, "topics": [[UNKNOWN, transfer], null, to_ann]}),
            vec![2],
        ),
        (json!({"blockHash": hash, "topics": [UNKNOWN]}), vec![]),
        (json!({"blockHash": hash, "topics": [[], [], [], null]}), vec![]),
        (json!({"fromBlock": "0x0"}), vec![1, 2, 3]),
        (
            json!({"fromBlock": "0x1", "toBlock": "0x1", "address": []}),
            vec![1, 2],
        ),
        (
            json!({"fromBlock": "earliest", "toBlock": "0x63", "address": token}),
            vec![1, 3],
        ),
        (json!({}), vec![]),
    ] {
        let logs = node.ask("eth_getLogs", &json!([filter]));
        let found: Vec<Value> = logs
            .as_array()
            .unwrap()
            .iter()
            .map(|log| log["data"].clone())
            .collect();
        let wanted: Vec<Value> = amounts.into_iter().map(|amount| json!(word(amount))).collect();
        assert_eq!(found, wanted, "{filter}");
    }
}
