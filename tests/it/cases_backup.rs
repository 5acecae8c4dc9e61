//! C53 (a, b): a backup is one state of the database, whole, and a plain copy of its file is none.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rusqlite::Connection;
use tempfile::TempDir;

use crate::common::asks::{D1, script};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::wait::{PATIENCE, wait_until};

const DEPOSITS_PER_BLOCK: u32 = 20;

/// A daemon that credits at once, on a node at height 1.
fn follow(node: &FakeNode) -> (Daemon, Setup) {
    let setup = Setup {
        confirmations: 1,
        chain_lines: "start = 1\n".to_owned(),
        ..Setup::for_stub(&node.stub)
    };
    let daemon = Daemon::watching(&setup, D1, 1);
    (daemon, setup)
}

/// Mines one block with twenty payments after the other, as fast as the daemon takes them.
fn pay_while(node: &FakeNode, daemon: &Daemon, go_on: &AtomicBool) {
    let mut number = 0;
    while go_on.load(Ordering::Relaxed) {
        let payments = (0..DEPOSITS_PER_BLOCK).map(|_| {
            number += 1;
            tx(&[coin(number)], &[(script(D1), u64::from(number))])
        });
        node.mine(payments.collect());
        let credited = i64::from(number);
        wait_until("the block is credited", PATIENCE, || {
            (daemon.count("SELECT count(*) FROM credits") == credited).then_some(())
        });
    }
}

fn credit_ids(database: &Path) -> BTreeSet<String> {
    let database = Connection::open(database).unwrap();
    let mut statement = database.prepare("SELECT id FROM credits").unwrap();
    let ids = statement.query_map([], |row| row.get(0)).unwrap();
    ids.map(Result::unwrap).collect()
}

#[track_caller]
fn assert_whole(copy: &Path) {
    let database = Connection::open(copy).unwrap();
    let verdict: String = database
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok", "{}", copy.display());
}

/// A daemon's folder around a copy of a database, not started.
fn beside_a_copy(setup: &Setup, copy: &Path) -> Daemon {
    let daemon = Daemon::prepare(setup);
    std::fs::copy(copy, daemon.database()).unwrap();
    daemon
}

#[test]
fn c53_every_backup_of_a_busy_database_is_whole_and_holds_what_was_credited_before() {
    let node = FakeNode::regtest(1);
    let (mut daemon, setup) = follow(&node);
    let folder = TempDir::new().unwrap();
    let go_on = AtomicBool::new(true);
    let copies: Vec<(PathBuf, BTreeSet<String>)> = thread::scope(|scope| {
        let payer = scope.spawn(|| pay_while(&node, &daemon, &go_on));
        // A dozen, and more until something was credited between the first and the last.
        let mut copies: Vec<(PathBuf, BTreeSet<String>)> = Vec::new();
        let is_busy = |copies: &[(PathBuf, BTreeSet<String>)]| match copies {
            [first, .., last] => copies.len() < 12 || first.1.len() == last.1.len(),
            _ => true,
        };
        while is_busy(&copies) {
            let copy = folder.path().join(format!("backup-{}.db", copies.len()));
            let before = credit_ids(&daemon.database());
            let made = daemon.json(&["backup", copy.to_str().unwrap()]);
            assert_eq!(made["file"], copy.to_str().unwrap());
            copies.push((copy, before));
        }
        go_on.store(false, Ordering::Relaxed);
        payer.join().unwrap();
        copies
    });
    let all = credit_ids(&daemon.database());
    assert!(
        copies.first().unwrap().1.len() < copies.last().unwrap().1.len(),
        "nothing was credited meanwhile"
    );
    for (copy, before) in &copies {
        assert_whole(copy);
        let held = credit_ids(copy);
        assert!(
            held.is_superset(before),
            "{}: a credit is missing",
            copy.display()
        );
        assert!(held.is_subset(&all));
    }
    let names: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("backup-") && name.ends_with(".db")),
        "no temporary name is left: {names:?}"
    );
    // A copy is a database like any other: it catches up to the same credits, with the same ids.
    let events = daemon.events_of("credit.created");
    daemon.stop();
    let mut restored = beside_a_copy(&setup, &copies[3].0);
    restored.start_again();
    restored.wait_height(node.height());
    assert_eq!(credit_ids(&restored.database()), all);
    let ids = |events: &[crate::common::asks::Event]| -> BTreeSet<String> {
        events.iter().map(|event| event.id.clone()).collect()
    };
    assert_eq!(ids(&restored.events_of("credit.created")), ids(&events));
    restored.assert_sound();
}

