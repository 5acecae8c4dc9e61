//! Signs and verifies callbacks by Standard Webhooks 1.0.0 (<https://www.standardwebhooks.com>), so that a
//! merchant checks them with the official packages; and verifies what others send to us. Knows nothing of
//! HTTP, endpoints or where keys are kept; start at [`sign`], and for what comes in at [`Verifier`].

mod hmac;
mod incoming;
mod key;
mod presets;

pub use hmac::{Digest, Encoding, HmacSettings, HmacVerifier, SettingsError, Signed, TimeField};
pub use incoming::{Identity, Incoming, Pointer, PointerError, Refused, Verified, Verifier};
pub use presets::Preset;

pub use key::{Key, KeyError, Scheme, VerifyKey, fresh_key};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

/// The header with the event's id: the same in every attempt, so receivers drop repeats by it.
pub const ID_HEADER: &str = "webhook-id";
/// The header with the time of this attempt in Unix seconds. Signed, so an old request cannot be sent again.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// The header with one signature per live key, separated by blanks ("zero downtime secret rotation").
pub const SIGNATURE_HEADER: &str = "webhook-signature";

const ID_BYTES_MAX: usize = 256;
/// Far more than all keys of one endpoint need. Each signature costs a computation, so their number is
/// bounded.
const SIGNATURES_MAX: usize = 32;

/// Why nothing was signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SignError {
    /// A request without a signature would teach receivers to accept such.
    #[error("no key to sign with")]
    NoKey,
    /// See [`VerifyError::BadId`].
    #[error("the id is empty, too long or has letters other than A-Z, a-z, 0-9, _ and -")]
    BadId,
}

/// Why a request is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum VerifyError {
    /// One of the three headers is missing.
    #[error("header {0} is missing")]
    MissingHeader(&'static str),
    /// What is signed is `id.timestamp.body`: with a dot in the id the same bytes could be cut elsewhere and
    /// read as another message, so the specification forbids it.
    #[error("header webhook-id is empty, too long or has a dot or a letter that is not printable ASCII")]
    BadId,
    /// Not Unix seconds in decimal digits.
    #[error("header webhook-timestamp is not a number of seconds")]
    BadTimestamp,
    /// Sent longer ago than the tolerance: perhaps a recording.
    #[error("header webhook-timestamp is too old")]
    TooOld,
    /// Further in the future than the tolerance: one of the two clocks is wrong.
    #[error("header webhook-timestamp is too far in the future")]
    TooNew,
    /// More signatures than anybody needs.
    #[error("header webhook-signature holds more than {SIGNATURES_MAX} signatures")]
    TooManySignatures,
    /// No signature fits any of the keys: forged, altered on the way, or signed with a key we do not have.
    #[error("no signature matches")]
    NoMatch,
}

/// The three headers of a received request, as far as they are there and text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a> {
    /// [`ID_HEADER`].
    pub id: Option<&'a str>,
    /// [`TIMESTAMP_HEADER`].
    pub timestamp: Option<&'a str>,
    /// [`SIGNATURE_HEADER`].
    pub signature: Option<&'a str>,
}

/// When a time stamp is near enough to now.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Unix time in seconds.
    pub now_secs: i64,
    /// How far before and after `now_secs` is accepted; the official packages take 300.
    pub tolerance_secs: i64,
}

/// The value of [`SIGNATURE_HEADER`]: `v1,…` (HMAC-SHA256) or `v1a,…` (ed25519) per key, in their order,
/// separated by blanks. The same input gives the same text.
///
/// # Errors
/// [`SignError`].
pub fn sign(id: &str, timestamp_secs: i64, body: &[u8], keys: &[Key]) -> Result<String, SignError> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if id.is_empty() || id.len() > ID_BYTES_MAX || !id.bytes().all(is_letter) {
        return Err(SignError::BadId);
    }
    if keys.is_empty() {
        return Err(SignError::NoKey);
    }
    let content = content(id, &timestamp_secs.to_string(), body);
    let signatures: Vec<String> = keys
        .iter()
        .map(|key| {
            format!(
                "{},{}",
                key.scheme().version(),
                STANDARD.encode(key.sign(&content))
            )
        })
        .collect();
    Ok(signatures.join(" "))
}

/// All three headers of one attempt, with [`sign`]'s value.
///
/// # Errors
/// [`SignError`].
pub fn headers(
    id: &str,
    timestamp_secs: i64,
    body: &[u8],
    keys: &[Key],
) -> Result<[(&'static str, String); 3], SignError> {
    let signature = sign(id, timestamp_secs, body, keys)?;
    Ok([
        (ID_HEADER, id.to_owned()),
        (TIMESTAMP_HEADER, timestamp_secs.to_string()),
        (SIGNATURE_HEADER, signature),
    ])
}

/// Checks that the holder of one of `keys` sent exactly this body under this id, not long ago. Signatures are
/// compared in constant time; those of unknown versions are passed over, as the specification asks.
///
/// # Errors
/// [`VerifyError`].
pub fn verify(
    headers: Headers<'_>,
    body: &[u8],
    keys: &[VerifyKey],
    window: Window,
) -> Result<(), VerifyError> {
    let present = |value: Option<_>, name| value.ok_or(VerifyError::MissingHeader(name));
    let id: &str = present(headers.id, ID_HEADER)?;
    let timestamp: &str = present(headers.timestamp, TIMESTAMP_HEADER)?;
    let signature: &str = present(headers.signature, SIGNATURE_HEADER)?;
    let is_letter = |byte: u8| byte.is_ascii_graphic() && byte != b'.';
    if id.is_empty() || id.len() > ID_BYTES_MAX || !id.bytes().all(is_letter) {
        return Err(VerifyError::BadId);
    }
    check_time(timestamp, window)?;
    if signature.split(' ').count() > SIGNATURES_MAX {
        return Err(VerifyError::TooManySignatures);
    }
    let content = content(id, timestamp, body);
    for versioned in signature.split(' ') {
        let Some((version, text)) = versioned.split_once(',') else {
            continue;
        };
        let Ok(signature) = STANDARD.decode(text) else {
            continue;
        };
        let fits = |key: &&VerifyKey| key.scheme().version() == version && key.verifies(&content, &signature);
        if keys.iter().any(|key| fits(&key)) {
            return Ok(());
        }
    }
    Err(VerifyError::NoMatch)
}

fn check_time(timestamp: &str, window: Window) -> Result<(), VerifyError> {
    // `parse` alone would take a sign.
    if !timestamp.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(VerifyError::BadTimestamp);
    }
    let sent: i64 = timestamp.parse().map_err(|_| VerifyError::BadTimestamp)?;
    let age = window.now_secs.saturating_sub(sent);
    if age > window.tolerance_secs {
        Err(VerifyError::TooOld)
    } else if age < -window.tolerance_secs {
        Err(VerifyError::TooNew)
    } else {
        Ok(())
    }
}

fn content(id: &str, timestamp: &str, body: &[u8]) -> Vec<u8> {
    [id.as_bytes(), timestamp.as_bytes(), body].join(&b'.')
}
