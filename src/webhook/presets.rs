//! The settings of senders that we know, from their own documentation and source.

use super::hmac::{Digest, Encoding, HmacSettings, Signed, TimeField};
use super::incoming::{Identity, Pointer};

/// A sender whose way to sign is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Stripe: `Stripe-Signature: t=…,v1=…` over time and body; a signature per live secret.
    Stripe,
    /// GitHub: `X-Hub-Signature-256` over the body. No time; the delivery's id is not signed.
    GitHub,
    /// BTCPay Server: `BTCPay-Sig` over the body. Its `timestamp` is that of the first delivery and stays
    /// when it is sent again hours later, so it is no time of sending.
    BtcPay,
    /// Coinbase Commerce: `X-CC-Webhook-Signature` over the body, bare hex.
    CoinbaseCommerce,
}

impl Preset {
    /// All of them.
    pub const ALL: [Preset; 4] = [
        Preset::Stripe,
        Preset::GitHub,
        Preset::BtcPay,
        Preset::CoinbaseCommerce,
    ];

    /// Its name in the config.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Stripe => "stripe",
            Preset::GitHub => "github",
            Preset::BtcPay => "btcpay",
            Preset::CoinbaseCommerce => "coinbase_commerce",
        }
    }

    /// How it signs.
    pub fn settings(self) -> HmacSettings {
        match self {
            Preset::Stripe => HmacSettings {
                separator: Some(','),
                signed: known(Signed::parse("{time}.{body}")),
                time: Some(TimeField::Item("t=".to_owned())),
                // How many receivers are still to be told: differs from try to try.
                identity: identity(&["/id"], &["/pending_webhooks"]),
                ..over_body("Stripe-Signature", "v1=")
            },
            Preset::GitHub => over_body("X-Hub-Signature-256", "sha256="),
            Preset::BtcPay => HmacSettings {
                // "If we redelivered a redelivery, we still want the initial delivery here".
                identity: identity(
                    &["/originalDeliveryId", "/deliveryId"],
                    &["/deliveryId", "/isRedelivery", "/webhookId", "/timestamp"],
                ),
                ..over_body("BTCPay-Sig", "sha256=")
            },
            Preset::CoinbaseCommerce => HmacSettings {
                // Around the event stand the number and the time of this attempt.
                identity: identity(&["/event/id"], &["/id", "/scheduled_for", "/attempt_number"]),
                ..over_body("X-CC-Webhook-Signature", "")
            },
        }
    }
}

/// SHA-256 over the body alone, in hex.
fn over_body(header: &str, prefix: &str) -> HmacSettings {
    HmacSettings {
        header: header.to_owned(),
        separator: None,
        prefix: prefix.to_owned(),
        encoding: Encoding::Hex,
        digest: Digest::Sha256,
        signed: known(Signed::parse("{body}")),
        time: None,
        identity: Identity::default(),
    }
}

fn identity(event_id: &[&str], delivery_fields: &[&str]) -> Identity {
    let pointers = |texts: &[&str]| texts.iter().map(|text| known(Pointer::parse(text))).collect();
    Identity {
        event_id: pointers(event_id),
        delivery_fields: pointers(delivery_fields),
    }
}

fn known<T, E: std::fmt::Display>(read: Result<T, E>) -> T {
    read.unwrap_or_else(|error| unreachable!("a preset is tested: {error}"))
}
