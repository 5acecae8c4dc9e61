//! From the command line's words to the config, the database and its chains.

use super::Problem;
use super::args::{ChainArg, Page};
use super::once::Opened;
use crate::address::{self, AddressError, EvmAddress};
use crate::clock::Clock;
use crate::config::{ChainConfig, Config};
use crate::daemon;
use crate::rules::policy::Requirement;
use crate::rules::{ChainId, Outpoint, Script, Txid, position};
use crate::store::report;
use crate::store::{
    AssetKey, ChainKey, ChainRow, Database, KnownAsset, OpenMode, ReadTx, StoreError, WriteTx,
};
use anyhow::Context as _;
use std::path::Path;

/// Opens the config's database for reading.
pub(super) fn reader(config: &Config) -> anyhow::Result<Opened> {
    Opened::by(config, plain_reader)
}

/// Opens the config's database for writing; it must be there.
pub(super) fn writer(config: &Config) -> anyhow::Result<Opened> {
    Opened::by(config, plain_writer)
}

/// Opens the config's database for writing and makes it where there is none yet, as the daemon would.
pub(super) fn maker(config: &Config) -> anyhow::Result<Opened> {
    Opened::by(config, plain_maker)
}

/// As [`reader`], for a command that takes no key.
pub(super) fn plain_reader(config: &Config) -> anyhow::Result<Database> {
    open(&config.database, OpenMode::ReadOnly)
}

/// As [`writer`].
pub(super) fn plain_writer(config: &Config) -> anyhow::Result<Database> {
    open(&config.database, OpenMode::Write)
}

/// As [`maker`].
pub(super) fn plain_maker(config: &Config) -> anyhow::Result<Database> {
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
    plain_writer(config)
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
pub(super) fn chosen<'c>(config: &'c Config, arg: &ChainArg) -> anyhow::Result<ChainConfig<'c>> {
    let aliases: Vec<&str> = config.chains().map(ChainConfig::alias).collect();
    let next = format!("--chain with one of {}", aliases.join(", "));
    match (&arg.chain, config.chains().next()) {
        (Some(alias), _) => config
            .find(alias)
            .ok_or_else(|| Problem::misuse(format!("the config has no chain {alias}"), next).into()),
        (None, Some(only)) if aliases.len() == 1 => Ok(only),
        (None, _) => Err(Problem::misuse("which chain?", next).into()),
    }
}

