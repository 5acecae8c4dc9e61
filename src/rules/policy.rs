//! When a payment is deep enough to be credited. What it needs (a number of confirmations, or a finality tag
//! on EVM chains) follows from the sum of a merchant's deposits of one asset in one block, so that a large
//! payment cannot be split around its tier.

use super::Amount;
use thiserror::Error;

/// The depth at which consensus lets a coinbase output be spent: 100 blocks on top of its own.
pub const COINBASE_DEPTH: u64 = 101;

/// What a payment needs before it is credited. Ordered from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Requirement {
    /// The block of the payment has this depth; the tip itself has depth 1.
    Confirmations(u32),
    /// The chain's node says of the block or of one above it that it will not be undone by an honest majority
    /// (EVM block tag `safe`).
    Safe,
    /// The same, that it will never be undone (EVM block tag `finalized`).
    Finalized,
}

impl Requirement {
    /// The number of confirmations; `None` of a tag.
    pub fn confirmations(self) -> Option<u32> {
        match self {
            Requirement::Confirmations(confirmations) => Some(confirmations),
            Requirement::Safe | Requirement::Finalized => None,
        }
    }

    /// The same, or so many confirmations where that is more.
    #[must_use]
    pub fn raised_to(self, confirmations: Option<u32>) -> Requirement {
        let least = confirmations.map(Requirement::Confirmations);
        least.map_or(self, |least| self.max(least))
    }

    /// The tag's word in the config, the database and JSON; `None` of a number.
    pub fn tag(self) -> Option<&'static str> {
        match self {
            Requirement::Confirmations(_) => None,
            Requirement::Safe => Some("safe"),
            Requirement::Finalized => Some("finalized"),
        }
    }

    /// Reads [`Requirement::tag`] back.
    pub fn from_tag(word: &str) -> Option<Requirement> {
        [Requirement::Safe, Requirement::Finalized]
            .into_iter()
            .find(|tag| tag.tag() == Some(word))
    }
}

impl std::fmt::Display for Requirement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Requirement::Confirmations(1) => f.write_str("1 confirmation"),
            Requirement::Confirmations(confirmations) => write!(f, "{confirmations} confirmations"),
            Requirement::Safe => f.write_str("a safe block"),
            Requirement::Finalized => f.write_str("a finalized block"),
        }
    }
}

/// One step of a policy: sums below `below` need `needs`. Only the last step has no `below`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// The first sum that this tier does not cover; `None` = it covers every sum.
    pub below: Option<Amount>,
    /// What a payment of this tier needs.
    pub needs: Requirement,
}

/// What payments of one asset need. There is no default and no way to say zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// All tiers but the last, ascending.
    lower: Vec<(Amount, Requirement)>,
    /// What the last tier needs, for every sum that is in no lower tier.
    top: Requirement,
}

/// Why tiers are not a policy. `tier` counts from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// No tier at all.
    #[error("a policy needs at least one tier")]
    Empty,
    /// A payment would be credited before any block holds it.
    #[error("at least 1 confirmation")]
    ZeroConfirmations {
        /// The tier.
        tier: usize,
    },
    /// A tier before the last covers every sum, so those after it never apply.
    #[error("only the last tier has no `below`")]
    UnboundedBeforeLast {
        /// The tier.
        tier: usize,
    },
    /// The last tier has a bound, so larger sums have no tier.
    #[error("the last tier must have no `below`: larger sums would have no tier")]
    BoundedLast {
        /// The tier.
        tier: usize,
    },
    /// The bounds do not rise, so this tier never applies.
    #[error("`below` must rise from tier to tier and be more than 0")]
    NotAscending {
        /// The tier.
        tier: usize,
    },
    /// A larger sum would need less than a smaller one.
    #[error("a larger sum cannot need less than a smaller one")]
    Falling {
        /// The tier.
        tier: usize,
    },
}

