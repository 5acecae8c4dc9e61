//! The steps of docs/operations.md for a backup on another machine, which no start can notice.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::api::Client;
use crate::common::asks::{D1, D2, D3, script};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::wait::{PATIENCE, wait_until};

const NEXT: &str = "bcrt1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3qzf4jry";

/// Hands out a list of addresses, three at a time.
fn setup(node: &FakeNode, list: Option<&Path>) -> Setup {
    let tables = list.map_or_else(String::new, |list| {
        format!(
            "[[addresses]]\nname = \"till\"\nchain = \"btc\"\npool = 2\nmerchant = \"shop\"\n\
             list_file = {}\n",
            json!(list.to_str().unwrap())
        )
    });
    Setup {
        api: "listen = \"127.0.0.1:0\"".to_owned(),
        confirmations: 1,
        tables,
        ..Setup::for_stub(&node.stub)
    }
}

#[track_caller]
fn take(client: &Client, key: &str) -> Value {
    let body = json!({"chain": "btc"}).to_string();
    wait_until("an address is handed out", PATIENCE, || {
        let reply = client.post("/v1/addresses", key, &body);
        assert!([201, 503].contains(&reply.status), "{reply:?}");
        (reply.status == 201).then(|| reply.json()["address"].clone())
    })
}

/// A backup, and what a payment to an address that was handed out since was credited as.
fn lost(node: &FakeNode, list: &Path, copy: &Path) -> Vec<(String, String)> {
    std::fs::write(list, [D1, D2, D3, NEXT].join("\n")).unwrap();
    let mut daemon = Daemon::start(&setup(node, Some(list)));
    let client = daemon.client("shop", "invoice:write");
    daemon.wait_height(3);
    assert_eq!(take(&client, "one"), D1);
    daemon.json(&["backup", copy.to_str().unwrap()]);
    assert_eq!(take(&client, "two"), D2);
    assert_eq!(take(&client, "three"), D3);
    node.mine(vec![tx(&[coin(1)], &[(script(D1), 1_000), (script(D2), 2_000)])]);
    node.mine(Vec::new());
    daemon.wait_height(5);
    let credits = credits(&daemon);
    assert_eq!(credits.len(), 2);
    daemon.stop();
    credits
}

/// Credits with the id of the event that told each first.
fn credits(daemon: &Daemon) -> Vec<(String, String)> {
    let created = daemon.events_of("credit.created");
    created
        .into_iter()
        .map(|event| (event.subject, event.id))
        .collect()
}

