//! `/v1/inbox/{source}`: webhooks of others. The signature is the key, the event id the idempotency key.

use super::Api;
use super::problem::{Problem, Problems};
use super::sent::body_bytes;
use crate::inbox::Rejected;
use crate::store::{INBOX_BODY_BYTES_MAX, Received};
use crate::webhook::Refused;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

/// What became of a delivery. It is stored.
#[derive(Serialize, ToSchema)]
#[schema(as = Received)]
pub(super) struct ReceivedJson {
    /// The event.
    id: String,
    /// `accepted`; `duplicate`: the event is known, and nothing is done again; `set_aside`: it is known with
    /// another content, and operators are told.
    outcome: &'static str,
}

/// Take in a webhook
///
/// Of a source that the config names, signed as that source signs. Needs no key.
#[utoipa::path(
    post, path = "/v1/inbox/{source}", operation_id = "receive_webhook", tag = "inbox",
    params(("source" = String, Path, description = "The source's name in the config")),
    request_body(content = String, description = "As the source signed it"),
    responses((status = 200, body = ReceivedJson), Problems),
    security(())
)]
pub(super) async fn receive(
    State(api): State<Api>,
    Path(source): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<ReceivedJson>, Problem> {
    let parts = &api.0;
    let body = body_bytes(&api, &headers, body).await?;
    let text = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    let headers: Vec<(String, String)> = headers.iter().filter_map(text).collect();
    let by = (&parts.store, parts.clock);
    match parts.inbox.accept(by, &source, &headers, body.to_vec()).await {
        Ok(received) => Ok(Json(shown(received))),
        Err(rejected) => Err(problem(rejected)),
    }
}

fn shown(received: Received) -> ReceivedJson {
    let (id, outcome) = match received {
        Received::New(id) => (id, "accepted"),
        Received::Again(id) => (id, "duplicate"),
        Received::SetAside(id) => (id, "set_aside"),
    };
    ReceivedJson { id, outcome }
}

fn problem(rejected: Rejected) -> Problem {
    match rejected {
        Rejected::UnknownSource => Problem::not_found("there is no inbox source of that name"),
        Rejected::TooLarge => {
            let detail = format!("a body has at most {INBOX_BODY_BYTES_MAX} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
        }
        Rejected::Refused(why) => {
            let code = match why {
                Refused::TooOld | Refused::TooNew | Refused::BadTime => "stale_time",
                Refused::MissingHeader(_)
                | Refused::RepeatedHeader(_)
                | Refused::TooManySignatures
                | Refused::BadId
                | Refused::NoMatch => "bad_signature",
            };
            Problem::new(StatusCode::UNAUTHORIZED, code, why.to_string())
        }
        Rejected::Store(error) => error.into(),
    }
}
