//! The chain: a tree of blocks, one of which is the tip because somebody says so, and the pool on top.
//! Start at [`Chain::build`] and [`Chain::set_tip`].

use super::frames::Frame;
use super::lag::Lag;
use super::pool::Pool;
use super::state::{Endowment, State};
use super::tx::{Address, Effects, Log, Nonce, Signed, Tx, digest};
use crate::clock::Clock;
use crate::rules::{BlockHash, Txid};
use crate::sandbox::SandboxError;
use ethers_core::abi::ethereum_types::{self, BloomInput};
use ruint::aliases::U256;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// When every chain here began (2024-01-01): two sandboxes with one chain id have one genesis block.
const GENESIS_SECS: u64 = 1_704_067_200;

/// The account that is rich from the start.
pub(super) const PAYER: &str = "payer";

/// 10^27 wei: a billion whole coins.
const PAYER_WEI: u128 = 1_000_000_000_000_000_000_000_000_000;

/// What a block's or a receipt's bloom is.
pub(super) type Bloom = [u8; 256];

/// A transaction in a block.
pub(super) struct Included {
    pub(super) tx: Arc<Signed>,
    pub(super) effects: Arc<Effects>,
    pub(super) index: usize,
    pub(super) gas_used: u64,
    /// With all before it in the block.
    pub(super) gas_used_so_far: u64,
    /// The number of its first log in the block.
    pub(super) first_log: usize,
    /// The movements of its coin, where the chain logs those.
    moved: Vec<Log>,
}

/// One block of the tree.
pub(super) struct Block {
    pub(super) hash: BlockHash,
    pub(super) parent: BlockHash,
    pub(super) number: u64,
    pub(super) timestamp: u64,
    pub(super) txs: Vec<Included>,
    /// Told by hand; else it follows from the logs.
    pub(super) bloom: Option<Box<Bloom>>,
    pub(super) state: Arc<State>,
}

impl Block {
    pub(super) fn gas_used(&self) -> u64 {
        self.txs.last().map_or(0, |last| last.gas_used_so_far)
    }

    /// The block's bloom: as told, or that of its logs.
    pub(super) fn bloom(&self) -> Bloom {
        match &self.bloom {
            Some(told) => **told,
            None => bloom_of(self.txs.iter().flat_map(Included::logs)),
        }
    }
}

/// The bloom of logs: their contracts and topics.
pub(super) fn bloom_of<'l>(logs: impl IntoIterator<Item = &'l Log>) -> Bloom {
    let mut bloom = ethereum_types::Bloom::zero();
    for log in logs {
        bloom.accrue(BloomInput::Raw(&log.address.0));
        for topic in &log.topics {
            bloom.accrue(BloomInput::Raw(topic));
        }
    }
    bloom.0
}

impl Included {
    /// A failed transaction leaves none, whatever it would have logged.
    pub(super) fn logs(&self) -> impl Iterator<Item = &Log> {
        let own: &[Log] = if self.effects.is_success {
            &self.effects.logs
        } else {
            &[]
        };
        self.moved.iter().chain(own)
    }
}

/// Every movement of coin that lasts as a log (<https://eips.ethereum.org/EIPS/eip-7708>).
/// Nothing tells between which calls its own logs are made, so these come before all of them.
fn moves_logged(tx: &Signed, effects: &Effects) -> Vec<Log> {
    let moves = Frame::of(tx, effects).movements().into_iter();
    let moves = moves.filter(|(from, to, value)| from != to && !value.is_zero());
    moves
        .map(|(from, to, value)| Log::transfer(Address::SYSTEM, from, to, value))
        .collect()
}

/// Where a tag stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// So many blocks below the tip.
    Behind(u64),
    /// At this height, or at the tip where that is lower.
    At(u64),
    /// Nowhere yet: the node knows no such block.
    Missing,
}

/// A token as its contract tells of itself.
#[derive(Clone, Debug)]
pub struct Token {
    /// What `decimals()` answers.
    pub decimals: u8,
    /// What `symbol()` answers.
    pub symbol: String,
}