#[track_caller]
fn outcome(daemon: &Daemon, args: &[&str]) -> String {
    daemon.json(&[&["restored"], args].concat())["outcome"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[track_caller]
fn wait_done(daemon: &Daemon) -> Value {
    daemon.wait_for("the restore is over", &["restored"], |report| {
        (report["restores"][0]["is_done"] == true).then(|| report.clone())
    })
}

const DECLARE: [&str; 2] = ["--reason", "the backup of 31 January, on a new machine"];

#[test]
fn a_restore_onto_another_machine_is_declared_once_and_ends_at_the_same_credits() {
    let node = FakeNode::regtest(3);
    let folder = TempDir::new().unwrap();
    let (list, copy) = (folder.path().join("list.txt"), folder.path().join("backup.db"));
    let before = lost(&node, &list, &copy);
    let mut daemon = Daemon::prepare(&setup(&node, Some(&list)));
    std::fs::copy(&copy, daemon.database()).unwrap();
    assert_eq!(daemon.json(&["restored"])["restores"], json!([]));
    let said = String::from_utf8(daemon.cli(&["restored"]).stdout).unwrap();
    assert!(
        said.contains("next") && said.contains("`creditd check`"),
        "{said}"
    );
    let apply = [&DECLARE[..], &["--apply"]].concat();
    assert_eq!(outcome(&daemon, &DECLARE), "dry");
    let said = daemon.cli(&[&["restored"], &DECLARE[..]].concat());
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(
        said.starts_with("would begin a generation") && said.contains(" addresses of "),
        "{said}"
    );
    assert_eq!(
        daemon.json(&["restored"])["restores"],
        json!([]),
        "dry until --apply"
    );
    assert_eq!(outcome(&daemon, &apply), "done");
    assert_eq!(outcome(&daemon, &apply), "nothing");
    daemon.start_again();
    let client = daemon.client("shop", "invoice:write");
    let report = wait_done(&daemon);
    let chain = &report["restores"][0]["chains"][0];
    assert_eq!(report["restores"][0]["noticed_by"], "operator");
    assert_eq!(
        (
            &chain["backup_height"],
            &chain["lost_from_height"],
            &chain["lost_to_height"]
        ),
        (&json!(3), &json!(4), &json!(5)),
        "{report}"
    );
    assert_eq!(chain["credits_stated"], 2, "{report}");
    assert_eq!(credits(&daemon), before, "the same, under the same ids");
    assert_eq!(daemon.events_of("credit.state").len(), 2);
    assert_eq!(take(&client, "four"), NEXT, "none of those that were handed out");
    let again = daemon.cli(&[&["restored"], &apply[..]].concat());
    let told = String::from_utf8(again.stderr).unwrap();
    assert!(
        again.status.code() == Some(1) && told.contains("--again"),
        "{told}"
    );
    daemon.assert_sound();
    daemon.stop();
    daemon.start_again();
    daemon.wait_height(5);
    assert_eq!(daemon.events_of("credit.state").len(), 2, "once");
}

/// Nobody has the source any more: the chain says so and waits, until an operator leaves the addresses out.
#[test]
fn addresses_that_nobody_can_derive_hold_up_their_chain_until_they_are_left_out() {
    let node = FakeNode::regtest(3);
    let folder = TempDir::new().unwrap();
    let (list, copy) = (folder.path().join("list.txt"), folder.path().join("backup.db"));
    lost(&node, &list, &copy);
    let mut daemon = Daemon::prepare(&setup(&node, None));
    std::fs::copy(&copy, daemon.database()).unwrap();
    daemon.json(&[&["restored"], &DECLARE[..], &["--apply"]].concat());
    daemon.start_again();
    daemon.wait_state("syncing", "the config has no [[addresses]] with these");
    assert_eq!(daemon.chain("btc").unwrap()["height"], 3, "nothing is read");
    let leave = ["--leave-out", "till", "--reason", "that wallet is gone"];
    assert_eq!(outcome(&daemon, &leave), "dry");
    let apply = [&leave[..], &["--apply"]].concat();
    assert_eq!(outcome(&daemon, &apply), "done");
    assert_eq!(outcome(&daemon, &apply), "nothing");
    let report = wait_done(&daemon);
    assert_eq!(report["restores"][0]["addresses"][0]["state"], "left_out");
    assert_eq!(credits(&daemon).len(), 1, "what the backup watched is found");
    daemon.assert_sound();
}

/// Made before the first start, it has no block to go on from: `start` is the tip, and nothing is read again.
#[test]
fn a_restored_backup_without_a_block_does_not_say_that_blocks_are_read_again() {
    let node = FakeNode::regtest(3);
    let folder = TempDir::new().unwrap();
    let copy = folder.path().join("backup.db");
    let mut daemon = Daemon::prepare(&Setup::for_stub(&node.stub));
    daemon.watch(D1);
    daemon.json(&["backup", copy.to_str().unwrap()]);
    daemon.start_again();
    daemon.wait_height(3);
    node.mine(vec![tx(&[coin(1)], &[(script(D1), 1_000)])]);
    daemon.wait_height(4);
    daemon.stop();
    for file in ["creditd.db-wal", "creditd.db-shm"] {
        let _ = std::fs::remove_file(daemon.folder().join(file));
    }
    std::fs::copy(&copy, daemon.database()).unwrap();
    node.mine(Vec::new());
    daemon.start_again();
    let report = wait_done(&daemon);
    assert_eq!(
        report["restores"][0]["chains"][0]["backup_height"],
        Value::Null,
        "{report}"
    );
    let deposits = daemon.count("SELECT count(*) FROM deposits");
    assert_eq!(deposits, 0, "block 4 was not read again");
    let log = daemon.log();
    assert!(
        log.contains("it had read no block, so that none is read again below where `start`"),
        "{log}"
    );
    assert!(!log.contains("are read again"), "{log}");
}
