//! What `creditd check` says of EVM endpoints: one line for each thing that can be wrong, and the next step.

use creditd::clock::Clock;
use creditd::sandbox::evm::{Address, EvmSandbox, Mark, Token, U256};
use serde_json::{Value, json};

use crate::common::daemon::{Daemon, Setup};
use crate::common::evm_proxy::EvmProxy;
use crate::common::evm_proxy::script::Fault;

const TUSD: &str = "0xdddddddddddddddddddddddddddddddddddddddd";
const WETH: &str = "0x1010101010101010101010101010101010101010";

/// What each test's config says; the endpoints are put in at `ENDPOINTS`.
const CHAIN: &str = r#"
[[evm]]
alias = "dev"
chain_id = 31337
instance = "test"
pending_ms = 1000
ENDPOINTS
[evm.native]
symbol = "ETH"
inner = "traces"
policy = [ { confirmations = "finalized" } ]
[[evm.token]]
contract = "0xdddddddddddddddddddddddddddddddddddddddd"
symbol = "TUSD"
decimals = 6
check_balance = true
policy = [ { below = "10", confirmations = 3 }, { confirmations = "safe" } ]
"#;

fn at(text: &str) -> Address {
    Address::from_hex(text).unwrap()
}

/// A node with a token, and a transaction in its newest block.
fn sandbox(chain_id: u64) -> EvmSandbox {
    let node = EvmSandbox::start(chain_id, Clock::real()).unwrap();
    set_decimals(&node, 6);
    node.pay(at(TUSD), U256::from(1_u64)).unwrap();
    node.mine(1).unwrap();
    node
}

fn set_decimals(node: &EvmSandbox, decimals: u8) {
    let symbol = "TUSD".to_owned();
    node.set_token(at(TUSD), Token { decimals, symbol });
}

/// The exit code and all lines.
struct Checked {
    code: Option<i32>,
    lines: Vec<Value>,
}

fn checked(config: &str, endpoints: &[(&str, &str)]) -> Checked {
    let endpoint =
        |(name, url): &(&str, &str)| format!("[[evm.endpoint]]\nname = \"{name}\"\nurl = \"{url}\"\n");
    let endpoints: String = endpoints.iter().map(endpoint).collect();
    let daemon = Daemon::prepare(&Setup::for_evm(config.replace("ENDPOINTS", &endpoints)));
    let output = daemon.cli(&["check", "--json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{stderr}"));
    Checked {
        code: output.status.code(),
        lines: answer["lines"].as_array().unwrap().clone(),
    }
}

impl Checked {
    /// Verdict, finding and next step of a line.
    #[track_caller]
    fn line(&self, name: &str) -> (&str, &str, &str) {
        let line = self.lines.iter().find(|line| line["name"] == name);
        let line = line.unwrap_or_else(|| panic!("no line {name} in {:#?}", self.lines));
        let text = |key: &str| line[key].as_str().unwrap();
        (text("verdict"), text("found"), text("next_step"))
    }

    /// A line that is not good says what it found and what to do.
    #[track_caller]
    fn assert_found(&self, name: &str, verdict: &str, found: &str) {
        let line = self.line(name);
        assert!(line.0 == verdict && line.1.contains(found), "{line:?}");
        assert!(!line.2.is_empty(), "{line:?}");
    }
}

/// The check of one node with a fault between us and it.
fn with_fault(node: &EvmSandbox, asked: &str, fault: Fault) -> Checked {
    let proxy = EvmProxy::in_front_of(&node.url());
    proxy.always(asked, fault);
    checked(CHAIN, &[("own", &proxy.url())])
}

