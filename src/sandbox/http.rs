//! The node's HTTP server: JSON-RPC with the log-in and status codes of Bitcoin Core, and its REST paths for
//! headers and blocks. <https://github.com/bitcoin/bitcoin/blob/master/doc/JSON-RPC-interface.md>

use super::calls;
use super::chain::Chain;
use super::encode::{block_bytes, sha256};
use super::faults::{Faults, STARTING};
use super::front::{Asked, INVALID_REQUEST, NO_METHOD, PARSE_ERROR, RpcError, envelope, json_response};
use super::question::{self, Answer};
use crate::clock::Clock;
use crate::rules::BlockHash;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The longest wait that a call may ask for.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The node is starting.
const IN_WARMUP: i32 = -28;

/// What the server shares with whoever moves the chain.
pub(super) struct Node {
    chain: Mutex<Chain>,
    tip: watch::Sender<BlockHash>,
    authorization: String,
    pub(super) faults: Arc<Faults>,
}

impl Node {
    pub(super) fn new(chain: Chain, cookie: &str, clock: Clock) -> Node {
        Node {
            tip: watch::Sender::new(chain.tip().hash),
            chain: Mutex::new(chain),
            authorization: format!("Basic {}", STANDARD.encode(cookie)),
            faults: Arc::new(Faults::new(clock)),
        }
    }

    fn chain(&self) -> MutexGuard<'_, Chain> {
        self.chain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read<T>(&self, look: impl FnOnce(&Chain) -> T) -> T {
        look(&self.chain())
    }

    /// Changes the chain in one step: no call sees it half done.
    pub(super) fn change<T>(&self, work: impl FnOnce(&mut Chain) -> T) -> T {
        let mut chain = self.chain();
        let outcome = work(&mut chain);
        let tip = chain.tip().hash;
        self.tip
            .send_if_modified(|known| std::mem::replace(known, tip) != tip);
        outcome
    }

    /// Waits for another tip than that of now.
    async fn wait_for_block(&self, span: Duration) {
        let mut tips = self.tip.subscribe();
        let _ = tokio::time::timeout(span, tips.changed()).await;
    }
}

/// Makes a new secret and writes it where only this user can read it.
pub(super) fn write_cookie(path: &std::path::Path) -> std::io::Result<String> {
    let mut random = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let cookie = format!("__cookie__:{}", const_hex::encode(sha256(&random)));
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(cookie.as_bytes())?;
    Ok(cookie)
}

/// What the node answers.
pub(super) fn routes(node: Arc<Node>) -> Router {
    let gate = from_fn_with_state(node.faults.clone(), Faults::gate);
    Router::new()
        .route("/", post(rpc).fallback(only_post))
        .route("/rest/block/{name}", get(rest_block))
        .route("/rest/headers/{name}", get(rest_headers))
        .route("/rest/headers/{count}/{name}", get(rest_headers_of_old))
        .with_state(node)
        .layer(gate)
}

// ---- JSON-RPC ----

async fn only_post() -> Response {
    (
        StatusCode::METHOD_NOT_ALLOWED,
        "JSONRPC server handles only POST requests",
    )
        .into_response()
}

async fn rpc(State(node): State<Arc<Node>>, headers: HeaderMap, body: Bytes) -> Response {
    let shown = headers.get(header::AUTHORIZATION);
    if shown.is_none_or(|shown| shown.as_bytes() != node.authorization.as_bytes()) {
        let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"jsonrpc\"")];
        return (StatusCode::UNAUTHORIZED, challenge).into_response();
    }
    let (status, body) = match Asked::read(&body) {
        Asked::Batch(questions) => {
            let mut answers = Vec::new();
            for question in &questions {
                answers.extend(answer(&node, question).await.map(|(_, body)| body));
            }
            (StatusCode::OK, Value::Array(answers))
        }
        Asked::One(question) => match answer(&node, &question).await {
            Some(answer) => answer,
            None => return StatusCode::NO_CONTENT.into_response(),
        },
        Asked::Neither => unreadable("Top-level object parse error"),
        Asked::NoJson => unreadable("Parse error"),
    };
    json_response(status, &body)
}

fn unreadable(why: &str) -> (StatusCode, Value) {
    legacy(Some(&Value::Null), Err(RpcError::new(PARSE_ERROR, why)))
}

/// The answer to one question, in the form of its version; `None` where no answer is wanted.
async fn answer(node: &Node, question: &Value) -> Option<(StatusCode, Value)> {
    let id = question.get("id");
    let outcome = call(node, question).await;
    if question.get("jsonrpc") != Some(&json!("2.0")) {
        return Some(legacy(id, outcome));
    }
    let id = id?;
    let status = match &outcome {
        Err(error) if error.code == INVALID_REQUEST => StatusCode::BAD_REQUEST,
        Ok(_) | Err(_) => StatusCode::OK,
    };
    Some((status, envelope(id, outcome)))
}

