//! Proofs of Bitcoin payments: the transaction, the branch that leads from it to its block's merkle root, and
//! the headers from that block on, each with its proof of work. The block's first transaction comes with its
//! own branch: as both have one depth, no inner node can pass for a transaction (CVE-2017-12842), and it
//! names the height (BIP 34).

use super::config::MAIN_478559;
use super::{BlockAgain, convert, pow};
use crate::address::Network;
use crate::chain::proof::{Claim, ProofFault};
use crate::rules::policy::COINBASE_DEPTH;
use crate::rules::{Asset, BlockHash, HeldHeader, TaggedBlock, Txid, Work};
use bitcoincore_rpc::bitcoin;
use bitcoincore_rpc::bitcoin::Transaction;
use bitcoincore_rpc::bitcoin::consensus::{deserialize, serialize};
use bitcoincore_rpc::bitcoin::hashes::{Hash as _, sha256d};

/// The deepest tree of a block: its transactions have at least 60 bytes each, and a block at most 4,000,000.
const DEPTH_MAX: usize = 32;

/// Two hashes side by side: what has this many bytes could be read as both, transaction and inner node.
const NODE_BYTES: usize = 64;

/// More than there will ever be, in base units.
const COIN_MAX: u64 = 21_000_000 * 100_000_000;

/// The heights from which blocks of the main chain need these versions (BIP 34, 66 and 65). From the first of
/// them on a block's first transaction begins with its height; before, what it begins with is read as one.
const MAIN_VERSIONS: [(u64, i32); 3] = [(MAIN_NAMED_FROM, 2), (363_725, 3), (388_381, 4)];

/// The first block of the main chain that has to name its height.
pub const MAIN_NAMED_FROM: u64 = 227_931;

/// One header as it is hashed.
pub type RawHeader = [u8; 80];

/// What a proof of a payment holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitcoinProof {
    /// The transaction, with its witnesses.
    pub tx: Vec<u8>,
    /// The hashes beside its way up to the root, lowest first, as they are hashed.
    pub branch: Vec<[u8; 32]>,
    /// Its place in the block.
    pub index: u64,
    /// The block's first transaction.
    pub coinbase: Vec<u8>,
    /// The hashes beside that one's way.
    pub coinbase_branch: Vec<[u8; 32]>,
    /// The block's header and those on top of it.
    pub headers: Vec<RawHeader>,
    /// The last of these headers.
    pub due: TaggedBlock,
    /// Where the branch of headers begins, if it is told from there.
    pub anchor: Option<Anchor>,
}

/// A block below, and the headers from it up to the one right below the payment's block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Where it begins.
    pub at: TaggedBlock,
    /// The headers, that of the anchor first.
    pub headers: Vec<RawHeader>,
}

/// What a good proof shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// How many hashes the branch has.
    pub depth: usize,
    /// From the payment's block on.
    pub blocks: u64,
    /// The work of these blocks.
    pub work: Work,
    /// The payment's block and those above it that it has, lowest first: each of them, if it is trusted,
    /// vouches for the payment's. One below does not: whoever mines a block on it has a branch of his own.
    pub hashes: Vec<BlockHash>,
    /// A block that it goes down to and that is known here.
    pub known: Option<TaggedBlock>,
}

/// A block from which payments are proved: its tree is made once, however many they are.
#[derive(Clone, Debug)]
pub struct BlockToProve<'b> {
    block: &'b BlockAgain,
    /// The hashes of each level of the tree, the transactions' first; the last of them is the root.
    levels: Vec<Vec<[u8; 32]>>,
}

