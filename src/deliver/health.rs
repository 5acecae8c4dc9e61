//! Which endpoints fail, for the log: one line when one begins to, one when it works again, none per attempt.
//! Forgotten at the end of the daemon, so that a log that begins anew names what fails then.

use crate::store::Outcome;
use std::collections::HashMap;

/// So many refusals in a row for which the event may be to blame are the endpoint's.
const REFUSALS: u32 = 3;

/// How endpoints have answered.
#[derive(Debug, Default)]
pub(super) struct Health(HashMap<String, Streak>);

#[derive(Debug, Default)]
struct Streak {
    failures: u32,
    is_failing: bool,
}

/// What an attempt changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It begins to fail.
    Fails,
    /// It works again.
    Works,
}

impl Health {
    /// Takes an attempt into account.
    pub(super) fn note(&mut self, endpoint: &str, outcome: &Outcome) -> Option<Turn> {
        if let Outcome::Delivered { .. } = outcome {
            let streak = self.0.remove(endpoint)?;
            return streak.is_failing.then_some(Turn::Works);
        }
        let streak = self.0.entry(endpoint.to_owned()).or_default();
        streak.failures = streak.failures.saturating_add(1);
        let is_failing = match outcome {
            Outcome::Refused { .. } => outcome.blames_endpoint() || streak.failures >= REFUSALS,
            Outcome::Delivered { .. } | Outcome::Gone | Outcome::Unanswered { .. } => true,
        };
        let begins = is_failing && !streak.is_failing;
        streak.is_failing |= is_failing;
        begins.then_some(Turn::Fails)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_told_of_when_it_begins_to_fail_and_when_it_works_again_and_never_per_attempt() {
        let works = Outcome::Delivered { status: 200 };
        let dead = Outcome::Unanswered {
            why: "nobody listens".to_owned(),
        };
        let refused = |status| Outcome::Refused {
            status,
            retry_after_secs: None,
        };
        let mut health = Health::default();
        let steps = [
            (works.clone(), None),
            (dead.clone(), Some(Turn::Fails)),
            (dead, None),
            (refused(500), None),
            (works.clone(), Some(Turn::Works)),
            (works.clone(), None),
            // One event that it cannot read.
            (refused(422), None),
            (refused(422), None),
            (works.clone(), None),
            // Every event.
            (refused(404), None),
            (refused(404), None),
            (refused(404), Some(Turn::Fails)),
            (refused(404), None),
            (works, Some(Turn::Works)),
        ];
        for (number, (outcome, expected)) in steps.into_iter().enumerate() {
            assert_eq!(health.note("ep_1", &outcome), expected, "step {number}");
        }
        assert_eq!(health.note("ep_2", &Outcome::Gone), Some(Turn::Fails));
    }
}
