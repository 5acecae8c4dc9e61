//! `addresses status|repin`: what pools there are, and letting a name stand for other addresses.

use std::path::Path;

use serde_json::{Value, json};

use crate::common::daemon::{Daemon, Setup};
use crate::common::stub::StubNode;
use crate::common::wait::{PATIENCE, wait_until};

const FIRST: [&str; 3] = [
    "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080",
    "bcrt1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3qzf4jry",
    "bcrt1pfeesnyr2tx",
];

/// None of which was derived before.
const OTHERS: [&str; 2] = [FIRST[2], "bcrt1qqqqsyqcyq5rqwzqfpg9scrgwpugpzysnard0ew"];

fn write(list: &Path, addresses: &[&str]) {
    std::fs::write(list, addresses.join("\n")).unwrap();
}

/// A daemon, stopped, that hands out a list of addresses: the name stands for them.
pub fn pinned(list: &Path) -> Daemon {
    write(list, &FIRST);
    let stub = StubNode::alone();
    let tables = format!(
        "[[addresses]]\nname = \"till\"\nchain = \"btc\"\npool = 2\nlist_file = {}\n",
        json!(list.to_str().unwrap())
    );
    let mut daemon = Daemon::start(&Setup {
        tables,
        ..Setup::for_stub(&stub)
    });
    wait_full(&daemon);
    daemon.stop();
    daemon
}

fn wait_full(daemon: &Daemon) {
    daemon.wait_for("the pool is full", &["addresses", "status"], |status| {
        (status["pools"][0]["state"] == "full").then_some(())
    });
}

#[track_caller]
fn told(daemon: &Daemon, args: &[&str], code: i32) -> String {
    let output = daemon.cli(args);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    text
}

fn status(daemon: &Daemon) -> Value {
    let answer = daemon.cli(&["addresses", "status", "--json"]).stdout;
    serde_json::from_slice::<Value>(&answer).unwrap()["pools"].clone()
}

/// What `creditd check` makes of the pool.
fn checked(daemon: &Daemon) -> Value {
    daemon.check_line("addresses").unwrap()["verdict"].clone()
}

#[test]
fn a_name_stands_for_other_addresses_on_an_operators_word_alone() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.txt");
    let mut daemon = pinned(&list);
    insta::assert_snapshot!("pools", told(&daemon, &["addresses", "status"], 0));
    assert_eq!(checked(&daemon), "good");
    write(&list, &OTHERS);
    let differs = told(&daemon, &["addresses", "status"], 1);
    assert!(differs.contains("creditd addresses repin till"), "{differs}");
    assert_eq!(checked(&daemon), "bad");
    // Also for a daemon that starts on it.
    daemon.start_again();
    wait_until("the daemon is ready", PATIENCE, || {
        daemon.log().contains("repin till").then_some(())
    });
    assert_eq!(status(&daemon)[0]["state"], "differs");
    let repin = ["addresses", "repin", "till", "--reason", "a new wallet"];
    let dry = told(&daemon, &repin, 0);
    assert!(
        dry.contains(&format!("begin with {}, {}", OTHERS[0], OTHERS[1])),
        "{dry}"
    );
    assert_eq!(status(&daemon)[0]["state"], "differs", "it was dry");
    let apply = [&repin[..], &["--apply"]].concat();
    told(&daemon, &apply, 0);
    // The running daemon takes them up.
    wait_full(&daemon);
    let again = told(&daemon, &apply, 0);
    assert!(again.contains("already"), "{again}");
    let pools = status(&daemon);
    assert_eq!(
        (&pools[0]["name"], &pools[0]["free"], &pools[0]["next_index"]),
        (&json!("till"), &json!(2), &json!(2))
    );
    assert_eq!(
        (&pools[1]["name"], &pools[1]["state"]),
        (&json!("till"), &json!("unlisted")),
        "what the name stood for before is kept"
    );
    let conn = rusqlite::Connection::open(daemon.database()).unwrap();
    let audited: Vec<(String, String)> = conn
        .prepare("SELECT actor, cause FROM audit WHERE action = 'pin' ORDER BY id")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(audited.len(), 2, "{audited:?}");
    assert_eq!(audited[1].0, "operator");
    assert!(audited[1].1.ends_with("a new wallet"), "{audited:?}");
}

#[test]
fn a_list_that_cannot_be_used_and_a_name_that_is_not_there_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.txt");
    let daemon = pinned(&list);
    write(&list, &[FIRST[0], "bcrt1nonsense"]);
    let unusable = told(&daemon, &["addresses", "status"], 1);
    assert!(unusable.contains("line 2"), "{unusable}");
    assert_eq!(checked(&daemon), "bad");
    let unknown = told(
        &daemon,
        &["addresses", "repin", "tilt", "--reason", "x", "--apply"],
        1,
    );
    assert!(unknown.contains("addresses status"), "{unknown}");
    write(&list, &FIRST);
    assert_eq!(status(&daemon)[0]["state"], "full");
}
