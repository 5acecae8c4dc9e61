//! What commands say of the daemon: whether one runs on the database, with which config, and what waits for
//! it.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;
use crate::sample::Sample;

fn told(daemon: &Daemon, args: &[&str]) -> String {
    let output = daemon.cli(args);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The verdict of a line of `check`, and its words.
#[track_caller]
fn check(daemon: &Daemon, name: &str) -> (String, String) {
    let output = daemon.cli(&["check", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lines = answer["lines"].as_array().unwrap();
    let line = lines.iter().find(|line| line["name"] == name).unwrap();
    let text = |key: &str| line[key].as_str().unwrap().to_owned();
    (
        text("verdict"),
        format!("{} -> {}", text("found"), text("next_step")),
    )
}

#[test]
fn a_killed_daemon_and_a_changed_config_are_told() {
    let node = FakeNode::regtest(1);
    let mut setup = Setup::for_stub(&node.stub);
    setup.ops_listen = "127.0.0.1:0".to_owned();
    let mut daemon = Daemon::prepare(&setup);
    let none = "no daemon runs on this database; start it: `systemctl start creditd`, or `creditd run`\n";
    assert!(told(&daemon, &["chain", "status"]).ends_with(none));
    daemon.start_again();
    daemon.wait_height(1);
    let ask = |daemon: &Daemon| {
        let answer = daemon.json(&["chain", "status"]);
        (
            answer["is_daemon_running"].clone(),
            answer["is_config_in_force"].clone(),
        )
    };
    assert_eq!(ask(&daemon), (json!(true), json!(true)));
    let pid = format!("(pid {})", daemon.pid());
    let (verdict, words) = check(&daemon, "daemon");
    assert!(verdict == "good" && words.contains(&pid), "{verdict} {words}");
    let status = told(&daemon, &["chain", "status"]);
    assert!(!status.contains("daemon"), "{status}");

    // Another layout says the same; another depth does not.
    let config = std::fs::read_to_string(daemon.config_file()).unwrap();
    std::fs::write(daemon.config_file(), format!("# a comment\n{config}")).unwrap();
    assert_eq!(ask(&daemon), (json!(true), json!(true)));
    setup.confirmations = 7;
    daemon.write_config(&setup);
    assert_eq!(ask(&daemon), (json!(true), json!(false)));
    let (verdict, words) = check(&daemon, "daemon");
    assert_eq!(verdict, "warning", "{words}");
    assert!(
        words.contains("with an older config") && words.contains("restart"),
        "{words}"
    );
    let status = told(&daemon, &["chain", "status"]);
    assert!(
        status.contains("with an older config") && status.contains("; restart it: "),
        "{status}"
    );

    daemon.kill9();
    let status = told(&daemon, &["chain", "status"]);
    assert!(status.contains("following") && status.ends_with(none), "{status}");
    assert_eq!(ask(&daemon), (json!(false), Value::Null));
    let (verdict, words) = check(&daemon, "daemon");
    assert!(
        verdict == "warning" && words.contains("no daemon runs") && words.contains("creditd run"),
        "{verdict} {words}"
    );
    daemon.start_again();
    daemon.wait_for("the new config", &["chain", "status"], |answer| {
        (answer["is_config_in_force"] == true).then_some(())
    });
    daemon.stop();
}

#[test]
fn what_only_a_daemon_does_says_when_none_runs() {
    let sample = Sample::filled();
    let rescan = ["rescan", "--from", "101", "--backfill", "all", "--reason", "x"];
    let dry = told(&sample.files, &rescan);
    assert!(!dry.contains("nothing happens"), "{dry}");
    let done = told(&sample.files, &[&rescan[..], &["--apply"]].concat());
    assert!(
        done.contains("nothing happens until one does") && done.contains("creditd run"),
        "{done}"
    );
    assert!(!done.contains("would"), "{done}");
    let deposits = sample.files.json(&["deposits", "list", "--held"]);
    let id = deposits["deposits"][0]["id"].as_str().unwrap();
    let release = ["deposits", "release", id, "--reason", "x"];
    assert_eq!(
        sample.files.json(&release)["deposits"][0]["held"],
        json!("own_inputs")
    );
    let done = sample.files.json(&[&release[..], &["--apply"]].concat());
    assert_eq!(done["is_daemon_running"], json!(false));
    assert_eq!(done["deposits"][0]["held"], Value::Null, "as it is afterwards");
    let hold = told(
        &sample.files,
        &["deposits", "hold", id, "--reason", "x", "--apply"],
    );
    assert!(
        hold.contains(": held (") && !hold.contains("nothing happens"),
        "{hold}"
    );
}

#[test]
fn check_says_who_has_the_port_for_operators() {
    let node = FakeNode::regtest(1);
    let mut setup = Setup::for_stub(&node.stub);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    setup.ops_listen = address.clone();
    let mut daemon = Daemon::prepare(&setup);
    let (verdict, words) = check(&daemon, "ops");
    assert!(
        verdict == "bad" && words.contains(&address) && words.contains("[ops] listen"),
        "{verdict} {words}"
    );
    drop(taken);
    let (verdict, words) = check(&daemon, "ops");
    assert!(verdict == "good" && words.contains("is free"), "{words}");
    daemon.start_again();
    daemon.wait_height(1);
    let (verdict, words) = check(&daemon, "ops");
    let whose = format!("is taken by the daemon (pid {})", daemon.pid());
    assert!(verdict == "good" && words.contains(&whose), "{verdict} {words}");
    daemon.stop();
}

#[test]
fn check_says_that_the_start_is_above_the_nodes_tip() {
    let node = FakeNode::regtest(5);
    let mut setup = Setup::for_stub(&node.stub);
    setup.chain_lines = "start = 7".to_owned();
    let daemon = Daemon::prepare(&setup);
    let (verdict, words) = check(&daemon, "start");
    assert_eq!(verdict, "warning");
    assert!(words.contains("start = 7 is above the node's block 5"), "{words}");
    setup.chain_lines = "start = 6".to_owned();
    daemon.write_config(&setup);
    let all = String::from_utf8(daemon.cli(&["check"]).stdout).unwrap();
    assert!(
        all.contains("sync") && !all.contains("is above the node's"),
        "{all}"
    );
}