#[test]
fn c53_backup_gets_its_name_only_when_whole_and_takes_nobody_elses() {
    let node = FakeNode::regtest(1);
    let (daemon, _) = follow(&node);
    node.mine(vec![tx(&[coin(1)], &[(script(D1), 1_000)])]);
    daemon.wait_height(2);
    let folder = TempDir::new().unwrap();
    let there = folder.path().join("there.db");
    std::fs::write(&there, "something of value").unwrap();
    for target in [&there, &daemon.database()] {
        let output = daemon.cli(&["backup", target.to_str().unwrap()]);
        assert!(!output.status.success(), "{output:?}");
    }
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "something of value");
    let nowhere = folder.path().join("missing/backup.db");
    assert_eq!(
        daemon.cli(&["backup", nowhere.to_str().unwrap()]).status.code(),
        Some(2)
    );
    let replaced = daemon.cli(&["backup", "--replace", there.to_str().unwrap()]);
    assert!(
        !replaced.status.success(),
        "never over what is no backup: {replaced:?}"
    );
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "something of value");
    std::fs::remove_file(&there).unwrap();
    daemon.json(&["backup", there.to_str().unwrap()]);
    node.mine(vec![tx(&[coin(2)], &[(script(D1), 2_000)])]);
    daemon.wait_height(3);
    daemon.json(&["backup", "--replace", there.to_str().unwrap()]);
    assert_whole(&there);
    let replaced = daemon.cli(&["backup", "--replace", daemon.database().to_str().unwrap()]);
    assert!(
        !replaced.status.success(),
        "never over the database itself: {replaced:?}"
    );
    assert_eq!(daemon.net_sum(), 3_000);
    let names = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 1, "a refused backup leaves nothing behind");
}

#[test]
fn c53_plain_copy_of_the_main_file_is_refused_or_ends_at_the_same_credits() {
    let node = FakeNode::regtest(1);
    let (mut daemon, setup) = follow(&node);
    let folder = TempDir::new().unwrap();
    let go_on = AtomicBool::new(true);
    let copies: Vec<PathBuf> = thread::scope(|scope| {
        let payer = scope.spawn(|| pay_while(&node, &daemon, &go_on));
        let copies = (1..=4).map(|number: i64| {
            wait_until("more was credited", PATIENCE, || {
                (daemon.count("SELECT count(*) FROM credits") >= number * 100).then_some(())
            });
            let copy = folder.path().join(format!("cp-{number}.db"));
            std::fs::copy(daemon.database(), &copy).unwrap();
            copy
        });
        let copies = copies.collect();
        go_on.store(false, Ordering::Relaxed);
        payer.join().unwrap();
        copies
    });
    let all = credit_ids(&daemon.database());
    let height = node.height();
    daemon.stop();
    for copy in copies {
        let mut copied = beside_a_copy(&setup, &copy);
        copied.start_again();
        let outcome = wait_until("it is refused or has caught up", PATIENCE, || {
            if !copied.is_running() {
                return Some("refused");
            }
            (copied.chain("btc")?["height"] == height).then_some("caught up")
        });
        if outcome == "refused" {
            assert!(copied.log().contains("damaged"), "it says why: {}", copied.log());
            continue;
        }
        // Whatever the copy had, it is a state of some moment. Its address may not have been in it yet.
        let held = credit_ids(&copied.database());
        let has_rule = copied.count("SELECT count(*) FROM addresses") > 0;
        assert_eq!(held, if has_rule { all.clone() } else { BTreeSet::new() });
        copied.assert_sound();
    }
}

