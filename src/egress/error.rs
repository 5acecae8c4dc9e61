//! Why a request got no reply, in words that an operator can act on.

use super::UrlError;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use thiserror::Error;

/// Why there is no reply.
#[derive(Debug, Error)]
pub enum DialError {
    /// Nobody listens, or the name does not resolve.
    #[error("{}", refusal_words(.0.as_ref()))]
    Refused(#[source] Box<dyn Error + Send + Sync>),
    /// The other side cannot prove who it is, or speaks no TLS that we do.
    #[error("no trusted TLS connection")]
    Tls(#[source] Box<dyn Error + Send + Sync>),
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
    /// The host is, or leads to, an address that callbacks do not go to. Nothing was dialled.
    #[error("callbacks do not go to {address}: {why}")]
    Blocked {
        /// The address.
        address: IpAddr,
        /// What it is.
        why: &'static str,
    },
    /// The URL is no callback's (any more). Nothing was dialled.
    #[error("not dialled")]
    BadUrl(#[source] UrlError),
}

impl DialError {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            DialError::Refused(_) => "refused",
            DialError::Tls(_) => "tls",
            DialError::TimedOut { .. } => "timed_out",
            DialError::TooLarge { .. } => "too_large",
            DialError::Broken(_) => "broken",
            DialError::Blocked { .. } => "blocked_address",
            DialError::BadUrl(error) => error.code(),
        }
    }
}

/// [`DialError::Blocked`] on its way through the HTTP library.
#[derive(Clone, Copy, Debug, Error)]
#[error("{address} is {why}")]
pub(super) struct Blocked {
    pub(super) address: IpAddr,
    pub(super) why: &'static str,
}

/// The error and its causes. An [`io::Error`] hides the one that it wraps from `source`.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        }
    })
}

/// What an operator can act on: is nobody listening, or is the name wrong?
fn refusal_words(error: &(dyn Error + 'static)) -> &'static str {
    for cause in causes(error) {
        match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => return "connection refused",
            Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
                return "host unreachable";
            }
            Some(io::ErrorKind::TimedOut) => return "no connection in time",
            Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                return "connection closed before it was ready";
            }
            _ => {}
        }
        if cause.to_string().starts_with("dns error") {
            return "host not found";
        }
    }
    "connection refused or host not found"
}

/// What the HTTP library reports, as ours.
pub(super) fn explain(error: reqwest::Error, deadline: Duration) -> DialError {
    // A URL may hold a key: errors are shown, so it goes.
    let error = error.without_url();
    let blocked = causes(&error).find_map(|cause| cause.downcast_ref::<Blocked>());
    if let Some(&Blocked { address, why }) = blocked {
        return DialError::Blocked { address, why };
    }
    if causes(&error).any(|cause| cause.is::<rustls::Error>()) {
        return DialError::Tls(error.into());
    }
    if error.is_connect() {
        DialError::Refused(error.into())
    } else if error.is_timeout() {
        let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        DialError::TimedOut { deadline_ms }
    } else {
        DialError::Broken(error.into())
    }
}
