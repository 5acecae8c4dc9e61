//! The daemon under a service manager: ready, alive, stopping; what hangs and what only waits.

use std::io::Read as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rusqlite::Connection;

use crate::common::asks::{D1, script, wait_polls};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::receiver::{Receiver, drip};
use crate::common::service_manager::ServiceManager;
use crate::common::stub::{Reply, StubNode};
use crate::common::unit::Unit;
use crate::common::wait::{PATIENCE, wait_until};

/// Short, so that the tests see it fire.
const WATCHDOG: Duration = Duration::from_secs(2);

fn signal(daemon: &Daemon, name: &str) {
    let pid = daemon.pid().to_string();
    let sent = Command::new("sh")
        .args(["-c", "kill -\"$1\" \"$2\"", "sh", name, &pid])
        .status();
    assert!(sent.unwrap().success());
}

/// A process that holds a lease on a file (F_SETLEASE, F_WRLCK): who opens it waits, for 45 seconds at most,
/// until the holder lets go.
struct Lease(Child);

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lease(file: &Path) -> Lease {
    let hold = "open(my $file, '+<', $ARGV[0]) or die; $SIG{IO} = 'IGNORE'; fcntl($file, 1024, 1) or die; \
                $| = 1; print qq(held\n); sleep 60";
    let mut holder = Command::new("perl")
        .args(["-e", hold])
        .arg(file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("perl");
    let mut told = [0; 5];
    holder.stdout.as_mut().unwrap().read_exact(&mut told).unwrap();
    Lease(holder)
}

fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success(), "mkfifo {}", path.display());
}

#[test]
fn ready_is_told_once_whatever_the_node_says_and_signs_of_life_follow() {
    let manager = ServiceManager::new();
    let mut daemon = Daemon::start(&manager.manage(
        Setup::new("http://127.0.0.1:1".to_owned(), "cookie".into()),
        WATCHDOG,
    ));
    manager.wait_told("READY=1", PATIENCE);
    let told = manager.told();
    assert_eq!(told[0], "STATUS=opening the database", "{told:?}");
    assert_eq!(told[1], "READY=1", "{told:?}");
    assert!(!told.contains(&"WATCHDOG=1".to_owned()) || told[1] == "READY=1");
    manager.wait_told("STATUS=btc unreachable", PATIENCE);
    wait_until("signs of life", PATIENCE, || {
        (manager.count("WATCHDOG=1") > 5).then_some(())
    });
    assert!(manager.silence() < WATCHDOG);
    daemon.stop();
    let told = manager.told();
    assert_eq!(told.iter().filter(|line| *line == "READY=1").count(), 1);
    let stopping = told.iter().position(|line| line == "STOPPING=1").unwrap();
    assert!(!told[stopping..].contains(&"WATCHDOG=1".to_owned()), "{told:?}");
}

#[test]
fn a_node_that_hangs_is_waited_for_and_a_stop_does_not_wait() {
    let manager = ServiceManager::new();
    let stub = StubNode::alone();
    for method in ["getnetworkinfo", "getblockchaininfo", "getbestblockhash"] {
        stub.always(method, Reply::Hang);
    }
    let mut daemon = Daemon::start(&manager.manage(Setup::for_stub(&stub), WATCHDOG));
    manager.wait_told("READY=1", PATIENCE);
    wait_until("the node is asked", PATIENCE, || {
        (!stub.calls().is_empty()).then_some(())
    });
    // Longer than the watchdog and what a follower may be overdue together: the call's deadline is longer.
    let before = manager.count("WATCHDOG=1");
    wait_until("many signs of life", PATIENCE, || {
        assert!(manager.silence() < WATCHDOG, "a node that hangs is no reason");
        (manager.count("WATCHDOG=1") > before + 10).then_some(())
    });
    assert!(daemon.is_running());
    daemon.stop();
    assert!(manager.told().contains(&"STOPPING=1".to_owned()));
}

