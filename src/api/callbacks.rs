//! `/v1/endpoints`: where a merchant is told of its events, and what its callbacks are signed with.

use super::Api;
use super::access::{Caller, Merchant};
use super::asked::{Asked, next_position, page};
use super::once::{Answer, Halt, effect, once};
use super::problem::{Problem, Problems};
use super::sent::{Keyed, Sent};
use crate::clock::rfc3339;
use crate::egress::{self, CallbackUrl, Lookup};
use crate::rules::api_key::Scope;
use crate::rules::event_types::subscription;
use crate::rules::ids;
use crate::store::report::EndpointFilter;
use crate::store::{Endpoint, ReadTx};
use crate::webhook::{self, Key, Scheme};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The longest reason that is kept.
const REASON_CHARS_MAX: usize = 500;
const URL_BYTES_MAX: usize = 2_048;
const TYPES_MAX: usize = 32;
const HOUR_MS: i64 = 3_600_000;

/// An endpoint.
#[derive(Serialize, ToSchema)]
#[schema(as = Endpoint)]
pub(super) struct EndpointJson {
    id: String,
    /// The one invoice that it is told of; null for all that it asked for.
    invoice: Option<String>,
    url: String,
    /// Event types and patterns.
    types: Vec<String>,
    /// `active` or `paused`.
    state: &'static str,
    paused_reason: Option<String>,
    /// Failed attempts in a row.
    failures: u32,
    created_at: String,
}

/// A page of endpoints, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct Endpoints {
    endpoints: Vec<EndpointJson>,
    /// For `after`; null on the last page.
    next: Option<String>,
}

