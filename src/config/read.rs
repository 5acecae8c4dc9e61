//! From the text of a config file to checked settings. Each function reads one table, goes on after a fault,
//! and gives up its value only at the end, when nothing was wrong anywhere.

use super::section::{Fault, Faults, Section, whole};
use super::{
    BitcoinChain, CallbacksConfig, Checkpoint, Config, InternalRule, LogConfig, LogFormat, MerchantConfig,
    OpsConfig, RpcAuth, SecretFile, Start, is_name,
};
use crate::address::Network;
use crate::egress::{Policy as EgressPolicy, Range};
use crate::rules::fork::REORG_WINDOW_MAX;
use crate::rules::policy::{Policy, PolicyError, Tier};
use crate::rules::{Amount, BlockHash, ChainId};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use toml::de::{DeTable, DeValue};

const NAME: &str = "1 to 32 of a-z, 0-9 and -, such as \"shop-1\"";
const HEIGHT_MAX: u64 = 10_000_000;
const BITCOIN_DECIMALS: u8 = 8;
const OPS_LISTEN: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 9333);

/// Reads and checks a whole file.
pub(super) fn config(file: &Path, text: &str) -> Result<Config, Vec<Fault>> {
    let faults = Faults::new(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let offset = error.span().map(|span| span.start);
        faults.add(offset, String::new(), format!("not TOML: {}", error.message()));
    }
    if !errors.is_empty() {
        return Err(faults.into_sorted());
    }
    let table = table.into_inner();
    let config = root(&Section::root(&table, &faults), file);
    match config {
        Some(config) if faults.is_empty() => Ok(config),
        Some(_) | None => {
            assert!(!faults.is_empty(), "a config was given up without a fault");
            Err(faults.into_sorted())
        }
    }
}

fn root(root: &Section<'_>, file: &Path) -> Option<Config> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let database = root.optional("database", "a path", |value| {
        text(value).filter(|path| !path.is_empty())
    });
    let log = log(root.table("log").as_ref());
    let callbacks = callbacks(root.table("callbacks").as_ref(), folder);
    let ops = ops(root.table("ops").as_ref());
    let sections = root.tables("bitcoin");
    if sections.as_ref().is_some_and(Vec::is_empty) {
        root.fault("bitcoin", "missing, allowed: at least one [[bitcoin]]");
    }
    let sections = sections.unwrap_or_default();
    let bitcoin: Vec<_> = sections.iter().map(|section| bitcoin(section, folder)).collect();
    refuse_twins(&sections, &bitcoin);
    let merchants = merchants(&root.tables("merchant").unwrap_or_default());
    root.close();
    if bitcoin.is_empty() {
        return None;
    }
    Some(Config {
        file: file.to_owned(),
        mark: String::new(),
        database: folder.join(database.unwrap_or("creditd.db")),
        log,
        callbacks,
        ops,
        bitcoin: bitcoin.into_iter().collect::<Option<_>>()?,
        merchants,
    })
}

fn log(section: Option<&Section<'_>>) -> LogConfig {
    let format = section.and_then(|log| {
        log.optional("format", "\"text\" or \"json\"", |value| match text(value)? {
            "text" => Some(LogFormat::Text),
            "json" => Some(LogFormat::Json),
            _ => None,
        })
    });
    let level = section.and_then(|log| {
        let allowed = "\"error\", \"warn\", \"info\", \"debug\" or \"trace\"";
        log.optional("level", allowed, |value| match text(value)? {
            "error" => Some(tracing::Level::ERROR),
            "warn" => Some(tracing::Level::WARN),
            "info" => Some(tracing::Level::INFO),
            "debug" => Some(tracing::Level::DEBUG),
            "trace" => Some(tracing::Level::TRACE),
            _ => None,
        })
    });
    if let Some(section) = section {
        section.close();
    }
    LogConfig {
        format: format.unwrap_or(LogFormat::Text),
        level: level.unwrap_or(tracing::Level::INFO),
    }
}

/// An absent table reads as one without keys.
fn callbacks(section: Option<&Section<'_>>, folder: &Path) -> CallbacksConfig {
    let number = |key, range, default| section.map_or(default, |found| found.number(key, range, default));
    let timeout_secs = number("timeout_secs", 1..=60, 15);
    let order_patience_secs = number("order_patience_secs", 0..=86_400, 900);
    let concurrency = number("concurrency", 1..=4_096, 256);
    let ca_file = section.and_then(|section| {
        section.optional("ca_file", "a path", |value| {
            text(value).filter(|path| !path.is_empty())
        })
    });
    let policy = section.map(allow_ranges).unwrap_or_default();
    if let Some(section) = section {
        section.close();
    }
    CallbacksConfig {
        policy,
        ca_file: ca_file.map(|path| folder.join(path)),
        attempt_timeout: Duration::from_secs(timeout_secs),
        order_patience: Duration::from_secs(order_patience_secs),
        concurrency: usize::try_from(concurrency).unwrap_or(usize::MAX),
    }
}

