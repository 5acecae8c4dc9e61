//! Transfers of tokens in a range of heights, by their payees.

use super::{COIN_LOGGER, Moved, Receipt, TRANSFER, account, hex, own_value, paid, read, script};
use crate::chain::SourceError;
use crate::chain::evm::answers::TxFields;
use crate::chain::evm::fields::{Account, Data, Field, Word};
use crate::chain::evm::{EvmSource, odd_answer};
use crate::chain::rpc::Question;
use crate::egress::Dial;
use crate::rules::position::Position;
use crate::rules::{Asset, BlockHash, Outpoint, Paid, Script, TaggedBlock, Txid};
use serde::Deserialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// How many blocks one question for logs spans; fewer once a node refuses.
const SPAN: u64 = 2_000;

/// How many payees one question for logs names. Beyond, nodes refuse.
const PAYEES: usize = 500;

/// How many receipts one exchange asks for.
const RECEIPTS: usize = 100;

/// A transaction with logs of transfers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransfersAgain {
    /// The transaction.
    pub txid: Txid,
    /// Its block.
    pub at: TaggedBlock,
    /// Whom the logs pay; `None` = one of them does not say it.
    pub to: Option<BTreeSet<Script>>,
}

/// A log of a range, as far as it says where to look.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Place {
    transaction_hash: Field<Txid>,
    block_hash: Field<BlockHash>,
    block_number: Field<u64>,
    topics: Option<Vec<Field<Word>>>,
    data: Field<Data>,
    removed: bool,
}

impl Place {
    /// The second account that it names, indexed or not.
    fn payee(&self) -> Option<Script> {
        let topics = self.topics.iter().flatten();
        let mut words: Vec<[u8; 32]> = Vec::new();
        for topic in topics {
            words.push(topic.get()?.0);
        }
        let Data(data) = self.data.get()?;
        words.extend(data.as_chunks::<32>().0);
        account(words.get(2)?).map(|account| script(&account))
    }
}

impl<D: Dial> EvmSource<D> {
    /// Every transfer of listed tokens in the blocks `from..=to`, and of the coin where the chain logs it; to
    /// these payees alone, if some are named. The answers span as many blocks as the node bears.
    ///
    /// # Errors
    /// [`SourceError`]: also where not even the logs of one block can be had.
    pub async fn tokens_again(
        &self,
        from: u64,
        to: u64,
        payees: Option<&[Script]>,
    ) -> Result<Vec<Paid>, SourceError> {
        let transfers = self.transfers_again(from, to, payees).await?;
        let payees = payees.map(|payees| payees.iter().cloned().collect());
        self.paid_in(&transfers, payees.as_ref()).await
    }

    /// The transactions of the same transfers, and whom they pay.
    ///
    /// # Errors
    /// As [`tokens_again`](Self::tokens_again).
    pub async fn transfers_again(
        &self,
        from: u64,
        to: u64,
        payees: Option<&[Script]>,
    ) -> Result<Vec<TransfersAgain>, SourceError> {
        let mut transfers = Vec::new();
        let (mut next, mut span) = (from, SPAN);
        while next <= to {
            let last = to.min(next.saturating_add(span - 1));
            match self.transfers_in(next, last, payees).await {
                Ok(found) => {
                    transfers.extend(found.into_values());
                    next = last + 1;
                }
                // Too many blocks, too many logs, too long: nodes say it in many ways.
                Err(_) if span > 1 => span = ((last - next) / 2).max(1),
                Err(error) => return Err(error),
            }
        }
        Ok(transfers)
    }

    /// Where the logs are that may be wanted.
    async fn transfers_in(
        &self,
        from: u64,
        to: u64,
        payees: Option<&[Script]>,
    ) -> Result<BTreeMap<Txid, TransfersAgain>, SourceError> {
        let doing = format!("read the logs of blocks {from} to {to} again");
        let mut found: BTreeMap<Txid, TransfersAgain> = BTreeMap::new();
        for question in self.log_questions(from, to, payees) {
            let logs: Vec<Place> = read(self.ask(&doing, &[question]).await?.pop(), &doing)?;
            for log in logs.into_iter().filter(|log| !log.removed) {
                let (Some(txid), Some(hash), Some(height)) = (
                    log.transaction_hash.get(),
                    log.block_hash.get(),
                    log.block_number.get(),
                ) else {
                    return Err(odd_answer(doing, "a log that does not say where it is"));
                };
                if !(from..=to).contains(height) {
                    return Err(odd_answer(doing, &format!("a log of block {height}")));
                }
                let at = TaggedBlock {
                    height: *height,
                    hash: *hash,
                };
                let of_tx = found.entry(*txid).or_insert_with(|| TransfersAgain {
                    txid: *txid,
                    at,
                    to: Some(BTreeSet::new()),
                });
                if of_tx.at != at {
                    return Err(odd_answer(doing, "a transaction in two blocks"));
                }
                match (&mut of_tx.to, log.payee()) {
                    (Some(to), Some(payee)) => drop(to.insert(payee)),
                    (to, _) => *to = None,
                }
            }
        }
        Ok(found)
    }

