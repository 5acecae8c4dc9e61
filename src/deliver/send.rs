//! One attempt: sign the frozen body, post it, and name what came of it.

use crate::clock::{Clock, millis};
use crate::egress::{Dial, DialError, HttpReply, HttpRequest};
use crate::store::{Attempt, Leased, Outcome, REPLY_BYTES_MAX};
use crate::webhook;
use bytes::Bytes;
use std::time::Duration;

/// The most of an answer that is read: a receiver has nothing to tell us but its status.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Sends a message once.
pub(super) async fn attempt<D: Dial>(dial: &D, clock: Clock, timeout: Duration, message: Leased) -> Attempt {
    let (at, began) = (clock.now_ms(), clock.instant());
    let (outcome, reply) = match post(dial, at, timeout, &message).await {
        Ok(reply) => (judge(&reply), reply.body.slice(..reply.body.len().min(REPLY_BYTES_MAX)).to_vec()),
        Err(why) => (Outcome::Unanswered { why }, Vec::new()),
    };
    Attempt {
        delivery: message.delivery,
        number: message.attempt,
        at,
        took_ms: millis(clock.instant() - began),
        outcome,
        reply,
        was_suspect: message.is_suspect,
    }
}

async fn post<D: Dial>(dial: &D, at: i64, timeout: Duration, message: &Leased) -> Result<HttpReply, String> {
    let timestamp = at / 1000;
    let body = message.body.as_bytes();
    let signed = webhook::sign(&message.event, timestamp, body, &message.keys);
    let signature = signed.map_err(|error| format!("not sent: {error}"))?;
    let request = HttpRequest {
        url: message.url.clone(),
        headers: vec![
            ("content-type", "application/json".to_owned()),
            ("user-agent", concat!("creditd/", env!("CARGO_PKG_VERSION")).to_owned()),
            (webhook::ID_HEADER, message.event.clone()),
            (webhook::TIMESTAMP_HEADER, timestamp.to_string()),
            (webhook::SIGNATURE_HEADER, signature),
        ],
        body: Some(Bytes::copy_from_slice(message.body.as_bytes())),
        deadline: timeout,
        body_bytes_max: ANSWER_BYTES_MAX,
    };
    dial.send(request).await.map_err(|error| words(&error))
}

fn judge(reply: &HttpReply) -> Outcome {
    match reply.status {
        status @ 200..=299 => Outcome::Delivered { status },
        410 => Outcome::Gone,
        status => Outcome::Refused { status, retry_after_secs: reply.retry_after_secs },
    }
}

/// The error and what lies beneath, in one line: operators read it in `callbacks show`.
fn words(error: &DialError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
