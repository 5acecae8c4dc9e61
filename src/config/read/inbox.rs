//! Reading `[[inbox]]`.

use super::{NAME, name, text};
use crate::config::section::{Section, whole};
use crate::config::{
    BitcoinChain, Condition, CreditRule, EvmChain, INBOX_KEEP, InboxEffect, InboxSource, InboxVerifier,
    SecretFile,
};
use crate::rules::ChainId;
use crate::webhook::{
    Digest, Encoding, HmacSettings, Identity, Pointer, Preset, SettingsError, Signed, TimeField,
};
use std::path::Path;
use std::time::Duration;
use toml::de::DeValue;

const DAY_SECS: u64 = 86_400;
const POINTER: &str = "a JSON pointer such as \"/data/object/id\"";
const POINTERS: &str = "a list of JSON pointers such as \"/id\"";
const VERIFIERS: &str = "\"standard\", \"stripe\", \"github\", \"btcpay\", \"coinbase_commerce\" or \"hmac\"";
const EFFECTS: &str = "\"deposit.hint\", \"credit.external\" or \"forward\"";

/// Alias and identity of each chain of the config.
pub(super) type Known = Vec<(String, ChainId)>;

/// The chains that were read well.
pub(super) fn known(bitcoin: &[Option<BitcoinChain>], evm: &[Option<EvmChain>]) -> Known {
    let bitcoin = bitcoin.iter().flatten().map(|chain| (&chain.alias, &chain.chain));
    let evm = evm.iter().flatten().map(|chain| (&chain.alias, &chain.chain));
    bitcoin
        .chain(evm)
        .map(|(alias, chain)| (alias.clone(), chain.clone()))
        .collect()
}

/// All sources; `None` where one is wrong.
pub(super) fn inbox(sections: &[Section<'_>], folder: &Path, chains: &Known) -> Option<Vec<InboxSource>> {
    let mut sources: Vec<Option<InboxSource>> = Vec::new();
    for section in sections {
        let source = source(section, folder, chains);
        let is_known = |known: &InboxSource| source.as_ref().is_some_and(|new| new.source == known.source);
        if sources.iter().flatten().any(is_known) {
            section.fault("source", "is there twice");
        }
        sources.push(source);
    }
    sources.into_iter().collect()
}

fn source(section: &Section<'_>, folder: &Path, chains: &Known) -> Option<InboxSource> {
    let source = section.required("source", NAME, name);
    let secrets = section.required(
        "secret_files",
        "a list of 1 to 4 paths or \"credential:NAME\"",
        |value| {
            let texts = texts(value)?;
            let files = texts.iter().map(|text| SecretFile::from_config(text, folder));
            files
                .collect::<Option<Vec<_>>>()
                .filter(|files| (1..=4).contains(&files.len()))
        },
    );
    let tolerance_secs = section.number("tolerance_secs", 10..=3_600, 300);
    let keep_days = section.number("keep_days", 1..=3_650, INBOX_KEEP.as_secs() / DAY_SECS);
    let verifier = verifier(section);
    let only: Option<Vec<Condition>> = section
        .tables("only")
        .unwrap_or_default()
        .iter()
        .map(condition)
        .collect();
    let effect = effect(section, chains);
    section.close();
    Some(InboxSource {
        source: source?.to_owned(),
        verifier: verifier?,
        secrets: secrets?,
        tolerance: Duration::from_secs(tolerance_secs),
        keep: Duration::from_secs(keep_days * DAY_SECS),
        only: only?,
        effect: effect?,
    })
}

fn condition(section: &Section<'_>) -> Option<Condition> {
    let field = section.required("field", POINTER, pointer);
    let is = section.required("is", "a list of texts", |value| {
        texts(value).filter(|texts| !texts.is_empty())
    });
    section.close();
    Some(Condition {
        field: field?,
        is: is?.into_iter().map(str::to_owned).collect(),
    })
}

fn verifier(section: &Section<'_>) -> Option<InboxVerifier> {
    let named = section.required("verifier", VERIFIERS, |value| match text(value)? {
        "standard" => Some(Some(InboxVerifier::Standard)),
        "hmac" => Some(None),
        name => Preset::ALL
            .into_iter()
            .find(|preset| preset.name() == name)
            .map(|preset| Some(InboxVerifier::Hmac(preset.settings()))),
    });
    match (named?, section.table("hmac")) {
        (Some(verifier), None) => Some(verifier),
        (Some(_), Some(hmac)) => {
            section.fault("hmac", "is for verifier = \"hmac\" alone");
            hmac_settings(&hmac);
            None
        }
        (None, Some(hmac)) => hmac_settings(&hmac).map(InboxVerifier::Hmac),
        (None, None) => {
            section.missing(
                "hmac",
                "missing beside verifier = \"hmac\", allowed: a table [inbox.hmac]",
            );
            None
        }
    }
}

fn hmac_settings(section: &Section<'_>) -> Option<HmacSettings> {
    let header = section.required("header", "the header with the signature", text);
    let separator = section.optional("separator", "one letter", |value| {
        let mut letters = text(value)?.chars();
        letters.next().filter(|_| letters.next().is_none())
    });
    let prefix = section.optional("prefix", "what stands before a signature", text);
    let encoding = section.optional("encoding", "\"hex\" or \"base64\"", |value| match text(value)? {
        "hex" => Some(Encoding::Hex),
        "base64" => Some(Encoding::Base64),
        _ => None,
    });
    let digest = section.optional("digest", "\"sha256\" or \"sha512\"", |value| match text(value)? {
        "sha256" => Some(Digest::Sha256),
        "sha512" => Some(Digest::Sha512),
        _ => None,
    });
    let template = section.optional("signed", "a text such as \"{time}.{body}\"", text);
    let signed = Signed::parse(template.unwrap_or("{body}"))
        .map_err(|error| section.fault("signed", error.to_string()))
        .ok();
    let time_item = section.optional("time_item", "what stands before the time", text);
    let time_header = section.optional("time_header", "the header with the time", text);
    let time_field = section.optional("time_field", POINTER, pointer);
    let times = [time_item.is_some(), time_header.is_some(), time_field.is_some()];
    if times.iter().filter(|is_there| **is_there).count() > 1 {
        section.fault(
            "signed",
            "the time stands in one place: time_item, time_header or time_field",
        );
    }
    let time = time_item
        .map(|start| TimeField::Item(start.to_owned()))
        .or(time_header.map(|name| TimeField::Header(name.to_owned())))
        .or(time_field.map(TimeField::Body));
    let identity = Identity {
        event_id: section
            .optional("event_id", POINTERS, pointers)
            .unwrap_or_default(),
        delivery_fields: section
            .optional("delivery_fields", POINTERS, pointers)
            .unwrap_or_default(),
    };
    section.close();
    let settings = HmacSettings {
        header: header?.to_owned(),
        separator,
        prefix: prefix.unwrap_or_default().to_owned(),
        encoding: encoding.unwrap_or(Encoding::Hex),
        digest: digest.unwrap_or(Digest::Sha256),
        signed: signed?,
        time,
        identity,
    };
    match settings.check() {
        Ok(()) => Some(settings),
        Err(error) => {
            section.fault(key_of(error), error.to_string());
            None
        }
    }
}

/// The key to look at.
fn key_of(error: SettingsError) -> &'static str {
    match error {
        SettingsError::Template
        | SettingsError::NoBoundary
        | SettingsError::TimeNotSigned
        | SettingsError::NoTime => "signed",
        SettingsError::TimeItem => "time_item",
        SettingsError::HeaderName => "header",
    }
}

