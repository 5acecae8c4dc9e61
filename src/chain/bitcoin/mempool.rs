//! The node's mempool, by difference: what is new in the list is fetched once, and of each transaction only
//! the short hashes of what it touches are kept, so that new rules can be tried on all of it. Those that may
//! be ours, and those that they depend on, are kept whole.
//!
//! Memory: about 150 bytes for each listed transaction and its id (a node's default of 300 MB holds 400,000
//! small ones at most), bounded by [`KNOWN_MAX`]; a list that is longer is never complete.

use super::BitcoinSource;
use super::calls::{Hash, HexBytes, Id, NOT_FOUND, is_code};
use super::decode::{ancestors, candidate_output, has_address, inputs, overpays};
use super::{convert, odd_answer};
use crate::chain::SourceError;
use crate::chain::rpc::{Limits, RpcError};
use crate::egress::{Dial, DialError};
use crate::index::{AlreadyHashed, Index, short, short_outpoint};
use crate::rules::{BlockHash, CandidateOutput, CandidateTx, ListVersion, MempoolList, Outpoint, Txid};
use bitcoincore_rpc::bitcoin::Transaction;
use bitcoincore_rpc::bitcoin::consensus::encode::deserialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::{Arc, MutexGuard, PoisonError};

/// How many transactions are fetched in one exchange.
const BATCH: usize = 500;

/// How many new ones are fetched in one poll: a large mempool is read over several, so that blocks get their
/// turn.
const FETCH_MAX: usize = 5_000;

/// How many transactions are remembered.
const KNOWN_MAX: usize = 500_000;

/// The longest list: 950,000 ids.
const LIST_BYTES_MAX: usize = 64 << 20;

/// The largest batch answer; a batch that is larger is asked for in halves.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// How many rounds of parents are fetched.
const ROUNDS_MAX: usize = 64;

/// What is remembered between polls. It only saves fetches: no answer depends on it.
#[derive(Debug, Default)]
pub(super) struct Memory {
    known: BTreeMap<Txid, Known>,
    version: ListVersion,
}

/// One transaction of the mempool.
#[derive(Debug)]
struct Known {
    /// Short hashes: of its outputs that an address stands for, then of its inputs.
    shorts: Box<[u64]>,
    output_count: usize,
    /// May one of its outputs be ours, by the rules of [`Memory::version`]?
    may_pay_us: bool,
    whole: Option<Arc<Whole>>,
}

/// What is kept of a transaction that matters.
#[derive(Debug)]
struct Whole {
    inputs: Vec<Outpoint>,
    outputs: Vec<CandidateOutput>,
}

type Shorts = HashSet<u64, BuildHasherDefault<AlreadyHashed>>;

impl Known {
    fn new(tx: &Transaction, index: &Index) -> Known {
        let inputs = inputs(tx);
        let outputs = (0_u64..)
            .zip(&tx.output)
            .filter(|(_, output)| has_address(&output.script_pubkey));
        let outputs: Vec<_> = outputs
            .map(|(vout, output)| candidate_output(vout, output))
            .collect();
        let mut shorts: Vec<u64> = outputs.iter().map(|output| short(&output.script.0)).collect();
        shorts.extend(inputs.iter().map(short_outpoint));
        let mut known = Known {
            shorts: shorts.into(),
            output_count: outputs.len(),
            may_pay_us: false,
            whole: None,
        };
        known.match_outputs(index);
        known.whole = Some(Arc::new(Whole { inputs, outputs }));
        known
    }

    fn match_outputs(&mut self, index: &Index) {
        self.may_pay_us = self
            .shorts
            .iter()
            .take(self.output_count)
            .any(|short| index.may_hold_script(*short));
    }

    fn spends(&self, shorts: &Shorts, index: &Index) -> bool {
        let mut inputs = self.shorts.iter().skip(self.output_count);
        inputs.any(|input| index.may_hold_short_outpoint(*input) || shorts.contains(input))
    }
}

impl Memory {
    /// Forgets what is no longer listed and returns what is new. Both sides are sorted, so one walk does it.
    fn take_list(&mut self, listed: &BTreeSet<Txid>) -> Vec<Txid> {
        let mut walk = listed.iter().peekable();
        let mut unknown = Vec::new();
        self.known.retain(|txid, _| {
            while let Some(new) = walk.next_if(|listed| *listed < txid) {
                unknown.push(*new);
            }
            walk.next_if(|listed| *listed == txid).is_some()
        });
        unknown.extend(walk);
        unknown
    }

