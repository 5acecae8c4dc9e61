//! A chain whose blocks pay accounts, in the open and by contracts, and a node of it that tells balances.

use creditd::chain::{ChainSource, HeaderInfo, Help, Identity, NodeTip, SourceError};
use creditd::clock::Clock;
use creditd::index::{Index, short};
use creditd::rules::position::Position;
use creditd::rules::{
    Amount, Asset, BlockHash, CandidateOutput, CandidateTx, ChainId, Header, HeldHeader, MempoolList,
    ScannedBlock, Script, TaggedBlock, Tags, Txid, Work,
};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How an account's balance changes.
#[derive(Clone, Debug)]
pub enum Move {
    /// A transaction pays it.
    Paid(Script, u64),
    /// A contract pays it inside a transaction.
    Inner(Script, u64),
    /// Its owner pays somebody.
    Left(Script, u64),
}

use Move::{Inner, Left, Paid};

#[derive(Clone, Debug)]
pub struct Block {
    header: Header,
    moves: Vec<Move>,
}

pub struct World {
    blocks: Vec<Block>,
    /// Blocks that were replaced are other blocks.
    branch: u8,
    /// So far behind the tip is the final block; `None` = the node has no such tag.
    pub lag: Option<u64>,
    /// The node has the state of so many blocks.
    pub states: u64,
    /// The node refuses to tell balances.
    pub is_mute: bool,
    /// An answer takes so long.
    pub pause: Duration,
    /// Inner payments are seen.
    pub is_traced: bool,
    /// How many balances were asked for, in each exchange.
    pub asked: Vec<usize>,
}

impl World {
    fn tip(&self) -> u64 {
        self.blocks.len() as u64 - 1
    }

    fn height_of(&self, hash: BlockHash) -> Option<u64> {
        let found = self.blocks.iter().position(|block| block.header.hash == hash);
        found.map(|height| height as u64)
    }

    fn balance(&self, hash: BlockHash, account: &Script) -> Option<Amount> {
        let height = self.height_of(hash)?;
        if height + self.states <= self.tip() {
            return None;
        }
        let mut balance = 1_000_000;
        for moved in self.blocks[..=height as usize]
            .iter()
            .flat_map(|block| &block.moves)
        {
            match moved {
                Paid(to, amount) | Inner(to, amount) if to == account => balance += amount,
                Left(from, amount) if from == account => balance -= amount,
                _ => {}
            }
        }
        Some(Amount::from_u64(balance))
    }

    pub fn mine(&mut self, moves: &[Move]) {
        let height = self.blocks.len();
        let mut hash = [self.branch; 32];
        hash[..8].copy_from_slice(&(height as u64 + 1).to_be_bytes());
        let parent = self
            .blocks
            .last()
            .map_or(BlockHash([0; 32]), |block| block.header.hash);
        let header = Header {
            hash: BlockHash(hash),
            parent,
            time_secs: 1_700_000_000 + height as u64,
            work: Work::from_u64(1),
            bits: 0,
        };
        self.blocks.push(Block {
            header,
            moves: moves.to_vec(),
        });
    }

    pub fn mine_empty(&mut self, count: usize) {
        (0..count).for_each(|_| self.mine(&[]));
    }

    /// Takes `count` blocks away; what is mined from now on is another branch.
    pub fn go_back(&mut self, count: usize) {
        self.blocks.truncate(self.blocks.len() - count);
        self.branch += 1;
    }

    fn candidates(&self, block: &Block, index: &Index) -> Vec<CandidateTx> {
        let mut txs = Vec::new();
        for (number, moved) in block.moves.iter().enumerate() {
            let (to, amount, position) = match moved {
                Paid(to, amount) => (to, amount, Position::Native),
                Inner(to, amount) if self.is_traced => (to, amount, Position::Inner(0)),
                Inner(..) | Left(..) => continue,
            };
            if !index.may_hold_script(short(&to.0)) {
                continue;
            }
            let mut txid = block.header.hash.0;
            txid[31] = number as u8;
            txs.push(CandidateTx {
                txid: Txid(txid),
                is_coinbase: false,
                sender: Some(Script([0xaa; 20].into())),
                is_failed: false,
                inputs: Vec::new(),
                outputs: vec![CandidateOutput {
                    vout: position.number(0).unwrap(),
                    script: to.clone(),
                    asset: Asset::Native,
                    amount: Amount::from_u64(*amount),
                    from: Some(Script([0xbb; 20].into())),
                    doubt: None,
                }],
                ancestors: Vec::new(),
            });
        }
        txs
    }
}

