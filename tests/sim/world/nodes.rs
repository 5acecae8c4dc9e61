//! How nodes fail: each has its own tip, mempool and faults, and one of them answers.

use super::{Chain, Template, Touched, remember};
use crate::dice::Dice;
use crate::script::NodeAct;
use crate::scripted::{Coinbase, Finality, World as Nodes};
use creditd::rules::{BlockHash, TaggedBlock, Tags};
use std::time::Duration;

/// The blocks below the tip that honest nodes call safe and final.
pub const HONEST: Finality = Finality::Below {
    safe: 2,
    finalized: 12,
};

/// The work of a block that outweighs some usual ones.
const HEAVY: u64 = 60;

/// Slower answers are no answers.
const LATENCY_MAX_MS: u16 = 5_000;

impl Chain {
    pub(super) fn node_act(&mut self, node: usize, what: NodeAct, dice: &mut Dice) -> Option<Touched> {
        let number = node % self.lags.len();
        match what {
            NodeAct::Lag(blocks) => self.lag(number, blocks),
            NodeAct::RestoreTo(left) => self.restore(number, left),
            NodeAct::OtherFork => self.go_elsewhere(number, dice),
            NodeAct::HeadersOnly(left) => self.show_headers(number, left, dice),
            NodeAct::TagsOf(left) => self.tag(number, left),
            NodeAct::TagsBack => self.tag_back(number),
            NodeAct::Alternate => {
                let mut world = self.nodes.world();
                world.alternates = !world.alternates && world.nodes.len() > 1;
                world.alternates.then(|| "nodes answer in turn".to_owned())
            }
            NodeAct::Switch => {
                let mut world = self.nodes.world();
                let was = std::mem::replace(&mut world.current, number);
                (was != number).then(|| format!("node {number} answers"))
            }
            NodeAct::Latency(ms) => {
                let mut world = self.nodes.world();
                world.latency_ms = u64::from(ms.min(LATENCY_MAX_MS));
                world.dice = Dice::new(dice.next());
                Some(format!("answers take {ms} ms"))
            }
            NodeAct::Well => {
                self.lags[number] = 0;
                let node = &mut self.nodes.world().nodes[number];
                node.faults = Default::default();
                if self.is_evm {
                    node.finality = HONEST;
                }
                Some(format!("node {number}"))
            }
            // Wire seeds alone have something to lie about.
            NodeAct::Lie(lie) => {
                let wire = self.wire.as_ref()?;
                wire.lie(lie, 1 + dice.roll(6) as u32, dice.next());
                Some(format!("the next answers: {lie:?}"))
            }
            NodeAct::Down
            | NodeAct::Up
            | NodeAct::Fail(_)
            | NodeAct::Hang(_)
            | NodeAct::Syncing
            | NodeAct::Prune(_)
            | NodeAct::Missing(_)
            | NodeAct::WrongGenesis
            | NodeAct::Truncate
            | NodeAct::Noisy => self.fault(number, what, dice),
        }
    }

    fn fault(&mut self, number: usize, what: NodeAct, dice: &mut Dice) -> Option<Touched> {
        let mut world = self.nodes.world();
        let Nodes { tree, nodes, .. } = &mut *world;
        let node = &mut nodes[number];
        let height = tree.block(&node.tip).height();
        let faults = &mut node.faults;
        match what {
            NodeAct::Down => faults.is_down = true,
            NodeAct::Up => faults.is_down = false,
            NodeAct::Fail(calls) => faults
                .fails
                .extend((1..=u64::from(calls % 8) + 1).map(|n| node.calls + n)),
            NodeAct::Hang(secs) => faults.hangs = Duration::from_secs(u64::from(secs % 200)),
            NodeAct::Syncing => faults.is_syncing = !faults.is_syncing,
            NodeAct::Prune(kept) => faults.pruned_below = Some(height.saturating_sub(u64::from(kept))),
            NodeAct::Missing(blocks) => {
                let from = height.saturating_sub(u64::from(blocks % 4));
                let missing = tree.branch_from(&node.tip, from);
                faults.missing = missing.iter().map(|block| block.hash()).collect();
                if dice.once_in(2) {
                    faults.unfetchable = node.mempool.last().map(|tx| tx.txid).into_iter().collect();
                }
            }
            NodeAct::WrongGenesis => {
                faults.other_genesis = Some(BlockHash([0xbc; 32]));
                // Who it is, is asked again once it was out of reach.
                faults.fails.insert(node.calls + 1);
            }
            NodeAct::Truncate => faults.truncates = !faults.truncates,
            NodeAct::Noisy => faults.is_noisy = !faults.is_noisy,
            NodeAct::Lag(_)
            | NodeAct::RestoreTo(_)
            | NodeAct::OtherFork
            | NodeAct::Alternate
            | NodeAct::Switch
            | NodeAct::HeadersOnly(_)
            | NodeAct::Lie(_)
            | NodeAct::TagsOf(_)
            | NodeAct::TagsBack
            | NodeAct::Latency(_)
            | NodeAct::Well => return None,
        }
        Some(format!("node {number} at block {height}"))
    }

