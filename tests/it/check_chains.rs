//! `creditd check`: whether database, config and nodes are of one chain.

use serde_json::Value;

use crate::common::asks::{D1, script};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::stub::Reply;
use crate::common::wait::{PATIENCE, wait_until};

/// A daemon that has credited a payment in block 4 of 6, and was stopped; a window of 6 blocks.
fn stopped(node: &FakeNode) -> Daemon {
    let mut daemon = Daemon::start(&setup(node));
    daemon.wait_height(3);
    daemon.watch(D1);
    let paid = tx(&[coin(1)], &[(script(D1), 1_000_000)]);
    let txid = paid.compute_txid().to_string();
    node.mine(vec![paid]);
    for _ in 0..10 {
        node.mine(Vec::new());
    }
    daemon.wait_height(14);
    daemon.wait_deposit(&txid, 0, "credited");
    daemon.stop();
    daemon
}

fn setup(node: &FakeNode) -> Setup {
    Setup {
        chain_lines: "reorg_window = 6\n".to_owned(),
        ..Setup::for_stub(&node.stub)
    }
}

/// Another branch from a height on, of so many blocks.
fn fork(node: &FakeNode, height: usize, blocks: u32) {
    node.back_to(height);
    for number in 100..100 + blocks {
        node.mine(vec![tx(&[coin(number)], &[(script(D1), 5)])]);
    }
}

#[track_caller]
fn assert_line(daemon: &Daemon, name: &str, verdict: &str, words: [&str; 2]) {
    let output = daemon.cli(&["check", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lines = answer["lines"].as_array().unwrap();
    let line = lines
        .iter()
        .find(|line| line["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {answer}"));
    let [found, next] = ["found", "next_step"].map(|key| line[key].as_str().unwrap());
    assert_eq!(line["verdict"], verdict, "{line}");
    assert!(found.contains(words[0]) && next.contains(words[1]), "{line}");
    assert_eq!(
        output.status.code(),
        Some(i32::from(verdict == "bad")),
        "{answer}"
    );
}

/// It is there and lets us in: nothing in the config is wrong.
#[test]
fn check_of_a_node_that_cannot_answer_now_sends_nobody_to_the_config() {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::prepare(&setup(&node));
    let replies = [
        (
            Reply::Error(-28, "Verifying blocks..."),
            ["warming up: Verifying", "wait until the node has started"],
        ),
        (
            Reply::Text(429, "slower"),
            ["over the node's limit", "lower the rate: "],
        ),
    ];
    for (reply, words) in replies {
        node.stub.handle(move |_| Some(reply.clone()));
        assert_line(&daemon, "node", "bad", words);
    }
}

#[test]
fn check_sees_a_node_on_another_branch_than_the_database() {
    let node = FakeNode::regtest(3);
    let daemon = stopped(&node);
    assert_eq!(daemon.check_line("branch"), None, "they agree");
    node.back_to(12);
    let behind = [
        "the node is 2 blocks behind the database, which is at block 14",
        "wait",
    ];
    assert_line(&daemon, "branch", "warning", behind);
    fork(&node, 11, 5);
    let left = [
        "left the database's chain after block 11: 3 blocks above it",
        "the daemon follows",
    ];
    assert_line(&daemon, "branch", "warning", left);
    fork(&node, 5, 12);
    let deep = ["has none of blocks 8 to 14", "name a new `database`"];
    assert_line(&daemon, "branch", "bad", deep);
    // What it does not have yet says nothing about its branch, be it as deep as no reorg may be.
    node.back_to(3);
    let far = [
        "the node is 11 blocks behind the database, which is at block 14",
        "if it catches up",
    ];
    assert_line(&daemon, "branch", "warning", far);
}

/// Every network of a kind begins with the same block: that says nothing about what came after.
#[test]
fn check_sees_a_node_of_another_network_that_began_in_the_same_way() {
    let node = FakeNode::regtest(0);
    let mut daemon = Daemon::start(&Setup::for_stub(&node.stub));
    for _ in 0..5 {
        node.mine(Vec::new());
    }
    daemon.wait_height(5);
    daemon.stop();
    fork(&node, 0, 7);
    let words = [
        "the node has no block above 0 of the database, which is at block 5",
        "name a new `database`",
    ];
    assert_line(&daemon, "branch", "bad", words);
}

#[test]
fn check_sees_that_the_database_was_followed_under_another_instance_name() {
    let node = FakeNode::regtest(3);
    let mut daemon = stopped(&node);
    daemon.write_config(&Setup {
        instance: "other".to_owned(),
        ..setup(&node)
    });
    let words = [
        "1 credit of bip122:0f9188f13cb7b2c71f2a335e3a4fc328@test",
        "`instance = \"test\"`",
    ];
    assert_line(&daemon, "chain", "bad", words);
    // Once it is followed under that name, it is a chain that began anew, as docs/evm.md has it.
    daemon.start_again();
    wait_until("the new one is followed", PATIENCE, || {
        let line = daemon.check_line("chain")?;
        (line["verdict"] == "warning").then_some(())
    });
    daemon.stop();
    let words = ["1 credit of bip122:", "bring its section back"];
    assert_line(&daemon, "chain", "warning", words);
}

#[test]
fn check_sees_credits_of_a_chain_that_the_config_has_lost() {
    let [node, other] = [FakeNode::regtest(3), FakeNode::regtest(3)];
    let daemon = stopped(&node);
    assert_eq!(daemon.check_line("chain"), None);
    let signet = Setup {
        network: "signet".to_owned(),
        instance: String::new(),
        ..Setup::for_stub(&other.stub)
    };
    daemon.write_config(&signet);
    let answer = daemon.cli(&["check", "--json"]);
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let lines = answer["lines"].as_array().unwrap();
    let line = lines.iter().find(|line| line["name"] == "chain").unwrap();
    assert_eq!(line["verdict"], "warning", "{line}");
    let found = line["found"].as_str().unwrap();
    assert!(
        found.contains("1 credit of bip122:") && found.contains("nobody follows it"),
        "{line}"
    );
    assert!(
        line["next_step"]
            .as_str()
            .unwrap()
            .contains("bring its section back"),
        "{line}"
    );
}

#[test]
fn check_sees_that_the_node_does_not_derive_the_addresses_of_a_pool() {
    let node = FakeNode::regtest(3);
    let key = "tpubDC2Q4xK4XH72Gc1pNBJaCK6zZ5a28Snc6uyoL2mJCNNXoVGQajoWwARF\
               wcgt1zKNjWVxEXicux6hrKewpocDJsgBezxrG8DJDtWxkLor2Nc";
    let daemon = Daemon::prepare(&Setup {
        tables: format!(
            "[[addresses]]\nname = \"till\"\nchain = \"btc\"\nxpub = \"{key}\"\nscript = \"wpkh\"\n"
        ),
        ..setup(&node)
    });
    let output = daemon.cli(&["check"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("till cannot be filled with addresses: the node does not derive them")
            && said.contains("deriveaddresses"),
        "{said}"
    );
}
