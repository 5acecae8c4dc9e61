//! From the config of a chain to what its follower and the database are told of it.

use crate::clock::millis;
use crate::config::{AssetInfo, ChainConfig, Config, InnerSource, Start};
use crate::follow::{self, Settings};
use crate::rules::Asset;
use crate::rules::policy::Policy;
use crate::store::{NewAsset, NewChain, Terms};
use std::collections::BTreeMap;
use std::time::Duration;

/// Where no pending transactions are wanted nobody looks for them more often than this; the source has none.
const NO_LISTS: Duration = Duration::from_secs(3_600);

/// A chain of the config as the database knows it.
pub fn new_chain(chain: ChainConfig<'_>) -> NewChain {
    let asset = |info: AssetInfo<'_>| NewAsset {
        asset: info.asset(),
        caip: info.caip,
        symbol: info.symbol.to_owned(),
        decimals: info.decimals,
        from: info.from,
    };
    NewChain {
        id: chain.chain().clone(),
        genesis: match chain {
            ChainConfig::Bitcoin(chain) => Some(chain.genesis),
            // Whoever answers first shows it, and it is pinned then.
            ChainConfig::Evm(_) => None,
        },
        alias: chain.alias().to_owned(),
        assets: chain.assets().into_iter().map(asset).collect(),
    }
}

/// All chains of the config as the database knows them.
pub fn new_chains(config: &Config) -> Vec<NewChain> {
    config.chains().map(new_chain).collect()
}

/// What decides about the deposits of a chain.
pub fn terms(chain: ChainConfig<'_>) -> Terms {
    let (policies, reorg_window, evict_after) = match chain {
        ChainConfig::Bitcoin(chain) => (
            Terms::native(chain.policy.clone()),
            chain.reorg_window,
            chain.evict_after,
        ),
        ChainConfig::Evm(chain) => {
            let native = chain.native.iter();
            let native = native.map(|native| (Asset::Native, native.policy.clone()));
            let tokens = chain.tokens.iter();
            let tokens = tokens.map(|token| (Asset::Token(token.contract.0), token.policy.clone()));
            let policies: BTreeMap<Asset, Policy> = native.chain(tokens).collect();
            (policies, chain.reorg_window, chain.evict_after)
        }
    };
    Terms {
        policies,
        reorg_window,
        evict_after_ms: millis(evict_after),
    }
}

/// What the follower of a chain is told.
pub fn follower_settings(chain: ChainConfig<'_>) -> Settings {
    let (start, poll, mempool, tip_age_max, fork_patience) = match chain {
        ChainConfig::Bitcoin(chain) => (chain.start, chain.poll, chain.mempool, chain.tip_age_max, None),
        ChainConfig::Evm(chain) => (
            chain.start,
            chain.poll,
            chain.pending.unwrap_or(NO_LISTS),
            chain.tip_age_max,
            Some(chain.fork_patience),
        ),
    };
    Settings {
        chain: new_chain(chain),
        start: match start {
            Start::Tip => follow::Start::Tip,
            Start::Height(height) => follow::Start::Height(height),
        },
        terms: terms(chain),
        poll,
        mempool,
        tip_age_max,
        fork_patience,
    }
}

/// How often balances are compared, where coin that contracts send is not seen otherwise.
pub(super) fn sweep(chain: ChainConfig<'_>) -> Option<Duration> {
    let ChainConfig::Evm(chain) = chain else {
        return None;
    };
    match chain.native.as_ref()?.inner {
        InnerSource::None { sweep } => Some(sweep),
        InnerSource::Traces(_) | InnerSource::Eip7708 => None,
    }
}