impl<'b> BlockToProve<'b> {
    /// Makes the tree of a block. That takes milliseconds.
    pub fn of(block: &'b BlockAgain) -> BlockToProve<'b> {
        let hash = |tx: &Transaction| tx.compute_txid().to_byte_array();
        BlockToProve {
            levels: levels(block.transactions().iter().map(hash).collect()),
            block,
        }
    }

    /// Proves a payment; `None` where the block does not hold it. `headers` are those of the block and on top
    /// of it, the last of them that of `due`.
    pub fn prove(&self, txid: &Txid, headers: Vec<RawHeader>, due: TaggedBlock) -> Option<BitcoinProof> {
        let index = self.block.place(txid)?;
        let txs = self.block.transactions();
        Some(BitcoinProof {
            tx: serialize(txs.get(index)?),
            branch: branch(&self.levels, index),
            index: u64::try_from(index).ok()?,
            coinbase: serialize(txs.first()?),
            coinbase_branch: branch(&self.levels, 0),
            headers,
            due,
            anchor: None,
        })
    }
}

/// Holds a proof against what it is to show.
///
/// # Errors
/// The first check that it fails.
pub fn verify(network: Network, proof: &BitcoinProof, claim: &Claim) -> Result<Shown, ProofFault> {
    let tx = transaction("transaction", &proof.tx)?;
    check_output(&tx, claim)?;
    let coinbase = transaction("coinbase", &proof.coinbase)?;
    let block = header(proof.headers.first(), "block")?;
    if convert::block_hash(block.block_hash()) != claim.block.hash {
        return Err(ProofFault::new("block", "its header is of another block"));
    }
    let root = block.merkle_root.to_byte_array();
    check_branch("branch", &tx, proof.index, &proof.branch, &root)?;
    check_branch("coinbase", &coinbase, 0, &proof.coinbase_branch, &root)?;
    if proof.coinbase_branch.len() != proof.branch.len() {
        return Err(ProofFault::new("branch", "it is not as long as the coinbase's"));
    }
    if !coinbase.is_coinbase() || tx.is_coinbase() != (proof.index == 0) {
        return Err(ProofFault::new(
            "coinbase",
            "the first transaction, and only it, makes coin",
        ));
    }
    check_height(network, &coinbase, &block, claim.block.height)?;
    let above = check_headers(network, &proof.headers, claim.block.height)?;
    check_due(proof, &above, tx.is_coinbase())?;
    if let Some(anchor) = &proof.anchor {
        check_anchor(network, anchor, claim.block.height, &above)?;
    }
    let none = Work::default();
    let sum = |sum: Work, held: &HeldHeader| sum.checked_add(held.header.work).unwrap_or(sum);
    let known = proof.anchor.as_ref().map(|anchor| anchor.at).filter(|at| {
        let is_checkpoint = (at.height, at.hash) == (MAIN_478559.height, MAIN_478559.hash);
        let is_first = (at.height, at.hash) == (0, network.genesis());
        is_first || (network == Network::Main && is_checkpoint)
    });
    Ok(Shown {
        depth: proof.branch.len(),
        blocks: proof.headers.len() as u64,
        work: above.iter().fold(none, sum),
        hashes: above.iter().map(|held| held.header.hash).collect(),
        known,
    })
}

fn transaction(check: &'static str, bytes: &[u8]) -> Result<Transaction, ProofFault> {
    let tx: Transaction = deserialize(bytes).map_err(|error| ProofFault::new(check, error.to_string()))?;
    // One transaction in two forms would be two files with one meaning.
    match serialize(&tx) == bytes {
        true => Ok(tx),
        false => Err(ProofFault::new(check, "its bytes are of another form")),
    }
}

fn check_output(tx: &Transaction, claim: &Claim) -> Result<(), ProofFault> {
    if convert::txid(tx.compute_txid()) != claim.outpoint.txid {
        return Err(ProofFault::new("transaction", "it has another id"));
    }
    if tx.base_size() == NODE_BYTES {
        let why = "64 bytes, so it could be an inner node of the tree";
        return Err(ProofFault::new("transaction", why));
    }
    let output = usize::try_from(claim.outpoint.vout)
        .ok()
        .and_then(|vout| tx.output.get(vout));
    let Some(output) = output else {
        return Err(ProofFault::new(
            "output",
            "the transaction has none of this number",
        ));
    };
    if *output.script_pubkey.as_bytes() != *claim.script.0 {
        return Err(ProofFault::new("output", "it pays another script"));
    }
    if output.value.to_sat() > COIN_MAX {
        return Err(ProofFault::new("output", "there is not so much coin"));
    }
    if output.value.to_sat().to_string() != claim.amount.to_string() {
        let why = format!("it pays {} base units", output.value.to_sat());
        return Err(ProofFault::new("output", why));
    }
    match claim.asset {
        Asset::Native => Ok(()),
        Asset::Token(_) => Err(ProofFault::new("output", "it pays coin, no token")),
    }
}

fn header(raw: Option<&RawHeader>, check: &'static str) -> Result<bitcoin::block::Header, ProofFault> {
    let raw = raw.ok_or_else(|| ProofFault::new(check, "there is no header"))?;
    deserialize(raw).map_err(|error| ProofFault::new(check, error.to_string()))
}

fn check_branch(
    check: &'static str,
    tx: &Transaction,
    index: u64,
    branch: &[[u8; 32]],
    root: &[u8; 32],
) -> Result<(), ProofFault> {
    if branch.len() > DEPTH_MAX || index.checked_shr(branch.len().try_into().unwrap_or(u32::MAX)) != Some(0) {
        return Err(ProofFault::new(check, "no tree of this depth has such a place"));
    }
    let mut hash = tx.compute_txid().to_byte_array();
    for (level, beside) in branch.iter().enumerate() {
        hash = match index >> level & 1 {
            0 => pair(&hash, beside),
            // The last of an odd number stands beside itself, on the left (CVE-2012-2459).
            _ if *beside == hash => return Err(ProofFault::new(check, "that place is behind the last one")),
            _ => pair(beside, &hash),
        };
    }
    match hash == *root {
        true => Ok(()),
        false => Err(ProofFault::new(
            check,
            "it does not lead to the block's merkle root",
        )),
    }
}

fn pair(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    sha256d::Hash::hash(&[*left, *right].concat()).to_byte_array()
}

/// The levels of a tree over these leaves, lowest first, up to the one hash that is its root. The last of an
/// odd number stands beside itself.
fn levels(leaves: Vec<[u8; 32]>) -> Vec<Vec<[u8; 32]>> {
    let (mut level, mut levels) = (leaves, Vec::new());
    while level.len() > 1 {
        let above = level
            .chunks(2)
            .filter_map(|two| Some(pair(two.first()?, two.last()?)))
            .collect();
        levels.push(std::mem::replace(&mut level, above));
    }
    levels.push(level);
    levels
}

/// The hashes beside the way from one leaf up.
fn branch(levels: &[Vec<[u8; 32]>], index: usize) -> Vec<[u8; 32]> {
    let below_root = levels.iter().filter(|level| level.len() > 1);
    let beside = below_root.zip(0_u32..).map(|(level, up)| {
        let place = index >> up;
        level.get(place ^ 1).or(level.last()).copied()
    });
    beside.flatten().collect()
}

/// The height that the first transaction of a block begins with.
fn named_height(coinbase: &Transaction) -> Option<u64> {
    let script = coinbase.input.first()?.script_sig.as_bytes();
    let (opcode, behind) = script.split_first()?;
    let length = match opcode {
        0x51..=0x60 => return Some(u64::from(opcode - 0x50)),
        1..=5 => usize::from(*opcode),
        _ => return None,
    };
    let digits = behind.get(..length)?;
    // A script's numbers have a sign in the highest bit, and no byte more than they need.
    let (highest, rest) = digits.split_last()?;
    let needs_highest = *highest > 0 || rest.last().is_some_and(|next| *next >= 0x80);
    if *highest >= 0x80 || !needs_highest {
        return None;
    }
    Some(
        digits
            .iter()
            .rev()
            .fold(0, |sum, digit| sum << 8 | u64::from(*digit)),
    )
}

/// Does the block name this height, and must it?
fn check_height(
    network: Network,
    coinbase: &Transaction,
    block: &bitcoin::block::Header,
    height: u64,
) -> Result<(), ProofFault> {
    let fault = |why: String| Err(ProofFault::new("height", why));
    if named_height(coinbase) != Some(height) {
        return fault(format!("the first transaction does not name height {height}"));
    }
    if network != Network::Main {
        return Ok(());
    }
    let versions = MAIN_VERSIONS.iter().filter(|(from, _)| *from <= height);
    match versions.map(|(_, version)| *version).max() {
        None => fault(format!("blocks below {MAIN_NAMED_FROM} do not name theirs")),
        Some(version) if block.version.to_consensus() < version => {
            fault(format!("a block at {height} has version {version} or more"))
        }
        Some(_) => Ok(()),
    }
}

/// Headers in a row, the first one at `height`: each has its proof of work, names the one before it, and has
/// a difficulty that may follow.
fn check_headers(network: Network, raw: &[RawHeader], height: u64) -> Result<Vec<HeldHeader>, ProofFault> {
    let mut held: Vec<HeldHeader> = Vec::with_capacity(raw.len());
    for (height, raw) in (height..).zip(raw) {
        let fault = |check, why: String| ProofFault::new(check, format!("header {height}: {why}"));
        let header = header(Some(raw), "headers")?;
        let header = pow::checked_header(network, &header).map_err(|why| fault("work", why))?;
        let below = held.last();
        if let Some(below) = below {
            if header.parent != below.header.hash {
                return Err(fault("headers", "it does not name the one before it".to_owned()));
            }
            pow::check_link(network, below, &header).map_err(|why| fault("work", why))?;
        }
        held.push(HeldHeader {
            height,
            header,
            chainwork: Work::default(),
        });
    }
    Ok(held)
}

/// The headers go on to the block at which it was due, no shorter and no longer.
fn check_due(proof: &BitcoinProof, above: &[HeldHeader], is_coinbase: bool) -> Result<(), ProofFault> {
    let last = above.last().map(|held| TaggedBlock {
        height: held.height,
        hash: held.header.hash,
    });
    if last != Some(proof.due) {
        return Err(ProofFault::new(
            "due",
            "the last header is not that of the block that it names",
        ));
    }
    if is_coinbase && (above.len() as u64) < COINBASE_DEPTH {
        let why = format!("coin that a block makes has to be {COINBASE_DEPTH} blocks deep");
        return Err(ProofFault::new("due", why));
    }
    Ok(())
}

/// The headers below: they begin with the anchor's and end right below the block.
fn check_anchor(
    network: Network,
    anchor: &Anchor,
    height: u64,
    above: &[HeldHeader],
) -> Result<(), ProofFault> {
    if (anchor.at.hash == network.genesis()) != (anchor.at.height == 0) {
        return Err(ProofFault::new(
            "anchor",
            "the network's first block is at height 0 alone",
        ));
    }
    // First of all: heights of headers are counted up from here.
    if anchor.at.height.checked_add(anchor.headers.len() as u64) != Some(height) {
        return Err(ProofFault::new(
            "anchor",
            "its headers do not lead up to the block",
        ));
    }
    let below = check_headers(network, &anchor.headers, anchor.at.height)?;
    if below.first().map(|held| held.header.hash) != Some(anchor.at.hash) {
        return Err(ProofFault::new("anchor", "its first header is of another block"));
    }
    let (Some(last), Some(block)) = (below.last(), above.first()) else {
        return Err(ProofFault::new("anchor", "there is no header"));
    };
    if block.header.parent != last.header.hash {
        return Err(ProofFault::new(
            "anchor",
            "its headers do not lead up to the block",
        ));
    }
    pow::check_link(network, last, &block.header).map_err(|why| ProofFault::new("work", why))
}

/// The hash of a header.
pub fn hash_of(raw: &RawHeader) -> BlockHash {
    BlockHash(turned(sha256d::Hash::hash(raw).to_byte_array()))
}

/// Hashes as people write them are the other way round; so back from that.
pub fn turned(hash: [u8; 32]) -> [u8; 32] {
    convert::reversed(hash)
}
