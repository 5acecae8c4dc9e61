//! Old blocks read again, and a fresh database over the same chain: the same credits under the same ids, and
//! nothing twice.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::common::asks::{D1, D2, D3, script};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, output, tx};
use crate::common::wait::{PATIENCE, wait_until};

/// Every table that a rescan could spoil, row by row.
fn rows(daemon: &Daemon) -> BTreeMap<&'static str, Vec<String>> {
    let queries = [
        (
            "credits",
            "SELECT id || ' ' || hex(txid) || vout || ' ' || amount FROM credits ORDER BY id",
        ),
        (
            "journal",
            "SELECT credit || sequence || kind || block_height || reason FROM journal ORDER BY id",
        ),
        ("events", "SELECT id || ' ' || body FROM events ORDER BY seq"),
        (
            "deposits",
            "SELECT dep_id || state || ifnull(height, '') FROM deposits ORDER BY dep_id",
        ),
        (
            "outputs",
            "SELECT tx || ':' || vout || origin || ifnull(hex(spent_by), '') FROM outputs ORDER BY 1",
        ),
    ];
    let read = |(table, sql)| (table, daemon.sql(sql, |row| row.get(0)));
    queries.into_iter().map(read).collect()
}

fn setup(node: &FakeNode) -> Setup {
    Setup {
        chain_lines: "start = 1\n".to_owned(),
        confirmations: 2,
        ..Setup::for_stub(&node.stub)
    }
}

/// A chain with a bit of everything: several outputs, our own coin moved, a branch that was left, a payment
/// mined again in another block, one that never was.
fn eventful_life(node: &FakeNode) -> Daemon {
    let mut daemon = Daemon::prepare(&setup(node));
    daemon.watch(D1);
    daemon.watch(D2);
    daemon.start_again();
    let one = tx(
        &[coin(1)],
        &[(script(D1), 10_000), (script(D3), 5), (script(D1), 15_000)],
    );
    let own = tx(&[output(&one, 0)], &[(script(D2), 9_900)]);
    let two = tx(&[coin(2)], &[(script(D2), 20_000)]);
    let gone = tx(&[coin(3)], &[(script(D1), 30_000)]);
    let rival = tx(&[coin(3)], &[(script(D1), 29_000)]);
    node.mine(vec![one]);
    node.mine(vec![own]);
    node.mine(vec![two.clone(), gone.clone()]);
    node.mine(Vec::new());
    node.mine(Vec::new());
    daemon.wait_deposit(&gone.compute_txid().to_string(), 0, "credited");
    let height = node.state().height();
    // The last three blocks leave; the payments come again in another order, one of them as another.
    {
        let mut state = node.state();
        let left = state.chain.split_off(height - 2);
        state.stale.extend(left);
        state.mempool = vec![two.clone()];
    }
    node.mine(Vec::new());
    node.mine(vec![rival]);
    node.mine(vec![two]);
    node.mine(Vec::new());
    node.mine(Vec::new());
    daemon.wait_height(node.height());
    daemon.wait_deposit(&gone.compute_txid().to_string(), 0, "replaced");
    daemon
}

fn rescan(daemon: &Daemon, from: &str, more: &[&str]) {
    let args = [&["rescan", "--from", from, "--reason", "test", "--apply"], more].concat();
    // "nothing": the same one is under way already.
    let outcome = daemon.json(&args)["outcome"].clone();
    assert!(outcome == "done" || outcome == "nothing", "{outcome}");
    wait_until("the rescan is done", PATIENCE, || {
        daemon.chain("btc")?["rescans"]
            .as_array()?
            .is_empty()
            .then_some(())
    });
}

#[test]
fn rescan_gives_the_same_ids_and_doubles_nothing() {
    let node = FakeNode::regtest(20);
    let mut daemon = eventful_life(&node);
    let before = rows(&daemon);
    assert_eq!(before["credits"].len(), 5);
    for from in ["1", "1", "0", "22", "24"] {
        rescan(&daemon, from, &[]);
        assert_eq!(rows(&daemon), before, "from {from}");
    }
    rescan(&daemon, "1", &["--backfill", "all"]);
    assert_eq!(rows(&daemon), before, "with every rule from the beginning on");
    // Killed in the middle, and asked for twice at once.
    for _ in 0..3 {
        daemon.json(&["rescan", "--from", "1", "--reason", "test", "--apply"]);
        daemon.kill9();
        daemon.start_again();
        rescan(&daemon, "1", &[]);
        assert_eq!(rows(&daemon), before);
    }
    daemon.assert_sound();
}

#[test]
fn fresh_database_over_the_same_chain_gives_the_same_credit_and_event_ids() {
    let node = FakeNode::regtest(20);
    let daemon = eventful_life(&node);
    let mut fresh = Daemon::prepare(&setup(&node));
    fresh.watch(D2);
    fresh.watch(D1);
    fresh.start_again();
    fresh.wait_height(node.height());
    let live = |daemon: &Daemon| -> BTreeMap<String, (String, String)> {
        let created: BTreeMap<String, String> = daemon
            .events_of("credit.created")
            .into_iter()
            .map(|event| (event.subject, event.id))
            .collect();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        daemon
            .credits()
            .iter()
            .filter(|credit| credit["net_base"] != "0")
            .map(|credit| {
                let id = text(&credit["id"]);
                let event = created[&id].clone();
                (id, (text(&credit["net_base"]), event))
            })
            .collect()
    };
    assert_eq!(live(&fresh), live(&daemon));
    assert_eq!(live(&fresh).len(), 4);
    assert_eq!(fresh.net_sum(), 10_000 + 15_000 + 20_000 + 29_000);
    // What never was on this chain is not in the fresh books at all.
    assert_eq!((fresh.credits().len(), daemon.credits().len()), (4, 5));
    fresh.assert_sound();
    daemon.assert_sound();
}

#[test]
fn address_added_late_gets_its_past_only_by_a_backfill_and_only_once() {
    let node = FakeNode::regtest(5);
    let mut daemon = Daemon::prepare(&setup(&node));
    daemon.watch(D1);
    daemon.start_again();
    let old = tx(&[coin(1)], &[(script(D2), 7_000)]);
    let old_id = old.compute_txid().to_string();
    node.mine(vec![old]);
    node.mine(Vec::new());
    node.mine(Vec::new());
    daemon.wait_height(8);
    daemon.watch(D2);
    rescan(&daemon, "1", &[]);
    assert_eq!(
        daemon.tx(&old_id),
        None,
        "nothing below the height that it was added at"
    );
    let first = {
        rescan(&daemon, "1", &["--backfill", D2]);
        daemon.wait_deposit(&old_id, 0, "credited");
        rows(&daemon)
    };
    rescan(&daemon, "1", &["--backfill", D2]);
    assert_eq!(rows(&daemon), first);
    assert_eq!(daemon.net_sum(), 7_000);
    daemon.assert_sound();
}
