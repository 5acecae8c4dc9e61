//! `drill`.

use super::Outcome;
use super::drill_args::Drill;
use super::out::Out;
use crate::config::Config;
use crate::drill;
use serde::Serialize;

#[derive(Serialize)]
struct AnswerJson {
    bytes: u64,
    violations: Vec<String>,
    is_clean: bool,
}

/// Tries a copy. What does not hold is a problem found.
pub(super) fn drill(out: &mut Out, config: &Config, args: &Drill) -> anyhow::Result<Outcome> {
    let report = drill::run(config, args.folder.as_deref())?;
    let violations: Vec<String> = report.broken.iter().map(ToString::to_string).collect();
    let is_clean = violations.is_empty();
    if out.json {
        out.json(&AnswerJson {
            bytes: report.bytes,
            violations,
            is_clean,
        })?;
    } else {
        out.line(format!("copied {} bytes", report.bytes))?;
        for broken in &violations {
            out.line(format!("BROKEN  {broken}"))?;
        }
        if is_clean {
            out.line("nothing is broken in the copy")?;
        }
        out.done()?;
    }
    Ok(match is_clean {
        true => Outcome::Done,
        false => Outcome::Found,
    })
}
