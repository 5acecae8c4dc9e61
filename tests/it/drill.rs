//! `creditd drill`: everything of the last days once more, on a copy, and what that would change.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

use creditd::config::Config;
use creditd::drill::{self, Before, Drill, DrillError, Input, Report};
use creditd::store::{Database, Effect, NewInbox, OpenMode};
use serde_json::{Value, json};

use crate::common::asks::{D1, D2, script};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::planted::past_guards;
use crate::common::receiver::{Receiver, answer};
use crate::common::stub::Reply;
use crate::common::wait::{PATIENCE, wait_until};
use crate::full_disk::Disk;

/// The blocks of the played node are some years old.
pub const DAYS: &str = "3650";

/// A shop that was paid, told of it, and asked under keys; its daemon is stopped.
pub struct Shop {
    pub node: FakeNode,
    receiver: Receiver,
    pub daemon: Daemon,
}

impl Shop {
    pub fn open() -> Shop {
        let node = FakeNode::regtest(3);
        let receiver = Receiver::http(Ipv4Addr::LOCALHOST, |_, to| answer(to, 204, b""));
        let mut daemon = Daemon::start(&Setup {
            tables: "[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n".to_owned(),
            ..Setup::for_stub(&node.stub)
        });
        daemon.wait_height(3);
        let url = format!("http://{}/hook", receiver.address);
        let add = ["endpoint", "add", &url, "--merchant", "shop"];
        daemon.json(&[&add[..], &["--idempotency-key", "k1"]].concat());
        daemon.watch(D1);
        // Not watched yet: nothing below counts for D2.
        node.mine(vec![tx(&[coin(9)], &[(script(D2), 900_000)])]);
        node.mine(vec![tx(&[coin(1)], &[(script(D1), 1_000_000)])]);
        for _ in 0..3 {
            node.mine(Vec::new());
        }
        daemon.wait_height(8);
        daemon.watch(D2);
        let pending = tx(&[coin(2)], &[(script(D1), 70_000)]);
        node.state().mempool.push(pending.clone());
        daemon.wait_deposit(&pending.compute_txid().to_string(), 0, "seen");
        wait_until("all is delivered", PATIENCE, || {
            let waiting = "SELECT count(*) FROM deliveries WHERE state <> 'delivered'";
            (daemon.count(waiting) == 0 && daemon.credits().len() == 1).then_some(())
        });
        daemon.stop();
        let shop = Shop {
            node,
            receiver,
            daemon,
        };
        shop.take_in();
        shop
    }

    /// Two webhooks of another service: one that was done, one that is parked.
    fn take_in(&self) {
        let mut database = Database::open(&self.daemon.database(), OpenMode::Write).unwrap();
        let event = |id: &str| NewInbox {
            source: "gateway".to_owned(),
            event_id: id.to_owned(),
            fingerprint: [7; 32],
            body: b"{}".to_vec(),
        };
        let now = 1_900_000_000_000;
        database
            .write(now, |tx| {
                for id in ["evt_1", "evt_2"] {
                    tx.receive_inbox(&event(id))?;
                }
                tx.park_inbox(&creditd::rules::ids::inbox_id("gateway", "evt_1"), "a test")?;
                let done = creditd::rules::ids::inbox_id("gateway", "evt_2");
                tx.settle_inbox(&done, &Effect::Nothing("a test".to_owned()))
            })
            .unwrap();
    }

    pub fn drill(&self, args: &[&str]) -> Output {
        let all = [&["drill", "--days", DAYS, "--json"], args].concat();
        self.daemon.cli(&all)
    }

    #[track_caller]
    pub fn report(&self, code: i32, args: &[&str]) -> Value {
        let output = self.drill(args);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{stdout}{stderr}");
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"))
    }

