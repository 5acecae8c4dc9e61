//! Fetching a block: its header with what of its transactions the assets need, the transfer logs of the
//! listed contracts, and traces where they are the source of inner coin. A list of logs that is shorter than
//! the header's bloom says is not believed: the receipts are read then.

use super::answers::{BlockFields, Listed, LogFields, ReceiptFields, TxFields};
use super::config::Inner;
use super::fields::{Account, Field};
use super::trace::Movement;
use super::transfer::{SYSTEM, TRANSFER};
use super::{EvmSource, odd_answer};
use crate::chain::SourceError;
use crate::chain::rpc::{Answer, Question, RpcError};
use crate::egress::Dial;
use crate::rules::{BlockHash, Txid};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// JSON-RPC's code for a method that a node does not have.
const NO_METHOD: i32 = -32_601;
/// Providers' code for a method that a plan does not include.
const NOT_SUPPORTED: i32 = -32_004;

/// A block as the nodes told it.
#[derive(Debug)]
pub struct RawBlock {
    /// Its header, and its transactions: whole where they were asked for.
    pub(super) fields: BlockFields,
    /// The logs that may be transfers of listed assets.
    pub(super) logs: Vec<LogFields>,
    /// The coin that moved inside each transaction; `None` where traces are not read.
    pub(super) movements: Option<Vec<Vec<Movement>>>,
    /// All receipts, where the logs had to be read from them.
    pub(super) receipts: BTreeMap<Txid, ReceiptFields>,
}

impl RawBlock {
    /// Transactions in block order, with what is known of each.
    pub(super) fn txs(&self) -> impl Iterator<Item = (&Field<Txid>, Option<&TxFields>)> {
        self.fields
            .transactions
            .iter()
            .flatten()
            .map(|listed| match listed {
                Listed::Hash(hash) => (hash, None),
                Listed::Whole(tx) => (&tx.hash, Some(tx)),
            })
    }
}

impl<D: Dial> EvmSource<D> {
    pub(super) async fn fetch_block(&self, hash: BlockHash, is_whole: bool) -> Result<RawBlock, SourceError> {
        let text = format!("0x{hash}");
        let mut contracts = self.log_contracts();
        let cached = match is_whole {
            true => None,
            false => self.headers.take(hash),
        };
        let mut questions = Vec::new();
        if cached.is_none() {
            questions.push(Question::new("eth_getBlockByHash", json!([text, is_whole])));
        }
        if !contracts.is_empty() {
            questions.push(logs_question(&text, &contracts));
        }
        let doing = || format!("read block 0x{hash}");
        let mut answers = self.ask(&doing(), &questions).await?.into_iter();
        let fields = match cached {
            Some(fields) => fields,
            None => {
                let found: Option<BlockFields> = decode(answers.next(), &doing())?;
                let fields = found.ok_or(SourceError::UnknownBlock(hash))?;
                check_header(&fields, hash)?;
                let is_slim = |listed: &Listed| matches!(listed, Listed::Hash(_));
                if is_whole && fields.transactions.iter().flatten().any(is_slim) {
                    return Err(odd_answer(doing(), "a transaction by its hash alone"));
                }
                fields
            }
        };
        let mut raw = RawBlock {
            fields,
            logs: Vec::new(),
            movements: None,
            receipts: BTreeMap::new(),
        };
        if !contracts.is_empty() {
            raw.logs = decode_logs(answers.next(), hash)?;
            let logs_coin = self.inner_at(self.height_of(&raw)) == Some(Inner::Logs);
            contracts.retain(|contract| *contract != SYSTEM || logs_coin);
            self.hold_against_bloom(hash, &contracts, &mut raw).await?;
        }
        if let Some(Inner::Traces(call)) = self.inner_at(self.height_of(&raw)) {
            raw.movements = Some(self.movements(hash, &raw, call).await?);
        }
        Ok(raw)
    }

    /// The contracts whose logs are read, at some height.
    fn log_contracts(&self) -> Vec<Account> {
        let mut contracts = self.listed_tokens();
        let inner = self.rules.native.iter().flat_map(|native| &native.inner);
        if inner.into_iter().any(|(_, inner)| *inner == Inner::Logs) {
            contracts.push(SYSTEM);
        }
        contracts
    }

