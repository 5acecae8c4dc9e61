//! How many payments a walk has come upon, so that those in blocks that it steps back from count once.

use std::collections::BTreeMap;

/// What was counted up to each block of the trail that this walk has read. It steps back to above one of
/// them, or to below all.
#[derive(Debug, Default)]
pub(super) struct Paid {
    count: u64,
    up_to: BTreeMap<u64, u64>,
}

impl Paid {
    /// So many more, in the blocks up to this one.
    pub fn go_on(&mut self, height: u64, payments: u64) {
        self.count += payments;
        self.up_to.insert(height, self.count);
    }

    /// The blocks from this one on are read again: how many were counted in them.
    pub fn go_back(&mut self, place: u64) -> u64 {
        self.up_to.split_off(&place);
        let kept = self.up_to.last_key_value().map_or(0, |(_, count)| *count);
        std::mem::replace(&mut self.count, kept) - kept
    }

    /// Forgets what it never steps back to.
    pub fn thin<T>(&mut self, trail: &BTreeMap<u64, T>) {
        self.up_to.retain(|height, _| trail.contains_key(height));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payments_in_blocks_that_are_read_again_count_once() {
        let mut paid = Paid::default();
        for (height, payments) in [(10, 1), (11, 0), (12, 4), (13, 2)] {
            paid.go_on(height, payments);
        }
        assert_eq!(paid.go_back(14), 0, "the reorg was taken back");
        assert_eq!(paid.go_back(12), 6);
        assert_eq!(paid.go_back(12), 0);
        paid.go_on(12, 3);
        paid.go_on(13, 5);
        // Of the trail only these are left, the first of them from an earlier run.
        paid.thin(&BTreeMap::from([(4, ()), (11, ()), (13, ())]));
        assert_eq!(paid.go_back(12), 8);
        assert_eq!(paid.go_back(5), 1, "all that this walk has read");
        assert_eq!(paid.go_back(5), 0);
    }
}
