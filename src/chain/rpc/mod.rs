//! The one JSON-RPC client, for all chains: async, over any [`Dial`], single calls and batches. It says in
//! words why a node could not answer, and drops its connections after every answer that it cannot trust.
//! Results are decoded into slim structs of the caller's that name only what is used, so fields may come, go
//! and change around them.

mod answer;
mod auth;
mod envelope;
mod error;
mod throttle;

pub use answer::{Answer, Question};
pub use auth::{Auth, Place};
pub use error::RpcError;

use crate::clock::Clock;
use crate::egress::{Dial, HttpReply, HttpRequest};
use answer::decode;
use auth::{Access, Credentials};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cell::LazyCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use throttle::Throttle;

/// Bounds of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Total time.
    pub deadline: Duration,
    /// The largest answer that is read.
    pub body_bytes_max: usize,
}

/// A client of one node. Dropping any of its futures at any point leaves it usable.
pub struct RpcClient<D> {
    dial: D,
    credentials: Credentials,
    throttle: Throttle,
    /// The most questions in one exchange.
    batch_max: usize,
    next_id: AtomicU64,
    software: Mutex<String>,
}

impl<D: Dial> RpcClient<D> {
    /// A client of the node at `place`.
    pub fn new(dial: D, place: impl Into<Place>, auth: Auth, clock: Clock) -> RpcClient<D> {
        RpcClient {
            dial,
            credentials: Credentials::new(place.into(), auth),
            throttle: Throttle::new(clock),
            batch_max: usize::MAX,
            next_id: AtomicU64::new(1),
            software: Mutex::new("a node of unknown version".to_owned()),
        }
    }

    /// The same for a node that takes no more than so many questions at a time, at least one.
    #[must_use]
    pub fn with_batch_max(self, batch_max: usize) -> RpcClient<D> {
        RpcClient {
            batch_max: batch_max.max(1),
            ..self
        }
    }

    /// How many connections were begun so far.
    pub fn dials(&self) -> u64 {
        self.dial.dials()
    }

    /// How long the node is still left alone because it has had enough of us, and its words. Until then
    /// nothing is sent, and every question has [`RpcError::RateLimited`] for an answer.
    pub fn left_alone(&self) -> Option<(Duration, String)> {
        self.throttle.left()
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
        let (id, reply) = self.ask(method, params, limits).await?;
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
        let (id, reply) = self.ask(method, params, limits).await?;
        match envelope::long_hex(&reply, id) {
            Some(bytes) => Ok(bytes.into()),
            None => self.read(method, id, &reply),
        }
    }

    /// The reply to one question, and the question's id.
    async fn ask(
        &self,
        method: &'static str,
        params: Value,
        limits: Limits,
    ) -> Result<(u64, HttpReply), RpcError> {
        let (id, mut texts) = self.number(&[Question { method, params }]);
        let text = texts.pop().unwrap_or_default().to_string();
        Ok((id, self.post(text, limits).await?))
    }

    fn read<T: DeserializeOwned>(
        &self,
        method: &'static str,
        id: u64,
        reply: &HttpReply,
    ) -> Result<T, RpcError> {
        if let Some(result) = envelope::whole(reply, id) {
            self.throttle.ease();
            return Ok(result);
        }
        let answer = self.drop_connection_if_broken(envelope::single(reply, id));
        answer
            .and_then(|result| decode(method, result, &self.software()))
            .map_err(|error| self.note(error, self.credentials.are_in(&reply.body)))
    }

