//! The chain: a tree of blocks by work, the coins of its best branch, and the mempool on top. Rules are those
//! of regtest without scripts: anybody's coin can be spent, once, and a block reward after 100 more blocks.
//! Start at [`Chain::submit`] and [`Chain::activate`].

use super::SandboxError;
use super::encode::{Header, Output, Tx};
use super::mempool::Mempool;
use crate::clock::Clock;
use crate::rules::{BlockHash, Outpoint, Txid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A block reward may be spent in the 100th block after its own.
const MATURITY: u32 = 100;

/// Regtest halves the subsidy every 150 blocks.
const HALVING_BLOCKS: u32 = 150;

/// A node whose tip is older has not caught up yet; once it has, it never goes back to that.
const IBD_AGE_SECS: u32 = 24 * 60 * 60;

/// One block of the tree.
pub(super) struct Block {
    pub(super) header: Header,
    pub(super) hash: BlockHash,
    pub(super) height: u32,
    pub(super) txs: Vec<Arc<Tx>>,
    /// The n-th block that came; between branches of equal work the earlier one stays.
    arrival: u64,
    is_invalid: bool,
    /// It was on the best chain once, so all of its transactions are known to be good.
    was_active: bool,
    /// The coins that it spends, while it is on the best chain.
    spent: Vec<(Outpoint, Coin)>,
}

impl Block {
    /// Was it on the best chain ever? Only then is it known what it spends.
    pub(super) fn was_active(&self) -> bool {
        self.was_active
    }

    /// A coin that it spends, while it is on the best chain.
    pub(super) fn spent(&self, outpoint: &Outpoint) -> Option<&Coin> {
        let spent = self.spent.iter().find(|(spent, _)| spent == outpoint);
        spent.map(|(_, coin)| coin)
    }
}

/// An output that can be spent.
#[derive(Clone)]
pub(super) struct Coin {
    pub(super) sat: u64,
    pub(super) script: Vec<u8>,
    pub(super) height: u32,
    pub(super) is_coinbase: bool,
}

impl Coin {
    /// May it be spent in the block at `height`?
    pub(super) fn is_mature(&self, height: u32) -> bool {
        !self.is_coinbase || height.saturating_sub(self.height) >= MATURITY
    }
}

/// What `getchaintips` says of a branch.
pub(super) struct BranchTip {
    pub(super) hash: BlockHash,
    pub(super) height: u32,
    pub(super) branch_length: u32,
    pub(super) status: &'static str,
}

/// The last block that a lagging node knows.
struct Last {
    hash: BlockHash,
    height: u32,
    arrival: u64,
}

/// Everything that the node knows.
pub(super) struct Chain {
    blocks: BTreeMap<BlockHash, Block>,
    /// The best chain by height.
    active: Vec<BlockHash>,
    pub(super) coins: BTreeMap<Outpoint, Coin>,
    pub(super) mempool: Mempool,
    /// Every transaction that was ever made here.
    pub(super) txs: BTreeMap<Txid, Arc<Tx>>,
    arrivals: u64,
    /// The node lags behind its network: nothing is known but this block and what came before it, below it.
    lags_at: Option<Last>,
    is_in_initial_download: bool,
    clock: Clock,
}

impl Chain {
    /// A chain of the genesis block alone.
    pub(super) fn new(clock: Clock) -> Chain {
        let header = Header::genesis();
        let hash = header.hash();
        let genesis = Block {
            header,
            hash,
            height: 0,
            txs: vec![Arc::new(Tx::genesis())],
            arrival: 0,
            is_invalid: false,
            was_active: true,
            spent: Vec::new(),
        };
        Chain {
            blocks: BTreeMap::from([(hash, genesis)]),
            active: vec![hash],
            // The reward of the genesis block can never be spent.
            coins: BTreeMap::new(),
            mempool: Mempool::default(),
            txs: BTreeMap::new(),
            arrivals: 0,
            lags_at: None,
            is_in_initial_download: true,
            clock,
        }
    }

    /// Knows nothing but the genesis block, as at the start.
    pub(super) fn begin_again(&mut self) {
        *self = Chain::new(self.clock);
    }

    // ---- what is known ----

    pub(super) fn block(&self, hash: &BlockHash) -> Option<&Block> {
        self.blocks.get(hash).filter(|block| self.is_known(block))
    }

    fn is_known(&self, block: &Block) -> bool {
        self.lags_at.as_ref().is_none_or(|last| {
            // A branch that gave way came before it, and may be as high or higher.
            block.hash == last.hash || (block.arrival < last.arrival && block.height < last.height)
        })
    }

    /// The block of the best chain at a height.
    pub(super) fn at(&self, height: u32) -> Option<&Block> {
        self.blocks.get(self.active.get(height as usize)?)
    }

    pub(super) fn tip(&self) -> &Block {
        let tip = self.active.last().and_then(|hash| self.blocks.get(hash));
        // The genesis block is never disconnected.
        tip.unwrap_or_else(|| unreachable!("a chain without a block"))
    }

    pub(super) fn is_active(&self, block: &Block) -> bool {
        self.at(block.height).is_some_and(|held| held.hash == block.hash)
    }

    pub(super) fn is_in_initial_download(&self) -> bool {
        self.is_in_initial_download
    }

    /// The height of the best header that is not known to be invalid.
    pub(super) fn best_header_height(&self) -> u32 {
        let good = self.known_blocks().filter(|block| !block.is_invalid);
        good.map(|block| block.height).max().unwrap_or(0)
    }

    fn known_blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.values().filter(|block| self.is_known(block))
    }

    /// The ends of all branches, the highest first.
    pub(super) fn branch_tips(&self) -> Vec<BranchTip> {
        let parents: BTreeSet<BlockHash> = self.known_blocks().map(|block| block.header.parent).collect();
        let ends = self
            .known_blocks()
            .filter(|block| block.hash == self.tip().hash || !parents.contains(&block.hash));
        let mut tips: Vec<BranchTip> = ends.map(|block| self.branch_tip(block)).collect();
        tips.sort_by_key(|tip| std::cmp::Reverse(tip.height));
        tips
    }

    fn branch_tip(&self, block: &Block) -> BranchTip {
        let status = match block {
            _ if block.hash == self.tip().hash => "active",
            Block { is_invalid: true, .. } => "invalid",
            Block { was_active: true, .. } => "valid-fork",
            Block { .. } => "valid-headers",
        };
        BranchTip {
            hash: block.hash,
            height: block.height,
            branch_length: block.height - self.fork_height(block),
            status,
        }
    }

    /// The height of the last block that a branch shares with the best chain.
    fn fork_height(&self, block: &Block) -> u32 {
        let mut at = block;
        while !self.is_active(at) {
            match self.blocks.get(&at.header.parent) {
                Some(parent) => at = parent,
                None => return 0,
            }
        }
        at.height
    }

    /// The median of the last eleven times: a block's time must be later than its parent's median.
    pub(super) fn median_time(&self, hash: &BlockHash) -> u32 {
        let mut times = Vec::new();
        let mut at = self.blocks.get(hash);
        while let Some(block) = at
            && times.len() < 11
        {
            times.push(block.header.time);
            at = self.blocks.get(&block.header.parent);
        }
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or(0)
    }

    /// Unix time as headers have it.
    pub(super) fn now_secs(&self) -> u32 {
        u32::try_from(self.clock.now_ms() / 1_000).unwrap_or(u32::MAX)
    }

    /// What a transaction pays to whoever mines it.
    pub(super) fn fee(&self, tx: &Tx) -> u64 {
        let spent = tx.inputs.iter().filter_map(|input| {
            let made_by = self.txs.get(&input.spends.txid)?;
            Some(made_by.outputs.get(usize::try_from(input.spends.vout).ok()?)?.sat)
        });
        let paid: u64 = tx.outputs.iter().map(|output| output.sat).sum();
        spent.sum::<u64>().saturating_sub(paid)
    }

    // ---- blocks ----

    /// Builds a block on any block, with these transactions in this order.
    pub(super) fn build(
        &self,
        parent: &BlockHash,
        txs: &[Arc<Tx>],
        pays_to: &[u8],
    ) -> Result<(Header, Vec<Arc<Tx>>), SandboxError> {
        let Some(below) = self.block(parent) else {
            return Err(SandboxError::Unknown(parent.to_string()));
        };
        let height = below.height + 1;
        let others: Vec<&Tx> = txs.iter().map(AsRef::as_ref).collect();
        let fees: u64 = others.iter().map(|tx| self.fee(tx)).sum();
        let reward = Output {
            sat: (5_000_000_000_u64 >> (height / HALVING_BLOCKS).min(63)) + fees,
            script: pays_to.to_vec(),
        };
        // Two blocks of one height and second are still two blocks.
        let extra = u32::try_from(self.arrivals).unwrap_or(u32::MAX);
        let coinbase = Arc::new(Tx::coinbase(height, extra, reward, &others));
        let mut all = vec![coinbase];
        all.extend_from_slice(txs);
        let refs: Vec<&Tx> = all.iter().map(AsRef::as_ref).collect();
        let time = self.now_secs().max(self.median_time(parent) + 1);
        Ok((Header::mined(*parent, time, &refs), all))
    }

    /// Takes a block of [`Chain::build`] into the tree, and goes to it where it makes the best branch.
    pub(super) fn submit(&mut self, header: Header, txs: Vec<Arc<Tx>>) -> Result<BlockHash, SandboxError> {
        let hash = header.hash();
        let Some(height) = self.block(&header.parent).map(|parent| parent.height + 1) else {
            return Err(SandboxError::Unknown(header.parent.to_string()));
        };
        for tx in &txs {
            self.txs.entry(tx.txid).or_insert_with(|| tx.clone());
        }
        self.arrivals += 1;
        let is_invalid = self
            .blocks
            .get(&header.parent)
            .is_some_and(|parent| parent.is_invalid);
        let block = Block {
            header,
            hash,
            height,
            txs,
            arrival: self.arrivals,
            is_invalid,
            was_active: false,
            spent: Vec::new(),
        };
        self.blocks.insert(hash, block);
        match self.activate() {
            Some((broken, why)) if broken == hash => {
                // A miner would have noticed before, so nobody ever saw it.
                self.blocks.remove(&hash);
                Err(SandboxError::Refused(why))
            }
            _ => Ok(hash),
        }
    }

    /// Marks a block and all that build on it.
    pub(super) fn invalidate(&mut self, hash: &BlockHash) -> Result<(), SandboxError> {
        if self.block(hash).is_none_or(|block| block.height == 0) {
            return Err(SandboxError::Unknown(hash.to_string()));
        }
        self.mark(hash, true);
        self.activate();
        Ok(())
    }

    /// Takes the mark off a block, all that build on it and all that it builds on.
    pub(super) fn reconsider(&mut self, hash: &BlockHash) -> Result<(), SandboxError> {
        if self.block(hash).is_none() {
            return Err(SandboxError::Unknown(hash.to_string()));
        }
        self.mark(hash, false);
        let mut below = *hash;
        while let Some(block) = self.blocks.get_mut(&below) {
            block.is_invalid = false;
            below = block.header.parent;
        }
        self.activate();
        Ok(())
    }

    fn mark(&mut self, from: &BlockHash, is_invalid: bool) {
        let mut open = vec![*from];
        while let Some(hash) = open.pop() {
            if let Some(block) = self.blocks.get_mut(&hash) {
                block.is_invalid = is_invalid;
            }
            let above = self.blocks.values().filter(|block| block.header.parent == hash);
            open.extend(above.map(|block| block.hash));
        }
    }

    /// Goes back to this height of the best chain and forgets what came after that block, and all that is as
    /// high on other branches, until [`Chain::catch_up`].
    pub(super) fn lag_at(&mut self, height: u32) {
        self.lags_at = self.at(height).map(|block| Last {
            hash: block.hash,
            height: block.height,
            arrival: block.arrival,
        });
        self.activate();
    }

    /// Knows all blocks again.
    pub(super) fn catch_up(&mut self) {
        self.lags_at = None;
        self.activate();
    }

    pub(super) fn is_lagging(&self) -> bool {
        self.lags_at.is_some()
    }

    /// Goes to the branch with the most work. Returns a block that proved to be broken on the way.
    fn activate(&mut self) -> Option<(BlockHash, String)> {
        let mut returned = Vec::new();
        let mut broken = None;
        while let Some(best) = self.best_branch() {
            if let Err((hash, why)) = self.switch_to(best, &mut returned) {
                self.mark(&hash, true);
                broken = Some((hash, why));
            }
        }
        // Those of the lowest disconnected block come first: the order in which they depend on each other.
        returned.reverse();
        let lists: Vec<Arc<Tx>> = returned
            .into_iter()
            .flatten()
            .chain(self.mempool.take())
            .collect();
        for tx in lists {
            let _ = self.accept(tx);
        }
        let is_fresh = self.tip().header.time.saturating_add(IBD_AGE_SECS) >= self.now_secs();
        self.is_in_initial_download &= !is_fresh;
        broken
    }

    /// The end of a better branch than the active one. Every block has the same work, so height decides.
    fn best_branch(&self) -> Option<BlockHash> {
        let good = self.known_blocks().filter(|block| !block.is_invalid);
        let best = good.max_by_key(|block| (block.height, std::cmp::Reverse(block.arrival)))?;
        (best.hash != self.tip().hash).then_some(best.hash)
    }

    /// Disconnects down to the fork point and connects up to `target`. The transactions of disconnected
    /// blocks are `returned`, the highest block first.
    fn switch_to(
        &mut self,
        target: BlockHash,
        returned: &mut Vec<Vec<Arc<Tx>>>,
    ) -> Result<(), (BlockHash, String)> {
        let mut path = Vec::new();
        let mut at = target;
        while let Some(block) = self.blocks.get(&at)
            && !self.is_active(block)
        {
            path.push(at);
            at = block.header.parent;
        }
        while self.tip().hash != at {
            returned.push(self.disconnect());
        }
        for hash in path.into_iter().rev() {
            self.connect(hash).map_err(|why| (hash, why))?;
        }
        Ok(())
    }

    fn connect(&mut self, hash: BlockHash) -> Result<(), String> {
        let Some(block) = self.blocks.get(&hash) else {
            return Err("unknown".to_owned());
        };
        let (txs, height) = (block.txs.clone(), block.height);
        let mut spent = Vec::new();
        for (done, tx) in txs.iter().enumerate() {
            for input in tx.inputs.iter().filter(|_| !tx.is_coinbase) {
                let coin = self.coins.remove(&input.spends);
                let is_mature = coin.as_ref().is_some_and(|coin| coin.is_mature(height));
                spent.extend(coin.map(|coin| (input.spends, coin)));
                if !is_mature {
                    self.undo(&txs[..done], spent);
                    return Err(format!("{} spends what it cannot: {}", tx.txid, input.spends));
                }
            }
            self.coins.extend(coins_of(tx, height));
        }
        if let Some(block) = self.blocks.get_mut(&hash) {
            block.spent = spent;
            block.was_active = true;
        }
        self.active.push(hash);
        Ok(())
    }

    fn disconnect(&mut self) -> Vec<Arc<Tx>> {
        let tip = self.active.pop().and_then(|hash| self.blocks.get_mut(&hash));
        let Some(block) = tip else {
            return Vec::new();
        };
        let (spent, txs) = (std::mem::take(&mut block.spent), block.txs.clone());
        self.undo(&txs, spent);
        txs.into_iter().skip(1).collect()
    }

    /// Gives back what was spent, then takes away what was made: a coin that the block made and spent goes.
    fn undo(&mut self, txs: &[Arc<Tx>], spent: Vec<(Outpoint, Coin)>) {
        self.coins.extend(spent);
        for tx in txs {
            for (outpoint, _) in coins_of(tx, 0) {
                self.coins.remove(&outpoint);
            }
        }
    }
}

/// What can be spent of a transaction: data outputs cannot.
fn coins_of(tx: &Tx, height: u32) -> impl Iterator<Item = (Outpoint, Coin)> {
    let outputs = (0_u64..).zip(&tx.outputs);
    let spendable = outputs.filter(|(_, output)| output.script.first() != Some(&0x6a));
    spendable.map(move |(vout, output)| {
        let coin = Coin {
            sat: output.sat,
            script: output.script.clone(),
            height,
            is_coinbase: tx.is_coinbase,
        };
        let txid = tx.txid;
        (Outpoint { txid, vout }, coin)
    })
}