    /// Tries newer rules on everything known.
    fn match_again(&mut self, index: &Index) {
        if self.version != index.version() {
            self.known
                .values_mut()
                .for_each(|known| known.match_outputs(index));
            self.version = index.version();
        }
    }

    fn whole(&self, txid: &Txid) -> Option<&Arc<Whole>> {
        self.known.get(txid)?.whole.as_ref()
    }

    /// Those that pay us and are not kept whole (any more).
    fn payers_to_fetch(&self) -> Vec<Txid> {
        let missing = self
            .known
            .iter()
            .filter(|(_, known)| known.may_pay_us && known.whole.is_none());
        missing.map(|(txid, _)| *txid).collect()
    }

    /// Those that pay us, spend what the index holds, or spend what pays us here in the mempool.
    fn candidates(&self, index: &Index) -> BTreeSet<Txid> {
        let mut fresh = Shorts::default();
        for (txid, known) in self.known.iter().filter(|(_, known)| known.may_pay_us) {
            let outputs = known.whole.iter().flat_map(|whole| hits(whole, index));
            fresh.extend(outputs.map(|output| {
                short_outpoint(&Outpoint {
                    txid: *txid,
                    vout: output.vout,
                })
            }));
        }
        let ours = self
            .known
            .iter()
            .filter(|(_, known)| known.may_pay_us || known.spends(&fresh, index));
        ours.map(|(txid, _)| *txid).collect()
    }

    /// Walks up from `candidates`; returns all that it met and those of them that are not kept whole.
    fn family(&self, candidates: &BTreeSet<Txid>, listed: &BTreeSet<Txid>) -> (BTreeSet<Txid>, Vec<Txid>) {
        let mut met = candidates.clone();
        let mut missing = Vec::new();
        let mut open: Vec<Txid> = candidates.iter().copied().collect();
        while let Some(txid) = open.pop() {
            let Some(whole) = self.whole(&txid) else {
                missing.push(txid);
                continue;
            };
            for input in &whole.inputs {
                if listed.contains(&input.txid) && met.insert(input.txid) {
                    open.push(input.txid);
                }
            }
        }
        (met, missing)
    }

    /// Keeps whole only the family.
    fn release(&mut self, family: &BTreeSet<Txid>) {
        for (txid, known) in &mut self.known {
            if known.whole.is_some() && !family.contains(txid) {
                known.whole = None;
            }
        }
    }

    /// The candidates with what hit and with their ancestors, parents before children.
    fn list(&self, candidates: &BTreeSet<Txid>, index: &Index) -> Vec<CandidateTx> {
        let order = self.parents_first(candidates);
        let read = |txid: &Txid| self.whole(txid).map(|whole| whole.inputs.clone());
        let build = |txid: Txid| {
            let whole = self.whole(&txid)?;
            Some(CandidateTx {
                txid,
                is_coinbase: false,
                sender: None,
                is_failed: false,
                inputs: whole.inputs.clone(),
                outputs: hits(whole, index).cloned().collect(),
                ancestors: ancestors(&whole.inputs, read),
            })
        };
        order.into_iter().filter_map(build).collect()
    }

    fn parents_first(&self, candidates: &BTreeSet<Txid>) -> Vec<Txid> {
        let mut done = BTreeSet::new();
        let mut order = Vec::new();
        // A transaction is on the stack twice: to open it, and to close it after its parents.
        let mut stack: Vec<(Txid, bool)> = candidates.iter().rev().map(|txid| (*txid, false)).collect();
        while let Some((txid, is_open)) = stack.pop() {
            if is_open {
                order.push(txid);
            } else if done.insert(txid) {
                stack.push((txid, true));
                let parents = self.whole(&txid).into_iter().flat_map(|whole| &whole.inputs);
                stack.extend(parents.map(|input| (input.txid, false)));
            }
        }
        order.retain(|txid| candidates.contains(txid));
        order
    }
}

fn hits<'a>(whole: &'a Whole, index: &'a Index) -> impl Iterator<Item = &'a CandidateOutput> {
    whole
        .outputs
        .iter()
        .filter(|output| index.may_hold_script(short(&output.script.0)))
}

