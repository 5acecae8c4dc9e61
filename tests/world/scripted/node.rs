//! One node's view of the tree: what it knows, where its tip is, what lies in its mempool, and how it fails.

use super::evm::Finality;
use super::tree::{Tree, Tx};
use creditd::rules::{BlockHash, Txid};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How a node misbehaves. Counted in its answers; what is counted happens once.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The numbers of the calls that fail, counted by `Node::calls`.
    pub fails: BTreeSet<u64>,
    /// Every call fails.
    pub is_down: bool,
    /// Blocks that it says it does not know.
    pub unknown: BTreeSet<BlockHash>,
    /// Blocks whose header it has, without their content.
    pub missing: BTreeSet<BlockHash>,
    /// Blocks below this height are pruned.
    pub pruned_below: Option<u64>,
    /// It says itself that it catches up.
    pub is_syncing: bool,
    /// The tip that it moves to while it lists its mempool.
    pub moves_to: Option<BlockHash>,
    /// Listed transactions that cannot be fetched.
    pub unfetchable: BTreeSet<Txid>,
    /// Another network's genesis.
    pub other_genesis: Option<BlockHash>,
    /// All short hashes collide.
    pub is_noisy: bool,
    /// For so long it does not answer.
    pub hangs: Duration,
    /// Its lists are cut short: of hashes, and of what it shows of its mempool.
    pub truncates: bool,
    /// It was taken to a branch of its own.
    pub is_elsewhere: bool,
}

/// Its tip, how many blocks it has, and the headers that it has beside.
type Seen = (BlockHash, usize, BTreeSet<BlockHash>);

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    pub tip: BlockHash,
    /// Blocks that it has.
    pub known: BTreeSet<BlockHash>,
    /// Tips of branches of which it has the headers alone.
    pub headers_only: BTreeSet<BlockHash>,
    /// In order of arrival: parents before children.
    pub mempool: Vec<Arc<Tx>>,
    pub faults: Faults,
    pub calls: u64,
    /// How many hashes it has told.
    pub hashes_told: usize,
    /// The finality tags that it tells.
    pub finality: Finality,
    /// The answer of `better_fork`, and what it was worked out from.
    better: Option<(Seen, Option<u64>)>,
}

impl Node {
    pub fn new(genesis: BlockHash) -> Node {
        Node {
            tip: genesis,
            known: [genesis].into(),
            headers_only: BTreeSet::new(),
            mempool: vec![],
            faults: Faults::default(),
            calls: 0,
            hashes_told: 0,
            finality: Finality::default(),
            better: None,
        }
    }

    /// Takes the node to a tip, whatever its work: what lost its block goes back to the mempool where it
    /// still can.
    pub fn go_to(&mut self, tree: &Tree, tip: BlockHash) {
        let fork = tree.fork(&self.tip, &tip).height();
        let lost = tree.branch_from(&self.tip, fork + 1);
        let mut waiting: Vec<Arc<Tx>> = lost.iter().flat_map(|block| block.txs.clone()).collect();
        waiting.retain(|tx| !tx.is_coinbase);
        waiting.append(&mut self.mempool);
        if tree.is_evm {
            for block in &lost {
                self.known.remove(&block.hash());
            }
        }
        // It has all that its tip stands on.
        let new = tree.branch_from(&tip, fork + 1);
        self.known.extend(new.iter().map(|block| block.hash()));
        self.headers_only.retain(|hash| !self.known.contains(hash));
        self.tip = tip;
        let mut coins = tree.coins(&tip);
        for tx in waiting {
            if coins.allows(&tx) {
                coins.apply(&tx);
                self.mempool.push(tx);
            }
        }
    }

    /// Starts it anew from a folder that ends at `tip`: it never heard of anything else.
    pub fn restore(&mut self, tree: &Tree, tip: BlockHash) {
        let (calls, finality) = (self.calls, self.finality);
        *self = Node::new(tree.genesis());
        (self.calls, self.finality) = (calls, finality);
        self.go_to(tree, tip);
    }

    /// The height of the lowest fork with a branch of more work than the tip's that is known by its headers,
    /// or left.
    pub fn better_fork(&mut self, tree: &Tree) -> Option<u64> {
        // What it knows only grows while its tip stays.
        let at = (self.tip, self.known.len(), self.headers_only.clone());
        if let Some((_, fork)) = self.better.as_ref().filter(|(of, _)| *of == at) {
            return *fork;
        }
        let work = |hash: &BlockHash| tree.block(hash).held.chainwork;
        let ours = work(&self.tip);
        let better = self.known.iter().chain(&self.headers_only);
        let fork = better
            .filter(|hash| work(hash) > ours)
            .map(|hash| tree.fork(hash, &self.tip).height())
            .min();
        self.better = Some((at, fork));
        fork
    }

    /// Does it know the header?
    pub fn has_header(&self, tree: &Tree, hash: &BlockHash) -> bool {
        let is_below = |tip: &BlockHash| tree.is_on(hash, tip);
        !self.faults.unknown.contains(hash)
            && (self.known.contains(hash) || self.headers_only.iter().any(is_below))
    }

    /// Takes a transaction into the mempool; whatever conflicts with it leaves, with all that descends from
    /// it. False where the tip's coins do not allow it.
    pub fn accept(&mut self, tree: &Tree, tx: &Arc<Tx>) -> bool {
        let mut kept = self.mempool.clone();
        let losers: Vec<Arc<Tx>> = kept
            .iter()
            .filter(|other| tx.conflicts_with(other))
            .cloned()
            .collect();
        for loser in losers {
            remove_family(&mut kept, &loser.txid);
        }
        let mut coins = tree.coins(&self.tip);
        kept.iter().for_each(|other| coins.apply(other));
        if !coins.allows(tx) {
            return false;
        }
        kept.push(tx.clone());
        self.mempool = kept;
        true
    }

    /// Drops a transaction and all that descends from it.
    pub fn evict(&mut self, txid: &Txid) {
        remove_family(&mut self.mempool, txid);
    }
}

fn remove_family(mempool: &mut Vec<Arc<Tx>>, txid: &Txid) {
    let mut gone: BTreeSet<Txid> = [*txid].into();
    // Parents come before children, so one pass meets every descendant.
    for tx in mempool.iter() {
        if tx.inputs.iter().any(|input| gone.contains(&input.txid)) {
            gone.insert(tx.txid);
        }
    }
    mempool.retain(|tx| !gone.contains(&tx.txid));
}
