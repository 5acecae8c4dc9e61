//! What can be typed about proofs.

use clap::Args;

/// Below the options of `proof`.
pub const PROOF: &str = "\
Exit codes: 0 there is a proof, 1 there is none, 2 it could not be asked.

Example:
  creditd proof cr_1f3c...";

/// Which proof.
#[derive(Debug, Args)]
pub struct Proof {
    /// The credit: cr_... (at least 4 digits)
    pub credit: String,
}
