//! Letting invoices expire, which takes a look at the chain that began after their time was over: a tip that
//! was applied and, where the node lists its mempool, a list that was applied, both read after it. A chain
//! that is not followed is not looked at.

use super::{Follower, Trouble};
use crate::chain::{ChainSource, NodeTip};
use crate::rules::{BlockHash, HeldHeader};
use crate::store::{ChainLook, JobOutcome, Work};
use std::time::Duration;

/// Where nothing is over it is noted so often that it was looked for.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// The last mempool list that was applied, or was the same as the one applied last.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListSeen {
    /// The number of the one that was applied.
    pub poll: i64,
    /// The tip that it was read at.
    pub tip: BlockHash,
    /// When it was asked for.
    pub read_at: i64,
}

impl<S: ChainSource> Follower<S> {
    /// Are we at the tip of a node that can be believed, with its mempool list applied where it lists one?
    /// Then that list, if so.
    pub(super) fn look_at_tip(&self, tip: &HeldHeader, node: &NodeTip) -> Option<Option<ListSeen>> {
        let is_following = self.node_trouble(node).is_none() && self.finality_trouble(node).is_none();
        if !is_following || node.hash != tip.header.hash {
            return None;
        }
        match (self.source.lists_mempool(), self.list_seen) {
            (false, _) => Some(None),
            (true, Some(list)) if list.tip == tip.header.hash => Some(Some(list)),
            (true, _) => None,
        }
    }

    /// Lets expire what was over before the chain was looked at. `asked_at` is when the node was asked for
    /// its tip.
    pub(super) async fn expire(
        &mut self,
        tip: &HeldHeader,
        node: &NodeTip,
        asked_at: i64,
    ) -> Result<(), Trouble> {
        let Some(list) = self.look_at_tip(tip, node) else {
            return Ok(());
        };
        let look = ChainLook {
            tip: tip.header.hash,
            poll: list.map(|list| list.poll),
            read_at: list.map_or(asked_at, |list| list.read_at.min(asked_at)),
        };
        let key = self.key;
        let is_over = self
            .store
            .read(move |tx| tx.has_expiring(key, look.read_at))
            .await?;
        let now = self.clock.instant();
        let is_noted = self.expiry_noted_at.is_some_and(|at| now - at < NOTE_EVERY);
        if !is_over && is_noted {
            return Ok(());
        }
        let expiring = self.store.write(move |tx| {
            let expired = tx.settle_expiries(key, &look)?;
            let done = JobOutcome::Done(format!("{expired} invoices expired"));
            tx.note_work(Work::Expiry, Some(key), None, &done)?;
            Ok(expired)
        });
        if expiring.await? > 0 {
            self.store.wake();
        }
        self.expiry_noted_at = Some(now);
        Ok(())
    }
}
