//! C05 and C06: reorgs that replace a payment, take a credit back, or go deeper than what is kept.

use serde_json::{Value, json};

use crate::common::asks::{D1, D2, script, wait_polls};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::node::RegtestNode;
use crate::common::stub::StubNode;
use crate::common::wallet::RawTx;

/// A funded node and a daemon that has followed it from block 1.
fn follow(node: &RegtestNode) -> Daemon {
    node.fund();
    let setup = Setup {
        chain_lines: "start = 1\n".to_owned(),
        ..Setup::for_node(node)
    };
    Daemon::watching(&setup, D1, node.height())
}

/// Two payments of 0.05 from one coin: only one of them can be real.
fn rivals(node: &RegtestNode, to: [&str; 2]) -> [RawTx; 2] {
    let (coin, change) = (node.coin(), node.new_address());
    let pay = |to: &str, fee: u64| {
        node.spend(
            &[&coin],
            &[(to, 5_000_000), (&change, coin.sat - 5_000_000 - fee)],
        )
    };
    [pay(to[0], 1_000), pay(to[1], 2_000)]
}

/// C05, with the first payment already credited or not, and back again to the branch that held it.
fn double_spend(is_credited: bool) {
    let node = RegtestNode::start();
    let mut daemon = follow(&node);
    let [t1, t2] = rivals(&node, [D1, D1]);
    let stale = node.generateblock(&[&t1.hex]);
    daemon.wait_deposit(&t1.txid, 0, "confirming");
    if is_credited {
        node.mine(2);
        daemon.wait_deposit(&t1.txid, 0, "credited");
    }
    node.invalidate(&stale);
    node.generateblock(&[&t2.hex]);
    node.mine(2);
    daemon.stop();
    node.mine(2);
    daemon.start_again();
    daemon.wait_deposit(&t2.txid, 0, "credited");
    daemon.wait_height(115);

    let replaced = daemon.wait_deposit(&t1.txid, 0, "replaced");
    assert_eq!(replaced["replaced_by"], t2.txid.as_str());
    let told = String::from_utf8(daemon.cli(&["tx", &t1.txid]).stdout).unwrap();
    assert!(told.contains(&format!("replaced by {}", t2.txid)), "{told}");
    assert_eq!(daemon.net_sum(), 5_000_000, "paid once");
    let net = |txid: &str| -> Vec<Value> {
        let credits = daemon.credits().into_iter();
        credits
            .filter(|credit| credit["txid"] == txid)
            .map(|credit| credit["net_base"].clone())
            .collect()
    };
    assert_eq!(net(&t2.txid), ["5000000"]);
    let of_t1: Vec<Value> = if is_credited { vec![json!("0")] } else { Vec::new() };
    assert_eq!(net(&t1.txid), of_t1);
    let deposits = daemon.json(&["deposits", "list"])["deposits"].clone();
    assert_eq!(deposits.as_array().unwrap().len(), 2, "one of each, no more");
    daemon.assert_sound();

    // The old branch wins after all: the same two payments the other way round.
    node.reconsider(&stale);
    let left = node.block_hash(113);
    node.invalidate(&node.block_hash(111));
    assert_ne!(node.tip(), left);
    node.mine(8);
    daemon.wait_deposit(&t1.txid, 0, "credited");
    daemon.wait_deposit(&t2.txid, 0, "replaced");
    assert_eq!(daemon.net_sum(), 5_000_000, "still once");
    daemon.assert_sound();
}

#[test]
fn c05_reorg_double_spend_is_paid_once() {
    double_spend(false);
}

#[test]
fn c05_reorg_double_spend_of_a_credited_payment_is_paid_once() {
    double_spend(true);
}

#[test]
fn c06_reorg_past_the_credit_reverses_it_once_and_goes_on() {
    let node = RegtestNode::start();
    let daemon = follow(&node);
    let elsewhere = node.new_address();
    let [paid, taken_back] = rivals(&node, [D1, &elsewhere]);
    let fork = node.height();
    let stale = node.generateblock(&[&paid.hex]);
    node.mine(19);
    daemon.wait_deposit(&paid.txid, 0, "credited");
    daemon.wait_height(fork + 20);
    node.invalidate(&stale);
    node.generateblock(&[&taken_back.hex]);
    node.mine(20);
    let deposit = daemon.wait_deposit(&paid.txid, 0, "replaced");
    assert_eq!(deposit["replaced_by"], taken_back.txid.as_str());
    let journal = deposit["credit"]["journal"].as_array().unwrap();
    assert_eq!(journal.last().unwrap()["entry"], "reversal");
    assert_eq!(daemon.net_sum(), 0);
    let reversed = daemon.events_of("credit.reversed");
    assert_eq!(reversed.len(), 1);
    let data = &reversed[0].body["data"];
    assert_eq!(
        (&data["net_base"], &data["reason"]),
        (&json!("0"), &json!("replaced"))
    );
    assert_eq!(
        (&data["fork_height"], &data["reorg_depth"]),
        (&json!(fork), &json!(20)),
        "{data}"
    );
    let log = daemon.log();
    assert!(
        log.contains("WARN") && log.contains("reorg: 20 blocks"),
        "operators are told"
    );
    // Scanning goes on, and the next payment is credited as ever.
    daemon.wait_height(fork + 21);
    let next = node.payment(D1, 7_000);
    node.broadcast(&next);
    node.mine(3);
    daemon.wait_deposit(&next.txid, 0, "credited");
    assert_eq!(daemon.net_sum(), 7_000);
    daemon.assert_sound();
}

