//! Coin that moves inside a transaction, from call traces: geth's `callTracer`
//! (<https://geth.ethereum.org/docs/developers/evm-tracing/built-in-tracers#call-tracer>) and the flat traces
//! of OpenEthereum's line (<https://openethereum.github.io/JSONRPC-trace-module>). Both tell the same tree,
//! so both give the same list here.
//!
//! A frame moves coin when it is a CALL, CREATE, CREATE2 or SELFDESTRUCT to another account, carries value,
//! and neither it nor a frame above it failed. DELEGATECALL and CALLCODE frames show value that does not
//! move, and the children of a failed frame carry no error of their own. Value in a frame of another kind
//! is not passed over: those after it would have another number.

use super::fields::{Account, Field};
use crate::rules::{Amount, Txid};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Coin that moved inside a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movement {
    /// Whose coin.
    pub from: Account,
    /// Whose it is now.
    pub to: Account,
    /// Wei, never 0.
    pub amount: Amount,
}

/// A frame of `callTracer`. The frames below it stay text until they are looked at: calls nest up to 1,024
/// deep (EIP-150), and a reader that goes down with them would need as deep a stack.
#[derive(Deserialize)]
struct Frame<'a> {
    r#type: String,
    #[serde(default)]
    from: Field<Account>,
    #[serde(default)]
    to: Field<Account>,
    #[serde(default)]
    value: Field<Amount>,
    #[serde(default)]
    error: Option<String>,
    #[serde(borrow, default)]
    calls: Option<Vec<&'a RawValue>>,
}

/// The movements in one transaction's `callTracer` result, in the order in which the calls began. The root,
/// which is the transaction itself, is not among them.
///
/// # Errors
/// Which frame cannot be read, and why: the answer has to be asked for again.
pub fn of_call_frames(root: &RawValue) -> Result<Vec<Movement>, String> {
    let mut movements = Vec::new();
    let mut waiting = vec![root];
    let mut place = 0;
    while let Some(text) = waiting.pop() {
        let frame: Frame<'_> =
            serde_json::from_str(text.get()).map_err(|error| format!("frame {place}: {error}"))?;
        if frame.error.is_none() {
            if place > 0 {
                let movement = match frame.r#type.as_str() {
                    "CALL" | "CREATE" | "CREATE2" | "SELFDESTRUCT" => {
                        movement(&frame.from, &frame.to, &frame.value)
                    }
                    "CALLCODE" | "DELEGATECALL" | "STATICCALL" => Ok(None),
                    kind => unknown(kind, &frame.value),
                };
                movements.extend(movement.map_err(|why| format!("frame {place}: {why}"))?);
            }
            waiting.extend(frame.calls.unwrap_or_default().into_iter().rev());
        }
        place += 1;
    }
    Ok(movements)
}

/// A frame of a kind that nobody has met yet: none that moves coin, as long as it carries none.
fn unknown(kind: &str, value: &Field<Amount>) -> Result<Option<Movement>, String> {
    match value {
        Field::Missing => Ok(None),
        Field::Is(amount) if amount.is_zero() => Ok(None),
        Field::Null | Field::Odd(_) | Field::Is(_) => Err(format!("value in a frame of kind {kind:?}")),
    }
}

fn movement(
    from: &Field<Account>,
    to: &Field<Account>,
    value: &Field<Amount>,
) -> Result<Option<Movement>, String> {
    let amount = *needed("value", value)?;
    if amount.is_zero() {
        return Ok(None);
    }
    let (from, to) = (*needed("from", from)?, *needed("to", to)?);
    Ok((from != to).then_some(Movement { from, to, amount }))
}

fn needed<'f, T>(name: &str, field: &'f Field<T>) -> Result<&'f T, String> {
    let fault = || format!("{name} {}", field.fault().unwrap_or_default());
    field.get().ok_or_else(fault)
}

