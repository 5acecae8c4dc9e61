//! Everything that is printed: answers to stdout, errors to stderr.

use super::table::Table;
use super::{Outcome, Problem};
use crate::check;
use crate::config::ConfigError;
use crate::store::StoreError;
use crate::telemetry::{escaped, is_unsafe, printable};
use anyhow::Context as _;
use clap::error::ContextValue;
use serde::Serialize;
use serde::ser::SerializeMap as _;
use std::io::{ErrorKind, IsTerminal as _, Write as _};

/// Where answers go.
pub(super) struct Out {
    /// True if the answer is asked for in JSON.
    pub(super) json: bool,
    to: To,
}

/// Where the answer goes.
enum To {
    Stdout(std::io::BufWriter<std::io::Stdout>),
    /// It is printed once what it says is so.
    Kept(Vec<u8>),
}

impl Out {
    pub(super) fn new(json: bool) -> Out {
        Out {
            json,
            to: To::Stdout(std::io::BufWriter::new(std::io::stdout())),
        }
    }

    /// Keeps the answer instead of printing it.
    pub(super) fn kept(json: bool) -> Out {
        Out {
            json,
            to: To::Kept(Vec::new()),
        }
    }

    /// What was kept.
    pub(super) fn into_text(self) -> String {
        match self.to {
            To::Stdout(_) => String::new(),
            To::Kept(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        match &mut self.to {
            To::Stdout(stdout) => stdout.write_all(bytes).context("write the answer"),
            To::Kept(kept) => {
                kept.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// One line for people, with nothing in it that would move a terminal's cursor.
    pub(super) fn line(&mut self, text: impl AsRef<str>) -> anyhow::Result<()> {
        self.put(format!("{}\n", escaped(text.as_ref())).as_bytes())
    }

    /// A whole answer as it is.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> anyhow::Result<Outcome> {
        self.put(bytes)?;
        self.done()
    }

    /// A name and what it is, indented below a heading.
    pub(super) fn field(&mut self, name: &str, text: impl AsRef<str>) -> anyhow::Result<()> {
        self.line(format!("  {name:<12} {}", text.as_ref()))
    }

    /// A whole answer in JSON.
    pub(super) fn json(&mut self, answer: &impl Serialize) -> anyhow::Result<Outcome> {
        let text = serde_json::to_string_pretty(answer).context("write the answer")?;
        self.bytes(ascii_controls(&text).as_bytes())
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
            let text = match std::io::stdout().is_terminal() {
                true => table.shortened().to_text(),
                false => table.to_text(),
            };
            self.put(text.as_bytes())?;
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
        if let To::Stdout(stdout) = &mut self.to {
            stdout.flush().context("write the answer")?;
        }
        Ok(Outcome::Done)
    }
}

/// The same JSON with the letters written out that a terminal could obey: a receiver's answer is shown as it
/// came. JSON itself asks for that only below U+0020; all of ours have four digits.
fn ascii_controls(json: &str) -> String {
    let mut safe = String::with_capacity(json.len() + 1);
    for letter in json.chars() {
        match is_unsafe(letter) && letter != '\n' {
            true => safe.push_str(&format!("\\u{:04x}", u32::from(letter))),
            false => safe.push(letter),
        }
    }
    safe.push('\n');
    safe
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
    let mut lead = "creditd";
    for cause in error.chain() {
        let text = match cause.downcast_ref() {
            Some(StoreError::Refused(text)) => check::split_refusal(text).0.to_owned(),
            Some(_) | None => cause.to_string(),
        };
        // The list of a config's faults has a line for each.
        format!("{lead}: {text}").lines().for_each(note);
        lead = "  because";
    }
    if let Some(next) = next_step(error) {
        note(&format!("  next: {next}"));
    }
}

/// Prints what is wrong with the words that were typed, or the help that they ask for; the exit code.
pub(super) fn print_usage(mut error: clap::Error) -> u8 {
    if !error.use_stderr() {
        let _ = error.print();
        return 0;
    }
    let typed: Vec<_> = error
        .context()
        .filter_map(|(kind, value)| match value {
            ContextValue::String(word) => Some((kind, printable(word))),
            _ => None,
        })
        .collect();
    for (kind, word) in typed {
        error.insert(kind, ContextValue::String(word));
    }
    // As plain text: what is left of the words in hints loses its escapes with the colours.
    error.render().to_string().lines().for_each(note);
    2
}

/// A word beside the answer: progress, and faults of single lines.
pub(super) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text));
}

/// What the database refuses is no answer to a question whether something is right: it was not asked.
#[derive(Debug, thiserror::Error)]
#[error("it could not run")]
struct NotRun;

/// For commands whose exit code 1 means that they found something.
pub(super) fn could_not_run(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(StoreError::Refused(_)) => error.context(NotRun),
        Some(_) | None => error,
    }
}

/// 1 for an error that is the answer (it ran, and what was asked for cannot be), else 2.
pub(super) fn exit_code(error: &anyhow::Error) -> u8 {
    match (error.downcast_ref::<Problem>(), error.downcast_ref()) {
        (Some(problem), _) => problem.exit_code,
        (None, Some(StoreError::Refused(_))) if !error.is::<NotRun>() => 1,
        (None, _) => 2,
    }
}

fn next_step(error: &anyhow::Error) -> Option<String> {
    if let Some(problem) = error.downcast_ref::<Problem>() {
        return Some(problem.next.clone());
    }
    let step = error.chain().find_map(|cause| {
        let config = cause.downcast_ref().map(config_step);
        config
            .or_else(|| cause.downcast_ref().map(check::secret_step))
            .or_else(|| check::database_step(cause.downcast_ref()?))
            .or_else(|| check::file_step(cause.downcast_ref()?))
    });
    step.map(str::to_owned)
}

fn config_step(error: &ConfigError) -> &'static str {
    match error {
        ConfigError::NotFound => "`creditd init` writes one",
        ConfigError::Unreadable { .. } => {
            "name a text file that this user may read with --config; `creditd init` writes one"
        }
        ConfigError::Faulty { .. } => "mend these lines, then `creditd check`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_the_same_without_a_letter_that_a_terminal_obeys() {
        let answer = serde_json::json!({"reply": "\u{1b}[2J\u{9b}31m\u{202e}\n\u{7f}b\u{fc}", "next": null});
        let text = ascii_controls(&serde_json::to_string_pretty(&answer).unwrap());
        assert!(
            !text.contains(|letter| is_unsafe(letter) && letter != '\n'),
            "{text:?}"
        );
        assert!(text.contains("b\u{fc}") && text.ends_with("}\n"), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), answer);
    }
}