/// How often a method was called, with this first parameter.
fn asked(stub: &StubNode, method: &str, first: &Value) -> usize {
    let calls = stub.calls();
    calls
        .iter()
        .filter(|call| call.method == method && call.params.first() == Some(first))
        .count()
}

#[test]
fn c06_reorg_deeper_than_the_window_halts_that_chain_only_until_the_operator_acts() {
    let node = RegtestNode::start();
    node.fund();
    let stub = StubNode::in_front_of(&node);
    let other = FakeNode::regtest(1);
    let setup = Setup {
        chain_lines: "start = 1\n".to_owned(),
        ..Setup::for_stub(&stub)
    };
    let mut daemon = Daemon::prepare(&setup.beside(&other.stub));
    daemon.watch(D1);
    daemon.json(&["watch", "add", D2, "--merchant", "shop", "--chain", "other"]);
    daemon.start_again();
    daemon.wait_height(110);
    let elsewhere = node.new_address();
    let kept = node.payment(D1, 1_000_000);
    let [lost, rival] = rivals(&node, [D1, &elsewhere]);
    node.generateblock(&[&kept.hex]);
    let stale = node.generateblock(&[&lost.hex]);
    node.mine(150);
    daemon.wait_height(262);
    assert_eq!(daemon.net_sum(), 6_000_000);
    let our_tip = json!(node.tip());
    let events = daemon.events();

    // 151 blocks leave; the new branch is longer.
    node.invalidate(&stale);
    node.generateblock(&[&rival.hex]);
    node.mine(160);
    let status = daemon.wait_state("reorg_too_deep", "no common ancestor in the last 144 blocks");
    assert_eq!(status["is_halted"], true);
    let (polls, tries) = (
        stub.count("getblockchaininfo"),
        asked(&stub, "getblockheader", &our_tip),
    );
    wait_polls(&stub, 10);
    let more = stub.count("getblockchaininfo") - polls;
    let tried = asked(&stub, "getblockheader", &our_tip) - tries;
    assert!(tried <= more, "{tried} attempts in {more} polls");
    assert_eq!(daemon.net_sum(), 6_000_000, "nothing moves by itself");
    let told: Vec<String> = daemon.events()[events.len()..]
        .iter()
        .map(|event| event.kind.clone())
        .collect();
    assert_eq!(told, ["chain.halted"]);
    // A restart finds the same and says it no second time.
    daemon.stop();
    daemon.start_again();
    daemon.wait_state("reorg_too_deep", "no common ancestor in the last 144 blocks");
    assert_eq!(daemon.events().len(), events.len() + 1);
    // The other chain goes on.
    let there = tx(&[coin(1)], &[(script(D2), 9_000)]);
    let there_id = there.compute_txid().to_string();
    other.mine(vec![there]);
    other.mine(Vec::new());
    other.mine(Vec::new());
    daemon.wait_deposit(&there_id, 0, "credited");

    accept(&daemon, &kept, &lost);
    daemon.wait_height(272);
    assert_eq!(daemon.deposit(&lost.txid, 0).unwrap()["state"], "replaced");
    assert_eq!(daemon.deposit(&kept.txid, 0).unwrap()["state"], "credited");
    assert_eq!(daemon.net_sum(), 1_009_000);
    let reversed = daemon.events_of("credit.reversed");
    assert_eq!(reversed.len(), 1);
    let data = &reversed[0].body["data"];
    assert_eq!(
        (&data["fork_height"], &data["reorg_depth"]),
        (&json!(111), &json!(151))
    );
    assert_eq!(daemon.events_of("chain.resumed").len(), 1);
    daemon.assert_sound();
}

/// The operator looks, errs, and re-anchors.
fn accept(daemon: &Daemon, kept: &RawTx, lost: &RawTx) {
    let fork = |height: &str, more: &[&str]| {
        let why = [
            "--reason",
            "checked with another node",
            "--chain",
            "btc",
            "--json",
        ];
        daemon.cli(&[&["chain", "accept-reorg", "--fork", height], why.as_slice(), more].concat())
    };
    let missing = fork("115", &["--apply"]);
    assert_eq!(
        missing.status.code(),
        Some(1),
        "no header is held there: {missing:?}"
    );
    let dry: Value = serde_json::from_slice(&fork("111", &[]).stdout).unwrap();
    assert_eq!(dry["outcome"], "dry");
    let listed: Vec<&Value> = dry["deposits"].as_array().unwrap().iter().collect();
    assert_eq!(listed.len(), 1, "{dry}");
    assert_eq!(listed[0]["txid"], lost.txid.as_str());
    assert_ne!(listed[0]["txid"], kept.txid.as_str());
    // A block of the dead branch: the node never serves it, so nothing happens, and the right one may follow.
    assert!(fork("112", &["--apply"]).status.success());
    daemon.wait_state("reorg_too_deep", "no common ancestor");
    let right = fork("111", &["--apply"]);
    assert!(right.status.success(), "{right:?}");
}
