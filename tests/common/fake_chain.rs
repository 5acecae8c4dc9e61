//! A Bitcoin chain that a test makes block by block, and a node of it played by the stub. Regtest difficulty,
//! so a block takes two tries to mine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bitcoincore_rpc::bitcoin;
use bitcoincore_rpc::bitcoin::absolute::LockTime;
use bitcoincore_rpc::bitcoin::block::{Header, Version};
use bitcoincore_rpc::bitcoin::consensus::encode::{serialize, serialize_hex};
use bitcoincore_rpc::bitcoin::hashes::Hash as _;
use bitcoincore_rpc::bitcoin::{
    Amount, Block, BlockHash, CompactTarget, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxMerkleNode,
    TxOut, Txid, Witness, Work, transaction,
};
use serde_json::{Value, json};

use super::stub::{Call, Reply, StubNode};

/// Any hash meets it, but for the first bit.
pub const EASY: u32 = 0x207f_ffff;

/// A transaction that spends `inputs` and pays `outputs` (script, sat).
pub fn tx(inputs: &[OutPoint], outputs: &[(ScriptBuf, u64)]) -> Transaction {
    Transaction {
        version: transaction::Version::TWO,
        lock_time: LockTime::ZERO,
        input: inputs.iter().map(|spent| input(*spent)).collect(),
        output: outputs
            .iter()
            .map(|(script, sat)| TxOut {
                value: Amount::from_sat(*sat),
                script_pubkey: script.clone(),
            })
            .collect(),
    }
}

fn input(spent: OutPoint) -> TxIn {
    TxIn {
        previous_output: spent,
        script_sig: ScriptBuf::new(),
        sequence: Sequence::MAX,
        witness: Witness::from_slice(&[[7_u8; 64]]),
    }
}

/// An output of a transaction that no test ever looks at.
pub fn coin(number: u32) -> OutPoint {
    let mut bytes = [0xc0; 32];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    OutPoint::new(Txid::from_byte_array(bytes), number % 3)
}

/// Output `vout` of `tx`.
pub fn output(tx: &Transaction, vout: u32) -> OutPoint {
    OutPoint::new(tx.compute_txid(), vout)
}

/// A block on `parent` with a coinbase of its own and these transactions.
pub fn mine(parent: BlockHash, height: u32, transactions: Vec<Transaction>) -> Block {
    let mut coinbase = tx(
        &[OutPoint::null()],
        &[(ScriptBuf::from(vec![0x51]), 5_000_000_000)],
    );
    coinbase.input[0].script_sig = ScriptBuf::from([&[4][..], &height.to_le_bytes()].concat());
    coinbase.input[0].witness = Witness::new();
    let mut all = vec![coinbase];
    all.extend(transactions);
    mine_exactly(parent, 1_700_000_000 + height * 600, all)
}

/// A block of exactly these transactions.
pub fn mine_exactly(parent: BlockHash, time: u32, txdata: Vec<Transaction>) -> Block {
    let header = Header {
        version: Version::from_consensus(0x2000_0000),
        prev_blockhash: parent,
        merkle_root: TxMerkleNode::all_zeros(),
        time,
        bits: CompactTarget::from_consensus(EASY),
        nonce: 0,
    };
    let mut block = Block { header, txdata };
    block.header.merkle_root = block.compute_merkle_root().unwrap();
    grind(&mut block.header);
    block
}

/// Tries nonces until the hash meets the target.
pub fn grind(header: &mut Header) {
    while !header.target().is_met_by(header.block_hash()) {
        header.nonce += 1;
    }
}

/// What the played node holds and says. Change it under [`FakeNode::change`].
pub struct FakeState {
    /// The active chain from the genesis block on.
    pub chain: Vec<Block>,
    /// Blocks off it: found by hash, `confirmations` -1.
    pub stale: Vec<Block>,
    pub mempool: Vec<Transaction>,
    /// Fields laid over those of `getblockchaininfo`; `null` takes one away.
    pub info: Value,
    pub network_info: Value,
    /// Fields that `getblockheader` brings beside those that we use.
    pub header_extra: Value,
    /// Entries of `getchaintips` besides the active one.
    pub odd_tips: Vec<Value>,
    /// The `chainwork` of headers that are nowhere else.
    pub odd_work: BTreeMap<String, u64>,
    pub is_rest_on: bool,
    /// Whoever asks for the best block is told another one than who asked before: the follower asks beside
    /// the reader of the mempool.
    pub is_tip_moving: bool,
    tips_told: usize,
    /// Replies that stand before all of this, by method.
    pub overrides: BTreeMap<String, Reply>,
}

