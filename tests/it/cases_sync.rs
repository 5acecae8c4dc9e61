//! C26: a node that says it is done while it is not.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use crate::common::asks::{D1, D2, script, stranger};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, mine_exactly, tx};
use crate::common::wait::{PATIENCE, wait_until};

/// Puts one more strange transaction into the mempool, so that the next list is another one and is applied.
fn stir(node: &FakeNode) {
    static STIRRED: AtomicU32 = AtomicU32::new(1_000_000);
    let number = STIRRED.fetch_add(1, Ordering::Relaxed);
    node.state()
        .mempool
        .push(tx(&[coin(number)], &[(stranger(), 700)]));
}

/// Lets lists come in and be applied until two seconds of the clock that evictions are measured on, or, where
/// that stands, of the daemon's own clock have gone by.
fn let_lists_pass(node: &FakeNode, daemon: &Daemon) {
    let applied = || daemon.count("SELECT list_applied_at FROM chains WHERE alias = 'btc'");
    let began = applied();
    wait_until("two seconds of applied lists", PATIENCE, || {
        stir(node);
        (applied() >= began + 2_000).then_some(())
    });
}

/// What the clock shows that evictions are measured on.
fn daemon_clock(daemon: &Daemon) -> i64 {
    daemon.count("SELECT list_clock_ms FROM chains WHERE alias = 'btc'")
}

/// A daemon on a node at height 3, with a payment of 0.01 in the mempool.
fn with_a_seen_payment(node: &FakeNode, evict_after_secs: u32) -> (Daemon, String) {
    let setup = Setup {
        chain_lines: format!("evict_after_secs = {evict_after_secs}\n"),
        ..Setup::for_stub(&node.stub)
    };
    let mut daemon = Daemon::prepare(&setup);
    daemon.watch(D1);
    daemon.watch(D2);
    daemon.start_again();
    daemon.wait_height(3);
    let paid = tx(&[coin(1)], &[(script(D1), 1_000_000)]);
    let txid = paid.compute_txid().to_string();
    node.state().mempool.push(paid);
    daemon.wait_deposit(&txid, 0, "seen");
    (daemon, txid)
}

#[test]
fn c26_behind_its_own_headers_is_not_synced_whatever_the_flag_says() {
    for (what, info) in [
        // The flag turned false 163 blocks too early.
        (
            "headers",
            json!({ "headers": 166, "initialblockdownload": false }),
        ),
        ("the flag", json!({ "initialblockdownload": true })),
        (
            "an estimate that says 100 %",
            json!({ "headers": 4, "verificationprogress": 1 }),
        ),
    ] {
        let node = FakeNode::regtest(3);
        let (daemon, txid) = with_a_seen_payment(&node, 1);
        node.state().info = info;
        daemon.wait_state("syncing", "catching up");
        node.state().mempool.clear();
        let before = daemon_clock(&daemon);
        let_lists_pass(&node, &daemon);
        assert_eq!(
            daemon_clock(&daemon),
            before,
            "{what}: this time never counts as absence"
        );
        let deposit = daemon.deposit(&txid, 0).unwrap();
        assert_eq!(deposit["state"], "seen", "{what}: nothing is evicted");
        // In sync again, and a second of absence later it is gone.
        node.state().info = json!({});
        daemon.wait_state("following", "");
        wait_until("it is evicted", PATIENCE, || {
            stir(&node);
            (daemon.deposit(&txid, 0)?["state"] == "evicted").then_some(())
        });
        assert_eq!(daemon.events_of("deposit.evicted").len(), 1, "{what}");
    }
}

#[test]
fn c26_old_tip_is_not_synced_though_blocks_and_headers_agree() {
    let node = FakeNode::regtest(3);
    // The played blocks are of 2023: with a limit, which regtest has only where it is asked for, their tip is
    // old from the start.
    let setup = Setup {
        chain_lines: "evict_after_secs = 1\ntip_age_max_secs = 10800\n".to_owned(),
        ..Setup::for_stub(&node.stub)
    };
    let mut daemon = Daemon::prepare(&setup);
    daemon.watch(D1);
    daemon.start_again();
    let reason = daemon.wait_state("syncing", "newest block is")["reason"].clone();
    assert!(reason.as_str().unwrap().contains("minutes old"), "{reason}");
    let paid = tx(&[coin(1)], &[(script(D1), 1_000_000)]);
    let txid = paid.compute_txid().to_string();
    node.state().mempool.push(paid);
    daemon.wait_deposit(&txid, 0, "seen");
    node.state().mempool.clear();
    let_lists_pass(&node, &daemon);
    assert_eq!(daemon.deposit(&txid, 0).unwrap()["state"], "seen");
    // A young block, and the node is in sync.
    let now = daemon.count("SELECT list_applied_at FROM chains WHERE alias = 'btc'") / 1000;
    {
        let mut state = node.state();
        let parent = state.tip().block_hash();
        let coinbase = state.tip().txdata[0].clone();
        let young = mine_exactly(parent, u32::try_from(now).unwrap(), vec![coinbase]);
        state.chain.push(young);
    }
    daemon.wait_height(4);
    wait_until("what is absent is evicted again", PATIENCE, || {
        stir(&node);
        (daemon.deposit(&txid, 0)?["state"] == "evicted").then_some(())
    });
    let late = tx(&[coin(2)], &[(script(D1), 2_000_000)]);
    let late_id = late.compute_txid().to_string();
    for block in [vec![late], vec![], vec![]] {
        let (parent, coinbase) = {
            let state = node.state();
            (state.tip().header, state.tip().txdata[0].clone())
        };
        let all = [vec![coinbase], block].concat();
        let next = mine_exactly(parent.block_hash(), parent.time + 1, all);
        node.state().chain.push(next);
    }
    daemon.wait_deposit(&late_id, 0, "credited");
    daemon.wait_height(7);
}

