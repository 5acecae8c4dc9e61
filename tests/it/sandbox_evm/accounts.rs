//! Transactions of every type, balances, tokens and traces.

use super::{Node, UNKNOWN, ether, hex, word};
use crate::common::bloom;
use creditd::rules::Txid;
use creditd::sandbox::SandboxError;
use creditd::sandbox::evm::{Address, CallKind, InnerCall, Tx, U256};
use serde_json::{Value, json};

fn inner(kind: CallKind, to: &str, wei: u64) -> InnerCall {
    InnerCall::new(kind, Address::of(to), U256::from(wei))
}

impl Node {
    fn balance_at(&self, account: &str, block: &Value) -> Value {
        let account = Address::of(account).to_string();
        self.ask("eth_getBalance", &json!([account, block]))
    }

    fn call(&self, data: &str, block: &str) -> Value {
        self.ask(
            "eth_call",
            &json!([{"to": self.token.to_string(), "data": data}, block]),
        )
    }

    /// A payment of 100 wei to a contract that calls others, one of which fails.
    fn tangle(&self) -> Tx {
        let mut tx = Tx::pay(self.ann, Address::of("splitter"), U256::from(100));
        let mut lost = inner(CallKind::Call, "lost", 5);
        lost.is_success = false;
        lost.calls.push(inner(CallKind::Call, "below lost", 4));
        let mut borrowed = inner(CallKind::DelegateCall, "library", 100);
        borrowed.calls.push(inner(CallKind::Call, "carol", 30));
        let mut made = inner(CallKind::Create2, "vault", 20);
        made.calls.push(inner(CallKind::SelfDestruct, "dave", 20));
        tx.effects.calls = vec![lost, borrowed, made, inner(CallKind::StaticCall, "oracle", 0)];
        tx
    }
}

#[test]
fn evm_transaction_has_the_fields_of_its_type() {
    let node = Node::start();
    let kinds = [0, 2, 0x6a].map(|kind| {
        let mut tx = node.pay(5);
        tx.kind = kind;
        tx.input = vec![0, 1];
        node.sandbox.send(tx).unwrap()
    });
    let brought = node
        .sandbox
        .send(Tx::bring(node.bob, node.ann, U256::from(9)))
        .unwrap();
    let mut odd = node.pay(6);
    odd.odd.without = vec!["input".to_owned(), "v".to_owned()];
    odd.odd.with.insert("data".to_owned(), Value::Null);
    odd.odd_receipt.without = vec!["status".to_owned()];
    let odd = node.sandbox.send(odd).unwrap();
    node.sandbox.mine(1).unwrap();
    let [legacy, usual, strange] = kinds.map(|txid| node.tx(txid));
    for (nonce, tx) in ["0x0", "0x1", "0x2"].into_iter().zip([&legacy, &usual, &strange]) {
        assert_eq!((&tx["nonce"], &tx["value"]), (&json!(nonce), &json!("0x5")));
        assert_eq!(
            (&tx["input"], &tx["chainId"]),
            (&json!("0x0001"), &json!("0x7a69"))
        );
        assert_eq!(
            (&tx["from"], &tx["to"]),
            (&json!(node.ann.to_string()), &json!(node.bob.to_string()))
        );
    }
    let types = [&legacy, &usual, &strange].map(|tx| tx["type"].clone());
    assert_eq!(types, ["0x0", "0x2", "0x6a"]);
    assert_eq!(
        (legacy.get("maxFeePerGas"), legacy.get("accessList")),
        (None, None)
    );
    assert_eq!(
        (&usual["maxFeePerGas"], &usual["accessList"]),
        (&json!("0x77359400"), &json!([]))
    );
    let deposit = node.tx(brought);
    assert_eq!(
        (&deposit["type"], deposit.get("nonce"), deposit.get("chainId")),
        (&json!("0x7e"), None, None)
    );
    assert_eq!(
        (&deposit["transactionIndex"], &deposit["mint"]),
        (&json!("0x0"), &json!("0x9"))
    );
    assert_eq!(node.receipt(brought)["status"], "0x1");
    let bobs = ether(10) + U256::from(5 * 3 + 6);
    assert_eq!(
        node.sandbox.balance(node.bob),
        bobs,
        "what was brought cost bob nothing"
    );
    let odd_tx = node.tx(odd);
    assert_eq!(
        (odd_tx.get("input"), odd_tx.get("v"), &odd_tx["data"]),
        (None, None, &Value::Null)
    );
    assert_eq!(node.receipt(odd).get("status"), None);
}