fn allow_ranges(section: &Section<'_>) -> EgressPolicy {
    let allowed = "a list of ranges such as \"10.1.0.0/16\"";
    let texts = section.optional("allow_ranges", allowed, |value| {
        let items = value.as_array()?.iter();
        items.map(|item| text(item.get_ref())).collect::<Option<Vec<_>>>()
    });
    let mut ranges = Vec::new();
    for text in texts.unwrap_or_default() {
        match Range::parse(text) {
            Ok(range) => ranges.push(range),
            Err(error) => section.fault("allow_ranges", format!("{text:?}: {error}")),
        }
    }
    EgressPolicy::new(ranges)
}

/// What it serves needs no login, so that it leaves this machine only on the operator's word.
fn ops(section: Option<&Section<'_>>) -> OpsConfig {
    let usual = Some(SocketAddr::from(OPS_LISTEN));
    let Some(section) = section else {
        return OpsConfig { listen: usual };
    };
    let allowed = "an address and a port such as \"127.0.0.1:9333\", or \"off\"";
    let listen = section.optional("listen", allowed, |value| match text(value)? {
        "off" => Some(None),
        address => address.parse().ok().map(Some),
    });
    let allow_remote = section.optional("allow_remote", "true or false", DeValue::as_bool);
    let listen = listen.unwrap_or(usual);
    if let Some(address) = listen
        && !address.ip().is_loopback()
        && allow_remote != Some(true)
    {
        let text = format!(
            "{address} can be reached from other machines, allowed: 127.0.0.1 or [::1], or with \
             allow_remote = true any address"
        );
        section.fault("listen", text);
    }
    section.close();
    OpsConfig { listen }
}

fn bitcoin(section: &Section<'_>, folder: &Path) -> Option<BitcoinChain> {
    let alias = section.required("alias", NAME, name);
    let networks = "\"main\", \"testnet4\", \"signet\" or \"regtest\"";
    let network = section.required("network", networks, |value| Network::from_name(text(value)?));
    let instance = instance(section, network);
    let rpc_url = rpc_url(section);
    let auth = auth(section, folder);
    let start = section.optional("start", "\"tip\" or a height", |value| match text(value) {
        Some("tip") => Some(Start::Tip),
        Some(_) => None,
        None => height(value).map(Start::Height),
    });
    let checkpoints = checkpoints(section, network);
    let poll_ms = section.number("poll_ms", 20..=60_000, 1_000);
    let mempool_ms = section.number("mempool_ms", 20..=600_000, 2_000);
    let evict_after_secs = section.number("evict_after_secs", 1..=2_592_000, 600);
    let reorg_window = section.number("reorg_window", 6..=REORG_WINDOW_MAX, 144);
    let tip_age_max = tip_age_max(section, network);
    let symbols = "1 to 12 of A-Z, a-z and 0-9";
    let symbol = section.optional("symbol", symbols, |value| {
        text(value).filter(|text| is_symbol(text))
    });
    let policy = policy(section, reorg_window);
    section.close();
    let (alias, network, policy) = (alias?, network?, policy?);
    let genesis = network.genesis();
    Some(BitcoinChain {
        alias: alias.to_owned(),
        network,
        instance: instance.map(str::to_owned),
        genesis,
        chain: ChainId::bitcoin(&genesis, instance),
        rpc_url: rpc_url?,
        auth: auth?,
        start: start.unwrap_or(Start::Tip),
        checkpoints,
        poll: Duration::from_millis(poll_ms),
        mempool: Duration::from_millis(mempool_ms),
        evict_after: Duration::from_secs(evict_after_secs),
        reorg_window,
        tip_age_max,
        symbol: symbol.unwrap_or("BTC").to_owned(),
        policy,
    })
}

