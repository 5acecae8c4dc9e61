//! Everything that is printed: answers to stdout, errors to stderr.

use super::Outcome;
use crate::config::{ConfigError, SecretError};
use anyhow::Context as _;
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

    /// Hands everything to the operating system, whose refusal must not be lost as it would be in a
    /// destructor.
    pub(super) fn done(&mut self) -> anyhow::Result<Outcome> {
        self.stdout.flush().context("write the answer")?;
        Ok(Outcome::Done)
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

fn next_step(error: &anyhow::Error) -> Option<&'static str> {
    match error.downcast_ref() {
        Some(ConfigError::NotFound) => return Some("creditd init"),
        Some(ConfigError::Unreadable { .. }) => return Some("name an existing, readable file with --config"),
        Some(ConfigError::Faulty { .. }) => return Some("mend these lines, then `creditd check`"),
        None => {}
    }
    match error.downcast_ref() {
        Some(SecretError::NoDirectory(_)) => Some("run it as the service does, or name a path instead"),
        Some(SecretError::Unreadable { .. }) => Some("let the user that runs creditd read the file"),
        Some(SecretError::NotASecret { .. }) => Some("write the secret alone into the file"),
        None => None,
    }
}
