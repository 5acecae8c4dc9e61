//! The words of `invoices`.

use super::args::{ChainArg, Page, Repair};
use clap::{Args, Subcommand, ValueEnum};

/// Invoices.
#[derive(Debug, Subcommand)]
pub enum Invoices {
    /// List them, newest first
    #[command(after_help = "\
Where money came that belongs to no order (late, in another asset, or to an invoice that is expired \
or cancelled) somebody has to look: --strayed lists those.

Examples:
  creditd invoices list --life open
  creditd invoices list --strayed
  creditd invoices list --merchant shop --json")]
    List(InvoiceList),
    /// One invoice, with every payment to its address and all that was told of it
    #[command(after_help = "\
Example:
  creditd invoices show inv_1f3c...")]
    Show {
        /// The invoice: inv_... (at least 4 digits)
        id: String,
    },
    /// Take one back: what is paid from now on is credited, and not for it
    #[command(after_help = "\
Without --apply it only says what it would do. A settled invoice stays settled.

Example:
  creditd invoices cancel inv_1f3c... --reason 'order withdrawn' --apply")]
    Cancel {
        /// The invoice: inv_... (at least 4 digits)
        id: String,
        /// Reason and `--apply`.
        #[command(flatten)]
        repair: Repair,
    },
}

/// Which of them.
#[derive(Debug, Args)]
pub struct InvoiceList {
    /// Only this merchant
    #[arg(long, value_name = "SLUG")]
    pub merchant: Option<String>,
    /// Only with this reference
    #[arg(long, value_name = "TEXT")]
    pub reference: Option<String>,
    /// Only where they stand so
    #[arg(long)]
    pub life: Option<LifeArg>,
    /// Only with so much credited
    #[arg(long)]
    pub amount_state: Option<AmountArg>,
    /// Only those with credited payments that belong to no order
    #[arg(long)]
    pub strayed: bool,
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

/// Where an invoice stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the words are those of the rules")]
pub enum LifeArg {
    Open,
    Settled,
    Expired,
    Cancelled,
}

/// How much of an invoice is credited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the words are those of the rules")]
pub enum AmountArg {
    Unpaid,
    Partial,
    Paid,
    Overpaid,
}
