//! C12 on EVM chains, and endpoints that disagree, refuse, or answer what cannot be used.

use serde_json::{Value, json};

use super::{CHAIN_ID, Chain, E1, books, mine, nets, node_with_token, wait_books, wait_state, watch};
use crate::common::anvil::AnvilNode;
use crate::common::contracts::Token;
use crate::common::daemon::Daemon;
use crate::common::evm_proxy::EvmProxy;
use crate::common::evm_proxy::script::{Fault, Gate};
use crate::common::wait::{PATIENCE, wait_until};

/// Nothing of any block, and nothing that came of one.
#[track_caller]
fn assert_no_rows(daemon: &Daemon) {
    for table in ["headers", "txs", "outputs", "deposits", "credits", "journal"] {
        assert_eq!(
            daemon.count(&format!("SELECT count(*) FROM {table}")),
            0,
            "{table}"
        );
    }
}

/// A node with a token, a proxy in front of it, and a daemon that follows the chain through that alone.
fn followed_through_a_proxy() -> (AnvilNode, Token, EvmProxy, Daemon) {
    let (node, token) = node_with_token();
    let proxy = EvmProxy::in_front_of(&node.url());
    let daemon = Chain::at(&proxy.url())
        .coin("\"traces\"")
        .tusd(&token)
        .follow(&node);
    (node, token, proxy, daemon)
}

/// How an endpoint of `dev` stands, once it is so.
#[track_caller]
fn wait_endpoint(daemon: &Daemon, name: &str, state: &str) -> Value {
    daemon.wait_for(&format!("{name} is {state}"), &["chain", "status"], |status| {
        let endpoints = status["chains"][0]["endpoints"].as_array()?;
        let endpoint = endpoints
            .iter()
            .find(|endpoint| endpoint["name"] == json!(name))?;
        (endpoint["state"] == json!(state)).then(|| endpoint.clone())
    })
}

#[test]
fn c12_real_evm_node_of_another_chain_is_refused_by_both_numbers() {
    let node = AnvilNode::start(1);
    node.mine(3);
    let mut daemon = Daemon::prepare(&Chain::at(&node.url()).coin("\"traces\"").setup());
    watch(&daemon, E1);
    daemon.start_again();
    let status = wait_state(&daemon, "wrong_network", "eip155:31337");
    let reason = status["reason"].as_str().unwrap();
    assert!(
        reason.contains("eip155:1 ") || reason.ends_with("eip155:1"),
        "{reason}"
    );
    node.pay(&node.account(1), E1, 5);
    node.mine(6);
    assert_no_rows(&daemon);
    assert!(daemon.is_running());
    daemon.stop();
}

#[test]
fn c12_endpoint_that_times_out_does_not_keep_the_other_from_starting() {
    let (node, stranger) = (AnvilNode::start(CHAIN_ID), AnvilNode::start(1));
    let (p, mut q) = (
        EvmProxy::in_front_of(&stranger.url()),
        EvmProxy::in_front_of(&node.url()),
    );
    // It takes questions and never answers; when it does in the end, it is of another chain.
    let gate = Gate::new();
    let silence = p.always("*", Fault::HoldQuestion(gate.clone()));
    let daemon = Chain::of(&[("p", &p.url()), ("q", &q.url())])
        .coin("\"traces\"")
        .follow(&node);
    let log = daemon.log();
    let warned =
        |line: &str| line.contains("WARN") && line.contains("endpoint p of ") && line.contains("unreachable");
    assert!(log.lines().any(warned), "{log}");
    let paid = node.pay(&node.account(1), E1, 5);
    mine(&node, &daemon, 6);
    daemon.wait_deposit(&paid, 0, "credited");
    // Only the other is left: it is asked who it is before anything of it is used.
    stranger.pay(&stranger.account(1), E1, 7);
    stranger.mine(20);
    p.lift(silence);
    gate.open();
    p.forget_calls();
    q.refuse();
    wait_endpoint(&daemon, "p", "quarantined");
    let asked: Vec<String> = p.calls().into_iter().map(|call| call.method).collect();
    let identity = [
        "eth_chainId",
        "eth_getBlockByNumber",
        "web3_clientVersion",
        "net_version",
    ];
    assert!(
        asked.iter().all(|method| identity.contains(&method.as_str())),
        "{asked:?}"
    );
    assert_eq!(books(&daemon), ["native: 5 to E1 credited"]);
    q.accept_again();
    mine(&node, &daemon, 1);
    assert_eq!(nets(&daemon), ["5"]);
    daemon.assert_sound();
}

