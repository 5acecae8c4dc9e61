//! Where a backup may go: never over anything but an earlier backup, and that only when told to.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::Scratch;
use crate::store::{BackupProgress, Database, Existing, OpenMode, StoreError};

/// Why a backup to `target` is refused, whatever it is told to do with what is there.
#[track_caller]
fn refusal(database: &Database, target: &Path) -> String {
    let refuse = |existing| match database.backup(target, existing, |_| ()) {
        Err(StoreError::Refused(why)) => why,
        other => panic!("{}, {existing:?}: {other:?}", target.display()),
    };
    refuse(Existing::Refuse);
    refuse(Existing::Replace)
}

fn beside(scratch: &Scratch, suffix: &str) -> PathBuf {
    scratch.path.with_file_name(format!("ledger.db{suffix}"))
}

#[test]
fn a_backup_replaces_nothing_unless_told_to_and_never_the_database() {
    let (scratch, database) = Scratch::new();
    let target = scratch.path.with_file_name("backup.db");
    database.backup(&target, Existing::Refuse, |_| ()).unwrap();
    let before = fs::metadata(&target).unwrap().modified().unwrap();
    let refused = database.backup(&target, Existing::Refuse, |_| ());
    assert!(matches!(refused, Err(StoreError::Refused(_))));
    assert_eq!(fs::metadata(&target).unwrap().modified().unwrap(), before);
    let mut last = None;
    let made = database
        .backup(&target, Existing::Replace, |progress| last = Some(progress))
        .unwrap();
    assert_eq!(made.bytes, fs::metadata(&target).unwrap().len());
    assert!(matches!(last, Some(BackupProgress { done_pages, total_pages }) if done_pages == total_pages));
    let nowhere = scratch.path.with_file_name("nowhere/backup.db");
    assert!(database.backup(&nowhere, Existing::Replace, |_| ()).is_err());
    Database::open(&target, OpenMode::ReadOnly).unwrap();
}

#[test]
fn what_belongs_to_the_database_is_never_a_target() {
    let (scratch, database) = Scratch::new();
    let linked = tempfile::tempdir().unwrap();
    let folder = linked.path().join("linked");
    symlink(scratch.path.parent().unwrap(), &folder).unwrap();
    for suffix in [
        "",
        "-wal",
        "-shm",
        "-journal",
        ".lock",
        ".highwater",
        ".highwater.new",
    ] {
        let own = beside(&scratch, suffix);
        let before = fs::read(&own).ok();
        let why = refusal(&database, &own);
        assert!(
            why.contains("the database itself") || why.contains("belongs to"),
            "{suffix}: {why}"
        );
        refusal(&database, &folder.join(own.file_name().unwrap()));
        let link = linked.path().join("link.db");
        symlink(&own, &link).unwrap();
        refusal(&database, &link);
        fs::remove_file(&link).unwrap();
        assert_eq!(fs::read(&own).ok(), before, "{suffix}");
    }
}

#[test]
fn only_a_backup_of_ours_is_replaced() {
    let (scratch, mut database) = Scratch::new();
    let at = |name: &str| scratch.path.with_file_name(name);
    fs::write(at("creditd.toml"), "database = \"ledger.db\"\n").unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::create_dir(at("folder")).unwrap();
    let theirs = rusqlite::Connection::open(at("theirs.db")).unwrap();
    theirs.execute_batch("CREATE TABLE theirs (a)").unwrap();
    drop(Database::open(&at("live.db"), OpenMode::Daemon).unwrap());
    database.write(1, |tx| super::note(tx, 1)).unwrap();
    database
        .backup(&at("backup.db"), Existing::Refuse, |_| ())
        .unwrap();
    symlink(at("backup.db"), at("link.db")).unwrap();
    symlink(at("nowhere"), at("dangling.db")).unwrap();
    for (target, words) in [
        (at("creditd.toml"), "no backup"),
        (at("empty"), "no backup"),
        (at("theirs.db"), "no backup"),
        (at("live.db"), "no backup"),
        (at("folder"), "a folder"),
        (at("link.db"), "a link"),
        (at("dangling.db"), "a link"),
        (PathBuf::from("/dev/null"), "no regular file"),
    ] {
        let before = fs::read(&target).ok().filter(|_| !target.starts_with("/dev"));
        let why = refusal(&database, &target);
        assert!(why.contains(words), "{}: {why}", target.display());
        assert_eq!(
            fs::read(&target).ok().filter(|_| !target.starts_with("/dev")),
            before
        );
        assert!(target.symlink_metadata().is_ok());
    }
    database
        .backup(&at("backup.db"), Existing::Replace, |_| ())
        .unwrap();
    let left = fs::read_dir(at(".")).unwrap();
    let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().all(|name| !name.contains("partial")));
}
