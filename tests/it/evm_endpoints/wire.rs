//! The same over real connections: two proxies in front of a node.

use creditd::chain::SourceError;
use creditd::chain::evm::endpoints::{Endpoints, EndpointsConfig, Node};
use creditd::chain::rpc::{Limits, Question};
use creditd::clock::Clock;
use creditd::config::Config;
use creditd::egress::HttpDial;
use creditd::sandbox::evm::EvmSandbox;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

use crate::common::evm_proxy::EvmProxy;
use crate::common::evm_proxy::script::Fault;

const LIMITS: Limits = Limits {
    deadline: Duration::from_secs(10),
    body_bytes_max: 1 << 20,
};

struct Wire {
    _sandbox: EvmSandbox,
    p: EvmProxy,
    q: EvmProxy,
    endpoints: Endpoints<HttpDial>,
}

impl Wire {
    /// As the config says it.
    fn new() -> Wire {
        let sandbox = EvmSandbox::at_genesis(31_337, Clock::real()).unwrap();
        sandbox.mine(10).unwrap();
        let (p, q) = (
            EvmProxy::in_front_of(&sandbox.url()),
            EvmProxy::in_front_of(&sandbox.url()),
        );
        let text = format!(
            "[[evm]]\nalias = \"dev\"\nchain_id = 31337\ninstance = \"test\"\nquorum = 2\n\
             [[evm.endpoint]]\nname = \"p\"\nurl = \"{}\"\n[[evm.endpoint]]\nname = \"q\"\nurl = \"{}\"\n\
             [evm.native]\nsymbol = \"ETH\"\ninner = \"none\"\npolicy = [ {{ confirmations = 1 }} ]\n",
            p.url(),
            q.url()
        );
        let chain = Config::parse(Path::new("creditd.toml"), &text)
            .unwrap()
            .evm
            .remove(0);
        let node = |endpoint| Node::of(endpoint, chain.batch_max, HttpDial::new()).unwrap();
        let nodes = chain.endpoints.iter().map(node).collect();
        let endpoints = Endpoints::new(EndpointsConfig::of(&chain), nodes, None, Clock::real());
        Wire {
            _sandbox: sandbox,
            p,
            q,
            endpoints,
        }
    }

    /// Two questions; the name of who answered.
    async fn ask(&self) -> Result<String, SourceError> {
        let questions = [
            Question::new("eth_chainId", json!([])),
            Question::new("eth_getBlockByNumber", json!(["latest", false])),
        ];
        let told = self.endpoints.ask("ask", &questions, LIMITS).await?;
        let answers: Vec<Value> = told
            .answers
            .into_iter()
            .map(|answer| answer.decode().unwrap())
            .collect();
        assert_eq!(
            (&answers[0], &answers[1]["number"]),
            (&json!("0x7a69"), &json!("0xa"))
        );
        let current = self.endpoints.list().into_iter().find(|view| view.is_current);
        Ok(current.unwrap().name)
    }

    fn standing(&self, place: usize) -> &'static str {
        self.endpoints.list()[place].standing.code()
    }
}

#[tokio::test]
async fn who_an_endpoint_is_is_asked_once_for_each_connection() {
    let wire = Wire::new();
    for _ in 0..3 {
        assert_eq!(wire.ask().await.unwrap(), "p");
    }
    assert_eq!(wire.p.count("web3_clientVersion"), 1);
    assert_eq!(wire.q.calls().len(), 0, "the second stands by");
    wire.p.cut_connections();
    assert_eq!(wire.ask().await.unwrap(), "p");
    assert_eq!(wire.p.count("web3_clientVersion"), 2, "after a reconnect again");
}

#[tokio::test]
async fn c12_a_node_that_comes_back_as_another_is_not_used() {
    let mut wire = Wire::new();
    assert_eq!(wire.ask().await.unwrap(), "p");
    wire.p.refuse();
    assert_eq!(wire.ask().await.unwrap(), "q");
    assert_eq!(wire.standing(0), "unreachable");
    wire.p.accept_again();
    wire.p.always("eth_chainId", Fault::Result(json!("0x1")));
    wire.q.refuse();
    let told = wire.ask().await.unwrap_err().to_string();
    assert!(
        told.contains("p: the config says eip155:31337@test, it is on eip155:1; q: connection "),
        "{told}"
    );
    assert_eq!(wire.standing(0), "quarantined");
    wire.q.accept_again();
    assert_eq!(wire.ask().await.unwrap(), "q");
}

#[tokio::test]
async fn every_way_to_say_not_so_often_leads_to_the_other_endpoint() {
    for fault in [
        Fault::retry_after_secs(429, 30),
        Fault::retry_after_secs(503, 30),
        // A date alone, without one to count from: a pause of our own.
        Fault::retry_after_date(429, 30),
        Fault::one_error(-32005, "rate limit exceeded"),
    ] {
        let wire = Wire::new();
        wire.ask().await.unwrap();
        wire.p.always("eth_getBlockByNumber", fault);
        assert_eq!(wire.ask().await.unwrap(), "q");
        assert_eq!(wire.standing(0), "rate_limited");
        let asked = wire.p.calls().len();
        for _ in 0..3 {
            assert_eq!(wire.ask().await.unwrap(), "q");
        }
        assert_eq!(wire.p.calls().len(), asked, "p is left alone");
    }
}

#[tokio::test]
async fn a_batch_that_comes_back_odd_is_not_used_and_the_other_endpoint_is_asked() {
    for fault in [Fault::wrong_id(), Fault::one_error(-32600, "no batches here")] {
        let wire = Wire::new();
        wire.ask().await.unwrap();
        wire.p.once("eth_getBlockByNumber", fault);
        assert_eq!(wire.ask().await.unwrap(), "q");
        assert_eq!(wire.standing(0), "unreachable");
    }
    let wire = Wire::new();
    wire.p.always("eth_getBlockByNumber", Fault::reversed());
    assert_eq!(wire.ask().await.unwrap(), "p", "any order will do");
}