/// Which endpoints.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EndpointsAsked {
    /// That of this invoice. Without this those of one invoice each are left out, unless they are paused.
    invoice: Option<String>,
    /// Only paused ones, those of one invoice among them.
    #[serde(default)]
    paused: bool,
    /// At most so many (1 to 1000; 100).
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next` of the page before.
    #[param(pattern = "^[0-9]{1,18}$")]
    after: Option<String>,
}

/// An endpoint to add.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewEndpoint {
    /// Where callbacks go: https, to a public address.
    #[schema(max_length = 2048)]
    url: String,
    /// Event types, or families such as `credit.*`; all where none are given.
    #[serde(default)]
    #[schema(max_items = 32)]
    types: Vec<String>,
    /// Sign with ed25519 (`v1a`) instead of a shared secret (`v1`).
    #[serde(default)]
    ed25519: bool,
}

/// An endpoint and what its receiver verifies with.
#[derive(Serialize, ToSchema)]
pub(super) struct EndpointAdded {
    endpoint: EndpointJson,
    /// `whsec_...`, of an ed25519 endpoint the public key `whpk_...`. Shown here and in repeats of this
    /// request; null where the endpoint was there already.
    secret: Option<String>,
    /// What speaks against it though it is added, such as a name that does not resolve.
    warning: Option<String>,
}

/// Why.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Because {
    /// Kept with the change.
    #[serde(default)]
    #[schema(max_length = 500)]
    reason: Option<String>,
}

/// How a secret is rotated.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rotate {
    /// How long callbacks carry the old signature too (0 to 720; 24).
    #[serde(default)]
    #[schema(minimum = 0, maximum = 720)]
    overlap_hours: Option<u32>,
}

/// Nothing is said.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// A test event that was queued.
#[derive(Serialize, ToSchema)]
pub(super) struct Tested {
    /// Its id.
    event: String,
    endpoint: String,
}

fn json(endpoint: Endpoint) -> EndpointJson {
    EndpointJson {
        id: endpoint.id,
        invoice: endpoint.invoice,
        url: endpoint.url,
        types: endpoint.types.split_whitespace().map(str::to_owned).collect(),
        state: match endpoint.paused_reason {
            Some(_) => "paused",
            None => "active",
        },
        paused_reason: endpoint.paused_reason,
        failures: endpoint.failures,
        created_at: rfc3339(endpoint.created_at),
    }
}

/// Endpoints
///
/// Scope: `endpoint:manage`.
#[utoipa::path(
    get, path = "/v1/endpoints", operation_id = "list_endpoints", tag = "endpoints",
    params(EndpointsAsked), responses((status = 200, body = Endpoints), Problems)
)]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Asked(asked): Asked<EndpointsAsked>,
) -> Result<Json<Endpoints>, Problem> {
    let merchant = caller.merchant(Scope::EndpointManage)?;
    let page = page(asked.limit, asked.after.as_deref())?;
    let filter = EndpointFilter {
        merchant: Some(merchant.slug),
        invoice: asked.invoice,
        is_paused: asked.paused,
    };
    let read = api.0.store.read(move |tx| tx.list_endpoints(&filter, page));
    let rows = read.await?;
    let next = next_position(&rows, page);
    Ok(Json(Endpoints {
        endpoints: rows.into_iter().map(|listed| json(listed.row)).collect(),
        next,
    }))
}

/// Add an endpoint
///
/// The same URL again is the same endpoint. Scope: `endpoint:manage`.
#[utoipa::path(
    post, path = "/v1/endpoints", operation_id = "add_endpoint",
    tag = "endpoints", request_body = NewEndpoint,
    params(Keyed),
    responses((status = 201, body = EndpointAdded), (status = 200, body = EndpointAdded), Problems)
)]
pub(super) async fn add(State(api): State<Api>, caller: Caller, sent: Sent) -> Result<Response, Problem> {
    let merchant = caller.merchant(Scope::EndpointManage)?;
    let slug = merchant.slug.clone();
    let prepare = async {
        let new: NewEndpoint = sent.read()?;
        let types = types(&new.types, "types")?;
        let (url, warning) = checked_url(&api, &new.url, "url").await?;
        let key = fresh(&api, if new.ed25519 { Scheme::V1a } else { Scheme::V1 })?;
        Ok(effect(move |tx| {
            let known = tx.find_endpoint(&ids::endpoint_id(Some(&slug), url.as_str()))?;
            if known.is_some_and(|endpoint| endpoint.types != types) {
                let detail =
                    "this URL is there already, for other types: give this one another, such as with ?2";
                return Err(Problem::conflict("endpoint_exists", detail).into());
            }
            let (endpoint, is_new) = tx.add_endpoint(Some(&slug), url.as_str(), &types, &key)?;
            let status = if is_new {
                StatusCode::CREATED
            } else {
                StatusCode::OK
            };
            Answer::new(
                status,
                &EndpointAdded {
                    endpoint: json(endpoint),
                    secret: is_new.then(|| shown(&key)),
                    warning: warning.clone(),
                },
            )
        }))
    };
    once(&api, &merchant, &sent, prepare).await
}

/// Pause an endpoint
///
/// Its events are queued and not sent. Scope: `endpoint:manage`.
#[utoipa::path(
    post, path = "/v1/endpoints/{id}/pause", operation_id = "pause_endpoint",
    tag = "endpoints", request_body = Because,
    params(("id" = String, Path), Keyed),
    responses((status = 200, body = EndpointJson), Problems)
)]
pub(super) async fn pause(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    sent: Sent,
) -> Result<Response, Problem> {
    set_paused(&api, &caller, id, &sent, true).await
}

/// Resume a paused endpoint
///
/// What is queued is sent. Scope: `endpoint:manage`.
#[utoipa::path(
    post, path = "/v1/endpoints/{id}/resume", operation_id = "resume_endpoint",
    tag = "endpoints", request_body = Because,
    params(("id" = String, Path), Keyed),
    responses((status = 200, body = EndpointJson), Problems)
)]
pub(super) async fn resume(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    sent: Sent,
) -> Result<Response, Problem> {
    set_paused(&api, &caller, id, &sent, false).await
}

async fn set_paused(
    api: &Api,
    caller: &Caller,
    id: String,
    sent: &Sent,
    is_paused: bool,
) -> Result<Response, Problem> {
    let merchant = caller.merchant(Scope::EndpointManage)?;
    let owner = merchant.clone();
    let prepare = async {
        let because: Because = sent.read()?;
        let reason = reason(because.reason.as_deref())?;
        Ok(effect(move |tx| {
            own(tx, &id, &owner)?;
            match is_paused {
                true => tx.pause_endpoint(&id, &reason, "merchant")?,
                false => tx.resume_endpoint(&id, &reason)?,
            };
            Answer::new(StatusCode::OK, &json(tx.endpoint(&id)?))
        }))
    };
    once(api, &merchant, sent, prepare).await
}

/// Make a new secret
///
/// Callbacks carry both signatures for a while. Scope: `endpoint:manage`.
#[utoipa::path(
    post, path = "/v1/endpoints/{id}/rotate-secret", operation_id = "rotate_secret",
    tag = "endpoints", request_body = Rotate,
    params(("id" = String, Path), Keyed),
    responses((status = 200, body = EndpointAdded), Problems)
)]
pub(super) async fn rotate(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    sent: Sent,
) -> Result<Response, Problem> {
    let merchant = caller.merchant(Scope::EndpointManage)?;
    let owner = merchant.clone();
    // Each key of a request is a rotation of its own.
    let why = format!("asked for by {} ({})", caller.key.id, sent.key());
    let prepare = async {
        let rotate: Rotate = sent.read()?;
        let hours = rotate.overlap_hours.unwrap_or(24);
        if hours > 720 {
            return Err(Problem::unprocessable(
                "invalid_field",
                "overlap_hours",
                "0 to 720 hours",
            ));
        }
        let (shared, pair) = (fresh(&api, Scheme::V1)?, fresh(&api, Scheme::V1a)?);
        Ok(effect(move |tx| {
            let endpoint = own(tx, &id, &owner)?;
            let live = tx.live_keys(&endpoint, tx.now_ms())?;
            let key = match live.first().map_or(Scheme::V1, Key::scheme) {
                Scheme::V1 => &shared,
                Scheme::V1a => &pair,
            };
            let is_new = tx.rotate_key(&id, key, i64::from(hours) * HOUR_MS, &why)?;
            Answer::new(
                StatusCode::OK,
                &EndpointAdded {
                    endpoint: json(tx.endpoint(&id)?),
                    secret: is_new.then(|| shown(key)),
                    warning: None,
                },
            )
        }))
    };
    once(&api, &merchant, &sent, prepare).await
}

/// Send a test event
///
/// To this endpoint alone. Scope: `endpoint:manage`.
#[utoipa::path(
    post, path = "/v1/endpoints/{id}/test", operation_id = "test_endpoint",
    tag = "endpoints", request_body = Nothing,
    params(("id" = String, Path), Keyed),
    responses((status = 202, body = Tested), Problems)
)]
pub(super) async fn test(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    sent: Sent,
) -> Result<Response, Problem> {
    let merchant = caller.merchant(Scope::EndpointManage)?;
    let owner = merchant.clone();
    let prepare = async {
        let _: Nothing = sent.read()?;
        Ok(effect(move |tx| {
            own(tx, &id, &owner)?;
            let event = tx.test_endpoint(&id)?;
            let endpoint = id.clone();
            Answer::new(StatusCode::ACCEPTED, &Tested { event, endpoint })
        }))
    };
    once(&api, &merchant, &sent, prepare).await
}

fn is_of(endpoint: &Endpoint, merchant: &Merchant) -> bool {
    endpoint.merchant.as_ref() == Some(&merchant.slug)
}

/// The merchant's endpoint of this id.
pub(super) fn own(tx: &ReadTx<'_>, id: &str, merchant: &Merchant) -> Result<Endpoint, Halt> {
    let found = tx.find_endpoint(id)?;
    let own = found.filter(|endpoint| is_of(endpoint, merchant));
    own.ok_or_else(|| Problem::not_found("there is no such endpoint").into())
}

/// What is subscribed to.
pub(super) fn types(types: &[String], field: &str) -> Result<String, Problem> {
    if types.len() > TYPES_MAX {
        let detail = format!("at most {TYPES_MAX} types: a family such as credit.* has many");
        return Err(Problem::unprocessable("invalid_field", field, detail));
    }
    subscription(types, false)
        .map_err(|error| Problem::unprocessable("unknown_event_type", field, error.to_string()).passing())
}

/// A URL that callbacks may go to, and what speaks against it all the same. Where a name leads is looked at
/// again at every dial.
pub(super) async fn checked_url(
    api: &Api,
    text: &str,
    field: &str,
) -> Result<(CallbackUrl, Option<String>), Problem> {
    let policy = &api.0.config.callbacks.policy;
    let refused = |detail: String| Problem::unprocessable("url_refused", field, detail);
    if text.len() > URL_BYTES_MAX {
        return Err(refused(format!("a URL has at most {URL_BYTES_MAX} bytes")));
    }
    let url = egress::check_url(text, policy).map_err(|error| refused(error.to_string()).passing())?;
    match egress::look_up_soon(&url, policy, api.0.clock).await {
        Lookup::Allowed => Ok((url, None)),
        // Tomorrow the name may lead elsewhere.
        Lookup::Refused(error) => Err(refused(error.to_string()).passing()),
        Lookup::Unresolved(_) => {
            let warning = format!(
                "{} does not resolve here: callbacks fail until it does",
                url.host()
            );
            Ok((url, Some(warning)))
        }
    }
}

fn reason(text: Option<&str>) -> Result<String, Problem> {
    let text = text.unwrap_or("asked for by the API").trim();
    let is_line = !text.chars().any(crate::telemetry::is_unsafe);
    match !text.is_empty() && text.chars().count() <= REASON_CHARS_MAX && is_line {
        true => Ok(text.to_owned()),
        false => {
            let detail = format!("one line of 1 to {REASON_CHARS_MAX} characters");
            Err(Problem::unprocessable("invalid_field", "reason", detail))
        }
    }
}

pub(super) fn fresh(api: &Api, scheme: Scheme) -> Result<Key, Problem> {
    webhook::fresh_key(scheme, api.0.chance)
        .map_err(|_| Problem::unavailable("no_randomness", "the system gives no random numbers"))
}

/// What the receiver needs: of an ed25519 key only the public half ever leaves.
pub(super) fn shown(key: &Key) -> String {
    key.public_text()
        .unwrap_or_else(|| key.to_secret().reveal().to_owned())
}