#[test]
fn evm_balance_is_that_of_the_block_asked_for() {
    let node = Node::start();
    let paid = node.sandbox.send(node.pay(5)).unwrap();
    let first = hex(node.sandbox.mine(1).unwrap()[0]);
    node.sandbox.pay(Address::of("carol"), U256::from(7)).unwrap();
    node.sandbox.mine(1).unwrap();
    node.sandbox.pay(Address::of("carol"), U256::from(8)).unwrap();
    for (block, wei) in [
        (json!("0x0"), "0x0"),
        (json!({"blockHash": first}), "0x0"),
        (json!({"blockNumber": "0x2"}), "0x7"),
        (json!("latest"), "0x7"),
        (json!("pending"), "0xf"),
    ] {
        assert_eq!(node.balance_at("carol", &block), wei, "{block}");
    }
    let cost = U256::from(5 + 21_000_u64 * 2_000_000_000);
    let ann = format!("{:#x}", ether(10) - cost);
    assert_eq!(node.balance_at("ann", &json!({"blockHash": first})), ann);
    assert_eq!(node.receipt(paid)["effectiveGasPrice"], "0x77359400");
    let poor = Tx::pay(Address::of("carol"), node.ann, U256::from(1));
    assert!(matches!(node.sandbox.send(poor), Err(SandboxError::Funds)));
    node.sandbox.endow(Address::of("carol"), U256::from(1));
    assert_eq!(node.balance_at("carol", &json!("latest")), "0x8");
}

#[test]
fn evm_inner_calls_move_coin_unless_a_caller_failed() {
    let node = Node::start();
    node.sandbox.send(node.tangle()).unwrap();
    node.sandbox.mine(1).unwrap();
    let has = |account: &str| node.balance_at(account, &json!("latest"));
    let after = [
        "splitter",
        "lost",
        "below lost",
        "library",
        "carol",
        "vault",
        "dave",
    ]
    .map(has);
    assert_eq!(after, ["0x32", "0x0", "0x0", "0x0", "0x1e", "0x0", "0x14"]);
    let mut failed = node.tangle();
    failed.effects.is_success = false;
    node.sandbox.send(failed).unwrap();
    node.sandbox.mine(1).unwrap();
    assert_eq!(has("carol"), "0x1e");
}

#[test]
fn evm_movements_of_coin_are_logged_from_a_block_on() {
    let node = Node::start();
    let logs = |tx: Tx| {
        let receipt = node.receipt(tx_in_a_block(&node, tx));
        let bloom = bloom::of_logs(receipt["logs"].as_array().unwrap());
        assert_eq!(receipt["logsBloom"], bloom);
        assert_eq!(node.block("latest")["logsBloom"], bloom);
        receipt["logs"].as_array().unwrap().clone()
    };
    node.sandbox.set_transfer_logs(Some(2));
    assert_eq!(logs(node.pay(5)), [] as [Value; 0]);
    let mut tangle = node.tangle();
    tangle.effects.logs = node.pay_token(9).effects.logs;
    let found: Vec<String> = logs(tangle)
        .iter()
        .map(|log| {
            let [contract, data] = ["address", "data"].map(|name| log[name].as_str().unwrap());
            let to = &log["topics"][2].as_str().unwrap()[26..];
            format!("{contract} 0x{to} {}", &data[64..])
        })
        .collect();
    let system = "0xfffffffffffffffffffffffffffffffffffffffe";
    let moved = |to: &str, wei: &str| format!("{system} {} {wei}", Address::of(to));
    let expected = [
        moved("splitter", "64"),
        moved("carol", "1e"),
        moved("vault", "14"),
        moved("dave", "14"),
    ];
    assert_eq!(found[..4], expected);
    assert_eq!(found.len(), 5, "and its own log last: {found:?}");
    assert!(found[4].starts_with(&node.token.to_string()), "{found:?}");
    let mut failed = node.pay(5);
    failed.effects.is_success = false;
    assert_eq!(logs(failed), [] as [Value; 0]);
    assert_eq!(logs(node.pay(0)), [] as [Value; 0]);
    node.sandbox.set_transfer_logs(None);
    assert_eq!(logs(node.pay(5)), [] as [Value; 0]);
}

fn tx_in_a_block(node: &Node, tx: Tx) -> Txid {
    let txid = node.sandbox.send(tx).unwrap();
    node.sandbox.mine(1).unwrap();
    txid
}

