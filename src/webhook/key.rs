//! Keys: shared secrets (`whsec_`) and ed25519 pairs (`whsk_` with its public half `whpk_`), and what each
//! computes.

use super::STANDARD;
use crate::chance::Chance;
use crate::config::Secret;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fmt;
use thiserror::Error;

const SHARED_PREFIX: &str = "whsec_";
const PRIVATE_PREFIX: &str = "whsk_";
const PUBLIC_PREFIX: &str = "whpk_";

/// "At least 24 bytes (192 bits, 512 maximum)".
const SHARED_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
const FRESH_SHARED_BYTES: usize = 32;
const SEED_BYTES: usize = 32;

/// Some senders leave out the padding of a key, and the official packages do not mind.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How messages are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HMAC-SHA256 with a secret that both sides hold.
    V1,
    /// ed25519: only the sender can sign.
    V1a,
}

impl Scheme {
    /// The identifier before each signature.
    pub fn version(self) -> &'static str {
        match self {
            Scheme::V1 => "v1",
            Scheme::V1a => "v1a",
        }
    }
}

/// Why a text or bytes are no key. Never holds a part of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The text begins with none of the prefixes that fit here.
    #[error("a signing key begins with whsec_ or whsk_, a verifying one with whsec_, whsk_ or whpk_")]
    Prefix,
    /// What follows the prefix is not base64.
    #[error("the key is not base64 after its prefix")]
    Base64,
    /// Too short to be safe, too long for the specification, or not the size of an ed25519 key.
    #[error("the key has {bytes} bytes: whsec_ takes 24 to 64, whsk_ 32 (or 64), whpk_ 32")]
    Length {
        /// How many bytes there are.
        bytes: usize,
    },
    /// 32 or 64 bytes that are no ed25519 key.
    #[error("not an ed25519 key")]
    NotOnCurve,
}

/// A key that signs. Prints as `***`.
#[derive(Clone)]
pub struct Key(Signing);

#[derive(Clone)]
enum Signing {
    Shared(SharedKey),
    Ed25519(Box<SigningKey>),
}

/// A key that verifies. Prints as `***`: half of them can sign as well.
#[derive(Clone)]
pub struct VerifyKey(Verifying);

#[derive(Clone)]
enum Verifying {
    Shared(SharedKey),
    Ed25519(Box<VerifyingKey>),
}

#[derive(Clone)]
struct SharedKey {
    bytes: Vec<u8>,
    /// Has taken in the key already; cloned for each message.
    mac: Hmac<Sha256>,
}

impl SharedKey {
    fn new(bytes: &[u8]) -> Result<SharedKey, KeyError> {
        let length = KeyError::Length { bytes: bytes.len() };
        if !SHARED_BYTES.contains(&bytes.len()) {
            return Err(length);
        }
        let mac = Hmac::new_from_slice(bytes).map_err(|_| length)?;
        Ok(SharedKey {
            bytes: bytes.to_vec(),
            mac,
        })
    }

    fn mac_of(&self, content: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(content);
        mac
    }
}

impl Key {
    /// A shared secret of 24 to 64 bytes, made by the caller.
    ///
    /// # Errors
    /// [`KeyError::Length`].
    pub fn shared(bytes: &[u8]) -> Result<Key, KeyError> {
        SharedKey::new(bytes).map(Signing::Shared).map(Key)
    }

    /// The ed25519 pair of a seed made by the caller.
    pub fn ed25519(seed: &[u8; SEED_BYTES]) -> Key {
        Key(Signing::Ed25519(Box::new(SigningKey::from_bytes(seed))))
    }

