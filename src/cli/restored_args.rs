//! The words of `restored`.

use super::words;
use clap::Args;

/// What the help ends with.
pub const RESTORED: &str = "\
Without --reason it only reports. Declare a restore before the daemon is started on the backup: what \
was handed out since is then watched before any block is read. Without --apply it only says what it \
would do, and declared twice it is begun once.

Examples:
  creditd restored
  creditd restored --reason 'the backup of 31 January, on a new machine'
  creditd restored --reason 'the backup of 31 January, on a new machine' --apply
  creditd restored --leave-out shop --reason 'that wallet is gone' --apply

Exit code 1: a restore is under way.";

/// Report, or declare.
#[derive(Debug, Args)]
pub struct Restored {
    /// Declare that a backup was restored; why, for the audit (one line of at most 500 characters)
    #[arg(long, value_name = "TEXT", value_parser = words::reason)]
    pub reason: Option<String>,
    /// Do it; without this it is only shown what would be done
    #[arg(long, requires = "reason")]
    pub apply: bool,
    /// At most so many addresses of each pool were handed out since the backup [default: its size]
    #[arg(long, value_name = "N", requires = "reason",
          value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub addresses: Option<u32>,
    /// A restore was declared before in this database, and another one is meant
    #[arg(long, requires = "reason")]
    pub again: bool,
    /// Go on without watching the addresses of this pool (as the report names it), which nobody has any more
    #[arg(long, value_name = "POOL", requires = "reason", conflicts_with_all = ["addresses", "again"])]
    pub leave_out: Option<String>,
}