impl<D: Dial> BitcoinSource<D> {
    pub(super) async fn list_mempool(&self, index: &Index) -> Result<Option<MempoolList>, SourceError> {
        let Some((tip, listed)) = self.fetch_list().await? else {
            return Ok(None);
        };
        let (unknown, room) = {
            let mut memory = self.memory();
            memory.match_again(index);
            let unknown = memory.take_list(&listed);
            (
                unknown,
                KNOWN_MAX.saturating_sub(memory.known.len()).min(FETCH_MAX),
            )
        };
        let is_complete = unknown.len() <= room;
        self.fetch(&unknown[..unknown.len().min(room)], index).await?;
        let payers = self.memory().payers_to_fetch();
        self.fetch(&payers, index).await?;
        let candidates = self.memory().candidates(index);
        self.fetch_family(&candidates, &listed, index).await?;
        let txs = self.memory().list(&candidates, index);
        Ok(Some(MempoolList {
            tip,
            version: index.version(),
            listed: Arc::new(listed),
            txs,
            is_complete,
        }))
    }

    /// The list of ids, and the tip if that was the same before and after.
    async fn fetch_list(&self) -> Result<Option<(BlockHash, BTreeSet<Txid>)>, SourceError> {
        let Hash(before) = self.small("getbestblockhash", json!([])).await?;
        let limits = Limits {
            deadline: self.config.block_deadline,
            body_bytes_max: LIST_BYTES_MAX,
        };
        let listed = self.rpc.call::<Vec<Id>>("getrawmempool", json!([]), limits).await;
        let listed = listed.map_err(|error| error.into_source("getrawmempool"))?;
        let Hash(after) = self.small("getbestblockhash", json!([])).await?;
        let listed = listed.into_iter().map(|Id(txid)| txid).collect();
        Ok((before == after).then_some((before, listed)))
    }

    /// Fetches what the candidates depend on, round by round, and lets go of all else.
    async fn fetch_family(
        &self,
        candidates: &BTreeSet<Txid>,
        listed: &BTreeSet<Txid>,
        index: &Index,
    ) -> Result<(), SourceError> {
        let mut tried = BTreeSet::new();
        for _ in 0..ROUNDS_MAX {
            let (family, mut missing) = self.memory().family(candidates, listed);
            missing.retain(|txid| tried.insert(*txid));
            if missing.is_empty() {
                self.memory().release(&family);
                break;
            }
            self.fetch(&missing, index).await?;
        }
        Ok(())
    }

    /// Fetches transactions into the memory. One that the node no longer has is left out: it may be mined or
    /// gone, and the next list tells.
    async fn fetch(&self, txids: &[Txid], index: &Index) -> Result<(), SourceError> {
        let limits = Limits {
            deadline: self.config.block_deadline,
            body_bytes_max: BATCH_BYTES_MAX,
        };
        let mut parts: Vec<&[Txid]> = txids.chunks(BATCH).rev().collect();
        while let Some(part) = parts.pop() {
            let params = part.iter().map(|txid| json!([txid.to_string()]));
            let answers = match self
                .rpc
                .batch::<HexBytes>("getrawtransaction", params, limits)
                .await
            {
                Ok(answers) => answers,
                Err(RpcError::Dial(DialError::TooLarge { .. })) if part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                    continue;
                }
                Err(error) => return Err(error.into_source("getrawtransaction")),
            };
            for (txid, answer) in part.iter().zip(answers) {
                match answer {
                    Ok(HexBytes(bytes)) => self.learn(*txid, &bytes, index)?,
                    Err(error) if is_code(&error, NOT_FOUND) => {}
                    Err(error) => return Err(error.into_source(format!("read transaction {txid}"))),
                }
            }
        }
        Ok(())
    }

    fn learn(&self, txid: Txid, bytes: &[u8], index: &Index) -> Result<(), SourceError> {
        let doing = || format!("read transaction {txid}");
        let tx: Transaction = deserialize(bytes).map_err(|error| odd_answer(doing(), &error.to_string()))?;
        if convert::txid(tx.compute_txid()) != txid {
            return Err(odd_answer(doing(), "the answer is another transaction"));
        }
        if let Some(why) = overpays(&tx) {
            return Err(odd_answer(doing(), why));
        }
        self.memory().known.insert(txid, Known::new(&tx, index));
        Ok(())
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.mempool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
