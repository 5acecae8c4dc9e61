//! What can be typed about the audit.

use clap::Args;
use std::path::PathBuf;

/// Below the options of `audit`.
pub const AUDIT: &str = "\
Without --books and --unspent it asks the books, every credit, and each block that was not read \
before. Ctrl-C, SIGTERM or SIGHUP stops it, and the next one goes on there. docs/audit.md says what \
each finding means.

Exit codes: 0 all of it is proven, 1 something does not agree, 2 it could not run, or something \
could not be proven and nothing was found.

Examples:
  creditd audit
  creditd audit --chain btc --from 840000
  creditd audit --unspent";

/// What is to be asked.
#[derive(Debug, Args)]
pub struct Audit {
    /// Only this chain, by its alias
    #[arg(long, value_name = "ALIAS")]
    pub chain: Option<String>,
    /// Only the books, of themselves: no node is asked
    #[arg(long, conflicts_with_all = ["unspent", "from", "again", "chain"])]
    pub books: bool,
    /// Also all unspent coins of watched addresses, from a Bitcoin node's own set: a minute or more
    #[arg(long)]
    pub unspent: bool,
    /// Read the blocks from this height on, whether they were read before or not
    #[arg(long, value_name = "HEIGHT")]
    pub from: Option<u64>,
    /// Ask everything, whether it was asked before or not
    #[arg(long)]
    pub again: bool,
    /// Ask for no more blocks in a second [default: as many as the node gives]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub blocks_per_second: Option<u32>,
    /// Stop after so long; the next one goes on there
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub minutes: Option<u64>,
    /// End with 0 where something could not be proven and nothing was found
    #[arg(long)]
    pub allow_unproven: bool,
    /// Also write the answer in JSON to this file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}
