//! Log lines in their three forms, and the end of a process that panics.

use std::process::Command;

use serde_json::{Value, json};

use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;
use crate::common::wait::{PATIENCE, wait_until};

/// The log of a daemon that started, found no node, and was stopped.
fn log_of(journal: bool, format: &str) -> String {
    let mut setup = Setup::new("http://127.0.0.1:1".to_owned(), "cookie".into());
    if journal {
        setup.environment = vec![("JOURNAL_STREAM".to_owned(), "8:1".to_owned())];
    }
    let mut daemon = Daemon::prepare(&setup);
    let config = std::fs::read_to_string(daemon.config_file()).unwrap();
    let log = format!("[log]\nformat = \"{format}\"");
    std::fs::write(daemon.config_file(), config.replace("[log]", &log)).unwrap();
    daemon.start_again();
    wait_until("the node is missed", PATIENCE, || {
        daemon.log().contains("unreachable").then_some(())
    });
    daemon.stop();
    daemon.log()
}

#[test]
fn text_lines_carry_time_and_fields() {
    let log = log_of(false, "text");
    let line = log
        .lines()
        .find(|line| line.contains("creditd is ready"))
        .unwrap();
    assert!(
        line.starts_with("20") && line.contains(" INFO creditd is ready") && line.contains("chains=1"),
        "{line}"
    );
    assert!(!log.contains('\u{1b}'), "no colours where nobody looks");
}

#[test]
fn journald_stamps_the_time_and_is_told_the_priority() {
    let log = log_of(true, "text");
    for line in log.lines() {
        assert!(
            line.starts_with("<6>") || line.starts_with("<4>") || line.starts_with("<7>"),
            "{line}"
        );
    }
    let warning = log.lines().find(|line| line.starts_with("<4>")).unwrap();
    assert!(warning.contains("btc is unreachable"), "{warning}");
}

#[test]
fn json_lines_are_objects_with_flat_fields() {
    let log = log_of(false, "json");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let ready = lines
        .iter()
        .find(|line| line["message"] == "creditd is ready")
        .unwrap();
    assert_eq!(
        (&ready["level"], &ready["chains"]),
        (&Value::from("INFO"), &Value::from(1))
    );
}

/// What a node calls itself may be anything.
#[test]
fn a_node_cannot_write_lines_or_escapes_into_the_log_or_the_terminal() {
    let forged = "\u{1b}[2J\u{9b}31m\n2026-01-01T00:00:00Z ERROR forged\u{202e}";
    let name = format!("/Satoshi:28.1.0/{forged}{}", "x".repeat(5_000));
    for (info, network_info, expected) in [
        (
            json!({}),
            json!({"version": 280_100, "subversion": name, "warnings": []}),
            "following",
        ),
        (
            json!({"chain": name}),
            json!({"version": 280_100, "subversion": "x"}),
            "wrong_network",
        ),
    ] {
        let node = FakeNode::regtest(3);
        node.state().info = info;
        node.state().network_info = network_info;
        let daemon = Daemon::start(&Setup::for_stub(&node.stub));
        daemon.wait_for(expected, &["chain", "status"], |answer| {
            (answer["chains"][0]["state"] == expected).then_some(())
        });
        let checked = daemon.cli(&["check"]).stdout;
        let status = daemon.cli(&["chain", "status"]).stdout;
        let texts = [
            daemon.log(),
            String::from_utf8(checked).unwrap(),
            String::from_utf8(status).unwrap(),
        ];
        assert!(texts[0].contains("Satoshi:28.1.0") && texts[1].contains("Satoshi:28.1.0"));
        for text in texts {
            let is_raw = |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
            assert_eq!(text.chars().find(|letter| is_raw(*letter)), None, "{text}");
            assert!(
                !text.lines().any(|line| line.starts_with("2026-01-01T00")),
                "{text}"
            );
            assert!(text.lines().all(|line| line.len() < 2_500), "an endless line");
        }
    }
}

/// Runs only as the child of the test below.
#[test]
fn panicking_child() {
    if std::env::var_os("CREDITD_TEST_PANICS").is_some() {
        creditd::telemetry::install_panic_hook();
        let _ = std::thread::spawn(|| panic!("a planted fault")).join();
        unreachable!("the process outlived a panic");
    }
}

#[test]
fn a_panic_in_any_thread_ends_the_process_and_says_where() {
    use std::os::unix::process::ExitStatusExt as _;
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "telemetry::panicking_child", "--nocapture"])
        .env("CREDITD_TEST_PANICS", "1")
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.signal(), Some(6), "aborted: {stderr}");
    assert!(
        stderr.contains("this is a bug in creditd: ") && stderr.contains("a planted fault"),
        "{stderr}"
    );
    assert!(stderr.contains("tests/it/telemetry.rs"), "{stderr}");
}
