//! The database: about thirty-five verbs in domain words. It owns every SQL statement and knows nothing of nodes or
//! HTTP. One fact is one transaction: state, journal, event and audit row are written together or not at all.

use rusqlite::Connection;

mod error;

pub use error::StoreError;

/// A consistent view of the database.
pub struct ReadTx<'a> {
    conn: &'a Connection,
}

/// One write transaction, or one savepoint of a group commit. Nobody is told of its effects before the commit.
pub struct WriteTx<'a> {
    read: ReadTx<'a>,
    now_ms: i64,
}

impl<'a> std::ops::Deref for WriteTx<'a> {
    type Target = ReadTx<'a>;

    fn deref(&self) -> &ReadTx<'a> {
        &self.read
    }
}