#[test]
fn a_node_that_can_all_of_it_is_good() {
    let node = sandbox(31_337);
    let good = checked(CHAIN, &[("own", &node.url())]);
    assert_eq!(good.code, Some(0), "{:#?}", good.lines);
    for (name, found) in [
        ("node", "creditd-sandbox"),
        ("network", "eip155:31337@test, first block 0x"),
        ("sync", "block 81"),
        ("clock", "not behind"),
        ("tags", "safe up to block 49"),
        ("logs", "logs are told by block hash"),
        ("receipts", "whole; block 81 has 1 receipt"),
        ("traces", "blocks are traced by debug_traceBlockByHash"),
        ("pending", "the pool is shown whole"),
        ("token", "6 decimals"),
        ("balance", "TUSD: balances are told by block hash"),
        (
            "inner",
            "coin that moves inside transactions is seen by call traces",
        ),
    ] {
        let line = good.line(name);
        assert!(
            line.0 == "good" && line.1.contains(found) && line.2.is_empty(),
            "{line:?}"
        );
    }
    let of_endpoint = |line: &&Value| line["endpoint"] == json!("own") && line["chain"] == json!("dev");
    assert!(good.lines.iter().filter(of_endpoint).count() >= 11);
    let daemon = Daemon::prepare(&Setup::for_evm(CHAIN.replace(
        "ENDPOINTS",
        &format!("[[evm.endpoint]]\nname = \"own\"\nurl = \"{}\"\n", node.url()),
    )));
    let told = String::from_utf8(daemon.cli(&["check"]).stdout).unwrap();
    assert!(
        told.contains("good     logs      dev: own: logs are told by block hash\n"),
        "{told}"
    );
}

#[test]
fn c12_check_names_both_chain_ids_and_a_dead_endpoint() {
    let (other, node) = (sandbox(1), sandbox(31_337));
    let nobody = "http://127.0.0.1:1";
    let stranger = checked(CHAIN, &[("stranger", &other.url()), ("own", &node.url())]);
    stranger.assert_found("network", "bad", "eip155:31337@test");
    stranger.assert_found("network", "bad", "eip155:1");
    assert_eq!(stranger.code, Some(1));
    let one_dead = checked(CHAIN, &[("dead", nobody), ("own", &node.url())]);
    one_dead.assert_found("node", "warning", "");
    assert!(one_dead.line("node").2.contains("endpoint dead"));
    assert_eq!(one_dead.code, Some(0), "{:#?}", one_dead.lines);
    let all_dead = checked(CHAIN, &[("dead", nobody)]);
    all_dead.assert_found("node", "bad", "");
    assert_eq!(all_dead.code, Some(1));
    let quorum = CHAIN.replace("pending_ms", "quorum = 2\npending_ms");
    let too_few = checked(&quorum, &[("dead", nobody), ("own", &node.url())]);
    too_few.assert_found(
        "quorum",
        "bad",
        "2 endpoints must agree before a credit, 1 can be asked",
    );
    // Two that began with other blocks are two chains, though both say the same id.
    let anew = EvmSandbox::of_instance(31_337, "anew", Clock::real()).unwrap();
    let twins = checked(CHAIN, &[("own", &node.url()), ("anew", &anew.url())]);
    let is_bad = |line: &&Value| line["verdict"] == "bad" && line["endpoint"] == "anew";
    assert!(twins.lines.iter().any(|line| is_bad(&line)), "{:#?}", twins.lines);
}

#[test]
fn c18_decimals_are_held_against_the_contracts() {
    let node = sandbox(31_337);
    for (told, found) in [
        (18, "the config says 6 decimals, its contract 18"),
        (
            255,
            "the config says 6 decimals, its contract 255, which no amount can have",
        ),
    ] {
        set_decimals(&node, told);
        let wrong = checked(CHAIN, &[("own", &node.url())]);
        wrong.assert_found("token", "bad", found);
        assert_eq!(wrong.code, Some(1));
    }
    set_decimals(&node, 6);
    let config = CHAIN.replace(
        "symbol = \"ETH\"",
        &format!("symbol = \"ETH\"\ncontract = \"{WETH}\""),
    );
    let no_contract = checked(&config, &[("own", &node.url())]);
    no_contract.assert_found("coin", "warning", "18 are used");
    assert_eq!(no_contract.code, Some(0));
    let reverts = with_fault(&node, "eth_call", Fault::Error(3, "execution reverted"));
    reverts.assert_found("token", "warning", "execution reverted");
    reverts.assert_found("token", "warning", "6 are used");
    reverts.assert_found("balance", "bad", "execution reverted");
}