    /// Every file but the log and SQLite's index of its own: its bytes, and when it was written.
    pub fn files(&self) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
        let entries = std::fs::read_dir(self.daemon.folder()).unwrap();
        let files = entries.map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let written = entry.metadata().unwrap().modified().unwrap();
            (name, (std::fs::read(entry.path()).unwrap_or_default(), written))
        });
        files
            .filter(|(name, _)| !name.ends_with(".log") && !name.ends_with("-shm"))
            .collect()
    }

    /// Runs it in this process.
    fn run(&self, before: Option<Before>) -> Result<Report, DrillError> {
        self.run_with(Drill {
            before,
            ..Drill::default()
        })
    }

    pub fn run_with(&self, how: Drill) -> Result<Report, DrillError> {
        let config = Config::load(Some(&self.daemon.config_file())).unwrap();
        drill::run(&config, &Drill { days: 3_650, ..how }, |_| {})
    }

    /// From now on the node answers so.
    pub fn answers(&self, method: &str, reply: Reply) {
        self.node.state().overrides.insert(method.to_owned(), reply);
    }

    /// The folders of drills.
    pub fn drills(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.daemon.folder()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.to_string_lossy().contains("creditd-drill-"))
            .collect()
    }

    pub fn copies(&self) -> usize {
        self.drills().len()
    }

    /// Changes the database, as a fault of the daemon would.
    pub fn spoil(&self, sql: &str) {
        let spoil = rusqlite::Connection::open(self.daemon.database()).unwrap();
        spoil.execute_batch(sql).unwrap();
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn fed<'r>(report: &'r Value, input: &str) -> &'r Value {
    let mut all = report["fed"].as_array().unwrap().iter();
    all.find(|fed| fed["input"] == input)
        .unwrap_or_else(|| panic!("{input} in {report}"))
}

#[test]
fn drill_of_a_sound_database_changes_nothing_and_touches_nothing_outside() {
    let mut shop = Shop::open();
    let (files, heard) = (shop.files(), shop.receiver.heard().len());
    let asked_before = shop.node.stub.calls().len();
    let report = shop.report(0, &[]);
    assert_eq!(shop.files(), files, "the live file and its folder");
    for call in &shop.node.stub.calls()[asked_before..] {
        let is_question = call.method.starts_with("get") || call.method.starts_with("rest/");
        assert!(is_question, "{call:?}");
    }
    assert_eq!(
        shop.receiver.connections(),
        heard.min(shop.receiver.connections())
    );
    assert_eq!(shop.receiver.heard().len(), heard, "nobody is told");
    assert_eq!(
        (&report["is_clean"], &report["is_complete"]),
        (&json!(true), &json!(true))
    );
    for (input, count) in [
        ("blocks", 5),
        ("node", 1),
        ("mempool", 1),
        ("idempotency", 1),
        ("inbox", 2),
        ("jobs", 3),
        ("deliveries", heard as u64),
        ("start", 1),
    ] {
        let fed = fed(&report, input);
        assert_eq!(
            (&fed["count"], &fed["passes"]),
            (&json!(count), &json!(3)),
            "{fed}"
        );
    }
    assert_eq!(fed(&report, "mempool")["refused"], 9);
    assert!(report["rows"].as_u64().unwrap() > 30 && report["tables"].as_u64().unwrap() > 30);

    // A daemon that was killed leaves a log; one that runs goes on.
    shop.daemon.start_again();
    shop.daemon.wait_height(8);
    let running = shop.report(0, &["--passes", "1"]);
    assert_eq!(running["is_clean"], true, "{running}");
    assert!(shop.daemon.is_running());
    shop.daemon.kill9();
    let files = shop.files();
    assert!(
        files.keys().any(|name| name.ends_with("-wal")),
        "{:?}",
        files.keys()
    );
    shop.report(0, &["--passes", "1"]);
    assert_eq!(shop.files(), files);
    assert_eq!(shop.receiver.heard().len(), heard);
    shop.daemon.assert_sound();
}

