//! `[[addresses]]`: where addresses to hand out come from.

use super::super::section::Section;
use super::super::{AddressSource, BitcoinChain, EvmChain, Scope, SourceFrom};
use super::{NAME, name, text};
use crate::address::{Derivation, Network, ScriptKind, SourceError, holds_private_key};
use std::path::Path;

/// What stands for all EVM chains in place of an alias.
const EVM: &str = "evm";

/// All sources, as far as they can be read.
pub(super) fn addresses(
    sections: &[Section<'_>],
    folder: &Path,
    (bitcoin, evm): (&[Option<BitcoinChain>], &[Option<EvmChain>]),
) -> Vec<AddressSource> {
    let mut sources: Vec<AddressSource> = Vec::new();
    for section in sections {
        let read = source(section, folder, (bitcoin, evm));
        section.close();
        let Some(read) = read else { continue };
        if let Some((key, fault)) = sources.iter().find_map(|other| clash(other, &read)) {
            section.fault(key, fault);
        }
        sources.push(read);
    }
    sources
}

fn source(
    section: &Section<'_>,
    folder: &Path,
    (bitcoin, evm): (&[Option<BitcoinChain>], &[Option<EvmChain>]),
) -> Option<AddressSource> {
    let source_name = section.required("name", NAME, name);
    let merchant = section.optional("merchant", NAME, name);
    let pool_size = section.number("pool", 1..=1_000_000, 1_000);
    let known: Vec<&BitcoinChain> = bitcoin.iter().flatten().collect();
    let aliases: Vec<&str> = known.iter().map(|chain| chain.alias.as_str()).collect();
    let allowed = format!(
        "the alias of a [[bitcoin]] chain ({}), or \"evm\" for all EVM chains",
        aliases.join(", ")
    );
    let scope = section.required("chain", &allowed, |value| {
        let alias = text(value)?;
        match known.iter().find(|chain| chain.alias == alias) {
            Some(chain) => Some(Scope::Bitcoin {
                chain: chain.chain.clone(),
                network: chain.network,
            }),
            None if alias == EVM && !evm.is_empty() => Some(Scope::Evm),
            None => None,
        }
    });
    let script = section.optional("script", "\"pkh\", \"sh-wpkh\", \"wpkh\" or \"tr\"", |value| {
        ScriptKind::from_word(text(value)?)
    });
    let from = from(section, folder, scope.as_ref(), script);
    Some(AddressSource {
        name: source_name?.to_owned(),
        scope: scope?,
        merchant: merchant.map(str::to_owned),
        pool_size: u32::try_from(pool_size).unwrap_or(u32::MAX),
        from: from?,
    })
}

/// One of the three; what is wrong with a key is told without showing it.
fn from(
    section: &Section<'_>,
    folder: &Path,
    scope: Option<&Scope>,
    script: Option<ScriptKind>,
) -> Option<SourceFrom> {
    let any = |key| section.optional(key, "a text", text).map(|text| (key, text));
    let written: Vec<(&'static str, &str)> = [any("descriptor"), any("xpub"), any("list_file")]
        .into_iter()
        .flatten()
        .collect();
    for (key, text) in &written {
        if holds_private_key(text) {
            section.fault(key, SourceError::Private.to_string());
            return None;
        }
    }
    let [(key, text)] = written[..] else {
        let place = written.get(1).map_or("xpub", |(key, _)| *key);
        section.fault(place, "allowed: one of descriptor, xpub and list_file");
        return None;
    };
    if script.is_some() && (key != "xpub" || scope == Some(&Scope::Evm)) {
        section.fault("script", "allowed only beside the xpub of a [[bitcoin]] chain");
    }
    let derived = match (key, scope?) {
        ("list_file", _) => return list(section, text).map(|text| SourceFrom::List(folder.join(text))),
        ("xpub", Scope::Evm) => Derivation::evm(text),
        ("xpub", Scope::Bitcoin { network, .. }) => Derivation::extended_key(*network, text, script),
        (_, Scope::Bitcoin { network, .. }) => descriptor(*network, text),
        (_, Scope::Evm) => {
            section.fault("descriptor", "not for EVM chains, allowed: xpub or list_file");
            return None;
        }
    };
    derived
        .map_err(|error| section.fault(key, error.to_string()))
        .ok()
        .map(SourceFrom::Derived)
}

fn descriptor(network: Network, text: &str) -> Result<Derivation, SourceError> {
    Derivation::descriptor(network, text)
}

fn list<'t>(section: &Section<'_>, text: &'t str) -> Option<&'t str> {
    if text.is_empty() {
        section.fault("list_file", "empty, allowed: a path");
    }
    Some(text).filter(|text| !text.is_empty())
}

/// Why two sources cannot be both.
fn clash(other: &AddressSource, new: &AddressSource) -> Option<(&'static str, String)> {
    if other.name == new.name {
        return Some(("name", format!("{:?} is there twice", new.name)));
    }
    if other.scope == new.scope && other.from == new.from {
        let key = match &new.from {
            SourceFrom::Derived(Derivation::Descriptor(_) | Derivation::Evm(_)) => "xpub",
            SourceFrom::List(_) => "list_file",
        };
        return Some((key, format!("has the same addresses as {:?}", other.name)));
    }
    if other.scope == new.scope && other.merchant == new.merchant {
        let whose = match &new.merchant {
            Some(merchant) => format!("for {merchant}"),
            None => "for all merchants".to_owned(),
        };
        return Some((
            "chain",
            format!("{:?} hands out addresses there {whose} already", other.name),
        ));
    }
    None
}
