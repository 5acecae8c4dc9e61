//! A database file: how it is opened, and its transactions. Nothing here knows of threads; see `shell` for
//! those.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::lock::{Lock, beside};
use super::migrate::{Found, SCHEMA, identify};
use super::{ReadTx, StoreError, WriteTx};

/// How long SQLite itself waits for another writer (a CLI command, mostly).
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// How often a whole transaction is tried before the caller hears [`StoreError::Busy`].
const BUSY_TRIES: u32 = 3;

/// More than the statements that we have, so that none is ever prepared twice.
const STATEMENTS_CACHED: usize = 256;

/// After a checkpoint the write-ahead log is cut to this, also if a long reader once let it grow.
const WAL_BYTES_KEPT: i64 = 64 << 20;

/// Who opens the file, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The daemon: takes the lock, creates or upgrades the file, raises the epoch.
    Daemon,
    /// A command that writes, beside a running daemon or not. Creates and upgrades nothing.
    Write,
    /// A command that only reads. Works on a running daemon's file, and on a cleanly stopped one in a folder
    /// where nothing can be written.
    ReadOnly,
}

/// An open database file.
#[derive(Debug)]
pub struct Database {
    conn: Connection,
    path: PathBuf,
    epoch: Option<i64>,
    _lock: Option<Lock>,
}