/// The stub with a chain behind it.
pub struct FakeNode {
    pub stub: StubNode,
    state: Arc<Mutex<FakeState>>,
}

impl FakeNode {
    /// A regtest node that has mined `height` empty blocks.
    pub fn regtest(height: u32) -> Self {
        let mut chain = vec![bitcoin::constants::genesis_block(bitcoin::Network::Regtest)];
        for height in 1..=height {
            let parent = chain[chain.len() - 1].block_hash();
            chain.push(mine(parent, height, Vec::new()));
        }
        let state = Arc::new(Mutex::new(FakeState {
            chain,
            stale: Vec::new(),
            mempool: Vec::new(),
            info: json!({}),
            network_info: json!({"version": 280_100, "subversion": "/Satoshi:28.1.0/", "warnings": []}),
            header_extra: json!({}),
            odd_tips: Vec::new(),
            odd_work: BTreeMap::new(),
            is_rest_on: false,
            is_tip_moving: false,
            tips_told: 0,
            overrides: BTreeMap::new(),
        }));
        let stub = StubNode::alone();
        let shared = Arc::clone(&state);
        stub.handle(move |call| {
            let mut state = shared.lock().unwrap();
            if let Some(reply) = state.move_tip(call) {
                return Some(reply);
            }
            let standing = state.overrides.get(&call.method).cloned();
            standing.or_else(|| state.answer(call))
        });
        Self { stub, state }
    }

    /// To look at it or change it between calls.
    pub fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap()
    }

    /// The height of its tip. Unlike `state().height()` as an argument it holds no lock during the call.
    pub fn height(&self) -> u64 {
        self.state().height() as u64
    }

    /// The same from elsewhere, while the test is busy.
    pub fn shared(&self) -> Arc<Mutex<FakeState>> {
        Arc::clone(&self.state)
    }

    /// Mines a block with these transactions, which leave the mempool.
    pub fn mine(&self, transactions: Vec<Transaction>) -> Block {
        self.state().mine(transactions)
    }

    /// The node goes back to `height`; what it leaves is stale.
    pub fn back_to(&self, height: usize) {
        self.state().back_to(height);
    }
}

impl FakeState {
    /// As [`FakeNode::mine`].
    pub fn mine(&mut self, transactions: Vec<Transaction>) -> Block {
        self.mempool.retain(|tx| !transactions.contains(tx));
        let height = u32::try_from(self.chain.len()).unwrap();
        let block = mine(self.tip().block_hash(), height, transactions);
        self.chain.push(block.clone());
        block
    }

    /// As [`FakeNode::back_to`].
    pub fn back_to(&mut self, height: usize) {
        let left = self.chain.split_off(height + 1);
        self.stale.extend(left);
    }

    pub fn tip(&self) -> &Block {
        &self.chain[self.chain.len() - 1]
    }

    pub fn height(&self) -> usize {
        self.chain.len() - 1
    }

    fn move_tip(&mut self, call: &Call) -> Option<Reply> {
        if call.method != "getbestblockhash" || !self.is_tip_moving {
            return None;
        }
        self.tips_told += 1;
        let block = &self.chain[self.height() - self.tips_told % self.chain.len()];
        Some(Reply::Result(json!(block.block_hash().to_string())))
    }

