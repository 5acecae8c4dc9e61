//! The sandbox answers as a real node does. Every block and transaction that the sandbox makes is given to a
//! real bitcoind, which checks it by all rules; then both are asked the same, and their answers compared:
//! values where they must be equal, JSON types where they may differ, null, error codes, HTTP statuses.

mod bad;

use bad::{bad_forms, bad_questions, derived};
use std::fmt::Write as _;
use std::path::Path;

use creditd::clock::Clock;
use creditd::rules::{BlockHash, Txid};
use creditd::sandbox::Sandbox;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::http::{self, Request};
use crate::common::node::RegtestNode;
use crate::common::wait::{PATIENCE, wait_until};

const UNKNOWN: &str = "00000000000000000000000000000000000000000000000000000000000000aa";
const GENESIS_COINBASE: &str = "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b";

/// Fields that say something of the node itself: only their JSON type must be equal.
const OWN_FIELDS: &[&str] = &[
    "size_on_disk",
    "version",
    "subversion",
    "localservices",
    "localservicesnames",
    "localrelay",
    "networkactive",
    "networks",
    "localaddresses",
    "verificationprogress",
];

/// One side as an HTTP client sees it.
struct Side {
    name: &'static str,
    port: u16,
    cookie: String,
}

impl Side {
    fn new(name: &'static str, url: &str, cookie_file: &Path) -> Side {
        Side {
            name,
            port: url.rsplit(':').next().unwrap().parse().unwrap(),
            cookie: std::fs::read_to_string(cookie_file).unwrap(),
        }
    }

    fn send(&self, verb: &str, path: &str, body: &str, cookie: &str) -> (u16, String, Vec<u8>) {
        let request = Request {
            verb: verb.to_owned(),
            path: path.to_owned(),
            authorization: None,
            body: body.as_bytes().to_vec(),
        };
        http::forward(self.port, &request, cookie).unwrap()
    }

    fn call(&self, method: &str, params: Value) -> Value {
        let question = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let (_, _, body) = self.send("POST", "/", &question.to_string(), &self.cookie);
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            answer.get("error"),
            None,
            "{method} of {} at {}",
            params,
            self.name
        );
        answer["result"].clone()
    }
}

/// The sandbox, and a real node that follows whatever the sandbox does.
struct Pair {
    sandbox: Sandbox,
    node: RegtestNode,
    ours: Side,
    theirs: Side,
    /// What differs, collected over the whole script.
    faults: String,
    asked: usize,
    _folder: TempDir,
}

impl Pair {
    fn new() -> Pair {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::at_genesis(folder.path(), Clock::real()).unwrap();
        let node = RegtestNode::start();
        Pair {
            ours: Side::new("the sandbox", sandbox.url(), sandbox.cookie_file()),
            theirs: Side::new("the node", &node.url(), &node.cookie_file()),
            sandbox,
            node,
            faults: String::new(),
            asked: 0,
            _folder: folder,
        }
    }

    // ---- the node follows ----

    /// Gives blocks to the node, which must not object.
    fn give(&self, blocks: &[BlockHash]) {
        for hash in blocks {
            let bytes = self.ours.call("getblock", json!([hash.to_string(), 0]));
            let verdict = self.theirs.call("submitblock", json!([bytes]));
            let is_fine = verdict.is_null() || verdict == "inconclusive";
            assert!(is_fine, "the node on block {hash}: {verdict}");
        }
    }

    /// Gives the blocks of the best chain to the node from `height` on.
    fn give_from(&self, height: u64) {
        let heights = height..=self.sandbox.height();
        let blocks: Vec<BlockHash> = heights
            .map(|height| self.sandbox.block_hash(height).unwrap())
            .collect();
        self.give(&blocks);
    }

    fn mine(&self, count: u32) {
        self.give(&self.sandbox.mine(count).unwrap());
    }

    /// Gives a transaction to the node, which must take it into its mempool.
    fn send(&self, txid: Txid) {
        let bytes = self.ours.call("getrawtransaction", json!([txid.to_string()]));
        let told = self.theirs.call("sendrawtransaction", json!([bytes]));
        assert_eq!(told, txid.to_string());
    }

