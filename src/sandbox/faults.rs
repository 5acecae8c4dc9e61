//! What may be wrong with a node: it is gone, mute, wants a log-in, wants less, or is still starting. Asked
//! once at the top of each request, before the node looks at it; see [`Faults::gate`].

use super::front::RpcError;
use crate::clock::Clock;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What Bitcoin Core says while it starts.
pub(super) const STARTING: &str = "Loading block index\u{2026}";

/// What is wrong with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// 503, as from the proxy before a node that is gone.
    Down,
    /// It takes the request and says nothing, until the trouble is over.
    Hang,
    /// 429: too many requests, with a `Retry-After` where it is known when it ends.
    Limit,
    /// 401: what was shown to log in with is not believed.
    Login,
    /// It is starting, and says so to every call.
    Warming,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Trouble; 5] = [
        Trouble::Down,
        Trouble::Hang,
        Trouble::Limit,
        Trouble::Login,
        Trouble::Warming,
    ];

    /// How it is written.
    pub fn word(self) -> &'static str {
        match self {
            Trouble::Down => "down",
            Trouble::Hang => "hang",
            Trouble::Limit => "limit",
            Trouble::Login => "login",
            Trouble::Warming => "warming",
        }
    }

    /// The trouble of a word.
    pub fn of_word(word: &str) -> Option<Trouble> {
        Trouble::ALL.into_iter().find(|trouble| trouble.word() == word)
    }
}

/// The trouble that a node has now.
pub(super) struct Faults {
    set: Mutex<Option<Set>>,
    /// Told at each change, for whoever is kept waiting.
    changes: watch::Sender<()>,
    clock: Clock,
}

#[derive(Clone, Copy)]
struct Set {
    trouble: Trouble,
    /// `None` = until it is taken away.
    until: Option<Instant>,
}

impl Faults {
    pub(super) fn new(clock: Clock) -> Faults {
        Faults {
            set: Mutex::new(None),
            changes: watch::Sender::new(()),
            clock,
        }
    }

    /// Begins a trouble, for a span or until it is taken away; with `None` there is none.
    pub(super) fn set(&self, trouble: Option<Trouble>, span: Option<Duration>) {
        let until = span.map(|span| self.clock.instant() + span);
        *self.slot() = trouble.map(|trouble| Set { trouble, until });
        self.changes.send_replace(());
    }

    /// The trouble of now.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.now().map(|set| set.trouble)
    }

    fn slot(&self) -> MutexGuard<'_, Option<Set>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Option<Set> {
        let mut slot = self.slot();
        let now = self.clock.instant();
        let is_over = slot.is_some_and(|set| set.until.is_some_and(|until| until <= now));
        if is_over {
            *slot = None;
        }
        *slot
    }

    /// A starting node refuses every call with this.
    pub(super) fn refuse_while_warming(&self, code: i32, why: &str) -> Result<(), RpcError> {
        match self.trouble() {
            Some(Trouble::Warming) => Err(RpcError::new(code, why)),
            Some(Trouble::Down | Trouble::Hang | Trouble::Limit | Trouble::Login) | None => Ok(()),
        }
    }

    /// Waits until a hanging node hangs no more.
    async fn wait(&self) {
        let mut changes = self.changes.subscribe();
        while let Some(Set {
            trouble: Trouble::Hang,
            until,
        }) = self.now()
        {
            let end = async {
                match until {
                    Some(until) => self.clock.sleep(until - self.clock.instant()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = end => {}
            }
        }
    }

    /// What stands before all routes of a node.
    pub(super) async fn gate(State(faults): State<Arc<Faults>>, request: Request, next: Next) -> Response {
        faults.wait().await;
        let Some(set) = faults.now() else {
            return next.run(request).await;
        };
        match set.trouble {
            Trouble::Down => (StatusCode::SERVICE_UNAVAILABLE, "no node here\n").into_response(),
            Trouble::Limit => {
                let left = set.until.map(|until| until - faults.clock.instant());
                let secs = left.map_or(1, |left| left.as_secs() + 1);
                let when = [(header::RETRY_AFTER, secs.to_string())];
                (StatusCode::TOO_MANY_REQUESTS, when, "too many requests\n").into_response()
            }
            Trouble::Login => {
                let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"jsonrpc\"")];
                (StatusCode::UNAUTHORIZED, challenge).into_response()
            }
            Trouble::Warming if request.method() == Method::GET => {
                let why = format!("Service temporarily unavailable: {STARTING}\r\n");
                (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
            }
            // Each call is told so itself. One that hung may go on meanwhile.
            Trouble::Warming | Trouble::Hang => next.run(request).await,
        }
    }
}
