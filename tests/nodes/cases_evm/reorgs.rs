//! C06: reorgs past the credit and past the window; payments that vanish, return, or give way to another.

use serde_json::{Value, json};

use super::{
    CHAIN_ID, Chain, E1, E2, ELSEWHERE, books, journal, log, mine, nets, node_with_token, signed, wait_books,
    wait_state,
};
use crate::common::anvil::{AnvilNode, hex};
use crate::common::daemon::{Daemon, Setup};
use crate::common::evm_proxy::EvmProxy;
use crate::common::evm_proxy::script::{Asked, Fault};
use crate::common::stub::Call;
use crate::common::wait::{PATIENCE, wait_until};

/// The only `credit.reversed`: its reason, the height of the fork, and how many blocks left.
#[track_caller]
fn the_reversal(daemon: &Daemon) -> (Value, Value, Value) {
    let events = daemon.events_of("credit.reversed");
    assert_eq!(events.len(), 1, "{events:#?}");
    let data = &events[0].body["data"];
    assert_eq!(data["net_base"], "0");
    (
        data["reason"].clone(),
        data["fork_height"].clone(),
        data["reorg_depth"].clone(),
    )
}

#[test]
fn c06_evm_reorg_past_the_credit_reverses_it_once_and_goes_on() {
    let node = AnvilNode::start(CHAIN_ID);
    let daemon = Chain::at(&node.url()).coin("\"traces\"").follow(&node);
    let fork = node.height();
    let payer = node.account(1);
    let nonce = node.next_nonce(&payer);
    let paid = node.pay(&payer, E1, 5_000);
    mine(&node, &daemon, 20);
    daemon.wait_deposit(&paid, 0, "credited");
    let elsewhere = json!({
        "from": payer, "to": ELSEWHERE, "value": "0x1388", "gas": "0x5208", "nonce": hex(nonce.into()),
    });
    node.reorg(20, &[(signed(&node, elsewhere), 0)]);
    mine(&node, &daemon, 1);
    let deposit = daemon.wait_deposit(&paid, 0, "replaced");
    let rival = node.block(fork + 1)["transactions"][0].clone();
    assert_eq!(deposit["replaced_by"], rival);
    assert_eq!(journal(&daemon, &paid, 0), ["credit", "reversal"]);
    assert_eq!(the_reversal(&daemon), (json!("replaced"), json!(fork), json!(20)));
    assert_eq!(nets(&daemon), Vec::<String>::new());
    let log = daemon.log();
    assert!(
        log.lines()
            .any(|line| line.contains("WARN") && line.contains("reorg: 20 blocks")),
        "{log}"
    );
    // Scanning goes on.
    let next = node.pay(&node.account(2), E1, 7_000);
    mine(&node, &daemon, 6);
    daemon.wait_deposit(&next, 0, "credited");
    assert_eq!(nets(&daemon), ["7000"]);
    daemon.assert_sound();
}

/// Where only tokens are listed, nobody looks at nonces: the payment is gone all the same.
#[test]
fn c06_evm_reorg_without_a_token_payment_orphans_it_once_and_goes_on() {
    let (node, token) = node_with_token();
    let daemon = Chain::at(&node.url()).tusd(&token).follow(&node);
    let fork = node.height();
    let paid = token.transfer(&node, &node.account(1), E1, 5_000);
    let raw = node.raw(&paid);
    mine(&node, &daemon, 20);
    daemon.wait_deposit(&paid, log(0), "credited");
    node.reorg_away(20);
    daemon.wait_deposit(&paid, log(0), "orphaned");
    assert_eq!(the_reversal(&daemon), (json!("orphaned"), json!(fork), json!(20)));
    // It comes back in a later block, and is reinstated when it is as deep as any.
    node.send_raw(&raw);
    mine(&node, &daemon, 5);
    daemon.wait_deposit(&paid, log(0), "confirming");
    assert_eq!(nets(&daemon), Vec::<String>::new());
    mine(&node, &daemon, 1);
    daemon.wait_deposit(&paid, log(0), "credited");
    assert_eq!(
        journal(&daemon, &paid, log(0)),
        ["credit", "reversal", "reinstatement"]
    );
    assert_eq!(nets(&daemon), ["5000"]);
    daemon.assert_sound();
}

/// A node that knows no finality, as many chains have none.
fn without_tags(node: &AnvilNode) -> EvmProxy {
    let proxy = EvmProxy::in_front_of(&node.url());
    for tag in ["safe", "finalized"] {
        let asked = Asked::with("eth_getBlockByNumber", json!([tag]));
        proxy.always(asked, Fault::Error(-32_000, "safe block not found"));
    }
    proxy
}

