//! `/v1/events`: the same frozen bytes as the callbacks, pulled instead of pushed, once or as a stream; and
//! having one sent again.

use super::Api;
use super::access::{Caller, live};
use super::asked::Asked;
use super::callbacks::own;
use super::once::{Answer, effect, once};
use super::places::{Place, Places};
use super::problem::{Problem, Problems};
use super::sent::{Keyed, Sent};
use crate::clock::{Clock, rfc3339};
use crate::rules::api_key::Scope;
use crate::store::report::FrozenEvent;
use crate::store::{KeyOwner, StoreError};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::response::sse::{Event, Sse};
use futures_util::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::watch;
use utoipa::{IntoParams, ToSchema};

const PAGE_ROWS: u32 = 100;
const PAGE_ROWS_MAX: u32 = 1_000;

/// Events that a stream reads at a time.
const STREAM_ROWS: u32 = 100;

/// A stream looks so often whatever it is told, and says at least so often that it lives.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS_UNTIL_A_SIGN: u32 = 15;

/// How long whoever finds no place for a stream waits.
const AGAIN_SECS: u64 = 10;

/// A stream holds its connection: of all of them half is for streams, and of one owner an eighth, so that
/// others go on being answered.
pub(super) fn places(connections_max: usize) -> Places {
    Places::new(connections_max / 2, connections_max / 8)
}

/// From where on.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct After {
    /// Events after this number (0).
    #[param(minimum = 0)]
    after: Option<u64>,
    /// At most so many (1 to 1000; 100).
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

impl After {
    fn after(&self) -> Result<u64, Problem> {
        let after = self.after.unwrap_or(0);
        match i64::try_from(after) {
            Ok(_) => Ok(after),
            Err(_) => {
                let detail = "take `next` of the page before as it is";
                Err(Problem::bad_request("invalid_query", detail).at("after"))
            }
        }
    }
}

/// An event.
#[derive(Serialize, ToSchema)]
#[schema(as = Event)]
pub(super) struct EventJson {
    /// Its number among all events: for `after`.
    seq: u64,
    /// The same as `webhook-id` of its callbacks.
    id: String,
    r#type: String,
    at: String,
    /// Exactly the bytes of its callbacks.
    #[schema(value_type = Object)]
    body: Box<RawValue>,
}

/// Events in their order.
#[derive(Serialize, ToSchema)]
pub(super) struct Events {
    events: Vec<EventJson>,
    /// For `after` of the next request, also where there is no more yet.
    next: u64,
}

/// To whom an event is sent again.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Replay {
    /// This endpoint alone; where none is given all that are subscribed to its type, and that of its invoice.
    #[serde(default)]
    endpoint: Option<String>,
}

/// An event that is sent again.
#[derive(Serialize, ToSchema)]
pub(super) struct Replayed {
    event: String,
    /// To these.
    endpoints: Vec<String>,
}

/// Whose events a key reads.
fn reads(caller: &Caller) -> Result<Option<i64>, Problem> {
    match &caller.key.owner {
        KeyOwner::Operator => {
            caller.has(Scope::EventsRead)?;
            Ok(None)
        }
        KeyOwner::Merchant { .. } => Ok(Some(caller.merchant(Scope::EventsRead)?.key)),
    }
}

/// Events after a number
///
/// The same bytes under the same ids as the callbacks. An operator's key reads the events of operators.
/// Scope: `events:read`.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "list_events", tag = "events", params(After),
    responses((status = 200, body = Events), Problems)
)]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Asked(asked): Asked<After>,
) -> Result<Json<Events>, Problem> {
    let merchant = reads(&caller)?;
    let after = asked.after()?;
    let limit = asked.limit.unwrap_or(PAGE_ROWS);
    if !(1..=PAGE_ROWS_MAX).contains(&limit) {
        let detail = format!("a whole number from 1 to {PAGE_ROWS_MAX}");
        return Err(Problem::bad_request("invalid_query", detail).at("limit"));
    }
    let frozen = api
        .0
        .store
        .read(move |tx| tx.events_of_owner(merchant, after, limit))
        .await?;
    let next = frozen.last().map_or(after, |last| last.seq);
    let json = |event: FrozenEvent| {
        let unreadable = |_| StoreError::Corrupt(format!("the body of {}", event.id));
        Ok(EventJson {
            seq: event.seq,
            body: RawValue::from_string(event.body).map_err(unreadable)?,
            at: rfc3339(event.at),
            id: event.id.clone(),
            r#type: event.kind,
        })
    };
    let events = frozen.into_iter().map(json).collect::<Result<_, StoreError>>()?;
    Ok(Json(Events { events, next }))
}

