//! Which transactions of a block may concern us: by lists of logs, by what they pay themselves, by traces,
//! and those that are stored or use up the nonce of one that is.

use super::EvmSource;
use super::answers::TxFields;
use super::block::RawBlock;
use super::fields::Field;
use super::scan::{NOBODY, Trouble, fault};
use super::transfer::Logged;
use crate::egress::Dial;
use crate::index::{Index, short};
use crate::rules::block::{sender_outpoint, tx_mark};
use crate::rules::{BlockHash, Prevout, Txid};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// The transactions of a block that may concern us.
pub(super) struct Wanted {
    /// Of all that is paid in the block.
    pub(super) shorts: Vec<u64>,
    pub(super) txids: BTreeSet<Txid>,
    /// Are logs of theirs needed?
    pub(super) has_logs: bool,
    /// Are those logs read that the chain itself writes of coin that moves?
    pub(super) logs_coin: bool,
}

impl<D: Dial> EvmSource<D> {
    /// Transfers of listed assets. What cannot be read may be anybody's.
    pub(super) fn want_by_logs(
        &self,
        hash: BlockHash,
        raw: &RawBlock,
        index: &Index,
        wanted: &mut Wanted,
    ) -> Result<(), Trouble> {
        for log in &raw.logs {
            let txid = log.transaction_hash.get().copied();
            let transfer = match self.read_log(log) {
                Logged::Transfer(transfer) => transfer,
                Logged::Other => continue,
                Logged::Unreadable(why) => return Err(Trouble::Unreadable(format!("a log: {why}"))),
                Logged::Unsupported(why) => {
                    self.counters
                        .unsupported_transfers
                        .fetch_add(1, Ordering::Relaxed);
                    let txid = txid.map_or_else(|| "?".to_owned(), |txid| format!("0x{txid}"));
                    tracing::info!(
                        chain = %self.rules.chain, block = %hash, %txid,
                        "unsupported transfer log of a listed token in transaction {txid}: {why}"
                    );
                    continue;
                }
            };
            let to = short(&transfer.to.0);
            wanted.shorts.push(to);
            if !transfer.amount.is_zero() && index.may_hold_script(to) {
                let why = || Trouble::Unreadable(fault("a log's transactionHash", &log.transaction_hash));
                wanted.txids.insert(txid.ok_or_else(why)?);
            }
        }
        Ok(())
    }

    /// Payments of coin by the transactions themselves, and transactions that stored ones make impossible or
    /// are.
    pub(super) fn want_by_txs(
        &self,
        raw: &RawBlock,
        index: &Index,
        wanted: &mut Wanted,
    ) -> Result<(), Trouble> {
        for (place, (txid, tx)) in raw.txs().enumerate() {
            let mut is_wanted = txid
                .get()
                .is_some_and(|txid| index.may_hold_outpoint(&tx_mark(*txid)));
            if let Some(tx) = tx {
                is_wanted |= spends(tx).is_some_and(|spends| index.may_hold_outpoint(&spends));
                if self.rules.native.is_some() {
                    is_wanted |= pays_us(tx, index, &mut wanted.shorts)
                        .map_err(|why| Trouble::Unreadable(format!("transaction {place}: {why}")))?;
                }
            }
            if is_wanted {
                let why = || Trouble::Unreadable(format!("transaction {place}: {}", fault("hash", txid)));
                wanted.txids.insert(*txid.get().ok_or_else(why)?);
            }
        }
        Ok(())
    }
}

/// Coin that moves inside transactions, by traces.
pub(super) fn want_by_movements(raw: &RawBlock, index: &Index, wanted: &mut Wanted) -> Result<(), Trouble> {
    let movements = raw.movements.iter().flatten();
    for (place, ((txid, _), movements)) in raw.txs().zip(movements).enumerate() {
        for movement in movements {
            let to = short(&movement.to.0);
            wanted.shorts.push(to);
            if index.may_hold_script(to) {
                let why = || Trouble::Unreadable(format!("transaction {place}: {}", fault("hash", txid)));
                wanted.txids.insert(*txid.get().ok_or_else(why)?);
            }
        }
    }
    Ok(())
}

/// May this transaction itself pay coin to us?
fn pays_us(tx: &TxFields, index: &Index, shorts: &mut Vec<u64>) -> Result<bool, String> {
    let may_pay = tx.value.get().is_none_or(|value| !value.is_zero());
    match &tx.to {
        Field::Is(to) => {
            let to = short(&to.0);
            if may_pay {
                shorts.push(to);
            }
            let is_ours = index.may_hold_script(to);
            if is_ours && tx.value.get().is_none() {
                return Err(fault("value", &tx.value));
            }
            Ok(is_ours && may_pay)
        }
        // A creation: what it makes is told by its receipt.
        Field::Null => Ok(tx.value.get().is_some_and(|value| !value.is_zero())),
        Field::Missing | Field::Odd(_) if may_pay => Err(fault("to", &tx.to)),
        Field::Missing | Field::Odd(_) => Ok(false),
    }
}

/// Types of transactions that rollups make themselves: nobody signed them, and their nonce, where they have
/// one, counts nothing. OP Stack: 0x7e; Arbitrum: 0x64 to 0x6a.
fn is_made_by_rollup(kind: u64) -> bool {
    matches!(kind, 0x7e | 0x64..=0x6a)
}

/// The nonce that a transaction uses up, as an outpoint; `None` where it uses up none.
pub(super) fn spends(tx: &TxFields) -> Option<Prevout> {
    let (sender, nonce) = (tx.from.get()?, tx.nonce.get()?);
    let is_made = tx.r#type.get().is_some_and(|kind| is_made_by_rollup(*kind));
    (*sender != NOBODY && !is_made).then(|| sender_outpoint(&sender.0, *nonce))
}
