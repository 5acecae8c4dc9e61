//! A slice of a rescan after each round at the tip: a second cursor that never makes the first one wait for
//! long.

use super::{Follower, Trouble};
use crate::chain::{ChainSource, NodeTip, SourceError};
use crate::rules::HeldHeader;
use crate::store::{Rescanned, outpoints_of};

/// A slice ends at this many blocks or this much time, then the tip is looked at again.
const SLICE_BLOCKS: usize = 64;
const SLICE_MS: i64 = 100;

impl<S: ChainSource> Follower<S> {
    /// Reads the next blocks of the oldest running rescan. True while there is more to read. Old blocks that
    /// the node does not have are no trouble of the chain: its tip goes on, and its reason says what the
    /// rescan waits for.
    pub(super) async fn rescan_slice(&mut self, tip: &HeldHeader, node: &NodeTip) -> Result<bool, Trouble> {
        let read = self.read_slice(tip, node).await;
        let (is_more, waits_for) = match read {
            Ok(is_more) => (is_more, String::new()),
            Err(Trouble::Source(error @ (SourceError::Pruned { .. } | SourceError::MissingData(_)))) => {
                (false, format!("a rescan waits: {error}"))
            }
            Err(other) => return Err(other),
        };
        if self.rescan_waits_for != waits_for {
            let alias = &self.settings.chain.alias;
            match waits_for.is_empty() {
                true => tracing::info!(chain = %alias, "{alias}: the rescan goes on"),
                false => tracing::warn!(chain = %alias, "{alias}: {waits_for}"),
            }
            self.rescan_waits_for = waits_for;
        }
        Ok(is_more)
    }

    async fn read_slice(&mut self, tip: &HeldHeader, node: &NodeTip) -> Result<bool, Trouble> {
        let key = self.key;
        let Some(rescan) = self.store.read(move |tx| tx.running_rescan(key)).await? else {
            return Ok(false);
        };
        let left = usize::try_from((tip.height + 1).saturating_sub(rescan.next_height)).unwrap_or(usize::MAX);
        let hashes = self
            .source
            .hashes(rescan.next_height, left.min(SLICE_BLOCKS))
            .await?;
        let started = self.clock.instant();
        let mut blocks = Vec::new();
        for hash in hashes {
            let block = self.source.block(hash, &self.index).await?;
            outpoints_of(&block)
                .iter()
                .for_each(|outpoint| self.index.add_outpoint(outpoint));
            blocks.push(block);
            if self.elapsed_ms(started) >= SLICE_MS {
                break;
            }
        }
        if blocks.is_empty() && left > 0 {
            // The node has fewer blocks than we do right now.
            return Ok(false);
        }
        let (terms, ceiling) = (self.terms.clone(), node.credit_ceiling);
        let stepping = self
            .store
            .write_alone(move |tx| tx.rescan_step(key, &rescan, &blocks, ceiling, &terms));
        match stepping.await? {
            Rescanned::Going => Ok(true),
            Rescanned::Done => {
                let alias = &self.settings.chain.alias;
                tracing::info!(chain = %alias, "{alias}: the rescan is done");
                Ok(true)
            }
            // Another branch, or a race with a reorg: the tip first, then the stretch again.
            Rescanned::SteppedBack => Ok(false),
        }
    }
}
