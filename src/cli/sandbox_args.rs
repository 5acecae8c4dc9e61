//! What can be typed about simulated nodes.

use crate::sandbox::service::{BITCOIN_PORT, CONTROL, EVM_PORT, FOLDER};
use crate::sandbox::step::On;
use clap::{Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Below the options of `sandbox`.
pub const SANDBOX: &str = "\
Nothing of the chains is kept: a new start is two new chains, and creditd needs a new database for them. \
docs/sandbox.md has the scenarios, the control over HTTP, and what the nodes can and cannot do.

Examples:
  creditd sandbox
  creditd sandbox --run double-spend.txt
  creditd sandbox --folder nodes --bitcoin 0 --evm 0 --listen 127.0.0.1:0

Exit codes: 0 ended by Ctrl-C (SIGTERM, SIGHUP), 1 a step of the scenario was refused, 2 could not start.";

/// Below the options of `trigger`.
pub const TRIGGER: &str = "\
TX is a name that was given with --as, or a transaction id: 64 hex digits, which `deposit` prints for what \
was sent without a name. TO is an address of the chain, or a label such as order-1, which stands for an \
address that nobody has the key of. Amounts are in whole units. `tags` and `fail` need --chain evm.

Examples:
  creditd trigger deposit order-1 0.29 --as first
  creditd trigger mine 3
  creditd trigger reorg 3 --keep first
  creditd trigger deposit --chain evm order-2 5 --token TUSD
  creditd trigger node --chain evm limit --for-ms 3000

Exit codes: 0 it has happened, 1 the sandbox refused, 2 none answers.";

/// Where simulated nodes are started.
#[derive(Debug, Args)]
pub struct Sandbox {
    /// For the file to log in with, a config for creditd, and sandbox.json, by which `trigger` finds it
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    pub folder: PathBuf,
    /// Where `trigger` is listened to, on loopback; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = CONTROL)]
    pub listen: SocketAddr,
    /// The port of the Bitcoin node; 0 is any that is free
    #[arg(long, value_name = "PORT", default_value_t = BITCOIN_PORT)]
    pub bitcoin: u16,
    /// The port of the EVM node; 0 is any that is free
    #[arg(long, value_name = "PORT", default_value_t = EVM_PORT)]
    pub evm: u16,
    /// Mine a block on both chains every N seconds; without it only `trigger` and scenarios do
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub block_secs: Option<u32>,
    /// Run this scenario once the nodes are up, then stay until Ctrl-C
    #[arg(long, value_name = "FILE")]
    pub run: Option<PathBuf>,
}

/// What is to happen, and where.
#[derive(Debug, Args)]
pub struct Trigger {
    /// Where the sandbox listens [default: $CREDITD_SANDBOX, then what the folder's sandbox.json says]
    #[arg(long, value_name = "URL", global = true)]
    pub sandbox: Option<String>,
    /// The folder that the sandbox was started with [default: creditd-sandbox; where there is none, the
    /// usual port]
    #[arg(long, value_name = "DIR", global = true)]
    pub folder: Option<PathBuf>,
    /// On which chain: btc or evm
    #[arg(long, value_name = "CHAIN", global = true, default_value = "btc", value_parser = on)]
    pub chain: On,
    /// What.
    #[command(subcommand)]
    pub what: What,
}

fn on(word: &str) -> Result<On, String> {
    On::of_word(word).ok_or_else(|| "there are btc and evm".to_owned())
}

/// What is to happen.
#[derive(Debug, Subcommand)]
pub enum What {
    /// Send a payment; it waits for a block
    #[command(after_help = "\
Examples:
  creditd trigger deposit order-1 0.29 --as first
  creditd trigger deposit --chain evm order-2 5 --token TUSD")]
    Deposit {
        /// An address, or a label such as order-1
        to: String,
        /// In whole units: 0.29
        #[arg(allow_negative_numbers = true)]
        amount: String,
        /// EVM: a token's symbol or contract; the chain's coin without it
        #[arg(long)]
        token: Option<String>,
        /// What the transaction is called from now on
        #[arg(long = "as", value_name = "NAME")]
        name: Option<String>,
    },
    /// Mine a rival that spends what a transaction spends; if that is in a block, by a reorg
    #[command(after_help = "\
Example:
  creditd trigger double-spend first --to elsewhere --as theft")]
    DoubleSpend(Rival),
    /// Send a rival with a higher fee, which takes the place of a transaction that waits
    #[command(after_help = "\
Example:
  creditd trigger replace first --amount 0.3 --as second")]
    Replace(Rival),
    /// Replace the last blocks by one more others; what is not kept waits again
    #[command(after_help = "\
Example:
  creditd trigger reorg 3 --keep first")]
    Reorg {
        /// How many blocks
        #[arg(allow_negative_numbers = true)]
        depth: u32,
        /// Transactions that the first new block holds; `all` is every one of the lost blocks
        #[arg(long, value_name = "TX", num_args = 1..)]
        keep: Vec<String>,
    },
    /// Drop a transaction from the mempool
    #[command(after_help = "\
Example:
  creditd trigger evict first")]
    Evict {
        /// A name that was given with --as, or a transaction id (64 hex digits)
        tx: String,
    },
    /// Send a transaction again that was dropped
    #[command(after_help = "\
Example:
  creditd trigger resend first")]
    Resend {
        /// A name that was given with --as, or a transaction id (64 hex digits)
        tx: String,
    },
    /// With --chain evm: let a transaction fail in every block to come
    #[command(after_help = "\
Example:
  creditd trigger fail --chain evm pay")]
    Fail {
        /// A name that was given with --as, or a transaction id (64 hex digits)
        tx: String,
    },
    /// Let the node forget its last blocks; with 0 it knows them again
    #[command(after_help = "\
Example:
  creditd trigger lag 2")]
    Lag {
        /// How many
        #[arg(allow_negative_numbers = true)]
        blocks: u32,
    },
    /// Mine blocks, the first with all that waits
    #[command(after_help = "\
Example:
  creditd trigger mine 3")]
    Mine {
        /// How many
        #[arg(default_value_t = 1, allow_negative_numbers = true)]
        blocks: u32,
    },
    /// With --chain evm: say where the tags stand
    #[command(after_help = "\
PLACE is 32 for so many blocks behind the tip, @120 for a height, or none: the node has no such tag.

Example:
  creditd trigger tags --chain evm --safe 32 --finalized @120")]
    Tags {
        /// Where safe stands: 32 (blocks behind the tip), @120 (a height) or none
        #[arg(long, value_name = "PLACE")]
        safe: Option<String>,
        /// Where finalized stands, likewise
        #[arg(long, value_name = "PLACE")]
        finalized: Option<String>,
    },
    /// Give the node a trouble, or take it away
    ///
    /// down: 503, as from a proxy before a node that is gone. hang: no answer. limit: 429. login: 401.
    /// warming: the node is starting. up: none of these.
    #[command(after_help = "\
Example:
  creditd trigger node --chain evm limit --for-ms 3000")]
    Node {
        /// down, hang, limit, login, warming or up
        trouble: String,
        /// For how long; without it until another is given
        #[arg(long, value_name = "MS")]
        for_ms: Option<u64>,
    },
    /// Show both chains, what waits, and the names
    State,
    /// Let a scenario go on that pauses; where none does, the next `pause` is let through
    Go,
    /// Begin both chains anew, without names and troubles
    Reset,
}

/// A rival of a transaction.
#[derive(Debug, Args)]
pub struct Rival {
    /// A name that was given with --as, or a transaction id (64 hex digits)
    pub tx: String,
    /// Whom it pays instead
    #[arg(long, value_name = "TO")]
    pub to: Option<String>,
    /// How much it pays instead
    #[arg(long, allow_negative_numbers = true)]
    pub amount: Option<String>,
    /// What it is called
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<String>,
}
