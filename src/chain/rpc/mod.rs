//! The one JSON-RPC client, for all chains: async, over any [`Dial`], single calls and batches. It says in
//! words why a node could not answer, and drops its connections after every answer that it cannot trust.
//! Results are decoded into slim structs of the caller's that name only what is used, so fields may come, go
//! and change around them.

mod auth;
mod envelope;

pub use auth::Auth;

use crate::chain::SourceError;
use crate::egress::{Dial, DialError, HttpReply, HttpRequest};
use auth::Credentials;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use std::cell::LazyCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;

/// Bounds of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Total time.
    pub deadline: Duration,
    /// The largest answer that is read.
    pub body_bytes_max: usize,
}

/// Why a call has no result. The text is what an operator reads.
#[derive(Debug, Error)]
pub enum RpcError {
    /// No whole reply came.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The file with the secret cannot be read.
    #[error("{what} file {}: {}", secret_fault(cause), path.display())]
    SecretFile {
        /// `cookie` or `password`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not; in the text and not below it, where it would be said once more.
        cause: std::io::Error,
    },
    /// HTTP 401, also with the secret as the file has it now.
    #[error("unauthorized ({origin})")]
    Unauthorized {
        /// Where the refused secret came from.
        origin: String,
    },
    /// HTTP 403: the node's allow-lists do not let us in, or not to this call.
    #[error("forbidden: the node does not let this address or user call it")]
    Forbidden,
    /// The node is starting, and says how far it is.
    #[error("warming up: {0}")]
    WarmingUp(String),
    /// The node's own error, whatever the HTTP status it came with.
    #[error("the node says: {message} (code {code})")]
    Node {
        /// Its code.
        code: i32,
        /// Its text.
        message: String,
    },
    /// Another HTTP status, with a body that is not JSON-RPC.
    #[error("HTTP status {status}: {text}")]
    Http {
        /// The status.
        status: u16,
        /// The start of the body.
        text: String,
    },
    /// An answer, but not to our question, or not one at all.
    #[error("broken answer: {0}")]
    Broken(String),
    /// The answer is whole, and something that we use in it is missing or of another form.
    #[error("cannot read {field} in the answer to {method} by {software}: {why}")]
    Decode {
        /// The method.
        method: &'static str,
        /// The field's path.
        field: String,
        /// The node's software and version.
        software: String,
        /// What is wrong with it.
        why: String,
    },
}

fn secret_fault(error: &std::io::Error) -> String {
    if error.kind() == std::io::ErrorKind::NotFound {
        "missing".to_owned()
    } else {
        format!("unreadable ({error})")
    }
}

/// In the place of a text that must not be shown.
const NOT_SHOWN: &str = "(not shown: it repeats our credentials)";

impl RpcError {
    /// The same without anything that the node wrote.
    fn without_text(self) -> RpcError {
        let hidden = || NOT_SHOWN.to_owned();
        match self {
            RpcError::WarmingUp(_) => RpcError::WarmingUp(hidden()),
            RpcError::Node { code, .. } => RpcError::Node {
                code,
                message: hidden(),
            },
            RpcError::Http { status, .. } => RpcError::Http {
                status,
                text: hidden(),
            },
            RpcError::Broken(_) => RpcError::Broken(hidden()),
            RpcError::Decode { method, software, .. } => RpcError::Decode {
                method,
                field: "it".to_owned(),
                software,
                why: hidden(),
            },
            RpcError::Dial(_)
            | RpcError::SecretFile { .. }
            | RpcError::Unauthorized { .. }
            | RpcError::Forbidden => self,
        }
    }

    /// The same for the follower: wait and ask again.
    pub fn into_source(self, doing: impl Into<String>) -> SourceError {
        let why = self.to_string();
        let source: Option<Box<dyn std::error::Error + Send + Sync>> = match self {
            RpcError::Dial(DialError::Refused(cause) | DialError::Tls(cause) | DialError::Broken(cause)) => {
                Some(cause)
            }
            RpcError::Dial(DialError::BadUrl(source)) => Some(source.into()),
            RpcError::Dial(
                DialError::TimedOut { .. } | DialError::TooLarge { .. } | DialError::Blocked { .. },
            )
            // The cause stands in its words already.
            | RpcError::SecretFile { .. }
            | RpcError::Unauthorized { .. }
            | RpcError::Forbidden
            | RpcError::WarmingUp(_)
            | RpcError::Node { .. }
            | RpcError::Http { .. }
            | RpcError::Broken(_)
            | RpcError::Decode { .. } => None,
        };
        SourceError::Unreachable {
            doing: doing.into(),
            why,
            source,
        }
    }
}