impl Database {
    /// Opens `path`.
    ///
    /// # Errors
    /// By what to do next: [`StoreError::Locked`], [`StoreError::Missing`], [`StoreError::NotOurs`],
    /// [`StoreError::SchemaTooNew`], [`StoreError::SchemaTooOld`]; [`StoreError::DiskFull`] = try again
    /// later.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Database, StoreError> {
        match mode {
            OpenMode::Daemon => Database::open_daemon(path),
            OpenMode::Write => Database::open_writer(path),
            OpenMode::ReadOnly => Database::open_reader(path),
        }
    }

    fn open_daemon(path: &Path) -> Result<Database, StoreError> {
        let lock = Lock::take(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut conn = connect(path, flags)?;
        let found = identify_ours(&conn, path)?;
        if let Found::Version(version) = found {
            SCHEMA.refuse_newer(version)?;
        }
        prepare_writer(&conn)?;
        SCHEMA.bring_up(&mut conn, found)?;
        let epoch = transact(&conn, None, |conn| {
            let raise = "UPDATE meta SET epoch = epoch + 1 WHERE id = 1 RETURNING epoch";
            Ok(conn.query_row(raise, [], |row| row.get(0))?)
        })?;
        Ok(Database {
            conn,
            path: path.to_owned(),
            epoch: Some(epoch),
            _lock: Some(lock),
        })
    }

    fn open_writer(path: &Path) -> Result<Database, StoreError> {
        let conn = connect_existing(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        prepare_writer(&conn)?;
        Ok(Database {
            conn,
            path: path.to_owned(),
            epoch: None,
            _lock: None,
        })
    }

    fn open_reader(path: &Path) -> Result<Database, StoreError> {
        // Without a log and without a daemon nobody is writing, and SQLite may read without creating files.
        let is_at_rest = !beside(path, "-wal").exists() && Lock::is_free(path);
        let conn = if is_at_rest {
            let uri = immutable_uri(path);
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            must_exist(path)?;
            let conn = connect(Path::new(&uri), flags)?;
            check_current(&conn, path)?;
            conn
        } else {
            connect_existing(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?
        };
        conn.pragma_update(None, "query_only", true)?;
        Ok(Database {
            conn,
            path: path.to_owned(),
            epoch: None,
            _lock: None,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` in one transaction and commits it. `work` is run again if the whole transaction has to be.
    ///
    /// # Errors
    /// What `work` returns, or why nothing was committed.
    pub fn write<T>(
        &mut self,
        now_ms: i64,
        mut work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        transact(&self.conn, self.epoch, |conn| {
            let mut tx = WriteTx::new(conn, now_ms);
            work(&mut tx)
        })
    }

    /// Runs `work` on one consistent state of the database.
    ///
    /// # Errors
    /// What `work` returns, or why the file cannot be read.
    pub fn read<T>(&self, work: impl FnOnce(&ReadTx<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.conn.execute_batch("BEGIN DEFERRED")?;
        let outcome = work(&ReadTx::new(&self.conn));
        roll_back(&self.conn)?;
        outcome
    }
}

/// One whole write transaction, tried again while somebody else is writing.
fn transact<T>(
    conn: &Connection,
    epoch: Option<i64>,
    mut work: impl FnMut(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut tries = 1;
    loop {
        let outcome = transact_once(conn, epoch, &mut work);
        if tries == BUSY_TRIES || !matches!(outcome, Err(StoreError::Busy(_))) {
            return outcome;
        }
        tries += 1;
    }
}

fn transact_once<T>(
    conn: &Connection,
    epoch: Option<i64>,
    work: &mut impl FnMut(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    let outcome = check_epoch(conn, epoch)
        .and_then(|()| work(conn))
        .and_then(|done| {
            if conn.is_autocommit() {
                return Err(lost());
            }
            conn.execute_batch("COMMIT")?;
            Ok(done)
        });
    if outcome.is_err() {
        roll_back(conn)?;
    }
    outcome
}

/// A verb dropped the error with which SQLite rolled the transaction back: our bug.
fn lost() -> StoreError {
    StoreError::Corrupt("the transaction was rolled back underneath its work".to_owned())
}

fn roll_back(conn: &Connection) -> Result<(), StoreError> {
    if !conn.is_autocommit() {
        conn.execute_batch("ROLLBACK")?;
    }
    Ok(())
}

/// Only the newest daemon may write: one that was frozen while another took over must notice before it does
/// harm.
fn check_epoch(conn: &Connection, held: Option<i64>) -> Result<(), StoreError> {
    let Some(held) = held else { return Ok(()) };
    let found = conn
        .prepare_cached("SELECT epoch FROM meta WHERE id = 1")?
        .query_row([], |row| row.get(0))?;
    if found != held {
        return Err(StoreError::StaleEpoch { held, found });
    }
    Ok(())
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    // The file's schema is data too: it may not call what SQLite deems unsafe, nor may we rewrite it by hand.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // "text" in double quotes is a column or an error, never a string.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.pragma_update(None, "recursive_triggers", true)?;
    conn.pragma_update(None, "cell_size_check", true)?;
    conn.pragma_update(None, "cache_size", -16_000)?;
    // No memory map: a failing disk would be a signal instead of an error.
    conn.pragma_update(None, "mmap_size", 0)?;
    // A rollback of a savepoint must not depend on space in another file system.
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(conn)
}

fn prepare_writer(conn: &Connection) -> Result<(), StoreError> {
    conn.pragma_update(None, "journal_mode", "WAL")?;
    // FULL: a commit that was acknowledged survives a power loss.
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)?;
    Ok(())
}

fn connect_existing(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    must_exist(path)?;
    let conn = connect(path, flags)?;
    check_current(&conn, path)?;
    Ok(conn)
}

fn must_exist(path: &Path) -> Result<(), StoreError> {
    if !path.exists() {
        return Err(StoreError::Missing(path.to_owned()));
    }
    Ok(())
}

fn check_current(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    match identify_ours(conn, path)? {
        Found::Version(file) if file < SCHEMA.version() => Err(StoreError::SchemaTooOld {
            file,
            ours: SCHEMA.version(),
        }),
        Found::Version(file) => SCHEMA.refuse_newer(file),
        // A daemon was stopped before it had created its tables.
        Found::Empty | Found::Foreign => Err(StoreError::Missing(path.to_owned())),
    }
}

fn identify_ours(conn: &Connection, path: &Path) -> Result<Found, StoreError> {
    let not_ours = |what: &str| StoreError::NotOurs {
        path: path.to_owned(),
        what: what.to_owned(),
    };
    match identify(conn) {
        Ok(Found::Foreign) => Err(not_ours("another program's database")),
        Ok(found) => Ok(found),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) => {
            Err(not_ours("no SQLite file"))
        }
        Err(error) => Err(error.into()),
    }
}

/// `file:` URI with everything but plain path letters percent-encoded.
fn immutable_uri(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri.push_str("?immutable=1");
    uri
}
