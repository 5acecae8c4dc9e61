//! Tests of the store that need its connection: faults below SQLite, the batch runner, the guarantees in the
//! schema.

mod audit;
mod batch;
mod checks;
mod compare;
mod deliveries;
mod files;
mod guarantee;
mod keys;
mod links;
mod plans;
mod power;
mod shell;
mod step;
mod targets;
mod tasked;
mod upgrades;
mod versions;

use std::path::PathBuf;

use super::{Database, OpenMode, StoreError, WriteTx};

/// A database in a folder of its own, opened as a daemon does, with a table for the tests' own rows.
pub(super) struct Scratch {
    _folder: tempfile::TempDir,
    pub(super) path: PathBuf,
}

impl Scratch {
    pub(super) fn new() -> (Scratch, Database) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let scratch = Scratch {
            _folder: folder,
            path,
        };
        let mut database = scratch.open();
        let table = "CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT NOT NULL DEFAULT '') STRICT";
        database
            .write(1, |tx| Ok(tx.conn().execute_batch(table)?))
            .unwrap();
        (scratch, database)
    }

    pub(super) fn open(&self) -> Database {
        Database::open(&self.path, OpenMode::Daemon).unwrap()
    }

    /// The notes as another connection sees them.
    pub(super) fn notes(&self) -> Vec<i64> {
        notes(&Database::open(&self.path, OpenMode::ReadOnly).unwrap())
    }
}

pub(super) fn notes(database: &Database) -> Vec<i64> {
    let all = "SELECT id FROM notes ORDER BY id";
    database
        .read(|tx| {
            Ok(tx
                .conn()
                .prepare(all)?
                .query_map([], |row| row.get(0))?
                .collect::<Result<_, _>>()?)
        })
        .unwrap()
}

/// Writes a note; its id is refused if it is there already.
pub(super) fn note(tx: &WriteTx<'_>, id: i64) -> Result<(), StoreError> {
    tx.conn().execute("INSERT INTO notes (id) VALUES (?1)", [id])?;
    Ok(())
}