/// A client of one node. Dropping any of its futures at any point leaves it usable.
pub struct RpcClient<D> {
    dial: D,
    url: String,
    credentials: Credentials,
    next_id: AtomicU64,
    software: Mutex<String>,
}

impl<D: Dial> RpcClient<D> {
    /// A client of the node at `url`.
    pub fn new(dial: D, url: impl Into<String>, auth: Auth) -> RpcClient<D> {
        RpcClient {
            dial,
            url: url.into(),
            credentials: Credentials::new(auth),
            next_id: AtomicU64::new(1),
            software: Mutex::new("a node of unknown version".to_owned()),
        }
    }

    /// How many connections were begun so far.
    pub fn dials(&self) -> u64 {
        self.dial.dials()
    }

    /// Notes the node's software and version, for the messages.
    pub fn set_software(&self, software: &str) {
        software.clone_into(&mut self.software.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The node's software and version as noted.
    pub fn software(&self) -> String {
        self.software
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Calls `method` and decodes its result. `params` is a JSON array or object.
    ///
    /// # Errors
    /// [`RpcError`].
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: Value,
        limits: Limits,
    ) -> Result<T, RpcError> {
        let (id, reply) = self.ask(method, &params, limits).await?;
        self.read(method, id, &reply)
    }

    /// The same for a result that is a long hex text, such as a block's.
    ///
    /// # Errors
    /// [`RpcError`].
    pub async fn call_hex<T: DeserializeOwned + From<Vec<u8>>>(
        &self,
        method: &'static str,
        params: Value,
        limits: Limits,
    ) -> Result<T, RpcError> {
        let (id, reply) = self.ask(method, &params, limits).await?;
        match envelope::long_hex(&reply, id) {
            Some(bytes) => Ok(bytes.into()),
            None => self.read(method, id, &reply),
        }
    }

    /// The reply to one question, and the question's id.
    async fn ask(&self, method: &str, params: &Value, limits: Limits) -> Result<(u64, HttpReply), RpcError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let question = envelope::question(method, params, id).to_string();
        Ok((id, self.post(question, limits).await?))
    }

    fn read<T: DeserializeOwned>(
        &self,
        method: &'static str,
        id: u64,
        reply: &HttpReply,
    ) -> Result<T, RpcError> {
        if let Some(result) = envelope::whole(reply, id) {
            return Ok(result);
        }
        let answer = self.drop_connection_if_broken(envelope::single(reply, id));
        answer
            .and_then(|result| self.decode(method, result))
            .map_err(|error| keep_secret(error, self.credentials.are_in(&reply.body)))
    }

    /// Calls `method` once for each entry of `params` in one exchange. The answers stand in the order of the
    /// entries, and each entry fails alone.
    ///
    /// # Errors
    /// [`RpcError`] when the exchange failed as a whole.
    pub async fn batch<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: impl IntoIterator<Item = Value> + Send,
        limits: Limits,
    ) -> Result<Vec<Result<T, RpcError>>, RpcError> {
        let (first_id, count, questions) = self.number(method, params);
        if count == 0 {
            return Ok(Vec::new());
        }
        let reply = self.post(questions, limits).await?;
        let answers = self.drop_connection_if_broken(envelope::batch(&reply, first_id, count));
        // Looked for once: at the tip all but one of hundreds of heights are errors.
        let has_secret = LazyCell::new(|| self.credentials.are_in(&reply.body));
        let results = answers.map_err(|error| keep_secret(error, *has_secret))?;
        let decode = |result| {
            self.drop_connection_if_broken(result)
                .and_then(|raw| self.decode(method, raw))
                .map_err(|error| keep_secret(error, *has_secret))
        };
        Ok(results.into_iter().map(decode).collect())
    }

