//! How a database file is opened: who may, what is checked first, and what is noticed on the way.

use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::database::{AtRest, Database, READ_TRIES, Role, never_at_rest, set_journal_mode};
use super::fault::FaultCell;
use super::finding::Finding;
use super::highwater;
use super::lock::{self, Lock, Runner, beside};
use super::migrate::{self, Found, identify};
use super::place::resolve;
use super::transact::{Writer, diagnose, transact};
use super::{StoreError, shape};
use crate::points;

/// How long SQLite itself waits for another writer (a CLI command, mostly).
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Well above the statements that we have (about 300), so that none is ever prepared twice.
const STATEMENTS_CACHED: usize = 512;

/// Page cache of a connection. The daemon has two, next to an index of all watched scripts.
const CACHE_KIB: i64 = 12_000;

/// After a checkpoint the write-ahead log is cut to this, also if a long reader once let it grow.
const WAL_BYTES_KEPT: i64 = 64 << 20;

/// Files up to this size are checked whole at each start (about a second on a cold disk), of larger ones the
/// ledger: a million addresses must not hold up the start.
const CHECK_BYTES_MAX: u64 = 64 << 20;

/// What is always checked: the books and the cursor that they hang on.
const CHECKED_TABLES: [&str; 6] = ["meta", "chains", "headers", "deposits", "credits", "journal"];

/// Where SQLite's file header says how to read and to write the file, and its word for "without a log".
pub(super) const FORMAT_VERSIONS: Range<usize> = 18..20;
pub(super) const ROLLBACK: u8 = 1;

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

impl Database {
    /// Opens `path`, or what it is a link to.
    ///
    /// # Errors
    /// By what to do next: [`StoreError::Locked`], [`StoreError::Missing`], [`StoreError::NotOurs`],
    /// [`StoreError::SchemaTooNew`], [`StoreError::SchemaTooOld`], [`StoreError::SchemaChanged`],
    /// [`StoreError::Damaged`]; after
    /// [`StoreError::DiskFull`] and [`StoreError::Busy`] trying again later is enough.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Database, StoreError> {
        let path = &resolve(path, mode)?;
        match mode {
            OpenMode::Daemon => open_daemon(path),
            OpenMode::Write => open_command(path),
            OpenMode::ReadOnly => open_reader(path),
        }
    }
}

impl Database {
    /// [`StoreError::Locked`] if a daemon runs on `path`. Takes and changes nothing.
    pub fn held_by_a_daemon(path: &Path) -> Option<StoreError> {
        Lock::holder(&resolve(path, OpenMode::ReadOnly).ok()?)
    }

    /// What the next start of a daemon would notice. Changes nothing. Not while a daemon runs: the marks
    /// beside its database are ahead of what others read.
    ///
    /// # Errors
    /// Those of the database and of the file beside it.
    pub fn would_notice(&self) -> Result<Vec<Finding>, StoreError> {
        Ok(highwater::compare(&self.conn, &self.path)?.1)
    }

    /// Who runs on `path`. Takes and changes nothing.
    pub fn runner(path: &Path) -> Runner {
        match resolve(path, OpenMode::ReadOnly) {
            Ok(path) => Lock::runner(&path),
            Err(StoreError::Missing(_)) => Runner::Nobody,
            Err(_) => Runner::Unknown,
        }
    }

    /// Leaves a line that [`Database::runner`] gives to others while this daemon runs on `path`.
    ///
    /// # Errors
    /// Those of the lock file, which then says nothing.
    pub fn note_runner(path: &Path, line: &str) -> Result<(), StoreError> {
        let path = resolve(path, OpenMode::Daemon)?;
        lock::note(&path, line).map_err(|error| StoreError::file("note in the lock file", &path, error))
    }
}

fn open_daemon(path: &Path) -> Result<Database, StoreError> {
    let lock = Lock::take(path)?;
    points::pass("open.locked");
    refuse_foreign_log(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    create_private(path)?;
    points::pass("open.made");
    let mut conn = connect(path, flags).map_err(|error| explain_access(path, error))?;
    let epoch =
        prepare_daemon(&mut conn, path).map_err(|error| explain_access(path, diagnose(&conn, error)))?;
    points::pass("open.checked");
    let (mut high_water, findings) = highwater::compare(&conn, path)?;
    points::pass("open.compared");
    high_water.begin_generation(&conn, epoch, &findings)?;
    high_water.skip_reserved(&conn, epoch)?;
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
        high_water_trouble: None,
    })
}

