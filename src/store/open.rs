//! How a database file is opened: who may, what is checked first, and what is noticed on the way.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::StoreError;
use super::database::{AtRest, Database, Role, generation};
use super::fault::FaultCell;
use super::highwater::{HighWater, Marks, Reading, read_marks};
use super::lock::{Lock, beside};
use super::migrate::{Found, SCHEMA, identify};
use super::transact::{Writer, diagnose, transact};

/// How long SQLite itself waits for another writer (a CLI command, mostly).
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// More than the statements that we have, so that none is ever prepared twice.
const STATEMENTS_CACHED: usize = 256;

/// Page cache of a connection. The daemon has two, next to an index of all watched scripts.
const CACHE_KIB: i64 = 12_000;

/// After a checkpoint the write-ahead log is cut to this, also if a long reader once let it grow.
const WAL_BYTES_KEPT: i64 = 64 << 20;

/// Files up to this size are checked whole at each start (some seconds on a cold disk), of larger ones the
/// ledger.
const CHECK_BYTES_MAX: u64 = 256 << 20;

/// What is always checked: the books and the cursor that they hang on.
const CHECKED_TABLES: [&str; 6] = ["meta", "chains", "headers", "deposits", "credits", "journal"];

/// Who opens the file, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The daemon: takes the lock, creates or upgrades the file, checks it, raises the epoch.
    Daemon,
    /// A command that writes, beside a running daemon or not. Creates and upgrades nothing.
    Write,
    /// A command that only reads. Works on a running daemon's file, and on a cleanly stopped one in a folder
    /// where nothing can be written.
    ReadOnly,
}

/// Something noticed while opening that is no error, but that somebody must hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The cursor is below the high-water mark of its generation. A few blocks are a reorg, more is a
    /// restore.
    BehindHighWater {
        /// The chain.
        caip: String,
        /// Where the database is; `None` if it does not know the chain or has read no block.
        cursor: Option<u64>,
        /// Where it was.
        high_water: u64,
    },
    /// The database is of an earlier generation than the one that last ran here: it was restored.
    OlderGeneration {
        /// The database's.
        database: i64,
        /// The high-water file's.
        high_water: i64,
    },
    /// The high-water file cannot be read, so that a restored backup would not be noticed. It is written
    /// anew.
    HighWaterUnreadable {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::BehindHighWater {
                caip,
                cursor: Some(cursor),
                high_water,
            } => {
                let behind = high_water.saturating_sub(*cursor);
                write!(
                    f,
                    "{caip}: the cursor is {behind} blocks behind the high-water file: restored from \
                     a backup?"
                )
            }
            Finding::BehindHighWater { caip, high_water, .. } => {
                write!(
                    f,
                    "{caip}: no cursor, but the high-water file has {high_water}: restored from a backup?"
                )
            }
            Finding::OlderGeneration { database, high_water } => {
                write!(
                    f,
                    "generation {database} of the database, {high_water} ran here: restored from a backup"
                )
            }
            Finding::HighWaterUnreadable { reason } => {
                write!(
                    f,
                    "the high-water file is unreadable ({reason}): a restored backup would go unnoticed"
                )
            }
        }
    }
}

impl Database {
    /// Opens `path`.
    ///
    /// # Errors
    /// By what to do next: [`StoreError::Locked`], [`StoreError::Missing`], [`StoreError::NotOurs`],
    /// [`StoreError::SchemaTooNew`], [`StoreError::SchemaTooOld`], [`StoreError::Damaged`]; after
    /// [`StoreError::DiskFull`] and [`StoreError::Busy`] trying again later is enough.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Database, StoreError> {
        match mode {
            OpenMode::Daemon => open_daemon(path),
            OpenMode::Write => open_command(path),
            OpenMode::ReadOnly => open_reader(path),
        }
    }
}

