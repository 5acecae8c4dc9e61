//! Leaving a node alone that has had enough of us. Whoever goes on asking is locked out for longer, or
//! billed.

use super::RpcError;
use crate::clock::Clock;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The first pause where the node names none; each one after it is twice as long.
const FIRST: Duration = Duration::from_secs(1);

/// The longest pause, whatever the node asks for: some name the end of the day, and the limit may be lifted
/// before.
const LONGEST: Duration = Duration::from_secs(60);

/// Infura's, Chainstack's and others' code for a limit that was passed (EIP-1474), which also stands for
/// answers that are too long.
const LIMIT_EXCEEDED: i32 = -32_005;

/// The HTTP status as a code (Alchemy).
const TOO_MANY_REQUESTS: i32 = 429;

/// What providers write under codes of their own: QuickNode (-32007), Base (-32016), Ankr (-32090), dRPC and
/// others (-32000, -32029, -32097).
const WORDS: [&str; 7] = [
    "rate limit",
    "rate-limit",
    "request limit",
    "too many requests",
    "requests per second",
    "compute units per second",
    "request count exceeded",
];

/// True of an error that says "not so often". One that says "not so much" is another: asking the same again
/// later gives the same answer.
pub(super) fn is_limit(code: i32, message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let is_said = WORDS.iter().any(|words| message.contains(words));
    let is_about_size = ["result", "range", "response", "size", "batch"]
        .iter()
        .any(|word| message.contains(word));
    code == TOO_MANY_REQUESTS || is_said || (code == LIMIT_EXCEEDED && !is_about_size)
}

/// When a node may be asked again.
pub(super) struct Throttle {
    clock: Clock,
    pause: Mutex<Pause>,
}

#[derive(Debug)]
struct Pause {
    until: Option<Instant>,
    /// The node's own words.
    why: String,
    /// The next one's length, where the node names none.
    next: Duration,
}

impl Throttle {
    pub(super) fn new(clock: Clock) -> Throttle {
        let pause = Mutex::new(Pause {
            until: None,
            why: String::new(),
            next: FIRST,
        });
        Throttle { clock, pause }
    }

    fn pause(&self) -> MutexGuard<'_, Pause> {
        self.pause.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the node is still to be left alone, and why.
    pub(super) fn left(&self) -> Option<(Duration, String)> {
        let pause = self.pause();
        let left = pause.until?.saturating_duration_since(self.clock.instant());
        (!left.is_zero()).then(|| (left, pause.why.clone()))
    }

    /// An error while the node is to be left alone.
    pub(super) fn check(&self) -> Result<(), RpcError> {
        match self.left() {
            Some((retry_after, why)) => Err(RpcError::RateLimited { retry_after, why }),
            None => Ok(()),
        }
    }

    /// The node has had enough. Of several exchanges at a time all are told so; that is one pause.
    pub(super) fn limit(&self, wanted_secs: Option<u64>, why: String) -> RpcError {
        let now = self.clock.instant();
        let mut pause = self.pause();
        let is_paused = pause.until.is_some_and(|until| now < until);
        let span = match wanted_secs {
            Some(secs) => Duration::from_secs(secs).clamp(FIRST, LONGEST),
            None if is_paused => Duration::ZERO,
            None => pause.next,
        };
        if !is_paused {
            pause.next = (pause.next * 2).min(LONGEST);
        }
        let until = pause.until.map_or(now + span, |until| until.max(now + span));
        pause.until = Some(until);
        pause.why.clone_from(&why);
        RpcError::RateLimited {
            retry_after: until.saturating_duration_since(now),
            why,
        }
    }

    /// The node has answered.
    pub(super) fn ease(&self) {
        self.pause().next = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told_from_other_errors() {
        let limits = [
            (-32_005, "limit exceeded"),
            (-32_005, "daily request count exceeded, request rate limited"),
            (-32_005, "Rate limit exceeded"),
            (429, "Your app has exceeded its compute units per second capacity"),
            (
                -32_007,
                "50/second request limit reached - reduce calls per second",
            ),
            (-32_016, "over rate limit"),
            (
                -32_090,
                "Too many requests, reason: call rate limit exhausted, retry in 10s",
            ),
            (-32_097, "rate limit exceeded"),
            (-32_000, "429 Too Many Requests"),
        ];
        for (code, message) in limits {
            assert!(is_limit(code, message), "{code} {message}");
        }
        let others = [
            (-32_005, "query returned more than 10000 results"),
            (-32_005, "block range exceeds the limit"),
            (-32_005, "response size exceeded"),
            (-32_016, "Unauthorized"),
            (-32_000, "header not found"),
            (-32_601, "the method eth_x does not exist/is not available"),
            (-32_600, "batch too large"),
            (3, "execution reverted"),
        ];
        for (code, message) in others {
            assert!(!is_limit(code, message), "{code} {message}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_double_until_an_answer_and_are_bounded() {
        let clock = Clock::simulated(0);
        let throttle = Throttle::new(clock);
        let secs = |error: RpcError| match error {
            RpcError::RateLimited { retry_after, .. } => retry_after.as_secs(),
            other => panic!("{other}"),
        };
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(secs(throttle.limit(None, "x".to_owned())), expected);
            assert_eq!(secs(throttle.limit(None, "x".to_owned())), expected, "one pause");
            assert_eq!(secs(throttle.check().unwrap_err()), expected);
            clock.sleep(Duration::from_secs(expected)).await;
            assert!(throttle.check().is_ok() && throttle.left().is_none());
        }
        throttle.ease();
        assert_eq!(secs(throttle.limit(None, "x".to_owned())), 1);
        clock.sleep(Duration::from_secs(1)).await;
        for (wanted, expected) in [(7, 7), (0, 7), (86_400, 60), (3, 60)] {
            assert_eq!(
                secs(throttle.limit(Some(wanted), "x".to_owned())),
                expected,
                "{wanted}"
            );
        }
    }
}
