//! A simulated node of an EVM chain: blocks, receipts and traces of what it was told happens, served by the
//! calls that creditd makes, on loopback. It executes nothing, signs nothing and checks no hash.
//! [`EvmSandbox`] starts it and is the hand on its chain; what is answered is in `calls`.

mod calls;
mod chain;
mod frames;
mod http;
mod lag;
mod look;
mod params;
mod pool;
mod shapes;
mod state;
mod tx;

pub use crate::rules::Txid;
pub use chain::{Mark, Token};
pub use look::Paid;
pub use ruint::aliases::U256;
pub use tx::{Address, CallKind, Effects, InnerCall, Log, Nonce, Odd, TRANSFER_TOPIC, Tx};

use super::front::Server;
use super::{SandboxError, Trouble};
use crate::clock::Clock;
use crate::rules::BlockHash;
use axum::Router;
use chain::Chain;
use http::Node;
use std::sync::Arc;
use std::time::Duration;

/// How many blocks there are at the start: enough for every tag to have left the genesis block.
const FIRST_BLOCKS: u32 = 80;

/// What becomes of the blocks that are no longer on the way to the tip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// They are still known by hash.
    Kept,
    /// As with nodes that know only the blocks up to their tip.
    Forgotten,
}

/// A running simulated node. It ends when this is dropped.
pub struct EvmSandbox {
    node: Arc<Node>,
    /// A quiet node has none.
    server: Option<Server>,
}

impl EvmSandbox {
    /// Starts a node on a free loopback port, with some blocks.
    ///
    /// # Errors
    /// [`SandboxError::System`].
    pub fn start(chain_id: u64, clock: Clock) -> Result<EvmSandbox, SandboxError> {
        EvmSandbox::start_on(0, chain_id, clock)
    }

    /// The same on a loopback port of the caller's choice; 0 is any that is free.
    ///
    /// # Errors
    /// [`SandboxError::System`].
    pub fn start_on(port: u16, chain_id: u64, clock: Clock) -> Result<EvmSandbox, SandboxError> {
        let sandbox = EvmSandbox::empty_on(port, chain_id, "", clock)?;
        sandbox.mine(FIRST_BLOCKS)?;
        Ok(sandbox)
    }

    /// The same with the genesis block alone. One chain id has one genesis block.
    ///
    /// # Errors
    /// [`SandboxError::System`].
    pub fn at_genesis(chain_id: u64, clock: Clock) -> Result<EvmSandbox, SandboxError> {
        EvmSandbox::of_instance(chain_id, "", clock)
    }

    /// The same with a genesis block of the instance's own: another chain of the same id, as when a
    /// development chain is begun anew.
    ///
    /// # Errors
    /// [`SandboxError::System`].
    pub fn of_instance(chain_id: u64, instance: &str, clock: Clock) -> Result<EvmSandbox, SandboxError> {
        EvmSandbox::empty_on(0, chain_id, instance, clock)
    }

    fn empty_on(port: u16, chain_id: u64, instance: &str, clock: Clock) -> Result<EvmSandbox, SandboxError> {
        let chain = Chain::new(chain_id, instance, clock);
        let node = Arc::new(Node::new(chain, clock));
        let server = Server::start_on(port, http::routes(node.clone()))?;
        Ok(EvmSandbox {
            node,
            server: Some(server),
        })
    }

    /// `http://127.0.0.1:PORT`. Any path below is the same node, and nobody has to log in.
    pub fn url(&self) -> String {
        self.server.as_ref().map(Server::url).unwrap_or_default()
    }

    /// A node of the genesis block alone that is served nowhere: whoever has it asks its
    /// [`routes`](EvmSandbox::routes). The block's hash is the caller's to choose.
    pub fn quiet(chain_id: u64, genesis: BlockHash, clock: Clock) -> EvmSandbox {
        let mut chain = Chain::new(chain_id, "", clock);
        chain.begin_as(genesis);
        EvmSandbox {
            node: Arc::new(Node::new(chain, clock)),
            server: None,
        }
    }

    /// Makes a transaction under an id of the caller's choice, and keeps it back.
    pub fn prepare_as(&self, tx: Tx, txid: Txid) {
        self.node.change(|chain| chain.prepare_as(tx, txid));
    }

    /// [`EvmSandbox::mine_on`] with a hash of the caller's choice.
    ///
    /// # Errors
    /// As [`EvmSandbox::mine_on`].
    pub fn mine_as(&self, parent: BlockHash, txids: &[Txid], hash: BlockHash) -> Result<(), SandboxError> {
        self.grow(|chain| {
            let block = chain.build(&parent, txids)?;
            chain.insert_as(block, hash);
            Ok(())
        })
    }

