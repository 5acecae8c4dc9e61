//! A node that is behind: whatever the real one knows above a height is unknown here.

use std::io;

use serde_json::{Value, json};

use super::Upstream;
use crate::common::anvil::{hex, quantity};

/// Where the node that a proxy shows has its tip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// So many blocks below the real one's. The tags `safe` and `finalized` are as much lower.
    Behind(u64),
    /// At this height, or at the real one's tip where that is lower.
    At(u64),
}

/// The chain up to a height, for one exchange.
pub(super) struct View<'a> {
    upstream: &'a Upstream,
    seen: u64,
    behind: u64,
}

/// What becomes of a question.
pub(super) enum Seen {
    /// The real node can answer it.
    Known,
    /// It is about something above the height: this `result` or `error`.
    Unknown(&'static str, Value),
}

/// Methods about a block, and which parameter names it.
const BLOCKS: &[(&str, usize)] = &[
    ("eth_getBlockByNumber", 0),
    ("eth_getBlockByHash", 0),
    ("eth_getBlockReceipts", 0),
    ("eth_getBlockTransactionCountByNumber", 0),
    ("eth_getBlockTransactionCountByHash", 0),
    ("debug_traceBlockByHash", 0),
    ("debug_traceBlockByNumber", 0),
    ("trace_block", 0),
    ("eth_getLogs", 0),
    ("eth_getBalance", 1),
    ("eth_getTransactionCount", 1),
    ("eth_getCode", 1),
    ("eth_call", 1),
];

impl<'a> View<'a> {
    pub(super) fn open(upstream: &'a Upstream, head: Head) -> io::Result<Self> {
        let tip = number(&upstream.ask("eth_blockNumber", json!([]))?);
        let seen = match head {
            Head::Behind(blocks) => tip.saturating_sub(blocks),
            Head::At(height) => tip.min(height),
        };
        let behind = tip - seen;
        Ok(Self {
            upstream,
            seen,
            behind,
        })
    }

    /// Puts numbers in place of tags, and tells whether the block asked for is known.
    pub(super) fn look(&self, question: &mut Value) -> io::Result<Seen> {
        let method = question["method"].as_str().unwrap_or_default().to_owned();
        let Some((_, place)) = BLOCKS.iter().find(|(name, _)| *name == method) else {
            return Ok(Seen::Known);
        };
        let block = &mut question["params"][*place];
        let is_known = match method.as_str() {
            "eth_getLogs" => self.knows_range(block)?,
            _ => self.knows(block)?,
        };
        if is_known {
            return Ok(Seen::Known);
        }
        let error = |message: &str| Seen::Unknown("error", json!({ "code": -32000, "message": message }));
        Ok(match method.as_str() {
            "eth_getLogs" => error("unknown block"),
            "debug_traceBlockByHash" | "debug_traceBlockByNumber" => error("block not found"),
            "eth_getBalance" | "eth_getTransactionCount" | "eth_getCode" | "eth_call" => {
                error("header not found")
            }
            _ => Seen::Unknown("result", Value::Null),
        })
    }

    /// Takes out of a result what is above the height.
    pub(super) fn trim(&self, method: &str, result: &mut Value) {
        let is_above = |place: &Value| place.is_string() && number(place) > self.seen;
        match method {
            "eth_blockNumber" => *result = json!(hex(self.seen.into())),
            "eth_getTransactionReceipt" if is_above(&result["blockNumber"]) => *result = Value::Null,
            "eth_getTransactionByHash" if is_above(&result["blockNumber"]) => {
                for name in ["blockHash", "blockNumber", "transactionIndex"] {
                    result[name] = Value::Null;
                }
            }
            "eth_getLogs" => {
                if let Some(logs) = result.as_array_mut() {
                    logs.retain(|log| !is_above(&log["blockNumber"]));
                }
            }
            _ => {}
        }
    }

    /// A range is cut short, as by a node that has no more; a block asked for by hash must be there.
    fn knows_range(&self, filter: &mut Value) -> io::Result<bool> {
        if let Some(hash) = filter.get_mut("blockHash") {
            return self.knows(hash);
        }
        for end in ["fromBlock", "toBlock"] {
            if let Some(block) = filter.get_mut(end) {
                self.knows(block)?;
            }
        }
        Ok(true)
    }

    fn knows(&self, block: &mut Value) -> io::Result<bool> {
        if let Some(fields) = block.as_object_mut() {
            return match fields.values_mut().next() {
                Some(named) => self.knows(named),
                None => Ok(true),
            };
        }
        let Some(text) = block.as_str() else {
            return Ok(true);
        };
        let at = match text {
            "latest" => self.seen,
            // Nothing waits on a tip that is not the real one's.
            "pending" => return Ok(false),
            "safe" | "finalized" => {
                let tagged = self.upstream.ask("eth_getBlockByNumber", json!([text, false]))?;
                if tagged.is_null() {
                    return Ok(true);
                }
                number(&tagged["number"]).saturating_sub(self.behind)
            }
            hash if hash.len() == 66 => {
                let found = self.upstream.ask("eth_getBlockByHash", json!([hash, false]))?;
                return Ok(found.is_null() || number(&found["number"]) <= self.seen);
            }
            number if number.starts_with("0x") => {
                return Ok(u64::from_str_radix(&number[2..], 16).is_ok_and(|at| at <= self.seen));
            }
            _ => return Ok(true),
        };
        *block = json!(hex(at.into()));
        Ok(true)
    }
}

fn number(value: &Value) -> u64 {
    quantity(value).try_into().unwrap()
}
