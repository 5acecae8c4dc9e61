//! The one verifier for everybody who signs with HMAC: what differs between senders is settings. Start at
//! [`HmacSettings`]; the senders that we know are in `presets`.

use super::incoming::{Identity, Incoming, Pointer, Refused, Verified};
use super::{SIGNATURES_MAX, STANDARD, Window, check_time};
use base64::Engine as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::{Sha256, Sha512};
use std::fmt;
use thiserror::Error;

/// How a sender signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HmacSettings {
    /// The header that holds the signature.
    pub header: String,
    /// What stands between items of that header, where it is a list (`t=1,v1=ab,v1=cd`).
    pub separator: Option<char>,
    /// What stands before a signature, in each item that is one. Others are passed over.
    pub prefix: String,
    /// How a signature is written.
    pub encoding: Encoding,
    /// The hash.
    pub digest: Digest,
    /// What is signed.
    pub signed: Signed,
    /// Where the time of sending stands. `None` = the sender gives none.
    pub time: Option<TimeField>,
    /// Where the body says which event it is.
    pub identity: Identity,
}

/// How signatures are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Hex digits, all small or all capital.
    Hex,
    /// Base64 with its padding.
    Base64,
}

/// The hash under the HMAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digest {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

/// Where the time of sending stands, in Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeField {
    /// In the header of the signature: the item that begins so.
    Item(String),
    /// In a header of its own.
    Header(String),
    /// In the body.
    Body(Pointer),
}

/// What is signed: a text in which `{time}` and `{body}` stand for the request's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Time,
    Body,
}

/// Settings under which a request could be believed that its sender never made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// See [`Signed`].
    #[error("what is signed names {{body}} once and {{time}} at most once, and no other thing in braces")]
    Template,
    /// The same bytes could be cut elsewhere and read as another time and body.
    #[error("what is signed has nothing between {{time}} and {{body}} that is no digit")]
    NoBoundary,
    /// A time that anybody can write says nothing.
    #[error("the time of sending is not signed: it is in a header, and {{time}} is not in what is signed")]
    TimeNotSigned,
    /// What is signed asks for a time that is not there.
    #[error("{{time}} is signed, but it is not said which header holds it")]
    NoTime,
    /// Signature and time in one header are told apart by what they begin with.
    #[error("a time in the header of the signature needs a separator, and a beginning of its own")]
    TimeItem,
    /// No header by that name can be.
    #[error("a header's name has letters, digits and hyphens")]
    HeaderName,
}

impl Signed {
    /// Reads `{body}`, `{time}.{body}`, `v0:{time}:{body}`.
    ///
    /// # Errors
    /// [`SettingsError::Template`], [`SettingsError::NoBoundary`].
    pub fn parse(template: &str) -> Result<Signed, SettingsError> {
        let mut parts = Vec::new();
        let mut rest = template;
        while !rest.is_empty() {
            let (text, tail) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
            if !text.is_empty() {
                parts.push(Part::Text(text.to_owned()));
            }
            let (part, tail) = match (tail.strip_prefix("{time}"), tail.strip_prefix("{body}")) {
                (Some(tail), _) => (Part::Time, tail),
                (_, Some(tail)) => (Part::Body, tail),
                (None, None) if tail.is_empty() => break,
                (None, None) => return Err(SettingsError::Template),
            };
            parts.push(part);
            rest = tail;
        }
        let count = |wanted: &Part| parts.iter().filter(|part| *part == wanted).count();
        if count(&Part::Body) != 1 || count(&Part::Time) > 1 {
            return Err(SettingsError::Template);
        }
        let place = |wanted: &Part| parts.iter().position(|part| part == wanted);
        if let (Some(time), Some(body)) = (place(&Part::Time), place(&Part::Body)) {
            let between = parts.get(time.min(body) + 1);
            // Of the two, only the time is known to be digits: the text must end it.
            let ends = |text: &str| {
                let edge = if time < body {
                    text.chars().next()
                } else {
                    text.chars().next_back()
                };
                edge.is_some_and(|edge| !edge.is_ascii_digit())
            };
            if !matches!(between, Some(Part::Text(text)) if ends(text)) {
                return Err(SettingsError::NoBoundary);
            }
        }
        Ok(Signed(parts))
    }

    fn has_time(&self) -> bool {
        self.0.contains(&Part::Time)
    }
}

