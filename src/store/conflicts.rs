//! Who can no longer be mined, because somebody spends an input of it or of an unconfirmed ancestor.

use super::chains::{ChainKey, one};
use super::codec::int;
use super::deposits::Cause;
use super::{StoreError, WriteTx};
use crate::rules::state::Fact;
use crate::rules::{CandidateTx, HeldHeader, Prevout, Txid};
use rusqlite::params;
use std::collections::{BTreeMap, BTreeSet};

impl WriteTx<'_> {
    /// Whatever stored transaction in no block conflicts with this one is replaced by it. Those whose block
    /// has just been disconnected only get the mark: what becomes of them is decided after the last connect.
    pub(super) fn replace_conflicts(
        &mut self,
        chain: ChainKey,
        candidate: &CandidateTx,
        held: Option<&HeldHeader>,
        left: &BTreeMap<i64, HeldHeader>,
    ) -> Result<(), StoreError> {
        for loser in self.conflicts_of(chain, &candidate.txid, &candidate.inputs)? {
            self.replace(loser, &candidate.txid, held, left.contains_key(&loser))?;
        }
        Ok(())
    }

    /// Marks a loser as replaced, and moves its deposits unless its block has just been disconnected.
    pub(super) fn replace(
        &mut self,
        loser: i64,
        by: &Txid,
        held: Option<&HeldHeader>,
        is_left: bool,
    ) -> Result<(), StoreError> {
        if !self.mark_replaced(loser, by)? || is_left {
            return Ok(());
        }
        let chain = self.chain_of_tx(loser)?;
        let what = match chain.is_evm() {
            true => "has the same sender and nonce",
            false => "spends an input of it or of an ancestor",
        };
        let words = format!("{} {what}", chain.print(by));
        let cause = match held {
            Some(held) => Cause::block(held.height, held.header.hash, words),
            None => Cause::other(words),
        };
        for mut deposit in self.deposits_of_tx(loser)? {
            self.move_deposit(&mut deposit, Fact::Conflicted, None, &cause)?;
        }
        Ok(())
    }

    pub(super) fn replaced_by(&self, tx: i64) -> Result<Option<Txid>, StoreError> {
        let by: Option<Option<Txid>> =
            super::chains::one(self.conn(), "SELECT replaced_by FROM txs WHERE id = ?1", [tx])?;
        Ok(by.flatten())
    }

    /// Marks a transaction as replaced; false when that was known already.
    fn mark_replaced(&mut self, tx: i64, by: &Txid) -> Result<bool, StoreError> {
        let changed = self
            .conn()
            .prepare_cached(
                "UPDATE txs SET replaced_by = ?2, is_listed = 0, absent_since = NULL, rival = NULL \
                 WHERE id = ?1 AND (replaced_by IS NULL OR replaced_by <> ?2)",
            )?
            .execute(params![tx, by])?;
        Ok(changed == 1)
    }

    /// Stored transactions in no block that spend one of these outpoints, and whatever descends from them:
    /// all of them are replaced by `by`. In the order in which they were stored.
    pub(super) fn conflicts_of(
        &self,
        chain: ChainKey,
        by: &Txid,
        spends: &[Prevout],
    ) -> Result<BTreeSet<i64>, StoreError> {
        let mut losers = BTreeSet::new();
        let mut work: Vec<i64> = Vec::new();
        for spent in spends {
            self.push_spenders(chain, &spent.txid, Some(int(spent.vout)?), &mut work)?;
        }
        let winner = self.find_tx(chain, by)?;
        while let Some(tx) = work.pop() {
            if winner == Some(tx) || self.is_included(tx)? || !losers.insert(tx) {
                continue;
            }
            let txid: Option<Txid> = one(self.conn(), "SELECT txid FROM txs WHERE id = ?1", [tx])?;
            if let Some(txid) = txid {
                self.push_spenders(chain, &txid, None, &mut work)?;
            }
        }
        Ok(losers)
    }

    fn push_spenders(
        &self,
        chain: ChainKey,
        txid: &Txid,
        vout: Option<i64>,
        into: &mut Vec<i64>,
    ) -> Result<(), StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT i.tx FROM inputs i JOIN txs t ON t.id = i.tx \
             WHERE i.prev_txid = ?1 AND (?2 IS NULL OR i.prev_vout = ?2) AND t.chain = ?3",
        )?;
        let mut rows = statement.query(params![txid, vout, chain.0])?;
        while let Some(row) = rows.next()? {
            into.push(row.get(0)?);
        }
        Ok(())
    }
}