    /// Reads `whsec_…` or `whsk_…`.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn parse(text: &str) -> Result<Key, KeyError> {
        if let Some(base64) = text.strip_prefix(SHARED_PREFIX) {
            return Key::shared(&decode(base64)?);
        }
        let base64 = text.strip_prefix(PRIVATE_PREFIX).ok_or(KeyError::Prefix)?;
        let bytes = decode(base64)?;
        // The official Go package keeps the seed; others keep seed and public key, as libsodium does.
        let key = match (
            <[u8; SEED_BYTES]>::try_from(&*bytes),
            <[u8; 64]>::try_from(&*bytes),
        ) {
            (Ok(seed), _) => SigningKey::from_bytes(&seed),
            (_, Ok(pair)) => SigningKey::from_keypair_bytes(&pair).map_err(|_| KeyError::NotOnCurve)?,
            _ => return Err(KeyError::Length { bytes: bytes.len() }),
        };
        Ok(Key(Signing::Ed25519(Box::new(key))))
    }

    /// How it signs.
    pub fn scheme(&self) -> Scheme {
        match self.0 {
            Signing::Shared(_) => Scheme::V1,
            Signing::Ed25519(_) => Scheme::V1a,
        }
    }

    /// The text that [`parse`](Self::parse) reads. A shared secret is shown to the merchant in this form; an
    /// ed25519 one never leaves us.
    pub fn to_secret(&self) -> Secret {
        Secret::new(match &self.0 {
            Signing::Shared(key) => format!("{SHARED_PREFIX}{}", STANDARD.encode(&key.bytes)),
            Signing::Ed25519(key) => format!("{PRIVATE_PREFIX}{}", STANDARD.encode(key.to_bytes())),
        })
    }

    /// `whpk_…`, which the merchant of an ed25519 pair verifies with; a shared secret has no public half.
    pub fn public_text(&self) -> Option<String> {
        match &self.0 {
            Signing::Shared(_) => None,
            Signing::Ed25519(key) => {
                let public = STANDARD.encode(key.verifying_key().as_bytes());
                Some(format!("{PUBLIC_PREFIX}{public}"))
            }
        }
    }

    /// The receiver's half.
    pub fn verify_key(&self) -> VerifyKey {
        VerifyKey(match &self.0 {
            Signing::Shared(key) => Verifying::Shared(key.clone()),
            Signing::Ed25519(key) => Verifying::Ed25519(Box::new(key.verifying_key())),
        })
    }

    /// The bare signature of the signed content.
    pub(super) fn sign(&self, content: &[u8]) -> Vec<u8> {
        match &self.0 {
            Signing::Shared(key) => key.mac_of(content).finalize().into_bytes().to_vec(),
            Signing::Ed25519(key) => key.sign(content).to_bytes().to_vec(),
        }
    }
}

impl VerifyKey {
    /// Reads `whsec_…` or `whpk_…`; of `whsk_…` the public half.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn parse(text: &str) -> Result<VerifyKey, KeyError> {
        let Some(base64) = text.strip_prefix(PUBLIC_PREFIX) else {
            return Key::parse(text).map(|key| key.verify_key());
        };
        let bytes = decode(base64)?;
        let length = KeyError::Length { bytes: bytes.len() };
        let key = <[u8; 32]>::try_from(&*bytes).map_err(|_| length)?;
        let key = VerifyingKey::from_bytes(&key).map_err(|_| KeyError::NotOnCurve)?;
        // Under such a key a signature of one message fits others too.
        if key.is_weak() {
            return Err(KeyError::NotOnCurve);
        }
        Ok(VerifyKey(Verifying::Ed25519(Box::new(key))))
    }

    /// Which signatures it verifies.
    pub fn scheme(&self) -> Scheme {
        match self.0 {
            Verifying::Shared(_) => Scheme::V1,
            Verifying::Ed25519(_) => Scheme::V1a,
        }
    }

    /// True if this is a signature of the signed content. Takes as long whatever the first wrong byte is.
    pub(super) fn verifies(&self, content: &[u8], signature: &[u8]) -> bool {
        match &self.0 {
            Verifying::Shared(key) => key.mac_of(content).verify_slice(signature).is_ok(),
            Verifying::Ed25519(key) => ed25519_dalek::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify_strict(content, &signature).is_ok()),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.to_secret() == other.to_secret()
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Debug for VerifyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A new key. Like API keys and the tokens of payment pages it is drawn at the edge and handed in, so that
/// whatever the store does with it can be repeated.
///
/// # Errors
/// The operating system has no random numbers to give.
pub fn fresh_key(scheme: Scheme, chance: Chance) -> Result<Key, getrandom::Error> {
    let mut bytes = [0; FRESH_SHARED_BYTES];
    chance.fill(&mut bytes)?;
    match scheme {
        Scheme::V1 => Ok(Key::shared(&bytes).unwrap_or_else(|_| unreachable!("32 bytes are enough"))),
        Scheme::V1a => Ok(Key::ed25519(&bytes)),
    }
}

fn decode(base64: &str) -> Result<Vec<u8>, KeyError> {
    LENIENT.decode(base64).map_err(|_| KeyError::Base64)
}
