//! Rescans: a second cursor beside the tip. Blocks that match are staged until a header that we hold proves
//! that they are linked to our chain; then they are applied in the transaction that checks it. A second run
//! changes nothing.

use super::advance::Terms;
use super::chains::{ChainKey, one};
use super::codec::{int, uint};
use super::deposits::Cause;
use super::staged;
use super::txs::{Context, Made};
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::{BlockHash, CandidateTx, HeldHeader, Outpoint, ScannedBlock, Script};
use rusqlite::params;

/// A rescan under way or done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescan {
    /// Its number.
    pub id: i64,
    /// The first height that it reads.
    pub from_height: u64,
    /// The next height that it reads.
    pub next_height: u64,
    /// The block below `next_height` as it was read; `None` where the next block starts a stretch.
    pub last_hash: Option<BlockHash>,
    /// Everything below is applied.
    pub applied_to: u64,
    /// `running` or `done`.
    pub state: String,
    /// Why it was asked for.
    pub reason: String,
    /// When it was asked for, Unix milliseconds.
    pub asked_at: i64,
    /// When it was done.
    pub done_at: Option<i64>,
    /// Transactions of ours that it met.
    pub matches: u64,
    /// Outputs among them that were not known before.
    pub found: u64,
}

/// Which rules a rescan may apply to blocks from before they were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backfill {
    /// None: every rule keeps its own first height.
    Nothing,
    /// The rule of one script.
    Script(Script),
    /// Every rule of the chain.
    All,
}

/// What became of a slice of a rescan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rescanned {
    /// Read on.
    Going,
    /// The tip is reached.
    Done,
    /// The blocks do not link, the node is on another branch than we are, or a rule added since they were
    /// filtered hits one of them: they are read again.
    SteppedBack,
}

const RESCAN_COLUMNS: &str = "id, from_height, next_height, last_hash, applied_to, state, reason, \
     asked_at, done_at, \
     matches, found";

fn rescan_row(row: &rusqlite::Row<'_>) -> Result<Rescan, StoreError> {
    Ok(Rescan {
        id: row.get(0)?,
        from_height: uint(row.get(1)?)?,
        next_height: uint(row.get(2)?)?,
        last_hash: row.get(3)?,
        applied_to: uint(row.get(4)?)?,
        state: row.get(5)?,
        reason: row.get(6)?,
        asked_at: row.get(7)?,
        done_at: row.get(8)?,
        matches: uint(row.get(9)?)?,
        found: uint(row.get(10)?)?,
    })
}

impl ReadTx<'_> {
    /// The oldest rescan that is not done.
    pub fn running_rescan(&self, chain: ChainKey) -> Result<Option<Rescan>, StoreError> {
        let sql = format!(
            "SELECT {RESCAN_COLUMNS} FROM rescans WHERE chain = ?1 AND state = 'running' ORDER BY id LIMIT 1"
        );
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query([chain.0])?;
        rows.next()?.map(rescan_row).transpose()
    }

    /// All rescans of a chain, newest first.
    pub fn rescans(&self, chain: ChainKey) -> Result<Vec<Rescan>, StoreError> {
        let sql = format!("SELECT {RESCAN_COLUMNS} FROM rescans WHERE chain = ?1 ORDER BY id DESC");
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query([chain.0])?;
        let mut rescans = Vec::new();
        while let Some(row) = rows.next()? {
            rescans.push(rescan_row(row)?);
        }
        Ok(rescans)
    }

    /// The rules that a backfill from a height would lower, for the dry run.
    pub fn backfill_count(&self, chain: ChainKey, backfill: &Backfill, from: u64) -> Result<u64, StoreError> {
        let script = match backfill {
            Backfill::Nothing => return Ok(0),
            Backfill::Script(script) => Some(script),
            Backfill::All => None,
        };
        let count: i64 = self.conn().query_row(
            "SELECT count(*) FROM addresses \
             WHERE chain = ?1 AND (?2 IS NULL OR script = ?2) AND from_height > ?3",
            params![chain.0, script, int(from)?],
            |row| row.get(0),
        )?;
        uint(count)
    }
}

