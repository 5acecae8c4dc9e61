//! The one place where a test waits.

use std::time::{Duration, Instant};

/// Long enough for a loaded machine, short enough to notice.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Asks `probe` until it answers, and panics with `what` at the deadline.
///
/// Tests never sleep on their own: a fixed sleep is too short on a loaded machine and too long on all others.
#[track_caller]
pub fn wait_until<T>(what: &str, deadline: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let started = now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(
            started.elapsed() < deadline,
            "waited {deadline:?} in vain: {what}"
        );
        pause();
    }
}

/// Lets time pass, for a test that acts at a random moment. Never to wait for something: that is
/// [`wait_until`].
#[allow(
    clippy::disallowed_methods,
    reason = "a test of real processes waits in real time"
)]
pub fn let_pass(span: Duration) {
    std::thread::sleep(span);
}

// A test drives real processes, so it waits in real time; the product takes its time from `clock`.
#[allow(
    clippy::disallowed_methods,
    reason = "a test of real processes waits in real time"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}

#[allow(
    clippy::disallowed_methods,
    reason = "a test of real processes waits in real time"
)]
pub(super) fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}
