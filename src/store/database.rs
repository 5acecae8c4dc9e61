//! An open database file and its transactions. Nothing here knows of threads or of the clock; see `shell` for
//! those.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::fault::{Fault, FaultCell};
use super::finding::Finding;
use super::highwater::HighWater;
use super::lock::{Lock, beside};
use super::transact::{
    Committed, Reserve, Work, Writer, diagnose, is_out_of_space, retry_busy, roll_back, write_one,
    write_together,
};
use super::{AddressTake, CursorMove, OpenMode, ReadTx, StoreError, WriteTx};
use crate::points;
use crate::telemetry::error_line;

/// A read that a starting daemon made void is made again so often; one is enough for a daemon that stays.
pub(super) const READ_TRIES: u32 = 3;

/// An open database file.
#[derive(Debug)]
pub struct Database {
    // Fields are dropped in this order: the file is closed before the lock is let go.
    pub(super) conn: Connection,
    pub(super) path: PathBuf,
    pub(super) role: Role,
    pub(super) fault: FaultCell,
    pub(super) findings: Vec<Finding>,
    /// Why the high-water file could not be written last, if so.
    pub(super) high_water_trouble: Option<String>,
}

/// Who opened the file, with what that one needs.
#[derive(Debug)]
pub(super) enum Role {
    Daemon {
        epoch: i64,
        high_water: HighWater,
        _lock: Lock,
    },
    Command,
    Reader,
    /// Reads a file that nobody has open, without SQLite's locks.
    ReaderAtRest(AtRest),
}

impl Reserve for Role {
    fn reserve(&mut self, takes: &[AddressTake]) -> Result<(), StoreError> {
        match self {
            _ if takes.is_empty() => Ok(()),
            Role::Daemon { high_water, .. } => high_water.reserve(takes),
            Role::Command | Role::Reader | Role::ReaderAtRest(_) => Err(StoreError::Refused(
                "only the daemon hands out addresses".to_owned(),
            )),
        }
    }

    fn lower(&mut self, moves: &[CursorMove]) {
        if let Role::Daemon { high_water, .. } = self {
            high_water.lower(moves);
        }
    }
}

impl Database {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was noticed while opening, for the log and for the restore check.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Why this handle must not be used any more, if so.
    pub fn fault(&self) -> Option<Fault> {
        self.fault.get()
    }

    /// Runs `work` in one transaction and commits it. `work` is run again if the whole transaction has to be.
    ///
    /// # Errors
    /// What `work` returns, or why nothing was committed. After [`StoreError::Io`] and
    /// [`StoreError::StaleEpoch`] every later call fails with the same.
    pub fn write<T>(
        &mut self,
        now_ms: i64,
        work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.fault.check()?;
        let writer = self.writer()?;
        let outcome = write_one(&self.conn, writer, now_ms, work, &mut self.role);
        let committed = self.fault.note(outcome)?;
        Ok(self.committed(committed))
    }

    /// Runs `batch` in one commit, one savepoint each, and returns what became of each member. If anything
    /// but a refusal of single members goes wrong, the batch counts as not run and its members are run one by
    /// one. `beat` is called before each transaction: many that each find the file busy take minutes.
    pub(super) fn write_batch(
        &mut self,
        now_ms: i64,
        batch: &mut [Box<dyn Work>],
        beat: impl Fn(),
    ) -> Vec<Result<(), StoreError>> {
        beat();
        if batch.len() > 1
            && let Some(outcomes) = self.try_together(now_ms, batch)
        {
            return outcomes;
        }
        batch
            .iter_mut()
            .map(|work| {
                beat();
                self.write(now_ms, |tx| work.run(tx))
            })
            .collect()
    }

