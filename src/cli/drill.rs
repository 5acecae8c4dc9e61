//! `drill`.

use super::drill_args::Drill;
use super::out::{self, Out};
use super::{Outcome, Problem};
use crate::config::Config;
use crate::drill::{self, DrillError, Report};
use anyhow::Context as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Feeds a copy of the database the last days once more. What that would change is a problem found.
pub(super) fn drill(out: &mut Out, config: &Config, args: &Drill) -> anyhow::Result<Outcome> {
    if let Some(alias) = &args.chain
        && config.find(alias).is_none()
    {
        let aliases: Vec<&str> = config.chains().map(|chain| chain.alias()).collect();
        let next = format!("--chain with one of {}", aliases.join(", "));
        return Err(Problem::misuse(format!("the config has no chain {alias}"), next).into());
    }
    // An hour later is late to hear that it cannot be written.
    let report_to = args.report.as_deref().map(Partial::begin).transpose()?;
    let how = drill::Drill {
        days: args.days,
        passes: args.passes,
        chain: args.chain.clone(),
        folder: args.folder.clone(),
        from_backup: args.from_backup.clone(),
        is_kept: args.keep,
        is_without_nodes: args.without_nodes,
        before: None,
    };
    let report = match drill::run(config, &how, |line| out::note(&line)) {
        Ok(report) => report,
        Err(error @ DrillError::NoRoom { .. }) => {
            let next = "make room there, or name another place with --folder";
            return Err(Problem::misuse(error.to_string(), next).into());
        }
        Err(error) => return Err(anyhow::Error::new(error).context("drill")),
    };
    if out.json {
        out.json(&report)?;
    } else {
        for line in report.lines() {
            out.line(line)?;
        }
        out.done()?;
    }
    if let Some(partial) = report_to {
        partial.end(&report)?;
    }
    match (report.is_clean, report.is_complete) {
        (true, true) => Ok(Outcome::Done),
        (false, _) => Ok(Outcome::Found),
        (true, false) => Err(Problem::misuse(
            "not everything could be fed again",
            "see what was NOT FED and why; --without-nodes feeds what needs no node",
        )
        .into()),
    }
}

/// A file that gets its name once the whole report is in it, and is gone if it never does.
struct Partial<'a> {
    name: &'a Path,
    partial: PathBuf,
    file: File,
}

impl Partial<'_> {
    fn begin(name: &Path) -> anyhow::Result<Partial<'_>> {
        let mut partial = name.as_os_str().to_owned();
        partial.push(format!(".partial-{}", std::process::id()));
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).with_context(|| doing(name))?;
        Ok(Partial { name, partial, file })
    }

    fn end(mut self, report: &Report) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(report).with_context(|| doing(self.name))?;
        let written = writeln!(self.file, "{text}").and_then(|()| self.file.sync_all());
        let named = written.and_then(|()| std::fs::rename(&self.partial, self.name));
        named.with_context(|| doing(self.name))
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        // Gone already where it has its name.
        let _ = std::fs::remove_file(&self.partial);
    }
}

fn doing(name: &Path) -> String {
    format!("write the report {}", name.display())
}
