//! `creditd drill`: what a repeat writes, backups, chains that the config has lost, and the room it takes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use creditd::drill::{Drill, Input};
use serde_json::{Value, json};

use crate::common::asks::{D1, script};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::drill::{DAYS, Shop, fed, text};

/// Faults that act where an input comes again, as one of the daemon would: where, and which input it is.
const PLANTED: [(&str, Input); 3] = [
    ("AFTER INSERT ON rescans", Input::Blocks),
    ("AFTER UPDATE OF duplicates ON inbox", Input::Inbox),
    ("AFTER INSERT ON attempts", Input::Deliveries),
];

/// Nothing is spoilt between the inputs here: what is fed writes a row that it must not write, and no more.
#[test]
fn drill_finds_what_a_repeat_writes_and_names_the_row() {
    let shop = Shop::open();
    assert_eq!(shop.report(0, &["--passes", "1"])["is_clean"], true);
    for (place, input) in PLANTED {
        shop.spoil(&format!(
            "CREATE TRIGGER planted {place} \
             BEGIN INSERT OR IGNORE INTO merchants (id, slug, created_at) VALUES (4711, 'planted', 7); END"
        ));
        let output = shop.daemon.cli(&["drill", "--days", DAYS]);
        let said = text(&output.stdout);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{place}: {said}{}",
            text(&output.stderr)
        );
        let chain = match input {
            Input::Blocks => " btc",
            _ => "",
        };
        let line = format!(
            "CHANGED  pass 1, {}{chain}: merchants added    id=4711 slug=planted",
            input.word()
        );
        assert!(said.contains(&line), "{place}: {line}\n{said}");
        assert_eq!(said.matches("CHANGED  ").count(), 1, "{place}: {said}");
        shop.spoil("DROP TRIGGER planted");
    }
    shop.report(0, &["--passes", "1"]);
    let planted = "SELECT count(*) FROM merchants WHERE slug = 'planted'";
    assert_eq!(shop.daemon.count(planted), 0, "production was not touched");
}

#[test]
fn a_chain_that_the_config_does_not_name_any_more_is_named() {
    let shop = Shop::open();
    shop.daemon.write_config(&Setup {
        instance: "other".to_owned(),
        ..Setup::for_stub(&shop.node.stub)
    });
    let report = shop.report(2, &["--passes", "1"]);
    let why = fed(&report, "blocks")["why_not"].as_str().unwrap();
    assert!(
        why.contains("does not name chain") && why.contains("@test"),
        "{why}"
    );
    assert_eq!(
        (&report["is_clean"], &report["is_complete"]),
        (&json!(true), &json!(false))
    );
    shop.report(0, &["--passes", "1", "--without-nodes"]);
}

#[test]
fn a_backup_is_restored_and_then_drilled() {
    let mut shop = Shop::open();
    shop.daemon.json(&["backup", "early.db"]);
    shop.daemon.start_again();
    shop.node.mine(vec![tx(&[coin(5)], &[(script(D1), 3_000_000)])]);
    for _ in 0..3 {
        shop.node.mine(Vec::new());
    }
    shop.daemon.wait_height(12);
    shop.daemon.stop();
    let credits = shop.daemon.credits().len();
    let files = shop.files();
    let report = shop.report(0, &["--from-backup", "early.db"]);
    assert_eq!(shop.files(), files, "the live file, the backup and their folder");
    assert_eq!(
        (&report["is_clean"], &report["is_complete"]),
        (&json!(true), &json!(true))
    );
    let restored = &report["restored"][0];
    assert_eq!(
        (
            &restored["chain"],
            &restored["from"],
            &restored["to"],
            &restored["is_done"]
        ),
        (&json!("btc"), &json!(8), &json!(12), &json!(true)),
        "{report}"
    );
    // Blocks at which a reorg could have begun are told of too.
    assert_eq!(restored["credits_told"], credits);
    let settled = report["settled"].as_array().unwrap().iter();
    let added: Vec<&Value> = settled.filter(|settled| settled["table"] == "credits").collect();
    assert_eq!(added.len(), 1, "{report}");
    assert_eq!((&added[0]["rows"], &report["generation"]), (&json!(1), &json!(1)));
    assert_eq!(fed(&report, "blocks")["to"], 12);
    let words = shop.daemon.cli(&[
        "drill",
        "--days",
        DAYS,
        "--passes",
        "1",
        "--from-backup",
        "early.db",
    ]);
    let said = text(&words.stdout);
    assert!(
        said.contains("restored     btc from 8 to 12: ") && said.contains("the restore brought: "),
        "{said}"
    );
    assert_eq!(shop.copies(), 0);
}

