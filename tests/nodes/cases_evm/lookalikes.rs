//! C16: a worthless token with the right name, or at the right address of another chain.

use super::{CHAIN_ID, Chain, E1, E2, books, mine, nets, node_with_token, wait_books, watch};
use crate::common::anvil::AnvilNode;
use crate::common::contracts::Token;
use crate::common::daemon::Daemon;

#[test]
fn c16_token_of_the_same_name_is_nothing_until_it_is_listed_and_then_not_its_past() {
    let (node, token) = node_with_token();
    let fake = Token::deploy(&node, "TUSD", 6);
    fake.mint(&node, &node.account(1), 10_000_000_000);
    let chain = Chain::at(&node.url()).tusd(&token);
    let mut daemon = chain.follow(&node);
    let first = node.height() + 1;
    fake.transfer(&node, &node.account(1), E1, 1_000_000_000);
    mine(&node, &daemon, 6);
    assert_eq!(books(&daemon), Vec::<String>::new());
    assert_eq!(daemon.credits().len(), 0);
    assert_eq!(daemon.count("SELECT count(*) FROM outputs"), 0);

    // Listed later, it counts from then on.
    daemon.stop();
    daemon.write_config(&chain.token(&fake.address, "FAKE", 6).setup());
    daemon.start_again();
    mine(&node, &daemon, 1);
    fake.transfer(&node, &node.account(1), E2, 2_000_000);
    mine(&node, &daemon, 6);
    wait_books(&daemon, &["log 0: 2000000 to E2 credited"]);
    rescan(&daemon, &["--from", &first.to_string()]);
    assert_eq!(nets(&daemon), ["2000000"], "a rescan alone finds nothing older");
    rescan(
        &daemon,
        &["--from", &first.to_string(), "--backfill", &fake.address],
    );
    wait_books(
        &daemon,
        &[
            "log 0: 1000000000 to E1 credited",
            "log 0: 2000000 to E2 credited",
        ],
    );
    assert_eq!(nets(&daemon), ["1000000000", "2000000"]);
    daemon.assert_sound();
}

#[track_caller]
fn rescan(daemon: &Daemon, what: &[&str]) {
    daemon.json(&[&["rescan", "--reason", "listed late", "--apply"], what].concat());
    daemon.wait_for("the rescan is over", &["chain", "status"], |status| {
        let chain = &status["chains"][0];
        (chain["rescans"].as_array()?.is_empty()).then_some(())
    });
}

#[test]
fn c16_same_address_on_another_chain_is_another_contract() {
    let (node, token) = node_with_token();
    let other = AnvilNode::start(CHAIN_ID + 1);
    let twin = Token::deploy(&other, "TUSD", 6);
    assert_eq!(
        twin.address, token.address,
        "the first contract of the same account"
    );
    let there = Token::deploy(&other, "TEUR", 6);
    twin.mint(&other, &other.account(1), 1_000_000_000);
    there.mint(&other, &other.account(1), 1_000_000_000);
    other.mine(1);
    let chains = [
        Chain::at(&node.url()).tusd(&token),
        Chain::at(&other.url())
            .named("other", CHAIN_ID + 1)
            .token(&there.address, "TEUR", 6),
    ];
    let setup = super::Setup::for_evm(chains.map(|chain| chain.toml()).concat());
    let mut daemon = Daemon::prepare(&setup);
    for chain in ["dev", "other"] {
        daemon.json(&["watch", "add", E1, "--merchant", "shop", "--chain", chain]);
    }
    daemon.start_again();
    daemon.wait_height_of("dev", node.height());
    daemon.wait_height_of("other", other.height());
    twin.transfer(&other, &other.account(1), E1, 1_000_000_000);
    other.mine(6);
    daemon.wait_height_of("other", other.height());
    assert_eq!(books(&daemon), Vec::<String>::new());
    assert_eq!(daemon.count("SELECT count(*) FROM outputs"), 0);
    // Both chains do count what is listed.
    token.transfer(&node, &node.account(1), E1, 1);
    there.transfer(&other, &other.account(1), E1, 2);
    node.mine(6);
    other.mine(6);
    wait_books(&daemon, &["log 0: 1 to E1 credited", "log 0: 2 to E1 credited"]);
    daemon.assert_sound();
}

/// Nothing of the chain's coin counts where only tokens are listed, and no token where only the coin is.
#[test]
fn c16_what_is_not_listed_at_all_does_not_count() {
    let (node, token) = node_with_token();
    let coin_only = Chain::at(&node.url()).coin("\"traces\"").follow(&node);
    let tokens_only = Chain::at(&node.url()).tusd(&token).follow(&node);
    token.transfer(&node, &node.account(1), E1, 5);
    node.pay(&node.account(2), E1, 7);
    mine(&node, &coin_only, 6);
    wait_books(&coin_only, &["native: 7 to E1 credited"]);
    wait_books(&tokens_only, &["log 0: 5 to E1 credited"]);
    watch(&tokens_only, super::ELSEWHERE);
    coin_only.assert_sound();
    tokens_only.assert_sound();
}
