//! What to do when a node's tip is compared with ours. Truth is the hash at a height: a reorg needs another
//! hash at a height that we hold *and* a better branch; everything else waits.

use super::{BlockHash, Work};
use std::collections::BTreeSet;

/// The most blocks that a reorg may be allowed to take back.
pub const REORG_WINDOW_MAX: u64 = 2_016;

/// Which of two branches is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchRule {
    /// Bitcoin: the one with more work; of two with as much, the one that the node has changed over to.
    MostWork,
    /// EVM, where each block counts as one unit of work: the higher one; of two as high, the one that the
    /// node shows for some looks in a row. Nodes forget the blocks that they left, so that they know nothing
    /// of our tip says nothing.
    Highest,
}

/// Our tip and the node's, with what the node says of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// How branches are compared.
    pub rule: BranchRule,
    /// The hash of our tip.
    pub our_hash: BlockHash,
    /// The height of our tip.
    pub our_height: u64,
    /// The work up to our tip.
    pub our_chainwork: Work,
    /// The hash of the node's tip.
    pub node_hash: BlockHash,
    /// The height of the node's tip.
    pub node_height: u64,
    /// The work up to the node's tip.
    pub node_chainwork: Work,
    /// What the node says of our tip.
    pub our_tip_at_node: OurTipAtNode,
    /// The highest of our headers that is on the node's active chain, where one was found inside the window.
    pub fork_height: Option<u64>,
    /// The height of our block that is final by the nodes' word, if one is: no branch without it is better.
    pub finalized: Option<u64>,
}

impl Comparison {
    /// What becomes of a branch that is no better than ours, once every node has served it alone for long:
    /// it is the chain now, unless it lacks a block of ours that was final.
    pub fn after_patience(&self) -> ForkStep {
        match self.fork_height {
            Some(fork_height) if self.finalized.is_none_or(|last| fork_height >= last) => {
                ForkStep::Reorg { fork_height }
            }
            Some(_) | None => ForkStep::TooDeep,
        }
    }
}

/// What a node says of our tip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OurTipAtNode {
    /// It is on the node's active chain.
    Active,
    /// The node holds it on a branch that it is not on (Bitcoin Core: `confirmations` -1).
    Stale,
    /// The node does not know it.
    Unknown,
}

/// The next move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkStep {
    /// Both tips are one.
    AtTip,
    /// The node's tip is above ours on the same chain: connect what is between.
    Extend,
    /// The node is lower on our own chain: nothing happened, it lags or restarts.
    Behind,
    /// The node's tip is on another branch that is no better than ours: hold, whatever it says.
    BehindOnOtherBranch,
    /// A better branch from `fork_height` on.
    Reorg {
        /// The highest block that both branches share.
        fork_height: u64,
    },
    /// A better branch that shares nothing with the window that we hold.
    TooDeep,
}

/// How many looks in a row must show the same branch of equal work before it is taken.
const EQUAL_LOOKS: u32 = 3;

/// What earlier looks showed of branches that have exactly our work. Behind one address there may be two
/// nodes, each on its own of two equal tips: going along with whoever answers would undo and redo credits for
/// as long as nobody finds a block.
#[derive(Clone, Debug, Default)]
pub struct EqualBranches {
    /// Our tip and the node's at the last look, if the node's was as good, and for how many looks in a row.
    shown: Option<(BlockHash, BlockHash, u32)>,
    /// Tips of ours that were left for equal ones, all of the work `left_at`.
    left: BTreeSet<BlockHash>,
    left_at: Option<Work>,
}

impl EqualBranches {
    /// [`compare`], but an equal branch is taken only after three looks in a row, and one that was left
    /// for an equal one not before it is better.
    pub fn judge(&mut self, at: &Comparison) -> ForkStep {
        let step = compare(at);
        if self.left_at != Some(at.our_chainwork) {
            self.left.clear();
            self.left_at = Some(at.our_chainwork);
        }
        let is_equal = at.node_chainwork == at.our_chainwork;
        let leaves = matches!(step, ForkStep::Reorg { .. } | ForkStep::TooDeep);
        if !(is_equal && leaves) {
            self.shown = None;
            return step;
        }
        let (ours, theirs) = (at.our_hash, at.node_hash);
        let looks = match self.shown {
            Some((our, their, looks)) if (our, their) == (ours, theirs) => looks.saturating_add(1),
            Some(_) | None => 1,
        };
        self.shown = Some((ours, theirs, looks));
        if looks < EQUAL_LOOKS || self.left.contains(&theirs) {
            return ForkStep::BehindOnOtherBranch;
        }
        self.left.insert(ours);
        step
    }
}