    fn answer(&self, call: &Call) -> Option<Reply> {
        let params = &call.params;
        Some(match call.method.as_str() {
            "getblockchaininfo" => Reply::Result(self.blockchain_info()),
            "getnetworkinfo" => Reply::Result(self.network_info.clone()),
            "getbestblockhash" => Reply::Result(json!(self.tip().block_hash().to_string())),
            "getblockhash" => {
                let height = usize::try_from(params[0].as_u64()?).unwrap();
                match self.chain.get(height) {
                    Some(block) => Reply::Result(json!(block.block_hash().to_string())),
                    None => Reply::Error(-8, "Block height out of range"),
                }
            }
            "getblockheader" => self.header(params[0].as_str()?),
            "getblock" => match self.find(params[0].as_str()?) {
                Some((block, _)) => Reply::Result(json!(serialize_hex(block))),
                None => Reply::Error(-5, "Block not found"),
            },
            "getchaintips" => {
                let active = json!({
                    "height": self.height(), "hash": self.tip().block_hash().to_string(), "branchlen": 0,
                    "status": "active",
                });
                Reply::Result(json!([[active].as_slice(), &self.odd_tips].concat()))
            }
            "getrawmempool" => {
                let ids = self.mempool.iter().map(|tx| tx.compute_txid().to_string());
                Reply::Result(json!(ids.collect::<Vec<_>>()))
            }
            "getrawtransaction" => {
                let asked = params[0].as_str()?;
                match self
                    .mempool
                    .iter()
                    .find(|tx| tx.compute_txid().to_string() == asked)
                {
                    Some(tx) => Reply::Result(json!(serialize_hex(tx))),
                    None => Reply::Error(-5, "No such mempool transaction"),
                }
            }
            "rest/headers" if self.is_rest_on => {
                let (block, _) = self.find(params[0].as_str()?.strip_prefix("1/")?.strip_suffix(".bin")?)?;
                Reply::Bytes(serialize(&block.header))
            }
            "rest/block" if self.is_rest_on => match self.find(params[0].as_str()?.strip_suffix(".bin")?) {
                Some((block, _)) => Reply::Bytes(serialize(block)),
                None => Reply::Text(404, "not found"),
            },
            _ => return None,
        })
    }

    fn blockchain_info(&self) -> Value {
        let mut info = json!({
            "chain": "regtest",
            "blocks": self.height(),
            "headers": self.height(),
            "bestblockhash": self.tip().block_hash().to_string(),
            "chainwork": hex_work(self.chain.len()),
            "time": self.tip().header.time,
            "mediantime": self.tip().header.time,
            "verificationprogress": 0.999_999,
            "initialblockdownload": false,
            "pruned": false,
            "warnings": [],
        });
        for (name, value) in self.info.as_object().unwrap() {
            if value.is_null() {
                info.as_object_mut().unwrap().remove(name);
            } else {
                info[name] = value.clone();
            }
        }
        info
    }

    /// The block, and its height if it is on the active chain.
    fn find(&self, hash: &str) -> Option<(&Block, Option<usize>)> {
        let is_it = |block: &&Block| block.block_hash().to_string() == hash;
        let active = self.chain.iter().position(|block| is_it(&block));
        match active {
            Some(height) => Some((&self.chain[height], Some(height))),
            None => self.stale.iter().find(is_it).map(|block| (block, None)),
        }
    }

    fn header(&self, hash: &str) -> Reply {
        if let Some(work) = self.odd_work.get(hash) {
            return Reply::Result(json!({"chainwork": format!("{work:064x}")}));
        }
        let Some((block, active)) = self.find(hash) else {
            return Reply::Error(-5, "Block not found");
        };
        let height = active.unwrap_or_else(|| self.stale_height(block));
        let confirmations = active.map_or(-1, |height| (self.chain.len() - height) as i64);
        let mut fields = json!({
            "hash": hash,
            "confirmations": confirmations,
            "height": height,
            "version": block.header.version.to_consensus(),
            "merkleroot": block.header.merkle_root.to_string(),
            "time": block.header.time,
            "nonce": block.header.nonce,
            "bits": format!("{:08x}", block.header.bits.to_consensus()),
            "chainwork": hex_work(height + 1),
            "nTx": block.txdata.len(),
        });
        for (name, value) in self.header_extra.as_object().unwrap() {
            fields[name] = value.clone();
        }
        if height > 0 {
            fields["previousblockhash"] = json!(block.header.prev_blockhash.to_string());
        }
        Reply::Result(fields)
    }

    fn stale_height(&self, block: &Block) -> usize {
        match self.find(&block.header.prev_blockhash.to_string()) {
            Some((_, Some(height))) => height + 1,
            Some((parent, None)) => self.stale_height(parent) + 1,
            None => 0,
        }
    }
}

/// Each block of easiest difficulty is worth 2.
fn hex_work(blocks: usize) -> String {
    let one = CompactTarget::from_consensus(EASY);
    let one = bitcoin::Target::from_compact(one).to_work();
    let work = (0..blocks).fold(Work::from_be_bytes([0; 32]), |sum, _| sum + one);
    format!("{work:064x}")
}
