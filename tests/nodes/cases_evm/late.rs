//! Addresses that are watched late or made by the payment itself, coin that comes without a call, and credits
//! that wait for finality.

use serde_json::{Value, json};

use super::{
    COIN, Chain, E1, E2, ELSEWHERE, again, books, inner, journal, log, mine, nets, node_with_token, signed,
    wait_books, watch,
};
use crate::common::anvil::{AnvilNode, hex};
use crate::common::contracts::{Arg, Contract, address, uint};
use crate::common::daemon::{Daemon, Setup};
use crate::common::evm::Splitter;

#[test]
fn address_that_is_watched_late_has_its_past_only_by_a_backfill() {
    let (node, token) = node_with_token();
    let splitter = Splitter::deploy(&node);
    let daemon = Chain::at(&node.url())
        .coin("\"traces\"")
        .tusd(&token)
        .follow(&node);
    let first = node.height() + 1;
    node.pay(&node.account(1), ELSEWHERE, 5);
    token.transfer(&node, &node.account(2), ELSEWHERE, 6);
    splitter.split(&node, &node.account(3), &[(E1, 7), (ELSEWHERE, 8)], 15);
    mine(&node, &daemon, 6);
    wait_books(&daemon, &["inner call 0: 7 to E1 credited"]);
    watch(&daemon, ELSEWHERE);
    mine(&node, &daemon, 1);
    assert_eq!(books(&daemon).len(), 1);
    let all = [
        "inner call 0: 7 to E1 credited".to_owned(),
        format!("inner call 1: 8 to {ELSEWHERE_SHOWN} credited"),
        format!("log 0: 6 to {ELSEWHERE_SHOWN} credited"),
        format!("native: 5 to {ELSEWHERE_SHOWN} credited"),
    ];
    let from = first.to_string();
    for _ in 0..2 {
        let what = [
            "rescan",
            "--from",
            &from,
            "--backfill",
            ELSEWHERE,
            "--reason",
            "moved",
            "--apply",
        ];
        daemon.json(&what);
        wait_books(&daemon, &all.each_ref().map(String::as_str));
    }
    assert_eq!(daemon.credits().len(), 4);
    assert_eq!(daemon.events_of("credit.created").len(), 4);
    daemon.assert_sound();
}

/// As every answer shows it.
const ELSEWHERE_SHOWN: &str = "0xE1E1E1e1E1E1e1e1E1E1E1e1e1e1E1E1E1E1e1e1";

/// A wallet that is a contract: its address is known before it is made, and what makes it pays it.
#[test]
fn creation_that_brings_coin_to_a_watched_address_is_a_payment_to_it() {
    let node = AnvilNode::start(super::CHAIN_ID);
    let creation = Contract::named("Splitter").creation(&[]);
    let before = node.snapshot();
    let address = node.deploy(&creation, 0);
    node.revert(&before);
    let mut daemon = Daemon::prepare(&Chain::at(&node.url()).coin("\"traces\"").setup());
    watch(&daemon, &address);
    daemon.start_again();
    daemon.wait_height_of("dev", node.height());
    assert_eq!(node.deploy(&creation, 5), address);
    node.pay(&node.account(1), ELSEWHERE, 1);
    let fields = json!({ "from": node.account(1), "to": address, "value": "0x7", "gas": "0x30d40" });
    let plain = node.send(fields);
    mine(&node, &daemon, 6);
    let amounts = || {
        let mut nets = nets(&daemon);
        nets.sort();
        nets
    };
    daemon.wait_deposit(&plain, 0, "credited");
    assert_eq!(amounts(), ["5", "7"]);
    daemon.assert_sound();
}

