//! Signs of life for the service manager: does the writer still work, does every other part still go round? A
//! node that hangs is no reason to end us, and neither is a file that somebody else has locked: both are
//! waited for within deadlines. What has no deadline, a disk that never answers, is.

use crate::clock::Clock;
use crate::pulse::Pulse;
use crate::store::{Store, StoreError};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Instant;

/// How long one look waits for the writer's answer.
const LOOK: Duration = Duration::from_millis(250);

/// What is wrong with the daemon itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ailment {
    /// The writer neither answers nor does anything.
    Writer,
    /// A part of the daemon is silent for longer than it announced.
    Silent {
        /// Which, to go after "the".
        part: String,
        /// How much longer.
        overdue: Duration,
    },
}

impl fmt::Display for Ailment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ailment::Writer => f.write_str("the database's writer does not answer"),
            Ailment::Silent { part, overdue } => {
                write!(f, "the {part} is silent, overdue by {} s", overdue.as_secs())
            }
        }
    }
}

type Probe = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

/// A part of the daemon by name, to go after "the", and its pulse.
pub type Part = (String, Pulse);

/// Looks again and again. A probe that the writer has not answered is not repeated, so that a writer that
/// hangs is not buried.
pub struct Vitals {
    store: Store,
    clock: Clock,
    parts: Vec<Part>,
    overdue_max: Duration,
    probe: Option<Probe>,
    beats: u64,
    /// When the writer last answered or did something.
    moved_at: Instant,
    /// When it was last seen not to answer at once.
    slow_at: Instant,
}

impl Vitals {
    /// Parts may be overdue, and the writer may take over one thing, for as long as `overdue_max`: the
    /// time that work takes, beside the waiting that is announced.
    pub fn new(store: Store, clock: Clock, parts: Vec<Part>, overdue_max: Duration) -> Vitals {
        Vitals {
            store,
            clock,
            parts,
            overdue_max,
            probe: None,
            beats: 0,
            moved_at: clock.instant(),
            slow_at: clock.instant(),
        }
    }

    /// Looks once. Takes no longer than a moment.
    ///
    /// # Errors
    /// What is wrong.
    pub async fn look(&mut self) -> Result<(), Ailment> {
        self.look_at_writer().await?;
        // Who waits for a slow writer is not to blame: the time begins when the writer is quick.
        let quick_since = self.clock.instant() - self.slow_at;
        for (part, pulse) in &self.parts {
            let overdue = pulse.overdue(self.clock).min(quick_since);
            if overdue > self.overdue_max {
                let part = part.clone();
                return Err(Ailment::Silent { part, overdue });
            }
        }
        Ok(())
    }

    async fn look_at_writer(&mut self) -> Result<(), Ailment> {
        let store = &self.store;
        let probe = self.probe.get_or_insert_with(|| Box::pin(probe(store.clone())));
        let answered = tokio::select! { biased;
            answer = probe => Some(answer),
            () = self.clock.sleep(LOOK) => None,
        };
        let (now, beats) = (self.clock.instant(), self.store.counters().beats);
        if answered.is_some() || beats != self.beats {
            self.moved_at = now;
        }
        self.beats = beats;
        match answered {
            // A closed store has no writer any more. Busy, full or refused is an answer.
            Some(Err(StoreError::Closed)) => return Err(Ailment::Writer),
            Some(Ok(())) => self.probe = None,
            Some(Err(_)) => {
                self.probe = None;
                self.slow_at = now;
            }
            None => self.slow_at = now,
        }
        if now - self.moved_at > self.overdue_max {
            return Err(Ailment::Writer);
        }
        Ok(())
    }
}

/// A write that writes nothing: it takes the lock, looks whose file it is, and commits.
async fn probe(store: Store) -> Result<(), StoreError> {
    store.write(|_| Ok(())).await
}
