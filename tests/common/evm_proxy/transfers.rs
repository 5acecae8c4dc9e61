//! A node whose chain logs every movement of native coin (<https://eips.ethereum.org/EIPS/eip-7708>), made of
//! one whose chain does not. Only the hash of a header no longer follows from its fields.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::Upstream;
use crate::common::accounts::TRANSFER_TOPIC;
use crate::common::anvil::{array, hex, quantity};
use crate::common::bloom;
use crate::common::contracts::address_word;
use crate::common::stub::Call;

/// In whose name the movements are logged.
pub const SYSTEM: &str = "0xfffffffffffffffffffffffffffffffffffffffe";

/// A block with all its logs.
struct Logged {
    receipts: Vec<Value>,
    bloom: String,
}

/// From which block on movements are logged, and what was found out about those blocks.
pub(super) struct Transfers {
    from: u64,
    blocks: Mutex<HashMap<String, Arc<Logged>>>,
}

/// What leaves a log, in the order of execution.
enum Step {
    /// One of the transaction's own logs, the next one.
    Own,
    Moved {
        from: String,
        to: String,
        wei: u128,
    },
}

impl Transfers {
    pub(super) fn new(from: u64) -> Self {
        let blocks = Mutex::default();
        Self { from, blocks }
    }

    /// Puts the logs into a result of the node.
    pub(super) fn add(&self, upstream: &Upstream, call: &Call, result: &mut Value) -> io::Result<()> {
        match call.method.as_str() {
            "eth_getBlockByHash" | "eth_getBlockByNumber" => {
                if let Some(block) = self.logged(upstream, &result["number"], &result["hash"])? {
                    result["logsBloom"] = json!(block.bloom);
                }
            }
            "eth_getBlockReceipts" => {
                let first = &result[0];
                if let Some(block) = self.logged(upstream, &first["blockNumber"], &first["blockHash"])? {
                    *result = json!(block.receipts);
                }
            }
            "eth_getTransactionReceipt" => {
                let index = &result["transactionIndex"];
                if let Some(block) = self.logged(upstream, &result["blockNumber"], &result["blockHash"])? {
                    *result = block.receipts[usize::try_from(quantity(index)).unwrap()].clone();
                }
            }
            "eth_getLogs" => {
                if let Some(logs) = result.as_array_mut() {
                    let filter = &call.params[0];
                    logs.retain(|log| quantity(&log["blockNumber"]) < self.from.into());
                    for block in self.range(upstream, filter)? {
                        let all = block.receipts.iter().flat_map(logs_of);
                        logs.extend(all.filter(|log| fits(filter, log)).cloned());
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The blocks that a filter is about, as far as their movements are logged.
    fn range(&self, upstream: &Upstream, filter: &Value) -> io::Result<Vec<Arc<Logged>>> {
        if filter["blockHash"].is_string() {
            let block = upstream.ask("eth_getBlockByHash", json!([filter["blockHash"], false]))?;
            let block = self.logged(upstream, &block["number"], &block["hash"])?;
            return Ok(block.into_iter().collect());
        }
        let end = |name: &str| {
            let tag = filter.get(name).cloned().unwrap_or(json!("latest"));
            let block = upstream.ask("eth_getBlockByNumber", json!([tag, false]))?;
            let block = match block.is_null() {
                true => upstream.ask("eth_getBlockByNumber", json!(["latest", false]))?,
                false => block,
            };
            io::Result::Ok(quantity(&block["number"]))
        };
        let mut blocks = Vec::new();
        for number in end("fromBlock")?.max(self.from.into())..=end("toBlock")? {
            let block = upstream.ask("eth_getBlockByNumber", json!([hex(number), false]))?;
            blocks.extend(self.logged(upstream, &block["number"], &block["hash"])?);
        }
        Ok(blocks)
    }

    /// The block with its logs; none if there is no such block, or movements are not logged there.
    fn logged(&self, upstream: &Upstream, number: &Value, hash: &Value) -> io::Result<Option<Arc<Logged>>> {
        let (true, Some(name)) = (number.is_string(), hash.as_str()) else {
            return Ok(None);
        };
        if quantity(number) < self.from.into() {
            return Ok(None);
        }
        if let Some(known) = self.blocks.lock().unwrap().get(name) {
            return Ok(Some(Arc::clone(known)));
        }
        let options = json!({ "tracer": "callTracer", "tracerConfig": { "withLog": true } });
        let traces = upstream.ask("debug_traceBlockByHash", json!([hash, options]))?;
        let receipts = upstream.ask("eth_getBlockReceipts", json!([hash]))?;
        let block = Arc::new(Logged::of(array(receipts), &array(traces)));
        let mut blocks = self.blocks.lock().unwrap();
        blocks.insert(name.to_owned(), Arc::clone(&block));
        Ok(Some(block))
    }
}

impl Logged {
    fn of(mut receipts: Vec<Value>, traces: &[Value]) -> Self {
        assert_eq!(receipts.len(), traces.len());
        let mut index: u128 = 0;
        for (receipt, trace) in receipts.iter_mut().zip(traces) {
            let mut logs = merged(receipt, &trace["result"]);
            for log in &mut logs {
                log["logIndex"] = json!(hex(index));
                index += 1;
            }
            receipt["logsBloom"] = json!(bloom::of_logs(&logs));
            receipt["logs"] = json!(logs);
        }
        let bloom = bloom::of_logs(receipts.iter().flat_map(logs_of));
        Self { receipts, bloom }
    }
}

fn logs_of(receipt: &Value) -> &[Value] {
    receipt["logs"].as_array().unwrap()
}

/// The logs of a transaction with those of its movements among them.
fn merged(receipt: &Value, trace: &Value) -> Vec<Value> {
    let mut steps = Vec::new();
    walk(trace, &mut steps);
    let own = logs_of(receipt);
    let placed = steps.iter().filter(|step| matches!(step, Step::Own)).count();
    // A node that traces no logs leaves them to come last.
    steps.extend((placed..own.len()).map(|_| Step::Own));
    let mut own = own.iter();
    let log = |step| match step {
        Step::Own => own.next().expect("as many logs traced as in the receipt").clone(),
        Step::Moved { from, to, wei } => {
            let topic = |address: &str| format!("0x{}", address_word(address));
            let mut log = json!({
                "address": SYSTEM,
                "topics": [TRANSFER_TOPIC, topic(&from), topic(&to)],
                "data": format!("0x{wei:064x}"),
                "removed": false,
            });
            for name in ["blockHash", "blockNumber", "transactionHash", "transactionIndex"] {
                log[name] = receipt[name].clone();
            }
            log
        }
    };
    steps.into_iter().map(log).collect()
}

/// A movement is logged when the call begins. What a failed call and those below it did has not happened.
fn walk(frame: &Value, steps: &mut Vec<Step>) {
    if frame.get("error").is_some() {
        return;
    }
    let moves = ["CALL", "CREATE", "CREATE2", "SELFDESTRUCT"].contains(&frame["type"].as_str().unwrap());
    let wei = frame.get("value").map_or(0, quantity);
    if moves && wei > 0 && frame["from"] != frame["to"] {
        let [from, to] = ["from", "to"].map(|name| frame[name].as_str().unwrap().to_owned());
        steps.push(Step::Moved { from, to, wei });
    }
    let list = |name: &str| {
        frame
            .get(name)
            .and_then(Value::as_array)
            .map_or(&[][..], |list| list)
    };
    let (calls, logs) = (list("calls"), list("logs"));
    for place in 0..=calls.len() {
        // Behind so many calls of this frame.
        let here = logs
            .iter()
            .filter(|log| quantity(&log["position"]) == place as u128);
        steps.extend(here.map(|_| Step::Own));
        if let Some(call) = calls.get(place) {
            walk(call, steps);
        }
    }
}

fn fits(filter: &Value, log: &Value) -> bool {
    let is_any = |wanted: &Value, found: &Value| match wanted {
        Value::Null => true,
        Value::Array(any) => any.is_empty() || any.iter().any(|one| same(one, found)),
        one => same(one, found),
    };
    let topics = filter.get("topics").and_then(Value::as_array);
    let mut topics = topics.into_iter().flatten().enumerate();
    let contract = filter.get("address").unwrap_or(&Value::Null);
    is_any(contract, &log["address"])
        && topics.all(|(place, wanted)| wanted.is_null() || is_any(wanted, &log["topics"][place]))
}

/// Hex digits of either case.
fn same(one: &Value, other: &Value) -> bool {
    match (one.as_str(), other.as_str()) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        _ => false,
    }
}