/// A new file is for its owner alone: it will hold what callbacks are signed with. Its log inherits the
/// mode. Done before SQLite opens the file, because closing it afterwards would drop SQLite's locks.
fn create_private(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(StoreError::File {
            doing: "create",
            path: path.to_owned(),
            source,
        }),
    }
}

/// Returns the new epoch. Nothing is written before the file is known to be ours, not newer, and whole.
fn prepare_daemon(conn: &mut Connection, path: &Path) -> Result<i64, StoreError> {
    let found = identify_ours(conn, path)?;
    if let Found::Version(version) = found {
        migrate::ours().refuse_newer(version)?;
        check_file(conn, path)?;
        let is_current = version == migrate::ours().version();
        is_current.then(|| shape::accept(conn, path)).transpose()?;
    }
    set_up_writing(conn)?;
    if found == Found::Empty {
        migrate::ours().create(conn)?;
    }
    fold(conn, path)?;
    // Before the upgrade: whoever else still writes must not do so into tables of a newer shape.
    let epoch = raise_epoch(conn)?;
    if let Found::Version(version) = found {
        migrate::ours().upgrade(conn, version)?;
        shape::accept(conn, path)?;
    }
    Ok(epoch)
}

/// Begins a new log. After a failed sync the old one can still be read and may not be on the disk, nor ever
/// get there; what was added to it would be lost with it. And a copy of the main file alone is one of ours.
fn fold(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    if !has_log(path) {
        return Ok(());
    }
    let is_busy: bool = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if is_busy {
        let path = path.display();
        tracing::warn!("somebody reads from {path} for long, so it goes on with the log that is there");
    }
    Ok(())
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
    shape::refuse_changed(&conn, path)?;
    set_up_writing(&conn).map_err(|error| diagnose(&conn, error))?;
    Ok(quiet(path, conn, Role::Command))
}

fn open_reader(path: &Path) -> Result<Database, StoreError> {
    for _ in 0..READ_TRIES {
        refuse_foreign_log_at_rest(path)?;
        // Without a log and without a daemon nobody is writing, and SQLite need not create files to read.
        let Some(at_rest) = AtRest::look(path)? else {
            let conn = connect_existing(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            return reader(path, conn, Role::Reader);
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let opened = connect(path, flags).and_then(|conn| check_current(&conn, path).map(|()| conn));
        // A daemon that started meanwhile may have written what was just looked at.
        if at_rest.is_still_so(path) {
            return reader(path, opened?, Role::ReaderAtRest(at_rest));
        }
    }
    Err(never_at_rest())
}

fn reader(path: &Path, conn: Connection, role: Role) -> Result<Database, StoreError> {
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
        high_water_trouble: None,
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let location = if flags.contains(OpenFlags::SQLITE_OPEN_URI) {
        PathBuf::from(immutable_uri(path))
    } else {
        path.to_owned()
    };
    let conn = Connection::open_with_flags(location, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    match set_up(&conn) {
        Ok(()) => Ok(conn),
        Err(error) => Err(diagnose(&conn, explain_content(path, error))),
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
    // A plan does not depend on bound values. Without this, SQLite plans many statements anew at each run.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
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
    set_journal_mode(conn, "WAL")?;
    // FULL: a commit that was acknowledged survives a power loss.
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)?;
    Ok(())
}

fn connect_existing(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    refuse_foreign_log_at_rest(path)?;
    let conn = connect(path, flags).map_err(|error| explain_log(path, error))?;
    check_current(&conn, path).map_err(|error| explain_log(path, diagnose(&conn, error)))?;
    Ok(conn)
}

/// At the start a file that cannot be written is a matter of accounts and mounts, not of a failing disk.
fn explain_access(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Io(cause)
            if matches!(
                cause.sqlite_error_code(),
                Some(rusqlite::ErrorCode::ReadOnly | rusqlite::ErrorCode::CannotOpen)
            ) =>
        {
            StoreError::Refused(format!(
                "{} cannot be written ({cause}): give it and its folder to the account that creditd runs as, \
                 and mount its file system writable",
                path.display()
            ))
        }
        other => other,
    }
}

/// The file that this account may not read, if that is why a database cannot be opened.
fn closed_to_us(path: &Path) -> Option<StoreError> {
    ["", "-wal", "-shm"].iter().find_map(|suffix| {
        let file = beside(path, suffix);
        match File::open(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Some(StoreError::file("open", &file, error))
            }
            Ok(_) | Err(_) => None,
        }
    })
}

/// Reading a log needs its index, which SQLite may have to create beside it.
fn explain_log(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Io(cause) if cause.sqlite_error_code() == Some(rusqlite::ErrorCode::CannotOpen) => {
            closed_to_us(path).unwrap_or_else(|| explain_unwritable(path, StoreError::Io(cause)))
        }
        other => other,
    }
}