/// The same URL leads to another chain after a failover and back: it is found out before a block is stored.
#[test]
fn c12_endpoint_that_has_changed_its_chain_is_quarantined_and_nothing_of_it_is_stored() {
    let (node, stranger) = (AnvilNode::start(CHAIN_ID), AnvilNode::start(1));
    let (mut p, q) = (
        EvmProxy::in_front_of(&node.url()),
        EvmProxy::in_front_of(&node.url()),
    );
    let daemon = Chain::of(&[("p", &p.url()), ("q", &q.url())])
        .coin("\"traces\"")
        .follow(&node);
    let height = node.height();
    // Q was right at first: it is used once, and goes back.
    p.refuse();
    mine(&node, &daemon, 1);
    p.accept_again();
    wait_endpoint(&daemon, "q", "healthy");
    stranger.pay(&stranger.account(1), E1, 7);
    stranger.mine(30);
    // From now on Q answers for the stranger.
    q.lead_to(&stranger.url());
    q.cut_connections();
    wait_endpoint(&daemon, "q", "quarantined");
    daemon.wait_height_of("dev", height + 1);
    assert_eq!(books(&daemon), Vec::<String>::new());
    let paid = node.pay(&node.account(1), E1, 5);
    mine(&node, &daemon, 6);
    daemon.wait_deposit(&paid, 0, "credited");
    assert_eq!(nets(&daemon), ["5"]);
    daemon.assert_sound();
}

/// Two nodes that have the same blocks up to some height: nothing is credited above it.
#[test]
fn credit_waits_until_a_second_node_has_the_block_too() {
    let (node, token) = node_with_token();
    let twin = node.start_twin();
    let second = EvmProxy::in_front_of(&twin.url());
    let chain = Chain::of(&[("p", &node.url()), ("q", &second.url())])
        .with("quorum = 2")
        .tusd(&token);
    let daemon = chain.follow(&node);
    let paid = token.transfer(&node, &node.account(1), E1, 5_000_000);
    let raw = node.raw(&paid);
    node.mine(8);
    // The twin has other blocks, as many.
    twin.mine(8);
    daemon.wait_height_of("dev", node.height());
    daemon.wait_deposit(&paid, super::log(0), "confirming");
    let looks = second.count("eth_getBlockByNumber");
    wait_until("the second one is asked more than once", PATIENCE, || {
        (second.count("eth_getBlockByNumber") > looks + 3).then_some(())
    });
    assert_eq!(daemon.credits().len(), 0);
    assert_eq!(books(&daemon), ["log 0: 5000000 to E1 confirming"]);
    // The second comes over to the same blocks: the credit waits for no new one.
    let same = node.start_twin();
    second.lead_to(&same.url());
    second.cut_connections();
    wait_books(&daemon, &["log 0: 5000000 to E1 credited"]);
    assert_eq!(nets(&daemon), ["5000000"]);
    assert!(raw.is_string());
    daemon.assert_sound();
}

/// Three that have the same blocks, two of which have to say so.
#[test]
fn credit_waits_while_too_few_endpoints_answer() {
    let (node, token) = node_with_token();
    let mut proxies = [(); 3].map(|()| EvmProxy::in_front_of(&node.url()));
    let urls = proxies.each_ref().map(EvmProxy::url);
    let chain = Chain::of(&[("p", &urls[0]), ("q", &urls[1]), ("r", &urls[2])])
        .with("quorum = 2")
        .tusd(&token);
    let daemon = chain.follow(&node);
    let first = token.transfer(&node, &node.account(1), E1, 5_000_000);
    mine(&node, &daemon, 6);
    daemon.wait_deposit(&first, super::log(0), "credited");
    // One that is gone is not missed, two are.
    proxies[0].refuse();
    let second = token.transfer(&node, &node.account(1), E1, 6_000_000);
    mine(&node, &daemon, 6);
    daemon.wait_deposit(&second, super::log(0), "credited");
    proxies[2].refuse();
    let third = token.transfer(&node, &node.account(1), E1, 7_000_000);
    mine(&node, &daemon, 8);
    let looks = proxies[1].count("eth_getBlockByNumber");
    wait_until("more looks", PATIENCE, || {
        (proxies[1].count("eth_getBlockByNumber") > looks + 10).then_some(())
    });
    assert_eq!(
        daemon.deposit(&third, super::log(0)).unwrap()["state"],
        "confirming"
    );
    assert_eq!(nets(&daemon), ["5000000", "6000000"]);
    proxies[2].accept_again();
    daemon.wait_deposit(&third, super::log(0), "credited");
    assert_eq!(daemon.credits().len(), 3);
    daemon.assert_sound();
}

