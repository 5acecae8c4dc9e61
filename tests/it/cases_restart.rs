//! C27: a node that restarts refuses, asks for a new cookie, and warms up. All of it passes.

use crate::common::asks::{D1, script, wait_polls};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::stub::Reply;
use crate::common::wait::{PATIENCE, wait_until};

/// How bitcoind tells that it is starting: in the old way, and as JSON-RPC 2.0 does.
fn warm_up() -> Vec<(Reply, &'static str)> {
    let both = |text: &'static str| {
        let words = text.trim_end_matches('…');
        [
            (Reply::Error(-28, text), words),
            (Reply::ErrorIn200(-28, text), words),
        ]
    };
    [
        "Loading block index…",
        "Verifying blocks…",
        "Loading P2P addresses…",
        "Loading wallet…",
    ]
    .into_iter()
    .flat_map(both)
    .collect()
}

/// Plays a restart of the node; at each step the reason stands in the daemon's status, in words.
fn restart(node: &mut FakeNode, daemon: &Daemon) {
    node.stub.refuse();
    daemon.wait_state("unreachable", "refused");
    // The node comes back with a new cookie, which it has not written yet.
    node.stub.renew_cookie("second");
    let cookie = std::fs::read(node.stub.cookie_file()).unwrap();
    std::fs::remove_file(node.stub.cookie_file()).unwrap();
    node.stub.accept_again();
    daemon.wait_state("unreachable", "cookie file missing");
    // A file of yesterday: the node lets nobody in with it.
    std::fs::write(node.stub.cookie_file(), "__cookie__:first").unwrap();
    daemon.wait_state("unreachable", "unauthorized (cookie of");
    for (reply, words) in warm_up() {
        for method in [
            "getblockchaininfo",
            "getblockhash",
            "getnetworkinfo",
            "getbestblockhash",
        ] {
            node.state().overrides.insert(method.to_owned(), reply.clone());
        }
        std::fs::write(node.stub.cookie_file(), &cookie).unwrap();
        daemon.wait_state("unreachable", words);
    }
    node.state().overrides.clear();
}

#[test]
fn c27_every_step_of_a_node_restart_passes_and_is_told_in_words() {
    let mut node = FakeNode::regtest(3);
    let other = FakeNode::regtest(1);
    let setup = Setup::for_stub(&node.stub).beside(&other.stub);
    let mut daemon = Daemon::watching(&setup, D1, 3);
    let paid = tx(&[coin(1)], &[(script(D1), 1_000_000)]);
    let txid = paid.compute_txid().to_string();
    node.mine(vec![paid]);
    daemon.wait_deposit(&txid, 0, "confirming");
    let (pid, events, story) = (daemon.pid(), daemon.events(), daemon.deposit(&txid, 0));

    restart(&mut node, &daemon);

    assert_eq!(daemon.events(), events, "no fact, no event");
    assert_eq!(daemon.deposit(&txid, 0), story);
    // Two blocks while it is back: both are there after one look.
    node.mine(Vec::new());
    node.mine(Vec::new());
    let (looks, called) = (node.stub.count("getnetworkinfo"), node.stub.calls().len());
    daemon.wait_deposit(&txid, 0, "credited");
    let calls = node.stub.calls().split_off(called);
    let until_block = calls.iter().take_while(|call| call.method != "getblock");
    let polls = until_block
        .filter(|call| call.method == "getblockchaininfo")
        .count();
    assert!(
        polls <= 3,
        "who it is, where it stands, and perhaps a look that was under way: {polls}"
    );
    assert!(
        node.stub.count("getnetworkinfo") <= looks + 2,
        "it is asked who it is once per connection: one for looks, one to fetch blocks ahead"
    );
    assert!(daemon.is_running());
    assert_eq!(daemon.pid(), pid, "one process all the time");
    // The other chain went on all the time, and still does.
    other.mine(Vec::new());
    daemon.wait_height_of("other", 2);
    let log = daemon.log();
    let changes = log
        .lines()
        .filter(|line| line.contains("other is") && !line.contains("other is bip122"));
    assert_eq!(
        changes.count(),
        1,
        "the other chain was never but `following`:\n{log}"
    );
    daemon.assert_sound();
    daemon.stop();
}

