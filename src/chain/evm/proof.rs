//! Proofs of payments on chains that hash their blocks as Ethereum does: the header, the branch that leads to
//! the transaction's receipt under the header's receipts root, and the one that leads to the transaction
//! under its transactions root, at the same place, because a receipt does not say whose it is. What cannot be
//! proved so (inner calls, chains with forms of their own) is told: as the node said it, for a reader who
//! asks another node.

use super::fields::{Account, FromText as _, Word};
mod forms;

use super::rlp::{self, Malformed};
use super::trie::{self, Trie};
use super::{EvmSource, encode, odd_answer, trace};
use crate::chain::proof::{Claim, ProofFault};
use crate::chain::rpc::{Answer, Question, RpcError};
use crate::chain::{SourceError, keep_busy};
use crate::egress::Dial;
use crate::rules::position::Position;
use crate::rules::{Amount, Asset, BlockHash, Txid};
use ethers_core::utils::keccak256;
use forms::{Log, Receipt, Transaction};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Where in a header the roots and the height stand.
const TRANSACTIONS_ROOT: usize = 4;
const RECEIPTS_ROOT: usize = 5;
const NUMBER: usize = 8;

/// How many fields a header may have: the first ones had fifteen, and later forks add some.
const HEADER_ITEMS: RangeInclusive<usize> = 15..=30;

/// Longer than any header: most of one is 256 bytes of bloom filter.
const HEADER_BYTES_MAX: usize = 8_192;

/// The hash of `Transfer(address,address,uint256)`.
const TRANSFER: &[u8] = b"Transfer(address,address,uint256)";

/// Who logs the coin that moves (EIP-7708).
const COIN_LOGGER: [u8; 20] = {
    let mut bytes = [0xff; 20];
    bytes[19] = 0xfe;
    bytes
};

/// A proof of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvmProof {
    /// The header, as it is hashed.
    pub header: Vec<u8>,
    /// The transaction's place in the block.
    pub index: u64,
    /// The nodes from the transactions root to the transaction.
    pub tx_branch: Vec<Vec<u8>>,
    /// The nodes from the receipts root to its receipt.
    pub receipt_branch: Vec<Vec<u8>>,
}

/// A payment as a node told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvmTold {
    /// Its receipt.
    pub receipt: Value,
    /// The transaction.
    pub tx: Value,
    /// Its trace, where coin moved inside it.
    pub trace: Value,
}

/// A block from which payments can be proved: its trees are made once, however many they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockToProve {
    header: Vec<u8>,
    /// Where each transaction stands.
    places: BTreeMap<[u8; 32], usize>,
    txs: Trie,
    receipts: Trie,
}

/// Why there is no block to prove from.
#[derive(Debug)]
pub enum Unprovable {
    /// No node answers.
    Source(SourceError),
    /// A node answers, and what it says does not make the block's hashes.
    Forms(String),
}

impl From<SourceError> for Unprovable {
    fn from(error: SourceError) -> Unprovable {
        Unprovable::Source(error)
    }
}

impl<D: Dial> EvmSource<D> {
    /// A whole block with its receipts, each in the form in which it is hashed, and these hashes checked.
    ///
    /// # Errors
    /// [`Unprovable`].
    pub async fn block_to_prove(&self, hash: BlockHash) -> Result<BlockToProve, Unprovable> {
        let doing = format!("read block 0x{hash} to prove payments of it");
        let text = format!("0x{hash}");
        let questions = [
            Question::new("eth_getBlockByHash", json!([text, true])),
            Question::new("eth_getBlockReceipts", json!([text])),
        ];
        let mut answers = self.ask(&doing, &questions).await?.into_iter();
        let block: Value = read(answers.next(), &doing)?;
        if block.is_null() {
            return Err(SourceError::UnknownBlock(hash).into());
        }
        let txs = block["transactions"].as_array().cloned().unwrap_or_default();
        let receipts = match answers.next().map(Answer::decode::<Option<Vec<Value>>>) {
            Some(Ok(Some(receipts))) => receipts,
            Some(Err(RpcError::Node { .. })) => self.receipts_one_by_one(&doing, &txs).await?,
            Some(Ok(None)) => return Err(SourceError::UnknownBlock(hash).into()),
            Some(Err(error)) => return Err(odd_answer(doing, &error.to_string()).into()),
            None => return Err(odd_answer(doing, "no answer").into()),
        };
        keep_busy(|| BlockToProve::of(hash, &block, &txs, &receipts)).map_err(Unprovable::Forms)
    }

