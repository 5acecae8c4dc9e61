//! `creditd audit` against a real bitcoind: every fault that is planted in a daemon's file is found, as what
//! it is, though the tables alone say nothing; and where nothing is wrong nothing is found.

mod evm;
mod lying;
mod planted;
mod reach;
mod walk;

use rusqlite::Connection;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::{Child, Stdio};

use planted::{PLANTED, Spoilt, UNGUARD, all_missed, answer, kinds, sql};

use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;
use crate::common::planted::past_guards;
use crate::common::wait::{PATIENCE, wait_until};
use crate::common::wallet::RawTx;
use crate::shop::{Shop, TO_CREDIT, fresh_address, text};

/// The id of no transaction.
const NOBODY: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// No run by the clock, and nothing is too young.
pub const AUDIT: &str = "[audit]\nevery_hours = 0\nage_blocks = 0\n";

fn open() -> Shop {
    Shop::open_with(|setup| setup.tables += AUDIT)
}

/// A payment that is credited.
fn credited(shop: &Shop, sat: u64) -> RawTx {
    let payment = shop.seen_payment(sat);
    shop.node.mine(1 + TO_CREDIT);
    shop.settle();
    shop.await_state(&payment.txid, "credited");
    payment
}

/// Changes the file behind the daemon's back.
fn change(daemon: &Daemon, sql: &str) {
    let database = Connection::open(daemon.database()).unwrap();
    database
        .execute_batch(sql)
        .unwrap_or_else(|error| panic!("{error}: {sql}"));
}

/// The same past the guards of the ledger, which stand again afterwards.
fn change_past_guards(daemon: &Daemon, sql: &str) {
    let database = Connection::open(daemon.database()).unwrap();
    past_guards(&database, UNGUARD, |database| {
        database.execute_batch(sql).unwrap()
    });
}

/// A number in the file; 0 where there is none.
fn number(daemon: &Daemon, sql: &str) -> u64 {
    let database = Connection::open(daemon.database()).unwrap();
    let number = database.query_row(sql, [], |row| row.get::<_, Option<i64>>(0));
    u64::try_from(number.unwrap_or_default().unwrap_or_default()).unwrap()
}

#[track_caller]
fn assert_found((answer, code): &(Value, i32), expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|kind| (*kind).to_owned()).collect();
    assert_eq!((kinds(answer), *code), (expected, 1), "{answer:#}");
}

/// Nothing is found, and the first chain says why not all of it was looked at.
#[track_caller]
fn assert_unchecked((answer, code): &(Value, i32), state: &str) -> Value {
    assert_eq!((&answer["found"], *code), (&json!([]), 2), "{answer:#}");
    assert_eq!(answer["is_complete"], false, "{answer:#}");
    let chains = answer["chains"].as_array().unwrap().iter();
    let mut unchecked = chains.flat_map(|chain| chain["not_checked"].as_array().unwrap());
    let found = unchecked.find(|unchecked| unchecked["state"] == state);
    let found = found.unwrap_or_else(|| panic!("{state}: {answer:#}"));
    assert!(!text(&found["next"]).is_empty(), "{found}");
    found.clone()
}

/// The answer, and how it ended.
fn audit(daemon: &Daemon, more: &[&str]) -> (Value, i32) {
    let args: Vec<&str> = ["audit", "--json"].iter().chain(more).copied().collect();
    answer(&daemon.cli(&args))
}

