//! One attempt: sign the frozen body, post it, and name what came of it.

use crate::clock::{Clock, millis};
use crate::egress::{Dial, DialError, HttpReply, HttpRequest};
use crate::store::{Attempt, Leased, Outcome, REPLY_BYTES_MAX};
use crate::telemetry::error_line;
use crate::webhook;
use bytes::Bytes;
use std::time::Duration;

const GIVEN_UP: &str = "timed_out: it did not end in time and was given up";

/// Sends an event once.
pub(super) async fn attempt<D: Dial>(dial: &D, clock: Clock, timeout: Duration, leased: Leased) -> Attempt {
    let (at, began) = (clock.now_ms(), clock.instant());
    let posted = tokio::select! { biased;
        posted = post(dial, at, timeout, &leased) => posted,
        // The dial keeps to its time. If it ever does not, its place is free before its lease is over.
        () = clock.sleep(timeout * 3 / 2) => Err(GIVEN_UP.to_owned()),
    };
    let (outcome, reply) = match posted {
        Ok(reply) => (judge(&reply), reply.body.to_vec()),
        Err(why) => (Outcome::Unanswered { why }, Vec::new()),
    };
    let told = match &outcome {
        Outcome::Delivered { status } => format!("delivered ({status})"),
        Outcome::Gone => "refused for good (410)".to_owned(),
        Outcome::Refused { status, .. } => format!("refused ({status})"),
        Outcome::Unanswered { why } => why.clone(),
    };
    let (event, endpoint, attempt) = (&leased.event, &leased.endpoint, leased.attempt);
    tracing::debug!(%event, %endpoint, attempt, "attempt {attempt} of {event} at {endpoint}: {told}");
    Attempt {
        delivery: leased.delivery,
        number: leased.attempt,
        at,
        took_ms: millis(clock.instant() - began),
        outcome,
        reply,
    }
}

async fn post<D: Dial>(dial: &D, at: i64, timeout: Duration, leased: &Leased) -> Result<HttpReply, String> {
    let signed = webhook::headers(&leased.event, at / 1000, leased.body.as_bytes(), &leased.keys);
    let signed = signed.map_err(|error| format!("unsigned: {error}"))?;
    let mut headers = vec![
        ("content-type".into(), "application/json".to_owned()),
        (
            "user-agent".into(),
            concat!("creditd/", env!("CARGO_PKG_VERSION")).to_owned(),
        ),
    ];
    headers.extend(signed.map(|(name, value)| (name.into(), value)));
    let request = HttpRequest {
        url: leased.url.clone(),
        headers,
        body: Some(Bytes::copy_from_slice(leased.body.as_bytes())),
        deadline: timeout,
        body_bytes_max: REPLY_BYTES_MAX,
    };
    // The code first, for programs; then words.
    let failed = |error: DialError| format!("{}: {}", error.code(), error_line(&error));
    dial.send(request).await.map_err(failed)
}

fn judge(reply: &HttpReply) -> Outcome {
    match reply.status {
        status @ 200..=299 => Outcome::Delivered { status },
        410 => Outcome::Gone,
        status => Outcome::Refused {
            status,
            retry_after_secs: reply.retry_after_secs,
        },
    }
}
