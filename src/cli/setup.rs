//! `init`, `check` and `backup`: what needs files more than it needs money.

use super::open;
use super::out::Out;
use super::progress::Progress;
use super::{Outcome, Problem};
use crate::audit::Word;
use crate::check::{Line, Verdict};
use crate::config::{Config, DEFAULT_TOML};
use crate::store::{Existing, StoreError};
use crate::telemetry::error_line;
use anyhow::Context as _;
use serde::Serialize;
use std::io::Write as _;
use std::path::Path;

/// Writes the commented default config, never over an existing file.
pub(super) fn init(out: &mut Out, path: &Path) -> anyhow::Result<Outcome> {
    let doing = || format!("write {}", path.display());
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .with_context(doing)?;
    file.write_all(DEFAULT_TOML.as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(doing)?;
    out.line(format!("wrote {}; edit it, then `creditd check`", path.display()))?;
    out.done()
}

/// Looks at config, database and nodes; changes nothing.
pub(super) fn check(out: &mut Out, path: Option<&Path>) -> anyhow::Result<Outcome> {
    let config = Config::load(path)?;
    let lines = crate::check::check(&config).context("start the check")?;
    let worst = lines.iter().map(|line| line.verdict).max();
    if out.json {
        let lines: Vec<LineJson<'_>> = lines.iter().map(LineJson::from).collect();
        out.list("lines", &lines, None)?;
    } else {
        out.line(format!("good     config    {}", config.file.display()))?;
        for line in &lines {
            let chain = line
                .chain
                .as_deref()
                .map_or(String::new(), |chain| format!("{chain}: "));
            let endpoint = line
                .endpoint
                .as_deref()
                .map_or(String::new(), |endpoint| format!("{endpoint}: "));
            out.line(format!(
                "{:<8} {:<9} {chain}{endpoint}{}",
                word(line.verdict),
                line.name,
                line.found
            ))?;
            if !line.next_step.is_empty() {
                out.line(format!("{:18} -> {}", "", line.next_step))?;
            }
        }
    }
    out.done()?;
    match worst {
        Some(Verdict::Bad) => Ok(Outcome::Found),
        Some(Verdict::Good | Verdict::Warning) | None => Ok(Outcome::Done),
    }
}

#[derive(Serialize)]
struct BackupJson {
    file: String,
    bytes: u64,
}

/// Copies the database; progress goes to stderr.
pub(super) fn backup(out: &mut Out, config: &Config, file: &Path, replace: bool) -> anyhow::Result<Outcome> {
    let database = open::plain_reader(config)?;
    let existing = if replace {
        Existing::Replace
    } else {
        Existing::Refuse
    };
    let mut told = 0;
    let mut shown = Progress::new(out.json);
    let made = database
        .backup(file, existing, |progress| {
            let percent = progress.done_pages.saturating_mul(100) / progress.total_pages.max(1);
            if shown.is_drawing() || (percent >= told + 10 && percent < 100) {
                told = percent;
                shown.tell(Word::Part {
                    line: &format!("{percent} % copied"),
                    name: "pages copied",
                    done: progress.done_pages,
                    all: progress.total_pages,
                    per_second: None,
                });
            }
        })
        .map_err(|error| refused_target(file, error))?;
    drop(shown);
    let file = made.path.display().to_string();
    if out.json {
        let bytes = made.bytes;
        return out.json(&BackupJson { file, bytes });
    }
    out.line(format!("wrote {file}: {} bytes, whole and checked", made.bytes))?;
    out.done()
}

/// Where a copy cannot be written the account is the right one (it reads the database), and the place is not.
fn refused_target(file: &Path, error: StoreError) -> anyhow::Error {
    let is_closed = match &error {
        StoreError::File { source, .. } => matches!(
            source.kind(),
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem
        ),
        _ => false,
    };
    let doing = format!("back up to {}", file.display());
    match is_closed {
        true => {
            let text = format!("{doing}: {}", error_line(&error));
            let next = "name a file in a folder that this account may write; with sudo -u creditd that is \
                        one of creditd's, such as /var/lib/creditd";
            Problem::misuse(text, next).into()
        }
        false => anyhow::Error::new(error).context(doing),
    }
}

#[derive(Serialize)]
struct LineJson<'a> {
    name: &'a str,
    chain: Option<&'a str>,
    /// EVM: the endpoint that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<&'a str>,
    verdict: &'a str,
    found: &'a str,
    next_step: &'a str,
}

impl<'a> From<&'a Line> for LineJson<'a> {
    fn from(line: &'a Line) -> LineJson<'a> {
        LineJson {
            name: line.name,
            chain: line.chain.as_deref(),
            endpoint: line.endpoint.as_deref(),
            verdict: word(line.verdict),
            found: &line.found,
            next_step: &line.next_step,
        }
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Warning => "warning",
        Verdict::Bad => "bad",
    }
}