    async fn receipts_one_by_one(&self, doing: &str, txs: &[Value]) -> Result<Vec<Value>, SourceError> {
        let question = |tx: &Value| Question::new("eth_getTransactionReceipt", json!([tx["hash"]]));
        let questions: Vec<Question> = txs.iter().map(question).collect();
        let answers = self.ask(doing, &questions).await?;
        answers
            .into_iter()
            .map(|answer| read(Some(answer), doing))
            .collect()
    }

    /// A transaction as a node tells it: with its trace, where the payment is inside it.
    ///
    /// # Errors
    /// [`SourceError`]; a transaction that the node does not know is an odd answer.
    pub async fn told(&self, txid: Txid, position: Position) -> Result<EvmTold, SourceError> {
        let doing = format!("read transaction 0x{txid} as it is told");
        let id = json!([format!("0x{txid}")]);
        let mut questions = vec![
            Question::new("eth_getTransactionReceipt", id.clone()),
            Question::new("eth_getTransactionByHash", id),
        ];
        if matches!(position, Position::Inner(_)) {
            let params = json!([format!("0x{txid}"), {"tracer": "callTracer"}]);
            questions.push(Question::new("debug_traceTransaction", params));
        }
        let mut answers = self.ask(&doing, &questions).await?.into_iter();
        let receipt: Value = read(answers.next(), &doing)?;
        let tx: Value = read(answers.next(), &doing)?;
        if !receipt.is_object() || !tx.is_object() {
            return Err(odd_answer(doing, "the node does not know it"));
        }
        // Many nodes have none.
        let trace = answers.next().and_then(|answer| answer.decode().ok());
        Ok(EvmTold {
            receipt,
            tx,
            trace: trace.unwrap_or(Value::Null),
        })
    }
}

impl BlockToProve {
    /// Encodes a block, and holds each form against the hash that it has to have.
    fn of(hash: BlockHash, block: &Value, txs: &[Value], receipts: &[Value]) -> Result<BlockToProve, String> {
        let header = encode::header(block).map_err(|why| format!("header: {why}"))?;
        if keccak256(&header) != hash.0 {
            return Err("the header has fields that are not known here: it has another hash".to_owned());
        }
        let numbered = |what: &str, place: usize, why: String| format!("{what} {place}: {why}");
        let (mut tx_forms, mut places) = (Vec::new(), BTreeMap::new());
        for (place, tx) in txs.iter().enumerate() {
            let tx = encode::transaction(tx).map_err(|why| numbered("transaction", place, why))?;
            places.insert(keccak256(&tx), place);
            tx_forms.push(tx);
        }
        let mut receipt_forms = Vec::new();
        for (place, receipt) in receipts.iter().enumerate() {
            let receipt = encode::receipt(receipt).map_err(|why| numbered("receipt", place, why))?;
            receipt_forms.push(receipt);
        }
        let fields = rlp::list(&header).map_err(|Malformed| "the header is no list".to_owned())?;
        let (txs, receipts) = (Trie::over(&tx_forms), Trie::over(&receipt_forms));
        for (root, trie, what) in [
            (TRANSACTIONS_ROOT, &txs, "transactions"),
            (RECEIPTS_ROOT, &receipts, "receipts"),
        ] {
            let named = fields.get(root).and_then(|root| root.exactly::<32>().ok());
            if named != Some(trie.root()) {
                return Err(format!("its {what} do not make the root that its header names"));
            }
        }
        Ok(BlockToProve {
            header,
            places,
            txs,
            receipts,
        })
    }

    /// Proves that the block holds a transaction, and what became of it; `None` where it does not hold it.
    pub fn prove(&self, txid: &Txid) -> Option<EvmProof> {
        let index = *self.places.get(&txid.0)?;
        Some(EvmProof {
            header: self.header.clone(),
            index: u64::try_from(index).ok()?,
            tx_branch: self.txs.branch(index),
            receipt_branch: self.receipts.branch(index),
        })
    }
}

fn read<T: serde::de::DeserializeOwned>(answer: Option<Answer>, doing: &str) -> Result<T, SourceError> {
    let answer = answer.ok_or_else(|| odd_answer(doing, "no answer"))?;
    answer
        .decode()
        .map_err(|error| odd_answer(doing, &error.to_string()))
}

