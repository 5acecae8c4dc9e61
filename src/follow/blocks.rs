//! Connecting: catch-up in batches, and the reorg transaction.

use super::ahead::Ahead;
use super::{Follower, RELOAD_BLOCKS, Trouble};
use crate::chain::{ChainSource, NodeTip, SourceError};
use crate::clock::{Clock, millis};
use crate::index::Index;
use crate::rules::chain_state::ChainState;
use crate::rules::{BlockHash, HeldHeader, ScannedBlock};
use crate::store::{Advance, Advanced, Store, StoreError, Terms, outpoints_of};
use std::sync::Arc;

/// A catch-up transaction ends at this many blocks or this much time, so that small writes get their turn.
const BATCH_BLOCKS: usize = 64;
const BATCH_MS: i64 = 100;
/// So many blocks are under way from the node, or here and not yet filtered: enough that neither side waits
/// for the other where one block takes longer than the next.
const FETCHES: usize = 6;
/// How many hashes of the node's chain are asked for at once.
const HASHES: usize = 512;
/// The reorg transaction connects at most this many blocks more than the window can disconnect.
const REORG_EXTRA: u64 = 6;

/// A block that was asked for, and the answer.
type Fetched<S> = (BlockHash, Result<<S as ChainSource>::Raw, SourceError>);

/// Blocks that link to each other, the held header of the last, and what ended the run early.
struct Run {
    blocks: Vec<ScannedBlock>,
    last: HeldHeader,
    failure: Option<Trouble>,
}

impl<S: ChainSource> Follower<S> {
    /// Connects what the node has above our tip. While one batch is committed the next one is fetched. True
    /// when anything was connected.
    pub(super) async fn catch_up(&mut self, tip: &HeldHeader, node: &NodeTip) -> Result<bool, Trouble> {
        if self.connected_since_load >= RELOAD_BLOCKS {
            // Here, where no fetched block waits for its commit: the database knows nothing of those yet.
            self.reload_outpoints(Some(tip)).await?;
        }
        let hashes = self.source.hashes(tip.height + 1, HASHES).await?;
        let mut from = *tip;
        let source = Arc::clone(&self.source);
        let fetched = hashes
            .into_iter()
            .enumerate()
            .map(async |(number, hash)| (number, (hash, source.fetch(hash).await)));
        let mut fetched = Ahead::new(fetched, FETCHES);
        let mut run = fetch(&*source, &self.clock, &mut self.index, from, &mut fetched).await;
        while !run.blocks.is_empty() {
            let last = run.last;
            let step = self.step_of(from, None, std::mem::take(&mut run.blocks), node);
            let connects = step.blocks.len() as u64;
            let commit = commit(self.store.clone(), step, self.terms.clone());
            let next = if run.failure.is_none() {
                let fetch = fetch(&*source, &self.clock, &mut self.index, last, &mut fetched);
                let (committed, next) = tokio::join!(biased; commit, fetch);
                if !self.settle(committed?, connects) {
                    return Ok(true);
                }
                next
            } else {
                // What came before the failure is whole and counts.
                self.settle(commit.await?, connects);
                Run {
                    blocks: Vec::new(),
                    last,
                    failure: run.failure.take(),
                }
            };
            (from, run) = (last, next);
        }
        match run.failure {
            Some(failure) => Err(self.explain_gap(failure, &from, node)),
            None => Ok(from.header.hash != tip.header.hash),
        }
    }

    /// Leaves our branch at `fork_height` for the node's better one, in one transaction that holds all
    /// disconnects and only as many connects as beat our tip; the rest is ordinary catch-up. One that is no
    /// better is taken only where that was decided before (`is_worse`).
    pub(super) async fn reorg(
        &mut self,
        tip: &HeldHeader,
        node: &NodeTip,
        fork_height: u64,
        is_worse: bool,
    ) -> Result<bool, Trouble> {
        let key = self.key;
        let fork = self.store.read(move |tx| tx.header_at(key, fork_height)).await?;
        let fork =
            fork.ok_or_else(|| StoreError::Contradiction(format!("no header at fork point {fork_height}")))?;
        // Where finality lies below the window, more than the window can leave.
        let window = self.terms.reorg_window.max(tip.height - fork_height);
        let most = usize::try_from(window + REORG_EXTRA).unwrap_or(usize::MAX);
        let hashes = self.source.hashes(fork_height + 1, most).await?;
        let not_better = || Trouble::Stuck {
            state: ChainState::Behind,
            reason: format!(
                "the branch from height {fork_height} is better only after {most} blocks or has gone"
            ),
        };
        // Asked first: such a branch may stay for long, and its blocks are not fetched at each look for
        // nothing.
        if let Some(last) = hashes.last()
            && let Some(last) = self.source.header(*last).await?
            && last.held.chainwork < tip.chainwork
            && !is_worse
        {
            return Err(not_better());
        }
        let mut blocks = Vec::new();
        let mut last = fork;
        for hash in hashes {
            let raw = self.source.fetch_whole(hash).await?;
            let block = scan(&*self.source, &mut self.index, &last, hash, &raw).await?;
            last = place(&last, &block)?;
            blocks.push(block);
            if last.chainwork > tip.chainwork {
                break;
            }
        }
        let is_equal = last.chainwork == tip.chainwork && last.header.hash == node.hash;
        if last.chainwork <= tip.chainwork && !is_equal && !is_worse {
            return Err(not_better());
        }
        let (alias, depth) = (&self.settings.chain.alias, tip.height - fork_height);
        tracing::warn!(
            chain = %alias, fork_height, depth,
            "{alias}: reorg: {depth} blocks above height {fork_height} leave the best chain"
        );
        let connects = blocks.len() as u64;
        let step = self.step_of(*tip, Some(fork_height), blocks, node);
        let committed = commit(self.store.clone(), step, self.terms.clone()).await?;
        self.settle(committed, connects);
        Ok(true)
    }

