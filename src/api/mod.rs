//! HTTP for merchants: the same request, sent again or in parallel, answers the same and acts once. It knows
//! keys, scopes, bodies and answers; what is decided is decided in `rules` and `store`. Start at [`Api`],
//! then at the file named like the route.

mod access;
mod asked;
mod callbacks;
mod codes;
mod docs;
mod events;
mod exact;
mod faults;
mod html;
mod inbox;
mod invoice_shape;
mod invoices;
mod keys;
mod ledger;
mod names;
mod once;
mod pay;
mod places;
mod problem;
mod rate;
mod reference;
mod sent;
mod serve;
mod taken;
mod txs;
mod uses;

use crate::chance::Chance;
use crate::clock::Clock;
use crate::config::Config;
use crate::inbox::Inbox;
use crate::listen::{Bounds, Listener, Tls};
use crate::store::Store;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use problem::Problem;
use rate::Rates;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use uses::Uses;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long the first request of a connection may take to be asked, TLS included.
const ASKING: Duration = Duration::from_secs(10);

/// How long a client may take nothing of an answer.
const STALL: Duration = Duration::from_secs(20);

/// How long an answer may take to begin: more than the database's patience with another writer.
const ANSWERING: Duration = Duration::from_secs(30);

/// What the answers are made of. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Api(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    store: Store,
    clock: Clock,
    chance: Chance,
    config: Config,
    inbox: Inbox,
    rates: Rates,
    uses: Uses,
    pages: pay::Pages,
    /// Streams of events.
    listeners: Arc<places::Places>,
    running: once::Running,
    started: Instant,
    /// True once no more is answered: streams end.
    ending: watch::Sender<bool>,
}

/// Opens the listener. Connections are taken once [`Api::serve`] runs.
///
/// # Errors
/// The address is taken, or not this machine's.
pub async fn listen(
    config: &Config,
    address: std::net::SocketAddr,
    tls: Option<Tls>,
    clock: Clock,
) -> std::io::Result<Listener> {
    let bounds = Bounds {
        connections_max: config.api.connections_max,
        asking: ASKING,
        life: None,
        stall: STALL,
    };
    Listener::bind(address, bounds, tls, clock).await
}

impl Api {
    /// For this store, by this config, with the secrets of its sources of webhooks.
    pub fn new(store: Store, (clock, chance): (Clock, Chance), config: &Config, inbox: Inbox) -> Api {
        Api(Arc::new(Parts {
            store,
            clock,
            chance,
            config: config.clone(),
            inbox,
            rates: Rates::new(config.api.rate_per_sec),
            uses: Uses::default(),
            pages: pay::Pages::new(config.api.connections_max),
            listeners: Arc::new(events::places(config.api.connections_max)),
            running: once::Running::default(),
            started: clock.instant(),
            ending: watch::Sender::new(false),
        }))
    }

    /// Answers until `stop`.
    pub async fn serve(self, listener: Listener, stop: impl Future<Output = ()>) {
        let routes = self.routes();
        serve::serve(self, routes, listener, stop).await;
    }

    /// Every route. What is described in `/openapi.json` is what is routed: both come from this list.
    /// [`serve`](Self::serve) answers with it; whoever has no socket asks it directly.
    pub fn routes(&self) -> Router {
        let (routes, description) = OpenApiRouter::with_openapi(docs::Description::openapi())
            .routes(routes!(keys::key))
            .routes(routes!(invoices::create, invoices::list))
            .routes(routes!(invoices::show))
            .routes(routes!(invoices::cancel))
            .routes(routes!(taken::create))
            .routes(routes!(ledger::deposits))
            .routes(routes!(ledger::credits))
            .routes(routes!(ledger::balances))
            .routes(routes!(inbox::receive))
            .routes(routes!(txs::show))
            .routes(routes!(callbacks::list, callbacks::add))
            .routes(routes!(callbacks::pause))
            .routes(routes!(callbacks::resume))
            .routes(routes!(callbacks::rotate))
            .routes(routes!(callbacks::test))
            .routes(routes!(events::list))
            .routes(routes!(events::stream))
            .routes(routes!(events::replay))
            .routes(routes!(pay::page))
            .routes(routes!(pay::events))
            .split_for_parts();
        let description = docs::with_keeping(description, self.0.config.api.idempotency_keep);
        routes
            .merge(docs::routes(description, &self.0.config.api))
            .fallback(no_route)
            .method_not_allowed_fallback(no_method)
            .layer(middleware::from_fn_with_state(self.clone(), around))
            .with_state(self.clone())
    }
}

/// The limits of every request, as HTML.
fn limits() -> String {
    let (head, headers, secs) = (
        serve::HEAD_BYTES_MAX >> 10,
        serve::HEADERS_MAX,
        serve::HEAD.as_secs(),
    );
    let (body, depth, body_secs) = (
        sent::BODY_BYTES_MAX >> 10,
        sent::JSON_DEPTH_MAX,
        sent::BODY.as_secs(),
    );
    format!(
        "<li>A head has {head} KiB and {headers} headers, and comes within {secs} seconds, as does the next \
         request of a connection.</li><li>A body has {body} KiB and is nested {depth} deep; it comes within \
         {body_secs} seconds.</li>"
    )
}

async fn no_route() -> Problem {
    Problem::not_found("there is no such path: /docs and /openapi.json list all of them")
}

async fn no_method() -> Problem {
    let detail = "this path has no such method: /openapi.json lists what it has";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}

/// Around every answer: it begins in time, is never kept by a cache, and is what it says it is.
async fn around(State(api): State<Api>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    // Pages are for people, and answer with a page whatever is asked for.
    let is_text = !path.starts_with("/v1/") || is_text(path);
    let mut response = tokio::select! { biased;
        response = no_route(), if !is_text => response.into_response(),
        response = next.run(request) => response,
        () = api.0.clock.sleep(ANSWERING) => {
            let detail = "no answer in time: send the same request again";
            Problem::unavailable("timeout", detail).into_response()
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// Whether the escapes of a path stand for text: no id is anything else.
fn is_text(path: &str) -> bool {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => std::str::from_utf8(&[*high, *low])
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 16).ok()),
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = &after[if escaped.is_some() { 2 } else { 0 }..];
    }
    String::from_utf8(bytes).is_ok()
}