/// One entry of a block's flat traces.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlatTrace {
    /// `call`, `create`, `suicide`, `reward`.
    r#type: String,
    #[serde(default)]
    action: FlatAction,
    #[serde(default)]
    result: Option<FlatResult>,
    #[serde(default)]
    error: Option<String>,
    /// The way down from the root, which has none.
    trace_address: Vec<u32>,
    /// Which transaction of the block; rewards belong to none.
    #[serde(default)]
    pub transaction_position: Option<u32>,
    /// The same by its hash.
    #[serde(default)]
    pub transaction_hash: Field<Txid>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FlatAction {
    call_type: Option<String>,
    from: Field<Account>,
    to: Field<Account>,
    value: Field<Amount>,
    /// A contract that ends, who gets what it held, and how much.
    address: Field<Account>,
    refund_address: Field<Account>,
    balance: Field<Amount>,
}

#[derive(Clone, Debug, Deserialize)]
struct FlatResult {
    #[serde(default)]
    address: Field<Account>,
}

/// The same from the flat traces of one transaction. Where each stands in the tree is told by its address;
/// in which order they come tells nothing.
///
/// # Errors
/// Which entry cannot be read, or hangs in the air, and why.
pub fn of_flat_traces<'t>(traces: impl IntoIterator<Item = &'t FlatTrace>) -> Result<Vec<Movement>, String> {
    let mut tree: BTreeMap<&[u32], &FlatTrace> = BTreeMap::new();
    for trace in traces {
        let address = trace.trace_address.as_slice();
        if tree.insert(address, trace).is_some() {
            return Err(format!("two traces {address:?}"));
        }
    }
    let mut movements = Vec::new();
    // The frame that failed last: whatever hangs below it did not happen.
    let mut failed: Option<&[u32]> = None;
    // A frame comes before those below it, and all of those before the next beside it.
    for (address, trace) in &tree {
        let above = address.split_last().map(|(_, above)| above);
        if above.is_some_and(|above| !tree.contains_key(above)) {
            return Err(format!("trace {address:?}: there is none above it"));
        }
        if failed.is_some_and(|failed| address.starts_with(failed)) {
            continue;
        }
        if trace.error.is_some() {
            failed = Some(address);
            continue;
        }
        if address.is_empty() {
            continue;
        }
        let movement = trace.movement();
        movements.extend(movement.map_err(|why| format!("trace {address:?}: {why}"))?);
    }
    Ok(movements)
}