/// Everything that the node knows.
pub(super) struct Chain {
    pub(super) chain_id: u64,
    pub(super) blocks: BTreeMap<BlockHash, Block>,
    /// The blocks up to the tip, by number.
    active: Vec<BlockHash>,
    /// In which of them a transaction is.
    places: BTreeMap<Txid, BlockHash>,
    pub(super) pool: Pool,
    /// Every transaction that was ever made here.
    known: BTreeMap<Txid, Arc<Signed>>,
    /// What each does in blocks that are still to come.
    effects: BTreeMap<Txid, Arc<Effects>>,
    endowment: Endowment,
    pub(super) tokens: BTreeMap<Address, Token>,
    pub(super) safe: Mark,
    pub(super) finalized: Mark,
    /// From which block on every movement of coin is logged.
    pub(super) logs_moves_from: Option<u64>,
    /// The height that the node says it is catching up to.
    pub(super) syncs_to: Option<u64>,
    /// Calls that the node is made to know nothing of.
    pub(super) hidden_calls: BTreeSet<String>,
    /// What a lagging node has forgotten meanwhile.
    pub(super) lag: Option<Lag>,
    serial: u64,
    clock: Clock,
}

impl Chain {
    /// A chain of the genesis block alone. The tags stand where Anvil has them.
    pub(super) fn new(chain_id: u64, instance: &str, clock: Clock) -> Chain {
        let parts: [&[u8]; 3] = [b"genesis", &chain_id.to_be_bytes(), instance.as_bytes()];
        let hash = BlockHash(digest(&parts));
        let genesis = Block {
            hash,
            parent: BlockHash([0; 32]),
            number: 0,
            timestamp: GENESIS_SECS,
            txs: Vec::new(),
            bloom: None,
            state: Arc::default(),
        };
        Chain::of(genesis, chain_id, clock)
    }

    fn of(genesis: Block, chain_id: u64, clock: Clock) -> Chain {
        Chain {
            chain_id,
            active: vec![genesis.hash],
            blocks: BTreeMap::from([(genesis.hash, genesis)]),
            places: BTreeMap::new(),
            pool: Pool::default(),
            known: BTreeMap::new(),
            effects: BTreeMap::new(),
            endowment: BTreeMap::from([(Address::of(PAYER), U256::from(PAYER_WEI))]),
            tokens: BTreeMap::new(),
            safe: Mark::Behind(32),
            finalized: Mark::Behind(64),
            logs_moves_from: None,
            syncs_to: None,
            hidden_calls: BTreeSet::new(),
            lag: None,
            serial: 0,
            clock,
        }
    }

    /// Knows nothing but its genesis block, as at the start.
    pub(super) fn begin_again(&mut self) {
        let genesis = self.active.first().and_then(|hash| self.blocks.remove(hash));
        if let Some(genesis) = genesis {
            *self = Chain::of(genesis, self.chain_id, self.clock);
        }
    }

    /// Gives the genesis block another hash; nothing is built on it yet.
    pub(super) fn begin_as(&mut self, hash: BlockHash) {
        let genesis = self
            .blocks
            .pop_first()
            .map(|(_, genesis)| Block { hash, ..genesis });
        self.blocks.extend(genesis.map(|genesis| (hash, genesis)));
        self.active = vec![hash];
    }

    // ---- what is known ----

    pub(super) fn block(&self, hash: &BlockHash) -> Option<&Block> {
        self.blocks.get(hash)
    }

    /// The block at a height below or at the tip.
    pub(super) fn at(&self, number: u64) -> Option<&Block> {
        self.blocks.get(self.active.get(usize::try_from(number).ok()?)?)
    }

    pub(super) fn tip(&self) -> &Block {
        let tip = self.active.last().and_then(|hash| self.blocks.get(hash));
        // The genesis block never leaves.
        tip.unwrap_or_else(|| unreachable!("a chain without a block"))
    }

    pub(super) fn is_active(&self, block: &Block) -> bool {
        self.at(block.number).is_some_and(|held| held.hash == block.hash)
    }

    /// The block that a tag names now.
    pub(super) fn marked(&self, mark: Mark) -> Option<&Block> {
        let tip = self.tip().number;
        match mark {
            Mark::Behind(blocks) => self.at(tip.saturating_sub(blocks)),
            Mark::At(number) => self.at(number.min(tip)),
            Mark::Missing => None,
        }
    }

    /// A transaction and its block, if it is in one up to the tip.
    pub(super) fn mined(&self, hash: &Txid) -> Option<(&Block, &Included)> {
        let block = self.block(self.places.get(hash)?)?;
        let included = block.txs.iter().find(|included| included.tx.hash == *hash)?;
        Some((block, included))
    }

