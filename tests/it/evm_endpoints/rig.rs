//! Nodes with chains of their own, and endpoints in front of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use creditd::chain::SourceError;
use creditd::chain::evm::endpoints::{Endpoints, EndpointsConfig, Node};
use creditd::chain::evm::{EvmRules, EvmSource};
use creditd::chain::rpc::{Auth, Limits, Place, Question};
use creditd::clock::Clock;
use creditd::config::Checkpoint;
use creditd::egress::{Dial, DialError, HttpReply, HttpRequest};
use creditd::rules::{BlockHash, ChainId, TaggedBlock};
use serde_json::{Value, json};

const LIMITS: Limits = Limits {
    deadline: Duration::from_secs(10),
    body_bytes_max: 1 << 20,
};

/// What is wrong with a node.
#[derive(Clone, Copy, PartialEq)]
pub enum Trouble {
    None,
    Down,
    /// It takes the deadline to say nothing.
    Hangs,
    /// Each answer takes three seconds.
    Slow,
    Limits(u64),
}

pub struct State {
    pub chain_id: u64,
    /// Of every token.
    pub decimals: u8,
    blocks: BTreeMap<u64, BlockHash>,
    trouble: Trouble,
    /// The connection breaks under the next question, and a node with this chain id takes it up.
    pub taken_over_by: Option<u64>,
    pub dials: u64,
    asked: Vec<String>,
    /// It shows its whole pool, which is empty.
    pub shows_pool: bool,
}

/// A node with a chain of its own, at the other end of its own dial.
#[derive(Clone)]
pub struct FakeNode(Arc<Mutex<State>>, Clock);

pub fn block(branch: u8, height: u64) -> BlockHash {
    let mut hash = [branch; 32];
    hash[..8].copy_from_slice(&height.to_be_bytes());
    BlockHash(hash)
}

impl FakeNode {
    /// On the common chain (branch 0) up to height 100.
    pub fn new(clock: Clock) -> FakeNode {
        let state = State {
            chain_id: 31_337,
            decimals: 6,
            blocks: (0..=100).map(|height| (height, block(0, height))).collect(),
            trouble: Trouble::None,
            taken_over_by: None,
            dials: 0,
            asked: Vec::new(),
            shows_pool: true,
        };
        FakeNode(Arc::new(Mutex::new(state)), clock)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn set(&self, trouble: Trouble) {
        self.state().trouble = trouble;
    }

    /// Another branch from `from` up to `to`.
    pub fn fork(&self, branch: u8, from: u64, to: u64) {
        let mut state = self.state();
        state.blocks.retain(|height, _| *height < from);
        state
            .blocks
            .extend((from..=to).map(|height| (height, block(branch, height))));
    }

    /// How often it was asked since the last time.
    pub fn asked(&self) -> usize {
        std::mem::take(&mut self.state().asked).len()
    }

    /// How often a method was asked for since the last time.
    pub fn asked_for(&self, method: &str) -> usize {
        let asked = std::mem::take(&mut self.state().asked);
        asked.iter().filter(|asked| *asked == method).count()
    }

    fn answer(&self, question: &Value) -> Value {
        let mut state = self.state();
        let method = question["method"].as_str().unwrap().to_owned();
        state.asked.push(method.clone());
        let block = |height: u64| match state.blocks.get(&height) {
            Some(hash) => json!({"hash": format!("0x{hash}"), "number": format!("{height:#x}")}),
            None => Value::Null,
        };
        let result = match (method.as_str(), question["params"][0].as_str()) {
            ("eth_chainId", _) => json!(format!("{:#x}", state.chain_id)),
            ("web3_clientVersion", _) => json!("fake/v1"),
            ("eth_getBlockByNumber", Some("latest")) => block(*state.blocks.keys().last().unwrap()),
            ("eth_getBlockByNumber", Some("pending")) => {
                let (height, tip) = state.blocks.last_key_value().unwrap();
                let number = format!("{:#x}", height + 1);
                json!({"hash": null, "number": number, "parentHash": format!("0x{tip}"), "transactions": []})
            }
            ("eth_getBlockByNumber", Some(height)) => {
                block(u64::from_str_radix(height.trim_start_matches("0x"), 16).unwrap())
            }
            ("txpool_content", _) if state.shows_pool => json!({"pending": {}, "queued": {}}),
            ("txpool_content", _) => {
                let error = json!({"code": -32_000, "message": "not now"});
                return json!({"jsonrpc": "2.0", "id": question["id"], "error": error});
            }
            ("eth_call", _) => json!(format!("{:#066x}", state.decimals)),
            (method, _) => panic!("{method} is not asked for"),
        };
        json!({"jsonrpc": "2.0", "id": question["id"], "result": result})
    }
}

impl Dial for FakeNode {
    async fn send(&self, request: HttpRequest) -> Result<HttpReply, DialError> {
        let trouble = self.state().trouble;
        let taken_over_by = self.state().taken_over_by.take();
        if let Some(chain_id) = taken_over_by {
            let mut state = self.state();
            (state.chain_id, state.dials) = (chain_id, state.dials + 1);
        }
        let deadline_ms = 10_000;
        let mut reply = HttpReply {
            status: 200,
            retry_after_secs: None,
            body: "".into(),
        };
        match trouble {
            Trouble::None => {}
            Trouble::Down => return Err(DialError::Refused("refused".into())),
            Trouble::Slow => self.1.sleep(Duration::from_secs(3)).await,
            Trouble::Hangs => {
                self.1.sleep(Duration::from_millis(deadline_ms)).await;
                return Err(DialError::TimedOut { deadline_ms });
            }
            Trouble::Limits(secs) => {
                self.state().asked.push("limited".to_owned());
                (reply.status, reply.retry_after_secs) = (429, Some(secs));
                return Ok(reply);
            }
        }
        let questions: Value = serde_json::from_slice(&request.body.unwrap()).unwrap();
        let body = match questions {
            Value::Array(all) => all.iter().map(|question| self.answer(question)).collect(),
            one => self.answer(&one),
        };
        reply.body = body.to_string().into();
        Ok(reply)
    }