#[derive(Clone)]
pub struct Bank {
    world: Arc<Mutex<World>>,
    clock: Clock,
}

impl Bank {
    /// A chain of one block.
    pub fn new(clock: Clock) -> Bank {
        let mut world = World {
            blocks: Vec::new(),
            branch: 1,
            lag: Some(4),
            states: 128,
            is_mute: false,
            pause: Duration::ZERO,
            is_traced: false,
            asked: Vec::new(),
        };
        world.mine(&[]);
        Bank {
            world: Arc::new(Mutex::new(world)),
            clock,
        }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub fn tip_hash(&self) -> BlockHash {
        let world = self.world();
        world.blocks[world.blocks.len() - 1].header.hash
    }

    pub fn id() -> ChainId {
        ChainId::evm(7, Some("bank"))
    }
}

fn held(height: u64, header: Header) -> HeldHeader {
    HeldHeader {
        height,
        header,
        chainwork: Work::from_u64(height + 1),
    }
}

impl ChainSource for Bank {
    type Raw = Block;

    async fn identity(&self) -> Result<Identity, SourceError> {
        Ok(Identity {
            chain: Bank::id(),
            genesis: self.world().blocks[0].header.hash,
            software: "bank".to_owned(),
            unlisted: Vec::new(),
        })
    }

    async fn tip(&self) -> Result<NodeTip, SourceError> {
        let world = self.world();
        let height = world.tip();
        let header = world.blocks[height as usize].header;
        let last = world
            .lag
            .and_then(|lag| height.checked_sub(lag))
            .map(|height| TaggedBlock {
                height,
                hash: world.blocks[height as usize].header.hash,
            });
        Ok(NodeTip {
            hash: header.hash,
            height,
            chainwork: Work::from_u64(height + 1),
            time_secs: header.time_secs,
            is_syncing: false,
            headers: height,
            pruned_below: None,
            credit_ceiling: None,
            tags: Tags {
                safe: last,
                finalized: last,
            },
        })
    }

    async fn header(&self, hash: BlockHash) -> Result<Option<HeaderInfo>, SourceError> {
        let world = self.world();
        Ok(world.height_of(hash).map(|height| HeaderInfo {
            held: held(height, world.blocks[height as usize].header),
            is_active: true,
        }))
    }

    async fn hashes(&self, height: u64, count: usize) -> Result<Vec<BlockHash>, SourceError> {
        let world = self.world();
        let from = world.blocks.iter().skip(height as usize).take(count);
        Ok(from.map(|block| block.header.hash).collect())
    }

    async fn fetch(&self, hash: BlockHash) -> Result<Block, SourceError> {
        let world = self.world();
        let height = world.height_of(hash).ok_or(SourceError::UnknownBlock(hash))?;
        Ok(world.blocks[height as usize].clone())
    }

    async fn scan(&self, _: BlockHash, raw: &Block, index: &Index) -> Result<ScannedBlock, SourceError> {
        let output_shorts = raw.moves.iter().map(|moved| match moved {
            Paid(to, _) | Inner(to, _) | Left(to, _) => short(&to.0),
        });
        Ok(ScannedBlock {
            header: raw.header,
            version: index.version(),
            txs: self.world().candidates(raw, index),
            output_shorts: output_shorts.collect(),
        })
    }

    async fn mempool(&self, _: &Index) -> Result<Option<MempoolList>, SourceError> {
        Ok(None)
    }

    async fn balances(&self, asked: &[(BlockHash, Script)]) -> Result<Vec<Option<Amount>>, SourceError> {
        let pause = self.world().pause;
        self.clock.sleep(pause).await;
        let mut world = self.world();
        world.asked.push(asked.len());
        if world.is_mute {
            return Err(SourceError::Unreachable {
                doing: "ask for balances".to_owned(),
                why: "not today".to_owned(),
                help: Help::Node,
                source: None,
            });
        }
        Ok(asked
            .iter()
            .map(|(hash, account)| world.balance(*hash, account))
            .collect())
    }

    async fn wait(&self, _: BlockHash, span: Duration) {
        self.clock.sleep(span).await;
    }
}