    /// One transaction without a block: credits that no new tip brings up.
    pub(super) async fn credit_now(
        &mut self,
        tip: &HeldHeader,
        node: &NodeTip,
        ceiling: Option<u64>,
    ) -> Result<(), Trouble> {
        let step = Advance {
            credit_ceiling: ceiling,
            ..self.step_of(*tip, None, Vec::new(), node)
        };
        let committed = commit(self.store.clone(), step, self.terms.clone()).await?;
        self.settle(committed, 0);
        Ok(())
    }

    fn step_of(
        &self,
        from: HeldHeader,
        fork_height: Option<u64>,
        blocks: Vec<ScannedBlock>,
        node: &NodeTip,
    ) -> Advance {
        Advance {
            chain: self.key,
            from,
            fork_height,
            blocks,
            credit_ceiling: self.ceiling(node),
            tags: node.tags,
        }
    }

    /// Takes a commit's outcome into the index. False when rules were added since the blocks were filtered:
    /// nothing was written, and the blocks are fetched again.
    fn settle(&mut self, advanced: Advanced, connects: u64) -> bool {
        let Advanced::Done {
            tip,
            outpoints,
            credited,
        } = advanced
        else {
            return false;
        };
        if connects > 0 {
            let (alias, height) = (&self.settings.chain.alias, tip.height);
            let hash = self.settings.chain.id.print(tip.header.hash);
            tracing::debug!(chain = %alias, height, "{alias}: connected up to block {hash} at height \
             {height}");
            self.listed_at = None;
        }
        if credited > 0 {
            let (alias, height) = (&self.settings.chain.alias, tip.height);
            let what = crate::telemetry::counted(credited, "deposit");
            tracing::info!(chain = %alias, height, credited, "{alias}: credited {what} at height {height}");
        }
        outpoints
            .iter()
            .for_each(|outpoint| self.index.add_outpoint(outpoint));
        self.connected_since_load += connects;
        true
    }

    /// Names the range of heights that a node cannot give.
    fn explain_gap(&self, failure: Trouble, from: &HeldHeader, node: &NodeTip) -> Trouble {
        let first = from.height + 1;
        match failure {
            Trouble::Source(SourceError::Pruned { .. }) => {
                let last = node
                    .pruned_below
                    .map_or(first, |kept| kept.saturating_sub(1).max(first));
                Trouble::Stuck {
                    state: ChainState::PrunedGap,
                    reason: format!(
                        "the node has pruned blocks {first} to {last}, which were not read yet: \
                         point to a node that has them, or let this one download them again"
                    ),
                }
            }
            Trouble::Source(SourceError::MissingData(hash)) => Trouble::Stuck {
                state: ChainState::MissingData,
                reason: format!(
                    "blocks {first} to {} are promised, block {} is not there yet",
                    node.height,
                    self.settings.chain.id.print(hash)
                ),
            },
            other => other,
        }
    }
}

/// Filters fetched blocks in order until the batch is full, there are no more, or something fails.
async fn fetch<S: ChainSource>(
    source: &S,
    clock: &Clock,
    index: &mut Index,
    from: HeldHeader,
    fetched: &mut Ahead<impl Iterator<Item: Future<Output = (usize, Fetched<S>)>>, Fetched<S>>,
) -> Run {
    let started = clock.instant();
    let mut run = Run {
        blocks: Vec::new(),
        last: from,
        failure: None,
    };
    while let Some((hash, raw)) = fetched.next().await {
        let block = match raw {
            Ok(raw) => scan(source, index, &run.last, hash, &raw).await,
            Err(error) => Err(Trouble::Source(error)),
        };
        match block.and_then(|block| Ok((place(&run.last, &block)?, block))) {
            Ok((last, block)) => {
                run.last = last;
                run.blocks.push(block);
            }
            Err(failure) => {
                run.failure = Some(failure);
                break;
            }
        }
        if run.blocks.len() >= BATCH_BLOCKS || millis(clock.instant() - started) >= BATCH_MS {
            break;
        }
    }
    run
}

/// Filters one block that must be the child of `parent`. What it holds of ours is known to the filter
/// before the next block is looked at, so that a spend in the very next block is found.
async fn scan<S: ChainSource>(
    source: &S,
    index: &mut Index,
    parent: &HeldHeader,
    hash: BlockHash,
    raw: &S::Raw,
) -> Result<ScannedBlock, Trouble> {
    let block = source.scan(hash, raw, index).await?;
    if block.header.hash != hash || block.header.parent != parent.header.hash {
        // The node went to another branch between two answers: look again.
        return Err(Trouble::Source(SourceError::UnknownBlock(hash)));
    }
    source.check_link(parent, &block.header)?;
    outpoints_of(&block)
        .iter()
        .for_each(|outpoint| index.add_outpoint(outpoint));
    Ok(block)
}

fn place(parent: &HeldHeader, block: &ScannedBlock) -> Result<HeldHeader, Trouble> {
    let held = parent.child(block.header);
    Ok(held.ok_or_else(|| StoreError::Contradiction("chainwork passes 2^256".into()))?)
}

async fn commit(store: Store, step: Advance, terms: Arc<Terms>) -> Result<Advanced, StoreError> {
    let committed = store.write_alone(move |tx| tx.advance(&step, &terms)).await;
    store.wake();
    committed
}
