//! Chains, assets and addresses by the names that clients give them, and how they are printed.

use super::problem::Problem;
use crate::address::{self, AddressError};
use crate::config::{ChainConfig, Config};
use crate::rules::{Script, Txid};
use crate::store::{AssetKey, ChainKey, ChainRow, KnownAsset, ReadTx, StoreError};
use std::collections::BTreeSet;

/// How many names a refusal lists.
const NAMES_SHOWN: usize = 12;

/// The chains and assets of the database.
pub(super) struct Names {
    chains: Vec<ChainRow>,
    /// What stands in the place of a chain where other providers told of payments.
    external: Vec<ChainRow>,
    assets: Vec<KnownAsset>,
}

impl Names {
    pub(super) fn read(tx: &ReadTx<'_>) -> Result<Names, StoreError> {
        Ok(Names {
            chains: tx.chains()?,
            external: tx.external_chains()?,
            assets: tx.assets()?,
        })
    }

    pub(super) fn row(&self, key: ChainKey) -> Option<&ChainRow> {
        self.chains
            .iter()
            .chain(&self.external)
            .find(|row| row.key == key)
    }

    /// The chain of an alias or a CAIP-2 id, that something can be paid on.
    pub(super) fn chain(&self, name: &str) -> Option<&ChainRow> {
        self.chains.iter().find(|row| is_named(row, name))
    }

    /// The same, or what stands in the place of one (`ext:SOURCE`).
    pub(super) fn place(&self, name: &str) -> Option<&ChainRow> {
        let external = || self.external.iter().find(|row| is_named(row, name));
        self.chain(name).or_else(external)
    }

    /// The assets of a symbol, a contract or a CAIP-19 id, on one chain or on all.
    pub(super) fn assets(&self, chain: Option<ChainKey>, name: &str) -> Vec<AssetKey> {
        let contract = address::EvmAddress::parse(name).ok().map(|contract| contract.0);
        let is_named = |asset: &&KnownAsset| {
            let is_there = chain.is_none_or(|chain| asset.chain == chain);
            let is_symbol = asset.symbol == name || asset.caip.eq_ignore_ascii_case(name);
            is_there && (is_symbol || (contract.is_some() && asset.contract == contract))
        };
        let named = self.assets.iter().filter(is_named);
        named.map(|asset| asset.key).collect()
    }

    /// The chain of an alias or a CAIP-2 id, if something can be paid on it from now on: what the config
    /// names no more is followed by nobody.
    pub(super) fn payable_chain(&self, config: &Config, name: &str) -> Result<&ChainRow, Problem> {
        let found = self.chain(name).filter(|row| is_followed(config, row));
        // With another config it may be.
        found.ok_or_else(|| self.unknown_chain().passing())
    }

    /// The one asset of a name that can be paid in from now on: what another provider credits has a symbol
    /// too, and so has a token that the config named once.
    pub(super) fn payable_asset(
        &self,
        config: &Config,
        chain: Option<&str>,
        name: &str,
    ) -> Result<&KnownAsset, Problem> {
        let chain = match chain {
            None => None,
            Some(name) => Some(self.payable_chain(config, name)?.key),
        };
        let keys = self.assets(chain, name);
        let is_payable = |asset: &&KnownAsset| {
            let is_followed = self.row(asset.chain).is_some_and(|row| is_followed(config, row));
            asset.is_listed && is_followed && keys.contains(&asset.key)
        };
        let mut named = self.payable().filter(is_payable);
        match (named.next(), named.next()) {
            (Some(asset), None) => Ok(asset),
            (None, _) => Err(self.unknown_asset().passing()),
            (Some(one), Some(other)) if one.chain == other.chain => {
                let detail = "several assets have this symbol: give the contract or the CAIP-19 id";
                Err(Problem::unprocessable("ambiguous_asset", "asset", detail).passing())
            }
            (Some(_), Some(_)) => {
                let detail = "several chains have this asset: name the chain, or give the CAIP-19 id";
                Err(Problem::unprocessable("ambiguous_asset", "chain", detail).passing())
            }
        }
    }

