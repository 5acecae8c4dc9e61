//! From the bytes of a block to its candidates. One pass skims each transaction, takes its id once (for the
//! merkle root and for the candidates), keeps short hashes of what it touches and goes on. Then the hashes
//! are looked up, all in a row: with a million scripts each look misses the processor's caches, and in a row
//! they overlap. Only the few transactions that hit are decoded.

use super::decode::{ancestors, candidate_output, has_address, inputs, overpays};
use super::hashes::DoubleHasher;
use super::skim::skim;
use super::{convert, pow};
use crate::address::Network;
use crate::index::{AlreadyHashed, Index, short, short_outpoint};
use crate::rules::{BlockHash, CandidateTx, Outpoint, ScannedBlock, Txid};
use bitcoincore_rpc::bitcoin;
use bitcoincore_rpc::bitcoin::consensus::Decodable;
use bitcoincore_rpc::bitcoin::consensus::encode::{self, VarInt};
use bitcoincore_rpc::bitcoin::hashes::Hash;
use bitcoincore_rpc::bitcoin::{Transaction, TxMerkleNode};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::BuildHasherDefault;

/// No transaction is smaller, so no honest count is larger than the bytes that follow it.
const TX_BYTES_MIN: usize = 60;

/// What is wrong with the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScanError {
    /// They hold another block than the one asked for.
    OtherBlock(BlockHash),
    /// They cannot be read to the end, or go on after it.
    Unreadable(String),
    /// They can, and break a rule.
    Broken(String),
}

impl From<encode::Error> for ScanError {
    fn from(error: encode::Error) -> ScanError {
        ScanError::Unreadable(error.to_string())
    }
}

/// Decodes, checks and filters one block.
pub(super) fn scan_block(
    network: Network,
    asked: BlockHash,
    bytes: &[u8],
    index: &Index,
) -> Result<ScannedBlock, ScanError> {
    let mut rest = bytes;
    let header = bitcoin::block::Header::consensus_decode(&mut rest)?;
    let hash = header.block_hash();
    if convert::block_hash(hash) != asked {
        return Err(ScanError::OtherBlock(convert::block_hash(hash)));
    }
    pow::check(network, &header, hash).map_err(ScanError::Broken)?;
    let digest = Digest::read(bytes, rest)?;
    check_merkle_root(&digest.ids, header.merkle_root)?;
    let txs = digest.candidates(index)?;
    Ok(ScannedBlock {
        header: convert::header(&header, hash),
        version: index.version(),
        txs,
        output_shorts: digest.outputs.shorts,
    })
}

/// What is kept of all transactions of a block.
struct Digest<'a> {
    bytes: &'a [u8],
    /// As hashed, not as printed.
    ids: Vec<[u8; 32]>,
    /// Where in `bytes` each begins.
    starts: Vec<usize>,
    outputs: Touched,
    inputs: Touched,
}

/// Short hashes of what the transactions touch, in block order, and how many there are up to the end of each.
struct Touched {
    shorts: Vec<u64>,
    ends: Vec<usize>,
}

impl Touched {
    fn with_room(count: usize) -> Touched {
        Touched {
            shorts: Vec::with_capacity(count * 2),
            ends: Vec::with_capacity(count),
        }
    }

    /// The places of the transactions that touch what `is_hit` knows.
    fn hits(&self, is_hit: impl Fn(u64) -> bool) -> impl Iterator<Item = usize> {
        let hits = self
            .shorts
            .iter()
            .enumerate()
            .filter(move |(_, short)| is_hit(**short));
        hits.map(|(at, _)| self.ends.partition_point(|end| *end <= at))
    }
}

