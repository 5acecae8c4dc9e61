//! The pulse of a follower: the state that it is in, and a sign of life at each thing that it does. Who takes
//! the pulse learns of a follower that goes on although its node fails, and of one that has stopped going on.

use crate::clock::Clock;
use crate::egress::{Dial, DialError, HttpReply, HttpRequest};
use crate::rules::chain_state::ChainState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A pulse, felt from many places. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Arc<Mutex<Signs>>);

#[derive(Debug)]
struct Signs {
    reading: Reading,
    /// Until then the follower has announced silence; `None` before the first beat.
    quiet_until: Option<Instant>,
    /// Until then an exchange with the node may last; of one that is over, when it ended.
    exchange_until: Option<Instant>,
}

impl Default for Signs {
    fn default() -> Signs {
        let reading = Reading {
            state: ChainState::Starting,
            reason: String::new(),
            since_ms: None,
            node_height: None,
        };
        Signs {
            reading,
            quiet_until: None,
            exchange_until: None,
        }
    }
}

/// What a pulse tells of its chain, in this run of the daemon. The database may lag behind it: a full disk
/// takes no news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The follower's state.
    pub state: ChainState,
    /// The reason for it, in words.
    pub reason: String,
    /// Since when, Unix milliseconds; `None` before the first round was over.
    pub since_ms: Option<i64>,
    /// The height of the node's tip when it was last asked; `None` before its first answer.
    pub node_height: Option<u64>,
}

impl Pulse {
    /// A sign of life; the next one comes within `silence`, give or take the time to work.
    pub fn beat(&self, clock: Clock, silence: Duration) {
        self.signs().quiet_until = Some(clock.instant() + silence);
    }

    /// An exchange with the node begins, which ends within `deadline`; or it has ended, with none.
    fn exchange(&self, clock: Clock, deadline: Duration) {
        self.signs().exchange_until = Some(clock.instant() + deadline);
    }

    /// How long the sign of life is overdue.
    pub fn overdue(&self, clock: Clock) -> Duration {
        let signs = self.signs();
        signs
            .quiet_until
            .max(signs.exchange_until)
            .map_or(Duration::ZERO, |until| {
                clock.instant().saturating_duration_since(until)
            })
    }

    /// Notes the state that a round ended in.
    pub fn note_state(&self, clock: Clock, state: ChainState, reason: &str) {
        let reading = &mut self.signs().reading;
        if reading.since_ms.is_none() || reading.state != state {
            reading.since_ms = Some(clock.now_ms());
        }
        reading.state = state;
        reason.clone_into(&mut reading.reason);
    }

    /// Notes the height of the node's tip.
    pub fn note_node(&self, height: u64) {
        self.signs().reading.node_height = Some(height);
    }

    /// What it tells now.
    pub fn reading(&self) -> Reading {
        self.signs().reading.clone()
    }

    fn signs(&self) -> MutexGuard<'_, Signs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A way out whose every exchange is a sign of life: each has a deadline, so a node that hangs is no reason
/// to think that its follower does.
#[derive(Debug)]
pub struct PulsingDial<D> {
    dial: D,
    pulse: Pulse,
    clock: Clock,
}

impl<D> PulsingDial<D> {
    /// Makes the exchanges of `dial` beat.
    pub fn new(dial: D, pulse: Pulse, clock: Clock) -> PulsingDial<D> {
        PulsingDial { dial, pulse, clock }
    }
}

impl<D: Dial> Dial for PulsingDial<D> {
    async fn send(&self, request: HttpRequest) -> Result<HttpReply, DialError> {
        self.pulse.exchange(self.clock, request.deadline);
        let reply = self.dial.send(request).await;
        self.pulse.exchange(self.clock, Duration::ZERO);
        reply
    }

    fn reset(&self) {
        self.dial.reset();
    }

    fn dials(&self) -> u64 {
        self.dial.dials()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_overdue_only_after_what_was_announced() {
        let (clock, pulse) = (Clock::simulated(0), Pulse::default());
        assert_eq!(pulse.overdue(clock), Duration::ZERO, "not started");
        pulse.beat(clock, Duration::from_secs(10));
        clock.sleep(Duration::from_secs(9)).await;
        assert_eq!(pulse.overdue(clock), Duration::ZERO);
        clock.sleep(Duration::from_secs(3)).await;
        assert_eq!(pulse.overdue(clock), Duration::from_secs(2));
        pulse.beat(clock, Duration::ZERO);
        assert_eq!(pulse.overdue(clock), Duration::ZERO);
        pulse.exchange(clock, Duration::from_secs(60));
        clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(pulse.overdue(clock), Duration::ZERO, "its deadline ends it");
        pulse.exchange(clock, Duration::ZERO);
        clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(pulse.overdue(clock), Duration::from_secs(1));
        pulse.beat(clock, Duration::from_secs(30));
        pulse.exchange(clock, Duration::ZERO);
        clock.sleep(Duration::from_secs(30)).await;
        assert_eq!(
            pulse.overdue(clock),
            Duration::ZERO,
            "an exchange does not end an announced silence"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_keeps_its_time_while_its_reason_changes() {
        let (clock, pulse) = (Clock::simulated(1_000), Pulse::default());
        assert_eq!(pulse.reading().since_ms, None);
        pulse.note_state(clock, ChainState::Unreachable, "refused");
        clock.sleep(Duration::from_secs(1)).await;
        pulse.note_state(clock, ChainState::Unreachable, "timed out");
        let reading = pulse.reading();
        assert_eq!(
            (reading.since_ms, reading.reason.as_str()),
            (Some(1_000), "timed out")
        );
        pulse.note_state(clock, ChainState::Following, "");
        assert_eq!(pulse.reading().since_ms, Some(2_000));
    }
}
