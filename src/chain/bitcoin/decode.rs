//! From the bytes of a block to its candidates, in one pass. Each transaction is decoded, its id taken once
//! (for the merkle root and for the candidates) and forgotten, unless it touches something that the index may
//! hold.

use super::config::Network;
use super::{convert, pow};
use crate::index::{AlreadyHashed, Index, short, short_outpoint};
use crate::rules::{
    Amount, Ancestor, BlockHash, CandidateOutput, CandidateTx, Outpoint, ScannedBlock, Script, Txid,
};
use bitcoincore_rpc::bitcoin;
use bitcoincore_rpc::bitcoin::consensus::Decodable;
use bitcoincore_rpc::bitcoin::consensus::encode::{self, VarInt};
use bitcoincore_rpc::bitcoin::hashes::{Hash, HashEngine, sha256d};
use bitcoincore_rpc::bitcoin::{Transaction, TxMerkleNode};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::BuildHasherDefault;

/// How many unconfirmed ancestors are kept of one transaction. Nodes relay chains of 25 (or clusters of 64);
/// a miner may make longer ones, of which the nearest are enough to give a state its name.
pub(super) const ANCESTORS_MAX: usize = 128;

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
    let count = usize::try_from(VarInt::consensus_decode(&mut rest)?.0).unwrap_or(usize::MAX);
    if count > rest.len() / TX_BYTES_MIN {
        return Err(ScanError::Unreadable(format!(
            "{count} transactions in {} bytes",
            rest.len()
        )));
    }
    let mut scan = Scan::new(index, count);
    for place in 0..count {
        let start = bytes.len() - rest.len();
        let tx = Transaction::consensus_decode_from_finite_reader(&mut rest)?;
        if tx.is_coinbase() != (place == 0) {
            return Err(ScanError::Broken(format!(
                "transaction {place}: coinbase missing or misplaced"
            )));
        }
        scan.take(&tx, start);
    }
    if !rest.is_empty() {
        return Err(ScanError::Unreadable(format!(
            "{} bytes after its last transaction",
            rest.len()
        )));
    }
    check_merkle_root(&scan.ids, header.merkle_root)?;
    scan.add_ancestors(bytes)?;
    Ok(ScannedBlock {
        header: convert::header(&header, hash),
        version: index.version(),
        txs: scan.txs,
        output_shorts: scan.output_shorts,
    })
}

/// What is kept of a block while it is read.
struct Scan<'a> {
    index: &'a Index,
    /// The id and the first byte of each transaction.
    ids: Vec<bitcoin::Txid>,
    starts: Vec<usize>,
    txs: Vec<CandidateTx>,
    /// The outputs of this block that hit the index: whoever spends one in the same block is a candidate too.
    fresh: HashSet<u64, BuildHasherDefault<AlreadyHashed>>,
    output_shorts: Vec<u64>,
}

