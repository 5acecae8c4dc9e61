//! Where a walk through the blocks begins, and what it keeps of what was found.

use bitcoincore_rpc::{Client, RpcApi as _};
use serde_json::{Value, json};

use super::planted::{Spoilt, sql};
use super::{AUDIT, NOBODY, assert_clean, assert_found, audit, change, number, open};
use crate::common::daemon::Setup;
use crate::common::stub::{Reply, StubNode};
use crate::common::wait::{PATIENCE, wait_until};
use crate::shop::{Shop, TO_CREDIT, fresh_address};

/// ```text
/// rules lowered to H since: H ----- H+10 --from--- tip
/// ```
#[test]
fn rules_lowered_below_the_height_of_a_walk_are_read_by_the_next() {
    let shop = open();
    let address = fresh_address();
    let payment = shop.pay(&address, 10_000_000);
    shop.node.broadcast(&payment);
    shop.node.mine(1);
    let height = shop.node.height();
    shop.node.mine(30);
    shop.settle();
    assert_clean(&shop.daemon, &[]);
    shop.watch_for("shop", &address);
    let from = height.to_string();
    shop.daemon.json(&[
        "rescan",
        "--from",
        &from,
        "--backfill",
        &address,
        "--reason",
        "it was paid before",
        "--apply",
    ]);
    shop.await_state(&payment.txid, "credited");
    let running = "SELECT count(*) FROM rescans WHERE state = 'running'";
    wait_until("the rescan is done", PATIENCE, || {
        (number(&shop.daemon, running) == 0).then_some(())
    });
    shop.settle();
    let above = (height + 10).to_string();
    let answer = assert_clean(&shop.daemon, &["--chain", "btc", "--from", &above]);
    let outputs = &answer["chains"][0]["outputs"];
    assert_eq!(
        (&outputs["from_height"], &outputs["to_height"]),
        (&json!(height + 10), &json!(height + 30)),
        "{outputs}"
    );
    let answer = assert_clean(&shop.daemon, &[]);
    let outputs = &answer["chains"][0]["outputs"];
    assert_eq!(outputs["from_height"], height, "{outputs}");
}

/// ```text
/// A - B - ... - mark              the walk came here
///  \- B'(paid) - ... - L ...      since then a reorg, and a rule that counts from L on
/// ```
#[test]
fn a_reorg_is_read_though_rules_were_lowered_above_its_fork() {
    let mut shop = open();
    let address = shop.watch();
    shop.watch();
    shop.node.mine(10);
    shop.settle();
    assert_clean(&shop.daemon, &[]);
    let top = shop.node.height();
    shop.node.invalidate(&shop.node.block_hash(top - 5));
    let payment = shop.pay(&address, 10_000_000);
    shop.node.broadcast(&payment);
    shop.node.mine(10);
    shop.settle();
    shop.await_state(&payment.txid, "credited");
    shop.daemon.stop();
    let lower = format!(
        "UPDATE addresses SET from_height = {}, version = version + 1000 \
         WHERE id = (SELECT max(id) FROM addresses)",
        top - 1
    );
    change(&shop.daemon, &lower);
    let spoilt = Spoilt::of(&shop.daemon, &payment.txid, NOBODY).spoil(sql("a payment that is gone"));
    assert_found(&spoilt.audit(&["--chain", "btc"]), &["unbooked"]);
}

