//! A merchant's receiver of callbacks, as one should be: it checks the signature, stores the body under the
//! callback's id before it answers, does nothing for an id that it has, and keeps books of what it was told.
//! Once it stores and then fails to say so, which is what happens to everybody some day.

use super::DemoError;
use crate::clock::Clock;
use crate::webhook::{self, Headers, VerifyKey, Window};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Runtime;

/// How far the clocks of two machines may differ; the official packages take the same.
const TOLERANCE_SECS: i64 = 300;

/// A request, and what became of it.
pub(super) struct Receipt {
    pub(super) kind: String,
    pub(super) reference: String,
    pub(super) outcome: Outcome,
}

/// What a receiver does with a request.
pub(super) enum Outcome {
    Stored,
    /// Stored, and answered with an error.
    StoredButFailed,
    /// It was there already.
    Repeated {
        is_same: bool,
    },
    Refused(String),
}

/// The running receiver.
pub(super) struct Receiver {
    pub(super) url: String,
    desk: Arc<Desk>,
}

struct Desk {
    clock: Clock,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    key: Option<VerifyKey>,
    receipts: Vec<Receipt>,
    /// Bodies by the callback's id.
    bodies: BTreeMap<String, Bytes>,
    /// The highest version of each credit, its asset, and its net in base units.
    books: BTreeMap<String, (i64, String, u128)>,
    /// How often each id came again.
    repeats: BTreeMap<String, usize>,
    has_failed: bool,
}

impl Receiver {
    /// Listens on a free loopback port.
    pub(super) fn start(runtime: &Runtime, clock: Clock) -> Result<Receiver, DemoError> {
        let desk = Arc::new(Desk {
            clock,
            notes: Mutex::default(),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}/callbacks", listener.local_addr()?);
        let routes = Router::new()
            .route("/callbacks", post(receive))
            .with_state(desk.clone());
        let _context = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Ok(Receiver { url, desk })
    }

    /// Believes whoever signs with this secret.
    pub(super) fn trust(&self, secret: &str) -> bool {
        let key = VerifyKey::parse(secret).ok();
        let is_one = key.is_some();
        self.notes().key = key;
        is_one
    }

    /// What has come since the last time.
    pub(super) fn take_receipts(&self) -> Vec<Receipt> {
        std::mem::take(&mut self.notes().receipts)
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.notes().bodies.contains_key(id)
    }

    /// How many requests brought nothing new.
    pub(super) fn repeats(&self) -> usize {
        self.notes().repeats.values().sum()
    }

    /// How often this callback came again.
    pub(super) fn repeats_of(&self, id: &str) -> usize {
        self.notes().repeats.get(id).copied().unwrap_or_default()
    }

    /// How many callbacks are stored.
    pub(super) fn count(&self) -> usize {
        self.notes().bodies.len()
    }

    /// What all credits of an asset net to, in base units, by the asset's id.
    pub(super) fn sums(&self) -> BTreeMap<String, u128> {
        let mut sums = BTreeMap::new();
        for (_, asset, net) in self.notes().books.values() {
            *sums.entry(asset.clone()).or_default() += net;
        }
        sums
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.desk.notes()
    }
}

impl Desk {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn receive(State(desk): State<Arc<Desk>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let now_secs = desk.clock.now_ms() / 1_000;
    let mut notes = desk.notes();
    let told: Value = serde_json::from_slice(&body).unwrap_or_default();
    let outcome = notes.take(&headers, &body, &told, now_secs);
    let status = match &outcome {
        Outcome::Stored | Outcome::Repeated { is_same: true } => StatusCode::NO_CONTENT,
        Outcome::StoredButFailed => StatusCode::INTERNAL_SERVER_ERROR,
        Outcome::Repeated { is_same: false } | Outcome::Refused(_) => StatusCode::BAD_REQUEST,
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    notes.receipts.push(Receipt {
        kind: text(&told["type"]),
        reference: text(&told["data"]["deposit"]["reference"]),
        outcome,
    });
    status
}

impl Notes {
    fn take(&mut self, headers: &HeaderMap, body: &Bytes, told: &Value, now_secs: i64) -> Outcome {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let shown = Headers {
            id: header(webhook::ID_HEADER),
            timestamp: header(webhook::TIMESTAMP_HEADER),
            signature: header(webhook::SIGNATURE_HEADER),
        };
        let window = Window {
            now_secs,
            tolerance_secs: TOLERANCE_SECS,
        };
        if let Err(error) = webhook::verify(shown, body, self.key.as_slice(), window) {
            return Outcome::Refused(error.to_string());
        }
        let id = shown.id.unwrap_or_default();
        if let Some(first) = self.bodies.get(id) {
            let is_same = first == body;
            *self.repeats.entry(id.to_owned()).or_default() += 1;
            return Outcome::Repeated { is_same };
        }
        self.bodies.insert(id.to_owned(), body.clone());
        self.book(&told["data"]);
        if told["type"] == "credit.created" && !self.has_failed {
            self.has_failed = true;
            return Outcome::StoredButFailed;
        }
        Outcome::Stored
    }

    /// Events state absolutes, so the one with the highest version is true, in whatever order they came.
    fn book(&mut self, data: &Value) {
        let net = data["net_base"].as_str().and_then(|net| net.parse().ok());
        let asset = data["deposit"]["asset"].as_str();
        if let (Some(credit), Some(version), Some(asset), Some(net)) =
            (data["credit"].as_str(), data["version"].as_i64(), asset, net)
        {
            let told = (version, asset.to_owned(), net);
            let held = self
                .books
                .entry(credit.to_owned())
                .or_insert_with(|| told.clone());
            if held.0 < version {
                *held = told;
            }
        }
    }
}