/// Holds a proof against what it is to show, on the chain with this id.
///
/// # Errors
/// The first check that it fails.
pub fn verify(chain_id: &str, proof: &EvmProof, claim: &Claim) -> Result<(), ProofFault> {
    if proof.header.len() > HEADER_BYTES_MAX {
        return Err(ProofFault::new("header", "it is too long for one"));
    }
    let header = rlp::list(&proof.header).map_err(|_| ProofFault::new("header", "it is no header"))?;
    if keccak256(&proof.header) != claim.block.hash.0 {
        return Err(ProofFault::new("header", "it is of another block"));
    }
    if !HEADER_ITEMS.contains(&header.len()) {
        return Err(ProofFault::new("header", "no header has so many fields"));
    }
    let height = header.get(NUMBER).and_then(|number| number.count().ok());
    if height != Some(claim.block.height) {
        let why = format!("it is not that of a block at height {}", claim.block.height);
        return Err(ProofFault::new("height", why));
    }
    let shown = |check, root: usize, branch: &[Vec<u8>]| {
        let root = header.get(root).and_then(|root| root.exactly::<32>().ok());
        let root = root.ok_or_else(|| ProofFault::new("header", "it has no root"))?;
        let index = usize::try_from(proof.index).map_err(|_| ProofFault::new(check, "no such place"))?;
        trie::value(&root, index, branch).map_err(|error| ProofFault::new(check, error.to_string()))
    };
    let tx = shown("transaction", TRANSACTIONS_ROOT, &proof.tx_branch)?;
    if keccak256(&tx) != claim.outpoint.txid.0 {
        return Err(ProofFault::new("transaction", "it has another id"));
    }
    let receipt = shown("receipt", RECEIPTS_ROOT, &proof.receipt_branch)?;
    let receipt = Receipt::read(&receipt).map_err(|_| ProofFault::new("receipt", "it is no receipt"))?;
    if receipt.status != [1] {
        return Err(ProofFault::new("status", "the transaction did not succeed"));
    }
    let tx = Transaction::read(&tx).map_err(|_| ProofFault::new("transaction", "it is no transaction"))?;
    if tx.chain.as_ref().is_some_and(|chain| *chain != chain_id) {
        return Err(ProofFault::new("chain", "it was signed for another one"));
    }
    match Position::of_number(claim.outpoint.vout) {
        Some((Position::Native, 0)) => check_value(&tx, claim),
        Some((Position::Log(place), 0)) => {
            check_log(place, &receipt, claim)?;
            match claim.asset == Asset::Native && repeats_value(&receipt, &tx) == Some(place) {
                true => Err(ProofFault::new(
                    "log",
                    "it repeats the transaction's own value, position 0",
                )),
                false => Ok(()),
            }
        }
        Some(_) | None => Err(ProofFault::new("position", "it is none that can be proved")),
    }
}

/// Does what was told say what is claimed? That it says so proves nothing.
///
/// # Errors
/// The first check that it fails.
pub fn verify_told(told: &EvmTold, claim: &Claim) -> Result<(), ProofFault> {
    let fault = |why: &str| Err(ProofFault::new("told", why));
    let is = |value: &Value, hash: [u8; 32]| value.as_str().and_then(Word::from_text) == Some(Word(hash));
    let txid = claim.outpoint.txid.0;
    if !is(&told.receipt["transactionHash"], txid) || !is(&told.tx["hash"], txid) {
        return fault("it is of another transaction");
    }
    let height = told.receipt["blockNumber"].as_str().and_then(u64::from_text);
    if !is(&told.receipt["blockHash"], claim.block.hash.0) || height != Some(claim.block.height) {
        return fault("it is of another block");
    }
    if told.receipt["status"].as_str().and_then(u64::from_text) != Some(1) {
        return fault("the transaction did not succeed");
    }
    let amount = |value: &Value| value.as_str().and_then(Amount::from_text) == Some(claim.amount);
    let payee = |value: &Value| {
        value.as_str().and_then(Account::from_text).map(|to| to.0.into()) == Some(claim.script.0.clone())
    };
    match Position::of_number(claim.outpoint.vout) {
        Some((Position::Native, 0)) => {
            let to = match told.tx["to"].is_null() {
                true => &told.receipt["contractAddress"],
                false => &told.tx["to"],
            };
            match claim.asset == Asset::Native && payee(to) && amount(&told.tx["value"]) {
                true => Ok(()),
                false => fault("the transaction's value pays something else"),
            }
        }
        Some((Position::Log(place), 0)) => {
            // Whatever its type: nothing is hashed here.
            let receipt =
                encode::untyped_receipt(&told.receipt).map_err(|why| ProofFault::new("told", why))?;
            let receipt = Receipt::read(&receipt).map_err(|_| ProofFault::new("told", "it is no receipt"))?;
            check_log(place, &receipt, claim)
        }
        Some((Position::Inner(place), 0)) => {
            let text = RawValue::from_string(told.trace.to_string());
            let text = text.map_err(|error| ProofFault::new("told", error.to_string()))?;
            let moved = trace::of_call_frames(&text).map_err(|why| ProofFault::new("told", why))?;
            let moved = usize::try_from(place).ok().and_then(|place| moved.get(place));
            match moved.is_some_and(|moved| *claim.script.0 == moved.to.0 && moved.amount == claim.amount) {
                true => Ok(()),
                false => fault("its trace has no such inner call"),
            }
        }
        Some(_) | None => fault("there is no such position"),
    }
}

