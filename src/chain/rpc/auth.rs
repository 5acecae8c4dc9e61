//! Where a node is and how we prove to it who we are. Secrets come from files and are never printed.

use super::RpcError;
use crate::config::read_secret_text;
use crate::egress::NodeUrl;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;
use std::io::{Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Where a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At a URL without secrets in it.
    Url(String),
    /// At the URL in this file, which may hold a key.
    File(PathBuf),
}

impl From<String> for Place {
    fn from(url: String) -> Place {
        Place::Url(url)
    }
}

impl From<&str> for Place {
    fn from(url: &str) -> Place {
        Place::Url(url.to_owned())
    }
}

/// What a node wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Nothing (most EVM nodes of one's own).
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
    /// A token: the file that holds it.
    Bearer(PathBuf),
    /// A key in a header of the provider's own.
    Header {
        /// The header, in lower case.
        name: String,
        /// The file that holds the key.
        value_file: PathBuf,
    },
}

/// What is sent with every question.
#[derive(PartialEq, Eq)]
pub(super) struct Access {
    pub(super) url: String,
    pub(super) header: Option<(Cow<'static, str>, String)>,
    /// What no text of ours may repeat, plain and as it is sent.
    secrets: Vec<String>,
}

/// What is sent, read from its files once and again whenever the node refuses it.
pub(super) struct Credentials {
    place: Place,
    auth: Auth,
    held: Mutex<Option<Arc<Access>>>,
}

/// Shorter secrets are found in too much that is none.
const SECRET_BYTES_MIN: usize = 8;

impl Credentials {
    pub(super) fn new(place: Place, auth: Auth) -> Credentials {
        Credentials {
            place,
            auth,
            held: Mutex::new(None),
        }
    }

    /// What to send.
    pub(super) fn access(&self) -> Result<Arc<Access>, RpcError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match &*held {
            Some(access) => Ok(access.clone()),
            None => Ok(held.insert(Arc::new(self.read()?)).clone()),
        }
    }

    /// Reads the files again after `refused` was refused. True when they now hold something else.
    pub(super) fn reread(&self, refused: &Access) -> Result<bool, RpcError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held = None;
        let now = held.insert(Arc::new(self.read()?));
        Ok(**now != *refused)
    }

    /// Where the node is, for what is sent without credentials.
    pub(super) fn url(&self) -> Result<String, RpcError> {
        match &self.place {
            Place::Url(url) => Ok(url.clone()),
            Place::File(path) => {
                let text = read_secret("URL", path)?;
                let url = NodeUrl::parse(&text).map_err(|error| RpcError::SecretFile {
                    what: "URL",
                    path: path.clone(),
                    cause: IoError::new(ErrorKind::InvalidData, error),
                })?;
                Ok(url.reveal().to_owned())
            }
        }
    }

    /// Where the refused secrets came from, for the message.
    pub(super) fn origin(&self) -> String {
        let secret = match &self.auth {
            Auth::None => None,
            Auth::Cookie(path) => Some(format!("cookie of {}", path.display())),
            Auth::UserPass { user, password_file } => {
                let file = password_file.display();
                Some(format!("user {user} with the password of {file}"))
            }
            Auth::Bearer(path) => Some(format!("token of {}", path.display())),
            Auth::Header { name, value_file } => Some(format!("{name} of {}", value_file.display())),
        };
        let url = match &self.place {
            Place::Url(_) => None,
            Place::File(path) => Some(format!("URL of {}", path.display())),
        };
        match (secret, url) {
            (None, None) => "we send no credentials".to_owned(),
            (Some(one), None) | (None, Some(one)) => one,
            (Some(secret), Some(url)) => format!("{secret}, {url}"),
        }
    }

    /// True where a text holds a secret of ours, plain or as it is sent.
    pub(super) fn are_in(&self, text: &[u8]) -> bool {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let holds = |secret: &String| text.windows(secret.len()).any(|part| part == secret.as_bytes());
        held.is_some_and(|access| access.secrets.iter().any(holds))
    }

    fn read(&self) -> Result<Access, RpcError> {
        let url = self.url()?;
        let mut secrets = match &self.place {
            Place::Url(_) => Vec::new(),
            Place::File(_) => NodeUrl::parse(&url).map_or_else(|_| Vec::new(), |url| url.secrets()),
        };
        let mut basic = |pair: String| {
            let sent = STANDARD.encode(&pair);
            secrets.extend(pair.split_once(':').map(|(_, secret)| secret.to_owned()));
            secrets.push(sent.clone());
            (Cow::from("authorization"), format!("Basic {sent}"))
        };
        let header = match &self.auth {
            Auth::None => None,
            Auth::Cookie(path) => Some(basic(read_secret("cookie", path)?)),
            Auth::UserPass { user, password_file } => {
                let password = read_secret("password", password_file)?;
                Some(basic(format!("{user}:{password}")))
            }
            Auth::Bearer(path) => {
                let token = read_secret("token", path)?;
                secrets.push(token.clone());
                Some((Cow::from("authorization"), format!("Bearer {token}")))
            }
            Auth::Header { name, value_file } => {
                let value = read_secret("key", value_file)?;
                secrets.push(value.clone());
                Some((Cow::from(name.clone()), value))
            }
        };
        secrets.retain(|secret| secret.len() >= SECRET_BYTES_MIN);
        Ok(Access { url, header, secrets })
    }
}

fn read_secret(what: &'static str, path: &Path) -> Result<String, RpcError> {
    let text = aside(|| read_secret_text(path)).map_err(|cause| RpcError::SecretFile {
        what,
        path: path.to_owned(),
        cause,
    })?;
    Ok(text.trim_end().to_owned())
}

/// A file may take its time (a lease, a network file system): the daemon's other tasks go on meanwhile.
fn aside<T>(read: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(read),
        Ok(_) | Err(_) => read(),
    }
}
