//! `inbox list|show|retry`.

use super::args::Repair;
use super::ids;
use super::inbox_args::InboxList;
use super::invoices::{EventJson, event_json};
use super::open;
use super::out::Out;
use super::repair;
use super::table::{Align, Table, shown};
use super::{Outcome, Problem, Shapes};
use crate::clock::rfc3339;
use crate::config::Config;
use crate::store::report::{AsideRow, InboxFilter, InboxRow, Listed};
use serde::Serialize;

#[derive(Serialize)]
struct InboxJson {
    id: String,
    source: String,
    event_id: String,
    state: String,
    effect: Option<String>,
    note: String,
    attempts: u64,
    next_at: Option<String>,
    received_at: String,
    settled_at: Option<String>,
    duplicates: u64,
    last_at: String,
    set_aside: u64,
}

#[derive(Serialize)]
struct WholeJson {
    event: InboxJson,
    /// As it was signed; `null` once it is no longer kept.
    body: Option<String>,
    set_aside: Vec<AsideJson>,
    events: Vec<EventJson>,
}

#[derive(Serialize)]
struct AsideJson {
    received_at: String,
    body: String,
}

fn json(row: InboxRow) -> InboxJson {
    InboxJson {
        next_at: row.next_at.map(rfc3339),
        received_at: rfc3339(row.received_at),
        settled_at: row.settled_at.map(rfc3339),
        last_at: rfc3339(row.last_at),
        set_aside: row.asides,
        id: row.id,
        source: row.source,
        event_id: row.event_id,
        state: row.state,
        effect: row.effect,
        note: row.note,
        attempts: row.attempts,
        duplicates: row.duplicates,
    }
}

/// Lists them, newest first.
pub(super) fn list(out: &mut Out, config: &Config, args: &InboxList) -> anyhow::Result<Outcome> {
    let database = open::reader(config)?;
    if let Some(source) = &args.source {
        refuse_unknown(config, source, database.read(|tx| tx.inbox_sources())?)?;
    }
    let filter = InboxFilter {
        source: args.source.clone(),
        state: args.state.map(|state| state.word().to_owned()),
        is_set_aside: args.set_aside,
    };
    let read = |page| database.read(|tx| tx.list_inbox(&filter, page));
    let shown = |rows: Vec<Listed<InboxRow>>| rows.into_iter().map(|listed| json(listed.row)).collect();
    let shapes = Shapes {
        name: "inbox",
        empty: "no events in the inbox",
        table,
        csv,
    };
    super::list_page(out, (&args.page, args.csv), &shapes, read, shown)
}

/// A source that is neither in the config nor in the inbox is a misspelt one.
fn refuse_unknown(config: &Config, source: &str, mut known: Vec<String>) -> Result<(), Problem> {
    known.extend(config.inbox.iter().map(|named| named.source.clone()));
    known.sort();
    known.dedup();
    match known.iter().any(|known| known == source) {
        true => Ok(()),
        false if known.is_empty() => Err(Problem::found(
            format!("there is no source {source}, nor any other"),
            "name one as [[inbox]] in the config (docs/inbox.md)",
        )),
        false => {
            let next = format!("--source with one of {}", known.join(", "));
            Err(Problem::found(format!("there is no source {source}"), next))
        }
    }
}

fn table(rows: Vec<InboxJson>) -> Table {
    let mut table = Table::new(&[
        ("received", Align::Left),
        ("source", Align::Left),
        ("event there", Align::Left),
        ("state", Align::Left),
        ("again", Align::Right),
        ("what", Align::Left),
        ("id", Align::Left),
    ]);
    for row in rows {
        let what = what(&row);
        table.row(vec![
            row.received_at,
            row.source,
            shown(&row.event_id),
            row.state,
            row.duplicates.to_string(),
            what,
            row.id,
        ]);
    }
    table
}

fn what(row: &InboxJson) -> String {
    let aside = match row.set_aside {
        0 => String::new(),
        count => format!("; {count} with another content set aside"),
    };
    let done = match (&row.effect, row.note.as_str()) {
        (Some(effect), "") => effect.clone(),
        (Some(effect), note) => format!("{effect}: {}", shown(note)),
        (None, note) => shown(note),
    };
    format!("{done}{aside}")
}