    /// Where inner coin is read at a height; `None` where the coin is not watched.
    pub(super) fn inner_at(&self, height: u64) -> Option<Inner> {
        self.rules.native.as_ref().map(|native| native.inner_at(height))
    }

    /// A node behind a balancer may answer for another that has the block, with a list that lacks what it has
    /// not seen. The header cannot lie so: its bloom was voted on by the whole chain.
    async fn hold_against_bloom(
        &self,
        hash: BlockHash,
        contracts: &[Account],
        raw: &mut RawBlock,
    ) -> Result<(), SourceError> {
        if !self.rules.has_bloom {
            return Ok(());
        }
        let bloom = raw.fields.bloom.get();
        let is_missing = |contract: &&Account| {
            bloom.is_none_or(|bloom| bloom.may_hold(contract, &TRANSFER))
                && !raw.logs.iter().any(|log| log.address.get() == Some(contract))
        };
        if !contracts.iter().any(|contract| is_missing(&contract)) {
            return Ok(());
        }
        let receipts = self.block_receipts(hash, raw).await?;
        let doing = || format!("read the receipts of block 0x{hash}");
        let mut logs = Vec::new();
        for receipt in &receipts {
            let of_one = receipt.logs.as_deref();
            logs.extend(of_one.ok_or_else(|| odd_answer(doing(), "a receipt without logs"))?);
        }
        if let Some(bloom) = bloom {
            let is_explained = bloom
                .is_explained_by(logs.iter().copied())
                .map_err(|why| odd_answer(doing(), &why))?;
            if !is_explained {
                return Err(odd_answer(
                    doing(),
                    "they lack logs that the header's bloom names",
                ));
            }
        }
        let is_wanted = |log: &&&LogFields| {
            let is_listed = log
                .address
                .get()
                .is_some_and(|contract| contracts.contains(contract));
            let first = log.topics.as_ref().and_then(|topics| topics.first());
            is_listed && first.and_then(Field::get) == Some(&TRANSFER)
        };
        let wanted: Vec<LogFields> = logs.iter().filter(is_wanted).map(|log| (*log).clone()).collect();
        if wanted.len() > raw.logs.len() {
            self.counters.log_mismatches.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                block = %hash,
                "the list of logs of block 0x{hash} lacked {} transfers that its receipts have",
                wanted.len() - raw.logs.len()
            );
        }
        raw.logs = wanted;
        let by_txid = |receipt: ReceiptFields| Some((*receipt.transaction_hash.get()?, receipt));
        raw.receipts = receipts.into_iter().filter_map(by_txid).collect();
        Ok(())
    }

    /// Every receipt of a block, by the call that gives them together or one by one.
    pub(super) async fn block_receipts(
        &self,
        hash: BlockHash,
        raw: &RawBlock,
    ) -> Result<Vec<ReceiptFields>, SourceError> {
        let doing = format!("read the receipts of block 0x{hash}");
        let together = [Question::new(
            "eth_getBlockReceipts",
            json!([format!("0x{hash}")]),
        )];
        let answer = self.ask(&doing, &together).await?.pop();
        let receipts: Vec<Option<ReceiptFields>> = match decode_known(answer) {
            Ok(Some(receipts)) => receipts,
            Ok(None) => return Err(SourceError::UnknownBlock(hash)),
            Err(error) if is_no_method(&error) => {
                let txids: Vec<Txid> = raw.txs().filter_map(|(txid, _)| txid.get().copied()).collect();
                self.receipts(&doing, &txids).await?
            }
            Err(error) => return Err(odd_answer(doing, &error.to_string())),
        };
        let count = raw.fields.transactions.as_ref().map(Vec::len);
        let receipts: Option<Vec<ReceiptFields>> = receipts.into_iter().collect();
        let receipts = receipts.ok_or(SourceError::UnknownBlock(hash))?;
        if receipts
            .iter()
            .any(|receipt| receipt.block_hash.get() != Some(&hash))
        {
            return Err(SourceError::UnknownBlock(hash));
        }
        // Some chains have receipts of transactions that they list nowhere; fewer are not all.
        if count.is_some_and(|count| receipts.len() < count) {
            return Err(odd_answer(doing, "there are fewer than transactions"));
        }
        Ok(receipts)
    }

    /// The receipts of some transactions, in their order.
    pub(super) async fn receipts(
        &self,
        doing: &str,
        txids: &[Txid],
    ) -> Result<Vec<Option<ReceiptFields>>, SourceError> {
        let questions: Vec<Question> = txids.iter().map(receipt_question).collect();
        let answers = self.ask(doing, &questions).await?;
        answers
            .into_iter()
            .map(|answer| decode(Some(answer), doing))
            .collect()
    }

    pub(super) fn height_of(&self, raw: &RawBlock) -> u64 {
        raw.fields.number.get().copied().unwrap_or_default()
    }
}