    /// What the node answers, for a caller in this process.
    pub fn routes(&self) -> Router {
        http::routes(self.node.clone())
    }

    /// The account that is rich from the start.
    pub fn payer() -> Address {
        Address::of(chain::PAYER)
    }

    /// The height of the tip.
    pub fn height(&self) -> u64 {
        self.node.read(|chain| chain.tip().number)
    }

    /// The hash of the tip.
    pub fn tip(&self) -> BlockHash {
        self.node.read(|chain| chain.tip().hash)
    }

    /// The block at a height, up to the tip.
    pub fn block_hash(&self, height: u64) -> Option<BlockHash> {
        self.node.read(|chain| chain.at(height).map(|block| block.hash))
    }

    /// The pending transactions, by sender and nonce.
    pub fn pool(&self) -> Vec<Txid> {
        self.node
            .read(|chain| chain.pool.all().map(|tx| tx.hash).collect())
    }

    /// What an account has at the tip, in wei.
    pub fn balance(&self, account: Address) -> U256 {
        self.node.read(|chain| chain.balance(&chain.tip().state, account))
    }

    /// Gives an account coin that no transaction explains. It always had it: at every block.
    pub fn endow(&self, account: Address, wei: U256) {
        self.node.change(|chain| chain.endow(account, wei));
    }

    /// Makes an address the contract of a token. Its `Transfer` logs move its balances.
    pub fn set_token(&self, contract: Address, token: Token) {
        self.node.change(|chain| chain.tokens.insert(contract, token));
    }

    // ---- transactions ----

    /// Sends a transaction to the pool. One of the same sender and nonce is replaced if it pays a tenth less
    /// per gas.
    ///
    /// # Errors
    /// [`SandboxError::Funds`], and [`SandboxError::Refused`] for a nonce that is spent or a price too low.
    pub fn send(&self, tx: Tx) -> Result<Txid, SandboxError> {
        self.node.change(|chain| {
            let txid = chain.prepare(tx);
            chain.put(&txid).map(|()| txid)
        })
    }

    /// Pays wei from the rich account.
    ///
    /// # Errors
    /// [`SandboxError::Funds`].
    pub fn pay(&self, to: Address, wei: U256) -> Result<Txid, SandboxError> {
        self.send(Tx::pay(EvmSandbox::payer(), to, wei))
    }

    /// Makes a transaction and keeps it back: only a block can bring it.
    pub fn prepare(&self, tx: Tx) -> Txid {
        self.node.change(|chain| chain.prepare(tx))
    }

    /// Sends a transaction that was kept back or dropped.
    ///
    /// # Errors
    /// As [`EvmSandbox::send`], and [`SandboxError::Unknown`].
    pub fn resend(&self, txid: Txid) -> Result<(), SandboxError> {
        self.node.change(|chain| chain.put(&txid))
    }

    /// Drops a transaction from the pool. True if it was there.
    pub fn evict(&self, txid: Txid) -> bool {
        self.node.change(|chain| chain.pool.remove(&txid))
    }

    /// Makes a transaction of the same sender and nonce as another one, which pays a tenth more per gas and
    /// is else as `change` leaves it, and keeps it back: only one of the two can be mined.
    ///
    /// # Errors
    /// [`SandboxError::Unknown`], and [`SandboxError::Refused`] for one without a nonce.
    pub fn rival(&self, txid: Txid, change: impl FnOnce(&mut Tx)) -> Result<Txid, SandboxError> {
        self.node.change(|chain| chain.rival(&txid, change))
    }

    /// Says what a transaction does in the blocks that are mined from now on; in those that hold it already
    /// it did what it did.
    ///
    /// # Errors
    /// [`SandboxError::Unknown`].
    pub fn set_effects(&self, txid: Txid, effects: Effects) -> Result<(), SandboxError> {
        self.node.change(|chain| chain.set_effects(&txid, effects))
    }

    // ---- blocks ----

    /// Mines blocks, the first with whatever of the pool can run.
    ///
    /// # Errors
    /// [`SandboxError::Refused`] while the node lags.
    pub fn mine(&self, count: u32) -> Result<Vec<BlockHash>, SandboxError> {
        self.grow(|chain| {
            let mut mine = || {
                let block = chain.next_block()?;
                let hash = chain.insert(block);
                chain.set_tip(&hash).map(|()| hash)
            };
            (0..count).map(|_| mine()).collect()
        })
    }

