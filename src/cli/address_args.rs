//! The words of `addresses`.

use super::args::Repair;
use clap::{Args, Subcommand};

/// Addresses to hand out.
#[derive(Debug, Subcommand)]
pub enum Addresses {
    /// Show the pools that addresses are handed out of
    #[command(after_help = "\
A pool is filled by the daemon, with addresses that creditd and the node derive alike. Exit code 1: \
a pool hands out nothing.

Examples:
  creditd addresses status
  creditd addresses status --json")]
    Status,
    /// Let a name of the config stand for other addresses than before
    #[command(after_help = "\
Without --apply it only says what it would do. Addresses that were handed out before stay watched, \
and none is handed out twice should the name go back to them.

Example:
  creditd addresses repin shop --reason 'new wallet since March' --apply")]
    Repin(Repin),
}

/// Which name.
#[derive(Debug, Args)]
pub struct Repin {
    /// The name that the config has for them
    pub name: String,
    /// Reason and `--apply`.
    #[command(flatten)]
    pub repair: Repair,
}
