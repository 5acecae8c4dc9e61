//! The world of a seed: chains, their miners, payers and nodes, and what these nodes told. It knows nothing
//! of the daemon but which rules there may be; start at [`World::act`].

mod btc;
mod effects;
mod evm;
mod mangle;
mod nodes;
pub mod rules;
mod twins;
pub mod wire;

pub use effects::note_effects;
pub use nodes::HONEST;

use crate::dice::Dice;
use crate::marks;
use crate::script::{Act, Kind, On, Out, Pick, Terms};
use crate::scripted::{Block, Call, ListTold, Scripted, TipTold, Tree, Tx};
use creditd::clock::Clock;
use creditd::rules::{BlockHash, Txid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::Wire;

/// What an act touched, for a line of the report.
pub type Touched = String;

/// A reorg of so many blocks and one is one more than the window: it is for an operator.
pub const DEEP: u8 = 100;

/// The branches that were left last.
const LEFT_MAX: usize = 32;

#[derive(Debug)]
pub struct World {
    chains: Vec<Chain>,
    clock: Clock,
}

/// One chain with all that its people remember.
#[derive(Debug)]
pub struct Chain {
    pub nodes: Scripted,
    pub is_evm: bool,
    /// Tips of branches that were left.
    left: Vec<BlockHash>,
    /// Every transaction that was ever made.
    txs: Vec<Arc<Tx>>,
    /// Those that every node has forgotten.
    evicted: Vec<Arc<Tx>>,
    /// EVM: as their senders wrote them.
    calls: BTreeMap<Txid, Call>,
    nonces: BTreeMap<u32, u64>,
    /// How many blocks each node lags.
    lags: Vec<u64>,
    /// The same chain behind JSON, where the real source is to ask for it.
    pub wire: Option<Wire>,
    /// A branch that leaves the tip deeper is for an operator.
    window: u64,
    /// The later token was on the list, and then was not: what moved meanwhile nobody looked for.
    pub was_unlisted: bool,
    /// More blocks were lost than the daemon gives up by itself.
    pub was_deep: bool,
}

/// Whatever must be decided to mine a block.
struct Template {
    parent: BlockHash,
    wanted: Vec<Arc<Tx>>,
    coinbase: Option<Vec<Out>>,
    /// In tenths of the usual.
    work: u8,
}

impl World {
    pub fn new(kind: Kind, terms: &Terms) -> World {
        let chain = |is_evm: bool| Chain::new(is_evm, terms);
        let wired = |mut chain: Chain| {
            chain.wire = Some(Wire::new(&chain.nodes));
            chain
        };
        let chains = match kind {
            // A Bitcoin node answers at the seam of its source, without a wire.
            Kind::Btc => vec![chain(false)],
            Kind::Evm => vec![chain(true)],
            Kind::WireEvm => vec![wired(chain(true))],
            Kind::Both => vec![chain(false), chain(true)],
        };
        World {
            chains,
            clock: Clock::real(),
        }
    }

    /// Each life of the daemon has a clock of its own; nodes show its time.
    pub fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// That one of the chains that there are.
    pub fn chain(&self, number: u8) -> &Chain {
        &self.chains[usize::from(number) % self.chains.len()]
    }

    /// What the daemon is given as the nodes of a chain.
    pub fn source(&self, number: u8) -> Scripted {
        self.chain(number).nodes.under(self.clock)
    }

    /// Does an act of miners, payers and nodes; `dice` is its number for what it leaves open. `None`: it
    /// meets nothing.
    pub fn act(&mut self, act: &Act, dice: u64) -> Option<Touched> {
        self.note_marks();
        let (Act::Mine { chain, .. }
        | Act::Reorg { chain, .. }
        | Act::Send { chain, .. }
        | Act::Replace { chain, .. }
        | Act::Evict { chain, .. }
        | Act::Node { chain, .. }) = act
        else {
            return None;
        };
        let number = usize::from(*chain) % self.chains.len();
        self.chains[number].act(act, &mut Dice::new(dice))
    }

    /// Faults end, the nodes agree on the best tip, and one more block than anybody ever had is mined.
    pub fn heal(&mut self) {
        self.note_marks();
        self.chains.iter_mut().for_each(Chain::heal);
    }

    /// Blocks for what waits for them: on every chain as many, which hold nothing.
    pub fn mine_empty(&mut self, count: usize) {
        for chain in &mut self.chains {
            let mut world = chain.nodes.world();
            let tip = world.tip();
            let tip = world.tree.extend(tip, count);
            world.all_go_to(tip);
            drop(world);
            if let Some(wire) = &chain.wire {
                wire.follow();
            }
        }
    }

    /// An operator takes the later token off the list.
    pub fn unlist(&mut self) {
        self.chains.iter_mut().for_each(|chain| chain.was_unlisted = true);
    }

    /// How often any node was asked anything.
    pub fn calls(&self) -> u64 {
        let of = |chain: &Chain| -> u64 { chain.nodes.world().nodes.iter().map(|node| node.calls).sum() };
        self.chains.iter().map(of).sum()
    }

    /// The best chain of the node that answers, from the first block.
    pub fn best(&self, chain: u8) -> Vec<Arc<Block>> {
        let world = self.chain(chain).nodes.world();
        world.tree.branch(&world.tip())
    }

    /// The lists told, without the first `from`.
    pub fn lists_told(&self, chain: u8, from: usize) -> Vec<ListTold> {
        let world = self.chain(chain).nodes.world();
        let told = world.told.as_ref().and_then(|told| told.lists.get(from..));
        told.unwrap_or_default().to_vec()
    }

    /// The tips told, without the first `from`.
    pub fn tips_told(&self, chain: u8, from: usize) -> Vec<TipTold> {
        let world = self.chain(chain).nodes.world();
        let told = world.told.as_ref().and_then(|told| told.tips.get(from..));
        told.unwrap_or_default().to_vec()
    }

    /// Did any node say that it has left this block?
    pub fn was_told_left(&self, chain: u8, hash: &BlockHash) -> bool {
        let world = self.chain(chain).nodes.world();
        let told = world.told.as_ref();
        told.is_some_and(|told| told.left.iter().any(|left| left.hash == *hash))
    }

    /// Somebody asks the nodes for their tips, and for nothing else.
    pub fn look(&self) {
        for chain in &self.chains {
            let mut world = chain.nodes.world();
            let tip = world.tip();
            if let Some(told) = &mut world.told {
                told.seen.push(tip);
            }
        }
    }

    /// Hits the marks of what nodes told since the last time.
    pub fn note_marks(&mut self) {
        for chain in &self.chains {
            if let Some(told) = &mut chain.nodes.world().told {
                told.marks.drain(..).for_each(marks::hit);
            }
        }
    }
}

impl Chain {
    fn new(is_evm: bool, terms: &Terms) -> Chain {
        let tree = match is_evm {
            true => Tree::evm("evm genesis"),
            false => Tree::new("genesis"),
        };
        let count = usize::from(terms.nodes).clamp(1, 4);
        let nodes = Scripted::on(tree, count, Clock::real());
        {
            let mut world = nodes.world();
            world.told = Some(Default::default());
            world.quorum = (terms.quorum > 0).then(|| usize::from(terms.quorum).min(count));
            if is_evm {
                world
                    .nodes
                    .iter_mut()
                    .for_each(|node| node.finality = nodes::HONEST);
            }
        }
        Chain {
            nodes,
            is_evm,
            left: vec![],
            txs: vec![],
            evicted: vec![],
            calls: BTreeMap::new(),
            nonces: BTreeMap::new(),
            lags: vec![0; count],
            wire: None,
            window: u64::from(terms.window),
            was_unlisted: false,
            was_deep: false,
        }
    }

    fn act(&mut self, act: &Act, dice: &mut Dice) -> Option<Touched> {
        let touched = self.act_here(act, dice);
        if let Some(wire) = &self.wire {
            wire.follow();
        }
        touched
    }

    fn act_here(&mut self, act: &Act, dice: &mut Dice) -> Option<Touched> {
        match act {
            Act::Mine {
                txs,
                coinbase,
                on,
                work,
                ..
            } => self.mine((txs, coinbase.as_ref()), *on, *work, dice),
            Act::Reorg {
                depth, longer, fate, ..
            } => self.reorg(*depth, *longer, &mut Dice::new(u64::from(*fate)), dice),
            Act::Send { tx, .. } => self.send(tx, dice),
            Act::Replace { of, tx, .. } => self.replace(*of, tx, dice),
            Act::Evict { of, .. } => self.evict(*of, dice),
            Act::Node { node, what, .. } => self.node_act(usize::from(*node), *what, dice),
            Act::Receiver { .. }
            | Act::Client(_)
            | Act::Webhook(_)
            | Act::Operator(_)
            | Act::Clock { .. }
            | Act::Crash(_)
            | Act::Disk(_)
            | Act::Replay { .. }
            | Act::Rest => None,
        }
    }

    /// Those of the transactions that anybody made.
    pub fn made(&self, ids: &BTreeSet<[u8; 32]>) -> Vec<Arc<Tx>> {
        let made = self.txs.iter().filter(|tx| ids.contains(&tx.txid.0));
        made.cloned().collect()
    }

    fn tip(&self) -> BlockHash {
        self.nodes.world().tip()
    }

    fn height(&self, hash: &BlockHash) -> u64 {
        self.nodes.world().tree.block(hash).height()
    }

    /// That one of the branches that were left, if it leaves ours not too deep.
    fn left(&self, number: u32) -> Option<BlockHash> {
        let world = self.nodes.world();
        let (tip, tree) = (world.tip(), &world.tree);
        let height = tree.block(&tip).height();
        let near = self.left.iter().filter(|left| {
            let fork = tree.fork(left, &tip);
            fork.hash() != **left && fork.height() + self.depth_max() >= height
        });
        let near: Vec<BlockHash> = near.copied().collect();
        match number {
            u32::MAX => near.last().copied(),
            _ => (!near.is_empty()).then(|| near[number as usize % near.len()]),
        }
    }

    /// All its blocks, the tips that were told in order, and the best one.
    pub fn finished(&self) -> (Tree, Vec<BlockHash>, BlockHash) {
        let world = self.nodes.world();
        let told = world.told.iter().flat_map(|told| &told.seen);
        let mut told: Vec<BlockHash> = told.copied().collect();
        told.dedup();
        (world.tree.clone(), told, world.tip())
    }

    /// No reorg goes deeper, but on purpose.
    pub fn depth_max(&self) -> u64 {
        let most = if self.is_evm { 10 } else { 14 };
        most.min(self.window.saturating_sub(2)).max(1)
    }

    /// What of `wanted` can be mined on a block, in this order.
    fn minable(&self, parent: &BlockHash, wanted: Vec<Arc<Tx>>) -> Vec<Arc<Tx>> {
        let mut coins = self.nodes.world().tree.coins(parent);
        let is_wired = self.wire.is_some();
        let fits = |tx: &Arc<Tx>| {
            let fits = coins.allows(tx) && (!is_wired || evm::is_next(&coins, tx));
            if fits {
                coins.apply(tx);
            }
            fits
        };
        wanted.into_iter().filter(fits).collect()
    }

    fn mine(
        &mut self,
        (picks, coinbase): (&[Pick], Option<&Vec<Out>>),
        on: On,
        work: u8,
        dice: &mut Dice,
    ) -> Option<Touched> {
        let tip = self.tip();
        let parent = match on {
            On::Tip => tip,
            On::Left(number) => self.left(number)?,
            On::Below(below) => {
                let below = u64::from(below).min(self.depth_max());
                let height = self.height(&tip).saturating_sub(below);
                self.nodes.world().tree.ancestor(&tip, height)?
            }
        };
        let mempool = self.nodes.world().node().mempool.clone();
        let mut pending: Vec<usize> = vec![];
        let mut new = vec![];
        for pick in picks {
            match pick {
                Pick::Pending(_) if mempool.is_empty() => {}
                Pick::Pending(number) => pending.push(*number as usize % mempool.len()),
                Pick::New(spec) => new.push(self.make(spec)),
            }
        }
        // Parents come before children.
        pending.sort_unstable();
        pending.dedup();
        let mut wanted: Vec<Arc<Tx>> = vec![];
        for at in pending {
            wanted.push(self.run_again(&mempool[at], dice));
        }
        wanted.extend(new);
        let block = self.block(Template {
            parent,
            wanted,
            coinbase: coinbase.cloned(),
            work,
        });
        self.arrive(block, dice);
        let held = self.nodes.world().tree.block(&block);
        Some(format!("block {} with {}", held.height(), held.txs.len()))
    }

    /// Nodes hear of a block, and go there if that is better: the one that answers at once, others mostly.
    fn arrive(&mut self, block: BlockHash, dice: &mut Dice) {
        let tip = self.tip();
        let mut world = self.nodes.world();
        if !world.tree.is_on(&tip, &block) {
            remember(&mut self.left, tip);
            remember(&mut self.left, block);
        }
        for node in 0..world.nodes.len() {
            if node != world.current && dice.once_in(6) {
                continue;
            }
            let (tree, at) = (&world.tree, world.nodes[node].tip);
            let height = tree.block(&block).height().saturating_sub(self.lags[node]);
            let to = tree.ancestor(&block, height).unwrap_or(block);
            let work = |hash: &BlockHash| tree.block(hash).held.chainwork;
            if work(&to) > work(&at) {
                world.go_to(node, to);
            } else if !self.is_evm {
                let fork = tree.fork(&at, &to).height();
                let new = tree.branch_from(&to, fork + 1);
                world.nodes[node]
                    .known
                    .extend(new.iter().map(|block| block.hash()));
            }
        }
    }

    /// The node that answers is taken to a tip, whatever its work; others mostly too, if it is better.
    fn take(&mut self, tip: BlockHash, dice: &mut Dice) {
        let was = self.tip();
        remember(&mut self.left, was);
        {
            let mut world = self.nodes.world();
            let current = world.current;
            world.go_to(current, tip);
        }
        self.arrive(tip, dice);
    }

    /// The last blocks are lost to another branch, which may hold what they held, rivals of it, or neither.
    fn reorg(&mut self, depth: u8, longer: i8, fate: &mut Dice, dice: &mut Dice) -> Option<Touched> {
        let tip = self.tip();
        let height = self.height(&tip);
        let beyond = self.window + u64::from(depth.saturating_sub(DEEP));
        let depth = match depth > DEEP && height > beyond {
            true => beyond,
            false => u64::from(depth).min(self.depth_max()).min(height),
        };
        self.was_deep |= depth > self.depth_max();
        if depth == 0 {
            return None;
        }
        let (mut at, lost) = {
            let world = self.nodes.world();
            let fork = world.tree.ancestor(&tip, height - depth)?;
            (fork, world.tree.branch_from(&tip, height - depth + 1))
        };
        let mut waiting: Vec<Arc<Tx>> = lost.iter().flat_map(|block| block.txs.clone()).collect();
        waiting.retain(|tx| !tx.is_coinbase);
        let blocks = (depth as i64 + i64::from(longer)).max(1);
        let work = |chain: &Chain, hash: &BlockHash| chain.nodes.world().tree.block(hash).held.chainwork;
        let ours = work(self, &tip);
        let mut mined = 0;
        while mined < blocks || (longer > 0 && work(self, &at) <= ours && mined < blocks + 40) {
            let mut wanted = vec![];
            for tx in &waiting {
                match fate.roll(5) {
                    0 => wanted.push(self.rival(tx, fate)),
                    1 => {}
                    _ => wanted.push(self.run_again(tx, fate)),
                }
            }
            wanted.retain(|_| fate.once_in(2));
            at = self.block(Template {
                parent: at,
                wanted,
                coinbase: None,
                work: 10,
            });
            mined += 1;
        }
        let is_midway = dice.once_in(8) && depth < height;
        match is_midway {
            // It goes there while it lists its mempool.
            true => self.nodes.world().node().faults.moves_to = Some(at),
            false => self.take(at, dice),
        }
        remember(&mut self.left, at);
        Some(format!("{depth} blocks lost to {mined}"))
    }
}

fn remember(left: &mut Vec<BlockHash>, tip: BlockHash) {
    left.retain(|kept| *kept != tip);
    left.push(tip);
    if left.len() > LEFT_MAX {
        left.remove(0);
    }
}
