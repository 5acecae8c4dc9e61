//! The words of `unattributed`.

use super::args::{ChainArg, Page, Repair};
use clap::{Args, Subcommand};

/// Unattributed amounts.
#[derive(Debug, Subcommand)]
pub enum Unattributed {
    /// List them, newest first
    #[command(after_help = "\
An amount came to the address in one of the blocks after the first height and up to the second; it \
is what the balance has more than every recorded payment explains. Nothing was credited for it.

Examples:
  creditd unattributed list --open
  creditd unattributed list --merchant shop --json")]
    List(UnattributedList),
    /// Close one, once you know what it was; nobody is credited by it
    #[command(after_help = "\
Without --apply it only says what it would do. A payment that creditd should credit is found by \
reading the blocks again with call traces (docs/operations.md has the steps); close the amount as \
its outpoint then.

Examples:
  creditd unattributed close un_1f3c... --not-a-payment --reason reward --apply
  creditd unattributed close un_1f3c... --outpoint 0x5aef...:4294967296 \\
    --reason 'booked by hand'")]
    Close(UnattributedClose),
}

/// Which of them.
#[derive(Debug, Args)]
pub struct UnattributedList {
    /// Only open ones
    #[arg(long)]
    pub open: bool,
    /// Only this merchant
    #[arg(long, value_name = "SLUG")]
    pub merchant: Option<String>,
    /// Only this address
    #[arg(long)]
    pub address: Option<String>,
    /// The chain.
    #[command(flatten)]
    pub chain: ChainArg,
    /// The page.
    #[command(flatten)]
    pub page: Page,
    /// Comma-separated values with a header line; what a spreadsheet would run gets a ' in front
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// How one is closed.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("how").required(true).args(["outpoint", "not_a_payment"])))]
pub struct UnattributedClose {
    /// The amount: un_... (at least 4 digits)
    pub id: String,
    /// It was this payment
    #[arg(long, value_name = "TXID:VOUT")]
    pub outpoint: Option<String>,
    /// It was none: a reward, a refund, your own coin
    #[arg(long)]
    pub not_a_payment: bool,
    /// Reason and `--apply`.
    #[command(flatten)]
    pub repair: Repair,
}
