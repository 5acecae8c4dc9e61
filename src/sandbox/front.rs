//! What the simulated nodes share: a server on a loopback port with a thread of its own, and the
//! envelope of JSON-RPC around whatever each of them answers.

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use tokio::runtime::Runtime;

/// The text is not JSON.
pub(super) const PARSE_ERROR: i32 = -32_700;
/// The question is none.
pub(super) const INVALID_REQUEST: i32 = -32_600;
/// The node does not know the call.
pub(super) const NO_METHOD: i32 = -32_601;

/// A running server. It ends when this is dropped.
pub(super) struct Server {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Server {
    /// Serves on a loopback port; 0 is any that is free.
    pub(super) fn start_on(port: u16, routes: Router) -> std::io::Result<Server> {
        Server::start_at((Ipv4Addr::LOCALHOST, port).into(), routes)
    }

    /// Serves at an address, which must be one of this machine alone: who reaches it moves the chain.
    pub(super) fn start_at(address: SocketAddr, routes: Router) -> std::io::Result<Server> {
        if !address.ip().is_loopback() {
            let why = format!("{address} is no loopback address: the sandbox is for this machine alone");
            return Err(Error::new(ErrorKind::InvalidInput, why));
        }
        let refused = |error: Error| Error::new(error.kind(), format!("listen on {address}: {error}"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("sandbox")
            .enable_all()
            .build()?;
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Ok(Server {
            address,
            runtime: Some(runtime),
        })
    }

    /// Lets something run beside the answers, until the server ends.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(work);
        }
    }

    /// `http://127.0.0.1:PORT`
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Not waited for: a call that waits for a new block would hold it up.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// An error as JSON-RPC has it.
#[derive(Debug)]
pub(super) struct RpcError {
    pub(super) code: i32,
    message: String,
}

impl RpcError {
    pub(super) fn new(code: i32, message: impl Into<String>) -> RpcError {
        RpcError {
            code,
            message: message.into(),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({"code": self.code, "message": self.message})
    }
}

/// What a request's body holds.
pub(super) enum Asked {
    One(Value),
    Batch(Vec<Value>),
    /// JSON, but neither an object nor an array.
    Neither,
    NoJson,
}

impl Asked {
    pub(super) fn read(body: &[u8]) -> Asked {
        match serde_json::from_slice(body) {
            Ok(Value::Array(questions)) => Asked::Batch(questions),
            Ok(question @ Value::Object(_)) => Asked::One(question),
            Ok(_) => Asked::Neither,
            Err(_) => Asked::NoJson,
        }
    }
}

/// An answer of JSON-RPC 2.0.
pub(super) fn envelope(id: &Value, outcome: Result<Value, RpcError>) -> Value {
    match outcome {
        Ok(result) => json!({"jsonrpc": "2.0", "result": result, "id": id}),
        Err(error) => json!({"jsonrpc": "2.0", "error": error.to_json(), "id": id}),
    }
}

pub(super) fn json_response(status: StatusCode, body: &Value) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, format!("{}\n", with_coins(&body.to_string()))).into_response()
}

/// What stands before an amount until it is sent.
const COINS: char = '\u{1}';

/// An amount of satoshi as the node writes it: a number with eight digits after the point, which no float
/// promises to be. It waits in a text until it is sent.
pub(super) fn coins(sat: u64) -> Value {
    json!(format!("{COINS}{}.{:08}", sat / 100_000_000, sat % 100_000_000))
}

/// The same JSON with the amounts of [`coins`] as numbers.
fn with_coins(text: &str) -> String {
    let is_amount = |text: &str| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        is_plain && text.contains('.')
    };
    let mut parts = text.split("\"\\u0001");
    let mut sent = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('"').filter(|(amount, _)| is_amount(amount)) {
            Some((amount, rest)) => {
                sent.push_str(amount);
                sent.push_str(rest);
            }
            // Somebody's own text, told back.
            None => {
                sent.push_str("\"\\u0001");
                sent.push_str(part);
            }
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_sent_as_numbers_with_all_their_digits() {
        let body = json!({"fee": coins(1), "list": [coins(2_100_000_000_000_000), coins(29_000_000)]});
        let sent = r#"{"fee":0.00000001,"list":[21000000.00000000,0.29000000]}"#;
        assert_eq!(with_coins(&body.to_string()), sent);
        let own = json!({"id": "\u{1}x", "why": "not \u{1}1 \"\u{1}"}).to_string();
        assert_eq!(with_coins(&own), own);
    }
}