#[test]
fn c06_evm_reorg_deeper_than_the_window_halts_that_chain_only_until_the_operator_acts() {
    let (node, other) = (AnvilNode::start(CHAIN_ID), AnvilNode::start(CHAIN_ID + 1));
    let proxy = without_tags(&node);
    let chains = [
        Chain::at(&proxy.url())
            .with("reorg_window = 100")
            .coin("\"none\""),
        Chain::at(&other.url())
            .named("other", CHAIN_ID + 1)
            .coin("\"none\""),
    ];
    let mut daemon = Daemon::prepare(&Setup::for_evm(chains.map(|chain| chain.toml()).concat()));
    for chain in ["dev", "other"] {
        daemon.json(&["watch", "add", E1, "--merchant", "shop", "--chain", chain]);
    }
    daemon.start_again();
    daemon.wait_height_of("dev", 0);
    let kept = node.pay(&node.account(1), E1, 1_000);
    mine(&node, &daemon, 1);
    let fork = node.height();
    let lost = node.pay(&node.account(2), E1, 2_000);
    mine(&node, &daemon, 157);
    wait_books(
        &daemon,
        &["native: 1000 to E1 credited", "native: 2000 to E1 credited"],
    );
    let (our_tip, events) = (node.tip(), daemon.events().len());
    node.reorg_away(157);

    let status = wait_state(
        &daemon,
        "reorg_too_deep",
        "no common ancestor in the last 100 blocks",
    );
    assert_eq!(
        (&status["is_halted"], &status["height"]),
        (&json!(true), &json!(fork + 157))
    );
    assert_one_try_per_look(&proxy, &our_tip);
    assert_eq!(nets(&daemon), ["1000", "2000"], "nothing moves by itself");
    let told: Vec<String> = daemon.events()[events..]
        .iter()
        .map(|event| event.kind.clone())
        .collect();
    assert_eq!(told, ["chain.halted"]);
    // The other chain goes on.
    let there = other.pay(&other.account(1), E1, 3_000);
    other.mine(6);
    daemon.wait_deposit(&there, 0, "credited");

    accept(&daemon, fork, &lost);
    daemon.wait_height_of("dev", node.height());
    wait_books(
        &daemon,
        &[
            "native: 1000 to E1 credited",
            "native: 2000 to E1 orphaned",
            "native: 3000 to E1 credited",
        ],
    );
    assert_eq!(journal(&daemon, &kept, 0), ["credit"]);
    assert_eq!(
        the_reversal(&daemon),
        (json!("orphaned"), json!(fork), json!(157))
    );
    assert_eq!(daemon.events_of("chain.resumed").len(), 1);
    daemon.assert_sound_in(100);
}

/// Where the branches part is looked for at most once in each look.
#[track_caller]
fn assert_one_try_per_look(proxy: &EvmProxy, our_tip: &str) {
    let by_tip = |method: &str, first: Value| {
        let calls = proxy.calls();
        let is_it = |call: &&Call| call.method == method && call.params[0] == first;
        calls.iter().filter(is_it).count()
    };
    let polls = || by_tip("eth_getBlockByNumber", json!("latest"));
    let tries = || by_tip("eth_getBlockByHash", json!(our_tip));
    let (polled, tried) = (polls(), tries());
    wait_until("ten more looks", PATIENCE, || {
        (polls() >= polled + 10).then_some(())
    });
    let (tried, polled) = (tries() - tried, polls() - polled);
    // A look may be under way at either end of the count.
    assert!(tried <= polled + 1, "{tried} tries in {polled} looks");
}

/// The operator looks, and re-anchors: only this payment would be lost.
#[track_caller]
fn accept(daemon: &Daemon, fork: u64, lost: &str) {
    let fork_text = fork.to_string();
    let why = ["--reason", "checked elsewhere", "--chain", "dev"];
    let accept = [&["chain", "accept-reorg", "--fork", &fork_text], why.as_slice()].concat();
    let dry = daemon.ask(&accept).unwrap();
    let listed = dry["deposits"].as_array().unwrap();
    assert_eq!((listed.len(), &listed[0]["txid"]), (1, &json!(lost)), "{dry}");
    daemon.json(&[accept.as_slice(), &["--apply"]].concat());
}

/// As deep as the window is, it is followed.
#[test]
fn c06_evm_reorg_at_the_edge_of_the_window_is_followed() {
    let node = AnvilNode::start(CHAIN_ID);
    let proxy = without_tags(&node);
    node.mine(1);
    let daemon = Chain::at(&proxy.url())
        .with("reorg_window = 20")
        .coin("\"none\"")
        .follow(&node);
    let fork = node.height();
    let paid = node.pay(&node.account(1), E1, 5_000);
    mine(&node, &daemon, 20);
    daemon.wait_deposit(&paid, 0, "credited");
    node.reorg_away(20);
    daemon.wait_deposit(&paid, 0, "orphaned");
    assert_eq!(the_reversal(&daemon), (json!("orphaned"), json!(fork), json!(20)));
    daemon.wait_height_of("dev", node.height());
    let next = node.pay(&node.account(2), E1, 6_000);
    mine(&node, &daemon, 20);
    daemon.wait_deposit(&next, 0, "credited");
    node.reorg_away(21);
    wait_state(
        &daemon,
        "reorg_too_deep",
        "no common ancestor in the last 20 blocks",
    );
    assert_eq!(nets(&daemon), ["6000"]);
    daemon.assert_sound_in(20);
}