#[test]
fn drill_finds_a_rule_lowered_by_hand() {
    let shop = Shop::open();
    let spoil = rusqlite::Connection::open(shop.daemon.database()).unwrap();
    let changed = spoil
        .execute("UPDATE addresses SET from_height = 1 WHERE from_height > 4", [])
        .unwrap();
    assert!(changed > 0);
    drop(spoil);
    let report = shop.report(1, &["--passes", "2"]);
    let credits: Vec<&Value> = report["changed"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|change| change["table"] == "credits")
        .collect();
    assert_eq!(credits.len(), 1, "{report}");
    let is = credits[0]["is"].as_str().unwrap();
    assert!(
        is.contains("amount=900000") && credits[0]["was"].is_null(),
        "{is}"
    );
    for change in report["changed"].as_array().unwrap() {
        assert_eq!(
            (&change["pass"], &change["input"], &change["chain"]),
            (&json!(1), &json!("blocks"), &json!("btc")),
            "{change}"
        );
    }
    assert_eq!(shop.daemon.credits().len(), 1, "production was not touched");
    assert_eq!(shop.copies(), 0);
}

/// What is spoilt in the copy before an input is fed: a table that changed, and what is said of the answers.
const SPOILT: [(Input, &str, &str, &str); 6] = [
    (
        Input::Deliveries,
        "DROP TRIGGER events_no_update; \
         UPDATE events SET body = body || ' ' WHERE type = 'credit.created'",
        "events",
        "has other bytes than the first time",
    ),
    (
        Input::Deliveries,
        "UPDATE endpoint_secrets SET secret = 'whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'",
        "endpoint_secrets",
        "no signature matches",
    ),
    (
        Input::Idempotency,
        "UPDATE idempotency SET body = '{}'",
        "idempotency",
        "is answered otherwise than the first time",
    ),
    (
        Input::Idempotency,
        "DELETE FROM idempotency",
        "idempotency",
        "is not remembered, and would act again",
    ),
    (
        Input::Inbox,
        "PRAGMA foreign_keys = OFF; DROP TRIGGER inbox_no_delete; \
         DELETE FROM inbox WHERE event_id = 'evt_2'",
        "inbox",
        "was there already",
    ),
    (
        Input::Start,
        "INSERT INTO merchants (slug, created_at) VALUES ('new', 0)",
        "merchants",
        "",
    ),
];

#[test]
fn drill_names_the_input_that_changed_something() {
    let shop = Shop::open();
    for (at, sql, table, said) in SPOILT {
        let before: Before = Arc::new(move |pass: u32, input: Input, copy: &Path| {
            if (pass, input) == (2, at) {
                let copy = rusqlite::Connection::open(copy).unwrap();
                past_guards(&copy, sql, |_| {});
            }
        });
        let report = shop.run(Some(before)).unwrap();
        assert!(!report.is_clean && report.is_complete, "{sql}");
        let first = report
            .changed
            .first()
            .unwrap_or_else(|| panic!("{sql}: {report:?}"));
        assert_eq!((first.pass, first.input), (2, Some(at)), "{sql}: {first:?}");
        assert!(
            report.changed.iter().any(|change| change.table == table),
            "{sql}: {report:?}"
        );
        match said {
            "" => assert_eq!(report.unexpected, [], "{sql}"),
            said => assert!(
                report
                    .unexpected
                    .iter()
                    .any(|other| other.input == at && other.what.contains(said)),
                "{sql}: {:?}",
                report.unexpected
            ),
        }
    }
    assert!(shop.run(None).unwrap().is_clean, "nothing of that is left");
}

