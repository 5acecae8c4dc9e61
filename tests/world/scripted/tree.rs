//! Blocks and transactions. Whoever mines is held to the rules of coins: inputs exist on the branch, and
//! nothing is spent twice on one branch.

use super::coins::{Coins, Sets};
use super::evm::Leg;
use super::near::Near;
use creditd::rules::{BlockHash, Header, HeldHeader, Outpoint, Script, Txid, Work};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Out {
    pub script: Script,
    pub amount: u64,
    /// On EVM chains: where in the transaction it stands, and what moves there.
    pub leg: Option<Leg>,
}

impl Out {
    pub fn new(script: Script, amount: u64) -> Out {
        Out {
            script,
            amount,
            leg: None,
        }
    }
}

/// A transaction; on EVM chains one run of it, which the next block that holds it may do otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tx {
    pub txid: Txid,
    pub is_coinbase: bool,
    pub inputs: Vec<Outpoint>,
    pub outputs: Vec<Out>,
    /// On EVM chains: who sent it.
    pub sender: Option<Script>,
    /// This run of it failed.
    pub is_failed: bool,
}

impl Tx {
    pub fn outpoint(&self, vout: u64) -> Outpoint {
        Outpoint {
            txid: self.txid,
            vout,
        }
    }

    pub fn conflicts_with(&self, other: &Tx) -> bool {
        self.txid != other.txid && self.inputs.iter().any(|input| other.inputs.contains(input))
    }
}

/// A block with its place.
#[derive(Debug)]
pub struct Block {
    pub held: HeldHeader,
    pub txs: Vec<Arc<Tx>>,
}

impl Block {
    pub fn hash(&self) -> BlockHash {
        self.held.header.hash
    }

    pub fn height(&self) -> u64 {
        self.held.height
    }
}

/// What a miner pays himself: nothing of ours, some outputs, or the coinbase of another block once more.
#[derive(Clone, Debug)]
pub enum Coinbase {
    Plain,
    Pays(Vec<Out>),
    Repeats(Arc<Tx>),
}

/// All blocks that anybody mined.
#[derive(Clone, Debug)]
pub struct Tree {
    blocks: BTreeMap<BlockHash, Arc<Block>>,
    genesis: BlockHash,
    counter: u64,
    /// The difficulty bits of blocks mined from now on; 0 = a chain without difficulty.
    pub bits: u32,
    /// Each block is one unit of work, there are no coinbases, and what is left is forgotten.
    pub is_evm: bool,
    /// The hashes from the first block to a tip, and the coins there: of the tips asked for last.
    paths: Near<Vec<BlockHash>>,
    coins: Near<Sets>,
}

/// The first bytes of transactions that no block of ours holds: coin from elsewhere, as much as anyone wants.
pub(super) const FOREIGN: [u8; 4] = [0xee; 4];

pub fn work(units: u64) -> Work {
    let mut bytes = [0; 32];
    bytes[24..].copy_from_slice(&units.to_be_bytes());
    Work::from_be_bytes(bytes)
}

impl Tree {
    pub fn new(name: &str) -> Tree {
        Tree::above(name, 0, 0)
    }

    /// A tree whose first block stands at a height, with these difficulty bits: what is below is nobody's
    /// business.
    pub fn above(name: &str, height: u64, bits: u32) -> Tree {
        let hash = BlockHash(Sha256::digest(name.as_bytes()).into());
        let header = Header {
            hash,
            parent: BlockHash([0; 32]),
            time_secs: 1_700_000_000,
            work: work(1),
            bits,
        };
        let held = HeldHeader {
            height,
            header,
            chainwork: work(1),
        };
        let genesis = Arc::new(Block { held, txs: vec![] });
        Tree {
            blocks: [(hash, genesis)].into(),
            genesis: hash,
            counter: 0,
            bits,
            is_evm: false,
            paths: Near::default(),
            coins: Near::default(),
        }
    }

    /// A tree of an EVM chain.
    pub fn evm(name: &str) -> Tree {
        Tree {
            is_evm: true,
            ..Tree::new(name)
        }
    }

    pub fn genesis(&self) -> BlockHash {
        self.genesis
    }

    pub fn blocks(&self) -> impl Iterator<Item = &Arc<Block>> {
        self.blocks.values()
    }

    pub fn block(&self, hash: &BlockHash) -> Arc<Block> {
        self.blocks[hash].clone()
    }

    pub fn id(&mut self, what: &str) -> [u8; 32] {
        self.counter += 1;
        Sha256::digest(format!("{}:{what}:{}", self.genesis, self.counter)).into()
    }

    /// A coin from elsewhere.
    pub fn coin(&mut self) -> Outpoint {
        let mut id = self.id("coin");
        id[..4].copy_from_slice(&FOREIGN);
        Outpoint {
            txid: Txid(id),
            vout: 0,
        }
    }

    /// A transaction that spends `inputs`.
    pub fn tx(&mut self, inputs: Vec<Outpoint>, outputs: Vec<Out>) -> Arc<Tx> {
        assert!(!inputs.is_empty() && !outputs.is_empty());
        Arc::new(Tx {
            txid: Txid(self.id("tx")),
            is_coinbase: false,
            inputs,
            outputs,
            sender: None,
            is_failed: false,
        })
    }

    /// A payment with a coin from elsewhere.
    pub fn pay(&mut self, outputs: Vec<Out>) -> Arc<Tx> {
        let coin = self.coin();
        self.tx(vec![coin], outputs)
    }

