//! A scripted node: answers JSON-RPC and REST as the test says, well or badly, alone or before a real node.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::{self, Request};
use super::node::RegtestNode;
use super::server::Server;
use super::wait::pause;

const JSON: &str = "application/json";

/// What the client asked. `GET /rest/block/HASH.bin` reads as method `rest/block`, parameter `HASH.bin`.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub method: String,
    pub params: Vec<Value>,
}

impl Call {
    /// What a question of JSON-RPC asks.
    pub fn of(question: &Value) -> Self {
        let params = question["params"].as_array().cloned().unwrap_or_default();
        Self {
            method: question["method"].as_str().unwrap_or_default().to_owned(),
            params,
        }
    }
}

/// How one call is answered.
#[derive(Clone, Debug)]
pub enum Reply {
    /// 200 with this result.
    Result(Value),
    /// 200 with these bytes (REST).
    Bytes(Vec<u8>),
    /// An error object of JSON-RPC under the status 500, as older nodes send it.
    Error(i64, &'static str),
    /// The same under the status 200.
    ErrorIn200(i64, &'static str),
    /// No JSON at all.
    Text(u16, &'static str),
    /// A good result that belongs to another request.
    WrongId(Value),
    /// Takes the request and stays silent.
    Hang,
    /// A good result, one byte every 20 ms.
    Drip(Value),
    /// The first half of a good result, then the connection is closed.
    Cut(Value),
    /// A body of this many blanks, its length announced.
    Oversized(u64),
    /// A body of this many blanks without a length.
    OversizedUnannounced(u64),
    /// The real node's answer; without one behind the stub, "method not found".
    Pass,
}

type Handler = Box<dyn FnMut(&Call) -> Option<Reply> + Send>;

#[derive(Default)]
struct Script {
    once: HashMap<String, VecDeque<Reply>>,
    always: HashMap<String, Reply>,
    handler: Option<Handler>,
    calls: Vec<Call>,
    /// `user:password` that every RPC must bring.
    credentials: Option<String>,
}

impl Script {
    /// Queued replies first, then the handler, then the standing ones, then the node behind.
    fn reply(&mut self, call: &Call) -> Reply {
        self.calls.push(call.clone());
        for name in [call.method.as_str(), "*"] {
            if let Some(reply) = self.once.get_mut(name).and_then(VecDeque::pop_front) {
                return reply;
            }
        }
        let handled = self.handler.as_mut().and_then(|handler| handler(call));
        handled
            .or_else(|| self.always.get(&call.method).cloned())
            .unwrap_or(Reply::Pass)
    }
}

struct Shared {
    script: Mutex<Script>,
    behind: Option<Behind>,
}

struct Behind {
    port: u16,
    cookie_file: PathBuf,
}

/// The server; it ends with the test.
pub struct StubNode {
    shared: Arc<Shared>,
    dir: TempDir,
    server: Server,
}

impl StubNode {
    /// Knows nothing but what the test scripts.
    pub fn alone() -> Self {
        Self::launch(None)
    }

    /// Passes on to `node` what the test does not script.
    pub fn in_front_of(node: &RegtestNode) -> Self {
        Self::launch(Some(Behind {
            port: node.rpc_port(),
            cookie_file: node.cookie_file(),
        }))
    }

    fn launch(behind: Option<Behind>) -> Self {
        let shared = Arc::new(Shared {
            script: Mutex::default(),
            behind,
        });
        let dir = tempfile::Builder::new()
            .prefix("creditd-stub-")
            .tempdir()
            .unwrap();
        let server = {
            let shared = Arc::clone(&shared);
            Server::start(move |stream| serve(&shared, stream))
        };
        let stub = Self { shared, dir, server };
        std::fs::write(stub.cookie_file(), "__cookie__:stub").unwrap();
        stub
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    pub fn cookie_file(&self) -> PathBuf {
        self.dir.path().join(".cookie")
    }

    /// Answers every call of `method` so from now on. The method `*` is for [`once`](Self::once) only.
    pub fn always(&self, method: &str, reply: Reply) {
        self.script().always.insert(method.to_owned(), reply);
    }

    /// Answers the next call of `method` (of any, if `*`) so; several are a queue.
    pub fn once(&self, method: &str, reply: Reply) {
        self.script()
            .once
            .entry(method.to_owned())
            .or_default()
            .push_back(reply);
    }

    /// Decides by method and parameters; `None` leaves the call to the rest of the script.
    pub fn handle(&self, handler: impl FnMut(&Call) -> Option<Reply> + Send + 'static) {
        self.script().handler = Some(Box::new(handler));
    }

    /// Every call so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.script().calls.clone()
    }

    /// How often `method` was called.
    pub fn count(&self, method: &str) -> usize {
        self.script()
            .calls
            .iter()
            .filter(|call| call.method == method)
            .count()
    }

    /// Writes a new cookie file and answers 401 to all RPC without that cookie, as a restarted node does.
    pub fn renew_cookie(&self, password: &str) {
        let credentials = format!("__cookie__:{password}");
        std::fs::write(self.cookie_file(), &credentials).unwrap();
        self.script().credentials = Some(credentials);
    }

    /// Answers 401 to all RPC without this user and password, as `user:password`.
    pub fn require(&self, credentials: &str) {
        self.script().credentials = Some(credentials.to_owned());
    }

    /// Closes the port and every connection: clients are refused.
    pub fn refuse(&mut self) {
        self.server.refuse();
    }

    /// Ends [`refuse`](Self::refuse), on the same port.
    pub fn accept_again(&mut self) {
        self.server.accept_again();
    }

    /// Closes every open connection; new ones are accepted.
    pub fn cut_connections(&self) {
        self.server.cut_connections();
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.shared.script.lock().unwrap()
    }
}

fn serve(shared: &Shared, stream: &TcpStream) -> io::Result<()> {
    let mut from = BufReader::new(stream.try_clone()?);
    let mut stream = stream.try_clone()?;
    while let Some(request) = http::read_request(&mut from)? {
        if request.verb == "GET" {
            let reply = shared.script.lock().unwrap().reply(&rest_call(&request.path));
            send(shared, &mut stream, &request, &Value::Null, reply)?;
            continue;
        }
        let expected = shared
            .script
            .lock()
            .unwrap()
            .credentials
            .as_deref()
            .map(http::basic);
        if expected.is_some() && request.authorization != expected {
            http::respond(&mut stream, 401, "text/html", b"")?;
            continue;
        }
        match serde_json::from_slice(&request.body)? {
            Value::Array(calls) => send_batch(shared, &mut stream, &request, &calls)?,
            body => {
                let reply = shared.script.lock().unwrap().reply(&Call::of(&body));
                send(shared, &mut stream, &request, &body["id"], reply)?;
            }
        }
    }
    Ok(())
}

fn rest_call(path: &str) -> Call {
    let path = path.trim_start_matches('/');
    let cut = path.match_indices('/').nth(1).map_or(path.len(), |(at, _)| at);
    let (method, rest) = path.split_at(cut);
    Call {
        method: method.to_owned(),
        params: vec![json!(rest.trim_start_matches('/'))],
    }
}

fn send(shared: &Shared, to: &mut TcpStream, request: &Request, id: &Value, reply: Reply) -> io::Result<()> {
    let result = |result: Value| envelope(&result, &Value::Null, id);
    match reply {
        Reply::Result(value) => http::respond(to, 200, JSON, result(value).as_bytes()),
        Reply::Bytes(bytes) => http::respond(to, 200, "application/octet-stream", &bytes),
        Reply::Error(code, message) => http::respond(to, 500, JSON, refusal(code, message, id).as_bytes()),
        Reply::ErrorIn200(code, message) => {
            http::respond(to, 200, JSON, refusal(code, message, id).as_bytes())
        }
        Reply::Text(status, text) => http::respond(to, status, "text/plain", text.as_bytes()),
        Reply::WrongId(value) => {
            let body = envelope(&value, &Value::Null, &json!("somebody else's"));
            http::respond(to, 200, JSON, body.as_bytes())
        }
        Reply::Hang => hang(to),
        Reply::Drip(value) => drip(to, &result(value)),
        Reply::Cut(value) => cut(to, result(value).as_bytes()),
        Reply::Oversized(bytes) => blanks(to, Some(bytes), bytes),
        Reply::OversizedUnannounced(bytes) => {
            blanks(to, None, bytes)?;
            to.shutdown(Shutdown::Both)
        }
        Reply::Pass => match &shared.behind {
            None if request.verb == "GET" => http::respond(to, 404, "text/plain", b"not found"),
            None => http::respond(to, 404, JSON, refusal(-32601, "Method not found", id).as_bytes()),
            Some(behind) => {
                let (status, content_type, body) = pass(behind, request)?;
                http::respond(to, status, &content_type, &body)
            }
        },
    }
}

/// Each call of a batch is scripted like any other. A reply that is not about one call alone (`Hang`, `Text`)
/// is the answer to the whole batch.
fn send_batch(shared: &Shared, to: &mut TcpStream, request: &Request, calls: &[Value]) -> io::Result<()> {
    let mut answers = Vec::new();
    for call in calls {
        let id = &call["id"];
        let reply = shared.script.lock().unwrap().reply(&Call::of(call));
        answers.push(match (reply, &shared.behind) {
            (Reply::Result(value), _) => envelope(&value, &Value::Null, id),
            (Reply::WrongId(value), _) => envelope(&value, &Value::Null, &json!("somebody else's")),
            (Reply::Error(code, message) | Reply::ErrorIn200(code, message), _) => refusal(code, message, id),
            (Reply::Pass, None) => refusal(-32601, "Method not found", id),
            (Reply::Pass, Some(behind)) => {
                let one = Request {
                    verb: request.verb.clone(),
                    path: request.path.clone(),
                    authorization: None,
                    body: call.to_string().into_bytes(),
                };
                String::from_utf8(pass(behind, &one)?.2).map_err(io::Error::other)?
            }
            (whole, _) => return send(shared, to, request, &Value::Null, whole),
        });
    }
    http::respond(to, 200, JSON, format!("[{}]", answers.join(",")).as_bytes())
}

fn pass(behind: &Behind, request: &Request) -> io::Result<(u16, String, Vec<u8>)> {
    // The node writes a new cookie at every start.
    let cookie = std::fs::read_to_string(&behind.cookie_file).unwrap_or_default();
    http::forward(behind.port, request, &cookie)
}

fn envelope(result: &Value, error: &Value, id: &Value) -> String {
    json!({ "result": result, "error": error, "id": id }).to_string()
}

fn refusal(code: i64, message: &str, id: &Value) -> String {
    envelope(&Value::Null, &json!({ "code": code, "message": message }), id)
}

/// Silent until the client, or the test, closes the connection.
fn hang(to: &mut TcpStream) -> io::Result<()> {
    io::copy(&mut to.take(u64::MAX), &mut io::sink()).map(|_| ())
}

fn drip(to: &mut TcpStream, body: &str) -> io::Result<()> {
    to.write_all(http::head(200, JSON, Some(body.len() as u64)).as_bytes())?;
    for byte in body.as_bytes() {
        to.write_all(&[*byte])?;
        pause();
    }
    Ok(())
}

/// Announces all of the body, sends half of it and closes the connection.
pub(super) fn cut(to: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    to.write_all(http::head(200, JSON, Some(body.len() as u64)).as_bytes())?;
    to.write_all(&body[..body.len() / 2])?;
    to.shutdown(Shutdown::Both)
}

/// A body of blanks; without a length it ends with the connection.
pub(super) fn blanks(to: &mut TcpStream, announced: Option<u64>, bytes: u64) -> io::Result<()> {
    to.write_all(http::head(200, JSON, announced).as_bytes())?;
    io::copy(&mut io::repeat(b' ').take(bytes), to).map(|_| ())
}
