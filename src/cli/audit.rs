//! `audit`.

use super::Outcome;
use super::audit_args::Audit;
use super::open;
use super::out::Out;
use crate::audit::{self, Report};
use crate::config::Config;
use serde::Serialize;

#[derive(Serialize)]
struct AnswerJson<'a> {
    books: BooksJson<'a>,
    is_clean: bool,
}

#[derive(Serialize)]
struct BooksJson<'a> {
    broken: Vec<BrokenJson<'a>>,
}

#[derive(Serialize)]
struct BrokenJson<'a> {
    invariant: &'a str,
    subject: &'a str,
    what: &'a str,
}

/// Asks whether the books are right; what is not is a problem found.
pub(super) fn audit(out: &mut Out, config: &Config, _: &Audit) -> anyhow::Result<Outcome> {
    let report = audit::books(config, &open::plain_reader(config)?)?;
    if out.json {
        out.json(&json(&report))?;
    } else {
        for broken in &report.broken {
            let name = broken.invariant.name();
            out.line(format!("FOUND  {name}  {}  {}", broken.subject, broken.what))?;
        }
        out.line(match report.broken.len() {
            0 => "books          nothing broken".to_owned(),
            count => format!("books          {count} broken"),
        })?;
        out.done()?;
    }
    Ok(match report.broken.is_empty() {
        true => Outcome::Done,
        false => Outcome::Found,
    })
}

fn json(report: &Report) -> AnswerJson<'_> {
    let broken = report.broken.iter().map(|broken| BrokenJson {
        invariant: broken.invariant.name(),
        subject: &broken.subject,
        what: &broken.what,
    });
    AnswerJson {
        books: BooksJson {
            broken: broken.collect(),
        },
        is_clean: report.broken.is_empty(),
    }
}