    /// Mines one block on the tip with exactly these transactions, in this order.
    ///
    /// # Errors
    /// [`SandboxError`] for a transaction that is unknown or cannot run there.
    pub fn mine_with(&self, txids: &[Txid]) -> Result<BlockHash, SandboxError> {
        self.grow(|chain| {
            let block = chain.build(&chain.tip().hash, txids)?;
            let hash = chain.insert(block);
            chain.set_tip(&hash).map(|()| hash)
        })
    }

    /// Makes a block on any block with exactly these transactions. The tip stays where it is: see
    /// [`EvmSandbox::set_tip`].
    ///
    /// # Errors
    /// As [`EvmSandbox::mine_with`].
    pub fn mine_on(&self, parent: BlockHash, txids: &[Txid]) -> Result<BlockHash, SandboxError> {
        self.grow(|chain| {
            let block = chain.build(&parent, txids)?;
            Ok(chain.insert(block))
        })
    }

    /// Goes to any block: one of another branch, or one below the tip. What was in the blocks left goes back
    /// to the pool where its nonce is still free.
    ///
    /// # Errors
    /// [`SandboxError::Unknown`].
    pub fn set_tip(&self, hash: BlockHash, stale: Stale) -> Result<(), SandboxError> {
        self.grow(|chain| {
            chain.set_tip(&hash)?;
            match stale {
                Stale::Kept => {}
                Stale::Forgotten => chain.forget_branches(),
            }
            Ok(())
        })
    }

    /// Replaces the last `depth` blocks by `depth + 1` others, of which the first holds the transactions
    /// `keep`. The others go back to the pool where their nonce is still free.
    ///
    /// # Errors
    /// [`SandboxError`]
    pub fn reorg(&self, depth: u64, keep: &[Txid]) -> Result<BlockHash, SandboxError> {
        self.grow(|chain| chain.reorg(depth, keep))
    }

    /// Changes which blocks there are, unless the node lags: they would come later than what it knows.
    fn grow<T>(&self, work: impl FnOnce(&mut Chain) -> Result<T, SandboxError>) -> Result<T, SandboxError> {
        self.node.change(|chain| match chain.is_lagging() {
            true => Err(SandboxError::Refused("the node lags behind".to_owned())),
            false => work(chain),
        })
    }

    /// Forgets the last `blocks` blocks, as a balancer's node that is behind the others, until
    /// [`EvmSandbox::catch_up`].
    pub fn lag(&self, blocks: u64) {
        self.node.change(|chain| chain.lag(blocks));
    }

    /// Knows all blocks again.
    pub fn catch_up(&self) {
        self.node.change(Chain::catch_up);
    }

    /// Does it know all of its blocks?
    pub fn is_lagging(&self) -> bool {
        self.node.read(Chain::is_lagging)
    }

    // ---- what the node says ----

    /// Where the tag `safe` stands; 32 blocks below the tip at first.
    pub fn set_safe(&self, mark: Mark) {
        self.node.change(|chain| chain.safe = mark);
    }

    /// Where the tag `finalized` stands; 64 blocks below the tip at first.
    pub fn set_finalized(&self, mark: Mark) {
        self.node.change(|chain| chain.finalized = mark);
    }

    /// From this block on, of those still to be made, every movement of coin is logged as EIP-7708 has it,
    /// before a transaction's own logs; with `None` none is.
    pub fn set_transfer_logs(&self, from: Option<u64>) {
        self.node.change(|chain| chain.logs_moves_from = from);
    }

    /// Lets the node say that it is catching up to a height, or that it is not.
    pub fn set_syncing(&self, to: Option<u64>) {
        self.node.change(|chain| chain.syncs_to = to);
    }

    /// Says what the bloom of a block is, which else is that of its logs.
    ///
    /// # Errors
    /// [`SandboxError::Unknown`].
    pub fn set_bloom(&self, hash: BlockHash, bloom: [u8; 256]) -> Result<(), SandboxError> {
        self.node.change(|chain| chain.set_bloom(&hash, bloom))
    }

    /// Gives the node a trouble, for a span or until another is set; with `None` it has none.
    pub fn set_trouble(&self, trouble: Option<Trouble>, span: Option<Duration>) {
        self.node.faults.set(trouble, span);
    }

    /// The trouble that it has.
    pub fn trouble(&self) -> Option<Trouble> {
        self.node.faults.trouble()
    }

    /// Lets the node know nothing of these calls, as those without traces or without a pool to look into.
    pub fn hide_calls(&self, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.node.change(|chain| chain.hidden_calls.extend(names));
    }
}