#[test]
fn c26_blocks_of_a_catch_up_are_credited_and_their_payments_never_evicted() {
    let node = FakeNode::regtest(3);
    let (mut daemon, txid) = with_a_seen_payment(&node, 1);
    // Node and daemon are down while it is mined and buried; then the node catches up bit by bit, its mempool
    // empty, saying that it is done.
    daemon.stop();
    let first_seen = daemon.deposit(&txid, 0).unwrap()["first_seen_at"].clone();
    let paid = node.state().mempool[0].clone();
    let late = tx(&[coin(2)], &[(script(D2), 2_000_000)]);
    let late_id = late.compute_txid().to_string();
    node.state().info = json!({ "headers": 166 });
    node.state().mempool.clear();
    daemon.start_again();
    daemon.wait_state("syncing", "block 3 of 166");
    let_lists_pass(&node, &daemon);
    node.mine(vec![paid]);
    node.mine(vec![late]);
    daemon.wait_deposit(&late_id, 0, "confirming");
    node.mine(Vec::new());
    daemon.wait_deposit(&txid, 0, "credited");
    daemon.wait_state("syncing", "block 6 of 166");
    node.mine(Vec::new());
    daemon.wait_deposit(&late_id, 0, "credited");
    node.state().info = json!({});
    daemon.wait_height(7);

    assert_eq!(daemon.net_sum(), 3_000_000);
    assert_eq!(daemon.events_of("credit.created").len(), 2);
    assert_eq!(daemon.events_of("deposit.evicted").len(), 0);
    let deposit = daemon.deposit(&txid, 0).unwrap();
    assert_eq!(
        deposit["first_seen_at"], first_seen,
        "not the time of the catch-up"
    );
    daemon.assert_sound();
}

#[test]
fn a_node_that_catches_up_is_told_of_once_in_the_log() {
    let node = FakeNode::regtest(3);
    let daemon = Daemon::start(&Setup::for_stub(&node.stub));
    daemon.wait_height(3);
    node.state().info = json!({ "headers": 9_000 });
    for height in 4..12 {
        node.mine(Vec::new());
        daemon.wait_state("syncing", &format!("block {height} of 9000"));
    }
    node.state().info = json!({});
    daemon.wait_height(11);
    let log = daemon.log();
    let told = log.lines().filter(|line| line.contains("WARN"));
    assert_eq!(told.count(), 1, "{log}");
    assert_eq!(log.matches("btc is following").count(), 2, "{log}");
}

#[test]
fn c26_time_without_lists_evicts_nothing() {
    let node = FakeNode::regtest(3);
    let (mut daemon, txid) = with_a_seen_payment(&node, 300);
    // It leaves the mempool, and that is noticed; then the daemon is down for longer than the limit.
    let mempool: Vec<_> = node.state().mempool.drain(..).collect();
    let absent = "SELECT count(*) FROM txs WHERE absent_since IS NOT NULL";
    wait_until("its absence is noticed", PATIENCE, || {
        stir(&node);
        (daemon.count(absent) == 1).then_some(())
    });
    daemon.stop();
    let database = rusqlite::Connection::open(daemon.database()).unwrap();
    // As if it had been an hour.
    database
        .execute(
            "UPDATE chains SET list_applied_at = list_applied_at - 3600000",
            [],
        )
        .unwrap();
    drop(database);
    let before = daemon_clock(&daemon);
    daemon.start_again();
    daemon.wait_state("following", "");
    let_lists_pass(&node, &daemon);
    assert_eq!(daemon.deposit(&txid, 0).unwrap()["state"], "seen");
    assert_eq!(daemon.count(absent), 1, "it is still missed");
    let counted = daemon_clock(&daemon) - before;
    assert!(
        (2_000..120_000).contains(&counted),
        "{counted} ms of an hour count"
    );
    // It was there all the time.
    node.state().mempool = mempool;
    wait_until("it is listed again", PATIENCE, || {
        (daemon.count(absent) == 0).then_some(())
    });
    assert_eq!(daemon.events_of("deposit.evicted").len(), 0);
}
