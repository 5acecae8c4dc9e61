//! `creditd audit` where no node answers: what it says of the books, and that it says what it could not ask.

use crate::common::daemon::Daemon;
use crate::sample::Sample;
use rusqlite::Connection;
use serde_json::Value;

fn audit(files: &Daemon, args: &[&str]) -> (String, String, i32) {
    let output = files.cli(&[&["audit"], args].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        text(&output.stdout),
        text(&output.stderr),
        output.status.code().unwrap(),
    )
}

#[test]
fn books_are_asked_without_a_node() {
    let sample = Sample::filled();
    let (stdout, stderr, code) = audit(&sample.files, &["--books"]);
    assert_eq!((code, stderr.as_str()), (0, "books\n"), "{stdout}");
    let (first, rest) = stdout.split_once('\n').unwrap();
    assert!(
        first.starts_with("books          4") && first.ends_with(" checks: nothing broken"),
        "{first}"
    );
    assert_eq!(rest, "nothing found\n");
    let database = Connection::open(sample.files.database()).unwrap();
    let spoilt = "DROP TRIGGER journal_no_delete; PRAGMA foreign_keys = OFF; \
                  DELETE FROM journal WHERE id = (SELECT max(id) FROM journal);";
    database.execute_batch(spoilt).unwrap();
    let (stdout, _, code) = audit(&sample.files, &["--books"]);
    assert_eq!(code, 1, "{stdout}");
    for line in [
        "FOUND  invariant  books  I2 ledger  of the first",
        "FOUND  invariant  books  I5 ",
    ] {
        assert!(stdout.contains(line), "{line}: {stdout}");
    }
    assert!(
        stdout.contains(" found: docs/audit.md says what each kind means"),
        "{stdout}"
    );
}

#[test]
fn a_node_that_is_not_there_is_unproven_and_no_finding() {
    let sample = Sample::filled();
    let (stdout, stderr, code) = audit(&sample.files, &[]);
    assert_eq!(code, 2, "{stdout}{stderr}");
    assert!(stdout.contains("btc            unproven: "), "{stdout}");
    assert!(stdout.ends_with("nothing found; 1 unproven\n"), "{stdout}");
    assert!(stderr.contains("not all of it could be proven"), "{stderr}");
    let (_, _, code) = audit(&sample.files, &["--allow-unproven"]);
    assert_eq!(code, 0);
    let (_, stderr, code) = audit(&sample.files, &["--chain", "other"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("the config has no chain other"), "{stderr}");
    let report = sample.files.folder().join("report.json");
    audit(&sample.files, &["--report", report.to_str().unwrap()]);
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    assert_eq!(report["is_clean"], true);
    assert_eq!(report["is_complete"], false);
}

/// A slip of the hand names the database, which a daemon may have open, or the config.
#[test]
fn a_report_takes_the_place_of_nothing_but_a_report() {
    let sample = Sample::filled();
    let folder = sample.files.folder();
    let report = folder.join("report.json");
    let report = report.to_str().unwrap();
    let database = sample.files.database();
    for command in [&["audit", "--books"][..], &["drill", "--without-nodes"]] {
        for name in [database.as_path(), &folder.join("creditd.toml"), folder] {
            let name = name.to_str().unwrap();
            let refused = sample.files.cli(&[command, &["--report", name]].concat());
            let stderr = String::from_utf8(refused.stderr).unwrap();
            assert_eq!(refused.status.code(), Some(2), "{command:?} {name}: {stderr}");
            assert!(stderr.contains("is no report"), "{command:?} {name}: {stderr}");
            assert!(folder.is_dir() && sample.files.cli(&["credits"]).status.success());
        }
        for _ in 0..2 {
            let written = sample.files.cli(&[command, &["--report", report]].concat());
            assert_eq!(written.status.code(), Some(0), "{command:?}: {written:?}");
        }
    }
}
