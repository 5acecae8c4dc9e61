//! Who took which address of a source, as the high-water file has it: stretches of indexes. Addresses are
//! taken in the order of their indexes, so that one merchant's are one stretch however many they are.

use serde::{Deserialize, Serialize};

/// Stretches in all that are kept of a source. With many merchants on one source the oldest are forgotten:
/// the file is written at each block.
const STRETCHES_MAX: usize = 4_000;

/// Who took which, in the order of the indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Owners(Vec<(u64, u64, String)>);

impl Owners {
    /// Notes that a merchant takes an address. Those from its index on were taken by what was not committed.
    pub(super) fn take(&mut self, number: u64, merchant: &str) {
        while let Some((first, end, _)) = self.0.last_mut() {
            if *first >= number {
                self.0.pop();
                continue;
            }
            *end = number.min(*end);
            break;
        }
        match self.0.last_mut() {
            Some((_, end, owner)) if *end == number && owner == merchant => *end = number + 1,
            _ => self.0.push((number, number + 1, merchant.to_owned())),
        }
        if self.0.len() > STRETCHES_MAX {
            self.0.remove(0);
        }
    }

    /// Whose an address is, as far as is known.
    pub(super) fn of(&self, number: u64) -> Option<&str> {
        let after = self.0.partition_point(|(first, _, _)| *first <= number);
        let (_, end, owner) = self.0.get(after.checked_sub(1)?)?;
        (number < *end).then_some(owner.as_str())
    }

    /// True where nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn one_merchant_is_one_stretch_and_what_was_not_committed_is_overruled() {
        let mut owners = Owners::default();
        (3..1_000).for_each(|number| owners.take(number, "shop"));
        assert_eq!(owners.0.len(), 1);
        owners.take(998, "bar");
        let known = [2, 3, 997, 998, 999].map(|number| owners.of(number));
        assert_eq!(known, [None, Some("shop"), Some("shop"), Some("bar"), None]);
    }

    #[test]
    fn the_oldest_are_forgotten_where_there_are_too_many() {
        let mut owners = Owners::default();
        let merchants = ["shop", "bar"];
        let all = 2 * STRETCHES_MAX as u64;
        (0..all).for_each(|number| owners.take(number, merchants[usize::from(number % 2 == 1)]));
        assert_eq!(owners.0.len(), STRETCHES_MAX);
        assert_eq!(owners.of(0), None);
        assert_eq!(owners.of(all - 1), Some("bar"));
    }

    proptest! {
        /// Nobody is ever named as the owner of what somebody else took last.
        #[test]
        fn whoever_is_named_took_it_last(
            takes in prop::collection::vec((0_u64..6, 0_usize..3, 0_u64..4), 1..60)
        ) {
            let (mut owners, mut truth, mut next) = (Owners::default(), BTreeMap::new(), 0_u64);
            for (gap, merchant, undone) in takes {
                let slug = ["a", "b", "c"][merchant];
                next = (next + gap).saturating_sub(undone);
                truth.retain(|number, _| *number < next);
                truth.insert(next, slug);
                owners.take(next, slug);
                next += 1;
            }
            for number in 0..next + 9 {
                prop_assert_eq!(owners.of(number), truth.get(&number).copied());
            }
        }
    }
}
