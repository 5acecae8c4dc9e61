//! What can be typed: commands, options and the help that teaches them.

use super::address_args::Addresses;
use super::audit_args::{AUDIT, Audit};
use super::callback_args::{Callbacks, Endpoints};
use super::drill_args::{DRILL, Drill};
use super::inbox_args::InboxCommand;
use super::invoice_args::Invoices;
use super::key_args::{Keys, Merchants};
use super::proof_args::{PROOF, Proof};
use super::restored_args::{RESTORED, Restored};
use super::sandbox_args::{SANDBOX, Sandbox, TRIGGER, Trigger};
use super::unattributed_args::Unattributed;
use super::watch_args::{Balances, Watch};
use super::words;
use crate::rules::HEIGHT_MAX;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Watches Bitcoin and EVM nodes and credits every payment exactly once.
#[derive(Debug, Parser)]
#[command(
    name = "creditd",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(after_help = "\
See it work, with no node at all:
  creditd demo

First steps:
  creditd init     write a commented creditd.toml, then edit it
  creditd check    are the config, the database and the node right?
  creditd watch add ADDRESS --merchant shop
  creditd run      follow the chains; stop with Ctrl-C or systemctl stop

Exit codes: 0 done, 1 found a problem, 2 could not run.")]
pub struct Cli {
    // Not clap's `env`, which has usage lines name an option that nobody typed.
    /// The config file [default: $CREDITD_CONFIG, then ./creditd.toml, then /etc/creditd/creditd.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Answer in JSON (docs/cli-json.md)
    #[arg(long, global = true)]
    pub json: bool,

    /// Change it once under this key of yours, however often this is run
    ///
    /// For commands that change something. The same command with the same key prints its first answer,
    /// secrets included, and changes nothing; with other arguments it is refused. Answers are kept for `[api]
    /// idempotency_days`. Without --apply nothing is changed and nothing kept.
    #[arg(long, global = true, value_name = "KEY")]
    pub idempotency_key: Option<String>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a commented config file
    ///
    /// Writes the default config with every key explained. An existing file is never overwritten.
    Init {
        /// Where to write it
        #[arg(default_value = "creditd.toml")]
        path: PathBuf,
    },

    /// Check the config, the database and the nodes
    ///
    /// Reads the config (every fault is listed, not only the first) and the files it names, looks at the
    /// database and its folder, and asks every node who it is and how far. Each line that is not good names
    /// the next step. Changes nothing, beside a running daemon or without one.
    Check,

    /// Follow the chains until told to stop
    #[command(after_help = "\
Logs go to stderr. One daemon per database: a second one refuses to start. \
Stop it with Ctrl-C or SIGTERM; a kill at any moment loses nothing either.")]
    Run,

    /// Watched addresses
    #[command(subcommand)]
    Watch(Watch),

    /// The whole story of one transaction
    #[command(after_help = "\
Shows each of our outputs in it: state, block, depth and what is still missing, each change with \
its cause and time, the credit with its journal, and the events.

Example:
  creditd tx 4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b")]
    Tx {
        /// The transaction id (64 hex digits, 0x or not), TXID:VOUT, or an id of a deposit or credit
        /// (dep_..., cr_...)
        txid: String,
    },

    /// Deposits: payments to watched addresses, and what became of them
    #[command(subcommand)]
    Deposits(Deposits),

    /// Credits, newest first
    #[command(after_help = "\
A credit is made once per payment and never deleted. `net` is its amount, or 0 while it is reversed.

Examples:
  creditd credits --merchant shop
  creditd credits --csv > credits.csv")]
    Credits(Listing),

    /// What each merchant has been credited, by asset
    #[command(after_help = "\
Examples:
  creditd balances
  creditd balances --merchant shop --json
  creditd balances --asset USDC")]
    Balances(Balances),

    /// The state of the chains, and what only you may decide about them
    #[command(subcommand)]
    Chain(Chain),

    /// Merchants
    #[command(subcommand)]
    Merchant(Merchants),

    /// Keys of the API: who may ask (docs/api.md)
    #[command(subcommand)]
    Key(Keys),

    /// Where callbacks go
    #[command(subcommand)]
    Endpoint(Endpoints),

    /// What was sent, what waits, what is parked
    #[command(subcommand)]
    Callbacks(Callbacks),

    /// Coin that came to watched addresses and that no recorded payment explains
    #[command(subcommand)]
    Unattributed(Unattributed),

    /// Addresses to hand out: the pools that they come from (docs/addresses.md)
    #[command(subcommand)]
    Addresses(Addresses),

    /// Events that other services sent (docs/inbox.md)
    #[command(subcommand)]
    Inbox(InboxCommand),

    /// Invoices: what merchants asked for, and what became of it
    #[command(subcommand)]
    Invoices(Invoices),

    /// What runs in the background, and how its last run ended
    #[command(after_help = "\
Jobs with a next run go by the clock; the others run as their work comes. A failed job is tried \
again by itself, after a second first and then at longer and longer pauses.")]
    Jobs,

    /// Read old blocks again
    ///
    /// The running daemon works it off beside the tip. Reading again never credits again.
    #[command(after_help = "\
A watched address counts from the block after it was added, and a token from the block after it was \
listed in the config. To find older payments, name the address, or the token by contract or symbol, \
with --backfill:

  creditd rescan --from 840000 --backfill bc1q... --reason 'old shop'
  creditd rescan --from 840000 --backfill bc1q... --reason 'old shop' --apply

A rescan of blocks that the node does not have waits for them; others have their turn meanwhile. \
--cancel ends one, and what it has found stays found:

  creditd rescan --cancel 3 --reason 'no node has those blocks' --apply")]
    Rescan(Rescan),

    /// What was done about a restored backup, and what cannot be rebuilt
    ///
    /// A daemon notices by itself that its database was replaced by a backup, as long as the high-water file
    /// is beside it. With --reason a restore is declared that it cannot notice: on another machine.
    #[command(after_help = RESTORED)]
    Restored(Restored),

    /// Copy the database while the daemon runs
    ///
    /// The copy is written under a temporary name and renamed when it is whole. Never copy the database with
    /// cp.
    #[command(after_help = "\
Example:
  creditd backup /var/backups/creditd-$(date +%F).db")]
    Backup {
        /// The new file
        file: PathBuf,
        /// Replace an earlier backup of that name, once the copy is whole
        #[arg(long)]
        replace: bool,
    },

    /// Ask the nodes and the books anew whether what was credited is right
    ///
    /// Reads what the daemon wrote, and asks the nodes in another way than the daemon does. Nothing of the
    /// books is changed, beside a running daemon or without one.
    #[command(after_help = AUDIT)]
    Audit(Audit),

    /// Proofs of credits, that others can check
    #[command(after_help = PROOF)]
    Proof(Proof),

    /// Feed a copy of the database everything again, and show what would change
    ///
    /// All of it happens in a copy: the database, the nodes and the receivers notice nothing.
    #[command(after_help = DRILL)]
    Drill(Drill),

    /// Start simulated nodes, to develop against
    #[command(after_help = SANDBOX)]
    Sandbox(Sandbox),

    /// Make something happen on the simulated nodes of `creditd sandbox`
    #[command(after_help = TRIGGER)]
    Trigger(Trigger),

    /// Show the whole job on a simulated node
    ///
    /// Needs no node, no config and no network. Payments are seen, confirmed, credited and told of; one is
    /// replaced, one is lost in a reorg and brought back, a callback comes twice, the daemon is killed and
    /// started again. At the end everything is read and sent again, and nothing has changed.
    Demo {
        /// Leave all of it up afterwards, to play with
        #[arg(long)]
        keep: bool,
    },

    /// Print a completion script for a shell
    #[command(after_help = "\
Example:
  creditd completions bash > /etc/bash_completion.d/creditd")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },

    /// Print the manual page
    #[command(after_help = "\
Example:
  creditd man > /usr/local/share/man/man1/creditd.1")]
    Man,
}

/// Deposits.
#[derive(Debug, Subcommand)]
pub enum Deposits {
    /// List deposits, newest first
    #[command(after_help = "\
Examples:
  creditd deposits list --state confirming
  creditd deposits list --held
  creditd deposits list --asset USDC --chain base
  creditd deposits list --merchant shop --json")]
    List {
        #[command(flatten)]
        listing: Listing,
        /// Only this state
        #[arg(long)]
        state: Option<StateArg>,
        /// Only held ones
        #[arg(long)]
        held: bool,
    },
    /// Keep a deposit from being credited; a credited one is reversed
    #[command(after_help = "\
Example:
  creditd deposits hold dep_1f3c... --reason 'payer asked for it back'
  creditd deposits hold dep_1f3c... --reason 'payer asked for it back' --apply")]
    Hold(DepositRepair),
    /// Let a held deposit be credited
    Release(DepositRepair),
}

/// One deposit, and why.
#[derive(Debug, Args)]
pub struct DepositRepair {
    /// The deposit: dep_... (at least 4 digits), or TXID:VOUT
    pub id: String,
    #[command(flatten)]
    /// Reason and `--apply`.
    pub repair: Repair,
}

/// The states of a deposit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the words are those of the state table")]
pub enum StateArg {
    Seen,
    Confirming,
    Credited,
    Evicted,
    Replaced,
    Orphaned,
    Failed,
}

/// Chains.
#[derive(Debug, Subcommand)]
pub enum Chain {
    /// Where each chain stands, and why it waits if it does
    Status,
    /// Accept a reorg that is deeper than the window
    #[command(after_help = "\
First without --apply: it lists what would be reversed. With --apply the daemon goes back to the \
block at that height as soon as the node is on it, and reads on from there.

Example:
  creditd chain accept-reorg --fork 840000 --reason 'the node is right' --apply")]
    AcceptReorg(AcceptReorg),
}

/// A reorg to accept.
#[derive(Debug, Args)]
pub struct AcceptReorg {
    /// The last height that both branches share
    #[arg(long, value_name = "HEIGHT", value_parser = clap::value_parser!(u64).range(..=HEIGHT_MAX))]
    pub fork: u64,
    /// The chain.
    #[command(flatten)]
    pub chain: ChainArg,
    /// Reason and `--apply`.
    #[command(flatten)]
    pub repair: Repair,
}

/// Blocks to read again.
#[derive(Debug, Args)]
pub struct Rescan {
    /// The first height to read
    #[arg(long, value_name = "HEIGHT", value_parser = clap::value_parser!(u64).range(..=HEIGHT_MAX),
          required_unless_present = "cancel")]
    pub from: Option<u64>,
    /// End this rescan instead (its number is in `creditd chain status`)
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["from", "backfill"])]
    pub cancel: Option<i64>,
    /// Let this address or token (or `all`) count from there on
    #[arg(long, value_name = "ADDRESS|TOKEN|all")]
    pub backfill: Option<String>,
    /// The chain.
    #[command(flatten)]
    pub chain: ChainArg,
    /// Reason and `--apply`.
    #[command(flatten)]
    pub repair: Repair,
}

