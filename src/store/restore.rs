//! A restored backup, from the moment it is noticed until all is told anew: what stands in the database about
//! it, so that a crash anywhere in between goes on where it was. A chain catches up first; until its tip is
//! reached no address is handed out. Then what may have changed is told once, in absolutes. Addresses of the
//! lost time are in `restored_ranges`. Start at [`begin`].

use super::chains::{ChainKey, ChainRow, one};
use super::codec::{int, uint};
use super::owners::Owners;
use super::restored_ranges;
use super::{ReadTx, StoreError, WriteTx};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeMap;

/// What a restore begins with.
pub(super) struct Begin {
    /// The new generation.
    pub generation: i64,
    /// `daemon` or `operator`.
    pub actor: &'static str,
    /// How it was noticed, in words.
    pub reason: String,
    /// `None` where there is no clock yet.
    pub at: Option<i64>,
    /// Where each chain had been before, as far as is known.
    pub marks: BTreeMap<String, u64>,
    /// What addresses may have been handed out.
    pub reserved: Vec<Reserved>,
}

/// Addresses of a source that may have been handed out.
pub(super) struct Reserved {
    /// As the high-water file names it.
    pub source: String,
    /// The first that was not.
    pub end: u64,
    /// Who took which, as far as is known.
    pub owners: Owners,
}

/// How far a restore is on a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreState {
    /// What came since the backup is being read again, and no address is handed out.
    CatchingUp,
    /// The tip was reached; what may have changed is being told.
    Stating,
    /// All is told.
    Done,
    /// A later restore went on with it.
    Superseded,
}

impl RestoreState {
    const ALL: [RestoreState; 4] = [
        RestoreState::CatchingUp,
        RestoreState::Stating,
        RestoreState::Done,
        RestoreState::Superseded,
    ];

    /// The word in the database and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            RestoreState::CatchingUp => "catching_up",
            RestoreState::Stating => "stating",
            RestoreState::Done => "done",
            RestoreState::Superseded => "superseded",
        }
    }

    pub(super) fn from_word(word: &str) -> Result<RestoreState, StoreError> {
        let found = RestoreState::ALL.into_iter().find(|state| state.word() == word);
        found.ok_or_else(|| StoreError::Corrupt(format!("state of a restore {word:?}")))
    }
}

/// A restore on a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredChain {
    /// The generation that it began.
    pub generation: i64,
    /// The chain's identity.
    pub caip: String,
    /// Where the backup was; `None` = it had read no block.
    pub cursor: Option<u64>,
    /// EVM: up to where its blocks were final.
    pub finalized: Option<u64>,
    /// Where the chain had been followed to before, if that is known.
    pub high_water: Option<u64>,
    /// How far it is.
    pub state: RestoreState,
    /// The tip that ended the catch-up, and when that was.
    pub tip: Option<(u64, i64)>,
    /// Credits of blocks above it were told anew.
    pub stated_above: Option<u64>,
    /// When all was told.
    pub done_at: Option<i64>,
}

/// What is under way on a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreStage {
    /// How far it is.
    pub state: RestoreState,
    /// What has to come before any block is connected, in words: addresses to be watched.
    pub waits_for: Option<String>,
    /// What is going on, in words that do not change with every block.
    pub words: String,
}

const COLUMNS: &str = "generation, caip, cursor_height, finalized_height, high_water, state, tip_height, \
     tip_at, stated_above, done_at";

pub(super) fn chain_row(row: &Row<'_>) -> Result<RestoredChain, StoreError> {
    let height = |at: usize| -> Result<Option<u64>, StoreError> {
        row.get::<_, Option<i64>>(at)?.map(uint).transpose()
    };
    Ok(RestoredChain {
        generation: row.get(0)?,
        caip: row.get(1)?,
        cursor: height(2)?,
        finalized: height(3)?,
        high_water: height(4)?,
        state: RestoreState::from_word(&row.get::<_, String>(5)?)?,
        tip: height(6)?.zip(row.get(7)?),
        stated_above: height(8)?,
        done_at: row.get(9)?,
    })
}

/// Rows of `restored_chains`.
pub(super) fn chain_rows(
    conn: &Connection,
    filter: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<RestoredChain>, StoreError> {
    let mut statement =
        conn.prepare_cached(&format!("SELECT {COLUMNS} FROM restored_chains WHERE {filter}"))?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(chain_row(row)?);
    }
    Ok(found)
}

