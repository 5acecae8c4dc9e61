//! What to do about a node that gives no answer.

use crate::chain::{Help, SourceError};
use crate::config::{BitcoinChain, RpcAuth, read_secret_text};
use std::io::ErrorKind;

/// What to do where a node answers that it cannot answer now; `None` where the config may be wrong.
pub(super) fn passing_step(error: &SourceError, slower: &str) -> Option<String> {
    let SourceError::Unreachable { help, .. } = error else {
        return None;
    };
    match help {
        Help::Time => Some("wait until the node has started, then check again".to_owned()),
        Help::LowerRate => Some(format!(
            "wait and check again; if it comes again, lower the rate: {slower}"
        )),
        Help::Node | Help::Login => None,
    }
}

/// The next step where the node of a Bitcoin chain gives no answer.
pub(super) fn node_step(chain: &BitcoinChain, error: &SourceError) -> String {
    if let Some(next) = passing_step(
        error,
        "a longer `poll_ms` and `mempool_ms`, or a higher limit there",
    ) {
        return next;
    }
    if let RpcAuth::Cookie(file) = &chain.auth
        && let Ok(path) = file.path()
        && read_secret_text(&path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    {
        return format!(
            "rpccookieperms=group in bitcoin.conf, and this account into the cookie's group, which \
             `sudo stat -c %G {}` names: `sudo usermod -aG GROUP creditd` (docs/operations.md, \
             The login at the node)",
            path.display()
        );
    }
    format!(
        "start the node, or correct `rpc_url` ({}) and the login in the config",
        chain.rpc_url
    )
}