#[test]
fn c27_daemon_that_starts_beside_a_starting_node_waits_for_it() {
    let mut node = FakeNode::regtest(3);
    node.stub.refuse();
    let mut daemon = Daemon::start(&Setup::for_stub(&node.stub));
    let pid = daemon.pid();
    daemon.wait_state("unreachable", "refused");
    restart(&mut node, &daemon);
    daemon.wait_height(3);
    assert!(daemon.is_running() && daemon.pid() == pid);
    assert_eq!(daemon.events().len(), 0);
}

#[test]
fn c27_new_cookie_on_disk_is_read_at_once() {
    let node = FakeNode::regtest(3);
    let daemon = Daemon::start(&Setup::for_stub(&node.stub));
    daemon.wait_height(3);
    for password in ["second", "third", "fourth"] {
        node.stub.renew_cookie(password);
        let block = node.mine(Vec::new());
        let height = block.txdata[0].input[0].script_sig.as_bytes()[1];
        daemon.wait_height(u64::from(height));
    }
    // Each 401 was answered by one immediate retry, so that nothing was ever out of reach.
    let log = daemon.log();
    assert!(!log.contains("btc is unreachable"), "{log}");
}

#[test]
fn c27_wrong_password_stays_visible_and_is_not_hammered() {
    let node = FakeNode::regtest(3);
    let other = FakeNode::regtest(1);
    let mut daemon = Daemon::start(&Setup::for_stub(&node.stub).beside(&other.stub));
    let pid = daemon.pid();
    daemon.wait_height(3);
    node.stub.renew_cookie("right");
    std::fs::write(node.stub.cookie_file(), "__cookie__:wrong").unwrap();
    let path = node.stub.cookie_file().display().to_string();
    daemon.wait_state(
        "unreachable",
        &format!("getblockchaininfo: unauthorized (cookie of {path})"),
    );
    let since = daemon.chain("btc").unwrap()["since"].clone();
    let answered = node.stub.calls().len();
    for height in 2..30 {
        other.mine(Vec::new());
        daemon.wait_height_of("other", height);
    }
    let status = daemon.chain("btc").unwrap();
    assert_eq!(
        (&status["state"], &status["since"]),
        (&"unreachable".into(), &since)
    );
    assert_eq!(node.stub.calls().len(), answered, "nothing was let in");
    let log = daemon.log();
    // Once, or twice where another call than the one that all looks begin with met it first.
    let told = log.matches("unauthorized").count();
    assert!((1..=2).contains(&told), "not at each attempt:\n{log}");
    assert!(!log.contains("wrong"), "the secret is nowhere in the log");
    assert!(!log.contains("decode"), "and it is no decode error");
    assert!(daemon.is_running() && daemon.pid() == pid);
    // The operator mends the file; nobody has to restart anything.
    std::fs::write(node.stub.cookie_file(), "__cookie__:right").unwrap();
    daemon.wait_state("following", "");
}

#[test]
fn c27_answers_of_a_proxy_before_a_dead_node_are_waited_out() {
    let node = FakeNode::regtest(3);
    let daemon = Daemon::start(&Setup::for_stub(&node.stub));
    daemon.wait_height(3);
    let events = daemon.events();
    for (reply, words) in [
        (Reply::Text(502, "<html>Bad Gateway</html>"), "HTTP status 502"),
        (
            Reply::Text(503, "Work queue depth exceeded"),
            "Work queue depth exceeded",
        ),
        (Reply::Text(403, ""), "forbidden"),
        (Reply::Text(200, "<html>Welcome</html>"), "not a JSON-RPC answer"),
        (Reply::Error(-32603, "Internal error"), "Internal error"),
        (
            Reply::Cut(serde_json::json!({ "chain": "regtest" })),
            "getblockchaininfo",
        ),
        (
            Reply::WrongId(serde_json::json!({ "chain": "regtest" })),
            "somebody else's",
        ),
        (Reply::Result(serde_json::Value::Null), "getblockchaininfo"),
    ] {
        node.state()
            .overrides
            .insert("getblockchaininfo".to_owned(), reply);
        daemon.wait_state("unreachable", words);
        node.state().overrides.clear();
        wait_until("it is followed again", PATIENCE, || {
            (daemon.chain("btc")?["state"] == "following").then_some(())
        });
    }
    wait_polls(&node.stub, 2);
    assert_eq!(daemon.events(), events);
}
