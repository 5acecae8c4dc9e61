//! The listener for operators: how chains stand, in words and in numbers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::common::asks::{D1, script, wait_polls};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::metrics::{Scrape, Series};
use crate::common::stub::StubNode;
use crate::common::wait::{PATIENCE, wait_until};

fn with_ops(stub: &StubNode) -> Setup {
    Setup {
        ops_listen: "127.0.0.1:0".to_owned(),
        ..Setup::for_stub(stub)
    }
}

#[track_caller]
fn scrape(daemon: &Daemon) -> Scrape {
    let (status, page) = daemon.ops("/metrics");
    assert_eq!(status, 200, "{page}");
    Scrape::parse(&page)
}

#[track_caller]
fn ready(daemon: &Daemon) -> (u16, Value) {
    let (status, page) = daemon.ops("/readyz");
    (status, serde_json::from_str(&page).unwrap())
}

#[track_caller]
fn wait_ready(daemon: &Daemon) {
    wait_until("the daemon is ready", PATIENCE, || {
        (ready(daemon).0 == 200).then_some(())
    });
}

const BTC: (&str, &str) = ("chain", "btc");

/// What the books say after the credit, the reorg that took it away and the one that brought it back.
fn tells_the_story(daemon: &Daemon, after: &Scrape) {
    for (name, label, expected) in [
        ("creditd_deposits", ("state", "credited"), 2.0),
        ("creditd_deposits", ("state", "orphaned"), 0.0),
        ("creditd_journal_entries_total", ("kind", "credit"), 2.0),
        ("creditd_journal_entries_total", ("kind", "reversal"), 1.0),
        ("creditd_journal_entries_total", ("kind", "reinstatement"), 1.0),
        ("creditd_reorg_depth_blocks_bucket", ("le", "2"), 0.0),
        ("creditd_reorg_depth_blocks_bucket", ("le", "3"), 1.0),
        ("creditd_reorg_depth_blocks_bucket", ("le", "+Inf"), 1.0),
    ] {
        assert_eq!(after.value(name, &[BTC, label]), expected, "{name} {label:?}");
    }
    assert_eq!(after.value("creditd_reorg_depth_blocks_sum", &[BTC]), 3.0);
    assert_eq!(after.value("creditd_tip_lag_blocks", &[BTC]), 0.0);
    assert_eq!(after.value("creditd_oldest_due_uncredited_blocks", &[BTC]), 0.0);
    assert_eq!(
        after.value("creditd_events_total", &[]),
        daemon.count("SELECT count(*) FROM events") as f64
    );
    assert!(after.value("creditd_store_commit_seconds_count", &[]) > 5.0);
    assert!(after.value("creditd_database_bytes", &[]) > 4096.0);
}

/// The series that a restart must not change. How far the audit has come is its own: a run that the stop cut
/// off is made again.
fn steady(scrape: &Scrape) -> Vec<(Series, f64)> {
    const WORDS: [&str; 7] = [
        "deposits",
        "journal",
        "reorg",
        "events",
        "height",
        "due",
        "duplicate",
    ];
    let is_steady = |name: &str| !name.contains("_audit_") && WORDS.iter().any(|word| name.contains(word));
    let kept = scrape.values.iter().filter(|(series, _)| is_steady(&series.name));
    kept.map(|(series, value)| (series.clone(), *value)).collect()
}

