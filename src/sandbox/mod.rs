//! Simulated nodes for demonstrations and tests, served on loopback by the calls that creditd makes.
//! [`Sandbox`] is a Bitcoin node of real regtest blocks in a real tree: it runs no scripts, knows no peers
//! and keeps nothing on disk but the cookie to log in with. It starts the node and is the hand on its chain;
//! what is answered is in `calls`. [`evm`] is a node of an EVM chain in the same manner.

mod calls;
mod chain;
mod control;
mod decoded;
mod derive;
mod encode;
pub mod evm;
mod faults;
mod front;
mod hand;
mod http;
mod look;
mod mempool;
mod others;
mod question;
mod run;
pub mod scenario;
pub mod service;
pub mod step;
mod wallet;

use crate::clock::Clock;
use crate::rules::{BlockHash, Txid};
use axum::Router;
use bitcoincore_rpc::bitcoin::{Address, KnownHrp, Network, WitnessProgram, WitnessVersion};
use chain::Chain;
use front::Server;
use http::Node;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use wallet::{Payment, own_script};

pub use faults::Trouble;
pub use hand::{Done, Refused};
pub use run::{Ended, Run};

/// How many blocks there are at the start: 20 rewards can be spent.
const FIRST_BLOCKS: u32 = 120;

/// Why the sandbox did not do something.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// The operating system refused a port, a thread or a file.
    #[error("start the sandbox")]
    System(#[from] std::io::Error),
    /// Not an address of regtest.
    #[error("not a regtest address: {0}")]
    Address(String),
    /// A block or a transaction that is not there.
    #[error("not known to the sandbox: {0}")]
    Unknown(String),
    /// The wallet has too little to spend.
    #[error("not enough coins that can be spent")]
    Funds,
    /// The rules of the chain.
    #[error("against the rules: {0}")]
    Refused(String),
}

/// Where a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the mempool.
    Waits,
    /// In a block of the best chain, with so many blocks from there to the tip, itself counted.
    Mined(u32),
    /// Nowhere.
    Gone,
}

/// A running simulated node. It ends when this is dropped.
pub struct Sandbox {
    node: Arc<Node>,
    url: String,
    cookie_file: PathBuf,
    /// Held for its end; a quiet node has none.
    _server: Option<Server>,
}

impl Sandbox {
    /// Starts a node on a free loopback port, with some blocks and coins. The cookie goes into `folder`.
    ///
    /// # Errors
    /// [`SandboxError::System`].
    pub fn start(folder: &Path, clock: Clock) -> Result<Sandbox, SandboxError> {
        Sandbox::start_on(0, folder, clock)
    }

    /// The same on a loopback port of the caller's choice; 0 is any that is free.
    ///
    /// # Errors
    /// [`SandboxError::System`].
    pub fn start_on(port: u16, folder: &Path, clock: Clock) -> Result<Sandbox, SandboxError> {
        let sandbox = Sandbox::empty_on(port, folder, clock)?;
        sandbox.mine(FIRST_BLOCKS)?;
        Ok(sandbox)
    }

    /// The same with the genesis block alone.
    ///
    /// # Errors
    /// [`SandboxError::System`].
    pub fn at_genesis(folder: &Path, clock: Clock) -> Result<Sandbox, SandboxError> {
        Sandbox::empty_on(0, folder, clock)
    }

    fn empty_on(port: u16, folder: &Path, clock: Clock) -> Result<Sandbox, SandboxError> {
        let cookie_file = folder.join(".cookie");
        let cookie = http::write_cookie(&cookie_file)?;
        let node = Arc::new(Node::new(Chain::new(clock), &cookie, clock));
        let server = Server::start_on(port, http::routes(node.clone()))?;
        Ok(Sandbox {
            node,
            url: server.url(),
            cookie_file,
            _server: Some(server),
        })
    }

    /// A node of the genesis block alone that is served nowhere: whoever has it asks its
    /// [`routes`](Sandbox::routes), and logs in with [`Sandbox::QUIET_COOKIE`].
    pub fn quiet(clock: Clock) -> Sandbox {
        Sandbox {
            node: Arc::new(Node::new(Chain::new(clock), Sandbox::QUIET_COOKIE, clock)),
            url: String::new(),
            cookie_file: PathBuf::new(),
            _server: None,
        }
    }

    /// Who may ask a quiet node.
    pub const QUIET_COOKIE: &str = "__cookie__:quiet";

    /// What the node answers, for a caller in this process.
    pub fn routes(&self) -> Router {
        http::routes(self.node.clone())
    }

    /// `http://127.0.0.1:PORT`, for RPC and REST.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The file with the user and password for RPC.
    pub fn cookie_file(&self) -> &Path {
        &self.cookie_file
    }

    /// The height of the tip.
    pub fn height(&self) -> u64 {
        self.node.read(|chain| chain.tip().height.into())
    }

    /// The hash of the tip.
    pub fn tip(&self) -> BlockHash {
        self.node.read(|chain| chain.tip().hash)
    }

    /// The block of the best chain at a height.
    pub fn block_hash(&self, height: u64) -> Option<BlockHash> {
        let height = u32::try_from(height).ok()?;
        self.node.read(|chain| chain.at(height).map(|block| block.hash))
    }

    /// The ids of the mempool, parents before children.
    pub fn mempool(&self) -> Vec<Txid> {
        self.node
            .read(|chain| chain.mempool.iter().map(|tx| tx.txid).collect())
    }

    // ---- payments ----