fn effect(section: &Section<'_>, chains: &Known) -> Option<InboxEffect> {
    let effect = section.required("effect", EFFECTS, |value| {
        text(value).filter(|word| ["deposit.hint", "credit.external", "forward"].contains(word))
    });
    let merchant = section.optional("merchant", NAME, name);
    let alias = section.optional("chain", "the alias of a chain of this file", |value| {
        let alias = text(value)?;
        chains.iter().find(|(known, _)| known == alias)
    });
    let txid = section.optional("txid", POINTER, pointer);
    let credit = section.table("credit");
    let effect = effect?;
    let of_others: &[&str] = match effect {
        "deposit.hint" => &["merchant", "credit"],
        "forward" => &["chain", "txid", "credit"],
        _ => &["chain", "txid"],
    };
    for key in of_others.iter().filter(|key| section.has(key)) {
        section.fault(key, format!("is not for effect = \"{effect}\""));
    }
    let missing = |key: &'static str, allowed: &str| {
        if !section.has(key) {
            section.missing(
                key,
                format!("missing beside effect = \"{effect}\", allowed: {allowed}"),
            );
        }
    };
    match effect {
        "deposit.hint" => {
            missing("chain", "the alias of a chain of this file");
            let (alias, chain) = alias?.clone();
            Some(InboxEffect::Hint { alias, chain, txid })
        }
        "forward" => {
            missing("merchant", NAME);
            let merchant = merchant?.to_owned();
            Some(InboxEffect::Forward { merchant })
        }
        _ => {
            missing("merchant", NAME);
            missing("credit", "a table [inbox.credit]");
            let rule = credit_rule(&credit?, merchant.unwrap_or_default());
            merchant.and(rule).map(|rule| InboxEffect::Credit(Box::new(rule)))
        }
    }
}

fn credit_rule(section: &Section<'_>, merchant: &str) -> Option<CreditRule> {
    let each = section.optional("each", POINTER, pointer);
    let payment = section.required("payment", POINTER, pointer);
    let amount = section.required("amount", POINTER, pointer);
    let amount_in = section.required("amount_in", "\"units\" or \"smallest\"", |value| {
        match text(value)? {
            "units" => Some(true),
            "smallest" => Some(false),
            _ => None,
        }
    });
    let asset = section.required("asset", "1 to 12 of A-Z, a-z and 0-9, such as \"USD\"", |value| {
        text(value).filter(|code| super::is_symbol(code))
    });
    let decimals = section.required("decimals", "a whole number from 0 to 77", |value| {
        whole(value).filter(|decimals| *decimals <= 77)
    });
    let reference = section.optional("reference", POINTER, pointer);
    let output = section.optional("output", POINTER, pointer);
    let address = section.optional("address", POINTER, pointer);
    section.close();
    Some(CreditRule {
        merchant: merchant.to_owned(),
        each,
        payment: payment?,
        amount: amount?,
        is_whole_units: amount_in?,
        asset: asset?.to_owned(),
        decimals: u8::try_from(decimals?).ok()?,
        reference,
        output,
        address,
    })
}

fn texts<'a>(value: &'a DeValue<'a>) -> Option<Vec<&'a str>> {
    value
        .as_array()?
        .iter()
        .map(|item| text(item.get_ref()))
        .collect()
}

fn pointer(value: &DeValue<'_>) -> Option<Pointer> {
    Pointer::parse(text(value)?).ok()
}

fn pointers(value: &DeValue<'_>) -> Option<Vec<Pointer>> {
    texts(value)?
        .into_iter()
        .map(|text| Pointer::parse(text).ok())
        .collect()
}