    fn pay(&self, label: &str, sat: u64) -> Txid {
        let txid = self.sandbox.pay(&Sandbox::address(label), sat).unwrap();
        self.send(txid);
        txid
    }

    // ---- comparison ----

    /// Sends the same to both and compares everything.
    fn compare(&mut self, situation: &str, verb: &str, path: &str, body: &str) {
        self.asked += 1;
        let (status, kind, ours) = self.ours.send(verb, path, body, &self.ours.cookie);
        let (their_status, their_kind, theirs) = self.theirs.send(verb, path, body, &self.theirs.cookie);
        let mut differ = |what: String| {
            let _ = writeln!(self.faults, "{situation}: {verb} {path} {body}: {what}");
        };
        if status != their_status {
            differ(format!("status {status}, the node {their_status}"));
        }
        if body.is_empty() {
            // REST: bytes, or a text that the status already tells.
            if status == 200 && (ours != theirs || kind != their_kind) {
                differ(format!(
                    "{} bytes of {kind}, the node {} of {their_kind}",
                    ours.len(),
                    theirs.len()
                ));
            }
            return;
        }
        match (serde_json::from_slice(&ours), serde_json::from_slice(&theirs)) {
            (Ok(ours), Ok(theirs)) => difference("", &ours, &theirs).into_iter().for_each(differ),
            (ours, theirs) => {
                if ours.is_ok() != theirs.is_ok() {
                    differ(format!("JSON {}, the node {}", ours.is_ok(), theirs.is_ok()));
                }
            }
        }
    }

    fn ask(&mut self, situation: &str, method: &str, params: Value) {
        let question = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        self.compare(situation, "POST", "/", &question.to_string());
    }

    /// All calls about all blocks and transactions that matter now.
    fn compare_all(&mut self, situation: &str, blocks: &[BlockHash], txids: &[Txid]) {
        for method in [
            "getblockchaininfo",
            "getnetworkinfo",
            "getbestblockhash",
            "getblockcount",
            "getchaintips",
            "getrawmempool",
        ] {
            self.ask(situation, method, json!([]));
        }
        self.ask(situation, "waitfornewblock", json!([10]));
        let tip = self.sandbox.height();
        for height in [0, tip.saturating_sub(1), tip, tip + 1] {
            self.ask(situation, "getblockhash", json!([height]));
        }
        let around = [0, tip.saturating_sub(1), tip].map(|height| self.sandbox.block_hash(height).unwrap());
        for hash in blocks.iter().chain(&around) {
            let hash = hash.to_string();
            self.ask(situation, "getblockheader", json!([hash]));
            self.ask(situation, "getblockheader", json!([hash, false]));
            self.ask(situation, "getblock", json!([hash]));
            for verbosity in [0, 2, 3] {
                self.ask(situation, "getblock", json!([hash, verbosity]));
            }
            for txid in txids {
                for verbosity in [json!(false), json!(1), json!(2)] {
                    let params = json!([txid.to_string(), verbosity, hash]);
                    self.ask(situation, "getrawtransaction", params);
                }
            }
            for path in [
                format!("/rest/block/{hash}.bin"),
                format!("/rest/headers/1/{hash}.bin"),
                format!("/rest/headers/{hash}.bin?count=3"),
                format!("/rest/headers/{hash}.bin"),
            ] {
                self.compare(situation, "GET", &path, "");
            }
        }
        self.compare_others(situation, txids);
    }

