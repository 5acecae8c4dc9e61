//! From the JSON of a question to a call and its arguments, refused with the codes and words of the node.

use super::SandboxError;
use super::calls::CALLS;
use super::chain::Chain;
use super::front::{INVALID_REQUEST, NO_METHOD, RpcError};
use crate::rules::BlockHash;
use serde_json::{Map, Value};

/// One call.
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) args: &'static [Arg],
    pub(super) answer: Answer,
}

/// How a call is answered.
pub(super) enum Answer {
    /// By looking.
    Read(fn(&Chain, &Args) -> Result<Value, RpcError>),
    /// By changing the chain.
    Change(fn(&mut Chain, &Args) -> Result<Value, RpcError>),
    /// By waiting for another tip.
    WaitForBlock,
}

impl From<SandboxError> for RpcError {
    fn from(error: SandboxError) -> RpcError {
        match error {
            SandboxError::Funds => RpcError::new(-6, "Insufficient funds"),
            SandboxError::Unknown(_) => RpcError::new(-5, "Block not found"),
            SandboxError::Address(_) => RpcError::new(-5, "Invalid address"),
            SandboxError::Refused(why) => RpcError::new(-26, why),
            SandboxError::System(why) => RpcError::new(-1, why.to_string()),
        }
    }
}

/// One argument of a call.
pub(super) struct Arg {
    name: &'static str,
    kind: Kind,
    is_needed: bool,
}

impl Arg {
    pub(super) const fn needed(name: &'static str, kind: Kind) -> Arg {
        let is_needed = true;
        Arg {
            name,
            kind,
            is_needed,
        }
    }

    pub(super) const fn optional(name: &'static str, kind: Kind) -> Arg {
        let is_needed = false;
        Arg {
            name,
            kind,
            is_needed,
        }
    }
}

/// What kind of JSON an argument must be.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Number,
    Bool,
    /// Looked at by the call itself.
    Any,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Text => "string",
            Kind::Number => "number",
            Kind::Bool => "bool",
            Kind::Any => "any",
        }
    }

    fn fits(self, value: &Value) -> bool {
        matches!(self, Kind::Any) || self.word() == word_of(value)
    }
}

fn word_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The arguments of one question by name, each of its kind; an optional one that is null is left out.
pub(super) struct Args(Map<String, Value>);

/// The call that is meant, and its arguments.
pub(super) fn parse(method: &str, params: Option<&Value>) -> Result<(&'static Call, Args), RpcError> {
    let call = CALLS.iter().find(|call| call.name == method);
    let call = call.ok_or_else(|| RpcError::new(NO_METHOD, "Method not found"))?;
    let usage = || {
        let names: Vec<&str> = call.args.iter().map(|arg| arg.name).collect();
        RpcError::new(-1, format!("{method} {}", names.join(" ")).trim_end())
    };
    let given: Vec<Value> = match params {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(given)) => given.clone(),
        Some(Value::Object(named)) => by_position(call, named)?,
        Some(_) => {
            return Err(RpcError::new(
                INVALID_REQUEST,
                "Params must be an array or object",
            ));
        }
    };
    let needed = call.args.iter().filter(|arg| arg.is_needed).count();
    if given.len() > call.args.len() || given.len() < needed {
        return Err(usage());
    }
    let mut args = Map::new();
    for (place, (arg, value)) in call.args.iter().zip(given).enumerate() {
        if value.is_null() && !arg.is_needed {
            continue;
        }
        if !arg.kind.fits(&value) {
            let (told, wanted) = (word_of(&value), arg.kind.word());
            return Err(RpcError::new(
                -3,
                format!(
                    "Wrong type passed:\n{{\n    \"Position {} ({})\": \
                     \"JSON value of type {told} is not of expected type {wanted}\"\n}}",
                    place + 1,
                    arg.name
                ),
            ));
        }
        args.insert(arg.name.to_owned(), value);
    }
    Ok((call, Args(args)))
}

fn by_position(call: &Call, named: &Map<String, Value>) -> Result<Vec<Value>, RpcError> {
    let is_known = |name: &&String| call.args.iter().any(|arg| arg.name == **name);
    if let Some(unknown) = named.keys().find(|name| !is_known(name)) {
        return Err(RpcError::new(-8, format!("Unknown named parameter {unknown}")));
    }
    let mut values: Vec<Value> = call
        .args
        .iter()
        .map(|arg| named.get(arg.name).cloned().unwrap_or(Value::Null))
        .collect();
    while values.last().is_some_and(Value::is_null) {
        values.pop();
    }
    Ok(values)
}

impl Args {
    /// A whole number, within 32 bits as the node has them.
    pub(super) fn whole(&self, name: &str, default: i64) -> Result<i64, RpcError> {
        let Some(value) = self.0.get(name) else {
            return Ok(default);
        };
        let whole = value.as_i64().filter(|whole| i32::try_from(*whole).is_ok());
        whole.ok_or_else(|| RpcError::new(-1, "JSON integer out of range"))
    }

    /// An argument as it came.
    pub(super) fn any(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(default)
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// How much is wanted: a number, or false and true for 0 and 1.
    pub(super) fn verbosity(&self, name: &str, default: i64) -> Result<i64, RpcError> {
        match self.0.get(name).and_then(Value::as_bool) {
            Some(flag) => Ok(flag.into()),
            None => self.whole(name, default),
        }
    }

    /// 64 hex digits, spoken of as `title`.
    pub(super) fn hash(&self, name: &str, title: &str) -> Result<[u8; 32], RpcError> {
        let text = self.text(name);
        let wrong = if text.len() != 64 {
            format!("{title} must be of length 64 (not {}, for '{text}')", text.len())
        } else if let Some(BlockHash(bytes)) = BlockHash::from_hex(text) {
            return Ok(bytes);
        } else {
            format!("{title} must be hexadecimal string (not '{text}')")
        };
        Err(RpcError::new(-8, wrong))
    }
}
