//! A block with every kind of payment, and a dial that repeats what a node said of it, with some of its
//! answers changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard};

use creditd::chain::evm::fields::Account;
use creditd::chain::evm::{EvmRules, EvmSource, NativeRule, TokenRule};
use creditd::clock::Clock;
use creditd::egress::{Dial, DialError, HttpReply, HttpRequest};
use creditd::index::{Index, short};
use creditd::rules::{BlockHash, ChainId, ListVersion};
use creditd::sandbox::evm::{Address, CallKind, Effects, EvmSandbox, InnerCall, Log, Token, Tx, U256};
use serde_json::{Value, json};

use crate::common::evm_endpoint;

const CHAIN_ID: u64 = 31_337;

/// What the rules of a source are.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    pub name: &'static str,
    pub native: Option<creditd::chain::evm::Inner>,
    pub has_bloom: bool,
    pub is_balance_checked: bool,
    /// The list of logs is empty, so that the receipts are read.
    pub hides_logs: bool,
}

pub struct World {
    sandbox: EvmSandbox,
    pub token: Address,
    pub ours: [Address; 2],
    pub block: BlockHash,
    /// By method and parameters: results or errors as they came.
    answers: Mutex<BTreeMap<String, Value>>,
}

fn wei(number: u64) -> U256 {
    U256::from(number)
}

impl World {
    pub fn new(is_logged: bool) -> World {
        let sandbox = EvmSandbox::at_genesis(CHAIN_ID, Clock::simulated(0)).unwrap();
        if is_logged {
            sandbox.set_transfer_logs(Some(0));
        }
        let (d1, d2, other) = (Address::of("d1"), Address::of("d2"), Address::of("other"));
        let (token, maker) = (Address::of("token"), Address::of("maker"));
        let payer = EvmSandbox::payer();
        sandbox.endow(maker, wei(1_000_000));
        let described = Token {
            decimals: 6,
            symbol: "TUSD".to_owned(),
        };
        sandbox.set_token(token, described);
        sandbox.pay(d1, wei(3)).unwrap();
        sandbox.mine(3).unwrap();
        let calls = |calls: Vec<InnerCall>| {
            let mut tx = Tx::pay(payer, maker, wei(1));
            tx.effects.calls = calls;
            tx
        };
        let call = |to, value| InnerCall::new(CallKind::Call, to, wei(value));
        let mut failed = call(other, 21);
        (failed.is_success, failed.calls) = (false, vec![call(d1, 22)]);
        let mut borrowed = InnerCall::new(CallKind::DelegateCall, other, wei(0));
        borrowed.calls = vec![call(d2, 20)];
        let mut logged = Tx::pay(payer, maker, wei(0));
        let word = |byte| [byte; 32];
        logged.effects.logs = vec![
            Log {
                address: other,
                topics: vec![word(9)],
                data: Vec::new(),
            },
            Log::transfer(token, payer, other, wei(11)),
            Log::transfer(token, payer, d1, wei(12)),
            Log::transfer(token, payer, d2, wei(13)),
        ];
        let mut refused = Tx::pay(payer, d1, wei(5));
        refused.effects = Effects::failed();
        let ended = InnerCall::new(CallKind::SelfDestruct, d1, wei(24));
        let made = InnerCall::new(CallKind::Create2, d2, wei(25));
        let txs = [
            Tx::pay(payer, d1, wei(7)),
            Tx::pay_token(token, payer, d2, wei(9)),
            Tx::pay(payer, other, wei(8)),
            logged,
            calls(vec![call(d1, 15), failed, borrowed, call(other, 16)]),
            refused,
            calls(vec![call(d2, 18), made, ended]),
            Tx::pay(payer, d2, wei(30)),
        ];
        let txids: Vec<_> = txs.into_iter().map(|tx| sandbox.send(tx).unwrap()).collect();
        let block = sandbox.mine_with(&txids).unwrap();
        sandbox.mine(2).unwrap();
        sandbox.pay(d1, wei(40)).unwrap();
        sandbox.pay(other, wei(41)).unwrap();
        World {
            sandbox,
            token,
            ours: [d1, d2],
            block,
            answers: Mutex::default(),
        }
    }

    pub fn index(&self) -> Index {
        let mut index = Index::default();
        index.add_scripts(self.ours.map(|address| short(&address.0)), ListVersion(1));
        index
    }