/// Is it known that this chain has to catch up to such a height? Then a cursor below it is no news.
pub(super) fn is_catching_up(conn: &Connection, caip: &str, high_water: i64) -> Result<bool, StoreError> {
    let known: Option<i64> = one(
        conn,
        "SELECT 1 FROM restored_chains WHERE caip = ?1 AND state = 'catching_up' AND high_water >= ?2",
        params![caip, high_water],
    )?;
    Ok(known.is_some())
}

/// Writes down that the database is an older state of itself, and what is to be done about it. Whatever an
/// earlier restore had not done yet goes on with this one.
pub(super) fn begin(conn: &Connection, new: &Begin) -> Result<(), StoreError> {
    let raised = conn.execute(
        "UPDATE meta SET generation = ?1 WHERE id = 1 AND generation < ?1",
        [new.generation],
    )?;
    if raised != 1 {
        return Err(StoreError::Contradiction("a generation can only rise".to_owned()));
    }
    conn.execute(
        "INSERT INTO restores (generation, actor, reason, at) VALUES (?1, ?2, ?3, ?4)",
        params![new.generation, new.actor, new.reason, new.at],
    )?;
    number_events_anew(conn, new.generation)?;
    let chains = chains_of(conn, &new.marks)?;
    conn.execute(
        "UPDATE restored_chains SET state = 'superseded' WHERE state IN ('catching_up', 'stating')",
        [],
    )?;
    for (caip, at) in chains {
        conn.execute(
            "INSERT INTO restored_chains (generation, caip, cursor_height, finalized_height, high_water, \
             state) VALUES (?1, ?2, ?3, ?4, ?5, 'catching_up')",
            params![new.generation, caip, at.cursor, at.finalized, at.high_water],
        )?;
    }
    restored_ranges::begin(conn, new)
}

/// Events go on at generation * 2^32: whoever reads them by their numbers was told numbers above the backup's
/// last one, and would be given none of what comes under them a second time.
fn number_events_anew(conn: &Connection, generation: i64) -> Result<(), StoreError> {
    let last = generation << 32;
    // SQLite keeps here the largest number that an AUTOINCREMENT ever gave (https://sqlite.org/autoinc.html).
    let raised = conn.execute(
        "UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = 'events'",
        [last],
    )?;
    if raised == 0 {
        conn.execute(
            "INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?1)",
            [last],
        )?;
    }
    Ok(())
}

/// Where a chain is and was.
#[derive(Default)]
struct Standing {
    cursor: Option<i64>,
    finalized: Option<i64>,
    high_water: Option<i64>,
}

fn chains_of(
    conn: &Connection,
    marks: &BTreeMap<String, u64>,
) -> Result<BTreeMap<String, Standing>, StoreError> {
    let mut chains: BTreeMap<String, Standing> = BTreeMap::new();
    let mut statement =
        conn.prepare("SELECT caip, cursor_height, finalized_height FROM chains WHERE caip NOT GLOB 'ext:*'")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let standing = Standing {
            cursor: row.get(1)?,
            finalized: row.get(2)?,
            high_water: None,
        };
        chains.insert(row.get(0)?, standing);
    }
    for (caip, mark) in marks {
        chains.entry(caip.clone()).or_default().high_water = Some(int(*mark)?);
    }
    let open = chain_rows(conn, "state IN ('catching_up', 'stating')", [])?;
    for earlier in open {
        let standing = chains.entry(earlier.caip).or_default();
        let height = |height: Option<u64>| height.map(int).transpose();
        // Of two backups the older one counts: what was told since may be any of it. None is the lowest.
        standing.cursor = standing.cursor.min(height(earlier.cursor)?);
        standing.finalized = height(earlier.finalized)?.or(standing.finalized);
        standing.high_water = standing.high_water.max(height(earlier.high_water)?);
    }
    Ok(chains)
}

