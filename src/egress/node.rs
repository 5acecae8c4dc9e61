//! The way to nodes, which the operator's config names: any address, whole answers only.

use super::dials::Dials;
use super::error::explain;
use super::{Dial, DialError, HttpReply, HttpRequest, tls};
use crate::points;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// How long an idle connection is kept: less than the 30 s after which bitcoind closes it from its side.
const IDLE: Duration = Duration::from_secs(20);

/// The network, for nodes: connections kept alive, no proxy from the environment, no redirects.
#[derive(Debug, Default)]
pub struct HttpDial {
    /// Made at the first request and again after each [`Dial::reset`]: dropping a client drops its pool.
    client: Mutex<Option<reqwest::Client>>,
    ca_file: Option<PathBuf>,
    dials: Dials,
}

impl HttpDial {
    /// A dial without connections yet.
    pub fn new() -> HttpDial {
        HttpDial::default()
    }

    /// A dial that believes the authorities in the file `ca_file` (PEM) too. It is read when a connection is
    /// made after a [`reset`](Dial::reset): where it cannot be read, every request fails and says so.
    pub fn believing(ca_file: Option<PathBuf>) -> HttpDial {
        HttpDial {
            ca_file,
            ..HttpDial::default()
        }
    }

    fn client(&self) -> Result<reqwest::Client, DialError> {
        let mut slot = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = slot.as_ref() {
            return Ok(client.clone());
        }
        let tls = tls::client_config(self.ca_file.as_deref());
        let tls = tls.map_err(|error| DialError::Tls(error.into()))?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .connector_layer(self.dials.clone())
            .build()
            .map_err(|error| DialError::Broken(error.into()))?;
        *slot = Some(client.clone());
        Ok(client)
    }
}

impl Dial for HttpDial {
    /// The exchange is a task of its own: whoever waits for one block while it filters another finds it read
    /// to the end, and not only as far as the buffers on the way are deep. It ends when nobody waits any
    /// more.
    async fn send(&self, request: HttpRequest) -> Result<HttpReply, DialError> {
        let mut exchange = JoinSet::new();
        points::pass("node.ask");
        exchange.spawn(talk(self.client()?, request));
        let joined = exchange.join_next().await;
        points::pass("node.answered");
        match joined {
            Some(Ok(reply)) => reply,
            Some(Err(error)) => Err(DialError::Broken(error.into())),
            None => unreachable!("one task was spawned"),
        }
    }

    fn reset(&self) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn dials(&self) -> u64 {
        self.dials.count()
    }
}

async fn talk(client: reqwest::Client, request: HttpRequest) -> Result<HttpReply, DialError> {
    let (deadline, body_bytes_max) = (request.deadline, request.body_bytes_max);
    let to_error = |error: reqwest::Error| explain(error, deadline);
    let builder = super::request(&client, request);
    let mut reply = builder.send().await.map_err(to_error)?;
    let (status, retry_after_secs) = (reply.status().as_u16(), super::retry_after_secs(&reply));
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
        retry_after_secs,
        body: body.into(),
    })
}
