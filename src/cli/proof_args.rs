//! What can be typed about proofs.

use crate::audit::proof;
use crate::rules::{BlockHash, ChainId, Work};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Below the options of `proof`.
pub const PROOF: &str = "\
Exit codes: 0 it is proved, 1 there is no proof or only a node's word, 2 no node answers or has all of it \
now.

Examples:
  creditd proof cr_1f3c... > payment.json
  creditd proof cr_1f3c... --blocks 6 > payment.json
  creditd proof verify payment.json";

/// Below the options of `proof verify`.
pub const VERIFY: &str = "\
Needs no config, no database and no network. A good file does not say whether its branch is the best one \
today, nor whether the credit was reversed since, and whoever made it chose the chain: look at the first \
line, or say --chain.

`included` alone costs nobody anything: it says that the payment is in a block of that hash, not that the \
block is on the chain. `worked` says what a forgery would have cost, `anchored` that a block that you know \
vouches for it.

Exit codes: 0 it shows what is required, 1 it does not, 2 it cannot be read.

Examples:
  creditd proof cr_1f3c... | creditd proof verify -
  creditd proof verify payment.json --require worked --blocks 6 --hashes 3e24
  creditd proof verify payment.json --chain eip155:1";

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
    /// Bitcoin: with at least so many blocks, the payment's own counted [default: those that made it due]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=2_016))]
    pub blocks: Option<u64>,
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
    /// The file that `creditd proof` printed; `-` is what comes in
    pub file: PathBuf,
    /// What it has to show
    #[arg(long, value_enum, default_value = "included")]
    pub require: Required,
    /// The chain that it has to be of, as in `chain_id` of the file
    #[arg(long, value_name = "ID", value_parser = chain)]
    pub chain: Option<ChainId>,
    /// Asks for `anchored`: a block that you know to be on the chain, from somebody that you trust; may be
    /// given again
    #[arg(long, value_name = "HASH", value_parser = block_hash)]
    pub trust: Vec<BlockHash>,
    /// Asks for `worked`: at least so many blocks, the payment's own counted [default: 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=2_016))]
    pub blocks: Option<u64>,
    /// Asks for `worked`: at least so many hashes in all, as 3900 or 3.9e24 [default: on Bitcoin's main chain
    /// 1e23 for each block, elsewhere none]
    #[arg(long, value_name = "HASHES", value_parser = hashes)]
    pub hashes: Option<Work>,
}

/// What a file has to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Required {
    /// The payment is in the block that it names
    Included,
    /// And so many blocks (--blocks), that block the first, took so many hashes (--hashes)
    Worked,
    /// And a block that is trusted vouches for that one
    Anchored,
    /// By hashes alone: the same as `included`
    Proved,
}

fn hashes(text: &str) -> Result<Work, String> {
    proof::work_of_words(text).ok_or_else(|| "a number such as 3900 or 3.9e24".to_owned())
}

fn chain(text: &str) -> Result<ChainId, String> {
    proof::chain(text).map_err(str::to_owned)
}

fn block_hash(text: &str) -> Result<BlockHash, String> {
    BlockHash::from_typed(text).ok_or_else(|| "64 hex digits, with 0x in front or without".to_owned())
}
