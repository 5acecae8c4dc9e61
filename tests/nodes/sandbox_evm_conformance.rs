//! The simulated EVM node answers as a real one does. The same payments are made on both: whatever follows
//! from them must be equal; what a node makes in its own way (hashes, gas, prices, times) must be of one
//! form.

mod tokens;

use creditd::clock::Clock;
use creditd::sandbox::evm::{Address, CallKind, EvmSandbox, InnerCall, Log, Tx, U256};
use serde_json::{Value, json};

use crate::common::anvil::AnvilNode;
use crate::common::http;

const CHAIN_ID: u64 = 73_572;
const UNKNOWN: &str = "0x1212121212121212121212121212121212121212121212121212121212121212";
const TOPIC: [u8; 32] = [0xab; 32];

/// A contract that calls the others, and those.
const MAIN: &str = "0xc0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0";
const FAILING: &str = "0xc1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1";
const LIBRARY: &str = "0xc2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2";
const ENDING: &str = "0xc3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3";
const PLAIN: &str = "0xd1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1";

/// What each node makes in its own way: only the form is compared.
const OWN: &[&str] = &[
    "hash",
    "blockHash",
    "parentHash",
    "transactionHash",
    "txHash",
    "timestamp",
    "blockTimestamp",
    "miner",
    "stateRoot",
    "transactionsRoot",
    "receiptsRoot",
    "withdrawalsRoot",
    "parentBeaconBlockRoot",
    "mixHash",
    "size",
    "gas",
    "gasUsed",
    "gasLimit",
    "cumulativeGasUsed",
    "effectiveGasPrice",
    "gasPrice",
    "baseFeePerGas",
    "maxFeePerGas",
    "maxPriorityFeePerGas",
    "r",
    "s",
    "v",
    "yParity",
    "transactions",
];

/// Fields that only Anvil has, or in more places: Geth shows the time in logs alone.
const OF_ANVIL: &[&str] = &[
    "totalDifficulty",
    "requestsHash",
    "blobGasPrice",
    "blockTimestamp",
];

/// What a contract answers in a trace: nothing runs in the sandbox.
const OF_EXECUTION: &[&str] = &["output", "revertReason"];

/// How long a text of hex digits is, or that it is a number. The numbers of a signature are mostly, and only
/// mostly, as long as a hash.
fn form(name: &str, text: &str) -> String {
    let is_of_signature = name == "r" || name == "s";
    match text.len() {
        42 | 66 | 514 if !is_of_signature => format!("{} characters", text.len()),
        _ if text == "0x0" || !text.starts_with("0x0") => "a number".to_owned(),
        _ => "no form".to_owned(),
    }
}

