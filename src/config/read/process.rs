//! `[log]`, `[callbacks]`, `[ops]`, `[backup]`, `[audit]`, `[evidence]` and `[api]`: what concerns the daemon
//! and no chain. An absent table reads as one without keys.

use super::super::section::Section;
use super::super::{
    ApiConfig, ApiTls, AuditConfig, BackupConfig, CallbacksConfig, LogConfig, LogFormat, OpsConfig,
    SecretFile,
};
use super::text;
use crate::egress::{Policy as EgressPolicy, Range, Url};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use toml::de::DeValue;

const OPS_LISTEN: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 9333);
const API_LISTEN: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 9334);
const LISTEN: &str = "an address and a port such as \"127.0.0.1:9333\", or \"off\"";

pub(super) fn log(section: Option<&Section<'_>>) -> LogConfig {
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

pub(super) fn callbacks(section: Option<&Section<'_>>, folder: &Path) -> CallbacksConfig {
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
pub(super) fn ops(section: Option<&Section<'_>>) -> OpsConfig {
    let usual = Some(SocketAddr::from(OPS_LISTEN));
    let Some(section) = section else {
        return OpsConfig { listen: usual };
    };
    let listen = listen(section);
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

/// Without the table, or without a folder in it, none are made.
pub(super) fn backup(section: Option<&Section<'_>>, folder: &Path) -> Option<BackupConfig> {
    let section = section?;
    let place = section.optional("folder", "a path", |value| {
        text(value).filter(|path| !path.is_empty())
    });
    let every_hours = section.number("every_hours", 1..=720, 24);
    let keep = section.number("keep", 1..=1_000, 14);
    section.close();
    Some(BackupConfig {
        folder: folder.join(place?),
        every: Duration::from_secs(every_hours * 3_600),
        keep: usize::try_from(keep).unwrap_or(usize::MAX),
    })
}

pub(super) fn audit(section: Option<&Section<'_>>) -> AuditConfig {
    let number = |key, range, default| section.map_or(default, |found| found.number(key, range, default));
    let every_hours = number("every_hours", 0..=720, 24);
    let minutes = number("minutes", 1..=720, 30);
    let blocks_per_second = number("blocks_per_second", 1..=1_000, 2);
    let age_blocks = number("age_blocks", 0..=2_016, 6);
    let unspent = section.and_then(|audit| audit.optional("unspent", "true or false", DeValue::as_bool));
    if let Some(section) = section {
        section.close();
    }
    AuditConfig {
        every: (every_hours > 0).then(|| Duration::from_secs(every_hours * 3_600)),
        longest: Duration::from_secs(minutes * 60),
        blocks_per_second: u32::try_from(blocks_per_second).unwrap_or(u32::MAX),
        age_blocks,
        has_unspent: unspent.unwrap_or(false),
    }
}

/// Whether proofs are stored.
pub(super) fn evidence(section: Option<&Section<'_>>) -> bool {
    let Some(section) = section else {
        return true;
    };
    let store = section.optional("store", "true or false", DeValue::as_bool);
    section.close();
    store.unwrap_or(true)
}

fn listen(section: &Section<'_>) -> Option<Option<SocketAddr>> {
    section.optional("listen", LISTEN, |value| match text(value)? {
        "off" => Some(None),
        address => address.parse().ok().map(Some),
    })
}

/// Keys and answers go over it: to other machines only under TLS, or to a proxy that speaks it.
pub(super) fn api(section: Option<&Section<'_>>, folder: &Path) -> ApiConfig {
    let usual = Some(SocketAddr::from(API_LISTEN));
    let number = |key, range, default| section.map_or(default, |found| found.number(key, range, default));
    let connections = number("connections", 16..=65_536, 1_024);
    let rate = number("rate_per_second", 1..=100_000, 100);
    let days = number("idempotency_days", 1..=3_650, 30);
    let (listen, tls) = match section {
        None => (usual, None),
        Some(section) => api_listen(section, folder, usual),
    };
    let public_url = section.and_then(|section| api_public_url(section, listen));
    if let Some(section) = section {
        section.close();
    }
    ApiConfig {
        listen,
        tls,
        connections_max: usize::try_from(connections).unwrap_or(usize::MAX),
        rate_per_sec: u32::try_from(rate).unwrap_or(u32::MAX),
        idempotency_keep: Duration::from_secs(days * 86_400),
        public_url,
    }
}

/// Payers are sent there: in the clear anybody on the way could put another address into the page.
fn api_public_url(section: &Section<'_>, listen: Option<SocketAddr>) -> Option<String> {
    let allowed =
        "https://HOST, with a port or a path if need be and nothing after it; http only to this machine";
    let url = section.optional("public_url", allowed, |value| public_url(text(value)?));
    if section.has("public_url") && listen.is_none() {
        section.fault(
            "public_url",
            "found while listen is off: payment pages are served by it",
        );
    }
    url
}

fn public_url(text: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]".contains(&byte);
    let url = Url::parse(text).ok().filter(|_| text.bytes().all(plain))?;
    let is_own = ["localhost", "127.0.0.1", "[::1]"].contains(&url.host_str()?);
    let is_good = match url.scheme() {
        "https" => true,
        "http" => is_own,
        _ => false,
    };
    is_good.then(|| url.as_str().trim_end_matches('/').to_owned())
}

fn api_listen(
    section: &Section<'_>,
    folder: &Path,
    usual: Option<SocketAddr>,
) -> (Option<SocketAddr>, Option<ApiTls>) {
    let listen = listen(section).unwrap_or(usual);
    let certificate = section.optional("tls_cert_file", "a path", |value| {
        text(value).filter(|path| !path.is_empty())
    });
    let key = section.optional("tls_key_file", "a path or \"credential:NAME\"", |value| {
        SecretFile::from_config(text(value)?, folder)
    });
    let behind_proxy = section.optional("behind_proxy", "true or false", DeValue::as_bool);
    match (section.has("tls_cert_file"), section.has("tls_key_file")) {
        (true, false) => section.missing("tls_key_file", "missing beside tls_cert_file, allowed: a path"),
        (false, true) => section.missing("tls_cert_file", "missing beside tls_key_file, allowed: a path"),
        (true, true) | (false, false) => {}
    }
    if let Some(address) = listen
        && !address.ip().is_loopback()
        && !section.has("tls_cert_file")
        && behind_proxy != Some(true)
    {
        let text = format!(
            "{address} can be reached from other machines, allowed: 127.0.0.1 or [::1], or any address with \
             tls_cert_file and tls_key_file, or with behind_proxy = true where a proxy speaks TLS for it"
        );
        section.fault("listen", text);
    }
    let tls = certificate.zip(key).map(|(certificate, key)| ApiTls {
        certificate: folder.join(certificate),
        key,
    });
    (listen, tls)
}
