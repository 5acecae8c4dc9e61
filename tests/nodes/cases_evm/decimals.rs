//! C18 and C33: amounts to the last unit, and decimals that are not what the config says.

use ruint::aliases::U256;
use serde_json::{Value, json};

use super::{CHAIN_ID, COIN, Chain, E1, E2, books, log, mine, nets, wait_books};
use crate::common::anvil::AnvilNode;
use crate::common::contracts::{Arg, Contract, Token, address};
use crate::common::daemon::Daemon;

fn token(node: &AnvilNode, decimals: u8) -> Token {
    let token = Token::deploy(node, &format!("T{decimals}"), decimals);
    token.mint(node, &node.account(1), u128::MAX);
    node.mine(1);
    token
}

#[test]
fn c18_amounts_of_tokens_of_any_decimals_are_exact() {
    let node = AnvilNode::start(CHAIN_ID);
    let tokens: Vec<(Token, u8)> = [0, 6, 8, 18]
        .map(|decimals| (token(&node, decimals), decimals))
        .into();
    let listed = tokens
        .iter()
        .fold(Chain::at(&node.url()), |chain, (token, decimals)| {
            chain.token(&token.address, &format!("T{decimals}"), *decimals)
        });
    let daemon = listed.follow(&node);
    // 3, 10.5, 10.5 and 10.5; then one unit less of each; then the smallest amount that there is.
    let exact: [(u128, &str, &str); 4] = [
        (3, "3", "2"),
        (10_500_000, "10.5", "10.499999"),
        (1_050_000_000, "10.5", "10.49999999"),
        (10_500_000_000_000_000_000, "10.5", "10.499999999999999999"),
    ];
    let mut expected = Vec::new();
    for ((token, _), (raw, whole, less)) in tokens.iter().zip(exact) {
        let pay = |amount| token.transfer(&node, &node.account(1), E1, amount);
        expected.push((pay(raw), raw.to_string(), whole.to_owned()));
        expected.push((pay(raw - 1), (raw - 1).to_string(), less.to_owned()));
        expected.push((pay(1), "1".to_owned(), String::new()));
    }
    mine(&node, &daemon, 6);
    for (tx, raw, whole) in &expected {
        let deposit = daemon.wait_deposit(tx, log(0), "credited");
        assert_eq!(deposit["amount_base"], json!(raw), "{deposit}");
        assert_eq!(deposit["credit"]["net_base"], json!(raw));
        assert!(whole.is_empty() || deposit["amount"] == json!(whole), "{deposit}");
    }
    assert_eq!(daemon.credits().len(), 12);
    daemon.assert_sound();
}

/// What `creditd check` says of a token.
fn checked(daemon: &Daemon, symbol: &str) -> (String, String) {
    let answer = daemon.ask(&["check"]).unwrap();
    let lines = answer["lines"].as_array().unwrap();
    let of_it = format!("{symbol} (0x");
    let is_of =
        |line: &&Value| line["name"] == "token" && line["found"].as_str().unwrap().starts_with(&of_it);
    let line = lines.iter().find(is_of).unwrap_or_else(|| panic!("{answer:#}"));
    let text = |key: &str| line[key].as_str().unwrap().to_owned();
    (text("verdict"), text("found"))
}

#[test]
fn c18_token_whose_contract_says_other_decimals_is_disabled_and_both_are_named() {
    let node = AnvilNode::start(CHAIN_ID);
    let (good, six, absurd) = (token(&node, 6), token(&node, 6), token(&node, 255));
    let chain = Chain::at(&node.url())
        .token(&good.address, "GOOD", 6)
        .token(&six.address, "TX", 18)
        .token(&absurd.address, "ABSURD", 18);
    let mut daemon = chain.follow(&node);
    for token in [&six, &absurd, &good] {
        token.transfer(&node, &node.account(1), E1, 5_000_000);
    }
    mine(&node, &daemon, 6);
    wait_books(&daemon, &["log 0: 5000000 to E1 credited"]);
    assert_eq!(daemon.count("SELECT count(*) FROM outputs"), 1);
    let log = daemon.log();
    for (symbol, told) in [("TX", "6"), ("ABSURD", "255")] {
        let says = |line: &&str| line.contains(&format!("{symbol} (0x")) && line.contains("is disabled");
        let line = log.lines().find(says).unwrap_or_else(|| panic!("{log}"));
        assert!(line.contains("ERROR") && line.contains("18 decimals"), "{line}");
        assert!(line.contains(&format!("its contract {told}")), "{line}");
        let (verdict, found) = checked(&daemon, symbol);
        assert!(
            verdict == "bad" && found.contains("18") && found.contains(told),
            "{verdict}: {found}"
        );
    }
    // Put right, it counts from then on, and its past only by a backfill.
    daemon.stop();
    let right = Chain::at(&node.url())
        .token(&good.address, "GOOD", 6)
        .token(&six.address, "TX", 6);
    daemon.write_config(&right.setup());
    daemon.start_again();
    mine(&node, &daemon, 1);
    six.transfer(&node, &node.account(1), E2, 7_000_000);
    mine(&node, &daemon, 6);
    wait_books(
        &daemon,
        &["log 0: 5000000 to E1 credited", "log 0: 7000000 to E2 credited"],
    );
    daemon.assert_sound();
}

