//! How often a block was asked for in vain. A proxy under load may have dropped a field, or a node behind a
//! balancer may not have the block yet, so the first tries decide nothing.

use super::locked;
use crate::rules::BlockHash;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// So often a block is asked for again before what is wrong with it counts.
const ENOUGH: u32 = 3;

/// Of more blocks at a time nothing is remembered.
const BLOCKS_MAX: usize = 256;

/// Counts of tries, by block.
#[derive(Default)]
pub(super) struct Tries(Mutex<BTreeMap<BlockHash, u32>>);

impl Tries {
    /// Counts one more. True once there were enough.
    pub(super) fn are_enough(&self, hash: BlockHash) -> bool {
        let mut tries = locked(&self.0);
        if tries.len() >= BLOCKS_MAX && !tries.contains_key(&hash) {
            tries.clear();
        }
        let count = tries.entry(hash).or_default();
        *count = count.saturating_add(1);
        *count >= ENOUGH
    }

    /// This block was read well.
    pub(super) fn forget(&self, hash: BlockHash) {
        locked(&self.0).remove(&hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_between_its_tries_do_not_wipe_the_count_of_a_bad_one() {
        let tries = Tries::default();
        let [bad, good] = [BlockHash([1; 32]), BlockHash([2; 32])];
        for is_enough in [false, false, true, true] {
            tries.forget(good);
            assert_eq!(tries.are_enough(bad), is_enough);
        }
        tries.forget(bad);
        assert!(!tries.are_enough(bad));
    }
}
