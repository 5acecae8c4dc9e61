//! What a receipt must be to be believed. A payment is known by the place of its log in its receipt, so one
//! that has lost, doubled or moved a log tells of payments that nobody made.

use super::EvmSource;
use super::answers::{LogFields, ReceiptFields};
use super::block::RawBlock;
use super::transfer::Transfer;
use crate::egress::Dial;
use crate::rules::{BlockHash, Txid};

impl<D: Dial> EvmSource<D> {
    /// The transfers of listed assets that a receipt has, each at its place among all its logs.
    ///
    /// # Errors
    /// What of it contradicts itself, or the list of the block's logs.
    pub(super) fn transfers(
        &self,
        (hash, raw): (BlockHash, &RawBlock),
        (txid, receipt): (Txid, &ReceiptFields),
        logs: &[LogFields],
        logs_coin: bool,
    ) -> Result<Vec<(u32, Transfer)>, String> {
        if logs
            .iter()
            .any(|log| log.block_hash.get().is_some_and(|of| *of != hash))
        {
            return Err("its receipt has a log of another block".to_owned());
        }
        if self.rules.has_bloom
            && let Some(bloom) = receipt.logs_bloom.get()
            && bloom.is_explained_by(logs) == Ok(false)
        {
            return Err("its receipt lacks logs that its bloom names".to_owned());
        }
        let mut found = Vec::new();
        for (place, log) in (0..).zip(logs) {
            if let Some(transfer) = self.listed_transfer(log, logs_coin)? {
                found.push((place, transfer));
            }
        }
        // Where the receipts were read for it, the list is made of them.
        let is_told = |log: &LogFields| log.transaction_hash.get().is_some();
        if raw.receipts.is_empty() && raw.logs.iter().all(is_told) {
            let of_it = raw
                .logs
                .iter()
                .filter(|log| log.transaction_hash.get() == Some(&txid));
            let listed: Result<Vec<_>, String> = of_it
                .filter_map(|log| self.listed_transfer(log, logs_coin).transpose())
                .collect();
            // The list only says where to look: what it lacks of a transaction is in its receipt. What it has
            // must be there, in its order.
            let mut rest = found.iter().map(|(_, transfer)| transfer);
            if !listed?
                .iter()
                .all(|listed| rest.any(|transfer| transfer == listed))
            {
                return Err("its receipt lacks a transfer that the list of logs has".to_owned());
            }
        }
        Ok(found)
    }
}
