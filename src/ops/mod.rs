//! What operators look at: health, readiness and metrics over plain HTTP on a listener of its own, and the
//! signs of life for the service manager. It reads the database and the followers' pulses, writes nothing,
//! and knows neither nodes nor money. Start at [`Ops::serve`].

mod audit;
mod health;
mod jobs;
mod metrics;
mod nodes;
mod text;
mod vitals;

pub use nodes::{NodeSeen, Nodes, NodesSeen};
pub use vitals::{Ailment, Part, Vitals};

use crate::clock::Clock;
use crate::listen::{Bounds, Listener};
use crate::pulse::Pulse;
use crate::rules::ChainId;
use crate::store::report::Readings;
use crate::store::{Store, StoreError};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long the database may take to answer before that is the answer: longer than a write waits for a lock
/// that somebody else holds (three times 2 s), because then the writer does answer.
const PATIENCE: Duration = Duration::from_secs(8);

/// Scrapes that may read the database at a time: they share its one reader with the followers.
const READS_MAX: usize = 2;

/// A chain of the config, and the pulse of its follower.
#[derive(Clone, Debug)]
pub struct Followed {
    /// The config's short name.
    pub alias: String,
    /// Its identity.
    pub chain: ChainId,
    /// The follower's pulse.
    pub pulse: Pulse,
    /// EVM: its endpoints.
    pub nodes: Option<Nodes>,
}

/// What the answers are made of. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ops(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    store: Store,
    clock: Clock,
    followed: Vec<Followed>,
    findings: usize,
    started_ms: i64,
    reads: Semaphore,
}

/// What strangers can have of the listener. Who has asked has its place for more than the database's patience
/// and the reading of a large answer.
const BOUNDS: Bounds = Bounds {
    connections_max: 32,
    asking: Duration::from_secs(3),
    life: Some(Duration::from_secs(10)),
    stall: Duration::from_secs(10),
};

/// Opens the listener. Connections are taken once [`Ops::serve`] runs.
///
/// # Errors
/// The address is taken, or not this machine's.
pub async fn listen(address: SocketAddr, clock: Clock) -> std::io::Result<Listener> {
    Listener::bind(address, BOUNDS, None, clock).await
}

impl Ops {
    /// For this store on the file `database`, at whose opening `findings` things were noticed.
    pub fn new(store: Store, clock: Clock, followed: Vec<Followed>, findings: usize) -> Ops {
        Ops(Arc::new(Parts {
            store,
            clock,
            followed,
            findings,
            started_ms: clock.now_ms(),
            reads: Semaphore::new(READS_MAX),
        }))
    }

    /// Answers until it is dropped.
    pub async fn serve(self, listener: Listener) {
        let routes = Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self);
        // Only a listener can make this end, and ours never does.
        let _ = axum::serve(listener, routes).await;
    }

    /// What the database tells, if it answers in time.
    async fn readings(&self) -> Option<Readings> {
        let parts = &self.0;
        let reading = async {
            let _place = parts.reads.acquire().await.ok()?;
            let read: Result<Readings, StoreError> = parts.store.read(|tx| tx.readings()).await;
            read.inspect_err(|error| tracing::debug!("a scrape cannot read the database: {error}"))
                .ok()
        };
        tokio::select! { biased;
            readings = reading => readings,
            () = parts.clock.sleep(PATIENCE) => None,
        }
    }
}

async fn healthz(State(ops): State<Ops>) -> Response {
    let (status, text) = match health::healthz(&ops).await {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    };
    answer(status, "text/plain; charset=utf-8", text)
}

async fn readyz(State(ops): State<Ops>) -> Response {
    let (is_ready, body) = health::readyz(&ops).await;
    let status = if is_ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    answer(status, "application/json", body)
}

async fn metrics(State(ops): State<Ops>) -> Response {
    match metrics::exposition(&ops).await {
        Ok(text) => answer(StatusCode::OK, text::CONTENT_TYPE, text),
        Err(why) => answer(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain; charset=utf-8",
            format!("{why}\n"),
        ),
    }
}

/// Each answer ends its connection: the listener ends those that live long, and one that is being reused at
/// that moment would look like a failure.
fn answer(status: StatusCode, content_type: &'static str, body: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::CONNECTION, HeaderValue::from_static("close")),
    ];
    (status, headers, body).into_response()
}
