//! What can go wrong in the database, by what the caller does next.

use thiserror::Error;

/// An error of the store.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A row that must not exist twice exists, or a CHECK or foreign key refused the row. The transaction did nothing.
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
    /// Reading or writing the file failed: this handle must not be used again.
    #[error("the database file cannot be read or written")]
    Io(#[source] rusqlite::Error),
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
                | Code::NotADatabase,
            ) => StoreError::Io(error),
            _ => StoreError::Corrupt(error.to_string()),
        }
    }
}
