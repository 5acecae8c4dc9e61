//! When a callback is tried again. The ladder is the one that Standard Webhooks recommends, with jitter
//! that follows from the delivery, so that the same one is retried at the same moments in every replay.

/// Seconds before each attempt: the first at once, the last about 75 hours later.
pub const LADDER_SECS: [u64; 10] = [0, 5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];

/// The longest that anything ever waits for its next attempt: the last step with all of its jitter.
pub const WAIT_MS_MAX: u64 = 86_400_000 * 12 / 10;

/// The longest wait that a receiver may ask for with `Retry-After`.
const ASKED_SECS_MAX: u64 = 86_400;

/// After this many attempts an event holds back newer ones of its subject no longer.
pub const ORDER_ATTEMPTS: u32 = 3;

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Try again after this long.
    AfterMs(u64),
    /// It was the last one: park the event, visible and replayable.
    Park,
}

/// Decides after `attempts` attempts, the last of which failed. `asked_secs` is the receiver's `Retry-After`;
/// `seed` is any number that belongs to the delivery.
pub fn after_failure(attempts: u32, asked_secs: Option<u64>, seed: u64) -> Retry {
    let Some(secs) = usize::try_from(attempts)
        .ok()
        .and_then(|place| LADDER_SECS.get(place))
    else {
        return Retry::Park;
    };
    let ladder_ms = jittered(secs * 1_000, seed.wrapping_add(u64::from(attempts)));
    let asked_ms = asked_secs.unwrap_or_default().min(ASKED_SECS_MAX) * 1_000;
    Retry::AfterMs(ladder_ms.max(asked_ms))
}

/// After how long a job is run again whose last `failures` runs failed: a second, doubled each time up to the
/// time between two ordinary runs.
pub fn job_pause_ms(failures: u32, every_ms: i64) -> i64 {
    1_000_i64
        .checked_shl(failures.saturating_sub(1).min(30))
        .map_or(every_ms, |pause_ms| pause_ms.min(every_ms))
}

/// Plus or minus 20 %, spread by a multiplicative hash.
fn jittered(span_ms: u64, seed: u64) -> u64 {
    let spread = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let per_mille = 800 + spread % 401;
    span_ms * per_mille / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_ends_in_parking() {
        for seed in 0..1_000 {
            let mut total_ms = 0;
            for attempts in 1..10 {
                let Retry::AfterMs(wait) = after_failure(attempts, None, seed) else {
                    panic!("parked after {attempts} attempts");
                };
                let nominal = LADDER_SECS[attempts as usize] * 1_000;
                assert!(
                    wait * 10 >= nominal * 8 && wait * 10 <= nominal * 12,
                    "{attempts}: {wait}"
                );
                assert!(wait <= WAIT_MS_MAX, "{wait}");
                total_ms += wait;
            }
            assert!(
                total_ms > 60 * 3_600_000 && total_ms < 92 * 3_600_000,
                "{total_ms}"
            );
            assert_eq!(after_failure(10, None, seed), Retry::Park);
            assert_eq!(after_failure(u32::MAX, Some(5), seed), Retry::Park);
        }
    }

    #[test]
    fn a_receiver_may_ask_for_more_time_but_not_for_ever() {
        assert_eq!(after_failure(1, Some(120), 7), Retry::AfterMs(120_000));
        assert_eq!(after_failure(1, Some(u64::MAX), 7), Retry::AfterMs(86_400_000));
        const { assert!(ASKED_SECS_MAX * 1_000 <= WAIT_MS_MAX) };
        let Retry::AfterMs(wait) = after_failure(2, Some(1), 7) else {
            panic!("parked")
        };
        assert!(wait >= 240_000, "asking for less changes nothing: {wait}");
    }

    #[test]
    fn jitter_spreads_deliveries_and_repeats_for_one() {
        let waits: std::collections::BTreeSet<String> = (0..100)
            .map(|seed| format!("{:?}", after_failure(2, None, seed)))
            .collect();
        assert!(waits.len() > 80, "{}", waits.len());
        assert_eq!(after_failure(2, None, 5), after_failure(2, None, 5));
    }
}