/// A payment, its credit, a reorg that takes it away, one that brings it back; a restart changes no number.
#[test]
fn metrics_tell_what_the_books_say_and_a_restart_loses_nothing() {
    let node = FakeNode::regtest(3);
    let mut daemon = Daemon::watching(&with_ops(&node.stub), D1, 3);
    let before = scrape(&daemon);
    assert_eq!(
        before.value("creditd_deposits", &[BTC, ("state", "credited")]),
        0.0
    );
    assert_eq!(before.value("creditd_chain_height", &[BTC]), 3.0);
    assert_eq!(
        before.value("creditd_chain_state", &[BTC, ("state", "following")]),
        1.0
    );
    assert_eq!(
        before.value("creditd_chain_state", &[BTC, ("state", "behind")]),
        0.0
    );

    let paid = tx(&[coin(1)], &[(script(D1), 1_000_000)]);
    let txid = paid.compute_txid().to_string();
    node.mine(vec![paid.clone()]);
    daemon.wait_deposit(&txid, 0, "confirming");
    assert_eq!(
        scrape(&daemon).value("creditd_deposits", &[BTC, ("state", "confirming")]),
        1.0
    );
    node.mine(Vec::new());
    node.mine(Vec::new());
    daemon.wait_deposit(&txid, 0, "credited");
    // Three blocks leave, four come; one of them holds the payment again.
    node.back_to(3);
    let other = tx(&[coin(9)], &[(script(D1), 5_000)]);
    node.mine(vec![other]);
    for _ in 0..3 {
        node.mine(Vec::new());
    }
    daemon.wait_deposit(&txid, 0, "orphaned");
    node.mine(vec![paid]);
    node.mine(Vec::new());
    node.mine(Vec::new());
    daemon.wait_deposit(&txid, 0, "credited");

    let after = scrape(&daemon);
    tells_the_story(&daemon, &after);
    daemon.stop();
    daemon.start_again();
    wait_ready(&daemon);
    assert_eq!(steady(&scrape(&daemon)), steady(&after));
    daemon.stop();
}