    /// `None`: nothing happened, run them one by one. After a fault that gives each of them the fault, for
    /// nothing is tried again on a broken handle.
    fn try_together(
        &mut self,
        now_ms: i64,
        batch: &mut [Box<dyn Work>],
    ) -> Option<Vec<Result<(), StoreError>>> {
        self.fault.check().ok()?;
        let writer = self.writer().ok()?;
        let outcome = write_together(&self.conn, writer, now_ms, batch, &mut self.role);
        let committed = self.fault.note(outcome).ok()?;
        Some(self.committed(committed))
    }

    pub(super) fn writer(&self) -> Result<Writer, StoreError> {
        match &self.role {
            Role::Daemon { epoch, .. } => Ok(Writer::Daemon { epoch: *epoch }),
            Role::Command => Ok(Writer::Command {
                schema: super::migrate::ours().version(),
            }),
            Role::Reader | Role::ReaderAtRest(_) => Err(StoreError::Refused(
                "the database was opened for reading only".to_owned(),
            )),
        }
    }

    fn committed<T>(&mut self, committed: Committed<T>) -> T {
        if let Role::Daemon { high_water, .. } = &mut self.role {
            // The commit stands whatever becomes of the mark, and the next one writes it again.
            let noted = generation(&self.conn)
                .and_then(|generation| Ok((generation, last_event(&self.conn)?)))
                .map(|now| high_water.note(now, &committed.cursors, &committed.takes));
            match noted {
                Ok(is_news) if !is_news && self.high_water_trouble.is_none() => {}
                Ok(_) => {
                    let saved = high_water.save();
                    self.tell_high_water(saved.err());
                }
                Err(error) => self.tell_high_water(Some(error)),
            }
        }
        committed.done
    }

    /// Says what keeps the high-water file from being written, once until that changes.
    fn tell_high_water(&mut self, error: Option<StoreError>) {
        let trouble = error.map(|error| error_line(&error));
        if trouble == self.high_water_trouble {
            return;
        }
        match &trouble {
            Some(why) => tracing::warn!(
                "the high-water file cannot be written, and without it nobody notices a restored backup: \
                 {why}"
            ),
            None => tracing::info!("the high-water file is written again"),
        }
        self.high_water_trouble = trouble;
    }

    /// Whether the high-water file could not be written after the last commit that it tells of.
    pub(super) fn is_high_water_failing(&self) -> bool {
        self.high_water_trouble.is_some()
    }

