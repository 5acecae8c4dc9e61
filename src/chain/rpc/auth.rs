//! How we prove to a node who we are. Secrets come from files and are never printed.

use super::RpcError;
use crate::config::read_secret_text;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What a node wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Nothing (most EVM nodes).
    None,
    /// The cookie file that bitcoind writes anew at each of its starts.
    Cookie(PathBuf),
    /// A user and a file that holds the password.
    UserPass {
        /// The user name.
        user: String,
        /// The file that holds the password and nothing else (white space at its end is ignored).
        password_file: PathBuf,
    },
}

/// The `Authorization` header, read from its file once and again whenever the node refuses it.
pub(super) struct Credentials {
    auth: Auth,
    header: Mutex<Option<String>>,
}

/// Shorter secrets are found in too much that is none.
const SECRET_BYTES_MIN: usize = 8;

impl Credentials {
    pub(super) fn new(auth: Auth) -> Credentials {
        Credentials {
            auth,
            header: Mutex::new(None),
        }
    }

    /// The header to send, if any.
    pub(super) fn header(&self) -> Result<Option<String>, RpcError> {
        let mut held = self.header.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            *held = self.read()?;
        }
        Ok(held.clone())
    }

    /// Reads the file again after `refused` was refused. True when it now holds something else.
    pub(super) fn reread(&self, refused: Option<&String>) -> Result<bool, RpcError> {
        let mut held = self.header.lock().unwrap_or_else(PoisonError::into_inner);
        *held = None;
        let now = self.read()?;
        held.clone_from(&now);
        Ok(now.as_ref() != refused)
    }

    /// Where the refused secret came from, for the message.
    pub(super) fn origin(&self) -> String {
        match &self.auth {
            Auth::None => "we send no credentials".to_owned(),
            Auth::Cookie(path) => format!("cookie of {}", path.display()),
            Auth::UserPass { user, password_file } => {
                format!("user {user} with the password of {}", password_file.display())
            }
        }
    }

    /// True where a text holds our secret, plain or as it is sent.
    pub(super) fn are_in(&self, text: &[u8]) -> bool {
        let held = self.header.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(sent) = held.as_deref().and_then(|header| header.strip_prefix("Basic ")) else {
            return false;
        };
        let pair = STANDARD.decode(sent).unwrap_or_default();
        let user = pair
            .iter()
            .position(|byte| *byte == b':')
            .map_or(0, |colon| colon + 1);
        let secret = pair.get(user..).unwrap_or_default();
        let holds = |secret: &[u8]| {
            secret.len() >= SECRET_BYTES_MIN && text.windows(secret.len()).any(|part| part == secret)
        };
        holds(sent.as_bytes()) || holds(secret)
    }

    fn read(&self) -> Result<Option<String>, RpcError> {
        let pair = match &self.auth {
            Auth::None => return Ok(None),
            Auth::Cookie(path) => read_secret("cookie", path)?,
            Auth::UserPass { user, password_file } => {
                format!("{user}:{}", read_secret("password", password_file)?)
            }
        };
        Ok(Some(format!("Basic {}", STANDARD.encode(pair))))
    }
}

fn read_secret(what: &'static str, path: &Path) -> Result<String, RpcError> {
    let text = read_secret_text(path).map_err(|cause| RpcError::SecretFile {
        what,
        path: path.to_owned(),
        cause,
    })?;
    Ok(text.trim_end().to_owned())
}