/// Decides by one look alone.
pub fn compare(at: &Comparison) -> ForkStep {
    if at.node_hash == at.our_hash {
        return ForkStep::AtTip;
    }
    let is_our_tip_below = at.fork_height == Some(at.our_height);
    if at.our_tip_at_node == OurTipAtNode::Active || is_our_tip_below {
        return ForkStep::Extend;
    }
    if at.fork_height == Some(at.node_height) {
        return ForkStep::Behind;
    }
    let is_equal_enough = match at.rule {
        // As much work counts only when the same node says that it knows our tip and left it: nodes keep the
        // branch that they saw first, so an equal branch under an unknown tip may be one that merely lags.
        BranchRule::MostWork => at.our_tip_at_node == OurTipAtNode::Stale,
        BranchRule::Highest => true,
    };
    let is_better =
        at.node_chainwork > at.our_chainwork || (at.node_chainwork == at.our_chainwork && is_equal_enough);
    let is_final_lost = matches!((at.fork_height, at.finalized), (Some(fork), Some(last)) if fork < last);
    match (is_better && !is_final_lost, at.fork_height) {
        (false, _) => ForkStep::BehindOnOtherBranch,
        (true, Some(fork_height)) => ForkStep::Reorg { fork_height },
        (true, None) => ForkStep::TooDeep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OurTipAtNode::{Active, Stale, Unknown};

    fn work(units: u8) -> Work {
        let mut bytes = [0; 32];
        bytes[31] = units;
        Work::from_be_bytes(bytes)
    }

    /// Name, the node's (hash, height, work), our tip there, the fork height, and what follows.
    type Case = (&'static str, (u8, u64, u8), OurTipAtNode, Option<u64>, ForkStep);

    // Ours: A-B-C, height 12, work 12, hash 12.
    const CASES: &[Case] = &[
        ("same tip", (12, 12, 12), Active, Some(12), ForkStep::AtTip),
        ("A-B-C-D", (13, 13, 13), Active, Some(12), ForkStep::Extend),
        (
            "A-B: node lags",
            (11, 11, 11),
            Unknown,
            Some(11),
            ForkStep::Behind,
        ),
        (
            "A-B: node went back to a shorter chain",
            (11, 11, 11),
            Stale,
            Some(11),
            ForkStep::Behind,
        ),
        (
            "A-B-C'-D': more work",
            (23, 13, 13),
            Stale,
            Some(11),
            ForkStep::Reorg { fork_height: 11 },
        ),
        (
            "the same, our tip unknown there",
            (23, 13, 13),
            Unknown,
            Some(11),
            ForkStep::Reorg { fork_height: 11 },
        ),
        (
            "A-B-C': equal work, left ours",
            (22, 12, 12),
            Stale,
            Some(11),
            ForkStep::Reorg { fork_height: 11 },
        ),
        (
            "A-B-C': equal work, ours unknown",
            (22, 12, 12),
            Unknown,
            Some(11),
            ForkStep::BehindOnOtherBranch,
        ),
        (
            "A-B': less work",
            (21, 11, 11),
            Stale,
            Some(10),
            ForkStep::BehindOnOtherBranch,
        ),
        (
            "higher but less work",
            (24, 14, 11),
            Unknown,
            Some(10),
            ForkStep::BehindOnOtherBranch,
        ),
        (
            "lower but more work",
            (21, 11, 13),
            Stale,
            Some(10),
            ForkStep::Reorg { fork_height: 10 },
        ),
        (
            "nothing shared, better",
            (99, 99, 99),
            Unknown,
            None,
            ForkStep::TooDeep,
        ),
        (
            "nothing shared, worse",
            (9, 9, 9),
            Unknown,
            None,
            ForkStep::BehindOnOtherBranch,
        ),
    ];

    #[test]
    fn an_equal_branch_is_taken_after_some_looks_in_a_row_and_never_back() {
        let on = |ours: u8, theirs: u8| Comparison {
            rule: BranchRule::MostWork,
            finalized: None,
            our_hash: BlockHash([ours; 32]),
            our_height: 12,
            our_chainwork: work(12),
            node_hash: BlockHash([theirs; 32]),
            node_height: 12,
            node_chainwork: work(12),
            our_tip_at_node: if ours == theirs { Active } else { Stale },
            fork_height: Some(if ours == theirs { 12 } else { 11 }),
        };
        let (hold, go) = (ForkStep::BehindOnOtherBranch, ForkStep::Reorg { fork_height: 11 });
        let looks = [
            (on(1, 2), hold),
            (on(1, 2), hold),
            (on(1, 1), ForkStep::AtTip),
            (on(1, 2), hold),
            (on(1, 2), hold),
            (on(1, 3), hold),
            (on(1, 2), hold),
            (on(1, 2), hold),
            (on(1, 2), go),
            (on(2, 1), hold),
            (on(2, 1), hold),
            (on(2, 1), hold),
            (on(2, 1), hold),
            (on(2, 3), hold),
            (on(2, 3), hold),
            (on(2, 3), go),
        ];
        let mut equals = EqualBranches::default();
        for (place, (at, expected)) in looks.into_iter().enumerate() {
            assert_eq!(equals.judge(&at), expected, "look {place}");
        }
        let better = Comparison {
            node_chainwork: work(13),
            ..on(3, 1)
        };
        assert_eq!(equals.judge(&better), go, "better is taken at once");
    }

    #[test]
    fn a_reorg_needs_another_hash_and_a_better_branch() {
        for (name, (hash, height, node_work), ours, fork_height, expected) in CASES {
            let at = Comparison {
                rule: BranchRule::MostWork,
                finalized: None,
                our_hash: BlockHash([12; 32]),
                our_height: 12,
                our_chainwork: work(12),
                node_hash: BlockHash([*hash; 32]),
                node_height: *height,
                node_chainwork: work(*node_work),
                our_tip_at_node: *ours,
                fork_height: *fork_height,
            };
            assert_eq!(compare(&at), *expected, "{name}");
        }
    }

    /// Name, the node's (hash, height), the fork height, our final height, what follows, and what after
    /// patience.
    type EvmCase = (
        &'static str,
        (u8, u64),
        Option<u64>,
        Option<u64>,
        ForkStep,
        ForkStep,
    );

    // Ours: height 12, hash 12; nodes know nothing of the blocks that they left.
    const EVM_CASES: &[EvmCase] = &[
        (
            "higher",
            (23, 13),
            Some(11),
            None,
            ForkStep::Reorg { fork_height: 11 },
            ForkStep::Reorg { fork_height: 11 },
        ),
        (
            "as high",
            (22, 12),
            Some(11),
            Some(11),
            ForkStep::Reorg { fork_height: 11 },
            ForkStep::Reorg { fork_height: 11 },
        ),
        (
            "lower",
            (21, 11),
            Some(9),
            Some(9),
            ForkStep::BehindOnOtherBranch,
            ForkStep::Reorg { fork_height: 9 },
        ),
        (
            "higher, without our final block",
            (33, 14),
            Some(9),
            Some(10),
            ForkStep::BehindOnOtherBranch,
            ForkStep::TooDeep,
        ),
        (
            "lower, nothing shared",
            (21, 11),
            None,
            None,
            ForkStep::BehindOnOtherBranch,
            ForkStep::TooDeep,
        ),
        (
            "higher, nothing shared",
            (24, 14),
            None,
            None,
            ForkStep::TooDeep,
            ForkStep::TooDeep,
        ),
        (
            "lags",
            (11, 11),
            Some(11),
            None,
            ForkStep::Behind,
            ForkStep::Reorg { fork_height: 11 },
        ),
    ];

    #[test]
    fn on_evm_chains_height_decides_and_what_was_final_stays() {
        for (name, (hash, height), fork_height, finalized, expected, patient) in EVM_CASES {
            let at = Comparison {
                rule: BranchRule::Highest,
                finalized: *finalized,
                our_hash: BlockHash([12; 32]),
                our_height: 12,
                our_chainwork: Work::from_u64(13),
                node_hash: BlockHash([*hash; 32]),
                node_height: *height,
                node_chainwork: Work::from_u64(height + 1),
                our_tip_at_node: Unknown,
                fork_height: *fork_height,
            };
            assert_eq!(compare(&at), *expected, "{name}");
            assert_eq!(at.after_patience(), *patient, "{name}");
        }
    }
}