impl FlatTrace {
    fn movement(&self) -> Result<Option<Movement>, String> {
        let action = &self.action;
        match (self.r#type.as_str(), action.call_type.as_deref()) {
            ("call", Some("call")) => movement(&action.from, &action.to, &action.value),
            ("call", Some("callcode" | "delegatecall" | "staticcall")) => Ok(None),
            // Without its kind it may be any.
            ("call", None) => match needed("value", &action.value)?.is_zero() {
                true => Ok(None),
                false => Err("callType is missing".to_owned()),
            },
            ("create", _) => {
                let made = self.result.as_ref().map(|result| result.address.clone());
                movement(&action.from, &made.unwrap_or_default(), &action.value)
            }
            ("suicide" | "selfdestruct", _) => {
                movement(&action.address, &action.refund_address, &action.balance)
            }
            (kind, call_type) => {
                let kind = call_type.unwrap_or(kind);
                unknown(kind, &action.value)?;
                unknown(kind, &action.balance)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// A call as both kinds of tracer would print it.
    #[derive(Clone, Debug)]
    struct Call {
        kind: &'static str,
        from: u8,
        to: u8,
        value: u64,
        fails: bool,
        inner: Vec<Call>,
    }

    fn account(last: u8) -> Account {
        Account(std::array::from_fn(|place| if place == 19 { last } else { 0 }))
    }

    fn hex(last: u8) -> String {
        format!("0x{last:040x}")
    }

    impl Call {
        fn frame(&self) -> Value {
            let mut frame = json!({
                "type": self.kind, "from": hex(self.from), "to": hex(self.to),
                "value": format!("0x{:x}", self.value), "gas": "0x1", "input": "0x",
            });
            if self.kind == "STATICCALL" {
                frame.as_object_mut().unwrap().remove("value");
            }
            if self.fails {
                frame["error"] = json!("execution reverted");
            }
            if !self.inner.is_empty() {
                frame["calls"] = self.inner.iter().map(Call::frame).collect();
            }
            frame
        }

        fn flat(&self, address: &[u32], traces: &mut Vec<Value>) {
            let value = format!("0x{:x}", self.value);
            let mut trace = match self.kind {
                "CREATE" | "CREATE2" => json!({
                    "type": "create", "action": {"from": hex(self.from), "value": value, "init": "0x"},
                    "result": {"address": hex(self.to), "code": "0x"},
                }),
                "SELFDESTRUCT" => json!({
                    "type": "suicide", "result": null,
                    "action": {"address": hex(self.from), "refundAddress": hex(self.to), "balance": value},
                }),
                kind => json!({
                    "type": "call", "result": {"gasUsed": "0x1", "output": "0x"},
                    "action": {"callType": kind.to_lowercase(), "from": hex(self.from), "to": hex(self.to),
                               "value": value, "input": "0x"},
                }),
            };
            if self.fails {
                trace["error"] = json!("Reverted");
                trace.as_object_mut().unwrap().remove("result");
            }
            trace["traceAddress"] = json!(address);
            trace["transactionPosition"] = json!(0);
            traces.push(trace);
            for (place, inner) in (0..).zip(&self.inner) {
                inner.flat(&[address, &[place]].concat(), traces);
            }
        }

        /// What the rule says, by going down the tree.
        fn expected(&self, is_root: bool, movements: &mut Vec<Movement>) {
            if self.fails {
                return;
            }
            let moves = ["CALL", "CREATE", "CREATE2", "SELFDESTRUCT"].contains(&self.kind);
            if !is_root && moves && self.value > 0 && self.from != self.to {
                movements.push(Movement {
                    from: account(self.from),
                    to: account(self.to),
                    amount: Amount::from_u64(self.value),
                });
            }
            self.inner
                .iter()
                .for_each(|inner| inner.expected(false, movements));
        }

        fn check(&self) {
            let mut expected = Vec::new();
            self.expected(true, &mut expected);
            assert_eq!(from_frames(&self.frame()).unwrap(), expected, "{self:?}");
            assert_eq!(from_flat(self).unwrap(), expected, "{self:?}");
        }
    }

    fn from_frames(frame: &Value) -> Result<Vec<Movement>, String> {
        of_call_frames(&serde_json::value::to_raw_value(frame).unwrap())
    }

    fn from_flat(call: &Call) -> Result<Vec<Movement>, String> {
        let mut traces = Vec::new();
        call.flat(&[], &mut traces);
        let text = Value::Array(traces).to_string();
        let traces: Vec<FlatTrace> = serde_json::from_str(&text).unwrap();
        of_flat_traces(&traces)
    }

    fn call(kind: &'static str, value: u64, inner: Vec<Call>) -> Call {
        Call {
            kind,
            from: 1,
            to: 2,
            value,
            fails: false,
            inner,
        }
    }

    #[test]
    fn only_frames_that_move_coin_count() {
        let kinds = [
            "CALL",
            "CALLCODE",
            "DELEGATECALL",
            "STATICCALL",
            "CREATE",
            "CREATE2",
            "SELFDESTRUCT",
        ];
        let all: Vec<Call> = kinds.iter().map(|kind| call(kind, 5, Vec::new())).collect();
        let root = call("CALL", 9, all);
        root.check();
        assert_eq!(from_frames(&root.frame()).unwrap().len(), 4);
        let to_itself = Call {
            to: 1,
            ..call("SELFDESTRUCT", 5, Vec::new())
        };
        call("CALL", 9, vec![to_itself, call("CALL", 0, Vec::new())]).check();
    }

    #[test]
    fn nothing_below_a_failed_frame_happened() {
        let paid = || call("CALL", 5, Vec::new());
        let failed = Call {
            fails: true,
            ..call("CALL", 7, vec![paid(), call("DELEGATECALL", 0, vec![paid()])])
        };
        let root = call(
            "CALL",
            1,
            vec![paid(), failed.clone(), call("CALL", 3, vec![paid()])],
        );
        root.check();
        assert_eq!(from_frames(&root.frame()).unwrap().len(), 3);
        let failed_root = Call { fails: true, ..root };
        failed_root.check();
        assert!(from_frames(&failed_root.frame()).unwrap().is_empty());
    }

    #[test]
    fn calls_as_deep_as_they_can_be_are_read() {
        let deepest = r#"{"type":"CALL","from":"0x01","to":null}"#.to_owned();
        let one = |inner: String| {
            let (from, to) = (hex(1), hex(2));
            format!(r#"{{"type":"CALL","from":"{from}","to":"{to}","value":"0x1","calls":[{inner}]}}"#)
        };
        let good = one(String::new());
        let text = (0..1_024).fold(good, |inner, _| one(inner));
        let raw = RawValue::from_string(text).unwrap();
        assert_eq!(of_call_frames(&raw).unwrap().len(), 1_024);
        let text = (0..1_024).fold(deepest, |inner, _| one(inner));
        let raw = RawValue::from_string(text).unwrap();
        assert!(
            of_call_frames(&raw)
                .unwrap_err()
                .starts_with("frame 1024: value is missing")
        );
    }

    #[test]
    fn a_frame_that_cannot_be_told_is_an_error() {
        let good = call("CALL", 1, vec![call("CALL", 5, Vec::new())]).frame();
        assert_eq!(from_frames(&good).unwrap().len(), 1);
        for (key, by) in [
            ("value", json!(null)),
            ("value", json!("5")),
            ("to", json!(null)),
            ("from", json!("0x1")),
            ("type", json!(null)),
        ] {
            let mut frame = good.clone();
            frame["calls"][0][key] = by;
            assert!(from_frames(&frame).is_err(), "{frame}");
        }
    }

    fn any_call() -> impl Strategy<Value = Call> {
        let kind = prop::sample::select(vec![
            "CALL",
            "CALL",
            "CREATE",
            "CREATE2",
            "SELFDESTRUCT",
            "DELEGATECALL",
            "CALLCODE",
            "STATICCALL",
        ]);
        let leaf = (kind, 0..3_u8, 0..3_u8, 0..3_u64, prop::bool::weighted(0.2)).prop_map(
            |(kind, from, to, value, fails)| Call {
                kind,
                from,
                to,
                value,
                fails,
                inner: Vec::new(),
            },
        );
        leaf.prop_recursive(5, 30, 4, |inner| {
            (any_leaf(), prop::collection::vec(inner, 0..4)).prop_map(|(call, inner)| Call { inner, ..call })
        })
    }

    fn any_leaf() -> impl Strategy<Value = Call> {
        (
            prop::sample::select(vec!["CALL", "DELEGATECALL", "CREATE"]),
            0..3_u64,
            prop::bool::weighted(0.2),
        )
            .prop_map(|(kind, value, fails)| Call {
                fails,
                ..call(kind, value, Vec::new())
            })
    }

    proptest! {
        #[test]
        fn both_tracers_tell_the_same(call in any_call()) {
            call.check();
        }

        #[test]
        fn arbitrary_text_is_read_or_refused(text in any::<String>()) {
            let raw = serde_json::value::to_raw_value(&text).unwrap();
            prop_assert!(of_call_frames(&raw).is_err());
            let _ = serde_json::from_str::<Vec<FlatTrace>>(&text);
        }
    }
}
