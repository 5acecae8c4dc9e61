//! `endpoint`: where callbacks go, and what they are signed with. A secret is shown once, when it is made.

use super::args::Repair;
use super::callback_args::{EndpointAdd, EndpointList};
use super::open;
use super::out::Out;
use super::table::{Align, Table};
use super::{Outcome, Problem, read_page};
use crate::chance::Chance;
use crate::clock::rfc3339;
use crate::config::Config;
use crate::egress::{self, CallbackUrl, Lookup, UrlError};
use crate::rules::event_types::{EVENT_TYPES, SubscriptionError, subscription};
use crate::store::report::EndpointFilter;
use crate::store::{Endpoint, Undelivered, WriteTx};
use crate::webhook::{self, Key, Scheme};
use anyhow::Context as _;
use serde::Serialize;

#[derive(Serialize)]
struct EndpointJson {
    id: String,
    merchant: Option<String>,
    /// The one invoice that it is told of.
    invoice: Option<String>,
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
    /// What speaks against it, though it is added.
    warning: Option<String>,
    /// The secret (v1) or the public key (v1a); `null` when the endpoint was there already.
    secret: Option<String>,
}

fn json(endpoint: Endpoint) -> EndpointJson {
    EndpointJson {
        id: endpoint.id,
        merchant: endpoint.merchant,
        invoice: endpoint.invoice,
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
    let url = egress::check_url(&args.url, &config.callbacks.policy).map_err(refused)?;
    let merchant = (!args.ops).then_some(args.merchant.as_deref()).flatten();
    if merchant.is_none() && !args.ops {
        let next = "name the merchant with --merchant, or take the events of operators with --ops";
        return Err(Problem::misuse("whose events?", next).into());
    }
    let types = types_of(&args.types, merchant.is_none())?;
    let warning = look_up(config, &url)?;
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
            warning,
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
    if let Some(warning) = warning {
        out.line(format!("warning: {warning}"))?;
    }
    out.done()
}

fn refused(error: UrlError) -> Problem {
    let next = "give the https URL of a public host, or list its address in [callbacks] allow_ranges";
    Problem::found(error.to_string(), next)
}

/// Refuses a name that leads where callbacks do not go; a warning where it leads nowhere yet.
fn look_up(config: &Config, url: &CallbackUrl) -> Result<Option<String>, Problem> {
    match egress::look_up(url, &config.callbacks.policy) {
        Lookup::Allowed => Ok(None),
        Lookup::Refused(error) => Err(refused(error)),
        Lookup::Unresolved(why) => Ok(Some(format!(
            "{} does not resolve here ({why}): callbacks fail until it does",
            url.host()
        ))),
    }
}

/// Checks what is subscribed to.
fn types_of(types: &[String], is_ops: bool) -> Result<String, Problem> {
    subscription(types, is_ops).map_err(|error| {
        let next = match error {
            SubscriptionError::Unknown(_) => {
                format!("one of {}, or a family such as credit.*", EVENT_TYPES.join(", "))
            }
            SubscriptionError::Merchants(_) => "give --merchant instead of --ops".to_owned(),
            SubscriptionError::Operators(_) => "give --ops instead of --merchant".to_owned(),
        };
        Problem::misuse(error.to_string(), next)
    })
}

fn fresh(scheme: Scheme) -> anyhow::Result<Key> {
    webhook::fresh_key(scheme, Chance::real()).context("draw a secret from the system's random numbers")
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
pub(super) fn list(
    out: &mut Out,
    config: &Config,
    args: &EndpointList,
    invoice: Option<String>,
) -> anyhow::Result<Outcome> {
    let filter = EndpointFilter {
        merchant: args.merchant.clone(),
        invoice,
        is_paused: args.paused,
    };
    let database = open::reader(config)?;
    if let Some(invoice) = &filter.invoice
        && database.read(|tx| tx.invoice(invoice))?.is_none()
    {
        let next = "`creditd invoices list` shows ids";
        return Err(Problem::found(format!("there is no invoice {invoice}"), next).into());
    }
    let (rows, next) = read_page(open::page(&args.page), |page| {
        database.read(|tx| tx.list_endpoints(&filter, page))
    })?;
    let endpoints = rows.into_iter().map(|listed| listed.row);
    if out.json {
        let rows: Vec<EndpointJson> = endpoints.map(json).collect();
        return out.list("endpoints", &rows, next);
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
    let empty = match (&filter.invoice, filter.is_paused) {
        (Some(_), _) => "no endpoint is told of this invoice alone: it is named when the invoice is made",
        (None, true) => "no such endpoint is paused",
        (None, false) => "no such endpoints; `creditd endpoint add` makes one",
    };
    out.table(&table, empty, next)
}

/// Pauses or resumes.
pub(super) fn set_paused(
    out: &mut Out,
    config: &Config,
    id: &str,
    is_paused: bool,
    repair: &Repair,
) -> anyhow::Result<Outcome> {
    let (endpoint, undelivered) = open::reader(config)?.read(|tx| {
        let endpoint = tx.endpoint(id)?;
        let undelivered = tx.undelivered(&endpoint, open::now_ms())?;
        Ok((endpoint, undelivered))
    })?;
    let word = if is_paused { "pause" } else { "resume" };
    if endpoint.paused_reason.is_some() == is_paused {
        let text = if is_paused {
            format!("{id} is paused already")
        } else {
            format!(
                "{id} is not paused; `creditd callbacks retry --endpoint {id}` sends now what waits there"
            )
        };
        return super::repair::nothing(out, word, repair, text);
    }
    let text = if is_paused {
        format!("pause {id}: events are queued and not sent")
    } else {
        resume_words(id, undelivered)
    };
    super::repair::act(out, word, repair, text, Vec::new(), || {
        let mut database = open::writer(config)?;
        Ok(database.write(open::now_ms(), |tx| match is_paused {
            true => tx.pause_endpoint(id, &repair.reason, "operator"),
            false => tx.resume_endpoint(id, &repair.reason),
        })?)
    })
}

fn resume_words(id: &str, undelivered: Undelivered) -> String {
    let waiting = undelivered.waiting;
    let parked = match undelivered.parked {
        0 => String::new(),
        parked => format!(
            "; the {parked} that are parked stay so: `creditd callbacks retry --endpoint {id} --parked` \
             sends them"
        ),
    };
    format!("resume {id}: what waits there ({waiting} callbacks) is sent now{parked}")
}

/// Gives an endpoint a new secret; the old one goes on being used for a while. Given twice, for the same
/// reason, it makes one.
pub(super) fn rotate(
    out: &mut Out,
    config: &Config,
    id: &str,
    overlap_hours: u32,
    repair: &Repair,
) -> anyhow::Result<Outcome> {
    let now = open::now_ms();
    let (endpoint, keys, made_at) = open::reader(config)?.read(|tx| {
        let endpoint = tx.endpoint(id)?;
        let keys = tx.live_keys(&endpoint, now)?;
        let made_at = tx.rotated_for(&endpoint, &repair.reason, now)?;
        Ok((endpoint, keys, made_at))
    })?;
    let key = fresh(keys.first().map_or(Scheme::V1, Key::scheme))?;
    let overlap_ms = i64::from(overlap_hours) * 3_600_000;
    let outcome = match (made_at, repair.apply) {
        (Some(_), _) => "nothing",
        (None, false) => "dry",
        (None, true) => {
            let mut database = open::writer(config)?;
            let rotate = |tx: &mut WriteTx<'_>| tx.rotate_key(id, &key, overlap_ms, &repair.reason);
            match database.write(now, rotate)? {
                true => "rotated",
                false => "nothing",
            }
        }
    };
    let shown = (outcome == "rotated").then(|| shown_once(&key));
    if out.json {
        return out.json(&AddedJson {
            outcome,
            endpoint: json(endpoint),
            is_merchant_new: false,
            warning: None,
            secret: shown,
        });
    }
    let name = name_of(&key);
    match shown {
        Some(shown) => {
            out.line(format!("{name} (shown once): {shown}"))?;
            out.line(overlap(overlap_hours))?;
        }
        None if outcome == "dry" => {
            out.line(format!(
                "would make a new {name} for {id}; {}",
                overlap(overlap_hours)
            ))?;
            out.line("nothing was changed; the same with --apply does it")?;
        }
        None => {
            let at = made_at.map_or_else(|| "just now".to_owned(), rfc3339);
            out.line(format!(
                "nothing to do: {id} got a new {name} for this reason at {at}; another reason makes another"
            ))?;
        }
    }
    out.done()
}

fn overlap(hours: u32) -> String {
    match hours {
        0 => "the old signature ends at once".to_owned(),
        1 => "callbacks carry both signatures for 1 hour".to_owned(),
        hours => format!("callbacks carry both signatures for {hours} hours"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The words in backquotes of the table of events.
    fn documented() -> BTreeSet<String> {
        let text = include_str!("../../docs/callbacks.md");
        let table = text.split("## Events").nth(1).unwrap();
        let table = table.split("\n\n").nth(1).unwrap();
        let cells = table.lines().skip(2).filter_map(|line| line.split('|').nth(1));
        let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        words.map(str::to_owned).collect()
    }

    #[test]
    fn schema_page_and_subscriptions_name_the_same_events() {
        let schema: serde_json::Value =
            serde_json::from_str(include_str!("../../docs/events.schema.json")).unwrap();
        let listed = schema["properties"]["type"]["enum"].as_array().unwrap();
        let listed: BTreeSet<String> = listed
            .iter()
            .map(|kind| kind.as_str().unwrap().to_owned())
            .collect();
        // It comes without being asked for.
        let asked = ["endpoint.test"].into_iter().chain(EVENT_TYPES);
        let asked: BTreeSet<String> = asked.map(str::to_owned).collect();
        assert_eq!(documented(), asked);
        assert_eq!(listed, asked);
    }
}
