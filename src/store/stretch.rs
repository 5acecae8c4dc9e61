//! Applying what a rescan has staged, once a header that we hold proves that it is linked to our chain:
//! lowest first, because a spend is known by the output before it, and some blocks in each transaction.

use super::advance::{Reorg, Terms};
use super::chains::{ChainKey, one};
use super::codec::{int, uint};
use super::deposits::Cause;
use super::matching::Context;
use super::staged;
use super::txs::{Made, Met};
use super::{StoreError, WriteTx};
use crate::rules::{CandidateTx, HeldHeader, Work};
use rusqlite::params;
use std::collections::BTreeSet;
use std::ops::Range;

/// One transaction applies at most so many staged blocks, and begins none after so many matches: other
/// writers get their turn.
const APPLIED_BLOCKS: i64 = 5_000;
const APPLIED_MATCHES: u64 = 500;

impl WriteTx<'_> {
    /// The last staged block is one whose header we hold: it is linked to our chain, so all of them are, and
    /// what work lies below them follows.
    pub(super) fn prove(&mut self, rescan: i64, proven: &HeldHeader) -> Result<(), StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT work FROM rescan_blocks WHERE rescan = ?1")?;
        let mut rows = statement.query([rescan])?;
        let mut base = proven.chainwork;
        while let Some(row) = rows.next()? {
            let below = base.checked_sub(row.get(0)?);
            base = below.ok_or_else(|| StoreError::Contradiction("less work than one header's".into()))?;
        }
        self.conn()
            .prepare_cached("UPDATE rescans SET base_work = ?2 WHERE id = ?1")?
            .execute(params![rescan, base])?;
        Ok(())
    }

    /// Applies the lowest of the blocks that are proven. True when none is left.
    pub(super) fn apply_proven(
        &mut self,
        at: &Context,
        rescan: i64,
        terms: &Terms,
    ) -> Result<bool, StoreError> {
        let base = "SELECT base_work FROM rescans WHERE id = ?1 AND base_work IS NOT NULL";
        let Some(mut work) = one::<Work>(self.conn(), base, [rescan])? else {
            return Ok(true);
        };
        let stretch = self.staged_from(rescan, 0, APPLIED_BLOCKS, work)?;
        let lowest = stretch.first().map_or(0, |(held, _)| held.height);
        let (mut matches, mut found, mut applied_to) = (0, 0, lowest);
        for (held, candidates) in &stretch {
            if matches >= APPLIED_MATCHES {
                break;
            }
            let txs = staged::decode(candidates)?;
            if !txs.is_empty() {
                self.hold_header(at.chain, held)?;
                matches += txs.len() as u64;
                found += self.apply_old_block(at, held, &txs, terms)?;
            }
            let due = "SELECT 1 FROM deposits WHERE chain = ?1 AND due_height = ?2 LIMIT 1";
            if one::<i64>(self.conn(), due, params![at.chain.0, int(held.height)?])?.is_some() {
                self.hold_header(at.chain, held)?;
            }
            (work, applied_to) = (held.chainwork, held.height + 1);
        }
        self.conn()
            .prepare_cached("DELETE FROM rescan_blocks WHERE rescan = ?1 AND height < ?2")?
            .execute(params![rescan, int(applied_to)?])?;
        let is_applied = one::<i64>(
            self.conn(),
            "SELECT 1 FROM rescan_blocks WHERE rescan = ?1 LIMIT 1",
            [rescan],
        )?
        .is_none();
        if !is_applied {
            self.hold_due_above(at.chain, rescan, lowest..applied_to, work)?;
        }
        self.conn()
            .prepare_cached(
                "UPDATE rescans SET applied_to = ?2, matches = matches + ?3, found = found + ?4, \
                 base_work = ?5 WHERE id = ?1",
            )?
            .execute(params![
                rescan,
                int(applied_to)?,
                int(matches)?,
                int(found)?,
                (!is_applied).then_some(work)
            ])?;
        Ok(is_applied)
    }

    /// Holds the headers that stand at due heights of what is just applied, where those blocks are not
    /// applied yet: a credit names the block at its due height, wherever one transaction ends and the next
    /// begins. `work` is the chainwork of the last applied block.
    fn hold_due_above(
        &mut self,
        chain: ChainKey,
        rescan: i64,
        applied: Range<u64>,
        work: Work,
    ) -> Result<(), StoreError> {
        let dues: BTreeSet<u64> = self
            .conn()
            .prepare_cached(
                "SELECT DISTINCT due_height FROM deposits \
                 WHERE chain = ?1 AND height >= ?2 AND height < ?3 AND due_height >= ?3",
            )?
            .query_map(params![chain.0, int(applied.start)?, int(applied.end)?], |row| {
                row.get(0)
            })?
            .map(|due| uint(due?))
            .collect::<Result<_, _>>()?;
        let Some(highest) = dues.last() else {
            return Ok(());
        };
        let count = int(highest - applied.end + 1)?;
        for (held, _) in self.staged_from(rescan, applied.end, count, work)? {
            if dues.contains(&held.height) {
                self.hold_header(chain, &held)?;
            }
        }
        Ok(())
    }

    /// At most `count` staged blocks from a height on, with their place: `work` is the chainwork below the
    /// first of them.
    fn staged_from(
        &self,
        rescan: i64,
        height: u64,
        count: i64,
        mut work: Work,
    ) -> Result<Vec<(HeldHeader, String)>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT height, hash, parent, time_secs, bits, work, candidates FROM rescan_blocks \
             WHERE rescan = ?1 AND height >= ?2 ORDER BY height LIMIT ?3",
        )?;
        let mut rows = statement.query(params![rescan, int(height)?, count])?;
        let mut stretch = Vec::new();
        while let Some(row) = rows.next()? {
            let header = super::chains::bare_header(row, 1)?;
            let summed = work.checked_add(header.work);
            work = summed.ok_or_else(|| StoreError::Contradiction("chainwork passes 2^256".into()))?;
            let held = HeldHeader {
                height: uint(row.get(0)?)?,
                header,
                chainwork: work,
            };
            stretch.push((held, row.get(6)?));
        }
        Ok(stretch)
    }

    fn hold_header(&mut self, chain: ChainKey, held: &HeldHeader) -> Result<(), StoreError> {
        match self.header_at(chain, held.height)? {
            Some(_) => Ok(()),
            None => self.insert_header(chain, held),
        }
    }

    fn apply_old_block(
        &mut self,
        at: &Context,
        held: &HeldHeader,
        txs: &[CandidateTx],
        terms: &Terms,
    ) -> Result<u64, StoreError> {
        let mut fresh: Vec<Made> = Vec::new();
        let mut found = 0;
        for candidate in txs {
            let matched = self.matched(at, candidate, held.height)?;
            if !matched.is_empty() && !candidate.is_failed {
                let was_here = self.was_included(at.chain, candidate, held.height)?;
                let met = if was_here { Met::Again } else { Met::Anew };
                let recorded = self.record_tx(at, candidate, &matched, met)?;
                found += recorded.new_outputs;
                if was_here {
                    self.count_duplicates(recorded.tx)?;
                }
                if recorded.new_outputs > 0 || !was_here {
                    self.include_tx(at.chain, recorded.tx, held.height)?;
                    self.take_off_lists(recorded.tx)?;
                }
                let is_here = self.included_at(recorded.tx)? == Some(held.height);
                if candidate.sender.is_some() && !was_here && is_here {
                    let reorg = Reorg::default();
                    let shown = (&matched[..], &recorded.made[..]);
                    self.leave_executions(at, recorded.tx, shown, held, &reorg)?;
                }
                for mut made in recorded.made.into_iter().filter(|_| is_here) {
                    match made.hold {
                        Some(reason) if made.deposit.height == Some(held.height) => {
                            let words = format!(
                                "block {} shows that it spends own coin",
                                at.id.print(held.header.hash)
                            );
                            let cause = Cause::block(held.height, held.header.hash, words);
                            self.hold_deposit(&mut made.deposit, reason, &cause)?;
                        }
                        None if made.deposit.height == Some(held.height) => {}
                        Some(_) | None => fresh.push(made),
                    }
                }
            }
            self.note_spends(at.chain, candidate, Some(held.height))?;
            // Whoever is replaced already was told so when it happened: reading the block again is no news.
            for loser in self.conflicts_of(at.chain, &candidate.txid, &candidate.inputs)? {
                if self.replaced_by(loser)?.is_none() {
                    self.replace(loser, &candidate.txid, Some(held), false)?;
                }
            }
        }
        if !fresh.is_empty() {
            self.confirm(held, fresh, terms)?;
            self.reconsider(at.chain, held.height, terms)?;
        }
        Ok(found)
    }

    fn was_included(
        &self,
        chain: ChainKey,
        candidate: &CandidateTx,
        height: u64,
    ) -> Result<bool, StoreError> {
        let known = one::<i64>(
            self.conn(),
            "SELECT 1 FROM txs t JOIN inclusions i ON i.tx = t.id \
             WHERE t.chain = ?1 AND t.txid = ?2 AND i.height = ?3",
            params![chain.0, candidate.txid, int(height)?],
        )?;
        Ok(known.is_some())
    }

    fn count_duplicates(&mut self, tx: i64) -> Result<(), StoreError> {
        self.conn()
            .prepare_cached("UPDATE outputs SET duplicates = duplicates + 1 WHERE tx = ?1")?
            .execute([tx])?;
        Ok(())
    }
}
