//! Applying a mempool list: who is in it is seen, who stays out of it for long is evicted, who conflicts with
//! it is replaced. A list counts only if it was read at our tip and is newer than the last one. Behind one
//! address there may be nodes with rival payments in their mempools, whose lists come in turn: the first of
//! them to replace a payment does so at once, but what is replaced already changes only when lists in a row
//! agree, see [`rivals`](super::rivals).

use super::advance::Terms;
use super::chains::ChainKey;
use super::deposits::Cause;
use super::matching::Context;
use super::txs::{Made, Met, remember};
use super::{StoreError, WriteTx};
use crate::rules::state::Fact;
use crate::rules::{CandidateTx, MempoolList, Outpoint, Txid};
use rusqlite::{OptionalExtension, params};
use std::collections::BTreeSet;

/// How much longer than the time from list to list the gap between two applied ones may be and still count as
/// observed: blocks and slow answers come between. No more of a gap counts, however long nobody looked.
const LIST_DELAY_MAX_MS: i64 = 30_000;

/// How a list was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Its number; numbers only rise, restarts included.
    pub poll: i64,
    /// Does absence from it count towards eviction?
    pub is_synced: bool,
    /// The time from list to list.
    pub every_ms: i64,
}

/// What became of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListApplied {
    /// Committed; the index must know these outpoints from now on.
    Done(Vec<Outpoint>),
    /// The same, but rules were added since it was filtered: what pays them is in the next list.
    Partly(Vec<Outpoint>),
    /// The same, but some of it counts only once the next lists agree, be they the same as this one.
    Pending(Vec<Outpoint>),
    /// Read at another tip than ours, or not newer than the last one: it says nothing.
    Outdated,
}

/// A list on its way into the tables.
struct Applying<'l> {
    at: Context,
    list: &'l MempoolList,
    next_height: u64,
    /// What the index must know from now on.
    outpoints: Vec<Outpoint>,
    /// Did the last list leave replaced transactions that it did not show as they are?
    has_rivals: bool,
    /// Those of this list.
    rivalled: BTreeSet<i64>,
}

