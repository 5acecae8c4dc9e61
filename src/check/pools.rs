//! How the pools stand that addresses are handed out of: those of the config, and what the database has under
//! names that the config does not have.

use super::{Line, Verdict, line};
use crate::address::Derivation;
use crate::chain::bitcoin::BitcoinSource;
use crate::config::{AddressSource, Config, Scope, SourceFrom};
use crate::egress::Dial;
use crate::rules::ChainId;
use crate::store::{Database, OpenMode, SourceRow};
use crate::telemetry::error_line;

/// How a pool stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// As many addresses are ready as it should have.
    Full,
    /// Fewer are.
    Filling,
    /// None is.
    Empty,
    /// Named since the daemon started: it is taken up at the next start.
    New,
    /// The config has other addresses under its name than before.
    Differs,
    /// What the config says of it cannot be used.
    Unusable,
    /// The config does not name it any more.
    Unlisted,
}

impl PoolState {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            PoolState::Full => "full",
            PoolState::Filling => "filling",
            PoolState::Empty => "empty",
            PoolState::New => "new",
            PoolState::Differs => "differs",
            PoolState::Unusable => "unusable",
            PoolState::Unlisted => "unlisted",
        }
    }

    /// Does it hand out nothing, though the config names it and a daemon knows it?
    pub fn is_bad(self) -> bool {
        match self {
            PoolState::Empty | PoolState::Differs | PoolState::Unusable => true,
            PoolState::Full | PoolState::Filling | PoolState::New | PoolState::Unlisted => false,
        }
    }
}

/// A pool.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// `evm`, or the identity of the chain.
    pub scope: String,
    /// Whose only.
    pub merchant: Option<String>,
    /// How many should be ready.
    pub size: u64,
    /// How it stands.
    pub state: PoolState,
    /// What is wrong with it, if anything is.
    pub trouble: Option<String>,
    /// What the database has of it, if it knows it.
    pub row: Option<SourceRow>,
}

/// Those of the config in its order, then those that it does not name.
pub fn pools(config: &Config, mut rows: Vec<SourceRow>) -> Vec<Pool> {
    let mut all = Vec::new();
    for source in &config.addresses {
        let is_its = |row: &SourceRow| row.is_current && row.name == source.name;
        let row = rows.iter().position(is_its).map(|place| rows.remove(place));
        all.push(of_config(source, row));
    }
    all.extend(rows.into_iter().map(|row| of_row(row, PoolState::Unlisted)));
    all
}

fn of_config(source: &AddressSource, row: Option<SourceRow>) -> Pool {
    let pool = match (source.pin(), row) {
        (Ok(pin), Some(row)) if row.pin == pin => {
            let state = match (row.is_listed, row.free) {
                (false, _) => PoolState::New,
                (true, 0) => PoolState::Empty,
                (true, free) if free < row.pool_size => PoolState::Filling,
                (true, _) => PoolState::Full,
            };
            of_row(row, state)
        }
        (Ok(_), Some(row)) => Pool {
            trouble: Some(format!(
                "the name stands for other addresses: `creditd addresses repin {}`",
                source.name
            )),
            ..of_row(row, PoolState::Differs)
        },
        (Ok(_), None) => unknown(source, PoolState::New, None),
        (Err(error), _) => unknown(source, PoolState::Unusable, Some(error_line(&error))),
    };
    Pool {
        scope: source.scope.word(),
        merchant: source.merchant.clone(),
        ..pool
    }
}

fn of_row(row: SourceRow, state: PoolState) -> Pool {
    Pool {
        name: row.name.clone(),
        scope: row.scope.clone(),
        merchant: row.merchant.clone(),
        size: row.pool_size,
        state,
        trouble: Some(row.trouble.clone()).filter(|trouble| !trouble.is_empty()),
        row: Some(row),
    }
}

fn unknown(source: &AddressSource, state: PoolState, trouble: Option<String>) -> Pool {
    Pool {
        name: source.name.clone(),
        scope: String::new(),
        merchant: None,
        size: u64::from(source.pool_size),
        state,
        trouble,
        row: None,
    }
}

/// The pools whose addresses a node of the chain has to derive, too.
pub(super) fn derived<'c>(config: &'c Config, chain: &ChainId) -> Vec<(&'c str, &'c Derivation)> {
    let of_chain = |source: &'c AddressSource| match (&source.scope, &source.from) {
        (Scope::Bitcoin { chain: own, .. }, SourceFrom::Derived(derivation)) if own == chain => {
            Some((source.name.as_str(), derivation))
        }
        (Scope::Bitcoin { .. } | Scope::Evm, SourceFrom::Derived(_) | SourceFrom::List(_)) => None,
    };
    config.addresses.iter().filter_map(of_chain).collect()
}

/// A line where the node does not derive what creditd does: the pool would not be filled again.
pub(super) async fn derive_line<D: Dial>(
    source: &BitcoinSource<D>,
    name: &str,
    derivation: &Derivation,
) -> Option<Line> {
    let (why, next) = match source.derive(&derivation.text(), 0, 1).await {
        Ok(theirs) if theirs == derivation.scripts(0, 1) => return None,
        Ok(_) => (
            "the node derives other addresses than creditd".to_owned(),
            "keep both and report it",
        ),
        Err(error) => (
            format!("the node does not derive them: {}", error_line(&error)),
            "allow `deriveaddresses` in the node's rpcwhitelist, or take a node that has the call; if it did \
             not answer, ask again",
        ),
    };
    let found = format!("{name} cannot be filled with addresses: {why}");
    Some(line("addresses", Verdict::Bad, found, next))
}

/// A line for each pool that the config names.
pub(super) fn lines(config: &Config) -> Vec<Line> {
    if config.addresses.is_empty() {
        return Vec::new();
    }
    // Whether the database can be read has its own line.
    let database = Database::open(&config.database, OpenMode::ReadOnly).ok();
    let rows = database.and_then(|database| database.read(|tx| tx.address_sources()).ok());
    let pools = pools(config, rows.unwrap_or_default()).into_iter();
    pools
        .filter(|pool| pool.state != PoolState::Unlisted)
        .map(|pool| {
            let (free, name) = (pool.row.as_ref().map_or(0, |row| row.free), &pool.name);
            let why = pool.trouble.map(|text| format!(": {text}")).unwrap_or_default();
            let (verdict, found, next) = match pool.state {
                PoolState::Full | PoolState::Filling | PoolState::Unlisted => {
                    let found = format!("{name} has {free} of {} addresses ready{why}", pool.size);
                    (Verdict::Good, found, "".to_owned())
                }
                PoolState::New => {
                    let found = format!("{name} is taken up at the next start of the daemon");
                    (Verdict::Good, found, "".to_owned())
                }
                PoolState::Empty => (
                    Verdict::Warning,
                    format!("{name} hands out no addresses now{why}"),
                    "`creditd addresses status`; a running daemon fills it as soon as it can".to_owned(),
                ),
                PoolState::Differs => (
                    Verdict::Bad,
                    format!(
                        "{name} hands out no addresses: the config has others under this name than before"
                    ),
                    format!("if that is meant: `creditd addresses repin {name}`"),
                ),
                PoolState::Unusable => (
                    Verdict::Bad,
                    format!("{name} hands out no addresses{why}"),
                    format!("correct [[addresses]] {name} in the config"),
                ),
            };
            line("addresses", verdict, found, next)
        })
        .collect()
}
