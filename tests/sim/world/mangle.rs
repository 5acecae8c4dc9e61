//! Answers that are not what the node said, or not all of it. Never a payment that is not there: nobody can
//! tell that from an honest answer.

use crate::dice::Dice;
use crate::marks;
use crate::script::LieKind;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What happens to the next answers.
#[derive(Debug, Default)]
pub struct Mangle {
    lie: Option<LieKind>,
    left: u32,
    dice: Option<Dice>,
    /// The last honest answer to a question, and the last one to any of that method.
    last: BTreeMap<String, Value>,
}

/// What is sent in the place of an answer.
pub enum Sent {
    Whole(Vec<u8>),
    /// The connection breaks in the middle.
    Cut,
}

impl Mangle {
    /// The next answers that it fits are changed.
    pub fn lie(&mut self, lie: LieKind, times: u32, dice: u64) {
        self.lie = Some(lie);
        self.left = times;
        self.dice = Some(Dice::new(dice));
    }

    pub fn stop(&mut self) {
        self.lie = None;
    }

    /// Changes the answer to a question, or to several in a batch.
    pub fn change(&mut self, asked: &[u8], answered: Vec<u8>) -> Sent {
        let (Ok(asked), Ok(mut answer)) = (
            serde_json::from_slice::<Value>(asked),
            serde_json::from_slice::<Value>(&answered),
        ) else {
            return Sent::Whole(answered);
        };
        let questions: Vec<&Value> = match &asked {
            Value::Array(all) => all.iter().collect(),
            one => vec![one],
        };
        let methods: Vec<String> = questions.iter().map(|question| method(question)).collect();
        let honest: Vec<Value> = entries(&mut answer)
            .iter()
            .map(|entry| (**entry).clone())
            .collect();
        let lie = self.lie.filter(|_| self.left > 0);
        let is_changed = match lie {
            Some(LieKind::Cut) => {
                self.left -= 1;
                marks::hit("answer_cut");
                return Sent::Cut;
            }
            Some(lie) => self.apply(lie, &methods, &mut answer),
            None => false,
        };
        self.left -= u32::from(is_changed);
        for (method, answer) in methods.into_iter().zip(honest) {
            if let Some(result) = answer.get("result").filter(|result| !result.is_null()) {
                self.last.insert(method, result.clone());
            }
        }
        match is_changed {
            true => Sent::Whole(answer.to_string().into_bytes()),
            false => Sent::Whole(answered),
        }
    }

    fn apply(&mut self, lie: LieKind, methods: &[String], answer: &mut Value) -> bool {
        let is_batch = answer.is_array();
        let dice = self.dice.as_mut().unwrap();
        let (last, count) = (&self.last, methods.len());
        let picked = dice.roll(count.max(1));
        if lie == LieKind::BatchEntryFailed && is_batch && count > 1 {
            let all = answer.as_array_mut().unwrap();
            match dice.once_in(2) {
                true => drop(all.remove(picked.min(all.len() - 1))),
                false => fail(&mut all[picked]),
            }
            marks::hit("batch_entry_failed");
            return true;
        }
        let mut entries = entries(answer);
        let Some(entry) = entries.get_mut(picked) else {
            return false;
        };
        match lie {
            LieKind::NullAnswer => {
                entry["result"] = Value::Null;
                marks::hit("null_answer");
                true
            }
            LieKind::ErrorIn200 => {
                fail(entry);
                marks::hit("error_in_200");
                true
            }
            LieKind::Stale => match last.get(&methods[picked]) {
                Some(old) if *old != entry["result"] => {
                    entry["result"] = old.clone();
                    marks::hit("stale_answer");
                    true
                }
                _ => false,
            },
            LieKind::BatchEntryFailed | LieKind::Cut => false,
            LieKind::OtherReceipts
            | LieKind::FakeBlock
            | LieKind::LogsDropped
            | LieKind::Amount
            | LieKind::StatusAbsent
            | LieKind::LogIndexShifted => apply_to_all(lie, last, methods, entries),
        }
    }
}

