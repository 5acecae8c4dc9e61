//! The schema and its versions. A new file runs `schema.sql`; an older one is brought up one version at a
//! time, each in a transaction of its own, so that at every crash point the file is wholly one version. A
//! newer file is refused.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::StoreError;
use crate::points;

/// "crdt": marks a SQLite file as ours.
pub(super) const APPLICATION_ID: i64 = 0x6372_6474;

/// How a new file gets its shape, and how an older one gets there.
pub(super) struct Schema {
    /// The whole current schema.
    pub(super) fresh: &'static str,
    /// `migrations[0]` turns version 1 into version 2, and so on.
    pub(super) migrations: &'static [&'static str],
}

/// The schema of this program.
pub(super) const SCHEMA: Schema = Schema {
    fresh: include_str!("../../schema.sql"),
    migrations: &[],
};

/// The schema that this process keeps.
pub(super) fn ours() -> &'static Schema {
    #[cfg(feature = "points")]
    if next::is_on() {
        return &next::SCHEMA;
    }
    &SCHEMA
}

/// A made-up next version, which simulators upgrade to. What ships knows none.
#[cfg(feature = "points")]
pub mod next {
    use super::Schema;
    use std::cell::Cell;

    thread_local! {
        static IS_ON: Cell<bool> = const { Cell::new(false) };
    }

    /// A table that is filled from another one, and so is wrong where an upgrade is done by halves.
    const STEP: &str = "CREATE TABLE next_credits (id TEXT PRIMARY KEY, merchant INTEGER NOT NULL) STRICT; \
                        INSERT INTO next_credits SELECT id, merchant FROM credits; \
                        CREATE INDEX next_credits_merchant ON next_credits (merchant);";

    pub(in crate::store) const SCHEMA: Schema = Schema {
        fresh: super::SCHEMA.fresh,
        migrations: &[STEP],
    };

    pub(in crate::store) fn is_on() -> bool {
        IS_ON.get()
    }

    /// From now on this thread is of the version after this one.
    pub fn begin() {
        IS_ON.set(true);
    }
}

/// What a file is, before anything is written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// No table in it.
    Empty,
    /// Ours, with this schema version.
    Version(i64),
}

impl Schema {
    /// The version that this program writes.
    pub(super) fn version(&self) -> i64 {
        1 + i64::try_from(self.migrations.len()).unwrap_or(i64::MAX - 1)
    }

    /// Gives a new file its tables; the caller holds the daemon's lock.
    pub(super) fn create(&self, conn: &mut Connection) -> Result<(), StoreError> {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch(self.fresh)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", self.version())?;
        commit(tx)
    }

    /// Brings an older file up; the caller holds the daemon's lock.
    pub(super) fn upgrade(&self, conn: &mut Connection, from: i64) -> Result<(), StoreError> {
        self.refuse_newer(from)?;
        if from == self.version() {
            return Ok(());
        }
        // Rebuilding a table that others refer to needs the keys off; they are checked before each commit
        // instead.
        conn.pragma_update(None, "foreign_keys", false)?;
        let outcome = (from..self.version()).try_for_each(|version| self.step(conn, version));
        conn.pragma_update(None, "foreign_keys", true)?;
        outcome
    }

    /// `version` -> `version + 1`.
    fn step(&self, conn: &mut Connection, version: i64) -> Result<(), StoreError> {
        let index = usize::try_from(version - 1).ok();
        let Some(sql) = index.and_then(|index| self.migrations.get(index)) else {
            return Err(StoreError::Corrupt(format!("no schema has version {version}")));
        };
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch(sql)?;
        if tx.prepare("PRAGMA foreign_key_check")?.exists([])? {
            return Err(StoreError::Constraint(format!(
                "the upgrade of schema version {version} would leave rows that refer to nothing"
            )));
        }
        tx.pragma_update(None, "user_version", version + 1)?;
        commit(tx)
    }

    /// An older program must not write into tables whose meaning it does not know.
    pub(super) fn refuse_newer(&self, file: i64) -> Result<(), StoreError> {
        let ours = self.version();
        if file > ours {
            return Err(StoreError::SchemaTooNew { file, ours });
        }
        Ok(())
    }
}

fn commit(tx: Transaction<'_>) -> Result<(), StoreError> {
    points::pass("schema.before");
    tx.commit()?;
    points::pass("schema.after");
    Ok(())
}

/// Reads what the file is; `None` is a database of some other program. Writes nothing.
pub(super) fn identify(conn: &Connection) -> Result<Option<Found>, rusqlite::Error> {
    let number = |pragma: &str| conn.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let application = number("application_id")?;
    let version = number("user_version")?;
    if application == APPLICATION_ID {
        return Ok(Some(Found::Version(version)));
    }
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application == 0 && version == 0 && tables == 0 {
        return Ok(Some(Found::Empty));
    }
    Ok(None)
}