fn logs_question(hash: &str, contracts: &[Account]) -> Question {
    let addresses: Vec<String> = contracts.iter().map(Account::to_string).collect();
    Question::new(
        "eth_getLogs",
        json!([{"blockHash": hash, "address": addresses, "topics": [TRANSFER.to_string()]}]),
    )
}

/// Logs are asked for by block hash: a node that does not know the block says so instead of showing none.
fn decode_logs(answer: Option<Answer>, hash: BlockHash) -> Result<Vec<LogFields>, SourceError> {
    let doing = || format!("read the logs of block 0x{hash}");
    let logs: Option<Vec<LogFields>> = match decode_known(answer) {
        Err(error) if says_unknown(&error) => return Err(SourceError::UnknownBlock(hash)),
        Err(error) => return Err(odd_answer(doing(), &error.to_string())),
        Ok(logs) => logs,
    };
    let logs = logs.ok_or(SourceError::UnknownBlock(hash))?;
    match logs.iter().all(|log| log.block_hash.get() == Some(&hash)) {
        true => Ok(logs),
        false => Err(odd_answer(doing(), "a log is of another block")),
    }
}

/// A header that says what we need of it, and that it is the one that was asked for.
pub(super) fn check_header(fields: &BlockFields, hash: BlockHash) -> Result<(), SourceError> {
    let doing = || format!("read block 0x{hash}");
    let needed = [
        ("hash", fields.hash.fault()),
        ("parentHash", fields.parent.fault()),
        ("number", fields.number.fault()),
        ("timestamp", fields.timestamp.fault()),
    ];
    for (name, fault) in needed {
        if let Some(fault) = fault {
            return Err(odd_answer(doing(), &format!("{name} {fault}")));
        }
    }
    if fields.transactions.is_none() {
        return Err(odd_answer(doing(), "transactions are missing"));
    }
    match fields.hash.get() == Some(&hash) {
        true => Ok(()),
        false => Err(odd_answer(doing(), "it is another block")),
    }
}

/// What became of a transaction?
pub(super) fn receipt_question(txid: &Txid) -> Question {
    Question::new("eth_getTransactionReceipt", json!([format!("0x{txid}")]))
}

/// A number as nodes read it.
pub(super) fn quantity(number: u64) -> String {
    format!("0x{number:x}")
}

/// A result, or the node's own error.
pub(super) fn decode_known<T: serde::de::DeserializeOwned>(answer: Option<Answer>) -> Result<T, RpcError> {
    match answer {
        Some(answer) => answer.decode(),
        None => Err(RpcError::Broken("an answer is missing".to_owned())),
    }
}

/// A result; any error means that the node could not answer.
pub(super) fn decode<T: serde::de::DeserializeOwned>(
    answer: Option<Answer>,
    doing: &str,
) -> Result<T, SourceError> {
    decode_known(answer).map_err(|error| odd_answer(doing, &error.to_string()))
}

/// Does the node say that it has no such method?
pub(super) fn is_no_method(error: &RpcError) -> bool {
    match error {
        RpcError::Node { code, message } => {
            let text = message.to_lowercase();
            matches!(*code, NO_METHOD | NOT_SUPPORTED)
                || [
                    "does not exist",
                    "not available",
                    "not supported",
                    "unsupported method",
                ]
                .iter()
                .any(|words| text.contains(words))
        }
        _ => false,
    }
}

/// Does the node say that it does not know the block? Geth: `unknown block`; others: `header not found`,
/// `block ... not found`.
pub(super) fn says_unknown(error: &RpcError) -> bool {
    match error {
        RpcError::Node { message, .. } => {
            let text = message.to_lowercase();
            text.contains("unknown block") || (text.contains("not found") && !text.contains("method"))
        }
        _ => false,
    }
}
