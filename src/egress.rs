//! Everything that leaves the process over HTTP goes through [`Dial`]: names are resolved, connections made
//! and replies bounded in one place, and a test or the simulator can stand in for the network.

use bytes::Bytes;
use std::error::Error;
use std::future::Future;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;

/// The one reader of URLs, so that what the config accepts is what is dialled.
pub use reqwest::Url;

/// One HTTP request.
#[derive(Clone)]
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

/// Neither headers nor body: both may hold secrets.
impl std::fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpRequest")
            .field("url", &self.url)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
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
    #[error("{}", refusal_words(.0.as_ref()))]
    Refused(#[source] Box<dyn Error + Send + Sync>),
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
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

/// What an operator can act on: is nobody listening, or is the name wrong?
fn refusal_words(error: &(dyn Error + 'static)) -> &'static str {
    let mut cause = Some(error);
    while let Some(error) = cause {
        match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => return "connection refused",
            Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
                return "host unreachable";
            }
            _ => {}
        }
        if error.to_string().starts_with("dns error") {
            return "host not found";
        }
        cause = error.source();
    }
    "connection refused or host not found"
}

/// The way out: DNS and HTTP. Redirects are never followed.
pub trait Dial: Send + Sync + 'static {
    /// Sends one request and reads the whole reply.
    fn send(&self, request: HttpRequest) -> impl Future<Output = Result<HttpReply, DialError>> + Send;

    /// Forgets pooled connections, so that the next request dials anew. Called after any error: an answer
    /// that comes late on an old connection must not be taken for the answer to a newer question.
    fn reset(&self);
}

/// How long an idle connection is kept: less than the 30 s after which bitcoind closes it from its side.
const IDLE: Duration = Duration::from_secs(20);

/// The network, for nodes: plain HTTP, connections kept alive, no proxy from the environment, no redirects.
#[derive(Debug, Default)]
pub struct HttpDial {
    /// Made at the first request and again after each [`Dial::reset`]: dropping a client drops its pool.
    client: Mutex<Option<reqwest::Client>>,
}

impl HttpDial {
    /// A dial without connections yet.
    pub fn new() -> HttpDial {
        HttpDial::default()
    }

    fn client(&self) -> Result<reqwest::Client, DialError> {
        let mut slot = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = slot.as_ref() {
            return Ok(client.clone());
        }
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .build()
            .map_err(|error| DialError::Broken(error.into()))?;
        *slot = Some(client.clone());
        Ok(client)
    }
}

impl Dial for HttpDial {
    async fn send(&self, request: HttpRequest) -> Result<HttpReply, DialError> {
        let HttpRequest {
            body,
            url,
            headers,
            deadline,
            body_bytes_max,
        } = request;
        let client = self.client()?;
        let mut builder = match body {
            Some(body) => client.post(url).body(body),
            None => client.get(url),
        };
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        let to_error = |error: reqwest::Error| explain(error, deadline);
        let mut reply = builder.timeout(deadline).send().await.map_err(to_error)?;
        let status = reply.status().as_u16();
        let announced = reply.content_length().unwrap_or(0);
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        if announced > body_bytes_max {
            return Err(DialError::TooLarge { body_bytes_max });
        }
        let mut body = Vec::with_capacity(announced);
        while let Some(chunk) = reply.chunk().await.map_err(to_error)? {
            if body.len() + chunk.len() > body_bytes_max {
                return Err(DialError::TooLarge { body_bytes_max });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(HttpReply {
            status,
            body: body.into(),
        })
    }

    fn reset(&self) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn explain(error: reqwest::Error, deadline: Duration) -> DialError {
    // The URL of a node may hold a key: errors are shown, so it goes.
    let error = error.without_url();
    if error.is_timeout() {
        let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        DialError::TimedOut { deadline_ms }
    } else if error.is_connect() {
        DialError::Refused(error.into())
    } else {
        DialError::Broken(error.into())
    }
}
