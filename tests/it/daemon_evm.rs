//! The daemon on EVM chains: it follows them beside Bitcoin's, tells of their endpoints, and stops in time.

use std::net::TcpListener;

use creditd::clock::Clock;
use creditd::sandbox::evm::{Address, EvmSandbox, Mark, Token, Tx, U256};
use serde_json::{Value, json};

use crate::common::daemon::{Daemon, Setup};
use crate::common::metrics::Scrape;
use crate::sample_evm::{E1, E2};

const TUSD: &str = "0xdddddddddddddddddddddddddddddddddddddddd";

fn sandbox(chain_id: u64) -> EvmSandbox {
    let node = EvmSandbox::start(chain_id, Clock::real()).unwrap();
    let token = Token {
        decimals: 6,
        symbol: "TUSD".to_owned(),
    };
    node.set_token(at(TUSD), token);
    node
}

fn at(text: &str) -> Address {
    Address::from_hex(&text.to_lowercase()).unwrap()
}

/// A chain `dev` with its coin and a token, read from these endpoints.
fn chain(endpoints: &[(&str, &str)]) -> String {
    let endpoint =
        |(name, url): &(&str, &str)| format!("[[evm.endpoint]]\nname = \"{name}\"\nurl = \"{url}\"\n");
    let endpoints: String = endpoints.iter().map(endpoint).collect();
    format!(
        "[[evm]]\nalias = \"dev\"\nchain_id = 31337\ninstance = \"test\"\npoll_ms = 20\npending_ms = 50\n\
         {endpoints}[evm.native]\nsymbol = \"ETH\"\ninner = \"traces\"\npolicy = [ {{ confirmations = 3 }} \
         ]\n\
         [[evm.token]]\ncontract = \"{TUSD}\"\nsymbol = \"TUSD\"\ndecimals = 6\n\
         policy = [ {{ below = \"10\", confirmations = 2 }}, {{ confirmations = \"finalized\" }} ]\n"
    )
}

fn started(endpoints: &[(&str, &str)]) -> Daemon {
    let mut setup = Setup::for_evm(chain(endpoints));
    setup.ops_listen = "127.0.0.1:0".to_owned();
    Daemon::start(&setup)
}

fn watch(daemon: &Daemon, address: &str, merchant: &str) {
    daemon.json(&["watch", "add", address, "--merchant", merchant]);
}

/// The chain's status once it is in this state.
#[track_caller]
fn status_in(daemon: &Daemon, state: &str) -> Value {
    daemon.wait_for(state, &["chain", "status"], |status| {
        let chain = &status["chains"][0];
        (chain["state"] == json!(state)).then(|| chain.clone())
    })
}

/// Waits until the deposit at a position is in this state.
#[track_caller]
fn wait_deposit(daemon: &Daemon, position: &str, address: &str, state: &str) -> Value {
    daemon.wait_for(state, &["deposits", "list", "--address", address], |answer| {
        let mut rows = answer["deposits"].as_array()?.iter();
        rows.find(|row| row["position"] == json!(position) && row["state"] == json!(state))
            .cloned()
    })
}

#[test]
fn coin_and_tokens_of_an_evm_chain_are_credited_once() {
    let node = sandbox(31_337);
    let mut daemon = started(&[("own", &node.url())]);
    status_in(&daemon, "following");
    watch(&daemon, E1, "shop");
    watch(&daemon, E2, "bar");
    node.pay(at(E1), U256::from(1_500_000_000_000_000_000_u64))
        .unwrap();
    let seen = wait_deposit(&daemon, "native", E1, "seen");
    assert_eq!(seen["payer"], seen["sender"]);
    let payer = EvmSandbox::payer();
    node.send(Tx::pay_token(at(TUSD), payer, at(E1), U256::from(5_000_000)))
        .unwrap();
    node.send(Tx::pay_token(at(TUSD), payer, at(E2), U256::from(50_000_000)))
        .unwrap();
    node.mine(1).unwrap();
    let waiting = wait_deposit(&daemon, "log 0", E2, "confirming");
    assert_eq!(
        (&waiting["amount"], &waiting["finality_required"]),
        (&json!("50"), &json!("finalized"))
    );
    node.mine(2).unwrap();
    assert_eq!(
        wait_deposit(&daemon, "native", E1, "credited")["amount"],
        json!("1.5")
    );
    assert_eq!(
        wait_deposit(&daemon, "log 0", E1, "credited")["amount"],
        json!("5")
    );
    // A restart in between reads and credits nothing again, and takes the policies with it.
    daemon.stop();
    daemon.start_again();
    node.set_finalized(Mark::Behind(0));
    node.mine(1).unwrap();
    wait_deposit(&daemon, "log 0", E2, "credited");
    assert_eq!(daemon.json(&["credits"])["credits"].as_array().unwrap().len(), 3);
    let balances = daemon.json(&["balances", "--asset", TUSD]);
    let credited = |at: usize| balances["balances"][at]["credited"].clone();
    assert_eq!((credited(0), credited(1)), (json!("50"), json!("5")));
    assert!(status_in(&daemon, "following")["finalized_height"].is_u64());
    daemon.stop();
}

