//! A proxy in front of EVM nodes: real HTTP on loopback, bytes passed on as they are, and whatever a test
//! has go wrong in between, changed at any time.
//!
//! Proxies stand one before another: a balancer over a node and over a lagging view of the same node is
//! `EvmProxy::balancing(&[&node.url(), &lagging.url()], Balance::Questions)`.

pub mod lag;
pub mod script;
pub mod transfers;

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

use self::lag::{Head, Seen, View};
use self::script::{Asked, Fault, FaultId, Script};
use self::transfers::Transfers;
use super::http::{self, Request};
use super::server::Server;
use super::stub::{self, Call};

const JSON: &str = "application/json";

/// How the nodes behind a balancer take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Each HTTP request goes to the next one, a batch as a whole.
    Requests,
    /// Each question goes to the next one, those of a batch too.
    Questions,
}

/// A node behind the proxy.
pub(super) struct Upstream {
    port: AtomicU16,
}

impl Upstream {
    fn at(url: &str) -> Self {
        Self {
            port: AtomicU16::new(port_of(url)),
        }
    }

    /// A question of the proxy's own: its result; null for an error.
    fn ask(&self, method: &str, params: Value) -> io::Result<Value> {
        let question = json!({ "jsonrpc": "2.0", "id": 0, "method": method, "params": params });
        let (_, _, body) = self.pass(&question.to_string().into_bytes())?;
        Ok(serde_json::from_slice::<Value>(&body)?["result"].take())
    }

    fn pass(&self, body: &[u8]) -> io::Result<(u16, String, Vec<u8>)> {
        let request = Request {
            verb: "POST".to_owned(),
            path: "/".to_owned(),
            authorization: None,
            body: body.to_vec(),
        };
        http::forward(self.port.load(Ordering::SeqCst), &request, "nobody:")
    }
}

fn port_of(url: &str) -> u16 {
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
    port.unwrap_or_else(|| panic!("http://127.0.0.1:PORT, not {url}"))
}

#[derive(Default)]
struct State {
    script: Script,
    head: Option<Head>,
    transfers: Option<Arc<Transfers>>,
    /// The questions of each HTTP request.
    requests: Vec<Vec<Call>>,
}

struct Shared {
    state: Mutex<State>,
    upstreams: Vec<Upstream>,
    balance: Balance,
    turn: AtomicUsize,
}

/// The server; it ends with the test.
pub struct EvmProxy {
    shared: Arc<Shared>,
    server: Server,
}

impl EvmProxy {
    /// In front of one node, at `http://127.0.0.1:PORT`.
    pub fn in_front_of(url: &str) -> Self {
        Self::balancing(&[url], Balance::Requests)
    }

