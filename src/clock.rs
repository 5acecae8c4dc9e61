//! The one place that reads time and sleeps. Everything else is given a [`Clock`], so that tests and the
//! simulator own time: under tokio's paused clock [`Clock::simulated`] jumps instead of waiting.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Wall clock and sleep. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Source);

#[derive(Clone, Copy, Debug)]
enum Source {
    Real,
    /// Wall time = `epoch_ms` + what tokio's own clock says has passed.
    Simulated {
        epoch_ms: &'static AtomicI64,
        started: Instant,
    },
}

impl Clock {
    /// The machine's clock.
    pub fn real() -> Clock {
        Clock(Source::Real)
    }

    /// A wall clock that starts at `epoch_ms` and follows tokio's (paused) time. Its eight bytes are never
    /// freed: all copies show the same time when it is set.
    pub fn simulated(epoch_ms: i64) -> Clock {
        let epoch_ms = Box::leak(Box::new(AtomicI64::new(epoch_ms)));
        #[allow(clippy::disallowed_methods, reason = "this module is where time is read")]
        Clock(Source::Simulated {
            epoch_ms,
            started: Instant::now(),
        })
    }

    /// Sets a simulated wall clock forward or back under everybody who reads it, while the spans that are
    /// slept stay as they are. The machine's clock is not ours to set.
    pub fn set_by(&self, by_ms: i64) {
        match self.0 {
            Source::Real => {}
            Source::Simulated { epoch_ms, .. } => {
                epoch_ms.fetch_add(by_ms, Ordering::Relaxed);
            }
        }
    }

    /// Unix time in milliseconds. Before 1970 it is 0: no decision of ours reaches back there.
    #[allow(clippy::disallowed_methods, reason = "this module is where time is read")]
    pub fn now_ms(&self) -> i64 {
        match self.0 {
            Source::Real => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
            }
            Source::Simulated { epoch_ms, started } => epoch_ms
                .load(Ordering::Relaxed)
                .saturating_add(millis(started.elapsed())),
        }
    }

    /// A monotonic instant, for measuring spans.
    #[allow(clippy::disallowed_methods, reason = "this module is where time is read")]
    pub fn instant(&self) -> Instant {
        Instant::now()
    }

    /// Holds up this thread for `span`: for commands, which have nothing else to do meanwhile.
    #[allow(clippy::disallowed_methods, reason = "this module is where sleeping happens")]
    pub fn pause(&self, span: Duration) {
        std::thread::sleep(span);
    }

    /// Sleeps for `span`.
    #[allow(clippy::disallowed_methods, reason = "this module is where sleeping happens")]
    pub async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

/// A span in whole milliseconds.
pub fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// RFC 3339 in UTC with milliseconds, as JSON and tables show times.
pub fn rfc3339(unix_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(unix_ms)
        .map_or_else(|_| format!("{unix_ms} ms"), |time| format!("{time:.3}"))
}
