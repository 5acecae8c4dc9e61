//! What can be typed about the drill.

use clap::{Args, value_parser};
use std::path::PathBuf;

/// Below the options of `drill`.
pub const DRILL: &str = "\
It runs beside the daemon, as its account, and takes twice the size of the database while it does. \
docs/drill.md says what is fed, and how to have it done every night.

Examples:
  creditd drill
  creditd drill --days 30 --report drill.json
  creditd drill --from-backup /var/backups/creditd/creditd-2026-11-29.db

Exit codes: 0 nothing changed, 1 something would have or a property of the books does not hold, 2 it could \
not run, or not everything could be fed.";

/// How the drill goes about it.
#[derive(Debug, Args)]
pub struct Drill {
    /// What came in so many days is fed again
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = value_parser!(u32).range(1..=3_650))]
    pub days: u32,
    /// So many times
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = value_parser!(u32).range(1..=100))]
    pub passes: u32,
    /// The blocks and mempool lists of this chain alone
    #[arg(long, value_name = "ALIAS")]
    pub chain: Option<String>,
    /// Where the copy is made [default: the folder of the backups, else that of the database]
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// Drill this backup: restore it in the copy up to the nodes' tips, say what that does, then feed
    #[arg(long, value_name = "FILE")]
    pub from_backup: Option<PathBuf>,
    /// Leave the copy there: it is as confidential as a backup
    #[arg(long)]
    pub keep: bool,
    /// Feed what needs no node: no blocks, no mempool lists
    #[arg(long)]
    pub without_nodes: bool,
    /// Write the whole report to this file too, in JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}