fn explain_unwritable(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Io(_) if beside(path, "-wal").exists() && !Lock::is_free(path) => {
            StoreError::Refused(format!(
                "a daemon runs on {}, and this account may not read beside it: run it as the account that \
                 owns the database (sudo -u creditd)",
                path.display()
            ))
        }
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

/// A database of ours keeps a log from its first page on, a backup has none until it is opened. So a log
/// beside a file without one is that of the database that a backup was copied over, and SQLite would mix the
/// two; and a log beside no file at all is that of a database which was moved away, and SQLite would drop it.
fn refuse_foreign_log(path: &Path) -> Result<(), StoreError> {
    let log = beside(path, "-wal");
    if !has_log(path) {
        return Ok(());
    }
    if !path.metadata().is_ok_and(|metadata| metadata.len() > 0) {
        return Err(StoreError::Refused(format!(
            "{} is missing or empty, but its log {} is there, and holds what was written last: bring the \
             file back beside it; for a new ledger, move the log away too",
            path.display(),
            log.display(),
        )));
    }
    let mut header = [0; 20];
    let is_backup = File::open(path)
        .and_then(|mut file| file.read_exact(&mut header))
        .is_ok()
        && header[FORMAT_VERSIONS] == [ROLLBACK, ROLLBACK];
    if !is_backup {
        return Ok(());
    }
    Err(StoreError::Refused(format!(
        "{} was copied over another database whose log is still there: with the daemon stopped, remove {} \
         and the -shm file beside it",
        path.display(),
        log.display(),
    )))
}

fn has_log(path: &Path) -> bool {
    let log = beside(path, "-wal").metadata();
    log.is_ok_and(|metadata| metadata.len() > 0)
}

/// A daemon has looked before it took its lock.
fn refuse_foreign_log_at_rest(path: &Path) -> Result<(), StoreError> {
    match Lock::is_free(path) {
        true => refuse_foreign_log(path),
        false => Ok(()),
    }
}

fn check_current(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    match identify_ours(conn, path)? {
        Found::Version(file) if file < migrate::ours().version() => Err(StoreError::SchemaTooOld {
            file,
            ours: migrate::ours().version(),
        }),
        Found::Version(file) => migrate::ours().refuse_newer(file),
        // A daemon was stopped before it had created its tables.
        Found::Empty => Err(StoreError::Missing(path.to_owned())),
    }
}

fn identify_ours(conn: &Connection, path: &Path) -> Result<Found, StoreError> {
    let found = identify(conn).map_err(|error| explain_content(path, error))?;
    found.ok_or_else(|| StoreError::NotOurs {
        path: path.to_owned(),
        what: "another program's database".to_owned(),
    })
}

/// Any statement may be the first that reads the file.
pub(super) fn explain_content(path: &Path, error: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => StoreError::NotOurs {
            path,
            what: "no SQLite file".to_owned(),
        },
        Some(rusqlite::ErrorCode::DatabaseCorrupt) => StoreError::Damaged {
            path,
            what: error.to_string(),
        },
        _ => error.into(),
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
    let verdict = conn.query_row(&format!("PRAGMA {check}"), [], |row| row.get::<_, String>(0));
    match verdict.map_err(|error| explain_content(path, error))? {
        verdict if verdict == "ok" => Ok(()),
        what => Err(StoreError::Damaged {
            path: path.to_owned(),
            what,
        }),
    }
}

/// `file:` URI with everything but plain path letters percent-encoded. The path is absolute, because
/// `file://` starts a host.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_names_account_and_mount() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        Database::open(&path, OpenMode::Daemon).unwrap().close().unwrap();
        // As SQLite opens a file that its account may only read.
        let mut conn = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let error = prepare_daemon(&mut conn, &path).unwrap_err();
        let told = explain_access(&path, diagnose(&conn, error)).to_string();
        assert!(
            told.contains("cannot be written") && told.contains("account"),
            "{told}"
        );
    }
}
