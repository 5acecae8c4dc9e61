//! What becomes of a replaced transaction when mempool lists show another in the place of its replacement, or
//! itself. Behind one address there may be nodes with rival mempools: going along with whoever answers would
//! tell the merchant of a change at each list, for ever. So lists in a row have to agree, and each change of
//! one transaction needs twice as many as the one before: however the answers take turns, it settles.

use super::chains::ChainKey;
use super::{StoreError, WriteTx};
use crate::rules::{MempoolList, Txid};
use rusqlite::params;
use std::collections::BTreeSet;

/// How many lists in a row must agree on the first change.
const RIVAL_LISTS: i64 = 3;
/// The number of lists is doubled so often at most: a year and more of them.
const DOUBLINGS_MAX: i64 = 24;

impl WriteTx<'_> {
    /// Counts a list that has `who` where a replaced transaction has its replacement (itself: it is back).
    /// True once enough lists in a row have said so.
    pub(super) fn rivals(&mut self, tx: i64, who: &Txid, list: &MempoolList) -> Result<bool, StoreError> {
        let (rival, lists): (Option<Txid>, i64) = self
            .conn()
            .prepare_cached("SELECT rival, rival_lists FROM txs WHERE id = ?1")?
            .query_row([tx], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let lists = match rival {
            Some(rival) if rival == *who => lists.saturating_add(1),
            // Of several in one list the first goes on.
            Some(rival) if list.listed.contains(&rival) => return Ok(false),
            Some(_) | None => 1,
        };
        if lists >= self.rival_lists_needed(tx)? {
            return Ok(true);
        }
        self.conn()
            .prepare_cached("UPDATE txs SET rival = ?2, rival_lists = ?3 WHERE id = ?1")?
            .execute(params![tx, who, lists])?;
        Ok(false)
    }

    fn rival_lists_needed(&self, tx: i64) -> Result<i64, StoreError> {
        let changes: i64 = self
            .conn()
            .prepare_cached(
                "SELECT coalesce(max(changes), 0) FROM (SELECT count(*) AS changes FROM outputs o \
                 JOIN audit a ON a.output = o.id WHERE o.tx = ?1 AND a.action = 'move' \
                 AND a.from_state = 'replaced' AND a.to_state IN ('seen', 'replaced') GROUP BY o.id)",
            )?
            .query_row([tx], |row| row.get(0))?;
        Ok(RIVAL_LISTS << changes.min(DOUBLINGS_MAX))
    }

    /// A replaced transaction is back.
    pub(super) fn end_replacement(&mut self, tx: i64) -> Result<(), StoreError> {
        self.conn()
            .prepare_cached("UPDATE txs SET replaced_by = NULL, rival = NULL WHERE id = ?1")?
            .execute([tx])?;
        Ok(())
    }

    /// The replaced transactions that the last list did not show as they are.
    pub(super) fn rivalled(&self, chain: ChainKey) -> Result<Vec<i64>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT id FROM txs WHERE chain = ?1 AND rival IS NOT NULL")?;
        let rows = statement.query_map([chain.0], |row| row.get(0))?;
        Ok(rows.collect::<Result<Vec<i64>, _>>()?)
    }

    /// Forgets the rivals that the last list had none of: lists in a row have to agree.
    pub(super) fn forget_rivals(&mut self, chain: ChainKey, but: &BTreeSet<i64>) -> Result<(), StoreError> {
        let rivalled = self.rivalled(chain)?;
        let mut forget = self
            .conn()
            .prepare_cached("UPDATE txs SET rival = NULL WHERE id = ?1")?;
        for tx in rivalled.iter().filter(|tx| !but.contains(tx)) {
            forget.execute([tx])?;
        }
        Ok(())
    }
}