/// Before version 2.0 both keys are always there, and an error shows in the HTTP status.
fn legacy(id: Option<&Value>, outcome: Result<Value, RpcError>) -> (StatusCode, Value) {
    let (status, mut body) = match outcome {
        Ok(result) => (StatusCode::OK, json!({"result": result, "error": null})),
        Err(error) => {
            let status = match error.code {
                INVALID_REQUEST => StatusCode::BAD_REQUEST,
                NO_METHOD => StatusCode::NOT_FOUND,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, json!({"result": null, "error": error.to_json()}))
        }
    };
    if let (Some(id), Some(fields)) = (id, body.as_object_mut()) {
        fields.insert("id".to_owned(), id.clone());
    }
    (status, body)
}

async fn call(node: &Node, question: &Value) -> Result<Value, RpcError> {
    if !question.is_object() {
        return Err(RpcError::new(INVALID_REQUEST, "Invalid Request object"));
    }
    let method = match question.get("method") {
        Some(Value::String(method)) => method,
        Some(Value::Null) | None => return Err(RpcError::new(INVALID_REQUEST, "Missing method")),
        Some(_) => return Err(RpcError::new(INVALID_REQUEST, "Method must be a string")),
    };
    node.faults.refuse_while_warming(IN_WARMUP, STARTING)?;
    let (call, args) = question::parse(method, question.get("params"))?;
    match call.answer {
        Answer::Read(read) => node.read(|chain| read(chain, &args)),
        Answer::Change(change) => node.change(|chain| change(chain, &args)),
        Answer::WaitForBlock => {
            let span = match args.whole("timeout", 0)? {
                0 => WAIT_MAX,
                ms => Duration::from_millis(
                    u64::try_from(ms).map_err(|_| RpcError::new(-1, "Negative timeout"))?,
                ),
            };
            node.wait_for_block(span.min(WAIT_MAX)).await;
            Ok(node.read(calls::block_and_height))
        }
    }
}

// ---- REST ----

/// A refusal in words.
type Refusal = (StatusCode, String);

fn refusal(status: StatusCode, text: &str) -> Refusal {
    (status, format!("{text}\r\n"))
}

fn binary(bytes: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response()
}

/// `HASH.bin`, the only form that is served.
fn hash_of(name: &str) -> Result<BlockHash, Refusal> {
    let (text_of_hash, is_binary) = match name.strip_suffix(".bin") {
        Some(hash) => (hash, true),
        None => (name, false),
    };
    match BlockHash::from_hex(text_of_hash) {
        Some(hash) if is_binary => Ok(hash),
        Some(_) => Err(refusal(
            StatusCode::NOT_FOUND,
            "output format not found (available: .bin)",
        )),
        None => Err(refusal(
            StatusCode::BAD_REQUEST,
            &format!("Invalid hash: {text_of_hash}"),
        )),
    }
}

async fn rest_block(State(node): State<Arc<Node>>, Path(name): Path<String>) -> Response {
    let hash = match hash_of(&name) {
        Ok(hash) => hash,
        Err(refusal) => return refusal.into_response(),
    };
    let bytes = node.read(|chain| {
        let block = chain.block(&hash)?;
        Some(block_bytes(&block.header, block.txs.iter().map(AsRef::as_ref)))
    });
    match bytes {
        Some(bytes) => binary(bytes),
        None => refusal(StatusCode::NOT_FOUND, &format!("{hash} not found")).into_response(),
    }
}

async fn rest_headers(
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Query(options): Query<BTreeMap<String, String>>,
) -> Response {
    let count = options.get("count").map_or("5", String::as_str);
    headers(&node, count, &name)
}

async fn rest_headers_of_old(
    State(node): State<Arc<Node>>,
    Path((count, name)): Path<(String, String)>,
) -> Response {
    headers(&node, &count, &name)
}

/// Headers of the best chain from a block on; none where it is not on it.
fn headers(node: &Node, count: &str, name: &str) -> Response {
    let Some(wanted) = count.parse().ok().filter(|wanted| (1..=2_000).contains(wanted)) else {
        let why = format!("Header count is invalid or out of acceptable range (1-2000): {count}");
        return refusal(StatusCode::BAD_REQUEST, &why).into_response();
    };
    let hash = match hash_of(name) {
        Ok(hash) => hash,
        Err(refusal) => return refusal.into_response(),
    };
    binary(node.read(|chain| {
        let first = chain.block(&hash).filter(|block| chain.is_active(block));
        let heights = first.into_iter().flat_map(|block| block.height..);
        let blocks = heights.map_while(|height| chain.at(height)).take(wanted);
        blocks.flat_map(|block| block.header.bytes()).collect()
    }))
}