#[test]
fn readiness_names_each_chain_that_is_not_followed_and_health_does_not_care() {
    let mut node = FakeNode::regtest(3);
    let other = FakeNode::regtest(1);
    let mut daemon = Daemon::start(&with_ops(&node.stub).beside(&other.stub));
    wait_ready(&daemon);
    let (_, told) = ready(&daemon);
    assert_eq!(told["database"], "up");
    assert_eq!(told["chains"][0]["chain"], "btc");
    assert_eq!(told["chains"][0]["lag"], 0);
    assert_eq!(told["chains"][0]["height"], 3);

    node.stub.refuse();
    let (status, told) = wait_until("btc is missed", PATIENCE, || {
        let (status, told) = ready(&daemon);
        let is_told = told["chains"][0]["reason"]
            .as_str()?
            .contains("connection refused");
        is_told.then_some((status, told))
    });
    assert_eq!(status, 503);
    assert_eq!(told["ready"], false);
    assert_eq!(told["chains"][0]["state"], "unreachable");
    assert_eq!(told["chains"][0]["is_halted"], false);
    assert_eq!(told["chains"][1]["ready"], true, "one chain's trouble is its own");
    assert_eq!(daemon.ops("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(
        scrape(&daemon).value("creditd_chain_state", &[BTC, ("state", "unreachable")]),
        1.0
    );

    node.stub.accept_again();
    wait_ready(&daemon);
    node.state().info = serde_json::json!({ "chain": "main" });
    wait_until("btc is halted", PATIENCE, || {
        (ready(&daemon).1["chains"][0]["is_halted"] == true).then_some(())
    });
    assert_eq!(scrape(&daemon).value("creditd_chain_halted", &[BTC]), 1.0);
    assert_eq!(daemon.ops("/healthz").0, 200);
    assert_eq!(daemon.ops("/").0, 404);
    daemon.stop();
}

/// By the node's tip, not ours: here the next block breaks a rule, so that nothing more is read.
#[test]
fn a_payment_that_is_due_at_the_node_and_not_credited_grows_old() {
    let node = FakeNode::regtest(3);
    let mut daemon = Daemon::watching(&with_ops(&node.stub), D1, 3);
    let paid = tx(&[coin(1)], &[(script(D1), 1_000_000)]);
    let txid = paid.compute_txid().to_string();
    node.mine(vec![paid]);
    daemon.wait_deposit(&txid, 0, "confirming");
    node.mine(Vec::new());
    daemon.wait_height(5);
    assert_eq!(
        scrape(&daemon).value("creditd_oldest_due_uncredited_blocks", &[BTC]),
        0.0
    );
    let lie = crate::common::stub::Reply::Error(-1, "Block not available (not fully downloaded)");
    node.state().overrides.insert("getblock".to_owned(), lie);
    node.mine(Vec::new());
    node.mine(Vec::new());
    wait_until("it is due", PATIENCE, || {
        let scrape = scrape(&daemon);
        (scrape.value("creditd_oldest_due_uncredited_blocks", &[BTC]) == 2.0).then_some(())
    });
    daemon.wait_state("missing_data", "");
    let late = scrape(&daemon);
    assert_eq!(late.value("creditd_tip_lag_blocks", &[BTC]), 2.0);
    assert!(late.value("creditd_oldest_due_uncredited_seconds", &[BTC]) > 0.0);
    assert_eq!(
        late.value("creditd_chain_state", &[BTC, ("state", "missing_data")]),
        1.0
    );
    node.state().overrides.clear();
    daemon.wait_deposit(&txid, 0, "credited");
    assert_eq!(
        scrape(&daemon).value("creditd_oldest_due_uncredited_blocks", &[BTC]),
        0.0
    );
    daemon.stop();
}

#[test]
fn strangers_who_connect_and_say_nothing_are_dropped() {
    let node = FakeNode::regtest(3);
    let mut daemon = Daemon::start(&with_ops(&node.stub));
    let port = daemon.ops_port();
    let mut silent: Vec<TcpStream> = (0..40)
        .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
        .collect();
    assert_eq!(daemon.ops("/healthz").0, 200, "it waits for a place and gets one");
    let mut nothing = Vec::new();
    silent[0].read_to_end(&mut nothing).unwrap();
    assert!(nothing.is_empty());
    wait_polls(&node.stub, 2);
    daemon.stop();
}

#[test]
fn strangers_who_hold_every_place_delay_no_answer() {
    let node = FakeNode::regtest(3);
    let mut daemon = Daemon::start(&with_ops(&node.stub));
    let port = daemon.ops_port();
    wait_ready(&daemon);
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    // Silent ones, and ones that never end their question.
    let mut strangers = Vec::new();
    for round in 0..3 {
        for number in 0..40 {
            let mut stream = connect();
            if number % 2 == round % 2 {
                stream.write_all(b"GET /readyz HTTP/1.1\r\nX-Slow: ").unwrap();
            }
            strangers.push(stream);
        }
        let mut asks = connect();
        asks.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        asks.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        asks.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    daemon.stop();
}

#[test]
fn a_taken_port_is_told_and_ends_the_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let setup = Setup {
        ops_listen: address.clone(),
        ..Setup::new("http://127.0.0.1:1".to_owned(), "cookie".into())
    };
    let mut daemon = Daemon::start(&setup);
    assert_eq!(daemon.ended(PATIENCE).code(), Some(2));
    let log = daemon.log();
    assert!(
        log.contains(&format!("listen on {address}")) && log.contains("in use"),
        "{log}"
    );
}

#[test]
fn remote_addresses_need_a_word() {
    let node = FakeNode::regtest(0);
    for (lines, is_good) in [
        ("listen = \"127.0.0.1:9333\"", true),
        ("listen = \"[::1]:9333\"", true),
        ("listen = \"off\"", true),
        ("listen = \"0.0.0.0:9333\"", false),
        ("listen = \"0.0.0.0:9333\"\nallow_remote = true", true),
        ("listen = \"0.0.0.0:9333\"\nallow_remote = false", false),
        ("listen = \"localhost\"", false),
        ("listen = 9333", false),
    ] {
        let daemon = Daemon::prepare(&Setup::for_stub(&node.stub));
        let config = std::fs::read_to_string(daemon.config_file()).unwrap();
        let config = config.replace("[ops]\nlisten = \"off\"", &format!("[ops]\n{lines}"));
        let config = creditd::config::Config::parse(&daemon.config_file(), &config);
        assert_eq!(config.is_ok(), is_good, "{lines}: {config:?}");
    }
}

/// A log that cannot be written, on a full disk for example, is no reason to end.
#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let node = FakeNode::regtest(3);
    let daemon = Daemon::prepare(&Setup::for_stub(&node.stub));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = daemon
        .command(&["run"])
        .stdin(Stdio::null())
        .stderr(full)
        .spawn()
        .unwrap();
    daemon.wait_height(3);
    wait_polls(&node.stub, 3);
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}