impl HmacSettings {
    /// Refuses what would believe too much.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn check(&self) -> Result<(), SettingsError> {
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if !is_name(&self.header) || matches!(&self.time, Some(TimeField::Header(name)) if !is_name(name)) {
            return Err(SettingsError::HeaderName);
        }
        match (&self.time, self.signed.has_time()) {
            (Some(TimeField::Item(_) | TimeField::Header(_)), false) => Err(SettingsError::TimeNotSigned),
            (None | Some(TimeField::Body(_)), true) => Err(SettingsError::NoTime),
            (Some(TimeField::Item(start)), true)
                if self.separator.is_none()
                    || start.is_empty()
                    || self.prefix.is_empty()
                    || start.starts_with(&self.prefix)
                    || self.prefix.starts_with(start) =>
            {
                Err(SettingsError::TimeItem)
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone)]
enum Keyed {
    Sha256(Hmac<Sha256>),
    Sha512(Hmac<Sha512>),
}

impl Keyed {
    fn new(digest: Digest, secret: &[u8]) -> Keyed {
        let any_length = "an HMAC takes a key of any length";
        match digest {
            Digest::Sha256 => {
                Keyed::Sha256(Hmac::new_from_slice(secret).unwrap_or_else(|_| unreachable!("{any_length}")))
            }
            Digest::Sha512 => {
                Keyed::Sha512(Hmac::new_from_slice(secret).unwrap_or_else(|_| unreachable!("{any_length}")))
            }
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Keyed::Sha256(mac) => mac.update(bytes),
            Keyed::Sha512(mac) => mac.update(bytes),
        }
    }

    /// Takes as long whatever the first wrong byte is.
    fn verifies(self, signature: &[u8]) -> bool {
        match self {
            Keyed::Sha256(mac) => mac.verify_slice(signature).is_ok(),
            Keyed::Sha512(mac) => mac.verify_slice(signature).is_ok(),
        }
    }
}

/// A sender's settings with its live secrets. Prints no secret.
#[derive(Clone)]
pub struct HmacVerifier {
    settings: HmacSettings,
    keys: Vec<Keyed>,
}

impl HmacVerifier {
    /// A verifier that believes whoever holds one of `secrets`.
    pub fn new(settings: HmacSettings, secrets: &[&[u8]]) -> HmacVerifier {
        let keys = secrets
            .iter()
            .map(|secret| Keyed::new(settings.digest, secret))
            .collect();
        HmacVerifier { settings, keys }
    }

    /// Believes a request or says why not.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn verify(&self, incoming: Incoming<'_>, window: Window) -> Result<Verified, Refused> {
        let header = incoming.header(&self.settings.header)?;
        let items: Vec<&str> = match self.settings.separator {
            Some(separator) => header.split(separator).map(str::trim).collect(),
            None => vec![header],
        };
        if items.len() > SIGNATURES_MAX {
            return Err(Refused::TooManySignatures);
        }
        let time = self.header_time(incoming, &items)?;
        if let Some(time) = time {
            check_time(time, window)?;
        }
        let is_signed = items
            .iter()
            .filter_map(|item| self.signature(item))
            .any(|signature| self.fits(time, incoming.body, &signature));
        if !is_signed {
            return Err(Refused::NoMatch);
        }
        // Nothing of the body is read before its signature was found right.
        if let Some(TimeField::Body(at)) = &self.settings.time {
            let body: Value = serde_json::from_slice(incoming.body).map_err(|_| Refused::BadTime)?;
            check_time(&at.find_text(&body).ok_or(Refused::BadTime)?, window)?;
        }
        Ok(self.settings.identity.read(incoming.body))
    }

    /// The time of sending, where a header has it.
    fn header_time<'a>(&self, incoming: Incoming<'a>, items: &[&'a str]) -> Result<Option<&'a str>, Refused> {
        match &self.settings.time {
            Some(TimeField::Header(name)) => incoming.header(name).map(Some),
            Some(TimeField::Item(start)) => {
                let mut times = items.iter().filter_map(|item| item.strip_prefix(start.as_str()));
                match (times.next(), times.next()) {
                    (Some(time), None) => Ok(Some(time)),
                    // Of two, which one is signed would be the sender's guess.
                    _ => Err(Refused::BadTime),
                }
            }
            Some(TimeField::Body(_)) | None => Ok(None),
        }
    }

    fn signature(&self, item: &str) -> Option<Vec<u8>> {
        let text = item.strip_prefix(&self.settings.prefix)?;
        match self.settings.encoding {
            Encoding::Base64 => STANDARD.decode(text).ok(),
            Encoding::Hex => {
                let has = |is: fn(&u8) -> bool| text.as_bytes().iter().any(is);
                let is_mixed = has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
                let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
                (is_hex && !is_mixed).then(|| const_hex::decode(text).ok())?
            }
        }
    }

    fn fits(&self, time: Option<&str>, body: &[u8], signature: &[u8]) -> bool {
        self.keys.iter().any(|key| {
            let mut mac = key.clone();
            for part in &self.settings.signed.0 {
                match part {
                    Part::Text(text) => mac.update(text.as_bytes()),
                    Part::Time => mac.update(time.unwrap_or_default().as_bytes()),
                    Part::Body => mac.update(body),
                }
            }
            mac.verifies(signature)
        })
    }
}

impl fmt::Debug for HmacVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HmacVerifier")
            .field("settings", &self.settings)
            .field("secrets", &self.keys.len())
            .finish()
    }
}
