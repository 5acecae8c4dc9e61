//! Transactions: one piece of work in a transaction of its own, or many in one commit with a savepoint each.
//! A transaction is run as a whole or not at all, also when SQLite ends it underneath us.

use rusqlite::Connection;

use super::{AddressTake, CursorMove, StoreError, WriteTx};
use crate::points;

/// How often a whole transaction is tried before the caller hears [`StoreError::Busy`].
const BUSY_TRIES: u32 = 3;

/// Who is writing, checked inside each write transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// A daemon, which must still be the newest one: one that was frozen while another took over finds out
    /// here.
    Daemon {
        /// Its epoch.
        epoch: i64,
    },
    /// A command, for whose schema the file must still be: a newer daemon may upgrade it at any time.
    Command {
        /// The schema version it was written for.
        schema: i64,
    },
}

/// Work for a transaction, with its answer kept until the commit. It may be run more than once.
pub(super) trait Work: Send {
    /// Does the work; the last run counts.
    fn run(&mut self, tx: &mut WriteTx<'_>) -> Result<(), StoreError>;
    /// Tells whoever waits.
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
}

/// What must be on disk before the commit: called at the end of a transaction.
pub(super) trait Reserve {
    /// Keeps addresses from being handed out by an older state of the database. An error undoes the
    /// transaction.
    fn reserve(&mut self, takes: &[AddressTake]) -> Result<(), StoreError>;
    /// Lets the database be behind where it was: these moves take a cursor down for good reason.
    fn lower(&mut self, moves: &[CursorMove]);
}

/// What a committed transaction leaves to do.
#[derive(Debug)]
pub(super) struct Committed<T> {
    pub(super) done: T,
    pub(super) cursors: Vec<CursorMove>,
    pub(super) takes: Vec<AddressTake>,
}

/// One whole write transaction, tried again while somebody else is writing.
pub(super) fn transact<T>(
    conn: &Connection,
    writer: Writer,
    mut work: impl FnMut(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    retry_busy(|| transact_once(conn, writer, &mut work))
}

/// Runs `attempt` again while somebody else is in the way, a bounded number of times. SQLite waits in each.
pub(super) fn retry_busy<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let mut tries = 1;
    loop {
        let outcome = attempt();
        if tries == BUSY_TRIES || !matches!(outcome, Err(StoreError::Busy(_))) {
            return outcome;
        }
        tries += 1;
    }
}

fn transact_once<T>(
    conn: &Connection,
    writer: Writer,
    work: &mut impl FnMut(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let outcome = begin(conn)
        .and_then(|()| check_writer(conn, writer))
        .and_then(|()| work(conn))
        .and_then(|done| commit(conn).map(|()| done));
    if let Err(error) = outcome {
        let error = diagnose(conn, error);
        roll_back(conn)?;
        return Err(error);
    }
    outcome
}

fn begin(conn: &Connection) -> Result<(), StoreError> {
    points::pass("begin.before");
    conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    points::pass("begin.after");
    Ok(())
}

/// Begins a transaction that is ended with [`commit`] or [`roll_back`].
pub(super) fn begin_checked(conn: &Connection, writer: Writer) -> Result<(), StoreError> {
    begin(conn)?;
    let checked = check_writer(conn, writer);
    if checked.is_err() {
        roll_back(conn)?;
    }
    checked
}

pub(super) fn commit(conn: &Connection) -> Result<(), StoreError> {
    refuse_lost(conn)?;
    points::pass("commit.before");
    conn.prepare_cached("COMMIT")?.execute([])?;
    points::pass("commit.after");
    Ok(())
}

/// Ends what is open, if SQLite has not done so itself.
pub(super) fn roll_back(conn: &Connection) -> Result<(), StoreError> {
    if !conn.is_autocommit() {
        conn.prepare_cached("ROLLBACK")?.execute([])?;
    }
    Ok(())
}

/// Full disks and other errors may end a transaction. If the work went on without noticing, what it wrote
/// after that was committed statement by statement; we must at least not call that a success.
fn refuse_lost(conn: &Connection) -> Result<(), StoreError> {
    if conn.is_autocommit() {
        let what = "the transaction was rolled back underneath its work";
        return Err(StoreError::Corrupt(what.to_owned()));
    }
    Ok(())
}

fn check_writer(conn: &Connection, writer: Writer) -> Result<(), StoreError> {
    match writer {
        Writer::Daemon { epoch: held } => {
            let mut epoch = conn.prepare_cached("SELECT epoch FROM meta WHERE id = 1")?;
            let found = epoch.query_row([], |row| row.get(0))?;
            if found != held {
                return Err(StoreError::StaleEpoch { held, found });
            }
        }
        Writer::Command { schema: ours } => {
            let file = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
            if file != ours {
                return Err(StoreError::SchemaTooNew { file, ours });
            }
        }
    }
    Ok(())
}

/// Runs one piece of work in a transaction of its own.
pub(super) fn write_one<T>(
    conn: &Connection,
    writer: Writer,
    now_ms: i64,
    mut work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError>,
    high_water: &mut impl Reserve,
) -> Result<Committed<T>, StoreError> {
    transact(conn, writer, |conn| {
        let mut tx = WriteTx::new(conn, now_ms);
        let done = work(&mut tx)?;
        tx.settle_touched()?;
        high_water.reserve(&tx.takes)?;
        high_water.lower(&tx.cursors);
        Ok(Committed {
            done,
            cursors: tx.cursors,
            takes: tx.takes,
        })
    })
}

/// Runs all of `batch` in one transaction. A member that is refused loses its own effects and gets its own
/// error; any other error means that nothing of the batch happened.
pub(super) fn write_together(
    conn: &Connection,
    writer: Writer,
    now_ms: i64,
    batch: &mut [Box<dyn Work>],
    high_water: &mut impl Reserve,
) -> Result<Committed<Vec<Result<(), StoreError>>>, StoreError> {
    transact(conn, writer, |conn| {
        let mut all = Committed {
            done: Vec::with_capacity(batch.len()),
            cursors: Vec::new(),
            takes: Vec::new(),
        };
        for work in batch.iter_mut() {
            let outcome = write_member(conn, now_ms, work.as_mut())?;
            all.done.push(outcome.map(|(cursors, taken)| {
                all.cursors.extend(cursors);
                all.takes.extend(taken);
            }));
        }
        high_water.reserve(&all.takes)?;
        high_water.lower(&all.cursors);
        Ok(all)
    })
}

/// A part of a transaction that is open.
pub(super) fn write_part<T>(
    conn: &Connection,
    now_ms: i64,
    mut work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError>,
    high_water: &mut impl Reserve,
) -> Result<T, StoreError> {
    let reserving = |tx: &mut WriteTx<'_>| {
        let done = work(tx)?;
        high_water.reserve(&tx.takes)?;
        Ok(done)
    };
    let (done, _) = in_savepoint(conn, now_ms, reserving)??;
    Ok(done)
}

/// What a member leaves to do before and after the commit.
type Left = (Vec<CursorMove>, Vec<AddressTake>);

/// The outer error is the whole batch's, the inner one the member's own.
fn write_member(
    conn: &Connection,
    now_ms: i64,
    work: &mut dyn Work,
) -> Result<Result<Left, StoreError>, StoreError> {
    match in_savepoint(conn, now_ms, |tx| work.run(tx))? {
        Ok(((), left)) => Ok(Ok(left)),
        Err(error) if error.is_a_refusal() => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

/// What fails has written nothing, and what was written before it stays. The outer error is that of the whole
/// transaction, which is lost.
fn in_savepoint<T>(
    conn: &Connection,
    now_ms: i64,
    work: impl FnOnce(&mut WriteTx<'_>) -> Result<T, StoreError>,
) -> Result<Result<(T, Left), StoreError>, StoreError> {
    conn.prepare_cached("SAVEPOINT part")?.execute([])?;
    let mut tx = WriteTx::new(conn, now_ms);
    let outcome = work(&mut tx).and_then(|done| tx.settle_touched().map(|()| done));
    refuse_lost(conn)?;
    match outcome {
        Ok(done) => {
            conn.prepare_cached("RELEASE part")?.execute([])?;
            Ok(Ok((done, (tx.cursors, tx.takes))))
        }
        Err(error) => {
            let undone = conn
                .prepare_cached("ROLLBACK TO part")
                .and_then(|mut undo| undo.execute([]))
                .and_then(|_| conn.prepare_cached("RELEASE part")?.execute([]));
            match undone {
                Ok(_) => Ok(Err(error)),
                // The first error says more than the one that it leads to.
                Err(_) => Err(error),
            }
        }
    }
}

/// SQLite's `-shm` grows in steps of this size.
const PROBE_BYTES: usize = 32 << 10;

/// Tells a full disk from a broken one. Growing the log is SQLITE_FULL by itself, but growing or creating its
/// index (`-shm`) is reported as an I/O error, with the operating system's word hidden.
pub(super) fn diagnose(conn: &Connection, error: StoreError) -> StoreError {
    diagnose_growing(conn, 0, error)
}

/// As [`diagnose`], of a file that was to become so long.
pub(super) fn diagnose_growing(conn: &Connection, bytes: u64, error: StoreError) -> StoreError {
    let StoreError::Io(cause) = error else {
        return error;
    };
    match cause.sqlite_error() {
        // After a failed fsync nobody knows what reached the disk, whatever the reason was.
        Some(code) if is_a_failed_sync(code.extended_code) => StoreError::Io(cause),
        Some(code) if may_be_out_of_space(code.extended_code) && is_out_of_space(conn, bytes) => {
            StoreError::DiskFull(cause)
        }
        _ => StoreError::Io(cause),
    }
}

fn is_a_failed_sync(extended_code: i32) -> bool {
    extended_code == rusqlite::ffi::SQLITE_IOERR_FSYNC
        || extended_code == rusqlite::ffi::SQLITE_IOERR_DIR_FSYNC
}

/// The two classes of errors behind which a full disk can hide.
fn may_be_out_of_space(extended_code: i32) -> bool {
    let class = extended_code & 0xff;
    class == rusqlite::ffi::SQLITE_IOERR || class == rusqlite::ffi::SQLITE_CANTOPEN
}

/// Asks the disk itself, because SQLite's record of the system's error has no safe way out of rusqlite: does
/// a file as large as a step of the log's index fit beside the database? If space came back in between, the
/// error counts as a broken disk, which is the safe side. The file is as long as the longest of the
/// database's, and as what it was to become, most of it a hole: a limit of a file's size (`ulimit -f`) is met
/// there too.
pub(super) fn is_out_of_space(conn: &Connection, bytes: u64) -> bool {
    use std::io::{Seek as _, SeekFrom, Write as _};
    let Some(path) = conn.path().filter(|path| !path.is_empty()) else {
        return false;
    };
    let path = std::path::Path::new(path);
    let probe = super::lock::beside(path, ".space");
    let length = |suffix| std::fs::metadata(super::lock::beside(path, suffix)).map_or(0, |file| file.len());
    let longest = ["", "-wal", "-shm"].map(length).into_iter().fold(bytes, u64::max);
    let written = std::fs::File::create(&probe).and_then(|mut file| {
        file.write_all(&[0; PROBE_BYTES])?;
        file.seek(SeekFrom::Start(longest))?;
        file.write_all(&[0; PROBE_BYTES])?;
        file.sync_all()
    });
    let _ = std::fs::remove_file(&probe);
    written.is_err_and(|error| super::error::is_full(error.kind()))
}
