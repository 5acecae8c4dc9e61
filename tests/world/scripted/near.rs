//! What was worked out for the blocks that were asked for last.

use creditd::rules::BlockHash;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

/// Nodes, miners and the follower look at a few tips at a time.
const KEPT: usize = 16;

/// Values by block; the oldest are forgotten.
#[derive(Debug)]
pub struct Near<T>(RefCell<VecDeque<(BlockHash, Arc<T>)>>);

impl<T> Clone for Near<T> {
    fn clone(&self) -> Near<T> {
        Near(self.0.clone())
    }
}

impl<T> Default for Near<T> {
    fn default() -> Near<T> {
        Near(RefCell::default())
    }
}

impl<T> Near<T> {
    pub fn get(&self, at: &BlockHash) -> Option<Arc<T>> {
        let kept = self.0.borrow();
        let found = kept.iter().find(|(hash, _)| hash == at);
        found.map(|(_, value)| value.clone())
    }

    /// Keeps a value, and gives it back.
    pub fn keep(&self, at: BlockHash, value: Arc<T>) -> Arc<T> {
        let mut kept = self.0.borrow_mut();
        kept.retain(|(hash, _)| *hash != at);
        kept.truncate(KEPT - 1);
        kept.push_front((at, value.clone()));
        value
    }
}
