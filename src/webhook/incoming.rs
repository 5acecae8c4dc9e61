//! Webhooks of others, verified on their raw bytes. What is believed says which event it is and what it
//! holds: both from signed bytes alone, because whoever has one recorded request can write any other header.

use super::hmac::{HmacSettings, HmacVerifier};
use super::{Headers, VerifyError, VerifyKey, Window, verify};
use super::{ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use thiserror::Error;

/// A longer id is stored as its hash.
const EVENT_ID_BYTES_MAX: usize = 256;

/// A request as it came: its headers by name, in any letter case, and the bytes of its body.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Name and value of each header that is text.
    pub headers: &'a [(String, String)],
    /// Untouched: a body that was read and written again has other bytes.
    pub body: &'a [u8],
}

impl<'a> Incoming<'a> {
    /// The value of a header that must be there once: of two, another reader may believe the other.
    pub(super) fn header(&self, name: &str) -> Result<&'a str, Refused> {
        let mut found = self
            .headers
            .iter()
            .filter(|(given, _)| given.eq_ignore_ascii_case(name));
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Ok(value),
            (Some(_), Some(_)) => Err(Refused::RepeatedHeader(name.to_owned())),
            (None, _) => Err(Refused::MissingHeader(name.to_owned())),
        }
    }
}

/// What a request that is believed is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The event: the same in each delivery of it, as far as the sender says which one it is.
    pub event_id: String,
    /// SHA-256 of what the event holds, without what only tells of this delivery.
    pub fingerprint: [u8; 32],
}

/// Why a request is not believed. Holds nothing of its secrets, signatures or body.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// A header that is verified is missing, or no text.
    #[error("header {0} is missing")]
    MissingHeader(String),
    /// A header that is verified is there twice.
    #[error("header {0} is there more than once")]
    RepeatedHeader(String),
    /// No time of sending, two of them, or not Unix seconds in decimal digits.
    #[error("the time of sending is missing, there twice or not a number of seconds")]
    BadTime,
    /// Sent longer ago than the tolerance: perhaps a recording.
    #[error("the time of sending is too long ago")]
    TooOld,
    /// Further in the future than the tolerance: one of the two clocks is wrong.
    #[error("the time of sending is too far in the future")]
    TooNew,
    /// More signatures than anybody needs.
    #[error("too many signatures")]
    TooManySignatures,
    /// Standard Webhooks: the id cannot be signed without doubt.
    #[error("header webhook-id is not one that can be signed")]
    BadId,
    /// No signature fits any of the secrets: forged, altered, or signed with a secret that we do not have.
    #[error("no signature matches")]
    NoMatch,
}

impl From<VerifyError> for Refused {
    fn from(error: VerifyError) -> Refused {
        match error {
            VerifyError::MissingHeader(name) => Refused::MissingHeader(name.to_owned()),
            VerifyError::BadId => Refused::BadId,
            VerifyError::BadTimestamp => Refused::BadTime,
            VerifyError::TooOld => Refused::TooOld,
            VerifyError::TooNew => Refused::TooNew,
            VerifyError::TooManySignatures => Refused::TooManySignatures,
            VerifyError::NoMatch => Refused::NoMatch,
        }
    }
}

/// Where a value stands in a JSON body: an RFC 6901 pointer, as `/data/object/id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer(String);

/// A text that is no [`Pointer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a JSON pointer begins with a slash, as in /data/object/id")]
pub struct PointerError;

impl Pointer {
    /// Reads a pointer to something inside of the body: the empty one, which is all of it, is refused.
    ///
    /// # Errors
    /// [`PointerError`].
    pub fn parse(text: &str) -> Result<Pointer, PointerError> {
        let is_whole = text.len() > 1 && text.starts_with('/');
        is_whole.then(|| Pointer(text.to_owned())).ok_or(PointerError)
    }

    /// What stands there.
    pub fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        value.pointer(&self.0)
    }

    /// What stands there if it is a text that is not empty, or a whole number: the two ways to write an id.
    pub fn find_text(&self, value: &Value) -> Option<String> {
        match self.find(value)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) if number.is_u64() || number.is_i64() => Some(number.to_string()),
            _ => None,
        }
    }

    /// The text that [`Pointer::parse`] reads.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn remove(&self, value: &mut Value) {
        let Some((parent, key)) = self.0.rsplit_once('/') else {
            return;
        };
        if let Some(Value::Object(fields)) = value.pointer_mut(parent) {
            fields.remove(&key.replace("~1", "/").replace("~0", "~"));
        }
    }
}

/// Where a believed body says which event it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The first of these that is there. None there: the hash of the body.
    pub event_id: Vec<Pointer>,
    /// What tells of this delivery and not of the event, and so differs when the event is sent again.
    pub delivery_fields: Vec<Pointer>,
}

impl Identity {
    /// Reads a body whose signature was found right.
    pub(super) fn read(&self, body: &[u8]) -> Verified {
        let mut value = serde_json::from_slice::<Value>(body).ok();
        let named = value
            .as_ref()
            .and_then(|value| self.event_id.iter().find_map(|at| at.find_text(value)));
        let fingerprint: [u8; 32] = match &mut value {
            Some(value) if !self.delivery_fields.is_empty() => {
                self.delivery_fields.iter().for_each(|field| field.remove(value));
                Sha256::digest(value.to_string()).into()
            }
            _ => Sha256::digest(body).into(),
        };
        let event_id = match named {
            Some(id) if id.len() <= EVENT_ID_BYTES_MAX => id,
            Some(id) => hash_text(&Sha256::digest(id).into()),
            // Of all bytes: what was left out of the fingerprint, or read as a number, may be all that
            // differs.
            None => hash_text(&Sha256::digest(body).into()),
        };
        Verified {
            event_id,
            fingerprint,
        }
    }
}

/// One source's verifier with its live secrets.
#[derive(Clone, Debug)]
pub enum Verifier {
    /// Standard Webhooks: the id is signed with the rest.
    Standard(Vec<VerifyKey>),
    /// HMAC over parts of the request.
    Hmac(Box<HmacVerifier>),
}

impl Verifier {
    /// An HMAC verifier.
    pub fn hmac(settings: HmacSettings, secrets: &[&[u8]]) -> Verifier {
        Verifier::Hmac(Box::new(HmacVerifier::new(settings, secrets)))
    }

    /// Believes a request or says why not.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn verify(&self, incoming: Incoming<'_>, window: Window) -> Result<Verified, Refused> {
        match self {
            Verifier::Standard(keys) => {
                let id = incoming.header(ID_HEADER)?;
                let headers = Headers {
                    id: Some(id),
                    timestamp: Some(incoming.header(TIMESTAMP_HEADER)?),
                    signature: Some(incoming.header(SIGNATURE_HEADER)?),
                };
                verify(headers, incoming.body, keys, window)?;
                Ok(Verified {
                    event_id: id.to_owned(),
                    fingerprint: Sha256::digest(incoming.body).into(),
                })
            }
            Verifier::Hmac(verifier) => verifier.verify(incoming, window),
        }
    }
}

fn hash_text(hash: &[u8; 32]) -> String {
    hash.iter().fold(String::from("sha256:"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
