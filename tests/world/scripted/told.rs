//! What nodes answered: checks ask it whether what the daemon did was justified by what it was told, and
//! marks whether a fault had any effect. Written at the moment of each answer.

use super::node::Node;
use super::tree::{Block, Tree, Tx};
use creditd::chain::NodeTip;
use creditd::rules::{BlockHash, MempoolList, Tags, Txid, Work};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A tip that a node told.
#[derive(Clone, Debug)]
pub struct TipTold {
    pub at_ms: i64,
    pub node: usize,
    pub tip: BlockHash,
    pub height: u64,
    pub chainwork: Work,
    /// Above this height nothing was to be credited.
    pub ceiling: Option<u64>,
    pub tags: Tags,
    pub is_syncing: bool,
}

/// A mempool list that a node told.
#[derive(Clone, Debug)]
pub struct ListTold {
    pub at_ms: i64,
    pub tip: BlockHash,
    pub listed: Arc<BTreeSet<Txid>>,
    pub is_complete: bool,
}

/// A block that a node said it has left (Bitcoin Core: confirmations -1).
#[derive(Clone, Copy, Debug)]
pub struct LeftTold {
    pub at_ms: i64,
    pub hash: BlockHash,
}

/// All that was told.
#[derive(Debug, Default)]
pub struct Told {
    pub tips: Vec<TipTold>,
    pub lists: Vec<ListTold>,
    pub left: Vec<LeftTold>,
    /// The tips that anybody saw, in order.
    pub seen: Vec<BlockHash>,
    /// What took effect since somebody looked last.
    pub marks: Vec<&'static str>,
    /// Tips that were told, and were not on the branch of the next one.
    lost: BTreeSet<BlockHash>,
    /// The run of each transaction that was told last.
    runs: BTreeMap<Txid, Arc<Tx>>,
    node: Option<usize>,
}

impl Told {
    pub fn mark(&mut self, mark: &'static str) {
        self.marks.push(mark);
    }

    /// Another node than the last one is asked.
    pub fn ask(&mut self, node: usize, alternates: bool) {
        if self.node.replace(node).is_some_and(|last| last != node) && alternates {
            self.mark("alternated");
        }
    }

    pub fn tip(&mut self, at_ms: i64, number: usize, tip: &NodeTip, tree: &Tree, node: &Node) {
        if let Some(last) = self.tips.last().map(|last| last.tip) {
            let was = tree.block(&last);
            if tree.is_on(&tip.hash, &last) {
                if tip.hash != last {
                    self.mark("node_behind");
                }
            } else if !tree.is_on(&last, &tip.hash) {
                match tip.chainwork.cmp(&was.held.chainwork) {
                    std::cmp::Ordering::Less => self.mark("worse_branch"),
                    std::cmp::Ordering::Equal => self.mark("equal_branch"),
                    std::cmp::Ordering::Greater if node.faults.is_elsewhere => self.mark("node_other_fork"),
                    std::cmp::Ordering::Greater => self.mark("better_branch"),
                }
                let is_back = self.lost.iter().any(|lost| tree.is_on(lost, &tip.hash));
                if is_back {
                    self.mark("flip_flop");
                }
                self.lost.insert(last);
            }
        }
        if tip.is_syncing {
            self.mark("syncing_no_credit");
        }
        let is_elsewhere = |tag: Option<creditd::rules::TaggedBlock>| {
            tag.is_some_and(|tag| !tree.is_on(&tag.hash, &tip.hash))
        };
        if is_elsewhere(tip.tags.safe) || is_elsewhere(tip.tags.finalized) {
            self.mark("tag_of_another_branch");
        }
        self.seen.push(tip.hash);
        self.tips.push(TipTold {
            at_ms,
            node: number,
            tip: tip.hash,
            height: tip.height,
            chainwork: tip.chainwork,
            ceiling: tip.credit_ceiling,
            tags: tip.tags,
            is_syncing: tip.is_syncing,
        });
    }

    pub fn list(&mut self, at_ms: i64, list: &MempoolList) {
        if !list.is_complete {
            self.mark("partial_mempool_list");
        }
        if self.tips.last().is_some_and(|last| last.tip != list.tip) {
            self.mark("list_outdated");
        }
        if self
            .lists
            .last()
            .is_some_and(|last| last.listed == list.listed && last.tip == list.tip)
        {
            self.mark("list_repeated");
        }
        self.lists.push(ListTold {
            at_ms,
            tip: list.tip,
            listed: list.listed.clone(),
            is_complete: list.is_complete,
        });
    }

    pub fn block(&mut self, block: &Block) {
        for tx in &block.txs {
            let Some(last) = self.runs.insert(tx.txid, tx.clone()) else {
                continue;
            };
            if *last == **tx {
                continue;
            }
            self.mark("run_again");
            if tx.is_failed {
                self.mark("reverted_run");
            }
            let payers = |tx: &Tx| -> Vec<_> {
                let legs = tx.outputs.iter().filter_map(|out| out.leg.as_ref());
                legs.map(|leg| leg.from.clone()).collect()
            };
            if last.outputs.len() == tx.outputs.len() && payers(&last) != payers(tx) {
                self.mark("payer_changed");
            }
        }
    }
}
