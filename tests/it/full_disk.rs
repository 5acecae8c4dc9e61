//! A disk that is full under the real daemon: nothing ends, nothing is lost, and all goes on once there is
//! space.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::asks::{D1, script, wait_polls};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::metrics::Scrape;
use crate::common::service_manager::ServiceManager;
use crate::common::wait::{PATIENCE, wait_until};

/// A disk that fills up when told.
pub struct Disk {
    dir: TempDir,
}

impl Disk {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/full_disk.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(dir.path().join("full_disk.so"))
            .args([source, "-ldl"])
            .status();
        assert!(built.unwrap().success());
        Self { dir }
    }

    fn flag(&self) -> PathBuf {
        self.dir.path().join("full")
    }

    pub fn fill(&self) {
        std::fs::write(self.flag(), "").unwrap();
    }

    /// Not even an empty file fits any more.
    fn fill_up(&self) {
        std::fs::write(self.flag(), "full").unwrap();
    }

    pub fn free(&self) {
        std::fs::remove_file(self.flag()).unwrap();
    }

    /// Puts a daemon's folder on the disk.
    pub fn carry(&self, daemon: &mut Daemon, mut environment: Vec<(String, String)>) {
        environment.extend(self.under(&daemon.folder().join("creditd.db")));
        daemon.set_environment(environment);
    }

    /// The environment of a process for which all files whose path begins so are on the disk.
    pub fn under(&self, path: &Path) -> [(String, String); 3] {
        [
            ("LD_PRELOAD", self.dir.path().join("full_disk.so")),
            ("FULL_DISK_FLAG", self.flag()),
            ("FULL_DISK_FOLDER", path.to_owned()),
        ]
        .map(|(name, path)| (name.to_owned(), path.display().to_string()))
    }
}

#[track_caller]
fn wait_btc(daemon: &Daemon, state: &str) {
    wait_until(&format!("btc is {state}"), PATIENCE, || {
        let told: Value = serde_json::from_str(&daemon.ops("/readyz").1).ok()?;
        (told["chains"][0]["state"] == state).then_some(())
    });
}

#[test]
fn a_full_disk_is_a_named_state_that_ends_by_itself() {
    let (disk, manager, node) = (Disk::new(), ServiceManager::new(), FakeNode::regtest(3));
    let watchdog = Duration::from_secs(4);
    let mut daemon = Daemon::prepare(&Setup {
        ops_listen: "127.0.0.1:0".to_owned(),
        ..Setup::for_stub(&node.stub)
    });
    disk.carry(&mut daemon, manager.environment(watchdog));
    daemon.watch(D1);
    daemon.start_again();
    daemon.wait_height(3);

    disk.fill();
    let paid = tx(&[coin(1)], &[(script(D1), 1_000_000)]);
    let txid = paid.compute_txid().to_string();
    node.mine(vec![paid]);
    node.mine(Vec::new());
    node.mine(Vec::new());
    wait_btc(&daemon, "disk_full");
    assert_eq!(daemon.ops("/readyz").0, 503);
    assert_eq!(daemon.ops("/healthz").0, 200, "it waits, which is no illness");
    let scrape = Scrape::parse(&daemon.ops("/metrics").1);
    assert_eq!(
        scrape.value("creditd_chain_state", &[("chain", "btc"), ("state", "disk_full")]),
        1.0
    );
    assert_eq!(scrape.value("creditd_database_up", &[]), 1.0, "reading goes on");
    let polls = node.stub.count("getblockchaininfo");
    wait_polls(&node.stub, 3);
    assert!(node.stub.count("getblockchaininfo") > polls && daemon.is_running());
    assert!(manager.silence() < watchdog, "{}", manager.status());
    assert_eq!(daemon.credits().len(), 0);
    // The state cannot be written down, so whoever asks the database has to be told all the same.
    let status = daemon.json(&["chain", "status"]);
    assert_eq!(status["chains"][0]["state"], "disk_full", "{status}");
    let reason = status["chains"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("following"), "what was written last: {reason}");

    disk.free();
    daemon.wait_deposit(&txid, 0, "credited");
    wait_btc(&daemon, "following");
    assert_eq!(daemon.net_sum(), 1_000_000);
    daemon.assert_sound();

    let status = daemon.json(&["chain", "status"]);
    assert_eq!(status["chains"][0]["state"], "following", "{status}");

    // A stop has nothing to lose: what was committed is in the log, which the next start folds.
    disk.fill();
    node.mine(Vec::new());
    wait_btc(&daemon, "disk_full");
    daemon.stop();
    assert_eq!(daemon.net_sum(), 1_000_000);

    // At the start too: it waits, unready, and goes on by itself.
    daemon.start_again();
    manager.wait_told("STATUS=waiting to open the database: the disk is full", PATIENCE);
    assert_eq!(manager.count("READY=1"), 1, "that of the first start");
    assert!(daemon.is_running());
    disk.free();
    wait_until("it is ready", PATIENCE, || {
        (manager.count("READY=1") == 2).then_some(())
    });
    node.mine(Vec::new());
    daemon.wait_height(8);
    daemon.stop();
}