/// The contract reverts when it is asked for its decimals, or says nothing that is a number.
#[test]
fn c18_token_that_does_not_tell_its_decimals_has_those_of_the_config() {
    let node = AnvilNode::start(CHAIN_ID);
    let (old, pictures) = (Contract::named("OldToken"), Contract::named("NftLike"));
    let [old_at, silent_at] = [&old, &pictures].map(|contract| node.deploy(&contract.creation(&[]), 0));
    let daemon = Chain::at(&node.url())
        .token_with(&old_at, "OLD", 8, "not_indexed = true")
        .token(&silent_at, "SILENT", 2)
        .follow(&node);
    let mint = old.call_data("mint", &[address(E1), Arg::Uint(U256::from(1_050_000_000_u64))]);
    let tx = node.invoke(&node.account(1), &old_at, &mint, 0);
    mine(&node, &daemon, 6);
    let deposit = daemon.wait_deposit(&tx, log(0), "credited");
    assert_eq!(
        (&deposit["amount"], &deposit["amount_base"]),
        (&json!("10.5"), &json!("1050000000"))
    );
    let log = daemon.log();
    for (symbol, decimals) in [("OLD", 8), ("SILENT", 2)] {
        let says = |line: &&str| line.contains(symbol) && line.contains("does not tell its decimals");
        let line = log.lines().find(says).unwrap_or_else(|| panic!("{log}"));
        assert!(
            line.contains("WARN") && line.contains(&format!("the config's {decimals} are used")),
            "{line}"
        );
        let (verdict, found) = checked(&daemon, symbol);
        assert_eq!(verdict, "warning", "{found}");
    }
    daemon.assert_sound();
}

#[test]
fn c33_amount_of_25_digits_is_exact_in_coin_and_in_a_token() {
    const RAW: u128 = 1_234_567_123_456_789_012_345_678;
    let node = AnvilNode::start(CHAIN_ID);
    let token = token(&node, 18);
    let a = node.account(1);
    node.set_balance(&a, 10_000_000 * COIN);
    let daemon = Chain::at(&node.url())
        .coin("\"traces\"")
        .token(&token.address, "T18", 18)
        .follow(&node);
    let txs = [
        (node.pay(&a, E1, RAW), 0),
        (token.transfer(&node, &a, E1, RAW), log(0)),
    ];
    mine(&node, &daemon, 6);
    for (tx, vout) in &txs {
        let deposit = daemon.wait_deposit(tx, *vout, "credited");
        assert_eq!(
            (
                &deposit["amount"],
                &deposit["amount_base"],
                &deposit["credit"]["net"]
            ),
            (
                &json!("1234567.123456789012345678"),
                &json!("1234567123456789012345678"),
                &json!("1234567.123456789012345678")
            )
        );
        let created = daemon.events_of("credit.created");
        let told = created
            .iter()
            .find(|event| event.body.to_string().contains(tx))
            .unwrap();
        assert_eq!(told.body["data"]["net_base"], json!("1234567123456789012345678"));
    }
    assert_eq!(nets(&daemon), [RAW.to_string(), RAW.to_string()]);
    daemon.assert_sound();
}

/// The largest number there is, which a float, 64 and 128 bits are all too small for.
#[test]
fn c33_the_largest_amount_of_a_token_is_exact() {
    let node = AnvilNode::start(CHAIN_ID);
    let contract = Contract::named("OldToken");
    let at = node.deploy(&contract.creation(&[]), 0);
    let daemon = Chain::at(&node.url())
        .token_with(&at, "OLD", 18, "not_indexed = true")
        .follow(&node);
    let mint = contract.call_data("mint", &[address(E1), Arg::Uint(U256::MAX)]);
    node.invoke(&node.account(1), &at, &mint, 0);
    mine(&node, &daemon, 6);
    wait_books(&daemon, &[&format!("log 0: {} to E1 credited", U256::MAX)]);
    assert_eq!(books(&daemon).len(), 1);
    assert_eq!(nets(&daemon), [U256::MAX.to_string()]);
    daemon.assert_sound();
}