    /// A node falls back on its own chain, and stays so far behind.
    fn lag(&mut self, number: usize, blocks: u8) -> Option<Touched> {
        let blocks = u64::from(blocks % 8) + 1;
        self.lags[number] = blocks;
        let mut world = self.nodes.world();
        let tip = world.nodes[number].tip;
        let height = world.tree.block(&tip).height().saturating_sub(blocks);
        let to = world.tree.ancestor(&tip, height)?;
        world.go_to(number, to);
        Some(format!("node {number} back to block {height}"))
    }

    /// A node starts anew from an old folder, which ends on a branch that was left.
    fn restore(&mut self, number: usize, left: u32) -> Option<Touched> {
        let to = self.left(left)?;
        let tip = self.tip();
        remember(&mut self.left, tip);
        let mut world = self.nodes.world();
        let Nodes { tree, nodes, .. } = &mut *world;
        nodes[number].restore(tree, to);
        Some(format!("node {number} on a branch that was left"))
    }

    /// A node starts anew on a branch that nobody else has, which is better.
    fn go_elsewhere(&mut self, number: usize, dice: &mut Dice) -> Option<Touched> {
        let tip = self.nodes.world().nodes[number].tip;
        let height = self.height(&tip);
        let depth = (1 + dice.roll(5) as u64).min(height).min(self.depth_max());
        let mut at = self.nodes.world().tree.ancestor(&tip, height - depth)?;
        let work = |chain: &Chain, hash: &BlockHash| chain.nodes.world().tree.block(hash).held.chainwork;
        let ours = work(self, &tip);
        while work(self, &at) <= ours {
            at = self.block(Template {
                parent: at,
                wanted: vec![],
                coinbase: None,
                work: 10,
            });
        }
        remember(&mut self.left, tip);
        let mut world = self.nodes.world();
        let Nodes { tree, nodes, .. } = &mut *world;
        nodes[number].restore(tree, at);
        nodes[number].faults.is_elsewhere = true;
        Some(format!("node {number} left at depth {depth}"))
    }

    /// A node has the headers of a better branch, and not its blocks yet: of more blocks than its own, and it
    /// says itself that it catches up, or of heavier ones.
    fn show_headers(&mut self, number: usize, left: u32, dice: &mut Dice) -> Option<Touched> {
        if self.is_evm {
            return None;
        }
        let tip = self.nodes.world().nodes[number].tip;
        let below = self.height(&tip).saturating_sub(1 + dice.roll(4) as u64);
        let fork = self.nodes.world().tree.ancestor(&tip, below)?;
        let mut at = self.left(left).unwrap_or(fork);
        let work = if dice.once_in(2) { 10 } else { HEAVY };
        let mut world = self.nodes.world();
        while world.tree.block(&at).held.chainwork <= world.tree.block(&tip).held.chainwork {
            at = world.tree.mine_with(at, vec![], Coinbase::Plain, work);
        }
        world.nodes[number].headers_only.insert(at);
        drop(world);
        remember(&mut self.left, at);
        Some(format!("node {number} knows a better branch by its headers"))
    }

    /// What a node calls safe stands on another branch; what it calls final nobody has.
    fn tag(&mut self, number: usize, left: u32) -> Option<Touched> {
        // Behind JSON they call a block of their own branch so, whatever its hash.
        if !self.is_evm || self.wire.is_some() {
            return None;
        }
        let hash = self.left(left)?;
        let tagged = TaggedBlock {
            height: self.height(&hash),
            hash,
        };
        let elsewhere = TaggedBlock {
            hash: BlockHash([9; 32]),
            ..tagged
        };
        self.nodes.world().nodes[number].finality = Finality::Says(Tags {
            safe: Some(tagged),
            finalized: Some(elsewhere),
        });
        Some(format!("node {number} calls a left block safe"))
    }

    /// A node calls safe and final what it called so long ago.
    fn tag_back(&mut self, number: usize) -> Option<Touched> {
        if !self.is_evm {
            return None;
        }
        self.nodes.world().nodes[number].finality = Finality::Below {
            safe: 9,
            finalized: 30,
        };
        Some(format!("node {number} tells old tags"))
    }

    /// Faults end, and all are on the best branch, which is better than any that there ever was.
    pub(super) fn heal(&mut self) {
        let mut world = self.nodes.world();
        world.current = 0;
        world.alternates = false;
        world.hook = None;
        world.latency_ms = 0;
        self.lags.fill(0);
        for node in &mut world.nodes {
            node.faults = Default::default();
            node.headers_only.clear();
            if self.is_evm {
                node.finality = HONEST;
            }
        }
        let best = world.nodes.iter().map(|node| world.tree.block(&node.tip));
        let best = best.max_by_key(|block| block.held.chainwork);
        let mut best = best.map(|block| block.hash()).unwrap();
        let most = world
            .tree
            .blocks()
            .map(|block| block.held.chainwork)
            .max()
            .unwrap();
        // As much work as any branch that there ever was, and some more: nobody doubts the tip.
        while world.tree.block(&best).held.chainwork <= most {
            best = world.tree.extend(best, 1);
        }
        world.all_go_to(best);
        if self.wire.is_some() {
            // The source may ask any of them: all have heard of the same by now.
            let mempool = world.nodes[0].mempool.clone();
            world
                .nodes
                .iter_mut()
                .for_each(|node| node.mempool.clone_from(&mempool));
        }
        drop(world);
        if let Some(wire) = &self.wire {
            wire.heal();
        }
    }
}