impl Policy {
    /// A policy of checked tiers.
    ///
    /// # Errors
    /// [`PolicyError`], naming the first tier that cannot be.
    pub fn new(tiers: &[Tier]) -> Result<Policy, PolicyError> {
        let Some((last, before)) = tiers.split_last() else {
            return Err(PolicyError::Empty);
        };
        let mut lower = Vec::with_capacity(before.len());
        let (mut bound, mut needs) = (Amount::ZERO, Requirement::Confirmations(1));
        for (tier, step) in tiers.iter().enumerate() {
            if step.needs == Requirement::Confirmations(0) {
                return Err(PolicyError::ZeroConfirmations { tier });
            }
            if step.needs < needs {
                return Err(PolicyError::Falling { tier });
            }
            needs = step.needs;
            match (step.below, tier == before.len()) {
                (None, true) => {}
                (Some(_), true) => return Err(PolicyError::BoundedLast { tier }),
                (None, false) => return Err(PolicyError::UnboundedBeforeLast { tier }),
                (Some(below), false) if below <= bound => return Err(PolicyError::NotAscending { tier }),
                (Some(below), false) => {
                    bound = below;
                    lower.push((below, needs));
                }
            }
        }
        Ok(Policy {
            lower,
            top: last.needs,
        })
    }

    /// What deposits need whose sum (one merchant, one asset, one block) is `sum`.
    pub fn required(&self, sum: Amount) -> Requirement {
        self.lower
            .iter()
            .find(|(below, _)| sum < *below)
            .map_or(self.top, |(_, needs)| *needs)
    }

    /// Are there sums that need exactly this?
    pub fn needs(&self, requirement: Requirement) -> bool {
        self.top == requirement || self.lower.iter().any(|(_, needs)| *needs == requirement)
    }
}

/// The depth of a block at `height` under a tip at `tip`: the tip itself has depth 1, a block above it none.
pub fn depth(tip: u64, height: u64) -> Option<u64> {
    tip.checked_sub(height)?.checked_add(1)
}

