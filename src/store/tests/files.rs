//! The file and what may lie around it: strangers, newer versions, backups, copies, logs of other files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use super::{Scratch, note, notes};
use crate::clock::Clock;
use crate::store::{Database, Existing, Finding, OpenMode, ReadTx, Store, StoreError};

const MODES: [OpenMode; 3] = [OpenMode::Daemon, OpenMode::Write, OpenMode::ReadOnly];

fn open(path: &Path, mode: OpenMode) -> Result<Database, StoreError> {
    Database::open(path, mode)
}

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

fn backup(database: &Database, target: &Path) {
    database.backup(target, Existing::Refuse, |_| ()).unwrap();
}

#[test]
fn the_bundled_sqlite_has_the_fixes_that_we_rely_on() {
    assert!(rusqlite::version_number() >= 3_051_003, "{}", rusqlite::version());
}

#[test]
fn a_connection_is_set_up_to_be_durable_and_strict() {
    let (_scratch, database) = Scratch::new();
    for (pragma, expected) in [
        ("journal_mode", "wal"),
        ("synchronous", "2"),
        ("foreign_keys", "1"),
        ("recursive_triggers", "1"),
        ("trusted_schema", "0"),
        ("mmap_size", "0"),
    ] {
        let value: rusqlite::types::Value = database
            .conn
            .pragma_query_value(None, pragma, |row| row.get(0))
            .unwrap();
        let text = match value {
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => panic!("{pragma}: {other:?}"),
        };
        assert_eq!(text, expected, "{pragma}");
    }
}

#[test]
fn what_is_not_ours_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("letter.txt");
    fs::write(&text, "Dear database, ".repeat(100)).unwrap();
    let other = folder.path().join("other.db");
    rusqlite::Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE theirs (a)")
        .unwrap();
    for path in [&text, &other] {
        let before = fs::read(path).unwrap();
        for mode in MODES {
            let error = open(path, mode).unwrap_err();
            assert!(matches!(error, StoreError::NotOurs { .. }), "{mode:?}: {error:?}");
        }
        assert_eq!(fs::read(path).unwrap(), before);
    }
}

#[test]
fn a_newer_file_is_refused_by_name_and_left_as_it_is() {
    let (scratch, database) = Scratch::new();
    database.conn.pragma_update(None, "user_version", 99).unwrap();
    database.close().unwrap();
    let before = fs::read(&scratch.path).unwrap();
    for mode in MODES {
        let error = open(&scratch.path, mode).unwrap_err();
        assert!(
            matches!(error, StoreError::SchemaTooNew { file: 99, .. }),
            "{mode:?}: {error:?}"
        );
    }
    assert_eq!(fs::read(&scratch.path).unwrap(), before);
}

#[test]
fn a_command_stops_writing_when_a_newer_daemon_has_upgraded_the_file() {
    let (scratch, daemon) = Scratch::new();
    let mut command = open(&scratch.path, OpenMode::Write).unwrap();
    command.write(1, |tx| note(tx, 1)).unwrap();
    daemon.conn.pragma_update(None, "user_version", 99).unwrap();
    let outcome = command.write(1, |tx| note(tx, 2));
    assert!(matches!(outcome, Err(StoreError::SchemaTooNew { .. })));
    assert_eq!(notes(&daemon), [1]);
}

#[test]
fn a_missing_file_is_named_and_not_created() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    for mode in [OpenMode::Write, OpenMode::ReadOnly] {
        let error = open(&path, mode).unwrap_err();
        assert!(matches!(error, StoreError::Missing(_)), "{error:?}");
        assert!(error.to_string().contains("creditd run"), "{error}");
    }
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn a_cleanly_stopped_file_is_read_without_writing_anything_beside_it() {
    let (scratch, mut database) = Scratch::new();
    database.write(1, |tx| note(tx, 1)).unwrap();
    database.close().unwrap();
    let folder = tempfile::tempdir().unwrap();
    // A name that a URI would take apart.
    let path = folder.path().join("100% ?#'x.db");
    fs::copy(&scratch.path, &path).unwrap();
    let mut permissions = fs::metadata(folder.path()).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(folder.path(), permissions).unwrap();
    let reader = open(&path, OpenMode::ReadOnly).unwrap();
    assert_eq!(notes(&reader), [1]);
    assert_eq!(names(folder.path()), ["100% ?#'x.db"]);
    let write = reader.read(|tx| Ok(tx.conn().execute("DELETE FROM notes", [])?));
    assert!(write.is_err());
}