/// Two nodes on two branches, of which now the one and now the other can be had.
#[test]
fn credit_goes_and_comes_with_the_branch_of_the_node_that_can_be_had() {
    let (node, token) = node_with_token();
    let twin = node.start_twin();
    let (mut p, mut q) = (
        EvmProxy::in_front_of(&node.url()),
        EvmProxy::in_front_of(&twin.url()),
    );
    let daemon = Chain::of(&[("p", &p.url()), ("q", &q.url())])
        .tusd(&token)
        .follow(&node);
    let paid = token.transfer(&node, &node.account(1), E1, 5_000_000);
    mine(&node, &daemon, 6);
    daemon.wait_deposit(&paid, super::log(0), "credited");
    // As high and no higher: the other branch has to show itself more than once. A lower one says nothing.
    twin.mine(5);
    p.refuse();
    wait_state(&daemon, "behind", "");
    assert_eq!(nets(&daemon), ["5000000"]);
    twin.mine(2);
    daemon.wait_deposit(&paid, super::log(0), "orphaned");
    daemon.wait_height_of("dev", twin.height());
    assert_eq!(nets(&daemon), Vec::<String>::new());
    node.mine(3);
    q.refuse();
    p.accept_again();
    daemon.wait_height_of("dev", node.height());
    daemon.wait_deposit(&paid, super::log(0), "credited");
    assert_eq!(
        super::journal(&daemon, &paid, super::log(0)),
        ["credit", "reversal", "reinstatement"]
    );
    assert_eq!(nets(&daemon), ["5000000"]);
    daemon.assert_sound();
}

#[test]
fn provider_over_its_limit_is_left_alone_for_as_long_as_it_says() {
    let (node, token, proxy, daemon) = followed_through_a_proxy();
    let limit = proxy.always("*", Fault::retry_after_secs(429, 2));
    token.transfer(&node, &node.account(1), E1, 5_000_000);
    node.mine(6);
    wait_state(&daemon, "unreachable", "429");
    wait_endpoint(&daemon, "own", "rate_limited");
    // It is asked about once in two seconds, not twenty times a second.
    proxy.forget_calls();
    wait_until("it was asked again", PATIENCE, || {
        (!proxy.requests().is_empty()).then_some(())
    });
    proxy.forget_calls();
    let before = jiff::Timestamp::now();
    wait_until("and again", PATIENCE, || {
        (!proxy.requests().is_empty()).then_some(())
    });
    let pause = jiff::Timestamp::now().duration_since(before);
    assert!(pause.as_millis() > 1_500, "{pause:?}");
    proxy.lift(limit);
    daemon.wait_height_of("dev", node.height());
    wait_books(&daemon, &["log 0: 5000000 to E1 credited"]);
    daemon.assert_sound();
}

#[test]
fn truncated_and_oversized_answers_are_asked_for_again() {
    let (node, token, proxy, daemon) = followed_through_a_proxy();
    let mut expected = Vec::new();
    for (amount, fault) in [
        (1_u128, Fault::Cut),
        (2, Fault::Oversized(600 << 20)),
        (3, Fault::Close),
        (4, Fault::Missing),
        (5, Fault::Text(200, "<html>busy</html>")),
        (6, Fault::Text(502, "<html>bad gateway</html>")),
        (7, Fault::wrong_id()),
        (8, Fault::Result(json!("0x"))),
    ] {
        for method in [
            "eth_getBlockByHash",
            "eth_getLogs",
            "debug_traceBlockByHash",
            "eth_getTransactionReceipt",
        ] {
            proxy.once(method, fault.clone());
        }
        token.transfer(&node, &node.account(1), E1, amount);
        node.pay(&node.account(2), E1, amount);
        node.mine(1);
        daemon.wait_height_of("dev", node.height());
        expected.extend([
            format!("log 0: {amount} to E1 credited"),
            format!("native: {amount} to E1 credited"),
        ]);
    }
    mine(&node, &daemon, 6);
    expected.sort();
    let lines: Vec<&str> = expected.iter().map(String::as_str).collect();
    wait_books(&daemon, &lines);
    assert_eq!(daemon.events_of("credit.reversed").len(), 0);
    assert_eq!(daemon.events_of("deposit.held").len(), 0);
    assert_eq!(daemon.credits().len(), lines.len());
    daemon.assert_sound();
}