    /// What the node says, asked once. In the calling thread: the tests' clock does not go on meanwhile.
    fn answer(&self, key: &str, question: &Value) -> Value {
        if let Some(answer) = self.answers.lock().unwrap().get(key) {
            return answer.clone();
        }
        let place = self.sandbox.url().replace("http://", "");
        let mut stream = TcpStream::connect(&place).unwrap();
        let body = question.to_string();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: {place}\r\nContent-Type: application/json\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (_, body) = reply.split_once("\r\n\r\n").unwrap();
        let answer: Value = serde_json::from_str(body).unwrap();
        self.answers
            .lock()
            .unwrap()
            .insert(key.to_owned(), answer.clone());
        answer
    }
}

pub fn key(question: &Value) -> String {
    format!("{} {}", question["method"].as_str().unwrap(), question["params"])
}

/// What is said instead, and what was asked.
#[derive(Default)]
pub struct Said {
    pub instead: BTreeMap<String, Vec<u8>>,
    pub asked: BTreeMap<String, Value>,
}

#[derive(Clone)]
pub struct Repeater {
    world: Arc<World>,
    hides_logs: bool,
    said: Arc<Mutex<Said>>,
}

impl Repeater {
    pub fn new(world: &Arc<World>, mode: Mode) -> Repeater {
        Repeater {
            world: Arc::clone(world),
            hides_logs: mode.hides_logs,
            said: Arc::default(),
        }
    }

    pub fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap()
    }

    fn one(&self, question: &Value) -> Vec<u8> {
        let key = key(question);
        let mut said = self.said();
        let instead = said.instead.get(&key).cloned();
        let id = &question["id"];
        if let Some(text) = instead {
            return [
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#).as_bytes(),
                &text,
                b"}",
            ]
            .concat();
        }
        let mut answer = self.world.answer(&key, question);
        if self.hides_logs && question["method"] == "eth_getLogs" {
            answer["result"] = json!([]);
        }
        if let Some(result) = answer.get("result") {
            said.asked.insert(key, result.clone());
        }
        answer["id"] = id.clone();
        answer.to_string().into_bytes()
    }
}

impl Dial for Repeater {
    async fn send(&self, request: HttpRequest) -> Result<HttpReply, DialError> {
        let questions: Value = serde_json::from_slice(&request.body.unwrap()).unwrap();
        let body = match questions {
            Value::Array(all) => {
                let answers: Vec<Vec<u8>> = all.iter().map(|question| self.one(question)).collect();
                [b"[", answers.join(&b","[..]).as_slice(), b"]"].concat()
            }
            one => self.one(&one),
        };
        Ok(HttpReply {
            status: 200,
            retry_after_secs: None,
            body: body.into(),
        })
    }

    fn reset(&self) {}
}

pub fn source(dial: &Repeater, mode: Mode) -> EvmSource<Repeater> {
    let clock = Clock::simulated(0);
    let chain = ChainId::evm(CHAIN_ID, Some("test"));
    let rule = TokenRule {
        symbol: "TUSD".to_owned(),
        decimals: 6,
        is_balance_checked: mode.is_balance_checked,
        is_unindexed: false,
    };
    let rules = EvmRules {
        chain,
        tokens: BTreeMap::from([(Account(dial.world.token.0), rule)]),
        native: mode.native.map(NativeRule::by),
        has_bloom: mode.has_bloom,
        lists_pending: mode.native.is_some(),
    };
    let endpoints = evm_endpoint::only(CHAIN_ID, "http://p", dial.clone(), clock);
    EvmSource::new(rules, endpoints, clock)
}

impl World {
    pub fn height(&self) -> u64 {
        self.sandbox.height()
    }
}

/// Every hash of the chain, to take one for another.
pub fn hashes(world: &World) -> Vec<String> {
    let heights = 0..=world.sandbox.height();
    let blocks = heights.filter_map(|height| world.sandbox.block_hash(height));
    let mut all: BTreeSet<String> = blocks.map(|hash| format!("0x{hash}")).collect();
    for answer in world.answers.lock().unwrap().values() {
        let listed = answer["result"]["transactions"].as_array().into_iter().flatten();
        let hash = |tx: &Value| tx["hash"].as_str().or(tx.as_str()).map(str::to_owned);
        all.extend(listed.filter_map(hash));
    }
    all.into_iter().collect()
}
