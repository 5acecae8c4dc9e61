//! The calls of one transaction as a tree: what moves coin, and what the two ways of tracing show.

use super::tx::{Address, CallKind, Effects, InnerCall, Signed, hex};
use crate::rules::{BlockHash, Txid};
use ruint::aliases::U256;
use serde_json::{Map, Value, json};

/// One call.
pub(super) struct Frame<'a> {
    kind: CallKind,
    from: Address,
    to: Address,
    value: U256,
    input: &'a [u8],
    is_success: bool,
    gas_used: u64,
    calls: Vec<Frame<'a>>,
}

/// Where a trace is.
pub(super) struct Place {
    pub(super) block: BlockHash,
    pub(super) number: u64,
    pub(super) tx: Txid,
    pub(super) index: usize,
}

/// What a call may take; nobody counts it.
const GAS: u64 = 200_000;

impl<'a> Frame<'a> {
    /// The transaction itself, and all that it calls.
    pub(super) fn of(tx: &'a Signed, effects: &'a Effects) -> Frame<'a> {
        let to = tx.recipient();
        Frame {
            kind: match tx.tx.to {
                Some(_) => CallKind::Call,
                None => CallKind::Create,
            },
            from: tx.tx.from,
            to,
            value: tx.tx.value,
            input: &tx.tx.input,
            is_success: effects.is_success,
            gas_used: Signed::gas_used(effects),
            calls: Frame::inner(to, &effects.calls),
        }
    }

    fn inner(caller: Address, calls: &'a [InnerCall]) -> Vec<Frame<'a>> {
        let frame = |call: &'a InnerCall| {
            // Borrowed code calls others in the name of whoever borrowed it.
            let name = match call.kind {
                CallKind::DelegateCall | CallKind::CallCode => caller,
                CallKind::Call
                | CallKind::StaticCall
                | CallKind::Create
                | CallKind::Create2
                | CallKind::SelfDestruct => call.to,
            };
            Frame {
                kind: call.kind,
                from: caller,
                to: call.to,
                value: call.value,
                input: &call.input,
                is_success: call.is_success,
                gas_used: 9_000,
                calls: Frame::inner(name, &call.calls),
            }
        };
        calls.iter().map(frame).collect()
    }

    /// Every movement of coin that lasts, in the order of the calls.
    pub(super) fn movements(&self) -> Vec<(Address, Address, U256)> {
        if !self.is_success {
            return Vec::new();
        }
        let mut moved = Vec::new();
        match self.kind {
            CallKind::Call | CallKind::Create | CallKind::Create2 | CallKind::SelfDestruct => {
                moved.push((self.from, self.to, self.value));
            }
            CallKind::DelegateCall | CallKind::CallCode | CallKind::StaticCall => {}
        }
        moved.extend(self.calls.iter().flat_map(Frame::movements));
        moved
    }

    /// The tree as `callTracer` shows it.
    /// <https://geth.ethereum.org/docs/developers/evm-tracing/built-in-tracers>
    pub(super) fn to_call_tracer(&self) -> Value {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| {
            fields.insert(name.to_owned(), value);
        };
        let is_end = self.kind == CallKind::SelfDestruct;
        let (gas, gas_used) = if is_end { (0, 0) } else { (GAS, self.gas_used) };
        put("type", json!(op_code(self.kind)));
        put("from", json!(self.from.to_string()));
        put("to", json!(self.to.to_string()));
        put("gas", json!(format!("{gas:#x}")));
        put("gasUsed", json!(format!("{gas_used:#x}")));
        put("input", json!(hex(self.input)));
        if self.kind != CallKind::StaticCall {
            put("value", json!(format!("{:#x}", self.value)));
        }
        if !self.is_success {
            put("error", json!("execution reverted"));
        }
        if !self.calls.is_empty() {
            put("calls", self.calls.iter().map(Frame::to_call_tracer).collect());
        }
        Value::Object(fields)
    }

    /// The calls one after the other, a caller before those that it calls, as `trace_block` shows them.
    /// <https://openethereum.github.io/JSONRPC-trace-module>
    pub(super) fn to_flat(&self, place: &Place) -> Vec<Value> {
        let mut list = Vec::new();
        self.flatten(place, &mut Vec::new(), &mut list);
        list
    }

    fn flatten(&self, place: &Place, path: &mut Vec<usize>, list: &mut Vec<Value>) {
        let (kind, action, result) = self.flat_action();
        let mut fields = Map::new();
        if !self.is_success {
            // A result is there all the same: only this field tells.
            fields.insert("error".to_owned(), json!("Reverted"));
        }
        let mut put = |name: &str, value: Value| {
            fields.insert(name.to_owned(), value);
        };
        put("type", json!(kind));
        put("action", action);
        put("result", result);
        put("subtraces", json!(self.calls.len()));
        put("traceAddress", json!(path));
        put("blockHash", json!(format!("0x{}", place.block)));
        // Numbers here are plain, not hex.
        put("blockNumber", json!(place.number));
        put("transactionHash", json!(format!("0x{}", place.tx)));
        put("transactionPosition", json!(place.index));
        list.push(Value::Object(fields));
        for (position, call) in self.calls.iter().enumerate() {
            path.push(position);
            call.flatten(place, path, list);
            path.pop();
        }
    }

    fn flat_action(&self) -> (&'static str, Value, Value) {
        let (from, to) = (self.from.to_string(), self.to.to_string());
        let (value, input) = (format!("{:#x}", self.value), hex(self.input));
        let (gas, used) = (format!("{GAS:#x}"), format!("{:#x}", self.gas_used));
        match self.kind {
            CallKind::Call | CallKind::DelegateCall | CallKind::CallCode | CallKind::StaticCall => (
                "call",
                json!({
                    "callType": op_code(self.kind).to_lowercase(),
                    "from": from, "to": to, "value": value, "input": input, "gas": gas,
                }),
                json!({"gasUsed": used, "output": "0x"}),
            ),
            CallKind::Create | CallKind::Create2 => (
                "create",
                json!({
                    "creationMethod": op_code(self.kind).to_lowercase(),
                    "from": from, "value": value, "init": input, "gas": gas,
                }),
                json!({"address": to, "code": "0x", "gasUsed": used}),
            ),
            CallKind::SelfDestruct => (
                "suicide",
                json!({"address": from, "refundAddress": to, "balance": value}),
                Value::Null,
            ),
        }
    }
}

fn op_code(kind: CallKind) -> &'static str {
    match kind {
        CallKind::Call => "CALL",
        CallKind::DelegateCall => "DELEGATECALL",
        CallKind::CallCode => "CALLCODE",
        CallKind::StaticCall => "STATICCALL",
        CallKind::Create => "CREATE",
        CallKind::Create2 => "CREATE2",
        CallKind::SelfDestruct => "SELFDESTRUCT",
    }
}