#[test]
fn c53_backup_put_over_a_live_database_is_not_mixed_with_its_log() {
    let node = FakeNode::regtest(1);
    let (mut daemon, _) = follow(&node);
    let folder = TempDir::new().unwrap();
    let copy = folder.path().join("backup.db");
    node.mine(vec![tx(&[coin(1)], &[(script(D1), 1_000)])]);
    daemon.wait_height(2);
    daemon.json(&["backup", copy.to_str().unwrap()]);
    node.mine(vec![tx(&[coin(2)], &[(script(D1), 2_000)])]);
    daemon.wait_height(3);
    // The daemon dies, and the backup is copied over the main file while its log is still beside it.
    daemon.kill9();
    std::fs::copy(&copy, daemon.database()).unwrap();
    let refused = daemon.cli(&["run"]);
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains("-wal"), "it says what to remove: {told}");
    let beside = |end: &str| PathBuf::from(format!("{}{end}", daemon.database().display()));
    std::fs::remove_file(beside("-wal")).unwrap();
    let _ = std::fs::remove_file(beside("-shm"));
    daemon.start_again();
    daemon.wait_height(3);
    assert_eq!(
        daemon.net_sum(),
        3_000,
        "what came since is found on the chain again"
    );
    daemon.assert_sound();
}

/// A backup that is forty blocks old, in which five deposits were credited and told of.
#[test]
fn c53_restored_backup_is_noticed_and_ends_at_the_same_credits_and_events() {
    let node = FakeNode::regtest(1);
    let (mut daemon, _) = follow(&node);
    let folder = TempDir::new().unwrap();
    let copy = folder.path().join("backup.db");
    node.mine(vec![tx(&[coin(1)], &[(script(D1), 1_000)])]);
    daemon.wait_height(2);
    daemon.json(&["backup", copy.to_str().unwrap()]);
    for number in 2..7 {
        node.mine(vec![tx(
            &[coin(number)],
            &[(script(D1), u64::from(number) * 1_000)],
        )]);
        (0..7).for_each(|_| drop(node.mine(Vec::new())));
    }
    daemon.wait_height(42);
    let told = |daemon: &Daemon| -> BTreeSet<String> {
        let events = daemon.events_of("credit.created").into_iter();
        events.map(|event| event.id).collect()
    };
    let (events, ids) = (told(&daemon), credit_ids(&daemon.database()));
    assert_eq!((events.len(), ids.len()), (6, 6));
    daemon.stop();
    std::fs::copy(&copy, daemon.database()).unwrap();
    assert_eq!(
        daemon.count("SELECT count(*) FROM credits"),
        1,
        "it is the old one"
    );
    let restore = daemon.check_line("restore").expect("a start would notice it");
    assert_eq!(restore["verdict"], "warning");
    let found = restore["found"].as_str().unwrap();
    assert!(found.contains("40 blocks behind the high-water file"), "{found}");
    daemon.start_again();
    daemon.wait_height(42);
    daemon.wait_for("it is caught up", &["restored"], |restored| {
        (restored["restores"][0]["is_done"] == true).then_some(())
    });
    assert_eq!(daemon.check_line("restore"), None, "that is over");
    assert_eq!((told(&daemon), credit_ids(&daemon.database())), (events, ids));
    assert_eq!(daemon.events_of("credit.created").len(), 6, "each once");
    assert_eq!(daemon.net_sum(), 21_000);
    let log = daemon.log();
    assert!(
        log.contains("40 blocks behind the high-water file: restored from a backup?"),
        "{log}"
    );
    daemon.assert_sound();
}

#[test]
fn c53_documentation_says_never_to_copy_the_file() {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::prepare(&Setup::for_stub(&node.stub));
    let told = |args: &[&str]| String::from_utf8(daemon.cli(args).stdout).unwrap();
    let help = told(&["backup", "--help"]);
    assert!(help.contains("Never copy the database"), "{help}");
    let written = daemon.folder().join("fresh.toml");
    daemon.cli(&["init", written.to_str().unwrap()]);
    let config = std::fs::read_to_string(written).unwrap();
    assert!(config.contains("copy it only with `creditd backup`"), "{config}");
}
