//! The words of `merchant` and `key`.

use super::args::Repair;
use super::words;
use crate::rules::api_key::Scope;
use clap::{Args, Subcommand};

/// Merchants.
#[derive(Debug, Subcommand)]
pub enum Merchants {
    /// Make a merchant
    #[command(after_help = "\
A merchant that is there already stays as it is.

Example:
  creditd merchant add shop")]
    Add {
        /// Its name: 1 to 32 of a-z, 0-9 and -
        #[arg(value_parser = words::merchant)]
        slug: String,
    },
    /// List merchants
    List,
}

/// API keys.
#[derive(Debug, Subcommand)]
pub enum Keys {
    /// Make a key for a merchant's programs; it is shown once, here
    #[command(after_help = "\
To replace a key, make a second one of the same name (two live at a time), change the program over, \
then revoke the first.

With --idempotency-key the answer is kept in the database for `[api] idempotency_days`, the key in it \
included, and shown again.

Scopes: invoice:write, invoice:read, endpoint:manage, events:read, inbox:write, or all of these with \
`all`. An operator's key (--ops) has ops:read, and with events:read the events of operators.

Examples:
  creditd key create --merchant shop --name web --scopes invoice:write
  creditd key create --merchant shop --name web --scopes all --expires-days 365
  creditd key create --ops --name dashboard --scopes ops:read,events:read")]
    Create(KeyCreate),
    /// List keys, never their secrets
    List,
    /// End a key at once
    #[command(after_help = "\
Example:
  creditd key revoke key_1f3c... --reason 'replaced' --apply")]
    Revoke {
        /// The key: key_... (at least 4 digits)
        id: String,
        /// The reason, and whether to do it
        #[command(flatten)]
        repair: Repair,
    },
}

/// A key to make.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("owner").required(true).args(["merchant", "ops"])))]
pub struct KeyCreate {
    /// Whose: `creditd merchant add` makes merchants
    #[arg(long, value_name = "SLUG", value_parser = words::merchant)]
    pub merchant: Option<String>,
    /// An operator's, who reads what every merchant has
    #[arg(long)]
    pub ops: bool,
    /// What it is used by: 1 to 32 of a-z, 0-9 and -
    #[arg(long, value_name = "NAME", value_parser = words::key_name)]
    pub name: String,
    /// What for, separated by commas
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', required = true, value_parser = scopes)]
    pub scopes: Vec<Scopes>,
    /// It ends by itself after so many days [default: never]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub expires_days: Option<u32>,
}

/// A word of `--scopes`.
#[derive(Clone, Copy, Debug)]
pub enum Scopes {
    /// One of them.
    One(Scope),
    /// All that a merchant's key may have.
    All,
}

fn scopes(word: &str) -> Result<Scopes, String> {
    if word == "all" {
        return Ok(Scopes::All);
    }
    Scope::from_word(word).map(Scopes::One).ok_or_else(|| {
        let words: Vec<&str> = Scope::ALL.iter().map(|scope| scope.word()).collect();
        format!("a scope is one of {}, or all", words.join(", "))
    })
}
