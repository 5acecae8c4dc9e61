//! The words of `inbox`.

use super::args::{Page, Repair};
use clap::{Args, Subcommand, ValueEnum};

/// Events that other services sent.
#[derive(Debug, Subcommand)]
pub enum InboxCommand {
    /// List them, newest first
    #[command(after_help = "\
A parked event did nothing, and is tried again on your word alone. An event that came again with \
another content is listed by --set-aside: one of the two is false.

Examples:
  creditd inbox list --state parked
  creditd inbox list --source gateway --json")]
    List(InboxList),
    /// One event, with its body and all that came of it
    #[command(after_help = "\
Example:
  creditd inbox show in_1f3c...")]
    Show {
        /// The event: in_... (at least 4 digits)
        id: String,
    },
    /// Give a parked event another turn
    #[command(after_help = "\
Without --apply it only says what it would do. What it does, it does once, however often it is \
tried.

Example:
  creditd inbox retry in_1f3c... --reason 'config corrected' --apply")]
    Retry {
        /// The event: in_... (at least 4 digits)
        id: String,
        /// Reason and `--apply`.
        #[command(flatten)]
        repair: Repair,
    },
}

/// Which of them.
#[derive(Debug, Args)]
pub struct InboxList {
    /// Only of this source
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// Only where they stand so
    #[arg(long)]
    pub state: Option<InboxState>,
    /// Only those that came again with another content
    #[arg(long)]
    pub set_aside: bool,
    /// The page.
    #[command(flatten)]
    pub page: Page,
    /// Comma-separated values with a header line; what a spreadsheet would run gets a ' in front
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// Where an event stands.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum InboxState {
    /// It will be tried.
    Waiting,
    /// It did what it does.
    Done,
    /// It did nothing, and nobody tries it again.
    Parked,
}

impl InboxState {
    /// The word in the database.
    pub fn word(self) -> &'static str {
        match self {
            InboxState::Waiting => "waiting",
            InboxState::Done => "done",
            InboxState::Parked => "parked",
        }
    }
}