    /// In front of several nodes, which take turns.
    pub fn balancing(urls: &[&str], balance: Balance) -> Self {
        assert!(!urls.is_empty(), "a proxy without a node");
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            upstreams: urls.iter().map(|url| Upstream::at(url)).collect(),
            balance,
            turn: AtomicUsize::new(0),
        });
        let server = {
            let shared = Arc::clone(&shared);
            Server::start(move |stream| serve(&shared, stream))
        };
        Self { shared, server }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    pub fn port(&self) -> u16 {
        self.server.port()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    // ---- faults ----

    /// What the next such question meets; several are a queue. It goes before the standing faults.
    pub fn once(&self, asked: impl Into<Asked>, fault: Fault) -> FaultId {
        self.state().script.add(asked.into(), fault, true)
    }

    /// What every such question meets from now on. Those for the same question come together, in the order
    /// made.
    pub fn always(&self, asked: impl Into<Asked>, fault: Fault) -> FaultId {
        self.state().script.add(asked.into(), fault, false)
    }

    /// Ends one fault.
    pub fn lift(&self, fault: FaultId) {
        self.state().script.lift(fault);
    }

    /// Ends all faults. Whoever waits at a gate waits on.
    pub fn lift_all(&self) {
        self.state().script.lift_all();
    }

    /// Shows the node as one that is behind, or with `None` as it is.
    pub fn set_head(&self, head: Option<Head>) {
        self.state().head = head;
    }

    /// Logs every movement of native coin from this block on, as EIP-7708 has it; with `None` none.
    pub fn set_transfer_logs(&self, from: Option<u64>) {
        self.state().transfers = from.map(|from| Arc::new(Transfers::new(from)));
    }

    /// Closes the port and every connection: clients are refused.
    pub fn refuse(&mut self) {
        self.server.refuse();
    }

    /// Ends [`refuse`](Self::refuse), on the same port.
    pub fn accept_again(&mut self) {
        self.server.accept_again();
    }

    /// Another node is behind the same URL from now on, in place of the first one. Connections stay.
    pub fn lead_to(&self, url: &str) {
        self.shared.upstreams[0]
            .port
            .store(port_of(url), Ordering::SeqCst);
    }

    /// Closes every open connection; new ones are accepted.
    pub fn cut_connections(&self) {
        self.server.cut_connections();
    }

    // ---- what was asked ----

    /// Every question so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.state().requests.iter().flatten().cloned().collect()
    }

    /// The questions of each HTTP request so far: one, or those of a batch.
    pub fn requests(&self) -> Vec<Vec<Call>> {
        self.state().requests.clone()
    }

    /// How often `method` was asked.
    pub fn count(&self, method: &str) -> usize {
        let state = self.state();
        let calls = state.requests.iter().flatten();
        calls.filter(|call| call.method == method).count()
    }

    /// How often each method was asked, by name.
    pub fn tally(&self) -> BTreeMap<String, usize> {
        let mut tally = BTreeMap::new();
        for call in self.state().requests.iter().flatten() {
            *tally.entry(call.method.clone()).or_default() += 1;
        }
        tally
    }

    /// Begins to count anew.
    pub fn forget_calls(&self) {
        self.state().requests.clear();
    }
}

/// One question, and what it meets.
struct Question {
    body: Value,
    call: Call,
    faults: Vec<Fault>,
}

fn serve(shared: &Shared, stream: &TcpStream) -> io::Result<()> {
    let mut from = BufReader::new(stream.try_clone()?);
    let mut to = stream.try_clone()?;
    while let Some(request) = http::read_request(&mut from)? {
        let (bodies, is_batch) = match serde_json::from_slice(&request.body) {
            Ok(Value::Array(bodies)) => (bodies, true),
            Ok(body) => (vec![body], false),
            Err(_) => (Vec::new(), false),
        };
        let calls: Vec<Call> = bodies.iter().map(Call::of).collect();
        let (questions, head, transfers) = {
            let mut state = shared.state.lock().unwrap();
            state.requests.push(calls.clone());
            let both = bodies.into_iter().zip(calls);
            let questions: Vec<Question> = both
                .map(|(body, call)| Question {
                    faults: state.script.faults(&call),
                    body,
                    call,
                })
                .collect();
            (questions, state.head, state.transfers.clone())
        };
        let is_as_it_is = head.is_none() && transfers.is_none();
        let is_plain = is_as_it_is && questions.iter().all(|question| question.faults.is_empty());
        let is_split = is_batch && shared.balance == Balance::Questions && shared.upstreams.len() > 1;
        if is_plain && !is_split {
            let (status, content_type, body) = shared.next().pass(&request.body)?;
            http::respond(&mut to, status, &content_type, &body)?;
            continue;
        }
        let exchange = Exchange {
            shared,
            head,
            transfers,
            questions,
            is_batch,
        };
        if !exchange.play(&mut to)? {
            break;
        }
    }
    Ok(())
}

impl Shared {
    fn next(&self) -> &Upstream {
        &self.upstreams[self.turn.fetch_add(1, Ordering::SeqCst) % self.upstreams.len()]
    }
}

/// An HTTP request on its way through.
struct Exchange<'a> {
    shared: &'a Shared,
    head: Option<Head>,
    transfers: Option<Arc<Transfers>>,
    questions: Vec<Question>,
    is_batch: bool,
}

