//! Opening a database file: new, ours, somebody else's, too new, in use.

use creditd::store::{Database, OpenMode, StoreError};

#[test]
fn a_new_file_opens_again_and_a_second_daemon_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    assert!(matches!(
        Database::open(&path, OpenMode::ReadOnly),
        Err(StoreError::Missing(_))
    ));
    let first = Database::open(&path, OpenMode::Daemon).unwrap();
    match Database::open(&path, OpenMode::Daemon) {
        Err(StoreError::Locked { holder }) => assert_eq!(holder, Some(std::process::id())),
        other => panic!("{other:?}"),
    }
    Database::open(&path, OpenMode::ReadOnly).unwrap();
    drop(first);
    let mut again = Database::open(&path, OpenMode::Daemon).unwrap();
    assert_eq!(again.write(7, |tx| Ok(tx.now_ms())).unwrap(), 7);
    drop(again);
    Database::open(&path, OpenMode::ReadOnly).unwrap();
}
