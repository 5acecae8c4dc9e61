//! Hints of a real bitcoind, by the very lines of docs/inbox.md.

use std::path::Path;

use serde_json::Value;

use crate::common::daemon::{Daemon, Setup};
use crate::common::net::free_port;
use crate::common::node::RegtestNode;
use crate::common::wait::{PATIENCE, wait_until};

const PAGE: &str = include_str!("../../docs/inbox.md");

/// The address of private key 1 (BIP 173).
const D1: &str = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080";

/// What the page has, with a port and a secret of the test's own.
fn written(text: &str, port: u16, secret: &Path) -> String {
    let secret = secret.display().to_string();
    let text = text.replace("/etc/creditd/hint-secret", &secret);
    text.replace("127.0.0.1:9334", &format!("127.0.0.1:{port}"))
}

fn line(named: &str) -> &'static str {
    let mut lines = PAGE.lines().filter(|line| line.starts_with(named));
    let line = lines.next().unwrap();
    assert!(lines.next().is_none(), "{named} stands there once");
    line
}

/// The source's table.
fn table() -> &'static str {
    let (_, rest) = PAGE.split_once("```toml\n").unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn notifications_of_a_node_by_the_lines_of_the_page_are_hints_each_once() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("hint-secret");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef\n").unwrap();
    let port = free_port();
    let argument = |named: &str| format!("-{}", written(line(named), port, &secret));
    let (wallet, block) = (argument("walletnotify="), argument("blocknotify="));
    let node = RegtestNode::start_with(&[&wallet, &block]);
    node.fund();
    let daemon = Daemon::start(&Setup {
        api: format!("listen = \"127.0.0.1:{port}\""),
        tables: written(table(), port, &secret),
        ..Setup::for_node(&node)
    });
    daemon.api_port();
    daemon.json(&["watch", "add", D1, "--merchant", "shop"]);
    let txid = node.send(D1, 10_000_000);
    let hints = |says: &str| {
        daemon.sql(
            &format!(
                "SELECT body, note FROM inbox WHERE state = 'done' AND instr(body, '{says}') ORDER BY id"
            ),
            |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, String>(1)?)),
        )
    };
    let told = |says: &str, count: usize| -> Vec<Value> {
        let found = wait_until(&format!("{count} hints of {says}"), PATIENCE, || {
            let found = hints(says);
            (found.len() == count).then_some(found)
        });
        assert!(
            found
                .iter()
                .all(|(_, note)| note.starts_with("looked at btc") && !note.contains("\"\"")),
            "{found:?}"
        );
        let bodies = found
            .iter()
            .map(|(body, _)| serde_json::from_slice(body).unwrap());
        bodies.collect()
    };
    // Of one payment two: it is there, and it is in a block.
    assert_eq!(told(&txid, 1)[0]["block"], "unconfirmed");
    let mined = node.mine(1).remove(0);
    assert_eq!(told(&txid, 2)[1]["block"], mined);
    // And one of the block itself, which names no transaction.
    let of_block = wait_until("a hint of the block", PATIENCE, || {
        let bodies = hints(&mined).into_iter();
        let mut bodies = bodies.map(|(body, _)| serde_json::from_slice::<Value>(&body).unwrap());
        bodies.find(|body| body.get("txid").is_none())
    });
    assert_eq!(of_block["block"], mined);
    node.mine(2);
    daemon.wait_for("the payment is credited", &["credits"], |listed| {
        (listed["credits"].as_array()?.len() == 1).then_some(())
    });
    assert_eq!(
        hints(&txid).len(),
        2,
        "the depth of a payment is no event of its own"
    );
    daemon.assert_sound();
}
