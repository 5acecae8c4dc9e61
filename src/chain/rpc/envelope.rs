//! The JSON around a question and its answer. Nothing is believed of an answer that does not carry the
//! question's id.

use super::throttle::is_limit;
use super::{Question, RpcError};
use crate::egress::HttpReply;
use bitcoincore_rpc::jsonrpc;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Bitcoin Core's code for "still starting".
const WARMING_UP: i32 = -28;

/// One question as JSON.
pub(super) fn question(question: &Question, id: u64) -> Value {
    let Question { method, params } = question;
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// What a reply says that is no answer: the message of its error, or the start of its body.
pub(super) fn words(reply: &HttpReply) -> String {
    let answer: Option<Answer<'_>> = parse(reply).ok();
    match answer.map(Answer::outcome) {
        Some(Err(RpcError::Node { message, .. })) => message,
        _ => start(reply),
    }
}

/// One answer. Its parts are kept as text: results are decoded by who asked, straight into what is used of
/// them.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default, deserialize_with = "even_null")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(default)]
    id: Value,
}

/// `"result": null` is an answer; no `result` at all is none.
fn even_null<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl<'a> Answer<'a> {
    fn outcome(self) -> Result<&'a RawValue, RpcError> {
        match (self.error, self.result) {
            (Some(error), _) => Err(node_error(error)),
            (None, Some(result)) => Ok(result),
            (None, None) => Err(RpcError::Broken("neither result nor error in it".to_owned())),
        }
    }
}

fn node_error(error: &RawValue) -> RpcError {
    match serde_json::from_str::<jsonrpc::error::RpcError>(error.get()) {
        Ok(error) if error.code == WARMING_UP => RpcError::WarmingUp(shorten(&error.message)),
        Ok(error) => RpcError::Node {
            code: error.code,
            message: shorten(&error.message),
        },
        Err(_) => RpcError::Broken(format!("an error of unknown form: {}", shorten(error.get()))),
    }
}

/// An answer with nothing to complain about, its result decoded in the same pass.
#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct Whole<T> {
    // Named, because a derived field of an optional type may be left out.
    #[serde(deserialize_with = "T::deserialize")]
    result: T,
    #[serde(default)]
    error: Option<IgnoredAny>,
    id: u64,
}

/// The result in the reply to question `id`, decoded in one pass: a block's text is megabytes. `None` where
/// anything is odd, for [`single`] to say what.
pub(super) fn whole<T: DeserializeOwned>(reply: &HttpReply, id: u64) -> Option<T> {
    let whole: Whole<T> = serde_json::from_slice(&reply.body).ok()?;
    (whole.id == id && whole.error.is_none()).then_some(whole.result)
}

/// The long hex text that is the result in the reply to question `id`, decoded without reading it as JSON
/// before: a block is megabytes of digits. What stands before and after it is read as JSON like any answer.
/// `None` where anything is odd or short, for [`whole`] and [`single`].
pub(super) fn long_hex(reply: &HttpReply, id: u64) -> Option<Vec<u8>> {
    /// No answer has more before or after its result.
    const AROUND: usize = 128;
    const KEY: &[u8] = b"\"result\":\"";
    let body: &[u8] = &reply.body;
    let (head, tail) = (body.get(..AROUND)?, body.len().checked_sub(AROUND)?);
    let begins = head.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let ends = tail + body[tail..].iter().position(|byte| *byte == b'"')?;
    let digits = body.get(begins..ends)?;
    let around = [&body[..begins], &body[ends..]].concat();
    let whole: Whole<String> = serde_json::from_slice(&around).ok()?;
    if whole.id != id || whole.error.is_some() || !whole.result.is_empty() {
        return None;
    }
    const_hex::decode(digits).ok()
}

/// The result in the reply to question `id`.
pub(super) fn single(reply: &HttpReply, id: u64) -> Result<&RawValue, RpcError> {
    let answer: Answer<'_> = parse(reply)?;
    if answer.id == json!(id) {
        return answer.outcome();
    }
    let told = shorten(&answer.id.to_string());
    match answer.outcome() {
        // A node that starts, or a proxy before it, may answer before it has read the question.
        Err(RpcError::WarmingUp(stage)) => Err(RpcError::WarmingUp(stage)),
        Err(RpcError::Node { code, message }) if told == "null" && is_limit(code, &message) => {
            Err(RpcError::Node { code, message })
        }
        Err(RpcError::Node { code, message }) if told == "null" => {
            Err(RpcError::Broken(format!("error {code} without an id: {message}")))
        }
        _ => Err(RpcError::Broken(format!("id {told} in it, not {id}"))),
    }
}