impl<'a> Scan<'a> {
    fn new(index: &'a Index, count: usize) -> Scan<'a> {
        Scan {
            index,
            ids: Vec::with_capacity(count),
            starts: Vec::with_capacity(count),
            txs: Vec::new(),
            fresh: HashSet::default(),
            output_shorts: Vec::with_capacity(count * 2),
        }
    }

    fn take(&mut self, tx: &Transaction, start: usize) {
        let id = tx.compute_txid();
        let outputs = self.hits(tx, id);
        let is_spend = self.is_spend(tx);
        if is_spend || !outputs.is_empty() {
            self.txs.push(candidate(tx, convert::txid(id), outputs));
        }
        self.ids.push(id);
        self.starts.push(start);
    }

    fn hits(&mut self, tx: &Transaction, id: bitcoin::Txid) -> Vec<CandidateOutput> {
        let mut hits = Vec::new();
        for (vout, output) in (0_u64..).zip(&tx.output) {
            if !has_address(&output.script_pubkey) {
                continue;
            }
            let short = short(output.script_pubkey.as_bytes());
            self.output_shorts.push(short);
            if self.index.may_hold_script(short) {
                hits.push(candidate_output(vout, output));
                self.fresh.insert(short_outpoint(&Outpoint {
                    txid: convert::txid(id),
                    vout,
                }));
            }
        }
        hits
    }

    fn is_spend(&self, tx: &Transaction) -> bool {
        tx.input.iter().any(|input| {
            let spent = convert::outpoint(input.previous_output);
            self.index.may_hold_outpoint(&spent)
                || (!self.fresh.is_empty() && self.fresh.contains(&short_outpoint(&spent)))
        })
    }

    /// Candidates are few, so the transactions that they depend on are decoded a second time rather than all
    /// kept.
    fn add_ancestors(&mut self, bytes: &[u8]) -> Result<(), ScanError> {
        if self.txs.is_empty() {
            return Ok(());
        }
        let mut places: HashMap<u64, usize, BuildHasherDefault<AlreadyHashed>> = HashMap::default();
        places.extend(
            self.ids
                .iter()
                .enumerate()
                .map(|(place, id)| (first_bytes(&convert::txid(*id)), place)),
        );
        let place_of = |txid: &Txid| {
            let place = *places.get(&first_bytes(txid))?;
            (convert::txid(*self.ids.get(place)?) == *txid).then_some(place)
        };
        let read = |txid: &Txid| -> Option<Vec<Outpoint>> {
            let start = *self.starts.get(place_of(txid)?)?;
            let tx = Transaction::consensus_decode_from_finite_reader(&mut bytes.get(start..)?).ok()?;
            Some(inputs(&tx))
        };
        for tx in &mut self.txs {
            tx.ancestors = ancestors(&tx.inputs, read);
        }
        Ok(())
    }
}

/// The unconfirmed transactions that `inputs` depend on, nearest first. `read` knows the inputs of those that
/// are unconfirmed themselves (or in the same block) and `None` of all others.
pub(super) fn ancestors(inputs: &[Outpoint], read: impl Fn(&Txid) -> Option<Vec<Outpoint>>) -> Vec<Ancestor> {
    let mut found: Vec<Ancestor> = Vec::new();
    let mut met = BTreeSet::new();
    let mut from = inputs.to_vec();
    let mut next = 0;
    loop {
        for input in &from {
            if found.len() < ANCESTORS_MAX
                && met.insert(input.txid)
                && let Some(inputs) = read(&input.txid)
            {
                found.push(Ancestor {
                    txid: input.txid,
                    inputs,
                });
            }
        }
        match found.get(next) {
            Some(ancestor) => from.clone_from(&ancestor.inputs),
            None => return found,
        }
        next += 1;
    }
}

/// A coinbase has no inputs: what stands there spends nothing.
pub(super) fn inputs(tx: &Transaction) -> Vec<Outpoint> {
    if tx.is_coinbase() {
        return Vec::new();
    }
    tx.input
        .iter()
        .map(|input| convert::outpoint(input.previous_output))
        .collect()
}

fn candidate(tx: &Transaction, txid: Txid, outputs: Vec<CandidateOutput>) -> CandidateTx {
    CandidateTx {
        txid,
        is_coinbase: tx.is_coinbase(),
        inputs: inputs(tx),
        outputs,
        ancestors: Vec::new(),
    }
}

pub(super) fn candidate_output(vout: u64, output: &bitcoin::TxOut) -> CandidateOutput {
    CandidateOutput {
        vout,
        script: Script(output.script_pubkey.as_bytes().into()),
        amount: Amount::from_u64(output.value.to_sat()),
    }
}

/// Only scripts that an address stands for can be watched: never a bare key, bare multisig or data.
pub(super) fn has_address(script: &bitcoin::Script) -> bool {
    script.is_witness_program() || script.is_p2pkh() || script.is_p2sh()
}

fn first_bytes(txid: &Txid) -> u64 {
    let mut tail = [0; 8];
    tail.copy_from_slice(&txid.0[24..]);
    u64::from_le_bytes(tail)
}

/// Also refuses the trick of CVE-2012-2459, by which a block with transactions repeated at its end has the
/// same root.
fn check_merkle_root(ids: &[bitcoin::Txid], root: TxMerkleNode) -> Result<(), ScanError> {
    let mut level: Vec<sha256d::Hash> = ids.iter().map(|id| id.to_raw_hash()).collect();
    while level.len() > 1 {
        let mut above = Vec::with_capacity(level.len().div_ceil(2));
        for pair in level.chunks(2) {
            let (left, right) = (pair[0], pair.get(1).copied());
            if right == Some(left) {
                return Err(ScanError::Broken("transactions twice in it".to_owned()));
            }
            let mut engine = sha256d::Hash::engine();
            engine.input(left.as_byte_array());
            engine.input(right.unwrap_or(left).as_byte_array());
            above.push(sha256d::Hash::from_engine(engine));
        }
        level = above;
    }
    match level.first() {
        Some(found) if *found == root.to_raw_hash() => Ok(()),
        Some(_) => Err(ScanError::Broken(
            "its transactions do not make its merkle root".to_owned(),
        )),
        None => Err(ScanError::Broken("no transaction in it".to_owned())),
    }
}