    pub(super) fn balance(&self, state: &State, of: Address) -> U256 {
        state.balance(of, &self.endowment)
    }

    /// Gives an account coin that it always had, at every block.
    pub(super) fn endow(&mut self, account: Address, wei: U256) {
        let held = self.endowment.entry(account).or_default();
        *held = held.saturating_add(wei);
    }

    // ---- transactions ----

    /// Takes note of a transaction that only a block can bring.
    pub(super) fn prepare(&mut self, tx: Tx) -> Txid {
        self.serial += 1;
        let nonce = match tx.nonce {
            Nonce::Next => Some(self.pool.next_nonce(tx.from, &self.tip().state)),
            Nonce::Given(nonce) => Some(nonce),
            Nonce::Absent => None,
        };
        let effects = Arc::new(tx.effects.clone());
        let signed = Signed::new(self.chain_id, tx, nonce, self.serial);
        let hash = signed.hash;
        self.known.insert(hash, Arc::new(signed));
        self.effects.insert(hash, effects);
        hash
    }

    /// The same under another id.
    pub(super) fn prepare_as(&mut self, tx: Tx, txid: Txid) {
        let hash = self.prepare(tx);
        let known = self.known.remove(&hash).and_then(Arc::into_inner);
        self.known
            .extend(known.map(|signed| (txid, Arc::new(Signed { hash: txid, ..signed }))));
        let effects = self.effects.remove(&hash);
        self.effects.extend(effects.map(|effects| (txid, effects)));
    }

    /// Puts a known transaction into the pool.
    pub(super) fn put(&mut self, hash: &Txid) -> Result<(), SandboxError> {
        let (tx, effects) = self.known(hash)?;
        let state = self.tip().state.clone();
        let cost = tx.fee(&effects).saturating_add(tx.tx.value);
        if tx.nonce.is_some() && self.balance(&state, tx.tx.from) < cost {
            return Err(SandboxError::Funds);
        }
        self.pool.put(tx, &state)
    }

    /// Says what a transaction does in the blocks to come.
    pub(super) fn set_effects(&mut self, hash: &Txid, effects: Effects) -> Result<(), SandboxError> {
        self.known(hash)?;
        self.effects.insert(*hash, Arc::new(effects));
        Ok(())
    }

    pub(super) fn known(&self, hash: &Txid) -> Result<(Arc<Signed>, Arc<Effects>), SandboxError> {
        let tx = self.known.get(hash).cloned();
        let effects = self.effects.get(hash).cloned();
        tx.zip(effects)
            .ok_or_else(|| SandboxError::Unknown(hash.to_string()))
    }

    // ---- blocks ----

    /// A block on any block with exactly these transactions, not yet in the tree.
    pub(super) fn build(&self, parent: &BlockHash, txids: &[Txid]) -> Result<Block, SandboxError> {
        let mut block = self.empty(parent)?;
        for txid in txids {
            self.add(&mut block, txid)?;
        }
        Ok(self.sealed(block))
    }

    /// The block that the pool would make: whatever cannot run now waits on.
    pub(super) fn next_block(&self) -> Result<Block, SandboxError> {
        let mut block = self.empty(&self.tip().hash)?;
        for tx in self.pool.ready(&self.tip().state) {
            let _ = self.add(&mut block, &tx.hash);
        }
        Ok(self.sealed(block))
    }

    fn empty(&self, parent: &BlockHash) -> Result<Block, SandboxError> {
        let Some(below) = self.block(parent) else {
            return Err(SandboxError::Unknown(parent.to_string()));
        };
        let now = u64::try_from(self.clock.now_ms() / 1_000).unwrap_or(0);
        Ok(Block {
            hash: BlockHash([0; 32]),
            parent: *parent,
            number: below.number + 1,
            timestamp: now.max(below.timestamp + 1),
            txs: Vec::new(),
            bloom: None,
            state: below.state.clone(),
        })
    }