#[test]
fn a_disk_without_room_for_the_lock_file_is_waited_for() {
    let (disk, manager, node) = (Disk::new(), ServiceManager::new(), FakeNode::regtest(3));
    let mut daemon = Daemon::prepare(&Setup::for_stub(&node.stub));
    disk.carry(&mut daemon, manager.environment(Duration::from_secs(4)));
    disk.fill_up();
    daemon.start_again();
    manager.wait_told(
        "STATUS=waiting to open the database: cannot open the lock file",
        PATIENCE,
    );
    assert!(daemon.log().contains("No space left"), "{}", daemon.log());
    assert!(daemon.is_running());
    disk.free();
    daemon.wait_height(3);
    daemon.stop();
}

/// The follower meets it in the middle of a catch-up, and the daemon is killed before there is space again.
#[test]
fn a_disk_that_fills_in_a_catch_up_loses_no_block_even_over_a_kill() {
    const PAYMENTS: u32 = 40;
    let (disk, manager, node) = (Disk::new(), ServiceManager::new(), FakeNode::regtest(3));
    let mut daemon = Daemon::prepare(&Setup {
        ops_listen: "127.0.0.1:0".to_owned(),
        confirmations: 1,
        ..Setup::for_stub(&node.stub)
    });
    disk.carry(&mut daemon, manager.environment(Duration::from_secs(4)));
    daemon.watch(D1);
    daemon.start_again();
    daemon.wait_height(3);
    disk.fill();
    for number in 1..=PAYMENTS {
        node.mine(vec![tx(&[coin(number)], &[(script(D1), u64::from(number))])]);
        node.mine(Vec::new());
    }
    wait_btc(&daemon, "disk_full");
    // What fitted before it was full is whole blocks, each with its credit.
    let credits = daemon.count("SELECT count(*) FROM credits");
    let blocks = daemon.count("SELECT cursor_height FROM chains") - 3;
    assert_eq!(credits, (blocks + 1) / 2, "of {blocks} blocks");
    assert!(credits < i64::from(PAYMENTS));
    daemon.kill9();
    daemon.start_again();
    disk.free();
    daemon.wait_height(3 + 2 * u64::from(PAYMENTS));
    assert_eq!(daemon.credits().len(), PAYMENTS as usize);
    assert_eq!(daemon.net_sum(), (1..=u64::from(PAYMENTS)).sum::<u64>());
    daemon.assert_sound();
    daemon.stop();
}

/// The limit of a file's size comes as a signal (SIGXFSZ) that ends whoever does not expect it.
#[test]
fn a_file_that_may_not_grow_is_a_full_disk_and_no_silent_death() {
    let node = FakeNode::regtest(3);
    let mut daemon = Daemon::start(&Setup {
        ops_listen: "127.0.0.1:0".to_owned(),
        ..Setup::for_stub(&node.stub)
    });
    daemon.wait_height(3);
    daemon.watch(D1);
    let limit = |daemon: &Daemon, bytes: &str| {
        let set = Command::new("prlimit")
            .arg(format!("--pid={}", daemon.pid()))
            .arg(format!("--fsize={bytes}:"))
            .status();
        assert!(set.unwrap().success());
    };
    let length = |suffix: &str| {
        let file = daemon.folder().join(format!("creditd.db{suffix}"));
        std::fs::metadata(file).map_or(0, |file| file.len())
    };
    // Not one page more in the log, nor in the database.
    let longest = length("").max(length("-wal"));
    limit(&daemon, &(longest.min(16 << 10)).to_string());
    let paid = tx(&[coin(1)], &[(script(D1), 1_000_000)]);
    let txid = paid.compute_txid().to_string();
    node.mine(vec![paid]);
    node.mine(Vec::new());
    node.mine(Vec::new());
    wait_btc(&daemon, "disk_full");
    assert!(daemon.is_running());
    limit(&daemon, "unlimited");
    daemon.wait_deposit(&txid, 0, "credited");
    wait_btc(&daemon, "following");
    daemon.stop();
    daemon.assert_sound();

    // A command that cannot write says so, whether it comes upon the limit early or late.
    for blocks in [20, 500] {
        let command = daemon.command(&["backup", "copy.db"]);
        let mut limited = Command::new("sh");
        limited
            .args(["-c", &format!("ulimit -f {blocks}; exec \"$0\" \"$@\"")])
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(daemon.folder());
        let output = limited.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{blocks}: {said}");
        assert!(
            said.contains("the disk is full") && said.contains("ulimit -f"),
            "{blocks}: {said}"
        );
        assert!(!daemon.folder().join("copy.db").exists());
    }
}