/// A receiver that takes the callback and never answers is left behind.
#[test]
fn a_receiver_that_hangs_does_not_hold_up_a_stop() {
    let manager = ServiceManager::new();
    let node = FakeNode::regtest(3);
    let receiver = Receiver::http(Ipv4Addr::LOCALHOST, |_, to| drip(to, std::iter::repeat(&b' ')));
    let mut setup = manager.manage(Setup::for_stub(&node.stub), WATCHDOG);
    setup.tables = "[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\ntimeout_secs = 60\n".to_owned();
    let mut daemon = Daemon::prepare(&setup);
    let url = format!("http://{}/hook", receiver.address);
    daemon.json(&["endpoint", "add", &url, "--merchant", "shop"]);
    daemon.watch(D1);
    daemon.start_again();
    daemon.wait_height(3);
    node.mine(vec![tx(&[coin(1)], &[(script(D1), 1_000_000)])]);
    wait_until("the callback is on its way", PATIENCE, || {
        (!receiver.heard().is_empty()).then_some(())
    });
    let before = manager.count("WATCHDOG=1");
    wait_until("signs of life go on", PATIENCE, || {
        (manager.count("WATCHDOG=1") > before + 8).then_some(())
    });
    daemon.stop();
    // It is sent again, with the same id.
    daemon.start_again();
    wait_until("it comes again", PATIENCE, || {
        (receiver.heard().len() == 2).then_some(())
    });
    let heard = receiver.heard();
    assert_eq!(heard[0].header("webhook-id"), heard[1].header("webhook-id"));
    daemon.stop();
}

/// The writer hangs for real: the high-water file that it writes after a commit is a pipe that nobody reads.
#[test]
fn a_writer_that_hangs_gives_no_sign_of_life_and_a_stop_is_over_in_time() {
    let manager = ServiceManager::new();
    let node = FakeNode::regtest(3);
    let setup = Setup {
        ops_listen: "127.0.0.1:0".to_owned(),
        ..manager.manage(Setup::for_stub(&node.stub), WATCHDOG)
    };
    let mut daemon = Daemon::start(&setup);
    daemon.wait_height(3);
    assert_eq!(daemon.ops("/healthz").0, 200);
    let mut pipe = daemon.database().into_os_string();
    pipe.push(".highwater");
    std::fs::remove_file(&pipe).unwrap();
    make_fifo(Path::new(&pipe));
    node.mine(Vec::new());
    manager.wait_silence(WATCHDOG * 2, PATIENCE);
    manager.wait_told("STATUS=ailing: the database's writer does not answer", PATIENCE);
    assert_eq!(daemon.ops("/healthz").0, 503);
    daemon.stop();
    assert!(
        daemon
            .log()
            .contains("no sign of life for the service manager: the database's writer")
    );
    // What was committed before it hung stands.
    std::fs::remove_file(&pipe).unwrap();
    daemon.start_again();
    // The height alone was there before.
    wait_until("it is ready again", PATIENCE, || {
        (manager.count("READY=1") == 2).then_some(())
    });
    daemon.wait_height(4);
    daemon.stop();
}

/// A follower hangs for real: the cookie that it reads again is a file whose opening waits for another
/// process.
#[test]
fn a_follower_that_hangs_gives_no_sign_of_life_and_a_stop_is_over_in_time() {
    let manager = ServiceManager::new();
    let node = FakeNode::regtest(3);
    let other = FakeNode::regtest(1);
    let setup = manager.manage(Setup::for_stub(&node.stub).beside(&other.stub), WATCHDOG);
    let mut daemon = Daemon::start(&setup);
    daemon.wait_height(3);
    let holder = lease(&node.stub.cookie_file());
    node.stub.require("__cookie__:new");
    manager.wait_told("STATUS=ailing: the follower of btc is silent", PATIENCE);
    manager.wait_silence(WATCHDOG * 2, PATIENCE);
    // The other chain does not suffer meanwhile.
    other.mine(Vec::new());
    daemon.wait_height_of("other", 2);
    daemon.stop();
    assert!(manager.told().contains(&"STOPPING=1".to_owned()));
    drop(holder);
}

