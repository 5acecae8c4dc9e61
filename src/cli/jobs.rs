//! `jobs`.

use super::Outcome;
use super::open;
use super::out::Out;
use super::table::{Align, Table, shown};
use crate::check::running::running;
use crate::clock::rfc3339;
use crate::config::Config;
use crate::store::{JobRow, StoreError};
use serde::Serialize;

/// A job whose next run is later than this is overdue: nobody runs it.
const OVERDUE_MS: i64 = 60_000;

#[derive(Serialize)]
struct AnswerJson {
    jobs: Vec<JobJson>,
    next: Option<i64>,
    is_daemon_running: Option<bool>,
}

#[derive(Serialize)]
struct JobJson {
    job: String,
    chain: Option<String>,
    state: &'static str,
    every_ms: Option<i64>,
    started_at: Option<String>,
    ended_at: Option<String>,
    took_ms: Option<i64>,
    error: Option<String>,
    failures: u64,
    runs: u64,
    done_at: Option<String>,
    done: String,
    next_at: Option<String>,
    leased_until: Option<String>,
}

/// What runs in the background, and how the last run ended. A failing or overdue one is a problem found.
pub(super) fn jobs(out: &mut Out, config: &Config) -> anyhow::Result<Outcome> {
    let is_daemon_running = running(config).is_running();
    let rows = match open::reader(config) {
        Ok(database) => database.read(|tx| tx.jobs())?,
        // Before the first start nothing ever ran, which is an answer and no fault.
        Err(error) if matches!(error.downcast_ref(), Some(StoreError::Missing(_))) => Vec::new(),
        Err(error) => return Err(error),
    };
    let now_ms = open::now_ms();
    let may_be_overdue = is_daemon_running != Some(false);
    let all: Vec<JobJson> = rows
        .into_iter()
        .map(|row| json(row, now_ms, may_be_overdue))
        .collect();
    let is_bad = |job: &JobJson| ["failing", "overdue"].contains(&job.state);
    let has_bad = all.iter().any(is_bad);
    if out.json {
        out.json(&AnswerJson {
            jobs: all,
            next: None,
            is_daemon_running,
        })?;
    } else {
        print(out, &all)?;
        if is_daemon_running == Some(false) {
            out.line("no daemon runs on this database: this is how the last one left them")?;
        }
        out.done()?;
    }
    Ok(if has_bad { Outcome::Found } else { Outcome::Done })
}

fn json(row: JobRow, now_ms: i64, may_be_overdue: bool) -> JobJson {
    let is_late = row.next_at.is_some_and(|at| at < now_ms - OVERDUE_MS);
    let state = match (row.lease_until.is_some_and(|until| until > now_ms), row.failures) {
        (_, 1..) => "failing",
        (true, 0) => "running",
        (false, 0) if is_late && may_be_overdue => "overdue",
        (false, 0) if row.runs == 0 => "new",
        (false, 0) => "ok",
    };
    JobJson {
        job: row.name,
        chain: Some(row.chain).filter(|chain| !chain.is_empty()),
        state,
        every_ms: row.every_ms,
        started_at: row.started_at.map(rfc3339),
        ended_at: row.ended_at.map(rfc3339),
        took_ms: row.took_ms,
        error: Some(row.error).filter(|error| !error.is_empty()),
        failures: row.failures,
        runs: row.runs,
        done_at: row.done_at.map(rfc3339),
        done: row.done,
        next_at: row.next_at.map(rfc3339),
        leased_until: row.lease_until.map(rfc3339),
    }
}

fn print(out: &mut Out, jobs: &[JobJson]) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        ("job", Align::Left),
        ("chain", Align::Left),
        ("state", Align::Left),
        ("last run", Align::Left),
        ("took ms", Align::Right),
        ("next run", Align::Left),
        ("runs", Align::Right),
        ("did", Align::Left),
    ]);
    for job in jobs {
        table.row(vec![
            job.job.clone(),
            job.chain.clone().unwrap_or_default(),
            job.state.to_owned(),
            job.ended_at.clone().unwrap_or_default(),
            job.took_ms.map_or_else(String::new, |took| took.to_string()),
            job.next_at.clone().unwrap_or_default(),
            job.runs.to_string(),
            job.done.clone(),
        ]);
    }
    out.table(&table, "nothing has run yet", None)?;
    for job in jobs {
        if let Some(error) = &job.error {
            let (name, count) = (&job.job, job.failures);
            out.line(format!("{name}: failed {count} times in a row: {}", shown(error)))?;
        }
    }
    Ok(())
}
