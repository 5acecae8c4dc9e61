//! The words of `endpoint` and `callbacks`.

use super::args::{Page, Repair};
use super::words;
use clap::{Args, Subcommand, ValueEnum};

/// Endpoints.
#[derive(Debug, Subcommand)]
pub enum Endpoints {
    /// Add a URL that is told of a merchant's events
    #[command(after_help = "\
Callbacks are signed by the Standard Webhooks scheme; the secret is shown once, here. The URL must be \
https and lead to a public address, unless the config's [callbacks] allow_ranges says otherwise.

Examples:
  creditd endpoint add https://shop.example/hooks/creditd --merchant shop
  creditd endpoint add https://shop.example/hook --merchant shop \\
    --types credit.*,deposit.held
  creditd endpoint add https://ops.example/hooks/creditd --ops")]
    Add(EndpointAdd),
    /// List endpoints
    #[command(after_help = "\
Of invoices there may be millions: the endpoints that are told of one invoice each are listed with --invoice \
or, where they are paused, with --paused.

Examples:
  creditd endpoint list
  creditd endpoint list --paused
  creditd endpoint list --invoice inv_1f3c...")]
    List(EndpointList),
    /// Stop sending to an endpoint; its events are queued
    Pause(EndpointRepair),
    /// Send again what a paused endpoint has queued, and what comes
    Resume(EndpointRepair),
    /// Make a new secret; callbacks carry the old signature too for a while
    RotateSecret {
        /// The endpoint: ep_...
        id: String,
        /// How long the old secret goes on being used
        #[arg(long, value_name = "HOURS", default_value_t = 24)]
        overlap_hours: u32,
        /// The reason, and whether to do it
        #[command(flatten)]
        repair: Repair,
    },
    /// Send a test event and say what came of it
    Test {
        /// The endpoint: ep_...
        id: String,
        /// How long to wait for the first attempt
        #[arg(long, value_name = "SECONDS", default_value_t = 20)]
        wait_secs: u32,
    },
}

/// A filtered page of endpoints.
#[derive(Debug, Args)]
pub struct EndpointList {
    /// Only this merchant's
    #[arg(long, value_name = "SLUG")]
    pub merchant: Option<String>,
    /// Only that of this invoice
    #[arg(long, value_name = "ID")]
    pub invoice: Option<String>,
    /// Only paused ones
    #[arg(long)]
    pub paused: bool,
    /// The page.
    #[command(flatten)]
    pub page: Page,
}

/// An endpoint to add.
#[derive(Debug, Args)]
pub struct EndpointAdd {
    /// Where callbacks go
    pub url: String,
    /// Whose events
    #[arg(long, value_name = "SLUG", conflicts_with = "ops", value_parser = words::merchant)]
    pub merchant: Option<String>,
    /// The events that belong to no merchant: chains that halt and resume
    #[arg(long)]
    pub ops: bool,
    /// Only these types, such as credit.created,deposit.*; may be repeated [default: all]
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    pub types: Vec<String>,
    /// Sign with ed25519 (v1a) instead of a shared secret (v1)
    #[arg(long)]
    pub ed25519: bool,
}

/// One endpoint, and why.
#[derive(Debug, Args)]
pub struct EndpointRepair {
    /// The endpoint: ep_...
    pub id: String,
    #[command(flatten)]
    /// Reason and `--apply`.
    pub repair: Repair,
}

/// Callbacks.
#[derive(Debug, Subcommand)]
pub enum Callbacks {
    /// List callbacks, newest first
    #[command(after_help = "\
Examples:
  creditd callbacks list --state parked
  creditd callbacks list --endpoint ep_1f3c... --json")]
    List(CallbackFilter),
    /// One event: its body and every attempt
    Show {
        /// The event: evt_...
        event: String,
    },
    /// Send now what waits or was given up, with the same id and body
    #[command(after_help = "\
An event goes to every endpoint where it waits for its next attempt or is parked; with --endpoint to that \
one, delivered there or not. --endpoint alone: everything that it has not got. A receiver that has seen an \
id before does nothing.

Examples:
  creditd callbacks retry evt_1f3c... --reason mended --apply
  creditd callbacks retry --endpoint ep_1f3c... --reason mended --apply
  creditd callbacks retry --endpoint ep_1f3c... --parked --reason mended --apply")]
    Retry(CallbackRetry),
}

/// What is sent again, and why.
#[derive(Debug, Args)]
pub struct CallbackRetry {
    /// The event: evt_...
    #[arg(required_unless_present = "endpoint")]
    pub event: Option<String>,
    /// Only to this endpoint; without an event everything that it has not got
    #[arg(long, value_name = "ID")]
    pub endpoint: Option<String>,
    /// With --endpoint alone: only what was given up
    #[arg(long, requires = "endpoint", conflicts_with = "event")]
    pub parked: bool,
    /// Reason and `--apply`.
    #[command(flatten)]
    pub repair: Repair,
}

/// A filtered page of callbacks.
#[derive(Debug, Args)]
pub struct CallbackFilter {
    /// Only to this endpoint
    #[arg(long, value_name = "ID")]
    pub endpoint: Option<String>,
    /// Only in this state
    #[arg(long)]
    pub state: Option<DeliveryState>,
    /// The page.
    #[command(flatten)]
    pub page: Page,
}

/// The states of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeliveryState {
    /// For its next attempt.
    Waiting,
    /// On its way.
    Leased,
    /// Answered with 2xx.
    Delivered,
    /// Given up after the last attempt; can be retried.
    Parked,
}

impl DeliveryState {
    /// The word in the database.
    pub fn word(self) -> &'static str {
        match self {
            DeliveryState::Waiting => "waiting",
            DeliveryState::Leased => "leased",
            DeliveryState::Delivered => "delivered",
            DeliveryState::Parked => "parked",
        }
    }
}
