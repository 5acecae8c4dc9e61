//! Everything that is printed: answers to stdout, errors to stderr.

use super::table::Table;
use super::{Outcome, Problem};
use crate::config::{ConfigError, SecretError};
use crate::store::StoreError;
use anyhow::Context as _;
use serde::Serialize;
use serde::ser::SerializeMap as _;
use std::io::{ErrorKind, Write as _};

/// Where answers go.
pub(super) struct Out {
    /// True if the answer is asked for in JSON.
    pub(super) json: bool,
    stdout: std::io::BufWriter<std::io::Stdout>,
}

impl Out {
    pub(super) fn new(json: bool) -> Out {
        Out {
            json,
            stdout: std::io::BufWriter::new(std::io::stdout()),
        }
    }

    /// One line for people.
    pub(super) fn line(&mut self, text: impl AsRef<str>) -> anyhow::Result<()> {
        writeln!(self.stdout, "{}", text.as_ref()).context("write the answer")
    }

    /// A whole answer as it is.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> anyhow::Result<Outcome> {
        self.stdout.write_all(bytes).context("write the answer")?;
        self.done()
    }

    /// A name and what it is, indented below a heading.
    pub(super) fn field(&mut self, name: &str, text: impl AsRef<str>) -> anyhow::Result<()> {
        self.line(format!("  {name:<12} {}", text.as_ref()))
    }

    /// A whole answer in JSON.
    pub(super) fn json(&mut self, answer: &impl Serialize) -> anyhow::Result<Outcome> {
        serde_json::to_writer_pretty(&mut self.stdout, answer)
            .map_err(std::io::Error::from)
            .context("write the answer")?;
        self.line("")?;
        self.done()
    }

    /// A list in JSON, under its name, with where its next page begins.
    pub(super) fn list<T: Serialize>(
        &mut self,
        name: &'static str,
        rows: &[T],
        next: Option<i64>,
    ) -> anyhow::Result<Outcome> {
        self.json(&List { name, rows, next })
    }

    /// A whole answer as a table; `next` is where another page begins.
    pub(super) fn table(&mut self, table: &Table, empty: &str, next: Option<i64>) -> anyhow::Result<Outcome> {
        if table.is_empty() {
            self.line(empty)?;
        } else {
            self.stdout
                .write_all(table.to_text().as_bytes())
                .context("write the answer")?;
        }
        if let Some(next) = next {
            self.line(format!("more: --after {next}"))?;
        }
        self.done()
    }

    /// Rows as comma-separated values, the first ones under their heading.
    pub(super) fn csv(&mut self, table: &Table, has_heading: bool) -> anyhow::Result<Outcome> {
        self.bytes(&table.to_csv(has_heading).context("write the answer")?)
    }

    /// Hands everything to the operating system, whose refusal must not be lost as it would be in a
    /// destructor.
    pub(super) fn done(&mut self) -> anyhow::Result<Outcome> {
        self.stdout.flush().context("write the answer")?;
        Ok(Outcome::Done)
    }
}

struct List<'a, T> {
    name: &'static str,
    rows: &'a [T],
    next: Option<i64>,
}

impl<T: Serialize> Serialize for List<'_, T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry(self.name, self.rows)?;
        map.serialize_entry("next", &self.next)?;
        map.end()
    }
}

/// True where the reader went away (`creditd credits | head`), which is no fault.
pub(super) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_pipe = |io: &std::io::Error| io.kind() == ErrorKind::BrokenPipe;
    error
        .chain()
        .any(|cause| cause.downcast_ref().is_some_and(is_pipe))
}

/// Prints an error once: what we were doing, what lies beneath, and what to do next.
pub(super) fn print_error(error: &anyhow::Error) {
    let mut text = format!("creditd: {error}\n");
    for cause in error.chain().skip(1) {
        text.push_str(&format!("  because: {cause}\n"));
    }
    if let Some(next) = next_step(error) {
        text.push_str(&format!("  next: {next}\n"));
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// A word beside the answer: progress, and faults of single lines.
pub(super) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// True for an error that is the answer: it ran, and what was asked for cannot be.
pub(super) fn is_problem(error: &anyhow::Error) -> bool {
    error.is::<Problem>() || matches!(error.downcast_ref(), Some(StoreError::Refused(_)))
}

fn next_step(error: &anyhow::Error) -> Option<&'static str> {
    config_step(error)
        .or_else(|| secret_step(error))
        .or_else(|| store_step(error))
}

fn config_step(error: &anyhow::Error) -> Option<&'static str> {
    Some(match error.downcast_ref()? {
        ConfigError::NotFound => "creditd init",
        ConfigError::Unreadable { .. } => "name an existing, readable file with --config",
        ConfigError::Faulty { .. } => "mend these lines, then `creditd check`",
    })
}

fn secret_step(error: &anyhow::Error) -> Option<&'static str> {
    Some(match error.downcast_ref()? {
        SecretError::NoDirectory(_) => "run it as the service does, or name a path instead",
        SecretError::Unreadable { .. } => "let the user that runs creditd read the file",
        SecretError::NotASecret { .. } => "write the secret alone into the file",
    })
}

fn store_step(error: &anyhow::Error) -> Option<&'static str> {
    match error.downcast_ref()? {
        StoreError::Busy(_) => Some("try again in a moment; nothing was written"),
        StoreError::DiskFull(_) => Some("make room on the disk, then try again; nothing was written"),
        StoreError::Missing(_) => Some("creditd run, or creditd watch add"),
        StoreError::Constraint(_)
        | StoreError::StaleEpoch { .. }
        | StoreError::Io(_)
        | StoreError::File { .. }
        | StoreError::Contradiction(_)
        | StoreError::Refused(_)
        | StoreError::Corrupt(_)
        | StoreError::Closed
        | StoreError::Locked { .. }
        | StoreError::NotOurs { .. }
        | StoreError::Damaged { .. }
        | StoreError::SchemaTooNew { .. }
        | StoreError::SchemaTooOld { .. } => None,
    }
}
