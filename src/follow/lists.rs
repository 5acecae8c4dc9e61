//! Listing the mempool at the tip.

use super::expiry::ListSeen;
use super::{FollowError, Follower, Trouble};
use crate::chain::{ChainSource, NodeTip};
use crate::clock::millis;
use crate::rules::{HeldHeader, MempoolList};
use crate::store::{JobOutcome, ListApplied, Listing, Work};
use std::sync::Arc;
use std::time::Duration;

/// An unchanged list is applied again after this long, to keep the clock of evictions running.
const LIST_REPEAT: Duration = Duration::from_secs(10);

impl<S: ChainSource> Follower<S> {
    /// Waits for the next look at the node; a hint that there is something to see ends that at once, and the
    /// mempool is listed then too.
    pub(super) async fn wait_for_news(&mut self, node: &NodeTip, span: Duration) -> Result<(), FollowError> {
        let (store, chain, seen) = (
            self.store.clone(),
            self.settings.chain.id.clone(),
            self.hints_seen,
        );
        tokio::select! {
            biased;
            count = store.hinted(&chain, seen) => {
                self.hints_seen = count;
                self.listed_at = None;
                Ok(())
            }
            waited = self.wait_and_sweep(node, span) => waited,
        }
    }

    /// Lists the mempool where it is time to, and applies what was read at our tip.
    pub(super) async fn list_mempool(&mut self, tip: &HeldHeader, node: &NodeTip) -> Result<(), Trouble> {
        let now = self.clock.instant();
        if node.hash != tip.header.hash || self.listed_at.is_some_and(|at| now - at < self.settings.mempool) {
            return Ok(());
        }
        self.poll += 1;
        let poll = self.poll;
        let read_at = self.clock.now_ms();
        let Some(list) = self.source.mempool(&self.index).await? else {
            return Ok(());
        };
        self.listed_at = Some(now);
        let list = Arc::new(list);
        let is_synced = self.node_trouble(node).is_none() && list.is_complete;
        let is_repeat = |(last, at): &(Arc<MempoolList>, _)| *last == list && now - *at < LIST_REPEAT;
        if self.last_list.as_ref().is_some_and(is_repeat) {
            // It says again what was applied.
            self.list_seen = self.list_seen.filter(|_| is_synced);
            if let Some(seen) = &mut self.list_seen {
                seen.read_at = read_at;
            }
            return Ok(());
        }
        self.list_seen = None;
        let seen = ListSeen {
            poll,
            tip: list.tip,
            read_at,
        };
        let listing = Listing {
            poll,
            is_synced,
            every_ms: millis(self.settings.mempool),
        };
        let (key, terms, applied) = (self.key, self.terms.clone(), list.clone());
        let (took_ms, listed) = (millis(self.clock.instant() - now), list.txs.len());
        let applying = self.store.write(move |tx| {
            let outcome = tx.apply_mempool(key, &applied, listing, &terms)?;
            let done = JobOutcome::Done(format!("{listed} of ours listed"));
            tx.note_work(Work::Eviction, Some(key), Some(took_ms), &done)?;
            Ok(outcome)
        });
        let (outpoints, known) = match applying.await? {
            ListApplied::Done(outpoints) => {
                self.list_seen = is_synced.then_some(seen);
                (outpoints, Some((list, now)))
            }
            ListApplied::Partly(outpoints) => {
                // The next look refreshes the index first and then lists again.
                self.listed_at = None;
                (outpoints, Some((list, now)))
            }
            ListApplied::Pending(outpoints) => (outpoints, None),
            ListApplied::Outdated => return Ok(()),
        };
        self.store.wake();
        outpoints
            .iter()
            .for_each(|outpoint| self.index.add_outpoint(outpoint));
        self.last_list = known;
        Ok(())
    }
}
