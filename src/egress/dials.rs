//! Counts the connections that an HTTP client makes. It makes them in silence: one that the other side closed
//! while it was idle is made anew without an error, and then somebody else may be at its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// How many connections were begun.
#[derive(Clone, Debug, Default)]
pub(super) struct Dials(Arc<AtomicU64>);

impl Dials {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl<S> Layer<S> for Dials {
    type Service = Counted<S>;

    fn layer(&self, connects: S) -> Counted<S> {
        Counted {
            connects,
            dials: self.clone(),
        }
    }
}

/// Whoever makes the connections, counted.
#[derive(Clone)]
pub(super) struct Counted<S> {
    connects: S,
    dials: Dials,
}

impl<S: Service<To>, To> Service<To> for Counted<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.connects.poll_ready(context)
    }

    fn call(&mut self, to: To) -> S::Future {
        self.dials.0.fetch_add(1, Ordering::AcqRel);
        self.connects.call(to)
    }
}
