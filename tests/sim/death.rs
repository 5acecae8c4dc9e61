//! Death of the daemon: a flag that every part looks at, so that nothing it does afterwards has an effect.

use crate::script::CrashAt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Points of the code by number, for [`CrashAt::Named`].
pub const NAMES: &[&str] = &["begin.before", "begin.after", "commit.before", "commit.after"];

/// Is the daemon alive? Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Alive(());

impl Alive {
    pub fn new() -> Alive {
        Alive(())
    }

    /// It dies there.
    pub fn arm(&self, _at: CrashAt) {
        unreachable!("not built yet")
    }

    pub fn is_dead(&self) -> bool {
        false
    }

    /// Kills it now.
    pub fn die(&self, _at: CrashAt) {
        unreachable!("not built yet")
    }

    /// Waits for its death.
    pub async fn died(&self) -> CrashAt {
        std::future::pending().await
    }

    /// What `work` gives, or nothing for ever if it is dead by then.
    pub async fn or_never<T>(&self, work: impl Future<Output = T>) -> T {
        let done = work.await;
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
        done
    }
}

/// A part whose awaits are counted; at the armed one the daemon dies.
#[derive(Debug)]
pub struct Counted<F> {
    pub inner: Pin<Box<F>>,
    pub alive: Alive,
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.inner.as_mut().poll(cx)
    }
}
