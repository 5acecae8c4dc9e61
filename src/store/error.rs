//! What can go wrong in the database, by what the caller does next.

use std::path::{Path, PathBuf};
use thiserror::Error;

/// An error of the store.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A row that must not exist twice exists, or a CHECK or foreign key refused the row. The transaction did
    /// nothing.
    #[error("the database refused the write: {0}")]
    Constraint(String),
    /// Another daemon has taken this database over: this one must exit.
    #[error("another daemon has taken over this database (epoch {held} is over, {found} runs)")]
    StaleEpoch {
        /// Our epoch.
        held: i64,
        /// The epoch in the database.
        found: i64,
    },
    /// No space: nothing was written, wait and try again.
    #[error("the disk is full")]
    DiskFull(#[source] rusqlite::Error),
    /// Somebody else held the write lock for longer than we wait. Nothing was written.
    #[error("the database is busy")]
    Busy(#[source] rusqlite::Error),
    /// Reading or writing the file failed: this handle must not be used again. Whether a commit that was
    /// under way happened is known only after reopening.
    #[error("the database file cannot be read or written")]
    Io(#[source] rusqlite::Error),
    /// A file beside the database cannot be read or written.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// What we were doing, to go after "cannot".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What we read contradicts what we hold (headers, cursor, a second credit): the chain halts.
    #[error("contradiction: {0}")]
    Contradiction(String),
    /// What an operator or client asked for cannot be; the text says why and what would.
    #[error("{0}")]
    Refused(String),
    /// Stored bytes that our own codec cannot read, or a statement that does not fit the schema.
    #[error("the database holds something unreadable: {0}")]
    Corrupt(String),
    /// The store was closed while the request was under way.
    #[error("the store is closed")]
    Closed,
    /// Another daemon runs on this database.
    #[error("another creditd daemon runs on this database{}: stop it first", pid_text(*holder))]
    Locked {
        /// Its process id, where the lock file tells.
        holder: Option<u32>,
    },
    /// There is no database file.
    #[error("there is no database at {}: start `creditd run` once, which creates it, or \
        name another file", .0.display())]
    Missing(PathBuf),
    /// The file is not a database of creditd.
    #[error("{} is not a creditd database ({what}); it was left as it is", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// The file is not whole: a copy made under a running daemon, a failing disk, the log of another file.
    #[error("{} is damaged ({what}): restore a backup made with `creditd backup`", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite's check says.
        what: String,
    },
    /// A newer creditd wrote the file.
    #[error("this database has schema version {file}, this creditd knows up to {ours}: run a newer creditd")]
    SchemaTooNew {
        /// Version of the file.
        file: i64,
        /// The newest version that this program knows.
        ours: i64,
    },
    /// An older creditd wrote the file and only a daemon upgrades it.
    #[error(
        "this database has schema version {file}, this creditd needs {ours}: restart the daemon with this \
         version of creditd, which upgrades the file"
    )]
    SchemaTooOld {
        /// Version of the file.
        file: i64,
        /// The version that this program needs.
        ours: i64,
    },
    /// Somebody changed the tables, indexes or triggers of the file. Nothing was written.
    #[error(
        "{} has not the schema that creditd gave it ({what}): nothing keeps its ledger as it was",
        path.display()
    )]
    SchemaChanged {
        /// The file.
        path: PathBuf,
        /// The first differences, and how many more there are.
        what: String,
    },
}

fn pid_text(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

/// No room for more: of the disk, of the account on it, or of one file (`ulimit -f`).
pub(super) fn is_full(kind: std::io::ErrorKind) -> bool {
    use std::io::ErrorKind;
    matches!(
        kind,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    )
}

impl StoreError {
    /// An error about a file beside the database.
    pub(super) fn file(doing: &'static str, path: &Path, source: std::io::Error) -> StoreError {
        StoreError::File {
            doing,
            path: path.to_owned(),
            source,
        }
    }

    /// True where waiting and trying again is enough: somebody else writes, or the disk is full.
    pub fn is_passing(&self) -> bool {
        match self {
            StoreError::DiskFull(_) | StoreError::Busy(_) => true,
            StoreError::File { source, .. } => is_full(source.kind()),
            StoreError::Constraint(_)
            | StoreError::StaleEpoch { .. }
            | StoreError::Io(_)
            | StoreError::Contradiction(_)
            | StoreError::Refused(_)
            | StoreError::Corrupt(_)
            | StoreError::Closed
            | StoreError::Locked { .. }
            | StoreError::Missing(_)
            | StoreError::NotOurs { .. }
            | StoreError::Damaged { .. }
            | StoreError::SchemaTooNew { .. }
            | StoreError::SchemaTooOld { .. }
            | StoreError::SchemaChanged { .. } => false,
        }
    }

    /// True where the file is not whole, or holds what creditd did not write: no account, mount or free space
    /// helps.
    pub fn is_damage(&self) -> bool {
        match self {
            StoreError::Damaged { .. } | StoreError::Corrupt(_) | StoreError::SchemaChanged { .. } => true,
            StoreError::Io(cause) => cause.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt),
            _ => false,
        }
    }

    /// Errors that leave the transaction around a savepoint whole: the database or the domain said no, and
    /// nothing is wrong with the file, the disk or SQLite.
    pub(super) fn is_a_refusal(&self) -> bool {
        match self {
            StoreError::Constraint(_) | StoreError::Contradiction(_) | StoreError::Refused(_) => true,
            StoreError::StaleEpoch { .. }
            | StoreError::DiskFull(_)
            | StoreError::Busy(_)
            | StoreError::Io(_)
            | StoreError::File { .. }
            | StoreError::Corrupt(_)
            | StoreError::Closed
            | StoreError::Locked { .. }
            | StoreError::Missing(_)
            | StoreError::NotOurs { .. }
            | StoreError::Damaged { .. }
            | StoreError::SchemaTooNew { .. }
            | StoreError::SchemaTooOld { .. }
            | StoreError::SchemaChanged { .. } => false,
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        use rusqlite::ErrorCode as Code;
        match error.sqlite_error_code() {
            Some(Code::ConstraintViolation) => StoreError::Constraint(error.to_string()),
            Some(Code::DiskFull) => StoreError::DiskFull(error),
            Some(Code::DatabaseBusy | Code::DatabaseLocked) => StoreError::Busy(error),
            Some(
                Code::SystemIoFailure
                | Code::CannotOpen
                | Code::ReadOnly
                | Code::DatabaseCorrupt
                | Code::NotADatabase
                | Code::OutOfMemory,
            ) => StoreError::Io(error),
            _ => StoreError::Corrupt(error.to_string()),
        }
    }
}
