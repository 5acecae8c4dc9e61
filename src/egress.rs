//! Everything that leaves the process over HTTP goes through [`Dial`]: names are resolved, connections made and replies
//! bounded in one place, and a test or the simulator can stand in for the network.

use bytes::Bytes;
use std::future::Future;
use std::time::Duration;
use thiserror::Error;

/// One HTTP request.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// `GET` when there is no body, else `POST`.
    pub body: Option<Bytes>,
    /// Absolute URL, `http://` or `https://`.
    pub url: String,
    /// Header names and values. May hold secrets: never logged.
    pub headers: Vec<(&'static str, String)>,
    /// Total time for connecting, sending and reading the whole reply.
    pub deadline: Duration,
    /// The largest reply body that is read.
    pub body_bytes_max: usize,
}

/// One HTTP reply, read whole.
#[derive(Clone, Debug)]
pub struct HttpReply {
    /// Status code.
    pub status: u16,
    /// The body, at most `body_bytes_max` long.
    pub body: Bytes,
}

/// Why there is no reply.
#[derive(Debug, Error)]
pub enum DialError {
    /// Nobody listens, or the name does not resolve.
    #[error("connection refused or host not found")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The deadline passed.
    #[error("no whole answer within {deadline_ms} ms")]
    TimedOut {
        /// The deadline that passed.
        deadline_ms: u64,
    },
    /// The reply was larger than allowed.
    #[error("answer larger than {body_bytes_max} bytes")]
    TooLarge {
        /// The bound that it passed.
        body_bytes_max: usize,
    },
    /// The connection broke, or what came back was not HTTP.
    #[error("connection broken")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The way out: DNS and HTTP. Redirects are never followed.
pub trait Dial: Send + Sync + 'static {
    /// Sends one request and reads the whole reply.
    fn send(&self, request: HttpRequest) -> impl Future<Output = Result<HttpReply, DialError>> + Send;

    /// Forgets pooled connections, so that the next request dials anew. Called after any error: an answer that comes
    /// late on an old connection must not be taken for the answer to a newer question.
    fn reset(&self);
}