    fn add(&self, block: &mut Block, txid: &Txid) -> Result<(), SandboxError> {
        let (tx, effects) = self.known(txid)?;
        Arc::make_mut(&mut block.state).run(&tx, &effects, &self.endowment)?;
        let gas_used = Signed::gas_used(&effects);
        let first_log = block.txs.iter().map(|before| before.logs().count()).sum();
        let logs_moves = self.logs_moves_from.is_some_and(|from| from <= block.number);
        let moved = match logs_moves {
            true => moves_logged(&tx, &effects),
            false => Vec::new(),
        };
        block.txs.push(Included {
            index: block.txs.len(),
            gas_used,
            gas_used_so_far: block.gas_used() + gas_used,
            first_log,
            moved,
            tx,
            effects,
        });
        Ok(())
    }

    /// With its hash. The serial makes two blocks of one height and second two blocks.
    fn sealed(&self, mut block: Block) -> Block {
        let txids: Vec<u8> = block.txs.iter().flat_map(|held| held.tx.hash.0).collect();
        block.hash = BlockHash(digest(&[
            b"block",
            &block.parent.0,
            &block.number.to_be_bytes(),
            &block.timestamp.to_be_bytes(),
            &self.serial.to_be_bytes(),
            &txids,
        ]));
        block
    }

    /// Takes a block into the tree. The tip stays where it is.
    pub(super) fn insert(&mut self, block: Block) -> BlockHash {
        let hash = block.hash;
        self.serial += 1;
        self.blocks.insert(hash, block);
        hash
    }

    /// The same under another hash.
    pub(super) fn insert_as(&mut self, block: Block, hash: BlockHash) {
        self.insert(Block { hash, ..block });
    }

    /// Goes to any block. What was in blocks that are left goes back to the pool, unless its nonce is spent
    /// on the new branch or taken by another that waits.
    pub(super) fn set_tip(&mut self, hash: &BlockHash) -> Result<(), SandboxError> {
        let mut path = Vec::new();
        let mut at = self.block(hash);
        while let Some(block) = at
            && !self.is_active(block)
        {
            path.push(block.hash);
            at = self.block(&block.parent);
        }
        let Some(fork) = at.map(|block| block.number) else {
            return Err(SandboxError::Unknown(hash.to_string()));
        };
        let kept = usize::try_from(fork).unwrap_or(usize::MAX).saturating_add(1);
        let left = self.active.split_off(kept.min(self.active.len()));
        let mut returned = Vec::new();
        for block in left.iter().filter_map(|hash| self.blocks.get(hash)) {
            for held in &block.txs {
                self.places.remove(&held.tx.hash);
                returned.extend(held.tx.nonce.map(|_| held.tx.clone()));
            }
        }
        for hash in path.into_iter().rev() {
            let txs = self.blocks.get(&hash).map(|block| block.txs.iter());
            let places = txs.into_iter().flatten().map(|held| (held.tx.hash, hash));
            self.places.extend(places);
            self.active.push(hash);
        }
        let state = self.tip().state.clone();
        for tx in returned {
            let _ = self.pool.put(tx, &state);
        }
        self.pool.prune(&state, |hash| self.places.contains_key(hash));
        Ok(())
    }

    /// Forgets every block that does not lead to the tip.
    pub(super) fn forget_branches(&mut self) {
        let active: BTreeSet<BlockHash> = self.active.iter().copied().collect();
        self.blocks.retain(|hash, _| active.contains(hash));
    }

    /// Replaces the last `depth` blocks by `depth + 1` others, the first with the transactions `keep`.
    pub(super) fn reorg(&mut self, depth: u64, keep: &[Txid]) -> Result<BlockHash, SandboxError> {
        let tip = self.tip().number;
        let Some(fork) = tip.checked_sub(depth).and_then(|number| self.at(number)) else {
            return Err(SandboxError::Refused(format!(
                "a reorg of {depth} blocks at height {tip}"
            )));
        };
        let first = self.build(&fork.hash, keep)?;
        let mut parent = self.insert(first);
        for _ in 0..depth {
            let block = self.build(&parent, &[])?;
            parent = self.insert(block);
        }
        self.set_tip(&parent)?;
        Ok(parent)
    }

    /// Says what a block's bloom is.
    pub(super) fn set_bloom(&mut self, hash: &BlockHash, bloom: Bloom) -> Result<(), SandboxError> {
        match self.blocks.get_mut(hash) {
            Some(block) => block.bloom = Some(Box::new(bloom)),
            None => return Err(SandboxError::Unknown(hash.to_string())),
        }
        Ok(())
    }
}