/// The height at which a payment in a block at `height` may be credited: of a number of confirmations the tip
/// height that gives it this depth, and to a coinbase at least [`COINBASE_DEPTH`]; of a tag its own block's,
/// which an accepted block with that tag has to reach. `None` where no tip can be that high.
pub fn due_height(height: u64, needs: Requirement, is_coinbase: bool) -> Option<u64> {
    let depth = u64::from(needs.confirmations().unwrap_or(1).max(1));
    let depth = if is_coinbase {
        depth.max(COINBASE_DEPTH)
    } else {
        depth
    };
    height.checked_add(depth - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Requirement::{Confirmations, Finalized, Safe};

    fn tier(below: Option<u64>, confirmations: u32) -> Tier {
        Tier {
            below: below.map(Amount::from_u64),
            needs: Confirmations(confirmations),
        }
    }

    #[test]
    fn the_tier_follows_from_the_sum() {
        let policy = Policy::new(&[tier(Some(100), 1), tier(Some(5_000), 2), tier(None, 6)]).unwrap();
        let cases = [
            (0, 1),
            (1, 1),
            (99, 1),
            (100, 2),
            (4_999, 2),
            (5_000, 6),
            (u64::MAX, 6),
        ];
        for (sum, expected) in cases {
            assert_eq!(
                policy.required(Amount::from_u64(sum)),
                Confirmations(expected),
                "{sum}"
            );
        }
        let largest = Amount::from_be_bytes([0xff; 32]);
        assert_eq!(policy.required(largest), Confirmations(6));
        assert!(policy.needs(Confirmations(2)) && !policy.needs(Confirmations(3)));
        let flat = Policy::new(&[tier(None, 3)]).unwrap();
        assert_eq!(flat.required(Amount::ZERO), Confirmations(3));
    }

    #[test]
    fn a_payment_split_into_small_outputs_stays_in_the_tier_of_its_sum() {
        let policy = Policy::new(&[tier(Some(5_000_000), 1), tier(None, 6)]).unwrap();
        let outputs = vec![Amount::from_u64(4_900_000); 100];
        let sum = outputs
            .iter()
            .try_fold(Amount::ZERO, |sum, amount| sum.checked_add(*amount));
        assert_eq!(policy.required(sum.unwrap()), Confirmations(6));
    }

    #[test]
    fn tiers_that_are_no_policy_are_refused() {
        let cases: &[(&str, &[Tier], PolicyError)] = &[
            ("none", &[], PolicyError::Empty),
            (
                "zero",
                &[tier(None, 0)],
                PolicyError::ZeroConfirmations { tier: 0 },
            ),
            (
                "zero below",
                &[tier(Some(5), 0), tier(None, 6)],
                PolicyError::ZeroConfirmations { tier: 0 },
            ),
            (
                "empty tier",
                &[tier(Some(0), 1), tier(None, 6)],
                PolicyError::NotAscending { tier: 0 },
            ),
            (
                "same bound twice",
                &[tier(Some(5), 1), tier(Some(5), 2), tier(None, 6)],
                PolicyError::NotAscending { tier: 1 },
            ),
            (
                "two without bound",
                &[tier(None, 1), tier(None, 6)],
                PolicyError::UnboundedBeforeLast { tier: 0 },
            ),
            (
                "no top",
                &[tier(Some(5), 1)],
                PolicyError::BoundedLast { tier: 0 },
            ),
            (
                "more money, less depth",
                &[tier(Some(5), 6), tier(None, 2)],
                PolicyError::Falling { tier: 1 },
            ),
        ];
        for (name, tiers, expected) in cases {
            assert_eq!(Policy::new(tiers), Err(*expected), "{name}");
        }
    }

    #[test]
    fn due_is_the_tip_that_gives_the_required_depth() {
        // (height, confirmations, coinbase, due)
        let cases = [
            (100, 1, false, Some(100)),
            (100, 3, false, Some(102)),
            (100, 6, false, Some(105)),
            (100, 1, true, Some(200)),
            (100, 6, true, Some(200)),
            (100, 101, true, Some(200)),
            (100, 144, true, Some(243)),
            (0, 1, false, Some(0)),
            (u64::MAX, 1, false, Some(u64::MAX)),
            (u64::MAX, 2, false, None),
            (u64::MAX - 99, 1, true, None),
        ];
        for (height, confirmations, is_coinbase, due) in cases {
            let got = due_height(height, Confirmations(confirmations), is_coinbase);
            assert_eq!(got, due, "{height} {confirmations} {is_coinbase}");
            if let Some(due) = got {
                let reached = depth(due, height).unwrap();
                assert!(reached >= u64::from(confirmations));
                assert!(!is_coinbase || reached >= COINBASE_DEPTH);
            }
        }
        let none = due_height(7, Confirmations(0), false);
        assert_eq!(none, Some(7), "never before its own block");
    }

    #[test]
    fn a_tag_is_due_at_the_block_itself_and_more_than_any_number() {
        for tag in [Safe, Finalized] {
            assert_eq!(due_height(100, tag, false), Some(100));
            assert!(tag > Confirmations(u32::MAX));
            assert_eq!(tag.tag().and_then(Requirement::from_tag), Some(tag));
            assert_eq!(tag.confirmations(), None);
        }
        let step = |below: Option<u64>, needs| Tier {
            below: below.map(Amount::from_u64),
            needs,
        };
        let rising = [
            step(Some(5), Confirmations(12)),
            step(Some(9), Safe),
            step(None, Finalized),
        ];
        let policy = Policy::new(&rising).unwrap();
        assert_eq!(policy.required(Amount::from_u64(5)), Safe);
        assert!(policy.needs(Safe) && policy.needs(Finalized));
        let falling = Policy::new(&[step(Some(5), Finalized), step(None, Confirmations(100))]);
        assert_eq!(falling, Err(PolicyError::Falling { tier: 1 }));
        assert_eq!(Requirement::from_tag("latest"), None);
        for (needs, least, raised) in [
            (Confirmations(3), Some(6), Confirmations(6)),
            (Confirmations(3), Some(1), Confirmations(3)),
            (Confirmations(3), None, Confirmations(3)),
            (Safe, Some(1_000), Safe),
        ] {
            assert_eq!(needs.raised_to(least), raised, "upwards only");
        }
    }

    #[test]
    fn the_tip_has_depth_one_and_nothing_above_it_has_any() {
        assert_eq!(depth(7, 7), Some(1));
        assert_eq!(depth(9, 7), Some(3));
        assert_eq!(depth(200, 100), Some(COINBASE_DEPTH));
        assert_eq!(depth(6, 7), None);
        assert_eq!(depth(u64::MAX, 0), None);
    }
}