#[test]
fn a_read_that_a_starting_daemon_made_void_is_made_again() {
    let (scratch, database) = Scratch::new();
    database.close().unwrap();
    let reader = open(&scratch.path, OpenMode::ReadOnly).unwrap();
    assert_eq!(notes(&reader), Vec::<i64>::new());
    let mut daemon = None;
    let seen = reader.read(|tx| {
        let found = count_notes(tx)?;
        daemon.get_or_insert_with(|| {
            let mut daemon = scratch.open();
            daemon.write(1, |tx| note(tx, 1)).unwrap();
            daemon
        });
        Ok(found)
    });
    assert_eq!(seen.unwrap(), 1);
    let mut daemon = daemon.unwrap();
    // This handle knows the file as it was, and never answers with that.
    daemon.write(2, |tx| note(tx, 2)).unwrap();
    assert_eq!(notes(&reader), [1, 2]);
    daemon.close().unwrap();
    assert_eq!(notes(&reader), [1, 2]);
}

#[test]
fn a_read_that_is_made_void_at_each_try_is_refused() {
    let (scratch, database) = Scratch::new();
    database.close().unwrap();
    let reader = open(&scratch.path, OpenMode::ReadOnly).unwrap();
    let mut tries = 0;
    let error = reader
        .read(|tx| {
            tries += 1;
            let mut daemon = scratch.open();
            daemon.write(tries, |tx| note(tx, tries)).unwrap();
            daemon.close().unwrap();
            count_notes(tx)
        })
        .unwrap_err();
    assert!(matches!(error, StoreError::Refused(_)), "{error:?}");
    assert!(error.to_string().contains("run the command again"), "{error}");
    assert_eq!(tries, 4);
}

fn count_notes(tx: &ReadTx<'_>) -> Result<i64, StoreError> {
    Ok(tx
        .conn()
        .query_row("SELECT count(*) FROM notes", [], |row| row.get(0))?)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_backup_taken_during_writes_is_whole_and_has_all_that_was_acknowledged_before() {
    let (scratch, database) = Scratch::new();
    let store = Store::threaded(database, Clock::real()).unwrap();
    static ACKNOWLEDGED: AtomicI64 = AtomicI64::new(0);
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for id in 1..=400 {
                let body = "INSERT INTO notes (id, body) VALUES (?1, hex(zeroblob(3000)))";
                store
                    .write(move |tx| Ok(tx.conn().execute(body, [id])?))
                    .await
                    .unwrap();
                ACKNOWLEDGED.store(id, Ordering::SeqCst);
            }
        }
    });
    let mut taken = 0;
    while !writer.is_finished() {
        let target = scratch.path.with_file_name(format!("backup-{taken}.db"));
        let before = ACKNOWLEDGED.load(Ordering::SeqCst);
        backup(&open(&scratch.path, OpenMode::ReadOnly).unwrap(), &target);
        let copy = open(&target, OpenMode::ReadOnly).unwrap();
        copy.check_integrity().unwrap();
        let held = notes(&copy);
        assert_eq!(held, (1..=i64::try_from(held.len()).unwrap()).collect::<Vec<_>>());
        assert!(
            held.len() >= usize::try_from(before).unwrap(),
            "{} < {before}",
            held.len()
        );
        taken += 1;
    }
    writer.await.unwrap();
    assert!(taken > 1);
    store.close().await.unwrap();
    assert!(
        names(scratch.path.parent().unwrap())
            .iter()
            .all(|name| !name.contains("partial"))
    );
    // A backup is a database like any other.
    let mut restored = open(&scratch.path.with_file_name("backup-0.db"), OpenMode::Daemon).unwrap();
    restored.write(1, |tx| note(tx, 1_000)).unwrap();
}

/// What a crash leaves: the files of a live database as they are at this moment.
fn crash_image(scratch: &Scratch, folder: &Path) -> PathBuf {
    let path = folder.join("ledger.db");
    fs::copy(&scratch.path, &path).unwrap();
    fs::copy(
        scratch.path.with_file_name("ledger.db-wal"),
        folder.join("ledger.db-wal"),
    )
    .unwrap();
    path
}

