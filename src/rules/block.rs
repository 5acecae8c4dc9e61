//! What a source reports of a chain: headers, candidates (transactions that touch something of ours), mempool
//! lists. Sources make these values, the store applies them; neither sees the other.

use super::{Amount, BlockHash, ListVersion, Outpoint, Script, Txid, Work};
use std::collections::BTreeSet;
use std::sync::Arc;

/// No block is higher: a node that says so has answered badly. Sums of heights up to here overflow nothing,
/// and the database can keep them.
pub const HEIGHT_MAX: u64 = u32::MAX as u64;

/// A header as its own bytes tell it, without its place in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The block's hash.
    pub hash: BlockHash,
    /// The hash of the block before it.
    pub parent: BlockHash,
    /// The block's own time stamp, in Unix seconds.
    pub time_secs: u64,
    /// The work of this one header.
    pub work: Work,
    /// The compact target (`nBits`) on Bitcoin, 0 elsewhere: kept so that the next header can be held against
    /// it.
    pub bits: u32,
}

/// A header that we hold, at its height and with the work summed up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldHeader {
    /// Height; the genesis block has 0.
    pub height: u64,
    /// The header.
    pub header: Header,
    /// The work of the whole chain up to and including this header.
    pub chainwork: Work,
}

/// A block after filtering: its header, and of its transactions only those that touch something of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedBlock {
    /// The header; its place follows from its parent.
    pub header: Header,
    /// The version of the watch rules that the block was filtered with.
    pub version: ListVersion,
    /// Transactions that pay a watched or own script, or spend an outpoint that we know, in block order.
    pub txs: Vec<CandidateTx>,
    /// Short hashes (`index::short`) of the scripts of *all* outputs: rules added between filter and commit
    /// are tried on these.
    pub output_shorts: Vec<u64>,
}

/// A transaction that may concern us. The index works on short hashes, so each hit is checked against the
/// tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateTx {
    /// The transaction.
    pub txid: Txid,
    /// True for the block's first transaction, which makes new coin and has no inputs.
    pub is_coinbase: bool,
    /// Every outpoint that it spends.
    pub inputs: Vec<Prevout>,
    /// The outputs whose script hit the index.
    pub outputs: Vec<CandidateOutput>,
    /// Its unconfirmed ancestors known at this moment (mempool parents; parents in the same block), with
    /// their inputs: whoever spends one of those replaces this transaction too.
    pub ancestors: Vec<Ancestor>,
}

/// An outpoint that a transaction spends.
pub type Prevout = Outpoint;

/// One output to a script of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateOutput {
    /// Output number or position.
    pub vout: u64,
    /// The script paid to.
    pub script: Script,
    /// The amount in base units.
    pub amount: Amount,
}

/// An unconfirmed transaction that a candidate depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// The ancestor.
    pub txid: Txid,
    /// What it spends.
    pub inputs: Vec<Prevout>,
}

/// What the node's mempool held while its tip was `tip`, before and after the listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MempoolList {
    /// The node's tip during the listing.
    pub tip: BlockHash,
    /// The version of the watch rules that it was filtered with.
    pub version: ListVersion,
    /// Every listed transaction, ours or not, fetched or not. Absent from here = not in the mempool.
    pub listed: Arc<BTreeSet<Txid>>,
    /// The listed transactions that touch something of ours, parents before children. One that could not be
    /// fetched is in `listed` and not here: neither seen nor absent.
    pub txs: Vec<CandidateTx>,
    /// True when every listed transaction has been looked at.
    pub is_complete: bool,
}