fn open_daemon(path: &Path) -> Result<Database, StoreError> {
    let lock = Lock::take(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let mut conn = connect(path, flags)?;
    let epoch = prepare_daemon(&mut conn, path).map_err(|error| diagnose(&conn, error))?;
    let (high_water, findings) = compare_high_water(&conn, path)?;
    Ok(Database {
        conn,
        path: path.to_owned(),
        role: Role::Daemon {
            epoch,
            high_water,
            _lock: lock,
        },
        fault: FaultCell::new(),
        findings,
    })
}

/// Returns the new epoch. Nothing is written before the file is known to be ours, not newer, and whole.
fn prepare_daemon(conn: &mut Connection, path: &Path) -> Result<i64, StoreError> {
    let found = identify_ours(conn, path)?;
    if let Found::Version(version) = found {
        SCHEMA.refuse_newer(version)?;
        check_file(conn, path)?;
    }
    set_up_writing(conn)?;
    if found == Found::Empty {
        SCHEMA.create(conn)?;
        // A copy of the main file alone should at least be one of ours.
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    // Before the upgrade: whoever else still writes must not do so into tables of a newer shape.
    let epoch = raise_epoch(conn)?;
    if let Found::Version(version) = found {
        SCHEMA.upgrade(conn, version)?;
    }
    Ok(epoch)
}

fn raise_epoch(conn: &Connection) -> Result<i64, StoreError> {
    let held = conn.query_row("SELECT epoch FROM meta WHERE id = 1", [], |row| row.get(0))?;
    transact(conn, Writer::Daemon { epoch: held }, |conn| {
        let raise = "UPDATE meta SET epoch = epoch + 1 WHERE id = 1 RETURNING epoch";
        Ok(conn.query_row(raise, [], |row| row.get(0))?)
    })
}

fn open_command(path: &Path) -> Result<Database, StoreError> {
    let conn = connect_existing(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    set_up_writing(&conn).map_err(|error| diagnose(&conn, error))?;
    Ok(quiet(path, conn, Role::Command))
}

fn open_reader(path: &Path) -> Result<Database, StoreError> {
    must_exist(path)?;
    // Without a log and without a daemon nobody is writing, and SQLite need not create files to read.
    let at_rest = AtRest::look(path)?;
    let (conn, role) = match at_rest {
        Some(at_rest) => {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            let conn = connect(Path::new(&immutable_uri(path)?), flags)?;
            check_current(&conn, path)?;
            (conn, Role::ReaderAtRest(at_rest))
        }
        None => {
            let conn = connect_existing(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            (conn, Role::Reader)
        }
    };
    conn.pragma_update(None, "query_only", true)?;
    Ok(quiet(path, conn, role))
}

fn quiet(path: &Path, conn: Connection, role: Role) -> Database {
    Database {
        conn,
        path: path.to_owned(),
        role,
        fault: FaultCell::new(),
        findings: Vec::new(),
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    match set_up(&conn) {
        Ok(()) => Ok(conn),
        Err(error) => Err(diagnose(&conn, error.into())),
    }
}

fn set_up(conn: &Connection) -> Result<(), rusqlite::Error> {
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    // The file's schema is data too: it may not call what SQLite deems unsafe, nor may we rewrite it by hand.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // "text" in double quotes is a column or an error, never a string.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    conn.pragma_update(None, "foreign_keys", true)?;
    // Without this, REPLACE would delete rows past the triggers that refuse it.
    conn.pragma_update(None, "recursive_triggers", true)?;
    conn.pragma_update(None, "cell_size_check", true)?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // No memory map: a failing disk would be a signal instead of an error.
    conn.pragma_update(None, "mmap_size", 0)?;
    // A rollback of a savepoint must not depend on space in another file system.
    conn.pragma_update(None, "temp_store", "MEMORY")
}

fn set_up_writing(conn: &Connection) -> Result<(), StoreError> {
    conn.pragma_update(None, "journal_mode", "WAL")?;
    // FULL: a commit that was acknowledged survives a power loss.
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)?;
    Ok(())
}

fn connect_existing(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    must_exist(path)?;
    let conn = connect(path, flags).map_err(|error| explain_log(path, error))?;
    check_current(&conn, path).map_err(|error| explain_log(path, diagnose(&conn, error)))?;
    Ok(conn)
}

/// Reading a log needs its index, which SQLite may have to create beside it.
fn explain_log(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Io(cause)
            if cause.sqlite_error_code() == Some(rusqlite::ErrorCode::CannotOpen)
                && beside(path, "-wal").exists() =>
        {
            StoreError::Refused(format!(
                "{} was not closed cleanly and its folder cannot be written: copy it together with its \
                -wal file to a folder that can be, or start the daemon on it",
                path.display()
            ))
        }
        other => other,
    }
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
        Found::Empty => Err(StoreError::Missing(path.to_owned())),
    }
}

fn identify_ours(conn: &Connection, path: &Path) -> Result<Found, StoreError> {
    let not_ours = |what: &str| StoreError::NotOurs {
        path: path.to_owned(),
        what: what.to_owned(),
    };
    match identify(conn) {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(not_ours("another program's database")),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) => {
            Err(not_ours("no SQLite file"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Finds what a copy made under a running daemon, a bad disk or a log of another file leave behind, before
/// anything is built on it.
fn check_file(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    let bytes = path.metadata().map_or(0, |metadata| metadata.len());
    if bytes <= CHECK_BYTES_MAX {
        return check_pages(conn, path, "integrity_check(1)");
    }
    CHECKED_TABLES
        .iter()
        .try_for_each(|table| check_pages(conn, path, &format!("integrity_check('{table}')")))
}

/// Runs one of SQLite's own checks.
pub(super) fn check_pages(conn: &Connection, path: &Path, check: &str) -> Result<(), StoreError> {
    let damaged = |what: String| StoreError::Damaged {
        path: path.to_owned(),
        what,
    };
    match conn.query_row(&format!("PRAGMA {check}"), [], |row| row.get::<_, String>(0)) {
        Ok(verdict) if verdict == "ok" => Ok(()),
        Ok(verdict) => Err(damaged(verdict)),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt) => {
            Err(damaged(error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

fn compare_high_water(conn: &Connection, path: &Path) -> Result<(HighWater, Vec<Finding>), StoreError> {
    let database = generation(conn)?;
    let mut findings = Vec::new();
    let mut marks = match read_marks(path) {
        Reading::Marks(marks) => marks,
        Reading::Absent => Marks::default(),
        Reading::Broken(reason) => {
            findings.push(Finding::HighWaterUnreadable { reason });
            Marks::default()
        }
    };
    if marks.generation > database {
        findings.push(Finding::OlderGeneration {
            database,
            high_water: marks.generation,
        });
    }
    if marks.generation < database {
        // A restore was noticed and the program ended before it wrote the file: the marks are of a former
        // life.
        marks.cursors.clear();
        marks.generation = database;
    }
    for (caip, &high_water) in &marks.cursors {
        let cursor = cursor_of(conn, caip)?;
        if cursor.is_none_or(|cursor| cursor < high_water) {
            findings.push(Finding::BehindHighWater {
                caip: caip.clone(),
                cursor,
                high_water,
            });
        }
    }
    Ok((HighWater::new(path, marks), findings))
}

fn cursor_of(conn: &Connection, caip: &str) -> Result<Option<u64>, StoreError> {
    let mut cursor = conn.prepare_cached("SELECT cursor_height FROM chains WHERE caip = ?1")?;
    let height: Option<Option<i64>> = cursor.query_row([caip], |row| row.get(0)).optional()?;
    Ok(height.flatten().and_then(|height| u64::try_from(height).ok()))
}

/// `file:` URI with everything but plain path letters percent-encoded. Absolute, because `file://` starts a
/// host.
fn immutable_uri(path: &Path) -> Result<String, StoreError> {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    let path = path
        .canonicalize()
        .map_err(|error| StoreError::file("find", path, error))?;
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri.push_str("?immutable=1");
    Ok(uri)
}
