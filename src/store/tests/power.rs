//! Power losses and kills, on a disk that plays them: what was acknowledged is there, and the file opens.

use std::fs;
use std::path::PathBuf;

use creditd_vfs::{self as vfs, Hit, Op};
use rusqlite::ffi;

use super::files::follow;
use super::{Scratch, note, notes};
use crate::store::{Database, OpenMode, StoreError};

/// A folder whose disk is played.
pub(super) struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    pub(super) fn new() -> Disk {
        vfs::install();
        let folder = tempfile::tempdir().unwrap();
        vfs::begin(folder.path());
        Disk { folder }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("ledger.db")
    }

    fn open(&self) -> Result<Database, StoreError> {
        Database::open(&self.path(), OpenMode::Daemon)
    }

    /// With the table of the notes, all of it on disk.
    fn database(&self) -> Database {
        let mut database = self.open().unwrap();
        let table = "CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT NOT NULL DEFAULT '') STRICT";
        database
            .write(1, |tx| Ok(tx.conn().execute_batch(table)?))
            .unwrap();
        database
    }

    pub(super) fn lose_power(&self, opened: impl Sized, seed: u64) {
        vfs::kill();
        drop(opened);
        let mut state = seed;
        vfs::lose_power(&mut |below| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        });
        vfs::revive();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        vfs::end();
    }
}

fn write(database: &mut Database, id: i64) -> Result<(), StoreError> {
    database.write(1, |tx| note(tx, id))
}

#[test]
fn what_was_acknowledged_survives_power_losses() {
    for seed in 0..40 {
        let disk = Disk::new();
        let mut database = disk.database();
        for life in 0..3 {
            (0..4).for_each(|id| write(&mut database, life * 10 + id).unwrap());
            disk.lose_power(database, seed * 3 + 7);
            database = disk.open().unwrap();
        }
        assert_eq!(notes(&database), [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]);
    }
}

#[test]
fn what_a_restart_after_a_failed_sync_writes_survives_a_power_loss() {
    for seed in 0..40 {
        let disk = Disk::new();
        let mut database = disk.database();
        write(&mut database, 1).unwrap();
        vfs::plan(Op::Sync, 1, Hit::Error(ffi::SQLITE_IOERR_FSYNC));
        let failed = write(&mut database, 2);
        assert!(matches!(failed, Err(StoreError::Io(_))), "{failed:?}");
        drop(database);
        // What could not be synced can still be read, and never gets to the disk by itself.
        let mut database = disk.open().unwrap();
        let seen = notes(&database);
        write(&mut database, 3).unwrap();
        disk.lose_power(database, seed);
        let expected = [&seen[..], &[3]].concat();
        assert_eq!(notes(&disk.open().unwrap()), expected, "seed {seed}");
    }
}

/// What was added to the file since it was synced is gone after a power loss, and what the database
/// committed is not.
#[test]
fn a_mark_that_went_down_is_synced_before_the_commit_and_one_that_went_up_is_not() {
    let (scratch, mut database) = Scratch::new();
    let mark = scratch.path.with_file_name("ledger.db.highwater");
    let synced = || {
        let text = fs::read_to_string(&mark).unwrap();
        text.lines().next().unwrap().to_owned()
    };
    follow(&mut database, 300, false);
    let first = synced();
    follow(&mut database, 301, false);
    assert_eq!(synced(), first);
    for (height, is_reanchor) in [(299, false), (100, true)] {
        follow(&mut database, height, is_reanchor);
        assert!(synced().contains(&format!(":{height}}}")), "{}", synced());
        follow(&mut database, height + 1, false);
    }
    // The commit that would have followed does not come.
    let refused: Result<(), _> = database.write(1, |tx| {
        tx.cursor_moved("bip122:a", 90);
        tx.conn().execute_batch(
            "PRAGMA defer_foreign_keys = ON; INSERT INTO inclusions (chain, height, tx) VALUES (9, 9, 9)",
        )?;
        Ok(())
    });
    assert!(refused.is_err());
    assert!(synced().contains(":90}"), "it was written before: {}", synced());
    drop(database);
    assert_eq!(scratch.open().findings(), []);
}

#[cfg(feature = "points")]
#[test]
fn killed_at_any_point_of_its_first_start_a_database_opens_at_the_next() {
    use crate::points;
    let mut seen = Vec::new();
    for nth in 1.. {
        let disk = Disk::new();
        let mut passed = Vec::new();
        let killed = std::rc::Rc::new(std::cell::RefCell::new(None));
        let told = killed.clone();
        points::hook(Some(Box::new(move |name| {
            passed.push(name);
            if passed.len() == nth {
                vfs::kill();
                *told.borrow_mut() = Some(name);
            }
            vfs::is_dead().then(|| std::io::Error::other("dead"))
        })));
        let opened = disk.open();
        points::hook(None);
        let Some(name) = killed.borrow_mut().take() else {
            opened.unwrap();
            break;
        };
        seen.push(name);
        drop(opened);
        let mut again = disk.open().unwrap();
        write_and_check(&mut again, name);
    }
    for name in [
        "open.locked",
        "open.made",
        "schema.before",
        "schema.after",
        "commit.before",
        "open.compared",
    ] {
        assert!(seen.contains(&name), "{name} is not among {seen:?}");
    }
}

#[cfg(feature = "points")]
fn write_and_check(database: &mut Database, name: &str) {
    database.check_integrity().unwrap();
    let written = database.write(1, |tx| {
        Ok(tx.conn().execute("UPDATE meta SET epoch = epoch", [])?)
    });
    assert_eq!(written.unwrap(), 1, "{name}");
}