/// Which chain.
#[derive(Clone, Debug, Args)]
pub struct ChainArg {
    /// The chain's alias [needed only where the config has several]
    #[arg(long, value_name = "ALIAS")]
    pub chain: Option<String>,
}

/// Common to everything that changes what was decided before: dry unless `--apply`, and never without a
/// reason.
#[derive(Clone, Debug, Args)]
pub struct Repair {
    /// Why; kept in the audit (one line of at most 500 characters)
    #[arg(long, value_name = "TEXT", value_parser = words::reason)]
    pub reason: String,
    /// Do it; without this it is only shown what would be done
    #[arg(long)]
    pub apply: bool,
}

/// A page of a list.
#[derive(Clone, Debug, Args)]
pub struct Page {
    /// At most so many [default: 100; with --csv all]
    #[arg(long, value_name = "N", value_parser = limit())]
    pub limit: Option<u32>,
    /// Go on after the last line of the page before: its position, as printed there
    #[arg(long, value_name = "POSITION")]
    pub after: Option<i64>,
}

/// A filtered page of deposits or credits.
#[derive(Clone, Debug, Args)]
pub struct Listing {
    /// Only this merchant
    #[arg(long, value_name = "SLUG")]
    pub merchant: Option<String>,
    /// The chain.
    #[command(flatten)]
    pub chain: ChainArg,
    /// Only payments to this address
    #[arg(long)]
    pub address: Option<String>,
    /// Only payments of this asset: a symbol, a token's contract or a CAIP-19 id
    #[arg(long)]
    pub asset: Option<String>,
    /// Only payments to addresses with this reference
    #[arg(long, value_name = "TEXT")]
    pub reference: Option<String>,
    /// Only payments of this transaction
    #[arg(long, value_name = "TXID")]
    pub txid: Option<String>,
    /// The page.
    #[command(flatten)]
    pub page: Page,
    /// Comma-separated values with a header line; what a spreadsheet would run gets a ' in front
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

fn limit() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1_000_000)
}