/// Does a log of the receipt move what is claimed?
fn check_log(place: u32, receipt: &Receipt<'_>, claim: &Claim) -> Result<(), ProofFault> {
    let log = usize::try_from(place)
        .ok()
        .and_then(|place| receipt.logs.get(place));
    let Some(log) = log else {
        return Err(ProofFault::new("log", "the receipt has none at this place"));
    };
    let fault = |why: &str| Err(ProofFault::new("log", why));
    let contract = match claim.asset {
        Asset::Native => COIN_LOGGER,
        Asset::Token(contract) => contract,
    };
    if log.contract != contract {
        return fault("another contract wrote it");
    }
    let Some([_, to, amount]) = moved(log) else {
        return fault("it is no transfer");
    };
    if to[..12] != [0; 12] || to[12..] != *claim.script.0 {
        return fault("it pays another account");
    }
    match Amount::from_be_bytes(amount) == claim.amount {
        true => Ok(()),
        false => fault(&format!("it pays {}", Amount::from_be_bytes(amount))),
    }
}

/// Sender, payee and amount of a transfer.
fn moved(log: &Log<'_>) -> Option<[[u8; 32]; 3]> {
    // Old tokens have all three values in the data.
    let words: Vec<[u8; 32]> = log
        .topics
        .iter()
        .copied()
        .chain(log.data.as_chunks::<32>().0.iter().copied())
        .collect();
    let is_shaped = matches!(log.topics.len(), 1 | 3) && log.data.len().is_multiple_of(32);
    match (words.as_slice(), is_shaped) {
        ([transfer, from, to, amount], true) if *transfer == keccak256(TRANSFER) => {
            Some([*from, *to, *amount])
        }
        _ => None,
    }
}

/// The log that tells the transaction's own payment once more: the first one like it. It is no payment of its
/// own, and the scan credits none for it.
fn repeats_value(receipt: &Receipt<'_>, tx: &Transaction<'_>) -> Option<u32> {
    let padded = |account: [u8; 20]| {
        let mut word = [0; 32];
        word[12..].copy_from_slice(&account);
        word
    };
    let (sender, payee) = (tx.sender().map(padded), tx.payee().map(padded)?);
    let is_same = |log: &Log<'_>| {
        let same = |[from, to, amount]: [[u8; 32]; 3]| {
            // Whoever signed it, if that can be told.
            sender.is_none_or(|sender| sender == from)
                && to == payee
                && Amount::from_be_bytes(amount) == tx.value
        };
        log.contract == COIN_LOGGER && moved(log).is_some_and(same)
    };
    u32::try_from(receipt.logs.iter().position(is_same)?).ok()
}

/// Does the transaction's own value go to the payee?
fn check_value(tx: &Transaction<'_>, claim: &Claim) -> Result<(), ProofFault> {
    let fault = |why: &str| Err(ProofFault::new("value", why));
    if claim.asset != Asset::Native {
        return fault("it is coin, no token");
    }
    let Some(payee) = tx.payee() else {
        return fault("it pays no account, or nobody has signed it");
    };
    if payee != *claim.script.0 {
        return fault("it pays another account");
    }
    match tx.value == claim.amount {
        true => Ok(()),
        false => fault(&format!("it pays {}", tx.value)),
    }
}