/// The answer with only the form left of what a node makes in its own way; `name` is the field's that it is
/// in, and `created` what this node calls the contract that is created.
fn comparable(name: &str, answer: Value, created: &str) -> Value {
    match answer {
        Value::Array(list) => {
            let entries = list.into_iter();
            entries.map(|entry| comparable(name, entry, created)).collect()
        }
        Value::Object(fields) => {
            let is_kept = |name: &str| !OF_ANVIL.contains(&name) && !OF_EXECUTION.contains(&name);
            let kept = fields.into_iter().filter(|(name, _)| is_kept(name));
            let field = |(name, value): (String, Value)| {
                let value = comparable(&name, value, created);
                (name, value)
            };
            Value::Object(kept.map(field).collect())
        }
        Value::String(text) if text == created => json!("the created contract"),
        Value::String(text) if OWN.contains(&name) => json!(form(name, &text)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => answer,
    }
}

/// The hash of one and the same thing here and there.
type Hashes = (Value, Value);

/// Both nodes, with one account that pays.
struct Pair {
    ours: EvmSandbox,
    theirs: AnvilNode,
    payer: String,
    /// The contract that is created, as each calls it.
    created: (String, String),
    differences: Vec<String>,
}

impl Pair {
    fn start() -> Pair {
        let theirs = AnvilNode::start(CHAIN_ID);
        let ours = EvmSandbox::at_genesis(CHAIN_ID, Clock::real()).unwrap();
        let payer = theirs.account(0);
        for (address, code) in [
            (MAIN, main_code()),
            (FAILING, "60006000fd".to_owned()),
            (LIBRARY, format!("{}00", call(PLAIN, 3))),
            (ENDING, format!("73{}ff", &PLAIN[2..])),
        ] {
            theirs.call("anvil_setCode", json!([address, format!("0x{code}")]));
        }
        let all = U256::from(10_000) * U256::from(1_000_000_000_000_000_000_u64);
        ours.endow(at(&payer), all);
        Pair {
            ours,
            theirs,
            payer,
            created: Default::default(),
            differences: Vec::new(),
        }
    }

    /// The whole answer of the sandbox.
    fn ask_ours(&self, method: &str, params: &Value) -> Value {
        let question = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = http::Request {
            verb: "POST".to_owned(),
            path: "/".to_owned(),
            authorization: None,
            body: question.to_string().into_bytes(),
        };
        let port = self.ours.url().rsplit_once(':').unwrap().1.parse().unwrap();
        let (_, _, body) = http::forward(port, &request, "nobody:").unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// Both answers to a call whose arguments may differ: results, or the codes of errors.
    fn compare(&mut self, method: &str, ours: &Value, theirs: Value) {
        let mut answer = self.ask_ours(method, ours);
        let our = match answer.get("error") {
            Some(error) => json!({"error": error["code"]}),
            None => comparable("", answer["result"].take(), &self.created.0),
        };
        let their = match self.theirs.try_call(method, theirs) {
            Ok(result) => comparable("", result, &self.created.1),
            // What it does not know has a code of its own there.
            Err(refusal) if refusal.code == -32_001 => json!({"error": -32_000}),
            Err(refusal) => json!({"error": refusal.code}),
        };
        if our != their {
            let difference = format!("{method} {ours}\n  sandbox {our:#}\n  anvil {their:#}");
            self.differences.push(difference);
        }
    }

    #[track_caller]
    fn must_agree(&self) {
        let differences = self.differences.join("\n");
        assert!(
            differences.is_empty(),
            "the sandbox answers otherwise:\n{differences}"
        );
    }

    /// What each calls the contract that these created.
    fn created_by(&self, (ours, theirs): &Hashes) -> (String, String) {
        let ours = self.ask_ours("eth_getTransactionReceipt", &json!([ours]));
        let theirs = self.theirs.call("eth_getTransactionReceipt", json!([theirs]));
        let [ours, theirs] = [&ours["result"], &theirs].map(|receipt| receipt["contractAddress"].as_str());
        (ours.unwrap().to_owned(), theirs.unwrap().to_owned())
    }

    fn same_transactions(&mut self, sent: &[Hashes]) {
        for hashes in sent {
            self.with_hash("eth_getTransactionByHash", hashes, |hash| json!([hash]));
            self.with_hash("eth_getTransactionReceipt", hashes, |hash| json!([hash]));
        }
    }

    /// What each transaction did, asked for one by one, as other watchers do.
    fn same_traces(&mut self, sent: &[Hashes]) {
        for hashes in sent {
            self.with_hash(
                "debug_traceTransaction",
                hashes,
                |hash| json!([hash, {"tracer": "callTracer"}]),
            );
        }
    }

    /// The block to come has a hash there, and its transactions a place: both are left out, as other nodes
    /// do.
    fn same_pending(&mut self) {
        let params = json!(["pending", true]);
        let mut blocks = [
            self.ask_ours("eth_getBlockByNumber", &params)["result"].take(),
            self.theirs.call("eth_getBlockByNumber", params),
        ];
        for block in &mut blocks {
            for name in ["hash", "miner", "nonce"] {
                block.as_object_mut().unwrap().remove(name);
            }
            for tx in block["transactions"].as_array_mut().unwrap() {
                for name in ["blockHash", "blockNumber", "transactionIndex"] {
                    tx.as_object_mut().unwrap().remove(name);
                }
            }
        }
        let [ours, theirs] = blocks.map(|block| comparable("", block, ""));
        assert_eq!(ours, theirs);
    }

    fn block_hashes(&self, number: u64) -> Hashes {
        let ours = format!("0x{}", self.ours.block_hash(number).unwrap());
        (json!(ours), json!(self.theirs.block_hash(number)))
    }

    /// Whatever is asked about a block by its hash.
    fn same_block(&mut self, hashes: &Hashes) {
        for is_whole in [true, false] {
            self.with_hash("eth_getBlockByHash", hashes, |hash| json!([hash, is_whole]));
        }
        self.with_hash("eth_getBlockReceipts", hashes, |hash| json!([hash]));
        self.with_hash(
            "debug_traceBlockByHash",
            hashes,
            |hash| json!([hash, {"tracer": "callTracer"}]),
        );
        for account in [PLAIN, MAIN, FAILING] {
            self.with_hash(
                "eth_getBalance",
                hashes,
                |hash| json!([account, {"blockHash": hash}]),
            );
        }
        for filter in [
            json!({}),
            json!({"address": MAIN, "topics": [[UNKNOWN, hex(&TOPIC)]]}),
            json!({"topics": [UNKNOWN]}),
        ] {
            self.with_hash("eth_getLogs", hashes, |hash| {
                let mut filter = filter.clone();
                filter["blockHash"] = hash.clone();
                json!([filter])
            });
        }
    }

    fn with_hash(&mut self, method: &str, hashes: &Hashes, params: impl Fn(&Value) -> Value) {
        self.compare(method, &params(&hashes.0), params(&hashes.1));
    }

    /// The same for a call whose arguments are the same.
    fn same(&mut self, method: &str, params: Value) {
        self.compare(method, &params, params.clone());
    }

    /// The same transaction on both; its hashes there.
    fn send(&self, tx: Tx, fields: &Value) -> Hashes {
        let ours = format!("0x{}", self.ours.send(tx).unwrap());
        (
            json!(ours),
            self.theirs.call("eth_sendTransaction", json!([fields])),
        )
    }
}

fn at(address: &str) -> Address {
    Address::from_hex(address).unwrap()
}

// ---- contracts, as bytes and as what the sandbox is told ----

fn call(to: &str, wei: u8) -> String {
    format!("600060006000600060{wei:02x}73{}5af150", &to[2..])
}

fn main_code() -> String {
    let library = format!("600060006000600073{}5af450", &LIBRARY[2..]);
    let looked_at = format!("600060006000600073{}5afa50", &PLAIN[2..]);
    let log = format!("7f{}60006000a1", "ab".repeat(32));
    let (failing, ending) = (call(FAILING, 1), call(ENDING, 4));
    format!("{}{failing}{library}{looked_at}{ending}{log}00", call(PLAIN, 7))
}

/// What `main_code` does when it is paid 20 wei.
fn main_tx(payer: Address) -> Tx {
    let inner = |kind, to, wei: u64| InnerCall::new(kind, at(to), U256::from(wei));
    let mut failing = inner(CallKind::Call, FAILING, 1);
    failing.is_success = false;
    let mut library = inner(CallKind::DelegateCall, LIBRARY, 20);
    library.calls.push(inner(CallKind::Call, PLAIN, 3));
    let mut ending = inner(CallKind::Call, ENDING, 4);
    ending.calls.push(inner(CallKind::SelfDestruct, PLAIN, 4));
    let looked_at = inner(CallKind::StaticCall, PLAIN, 0);
    let mut tx = Tx::pay(payer, at(MAIN), U256::from(20));
    tx.effects.calls = vec![
        inner(CallKind::Call, PLAIN, 7),
        failing,
        library,
        looked_at,
        ending,
    ];
    tx.effects.logs.push(Log {
        address: at(MAIN),
        topics: vec![TOPIC],
        data: Vec::new(),
    });
    tx
}

/// Payments of every kind, sent to both.
fn send_all(pair: &Pair) -> [Hashes; 5] {
    let payer = &pair.payer;
    let from = at(payer);
    let fields = |to: &str, wei: &str| json!({"from": payer, "to": to, "value": wei, "gas": "0x40000"});
    let mut legacy = Tx::pay(from, at(PLAIN), U256::from(9));
    legacy.kind = 0;
    let mut legacy_fields = fields(PLAIN, "0x9");
    legacy_fields["gasPrice"] = json!("0x77359400");
    let mut creation = Tx::pay(from, from, U256::from(2));
    (creation.to, creation.input) = (None, vec![0]);
    let creation_fields = json!({"from": payer, "value": "0x2", "data": "0x00", "gas": "0x40000"});
    let mut failed = Tx::pay(from, at(FAILING), U256::from(6));
    failed.effects.is_success = false;
    [
        pair.send(Tx::pay(from, at(PLAIN), U256::from(5)), &fields(PLAIN, "0x5")),
        pair.send(main_tx(from), &fields(MAIN, "0x14")),
        pair.send(legacy, &legacy_fields),
        pair.send(failed, &fields(FAILING, "0x6")),
        pair.send(creation, &creation_fields),
    ]
}

#[test]
fn simulated_evm_node_answers_as_a_real_one_does() {
    let mut pair = Pair::start();
    let sent = send_all(&pair);
    pair.same_transactions(&sent);
    pair.same("txpool_content", json!([]));
    pair.same_pending();
    for tag in ["latest", "pending"] {
        pair.same("eth_getTransactionCount", json!([pair.payer, tag]));
        pair.same("eth_getBalance", json!([PLAIN, tag]));
    }
    pair.ours.mine(2).unwrap();
    pair.theirs.mine(2);
    pair.created = pair.created_by(&sent[4]);
    pair.same_transactions(&sent);
    pair.same_traces(&sent);
    let block = pair.block_hashes(1);
    pair.same_block(&block);
    same_arguments(&mut pair);
    pair.must_agree();
}

fn hex(bytes: &[u8]) -> String {
    const_hex::encode_prefixed(bytes)
}

/// Calls that take no hash, and what both refuse.
fn same_arguments(pair: &mut Pair) {
    let payer = pair.payer.clone();
    for (method, params) in [
        ("eth_chainId", json!([])),
        ("net_version", json!([])),
        ("eth_syncing", json!([])),
        ("eth_blockNumber", json!([])),
        ("eth_getBlockByNumber", json!(["latest", false])),
        ("eth_getBlockByNumber", json!(["earliest", false])),
        ("eth_getBlockByNumber", json!(["safe", false])),
        ("eth_getBlockByNumber", json!(["finalized", false])),
        ("eth_getBlockByNumber", json!(["0x1", true])),
        ("eth_getBlockByNumber", json!(["0x3", false])),
        ("eth_getBlockByHash", json!([UNKNOWN, false])),
        ("eth_getBlockReceipts", json!(["0x1"])),
        ("eth_getBlockReceipts", json!(["0x2"])),
        ("eth_getBlockReceipts", json!([UNKNOWN])),
        ("eth_getTransactionByHash", json!([UNKNOWN])),
        ("eth_getTransactionReceipt", json!([UNKNOWN])),
        ("eth_getTransactionCount", json!([payer, "0x1"])),
        ("eth_getLogs", json!([{"fromBlock": "0x0", "toBlock": "latest"}])),
        ("eth_getLogs", json!([{"blockHash": UNKNOWN}])),
        ("eth_getLogs", json!([{"blockHash": UNKNOWN, "fromBlock": "0x0"}])),
        ("eth_call", json!([{"to": PLAIN, "data": "0x313ce567"}, "latest"])),
        ("eth_getCode", json!([PLAIN, "latest"])),
        ("eth_getCode", json!([PLAIN])),
        ("trace_block", json!(["0x1"])),
        ("trace_block", json!(["0x2"])),
        ("eth_unheardOf", json!([])),
        ("eth_getBlockByHash", json!([])),
        ("eth_getBlockByHash", json!(["0x12", false])),
    ] {
        pair.same(method, params);
    }
}