/// A file that somebody else has locked is waited for: our writer answers, with "busy".
#[test]
fn a_locked_database_is_no_illness() {
    let manager = ServiceManager::new();
    let node = FakeNode::regtest(3);
    // A try to write takes six seconds while the file is locked.
    let mut daemon = Daemon::start(&manager.manage(Setup::for_stub(&node.stub), WATCHDOG * 5));
    daemon.wait_height(3);
    let other = Connection::open(daemon.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    node.mine(Vec::new());
    let before = manager.count("WATCHDOG=1");
    wait_until("signs of life for 15 seconds", PATIENCE, || {
        assert!(manager.silence() < WATCHDOG * 5, "{}", manager.status());
        (manager.count("WATCHDOG=1") > before + 6).then_some(())
    });
    assert!(daemon.is_running());
    other.execute_batch("ROLLBACK").unwrap();
    daemon.wait_height(4);
    daemon.stop();
}

/// At the start too: it neither ends nor calls itself ready.
#[test]
fn a_database_that_is_locked_at_the_start_is_waited_for() {
    let manager = ServiceManager::new();
    let node = FakeNode::regtest(3);
    let mut daemon = Daemon::start(&Setup::for_stub(&node.stub));
    daemon.wait_height(3);
    daemon.stop();
    let other = Connection::open(daemon.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    daemon.set_environment(manager.environment(WATCHDOG));
    daemon.start_again();
    manager.wait_told(
        "STATUS=waiting to open the database: the database is busy",
        PATIENCE,
    );
    assert_eq!(manager.count("READY=1"), 0);
    // It can be stopped meanwhile.
    daemon.stop();
    daemon.start_again();
    other.execute_batch("ROLLBACK").unwrap();
    manager.wait_told("READY=1", PATIENCE);
    daemon.wait_height(3);
    daemon.stop();
}

#[test]
fn a_hangup_changes_nothing_and_an_interrupt_stops() {
    let node = FakeNode::regtest(3);
    let mut daemon = Daemon::start(&Setup::for_stub(&node.stub));
    daemon.wait_height(3);
    signal(&daemon, "HUP");
    wait_until("it is told", PATIENCE, || {
        daemon.log().contains("SIGHUP changes nothing").then_some(())
    });
    wait_polls(&node.stub, 2);
    assert!(daemon.is_running());
    signal(&daemon, "INT");
    assert!(daemon.ended(Duration::from_secs(5)).success());
}

/// What the unit file says, done by hand: its command, in an empty environment, with the password of the node
/// as a credential.
#[test]
fn the_unit_starts_the_daemon_and_passes_it_the_password_of_the_node() {
    let (unit, manager) = (Unit::read(), ServiceManager::new());
    let node = FakeNode::regtest(3);
    node.stub.require("creditd:planted-rpc-password");
    let daemon = Daemon::prepare(&Setup::for_stub(&node.stub));
    let config = std::fs::read_to_string(daemon.config_file()).unwrap();
    let cookie = config
        .lines()
        .find(|line| line.starts_with("cookie_file"))
        .unwrap();
    let login = "rpc_user = \"creditd\"\nrpc_password_file = \"credential:bitcoin-rpc-password\"";
    std::fs::write(daemon.config_file(), config.replace(cookie, login)).unwrap();
    let credentials = tempfile::tempdir().unwrap();
    std::fs::write(
        credentials.path().join("bitcoin-rpc-password"),
        "planted-rpc-password\n",
    )
    .unwrap();

    let mut words = unit.get("ExecStart").split(' ');
    assert_eq!(words.next(), Some("/usr/local/bin/creditd"));
    let config = daemon.config_file().display().to_string();
    let words = words.map(|word| word.replace("/etc/creditd/creditd.toml", &config));
    let watchdog = Duration::from_secs(unit.secs("WatchdogSec"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_creditd"));
    command
        .args(words)
        .env_clear()
        .envs(manager.environment(watchdog))
        .env("CREDENTIALS_DIRECTORY", credentials.path())
        .current_dir(daemon.folder())
        .stdin(Stdio::null());
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    manager.wait_told("READY=1", PATIENCE);
    daemon.wait_height(3);
    assert!(manager.count("WATCHDOG=1") > 0);
    let stop = Command::new("sh")
        .args(["-c", "kill -TERM \"$1\"", "sh", &child.id().to_string()])
        .status();
    assert!(stop.unwrap().success());
    let ended = wait_until("it ends", Duration::from_secs(5), || child.try_wait().unwrap());
    assert!(ended.success());
    assert!(manager.told().contains(&"STOPPING=1".to_owned()));
    assert!(
        unit.secs("TimeoutStopSec") > 5,
        "systemd must not cut a clean stop short"
    );
}

/// A payment that came while the daemon was stopped in the middle of things is credited after the next start.
#[test]
fn a_stop_under_load_loses_nothing() {
    let node = FakeNode::regtest(3);
    let mut daemon = Daemon::watching(&Setup::for_stub(&node.stub), D1, 3);
    let mut txids = Vec::new();
    for number in 1..=20 {
        let paid = tx(&[coin(number)], &[(script(D1), 1_000)]);
        txids.push(paid.compute_txid().to_string());
        node.mine(vec![paid]);
        if number % 5 == 0 {
            wait_until("it is up", PATIENCE, || {
                (daemon.log().matches("btc is bip122").count() as u32 >= number / 5).then_some(())
            });
            daemon.stop();
            daemon.start_again();
        }
    }
    node.mine(Vec::new());
    node.mine(Vec::new());
    for txid in &txids {
        daemon.wait_deposit(txid, 0, "credited");
    }
    assert_eq!(daemon.net_sum(), 20_000);
    daemon.assert_sound();
    daemon.stop();
}
