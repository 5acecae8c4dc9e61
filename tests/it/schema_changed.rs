//! A database whose guards somebody took away: nothing of creditd's runs on it as if they stood.

use crate::sample::Sample;
use rusqlite::Connection;
use std::process::Output;

fn words(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

fn change(sample: &Sample, sql: &str) {
    let file = Connection::open(sample.files.database()).unwrap();
    file.execute_batch(sql).unwrap();
    file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
}

/// The triggers of the ledger, all of them.
fn drop_guards(sample: &Sample) {
    let file = Connection::open(sample.files.database()).unwrap();
    let guards = "SELECT group_concat('DROP TRIGGER ' || name, ';') FROM sqlite_schema \
                  WHERE type = 'trigger' AND tbl_name IN ('credits', 'journal')";
    let guards: String = file.query_row(guards, [], |row| row.get(0)).unwrap();
    drop(file);
    change(sample, &guards);
}

#[test]
fn a_ledger_without_its_guards_is_refused_and_stays_as_it_is() {
    let sample = Sample::filled();
    drop_guards(&sample);
    let before = std::fs::read(sample.files.database()).unwrap();
    let commands: [(&[&str], i32); 5] = [
        (&["check"], 1),
        (&["run"], 2),
        (&["audit", "--books"], 1),
        (&["drill", "--without-nodes"], 2),
        (&["watch", "add", crate::sample::D4, "--merchant", "shop"], 2),
    ];
    for (command, code) in commands {
        let output = sample.files.cli(command);
        let said = words(&output);
        assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
        for word in ["trigger credits_no_delete is missing", "and ", " more"] {
            assert!(said.contains(word), "{command:?}: {word}: {said}");
        }
        if command[0] != "audit" {
            assert!(said.contains("restore a backup"), "{command:?}: {said}");
        }
        let after = std::fs::read(sample.files.database()).unwrap();
        assert!(before == after, "{command:?} wrote");
    }
    // What was recorded can still be looked at.
    assert!(sample.files.cli(&["credits"]).status.success());
}

#[test]
fn an_index_of_the_operator_is_told_and_stays() {
    let sample = Sample::filled();
    change(&sample, "CREATE INDEX mine ON credits (created_at)");
    let output = sample.files.cli(&["check"]);
    let said = words(&output);
    assert!(said.contains("and beside it index mine"), "{said}");
    let output = sample.files.cli(&["audit", "--books"]);
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
}