#[test]
fn a_drill_that_would_fill_the_disk_does_not_begin() {
    let shop = Shop::open();
    let large = shop.daemon.folder().join("large.db");
    std::fs::copy(shop.daemon.database(), &large).unwrap();
    // A hole: it takes no room itself.
    std::fs::OpenOptions::new()
        .write(true)
        .open(&large)
        .unwrap()
        .set_len(4 << 40)
        .unwrap();
    let output = shop.drill(&["--from-backup", "large.db"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("free, and a drill takes 879") && stderr.contains("--folder"),
        "{stderr}"
    );
    assert_eq!(shop.copies(), 0);
}

/// All that lies in a folder, in bytes.
fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[test]
fn a_drill_takes_no_more_room_than_it_asks_for() {
    const MB: u64 = 1_000_000;
    let shop = Shop::open();
    // Of a table that is scrubbed: every row of it is rewritten, and most of each stays.
    shop.spoil(
        "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 4000) \
         INSERT INTO idempotency \
             (owner, method, path, key, fingerprint, status, body, created_at, keep_until) \
             SELECT 1, 'POST', '/v1/' || hex(randomblob(5000)), 'k' || id, randomblob(32), 201, \
                 '{\"id\":' || id || '}', 0, 0 FROM n;",
    );
    let folder = tempfile::tempdir().unwrap();
    let database = std::fs::metadata(shop.daemon.database()).unwrap().len();
    assert!(database > 40 * MB);
    let (is_over, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                peak.fetch_max(size(folder.path()), Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        let report = shop.run_with(Drill {
            folder: Some(folder.path().to_owned()),
            // So that it goes back to the beginning, too.
            before: Some(Arc::new(|pass: u32, input: Input, copy: &Path| {
                if (pass, input) == (1, Input::Start) {
                    let sql = "INSERT INTO merchants (slug, created_at) VALUES ('new', 0)";
                    let copy = rusqlite::Connection::open(copy).unwrap();
                    copy.execute_batch(sql).unwrap();
                }
            })),
            ..Drill::default()
        });
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(report.unwrap().changed_rows, 1);
    });
    let peak = peak.into_inner();
    eprintln!("{} MB of a database of {} MB", peak / MB, database / MB);
    assert!(peak > database, "{peak}");
    // Most of what is asked for beside the two copies is for what a busy chain writes.
    assert!(peak < 2 * database + 8 * MB, "{peak} of {database}");
}

/// As one that was made before the first start: a rescan and a restore of it have nothing to go on with.
#[test]
fn a_drill_without_anything_to_try_says_so_and_is_no_good_news() {
    let node = FakeNode::regtest(3);
    let daemon = Daemon::prepare(&Setup::for_stub(&node.stub));
    daemon.watch(D1);
    daemon.json(&["backup", "early.db"]);
    let backup = [
        "drill",
        "--days",
        DAYS,
        "--passes",
        "1",
        "--from-backup",
        "early.db",
    ];
    for args in [&backup[..], &backup[..5]] {
        let output = daemon.cli(args);
        let (said, why) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}{why}");
        assert!(
            why.contains("nothing could be tried") && why.contains("next: "),
            "{why}"
        );
        let is_backup = args.len() > 5;
        let nothing = said.contains("nothing could be tried: nothing of the last 3,650 days");
        assert_eq!(nothing, !is_backup, "{said}");
        let is_named = said.contains("NOT FED: not tried: the backup has read no block of it");
        assert_eq!(is_named, is_backup, "{said}");
    }
    let output = daemon.cli(&[&backup[..], &["--json"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (key, is) in [("is_clean", true), ("is_complete", false), ("is_tried", false)] {
        assert_eq!(report[key], is, "{key}: {report}");
    }
}

/// It is asked for by name, and was never followed: that is no database without anything of those days.
#[test]
fn a_chain_that_was_never_followed_is_told_as_such() {
    let node = FakeNode::regtest(3);
    let daemon = Daemon::prepare(&Setup::for_stub(&node.stub));
    daemon.watch(D1);
    let output = daemon.cli(&["drill", "--passes", "1", "--chain", "btc"]);
    let (said, why) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{said}{why}");
    let line = "NOT FED: it was never followed: `creditd run` with this config does that";
    assert!(said.contains(line), "{said}");
    assert!(!said.contains("nothing of the last"), "{said}");
    assert!(why.contains("next: see NOT FED"), "{why}");
}

/// Blocks and a credit are there, and no request, webhook or callback.
#[test]
fn what_was_left_out_or_not_fed_is_told_as_such_and_not_as_a_database_without_anything() {
    let node = FakeNode::regtest(3);
    node.mine(vec![tx(&[coin(7)], &[(script(D1), 1_000)])]);
    let setup = Setup {
        confirmations: 1,
        chain_lines: "start = 1\n".to_owned(),
        ..Setup::for_stub(&node.stub)
    };
    let mut daemon = Daemon::watching(&setup, D1, 4);
    assert_eq!(daemon.net_sum(), 1_000);
    daemon.stop();
    daemon.json(&["backup", "b1.db"]);
    let drill = |more: &[&str]| {
        let output = daemon.cli(&[&["drill", "--days", DAYS, "--passes", "1"], more].concat());
        let (said, why) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(2), "{more:?}: {said}{why}");
        assert!(!said.contains("tried: nothing of the last"), "{more:?}: {said}");
        assert!(!why.contains("followed its chains"), "{more:?}: {why}");
        (said, why)
    };
    for more in [
        &["--without-nodes"][..],
        &["--without-nodes", "--from-backup", "b1.db"],
    ] {
        let (said, why) = drill(more);
        let line = "nothing could be tried: --without-nodes leaves out blocks and lists, and no request, \
                    webhook or callback of the last 3,650 days is there to come again";
        assert!(said.contains(line), "{said}");
        assert!(why.contains("next: leave out --without-nodes"), "{why}");
    }
    node.back_to(2);
    for more in [&[][..], &["--from-backup", "b1.db"]] {
        let (said, why) = drill(more);
        let line = "NOT FED: not tried: the node is 2 blocks behind, at height 2";
        assert!(said.contains(line), "{said}");
        assert!(said.contains("nothing could be tried: see NOT FED"), "{said}");
        assert!(why.contains("next: see NOT FED: wait for the node"), "{why}");
    }
}

/// The daemon forgets what sources sent that its config does not name any more, and so does its copy.
#[test]
fn the_jobs_of_a_drill_are_those_of_the_inbox_that_the_copy_has() {
    let shop = Shop::open();
    shop.spoil("UPDATE inbox SET settled_at = 1 WHERE event_id = 'evt_2'");
    let report = shop.report(0, &["--passes", "1"]);
    assert_eq!(fed(&report, "jobs")["count"], 3, "{report}");
    let settled = report["settled"].as_array().unwrap().iter();
    let inbox: Vec<&Value> = settled.filter(|settled| settled["table"] == "inbox").collect();
    assert_eq!(inbox[0]["rows"], 1, "its body is forgotten: {report}");
}

#[test]
fn a_file_that_is_no_backup_is_spoken_of_as_one_and_not_as_the_database() {
    let shop = Shop::open();
    std::fs::write(shop.daemon.folder().join("notes.db"), "bread, milk").unwrap();
    for (file, why, next) in [
        (
            "nowhere.db",
            "there is no such file",
            "that `creditd backup` or [backup] made",
        ),
        (
            "notes.db",
            "is not a creditd database",
            "name a backup of creditd",
        ),
    ] {
        let none = shop.drill(&["--from-backup", file]);
        let said = text(&none.stderr);
        assert_eq!(none.status.code(), Some(2), "{said}");
        let head = format!("drill {file}: ");
        assert!(
            said.contains(&head) && said.contains(why) && said.contains(next),
            "{said}"
        );
        assert!(
            !said.contains("creditd run") && !said.contains("in the config"),
            "{said}"
        );
    }
    assert_eq!(shop.copies(), 0);
}

/// The first line says alone what could not be done.
#[test]
fn a_drill_that_cannot_begin_says_what_it_could_not_do() {
    let node = FakeNode::regtest(3);
    let daemon = Daemon::prepare(&Setup::for_stub(&node.stub));
    daemon.watch(D1);
    let head = |args: &[&str]| {
        let output = daemon.cli(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let line = said.lines().find(|line| line.starts_with("creditd: "));
        line.unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let nowhere = head(&["drill", "--folder", "/nonexistent"]);
    assert!(
        nowhere.starts_with("creditd: make the folder /nonexistent/creditd-drill-"),
        "{nowhere}"
    );
    std::fs::remove_file(daemon.database()).unwrap();
    let gone = head(&["drill"]);
    assert!(gone.starts_with("creditd: open the database"), "{gone}");
}