    /// Mines a block of work 10, on EVM chains 1.
    pub fn mine(&mut self, parent: BlockHash, txs: Vec<Arc<Tx>>) -> BlockHash {
        let units = if self.is_evm { 1 } else { 10 };
        self.mine_with(parent, txs, Coinbase::Plain, units)
    }

    /// Mines a block; breaks off where it would break the rules of coins.
    pub fn mine_with(
        &mut self,
        parent: BlockHash,
        txs: Vec<Arc<Tx>>,
        coinbase: Coinbase,
        units: u64,
    ) -> BlockHash {
        let below = self.block(&parent);
        self.check(&parent, &txs);
        let outputs = match &coinbase {
            Coinbase::Plain | Coinbase::Repeats(_) => vec![],
            Coinbase::Pays(outputs) => outputs.clone(),
        };
        let first = match coinbase {
            Coinbase::Repeats(tx) => tx,
            Coinbase::Plain | Coinbase::Pays(_) => Arc::new(Tx {
                txid: Txid(self.id("coinbase")),
                is_coinbase: true,
                inputs: vec![],
                outputs,
                sender: None,
                is_failed: false,
            }),
        };
        let hash = BlockHash(self.id("block"));
        let height = below.height() + 1;
        let header = Header {
            hash,
            parent,
            time_secs: 1_700_000_000 + height * 600,
            work: work(units),
            bits: self.bits,
        };
        let chainwork = below.held.chainwork.checked_add(work(units)).unwrap();
        let held = HeldHeader {
            height,
            header,
            chainwork,
        };
        let mut all = vec![first];
        all.retain(|_| !self.is_evm);
        all.extend(txs);
        self.blocks.insert(hash, Arc::new(Block { held, txs: all }));
        hash
    }

    /// Nodes show another content of a block from now on, as only a broken or lying one does.
    pub fn rewrite(&mut self, hash: &BlockHash, txs: Vec<Arc<Tx>>) {
        let held = self.block(hash).held;
        self.blocks.insert(*hash, Arc::new(Block { held, txs }));
        self.coins = Near::default();
    }

    /// Mines `count` empty blocks and returns the last.
    pub fn extend(&mut self, mut tip: BlockHash, count: usize) -> BlockHash {
        for _ in 0..count {
            tip = self.mine(tip, vec![]);
        }
        tip
    }

    /// The hashes from the first block to `tip`.
    pub fn path(&self, tip: &BlockHash) -> Arc<Vec<BlockHash>> {
        let mut above = vec![];
        let mut at = *tip;
        let below = loop {
            if let Some(path) = self.paths.get(&at) {
                break path;
            }
            above.push(at);
            match self.blocks.get(&self.blocks[&at].held.header.parent) {
                Some(below) => at = below.hash(),
                None => break Arc::default(),
            }
        };
        if above.is_empty() {
            return below;
        }
        let mut path = Vec::with_capacity(below.len() + above.len());
        path.extend(below.iter().chain(above.iter().rev()));
        self.paths.keep(*tip, Arc::new(path))
    }

    /// The place of a height in a [`path`](Tree::path).
    fn place(&self, height: u64) -> Option<usize> {
        let above = height.checked_sub(self.blocks[&self.genesis].height())?;
        usize::try_from(above).ok()
    }

    /// The blocks from genesis to `tip`.
    pub fn branch(&self, tip: &BlockHash) -> Vec<Arc<Block>> {
        self.path(tip).iter().map(|hash| self.block(hash)).collect()
    }

    /// The blocks of `tip`'s branch from a height on.
    pub fn branch_from(&self, tip: &BlockHash, height: u64) -> Vec<Arc<Block>> {
        let path = self.path(tip);
        let place = self.place(height).unwrap_or(0).min(path.len());
        path[place..].iter().map(|hash| self.block(hash)).collect()
    }

    pub fn is_on(&self, hash: &BlockHash, tip: &BlockHash) -> bool {
        self.blocks.get(hash).is_some_and(|block| {
            self.ancestor(tip, block.height())
                .is_some_and(|found| found == *hash)
        })
    }

    /// The block of `tip`'s branch at a height.
    pub fn ancestor(&self, tip: &BlockHash, height: u64) -> Option<BlockHash> {
        self.blocks.get(tip)?;
        self.path(tip).get(self.place(height)?).copied()
    }

    /// The highest block that two branches share.
    pub fn fork(&self, one: &BlockHash, other: &BlockHash) -> Arc<Block> {
        let (one, other) = (self.path(one), self.path(other));
        let mut at = one.len().min(other.len()) - 1;
        while one[at] != other[at] {
            at -= 1;
        }
        self.block(&one[at])
    }

    /// What can be spent on top of `tip`, and every txid on its branch.
    pub fn coins(&self, tip: &BlockHash) -> Coins {
        let path = self.path(tip);
        let kept = |at: &usize| self.coins.get(&path[*at]).map(|sets| (at + 1, sets));
        let kept = (0..path.len()).rev().find_map(|at| kept(&at));
        let (next, below) = kept.unwrap_or_default();
        let mut coins = Coins::on(below);
        for hash in &path[next..] {
            self.blocks[hash].txs.iter().for_each(|tx| coins.apply(tx));
        }
        Coins::on(self.coins.keep(*tip, coins.into_sets()))
    }

    fn check(&self, parent: &BlockHash, txs: &[Arc<Tx>]) {
        let mut coins = self.coins(parent);
        for tx in txs {
            assert!(coins.allows(tx), "{} cannot be mined here", tx.txid);
            coins.apply(tx);
        }
    }
}