    fn payable(&self) -> impl Iterator<Item = &KnownAsset> {
        let is_payable = |asset: &&KnownAsset| self.chains.iter().any(|row| row.key == asset.chain);
        self.assets.iter().filter(is_payable)
    }

    /// No chain has the name that was given: these could have been meant.
    pub(super) fn unknown_chain(&self) -> Problem {
        unknown_chain(self.chains.iter().map(|row| row.alias.as_str()))
    }

    /// No asset has the name that was given.
    pub(super) fn unknown_asset(&self) -> Problem {
        let assets = self.payable();
        let detail = format!(
            "no asset has this symbol, contract or CAIP-19 id here: {}",
            there_are(assets.map(|asset| asset.symbol.as_str()))
        );
        Problem::unprocessable("unknown_asset", "asset", detail)
    }

    /// The CAIP-2 id of a chain.
    pub(super) fn id(&self, key: ChainKey) -> String {
        self.row(key).map_or_else(String::new, |row| row.id.to_string())
    }

    /// A transaction id as people of the chain write it.
    pub(super) fn txid(&self, key: ChainKey, txid: Txid) -> String {
        self.row(key)
            .map_or_else(|| txid.to_string(), |row| row.id.print(txid))
    }

    /// The canonical spelling of a script's address; `None` where it has none.
    pub(super) fn address(&self, key: ChainKey, script: &Script) -> Option<String> {
        let row = self.row(key)?;
        address::print_on(&row.id, row.genesis.as_ref(), script)
    }
}

fn is_followed(config: &Config, row: &ChainRow) -> bool {
    config.chains().any(|chain| *chain.chain() == row.id)
}

fn is_named(row: &ChainRow, name: &str) -> bool {
    row.alias == name || row.id.as_str() == name
}

/// The script of an address that was given, on the named chain of the config or on the first that it fits.
pub(super) fn script(config: &Config, chain: Option<&str>, text: &str) -> Result<Script, Problem> {
    let mut fault = None;
    let is_meant = |alias: &str, id: &str| chain.is_none_or(|name| name == alias || name == id);
    for chain in config
        .chains()
        .filter(|chain| is_meant(chain.alias(), chain.chain().as_str()))
    {
        match chain.script(text) {
            Ok(script) => return Ok(script),
            Err(error) => {
                // The chain that knows what is wrong says more than one of another kind.
                let is_telling = !matches!(error, AddressError::Unknown | AddressError::NotEvm);
                if fault.is_none() || is_telling {
                    fault = Some(error);
                }
                if is_telling {
                    break;
                }
            }
        }
    }
    Err(match fault {
        Some(error) => Problem::unprocessable(error.code(), "address", error.to_string()),
        None => unknown_chain(config.chains().map(ChainConfig::alias)),
    })
}

/// How many confirmations may be asked for on a chain: deeper nothing is undone.
pub(super) fn reorg_window(config: &Config, chain: &str) -> u64 {
    let window = config.chains().find(|known| known.chain().as_str() == chain);
    window.map_or(1, |chain| match chain {
        ChainConfig::Bitcoin(chain) => chain.reorg_window,
        ChainConfig::Evm(chain) => chain.reorg_window,
    })
}

fn unknown_chain<'a>(aliases: impl Iterator<Item = &'a str>) -> Problem {
    let detail = format!(
        "no chain has this alias or CAIP-2 id here: {}",
        there_are(aliases)
    );
    Problem::unprocessable("unknown_chain", "chain", detail)
}

/// Names that could have been meant.
fn there_are<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: BTreeSet<&str> = names.collect();
    let mut shown: Vec<&str> = names.iter().copied().take(NAMES_SHOWN).collect();
    if names.len() > NAMES_SHOWN {
        shown.push("and others");
    }
    match shown.as_slice() {
        [] => "there is none yet".to_owned(),
        shown => format!("one of {}", shown.join(", ")),
    }
}
