//! From the text of a config file to checked settings. Each function reads one table, goes on after a fault,
//! and gives up its value only at the end, when nothing was wrong anywhere.

mod addresses;
mod endpoint;
mod evm;
mod inbox;
mod process;

use super::section::{Fault, Faults, Section, whole};
use super::{
    BITCOIN_DECIMALS, BitcoinChain, Checkpoint, Config, EvmChain, InternalRule, MerchantConfig, RpcAuth,
    SecretFile, Start, is_name,
};
use crate::address::Network;
use crate::rules::fork::REORG_WINDOW_MAX;
use crate::rules::policy::{Policy, PolicyError, Requirement, Tier};
use crate::rules::{Amount, BlockHash, ChainId};
use std::path::Path;
use std::time::Duration;
use toml::de::{DeTable, DeValue};

const NAME: &str = "1 to 32 of a-z, 0-9 and -, such as \"shop-1\"";
const HEIGHT_MAX: u64 = 10_000_000;

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
    let log = process::log(root.table("log").as_ref());
    let callbacks = process::callbacks(root.table("callbacks").as_ref(), folder);
    let ops = process::ops(root.table("ops").as_ref());
    let backup = process::backup(root.table("backup").as_ref(), folder);
    let audit = process::audit(root.table("audit").as_ref());
    let is_evidence_stored = process::evidence(root.table("evidence").as_ref());
    let api = process::api(root.table("api").as_ref(), folder);
    let (of_bitcoin, of_evm) = (root.tables("bitcoin"), root.tables("evm"));
    let is_empty = |sections: &Option<Vec<_>>| sections.as_ref().is_some_and(Vec::is_empty);
    let has_none = is_empty(&of_bitcoin) && is_empty(&of_evm);
    if has_none {
        root.fault("bitcoin", "missing, allowed: at least one [[bitcoin]] or [[evm]]");
    }
    let (of_bitcoin, of_evm) = (of_bitcoin.unwrap_or_default(), of_evm.unwrap_or_default());
    let bitcoin: Vec<_> = of_bitcoin
        .iter()
        .map(|section| bitcoin(section, folder))
        .collect();
    let evm: Vec<_> = of_evm.iter().map(|section| evm::evm(section, folder)).collect();
    refuse_twins(of_bitcoin.iter().zip(&bitcoin), of_evm.iter().zip(&evm));
    let of_addresses = root.tables("addresses").unwrap_or_default();
    let addresses = addresses::addresses(&of_addresses, folder, (&bitcoin, &evm));
    let merchants = merchants(&root.tables("merchant").unwrap_or_default());
    let sources = root.tables("inbox").unwrap_or_default();
    let inbox = inbox::inbox(&sources, folder, &inbox::known(&bitcoin, &evm));
    if !sources.is_empty() && api.listen.is_none() {
        root.fault(
            "inbox",
            "found while [api] listen is off: events come in over the API, so give it an address",
        );
    }
    root.close();
    if has_none {
        return None;
    }
    Some(Config {
        file: file.to_owned(),
        mark: String::new(),
        database: folder.join(database.unwrap_or("creditd.db")),
        log,
        callbacks,
        ops,
        backup,
        audit,
        is_evidence_stored,
        api,
        bitcoin: bitcoin.into_iter().collect::<Option<_>>()?,
        evm: evm.into_iter().collect::<Option<_>>()?,
        addresses,
        merchants,
        inbox: inbox?,
    })
}

fn bitcoin(section: &Section<'_>, folder: &Path) -> Option<BitcoinChain> {
    let alias = section.required("alias", NAME, name);
    let networks = "\"main\", \"testnet4\", \"signet\" or \"regtest\"";
    let network = section.required("network", networks, |value| Network::from_name(text(value)?));
    let instance = instance(section, network);
    let rpc_url = rpc_url(section);
    let auth = auth(section, folder);
    let start = start(section, height);
    let checkpoints = checkpoints(section, network, height);
    let poll_ms = section.number("poll_ms", 20..=60_000, 1_000);
    let mempool_ms = section.number("mempool_ms", 20..=600_000, 2_000);
    let evict_after_secs = section.number("evict_after_secs", 1..=2_592_000, 600);
    let reorg_window = section.number("reorg_window", 6..=REORG_WINDOW_MAX, 144);
    let tip_age_max = tip_age_max(section, network);
    let symbols = "1 to 12 of A-Z, a-z and 0-9";
    let symbol = section.optional("symbol", symbols, |value| {
        text(value).filter(|text| is_symbol(text))
    });
    let depths = Depths {
        reorg_window,
        has_tags: false,
    };
    let policy = policy(section, "bitcoin.policy", BITCOIN_DECIMALS, &depths);
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
        start,
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

fn start(section: &Section<'_>, height: impl FnOnce(&DeValue<'_>) -> Option<u64>) -> Start {
    let start = section.optional("start", "\"tip\" or a height", |value| match text(value) {
        Some("tip") => Some(Start::Tip),
        Some(_) => None,
        None => height(value).map(Start::Height),
    });
    start.unwrap_or(Start::Tip)
}