    /// Runs `work` on one consistent state of the database. `work` is run again if what it saw may have been
    /// written while it looked.
    ///
    /// # Errors
    /// What `work` returns, or why the file cannot be read.
    pub fn read<T>(
        &self,
        mut work: impl FnMut(&ReadTx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let Some(outcome) = self.try_read(&mut work) {
            return outcome;
        }
        // The pages that this handle holds are of before.
        for _ in 0..READ_TRIES {
            let anew = Database::open(&self.path, OpenMode::ReadOnly)?;
            if let Some(outcome) = anew.try_read(&mut work) {
                return outcome;
            }
        }
        Err(never_at_rest())
    }

    /// `None`: without locks a writer may have changed pages under us, and whatever was seen is void.
    fn try_read<T>(
        &self,
        work: impl FnMut(&ReadTx<'_>) -> Result<T, StoreError>,
    ) -> Option<Result<T, StoreError>> {
        if let Err(fault) = self.fault.check() {
            return Some(Err(fault));
        }
        let outcome = self.read_once(work).map_err(|error| diagnose(&self.conn, error));
        match &self.role {
            Role::ReaderAtRest(at_rest) if !at_rest.is_still_so(&self.path) => None,
            _ => Some(self.fault.note(outcome)),
        }
    }

    fn read_once<T>(
        &self,
        mut work: impl FnMut(&ReadTx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        retry_busy(|| {
            roll_back(&self.conn)?;
            self.conn.prepare_cached("BEGIN DEFERRED")?.execute([])?;
            // The first read fixes the state that all others see; it alone may find the file busy.
            generation(&self.conn).map(drop)
        })?;
        let outcome = work(&ReadTx::new(&self.conn));
        roll_back(&self.conn)?;
        outcome
    }

    /// Whether the file is in use and its disk takes nothing more, so that its states are of before: a small
    /// file beside it tells, made and removed. False where that cannot be told.
    pub fn is_disk_full(&self) -> bool {
        !matches!(self.role, Role::ReaderAtRest(_)) && is_out_of_space(&self.conn, 0)
    }

    /// Checks the whole file: pages, tables, indexes. Takes about ten seconds per gigabyte, more on a slow
    /// disk.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], or why the file cannot be read.
    pub fn check_integrity(&self) -> Result<(), StoreError> {
        self.read(|tx| super::open::check_pages(tx.conn(), &self.path, "integrity_check(1)"))
    }

    /// Closes the file: the log is folded into it, so that it is one file that can be read without writing.
    ///
    /// # Errors
    /// Why that did not work; the file is closed all the same, and whole with its log.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.fault.check()?;
        points::pass("close.before");
        if matches!(self.role, Role::Daemon { .. } | Role::Command) {
            let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
            let folded = self.conn.query_row(checkpoint, [], |_| Ok(()));
            folded.map_err(|error| diagnose(&self.conn, error.into()))?;
        }
        points::pass("close.folded");
        if let Role::Daemon { high_water, .. } = &mut self.role
            // It is written at every commit too, and one that is behind still finds a restored backup.
            && let Err(error) = high_water.settle(&self.conn)
        {
            tracing::warn!("at the stop: {}", error_line(&error));
        }
        Ok(())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.fault.get().is_some() {
            // Closing folds the log into the file; a handle with a fault must not touch the file again.
            let _ = self
                .conn
                .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
    }
}

/// What to say after [`READ_TRIES`].
pub(super) fn never_at_rest() -> StoreError {
    StoreError::Refused(
        "the database is opened and closed again and again while it is being read: run the command again"
            .to_owned(),
    )
}

/// Raised by a restore; see the high-water file.
pub(super) fn generation(conn: &Connection) -> Result<i64, StoreError> {
    let mut generation = conn.prepare_cached("SELECT generation FROM meta WHERE id = 1")?;
    Ok(generation.query_row([], |row| row.get(0))?)
}

/// The number of the last event; 0 where there is none. Numbers only rise.
pub(super) fn last_event(conn: &Connection) -> Result<u64, StoreError> {
    let mut last = conn.prepare_cached("SELECT ifnull(max(seq), 0) FROM events")?;
    super::codec::uint(last.query_row([], |row| row.get(0))?)
}

/// How a file looked that nobody had open. Reading it without locks is sound while it still looks so.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AtRest {
    bytes: u64,
    modified: SystemTime,
}

impl AtRest {
    /// Looks at the file; `None` if there is a log beside it or a daemon on it.
    pub(super) fn look(path: &Path) -> Result<Option<AtRest>, StoreError> {
        if beside(path, "-wal").exists() || !Lock::is_free(path) {
            return Ok(None);
        }
        let failed = |error| StoreError::file("read", path, error);
        let metadata = path.metadata().map_err(failed)?;
        Ok(Some(AtRest {
            bytes: metadata.len(),
            modified: metadata.modified().map_err(failed)?,
        }))
    }

    /// Whether nobody can have written to the file since it was looked at. Not if that cannot be told.
    pub(super) fn is_still_so(&self, path: &Path) -> bool {
        AtRest::look(path).is_ok_and(|now| now.as_ref() == Some(self))
    }
}

/// Changes how a file keeps what is not committed. It answers at the first step and writes at the one after:
/// only whoever takes that one, too, is told of a disk that failed.
pub(super) fn set_journal_mode(conn: &Connection, mode: &str) -> Result<(), StoreError> {
    let mut statement = conn.prepare(&format!("PRAGMA journal_mode = {mode}"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}