impl WriteTx<'_> {
    /// Applies a list. What it says of older rules stands even if rules were added since: whoever adds some
    /// all the time must not make every list void.
    pub fn apply_mempool(
        &mut self,
        chain: ChainKey,
        list: &MempoolList,
        listing: Listing,
        terms: &Terms,
    ) -> Result<ListApplied, StoreError> {
        let row = self.chain_by_key(chain)?;
        let Some(tip) = row
            .cursor
            .filter(|tip| tip.header.hash == list.tip && listing.poll > row.mempool_poll)
        else {
            return Ok(ListApplied::Outdated);
        };
        let is_partial =
            list.version < self.list_version()? && !self.scripts_since(chain, list.version)?.is_empty();
        let clock = self.tick_list_clock(chain, listing)?;
        let mut applying = Applying {
            at: self.context(chain)?,
            list,
            next_height: tip.height + 1,
            outpoints: Vec::new(),
            has_rivals: !self.rivalled(chain)?.is_empty(),
            rivalled: BTreeSet::new(),
        };
        for candidate in &list.txs {
            self.list_tx(&mut applying, candidate)?;
        }
        let Applying {
            outpoints, rivalled, ..
        } = applying;
        self.forget_rivals(chain, &rivalled)?;
        self.note_absences(chain, list, clock)?;
        if listing.is_synced {
            self.evict(chain, clock - terms.evict_after_ms)?;
        }
        Ok(match (is_partial, rivalled.is_empty()) {
            (true, _) => ListApplied::Partly(outpoints),
            (false, false) => ListApplied::Pending(outpoints),
            (false, true) => ListApplied::Done(outpoints),
        })
    }

    /// Adds the time since the last applied list to the clock that evictions are measured on.
    fn tick_list_clock(&mut self, chain: ChainKey, listing: Listing) -> Result<i64, StoreError> {
        let now = self.now_ms();
        let (clock, last): (i64, Option<i64>) = self
            .conn()
            .prepare_cached("SELECT list_clock_ms, list_applied_at FROM chains WHERE id = ?1")?
            .query_row([chain.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let observed = listing.every_ms.saturating_add(LIST_DELAY_MAX_MS);
        let gap = last.map_or(0, |last| now.saturating_sub(last).clamp(0, observed));
        let clock = if listing.is_synced { clock + gap } else { clock };
        self.conn()
            .prepare_cached(
                "UPDATE chains SET mempool_poll = ?2, list_clock_ms = ?3, list_applied_at = ?4 WHERE id = ?1",
            )?
            .execute(params![chain.0, listing.poll, clock, now])?;
        Ok(clock)
    }

    fn list_tx(&mut self, applying: &mut Applying<'_>, candidate: &CandidateTx) -> Result<(), StoreError> {
        let chain = applying.at.chain;
        if self.is_listed_unchanged(chain, candidate)? {
            return match applying.has_rivals {
                // It may be one of them: each list counts.
                true => self.replace_unlisted(applying, candidate),
                false => Ok(()),
            };
        }
        let mut came_back = None;
        if let Some(tx) = self.find_tx(chain, &candidate.txid)? {
            if self.is_included(tx)? {
                // A list at our tip that holds what our chain holds contradicts itself.
                return Ok(());
            }
            if self.replaced_by(tx)?.is_some() {
                if !self.rivals(tx, &candidate.txid, applying.list)? {
                    // Nobody is replaced by what is itself replaced.
                    applying.rivalled.insert(tx);
                    return Ok(());
                }
                self.end_replacement(tx)?;
                came_back = Some(tx);
            }
        }
        let matched = self.matched(&applying.at, candidate, applying.next_height)?;
        if !matched.is_empty() {
            let recorded = self.record_tx(&applying.at, candidate, &matched, Met::Anew)?;
            self.conn()
                .prepare_cached("UPDATE txs SET is_listed = 1, absent_since = NULL WHERE id = ?1")?
                .execute([recorded.tx])?;
            let vouts = matched.iter().map(|hit| hit.output.vout);
            remember(candidate, vouts, &mut applying.outpoints);
            let cause = Cause::other("in the node's mempool");
            for Made { mut deposit, hold } in recorded.made {
                deposit.replaced_by = None;
                self.move_deposit(&mut deposit, Fact::Listed, None, &cause)?;
                if let Some(reason) = hold {
                    self.hold_deposit(&mut deposit, reason, &cause)?;
                }
            }
        }
        if let Some(tx) = came_back {
            self.leave_replaced(tx)?;
        }
        self.note_spends(chain, candidate, None)?;
        self.replace_unlisted(applying, candidate)
    }

    /// True for a transaction that an earlier list brought with as many outputs: nothing about it can be new.
    fn is_listed_unchanged(&self, chain: ChainKey, candidate: &CandidateTx) -> Result<bool, StoreError> {
        let known: Option<i64> = self
            .conn()
            .prepare_cached(
                "SELECT (SELECT count(*) FROM outputs o WHERE o.tx = t.id) FROM txs t \
                 WHERE t.chain = ?1 AND t.txid = ?2 AND t.is_listed = 1",
            )?
            .query_row(params![chain.0, candidate.txid], |row| row.get(0))
            .optional()?;
        Ok(known == Some(candidate.outputs.len() as i64))
    }

    /// Replaces what conflicts with a listed transaction. A node never lists two that conflict; of a list
    /// that does, neither replaces the other, or each poll would write the same two events again. For the
    /// same reason a loser whose replacement is still listed keeps it.
    fn replace_unlisted(
        &mut self,
        applying: &mut Applying<'_>,
        candidate: &CandidateTx,
    ) -> Result<(), StoreError> {
        let list = applying.list;
        for loser in self.conflicts_of(applying.at.chain, &candidate.txid, &candidate.inputs)? {
            let (txid, by): (Txid, Option<Txid>) = self
                .conn()
                .prepare_cached("SELECT txid, replaced_by FROM txs WHERE id = ?1")?
                .query_row([loser], |row| Ok((row.get(0)?, row.get(1)?)))?;
            if list.listed.contains(&txid) || by.is_some_and(|by| list.listed.contains(&by)) {
                continue;
            }
            if by.is_none() || self.rivals(loser, &candidate.txid, list)? {
                self.replace(loser, &candidate.txid, None, false)?;
            } else {
                applying.rivalled.insert(loser);
            }
        }
        Ok(())
    }

    /// Starts the absence of those that were listed and are not any more.
    fn note_absences(&mut self, chain: ChainKey, list: &MempoolList, clock: i64) -> Result<(), StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT id, txid FROM txs WHERE chain = ?1 AND is_listed = 1")?;
        let listed = statement
            .query_map([chain.0], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<Vec<(i64, Txid)>, _>>()?;
        let mut update = self
            .conn()
            .prepare_cached("UPDATE txs SET is_listed = 0, absent_since = ?2 WHERE id = ?1")?;
        for (tx, txid) in listed {
            if !list.listed.contains(&txid) {
                update.execute(params![tx, clock])?;
            }
        }
        Ok(())
    }

    fn evict(&mut self, chain: ChainKey, absent_since_max: i64) -> Result<(), StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT id FROM txs \
             WHERE chain = ?1 AND absent_since IS NOT NULL AND absent_since <= ?2 ORDER BY id",
        )?;
        let gone = statement
            .query_map(params![chain.0, absent_since_max], |row| row.get(0))?
            .collect::<Result<Vec<i64>, _>>()?;
        let cause = Cause::other("absent from the node's mempool and from the chain for long");
        for tx in gone {
            self.conn()
                .prepare_cached("UPDATE txs SET absent_since = NULL WHERE id = ?1")?
                .execute([tx])?;
            for mut deposit in self.deposits_of_tx(tx)? {
                if deposit.state == Some(crate::rules::state::State::Seen) {
                    self.move_deposit(&mut deposit, Fact::Absent, None, &cause)?;
                }
            }
        }
        Ok(())
    }
}
