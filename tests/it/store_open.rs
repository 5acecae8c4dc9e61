//! Opening a database file: new, ours, somebody else's, too new, in use.

use creditd::store::{Database, OpenMode, StoreError};

use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;
use crate::common::metrics::Scrape;
use crate::common::stub::StubNode;
use crate::common::wait::{PATIENCE, wait_until};

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

/// A command makes the database while the daemon starts: the daemon waits a moment instead of ending.
#[test]
fn a_lock_that_is_let_go_at_once_does_not_end_the_daemon() {
    let stub = StubNode::alone();
    let mut daemon = Daemon::prepare(&Setup::for_stub(&stub));
    let made = Database::open(&daemon.database(), OpenMode::Daemon).unwrap();
    daemon.start_again();
    let logged = |daemon: &Daemon, words: &str| daemon.log().contains(words).then_some(());
    wait_until("the daemon to meet the lock", PATIENCE, || {
        logged(&daemon, "the database is locked")
    });
    drop(made);
    wait_until("the daemon to be ready", PATIENCE, || {
        logged(&daemon, "creditd is ready")
    });
    daemon.stop();
}

/// What is counted and kept beside the file goes by the file's own name.
#[test]
fn a_database_behind_a_link_is_measured_with_its_log() {
    let stub = StubNode::alone();
    let mut daemon = Daemon::prepare(&Setup {
        ops_listen: "127.0.0.1:0".to_owned(),
        ..Setup::for_stub(&stub)
    });
    let elsewhere = tempfile::tempdir().unwrap();
    let real = elsewhere.path().join("real.db");
    Database::open(&real, OpenMode::Daemon).unwrap().close().unwrap();
    std::os::unix::fs::symlink(&real, daemon.database()).unwrap();
    daemon.start_again();
    let scrape = Scrape::parse(&daemon.ops("/metrics").1);
    assert!(scrape.value("creditd_database_wal_bytes", &[]) > 0.0);
    daemon.stop();
    let beside = |suffix: &str| daemon.database().with_extension(suffix).exists();
    assert!(
        !beside("db.lock") && !beside("db.highwater"),
        "they are beside the file"
    );
    assert!(real.with_extension("db.lock").exists());
}

/// Without the file a restored backup would go unnoticed: that is told, once, and until it is mended.
#[test]
fn a_high_water_file_that_cannot_be_written_is_told() {
    let node = FakeNode::regtest(3);
    let mut daemon = Daemon::prepare(&Setup {
        ops_listen: "127.0.0.1:0".to_owned(),
        ..Setup::for_stub(&node.stub)
    });
    let blocked = daemon.folder().join("creditd.db.highwater.new");
    std::fs::create_dir(&blocked).unwrap();
    daemon.start_again();
    let failing = |daemon: &Daemon| {
        let scrape = Scrape::parse(&daemon.ops("/metrics").1);
        scrape.value("creditd_high_water_failing", &[])
    };
    daemon.wait_height(3);
    for height in 4..=6 {
        node.mine(Vec::new());
        daemon.wait_height(height);
    }
    assert_eq!(failing(&daemon), 1.0);
    let told = |daemon: &Daemon, words: &str| daemon.log().matches(words).count();
    assert_eq!(
        told(&daemon, "the high-water file cannot be written"),
        1,
        "{}",
        daemon.log()
    );
    std::fs::remove_dir(&blocked).unwrap();
    node.mine(Vec::new());
    daemon.wait_height(7);
    wait_until("it is written again", PATIENCE, || {
        (failing(&daemon) == 0.0).then_some(())
    });
    assert_eq!(told(&daemon, "the high-water file is written again"), 1);
    daemon.stop();
}
