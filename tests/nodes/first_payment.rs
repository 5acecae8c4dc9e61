//! One payment becomes one credit, through the real binary. `tests/run first-payment` shows it.

use serde_json::Value;

use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;

/// The address of private key 1 (BIP 173).
const D1: &str = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080";

/// Runs a command and prints it with its answer, for whoever watches.
#[track_caller]
fn show(daemon: &Daemon, args: &[&str]) {
    let output = daemon.cli(args);
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    println!("\n$ creditd {}\n{stdout}{stderr}", args.join(" "));
    assert!(output.status.success(), "creditd {args:?}: {}", output.status);
}

/// The deposit in the answer of `creditd tx`, once the transaction is known.
fn deposit(answer: &Value) -> Option<&Value> {
    answer["transactions"][0]["outputs"]
        .as_array()?
        .iter()
        .map(|output| &output["deposit"])
        .find(|d| d.is_object())
}

fn in_state(state: &str) -> impl Fn(&Value) -> Option<()> + '_ {
    move |answer| (deposit(answer)?["state"] == state).then_some(())
}

#[test]
fn first_payment_becomes_a_credit() {
    let node = RegtestNode::start();
    node.fund();
    println!("a regtest node at {}, height {}", node.url(), node.height());
    let mut daemon = Daemon::prepare(&Setup::for_node(&node));
    println!(
        "\n$ cat creditd.toml\n{}",
        std::fs::read_to_string(daemon.config_file()).unwrap()
    );
    show(&daemon, &["check"]);
    println!("\n$ creditd run &");
    daemon.start_again();
    daemon.wait_for("the chain is followed", &["chain", "status"], |answer| {
        (answer["chains"][0]["height"] == 110).then_some(())
    });
    show(
        &daemon,
        &["watch", "add", D1, "--merchant", "shop", "--reference", "order-1"],
    );

    let txid = node.send(D1, 10_000_000);
    println!("\n0.1 BTC sent to {D1}");
    daemon.wait_for("the payment is seen", &["tx", &txid], in_state("seen"));
    show(&daemon, &["tx", &txid]);

    node.mine(1);
    println!("\none block mined");
    daemon.wait_for(
        "the payment is in a block",
        &["tx", &txid],
        in_state("confirming"),
    );
    show(&daemon, &["tx", &txid]);

    node.mine(2);
    println!("\ntwo more blocks mined");
    daemon.wait_for("the payment is credited", &["tx", &txid], in_state("credited"));
    show(&daemon, &["tx", &txid]);
    show(&daemon, &["balances"]);

    let answer = daemon.json(&["tx", &txid]);
    let credit = &deposit(&answer).unwrap()["credit"];
    assert_eq!(
        (credit["net_base"].as_str(), credit["net"].as_str()),
        (Some("10000000"), Some("0.1")),
        "{credit}"
    );
    assert_eq!(credit["journal"].as_array().map(Vec::len), Some(1), "{credit}");
    daemon.stop();
    daemon.start_again();
    node.mine(1);
    daemon.wait_for("the chain is followed again", &["chain", "status"], |answer| {
        (answer["chains"][0]["height"] == 114).then_some(())
    });
    assert_eq!(
        deposit(&daemon.json(&["tx", &txid])).unwrap()["credit"],
        *credit,
        "a restart changes nothing"
    );
    daemon.stop();
}