/// Regtests share one genesis block and so do all signets with their own challenge: only a name tells them
/// apart.
fn instance<'a>(section: &Section<'a>, network: Option<Network>) -> Option<&'a str> {
    let instance = section.optional("instance", NAME, name);
    match network {
        Some(Network::Regtest) if !section.has("instance") => {
            let text =
                format!("missing, allowed: {NAME}; all regtests look alike, so yours needs a name for ever");
            section.missing("instance", text);
        }
        Some(network @ (Network::Main | Network::Testnet4)) if instance.is_some() => {
            section.fault("instance", format!("not allowed on {network}: there is only one"));
        }
        Some(Network::Regtest | Network::Signet | Network::Main | Network::Testnet4) | None => {}
    }
    instance
}

fn rpc_url(section: &Section<'_>) -> Option<String> {
    let allowed = "http://HOST:PORT without user, password, path or query";
    section.required("rpc_url", allowed, |value| {
        let text = text(value)?;
        let (host, port) = text
            .strip_suffix('/')
            .unwrap_or(text)
            .strip_prefix("http://")?
            .rsplit_once(':')?;
        let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inside) => inside.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(is_name),
        };
        is_host.then(|| format!("http://{host}:{port}"))
    })
}

fn auth(section: &Section<'_>, folder: &Path) -> Option<RpcAuth> {
    let files = "a path or \"credential:NAME\"";
    let file = |value| SecretFile::from_config(text(value)?, folder);
    let cookie = section.optional("cookie_file", files, file);
    let user = section.optional("rpc_user", "a user name", |value| {
        text(value).filter(|user| !user.is_empty() && !user.contains(':'))
    });
    let password = section.optional("rpc_password_file", files, file);
    let has = |key| section.has(key);
    match (has("cookie_file"), has("rpc_user"), has("rpc_password_file")) {
        (true, false, false) => cookie.map(RpcAuth::Cookie),
        (false, true, true) => Some(RpcAuth::Password {
            user: user?.to_owned(),
            password: password?,
        }),
        (true, _, _) => {
            section.fault(
                "cookie_file",
                "found together with rpc_user or rpc_password_file, allowed: one way to log in",
            );
            None
        }
        (false, true, false) => {
            section.missing(
                "rpc_password_file",
                format!("missing beside rpc_user, allowed: {files}"),
            );
            None
        }
        (false, false, true) => {
            section.missing(
                "rpc_user",
                "missing beside rpc_password_file, allowed: a user name",
            );
            None
        }
        (false, false, false) => {
            section.missing(
                "cookie_file",
                format!("missing, allowed: {files}; or rpc_user with rpc_password_file"),
            );
            None
        }
    }
}

fn checkpoints(section: &Section<'_>, network: Option<Network>) -> Vec<Checkpoint> {
    let mut all: Vec<Checkpoint> = network.map(built_in_checkpoints).unwrap_or_default();
    for item in section.tables("checkpoints").unwrap_or_default() {
        let height = item.required("height", "a height", height);
        let hash = item.required("hash", "the 64 hex digits of a block hash", |value| {
            BlockHash::from_hex(text(value)?)
        });
        item.close();
        let (Some(height), Some(hash)) = (height, hash) else {
            continue;
        };
        match all.iter().find(|known| known.height == height) {
            Some(known) if known.hash == hash => {}
            Some(known) => item.fault("hash", format!("contradicts {} at the same height", known.hash)),
            None => all.push(Checkpoint { height, hash }),
        }
    }
    all.sort_by_key(|checkpoint| checkpoint.height);
    all
}

fn tip_age_max(section: &Section<'_>, network: Option<Network>) -> Option<Duration> {
    let range = 600..=604_800;
    let allowed = "a whole number from 600 to 604800";
    let secs = section.optional("tip_age_max_secs", allowed, |value| {
        whole(value).filter(|secs| range.contains(secs))
    });
    match network {
        Some(Network::Regtest) => secs.map(Duration::from_secs),
        Some(Network::Main | Network::Testnet4 | Network::Signet) | None => {
            Some(Duration::from_secs(secs.unwrap_or(10_800)))
        }
    }
}