#[test]
fn c12_an_endpoint_of_another_chain_is_passed_over_and_named() {
    let (other, node) = (sandbox(1), sandbox(31_337));
    let mut daemon = started(&[("stranger", &other.url()), ("own", &node.url())]);
    let status = daemon.wait_for("both endpoints are noted", &["chain", "status"], |status| {
        let chain = &status["chains"][0];
        (chain["state"] == json!("following") && chain["endpoints"][1]["state"] == json!("healthy"))
            .then(|| chain.clone())
    });
    let (stranger, own) = (&status["endpoints"][0], &status["endpoints"][1]);
    assert_eq!(
        (&stranger["name"], &stranger["state"]),
        (&json!("stranger"), &json!("quarantined"))
    );
    let reason = stranger["reason"].as_str().unwrap();
    assert!(
        reason.contains("eip155:31337@test") && reason.contains("eip155:1"),
        "{reason}"
    );
    assert_eq!(
        (&own["is_current"], &stranger["is_current"]),
        (&json!(true), &json!(false))
    );
    let (code, ready) = daemon.ops("/readyz");
    let ready: Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(code, 200, "{ready}");
    assert_eq!(
        ready["chains"][0]["endpoints"][0]["state"],
        json!("quarantined"),
        "{ready}"
    );
    let metrics = Scrape::parse(&daemon.ops("/metrics").1);
    let of = |endpoint, state| {
        let labels = [("chain", "dev"), ("endpoint", endpoint), ("state", state)];
        metrics.value("creditd_node_endpoint_state", &labels)
    };
    assert_eq!(
        (
            of("stranger", "quarantined"),
            of("own", "healthy"),
            of("own", "unreachable")
        ),
        (1.0, 1.0, 0.0)
    );
    assert_eq!(
        metrics.value("creditd_log_mismatches_total", &[("chain", "dev")]),
        0.0
    );
    daemon.stop();
}

#[test]
fn c12_a_chain_whose_endpoints_are_all_of_another_one_stores_nothing() {
    let other = sandbox(1);
    let mut daemon = started(&[("stranger", &other.url())]);
    let status = status_in(&daemon, "wrong_network");
    let reason = status["reason"].as_str().unwrap();
    assert!(
        reason.contains("eip155:31337@test") && reason.contains("eip155:1"),
        "{reason}"
    );
    assert_eq!((&status["height"], &status["hash"]), (&Value::Null, &Value::Null));
    daemon.stop();
    let raw = rusqlite::Connection::open(daemon.database()).unwrap();
    let headers: i64 = raw
        .query_row("SELECT count(*) FROM headers", [], |row| row.get(0))
        .unwrap();
    assert_eq!(headers, 0);
}

#[test]
fn c18_token_whose_contract_has_other_decimals_is_not_watched() {
    let node = sandbox(31_337);
    let token = Token {
        decimals: 18,
        symbol: "TUSD".to_owned(),
    };
    node.set_token(at(TUSD), token);
    let mut daemon = started(&[("own", &node.url())]);
    status_in(&daemon, "following");
    watch(&daemon, E1, "shop");
    let payer = EvmSandbox::payer();
    node.send(Tx::pay_token(at(TUSD), payer, at(E1), U256::from(5_000_000)))
        .unwrap();
    node.pay(at(E1), U256::from(7_u64)).unwrap();
    node.mine(3).unwrap();
    wait_deposit(&daemon, "native", E1, "credited");
    assert_eq!(
        daemon.json(&["deposits", "list"])["deposits"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let log = daemon.log();
    assert!(
        log.contains("the config says 6 decimals, its contract 18"),
        "{log}"
    );
    daemon.stop();
}

#[test]
fn a_stop_is_over_in_time_whatever_endpoints_do() {
    // Takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut daemon = started(&[("silent", &url), ("nobody", "http://127.0.0.1:1")]);
    daemon.ops_port();
    drop(silent.accept().unwrap());
    daemon.stop();
}

#[test]
fn an_evm_chain_in_trouble_slows_no_other() {
    let node = sandbox(31_337);
    let other = chain(&[("nobody", "http://127.0.0.1:1")])
        .replace("\"dev\"", "\"lost\"")
        .replace("31337", "31338");
    let mut setup = Setup::for_evm(format!("{}{other}", chain(&[("own", &node.url())])));
    setup.ops_listen = "127.0.0.1:0".to_owned();
    let mut daemon = Daemon::start(&setup);
    daemon.wait_for("one follows, one waits", &["chain", "status"], |status| {
        let chains = status["chains"].as_array()?;
        let state = |alias: &str| {
            let chain = chains.iter().find(|chain| chain["chain"] == json!(alias))?;
            Some(chain["state"].as_str()?.to_owned())
        };
        (state("dev")? == "following" && state("lost")? == "unreachable").then_some(())
    });
    daemon.stop();
}
