//! What is posted: a body of bounded size, time and depth, under an idempotency key. The same request is told
//! by its query and its parsed body, so that white space and the order of fields do not matter.

use super::problem::Problem;
use super::{Api, access::Merchant, exact};
use crate::store::KeyScope;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::{DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use sha2::{Digest as _, Sha256};
use std::error::Error as _;
use std::time::Duration;
use utoipa::IntoParams;

pub(super) const BODY_BYTES_MAX: usize = 64 << 10;
pub(super) const JSON_DEPTH_MAX: usize = 32;

/// How long a body may take.
pub(super) const BODY: Duration = Duration::from_secs(15);

pub(super) const KEY_HEADER: &str = "idempotency-key";

/// What every request that creates or changes needs.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code, reason = "it is there for the description alone")]
pub(super) struct Keyed {
    /// A key of your own for this request, the same with every repeat of it.
    #[param(
        rename = "Idempotency-Key",
        min_length = 1,
        max_length = 256,
        pattern = "^[!#-~][!-~]*$"
    )]
    idempotency_key: String,
}

/// A request that creates or changes.
#[derive(Debug)]
pub(super) struct Sent {
    path: String,
    key: String,
    value: Value,
    pub(super) fingerprint: [u8; 32],
}

impl Sent {
    /// Reads the body.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_path_to_error::deserialize(&self.value).map_err(|error| {
            let path = error.path().to_string();
            let said = error.into_inner().to_string();
            // A field that is missing or not known is named by the words alone.
            let field = match path.as_str() {
                "." => said.split('`').nth(1).unwrap_or_default().to_owned(),
                path => path.to_owned(),
            };
            Problem::unprocessable("invalid_field", field, said)
        })
    }

    /// The idempotency key.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Where its key counts.
    pub(super) fn scope(&self, merchant: &Merchant) -> KeyScope {
        KeyScope {
            owner: merchant.key,
            method: "POST".to_owned(),
            path: self.path.clone(),
            key: self.key.clone(),
        }
    }
}

impl FromRequest<Api> for Sent {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Sent, Problem> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        // Ids need no escapes: another spelling of the path must not be another place for keys.
        if path.contains('%') {
            return Err(Problem::not_found("there is no such path"));
        }
        let key = key(&parts.headers)?;
        let bytes = body_bytes(api, &parts.headers, body).await?;
        let value = json(&parts.headers, &bytes)?;
        let mut hash = Sha256::new();
        let query = parts.uri.query().unwrap_or_default();
        hash.update((query.len() as u64).to_be_bytes());
        hash.update(query);
        digest(&value, &mut hash);
        Ok(Sent {
            path,
            key,
            value,
            fingerprint: hash.finalize().into(),
        })
    }
}

/// The one idempotency key: a structured-field string or bare.
fn key(headers: &HeaderMap) -> Result<String, Problem> {
    let bad = |code, detail: &str| Problem::bad_request(code, detail).at("Idempotency-Key");
    let mut all = headers.get_all(KEY_HEADER).iter();
    let value = match (all.next(), all.next()) {
        (Some(value), None) => value,
        (None, _) => {
            let detail = "send a key of your own for this request, the same one with every repeat of it";
            return Err(bad("idempotency_key_missing", detail));
        }
        (Some(_), Some(_)) => return Err(bad("idempotency_key_invalid", "send one key, not several")),
    };
    let key = value.to_str().ok().and_then(KeyScope::read_key);
    key.ok_or_else(|| bad("idempotency_key_invalid", KeyScope::KEY_FORM))
}

