//! What can be typed about the audit.

use clap::Args;

/// Below the options of `audit`.
pub const AUDIT: &str = "\
Exit codes: 0 all of it is right, 1 something is not, 2 it could not be asked.

Example:
  creditd audit";

/// What is to be asked.
#[derive(Debug, Args)]
pub struct Audit {}