    fn log_questions(&self, from: u64, to: u64, payees: Option<&[Script]>) -> Vec<Question> {
        let tokens = |is_unindexed: bool| -> Vec<String> {
            let rules = self.rules.tokens.iter();
            let of_kind = rules.filter(|(_, rule)| rule.is_unindexed == is_unindexed);
            of_kind.map(|(contract, _)| contract.to_string()).collect()
        };
        let (mut indexed, unindexed) = (tokens(false), tokens(true));
        let sources = self.rules.native.iter().flat_map(|native| &native.inner);
        let mut begins = sources.map(|(height, _)| *height).chain([from]);
        if begins.any(|height| (from..=to).contains(&height) && self.logs_coin(height)) {
            indexed.push(Account(COIN_LOGGER).to_string());
        }
        let question = |contracts: &[String], topics: serde_json::Value| {
            let filter = json!({
                "fromBlock": hex(from), "toBlock": hex(to), "address": contracts, "topics": topics,
            });
            Question::new("eth_getLogs", json!([filter]))
        };
        let mut questions = Vec::new();
        if !unindexed.is_empty() {
            questions.push(question(&unindexed, json!([TRANSFER])));
        }
        match payees {
            _ if indexed.is_empty() => {}
            None => questions.push(question(&indexed, json!([TRANSFER]))),
            Some(payees) => {
                for part in payees.chunks(PAYEES) {
                    let padded = |payee: &Script| format!("0x{:0>64}", const_hex::encode(&payee.0));
                    let padded: Vec<String> = part.iter().map(padded).collect();
                    questions.push(question(&indexed, json!([TRANSFER, null, padded])));
                }
            }
        }
        questions
    }

    /// What these transactions pay by their logs, to these payees alone if some are named. A list of logs
    /// only says where to look: places in a transaction are those of its receipt.
    ///
    /// # Errors
    /// [`SourceError`]: also where one of them has no receipt.
    pub async fn paid_in(
        &self,
        transfers: &[TransfersAgain],
        payees: Option<&BTreeSet<Script>>,
    ) -> Result<Vec<Paid>, SourceError> {
        let mut paid = Vec::new();
        for part in transfers.chunks(RECEIPTS) {
            self.receipts_of(part, payees, &mut paid).await?;
        }
        paid.sort_by_key(|paid| (paid.at.height, paid.outpoint));
        Ok(paid)
    }

    async fn receipts_of(
        &self,
        transfers: &[TransfersAgain],
        payees: Option<&BTreeSet<Script>>,
        found: &mut Vec<Paid>,
    ) -> Result<(), SourceError> {
        let doing = "read receipts again";
        let mut questions: Vec<Question> = Vec::new();
        for of_tx in transfers {
            let id = json!([format!("0x{}", of_tx.txid)]);
            questions.push(Question::new("eth_getTransactionReceipt", id.clone()));
            questions.push(Question::new("eth_getTransactionByHash", id));
        }
        let mut answers = self.ask(doing, &questions).await?.into_iter();
        for TransfersAgain { txid, at, .. } in transfers {
            let receipt: Option<Receipt> = read(answers.next(), doing)?;
            let tx: Option<TxFields> = read(answers.next(), doing)?;
            let odd = |why: &str| odd_answer(format!("read transaction 0x{txid} again"), why);
            let receipt = receipt.ok_or_else(|| odd("there are logs of it and no receipt"))?;
            let tx = tx.ok_or_else(|| odd("there are logs of it and it is not there"))?;
            let is_it = receipt.transaction_hash.get() == Some(txid)
                && receipt.block_hash.get() == Some(&at.hash)
                && tx.hash.get() == Some(txid);
            if !is_it {
                return Err(odd("its receipt is of another transaction or block"));
            }
            let mut own = own_value(&tx, &receipt).map_err(|why| odd(&why))?;
            let sender = tx.from.get().copied();
            let logs = receipt.logs.as_deref().unwrap_or_default();
            for (place, log) in (0..).zip(logs) {
                let Some(moved) = self.moved_by(log).map_err(|why| odd(&why))? else {
                    continue;
                };
                // The chain tells the transaction's own value as its first movement, once more.
                let is_own = |own: &Moved| {
                    moved.asset == Asset::Native
                        && (own.to, own.amount) == (moved.to, moved.amount)
                        && sender.is_none_or(|sender| sender == moved.from)
                };
                if own.as_ref().is_some_and(is_own) {
                    own = None;
                    continue;
                }
                let is_listed = match moved.asset {
                    Asset::Native => self.logs_coin(at.height),
                    Asset::Token(token) => self.rules.tokens.contains_key(&Account(token)),
                };
                let vout = Position::Log(place).number(0).filter(|_| is_listed);
                let Some(vout) = vout else {
                    continue;
                };
                let of = Outpoint { txid: *txid, vout };
                let paid = paid(*at, of, moved, receipt.status == Field::Is(1));
                if payees.is_none_or(|payees| payees.contains(&paid.script)) {
                    found.push(paid);
                }
            }
        }
        Ok(())
    }
}
