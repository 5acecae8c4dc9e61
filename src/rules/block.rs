//! What a source reports of a chain: headers, candidates (transactions that touch something of ours), mempool
//! lists. Sources make these values, the store applies them; neither sees the other.

use super::{Amount, Asset, BlockHash, ListVersion, Outpoint, Script, Txid, Work};
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

impl HeldHeader {
    /// The place of a header on this one; `None` past the most work that can be counted. Whether it belongs
    /// there is its parent's hash to say.
    pub fn child(&self, header: Header) -> Option<HeldHeader> {
        Some(HeldHeader {
            height: self.height.checked_add(1)?,
            header,
            chainwork: self.chainwork.checked_add(header.work)?,
        })
    }
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
    /// EVM: who sent it; `None` on Bitcoin.
    pub sender: Option<Script>,
    /// EVM: it is in its block with status 0, so it paid nobody. Never true on Bitcoin.
    pub is_failed: bool,
    /// Every outpoint that it spends; on EVM chains the one [`sender_outpoint`] of its sender and nonce, none
    /// where it has none.
    pub inputs: Vec<Prevout>,
    /// The outputs whose script hit the index.
    pub outputs: Vec<CandidateOutput>,
    /// Its unconfirmed ancestors known at this moment (mempool parents; parents in the same block), with
    /// their inputs: whoever spends one of those replaces this transaction too.
    pub ancestors: Vec<Ancestor>,
}

/// An outpoint that a transaction spends.
pub type Prevout = Outpoint;

/// A sender's nonce as if it were an outpoint: one transaction of a sender uses a nonce up, and whoever uses
/// it first replaces all others, as with an outpoint on Bitcoin. Twelve zero bytes lead; a real transaction
/// id that begins so would take 2^96 tries.
pub fn sender_outpoint(sender: &[u8; 20], nonce: u64) -> Prevout {
    let mut bytes = [0; 32];
    bytes[12..].copy_from_slice(sender);
    Outpoint {
        txid: Txid(bytes),
        vout: nonce,
    }
}

/// A stored EVM transaction as if it were an outpoint, so that a filter that sees ids alone finds it again,
/// whatever it pays this time.
pub fn tx_mark(txid: Txid) -> Outpoint {
    Outpoint { txid, vout: u64::MAX }
}

/// Sender and nonce of a [`sender_outpoint`]; `None` of a real outpoint.
pub fn sender_of(prevout: &Prevout) -> Option<([u8; 20], u64)> {
    let (zeros, sender) = prevout.txid.0.split_at(12);
    let sender = sender.try_into().ok()?;
    zeros
        .iter()
        .all(|byte| *byte == 0)
        .then_some((sender, prevout.vout))
}

/// One output to a script of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateOutput {
    /// Output number, or on EVM chains the position ([`super::position`]) in execution 0.
    pub vout: u64,
    /// The script paid to.
    pub script: Script,
    /// What it pays.
    pub asset: Asset,
    /// The amount in base units.
    pub amount: Amount,
    /// EVM: whose coin or token moves here; `None` on Bitcoin.
    pub from: Option<Script>,
    /// Why it cannot be believed without an operator, if so: its deposit is held.
    pub doubt: Option<Doubt>,
}

/// Why an output of an EVM transaction starts held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doubt {
    /// The receipt does not say plainly whether the transaction succeeded.
    Status,
    /// The token moved another amount than its log says: it takes a fee, or lies.
    Balance,
}

impl Doubt {
    /// Every doubt.
    pub const ALL: [Doubt; 2] = [Doubt::Status, Doubt::Balance];

    /// The word in the database, JSON and tables.
    pub fn word(self) -> &'static str {
        match self {
            Doubt::Status => "status_unknown",
            Doubt::Balance => "balance_differs",
        }
    }

    /// Reads [`Doubt::word`] back.
    pub fn from_word(word: &str) -> Option<Doubt> {
        Doubt::ALL.into_iter().find(|doubt| doubt.word() == word)
    }
}

/// A block that a node gives a finality tag (EVM `safe`, `finalized`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaggedBlock {
    /// Its height.
    pub height: u64,
    /// Its hash.
    pub hash: BlockHash,
}

/// An unconfirmed transaction that a candidate depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// The ancestor.
    pub txid: Txid,
    /// What it spends.
    pub inputs: Vec<Prevout>,
}

/// A payment as the chain shows it to whoever reads it again, over another path than the one that books it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paid {
    /// The block that holds it.
    pub at: TaggedBlock,
    /// Transaction, and output number or position of execution 0.
    pub outpoint: Outpoint,
    /// Who is paid.
    pub script: Script,
    /// In what.
    pub asset: Asset,
    /// How much, in base units.
    pub amount: Amount,
    /// EVM: whose coin or token moves; `None` on Bitcoin.
    pub from: Option<Script>,
    /// EVM: the transaction ended with status 1. Always true on Bitcoin.
    pub is_success: bool,
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

/// The blocks that a node gives finality tags (EVM).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// The tag `safe`.
    pub safe: Option<TaggedBlock>,
    /// The tag `finalized`.
    pub finalized: Option<TaggedBlock>,
}
