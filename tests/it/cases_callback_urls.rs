//! C39 through the command line and the real daemon: a callback's URL leads nowhere but where it may.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::common::daemon::{Daemon, Setup};
use crate::common::receiver::{Receiver, Tripwire, answer, answer_with};
use crate::common::wait::{PATIENCE, wait_until};

/// A config whose node does not answer: callbacks do not wait for one.
fn setup(ranges: &str) -> Setup {
    let mut setup = Setup::new("http://127.0.0.1:1".to_owned(), PathBuf::from("cookie"));
    setup.tables = format!("[callbacks]\nallow_ranges = {ranges}\ntimeout_secs = 5\n");
    setup
}

fn add(daemon: &Daemon, url: &str) -> String {
    let added = daemon.json(&["endpoint", "add", url, "--merchant", "shop"]);
    added["id"]
        .as_str()
        .or(added["endpoint"]["id"].as_str())
        .unwrap()
        .to_owned()
}

/// A command that reads a database at rest is told to come again when a daemon opens it meanwhile.
fn wait_ready(daemon: &Daemon) {
    wait_until("the daemon is ready", PATIENCE, || {
        daemon.log().contains("creditd is ready").then_some(())
    });
}

/// What came of a test event: the status, and the words for what went wrong.
fn try_endpoint(daemon: &Daemon, id: &str) -> (Value, String) {
    let output = daemon.cli(&["endpoint", "test", id, "--json"]);
    assert_eq!(output.status.code(), Some(1), "the test event arrived");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let words = answer["last_error"].as_str().unwrap_or_default();
    (answer["last_status"].clone(), words.to_owned())
}

#[test]
fn c39_urls_that_lead_inside_are_refused_when_they_are_added() {
    let daemon = Daemon::prepare(&setup("[]"));
    let good = add(&daemon, "https://shop.example/hook");
    for url in [
        "http://169.254.169.254/",
        "http://[::ffff:127.0.0.1]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://user:hunter2@example.test/",
        "ftp://shop.example/",
        "http://localhost:18443/",
        "https://127.0.0.1/",
        "https://10.0.0.1/",
        "http://shop.example/",
        "https://localhost/",
        "https://localhost./",
        "https://shop.example./",
        "https://0.0.0.0/",
        "https://0/",
        "https://0177.0.0.1/",
        "https://0x7f000001/",
        "https://2130706433/",
        "https://[::ffff:10.0.0.1]/",
        "https://[::1]/",
        "https://169.254.169.254/latest/meta-data/",
        "https://metadata.google.internal/computeMetadata/v1/",
        "https://shop.example@127.0.0.1/",
    ] {
        let output = daemon.cli(&["endpoint", "add", url, "--merchant", "shop"]);
        let words = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{url}: {words}");
        assert!(!words.contains("hunter2"), "{words}");
    }
    let listed = daemon.json(&["endpoint", "list"]);
    let ids: Vec<&Value> = listed["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["id"])
        .collect();
    assert_eq!(ids, [&json!(good)]);
}

#[test]
fn c39_the_daemon_follows_no_redirect_to_the_inside() {
    let inside = Tripwire::at("127.0.0.1:0".parse().unwrap());
    let location = format!("Location: http://127.0.0.1:{}/\r\n", inside.port());
    let receiver = Receiver::http("127.0.0.2".parse().unwrap(), move |_, to| {
        answer_with(to, 307, &location, b"")
    });
    let mut daemon = Daemon::prepare(&setup("[\"127.0.0.2/32\"]"));
    let id = add(&daemon, &format!("http://{}/", receiver.address));
    daemon.start_again();
    wait_ready(&daemon);
    let (status, _) = try_endpoint(&daemon, &id);
    assert_eq!((status, receiver.heard().len()), (json!(307), 1));
    assert_eq!(inside.connections(), 0);
}

/// The address was in a listed range when the endpoint was added; the operator has taken the range back.
#[test]
fn c39_an_address_is_judged_anew_when_it_is_dialled() {
    let receiver = Receiver::http("127.0.0.2".parse().unwrap(), |_, to| answer(to, 200, b""));
    let mut daemon = Daemon::prepare(&setup("[\"127.0.0.2/32\"]"));
    let id = add(&daemon, &format!("http://{}/", receiver.address));
    daemon.write_config(&setup("[\"10.0.0.0/8\"]"));
    daemon.start_again();
    wait_ready(&daemon);
    let (status, words) = try_endpoint(&daemon, &id);
    assert_eq!(status, Value::Null);
    assert!(
        words.contains("callbacks do not go to 127.0.0.2: loopback"),
        "{words}"
    );
    let told = String::from_utf8(daemon.cli(&["endpoint", "test", &id]).stdout).unwrap();
    assert!(
        told.contains("our own guard refused: blocked_address") && told.contains("allow_ranges"),
        "{told}"
    );
    assert_eq!(receiver.connections(), 0);
}

#[test]
fn name_that_does_not_resolve_is_added_with_a_warning_and_types_may_have_commas() {
    let daemon = Daemon::prepare(&setup("[]"));
    let add = [
        "endpoint",
        "add",
        "https://nosuch.invalid/hook",
        "--merchant",
        "shop",
    ];
    let types = [
        "--types",
        "credit.created,deposit.seen",
        "--types",
        "deposit.held",
    ];
    let added = daemon.json(&[&add[..], &types[..]].concat());
    assert!(
        added["warning"]
            .as_str()
            .unwrap()
            .contains("nosuch.invalid does not resolve"),
        "{added}"
    );
    assert_eq!(
        added["endpoint"]["types"],
        json!(["credit.created", "deposit.seen", "deposit.held"])
    );
}