impl WriteTx<'_> {
    /// Asks for a rescan from a height; the follower works it off. The same again while one runs is that one.
    ///
    /// # Errors
    /// `Refused` where there is nothing below the cursor to read, or the script is not watched.
    pub fn ask_rescan(
        &mut self,
        chain: ChainKey,
        from: u64,
        backfill: &Backfill,
        reason: &str,
    ) -> Result<Rescan, StoreError> {
        let row = self.chain_by_key(chain)?;
        let cursor = row.cursor.ok_or_else(|| {
            StoreError::Refused(format!(
                "{} has not been followed yet: there is nothing to rescan",
                row.alias
            ))
        })?;
        // The genesis block pays nobody: its coinbase cannot be spent, and nodes do not serve it as a
        // transaction.
        let from = from.max(1);
        if from > cursor.height {
            return Err(StoreError::Refused(format!(
                "height {from} is above {}'s tip at {}: blocks from there are read anyway",
                row.alias, cursor.height
            )));
        }
        let is_lowered = self.lower_rules(chain, backfill, from, reason)?;
        // One that runs has passed the payments of rules that only now count from there.
        let same = "SELECT id FROM rescans WHERE chain = ?1 AND state = 'running' AND from_height = ?2 \
             AND (?3 = 0 OR next_height = from_height)";
        if one::<i64>(self.conn(), same, params![chain.0, int(from)?, is_lowered])?.is_none() {
            let now = self.now_ms();
            self.conn().execute(
                "INSERT INTO rescans (chain, from_height, next_height, applied_to, state, reason, asked_at) \
                 VALUES (?1, ?2, ?2, ?2, 'running', ?3, ?4)",
                params![chain.0, int(from)?, reason, now],
            )?;
            self.audit_operator(chain, "rescan", &format!("from height {from}: {reason}"))?;
        }
        let sql = format!(
            "SELECT {RESCAN_COLUMNS} FROM rescans WHERE chain = ?1 AND state = 'running' \
             AND from_height = ?2 ORDER BY id DESC LIMIT 1"
        );
        self.conn()
            .query_row(&sql, params![chain.0, int(from)?], |row| Ok(rescan_row(row)))?
    }

    /// True when a rule now counts from lower than before.
    fn lower_rules(
        &mut self,
        chain: ChainKey,
        backfill: &Backfill,
        from: u64,
        reason: &str,
    ) -> Result<bool, StoreError> {
        let script = match backfill {
            Backfill::Nothing => return Ok(false),
            Backfill::Script(script) => Some(script),
            Backfill::All => None,
        };
        if let Some(script) = script {
            let known = "SELECT 1 FROM addresses WHERE chain = ?1 AND script = ?2";
            if one::<i64>(self.conn(), known, params![chain.0, script])?.is_none() {
                return Err(StoreError::Refused(
                    "this address is not watched: add it first".into(),
                ));
            }
        }
        let lowered = self.conn().execute(
            "UPDATE addresses \
             SET from_height = ?3, version = (SELECT list_version + 1 FROM meta WHERE id = 1) \
             WHERE chain = ?1 AND (?2 IS NULL OR script = ?2) AND from_height > ?3",
            params![chain.0, script, int(from)?],
        )?;
        if lowered > 0 {
            self.conn()
                .execute("UPDATE meta SET list_version = list_version + 1 WHERE id = 1", [])?;
            let words = format!("{lowered} watch rules now count from height {from}: {reason}");
            self.audit_operator(chain, "backfill", &words)?;
        }
        Ok(lowered > 0)
    }

    /// Takes a rescan on by the blocks that were read from `next_height` on.
    pub fn rescan_step(
        &mut self,
        chain: ChainKey,
        was: &Rescan,
        blocks: &[ScannedBlock],
        credit_ceiling: Option<u64>,
        terms: &Terms,
    ) -> Result<Rescanned, StoreError> {
        let now = self.running_rescan(chain)?;
        let tip = self.chain_by_key(chain)?.cursor;
        let (Some(rescan), Some(tip)) = (now, tip) else {
            return Ok(Rescanned::Done);
        };
        if (rescan.id, rescan.next_height, rescan.last_hash) != (was.id, was.next_height, was.last_hash) {
            // A disconnect has stepped it back while these blocks were read.
            return Ok(Rescanned::SteppedBack);
        }
        if self.rules_hit_since(chain, blocks)? {
            return Ok(Rescanned::SteppedBack);
        }
        let at = self.context(chain)?;
        let (mut height, mut last) = (rescan.next_height, rescan.last_hash);
        for block in blocks {
            if height > tip.height {
                break;
            }
            let held = self.header_at(chain, height)?;
            let is_linked = last.is_none_or(|last| last == block.header.parent);
            if !is_linked || held.is_some_and(|held| held.header.hash != block.header.hash) {
                self.step_back(chain, rescan.applied_to)?;
                return Ok(Rescanned::SteppedBack);
            }
            self.stage(&rescan, height, block)?;
            if let Some(held) = held {
                self.apply_staged(&at, &rescan, &held, terms)?;
            }
            (height, last) = (height + 1, Some(block.header.hash));
        }
        self.credit_due(chain, &tip, credit_ceiling)?;
        self.finish_step(&rescan, height, last, &tip)
    }

    fn finish_step(
        &mut self,
        rescan: &Rescan,
        next: u64,
        last: Option<BlockHash>,
        tip: &HeldHeader,
    ) -> Result<Rescanned, StoreError> {
        let is_done = next > tip.height;
        let done_at = is_done.then(|| self.now_ms());
        self.conn().execute(
            "UPDATE rescans SET next_height = ?2, last_hash = ?3, state = ?4, done_at = ?5 WHERE id = ?1",
            params![
                rescan.id,
                int(next)?,
                last,
                if is_done { "done" } else { "running" },
                done_at
            ],
        )?;
        Ok(if is_done {
            Rescanned::Done
        } else {
            Rescanned::Going
        })
    }

    /// Makes every running rescan of a chain read from `height` on again, because what it read there may be
    /// gone.
    pub(super) fn step_back(&mut self, chain: ChainKey, height: u64) -> Result<(), StoreError> {
        let height = int(height)?;
        self.conn()
            .prepare_cached(
                "DELETE FROM rescan_blocks WHERE rescan IN \
                 (SELECT id FROM rescans WHERE chain = ?1 AND state = 'running' AND next_height > ?2)",
            )?
            .execute(params![chain.0, height])?;
        self.conn()
            .prepare_cached(
                "UPDATE rescans SET next_height = min(applied_to, ?2), applied_to = min(applied_to, ?2), \
                 last_hash = NULL WHERE chain = ?1 AND state = 'running' AND next_height > ?2",
            )?
            .execute(params![chain.0, height])?;
        Ok(())
    }

    fn stage(&mut self, rescan: &Rescan, height: u64, block: &ScannedBlock) -> Result<(), StoreError> {
        // A block without a match is staged too while a stretch is unproven: its header may stand at a due
        // height.
        let header = &block.header;
        self.conn()
            .prepare_cached(
                "INSERT INTO rescan_blocks (rescan, height, hash, parent, time_secs, bits, work, candidates) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                rescan.id,
                int(height)?,
                header.hash,
                header.parent,
                int(header.time_secs)?,
                i64::from(header.bits),
                header.work,
                staged::encode(&block.txs)?
            ])?;
        Ok(())
    }

    /// Applies a stretch of staged blocks that ends in a block whose header we hold: it is linked to our
    /// chain, so every block of it is.
    fn apply_staged(
        &mut self,
        at: &Context,
        rescan: &Rescan,
        proven: &HeldHeader,
        terms: &Terms,
    ) -> Result<(), StoreError> {
        let stretch = self.staged_stretch(rescan, proven)?;
        let (mut matches, mut found) = (0, 0);
        for (held, txs) in &stretch {
            if !txs.is_empty() {
                self.hold_header(at.chain, held)?;
                matches += txs.len() as u64;
                found += self.apply_old_block(at, held, txs, terms)?;
            }
        }
        for (held, _) in &stretch {
            let due = "SELECT 1 FROM deposits WHERE chain = ?1 AND due_height = ?2 LIMIT 1";
            if one::<i64>(self.conn(), due, params![at.chain.0, int(held.height)?])?.is_some() {
                self.hold_header(at.chain, held)?;
            }
        }
        self.conn()
            .execute("DELETE FROM rescan_blocks WHERE rescan = ?1", [rescan.id])?;
        self.conn()
            .prepare_cached(
                "UPDATE rescans SET applied_to = ?2, matches = matches + ?3, found = found + ?4 \
                 WHERE id = ?1",
            )?
            .execute(params![
                rescan.id,
                int(proven.height + 1)?,
                int(matches)?,
                int(found)?
            ])?;
        Ok(())
    }

    /// The staged blocks with their place: chainwork is counted down from the proven header.
    fn staged_stretch(
        &self,
        rescan: &Rescan,
        proven: &HeldHeader,
    ) -> Result<Vec<(HeldHeader, Vec<CandidateTx>)>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT height, hash, parent, time_secs, bits, work, candidates FROM rescan_blocks \
             WHERE rescan = ?1 ORDER BY height DESC",
        )?;
        let mut rows = statement.query([rescan.id])?;
        let mut chainwork = proven.chainwork;
        let mut stretch = Vec::new();
        while let Some(row) = rows.next()? {
            let header = super::chains::bare_header(row, 1)?;
            let held = HeldHeader {
                height: uint(row.get(0)?)?,
                header,
                chainwork,
            };
            let below = chainwork.checked_sub(header.work);
            chainwork =
                below.ok_or_else(|| StoreError::Contradiction("less work than one header's".into()))?;
            stretch.push((held, staged::decode(&row.get::<_, String>(6)?)?));
        }
        stretch.reverse();
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
            let matched = self.matched(at.chain, candidate, held.height)?;
            if !matched.is_empty() {
                let was_here = self.was_included(at.chain, candidate, held.height)?;
                let recorded = self.record_tx(at, candidate, &matched)?;
                found += recorded.new_outputs;
                if was_here {
                    self.count_duplicates(recorded.tx)?;
                }
                if recorded.new_outputs > 0 || !was_here {
                    self.include_tx(at.chain, recorded.tx, held.height)?;
                }
                let is_here = self.included_at(recorded.tx)? == Some(held.height);
                for mut made in recorded.made.into_iter().filter(|_| is_here) {
                    match made.hold {
                        Some(reason) if made.deposit.height == Some(held.height) => {
                            let words = format!("block {} shows that it spends own coin", held.header.hash);
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

/// The outpoints that a scanned block makes interesting before it is committed, so that a spend in the next
/// block is found by the filter.
pub fn outpoints_of(block: &ScannedBlock) -> Vec<Outpoint> {
    let mut outpoints = Vec::new();
    for candidate in &block.txs {
        super::txs::remember(
            candidate,
            candidate.outputs.iter().map(|output| output.vout),
            &mut outpoints,
        );
    }
    outpoints
}