/// The chain in the database, made known where it is not. One that is known stays as it is: what can be paid
/// there follows the config of the daemon that runs, not the one that a command has just read.
pub(super) fn known_or_made(tx: &mut WriteTx<'_>, chain: ChainConfig<'_>) -> Result<ChainKey, StoreError> {
    match (tx.chain(chain.chain())?, chain) {
        (None, _) => Ok(tx.ensure_chain(&daemon::new_chain(chain))?.key),
        (Some(known), ChainConfig::Evm(_)) => Ok(known.key),
        (Some(known), ChainConfig::Bitcoin(chain)) => {
            tx.pin_genesis(known.key, chain.genesis)?;
            Ok(known.key)
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
pub(super) fn script(chain: ChainConfig<'_>, text: &str) -> Result<Script, Problem> {
    chain
        .script(text)
        .map_err(|error| no_address(chain, text, &error))
}

/// What was typed is no address of the chain.
fn no_address(chain: ChainConfig<'_>, text: &str, error: &AddressError) -> Problem {
    let next = format!(
        "give an address as the payer sees it; the config says that {} is {}",
        chain.alias(),
        chain.kind()
    );
    let code = error.code();
    Problem::misuse(format!("read the address {text}: {error} ({code})"), next)
}

/// The script of an address that a list is asked for; of several chains the first that it fits. On all EVM
/// chains it stands for the same.
pub(super) fn script_on_any(config: &Config, arg: &ChainArg, text: &str) -> Result<Option<Script>, Problem> {
    let mut fault = None;
    let is_meant = |chain: &ChainConfig<'_>| arg.chain.as_ref().is_none_or(|alias| chain.alias() == *alias);
    for chain in config.chains().filter(is_meant) {
        match chain.script(text) {
            Ok(script) => return Ok(Some(script)),
            Err(error) => {
                // The chain that knows what is wrong says more than one of another kind.
                let is_telling = !matches!(error, AddressError::Unknown | AddressError::NotEvm);
                if fault.is_none() || is_telling {
                    fault = Some(no_address(chain, text, &error));
                }
                if is_telling {
                    break;
                }
            }
        }
    }
    fault.map_or(Ok(None), Err)
}

/// A transaction id as it was typed: with `0x` or without.
pub(super) fn txid(text: &str) -> Option<Txid> {
    Txid::from_typed(text)
}

/// `TXID:VOUT`.
pub(super) fn outpoint(text: &str) -> Option<Outpoint> {
    let (txid, vout) = text.split_once(':')?;
    Some(Outpoint {
        txid: Txid::from_typed(txid)?,
        vout: vout.parse().ok()?,
    })
}

/// The chains of a database, to give their names to what lists show.
pub(super) struct Chains(Vec<ChainRow>);

impl Chains {
    pub(super) fn read(tx: &ReadTx<'_>) -> Result<Chains, StoreError> {
        let mut rows = tx.chains()?;
        rows.extend(tx.external_chains()?);
        Ok(Chains(rows))
    }

    /// The filter for a list; an absent `--chain` means all of them.
    pub(super) fn filter(&self, config: &Config, arg: &ChainArg) -> anyhow::Result<Option<ChainKey>> {
        if arg.chain.is_none() {
            return Ok(None);
        }
        let chain = chosen(config, arg)?;
        let known = self.0.iter().find(|row| row.id == *chain.chain());
        let known = known.ok_or_else(|| never_followed(chain.alias()))?;
        Ok(Some(known.key))
    }

    /// The assets that are meant by what was typed: a CAIP-19 id, a token's contract, or a symbol.
    pub(super) fn assets(
        &self,
        database: &Opened,
        chain: Option<ChainKey>,
        typed: &str,
    ) -> anyhow::Result<Vec<AssetKey>> {
        let known: Vec<KnownAsset> = database
            .read(|tx| tx.assets())?
            .into_iter()
            .filter(|asset| chain.is_none_or(|chain| asset.chain == chain))
            .collect();
        let contract = match typed.starts_with("0x") || typed.starts_with("0X") {
            true => Some(EvmAddress::parse(typed).map_err(|error| {
                let text = format!("read the contract {typed}: {error} ({})", error.code());
                Problem::misuse(text, "give a contract as `creditd balances --json` shows it")
            })?),
            false => None,
        };
        let is_meant = |asset: &&KnownAsset| match contract {
            Some(contract) => asset.contract == Some(contract.0),
            None => asset.caip.eq_ignore_ascii_case(typed) || asset.symbol.eq_ignore_ascii_case(typed),
        };
        let meant: Vec<AssetKey> = known.iter().filter(is_meant).map(|asset| asset.key).collect();
        if meant.is_empty() {
            let name = |asset: &KnownAsset| format!("{} ({})", asset.symbol, asset.caip);
            let names: Vec<String> = known.iter().map(name).collect();
            let next = format!(
                "give a symbol, a contract or a CAIP-19 id of: {}",
                names.join(", ")
            );
            return Err(Problem::found(format!("there is no asset {typed}"), next).into());
        }
        Ok(meant)
    }

    /// A hash or a transaction id as people of the chain write it.
    pub(super) fn print(&self, key: ChainKey, hash: impl std::fmt::Display) -> String {
        self.row(key)
            .map_or_else(|| hash.to_string(), |row| row.id.print(&hash))
    }

    /// EVM: an outpoint's number in words.
    pub(super) fn position(&self, key: ChainKey, vout: u64) -> Option<String> {
        let row = self.row(key)?;
        row.id.is_evm().then(|| position::words(vout))
    }

    /// EVM: the highest of our blocks that the nodes gave this tag.
    pub(super) fn tagged(&self, key: ChainKey, needs: Requirement) -> Option<u64> {
        let row = self.row(key)?;
        match needs {
            Requirement::Confirmations(_) => None,
            Requirement::Safe => row.safe,
            Requirement::Finalized => row.finalized,
        }
    }

    /// The identities of all chains.
    pub(super) fn ids(&self) -> impl Iterator<Item = &ChainId> {
        self.0.iter().map(|row| &row.id)
    }

    fn row(&self, key: ChainKey) -> Option<&ChainRow> {
        self.0.iter().find(|row| row.key == key)
    }

    /// The alias of an identity; the identity itself where the chain is not known.
    pub(super) fn alias_of(&self, caip: &str) -> String {
        let known = self.0.iter().find(|row| row.id.as_str() == caip);
        known.map_or(caip, |row| row.alias.as_str()).to_owned()
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
