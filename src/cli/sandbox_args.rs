//! What can be typed about simulated nodes.

use clap::Args;
use std::path::PathBuf;

/// Below the options of `sandbox`.
pub const SANDBOX: &str = "\
Nothing of it is kept: a new start is a new chain.

Example:
  creditd sandbox --folder /tmp/nodes";

/// Below the options of `trigger`.
pub const TRIGGER: &str = "\
Exit codes: 0 it has happened, 1 the sandbox refused, 2 none answers.

Example:
  creditd trigger mine";

/// Where simulated nodes are started.
#[derive(Debug, Args)]
pub struct Sandbox {
    /// Where the file to log in with goes
    #[arg(long, value_name = "DIR", default_value = "creditd-sandbox")]
    pub folder: PathBuf,
}

/// What is to happen.
#[derive(Debug, Args)]
pub struct Trigger {
    /// Where the sandbox listens
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:18555")]
    pub sandbox: std::net::SocketAddr,
    /// What, in words
    #[arg(required = true, num_args = 1.., value_name = "WORD")]
    pub words: Vec<String>,
}
