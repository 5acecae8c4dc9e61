//! What can be typed about the drill.

use clap::Args;
use std::path::PathBuf;

/// How the drill goes about it.
#[derive(Debug, Args)]
pub struct Drill {
    /// Where the copy is made [default: the folder of the backups, else that of the database]
    #[arg(long)]
    pub folder: Option<PathBuf>,
}
