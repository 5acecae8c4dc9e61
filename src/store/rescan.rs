//! Rescans: a second cursor beside the tip. Blocks are staged until a header that we hold proves that they
//! are linked to our chain; then they are applied, lowest first, some in each transaction, because below the
//! first header that we hold a stretch can be as long as the chain. A disconnect below what was read drops
//! all that is staged, proven or not. A second run changes nothing.

use super::advance::Terms;
use super::chains::{ChainKey, one};
use super::codec::{int, uint};
use super::staged;
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::{BlockHash, Outpoint, ScannedBlock, Script};
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
    /// True while blocks wait that are proven to be ours: they are applied before more are read.
    pub is_proven: bool,
    /// `running`, `done` or `cancelled`.
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
    /// A listed token.
    Token([u8; 20]),
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

const RESCAN_COLUMNS: &str = "id, from_height, next_height, last_hash, applied_to, base_work IS NOT NULL, \
     state, reason, asked_at, done_at, matches, found";

fn rescan_row(row: &rusqlite::Row<'_>) -> Result<Rescan, StoreError> {
    Ok(Rescan {
        id: row.get(0)?,
        from_height: uint(row.get(1)?)?,
        next_height: uint(row.get(2)?)?,
        last_hash: row.get(3)?,
        applied_to: uint(row.get(4)?)?,
        is_proven: row.get(5)?,
        state: row.get(6)?,
        reason: row.get(7)?,
        asked_at: row.get(8)?,
        done_at: row.get(9)?,
        matches: uint(row.get(10)?)?,
        found: uint(row.get(11)?)?,
    })
}

impl ReadTx<'_> {
    /// The rescans that are not done, oldest first.
    pub fn running_rescans(&self, chain: ChainKey) -> Result<Vec<Rescan>, StoreError> {
        self.rescans_where("WHERE chain = ?1 AND state = 'running' ORDER BY id", chain)
    }

    /// All rescans of a chain, newest first.
    pub fn rescans(&self, chain: ChainKey) -> Result<Vec<Rescan>, StoreError> {
        self.rescans_where("WHERE chain = ?1 ORDER BY id DESC", chain)
    }

    fn rescans_where(&self, filter: &str, chain: ChainKey) -> Result<Vec<Rescan>, StoreError> {
        let sql = format!("SELECT {RESCAN_COLUMNS} FROM rescans {filter}");
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
        let count: i64 = self.conn().query_row(
            "SELECT (SELECT count(*) FROM addresses WHERE chain = ?1 AND from_height > ?2 \
                     AND (?3 OR script = ?4)) \
                  + (SELECT count(*) FROM assets WHERE chain = ?1 AND from_height > ?2 AND is_listed = 1 \
                     AND (?3 OR contract = ?5))",
            params![
                chain.0,
                int(from)?,
                backfill.is_all(),
                backfill.script(),
                backfill.contract()
            ],
            |row| row.get(0),
        )?;
        uint(count)
    }
}

impl Backfill {
    fn is_all(&self) -> bool {
        *self == Backfill::All
    }

    fn script(&self) -> Option<&Script> {
        match self {
            Backfill::Script(script) => Some(script),
            Backfill::Nothing | Backfill::Token(_) | Backfill::All => None,
        }
    }

    fn contract(&self) -> Option<&[u8]> {
        match self {
            Backfill::Token(contract) => Some(contract),
            Backfill::Nothing | Backfill::Script(_) | Backfill::All => None,
        }
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
        if let Some(script) = backfill.script() {
            let known = "SELECT 1 FROM addresses WHERE chain = ?1 AND script = ?2";
            if one::<i64>(self.conn(), known, params![chain.0, script])?.is_none() {
                return Err(StoreError::Refused(
                    "this address is not watched: add it first".into(),
                ));
            }
        }
        if let Backfill::Token(contract) = backfill
            && !self.is_listed(chain, contract)?
        {
            return Err(StoreError::Refused(
                "this token is not listed: add it to the config and start the daemon first".into(),
            ));
        }
        let (is_all, from_height) = (backfill.is_all(), int(from)?);
        let lowered = self.conn().execute(
            "UPDATE addresses \
             SET from_height = ?3, version = (SELECT list_version + 1 FROM meta WHERE id = 1) \
             WHERE chain = ?1 AND (?4 OR script = ?2) AND from_height > ?3",
            params![chain.0, backfill.script(), from_height, is_all],
        )?;
        let lowered = lowered
            + self.conn().execute(
                "UPDATE assets SET from_height = ?3 \
                 WHERE chain = ?1 AND (?4 OR contract = ?2) AND from_height > ?3 AND is_listed = 1",
                params![chain.0, backfill.contract(), from_height, is_all],
            )?;
        if lowered > 0 {
            self.conn()
                .execute("UPDATE meta SET list_version = list_version + 1 WHERE id = 1", [])?;
            let words = format!("{lowered} rules now count from height {from}: {reason}");
            self.audit_operator(chain, "backfill", &words)?;
        }
        Ok(lowered > 0)
    }