/// The whole body, if it is small enough and comes in time.
pub(super) async fn body_bytes(api: &Api, headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    let too_large = || {
        let detail = format!("a body has at most {BODY_BYTES_MAX} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
    };
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > BODY_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let read = tokio::select! { biased;
        read = to_bytes(body, BODY_BYTES_MAX) => read,
        () = api.0.clock.sleep(BODY) => {
            let detail = format!("a body comes within {} s", BODY.as_secs());
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", detail));
        }
    };
    read.map_err(|error| {
        let is_limit = error
            .source()
            .is_some_and(|cause| cause.is::<http_body_util::LengthLimitError>());
        match is_limit {
            true => too_large(),
            false => Problem::bad_request("body_incomplete", "the body ended before its end"),
        }
    })
}

fn json(headers: &HeaderMap, bytes: &[u8]) -> Result<Value, Problem> {
    if bytes.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let media = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok()?.split(';').next());
    if !media.is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json")) {
        let detail = "send the body as application/json";
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            detail,
        ));
    }
    if depth(bytes) > JSON_DEPTH_MAX {
        let detail = format!("JSON is at most {JSON_DEPTH_MAX} levels deep");
        return Err(Problem::bad_request("json_too_deep", detail));
    }
    let (value, twice) = parse(bytes)
        .map_err(|error| Problem::bad_request("malformed_json", format!("the body is no JSON: {error}")))?;
    if let Some(number) = exact::first_changed(bytes) {
        let detail = format!("the number {number} cannot be kept as it is: write it as a text");
        return Err(Problem::bad_request("number_not_exact", detail));
    }
    if let Some(field) = twice {
        // Kept under no key: the fingerprint of such a body would be that of another.
        return Err(Problem::unprocessable(
            "invalid_field",
            field,
            "the field is there twice",
        ));
    }
    match value {
        Value::Object(_) => Ok(value),
        _ => Err(Problem::bad_request(
            "malformed_json",
            "the body is no JSON object",
        )),
    }
}

/// The value of a body, and the path of the first field that is there twice.
fn parse(bytes: &[u8]) -> Result<(Value, Option<String>), serde_json::Error> {
    let mut twice = None;
    let part = Part {
        path: String::new(),
        twice: &mut twice,
    };
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = part.deserialize(&mut json)?;
    json.end()?;
    Ok((value, twice))
}

