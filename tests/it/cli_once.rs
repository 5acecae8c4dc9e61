//! `--idempotency-key`: every command that changes something acts once under a key and answers the same.

use std::collections::BTreeSet;
use std::process::Output;

use creditd::rules::chain_state::ChainState;
use creditd::sandbox::Sandbox;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::cli_addresses::pinned;
use crate::cli_inbox::with_inbox;
use crate::cli_json::commands;
use crate::cli_unattributed::with_unattributed;
use crate::common::daemon::Daemon;
use crate::sample::{Sample, txid};

/// Commands that change nothing in the database, or need no key.
const WITHOUT: [&str; 44] = [
    "addresses status",
    "audit",
    "backup",
    "balances",
    "callbacks list",
    "callbacks show",
    "chain status",
    "check",
    "completions",
    "credits",
    "demo",
    "deposits list",
    "drill",
    "endpoint list",
    "inbox list",
    "inbox show",
    "init",
    "invoices list",
    "invoices show",
    "jobs",
    "key list",
    "man",
    "merchant list",
    "proof verify",
    "run",
    "sandbox",
    "trigger deposit",
    "trigger double-spend",
    "trigger evict",
    "trigger fail",
    "trigger go",
    "trigger lag",
    "trigger mine",
    "trigger node",
    "trigger reorg",
    "trigger replace",
    "trigger resend",
    "trigger reset",
    "trigger state",
    "trigger tags",
    "tx",
    "unattributed list",
    "watch import",
    "watch list",
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Every row of every table.
fn dump(files: &Daemon) -> Vec<String> {
    let database = Connection::open_with_flags(files.database(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let rows = |sql: &str| -> Vec<String> {
        let mut statement = database.prepare(sql).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            let values: Vec<rusqlite::types::Value> =
                (0..columns).map(|at| row.get(at)).collect::<Result<_, _>>()?;
            Ok(format!("{values:?}"))
        });
        rows.unwrap().map(Result::unwrap).collect()
    };
    let tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
    let mut statement = database.prepare(tables).unwrap();
    let tables = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let tables: Vec<String> = tables.map(Result::unwrap).collect();
    let all = tables
        .iter()
        .flat_map(|table| rows(&format!("SELECT '{table}', * FROM {table}")));
    all.collect()
}

fn run(files: &Daemon, words: &[&str], key: &str, form: &[&str]) -> Output {
    files.cli(&[words, &["--idempotency-key", key], form].concat())
}

/// Does it once, asks twice more and in another form, and returns its answer.
#[track_caller]
fn assert_once(files: &Daemon, command: &str, args: &[&str]) -> Value {
    let words: Vec<&str> = command.split(' ').chain(args.iter().copied()).collect();
    let key = command.replace(' ', "-");
    let before = dump(files);
    let first = run(files, &words, &key, &["--json"]);
    let told = text(&first.stderr);
    assert!(first.status.success(), "{words:?}: {told}");
    let after = dump(files);
    assert_ne!(
        before,
        after,
        "{words:?} changes something: {}",
        text(&first.stdout)
    );
    let mut answer: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(answer["is_replayed"], false, "{answer}");
    let kept = text(&first.stdout).replacen("\"is_replayed\": false", "\"is_replayed\": true", 1);
    for key in [key.clone(), format!("\"{key}\"")] {
        let again = run(files, &words, &key, &["--json"]);
        assert_eq!(text(&again.stdout), kept, "{words:?}: {}", text(&again.stderr));
        assert_eq!(again.status.code(), first.status.code());
        assert!(
            text(&again.stderr).contains("done before under this key"),
            "{words:?}"
        );
    }
    let other = run(files, &words, &key, &[]);
    assert_eq!(other.status.code(), Some(2), "{words:?}: {}", text(&other.stdout));
    let told = text(&other.stderr);
    assert!(
        told.contains("with other arguments") && told.contains("next: "),
        "{told}"
    );
    assert_eq!(
        (text(&other.stdout), dump(files)),
        (String::new(), after),
        "{words:?}"
    );
    answer.as_object_mut().unwrap().remove("is_replayed");
    answer
}

const APPLY: [&str; 3] = ["--reason", "x", "--apply"];

#[test]
fn every_command_that_changes_something_acts_once_under_a_key() {
    let mut commands: BTreeSet<String> = commands().into_iter().collect();
    let mut assert_once = |files: &Daemon, command: &str, args: &[&str]| {
        assert!(commands.remove(command), "{command}");
        assert_once(files, command, args)
    };
    let sample = Sample::filled();
    let files = &sample.files;
    let (watched, own) = (Sandbox::address("watched"), Sandbox::address("own"));
    assert_once(files, "watch add", &[&watched, "--merchant", "shop"]);
    assert_once(files, "watch own", &[&own, "--merchant", "shop"]);
    assert_once(files, "merchant add", &["new"]);
    let create = ["--merchant", "shop", "--name", "a", "--scopes", "all"];
    let made = assert_once(files, "key create", &create);
    let key = made["key"]["id"].as_str().unwrap();
    assert_once(files, "key revoke", &[&[key], &APPLY[..]].concat());
    let url = ["https://127.0.0.1/hook", "--merchant", "shop"];
    let config = std::fs::read_to_string(files.config_file()).unwrap();
    let allowed = format!("{config}\n[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n");
    std::fs::write(files.config_file(), allowed).unwrap();
    let added = assert_once(files, "endpoint add", &url);
    let endpoint = added["endpoint"]["id"].as_str().unwrap();
    let with_endpoint = [&[endpoint], &APPLY[..]].concat();
    let tested = assert_once(files, "endpoint test", &[endpoint]);
    assert_once(files, "endpoint pause", &with_endpoint);
    assert_once(files, "endpoint resume", &with_endpoint);
    let rotated = assert_once(files, "endpoint rotate-secret", &with_endpoint);
    assert_ne!(rotated["secret"], added["secret"]);
    assert!(
        rotated["secret"].as_str().unwrap().starts_with("whsec_"),
        "{rotated}"
    );
    let event = tested["event"].as_str().unwrap();
    let database = Connection::open(files.database()).unwrap();
    database
        .execute("UPDATE deliveries SET next_at = next_at + 3600000", [])
        .unwrap();
    drop(database);
    assert_once(files, "callbacks retry", &[&[event], &APPLY[..]].concat());
    let deposit = format!("{}:0", txid(1));
    assert_once(files, "deposits hold", &[&[&*deposit], &APPLY[..]].concat());
    assert_once(files, "deposits release", &[&[&*deposit], &APPLY[..]].concat());
    assert_once(files, "rescan", &[&["--from", "101"], &APPLY[..]].concat());
    sample.edit(|tx, chain| tx.set_chain_state(chain, ChainState::ReorgTooDeep, "a test"));
    assert_once(
        files,
        "chain accept-reorg",
        &[&["--fork", "103"], &APPLY[..]].concat(),
    );
    let (evm, id) = with_unattributed();
    let close = [&[&*id, "--not-a-payment"], &APPLY[..]].concat();
    assert_once(&evm.files, "unattributed close", &close);
    let (invoices, id) = Sample::with_invoice();
    assert_once(
        &invoices.files,
        "invoices cancel",
        &[&[&*id], &APPLY[..]].concat(),
    );
    let (inbox, id) = with_inbox();
    assert_once(&inbox.files, "inbox retry", &[&[&*id], &APPLY[..]].concat());
    let folder = tempfile::tempdir().unwrap();
    let pinned = pinned(&folder.path().join("list.txt"));
    assert_once(&pinned, "addresses repin", &[&["till"], &APPLY[..]].concat());
    assert_once(&pinned, "restored", &APPLY);
    let without: BTreeSet<String> = WITHOUT.iter().map(|command| (*command).to_owned()).collect();
    assert_eq!(commands, without, "each command has a place here");
}

#[test]
fn a_key_shows_a_new_secret_again_and_its_text_is_kept_as_it_was() {
    let sample = Sample::filled();
    let files = &sample.files;
    let create = ["key", "create", "--ops", "--name", "a", "--scopes", "all"];
    let first = run(files, &create, "K", &[]);
    assert!(
        text(&first.stdout).contains("key (shown once): ck_"),
        "{}",
        text(&first.stdout)
    );
    let again = run(files, &create, "K", &[]);
    assert_eq!(again.stdout, first.stdout);
    assert_eq!(files.count("SELECT count(*) FROM api_keys"), 1);
    // Another order of the same words is the same, another word is not.
    let turned = ["key", "create", "--name", "a", "--scopes", "all", "--ops"];
    assert_eq!(run(files, &turned, "K", &[]).stdout, first.stdout);
    let other = ["key", "create", "--name", "b", "--scopes", "all", "--ops"];
    assert_eq!(run(files, &other, "K", &[]).status.code(), Some(2));
    // For another command the key is new, and what failed keeps nothing.
    let add = ["merchant", "add", "new"];
    assert!(run(files, &add, "K", &[]).status.success());
    let revoke = ["key", "revoke", "key_0000", "--reason", "x", "--apply"];
    assert_eq!(run(files, &revoke, "K", &[]).status.code(), Some(1));
    assert_eq!(files.count("SELECT count(*) FROM idempotency"), 2);
    let days = "SELECT (keep_until - created_at) / 86400000 FROM idempotency";
    assert_eq!(files.count(days), 30);
}

#[test]
fn a_key_where_nothing_is_changed_is_refused_or_not_used_up() {
    let sample = Sample::filled();
    let files = &sample.files;
    for (words, said) in [
        (&["credits"][..], "`creditd credits` changes nothing"),
        (&["watch", "list"], "`creditd watch list` changes nothing"),
        (&["watch", "import", "list"], "takes its lines one by one"),
    ] {
        let refused = run(files, words, "K", &[]);
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        assert!(text(&refused.stderr).contains(said), "{}", text(&refused.stderr));
    }
    for key in ["", "\"\"", "two words", "\"open", &"k".repeat(257)] {
        let refused = run(files, &["merchant", "add", "new"], key, &[]);
        assert_eq!(refused.status.code(), Some(2), "{key}");
        assert!(
            text(&refused.stderr).contains("is no key"),
            "{}",
            text(&refused.stderr)
        );
    }
    let deposit = format!("{}:0", txid(1));
    let dry = ["deposits", "hold", &deposit, "--reason", "x"];
    let before = dump(files);
    let shown = run(files, &dry, "K", &[]);
    assert!(
        text(&shown.stdout).contains("would hold"),
        "{}",
        text(&shown.stdout)
    );
    assert!(
        text(&shown.stderr).contains("with --apply"),
        "{}",
        text(&shown.stderr)
    );
    assert_eq!(dump(files), before);
    let held = run(files, &[&dry[..], &["--apply"]].concat(), "K", &[]);
    assert!(
        text(&held.stdout).contains("done: hold"),
        "{}",
        text(&held.stdout)
    );
    // Let go again, it is not held a second time by the first command.
    let release = ["deposits", "release", &deposit, "--reason", "y", "--apply"];
    assert!(run(files, &release, "K", &[]).status.success());
    let again = run(files, &[&dry[..], &["--apply"]].concat(), "K", &[]);
    assert_eq!(again.stdout, held.stdout);
    assert_eq!(
        files.count("SELECT count(*) FROM deposits WHERE held_reason = 'operator'"),
        0
    );
}

#[test]
fn commands_at_once_under_a_key_are_one_and_a_kill_leaves_nothing_claimed() {
    let sample = Sample::filled();
    let files = &sample.files;
    let create = [
        "key",
        "create",
        "--ops",
        "--name",
        "a",
        "--scopes",
        "all",
        "--idempotency-key",
        "K",
    ];
    // Killed while it waits for its turn.
    let lock = Connection::open(files.database()).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut killed = files.command(&create).spawn().unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    lock.execute_batch("ROLLBACK").unwrap();
    let answers: Vec<Output> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..12)
            .map(|_| {
                let run = files.prepared(&create);
                scope.spawn(run)
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for answer in &answers {
        assert!(answer.status.success(), "{}", text(&answer.stderr));
        assert_eq!(answer.stdout, answers[0].stdout);
    }
    let fresh = answers.iter().filter(|answer| answer.stderr.is_empty()).count();
    assert_eq!((fresh, files.count("SELECT count(*) FROM api_keys")), (1, 1));
}