    /// Calls that creditd never makes.
    fn compare_others(&mut self, situation: &str, txids: &[Txid]) {
        for txid in txids {
            let txid = txid.to_string();
            self.ask(situation, "getrawtransaction", json!([txid]));
            self.ask(situation, "getrawtransaction", json!([txid, true]));
            self.ask(situation, "getmempoolentry", json!([txid]));
            for (n, waiting) in [(0, true), (0, false), (1, true), (1, false), (7, true)] {
                self.ask(situation, "gettxout", json!([txid, n, waiting]));
            }
        }
        self.ask(situation, "getzmqnotifications", json!([]));
        let scripts: Vec<String> = ["a", "b", "c", "d"]
            .map(|label| format!("addr({})", Sandbox::address(label)))
            .to_vec();
        self.ask(situation, "scantxoutset", json!(["start", scripts]));
        self.ask(situation, "scantxoutset", json!(["start", [{"desc": "raw(51)"}]]));
        self.ask(situation, "scantxoutset", json!(["status"]));
        self.ask(situation, "scantxoutset", json!(["abort"]));
    }
}

/// What our answer has otherwise than the node's. The node may have more fields.
fn difference(path: &str, ours: &Value, theirs: &Value) -> Vec<String> {
    let field = path.rsplit('.').next().unwrap_or_default();
    let kind = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(number) if number.is_f64() => "a float",
        Value::Number(_) => "a whole number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    match (ours, theirs) {
        _ if kind(ours) != kind(theirs) => {
            vec![format!("{path} is {}, the node's {}", kind(ours), kind(theirs))]
        }
        _ if OWN_FIELDS.contains(&field) && !path.contains("error") && field != "version" => Vec::new(),
        // The same name is a number of the block in a header and of the software in the network's info.
        (Value::Number(ours), Value::Number(theirs)) if field == "version" => {
            let is_software =
                |number: &serde_json::Number| (250_000..1_000_000).contains(&number.as_i64().unwrap());
            match ours == theirs || (is_software(ours) && is_software(theirs)) {
                true => Vec::new(),
                false => vec![format!("{path} is {ours}, the node's {theirs}")],
            }
        }
        (Value::Object(ours), Value::Object(theirs)) => {
            let is_usage = ours.get("code") == Some(&json!(-1)) && theirs.get("code") == Some(&json!(-1));
            let mut faults = Vec::new();
            for (name, value) in ours {
                match theirs.get(name) {
                    // The node explains the whole call.
                    Some(_) if is_usage && name == "message" => {}
                    Some(other) => faults.extend(difference(&format!("{path}.{name}"), value, other)),
                    None => faults.push(format!("{path}.{name} is not in the node's answer")),
                }
            }
            faults
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            let in_order = |list: &[Value]| {
                let mut texts: Vec<String> = list.iter().map(Value::to_string).collect();
                // Lists of ids and of branches come in any order; answers to a batch do not.
                if !texts.iter().any(|text| text.contains("jsonrpc")) {
                    texts.sort();
                }
                texts
            };
            if ours.len() != theirs.len() {
                return vec![format!("{path}: {ours:?}, the node's {theirs:?}")];
            }
            let pairs = in_order(ours).into_iter().zip(in_order(theirs));
            let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            pairs
                .flat_map(|(ours, theirs)| difference(&format!("{path}[]"), &parsed(&ours), &parsed(&theirs)))
                .collect()
        }
        _ if ours != theirs => vec![format!("{path} is {ours}, the node's {theirs}")],
        _ => Vec::new(),
    }
}

#[test]
fn sandbox_answers_as_a_real_node_does() {
    let mut pair = Pair::new();
    pair.compare_all("at genesis", &[], &[]);
    bad_questions(&mut pair);
    bad_forms(&mut pair);
    derived(&mut pair);
    pair.mine(120);
    pair.compare_all("after 120 blocks", &[], &[]);
    let (kept, lost) = payments(&mut pair);
    branches(&mut pair, kept, lost);
    invalidation(&mut pair);
    waiting(&mut pair);
    println!(
        "{} questions, {}",
        pair.asked,
        pair.node.call("getnetworkinfo", &[])["subversion"]
    );
    assert!(
        pair.faults.is_empty(),
        "the sandbox answers otherwise:\n{}",
        pair.faults
    );
}

