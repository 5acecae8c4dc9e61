//! What can be typed about watched addresses and balances.

use super::args::{ChainArg, Page};
use super::words;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Which balances.
#[derive(Debug, Args)]
pub struct Balances {
    /// Only this merchant
    #[arg(long, value_name = "SLUG")]
    pub merchant: Option<String>,
    /// Only this asset: a symbol, a token's contract or a CAIP-19 id
    #[arg(long)]
    pub asset: Option<String>,
    /// Comma-separated values with a header line; what a spreadsheet would run gets a ' in front
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// Watched addresses.
#[derive(Debug, Subcommand)]
pub enum Watch {
    /// Watch an address: payments to it are deposits of the merchant
    #[command(after_help = "\
Works before the daemon's first start and while it runs. Payments count from the next block on; \
for older ones see `creditd rescan --help`. Watching the same address again changes nothing.

Example:
  creditd watch add bc1q... --merchant shop --reference order-1

With several chains in the config, say on which one; the same address may be watched on each:
  creditd watch add 0x5aAe... --chain eth --merchant shop")]
    Add(Watched),

    /// Declare an address the merchant's own: moves between own addresses are not payments
    Own(Watched),

    /// List addresses
    List {
        #[command(flatten)]
        chain: ChainArg,
        #[command(flatten)]
        page: Page,
        /// Only this merchant
        #[arg(long, value_name = "SLUG")]
        merchant: Option<String>,
        /// Only this address
        #[arg(long)]
        address: Option<String>,
        /// Only addresses with this reference
        #[arg(long, value_name = "TEXT")]
        reference: Option<String>,
    },

    /// Watch many addresses, one per line
    #[command(after_help = "\
A line is an address, or address,merchant, or address,merchant,reference. A header line may name these \
columns in another order. The separator is a comma. \
Lines with faults are listed by number and the others are taken. Running it again changes nothing.

Examples:
  creditd watch import addresses.txt --merchant shop
  zcat addresses.csv.gz | creditd watch import -")]
    Import {
        /// The file, or - for stdin
        file: PathBuf,
        /// The merchant of lines that name none
        #[arg(long, value_name = "SLUG", value_parser = words::merchant)]
        merchant: Option<String>,
        /// Declare them the merchant's own addresses instead
        #[arg(long)]
        own: bool,
        #[command(flatten)]
        chain: ChainArg,
    },
}

/// One address to watch.
#[derive(Debug, Args)]
pub struct Watched {
    /// The address
    pub address: String,
    /// Whose it is; made at the first use
    #[arg(long, value_name = "SLUG", value_parser = words::merchant)]
    pub merchant: String,
    /// What it is for, in your words (at most 200 characters)
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = words::reference)]
    pub reference: String,
    #[command(flatten)]
    /// The chain.
    pub chain: ChainArg,
}
