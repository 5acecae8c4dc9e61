//! Whether this machine's clock can be right, by what the blocks say.

use super::{Line, Verdict, counted, line};
use crate::chain::NodeTip;
use crate::clock::{Clock, rfc3339};

/// A newest block further than this in our future means that our clock is behind: Bitcoin Core refuses blocks
/// more than two hours ahead of its own.
const CLOCK_SLACK_SECS: i64 = 2 * 3600;

/// A clock that runs ahead cannot be told from a quiet network, but for one that is so far ahead that no
/// chain was there: a regtest that has nothing but its first block has one of 2011. The first block of many
/// EVM chains, Ethereum's among them, says 1970, and says nothing.
const CLOCK_AHEAD_SECS: i64 = 30 * 365 * 86_400;

pub(super) fn clock_line(tip: &NodeTip, clock: Clock) -> Line {
    let ahead_secs = i64::try_from(tip.time_secs).unwrap_or(i64::MAX) - clock.now_ms() / 1000;
    if ahead_secs > CLOCK_SLACK_SECS {
        let found = format!(
            "the newest block is {} in our future",
            counted(ahead_secs.unsigned_abs() / 60, "minute")
        );
        return line("clock", Verdict::Bad, found, "set this machine's clock (NTP)");
    }
    if tip.height > 0 && ahead_secs < -CLOCK_AHEAD_SECS {
        let (now, years) = (rfc3339(clock.now_ms()), -ahead_secs / (365 * 86_400));
        let found = format!("this machine says {now}, and the newest block is {years} years old");
        let next = "set this machine's clock (NTP), unless this chain stands still";
        return line("clock", Verdict::Warning, found, next);
    }
    line("clock", Verdict::Good, "not behind the newest block", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{BlockHash, Tags};

    fn tip(time_secs: u64) -> NodeTip {
        NodeTip {
            hash: BlockHash([0; 32]),
            height: 1,
            chainwork: Default::default(),
            time_secs,
            headers: 1,
            is_syncing: false,
            credit_ceiling: None,
            pruned_below: None,
            tags: Tags::default(),
        }
    }

    #[test]
    fn a_clock_in_the_year_2200_is_not_good_and_one_behind_a_quiet_network_is() {
        const BLOCK: i64 = 1_800_000_000;
        for (now_secs, verdict, words) in [
            (BLOCK - 7_300, Verdict::Bad, "121 minutes in our future"),
            (BLOCK - 7_100, Verdict::Good, "not behind"),
            (BLOCK + 20 * 365 * 86_400, Verdict::Good, "not behind"),
            (
                7_258_118_400,
                Verdict::Warning,
                "this machine says 2200-01-01T00:00:00",
            ),
        ] {
            let clock = Clock::standing(now_secs * 1_000);
            let line = clock_line(&tip(BLOCK.unsigned_abs()), clock);
            assert_eq!(line.verdict, verdict, "{line:?}");
            assert!(line.found.contains(words), "{line:?}");
        }
        let first = NodeTip { height: 0, ..tip(0) };
        let line = clock_line(&first, Clock::standing(BLOCK * 1_000));
        assert_eq!(line.verdict, Verdict::Good, "a first block of 1970: {line:?}");
    }
}