/// There is no default: how deep is deep enough is the operator's decision.
fn policy(section: &Section<'_>, reorg_window: u64) -> Option<Policy> {
    let sections = section.tables("policy")?;
    if sections.is_empty() {
        let text =
            "missing, allowed: at least one [[bitcoin.policy]] with confirmations; there is no default";
        section.missing("policy", text);
        return None;
    }
    let mut tiers = Vec::new();
    for tier in &sections {
        let below = tier.optional("below", "a text of whole units such as \"0.05\"", |value| {
            Amount::from_units_str(text(value)?, BITCOIN_DECIMALS).ok()
        });
        let allowed = format!("a whole number from 1 to {reorg_window} (reorg_window)");
        let confirmations = tier.required("confirmations", &allowed, |value| {
            let number = whole(value).filter(|number| (1..=reorg_window).contains(number))?;
            u32::try_from(number).ok()
        });
        tier.close();
        if let (Some(confirmations), true) = (confirmations, below.is_some() == tier.has("below")) {
            tiers.push(Tier { below, confirmations });
        }
    }
    if tiers.len() < sections.len() {
        return None;
    }
    Policy::new(&tiers)
        .map_err(|error| {
            let (tier, key) = match error {
                PolicyError::Empty => (0, "confirmations"),
                PolicyError::ZeroConfirmations { tier } | PolicyError::Falling { tier } => {
                    (tier, "confirmations")
                }
                PolicyError::UnboundedBeforeLast { tier }
                | PolicyError::BoundedLast { tier }
                | PolicyError::NotAscending { tier } => (tier, "below"),
            };
            sections[tier].fault(key, error.to_string());
        })
        .ok()
}

fn merchants(sections: &[Section<'_>]) -> Vec<MerchantConfig> {
    let mut merchants: Vec<MerchantConfig> = Vec::new();
    for section in sections {
        let slug = section.required("slug", NAME, name);
        let rules = "\"ignore\", \"hold\" or \"credit\"";
        let internal = section.optional("internal", rules, |value| InternalRule::from_word(text(value)?));
        section.close();
        let Some(slug) = slug else {
            continue;
        };
        if merchants.iter().any(|known| known.slug == slug) {
            section.fault("slug", format!("{slug:?} is there twice"));
        }
        merchants.push(MerchantConfig {
            slug: slug.to_owned(),
            internal: internal.unwrap_or_default(),
        });
    }
    merchants
}

/// Two entries for one chain would be two followers on one cursor; two of one alias could not be told apart.
fn refuse_twins(sections: &[Section<'_>], chains: &[Option<BitcoinChain>]) {
    for (at, chain) in chains.iter().enumerate() {
        let Some(chain) = chain else {
            continue;
        };
        for (before, other) in chains[..at].iter().enumerate() {
            let Some(other) = other else {
                continue;
            };
            if other.alias == chain.alias {
                sections[at].fault(
                    "alias",
                    format!("{:?} is taken by bitcoin[{before}]", chain.alias),
                );
            }
            if other.chain == chain.chain {
                let text = format!("{} is the chain of bitcoin[{before}] already", chain.chain);
                sections[at].fault("network", text);
            }
        }
    }
}

/// Blocks that forks with the same genesis do not have.
fn built_in_checkpoints(network: Network) -> Vec<Checkpoint> {
    let hash = match network {
        // The first block after the split from Bitcoin Cash.
        Network::Main => "00000000000000000019f112ec0a9982926f1258cdcc558dd7c3b7e5dc7fa148",
        Network::Testnet4 | Network::Signet | Network::Regtest => return Vec::new(),
    };
    let checkpoint = |hash| Checkpoint {
        height: 478_559,
        hash,
    };
    BlockHash::from_hex(hash).map(checkpoint).into_iter().collect()
}

fn text<'a>(value: &'a DeValue<'a>) -> Option<&'a str> {
    value.as_str()
}

fn name<'a>(value: &'a DeValue<'a>) -> Option<&'a str> {
    text(value).filter(|name| is_name(name))
}

fn height(value: &DeValue<'_>) -> Option<u64> {
    whole(value).filter(|height| *height <= HEIGHT_MAX)
}

fn is_symbol(text: &str) -> bool {
    (1..=12).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DEFAULT_TOML;

    #[test]
    fn the_default_file_names_every_key_that_the_code_reads() {
        let faults = Faults::new(DEFAULT_TOML);
        let with_all =
            format!("{DEFAULT_TOML}\n[[merchant]]\nslug = \"a\"\n[[bitcoin]]\ncheckpoints = [{{}}]\n");
        let table = DeTable::parse(&with_all).unwrap().into_inner();
        let _ = root(&Section::root(&table, &faults), Path::new("creditd.toml"));
        for key in faults.known_keys() {
            let is_named = DEFAULT_TOML
                .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
                .any(|word| word == key);
            assert!(is_named, "{key} is not documented in default.toml");
        }
    }

    #[test]
    fn built_in_checkpoints_are_whole() {
        assert_eq!(built_in_checkpoints(Network::Main).len(), 1);
    }
}