    /// An address that nobody can spend from, always the same for the same label.
    pub fn address(label: &str) -> String {
        let program = encode::key_hash(label.as_bytes());
        // Twenty bytes are a program of version 0 by definition.
        WitnessProgram::new(WitnessVersion::V0, &program)
            .map(|program| Address::from_witness_program(program, KnownHrp::Regtest).to_string())
            .unwrap_or_default()
    }

    /// Pays satoshi to an address. The transaction can be replaced.
    ///
    /// # Errors
    /// [`SandboxError`] for a bad address or more than there is.
    pub fn pay(&self, address: &str, sat: u64) -> Result<Txid, SandboxError> {
        let payment = payment(address, sat)?;
        self.node.change(|chain| chain.pay(payment))
    }

    /// Replaces a transaction of the mempool by one that pays more to the miner and `sat` to `address`.
    ///
    /// # Errors
    /// [`SandboxError`]
    pub fn replace(&self, txid: Txid, address: &str, sat: u64) -> Result<Txid, SandboxError> {
        let payment = payment(address, sat)?;
        self.node.change(|chain| chain.replace(&txid, payment))
    }

    /// Makes a transaction that spends what another one spends, and keeps it back: only a block can bring it.
    ///
    /// # Errors
    /// [`SandboxError`]
    pub fn conflict(&self, txid: Txid, address: &str, sat: u64) -> Result<Txid, SandboxError> {
        let payment = payment(address, sat)?;
        self.node
            .change(|chain| chain.conflict(&txid, payment).map(|tx| tx.txid))
    }

    /// Drops a transaction, and what spends it, from the mempool. True if it was there.
    pub fn evict(&self, txid: Txid) -> bool {
        self.node.change(|chain| chain.evict(&txid))
    }

    /// Sends a transaction again that was evicted.
    ///
    /// # Errors
    /// [`SandboxError`]
    pub fn resend(&self, txid: Txid) -> Result<(), SandboxError> {
        self.node.change(|chain| chain.resend(&txid))
    }

    // ---- blocks ----

    /// Mines blocks, the first with the whole mempool.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] while the node lags.
    pub fn mine(&self, count: u32) -> Result<Vec<BlockHash>, SandboxError> {
        self.node
            .change(|chain| (0..count).map(|_| chain.mine(&own_script())).collect())
    }

    /// Mines one block with exactly these transactions.
    ///
    /// # Errors
    /// [`SandboxError`]
    pub fn mine_with(&self, txids: &[Txid]) -> Result<BlockHash, SandboxError> {
        self.node.change(|chain| {
            let tip = chain.tip().hash;
            chain.mine_on(&tip, txids)
        })
    }

    /// Mines empty blocks on any block; the branch becomes the best one when it has the most work.
    ///
    /// # Errors
    /// [`SandboxError`]
    pub fn mine_on(&self, parent: BlockHash, count: u32) -> Result<Vec<BlockHash>, SandboxError> {
        let mut parent = parent;
        self.node.change(|chain| {
            let mut mine = || {
                parent = chain.mine_on(&parent, &[])?;
                Ok(parent)
            };
            (0..count).map(|_| mine()).collect()
        })
    }

    /// Replaces the last `depth` blocks by `depth + 1` others, of which the first holds the transactions
    /// `keep`. The others go back to the mempool, unless one that is kept spends the same.
    ///
    /// # Errors
    /// [`SandboxError`]
    pub fn reorg(&self, depth: u32, keep: &[Txid]) -> Result<BlockHash, SandboxError> {
        self.node.change(|chain| chain.reorg(depth, keep))
    }

    /// Takes a block and all above it off the best chain.
    ///
    /// # Errors
    /// [`SandboxError::Unknown`].
    pub fn invalidate(&self, hash: BlockHash) -> Result<(), SandboxError> {
        self.node.change(|chain| chain.invalidate(&hash))
    }

    /// Lets a block and all above it count again.
    ///
    /// # Errors
    /// [`SandboxError::Unknown`].
    pub fn reconsider(&self, hash: BlockHash) -> Result<(), SandboxError> {
        self.node.change(|chain| chain.reconsider(&hash))
    }

    /// Forgets the last `blocks` blocks, as a node that was restored from an old copy, until
    /// [`Sandbox::catch_up`].
    pub fn lag(&self, blocks: u32) {
        self.node.change(|chain| {
            let height = chain.tip().height.saturating_sub(blocks);
            chain.lag_at(height);
        });
    }

    /// Knows all blocks again.
    pub fn catch_up(&self) {
        self.node.change(Chain::catch_up);
    }

    /// Does it know all of its blocks?
    pub fn is_lagging(&self) -> bool {
        self.node.read(Chain::is_lagging)
    }

    // ---- trouble ----

    /// Gives the node a trouble, for a span or until another is set; with `None` it has none.
    pub fn set_trouble(&self, trouble: Option<Trouble>, span: Option<Duration>) {
        self.node.faults.set(trouble, span);
    }

    /// The trouble that it has.
    pub fn trouble(&self) -> Option<Trouble> {
        self.node.faults.trouble()
    }
}

fn payment(address: &str, sat: u64) -> Result<Payment, SandboxError> {
    let script = script_of(address).ok_or_else(|| SandboxError::Address(address.to_owned()))?;
    Ok(Payment { script, sat })
}

fn script_of(address: &str) -> Option<Vec<u8>> {
    let address = address.parse::<Address<_>>().ok()?;
    let address = address.require_network(Network::Regtest).ok()?;
    Some(address.script_pubkey().into_bytes())
}
