//! `creditd audit` where no node answers: what it says of the books, and that it says what it could not ask.

use crate::common::daemon::{Daemon, Setup};
use crate::common::planted::past_guards;
use crate::sample::Sample;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::Path;

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
    let unguard = "DROP TRIGGER journal_no_delete; PRAGMA foreign_keys = OFF;";
    past_guards(&database, unguard, |database| {
        let spoilt = "DELETE FROM journal WHERE id = (SELECT max(id) FROM journal)";
        database.execute(spoilt, []).unwrap();
    });
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
fn without_a_login_the_next_step_names_what_to_set() {
    let sample = Sample::filled();
    let (stdout, stderr, code) = audit(&sample.files, &["--chain", "btc"]);
    assert_eq!(code, 2, "{stdout}{stderr}");
    assert!(stdout.contains("cookie file missing: "), "{stdout}");
    let next = "next: name the login at the node in the config";
    assert!(stdout.contains(next), "{stdout}");
    for key in ["`cookie_file`", "`rpc_user` and `rpc_password_file`"] {
        assert!(stdout.contains(key), "{key}: {stdout}");
    }
}

/// An index without its rows: no question of the books comes upon it, and the next one that does is wrong.
#[test]
fn a_damaged_index_is_found_though_no_question_comes_upon_it() {
    let sample = Sample::filled();
    let path = sample.files.database();
    let (page, bytes) = root_page(&path, "audit_of_states");
    let whole = std::fs::read(&path).unwrap();
    let mut spoilt = whole.clone();
    // The number of cells of a leaf.
    let cells = usize::try_from((page - 1) * bytes + 3).unwrap();
    assert_ne!(spoilt[cells..cells + 2], [0, 0], "it has rows");
    spoilt[cells..cells + 2].fill(0);
    std::fs::write(&path, &spoilt).unwrap();
    for args in [&["--books"][..], &[]] {
        let (stdout, stderr, code) = audit(&sample.files, args);
        assert_eq!(code, 1, "{stdout}{stderr}");
        assert!(
            stdout.contains("FOUND  damaged  books  table audit  "),
            "{stdout}"
        );
        assert!(stdout.contains("audit_of_states"), "{stdout}");
        assert!(
            stdout.starts_with("books          1 table damaged: nothing else was asked\n"),
            "{stdout}"
        );
        assert!(stderr.contains("table audit is damaged: "), "{stderr}");
    }
    std::fs::write(&path, &whole).unwrap();
    let (stdout, _, code) = audit(&sample.files, &["--books"]);
    assert_eq!(code, 0, "{stdout}");
}

/// Also where it is met before the file is looked at: no line calls such a database good.
#[test]
fn a_damaged_table_that_the_audit_itself_needs_is_found_and_no_other_command_calls_it_good() {
    let sample = Sample::filled();
    let path = sample.files.database();
    let needed = [
        "chains",
        "headers",
        "audit_runs",
        "audit_findings",
        "address_sources",
        "meta",
    ];
    for table in needed {
        // Without that one it cannot be opened, and nobody says more.
        let named = if table == "meta" { "unknown" } else { table };
        let (page, bytes) = root_page(&path, table);
        let whole = std::fs::read(&path).unwrap();
        let mut spoilt = whole.clone();
        let from = usize::try_from((page - 1) * bytes).unwrap();
        spoilt[from..from + usize::try_from(bytes).unwrap()].fill(0);
        std::fs::write(&path, &spoilt).unwrap();
        let (stdout, stderr, code) = audit(&sample.files, &["--books"]);
        assert_eq!(code, 1, "{table}: {stdout}{stderr}");
        let told = format!("FOUND  damaged  books  table {named}  ");
        assert!(stdout.contains(&told), "{stdout}{stderr}");
        let told = format!("table {table} is damaged: ");
        assert!(stderr.matches(&told).count() <= 1, "{stderr}");
        let (json, stderr, code) = audit(&sample.files, &["--json"]);
        assert_eq!(code, 1, "{table}: {json}{stderr}");
        let report: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(report["found"][0]["kind"], "damaged", "{report:#}");
        assert_eq!(report["books"]["damaged"][0]["table"], named, "{report:#}");
        assert_eq!(
            report["chains"][0]["not_checked"][0]["state"], "damaged",
            "{report:#}"
        );
        if !table.starts_with("audit_") {
            let line = sample.files.check_line("database").unwrap();
            assert_eq!(line["verdict"], "bad", "{table}: {line}");
            let next = line["next_step"].as_str().unwrap();
            assert!(next.contains("restore a backup"), "{table}: {line}");
        }
        std::fs::write(&path, &whole).unwrap();
    }
}

