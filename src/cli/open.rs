//! From the command line's words to the config, the database and its chains.

use super::Problem;
use super::args::{ChainArg, Page};
use crate::address;
use crate::clock::Clock;
use crate::config::{BitcoinChain, Config};
use crate::rules::{ChainId, Script};
use crate::store::report;
use crate::store::{ChainKey, ChainRow, Database, OpenMode, ReadTx, StoreError};
use anyhow::Context as _;
use std::path::Path;

/// Opens the config's database for reading.
pub(super) fn reader(config: &Config) -> anyhow::Result<Database> {
    open(&config.database, OpenMode::ReadOnly)
}

/// Opens the config's database for writing; it must be there.
pub(super) fn writer(config: &Config) -> anyhow::Result<Database> {
    open(&config.database, OpenMode::Write)
}

/// Opens the config's database for writing and makes it where there is none yet, as the daemon would.
pub(super) fn maker(config: &Config) -> anyhow::Result<Database> {
    match Database::open(&config.database, OpenMode::Write) {
        Err(StoreError::Missing(_)) => {}
        other => return other.with_context(|| doing(&config.database)),
    }
    match Database::open(&config.database, OpenMode::Daemon) {
        Ok(made) => made.close()?,
        // A daemon has just started and makes it.
        Err(StoreError::Locked { .. }) => {}
        Err(error) => return Err(error).with_context(|| doing(&config.database)),
    }
    writer(config)
}

fn open(path: &Path, mode: OpenMode) -> anyhow::Result<Database> {
    Database::open(path, mode).with_context(|| doing(path))
}

fn doing(path: &Path) -> String {
    format!("open the database {}", path.display())
}

/// The time of a command's writes.
pub(super) fn now_ms() -> i64 {
    Clock::real().now_ms()
}

/// The chain that is meant: the named one, or the only one.
pub(super) fn chosen<'c>(config: &'c Config, arg: &ChainArg) -> anyhow::Result<&'c BitcoinChain> {
    let aliases = || -> Vec<&str> { config.bitcoin.iter().map(|chain| chain.alias.as_str()).collect() };
    match (&arg.chain, config.bitcoin.as_slice()) {
        (Some(alias), _) => config.chain(alias).ok_or_else(|| {
            let next = format!("--chain with one of {}", aliases().join(", "));
            Problem::misuse(format!("the config has no chain {alias}"), next).into()
        }),
        (None, [chain]) => Ok(chain),
        (None, _) => {
            let next = format!("--chain with one of {}", aliases().join(", "));
            Err(Problem::misuse("which chain?", next).into())
        }
    }
}

/// The problem of a chain that the config names and the database does not know.
pub(super) fn never_followed(alias: &str) -> Problem {
    Problem::found(
        format!("{alias} was never followed and has no address"),
        "`creditd run` follows it, `creditd watch add` gives it an address",
    )
}

/// The script of an address that was typed.
pub(super) fn script(chain: &BitcoinChain, text: &str) -> Result<Script, Problem> {
    address::parse(chain.network, text).map_err(|error| {
        let (alias, network) = (&chain.alias, chain.network.name());
        let next =
            format!("give an address as the payer sees it; the config says that {alias} is on {network}");
        Problem::misuse(format!("read the address {text}: {error}"), next)
    })
}

/// The chains of a database, to give their names to what lists show.
pub(super) struct Chains(Vec<ChainRow>);

impl Chains {
    pub(super) fn read(tx: &ReadTx<'_>) -> Result<Chains, StoreError> {
        tx.chains().map(Chains)
    }

    /// The filter for a list; an absent `--chain` means all of them.
    pub(super) fn filter(&self, config: &Config, arg: &ChainArg) -> anyhow::Result<Option<ChainKey>> {
        if arg.chain.is_none() {
            return Ok(None);
        }
        let chain = chosen(config, arg)?;
        let known = self.0.iter().find(|row| row.id == chain.chain);
        let known = known.ok_or_else(|| never_followed(&chain.alias))?;
        Ok(Some(known.key))
    }

    /// The identities of all chains.
    pub(super) fn ids(&self) -> impl Iterator<Item = &ChainId> {
        self.0.iter().map(|row| &row.id)
    }

    fn row(&self, key: ChainKey) -> Option<&ChainRow> {
        self.0.iter().find(|row| row.key == key)
    }

    pub(super) fn alias(&self, key: ChainKey) -> &str {
        self.row(key).map_or("?", |row| &row.alias)
    }

    /// Our tip of a chain.
    pub(super) fn tip(&self, key: ChainKey) -> Option<u64> {
        self.row(key)?.cursor.map(|tip| tip.height)
    }

    pub(super) fn address(&self, key: ChainKey, script: &Script) -> String {
        self.row(key).map_or_else(String::new, |row| printed(row, script))
    }
}

/// A script's address, or its bytes where it has none.
pub(super) fn printed(chain: &ChainRow, script: &Script) -> String {
    address::print_on(&chain.id, chain.genesis.as_ref(), script)
        .unwrap_or_else(|| const_hex::encode(&script.0))
}

/// Rows of a page where none are asked for.
const PAGE_ROWS: u32 = 100;

/// A page of a list as the store wants it.
pub(super) fn page(page: &Page) -> report::Page {
    report::Page {
        after: page.after,
        limit: page.limit.unwrap_or(PAGE_ROWS),
    }
}
