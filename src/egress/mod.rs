//! Everything that leaves the process over HTTP goes through [`Dial`]: names are resolved, connections made
//! and replies bounded in one place, and a test or the simulator can stand in for the network.

mod callback;
mod dials;
mod error;
mod guard;
mod lookup;
mod node;
mod node_url;
mod retry_after;
mod tls;
mod url;

pub use callback::{BODY_BYTES_READ_MAX, GuardedDial, Resolver, Resolving, SystemResolver};
pub use error::DialError;
pub use guard::{Policy, Range, RangeError, Verdict};
pub use lookup::{Lookup, look_up, look_up_soon};
pub use node::HttpDial;
pub use node_url::{NodeUrl, NodeUrlError};
pub use tls::TlsError;
pub use url::{CallbackUrl, UrlError, check_url};

use crate::clock::Clock;
use bytes::Bytes;
use reqwest::header;
use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

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
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// Total time for connecting, sending and reading the whole reply.
    pub deadline: Duration,
    /// The largest reply body: a longer one is an error to [`HttpDial`], and is cut by [`GuardedDial`].
    pub body_bytes_max: usize,
}

/// Neither URL nor headers nor body: all may hold secrets.
impl std::fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpRequest")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// One HTTP reply, read whole.
#[derive(Clone, Debug)]
pub struct HttpReply {
    /// Status code.
    pub status: u16,
    /// How long the header `Retry-After` asks us to wait, if it is there and makes sense.
    pub retry_after_secs: Option<u64>,
    /// The body, at most `body_bytes_max` long.
    pub body: Bytes,
}

/// The way out: DNS and HTTP. Redirects are never followed.
pub trait Dial: Send + Sync + 'static {
    /// Sends one request and reads the whole reply.
    fn send(&self, request: HttpRequest) -> impl Future<Output = Result<HttpReply, DialError>> + Send;

    /// Forgets pooled connections, so that the next request dials anew. Called after any error: an answer
    /// that comes late on an old connection must not be taken for the answer to a newer question.
    fn reset(&self);

    /// How many connections were begun so far, where that is counted: after another one, whoever answered
    /// before may not be who answers now.
    fn dials(&self) -> u64 {
        0
    }
}

fn request(client: &reqwest::Client, request: HttpRequest) -> reqwest::RequestBuilder {
    let mut builder = match request.body {
        Some(body) => client.post(request.url).body(body),
        None => client.get(request.url),
    };
    for (name, value) in request.headers {
        builder = builder.header(&*name, value);
    }
    builder.timeout(request.deadline)
}

fn retry_after_secs(reply: &reqwest::Response) -> Option<u64> {
    let text = |name| reply.headers().get(name)?.to_str().ok();
    // A real connection runs in real time, whatever clock its user goes by.
    let now_secs = Clock::real().now_ms() / 1_000;
    retry_after::secs(text(header::RETRY_AFTER)?, text(header::DATE), now_secs)
}
