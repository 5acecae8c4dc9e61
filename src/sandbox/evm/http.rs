//! The node's HTTP server: JSON-RPC 2.0 by POST to any path, as providers put their keys into it. An error is
//! in the body of a 200. <https://www.jsonrpc.org/specification>

use super::calls::{CALLS, Call};
use super::chain::Chain;
use super::params::{Params, SERVER_ERROR};
use crate::clock::Clock;
use crate::sandbox::faults::Faults;
use crate::sandbox::front::{
    Asked, INVALID_REQUEST, NO_METHOD, PARSE_ERROR, RpcError, envelope, json_response,
};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the server shares with whoever moves the chain.
pub(super) struct Node {
    chain: Mutex<Chain>,
    pub(super) faults: Arc<Faults>,
}

impl Node {
    pub(super) fn new(chain: Chain, clock: Clock) -> Node {
        Node {
            chain: Mutex::new(chain),
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
        work(&mut self.chain())
    }
}

/// What the node answers.
pub(super) fn routes(node: Arc<Node>) -> Router {
    let gate = from_fn_with_state(node.faults.clone(), Faults::gate);
    Router::new()
        .route("/", post(rpc))
        .route("/{*path}", post(rpc))
        .with_state(node)
        .layer(gate)
}

async fn rpc(State(node): State<Arc<Node>>, body: Bytes) -> Response {
    let refused = |code, why| envelope(&Value::Null, Err(RpcError::new(code, why)));
    let body = match Asked::read(&body) {
        Asked::Batch(questions) if questions.is_empty() => refused(INVALID_REQUEST, "empty batch"),
        Asked::Batch(questions) => {
            // One look for all: no block comes between two answers of a batch.
            let answers = node.read(|chain| {
                let answers = questions
                    .iter()
                    .filter_map(|question| answer(&node, chain, question));
                answers.collect::<Vec<_>>()
            });
            if answers.is_empty() {
                return StatusCode::OK.into_response();
            }
            Value::Array(answers)
        }
        Asked::One(question) => match node.read(|chain| answer(&node, chain, &question)) {
            Some(answer) => answer,
            None => return StatusCode::OK.into_response(),
        },
        Asked::Neither => refused(INVALID_REQUEST, "invalid request"),
        Asked::NoJson => refused(PARSE_ERROR, "parse error"),
    };
    json_response(StatusCode::OK, &body)
}

/// The answer to one question; none to a good one without an id.
fn answer(node: &Node, chain: &Chain, question: &Value) -> Option<Value> {
    let id = question.get("id");
    let method = question.get("method").and_then(Value::as_str);
    let Some(method) = method.filter(|_| question.get("jsonrpc").is_some_and(|version| version == "2.0"))
    else {
        let error = RpcError::new(INVALID_REQUEST, "invalid request");
        return Some(envelope(id.unwrap_or(&Value::Null), Err(error)));
    };
    let starting = node
        .faults
        .refuse_while_warming(SERVER_ERROR, "the node is starting");
    let outcome = starting.and_then(|()| call(chain, method, question.get("params")));
    Some(envelope(id?, outcome))
}

fn call(chain: &Chain, method: &str, params: Option<&Value>) -> Result<Value, RpcError> {
    let is_it = |call: &&Call| call.name == method && !chain.hidden_calls.contains(method);
    let Some(call) = CALLS.iter().find(is_it) else {
        let why = format!("the method {method} does not exist/is not available");
        return Err(RpcError::new(NO_METHOD, why));
    };
    (call.answer)(chain, &Params::new(params)?)
}