impl Exchange<'_> {
    /// Does the connection stay?
    fn play(&self, to: &mut TcpStream) -> io::Result<bool> {
        for fault in self.faults() {
            if let Fault::HoldQuestion(gate) = fault {
                gate.pass();
            }
        }
        let whole = self.faults().find(|fault| fault.is_of_exchange());
        match whole {
            Some(Fault::Close) => return Ok(false),
            Some(Fault::Status(status, retry_after)) => {
                http::refuse(to, *status, retry_after.as_deref())?;
                return Ok(true);
            }
            Some(Fault::Text(status, text)) => {
                http::respond(to, *status, "text/html", text.as_bytes())?;
                return Ok(true);
            }
            Some(Fault::Oversized(bytes)) => {
                stub::blanks(to, Some(*bytes), *bytes)?;
                return Ok(true);
            }
            Some(Fault::OversizedUnannounced(bytes)) => {
                stub::blanks(to, None, *bytes)?;
                return Ok(false);
            }
            _ => {}
        }
        let mut answers = self.answers()?;
        let body = match whole {
            Some(Fault::EditAll(edit)) => edit(answers).to_string(),
            _ if self.is_batch => Value::Array(answers).to_string(),
            _ => answers.pop().map(|answer| answer.to_string()).unwrap_or_default(),
        };
        if let Some(Fault::Cut) = whole {
            stub::cut(to, body.as_bytes())?;
            return Ok(false);
        }
        http::respond(to, 200, JSON, body.as_bytes())?;
        Ok(true)
    }

    fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.questions.iter().flat_map(|question| &question.faults)
    }

    /// What the nodes answer, with what goes wrong with each question.
    fn answers(&self) -> io::Result<Vec<Value>> {
        let answers = match self.shared.balance {
            Balance::Requests => self.ask(self.shared.next(), &self.questions)?,
            Balance::Questions => {
                let each = self.questions.iter();
                let each = each.map(|question| self.ask(self.shared.next(), std::slice::from_ref(question)));
                each.collect::<io::Result<Vec<_>>>()?.concat()
            }
        };
        let both = self.questions.iter().zip(answers);
        Ok(both
            .filter_map(|(question, answer)| question.spoil(answer?))
            .collect())
    }

    /// One node's answers to these questions, in their order; none to what has no id.
    fn ask(&self, upstream: &Upstream, questions: &[Question]) -> io::Result<Vec<Option<Value>>> {
        let view = self.head.map(|head| View::open(upstream, head)).transpose()?;
        let mut bodies: Vec<Value> = questions.iter().map(|question| question.body.clone()).collect();
        let mut unknown = Vec::new();
        for body in &mut bodies {
            unknown.push(match view.as_ref().map(|view| view.look(body)).transpose()? {
                Some(Seen::Unknown(kind, what)) => Some((kind, what)),
                Some(Seen::Known) | None => None,
            });
        }
        let (_, _, answer) = upstream.pass(json!(bodies).to_string().as_bytes())?;
        let mut given = match serde_json::from_slice(&answer)? {
            Value::Array(given) => given,
            refused => vec![refused],
        };
        let both = questions.iter().zip(bodies.iter().zip(unknown));
        both.map(|(question, (body, unknown))| {
            let Some(id) = question.body.get("id") else {
                return Ok(None);
            };
            if let Some((kind, what)) = unknown {
                return Ok(Some(json!({ "jsonrpc": "2.0", "id": id, kind: what })));
            }
            let Some(place) = given.iter().position(|answer| answer["id"] == *id) else {
                return Ok(None);
            };
            let mut answer = given.swap_remove(place);
            if let Some(result) = answer.get_mut("result") {
                if let Some(transfers) = &self.transfers {
                    transfers.add(upstream, &Call::of(body), result)?;
                }
                if let Some(view) = &view {
                    view.trim(&question.call.method, result);
                }
            }
            Ok(Some(answer))
        })
        .collect()
    }
}

impl Question {
    /// The answer after all that goes wrong with this question.
    fn spoil(&self, mut answer: Value) -> Option<Value> {
        let id = self.body["id"].clone();
        for fault in &self.faults {
            answer = match fault {
                Fault::Missing => return None,
                Fault::Result(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                Fault::Error(code, message) => {
                    let error = json!({ "code": code, "message": message });
                    json!({ "jsonrpc": "2.0", "id": id, "error": error })
                }
                Fault::Edit(edit) => {
                    let result = edit(&self.call, answer["result"].take());
                    json!({ "jsonrpc": "2.0", "id": id, "result": result })
                }
                Fault::EditAnswer(edit) => edit(answer),
                Fault::HoldAnswer(gate) => {
                    gate.pass();
                    answer
                }
                _ => answer,
            };
        }
        Some(answer)
    }
}
