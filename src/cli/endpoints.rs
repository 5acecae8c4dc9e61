//! `endpoint`: where callbacks go, and what they are signed with. A secret is shown once, when it is made.

use super::args::Repair;
use super::callback_args::EndpointAdd;
use super::open;
use super::out::Out;
use super::table::{Align, Table};
use super::{Outcome, Problem};
use crate::clock::rfc3339;
use crate::config::Config;
use crate::egress;
use crate::store::Endpoint;
use crate::webhook::{self, Key, Scheme};
use anyhow::Context as _;
use serde::Serialize;
use std::time::Duration;

#[derive(Serialize)]
struct EndpointJson {
    id: String,
    merchant: Option<String>,
    url: String,
    types: Vec<String>,
    state: &'static str,
    paused_reason: Option<String>,
    failures: u32,
    created_at: String,
}

#[derive(Serialize)]
struct AddedJson {
    outcome: &'static str,
    endpoint: EndpointJson,
    /// Nothing else was ever entered for this merchant: its name may be misspelt.
    is_merchant_new: bool,
    /// The secret (v1) or the public key (v1a); `null` when the endpoint was there already.
    secret: Option<String>,
}

/// What can be subscribed to. `endpoint.test` comes without being asked for.
const EVENT_TYPES: [&str; 13] = [
    "deposit.seen",
    "deposit.confirming",
    "deposit.evicted",
    "deposit.replaced",
    "deposit.orphaned",
    "deposit.failed",
    "deposit.held",
    "deposit.released",
    "credit.created",
    "credit.reversed",
    "credit.reinstated",
    "chain.halted",
    "chain.resumed",
];

fn json(endpoint: Endpoint) -> EndpointJson {
    EndpointJson {
        id: endpoint.id,
        merchant: endpoint.merchant,
        url: endpoint.url,
        types: endpoint.types.split_whitespace().map(str::to_owned).collect(),
        state: if endpoint.paused_reason.is_some() {
            "paused"
        } else {
            "active"
        },
        paused_reason: endpoint.paused_reason,
        failures: endpoint.failures,
        created_at: rfc3339(endpoint.created_at),
    }
}

/// Adds an endpoint and shows what its receiver verifies with.
pub(super) fn add(out: &mut Out, config: &Config, args: &EndpointAdd) -> anyhow::Result<Outcome> {
    let url = egress::check_url(&args.url, &config.callbacks.policy).map_err(|error| {
        let next = "give the https URL of a public host, or list its address in [callbacks] allow_ranges";
        Problem::found(error.to_string(), next)
    })?;
    let merchant = (!args.ops).then_some(args.merchant.as_deref()).flatten();
    if merchant.is_none() && !args.ops {
        let next = "name the merchant with --merchant, or take the events of operators with --ops";
        return Err(Problem::misuse("whose events?", next).into());
    }
    let types = types_of(&args.types)?;
    let key = fresh(if args.ed25519 { Scheme::V1a } else { Scheme::V1 })?;
    let mut database = open::maker(config)?;
    let added = database.write(open::now_ms(), |tx| {
        let is_merchant_new = match merchant {
            Some(slug) => !tx.has_merchant(slug)?,
            None => false,
        };
        let (endpoint, is_new) = tx.add_endpoint(merchant, url.as_str(), &types, &key)?;
        Ok((endpoint, is_new, is_merchant_new))
    });
    let (endpoint, is_new, is_merchant_new) = added?;
    let shown = is_new.then(|| shown_once(&key));
    if out.json {
        let outcome = if is_new { "added" } else { "known" };
        return out.json(&AddedJson {
            outcome,
            endpoint: json(endpoint),
            is_merchant_new,
            secret: shown,
        });
    }
    match shown {
        None => out.line(format!("{} is there already; its secret stays", endpoint.id))?,
        Some(shown) => {
            out.line(format!("added {} for {}", endpoint.id, endpoint.url))?;
            if let Some(merchant) = merchant.filter(|_| is_merchant_new) {
                out.line(format!(
                    "merchant {merchant} is new: nothing is watched for it yet"
                ))?;
            }
            out.line(format!("{} (shown once): {shown}", name_of(&key)))?;
        }
    }
    out.done()
}

fn types_of(types: &[String]) -> Result<String, Problem> {
    for kind in types.iter().filter(|kind| kind.as_str() != "*") {
        let is_known = |known: &&str| {
            let family = kind.strip_suffix('*').filter(|family| family.ends_with('.'));
            known == kind || family.is_some_and(|family| known.starts_with(family))
        };
        if !EVENT_TYPES.iter().any(is_known) {
            let next = format!("one of {}, or a family such as credit.*", EVENT_TYPES.join(", "));
            return Err(Problem::misuse(format!("no event has the type {kind}"), next));
        }
    }
    Ok(if types.is_empty() {
        "*".to_owned()
    } else {
        types.join(" ")
    })
}

fn fresh(scheme: Scheme) -> anyhow::Result<Key> {
    webhook::fresh_key(scheme).context("draw a secret from the system's random numbers")
}

/// What the receiver needs: of an ed25519 key only the public half ever leaves.
fn shown_once(key: &Key) -> String {
    key.public_text()
        .unwrap_or_else(|| key.to_secret().reveal().to_owned())
}