    fn reset(&self) {
        self.state().dials += 1;
    }

    fn dials(&self) -> u64 {
        self.state().dials
    }
}

pub struct Rig {
    pub clock: Clock,
    pub nodes: Vec<FakeNode>,
    pub endpoints: Endpoints<FakeNode>,
}

impl Rig {
    /// Endpoints `p`, `q`, `r`, ... in this order.
    pub fn new(count: usize, quorum: usize, checkpoints: &[Checkpoint]) -> Rig {
        let clock = Clock::simulated(0);
        let nodes: Vec<FakeNode> = (0..count).map(|_| FakeNode::new(clock)).collect();
        let config = EndpointsConfig {
            chain_id: 31_337,
            chain: ChainId::evm(31_337, Some("test")),
            checkpoints: checkpoints.to_vec(),
            quorum,
            call_deadline: Duration::from_secs(10),
            recheck: Duration::from_secs(60),
        };
        let node = |(name, dial): (char, &FakeNode)| Node {
            name: name.to_string(),
            place: Place::Url(format!("http://{name}")),
            auth: Auth::None,
            batch_max: 50,
            dial: dial.clone(),
        };
        let ends = ('p'..).zip(&nodes).map(node).collect();
        let endpoints = Endpoints::new(config, ends, None, clock);
        Rig {
            clock,
            nodes,
            endpoints,
        }
    }

    /// A source in front of the endpoints, and what is behind them.
    pub fn source(self, rules: EvmRules) -> (EvmSource<FakeNode>, Vec<FakeNode>, Clock) {
        (
            EvmSource::new(rules, self.endpoints, self.clock),
            self.nodes,
            self.clock,
        )
    }

    /// One question; the name of who answered.
    pub async fn ask(&self) -> Result<String, SourceError> {
        let question = Question::new("eth_getBlockByNumber", json!(["latest", false]));
        let told = self.endpoints.ask("ask for the tip", &[question], LIMITS).await?;
        let answer = told
            .answers
            .into_iter()
            .next()
            .unwrap()
            .decode::<Value>()
            .unwrap();
        let number = answer["number"]
            .as_str()
            .unwrap()
            .trim_start_matches("0x")
            .to_owned();
        let height = u64::from_str_radix(&number, 16).unwrap();
        let hash = BlockHash::from_hex(answer["hash"].as_str().unwrap().trim_start_matches("0x")).unwrap();
        self.endpoints
            .saw_tip(told.endpoint, TaggedBlock { height, hash });
        Ok(self.current())
    }

    pub fn current(&self) -> String {
        let list = self.endpoints.list();
        list.into_iter().find(|view| view.is_current).unwrap().name
    }

    pub fn standing(&self, name: &str) -> String {
        let list = self.endpoints.list();
        let view = list.into_iter().find(|view| view.name == name).unwrap();
        view.standing.words(self.clock.instant())
    }

    /// What the daemon does for so long: asks, and looks around between.
    pub async fn run(&self, secs: u64) {
        for _ in 0..secs {
            let _ = self.ask().await;
            self.endpoints.look_around().await;
            self.clock.sleep(Duration::from_secs(1)).await;
        }
    }
}

pub fn text(error: SourceError) -> String {
    error.to_string()
}