#[test]
fn a_node_on_another_branch_makes_it_copy_again_and_then_keeps_only_its_chain_out() {
    let shop = Shop::open();
    shop.node.back_to(6);
    for number in 20..25 {
        shop.node.mine(vec![tx(&[coin(number)], &[(script(D1), 5)])]);
    }
    let output = shop.drill(&["--passes", "1"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_eq!(stderr.matches("copying again").count(), 3, "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for input in ["blocks", "node", "mempool"] {
        let why = fed(&report, input)["why_not"].as_str().unwrap();
        assert!(
            why.starts_with("not tried: the node does not have block "),
            "{why}"
        );
        assert!(why.ends_with(", though it was copied 3 times"), "{why}");
    }
    assert_eq!(fed(&report, "inbox")["passes"], 1, "the rest is fed all the same");
    assert_eq!(report["is_clean"], true, "{report}");
    assert_eq!(shop.copies(), 0);
}

#[test]
fn without_its_node_a_drill_is_not_complete_and_says_what_it_could_not_feed() {
    let shop = Shop::open();
    shop.answers("getblockchaininfo", Reply::Error(-28, "Loading block index"));
    let report = shop.report(2, &["--passes", "1"]);
    let why = fed(&report, "blocks")["why_not"].as_str().unwrap();
    assert!(why.contains("Loading block index"), "{why}");
    assert_eq!(fed(&report, "inbox")["passes"], 1, "the rest is fed all the same");
    let report = shop.report(0, &["--passes", "1", "--without-nodes"]);
    assert_eq!(report["is_complete"], true);
    let nowhere = shop.drill(&["--report", "nowhere/drill.json"]);
    assert_eq!(nowhere.status.code(), Some(2));
    let said = text(&nowhere.stderr);
    assert!(said.contains("write the report nowhere/drill.json"), "{said}");
    assert!(!said.contains("pass 1"), "before it begins: {said}");
    let unknown = shop.drill(&["--chain", "doge"]);
    assert!(text(&unknown.stderr).contains("--chain with one of btc"));
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn disk_full_during_the_copy_is_exit_2() {
    let shop = Shop::open();
    let disk = Disk::new();
    disk.fill();
    let mut command = shop.daemon.command(&["drill", "--days", DAYS]);
    command.envs(disk.under(&shop.daemon.folder().join("creditd-drill-")));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("copy the database"), "{stderr}");
    assert_eq!((shop.copies(), text(&output.stdout)), (0, String::new()));
}

#[test]
fn a_kept_copy_and_a_report_are_whole_and_hold_no_secret() {
    let shop = Shop::open();
    let secret = shop.daemon.sql("SELECT secret FROM endpoint_secrets", |row| {
        row.get::<_, String>(0)
    });
    let output = shop
        .daemon
        .cli(&["drill", "--days", DAYS, "--keep", "--report", "drill.json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value =
        serde_json::from_slice(&std::fs::read(shop.daemon.folder().join("drill.json")).unwrap()).unwrap();
    assert_eq!(report["is_clean"], true);
    let kept = shop.drills().pop().unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let copy = Database::open(&kept.join("creditd.db"), OpenMode::ReadOnly).unwrap();
    assert_eq!(copy.read(|tx| tx.violations(144)).unwrap(), []);
    let bytes = std::fs::read(kept.join("creditd.db")).unwrap();
    let holds = |what: &str| bytes.windows(what.len()).any(|window| window == what.as_bytes());
    assert!(!holds(&secret[0]) && !holds("127.0.0.1"));
    let said = [text(&output.stdout), text(&output.stderr), report.to_string()].concat();
    assert!(
        !said.contains(&secret[0]) && !said.contains("127.0.0.1"),
        "{said}"
    );
}

#[test]
fn the_report_in_words() {
    let shop = Shop::open();
    let clean = shop.run(None).unwrap();
    let spoil: Before = Arc::new(|pass: u32, input: Input, copy: &Path| {
        if (pass, input) == (1, Input::Inbox) {
            let sql = "INSERT INTO merchants (id, slug, created_at) VALUES (99, 'new', 0)";
            rusqlite::Connection::open(copy)
                .unwrap()
                .execute_batch(sql)
                .unwrap();
        }
    });
    let changed = shop.run(Some(spoil)).unwrap();
    let said = |mut report: Report| {
        report.at = "2026-11-30T11:00:00.000Z".to_owned();
        (report.bytes, report.rows, report.checks) = (412_345_678, 184_220, 38);
        report.lines().join("\n")
    };
    insta::assert_snapshot!("drill_clean", said(clean));
    insta::assert_snapshot!("drill_changed", said(changed));
}
