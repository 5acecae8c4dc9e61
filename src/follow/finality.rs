//! Up to where our blocks are safe and final, by the tags that were accepted, and since when: what the nodes
//! say alone may change at each answer while nothing goes on.

use crate::rules::Tags;
use tokio::time::Instant;

/// See the module.
pub(super) struct Finality {
    /// The height of the last safe block of ours, and since when.
    pub safe: (Option<u64>, Instant),
    /// The same of the last final one.
    pub finalized: (Option<u64>, Instant),
}

impl Finality {
    pub(super) fn new(now: Instant) -> Finality {
        Finality {
            safe: (None, now),
            finalized: (None, now),
        }
    }

    /// Takes over what the database says.
    pub(super) fn note(&mut self, now: Instant, safe: Option<u64>, finalized: Option<u64>) {
        for (known, height) in [(&mut self.safe, safe), (&mut self.finalized, finalized)] {
            if known.0 != height {
                *known = (height, now);
            }
        }
    }

    /// May one of these be accepted?
    pub(super) fn is_news(&self, tags: &Tags) -> bool {
        let higher = |(known, _): (Option<u64>, Instant), told: Option<u64>| told > known;
        higher(self.safe, tags.safe.map(|block| block.height))
            || higher(self.finalized, tags.finalized.map(|block| block.height))
    }
}