#[test]
fn evm_call_tracer_shows_frames_as_they_call() {
    let node = Node::start();
    let plain = node.sandbox.send(node.pay(5)).unwrap();
    let tangle = node.sandbox.send(node.tangle()).unwrap();
    let hash = hex(node.sandbox.mine(1).unwrap()[0]);
    let options = json!({"tracer": "callTracer"});
    let traces = node.ask("debug_traceBlockByHash", &json!([hash, options]));
    assert_eq!(
        traces[0],
        json!({"txHash": hex(plain), "result": {
            "type": "CALL", "from": node.ann.to_string(), "to": node.bob.to_string(), "value": "0x5",
            "gas": "0x30d40", "gasUsed": "0x5208", "input": "0x",
        }})
    );
    assert_eq!(
        (&traces[1]["txHash"], traces.as_array().unwrap().len()),
        (&json!(hex(tangle)), 2)
    );
    let calls = traces[1]["result"]["calls"].as_array().unwrap();
    let types: Vec<&str> = calls.iter().map(|call| call["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["CALL", "DELEGATECALL", "CREATE2", "STATICCALL"]);
    assert_eq!(calls[0]["error"], "execution reverted");
    assert_eq!(
        calls[0]["calls"][0].get("error"),
        None,
        "only the frame that failed says so"
    );
    let splitter = json!(Address::of("splitter").to_string());
    let borrowed = &calls[1]["calls"][0];
    assert_eq!(
        (&borrowed["from"], &borrowed["value"]),
        (&splitter, &json!("0x1e"))
    );
    let ended = &calls[2]["calls"][0];
    assert_eq!(
        (&ended["type"], &ended["gasUsed"]),
        (&json!("SELFDESTRUCT"), &json!("0x0"))
    );
    assert_eq!((&ended["from"], calls[3].get("value")), (&calls[2]["to"], None));
    let none = node.sandbox.mine(1).unwrap()[0];
    assert_eq!(
        node.ask("debug_traceBlockByHash", &json!([hex(none), options])),
        json!([])
    );
}

#[test]
fn evm_flat_traces_are_in_the_order_of_the_calls() {
    let node = Node::start();
    node.sandbox.send(node.pay(5)).unwrap();
    let tangle = node.sandbox.send(node.tangle()).unwrap();
    let hash = hex(node.sandbox.mine(1).unwrap()[0]);
    let traces = node.ask("trace_block", &json!(["0x1"]));
    let traces = traces.as_array().unwrap();
    let shown: Vec<Value> = traces
        .iter()
        .map(|trace| {
            json!([
                trace["transactionPosition"],
                trace["type"],
                trace["traceAddress"],
                trace["subtraces"]
            ])
        })
        .collect();
    let wanted = json!([
        [0, "call", [], 0],
        [1, "call", [], 4],
        [1, "call", [0], 1],
        [1, "call", [0, 0], 0],
        [1, "call", [1], 1],
        [1, "call", [1, 0], 0],
        [1, "create", [2], 1],
        [1, "suicide", [2, 0], 0],
        [1, "call", [3], 0],
    ]);
    assert_eq!(json!(shown), wanted);
    assert_eq!(
        (
            &traces[1]["blockHash"],
            &traces[1]["blockNumber"],
            &traces[1]["transactionHash"]
        ),
        (&json!(hash), &json!(1), &json!(hex(tangle)))
    );
    assert_eq!(
        (&traces[2]["error"], traces[3].get("error")),
        (&json!("Reverted"), None)
    );
    let kinds = [1, 4, 8].map(|at| traces[at]["action"]["callType"].clone());
    assert_eq!(kinds, ["call", "delegatecall", "staticcall"]);
    let made = &traces[6];
    assert_eq!(made["action"]["creationMethod"], "create2");
    assert_eq!(made["result"]["address"], Address::of("vault").to_string());
    let ended = &traces[7]["action"];
    let heir = json!(Address::of("dave").to_string());
    assert_eq!(
        (&ended["refundAddress"], &ended["balance"]),
        (&heir, &json!("0x14"))
    );
}

#[test]
fn evm_token_answers_for_itself_at_a_block() {
    let node = Node::start();
    assert_eq!(node.call("0x313ce567", "latest"), word(6));
    let symbol = format!("0x{:064x}{:064x}544b4e{}", 32, 3, "00".repeat(29));
    assert_eq!(node.call("0x95d89b41", "latest"), symbol);
    let of_bob = format!("0x70a08231{}{}", "00".repeat(12), &node.bob.to_string()[2..]);
    let issued = Tx::pay_token(node.token, Address::ZERO, node.bob, U256::from(50));
    node.sandbox
        .send(Tx {
            from: node.ann,
            ..issued
        })
        .unwrap();
    node.sandbox.mine(1).unwrap();
    // A token that keeps a part for itself.
    let mut taxed = node.pay_token(10);
    taxed
        .effects
        .token_balances
        .push((node.token, node.bob, U256::from(59)));
    node.sandbox.send(taxed).unwrap();
    node.sandbox.mine(1).unwrap();
    let held = ["0x0", "0x1", "latest"].map(|block| node.call(&of_bob, block));
    assert_eq!(held, [word(0), word(50), word(59)]);
    let to_token = |data: &str| json!([{"to": node.token.to_string(), "input": data}, "latest"]);
    for data in ["0x", "0x12345678", "0x70a08231"] {
        assert_eq!(node.code("eth_call", &to_token(data)), 3, "{data}");
    }
    let nobody = json!([{"to": node.bob.to_string(), "data": "0x313ce567"}, "latest"]);
    assert_eq!(node.ask("eth_call", &nobody), "0x");
    let long_ago = json!([{"to": node.token.to_string(), "data": "0x313ce567"}, {"blockHash": UNKNOWN}]);
    assert_eq!(node.code("eth_call", &long_ago), -32_000);
}