    /// The first id, the count and the text of a batch.
    fn number(&self, method: &str, params: impl IntoIterator<Item = Value>) -> (u64, usize, String) {
        let params: Vec<Value> = params.into_iter().collect();
        let first_id = self.next_id.fetch_add(params.len() as u64, Ordering::Relaxed);
        let questions = (first_id..)
            .zip(&params)
            .map(|(id, params)| envelope::question(method, params, id))
            .collect();
        (first_id, params.len(), Value::Array(questions).to_string())
    }

    /// Fetches `path` of the node by a plain GET, without credentials, whatever the status of the reply.
    ///
    /// # Errors
    /// [`RpcError::Dial`].
    pub async fn get(&self, path: &str, limits: Limits) -> Result<HttpReply, RpcError> {
        let url = format!("{}{path}", self.url.trim_end_matches('/'));
        self.send(url, None, None, limits).await
    }

    async fn post(&self, question: String, limits: Limits) -> Result<HttpReply, RpcError> {
        let question = Bytes::from(question);
        let mut may_retry = true;
        loop {
            let header = self.credentials.header()?;
            let reply = self
                .send(self.url.clone(), Some(question.clone()), header.clone(), limits)
                .await?;
            match reply.status {
                401 => {
                    self.dial.reset();
                    // The node has restarted with a new cookie, or the operator has mended the password.
                    // Asking again at once is worth it only then, and once: bitcoind delays each wrong
                    // password.
                    let is_other = self.credentials.reread(header.as_ref())?;
                    if !(is_other && may_retry) {
                        let origin = self.credentials.origin();
                        return Err(RpcError::Unauthorized { origin });
                    }
                    may_retry = false;
                }
                403 => {
                    self.dial.reset();
                    return Err(RpcError::Forbidden);
                }
                _ => return Ok(reply),
            }
        }
    }

    async fn send(
        &self,
        url: String,
        body: Option<Bytes>,
        authorization: Option<String>,
        limits: Limits,
    ) -> Result<HttpReply, RpcError> {
        let mut headers = Vec::new();
        if body.is_some() {
            headers.push(("content-type", "application/json".to_owned()));
        }
        if let Some(authorization) = authorization {
            headers.push(("authorization", authorization));
        }
        let request = HttpRequest {
            body,
            url,
            headers,
            deadline: limits.deadline,
            body_bytes_max: limits.body_bytes_max,
        };
        let sent = self.dial.send(request).await;
        sent.map_err(|error| {
            self.dial.reset();
            error.into()
        })
    }

    /// An error of the node's own is an answer like any other. After anything else no later answer on that
    /// connection is to be trusted.
    fn drop_connection_if_broken<T>(&self, outcome: Result<T, RpcError>) -> Result<T, RpcError> {
        if let Err(RpcError::Broken(_) | RpcError::Http { .. } | RpcError::WarmingUp(_)) = &outcome {
            self.dial.reset();
        }
        outcome
    }

    fn decode<T: DeserializeOwned>(&self, method: &'static str, result: &RawValue) -> Result<T, RpcError> {
        serde_json::from_str(result.get()).map_err(|error| {
            let (field, why) = locate::<T>(result).unwrap_or_else(|| (".".to_owned(), error.to_string()));
            RpcError::Decode {
                method,
                field: if field == "." {
                    "the result".to_owned()
                } else {
                    field
                },
                software: self.software(),
                why: envelope::shorten(&why),
            }
        })
    }
}

/// Errors quote what came, and a node, or a proxy before it, may send back what we sent.
fn keep_secret(error: RpcError, is_in_reply: bool) -> RpcError {
    if is_in_reply { error.without_text() } else { error }
}

/// Decodes once more, now keeping track of where: the path costs time that only a failure is worth.
fn locate<'a, T: Deserialize<'a>>(result: &'a RawValue) -> Option<(String, String)> {
    let mut json = serde_json::Deserializer::from_str(result.get());
    let error = serde_path_to_error::deserialize::<_, T>(&mut json).err()?;
    Some((error.path().to_string(), error.inner().to_string()))
}