/// A part of a body on its way in. A plain [`Value`] would silently hold the last of two fields of one name.
struct Part<'a> {
    path: String,
    twice: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, is_true: bool) -> Result<Value, E> {
        Ok(Value::Bool(is_true))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        let number = Number::from_f64(number).ok_or_else(|| E::custom("a number is out of range"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let part = Part {
                path: format!("{}[{}]", self.path, items.len()),
                twice: &mut *self.twice,
            };
            match from.next_element_seed(part)? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = from.next_key::<String>()? {
            let path = match self.path.as_str() {
                "" => name.clone(),
                path => format!("{path}.{name}"),
            };
            if fields.contains_key(&name) {
                self.twice.get_or_insert_with(|| path.clone());
            }
            let part = Part {
                path,
                twice: &mut *self.twice,
            };
            fields.insert(name, from.next_value_seed(part)?);
        }
        Ok(Value::Object(fields))
    }
}

/// How deep brackets are nested, outside of texts.
fn depth(bytes: &[u8]) -> usize {
    let (mut deepest, mut depth, mut is_text, mut is_escaped) = (0, 0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => depth += 1,
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// A digest that is the same for the same value, whatever the order of its fields.
fn digest(value: &Value, hash: &mut Sha256) {
    let mut text = |tag: u8, text: &str| {
        hash.update([tag]);
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    };
    match value {
        Value::Null => text(0, ""),
        Value::Bool(is_true) => text(1, if *is_true { "t" } else { "f" }),
        Value::Number(number) => text(2, &number.to_string()),
        Value::String(string) => text(3, string),
        Value::Array(items) => {
            text(4, &items.len().to_string());
            items.iter().for_each(|item| digest(item, hash));
        }
        Value::Object(fields) => {
            text(5, &fields.len().to_string());
            let sorted: std::collections::BTreeMap<_, _> = fields.iter().collect();
            for (name, field) in sorted {
                hash.update((name.len() as u64).to_be_bytes());
                hash.update(name);
                digest(field, hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn a_key_is_the_same_quoted_or_bare() {
        let long = "x".repeat(256);
        let cases: &[(&str, Option<&str>)] = &[
            ("abc", Some("abc")),
            ("\"abc\"", Some("abc")),
            (" abc ", Some("abc")),
            (r#""a\"b\\c""#, Some(r#"a"b\c"#)),
            (&long, Some(&long)),
            ("", None),
            ("\"\"", None),
            ("\"abc", None),
            ("\"abc\";a=1", None),
            ("\"a b\"", None),
            ("a b", None),
            (r#""a\b""#, None),
            ("\u{e9}", None),
            (&format!("{long}x"), None),
        ];
        for (text, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(KEY_HEADER, HeaderValue::from_bytes(text.as_bytes()).unwrap());
            assert_eq!(key(&headers).ok().as_deref(), *expected, "{text:?}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(key(&headers).unwrap_err().code, "idempotency_key_missing");
        headers.append(KEY_HEADER, HeaderValue::from_static("a"));
        headers.append(KEY_HEADER, HeaderValue::from_static("a"));
        assert_eq!(key(&headers).unwrap_err().code, "idempotency_key_invalid");
    }

    #[test]
    fn the_same_body_has_the_same_digest_and_no_other_has() {
        let of = |text: &str| {
            let mut hash = Sha256::new();
            digest(&serde_json::from_str(text).unwrap(), &mut hash);
            hash.finalize()
        };
        assert_eq!(
            of(r#"{"a":1,"b":[2,"x"]}"#),
            of("{ \"b\" : [ 2, \"\\u0078\" ] ,\n\"a\":1}")
        );
        let different = [
            "{}",
            "[]",
            "null",
            "0",
            "\"\"",
            "false",
            "\"0\"",
            "[0]",
            "[[]]",
            r#"{"a":1}"#,
            r#"{"a":"1"}"#,
            r#"{"a":{"b":1}}"#,
            r#"{"a":{},"b":1}"#,
            r#"["a",1]"#,
            "1.0",
            "1",
        ];
        for (at, one) in different.iter().enumerate() {
            for other in &different[..at] {
                assert_ne!(of(one), of(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn a_field_that_is_there_twice_is_refused_by_its_path() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (body, field) in [
            (r#"{"amount":"1","amount":"2"}"#, "amount"),
            (r#"{"amount":"1","\u0061mount":"1"}"#, "amount"),
            (r#"{"a":{"b":1,"b":1},"a":1}"#, "a.b"),
            (r#"{"a":[{},{"b":{"c":null,"c":null}}]}"#, "a[1].b.c"),
        ] {
            let problem = json(&headers, body.as_bytes()).unwrap_err();
            assert_eq!(problem.status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
            assert!(
                problem.body().contains(&format!("\"{field}\"")),
                "{}",
                problem.body()
            );
        }
        // Any other is read as it always was.
        let text = r#"{"a":[1,-1,1.5,1e3,true,null,"\u0078"],"b":{"a":{}},"c":18446744073709551615}"#;
        let plain: Value = serde_json::from_str(text).unwrap();
        assert_eq!(json(&headers, text.as_bytes()).unwrap(), plain);
        for body in ["{} {}", "{\"a\":1e999}", "{\"a\":1,\"a\":}", "[]", "{"] {
            let problem = json(&headers, body.as_bytes()).unwrap_err();
            assert_eq!(problem.code, "malformed_json", "{body}");
        }
    }

    #[test]
    fn depth_counts_brackets_outside_of_texts() {
        for (text, expected) in [
            ("{}", 1),
            ("[[{}]]", 3),
            (r#"{"[[[":"\"[["}"#, 1),
            ("1", 0),
            ("]]][", 1),
        ] {
            assert_eq!(depth(text.as_bytes()), expected, "{text}");
        }
    }
}
