//! Headers that a look at heights has brought, so that following the chain reads each of them once.

use super::answers::BlockFields;
use super::locked;
use crate::rules::BlockHash;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

/// About as many as one look at heights brings.
const KEPT: usize = 1_024;

/// The last headers that were read by height.
#[derive(Default)]
pub(super) struct HeaderCache(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    headers: HashMap<BlockHash, BlockFields>,
    order: VecDeque<BlockHash>,
}

impl HeaderCache {
    pub(super) fn keep(&self, hash: BlockHash, fields: BlockFields) {
        let mut kept = locked(&self.0);
        if kept.headers.insert(hash, fields).is_none() {
            kept.order.push_back(hash);
        }
        while kept.order.len() > KEPT {
            if let Some(oldest) = kept.order.pop_front() {
                kept.headers.remove(&oldest);
            }
        }
    }

    /// A header that is kept, for its one reader.
    pub(super) fn take(&self, hash: BlockHash) -> Option<BlockFields> {
        let mut kept = locked(&self.0);
        let fields = kept.headers.remove(&hash)?;
        kept.order.retain(|other| *other != hash);
        Some(fields)
    }
}