/// Events as they come
///
/// Server-sent events: `id` is the number, `event` the type, `data` the body. Goes on after `Last-Event-ID`
/// or `after`. Scope: `events:read`.
#[utoipa::path(
    get, path = "/v1/events/stream", operation_id = "stream_events", tag = "events", params(After),
    responses((status = 200, body = String, content_type = "text/event-stream"), Problems)
)]
pub(super) async fn stream(
    State(api): State<Api>,
    caller: Caller,
    Asked(asked): Asked<After>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let merchant = reads(&caller)?;
    if asked.limit.is_some() {
        let detail = "a stream has no end";
        return Err(Problem::bad_request("invalid_query", detail).at("limit"));
    }
    let after = asked.after()?;
    let last = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok()?.parse().ok());
    let owner = merchant.map_or_else(String::new, |merchant| merchant.to_string());
    let place = Place::take(&api.0.listeners, &owner).ok_or_else(|| {
        let detail = "too many streams are open: end one of them, or ask for `/v1/events`";
        Problem::unavailable("too_many_streams", detail).after(AGAIN_SECS)
    })?;
    let follower = Follower {
        woken: api.0.store.woken(),
        ending: api.0.ending.subscribe(),
        clock: api.0.clock,
        after: last.unwrap_or(after),
        ready: VecDeque::new(),
        quiet_looks: 0,
        merchant,
        caller,
        api,
        _place: place,
    };
    Ok(Sse::new(stream::unfold(follower, Follower::next)))
}

/// A stream of one client.
struct Follower {
    api: Api,
    caller: Caller,
    merchant: Option<i64>,
    clock: Clock,
    woken: watch::Receiver<u64>,
    ending: watch::Receiver<bool>,
    after: u64,
    ready: VecDeque<FrozenEvent>,
    quiet_looks: u32,
    _place: Place,
}

impl Follower {
    /// The next event, or a sign of life; `None` ends the stream: at a stop, when the key ends, and when the
    /// database does not answer. The client comes again with the number of the last event.
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Follower)> {
        loop {
            if *self.ending.borrow() {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                self.after = event.seq;
                let told = Event::default()
                    .id(event.seq.to_string())
                    .event(event.kind)
                    .data(event.body);
                return Some((Ok(told), self));
            }
            self.woken.mark_unchanged();
            let (merchant, after, key) = (self.merchant, self.after, self.caller.key.id.clone());
            let read = self.api.0.store.read(move |tx| {
                let events = tx.events_of_owner(merchant, after, STREAM_ROWS)?;
                Ok((tx.api_key_of_id(&key)?, events))
            });
            let (key, events) = read.await.ok()?;
            // Whether it is quiet or not: with its key a stream ends.
            live(key, self.clock.now_ms()).ok()?;
            self.ready.extend(events);
            if !self.ready.is_empty() {
                self.quiet_looks = 0;
                continue;
            }
            if self.quiet_looks == LOOKS_UNTIL_A_SIGN {
                self.quiet_looks = 0;
                return Some((Ok(Event::default().comment("")), self));
            }
            self.quiet_looks += 1;
            tokio::select! { biased;
                _ = self.ending.changed() => {}
                _ = self.woken.changed() => {}
                () = self.clock.sleep(LOOK) => {}
            }
        }
    }
}

/// Send an event again
///
/// With its id and its bytes. Scope: `events:read`.
#[utoipa::path(
    post, path = "/v1/events/{id}/replay", operation_id = "replay_event",
    tag = "events", request_body = Replay,
    params(("id" = String, Path), Keyed),
    responses((status = 202, body = Replayed), Problems)
)]
pub(super) async fn replay(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    sent: Sent,
) -> Result<Response, Problem> {
    let merchant = caller.merchant(Scope::EventsRead)?;
    let owner = merchant.clone();
    let why = format!("asked for by {}", caller.key.id);
    let prepare = async {
        let replay: Replay = sent.read()?;
        Ok(effect(move |tx| {
            let found = tx.event_about(&id)?;
            let Some(event) = found.filter(|event| event.merchant == Some(owner.key)) else {
                return Err(Problem::not_found("there is no such event").into());
            };
            let endpoints = match &replay.endpoint {
                Some(endpoint) => vec![own(tx, endpoint, &owner)?.id],
                None => {
                    let all = tx.endpoints_about(owner.key, &event.subject)?.into_iter();
                    let own = all.filter(|endpoint| endpoint.is_subscribed(&event.kind, &event.subject));
                    own.map(|endpoint| endpoint.id).collect()
                }
            };
            for endpoint in &endpoints {
                tx.retry_delivery(&id, endpoint, &why)?;
            }
            let event = id.clone();
            Answer::new(StatusCode::ACCEPTED, &Replayed { event, endpoints })
        }))
    };
    once(&api, &merchant, &sent, prepare).await
}