fn name_of(key: &Key) -> &'static str {
    match key.scheme() {
        Scheme::V1 => "secret",
        Scheme::V1a => "public key",
    }
}

/// Lists endpoints; never their secrets.
pub(super) fn list(out: &mut Out, config: &Config) -> anyhow::Result<Outcome> {
    let endpoints = open::reader(config)?.read(|tx| tx.endpoints())?;
    if out.json {
        let rows: Vec<EndpointJson> = endpoints.into_iter().map(json).collect();
        return out.list("endpoints", &rows, None);
    }
    let mut table = Table::new(&[
        ("id", Align::Left),
        ("merchant", Align::Left),
        ("url", Align::Left),
        ("types", Align::Left),
        ("state", Align::Left),
    ]);
    for endpoint in endpoints {
        let state = match (&endpoint.paused_reason, endpoint.failures) {
            (Some(reason), _) => format!("paused: {reason}"),
            (None, 0) => "active".to_owned(),
            (None, failures) => format!("failing ({failures} in a row)"),
        };
        let owner = endpoint.merchant.unwrap_or_else(|| "(ops)".to_owned());
        table.row(vec![endpoint.id, owner, endpoint.url, endpoint.types, state]);
    }
    out.table(&table, "no endpoints; `creditd endpoint add` makes one", None)
}

/// Pauses or resumes.
pub(super) fn set_paused(
    out: &mut Out,
    config: &Config,
    id: &str,
    is_paused: bool,
    repair: &Repair,
) -> anyhow::Result<Outcome> {
    let endpoint = open::reader(config)?.read(|tx| tx.endpoint(id))?;
    let word = if is_paused { "pause" } else { "resume" };
    if endpoint.paused_reason.is_some() == is_paused {
        return super::repair::nothing(out, word, repair, format!("{id} is {word}d already"));
    }
    let text = if is_paused {
        format!("pause {id}: events are queued and not sent")
    } else {
        format!("resume {id}: what it has queued is sent")
    };
    super::repair::act(out, word, repair, text, Vec::new(), || {
        let mut database = open::writer(config)?;
        Ok(database.write(open::now_ms(), |tx| match is_paused {
            true => tx.pause_endpoint(id, &repair.reason, "operator"),
            false => tx.resume_endpoint(id, &repair.reason),
        })?)
    })
}

/// Gives an endpoint a new secret; the old one goes on being used for a while.
pub(super) fn rotate(
    out: &mut Out,
    config: &Config,
    id: &str,
    overlap_hours: u32,
    reason: &str,
) -> anyhow::Result<Outcome> {
    let mut database = open::writer(config)?;
    let now = open::now_ms();
    let (endpoint, keys) = database.read(|tx| {
        let endpoint = tx.endpoint(id)?;
        let keys = tx.live_keys(&endpoint, now)?;
        Ok((endpoint, keys))
    })?;
    let key = fresh(keys.first().map_or(Scheme::V1, Key::scheme))?;
    let overlap_ms = i64::from(overlap_hours) * 3_600_000;
    database.write(now, |tx| tx.rotate_key(id, &key, overlap_ms, reason))?;
    let shown = shown_once(&key);
    if out.json {
        return out.json(&AddedJson {
            outcome: "rotated",
            endpoint: json(endpoint),
            is_merchant_new: false,
            secret: Some(shown),
        });
    }
    out.line(format!("{} (shown once): {shown}", name_of(&key)))?;
    out.line(format!(
        "callbacks carry both signatures for {overlap_hours} hours"
    ))?;
    out.done()
}

#[derive(Serialize)]
struct TestJson<'a> {
    event: &'a str,
    endpoint: &'a str,
    state: Option<&'a str>,
    last_status: Option<u16>,
    last_error: Option<&'a str>,
}

/// Sends a test event through the running daemon and waits for its first attempt.
pub(super) fn test(out: &mut Out, config: &Config, id: &str, wait_secs: u32) -> anyhow::Result<Outcome> {
    let mut database = open::writer(config)?;
    if let Some(reason) = database.read(|tx| tx.endpoint(id))?.paused_reason {
        let next = format!("creditd endpoint resume {id}");
        return Err(Problem::found(format!("{id} is paused ({reason}): nothing is sent to it"), next).into());
    }
    let event = database.write(open::now_ms(), |tx| tx.test_endpoint(id))?;
    let tried =
        super::callbacks::wait_for_attempt(config, &event, id, Duration::from_secs(wait_secs.into()))?;
    let is_delivered = tried.as_ref().is_some_and(|row| row.state == "delivered");
    if out.json {
        out.json(&TestJson {
            event: &event,
            endpoint: id,
            state: tried.as_ref().map(|row| row.state.as_str()),
            last_status: tried.as_ref().and_then(|row| row.last_status),
            last_error: tried.as_ref().and_then(|row| row.last_error.as_deref()),
        })?;
    } else {
        out.line(match &tried {
            Some(row) if is_delivered => {
                format!("{event} was delivered: {}", row.last_status.unwrap_or_default())
            }
            Some(row) => format!(
                "{event} was refused: {}",
                row.last_error.as_deref().unwrap_or("unknown")
            ),
            None => format!("{event} is queued; no attempt within {wait_secs} s: does `creditd run` run?"),
        })?;
    }
    if is_delivered {
        out.done()
    } else {
        Ok(Outcome::Found)
    }
}