/// Coin that a contract hands on as it ends, as much as it has: another run of the same transaction can bring
/// more.
fn self_destruction_that_runs_again(is_credited: bool) {
    let node = AnvilNode::start(super::CHAIN_ID);
    let contract = Contract::named("SelfDestructor");
    let at = node.deploy(&contract.creation(&[]), 5);
    let daemon = Chain::at(&node.url()).coin("\"traces\"").follow(&node);
    let destroy = contract.call_data("destroy", &[address(E1)]);
    let depth = if is_credited { 6 } else { 2 };
    let nonce = node.next_nonce(&node.account(2));
    let more = json!({
        "from": node.account(2), "to": at, "value": "0x3", "gas": "0x30d40", "nonce": hex(nonce.into()),
    });
    let more = signed(&node, more);
    let tx = node.invoke(&node.account(1), &at, &destroy, 0);
    let raw = node.raw(&tx);
    mine(&node, &daemon, depth);
    daemon.wait_deposit(&tx, inner(0), if is_credited { "credited" } else { "confirming" });
    node.reorg(depth.into(), &[(more, 0), (raw, 0)]);
    mine(&node, &daemon, 7);
    let second = match is_credited {
        true => "inner call 0, execution 1: 8 to E1 confirming held reexecuted",
        false => "inner call 0, execution 1: 8 to E1 credited",
    };
    wait_books(&daemon, &[second, "inner call 0: 5 to E1 orphaned"]);
    if is_credited {
        assert_eq!(journal(&daemon, &tx, inner(0)), ["credit", "reversal"]);
        assert_eq!(nets(&daemon), Vec::<String>::new());
    } else {
        assert_eq!(journal(&daemon, &tx, again(inner(0), 1)), ["credit"]);
        assert_eq!(nets(&daemon), ["8"]);
    }
    daemon.assert_sound();
}

#[test]
fn self_destruction_that_brings_more_in_another_run_is_credited_once_as_it_is() {
    self_destruction_that_runs_again(false);
}

#[test]
fn self_destruction_that_brings_more_after_the_credit_is_held() {
    self_destruction_that_runs_again(true);
}

/// A fee that no log shows: the payment is held where the config says that balances are compared, an open one
/// is what the log says.
#[test]
fn token_that_takes_a_hidden_fee_is_held_where_balances_are_compared() {
    let (node, token) = node_with_token();
    let chain = Chain::at(&node.url()).token_with(&token.address, "TUSD", 6, "check_balance = true");
    let daemon = chain.follow(&node);
    let set_fee = |is_hidden: bool| {
        let args = [uint(1_000), address(&node.account(3)), Arg::Bool(is_hidden)];
        token.invoke(&node, &node.account(0), "setFee", &args);
        node.mine(1);
    };
    token.transfer(&node, &node.account(1), E2, 1_000);
    node.mine(1);
    set_fee(true);
    token.transfer(&node, &node.account(1), E1, 2_000);
    node.mine(1);
    set_fee(false);
    token.transfer(&node, &node.account(1), E1, 3_000);
    mine(&node, &daemon, 6);
    wait_books(
        &daemon,
        &[
            "log 0: 1000 to E2 credited",
            "log 0: 2000 to E1 confirming held balance_differs",
            "log 0: 2700 to E1 credited",
        ],
    );
    assert_eq!(nets(&daemon), ["1000", "2700"]);
    daemon.assert_sound();
}

/// The node's tags are 32 and 64 blocks below its tip.
#[test]
fn credit_that_waits_for_a_tag_comes_with_the_block_that_makes_it_safe_or_final() {
    let (node, token) = node_with_token();
    let chain = Chain::at(&node.url()).coin("\"none\"").tusd(&token).toml();
    let (coin, tokens) = chain.split_once("[[evm.token]]").unwrap();
    let wait =
        |table: &str, tag: &str| table.replace("confirmations = 6", &format!("confirmations = \"{tag}\""));
    let toml = format!("{}[[evm.token]]{}", wait(coin, "safe"), wait(tokens, "finalized"));
    let mut daemon = Daemon::prepare(&Setup::for_evm(toml));
    watch(&daemon, E1);
    daemon.start_again();
    daemon.wait_height_of("dev", node.height());
    let coin = node.pay(&node.account(1), E1, COIN);
    let tokens = token.transfer(&node, &node.account(2), E1, 6);
    node.mine(1);
    let height = node.height();
    mine(&node, &daemon, 31);
    let state = |tx: &str, vout| daemon.deposit(tx, vout).unwrap()["state"].clone();
    assert_eq!(
        (state(&coin, 0), state(&tokens, log(0))),
        (json!("confirming"), json!("confirming"))
    );
    mine(&node, &daemon, 1);
    daemon.wait_deposit(&coin, 0, "credited");
    mine(&node, &daemon, 31);
    assert_eq!(state(&tokens, log(0)), json!("confirming"));
    mine(&node, &daemon, 1);
    daemon.wait_deposit(&tokens, log(0), "credited");
    let final_height = |status: &Value| status["chains"][0]["finalized_height"].as_u64();
    assert_eq!(final_height(&daemon.json(&["chain", "status"])), Some(height));
    daemon.assert_sound();
}
