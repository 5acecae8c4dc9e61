//! `creditd demo` as a stranger runs it: the real binary, without any config or node.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::wait::{PATIENCE, wait_until};

fn demo(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_creditd"));
    command
        .arg("demo")
        .args(args)
        // A config of the caller's own must not reach the demonstration.
        .env("CREDITD_CONFIG", folder.join("none.toml"))
        .env("TMPDIR", folder)
        .current_dir(folder)
        .stdin(Stdio::null());
    command
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn demo_shows_the_whole_job_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), &[]).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{shown}\n{errors}");
    assert_eq!(errors, "");
    let mut rest = shown.as_str();
    // When it comes again depends on the ladder, not on the story: anywhere will do.
    assert!(
        shown.contains("credit.created      order-1: again: the same id and bytes, nothing to do"),
        "{shown}"
    );
    for step in [
        "deposit.seen        order-1: 0.29 BTC",
        "deposit.confirming  order-1: 0.29 BTC in block 121, due at height 123",
        "credit.created      order-1: +0.29 BTC, net 0.29",
        "credit.created      order-1: stored, and the answer is a failure: 500",
        "ok  order-1 is credited once",
        "deposit.replaced    order-2: 0.5 BTC, by ",
        "ok  two transactions were sent for order-2 and one is credited",
        "credit.reversed     order-3: -1 BTC, net 0 (now orphaned)",
        "credit.reinstated   order-3: +1 BTC, net 1",
        "kill -9",
        "credit.created      order-4: +0.07 BTC, net 0.07",
        "ok  order-4 is credited once",
        "credit.created      order-8: +0.5 ETH, net 0.5",
        "ok  each payment of the transaction is credited once",
        "credit.reversed     order-6: -5 TUSD, net 0 (now orphaned)",
        "credit.created      order-7: +6 TUSD, net 6",
        "ok  the books follow: order-7 nets 6, and order-8, paid as before, was never touched",
        "ok  order-6 waits for an operator",
        "deposit.released    order-6: 5 TUSD",
        "credit.created      order-6: +5 TUSD, net 5",
        "ok  order-6 nets 5 again",
        "deposit.failed      order-9: 0.5 ETH",
        "ok  a mined transaction that failed is no payment",
        "1.86",
        "order-3  reinstatement  +1 BTC  block 127",
        "the receiver's own books, kept from callbacks alone, in base units",
        "  186000000 of bip122:",
        "  11000000 of eip155:31337/erc20:",
        "  500000000000000000 of eip155:31337/slip44:60",
        "ok  they say the same",
        "$ creditd rescan --chain evm --from 0 --reason demonstration --apply   (3 of 3)",
        " callbacks again: the same ids and bytes, nothing to do",
        "ok  the receiver's books stand",
        "ok  nothing changed: ",
        "ok  everything that must always hold does hold",
        "ok  the daemon stops in good order",
        "All of it was as it must be",
    ] {
        let at = rest.find(step);
        assert!(
            at.is_some(),
            "no {step:?} here:\n{rest}\n---- all of it:\n{shown}"
        );
        rest = &rest[at.unwrap()..];
    }
    assert!(!shown.contains("FAILED"), "{shown}");
    assert!(is_empty(folder.path()), "files were left behind");
}

#[test]
fn kept_demo_can_be_played_with_until_it_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path(), &["--keep"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut shown = Vec::new();
    let files = loop {
        let line = lines.next().unwrap();
        if let Some(files) = line.strip_prefix("config, database and log: ") {
            break files.to_owned();
        }
        shown.push(line);
    };
    play(&shown, &files);
    let asked = Command::new(env!("CARGO_BIN_EXE_creditd"))
        .args([
            "--config",
            &format!("{files}/creditd.toml"),
            "chain",
            "status",
            "--json",
        ])
        .output()
        .unwrap();
    let status: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!(status["chains"][0]["state"], "following", "{status}");
    let pid = child.id().to_string();
    let interrupt = ["-c", "kill -INT \"$1\"", "sh", &pid];
    assert!(Command::new("sh").args(interrupt).status().unwrap().success());
    assert!(lines.any(|line| line.starts_with("All of it was as it must be")));
    assert!(child.wait().unwrap().success());
    assert!(is_empty(folder.path()), "files were left behind");
}

