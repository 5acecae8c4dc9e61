//! Filtering a block: which of its transactions may concern us, and from their receipts, what they pay. Lists
//! of logs and traces only say which transactions to look at; where a payment stands in a transaction is read
//! from its own receipt.

use super::answers::{BlockFields, Listed, LogFields, ReceiptFields, TxFields};
use super::block::{RawBlock, decode, receipt_question};
use super::config::Inner;
use super::fields::{Account, Field};
use super::transfer::{self, Logged, SYSTEM, Transfer};
use super::wanted::{Wanted, spends, want_by_movements};
use super::{EvmSource, locked, tip};
use crate::chain::SourceError;
use crate::chain::rpc::Question;
use crate::egress::Dial;
use crate::index::{Index, short};
use crate::rules::position::Position;
use crate::rules::{
    Amount, Asset, BlockHash, CandidateOutput, CandidateTx, Doubt, ScannedBlock, Script, Txid,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The zero address: whose transactions and coin those are that tell no sender.
pub(super) const NOBODY: Account = Account([0; 20]);

/// Why a block cannot be filtered as it is.
pub(super) enum Trouble {
    Source(SourceError),
    /// Something that decides about money cannot be read.
    Unreadable(String),
}

impl From<SourceError> for Trouble {
    fn from(error: SourceError) -> Trouble {
        Trouble::Source(error)
    }
}

impl<D: Dial> EvmSource<D> {
    pub(super) async fn scan_block(
        &self,
        hash: BlockHash,
        raw: &RawBlock,
        index: &Index,
    ) -> Result<ScannedBlock, SourceError> {
        let held = tip::held(&raw.fields, &format!("read block 0x{hash}"))?;
        match self.candidates(hash, raw, index).await {
            Ok((txs, output_shorts)) => {
                self.bad.forget(hash);
                Ok(ScannedBlock {
                    header: held.header,
                    version: index.version(),
                    txs,
                    output_shorts,
                })
            }
            Err(Trouble::Source(error)) => Err(error),
            Err(Trouble::Unreadable(why)) => Err(match self.bad.are_enough(hash) {
                true => SourceError::BadBlock { hash, why },
                false => super::odd_answer(format!("read block 0x{hash}"), &why),
            }),
        }
    }

    async fn candidates(
        &self,
        hash: BlockHash,
        raw: &RawBlock,
        index: &Index,
    ) -> Result<(Vec<CandidateTx>, Vec<u64>), Trouble> {
        let mut wanted = Wanted {
            shorts: Vec::new(),
            txids: BTreeSet::new(),
            has_logs: !self.listed_tokens().is_empty(),
            logs_coin: self.inner_at(self.height_of(raw)) == Some(Inner::Logs),
        };
        self.want_by_logs(hash, raw, index, &mut wanted)?;
        self.want_by_txs(raw, index, &mut wanted)?;
        want_by_movements(raw, index, &mut wanted)?;
        let (txs, receipts) = self.look_up(hash, raw, &wanted.txids).await?;
        let mut places: HashMap<Txid, usize> = HashMap::new();
        for (place, (txid, _)) in raw.txs().enumerate() {
            if let Some(txid) = txid.get()
                && places.insert(*txid, place).is_some()
                && wanted.txids.contains(txid)
            {
                return Err(Trouble::Unreadable(format!(
                    "transaction 0x{txid} is there twice"
                )));
            }
        }
        let place = |txid: &Txid| places.get(txid).copied().unwrap_or(usize::MAX);
        let mut order: Vec<&Txid> = wanted.txids.iter().collect();
        order.sort_by_key(|txid| (place(txid), **txid));
        let mut candidates = Vec::new();
        for txid in order {
            let (Some(tx), Some(receipt)) = (txs.get(txid), receipts.get(txid)) else {
                continue;
            };
            if let (Field::Null, Some(made)) = (&tx.to, receipt.contract_address.get()) {
                wanted.shorts.push(short(&made.0));
            }
            let movements = raw.movements.as_ref().and_then(|all| all.get(place(txid)));
            let paid = Paid {
                txid: *txid,
                tx,
                receipt,
                movements: movements.map_or(&[], Vec::as_slice),
            };
            candidates.push(self.candidate((hash, raw), &paid, &wanted, index)?);
        }
        self.check_balances(hash, raw, &mut candidates).await?;
        Ok((candidates, wanted.shorts))
    }

    pub(super) fn read_log(&self, log: &LogFields) -> Logged {
        let token = log.address.get().and_then(|token| self.rules.tokens.get(token));
        transfer::read(log, token.is_some_and(|token| token.is_unindexed))
    }

    /// The wanted transactions and their receipts, as far as they are not known yet.
    async fn look_up(
        &self,
        hash: BlockHash,
        raw: &RawBlock,
        txids: &BTreeSet<Txid>,
    ) -> Result<(BTreeMap<Txid, TxFields>, BTreeMap<Txid, ReceiptFields>), Trouble> {
        let doing = format!("read what block 0x{hash} did");
        let mut txs: BTreeMap<Txid, TxFields> = BTreeMap::new();
        for (txid, tx) in raw.txs() {
            if let (Some(txid), Some(tx)) = (txid.get(), tx)
                && txids.contains(txid)
            {
                txs.insert(*txid, tx.clone());
            }
        }
        let known = raw.receipts.iter().filter(|(txid, _)| txids.contains(txid));
        let mut receipts: BTreeMap<Txid, ReceiptFields> =
            known.map(|(txid, receipt)| (*txid, receipt.clone())).collect();
        let unknown_txs: Vec<Txid> = txids
            .iter()
            .filter(|txid| !txs.contains_key(txid))
            .copied()
            .collect();
        let unknown: Vec<Txid> = txids
            .iter()
            .filter(|txid| !receipts.contains_key(txid))
            .copied()
            .collect();
        let tx_question =
            |txid: &Txid| Question::new("eth_getTransactionByHash", json!([format!("0x{txid}")]));
        let mut questions: Vec<Question> = unknown_txs.iter().map(tx_question).collect();
        questions.extend(unknown.iter().map(receipt_question));
        let mut answers = self.ask(&doing, &questions).await?.into_iter();
        let mut is_forgotten = false;
        for txid in unknown_txs {
            let tx: Option<TxFields> = decode(answers.next(), &doing)?;
            let tx = tx.filter(|tx| tx.hash.get() == Some(&txid));
            is_forgotten |= tx.is_none();
            txs.extend(tx.map(|tx| (txid, tx)));
        }
        for txid in unknown {
            let receipt: Option<ReceiptFields> = decode(answers.next(), &doing)?;
            // Another block than ours, or none: the node does not have ours (any more, or yet).
            let receipt = receipt.filter(|receipt| receipt.block_hash.get() == Some(&hash));
            let Some(receipt) = receipt else {
                is_forgotten = true;
                continue;
            };
            if receipt.transaction_hash.get() != Some(&txid) {
                let why = "a receipt is of another transaction";
                return Err(super::odd_answer(doing, why).into());
            }
            receipts.insert(txid, receipt);
        }
        if is_forgotten {
            self.look_up_whole(hash, raw, txids, &mut txs, &mut receipts)
                .await?;
        }
        Ok((txs, receipts))
    }

    /// Of old blocks many nodes keep no index of transactions, but the blocks themselves and their receipts.
    async fn look_up_whole(
        &self,
        hash: BlockHash,
        raw: &RawBlock,
        txids: &BTreeSet<Txid>,
        txs: &mut BTreeMap<Txid, TxFields>,
        receipts: &mut BTreeMap<Txid, ReceiptFields>,
    ) -> Result<(), Trouble> {
        let doing = format!("read block 0x{hash} as a whole");
        let whole = [Question::new(
            "eth_getBlockByHash",
            json!([format!("0x{hash}"), true]),
        )];
        let block: Option<BlockFields> = decode(self.ask(&doing, &whole).await?.pop(), &doing)?;
        let block = block.ok_or(SourceError::UnknownBlock(hash))?;
        for listed in block.transactions.into_iter().flatten() {
            if let Listed::Whole(tx) = listed
                && let Some(txid) = tx.hash.get().copied()
                && txids.contains(&txid)
            {
                txs.insert(txid, tx);
            }
        }
        for receipt in self.block_receipts(hash, raw).await? {
            if let Some(txid) = receipt.transaction_hash.get().copied()
                && txids.contains(&txid)
            {
                receipts.insert(txid, receipt);
            }
        }
        let is_there = |txid: &Txid| txs.contains_key(txid) && receipts.contains_key(txid);
        match txids.iter().all(is_there) {
            true => Ok(()),
            false => Err(SourceError::UnknownBlock(hash).into()),
        }
    }

    fn candidate(
        &self,
        (hash, raw): (BlockHash, &RawBlock),
        paid: &Paid<'_>,
        wanted: &Wanted,
        index: &Index,
    ) -> Result<CandidateTx, Trouble> {
        let sender = paid.tx.from.get().or_else(|| paid.receipt.from.get());
        let doubt = match paid.receipt.status {
            Field::Is(0 | 1) => None,
            // Asked again first, in case that it was dropped on the way.
            _ if !self.bad.are_enough(hash) => {
                return Err(Trouble::Source(super::odd_answer(
                    format!("read the receipt of transaction 0x{}", paid.txid),
                    &fault("status", &paid.receipt.status),
                )));
            }
            _ => Some(Doubt::Status),
        };
        let is_failed = paid.receipt.status == Field::Is(0);
        let outputs = match is_failed {
            true => Vec::new(),
            false => self
                .outputs((hash, raw), paid, wanted, index, sender.unwrap_or(&NOBODY))
                .map_err(|why| Trouble::Unreadable(format!("transaction 0x{}: {why}", paid.txid)))?,
        };
        Ok(CandidateTx {
            txid: paid.txid,
            is_coinbase: false,
            sender: Some(script(sender.unwrap_or(&NOBODY))),
            is_failed,
            inputs: spends(paid.tx).into_iter().collect(),
            outputs: outputs
                .into_iter()
                .map(|output| CandidateOutput { doubt, ..output })
                .collect(),
            ancestors: Vec::new(),
        })
    }

    /// What a transaction pays to addresses that may be ours.
    fn outputs(
        &self,
        block: (BlockHash, &RawBlock),
        paid: &Paid<'_>,
        wanted: &Wanted,
        index: &Index,
        sender: &Account,
    ) -> Result<Vec<CandidateOutput>, String> {
        let is_ours = |to: &Account| index.may_hold_script(short(&to.0));
        let mut outputs = Vec::new();
        let mut push = |position: Position, asset, (from, to, amount): (&Account, &Account, Amount)| {
            let vout = position.number(0).ok_or("a position past the last")?;
            outputs.push(CandidateOutput {
                vout,
                script: script(to),
                asset,
                amount,
                from: Some(script(from)),
                doubt: None,
            });
            Ok::<(), String>(())
        };
        let mut top = None;
        if self.rules.native.is_some()
            && let Some((to, amount)) = paid.top_level(is_ours)?
        {
            top = Some((*sender, to, amount));
            if is_ours(&to) {
                push(Position::Native, Asset::Native, (sender, &to, amount))?;
            }
        }
        for (place, movement) in (0..).zip(paid.movements) {
            if is_ours(&movement.to) {
                let moved = (&movement.from, &movement.to, movement.amount);
                push(Position::Inner(place), Asset::Native, moved)?;
            }
        }
        let Some(logs) = &paid.receipt.logs else {
            let needs_logs = wanted.has_logs || wanted.logs_coin;
            return if needs_logs {
                Err("its receipt has no logs".to_owned())
            } else {
                Ok(outputs)
            };
        };
        check_order(&paid.txid, logs)?;
        let of = (paid.txid, paid.receipt);
        for (place, transfer) in self.transfers(block, of, logs, wanted.logs_coin)? {
            let Transfer {
                token,
                from,
                to,
                amount,
            } = transfer;
            if token == SYSTEM {
                // The first one like the transaction's own payment is that one, told once more.
                let is_top = |(sender, payee, paid): (Account, Account, Amount)| {
                    (sender == from || sender == NOBODY) && (payee, paid) == (to, amount)
                };
                if top.is_some_and(is_top) {
                    top = None;
                    continue;
                }
                if is_ours(&to) {
                    push(Position::Log(place), Asset::Native, (&from, &to, amount))?;
                }
            } else if is_ours(&to) {
                push(Position::Log(place), Asset::Token(token.0), (&from, &to, amount))?;
            }
        }
        outputs.retain(|output| !output.amount.is_zero());
        Ok(outputs)
    }

    /// A transfer of something that is listed.
    pub(super) fn listed_transfer(
        &self,
        log: &LogFields,
        logs_coin: bool,
    ) -> Result<Option<Transfer>, String> {
        let Some(contract) = log.address.get() else {
            return Err(fault("a log's address", &log.address));
        };
        let is_listed = match *contract == SYSTEM {
            true => logs_coin,
            false => self.rules.tokens.contains_key(contract) && !locked(&self.disabled).contains(contract),
        };
        if !is_listed {
            return Ok(None);
        }
        match self.read_log(log) {
            Logged::Transfer(transfer) => Ok(Some(transfer)),
            Logged::Other | Logged::Unsupported(_) => Ok(None),
            Logged::Unreadable(why) => Err(format!("a log: {why}")),
        }
    }

    /// Holds payments of tokens that are not believed against the balances around the block.
    async fn check_balances(
        &self,
        hash: BlockHash,
        raw: &RawBlock,
        candidates: &mut [CandidateTx],
    ) -> Result<(), Trouble> {
        let mut checked: BTreeMap<(Account, Account), bool> = BTreeMap::new();
        for output in candidates.iter_mut().flat_map(|candidate| &mut candidate.outputs) {
            let (Asset::Token(token), Ok(owner)) = (output.asset, <[u8; 20]>::try_from(&*output.script.0))
            else {
                continue;
            };
            let (token, owner) = (Account(token), Account(owner));
            if !self
                .rules
                .tokens
                .get(&token)
                .is_some_and(|token| token.is_balance_checked)
            {
                continue;
            }
            let is_moved = match checked.get(&(token, owner)) {
                Some(is_moved) => *is_moved,
                None => {
                    let expected = self.moved(raw, token, owner);
                    let is_moved = self.is_balance_moved(hash, raw, token, owner, expected).await?;
                    let is_moved = match is_moved {
                        Some(is_moved) => is_moved,
                        // Another try, or another endpoint, may tell.
                        None if !self.bad.are_enough(hash) => {
                            let doing = format!("ask for a balance around block 0x{hash}");
                            return Err(super::odd_answer(doing, "the node cannot tell it").into());
                        }
                        None => false,
                    };
                    checked.insert((token, owner), is_moved);
                    is_moved
                }
            };
            if !is_moved {
                output.doubt = output.doubt.or(Some(Doubt::Balance));
            }
        }
        Ok(())
    }

    /// What came to an account of a token in a block and what went, by the logs; a sum past the largest
    /// number is no balance, and fits none.
    fn moved(&self, raw: &RawBlock, token: Account, owner: Account) -> (Amount, Amount) {
        let most = Amount::from_be_bytes([0xff; 32]);
        let (mut came, mut went) = (Amount::ZERO, Amount::ZERO);
        for log in &raw.logs {
            let Logged::Transfer(transfer) = self.read_log(log) else {
                continue;
            };
            if transfer.token != token {
                continue;
            }
            if transfer.to == owner {
                came = came.checked_add(transfer.amount).unwrap_or(most);
            }
            if transfer.from == owner {
                went = went.checked_add(transfer.amount).unwrap_or(most);
            }
        }
        (came, went)
    }
}

pub(super) fn script(account: &Account) -> Script {
    Script(account.0.into())
}

pub(super) fn fault<T>(name: &str, field: &Field<T>) -> String {
    format!("{name} {}", field.fault().unwrap_or_default())
}

/// Where a payment stands is its place in this list, so a list with a log less or more names another: nodes
/// number the logs of a block, and those of one transaction in a row.
fn check_order(txid: &Txid, logs: &[LogFields]) -> Result<(), String> {
    if logs
        .iter()
        .any(|log| log.transaction_hash.get().is_some_and(|of| of != txid))
    {
        return Err("its receipt has a log of another transaction".to_owned());
    }
    let numbers: Option<Vec<u64>> = logs.iter().map(|log| log.log_index.get().copied()).collect();
    let is_in_a_row = |numbers: Vec<u64>| {
        numbers
            .windows(2)
            .all(|pair| pair[1].checked_sub(pair[0]) == Some(1))
    };
    match numbers.is_none_or(is_in_a_row) {
        true => Ok(()),
        false => Err("the logs of its receipt are not numbered in a row".to_owned()),
    }
}

/// A transaction with what became of it.
struct Paid<'a> {
    txid: Txid,
    tx: &'a TxFields,
    receipt: &'a ReceiptFields,
    movements: &'a [super::trace::Movement],
}

impl Paid<'_> {
    /// To whom the transaction itself pays how much: the payee, or the contract that it makes.
    fn top_level(&self, is_ours: impl Fn(&Account) -> bool) -> Result<Option<(Account, Amount)>, String> {
        let to = match &self.tx.to {
            Field::Is(to) => *to,
            _ => match self.receipt.contract_address.get() {
                Some(made) => *made,
                None if self.tx.value.get().is_some_and(Amount::is_zero) => return Ok(None),
                None => return Err(fault("contractAddress", &self.receipt.contract_address)),
            },
        };
        match self.tx.value.get() {
            Some(amount) if amount.is_zero() => Ok(None),
            Some(amount) => Ok(Some((to, *amount))),
            None if is_ours(&to) => Err(fault("value", &self.tx.value)),
            None => Ok(None),
        }
    }
}