    /// Ends a rescan that runs, with what it has read and not applied. False when it does not run (any more).
    pub fn cancel_rescan(&mut self, chain: ChainKey, id: i64, reason: &str) -> Result<bool, StoreError> {
        let now = self.now_ms();
        let ended = self.conn().execute(
            "UPDATE rescans SET state = 'cancelled', done_at = ?3, base_work = NULL \
             WHERE chain = ?1 AND id = ?2 AND state = 'running'",
            params![chain.0, id, now],
        )?;
        if ended == 0 {
            return Ok(false);
        }
        self.conn()
            .execute("DELETE FROM rescan_blocks WHERE rescan = ?1", [id])?;
        self.audit_operator(chain, "rescan", &format!("rescan {id} cancelled: {reason}"))?;
        Ok(true)
    }

    /// Takes a rescan on by the blocks that were read from `next_height` on; none while it is proven.
    pub fn rescan_step(
        &mut self,
        chain: ChainKey,
        was: &Rescan,
        blocks: &[ScannedBlock],
        credit_ceiling: Option<u64>,
        terms: &Terms,
    ) -> Result<Rescanned, StoreError> {
        let mut running = self.running_rescans(chain)?.into_iter();
        let now = running.find(|rescan| rescan.id == was.id);
        let tip = self.chain_by_key(chain)?.cursor;
        let (Some(rescan), Some(tip)) = (now, tip) else {
            return Ok(Rescanned::Done);
        };
        if (rescan.next_height, rescan.last_hash) != (was.next_height, was.last_hash) {
            // A disconnect has stepped it back while these blocks were read.
            return Ok(Rescanned::SteppedBack);
        }
        if self.rules_hit_since(chain, blocks)? {
            return Ok(Rescanned::SteppedBack);
        }
        let at = self.context(chain)?;
        let mut is_applied = self.apply_proven(&at, rescan.id, terms)?;
        let (mut height, mut last) = (rescan.next_height, rescan.last_hash);
        for block in blocks {
            if height > tip.height || !is_applied {
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
                self.prove(rescan.id, &held)?;
                is_applied = self.apply_proven(&at, rescan.id, terms)?;
            }
            (height, last) = (height + 1, Some(block.header.hash));
        }
        self.credit_due(chain, &tip, credit_ceiling)?;
        let is_done = height > tip.height && is_applied;
        let done_at = is_done.then(|| self.now_ms());
        self.conn().execute(
            "UPDATE rescans SET next_height = ?2, last_hash = ?3, state = ?4, done_at = ?5 WHERE id = ?1",
            params![
                rescan.id,
                int(height)?,
                last,
                if is_done { "done" } else { "running" },
                done_at
            ],
        )?;
        Ok(match is_done {
            true => Rescanned::Done,
            false => Rescanned::Going,
        })
    }

    /// Makes every running rescan of a chain read from `height` on again, because what it read there may be
    /// gone.
    pub(super) fn step_back(&mut self, chain: ChainKey, height: u64) -> Result<(), StoreError> {
        let height = int(height)?;
        self.conn()
            .prepare_cached(
                // A slice that is being written has staged blocks which its row does not know of yet.
                "DELETE FROM rescan_blocks WHERE rescan IN \
                 (SELECT r.id FROM rescans r WHERE r.chain = ?1 AND r.state = 'running' \
                  AND (r.next_height > ?2 OR EXISTS \
                  (SELECT 1 FROM rescan_blocks b WHERE b.rescan = r.id AND b.height >= ?2)))",
            )?
            .execute(params![chain.0, height])?;
        self.conn()
            .prepare_cached(
                "UPDATE rescans SET next_height = min(applied_to, ?2), applied_to = min(applied_to, ?2), \
                 last_hash = NULL, base_work = NULL \
                 WHERE chain = ?1 AND state = 'running' AND next_height > ?2",
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
