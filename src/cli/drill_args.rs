//! What can be typed about the drill.

use clap::{Args, value_parser};
use std::path::PathBuf;

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