impl ReadTx<'_> {
    /// The restore that is under way on a chain, if one is.
    fn open_restore(&self, caip: &str) -> Result<Option<RestoredChain>, StoreError> {
        let found = chain_rows(
            self.conn(),
            "caip = ?1 AND state IN ('catching_up', 'stating')",
            [caip],
        );
        Ok(found?.pop())
    }

    /// What is under way on a chain since a backup was restored; `None` = nothing.
    ///
    /// # Errors
    /// Those of the database.
    pub fn restore_stage(&self, chain: ChainKey) -> Result<Option<RestoreStage>, StoreError> {
        let (id, _) = self.chain_identity(chain)?;
        let Some(open) = self.open_restore(id.as_str())? else {
            return Ok(None);
        };
        let waits_for = match open.state {
            RestoreState::CatchingUp => self.waiting_addresses(&id)?,
            RestoreState::Stating | RestoreState::Done | RestoreState::Superseded => None,
        };
        Ok(Some(RestoreStage {
            state: open.state,
            waits_for,
            words: words(&open),
        }))
    }

    /// Why no address is handed out on a chain, if so: a backup was restored, and what came since is not read
    /// again yet.
    pub(super) fn barred_by_restore(&self, chain: ChainKey) -> Result<Option<String>, StoreError> {
        let (id, _) = self.chain_identity(chain)?;
        let open = self.open_restore(id.as_str())?;
        let Some(open) = open.filter(|open| open.state == RestoreState::CatchingUp) else {
            return Ok(None);
        };
        let row = self.chain_by_key(chain)?;
        let at = row.cursor.map_or_else(
            || "has read no block yet".to_owned(),
            |tip| format!("is at height {}", tip.height),
        );
        let reads = match open.cursor {
            Some(_) => "reads what came since again",
            None => "had read none in the backup, so that it begins where `start` in the config says",
        };
        let (alias, until) = (&row.alias, up_to(&open));
        Ok(Some(format!(
            "a backup was restored, and {alias} {at} and {reads}{until}: until it is at the tip no address \
             is handed out"
        )))
    }

    /// May nothing be connected on a chain yet, because addresses have to be watched before?
    pub(super) fn has_waiting_addresses(&self, chain: ChainKey) -> Result<bool, StoreError> {
        let (id, _) = self.chain_identity(chain)?;
        Ok(self.waiting_addresses(&id)?.is_some())
    }
}

fn up_to(open: &RestoredChain) -> String {
    open.high_water
        .map_or_else(String::new, |height| format!(" (it had been at {height})"))
}

fn words(open: &RestoredChain) -> String {
    match open.state {
        RestoreState::CatchingUp => {
            let reads = match open.cursor {
                Some(cursor) => format!("blocks from height {} on are read again", cursor + 1),
                // Where that is nobody knows before the follower is there; most often it is the tip.
                None => "it had read no block, so that none is read again below where `start` in the config \
                         says"
                    .to_owned(),
            };
            let up_to = up_to(open);
            format!("a backup was restored: {reads}{up_to}, and until the tip no address is handed out")
        }
        RestoreState::Stating | RestoreState::Done | RestoreState::Superseded => {
            "a backup was restored: what may have changed is being told anew".to_owned()
        }
    }
}