/// A missed payment whose coin is spent, or that nobody asks about because the books wait, is missed still.
#[test]
fn what_was_found_unspent_stands_until_it_is_booked() {
    let mut shop = open();
    let to = shop.node.new_address();
    let payment = shop.pay(&to, 10_000_000);
    shop.watch_for("shop", &to);
    shop.node.broadcast(&payment);
    shop.node.mine(1 + TO_CREDIT);
    shop.settle();
    shop.await_state(&payment.txid, "credited");
    shop.daemon.stop();
    let spoilt = Spoilt::of(&shop.daemon, &payment.txid, NOBODY);
    let copied = spoilt.spoil(sql("a payment that is gone"));
    let unspent = ["--unspent", "--chain", "btc"];
    assert_found(&copied.audit(&unspent), &["unbooked", "unspent_unbooked"]);
    let running = "INSERT INTO rescans (id, chain, from_height, next_height, applied_to, state, reason, \
                   asked_at) VALUES (7, 1, 1, 1, 0, 'running', 'test', 0)";
    copied.change(running);
    assert_found(&copied.audit(&unspent), &["unbooked", "unspent_unbooked"]);
    copied.change("UPDATE rescans SET state = 'cancelled', done_at = 0");
    let top = shop.node.block_hash(shop.node.height() - u64::from(TO_CREDIT));
    shop.node.invalidate(&top);
    assert_found(&copied.audit(&unspent), &["unbooked", "unspent_unbooked"]);
    shop.node.reconsider(&top);
    let back = shop
        .node
        .spend(&[&payment.coin(0)], &[(&fresh_address(), 9_999_000)]);
    shop.node.broadcast(&back);
    shop.node.mine(1);
    assert_found(&copied.audit(&unspent), &["unbooked", "unspent_unbooked"]);
    // Once it is booked it is over, though the coin is spent.
    let booked = spoilt.spoil("");
    let columns = "chain, pass, kind, subject, height, what, found_at, seen_at, gone_at";
    booked.change(&format!(
        "ATTACH DATABASE '{}' AS other; INSERT INTO audit_findings ({columns}) \
         SELECT {columns} FROM other.audit_findings; DETACH DATABASE other",
        copied.database().display()
    ));
    let (answer, code) = booked.audit(&unspent);
    assert_eq!((&answer["found"], code), (&json!([]), 0), "{answer:#}");
}

/// ```text
/// A - B - C - D(asked for) - E       the node leaves B between D and E
///  \- B'- C'- D'(paid) - E'- F'
/// ```
#[test]
fn a_branch_that_changes_within_a_slice_is_read_from_its_fork() {
    let shop = open();
    let address = shop.watch();
    shop.node.mine(12);
    shop.settle();
    let top = shop.node.height();
    let (fork, asked) = (shop.node.block_hash(top - 5), shop.node.block_hash(top - 3));
    let payment = shop.pay(&address, 10_000_000);
    let stub = StubNode::in_front_of(&shop.node);
    let mut setup = Setup::for_stub(&stub);
    setup.tables += AUDIT;
    // The daemon has read its config: it follows the node itself.
    shop.daemon.write_config(&setup);
    let (node, database) = (shop.node.rpc(), shop.daemon.database());
    let (mut has_left, hex) = (false, payment.hex.clone());
    stub.handle(move |call| {
        let is_it = call.method == "getblock" && call.params[0] == asked.as_str();
        if is_it && !std::mem::replace(&mut has_left, true) {
            let old: Value = node.call("getblock", &[json!(asked), json!(0)]).unwrap();
            leave(&node, &fork, &hex);
            let tip: String = node.call("getbestblockhash", &[]).unwrap();
            let ours = format!(
                "SELECT 1 FROM chains c JOIN headers h ON h.chain = c.id AND h.height = c.cursor_height \
                 WHERE h.hash = X'{tip}'"
            );
            wait_until("the daemon has followed", PATIENCE, || {
                let database = rusqlite::Connection::open(&database).unwrap();
                database.query_row(&ours, [], |_| Ok(())).ok()
            });
            return Some(Reply::Result(old));
        }
        None
    });
    let answer = assert_clean(&shop.daemon, &["--chain", "btc"]);
    let outputs = &answer["chains"][0]["outputs"];
    assert_eq!(
        (&outputs["payments"], &outputs["to_height"]),
        (&json!(1), &json!(shop.node.height())),
        "{outputs}"
    );
    assert_eq!(shop.node.height(), top + 2);
}

/// Goes to another branch that pays in its third block.
fn leave(node: &Client, fork: &str, hex: &str) {
    let _: Value = node.call("invalidateblock", &[json!(fork)]).unwrap();
    for number in 0..8 {
        let paid = if number == 2 { vec![hex] } else { Vec::new() };
        let to = fresh_address();
        let _: Value = node.call("generateblock", &[json!(to), json!(paid)]).unwrap();
    }
}