/// Where a table or an index begins in the file: the number of its page, and how long a page is. Nothing is
/// in the log afterwards.
fn root_page(path: &Path, name: &str) -> (u64, u64) {
    let database = Connection::open(path).unwrap();
    let root = "SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = ?1";
    let found = database.query_row(root, [name], |row| {
        let unsigned = |column: usize| row.get::<_, i64>(column).map(i64::cast_unsigned);
        Ok((unsigned(0)?, unsigned(1)?))
    });
    let folded = database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    folded.unwrap();
    found.unwrap()
}

/// It says no more than is known: the row may have been written so, or its page may be damaged.
#[test]
fn a_row_that_the_schema_refuses_is_told_as_that() {
    let sample = Sample::filled();
    let spoil = Connection::open(sample.files.database()).unwrap();
    spoil
        .execute_batch(
            "PRAGMA ignore_check_constraints = ON;
             INSERT INTO audit_unread (chain, from_height, to_height, why)
             SELECT min(id), 9, 7, 'gone' FROM chains;",
        )
        .unwrap();
    drop(spoil);
    let (stdout, stderr, code) = audit(&sample.files, &["--books"]);
    assert_eq!(code, 1, "{stdout}{stderr}");
    let told = "FOUND  invariant  books  schema audit_unread  the schema refuses at least 1 value: written \
                past its guards, or the file is damaged: CHECK constraint failed";
    assert!(stdout.contains(told), "{stdout}");
}

/// Not what was asked for is what stands in the way: it could not run.
#[test]
fn an_audit_beside_the_log_of_another_database_could_not_run() {
    let sample = Sample::filled();
    let database = Connection::open(sample.files.database()).unwrap();
    database.pragma_update(None, "journal_mode", "DELETE").unwrap();
    drop(database);
    std::fs::write(sample.files.folder().join("creditd.db-wal"), [7; 64]).unwrap();
    let (stdout, stderr, code) = audit(&sample.files, &["--books"]);
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    assert!(
        stderr.contains("log is still there") && stderr.contains("  next: "),
        "{stderr}"
    );
}

/// The credits of a chain that the config names no more are there, and no pruned node keeps them from being
/// proved.
#[test]
fn a_proof_on_a_chain_that_the_config_forgot_names_the_config() {
    let sample = Sample::filled();
    let credits = sample.files.json(&["credits"]);
    let credit = credits["credits"][0]["id"].as_str().unwrap().to_owned();
    let mut setup = Setup::new("http://127.0.0.1:1".to_owned(), "cookie".into());
    setup.instance = "other".to_owned();
    sample.files.write_config(&setup);
    let output = sample.files.cli(&["proof", &credit]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let next = stderr.split_once("  next: ").unwrap().1;
    assert!(
        next.contains("in the config") && !next.contains("pruned"),
        "{stderr}"
    );
}

#[test]
fn an_answer_names_a_thousand_findings_and_counts_all() {
    let sample = Sample::filled();
    let database = Connection::open(sample.files.database()).unwrap();
    let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200) \
                INSERT INTO audit_findings (chain, pass, kind, subject, height, what, found_at, seen_at) \
                SELECT 1, 'outputs', 'unbooked', 'tx:' || i, i, '', 0, 0 FROM n";
    database.execute_batch(many).unwrap();
    let (stdout, _, code) = audit(&sample.files, &[]);
    assert_eq!(code, 1, "{stdout}");
    assert!(
        stdout.contains("\nand 200 more, in the table audit_findings"),
        "{stdout}"
    );
    assert!(stdout.contains("\n1200 found; 1 unproven: "), "{stdout}");
    let (json, _, _) = audit(&sample.files, &["--json"]);
    let answer: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&answer["found_count"], &answer["is_clean"]),
        (&json!(1_200), &json!(false))
    );
    assert_eq!(answer["found"].as_array().unwrap().len(), 1_000);
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
    // Nothing that could come again is in the sample.
    for (command, code) in [(&["audit", "--books"][..], 0), (&["drill", "--without-nodes"], 2)] {
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
            assert_eq!(written.status.code(), Some(code), "{command:?}: {written:?}");
        }
    }
}