fn checkpoints(
    section: &Section<'_>,
    network: Option<Network>,
    height: fn(&DeValue<'_>) -> Option<u64>,
) -> Vec<Checkpoint> {
    let mut all: Vec<Checkpoint> = network.map(built_in_checkpoints).unwrap_or_default();
    for item in section.tables("checkpoints").unwrap_or_default() {
        let height = item.required("height", "a height", height);
        let hash = item.required("hash", "the 64 hex digits of a block hash", |value| {
            let text = text(value)?;
            BlockHash::from_hex(text.strip_prefix("0x").unwrap_or(text))
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

/// There is no default: how sure is sure enough is the operator's decision. `path` is the section's name in
/// the file, for the words of a fault.
fn policy(section: &Section<'_>, path: &str, decimals: u8, depths: &Depths) -> Option<Policy> {
    let sections = section.tables("policy")?;
    if sections.is_empty() {
        let text =
            format!("missing, allowed: at least one [[{path}]] with confirmations; there is no default");
        section.missing("policy", text);
        return None;
    }
    let tiers: Vec<Tier> = sections
        .iter()
        .filter_map(|section| tier(section, decimals, depths))
        .collect();
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

/// What a policy may ask for.
struct Depths {
    /// The most confirmations: deeper than the reorg window nothing is undone.
    reorg_window: u64,
    /// EVM: may it be a finality tag?
    has_tags: bool,
}

fn tier(section: &Section<'_>, decimals: u8, depths: &Depths) -> Option<Tier> {
    let below = section.optional("below", "a text of whole units such as \"0.05\"", |value| {
        Amount::from_units_str(text(value)?, decimals).ok()
    });
    let window = depths.reorg_window;
    let mut allowed = format!("a whole number from 1 to {window} (reorg_window)");
    if depths.has_tags {
        allowed.push_str(", \"safe\" or \"finalized\"");
    }
    let needs = section.required("confirmations", &allowed, |value| match text(value) {
        Some(tag) => Requirement::from_tag(tag).filter(|_| depths.has_tags),
        None => {
            let count = whole(value).filter(|count| (1..=window).contains(count))?;
            u32::try_from(count).ok().map(Requirement::Confirmations)
        }
    });
    section.close();
    let needs = needs.filter(|_| below.is_some() == section.has("below"))?;
    Some(Tier { below, needs })
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
fn refuse_twins<'s>(
    bitcoin: impl Iterator<Item = (&'s Section<'s>, &'s Option<BitcoinChain>)>,
    evm: impl Iterator<Item = (&'s Section<'s>, &'s Option<EvmChain>)>,
) {
    let bitcoin = bitcoin.filter_map(|(section, chain)| {
        let chain = chain.as_ref()?;
        Some((section, "network", &chain.alias, &chain.chain))
    });
    let evm = evm.filter_map(|(section, chain)| {
        let chain = chain.as_ref()?;
        Some((section, "chain_id", &chain.alias, &chain.chain))
    });
    let all: Vec<_> = bitcoin.chain(evm).collect();
    for (at, (section, key, alias, chain)) in all.iter().enumerate() {
        for (other, _, other_alias, other_chain) in &all[..at] {
            if other_alias == alias {
                section.fault("alias", format!("{alias:?} is taken by {}", other.path()));
            }
            if other_chain == chain {
                section.fault(key, format!("{chain} is the chain of {} already", other.path()));
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

    /// Every table of an EVM chain.
    const EVM: &str = "[[evm]]\ncheckpoints = [{}]\n[[evm.endpoint]]\n[evm.native]\n\
                       [[evm.native.policy]]\n[[evm.token]]\n[[evm.token.policy]]\n";

    /// Every table of a source of webhooks.
    const INBOX: &str = "[[inbox]]\nverifier = \"hmac\"\nonly = [{}]\n[inbox.hmac]\n[inbox.credit]\n";

    #[test]
    fn the_default_file_names_every_key_that_the_code_reads() {
        let faults = Faults::new(DEFAULT_TOML);
        let with_all = format!(
            "{DEFAULT_TOML}\n[[merchant]]\nslug = \"a\"\n[[bitcoin]]\ncheckpoints = [{{}}]\n{EVM}{INBOX}"
        );
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
