//! Sources of webhooks: how each signs, and what its events do here.

use super::SecretFile;
use crate::rules::ChainId;
use crate::webhook::{HmacSettings, Pointer};
use std::time::Duration;

/// How long bodies are kept where the config says nothing.
pub const INBOX_KEEP: Duration = Duration::from_secs(30 * 86_400);

/// Somebody who sends webhooks to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxSource {
    /// Its name in the URL, and in the ids of what its events did: for ever.
    pub source: String,
    /// How it signs.
    pub verifier: InboxVerifier,
    /// Its live secrets, one a file.
    pub secrets: Vec<SecretFile>,
    /// How far the time of sending may be from ours, either way.
    pub tolerance: Duration,
    /// How long the body of an event is kept once the event is done.
    pub keep: Duration,
    /// What an event must say to do anything; all of it.
    pub only: Vec<Condition>,
    /// What its events do.
    pub effect: InboxEffect,
}

/// How a source signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboxVerifier {
    /// By Standard Webhooks.
    Standard,
    /// By an HMAC of its own.
    Hmac(HmacSettings),
}

/// A field of the body, and what it may say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Where.
    pub field: Pointer,
    /// One of these.
    pub is: Vec<String>,
}

/// What the events of a source do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboxEffect {
    /// A chain is looked at, now.
    Hint {
        /// Its short name.
        alias: String,
        /// Its identity.
        chain: ChainId,
        /// Where the transaction is named, for people.
        txid: Option<Pointer>,
    },
    /// A merchant is told of them.
    Forward {
        /// The merchant.
        merchant: String,
    },
    /// A merchant is credited.
    Credit(Box<CreditRule>),
}

/// Where the body of an event says what was paid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreditRule {
    /// Who is credited.
    pub merchant: String,
    /// A list of payments; the other fields are then those of each.
    pub each: Option<Pointer>,
    /// The source's id of the payment.
    pub payment: Pointer,
    /// How much.
    pub amount: Pointer,
    /// True where that is in whole units, false where it is in the smallest.
    pub is_whole_units: bool,
    /// What it counts in.
    pub asset: String,
    /// Digits after the point of a whole unit.
    pub decimals: u8,
    /// What it is for.
    pub reference: Option<Pointer>,
    /// The output that it was paid by: `TXID`, `TXID:VOUT` or `TXID-VOUT`.
    pub output: Option<Pointer>,
    /// The address that it was paid to.
    pub address: Option<Pointer>,
}