    /// Calls `method` once for each entry of `params`, as [`mixed`](RpcClient::mixed) does.
    ///
    /// # Errors
    /// [`RpcError`] when an exchange failed as a whole.
    pub async fn batch<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: impl IntoIterator<Item = Value> + Send,
        limits: Limits,
    ) -> Result<Vec<Result<T, RpcError>>, RpcError> {
        let questions = params.into_iter().map(|params| Question { method, params });
        let questions: Vec<Question> = questions.collect();
        let answers = self.mixed(&questions, limits).await?;
        Ok(answers.into_iter().map(Answer::decode).collect())
    }

    /// Asks all questions in one exchange, or in as few as the node takes. The answers stand in the order of
    /// the questions, whatever the node's, and each fails alone.
    ///
    /// # Errors
    /// [`RpcError`] when an exchange failed as a whole: the answers of those before it are lost too.
    pub async fn mixed(&self, questions: &[Question], limits: Limits) -> Result<Vec<Answer>, RpcError> {
        let mut answers = Vec::with_capacity(questions.len());
        for part in questions.chunks(self.batch_max) {
            answers.extend(self.exchange(part, limits).await?);
        }
        Ok(answers)
    }

    async fn exchange(&self, questions: &[Question], limits: Limits) -> Result<Vec<Answer>, RpcError> {
        let (first_id, texts) = self.number(questions);
        // One that takes no lists of questions takes one question.
        let text = match texts.as_slice() {
            [one] => one.to_string(),
            _ => Value::Array(texts).to_string(),
        };
        let reply = self.post(text, limits).await?;
        let results = match questions {
            [_] => match envelope::single(&reply, first_id) {
                Err(error @ (RpcError::Broken(_) | RpcError::Http { .. })) => Err(error),
                result => Ok(vec![result]),
            },
            _ => envelope::batch(&reply, first_id, questions.len()),
        };
        // Looked for once: at the tip all but one of hundreds of heights are errors.
        let has_secret = LazyCell::new(|| self.credentials.are_in(&reply.body));
        let results = self.drop_connection_if_broken(results);
        let results = results.map_err(|error| self.note(error, *has_secret))?;
        let software = self.software();
        let answer = |(question, result): (&Question, _)| {
            let result = self.drop_connection_if_broken(result);
            Answer {
                method: question.method,
                software: software.clone(),
                is_hidden: *has_secret,
                result: result
                    .map(ToOwned::to_owned)
                    .map_err(|error| self.note(error, *has_secret)),
            }
        };
        let answers: Vec<Answer> = questions.iter().zip(results).map(answer).collect();
        if !answers.iter().any(Answer::is_limited) {
            self.throttle.ease();
        }
        Ok(answers)
    }

    /// The first id of consecutive ones, and the questions with their ids as JSON.
    fn number(&self, questions: &[Question]) -> (u64, Vec<Value>) {
        let count = questions.len() as u64;
        let first_id = self.next_id.fetch_add(count, Ordering::Relaxed);
        let numbered = (first_id..).zip(questions);
        let texts = numbered.map(|(id, question)| envelope::question(question, id));
        (first_id, texts.collect())
    }

    /// Fetches `path` of the node by a plain GET, without credentials, whatever the status of the reply.
    ///
    /// # Errors
    /// [`RpcError::Dial`], and [`RpcError::SecretFile`] where the node's URL cannot be read.
    pub async fn get(&self, path: &str, limits: Limits) -> Result<HttpReply, RpcError> {
        let url = self.credentials.url()?;
        let url = format!("{}{path}", url.trim_end_matches('/'));
        self.send(url, None, limits).await
    }

    async fn post(&self, question: String, limits: Limits) -> Result<HttpReply, RpcError> {
        self.throttle.check()?;
        let question = Bytes::from(question);
        let mut may_retry = true;
        loop {
            let access = self.credentials.access()?;
            let body = Some((question.clone(), &*access));
            let reply = self.send(access.url.clone(), body, limits).await?;
            match reply.status {
                401 | 403 => {
                    self.dial.reset();
                    // The node has restarted with a new cookie, or the operator has mended the secret. Asking
                    // again at once is worth it only then, and once: bitcoind delays each wrong password.
                    let is_other = self.credentials.reread(&access)?;
                    if !(is_other && may_retry) {
                        let origin = self.credentials.origin();
                        return Err(match reply.status {
                            401 => RpcError::Unauthorized { origin },
                            _ => RpcError::Forbidden,
                        });
                    }
                    may_retry = false;
                }
                429 => return Err(self.too_often(&reply)),
                // Without the wish it is any other trouble: bitcoind's work queue is full.
                503 if reply.retry_after_secs.is_some() => return Err(self.too_often(&reply)),
                _ => return Ok(reply),
            }
        }
    }

    async fn send(
        &self,
        url: String,
        question: Option<(Bytes, &Access)>,
        limits: Limits,
    ) -> Result<HttpReply, RpcError> {
        let mut headers = Vec::new();
        let body = question.map(|(body, access)| {
            headers.push(("content-type".into(), "application/json".to_owned()));
            headers.extend(access.header.clone());
            body
        });
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

    /// The node has had enough of us, by the status of its reply.
    fn too_often(&self, reply: &HttpReply) -> RpcError {
        let why = match self.credentials.are_in(&reply.body) {
            true => error::NOT_SHOWN.to_owned(),
            false => format!("HTTP status {}: {}", reply.status, envelope::words(reply)),
        };
        self.throttle.limit(reply.retry_after_secs, why)
    }

    /// What is told of an error. Errors quote what came, and a node, or a proxy before it, may send back what
    /// we sent.
    fn note(&self, error: RpcError, is_hidden: bool) -> RpcError {
        let is_limit =
            matches!(&error, RpcError::Node { code, message } if throttle::is_limit(*code, message));
        let error = if is_hidden { error.without_text() } else { error };
        match error {
            RpcError::Node { message, .. } if is_limit => self.throttle.limit(None, message),
            error => error,
        }
    }

    /// An error of the node's own is an answer like any other. After anything else no later answer on that
    /// connection is to be trusted.
    fn drop_connection_if_broken<T>(&self, outcome: Result<T, RpcError>) -> Result<T, RpcError> {
        if let Err(RpcError::Broken(_) | RpcError::Http { .. } | RpcError::WarmingUp(_)) = &outcome {
            self.dial.reset();
        }
        outcome
    }
}
