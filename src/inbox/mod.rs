//! The inbox: webhooks of others. What comes in is verified on its raw bytes and stored, and its sender
//! answered; what it does is done by a job, from the table, in the transaction that marks it done. Knows
//! nothing of HTTP. Start at [`Inbox::accept`] and at [`work::jobs`].

mod effect;
pub mod work;

use crate::clock::Clock;
use crate::config::{Config, InboxSource, InboxVerifier, SecretError};
use crate::store::{INBOX_BODY_BYTES_MAX, NewInbox, Received, Store, StoreError};
use crate::webhook::{Incoming, KeyError, Refused, Verifier, VerifyKey, Window};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// What is shorter can be guessed, and who guesses it is credited.
const SECRET_BYTES_MIN: usize = 16;

/// Why a source cannot be served.
#[derive(Debug, Error)]
pub enum InboxError {
    /// A secret cannot be read.
    #[error("read a secret of the inbox source {0}")]
    Secret(String, #[source] SecretError),
    /// A secret is none that the source could sign with.
    #[error("a secret of the inbox source {0} is no key of Standard Webhooks")]
    Key(String, #[source] KeyError),
    /// A secret can be guessed.
    #[error("a secret of the inbox source {0} has fewer than {SECRET_BYTES_MIN} letters")]
    Short(String),
}

/// Why a request is not taken in. Nothing of it is stored.
#[derive(Debug, Error)]
pub enum Rejected {
    /// Nobody of that name is configured.
    #[error("there is no inbox source of that name")]
    UnknownSource,
    /// The body is larger than any that is kept.
    #[error("the body has more than {INBOX_BODY_BYTES_MAX} bytes")]
    TooLarge,
    /// It is not believed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It is believed, and could not be stored: the sender may try again.
    #[error("store the event")]
    Store(#[from] StoreError),
}

/// All sources, with their secrets. Prints none.
#[derive(Clone, Debug, Default)]
pub struct Inbox {
    sources: Arc<BTreeMap<String, Source>>,
}

#[derive(Debug)]
struct Source {
    config: InboxSource,
    verifier: Verifier,
}

impl Inbox {
    /// Reads the secrets of every source of the config.
    ///
    /// # Errors
    /// [`InboxError`].
    pub fn of(config: &Config) -> Result<Inbox, InboxError> {
        let mut sources = BTreeMap::new();
        for source in &config.inbox {
            let verifier = verifier(source)?;
            let config = source.clone();
            sources.insert(source.source.clone(), Source { config, verifier });
        }
        Ok(Inbox {
            sources: Arc::new(sources),
        })
    }

    /// Takes in what a source sent: believed, it is stored before this returns, whatever came of it.
    ///
    /// # Errors
    /// [`Rejected`].
    pub async fn accept(
        &self,
        (store, clock): (&Store, Clock),
        source: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<Received, Rejected> {
        let known = self.sources.get(source).ok_or(Rejected::UnknownSource)?;
        if body.len() > INBOX_BODY_BYTES_MAX {
            return Err(Rejected::TooLarge);
        }
        let window = Window {
            now_secs: clock.now_ms().div_euclid(1_000),
            tolerance_secs: i64::try_from(known.config.tolerance.as_secs()).unwrap_or(i64::MAX),
        };
        let incoming = Incoming { headers, body: &body };
        let verified = known.verifier.verify(incoming, window)?;
        let new = NewInbox {
            source: source.to_owned(),
            event_id: verified.event_id,
            fingerprint: verified.fingerprint,
            body,
        };
        let received = store.write(move |tx| tx.receive_inbox(&new)).await?;
        if matches!(received, Received::SetAside(_)) {
            // Somebody is told of it.
            store.wake();
        }
        Ok(received)
    }
}

/// Whether the secrets of a source would do.
///
/// # Errors
/// [`InboxError`].
pub fn try_secrets(source: &InboxSource) -> Result<(), InboxError> {
    verifier(source).map(drop)
}

fn verifier(source: &InboxSource) -> Result<Verifier, InboxError> {
    let name = || source.source.clone();
    let mut secrets = Vec::new();
    for file in &source.secrets {
        secrets.push(file.read().map_err(|error| InboxError::Secret(name(), error))?);
    }
    match &source.verifier {
        InboxVerifier::Standard => {
            let keys = secrets.iter().map(|secret| VerifyKey::parse(secret.reveal()));
            let keys = keys.collect::<Result<_, _>>();
            Ok(Verifier::Standard(
                keys.map_err(|error| InboxError::Key(name(), error))?,
            ))
        }
        InboxVerifier::Hmac(settings) => {
            let bytes: Vec<&[u8]> = secrets.iter().map(|secret| secret.reveal().as_bytes()).collect();
            if bytes.iter().any(|bytes| bytes.len() < SECRET_BYTES_MIN) {
                return Err(InboxError::Short(name()));
            }
            Ok(Verifier::hmac(settings.clone(), &bytes))
        }
    }
}
