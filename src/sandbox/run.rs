//! A scenario under way: one step after the other, until one is refused.

use super::hand::{Done, Hand, Refused};
use super::scenario::{Line, Numbered};
use crate::clock::Clock;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Where scenarios pause. A `go` that comes before its `pause` counts.
pub(super) struct Gate(Semaphore);

impl Gate {
    pub(super) fn new() -> Gate {
        Gate(Semaphore::new(0))
    }

    /// Lets one pause end: one that is under way (true), else the next one.
    pub(super) fn go(&self) -> bool {
        // Whoever waits takes it at once: what is left is for later.
        self.0.add_permits(1);
        self.0.available_permits() == 0
    }

    async fn pause(&self) {
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}

/// How a line ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Where it stands.
    pub number: usize,
    /// As it is read.
    pub text: String,
    /// What it did; nothing where it only waited.
    pub outcome: Result<Option<Done>, Refused>,
}

/// A scenario under way.
pub struct Run {
    hand: Arc<Hand>,
    gate: Arc<Gate>,
    lines: std::vec::IntoIter<Numbered>,
}

impl Run {
    pub(super) fn new(hand: Arc<Hand>, gate: Arc<Gate>, lines: Vec<Numbered>) -> Run {
        Run {
            hand,
            gate,
            lines: lines.into_iter(),
        }
    }

    /// Does the next line; `None` after the last, and after one that was refused.
    pub async fn next(&mut self) -> Option<Ended> {
        let Numbered { number, line } = self.lines.next()?;
        let outcome = match &line {
            Line::Step(on, step) => self.hand.step(*on, step).map(Some),
            Line::Wait(span) => {
                Clock::real().sleep(*span).await;
                Ok(None)
            }
            Line::Pause => {
                self.gate.pause().await;
                Ok(None)
            }
        };
        if outcome.is_err() {
            self.lines = Vec::new().into_iter();
        }
        Some(Ended {
            number,
            text: line.to_string(),
            outcome,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn a_go_says_whether_anybody_paused() {
        let gate = Gate::new();
        let mut context = Context::from_waker(Waker::noop());
        let mut pause = pin!(gate.pause());
        assert!(pause.as_mut().poll(&mut context).is_pending());
        assert!(gate.go(), "it pauses");
        assert!(pause.as_mut().poll(&mut context).is_ready());
        assert!(!gate.go(), "nobody does");
        assert!(pin!(gate.pause()).poll(&mut context).is_ready(), "it was kept");
        assert!(pin!(gate.pause()).poll(&mut context).is_pending(), "for one");
    }
}