/// Takes the steps that are shown, as they are: the payment ends in another block than it was in.
fn play(shown: &[String], files: &str) {
    let creditd = |args: &[&str]| -> Value {
        let config = format!("{files}/creditd.toml");
        let mut command = Command::new(env!("CARGO_BIN_EXE_creditd"));
        let output = command.args(["--config", &config, "--json"]).args(args).output();
        serde_json::from_slice(&output.unwrap().stdout).unwrap()
    };
    let block_of_the_payment = || {
        let listed = creditd(&["deposits", "list"]);
        let newest = listed["deposits"]
            .as_array()?
            .iter()
            .find(|row| row["reference"] == "order-5")?;
        newest["block_height"].as_u64()
    };
    let watch = shown
        .iter()
        .rfind(|line| line.contains("creditd watch add"))
        .unwrap();
    let words: Vec<&str> = watch.split_whitespace().skip(1).collect();
    creditd(&words);
    let calls: Vec<&String> = shown.iter().filter(|line| line.contains("curl -s")).collect();
    let call = |number: usize| {
        let output = Command::new("sh").args(["-c", calls[number]]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("\"error\":null"), "{}: {said}", calls[number]);
    };
    call(0);
    call(1);
    let before = wait_until("the payment is in a block", PATIENCE, block_of_the_payment);
    call(2);
    call(3);
    wait_until("the payment is in another block", PATIENCE, || {
        block_of_the_payment().filter(|height| *height != before)
    });
}

/// Runs the demonstration, does something at each of its lines, and returns its exit code and what it showed.
fn meddled(mut at_line: impl FnMut(&str)) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path(), &[]).stdout(Stdio::piped()).spawn().unwrap();
    let mut shown = String::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        at_line(&line);
        shown.push_str(&line);
        shown.push('\n');
    }
    let code = child.wait().unwrap().code();
    assert!(is_empty(folder.path()), "files were left behind");
    (code, shown)
}

#[test]
fn demo_whose_tables_change_while_all_is_fed_again_fails() {
    let mut database = None;
    let (code, shown) = meddled(|line| {
        if let Some((_, path)) = line.split_once("its database is ") {
            database = Some(path.to_owned());
        }
        if line.ends_with("(1 of 3)") && line.contains("--chain btc") {
            let tables = rusqlite::Connection::open(database.as_ref().unwrap()).unwrap();
            tables.busy_timeout(PATIENCE).unwrap();
            let insert = "INSERT INTO merchants (slug, created_at) VALUES ('intruder', 1)";
            tables.execute(insert, []).unwrap();
        }
    });
    assert_eq!(code, Some(1), "{shown}");
    assert!(
        shown.contains("  table merchants is not what it was\n"),
        "{shown}"
    );
    assert!(shown.contains("FAILED  nothing changed: "), "{shown}");
    assert!(shown.ends_with("One thing was not as it must be.\n"), "{shown}");
}

#[test]
fn demo_whose_receiver_gets_a_forged_callback_fails() {
    use std::io::{Read as _, Write as _};
    let (code, shown) = meddled(|line| {
        let url = line.split_once("endpoint add http://");
        if let Some((_, rest)) = url {
            let host = rest.split('/').next().unwrap();
            let mut to = std::net::TcpStream::connect(host).unwrap();
            let forged = format!(
                "POST /callbacks HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\
                 Connection: close\r\n\r\n{{}}"
            );
            to.write_all(forged.as_bytes()).unwrap();
            let mut answer = String::new();
            to.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        }
    });
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("refused: "), "{shown}");
    assert!(shown.ends_with("One thing was not as it must be.\n"), "{shown}");
}
