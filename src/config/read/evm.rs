//! `[[evm]]`: a chain, its coin and its tokens.

use super::super::evm::{EvmChain, EvmNative, EvmToken, InnerSource, TraceMethod};
use super::super::section::{Section, whole};
use super::endpoint::{endpoints, quorum};
use super::{Depths, NAME, checkpoints, name, policy, start, text};
use crate::address::EvmAddress;
use crate::rules::fork::REORG_WINDOW_MAX;
use crate::rules::{ChainId, HEIGHT_MAX};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;
use toml::de::DeValue;

/// Chain ids that development nodes have out of the box: Geth and Ganache, Anvil and Hardhat, local rollups
/// (OP Stack, Arbitrum Nitro, ZKsync). Anyone can start one anew.
const DEV_CHAINS: [u64; 9] = [260, 270, 900, 901, 902, 1_337, 1_338, 31_337, 412_346];

/// Ethereum and its two public test networks.
const ETHEREUM: [u64; 3] = [1, 11_155_111, 560_048];

/// The database can keep no more.
const DECIMALS: RangeInclusive<u64> = 0..=77;

/// SLIP-44's number of Ether.
const ETHER: u64 = 60;

const CONTRACT: &str = "0x and 40 hex digits";
const SYMBOL: &str = "1 to 12 of A-Z, a-z, 0-9, . and -";

pub(super) fn evm(section: &Section<'_>, folder: &Path) -> Option<EvmChain> {
    let alias = section.required("alias", NAME, name);
    let chain_id = section.required("chain_id", "the chain's number, 1 or more", |value| {
        whole(value).filter(|id| (1..=i64::MAX.unsigned_abs()).contains(id))
    });
    let instance = instance(section, chain_id);
    let is_dev = chain_id.is_some_and(|id| DEV_CHAINS.contains(&id));
    let endpoints = endpoints(section, folder);
    let start = start(section, height);
    let checkpoints = checkpoints(section, None, height);
    let poll_ms = section.number("poll_ms", 20..=60_000, 1_000);
    let pending_ms = section.number("pending_ms", 0..=600_000, 0);
    let evict_after_secs = section.number("evict_after_secs", 1..=2_592_000, 600);
    let reorg_window = section.number("reorg_window", 6..=REORG_WINDOW_MAX, 128);
    let fork_patience_secs = section.number("fork_patience_secs", 1..=604_800, 600);
    let quorum = quorum(section, endpoints.as_deref());
    let has_bloom = section.optional("bloom", "true or false", DeValue::as_bool);
    let is_ethereum = section.optional("ethereum", "true or false", DeValue::as_bool);
    let batch_max = section.number("batch_max", 1..=1_000, 50);
    let tip_age_max = tip_age_max(section, is_dev);
    let depths = Depths {
        reorg_window,
        has_tags: true,
    };
    let native_section = section.table("native");
    let native = native_section.as_ref().map(|section| native(section, &depths));
    let token_sections = section.tables("token");
    let is_tokenless = token_sections.as_ref().is_some_and(Vec::is_empty);
    let token_sections = token_sections.unwrap_or_default();
    let tokens = token_sections.iter().map(|section| token(section, &depths));
    let tokens: Vec<Option<EvmToken>> = tokens.collect();
    if is_tokenless && !section.has("native") {
        section.missing(
            "token",
            "missing, allowed: [[evm.token]] for each token, [evm.native] for the chain's own coin, or both",
        );
    }
    let known_native = native.as_ref().and_then(Option::as_ref);
    refuse_same_assets(known_native, token_sections.iter().zip(&tokens));
    section.close();
    let chain_id = chain_id?;
    Some(EvmChain {
        alias: alias?.to_owned(),
        chain_id,
        instance: instance.map(str::to_owned),
        chain: ChainId::evm(chain_id, instance),
        endpoints: endpoints?,
        start,
        checkpoints,
        poll: Duration::from_millis(poll_ms),
        pending: (pending_ms > 0).then(|| Duration::from_millis(pending_ms)),
        evict_after: Duration::from_secs(evict_after_secs),
        reorg_window,
        fork_patience: Duration::from_secs(fork_patience_secs),
        quorum,
        has_bloom: has_bloom.unwrap_or(true),
        is_ethereum: is_ethereum.unwrap_or(ETHEREUM.contains(&chain_id)),
        batch_max: usize::try_from(batch_max).unwrap_or(1),
        tip_age_max,
        native: match native {
            Some(native) => Some(native?),
            None => None,
        },
        tokens: tokens.into_iter().collect::<Option<_>>()?,
    })
}

fn height(value: &DeValue<'_>) -> Option<u64> {
    whole(value).filter(|height| *height <= HEIGHT_MAX)
}

/// Chains of development have the same id and each its own history: only a name tells them apart.
fn instance<'a>(section: &Section<'a>, chain_id: Option<u64>) -> Option<&'a str> {
    let instance = section.optional("instance", NAME, name);
    if let Some(id) = chain_id.filter(|id| DEV_CHAINS.contains(id))
        && !section.has("instance")
    {
        let text = format!(
            "missing, allowed: {NAME}; chains with the id {id} are started anew at will, so yours needs a \
             name for ever"
        );
        section.missing("instance", text);
    }
    instance
}

