//! What a scenario does to a chain, whatever chain it is. Each source has one implementation, and nothing
//! else of it is known to the scenarios.

use creditd::chain::ChainSource;
use creditd::rules::{BlockHash, Script, Txid};
use creditd::store::NewChain;

/// Whom a transaction pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payee {
    /// The watched address, so much in base units.
    Us(u64),
    /// Somebody whom nobody watches.
    Nobody,
}

/// A chain with its node, and somebody who pays on it.
pub trait Stage: Sized {
    /// What creditd reads it through.
    type Source: ChainSource;

    /// False where a payment is known only once a block holds it: what a transaction moves of a token, or of
    /// coin in the calls that it makes, is told by its logs or its trace, and no transaction has those before
    /// it ran; in another block it may do something else. There, scenarios expect nothing of what waits: no
    /// state `seen`, and no event of one.
    const SHOWS_WAITING: bool;

    /// False where blocks are read without who sent what: there, a lost payment is not known to be replaced
    /// by a transaction that pays nobody, unless the reorg itself brings that, whose blocks are read whole.
    /// Only the label differs.
    const SEES_EVERY_SENDER: bool;

    /// So many blocks below the tip of [`Stage::open`] and what a scenario mines there can be undone: the
    /// window, or where a chain says what is final, more than that.
    const UNDOABLE: u32;

    /// A node with enough blocks and coin for every scenario.
    fn open() -> Self;

    /// A source that knows nothing yet, as after a restart of the daemon.
    fn source(&self) -> Self::Source;

    /// The chain as the config names it, with what is paid on it.
    fn chain(&self) -> NewChain;

    /// The watched address.
    fn watched(&self) -> Script;

    /// The tip that the node shows.
    fn tip(&self) -> BlockHash;

    /// Sends a payment that depends on no other one.
    fn pay(&mut self, payee: Payee) -> Txid;

    /// Makes a transaction that cannot be in one chain with `txid` (it spends the same coin, or has the same
    /// nonce) and offers more to the miner. It is not sent.
    fn rival(&mut self, txid: Txid, payee: Payee) -> Txid;

    /// Sends what was made: it takes the place of what waits and cannot be beside it.
    fn send(&mut self, txid: Txid);

    /// Mines `count` blocks, the first with exactly these transactions, in this order, the others empty. What
    /// else waits waits on.
    fn mine(&mut self, first: &[Txid], count: u32);

    /// Puts `count` other blocks, mined as by [`Stage::mine`], in place of the last `depth`. What was in
    /// those and can still be mined waits again.
    fn reorg(&mut self, depth: u32, count: u32, first: &[Txid]);

    /// Shows the chain without its last `depth` blocks and with `count` empty others instead: a node that is
    /// behind where `count` is 0, one on a worse branch where it is less than `depth`. What was in the blocks
    /// waits again.
    fn step_aside(&mut self, depth: u32, count: u32);

    /// Ends [`Stage::step_aside`]: the same blocks as before, even if the others were better.
    fn come_back(&mut self);
}