/// Payments, replacement, and blocks that hold them. Returns two that are mined.
fn payments(pair: &mut Pair) -> (Txid, Txid) {
    let first = pair.pay("a", 29_000_000);
    let second = pair.pay("b", 6_000_000_000);
    pair.compare_all("two in the mempool", &[], &[first, second]);
    let replacer = pair
        .sandbox
        .replace(first, &Sandbox::address("c"), 28_000_000)
        .unwrap();
    pair.send(replacer);
    pair.compare_all("one replaced", &[], &[first, second, replacer]);
    pair.mine(1);
    let block = pair.sandbox.tip();
    pair.compare_all("both mined", &[block], &[first, second, replacer]);
    pair.mine(2);
    pair.compare_all("two blocks deep", &[block], &[second]);
    (second, replacer)
}

/// A shorter branch, one of equal length, and a reorg that keeps one payment, drops one and brings a double
/// spend.
fn branches(pair: &mut Pair, kept: Txid, lost: Txid) {
    let tip = pair.sandbox.height();
    let fork = pair.sandbox.block_hash(tip - 2).unwrap();
    let short = pair.sandbox.mine_on(fork, 1).unwrap();
    pair.give(&short);
    pair.compare_all("a shorter branch", &short, &[]);
    let equal = pair.sandbox.mine_on(short[0], 1).unwrap();
    pair.give(&equal);
    pair.compare_all("a branch of equal work", &equal, &[]);
    let stale = pair.sandbox.tip();
    pair.sandbox.reorg(3, &[kept]).unwrap();
    pair.give_from(tip - 2);
    assert_eq!(pair.sandbox.mempool(), [lost]);
    pair.compare_all(
        "one payment kept, one back in the mempool",
        &[stale, short[0]],
        &[kept, lost],
    );
    let double = pair
        .sandbox
        .conflict(lost, &Sandbox::address("d"), 1_000_000)
        .unwrap();
    pair.sandbox.mine_with(&[double]).unwrap();
    pair.give_from(pair.sandbox.height());
    assert_eq!(pair.sandbox.mempool(), []);
    pair.compare_all("a double spend mined", &[stale], &[kept, lost, double]);
    let ours = pair.sandbox.mine_on(stale, 3).unwrap();
    pair.give(&ours);
    pair.compare_all("the first branch is back", &ours, &[kept, lost, double]);
}

/// The operator's calls, made on both.
fn invalidation(pair: &mut Pair) {
    let tip = pair.sandbox.height();
    let wrong = pair.sandbox.block_hash(tip - 1).unwrap().to_string();
    pair.ask("", "invalidateblock", json!([wrong]));
    let old = [pair.sandbox.tip()];
    pair.compare_all("two blocks invalid", &old, &[]);
    pair.ask("two blocks invalid", "invalidateblock", json!([UNKNOWN]));
    pair.ask("two blocks invalid", "reconsiderblock", json!([UNKNOWN]));
    pair.mine(2);
    pair.compare_all("as much work beside them", &old, &[]);
    pair.ask("", "reconsiderblock", json!([wrong]));
    pair.compare_all("valid again", &old, &[]);
    pair.mine(1);
    pair.compare_all("one more", &old, &[]);
}

/// A waiting call ends with the block that it waited for.
fn waiting(pair: &mut Pair) {
    let wait = |side: &Side| {
        let (port, cookie) = (side.port, side.cookie.clone());
        let side = Side {
            name: side.name,
            port,
            cookie,
        };
        std::thread::spawn(move || side.call("waitfornewblock", json!([30_000])))
    };
    let calls = [wait(&pair.ours), wait(&pair.theirs)];
    // Nothing tells when a call has begun to wait, so blocks are mined until both have ended.
    let mined = wait_until("both calls have ended", PATIENCE, || {
        pair.mine(1);
        calls
            .iter()
            .all(|call| call.is_finished())
            .then_some(pair.sandbox.height())
    });
    for call in calls {
        let answer = call.join().unwrap();
        let height = answer["height"].as_u64().unwrap();
        assert!(height <= mined, "{answer}");
        assert_eq!(
            answer["hash"],
            pair.sandbox.block_hash(height).unwrap().to_string()
        );
    }
}
