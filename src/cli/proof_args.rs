//! What can be typed about proofs.

use crate::rules::BlockHash;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Below the options of `proof`.
pub const PROOF: &str = "\
Exit codes: 0 it is proved, 1 there is no proof or only a node's word, 2 it could not be asked.

Examples:
  creditd proof cr_1f3c... > payment.json
  creditd proof verify payment.json";

/// Below the options of `proof verify`.
pub const VERIFY: &str = "\
Needs no config, no database and no network. A good file does not say whether its branch is the best one
today, nor whether the credit was reversed since.

Exit codes: 0 it shows what is required, 1 it does not, 2 it cannot be read.

Example:
  creditd proof verify payment.json --require anchored";

/// Which proof.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Proof {
    /// The credit: cr_... (at least 4 digits)
    #[arg(required = true)]
    pub credit: Option<String>,
    /// Bitcoin: with the headers from the next lower block that everybody knows
    #[arg(long)]
    pub from_checkpoint: bool,
    /// What to do with a proof
    #[command(subcommand)]
    pub command: Option<ProofCommand>,
}

/// What can be done with a proof.
#[derive(Debug, Subcommand)]
pub enum ProofCommand {
    /// Hold a file against what it claims
    #[command(after_help = VERIFY)]
    Verify(Verify),
}

/// Which file, and what it has to show.
#[derive(Debug, Args)]
pub struct Verify {
    /// The file that `creditd proof` printed
    pub file: PathBuf,
    /// What it has to show
    #[arg(long, value_enum, default_value = "included")]
    pub require: Required,
    /// A block that you know to be on the chain, from somebody that you trust; may be given again
    #[arg(long, value_name = "HASH", value_parser = block_hash)]
    pub trust: Vec<BlockHash>,
}

/// What a file has to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Required {
    /// The payment is in the block that it names
    Included,
    /// And work was done on top of it
    Worked,
    /// And a block that is trusted vouches for that one
    Anchored,
    /// By hashes alone: the same as `included`
    Proved,
}

fn block_hash(text: &str) -> Result<BlockHash, String> {
    BlockHash::from_typed(text).ok_or_else(|| "64 hex digits, with 0x in front or without".to_owned())
}
