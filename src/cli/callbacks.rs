//! `callbacks`: what was sent, what waits, what is parked, and sending it again.

use super::args::Repair;
use super::callback_args::CallbackFilter;
use super::open;
use super::out::Out;
use super::table::{Align, Table};
use super::{Outcome, next_position};
use crate::clock::{Clock, rfc3339};
use crate::config::Config;
use crate::store::report::{AttemptRow, DeliveryFilter, DeliveryRow, Listed, Page};
use serde::Serialize;
use std::time::Duration;

#[derive(Serialize)]
struct DeliveryJson {
    event: String,
    seq: u64,
    r#type: String,
    subject: String,
    endpoint: String,
    state: String,
    attempts: u32,
    next_at: Option<String>,
    settled_at: Option<String>,
    last_status: Option<u16>,
    last_error: Option<String>,
}

#[derive(Serialize)]
struct AttemptJson {
    number: u32,
    at: String,
    took_ms: i64,
    status: Option<u16>,
    error: Option<String>,
    reply: String,
}

#[derive(Serialize)]
struct ShownJson {
    event: String,
    body: serde_json::Value,
    deliveries: Vec<ShownDelivery>,
}

#[derive(Serialize)]
struct ShownDelivery {
    #[serde(flatten)]
    delivery: DeliveryJson,
    tries: Vec<AttemptJson>,
}

fn json(row: DeliveryRow) -> DeliveryJson {
    DeliveryJson {
        event: row.event,
        seq: row.seq,
        r#type: row.kind,
        subject: row.subject,
        endpoint: row.endpoint,
        state: row.state,
        attempts: row.attempts,
        next_at: row.next_at.map(rfc3339),
        settled_at: row.settled_at.map(rfc3339),
        last_status: row.last_status,
        last_error: row.last_error,
    }
}

fn attempt_json(row: AttemptRow) -> AttemptJson {
    AttemptJson {
        number: row.number,
        at: rfc3339(row.at),
        took_ms: row.took_ms,
        status: row.status,
        error: Some(row.error).filter(|error| !error.is_empty()),
        reply: String::from_utf8_lossy(&row.reply).into_owned(),
    }
}

/// Lists deliveries, newest first.
pub(super) fn list(out: &mut Out, config: &Config, args: &CallbackFilter) -> anyhow::Result<Outcome> {
    let filter = DeliveryFilter {
        event: None,
        endpoint: args.endpoint.clone(),
        state: args.state.map(|state| state.word()),
    };
    let page = open::page(&args.page);
    let rows = open::reader(config)?.read(|tx| tx.list_deliveries(&filter, page))?;
    let next = next_position(&rows, page);
    if out.json {
        let rows: Vec<DeliveryJson> = rows.into_iter().map(|listed| json(listed.row)).collect();
        return out.list("callbacks", &rows, next);
    }
    let mut table = Table::new(&[
        ("event", Align::Left),
        ("type", Align::Left),
        ("endpoint", Align::Left),
        ("state", Align::Left),
        ("tries", Align::Right),
        ("next", Align::Left),
        ("last answer", Align::Left),
    ]);
    for Listed { row, .. } in rows {
        let answer = row
            .last_error
            .clone()
            .or_else(|| row.last_status.map(|status| status.to_string()));
        table.row(vec![
            row.event,
            row.kind,
            row.endpoint,
            row.state,
            row.attempts.to_string(),
            row.next_at.map(rfc3339).unwrap_or_default(),
            answer.unwrap_or_default(),
        ]);
    }
    out.table(&table, "no callbacks", next)
}