#[test]
fn a_crash_loses_nothing_that_was_acknowledged() {
    let (scratch, mut database) = Scratch::new();
    database.write(1, |tx| note(tx, 1)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = crash_image(&scratch, folder.path());
    assert_eq!(notes(&open(&image, OpenMode::ReadOnly).unwrap()), [1]);
    assert_eq!(notes(&open(&image, OpenMode::Daemon).unwrap()), [1]);
}

#[test]
fn a_backup_copied_over_a_database_with_a_log_is_refused() {
    let (scratch, mut database) = Scratch::new();
    let target = scratch.path.with_file_name("backup.db");
    backup(&database, &target);
    database.write(1, |tx| note(tx, 1)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = crash_image(&scratch, folder.path());
    fs::copy(&target, &image).unwrap();
    for mode in MODES {
        let error = open(&image, mode).unwrap_err();
        assert!(error.to_string().contains("ledger.db-wal"), "{mode:?}: {error}");
    }
    fs::remove_file(folder.path().join("ledger.db-wal")).unwrap();
    assert_eq!(notes(&open(&image, OpenMode::Daemon).unwrap()), Vec::<i64>::new());
}

#[test]
fn a_copy_of_the_main_file_alone_is_older_but_whole_or_refused() {
    let (scratch, mut database) = Scratch::new();
    let grow = "INSERT INTO notes (id, body) SELECT value, hex(zeroblob(1000)) FROM
        (WITH RECURSIVE n (value) AS (SELECT ?1 UNION ALL SELECT value + 1 FROM n LIMIT 200)
         SELECT value FROM n)";
    let mut images = vec![fs::read(&scratch.path).unwrap()];
    for start in [1, 1000, 2000] {
        database
            .write(1, |tx| Ok(tx.conn().execute(grow, [start])?))
            .unwrap();
        database
            .conn
            .query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(()))
            .unwrap();
        images.push(fs::read(&scratch.path).unwrap());
    }
    database.write(1, |tx| note(tx, 9999)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (mut whole, mut refused) = (0, 0);
    let mut try_image = |name: String, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        match open(&path, OpenMode::Daemon) {
            Ok(copy) => {
                copy.check_integrity().unwrap();
                assert!(copy.read(|tx| tx.list_version()).is_ok());
                whole += 1;
            }
            Err(StoreError::Damaged { .. } | StoreError::NotOurs { .. } | StoreError::Io(_)) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    };
    for (number, image) in images.iter().enumerate() {
        try_image(format!("at-rest-{number}.db"), image);
    }
    // While the log is folded in, a copy may take early pages from before and late ones from after, or the
    // reverse.
    for (number, pair) in images.windows(2).enumerate() {
        let pages = pair[0].len() / 4096;
        for split in (1..pages).step_by(pages / 10) {
            let (old, new) = (&pair[0], &pair[1]);
            let at = split * 4096;
            try_image(
                format!("torn-{number}-{split}.db"),
                &[&old[..at], &new[at..]].concat(),
            );
            try_image(
                format!("nrot-{number}-{split}.db"),
                &[&new[..at], &old[at..]].concat(),
            );
        }
    }
    assert!(
        whole >= images.len() && refused > 0,
        "{whole} whole, {refused} refused"
    );
}

pub(super) fn follow(database: &mut Database, height: u64, is_reanchor: bool) {
    let outcome = database.write(1, |tx| {
        let at = i64::try_from(height).unwrap();
        tx.conn().execute(
            "INSERT INTO chains (caip, genesis, alias, cursor_height)
             VALUES ('bip122:a', zeroblob(32), 'a', ?1) ON CONFLICT (caip) DO UPDATE SET cursor_height = ?1",
            [at],
        )?;
        if is_reanchor {
            tx.cursor_reanchored("bip122:a", height);
        } else {
            tx.cursor_moved("bip122:a", height);
        }
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn a_restored_backup_is_noticed_until_it_has_caught_up() {
    let (scratch, mut database) = Scratch::new();
    follow(&mut database, 100, false);
    let target = scratch.path.with_file_name("backup.db");
    backup(&database, &target);
    follow(&mut database, 300, false);
    database.close().unwrap();
    fs::copy(&target, &scratch.path).unwrap();
    let mut restored = scratch.open();
    let generation = |database: &Database| database.read(|tx| tx.generation()).unwrap();
    assert_eq!(generation(&restored), 1, "its version numbers are new ones");
    let behind = Finding::BehindHighWater {
        caip: "bip122:a".into(),
        cursor: Some(100),
        high_water: 300,
    };
    assert_eq!(restored.findings(), std::slice::from_ref(&behind));
    assert!(behind.to_string().contains("200 blocks behind"), "{behind}");
    for height in [101, 150, 149] {
        follow(&mut restored, height, false);
    }
    drop(restored);
    let mut restored = scratch.open();
    assert_eq!(restored.findings().len(), 1);
    follow(&mut restored, 301, false);
    drop(restored);
    let restored = scratch.open();
    assert_eq!(restored.findings(), []);
    let reached = generation(&restored);
    assert!(reached >= 1);
    drop(restored);
    let again = scratch.open();
    assert_eq!(generation(&again), reached, "and no others once it has caught up");
    drop(again);
    // The same backup once more: of an older generation now.
    fs::copy(&target, &scratch.path).unwrap();
    let restored = scratch.open();
    assert!(restored.findings().iter().any(Finding::is_restore));
    assert_eq!(generation(&restored), reached + 1);
}

/// The main file is moved away while its log holds the last commits: an empty new ledger would drop them.
#[test]
fn a_log_without_its_database_is_never_dropped() {
    let (scratch, mut database) = Scratch::new();
    follow(&mut database, 100, false);
    let folder = tempfile::tempdir().unwrap();
    let image = crash_image(&scratch, folder.path());
    let log = image.with_file_name(format!("{}-wal", image.file_name().unwrap().to_str().unwrap()));
    let before = fs::read(&log).unwrap();
    assert!(!before.is_empty());
    let moved = folder.path().join("moved.db");
    fs::rename(&image, &moved).unwrap();
    for is_empty in [false, true] {
        if is_empty {
            fs::write(&image, "").unwrap();
        }
        for mode in [OpenMode::Daemon, OpenMode::ReadOnly] {
            let refused = open(&image, mode).unwrap_err().to_string();
            let is_told = refused.contains("is missing or empty, but its log");
            assert!(is_told || mode == OpenMode::ReadOnly, "{refused}");
            assert_eq!(fs::read(&log).unwrap(), before, "{mode:?}");
        }
    }
    fs::rename(&moved, &image).unwrap();
    open(&image, OpenMode::Daemon).unwrap();
}

#[test]
fn what_lowers_a_cursor_for_good_reason_is_no_restore() {
    let (scratch, mut database) = Scratch::new();
    follow(&mut database, 300, false);
    follow(&mut database, 100, true);
    drop(database);
    let mut database = scratch.open();
    assert_eq!(database.findings(), []);
    // A reorg to a branch with more work in fewer blocks, and a stop before the next block.
    follow(&mut database, 120, false);
    follow(&mut database, 118, false);
    drop(database);
    let mut database = scratch.open();
    assert_eq!(database.findings(), []);
    // A new generation starts new marks.
    follow(&mut database, 300, false);
    database
        .conn
        .execute("UPDATE meta SET generation = 1", [])
        .unwrap();
    follow(&mut database, 50, false);
    drop(database);
    let database = scratch.open();
    assert_eq!(database.findings(), []);
    // And an older one is found by its number alone.
    database
        .conn
        .execute("UPDATE meta SET generation = 0", [])
        .unwrap();
    drop(database);
    let findings = scratch.open().findings().to_vec();
    assert!(
        findings.contains(&Finding::OlderGeneration {
            database: 0,
            high_water: 1
        }),
        "{findings:?}"
    );
}

#[test]
fn a_refused_write_leaves_no_mark_and_a_broken_mark_no_harm() {
    let (scratch, mut database) = Scratch::new();
    follow(&mut database, 100, false);
    let refused: Result<(), _> = database.write(1, |tx| {
        tx.cursor_moved("bip122:a", 500);
        Err(StoreError::Refused("no".into()))
    });
    assert!(refused.is_err());
    drop(database);
    let mark = scratch.path.with_file_name("ledger.db.highwater");
    assert!(fs::read_to_string(&mark).unwrap().contains(":100"));
    for broken in ["", "{", "null", "{\"generation\":\"x\"}", "\u{0}\u{0}"] {
        fs::write(&mark, broken).unwrap();
        let mut database = scratch.open();
        assert!(
            matches!(database.findings(), [Finding::HighWaterUnreadable { .. }]),
            "{broken:?}"
        );
        follow(&mut database, 100, false);
        drop(database);
        assert_eq!(scratch.open().findings(), []);
    }
}
