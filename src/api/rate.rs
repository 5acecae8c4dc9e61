//! How many requests a key may make: so many in a second on average, and twice as many at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What a key that was quiet may use at once, in time of its average.
const BURST: Duration = Duration::from_secs(2);

/// Keys that are remembered; more than these are looked through for quiet ones.
const KEYS_MAX: usize = 1_024;

/// The keys that asked lately. Per key the moment up to which its requests so far would have taken at its
/// average rate: the "theoretical arrival time" of the generic cell rate algorithm.
#[derive(Debug)]
pub(super) struct Rates {
    per_request: Duration,
    used_up_to: Mutex<BTreeMap<String, Duration>>,
}

impl Rates {
    pub(super) fn new(per_sec: u32) -> Rates {
        Rates {
            per_request: Duration::from_secs(1) / per_sec.max(1),
            used_up_to: Mutex::default(),
        }
    }

    /// Counts a request at `now`, or says how long to wait.
    pub(super) fn admit(&self, key: &str, now: Duration) -> Result<(), Duration> {
        let mut all = self.used_up_to.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > KEYS_MAX {
            all.retain(|_, used| *used > now);
        }
        let used = all.get(key).copied().unwrap_or_default().max(now);
        let after = used + self.per_request;
        match after.checked_sub(now + BURST).filter(|wait| !wait.is_zero()) {
            Some(wait) => Err(wait),
            None => {
                all.insert(key.to_owned(), after);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_its_burst_and_then_its_rate_and_others_have_theirs() {
        let rates = Rates::new(10);
        let start = Duration::from_secs(100);
        for number in 0..20 {
            assert_eq!(rates.admit("a", start), Ok(()), "{number}");
        }
        assert_eq!(rates.admit("a", start), Err(Duration::from_millis(100)));
        assert_eq!(rates.admit("b", start), Ok(()));
        let later = start + Duration::from_millis(100);
        assert_eq!(rates.admit("a", later), Ok(()));
        assert_eq!(rates.admit("a", later), Err(Duration::from_millis(100)));
        let long_after = start + Duration::from_secs(60);
        for number in 0..20 {
            assert_eq!(rates.admit("a", long_after), Ok(()), "{number}");
        }
        assert!(rates.admit("a", long_after).is_err());
    }
}
