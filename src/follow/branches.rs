//! Holding the node's tip against ours: what the difference means.

use super::{Follower, Trouble};
use crate::chain::{ChainSource, NodeTip};
use crate::rules::fork::{BranchRule, Comparison, ForkStep, OurTipAtNode};
use crate::rules::{BlockHash, HeldHeader};

/// How many blocks a search for a fork point asks for at first; eight times as many after each piece without.
const FIRST_PIECE: usize = 8;

impl<S: ChainSource> Follower<S> {
    /// What the difference of the tips means, with what earlier looks showed.
    pub(super) async fn judge(
        &mut self,
        tip: &HeldHeader,
        node: &NodeTip,
        finalized: Option<u64>,
    ) -> Result<ForkStep, Trouble> {
        let at = self.comparison(tip, node, finalized).await?;
        let step = self.equals.judge(&at);
        let Some(patience) = self.settings.fork_patience else {
            return Ok(step);
        };
        if step != ForkStep::BehindOnOtherBranch || !self.source.is_left_by_all(tip, node).await {
            self.left_since = None;
            return Ok(step);
        }
        let now = self.clock.instant();
        let since = *self.left_since.get_or_insert(now);
        Ok(match now - since >= patience {
            true => at.after_patience(),
            false => step,
        })
    }

    /// Why the node's branch is not taken now, in words.
    pub(super) fn other_branch(&self, tip: &HeldHeader, node: &NodeTip) -> String {
        let hash = self.settings.chain.id.print(node.hash);
        let at = format!("the node's tip {hash} at height {}", node.height);
        let patience = self
            .settings
            .fork_patience
            .map_or(0, |patience| patience.as_secs());
        // Of these the higher branch is the better one, unless what was final is not on it.
        match self.settings.chain.id.is_evm() && node.height > tip.height {
            true => format!(
                "{at} is on a branch that leaves out our final block: one that every node has served for \
                 {patience} s halts the chain"
            ),
            false => format!(
                "{at} is on a branch that is no better than ours at {}",
                tip.height
            ),
        }
    }

    async fn comparison(
        &mut self,
        tip: &HeldHeader,
        node: &NodeTip,
        finalized: Option<u64>,
    ) -> Result<Comparison, Trouble> {
        let mut at = Comparison {
            rule: match self.settings.chain.id.is_evm() {
                true => BranchRule::Highest,
                false => BranchRule::MostWork,
            },
            finalized,
            our_hash: tip.header.hash,
            our_height: tip.height,
            our_chainwork: tip.chainwork,
            node_hash: node.hash,
            node_height: node.height,
            node_chainwork: node.chainwork,
            our_tip_at_node: OurTipAtNode::Active,
            fork_height: Some(tip.height),
        };
        if node.hash != tip.header.hash {
            at.our_tip_at_node = match self.source.header(tip.header.hash).await? {
                Some(info) if info.is_active => OurTipAtNode::Active,
                Some(_) => OurTipAtNode::Stale,
                None => OurTipAtNode::Unknown,
            };
            if at.our_tip_at_node != OurTipAtNode::Active {
                at.fork_height = self.known_fork(tip, node, finalized).await?;
            }
        }
        Ok(at)
    }

    /// Found once for two tips: while the node stays on a branch that is no better, each look would ask for a
    /// window of blocks.
    async fn known_fork(
        &mut self,
        tip: &HeldHeader,
        node: &NodeTip,
        finalized: Option<u64>,
    ) -> Result<Option<u64>, Trouble> {
        if let Some((ours, theirs, fork)) = self.forked
            && (ours, theirs) == (tip.header.hash, node.hash)
        {
            return Ok(Some(fork));
        }
        let fork = self.fork_height(tip, finalized).await?;
        self.forked = fork.map(|fork| (tip.header.hash, node.hash, fork));
        Ok(fork)
    }

    /// The highest height of the window at which the node's active chain has our hash, searched downwards:
    /// most forks are shallow, and what is not final yet may be thousands of blocks. A block can be undone
    /// only where the header below it is held, so the search ends at the first gap: below what an older,
    /// smaller window kept, or below a height that was gone back to, the real fork may lie between two
    /// headers.
    async fn fork_height(&self, tip: &HeldHeader, finalized: Option<u64>) -> Result<Option<u64>, Trouble> {
        let (key, lowest) = (self.key, self.window_from(tip.height, finalized));
        let ours = self.store.read(move |tx| tx.hashes_down_to(key, lowest)).await?;
        let in_a_row = (lowest..=tip.height).rev().zip(ours);
        let in_a_row = in_a_row.take_while(|(height, (held, _))| height == held);
        let ours: Vec<BlockHash> = in_a_row.map(|(_, (_, hash))| hash).collect();
        let (mut rest, mut above, mut piece) = (ours.as_slice(), tip.height + 1, FIRST_PIECE);
        while !rest.is_empty() {
            let (asked, below) = rest.split_at(piece.min(rest.len()));
            let from = above.saturating_sub(u64::try_from(asked.len()).unwrap_or(above));
            let theirs = self.source.hashes(from, asked.len()).await?;
            // Ours are highest first, theirs lowest first; those above the node's tip are missing.
            let both = (from..above).zip(asked.iter().rev().zip(&theirs));
            let shared = both.filter(|(_, (ours, theirs))| ours == theirs);
            if let Some((height, _)) = shared.last() {
                return Ok(Some(height));
            }
            (rest, above, piece) = (below, from, piece.saturating_mul(8));
        }
        Ok(None)
    }

    /// The lowest height that a reorg may go back to: of the configured window, and on EVM chains of what is
    /// not final yet.
    pub(super) fn window_from(&self, tip: u64, finalized: Option<u64>) -> u64 {
        lowest(tip, self.terms.reorg_window, finalized)
    }
}

/// [`Follower::window_from`] of a configured window.
pub(super) fn lowest(tip: u64, reorg_window: u64, finalized: Option<u64>) -> u64 {
    let from = tip.saturating_sub(reorg_window);
    finalized.map_or(from, |last| from.min(last))
}