#[test]
fn c06_evm_chain_without_confirmations_is_a_config_error() {
    let node = "http://127.0.0.1:1";
    let good = Chain::at(node)
        .coin("\"none\"")
        .token(ELSEWHERE, "TUSD", 6)
        .toml();
    let policy = "policy = [ { confirmations = 6 } ]\n";
    let places: Vec<usize> = good.match_indices(policy).map(|(at, _)| at).collect();
    assert_eq!(places.len(), 2, "the coin's and the token's");
    for at in places {
        for other in [
            "",
            "policy = []\n",
            "policy = [ { confirmations = 0 } ]\n",
            "policy = [ { below = \"1\" } ]\n",
        ] {
            let mut bad = good.clone();
            bad.replace_range(at..at + policy.len(), other);
            let mut daemon = Daemon::prepare(&Setup::for_evm(bad));
            let refused = daemon.cli(&["run"]);
            let said = String::from_utf8(refused.stderr).unwrap();
            assert_eq!(refused.status.code(), Some(2), "{other}: {said}");
            assert!(
                said.contains("policy") || said.contains("confirmations"),
                "{other}: {said}"
            );
            assert!(!daemon.is_running() && !daemon.database().exists());
        }
    }
}

#[test]
fn payment_that_vanishes_and_returns_over_and_over_is_one_credit() {
    let node = AnvilNode::start(CHAIN_ID);
    let chain = Chain::at(&node.url()).with("pending_ms = 50").coin("\"traces\"");
    let mut daemon = chain.follow(&node);
    let paid = node.pay(&node.account(1), E1, 5_000);
    let raw = node.raw(&paid);
    daemon.wait_deposit(&paid, 0, "seen");
    mine(&node, &daemon, 6);
    daemon.wait_deposit(&paid, 0, "credited");
    for round in 0..3 {
        node.reorg_away(node.height() - node.receipt(&paid).map_or(0, |at| at_height(&at)) + 1);
        daemon.wait_deposit(&paid, 0, "orphaned");
        assert_eq!(nets(&daemon), Vec::<String>::new());
        if round == 1 {
            daemon.stop();
            daemon.start_again();
        }
        node.send_raw(&raw);
        daemon.wait_deposit(&paid, 0, "seen");
        mine(&node, &daemon, 6);
        daemon.wait_deposit(&paid, 0, "credited");
        assert_eq!(nets(&daemon), ["5000"]);
    }
    assert_eq!(journal(&daemon, &paid, 0).len(), 7);
    assert_eq!(daemon.credits().len(), 1);
    daemon.assert_sound();
}

fn at_height(receipt: &Value) -> u64 {
    crate::common::anvil::quantity(&receipt["blockNumber"])
        .try_into()
        .unwrap()
}

/// The node has gone back past the credit and stands there: nothing is undone before another branch is
/// better.
#[test]
fn rollback_past_a_credit_undoes_nothing_before_another_branch_is_better() {
    let node = AnvilNode::start(CHAIN_ID);
    let daemon = Chain::at(&node.url()).coin("\"traces\"").follow(&node);
    let fork = node.height();
    let paid = node.pay(&node.account(1), E1, 5_000);
    mine(&node, &daemon, 6);
    daemon.wait_deposit(&paid, 0, "credited");
    node.rollback(6);
    wait_state(&daemon, "behind", "");
    node.mine(5);
    wait_state(&daemon, "behind", "");
    assert_eq!(nets(&daemon), ["5000"]);
    assert_eq!(daemon.events_of("credit.reversed").len(), 0);
    mine(&node, &daemon, 2);
    daemon.wait_deposit(&paid, 0, "orphaned");
    assert_eq!(the_reversal(&daemon), (json!("orphaned"), json!(fork), json!(6)));
    daemon.assert_sound();
}

#[test]
fn waiting_payment_that_gives_way_to_another_of_its_nonce_is_replaced() {
    let node = AnvilNode::start(CHAIN_ID);
    let chain = Chain::at(&node.url()).with("pending_ms = 50").coin("\"traces\"");
    let daemon = chain.follow(&node);
    let first = node.pay(&node.account(1), E1, 5_000);
    daemon.wait_deposit(&first, 0, "seen");
    let second = node.replace(&first, E2, 6_000);
    let replaced = daemon.wait_deposit(&first, 0, "replaced");
    assert_eq!(replaced["replaced_by"], json!(second));
    daemon.wait_deposit(&second, 0, "seen");
    // And once more, in a block that nobody saw coming.
    let third = node.replace(&second, ELSEWHERE, 7_000);
    mine(&node, &daemon, 6);
    let replaced = daemon.wait_deposit(&second, 0, "replaced");
    assert_eq!(replaced["replaced_by"], json!(third));
    assert_eq!(
        books(&daemon),
        ["native: 5000 to E1 replaced", "native: 6000 to E2 replaced"]
    );
    assert_eq!(daemon.credits().len(), 0);
    daemon.assert_sound();
}
