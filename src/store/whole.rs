//! A command's whole work in one transaction: what it looks at, what it changes and the answer that is kept
//! under its key are of one moment, and there together or not at all.

use super::transact::{begin_checked, commit, diagnose, retry_busy, roll_back, write_part};
use super::{Database, ReadTx, StoreError, WriteTx};

/// A database with a transaction open in it. Dropped without [`Whole::commit`] nothing of it has happened.
#[derive(Debug)]
pub struct Whole(Database);

impl Whole {
    /// Begins; from now on nobody else writes.
    ///
    /// # Errors
    /// As [`Database::write`].
    pub fn begin(database: Database) -> Result<Whole, StoreError> {
        database.fault.check()?;
        let writer = database.writer()?;
        let begun = retry_busy(|| begin_checked(&database.conn, writer));
        database
            .fault
            .note(begun.map_err(|error| diagnose(&database.conn, error)))?;
        Ok(Whole(database))
    }

    /// Looks at what is there, with what was written so far.
    ///
    /// # Errors
    /// What `work` returns.
    pub fn read<T>(
        &self,
        mut work: impl FnMut(&ReadTx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.fault.check()?;
        work(&ReadTx::new(&self.0.conn))
    }

    /// Runs `work`, and undoes what it alone has written where it fails.
    ///
    /// # Errors
    /// What `work` returns.
    pub fn write<T>(
        &mut self,
        now_ms: i64,
        work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.fault.check()?;
        let conn = &self.0.conn;
        let outcome = write_part(conn, now_ms, work, &mut self.0.role);
        self.0.fault.note(outcome.map_err(|error| diagnose(conn, error)))
    }

    /// Makes all of it so.
    ///
    /// # Errors
    /// Why nothing of it has happened.
    pub fn commit(self) -> Result<(), StoreError> {
        let committed = commit(&self.0.conn).map_err(|error| diagnose(&self.0.conn, error));
        if committed.is_err() {
            roll_back(&self.0.conn)?;
        }
        self.0.fault.note(committed)
    }
}
