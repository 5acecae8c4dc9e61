//! The way to receivers of callbacks, whose URLs come from outside: only to addresses that the policy allows,
//! checked where the connection is made, so that what a name means in between does not matter.

use super::error::{Blocked, explain};
use super::guard::{Policy, Verdict};
use super::{Dial, DialError, HttpReply, HttpRequest, TlsError, UrlError, check_url, tls};
use crate::points;
use reqwest::dns::{Addrs, Name, Resolve};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A reply's body is read up to here, so that the connection can be used again; beyond, it is cut. The reply
/// counts all the same: whoever answers with a whole page has answered.
pub const BODY_BYTES_READ_MAX: usize = 64 * 1024;

/// How long connecting may take, TLS included, so that one dead address of several leaves time for the
/// others.
const CONNECT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(10);
/// Thousands of receivers may each leave a connection behind.
const IDLE_PER_HOST_MAX: usize = 1;
/// All addresses of a name are checked; so many are tried.
const ADDRESSES_MAX: usize = 8;

/// What a name leads to.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// DNS, so that a test can answer for it.
pub trait Resolver: Send + Sync + 'static {
    /// All addresses of a name.
    fn resolve(&self, name: &str) -> Resolving;
}

/// The machine's own resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, name: &str) -> Resolving {
        let name = name.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The network, for callbacks. Redirects are not followed, no proxy is asked, and of a reply's body no more
/// than `body_bytes_max` is kept. A reply whose body breaks off or does not end before the deadline is none.
pub struct GuardedDial {
    policy: Arc<Policy>,
    resolver: Arc<dyn Resolver>,
    tls: rustls::ClientConfig,
    clients: Mutex<Option<Clients>>,
}

/// Two, because http may go to fewer addresses than https, and a resolver is told no scheme.
#[derive(Clone)]
struct Clients {
    https: reqwest::Client,
    http: reqwest::Client,
}

impl GuardedDial {
    /// A dial without connections yet. `ca_file` holds certificates (PEM) of authorities to believe besides
    /// the public ones.
    ///
    /// # Errors
    /// [`TlsError`]: the file cannot be used.
    pub fn new(
        policy: Policy,
        resolver: Arc<dyn Resolver>,
        ca_file: Option<&Path>,
    ) -> Result<GuardedDial, TlsError> {
        Ok(GuardedDial {
            policy: Arc::new(policy),
            resolver,
            tls: tls::client_config(ca_file)?,
            clients: Mutex::new(None),
        })
    }

    fn clients(&self) -> Result<Clients, DialError> {
        let mut slot = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(clients) = slot.as_ref() {
            return Ok(clients.clone());
        }
        let clients = Clients {
            https: self.client(Reach::Allowed)?,
            http: self.client(Reach::ListedOnly)?,
        };
        *slot = Some(clients.clone());
        Ok(clients)
    }

    fn client(&self, reach: Reach) -> Result<reqwest::Client, DialError> {
        let guard = Guard {
            policy: Arc::clone(&self.policy),
            resolver: Arc::clone(&self.resolver),
            reach,
        };
        reqwest::Client::builder()
            .tls_backend_preconfigured(self.tls.clone())
            .https_only(matches!(reach, Reach::Allowed))
            .dns_resolver(Arc::new(guard))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
            .tcp_nodelay(true)
            .build()
            .map_err(|error| DialError::Broken(error.into()))
    }
}

impl std::fmt::Debug for GuardedDial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardedDial")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Dial for GuardedDial {
    async fn send(&self, mut request: HttpRequest) -> Result<HttpReply, DialError> {
        // Again, though it was checked when it was registered: the operator's ranges may have changed since,
        // and the HTTP library dials an address that stands in the URL without asking the resolver.
        let url = check_url(&request.url, &self.policy).map_err(|error| match error {
            UrlError::Blocked { address, why } => DialError::Blocked { address, why },
            other => DialError::BadUrl(other),
        })?;
        request.url = url.as_str().to_owned();
        let (deadline, kept_max) = (request.deadline, request.body_bytes_max);
        let to_error = |error: reqwest::Error| explain(error, deadline);
        let clients = self.clients()?;
        let client = if url.is_https() {
            &clients.https
        } else {
            &clients.http
        };
        points::pass("callback.send");
        let mut reply = super::request(client, request).send().await.map_err(to_error)?;
        let (status, retry_after_secs) = (reply.status().as_u16(), super::retry_after_secs(&reply));
        let (mut kept, mut read) = (Vec::new(), 0);
        while read <= BODY_BYTES_READ_MAX
            && let Some(chunk) = reply.chunk().await.map_err(to_error)?
        {
            read += chunk.len();
            let room = kept_max - kept.len();
            kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        points::pass("callback.answered");
        Ok(HttpReply {
            status,
            retry_after_secs,
            body: kept.into(),
        })
    }

    fn reset(&self) {
        *self.clients.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Which addresses a scheme reaches.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reach {
    /// https: public and listed ones.
    Allowed,
    /// http: listed ones.
    ListedOnly,
}

/// Stands between a name and the connection: the library connects to what comes out of here and nothing else.
struct Guard {
    policy: Arc<Policy>,
    resolver: Arc<dyn Resolver>,
    reach: Reach,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> reqwest::dns::Resolving {
        let found = self.resolver.resolve(name.as_str());
        let (policy, reach) = (Arc::clone(&self.policy), self.reach);
        Box::pin(async move {
            let addresses = found.await?;
            if addresses.is_empty() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
            }
            check_addresses(&addresses, &policy, reach)?;
            let dialled = addresses.into_iter().take(ADDRESSES_MAX);
            // Port 0: that of the URL.
            let dialled: Addrs = Box::new(dialled.map(|address| SocketAddr::new(address, 0)));
            Ok(dialled)
        })
    }
}

/// One denied address is enough to refuse the name: a name that leads both outside and inside is an attack,
/// or a mistake that would work on some days.
pub(super) fn check_addresses(addresses: &[IpAddr], policy: &Policy, reach: Reach) -> Result<(), Blocked> {
    for &address in addresses {
        match (policy.judge(address), reach) {
            (Verdict::Listed, _) | (Verdict::Public, Reach::Allowed) => {}
            (Verdict::Denied(why), _) => return Err(Blocked { address, why }),
            (Verdict::Public, Reach::ListedOnly) => {
                let why = "public, which http does not go to";
                return Err(Blocked { address, why });
            }
        }
    }
    Ok(())
}
