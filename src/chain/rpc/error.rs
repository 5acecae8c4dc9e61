//! Why a node could not answer, in words.

use crate::chain::{Help, SourceError};
use crate::egress::DialError;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Why a call has no result. The text is what an operator reads.
#[derive(Debug, Error)]
pub enum RpcError {
    /// No whole reply came.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The file with the secret cannot be read.
    #[error("{what} file {}: {}", secret_fault(cause), path.display())]
    SecretFile {
        /// `cookie`, `password`, `URL`, ...
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
    /// The node, or whoever stands before it, has had enough of us for now. Nothing is asked of it meanwhile.
    #[error("over the node's limit, left alone for {} s: {why}", secs_up(retry_after))]
    RateLimited {
        /// How long it is left alone from now on.
        retry_after: Duration,
        /// Its own words.
        why: String,
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

/// Whole seconds, never too few.
fn secs_up(span: &Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

/// In the place of a text that must not be shown.
pub(super) const NOT_SHOWN: &str = "(not shown: it repeats our credentials)";

impl RpcError {
    /// The same without anything that the node wrote.
    pub(super) fn without_text(self) -> RpcError {
        let hidden = || NOT_SHOWN.to_owned();
        match self {
            RpcError::WarmingUp(_) => RpcError::WarmingUp(hidden()),
            RpcError::Node { code, .. } => RpcError::Node {
                code,
                message: hidden(),
            },
            RpcError::RateLimited { retry_after, .. } => RpcError::RateLimited {
                retry_after,
                why: hidden(),
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

    fn help(&self) -> Help {
        match self {
            RpcError::SecretFile { .. } | RpcError::Unauthorized { .. } | RpcError::Forbidden => Help::Login,
            RpcError::WarmingUp(_) => Help::Time,
            RpcError::RateLimited { .. } => Help::LowerRate,
            RpcError::Dial(_)
            | RpcError::Node { .. }
            | RpcError::Http { .. }
            | RpcError::Broken(_)
            | RpcError::Decode { .. } => Help::Node,
        }
    }

    /// The same for the follower: wait and ask again.
    pub fn into_source(self, doing: impl Into<String>) -> SourceError {
        let (why, help) = (self.to_string(), self.help());
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
            | RpcError::RateLimited { .. }
            | RpcError::Http { .. }
            | RpcError::Broken(_)
            | RpcError::Decode { .. } => None,
        };
        SourceError::Unreachable {
            doing: doing.into(),
            why,
            help,
            source,
        }
    }
}