fn tip_age_max(section: &Section<'_>, is_dev: bool) -> Option<Duration> {
    let range = 10..=604_800;
    let allowed = "a whole number from 10 to 604800";
    let secs = section.optional("tip_age_max_secs", allowed, |value| {
        whole(value).filter(|secs| range.contains(secs))
    });
    match is_dev {
        true => secs.map(Duration::from_secs),
        false => Some(Duration::from_secs(secs.unwrap_or(600))),
    }
}

fn native(section: &Section<'_>, depths: &Depths) -> Option<EvmNative> {
    let symbol = section.required("symbol", SYMBOL, symbol);
    let decimals = u8::try_from(section.number("decimals", DECIMALS, 18)).unwrap_or(18);
    let coin_type = section.number("coin_type", 0..=u64::from(u32::MAX >> 1), ETHER);
    let contract = section.optional("contract", CONTRACT, text);
    let contract = contract.map(|text| contract_of(section, text));
    let inner = inner(section);
    let policy = policy(section, "evm.native.policy", decimals, depths);
    section.close();
    Some(EvmNative {
        symbol: symbol?.to_owned(),
        decimals,
        coin_type: u32::try_from(coin_type).ok()?,
        contract: match contract {
            Some(contract) => Some(contract?),
            None => None,
        },
        inner: inner?,
        policy: policy?,
    })
}

/// There is no default: without a source, payments by contracts are not seen, and the operator should know.
fn inner(section: &Section<'_>) -> Option<InnerSource> {
    let allowed = "\"traces\", \"eip7708\" or \"none\"";
    let word = section.required("inner", allowed, |value| {
        text(value).filter(|word| ["traces", "eip7708", "none"].contains(word))
    });
    let methods = "\"auto\", \"debug\" (debug_traceBlockByHash) or \"trace\" (trace_block)";
    let method = section.optional("trace_method", methods, |value| match text(value)? {
        "auto" => Some(TraceMethod::Auto),
        "debug" => Some(TraceMethod::Debug),
        "trace" => Some(TraceMethod::Block),
        _ => None,
    });
    let sweep_ms = section.number("sweep_ms", 100..=86_400_000, 3_600_000);
    let only_with = |key: &str, needed: &str| {
        if word.is_some_and(|word| word != needed) && section.has(key) {
            section.fault(key, format!("only allowed with inner = \"{needed}\""));
        }
    };
    only_with("trace_method", "traces");
    only_with("sweep_ms", "none");
    Some(match word? {
        "traces" => InnerSource::Traces(method.unwrap_or(TraceMethod::Auto)),
        "eip7708" => InnerSource::Eip7708,
        _ => InnerSource::None {
            sweep: Duration::from_millis(sweep_ms),
        },
    })
}

fn token(section: &Section<'_>, depths: &Depths) -> Option<EvmToken> {
    let contract = section.required("contract", CONTRACT, text);
    let contract = contract.and_then(|text| contract_of(section, text));
    let symbol = section.required("symbol", SYMBOL, symbol);
    let allowed = "a whole number from 0 to 77; the contract's decimals() says it";
    let decimals = section.required("decimals", allowed, |value| {
        let count = whole(value).filter(|count| DECIMALS.contains(count))?;
        u8::try_from(count).ok()
    });
    let flag = |key| {
        section
            .optional(key, "true or false", DeValue::as_bool)
            .unwrap_or(false)
    };
    let (is_balance_checked, is_unindexed) = (flag("check_balance"), flag("not_indexed"));
    let from = section.optional("from", "a height", height);
    let policy = policy(section, "evm.token.policy", decimals.unwrap_or(77), depths);
    section.close();
    Some(EvmToken {
        contract: contract?,
        symbol: symbol?.to_owned(),
        decimals: decimals?,
        is_balance_checked,
        is_unindexed,
        from,
        policy: policy?,
    })
}

fn contract_of(section: &Section<'_>, text: &str) -> Option<EvmAddress> {
    match EvmAddress::parse(text) {
        Ok(EvmAddress(bytes)) if bytes == [0; 20] => {
            section.fault("contract", "the zero address is no contract");
            None
        }
        Ok(address) => Some(address),
        Err(error) => {
            section.fault("contract", format!("found {text:?}, {error}"));
            None
        }
    }
}

fn symbol<'a>(value: &'a DeValue<'a>) -> Option<&'a str> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
    text(value).filter(|text| (1..=12).contains(&text.len()) && text.bytes().all(is_letter))
}

/// One contract twice would count twice, and two assets of one name could not be told apart.
fn refuse_same_assets<'s>(
    native: Option<&EvmNative>,
    tokens: impl Iterator<Item = (&'s Section<'s>, &'s Option<EvmToken>)>,
) {
    let mut before: Vec<&EvmToken> = Vec::new();
    for (section, token) in tokens {
        let Some(token) = token else {
            continue;
        };
        if native.is_some_and(|native| native.contract == Some(token.contract)) {
            let text = "the chain's own coin under another interface (native.contract): it is counted there";
            section.fault("contract", text);
        } else if before.iter().any(|other| other.contract == token.contract) {
            section.fault("contract", format!("{} is there twice", token.contract));
        }
        let is_taken = native.is_some_and(|native| native.symbol == token.symbol)
            || before.iter().any(|other| other.symbol == token.symbol);
        if is_taken {
            section.fault("symbol", format!("{:?} is taken", token.symbol));
        }
        before.push(token);
    }
}
