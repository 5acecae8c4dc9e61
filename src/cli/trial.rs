//! `endpoint test`: sends one event through the daemon, and says what came of it or what it waits for.

use super::callbacks::{Standing, blocker_words, standings, wait_for_attempt};
use super::once;
use super::open;
use super::out::Out;
use super::{Outcome, Problem};
use crate::check::running::running;
use crate::config::Config;
use crate::store::report::{DeliveryFilter, DeliveryRow, Page};
use serde::Serialize;
use std::time::Duration;

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
        let next = format!("creditd endpoint resume {id} --reason 'it is mended' --apply");
        return Err(Problem::found(format!("{id} is paused ({reason}): nothing is sent to it"), next).into());
    }
    let event = database.write(open::now_ms(), |tx| tx.test_endpoint(id))?;
    if once::is_under_key() {
        return queued(out, &event, id);
    }
    let tried = wait_for_attempt(config, &event, id, Duration::from_secs(wait_secs.into()))?;
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
            Some(row) => failure_words(&event, row),
            None => format!(
                "{event} is queued; no attempt within {wait_secs} s: {}",
                why_not_yet(config, id, &event)?
            ),
        })?;
    }
    if is_delivered {
        out.done()
    } else {
        Ok(Outcome::Found)
    }
}

/// Under a key it is sent once this command has ended: what came of it is told elsewhere.
fn queued(out: &mut Out, event: &str, id: &str) -> anyhow::Result<Outcome> {
    if out.json {
        return out.json(&TestJson {
            event,
            endpoint: id,
            state: None,
            last_status: None,
            last_error: None,
        });
    }
    out.line(format!(
        "{event} is queued; `creditd callbacks show {event}` tells what comes of it"
    ))?;
    out.done()
}

/// Who refused: the receiver, our own guard, or nobody because nobody was reached.
fn failure_words(event: &str, row: &DeliveryRow) -> String {
    let why = row.last_error.as_deref().unwrap_or("unknown");
    if row.last_status.is_some() {
        return format!("{event} was refused: {why}");
    }
    // What a dial that was never made begins with: the codes of addresses and URLs.
    match why.starts_with("blocked_address") || why.starts_with("url_") {
        true => format!(
            "{event} was not sent; our own guard refused: {why}; allow_ranges lists what is allowed, and the \
             daemon reads it at its start"
        ),
        false => format!("{event} has not arrived: {why}"),
    }
}

/// Why a test event was not tried yet, as far as the database tells.
fn why_not_yet(config: &Config, id: &str, event: &str) -> anyhow::Result<String> {
    if let Some((found, next)) = running(config).trouble() {
        return Ok(format!("{found}; {next}"));
    }
    let filter = DeliveryFilter {
        event: Some(event.to_owned()),
        endpoint: Some(id.to_owned()),
        state: None,
    };
    let page = Page {
        after: None,
        limit: 1,
    };
    let (endpoint, undelivered, standing) = open::reader(config)?.read(|tx| {
        let endpoint = tx.endpoint(id)?;
        let undelivered = tx.undelivered(&endpoint, open::now_ms())?;
        Ok((endpoint, undelivered, standings(tx, config, &filter, page)?.pop()))
    })?;
    let Some(Standing { row, blocker }) = standing.map(|listed| listed.row) else {
        return Ok("it was never queued".to_owned());
    };
    let due = undelivered.waiting.saturating_sub(undelivered.later);
    Ok(match (&blocker, &endpoint.paused_reason) {
        (_, Some(reason)) => format!("{id} is paused ({reason})"),
        (Some(blocker), None) => format!("it goes {}", blocker_words(blocker)),
        (None, None) if row.state == "leased" => "it is on its way and has no answer yet".to_owned(),
        (None, None) if endpoint.failures > 0 && due > 1 => format!(
            "{id} has not been answering and gets one callback at a time, {due} are due with this one"
        ),
        (None, None) => "the daemon has not come to it; its log says why".to_owned(),
    })
}