impl WriteTx<'_> {
    /// Gives the restores that were noticed while the file was opened their time and their audit rows.
    ///
    /// # Errors
    /// Those of the database.
    pub fn note_restores(&mut self) -> Result<(), StoreError> {
        let now = self.now_ms();
        let noted: Option<(i64, String)> = self
            .conn()
            .query_row(
                "SELECT generation, reason FROM restores WHERE at IS NULL ORDER BY generation LIMIT 1",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()?;
        let Some((generation, reason)) = noted else {
            return Ok(());
        };
        self.conn().execute(
            "UPDATE restores SET at = ?2 WHERE generation = ?1 AND at IS NULL",
            params![generation, now],
        )?;
        self.audit_restore(generation, &reason, "daemon")?;
        self.hurry_job(super::POOL_JOB)?;
        self.note_restores()
    }

    pub(super) fn audit_restore(
        &mut self,
        generation: i64,
        reason: &str,
        actor: &str,
    ) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.conn().execute(
            "INSERT INTO audit (at, action, cause, actor) VALUES (?1, 'restore', ?2, ?3)",
            params![now, format!("generation {generation} begins: {reason}"), actor],
        )?;
        Ok(())
    }

    /// Takes a restored chain on that has reached the tip: fixes what is told anew, then tells up to `limit`
    /// of it. Returns how many it told; 0 = nothing is left to do. `lowest` is the height that a reorg could
    /// go back to from the backup's cursor and final block.
    ///
    /// # Errors
    /// Those of the database.
    pub fn go_on_restoring(
        &mut self,
        chain: ChainKey,
        lowest: impl Fn(u64, Option<u64>) -> u64,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let row = self.chain_by_key(chain)?;
        let Some(open) = self.open_restore(row.id.as_str())? else {
            return Ok(0);
        };
        if open.state == RestoreState::CatchingUp {
            let above = open.cursor.map(|cursor| lowest(cursor, open.finalized));
            self.reach_tip(&row, &open, above)?;
        }
        let told = self.tell_anew(chain, open.generation, limit)?;
        if told == 0 {
            self.end_restore(&row, &open)?;
        }
        Ok(told)
    }

    /// What may have been told otherwise since the backup: credits of blocks above what could be undone then,
    /// whether they stand or were reversed, and the invoices that they count for.
    fn reach_tip(
        &mut self,
        row: &ChainRow,
        open: &RestoredChain,
        above: Option<u64>,
    ) -> Result<(), StoreError> {
        let tip = row
            .cursor
            .ok_or_else(|| StoreError::Contradiction("a chain without cursor at its tip".to_owned()))?;
        let (now, from) = (self.now_ms(), above.map_or(Ok(0), |above| int(above + 1))?);
        let chain = row.key.0;
        self.conn().execute(
            "INSERT INTO restated (generation, chain, kind, subject) \
             SELECT ?1, ?2, 'credit', c.id FROM credits c WHERE c.chain = ?2 AND c.output IN (\
             SELECT output FROM deposits WHERE chain = ?2 AND height >= ?3 \
             UNION SELECT r.output FROM journal j JOIN credits r ON r.id = j.credit \
             WHERE j.kind = 'reversal' AND j.block_height >= ?3 AND r.chain = ?2) ORDER BY c.rowid",
            params![open.generation, chain, from],
        )?;
        self.conn().execute(
            "INSERT INTO restated (generation, chain, kind, subject) \
             SELECT DISTINCT ?1, ?2, 'invoice', v.inv_id FROM restated s JOIN credits c ON c.id = s.subject \
             JOIN outputs o ON o.id = c.output JOIN invoices v ON v.address = o.address \
             WHERE s.generation = ?1 AND s.chain = ?2 AND s.kind = 'credit' ORDER BY v.id",
            params![open.generation, chain],
        )?;
        let moved = self.conn().execute(
            "UPDATE restored_chains SET state = 'stating', tip_height = ?3, tip_at = ?4, stated_above = ?5 \
             WHERE generation = ?1 AND caip = ?2 AND state = 'catching_up'",
            params![
                open.generation,
                open.caip,
                int(tip.height)?,
                now,
                above.map(int).transpose()?
            ],
        )?;
        expect_one(moved)
    }

    fn tell_anew(&mut self, chain: ChainKey, generation: i64, limit: u32) -> Result<u64, StoreError> {
        let mut waiting: Vec<(i64, String, String)> = Vec::new();
        {
            let mut statement = self.conn().prepare_cached(
                "SELECT id, kind, subject FROM restated WHERE generation = ?1 AND chain = ?2 \
                 AND event IS NULL ORDER BY id LIMIT ?3",
            )?;
            let mut rows = statement.query(params![generation, chain.0, limit])?;
            while let Some(row) = rows.next()? {
                waiting.push((row.get(0)?, row.get(1)?, row.get(2)?));
            }
        }
        for (id, kind, subject) in &waiting {
            let event = match kind.as_str() {
                "credit" => self.state_credit(subject)?,
                _ => self.state_invoice(subject)?,
            };
            let told = self
                .conn()
                .prepare_cached("UPDATE restated SET event = ?2 WHERE id = ?1 AND event IS NULL")?
                .execute(params![id, event])?;
            expect_one(told)?;
        }
        Ok(waiting.len() as u64)
    }

    fn end_restore(&mut self, row: &ChainRow, open: &RestoredChain) -> Result<(), StoreError> {
        let now = self.now_ms();
        let ended = self.conn().execute(
            "UPDATE restored_chains SET state = 'done', done_at = ?3 \
             WHERE generation = ?1 AND caip = ?2 AND state = 'stating'",
            params![open.generation, open.caip, now],
        )?;
        expect_one(ended)?;
        let told: i64 = self.conn().query_row(
            "SELECT count(*) FROM restated WHERE generation = ?1 AND chain = ?2",
            params![open.generation, row.key.0],
            |row| row.get(0),
        )?;
        let words = format!(
            "generation {}: {told} credits and invoices were told anew",
            open.generation
        );
        self.audit_chain(row.key, "restore", "stating", "done", &words)?;
        // It has caught up with what there is now, were that fewer blocks than before.
        if let Some(tip) = row.cursor {
            self.cursor_reanchored(row.id.as_str(), tip.height);
        }
        Ok(())
    }
}

fn expect_one(changed: usize) -> Result<(), StoreError> {
    match changed {
        1 => Ok(()),
        _ => Err(StoreError::Contradiction(
            "two are working on one restore of a backup".to_owned(),
        )),
    }
}