/// The results in the reply to the questions `first_id..first_id + count`, in that order whatever the
/// reply's.
pub(super) fn batch(
    reply: &HttpReply,
    first_id: u64,
    count: usize,
) -> Result<Vec<Result<&RawValue, RpcError>>, RpcError> {
    if !reply.body.trim_ascii_start().starts_with(b"[") {
        // One refusal for all of it.
        let refusal: Answer<'_> = parse(reply)?;
        return match refusal.outcome() {
            Err(error) => Err(error),
            Ok(_) => Err(RpcError::Broken("one answer to a batch".to_owned())),
        };
    }
    let answers: Vec<Answer<'_>> = parse(reply)?;
    let mut slots: Vec<Option<Result<&RawValue, RpcError>>> = Vec::new();
    slots.resize_with(count, || None);
    for answer in answers {
        let place = answer.id.as_u64().and_then(|id| id.checked_sub(first_id));
        let slot = place
            .and_then(|place| usize::try_from(place).ok())
            .and_then(|place| slots.get_mut(place));
        match slot {
            Some(slot @ None) => *slot = Some(answer.outcome()),
            Some(Some(_)) => return Err(RpcError::Broken(format!("id {} twice in it", answer.id))),
            None => {
                let told = shorten(&answer.id.to_string());
                return Err(match answer.outcome() {
                    Err(RpcError::Node { code, message }) if is_limit(code, &message) => {
                        RpcError::Node { code, message }
                    }
                    _ => RpcError::Broken(format!("id {told} in it, which we did not ask")),
                });
            }
        }
    }
    let missing = || Err(RpcError::Broken("no answer to one entry of the batch".to_owned()));
    Ok(slots
        .into_iter()
        .map(|slot| slot.unwrap_or_else(missing))
        .collect())
}

fn parse<'a, T: Deserialize<'a>>(reply: &'a HttpReply) -> Result<T, RpcError> {
    serde_json::from_slice(&reply.body).map_err(|error| {
        let text = start(reply);
        if reply.status == 200 {
            RpcError::Broken(format!("not a JSON-RPC answer ({error}): {text}"))
        } else {
            RpcError::Http {
                status: reply.status,
                text,
            }
        }
    })
}

fn start(reply: &HttpReply) -> String {
    let some = &reply.body[..reply.body.len().min(1_000)];
    shorten(&String::from_utf8_lossy(some))
}

/// One line of at most 200 characters, for messages.
pub(super) fn shorten(text: &str) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.retain(|letter| !letter.is_control());
    match line.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: String) -> HttpReply {
        HttpReply {
            status: 200,
            retry_after_secs: None,
            body: body.into(),
        }
    }

    /// Both dialects of JSON-RPC; another form, and what is no answer to the question, is left to the others.
    #[test]
    fn long_hex_is_what_reading_it_as_json_gives() {
        let hex = "0a1B".repeat(100);
        let bytes = Some([0x0a, 0x1b].repeat(100));
        let answer = |result: &str, rest: &str| reply(format!("{{\"result\":\"{result}\",{rest}}}\n"));
        assert_eq!(long_hex(&answer(&hex, "\"error\":null,\"id\":7"), 7), bytes);
        let spaced = reply(format!("{{\"result\": \"{hex}\", \"error\": null, \"id\": 7}}"));
        assert_eq!(long_hex(&spaced, 7), None);
        assert_eq!(whole::<String>(&spaced, 7).as_ref(), Some(&hex));
        let second = format!("{{\"jsonrpc\":\"2.0\",\"result\":\"{hex}\",\"id\":7}}");
        assert_eq!(long_hex(&reply(second), 7), bytes);
        for (result, rest) in [
            (hex.as_str(), "\"error\":null,\"id\":8"),
            (&hex, "\"error\":{\"code\":-1,\"message\":\"x\"},\"id\":7"),
            (&hex, "\"error\":null"),
            (&hex, "\"error\":null,\"id\":7,\"result\":\"00\""),
            (&hex[1..], "\"error\":null,\"id\":7"),
            (&format!("{hex}\\n"), "\"error\":null,\"id\":7"),
            (
                &format!("{hex}\",\"id\":7,\"more\":\"{hex}"),
                "\"error\":null,\"id\":7",
            ),
            (&hex[..20], "\"error\":null,\"id\":7"),
            ("", "\"error\":null,\"id\":7"),
        ] {
            assert_eq!(long_hex(&answer(result, rest), 7), None, "{result} {rest}");
        }
        assert_eq!(long_hex(&reply(hex), 7), None);
        assert_eq!(long_hex(&reply(String::new()), 7), None);
    }
}