/// One that is under way.
fn begun(daemon: &Daemon, more: &[&str]) -> Child {
    let mut command = daemon.command(&[&["audit", "--json"], more].concat());
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[track_caller]
fn assert_clean(daemon: &Daemon, more: &[&str]) -> Value {
    let (answer, code) = audit(daemon, more);
    assert_eq!((&answer["found"], code), (&json!([]), 0), "{answer:#}");
    assert_eq!(
        (&answer["is_clean"], &answer["is_complete"]),
        (&json!(true), &json!(true))
    );
    answer
}

#[test]
fn audit_of_a_sound_database_finds_nothing() {
    let shop = open();
    let kept = shop.seen_payment(10_000_000);
    let lost = shop.seen_payment(2_000_000);
    let miner = shop.watch();
    let block = shop.node.generateblock(&[&kept.txid, &lost.txid]);
    shop.node.mine_to(&miner, 1);
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    shop.await_state(&kept.txid, "credited");
    // One of them is lost in a reorg and replaced, the other one moves to another block.
    shop.node.invalidate(&block);
    let coin = shop.node.coin();
    let other = shop.node.spend(&[&coin], &[(&fresh_address(), coin.sat - 1_000)]);
    shop.node.broadcast(&other);
    shop.node.generateblock(&[&kept.txid]);
    shop.mine_empty(TO_CREDIT + 3);
    shop.settle();
    let spent = shop.pay(&shop.node.new_address(), 3_000_000);
    shop.watch_for("shop", &spent_address(&shop, &spent.txid, &spent.hex));
    shop.node.broadcast(&spent);
    shop.node.mine(1);
    shop.node.mine(TO_CREDIT);
    shop.settle();
    shop.await_state(&spent.txid, "credited");
    let back = shop
        .node
        .spend(&[&spent.coin(0)], &[(&fresh_address(), 2_999_000)]);
    shop.node.broadcast(&back);
    shop.node.mine(1);
    shop.settle();
    let answer = assert_clean(&shop.daemon, &["--unspent"]);
    let chain = &answer["chains"][0];
    assert_eq!(
        (&chain["credits"]["checked"], &chain["credits"]["proven"]),
        (&json!(3), &json!(3))
    );
    assert_eq!(
        chain["credits"]["by_unspent"], 2,
        "the other one is spent: {chain:#}"
    );
    assert!(chain["outputs"]["payments"].as_u64().unwrap() >= 2, "{chain:#}");
    assert!(chain["unspent"]["coins"].as_u64().unwrap() >= 1, "{chain:#}");
    // Again, beside a stopped daemon: no block is read twice, and every credit is asked for.
    let answer = assert_clean(&shop.daemon, &[]);
    let chain = &answer["chains"][0];
    assert_eq!(chain["outputs"]["payments"], 0, "{chain:#}");
    assert_eq!(chain["credits"]["checked"], 3, "{chain:#}");
    let answer = assert_clean(&shop.daemon, &["--again", "--chain", "btc"]);
    assert!(answer["books"].is_null());
    assert!(answer["chains"][0]["outputs"]["payments"].as_u64().unwrap() >= 2);
    shop.assert_sound();
}

/// The address that a transaction pays first.
fn spent_address(shop: &Shop, txid: &str, hex: &str) -> String {
    let decoded = shop.node.call("decoderawtransaction", &[json!(hex)]);
    assert_eq!(decoded["txid"], txid);
    text(&decoded["vout"][0]["scriptPubKey"]["address"])
}

#[test]
fn audit_finds_each_planted_fault() {
    let mut shop = open();
    let payment = shop.seen_payment(10_000_000);
    let other = shop.seen_payment(1_000_000);
    shop.watch();
    shop.node.mine(1 + TO_CREDIT + 4);
    shop.settle();
    shop.await_state(&payment.txid, "credited");
    shop.await_state(&other.txid, "credited");
    assert_clean(&shop.daemon, &[]);
    shop.daemon.stop();
    let spoilt = Spoilt::of(&shop.daemon, &payment.txid, NOBODY);
    let all = all_missed(&spoilt, "btc", PLANTED);
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn what_agrees_again_is_no_finding_any_more() {
    let mut shop = open();
    let payment = credited(&shop, 10_000_000);
    shop.daemon.stop();
    let spoilt = Spoilt::of(&shop.daemon, &payment.txid, NOBODY).spoil(PLANTED[0].1);
    let (answer, code) = spoilt.audit(&["--chain", "btc"]);
    assert_eq!(
        (answer["found"].as_array().unwrap().len(), code),
        (2, 1),
        "{answer:#}"
    );
    spoilt.change(
        "UPDATE outputs SET amount = '10000000' WHERE amount = '10000001'; \
         UPDATE credits SET amount = '10000000' WHERE amount = '10000001'; \
         UPDATE events SET body = replace(body, '10000001', '10000000');",
    );
    let (answer, code) = spoilt.audit(&["--chain", "btc"]);
    assert_eq!((&answer["found"], code), (&json!([]), 0), "{answer:#}");
}

/// A ledger row that was changed since the last run, together with everything that the tables hold against
/// it.
#[test]
fn a_ledger_row_changed_between_two_runs_is_found_for_ever() {
    let mut shop = open();
    credited(&shop, 10_000_000);
    shop.daemon.stop();
    assert_clean(&shop.daemon, &["--books"]);
    let other = "UPDATE credits SET created_at = created_at + 1;";
    change_past_guards(&shop.daemon, other);
    for _ in 0..2 {
        let found = audit(&shop.daemon, &["--books"]);
        assert_found(&found, &["invariant"]);
        assert_eq!(found.0["found"][0]["subject"], "I2 ledger", "{found:#?}");
    }
    change_past_guards(&shop.daemon, &other.replace('+', "-"));
    assert_clean(&shop.daemon, &["--books"]);
}

/// What the index of the daemon missed is found without its index: the whole walk through the coins, on a
/// node that has dropped the block.
#[test]
fn a_pruned_node_proves_by_its_unspent_coins() {
    let node = RegtestNode::start_with(&["-prune=1", "-fastprune"]);
    let mut shop = Shop::open_at(node, |setup: &mut Setup| setup.tables += AUDIT);
    let payment = shop.seen_payment(10_000_000);
    shop.node.mine(1);
    let height = shop.node.height();
    shop.node.mine(900);
    shop.settle();
    shop.await_state(&payment.txid, "credited");
    shop.node.call("pruneblockchain", &[json!(height + 500)]);
    let (answer, code) = audit(&shop.daemon, &["--unspent"]);
    let chain = &answer["chains"][0];
    assert_eq!(
        (&answer["is_clean"], code),
        (&json!(true), 2),
        "not all of it can be proven: {answer:#}"
    );
    assert_eq!(
        (&chain["credits"]["proven"], &chain["credits"]["by_unspent"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(chain["unspent"]["coins"], 1, "{chain:#}");
    let unproven = chain["outputs"]["unproven"].to_string();
    assert!(unproven.contains("pruned"), "{unproven}");
    shop.daemon.stop();
    let spoilt = Spoilt::of(&shop.daemon, &payment.txid, NOBODY);
    let spoilt = spoilt.spoil(sql("a payment that is gone"));
    assert_found(
        &spoilt.audit(&["--unspent", "--chain", "btc"]),
        &["unspent_unbooked"],
    );
}

#[test]
fn audit_during_a_reorg_says_nothing_false() {
    let shop = open();
    let payments: Vec<String> = (0..6)
        .map(|_| {
            let payment = shop.seen_payment(1_000_000);
            shop.node.generateblock(&[&payment.txid]);
            payment.txid
        })
        .collect();
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut codes = BTreeSet::new();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let (answer, code) = audit(&shop.daemon, &["--again"]);
                assert_eq!(answer["found"], json!([]), "{answer:#}");
                codes.insert(code);
            }
            codes
        });
        for depth in [1, 3, 5, 8, 2, 6] {
            let fork = shop.node.block_hash(shop.node.height() - depth + 1);
            shop.node.invalidate(&fork);
            // Half of the payments come back in other blocks.
            let back: Vec<String> = shop.node.mempool();
            let back: Vec<&str> = back.iter().map(String::as_str).step_by(2).collect();
            shop.node.generateblock(&back);
            shop.mine_empty(u32::try_from(depth).unwrap() + 1);
            shop.settle();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let codes = asking.join().unwrap();
        assert!(codes.iter().all(|code| [0, 2].contains(code)), "{codes:?}");
    });
    assert_eq!(payments.len(), 6);
    shop.assert_sound();
    assert_clean(&shop.daemon, &["--again"]);
}

#[test]
fn an_audit_that_was_killed_goes_on() {
    let shop = open();
    let payment = shop.seen_payment(10_000_000);
    shop.node.mine(120);
    shop.settle();
    shop.await_state(&payment.txid, "credited");
    let place = || {
        number(
            &shop.daemon,
            "SELECT place FROM audit_marks WHERE pass = 'outputs'",
        )
    };
    let mut killed = 0;
    while killed < 3 {
        let began = place();
        let mut child = begun(&shop.daemon, &["--blocks-per-second", "20"]);
        wait_until("a slice is done", PATIENCE, || (place() > began).then_some(()));
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
    }
    let reached = place();
    let answer = assert_clean(&shop.daemon, &[]);
    let outputs = &answer["chains"][0]["outputs"];
    assert_eq!(outputs["from_height"], reached, "{outputs}");
    assert_eq!(outputs["to_height"], shop.node.height(), "{outputs}");
    assert_eq!(answer["chains"][0]["credits"]["checked"], 1);
}

/// The daemon's own run, hurried: a log line, a metric, and what `creditd jobs` says.
#[test]
fn audit_job_tells_what_it_finds() {
    let mut shop = Shop::open_with(|setup| {
        setup.ops_listen = "127.0.0.1:0".to_owned();
        setup.tables += "[audit]\nage_blocks = 0\n";
    });
    credited(&shop, 10_000_000);
    shop.watch();
    shop.daemon.stop();
    change(
        &shop.daemon,
        "UPDATE outputs SET address = (SELECT max(id) FROM addresses) \
         WHERE id = (SELECT output FROM credits); UPDATE jobs SET next_at = 0 WHERE name = 'audit';",
    );
    shop.daemon.start_again();
    shop.settle();
    let line = "creditd_audit_findings{chain=\"btc\",kind=\"other_content\"} 2";
    wait_until("the metric says so", PATIENCE, || {
        let (_, page) = shop.daemon.ops("/metrics");
        page.contains(line).then_some(())
    });
    assert!(
        shop.daemon.log().contains("audit: other_content cr_"),
        "it is in the log"
    );
    shop.daemon.wait_for("the job says so", &["jobs"], |answer| {
        let mut jobs = answer["jobs"].as_array()?.iter();
        let job = jobs.find(|job| job["job"] == "audit")?;
        let done = job["done"].as_str()?;
        done.ends_with(" checks; 2 found").then_some(())
    });
}

/// Blocks that were read before are read again for an address that has come to count in them since.
#[test]
fn a_lowered_rule_is_read_again() {
    let shop = open();
    let address = fresh_address();
    let payment = shop.pay(&address, 10_000_000);
    shop.node.broadcast(&payment);
    shop.node.mine(1);
    let height = shop.node.height();
    shop.node.mine(30);
    shop.settle();
    let answer = assert_clean(&shop.daemon, &[]);
    assert_eq!(answer["chains"][0]["outputs"]["payments"], 0);
    shop.watch_for("shop", &address);
    let answer = assert_clean(&shop.daemon, &[]);
    let outputs = &answer["chains"][0]["outputs"];
    assert_eq!(
        outputs["from_height"],
        height + 31,
        "it counts from now on: {outputs}"
    );
    let (from, reason) = (height.to_string(), "it was paid before");
    let rescan = [
        "rescan",
        "--from",
        &from,
        "--backfill",
        &address,
        "--reason",
        reason,
        "--apply",
    ];
    shop.daemon.json(&rescan);
    shop.await_state(&payment.txid, "credited");
    let running = "SELECT count(*) FROM rescans WHERE state = 'running'";
    wait_until("the rescan is done", PATIENCE, || {
        (number(&shop.daemon, running) == 0).then_some(())
    });
    shop.settle();
    let answer = assert_clean(&shop.daemon, &[]);
    let outputs = &answer["chains"][0]["outputs"];
    assert_eq!(outputs["from_height"], height, "{outputs}");
    assert_eq!(
        (&outputs["payments"], &outputs["to_height"]),
        (&json!(1), &json!(height + 30))
    );
}
