//! `callbacks`: what was sent, what waits and for what, what is parked.

use super::callback_args::CallbackFilter;
use super::open;
use super::out::Out;
use super::table::{Align, Table};
use super::{Outcome, read_page};
use crate::clock::{Clock, millis, rfc3339};
use crate::config::Config;
use crate::store::report::{AttemptRow, Blocker, DeliveryFilter, DeliveryRow, Listed, Page};
use crate::store::{ReadTx, StoreError};
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
    /// The older one of its subject that holds it back.
    waits_for: Option<BlockerJson>,
    settled_at: Option<String>,
    last_status: Option<u16>,
    last_error: Option<String>,
}

#[derive(Serialize)]
struct BlockerJson {
    event: String,
    next_at: Option<String>,
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

/// A delivery and what it waits for.
pub(super) struct Standing {
    pub(super) row: DeliveryRow,
    pub(super) blocker: Option<Blocker>,
}

/// Reads deliveries with what each waits for, newest first.
pub(super) fn standings(
    tx: &ReadTx<'_>,
    config: &Config,
    filter: &DeliveryFilter,
    page: Page,
) -> Result<Vec<Listed<Standing>>, StoreError> {
    let patience_from = open::now_ms().saturating_sub(millis(config.callbacks.order_patience));
    let mut found = Vec::new();
    for Listed { row, position } in tx.list_deliveries(filter, page)? {
        let blocker = tx.blocker(position, patience_from)?;
        let row = Standing { row, blocker };
        found.push(Listed { row, position });
    }
    Ok(found)
}

/// What holds a delivery back, in words.
pub(super) fn blocker_words(blocker: &Blocker) -> String {
    let when = match blocker.next_at {
        Some(at) => format!("tried next at {}", rfc3339(at)),
        None => "on its way".to_owned(),
    };
    format!("after {}, which is {when}", blocker.event)
}

fn json(Standing { row, blocker }: Standing) -> DeliveryJson {
    DeliveryJson {
        event: row.event,
        seq: row.seq,
        r#type: row.kind,
        subject: row.subject,
        endpoint: row.endpoint,
        state: row.state,
        attempts: row.attempts,
        next_at: row.next_at.map(rfc3339),
        waits_for: blocker.map(|blocker| BlockerJson {
            event: blocker.event,
            next_at: blocker.next_at.map(rfc3339),
        }),
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
    let database = open::reader(config)?;
    let (rows, next) = read_page(open::page(&args.page), |page| {
        database.read(|tx| standings(tx, config, &filter, page))
    })?;
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
        let Standing { row, blocker } = row;
        let next = match &blocker {
            Some(blocker) => blocker_words(blocker),
            None => row.next_at.map(rfc3339).unwrap_or_default(),
        };
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
            next,
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
        for Listed { row, .. } in standings(tx, config, &filter, page)? {
            let tries = tx.attempts(event, &row.row.endpoint)?;
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
    for (Standing { row, blocker }, tries) in shown {
        let when = match (&blocker, row.next_at) {
            (Some(blocker), _) => format!(", goes {}", blocker_words(blocker)),
            (None, Some(at)) => format!(", tried next at {}", rfc3339(at)),
            (None, None) => String::new(),
        };
        out.line(format!("to {}: {}{when}", row.endpoint, row.state))?;
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
