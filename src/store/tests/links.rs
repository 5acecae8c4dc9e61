//! A database whose path is a link: everything beside it goes by the file's own name, as SQLite's log does.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::{Scratch, note, notes};
use crate::store::{Database, Existing, OpenMode, StoreError};

const MODES: [OpenMode; 3] = [OpenMode::Daemon, OpenMode::Write, OpenMode::ReadOnly];

/// A link to the scratch's file, in a folder of its own.
fn link(scratch: &Scratch) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link.db");
    symlink(&scratch.path, &link).unwrap();
    (folder, link)
}

#[track_caller]
fn refused(path: &std::path::Path, mode: OpenMode) -> String {
    match Database::open(path, mode) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{mode:?}: {} was opened", path.display()),
    }
}

#[test]
fn a_link_and_its_file_have_one_lock() {
    let (scratch, daemon) = Scratch::new();
    let (folder, link) = link(&scratch);
    match Database::open(&link, OpenMode::Daemon) {
        Err(StoreError::Locked { holder }) => assert_eq!(holder, Some(std::process::id())),
        other => panic!("{other:?}"),
    }
    drop(daemon);
    let by_link = Database::open(&link, OpenMode::Daemon).unwrap();
    let second = Database::open(&scratch.path, OpenMode::Daemon);
    assert!(matches!(second, Err(StoreError::Locked { .. })), "{second:?}");
    drop(by_link);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing beside the link"
    );
}

#[test]
fn a_reader_and_a_backup_through_a_link_see_the_log() {
    let (scratch, mut daemon) = Scratch::new();
    let (folder, link) = link(&scratch);
    daemon.write(1, |tx| note(tx, 1)).unwrap();
    let reader = Database::open(&link, OpenMode::ReadOnly).unwrap();
    assert_eq!(notes(&reader), [1]);
    let copy = folder.path().join("copy.db");
    reader.backup(&copy, Existing::Refuse, |_| ()).unwrap();
    assert_eq!(notes(&Database::open(&copy, OpenMode::ReadOnly).unwrap()), [1]);
    let mut command = Database::open(&link, OpenMode::Write).unwrap();
    command.write(1, |tx| note(tx, 2)).unwrap();
    assert_eq!(notes(&daemon), [1, 2]);
}

#[test]
fn a_new_file_in_a_linked_folder_has_its_companions_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let (real, linked) = (folder.path().join("real"), folder.path().join("linked"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &linked).unwrap();
    let made = Database::open(&linked.join("ledger.db"), OpenMode::Daemon).unwrap();
    assert_eq!(made.path(), real.canonicalize().unwrap().join("ledger.db"));
    assert!(matches!(
        Database::open(&real.join("ledger.db"), OpenMode::Daemon),
        Err(StoreError::Locked { .. })
    ));
}

#[test]
fn a_file_with_two_names_is_refused() {
    let (scratch, database) = Scratch::new();
    database.close().unwrap();
    let twin = scratch.path.with_file_name("twin.db");
    fs::hard_link(&scratch.path, &twin).unwrap();
    for mode in MODES {
        for path in [&scratch.path, &twin] {
            let told = refused(path, mode);
            assert!(
                told.contains("hard links") && told.contains("remove"),
                "{mode:?}: {told}"
            );
        }
    }
    fs::remove_file(&twin).unwrap();
    drop(scratch.open());
}

#[test]
fn a_link_to_nothing_is_named_and_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let (target, link) = (folder.path().join("gone.db"), folder.path().join("link.db"));
    symlink(&target, &link).unwrap();
    for mode in MODES {
        let told = refused(&link, mode);
        assert!(
            told.contains("link.db") && told.contains("gone.db"),
            "{mode:?}: {told}"
        );
    }
    assert!(!target.exists());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_is_no_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for mode in MODES {
        let told = refused(folder.path(), mode);
        assert!(
            told.contains("is a folder") && told.contains("name a file"),
            "{mode:?}: {told}"
        );
        let told = refused(std::path::Path::new("/dev/null"), mode);
        assert!(told.contains("no regular file"), "{mode:?}: {told}");
    }
}

#[test]
fn a_daemon_without_its_folder_says_to_make_it() {
    let folder = tempfile::tempdir().unwrap();
    let told = refused(&folder.path().join("missing/ledger.db"), OpenMode::Daemon);
    assert!(told.contains("missing") && told.contains("make it"), "{told}");
}
