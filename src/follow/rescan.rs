//! A slice of a rescan after each round at the tip: a second cursor that never makes the first one wait for
//! long.

use super::{Follower, Trouble};
use crate::chain::{ChainSource, NodeTip, SourceError};
use crate::rules::HeldHeader;
use crate::store::{JobOutcome, Rescan, Rescanned, Work, outpoints_of};

/// A slice ends at this many blocks or this much time, then the tip is looked at again.
const SLICE_BLOCKS: usize = 64;
const SLICE_MS: i64 = 100;

impl<S: ChainSource> Follower<S> {
    /// Takes the running rescans on, the oldest first that can go on. True while there is more to do. What
    /// the node does not give of old blocks is no trouble of the chain: its tip goes on, the next rescan has
    /// its turn, and the chain's reason says what waits.
    pub(super) async fn rescan_slice(&mut self, tip: &HeldHeader, node: &NodeTip) -> Result<bool, Trouble> {
        let key = self.key;
        let (mut is_more, mut waits_for) = (false, String::new());
        for rescan in self.store.read(move |tx| tx.running_rescans(key)).await? {
            let id = rescan.id;
            match self.read_slice(rescan, tip, node).await {
                Ok(went_on) => {
                    is_more = went_on;
                    break;
                }
                Err(Trouble::Source(error)) if !matches!(error, SourceError::WrongNetwork(_)) => {
                    if waits_for.is_empty() {
                        waits_for = format!("rescan {id} waits: {error}");
                    }
                }
                Err(other) => return Err(other),
            }
        }
        if self.rescan_waits_for != waits_for {
            let alias = &self.settings.chain.alias;
            match waits_for.is_empty() {
                true => tracing::info!(chain = %alias, "{alias}: no rescan waits any more"),
                false => tracing::warn!(chain = %alias, "{alias}: {waits_for}"),
            }
            self.rescan_waits_for = waits_for;
        }
        Ok(is_more)
    }

    async fn read_slice(
        &mut self,
        rescan: Rescan,
        tip: &HeldHeader,
        node: &NodeTip,
    ) -> Result<bool, Trouble> {
        let key = self.key;
        let left = (tip.height + 1).saturating_sub(rescan.next_height);
        // What is proven is applied before more is read.
        let left = if rescan.is_proven { 0 } else { left };
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(SLICE_BLOCKS);
        let hashes = match count {
            0 => Vec::new(),
            _ => self.source.hashes(rescan.next_height, count).await?,
        };
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
        let (terms, ceiling) = (self.terms.clone(), self.ceiling(node));
        let took_ms = self.elapsed_ms(started);
        let stepping = self.store.write_alone(move |tx| {
            let stepped = tx.rescan_step(key, &rescan, &blocks, ceiling, &terms)?;
            let done = JobOutcome::Done(format!("rescan {}: {} blocks", rescan.id, blocks.len()));
            tx.note_work(Work::Rescan, Some(key), Some(took_ms), &done)?;
            Ok(stepped)
        });
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