/// The daemon that stops ends what the node does for it: nobody hears how the walk ends.
#[test]
fn a_daemon_that_stops_ends_the_walk_of_its_node() {
    let mut shop = open();
    shop.watch();
    shop.node.mine(3);
    shop.settle();
    shop.daemon.stop();
    let stub = StubNode::in_front_of(&shop.node);
    stub.handle(|call| {
        let what = call
            .params
            .first()
            .and_then(|what| what.as_str())
            .unwrap_or_default();
        (call.method == "scantxoutset").then(|| match what {
            "start" => Reply::Hang,
            "abort" => Reply::Result(json!(true)),
            _ => Reply::Result(json!({ "progress": 7 })),
        })
    });
    let mut setup = Setup::for_stub(&stub);
    setup.tables += &AUDIT.replace("every_hours = 0", "unspent = true");
    shop.daemon.write_config(&setup);
    let was_asked = |what: &str| {
        let mut calls = stub.calls().into_iter();
        calls.any(|call| call.method == "scantxoutset" && call.params[0] == what)
    };
    shop.daemon.start_again();
    wait_until("the job is known", PATIENCE, || {
        let due = "UPDATE jobs SET next_at = 0 WHERE name = 'audit'";
        change(&shop.daemon, due);
        was_asked("start").then_some(())
    });
    shop.daemon.stop();
    assert!(was_asked("abort"), "it still walks");
}

/// What a node could not show before comes behind what is new, and at the same pace.
#[test]
fn what_earlier_runs_left_is_asked_behind_what_is_new() {
    let mut shop: Shop = open();
    shop.watch();
    shop.node.mine(60);
    shop.settle();
    shop.daemon.stop();
    assert_clean(&shop.daemon, &[]);
    shop.daemon.start_again();
    shop.node.mine(5);
    shop.settle();
    shop.daemon.stop();
    let top = shop.node.height();
    // Each second one of the blocks before, so that they do not touch.
    change(
        &shop.daemon,
        &format!(
            "WITH RECURSIVE n (height) AS (SELECT {} UNION ALL SELECT height + 2 FROM n WHERE height < {}) \
             INSERT INTO audit_unread (chain, from_height, to_height, why) \
             SELECT 1, height, height, 'gone' FROM n",
            top - 60,
            top - 8
        ),
    );
    let stub = StubNode::in_front_of(&shop.node);
    let mut setup = Setup::for_stub(&stub);
    setup.tables += AUDIT;
    shop.daemon.write_config(&setup);
    let new = shop.node.block_hash(top);
    let is_old = {
        let old: Vec<String> = (top - 60..=top - 6)
            .map(|height| shop.node.block_hash(height))
            .collect();
        move |hash: &str| old.iter().any(|old| old == hash)
    };
    let refuse = is_old.clone();
    stub.handle(move |call| {
        let hash = call
            .params
            .first()
            .and_then(|hash| hash.as_str())
            .unwrap_or_default();
        (call.method == "getblock" && refuse(hash)).then_some(Reply::Error(-1, "Block not available"))
    });
    let (answer, code) = audit(&shop.daemon, &["--chain", "btc"]);
    assert_eq!((&answer["found"], code), (&json!([]), 2), "{answer:#}");
    let asked: Vec<String> = stub
        .calls()
        .into_iter()
        .filter(|call| call.method == "getblock")
        .map(|call| call.params[0].as_str().unwrap().to_owned())
        .collect();
    let place_of_new = asked.iter().position(|hash| *hash == new);
    let place_of_old = asked.iter().position(|hash| is_old(hash));
    assert!(
        place_of_new.is_some() && place_of_old > place_of_new,
        "{place_of_new:?} {place_of_old:?}"
    );
    let retried = asked.iter().filter(|hash| is_old(hash)).count();
    assert!(retried <= 20, "{retried} of what cannot be read were asked for");
}