/// Lies that are the same in every answer that they fit. True if there was one.
fn apply_to_all(
    lie: LieKind,
    last: &BTreeMap<String, Value>,
    methods: &[String],
    mut entries: Vec<&mut Value>,
) -> bool {
    match lie {
        LieKind::OtherReceipts => (0..entries.len()).any(|at| {
            let old = last
                .get(&methods[at])
                .filter(|old| **old != entries[at]["result"]);
            let is_receipts = methods[at].contains("Receipt");
            is_receipts
                && old.is_some_and(|old| {
                    entries[at]["result"] = old.clone();
                    marks::hit("lie_receipts");
                    true
                })
        }),
        LieKind::FakeBlock => entries.iter_mut().any(|entry| {
            let is_block = entry["result"].get("parentHash").is_some();
            if is_block {
                entry["result"]["hash"] = json!(format!("0x{}", "ab".repeat(32)));
                marks::hit("lie_block");
            }
            is_block
        }),
        LieKind::LogsDropped => {
            (0..entries.len()).any(|at| methods[at] == "eth_getLogs" && drop_logs(entries[at]))
        }
        LieKind::Amount => {
            (0..entries.len()).any(|at| methods[at] == "eth_getLogs" && change_amounts(entries[at]))
        }
        LieKind::StatusAbsent => {
            let mut is_any = false;
            for entry in entries {
                each_receipt(&mut entry["result"], &mut |receipt| {
                    is_any |= receipt.remove("status").is_some();
                });
            }
            if is_any {
                marks::hit("receipt_without_status");
            }
            is_any
        }
        LieKind::LogIndexShifted => {
            let mut is_any = false;
            for entry in entries {
                is_any |= shift_logs(&mut entry["result"]);
            }
            if is_any {
                marks::hit("same_tx_other_log_index");
            }
            is_any
        }
        LieKind::NullAnswer
        | LieKind::ErrorIn200
        | LieKind::Stale
        | LieKind::BatchEntryFailed
        | LieKind::Cut => false,
    }
}

/// What an answer may be mistaken for. Of a block by a tag: only for another answer of that tag, or a tip
/// would be called final, which nobody can tell from a chain whose blocks are.
fn method(question: &Value) -> String {
    let method = question["method"].as_str().unwrap_or_default();
    let tag = question["params"][0]
        .as_str()
        .filter(|word| !word.starts_with("0x"));
    match tag {
        Some(tag) => format!("{method} {tag}"),
        None => method.to_owned(),
    }
}

fn entries(answer: &mut Value) -> Vec<&mut Value> {
    match answer {
        Value::Array(all) => all.iter_mut().collect(),
        one => vec![one],
    }
}

fn fail(entry: &mut Value) {
    let id = entry["id"].clone();
    *entry = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": "header not found"}});
}

fn drop_logs(entry: &mut Value) -> bool {
    let is_any = entry["result"].as_array().is_some_and(|logs| !logs.is_empty());
    if is_any {
        entry["result"] = json!([]);
        marks::hit("lie_logs");
    }
    is_any
}

/// A list of logs only says which transactions to look at: what it says of amounts is nobody's business.
fn change_amounts(entry: &mut Value) -> bool {
    let mut is_any = false;
    for log in entry["result"].as_array_mut().into_iter().flatten() {
        log["data"] = json!(format!("0x{:064x}", 7_777_777));
        is_any = true;
    }
    if is_any {
        marks::hit("lie_amount");
    }
    is_any
}

fn each_receipt(value: &mut Value, work: &mut impl FnMut(&mut serde_json::Map<String, Value>)) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|value| each_receipt(value, work)),
        Value::Object(fields)
            if fields.contains_key("logsBloom") && fields.contains_key("transactionHash") =>
        {
            work(fields);
        }
        _ => {}
    }
}

/// Every index of a log in its block is another one: clients count differently.
fn shift_logs(value: &mut Value) -> bool {
    match value {
        // All of them, not only the first.
        Value::Array(all) => {
            all.iter_mut()
                .filter_map(|value| shift_logs(value).then_some(()))
                .count()
                > 0
        }
        Value::Object(fields) => {
            if fields.contains_key("logIndex") {
                let index = fields["logIndex"]
                    .as_str()
                    .and_then(|text| text.strip_prefix("0x"));
                let index = index.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                fields.insert(
                    "logIndex".to_owned(),
                    json!(format!("{:#x}", index.unwrap_or(0) + 5)),
                );
                return true;
            }
            fields.get_mut("logs").is_some_and(shift_logs)
        }
        _ => false,
    }
}