#[test]
fn finality_tags_are_looked_for_where_a_policy_waits_for_them() {
    let node = sandbox(31_337);
    node.set_finalized(Mark::Missing);
    let without = checked(CHAIN, &[("own", &node.url())]);
    let is_bad = |line: &&Value| line["name"] == "tags" && line["verdict"] == "bad";
    let bad = without.lines.iter().find(is_bad).unwrap();
    assert_eq!(
        bad["found"],
        json!("a policy waits for a finalized block, and the node has none")
    );
    let counts = CHAIN.replace("\"finalized\"", "12").replace("\"safe\"", "12");
    let unneeded = checked(&counts, &[("own", &node.url())]);
    assert!(unneeded.lines.iter().all(|line| line["name"] != "tags"));
}

#[test]
fn the_way_to_see_inner_coin_is_tried_and_told() {
    let node = sandbox(31_337);
    node.hide_calls(&["debug_traceBlockByHash"]);
    let flat = checked(CHAIN, &[("own", &node.url())]);
    assert_eq!(
        flat.line("traces"),
        ("good", "blocks are traced by trace_block", "")
    );
    node.hide_calls(&["trace_block"]);
    checked(CHAIN, &[("own", &node.url())]).assert_found("traces", "bad", "trace_block: ");
    let by_logs = CHAIN.replace("\"traces\"", "\"eip7708\"");
    checked(&by_logs, &[("own", &node.url())]).assert_found("eip7708", "warning", "no movement of coin");
    node.set_transfer_logs(Some(0));
    node.pay(at(TUSD), U256::from(1_u64)).unwrap();
    node.mine(1).unwrap();
    let logged = checked(&by_logs, &[("own", &node.url())]);
    assert_eq!(logged.line("eip7708").0, "good", "{:#?}", logged.lines);
    let unseen = CHAIN.replace("\"traces\"", "\"none\"\nsweep_ms = 600000");
    let unseen = checked(&unseen, &[("own", &node.url())]);
    let found = "inner coin is not seen as it moves; balances are compared every 10 minutes";
    unseen.assert_found("inner", "warning", found);
    assert_eq!(unseen.code, Some(0));
}

#[test]
fn what_an_endpoint_cannot_do_is_named() {
    let node = sandbox(31_337);
    let logs = with_fault(&node, "eth_getLogs", Fault::Error(-32_602, "invalid params"));
    logs.assert_found("logs", "bad", "invalid params");
    let status = with_fault(&node, "eth_getTransactionReceipt", Fault::without_field("status"));
    status.assert_found("receipts", "bad", "`status` is missing");
    let single = with_fault(
        &node,
        "eth_getBlockReceipts",
        Fault::Error(-32_601, "no such method"),
    );
    single.assert_found("receipts", "warning", "only told one by one");
    let pool = with_fault(&node, "txpool_content", Fault::Error(-32_601, "no such method"));
    pool.assert_found("pending", "warning", "no such method");
    let limited = with_fault(&node, "eth_getLogs", Fault::retry_after_secs(429, 30));
    limited.assert_found("limit", "warning", "over its limit");
    let refused = with_fault(&node, "eth_chainId", Fault::retry_after_secs(429, 30));
    let (verdict, found, next) = refused.line("node");
    assert!(
        verdict == "bad" && found.contains("over the node's limit"),
        "{found}"
    );
    assert!(
        next.contains("lower the rate: a larger plan") && !next.contains("login"),
        "{next}"
    );
    node.set_syncing(Some(1_000));
    checked(CHAIN, &[("own", &node.url())]).assert_found("sync", "warning", "block 81 of 1000");
    let tokens_alone = CHAIN.replace(
        "[evm.native]\nsymbol = \"ETH\"\ninner = \"traces\"\npolicy = [ { confirmations = \"finalized\" } \
         ]\n",
        "",
    );
    let tokens_alone = checked(&tokens_alone, &[("own", &node.url())]);
    tokens_alone.assert_found("pending", "warning", "pending payments of tokens are not shown");
    assert!(tokens_alone.lines.iter().all(|line| line["name"] != "inner"));
}