fn csv(rows: Vec<InboxJson>) -> Table {
    let columns = [
        "inbox",
        "received_at",
        "source",
        "event_id",
        "state",
        "effect",
        "note",
        "attempts",
        "next_at",
        "settled_at",
        "duplicates",
        "last_at",
        "set_aside",
    ];
    let mut table = Table::new(&columns.map(|name| (name, Align::Left)));
    for row in rows {
        table.row(vec![
            row.id,
            row.received_at,
            row.source,
            row.event_id,
            row.state,
            row.effect.unwrap_or_default(),
            row.note,
            row.attempts.to_string(),
            row.next_at.unwrap_or_default(),
            row.settled_at.unwrap_or_default(),
            row.duplicates.to_string(),
            row.last_at,
            row.set_aside.to_string(),
        ]);
    }
    table
}

fn missing(id: &str) -> anyhow::Error {
    Problem::found(
        format!("no event {id} in the inbox"),
        "`creditd inbox list` shows ids",
    )
    .into()
}

/// One event with all that came of it.
pub(super) fn show(out: &mut Out, config: &Config, typed: &str) -> anyhow::Result<Outcome> {
    let database = open::reader(config)?;
    let id = ids::whole(&database, typed)?;
    let found = database.read(|tx| {
        let Some(row) = tx.inbox_event(&id)? else {
            return Ok(None);
        };
        let body = tx.inbox_body(&row)?;
        let (asides, told) = (tx.inbox_asides(&row)?, tx.events_of(&id)?);
        Ok(Some((row, body, asides, told)))
    })?;
    let (row, body, asides, told) = found.ok_or_else(|| missing(typed))?;
    let text = |body: Vec<u8>| String::from_utf8_lossy(&body).into_owned();
    let aside = |aside: AsideRow| AsideJson {
        received_at: rfc3339(aside.received_at),
        body: text(aside.body),
    };
    let whole = WholeJson {
        event: json(row),
        body: body.map(text),
        set_aside: asides.into_iter().map(aside).collect(),
        events: told.into_iter().map(event_json).collect(),
    };
    if out.json {
        return out.json(&whole);
    }
    print(out, &whole)?;
    out.done()
}

fn print(out: &mut Out, whole: &WholeJson) -> anyhow::Result<()> {
    let event = &whole.event;
    out.line(format!("event {} of {}", event.id, event.source))?;
    out.field("there", shown(&event.event_id))?;
    out.field("state", &event.state)?;
    if !what(event).is_empty() {
        out.field("what", what(event))?;
    }
    out.field("received", &event.received_at)?;
    if event.duplicates > 0 {
        let again = format!("{} times, last {}", event.duplicates, event.last_at);
        out.field("came again", again)?;
    }
    if let Some(next_at) = &event.next_at {
        let tries = format!("{next_at}, after {} failed tries", event.attempts);
        out.field("next try", tries)?;
    }
    if event.state == "parked" {
        let next = format!("creditd inbox retry {} --reason TEXT --apply", event.id);
        out.field("another turn", next)?;
    }
    match &whole.body {
        Some(body) => out.field("body", shown(body))?,
        None => out.field("body", "is no longer kept")?,
    }
    for aside in &whole.set_aside {
        let text = format!("{}: {}", aside.received_at, shown(&aside.body));
        out.field("set aside", text)?;
    }
    for event in &whole.events {
        out.field("event", format!("{} {} {}", event.at, event.r#type, event.id))?;
    }
    Ok(())
}

/// Gives a parked event another turn.
pub(super) fn retry(out: &mut Out, config: &Config, typed: &str, asked: &Repair) -> anyhow::Result<Outcome> {
    let database = open::reader(config)?;
    let id = ids::whole(&database, typed)?;
    let found = database.read(|tx| tx.inbox_event(&id))?;
    drop(database);
    let row = found.ok_or_else(|| missing(typed))?;
    match row.state.as_str() {
        "parked" => {}
        "waiting" => {
            let text = format!("{id} will be tried anyway");
            return repair::nothing(out, "inbox-retry", asked, text);
        }
        state => {
            return Err(
                Problem::found(format!("{id} is {state}"), "only a parked event is tried again").into(),
            );
        }
    }
    let is_named = config.inbox.iter().any(|source| source.source == row.source);
    let missing = match is_named {
        true => String::new(),
        false => format!(
            "; the config has no [[inbox]] source {}: bring it back and restart the daemon first, or the \
             event is parked again",
            row.source
        ),
    };
    let text = format!(
        "try {id} of {} again; its last run failed: {}{missing}",
        row.source,
        shown(&row.note)
    );
    repair::act(out, "inbox-retry", asked, text, Vec::new(), || {
        let mut database = open::writer(config)?;
        database.write(open::now_ms(), |tx| tx.retry_inbox(&id, &asked.reason))?;
        Ok(true)
    })
}
