//! API keys: how one is written down, what is kept of it, and what it may be used for. The secret comes from
//! the caller; nothing here is random.

use super::ids;
use sha2::{Digest as _, Sha256};
use std::hint::black_box;
use thiserror::Error;

/// Before the digits of every key, so that scanners for leaked secrets find it.
const PREFIX: &str = "ck_";
const SECRET_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 4;

/// What a key may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Make and cancel invoices, take addresses.
    InvoiceWrite,
    /// Read invoices, deposits, credits, balances and transactions.
    InvoiceRead,
    /// Make, pause and try endpoints, rotate their secrets.
    EndpointManage,
    /// Read events, and have them sent again.
    EventsRead,
    /// Hand in webhooks of others.
    InboxWrite,
    /// An operator's: read everything.
    OpsRead,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Scope; 6] = [
        Scope::InvoiceWrite,
        Scope::InvoiceRead,
        Scope::EndpointManage,
        Scope::EventsRead,
        Scope::InboxWrite,
        Scope::OpsRead,
    ];

    /// Its word, typed and stored.
    pub fn word(self) -> &'static str {
        match self {
            Scope::InvoiceWrite => "invoice:write",
            Scope::InvoiceRead => "invoice:read",
            Scope::EndpointManage => "endpoint:manage",
            Scope::EventsRead => "events:read",
            Scope::InboxWrite => "inbox:write",
            Scope::OpsRead => "ops:read",
        }
    }

    /// The scope of a word.
    pub fn from_word(word: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.word() == word)
    }

    /// True of what only an operator's key may have.
    pub fn is_operators(self) -> bool {
        self == Scope::OpsRead
    }
}

/// Why a text is no key. Never holds a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ApiKeyError {
    /// Other letters, or more or fewer of them.
    #[error("an API key is ck_ and 72 hex digits")]
    Form,
    /// A digit is another, or some are missing in the middle: typed or copied wrongly.
    #[error("the API key's checksum does not fit: it was not copied whole")]
    Checksum,
}

/// A key as its holder has it. Prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey([u8; SECRET_BYTES]);

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl ApiKey {
    /// The key of 256 random bits.
    pub fn from_secret(secret: [u8; SECRET_BYTES]) -> ApiKey {
        ApiKey(secret)
    }

    /// Reads a key.
    ///
    /// # Errors
    /// [`ApiKeyError`].
    pub fn parse(text: &str) -> Result<ApiKey, ApiKeyError> {
        let digits = text.strip_prefix(PREFIX).ok_or(ApiKeyError::Form)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let whole = 2 * (SECRET_BYTES + CHECKSUM_BYTES);
        if digits.len() != whole || !digits.bytes().all(is_digit) {
            return Err(ApiKeyError::Form);
        }
        let secret = ids::parse_hex32(&digits[..2 * SECRET_BYTES]).ok_or(ApiKeyError::Form)?;
        let key = ApiKey(secret);
        match key.to_text() == text {
            true => Ok(key),
            false => Err(ApiKeyError::Checksum),
        }
    }

    /// The key as it is shown, once: prefix, secret and checksum.
    pub fn to_text(&self) -> String {
        let checksum = Sha256::new()
            .chain_update(b"creditd api key checksum")
            .chain_update(self.0)
            .finalize();
        format!(
            "{PREFIX}{}{}",
            ids::hex(&self.0),
            ids::hex(&checksum[..CHECKSUM_BYTES])
        )
    }

    /// What is kept of it. A secret of 256 bits needs no slow hash: nobody guesses it.
    pub fn hash(&self) -> KeyHash {
        let hash = Sha256::new()
            .chain_update(b"creditd api key")
            .chain_update(self.0)
            .finalize();
        KeyHash(hash.into())
    }
}

/// The hash of a key.
#[derive(Clone, Copy, Debug)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    /// The public id of the key.
    pub fn id(&self) -> String {
        ids::key_id(&self.0)
    }

    /// Whether both are the same, in a time that does not tell how much of them is.
    pub fn is(&self, other: &KeyHash) -> bool {
        let differences = self
            .0
            .iter()
            .zip(other.0)
            .fold(0, |all, (a, b)| black_box(all | (a ^ b)));
        differences == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_and_one_that_was_miscopied_does_not() {
        let key = ApiKey::from_secret([7; 32]);
        let text = key.to_text();
        assert_eq!(text.len(), 3 + 72);
        assert_eq!(ApiKey::parse(&text), Ok(key.clone()));
        assert_eq!(format!("{key:?}"), "***");
        for at in 3..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'0' { b'1' } else { b'0' };
            let other = String::from_utf8(other).unwrap();
            assert_eq!(ApiKey::parse(&other), Err(ApiKeyError::Checksum), "{at}");
        }
        for bad in [
            "",
            "ck_",
            &text[1..],
            &text[..74],
            &text.to_uppercase(),
            &format!("{text}0"),
        ] {
            assert_eq!(ApiKey::parse(bad), Err(ApiKeyError::Form), "{bad}");
        }
    }

    #[test]
    fn hashes_are_compared_whole() {
        let hash = ApiKey::from_secret([7; 32]).hash();
        assert!(hash.is(&ApiKey::from_secret([7; 32]).hash()));
        for at in 0..32 {
            let mut other = hash;
            other.0[at] ^= 0x80;
            assert!(!hash.is(&other), "{at}");
        }
        assert_ne!(hash.id(), ApiKey::from_secret([8; 32]).hash().id());
    }

    #[test]
    fn scopes_read_back() {
        for scope in Scope::ALL {
            assert_eq!(Scope::from_word(scope.word()), Some(scope));
        }
        assert_eq!(Scope::from_word("invoice"), None);
    }
}
