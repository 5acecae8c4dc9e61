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
    /// Wall time does not move; spans are the machine's.
    Standing(i64),
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

    /// A wall clock that stands at `at_ms`, while spans pass and sleeps end as they do on the machine: for
    /// going through what was at one moment, when nothing may expire meanwhile.
    pub fn standing(at_ms: i64) -> Clock {
        Clock(Source::Standing(at_ms))
    }

    /// Sets a simulated wall clock forward or back under everybody who reads it, while the spans that are
    /// slept stay as they are. The machine's clock is not ours to set,
    /// and one that stands does so.
    pub fn set_by(&self, by_ms: i64) {
        match self.0 {
            Source::Real | Source::Standing(_) => {}
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
            Source::Standing(at_ms) => at_ms.max(0),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_standing_clock_stands_while_spans_pass() {
        let clock = Clock::standing(1_700_000_000_000);
        let began = clock.instant();
        clock.set_by(60_000);
        clock.sleep(Duration::from_secs(3_600)).await;
        assert_eq!(clock.now_ms(), 1_700_000_000_000);
        assert_eq!(clock.instant() - began, Duration::from_secs(3_600));
        assert_eq!(Clock::standing(-1).now_ms(), 0, "before 1970 it is 0");
    }
}