impl<'a> Digest<'a> {
    /// Reads the transactions, which begin at `rest` within `bytes`, to the end of it.
    fn read(bytes: &'a [u8], mut rest: &[u8]) -> Result<Digest<'a>, ScanError> {
        let count = usize::try_from(VarInt::consensus_decode(&mut rest)?.0).unwrap_or(usize::MAX);
        if count > rest.len() / TX_BYTES_MIN {
            let left = rest.len();
            return Err(ScanError::Unreadable(format!(
                "{count} transactions in {left} bytes"
            )));
        }
        let mut digest = Digest {
            bytes,
            ids: Vec::new(),
            starts: Vec::with_capacity(count),
            outputs: Touched::with_room(count),
            inputs: Touched::with_room(count),
        };
        let mut ids = DoubleHasher::with_room(count);
        for place in 0..count {
            digest.starts.push(bytes.len() - rest.len());
            let is_coinbase = digest.take(&mut rest, &mut ids).ok_or_else(|| malformed(place))?;
            if is_coinbase != (place == 0) {
                let why = format!("transaction {place}: coinbase missing or misplaced");
                return Err(ScanError::Broken(why));
            }
        }
        if !rest.is_empty() {
            let left = rest.len();
            return Err(ScanError::Unreadable(format!(
                "{left} bytes after its last transaction"
            )));
        }
        digest.ids = ids.finish();
        Ok(digest)
    }

    /// Takes one transaction off the front of `rest`; is it a coinbase?
    fn take(&mut self, rest: &mut &[u8], ids: &mut DoubleHasher) -> Option<bool> {
        let (inputs, outputs) = (&mut self.inputs.shorts, &mut self.outputs.shorts);
        let spent = |raw: &[u8; 36]| inputs.push(short_outpoint(&convert::raw_outpoint(raw)));
        let paid = |script: &[u8]| {
            if has_address(bitcoin::Script::from_bytes(script)) {
                outputs.push(short(script));
            }
        };
        let tx = skim(rest, spent, paid)?;
        ids.add(&tx.hashed());
        self.inputs.ends.push(self.inputs.shorts.len());
        self.outputs.ends.push(self.outputs.shorts.len());
        Some(tx.is_coinbase)
    }

    /// Transactions that pay what the index may hold, spend what it may hold, or spend what pays it in this
    /// block.
    fn candidates(&self, index: &Index) -> Result<Vec<CandidateTx>, ScanError> {
        let mut places: BTreeSet<usize> = self.outputs.hits(|short| index.may_hold_script(short)).collect();
        let mut fresh: HashSet<u64, BuildHasherDefault<AlreadyHashed>> = HashSet::default();
        for place in &places {
            let tx = self.candidate(*place, index)?;
            fresh.extend(tx.outputs.iter().map(|output| {
                short_outpoint(&Outpoint {
                    txid: tx.txid,
                    vout: output.vout,
                })
            }));
        }
        let is_spent =
            |short| index.may_hold_short_outpoint(short) || (!fresh.is_empty() && fresh.contains(&short));
        places.extend(self.inputs.hits(is_spent));
        let mut txs = Vec::with_capacity(places.len());
        for place in places {
            txs.push(self.candidate(place, index)?);
        }
        self.add_ancestors(&mut txs);
        Ok(txs)
    }

    fn transaction(&self, place: usize) -> Result<Transaction, ScanError> {
        let start = self.starts.get(place).copied().unwrap_or(self.bytes.len());
        let mut from = self.bytes.get(start..).unwrap_or_default();
        Ok(Transaction::consensus_decode_from_finite_reader(&mut from)?)
    }

    fn candidate(&self, place: usize, index: &Index) -> Result<CandidateTx, ScanError> {
        let tx = self.transaction(place)?;
        if let Some(why) = overpays(&tx) {
            return Err(ScanError::Broken(format!("transaction {place}: {why}")));
        }
        let is_hit =
            |script: &bitcoin::Script| has_address(script) && index.may_hold_script(short(script.as_bytes()));
        let outputs = (0_u64..)
            .zip(&tx.output)
            .filter(|(_, output)| is_hit(&output.script_pubkey));
        Ok(CandidateTx {
            txid: convert::txid(tx.compute_txid()),
            is_coinbase: tx.is_coinbase(),
            sender: None,
            is_failed: false,
            inputs: inputs(&tx),
            outputs: outputs
                .map(|(vout, output)| candidate_output(vout, output))
                .collect(),
            ancestors: Vec::new(),
        })
    }

    fn add_ancestors(&self, txs: &mut [CandidateTx]) {
        // Nearly all candidates spend coin of earlier blocks: the few parents are looked for among the ids
        // before all ids are made a map.
        let parents: HashSet<u64, BuildHasherDefault<AlreadyHashed>> = txs
            .iter()
            .flat_map(|tx| &tx.inputs)
            .map(|input| first_bytes(&convert::reversed(input.txid.0)))
            .collect();
        if !self.ids.iter().any(|id| parents.contains(&first_bytes(id))) {
            return;
        }
        let mut places: HashMap<u64, usize, BuildHasherDefault<AlreadyHashed>> = HashMap::default();
        let ids = self.ids.iter().map(first_bytes);
        places.extend(ids.zip(0..));
        let read = |txid: &Txid| {
            let id = convert::reversed(txid.0);
            let place = *places.get(&first_bytes(&id))?;
            let is_it = *self.ids.get(place)? == id;
            let tx = is_it.then(|| self.transaction(place).ok()).flatten()?;
            Some(inputs(&tx))
        };
        for tx in txs {
            tx.ancestors = ancestors(&tx.inputs, read);
        }
    }
}

fn malformed(place: usize) -> ScanError {
    ScanError::Unreadable(format!("transaction {place} is cut short or malformed"))
}

/// Of an id as a key.
fn first_bytes(id: &[u8; 32]) -> u64 {
    id.first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
}

/// Also refuses the trick of CVE-2012-2459, by which a block with transactions repeated at its end has the
/// same root.
fn check_merkle_root(ids: &[[u8; 32]], root: TxMerkleNode) -> Result<(), ScanError> {
    let mut level = ids.to_vec();
    while level.len() > 1 {
        let mut above = DoubleHasher::with_room(level.len().div_ceil(2));
        for pair in level.chunks(2) {
            let (left, right) = (pair[0], pair.get(1).copied());
            if right == Some(left) {
                return Err(ScanError::Broken("transactions twice in it".to_owned()));
            }
            above.add(&[&left, &right.unwrap_or(left)]);
        }
        level = above.finish();
    }
    match level.first() {
        Some(found) if *found == root.to_byte_array() => Ok(()),
        Some(_) => Err(ScanError::Broken(
            "its transactions do not make its merkle root".to_owned(),
        )),
        None => Err(ScanError::Broken("no transaction in it".to_owned())),
    }
}