/// Shows one event: its body and every attempt at every endpoint.
pub(super) fn show(out: &mut Out, config: &Config, event: &str) -> anyhow::Result<Outcome> {
    let filter = DeliveryFilter {
        event: Some(event.to_owned()),
        ..DeliveryFilter::default()
    };
    let page = Page {
        after: None,
        limit: u32::MAX,
    };
    let (body, shown) = open::reader(config)?.read(|tx| {
        let body = tx.event_body(event)?;
        let mut shown = Vec::new();
        for Listed { row, .. } in tx.list_deliveries(&filter, page)? {
            let tries = tx.attempts(event, &row.endpoint)?;
            shown.push((row, tries));
        }
        Ok((body, shown))
    })?;
    if out.json {
        let deliveries = shown.into_iter().map(|(row, tries)| ShownDelivery {
            delivery: json(row),
            tries: tries.into_iter().map(attempt_json).collect(),
        });
        let body = serde_json::from_str(&body)?;
        return out.json(&ShownJson {
            event: event.to_owned(),
            body,
            deliveries: deliveries.collect(),
        });
    }
    out.line(format!("event {event}"))?;
    out.line(format!("  {body}"))?;
    for (row, tries) in shown {
        out.line(format!("to {}: {}", row.endpoint, row.state))?;
        for entry in tries {
            let answer = entry
                .status
                .map_or_else(|| "no answer".to_owned(), |status| status.to_string());
            let tail = if entry.error.is_empty() {
                String::new()
            } else {
                format!(": {}", entry.error)
            };
            let line = format!(
                "  {} try {} in {} ms, {answer}{tail}",
                rfc3339(entry.at),
                entry.number,
                entry.took_ms
            );
            out.line(line)?;
        }
    }
    out.done()
}

/// Sends an event again: to one endpoint, or to every one where it is parked.
pub(super) fn retry(
    out: &mut Out,
    config: &Config,
    event: &str,
    endpoint: Option<&str>,
    repair: &Repair,
) -> anyhow::Result<Outcome> {
    let targets = targets(config, event, endpoint)?;
    if targets.is_empty() {
        return super::repair::nothing(out, "retry", repair, format!("{event} is parked nowhere"));
    }
    let text = format!("send {event} again to {}", targets.join(", "));
    super::repair::act(out, "retry", repair, text, Vec::new(), || {
        let mut database = open::writer(config)?;
        Ok(database.write(open::now_ms(), |tx| {
            let mut is_changed = false;
            for target in &targets {
                is_changed |= tx.retry_delivery(event, target, &repair.reason)?;
            }
            Ok(is_changed)
        })?)
    })
}

fn targets(config: &Config, event: &str, endpoint: Option<&str>) -> anyhow::Result<Vec<String>> {
    if let Some(endpoint) = endpoint {
        // What would be refused with `--apply` is refused without it too.
        open::reader(config)?.read(|tx| {
            tx.event_body(event)?;
            tx.endpoint(endpoint)
        })?;
        return Ok(vec![endpoint.to_owned()]);
    }
    let filter = DeliveryFilter {
        event: Some(event.to_owned()),
        endpoint: None,
        state: Some("parked"),
    };
    let page = Page {
        after: None,
        limit: u32::MAX,
    };
    let parked = open::reader(config)?.read(|tx| {
        tx.event_body(event)?;
        tx.list_deliveries(&filter, page)
    })?;
    Ok(parked.into_iter().map(|listed| listed.row.endpoint).collect())
}

/// Waits until an event was tried at an endpoint; `None` when the time is up.
pub(super) fn wait_for_attempt(
    config: &Config,
    event: &str,
    endpoint: &str,
    patience: Duration,
) -> anyhow::Result<Option<DeliveryRow>> {
    let clock = Clock::real();
    let began = clock.instant();
    let filter = DeliveryFilter {
        event: Some(event.to_owned()),
        endpoint: Some(endpoint.to_owned()),
        state: None,
    };
    let page = Page {
        after: None,
        limit: 1,
    };
    let database = open::reader(config)?;
    loop {
        let found = database
            .read(|tx| tx.list_deliveries(&filter, page))?
            .pop()
            .map(|listed| listed.row);
        let is_tried = |row: &DeliveryRow| row.last_status.is_some() || row.last_error.is_some();
        if let Some(row) = found.filter(is_tried) {
            return Ok(Some(row));
        }
        if clock.instant() - began >= patience {
            return Ok(None);
        }
        clock.pause(Duration::from_millis(50));
    }
}
