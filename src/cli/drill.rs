//! `drill`.

use super::drill_args::Drill;
use super::out::{self, Out};
use super::{Outcome, Problem};
use crate::config::Config;
use crate::drill::{self, Report};
use anyhow::Context as _;
use std::io::Write as _;
use std::path::Path;

/// Feeds a copy of the database the last days once more. What that would change is a problem found.
pub(super) fn drill(out: &mut Out, config: &Config, args: &Drill) -> anyhow::Result<Outcome> {
    if let Some(alias) = &args.chain
        && config.find(alias).is_none()
    {
        let aliases: Vec<&str> = config.chains().map(|chain| chain.alias()).collect();
        let next = format!("--chain with one of {}", aliases.join(", "));
        return Err(Problem::misuse(format!("the config has no chain {alias}"), next).into());
    }
    let how = drill::Drill {
        days: args.days,
        passes: args.passes,
        chain: args.chain.clone(),
        folder: args.folder.clone(),
        is_kept: args.keep,
        is_without_nodes: args.without_nodes,
        before: None,
    };
    let report = drill::run(config, &how, |line| out::note(&line)).context("drill")?;
    if let Some(file) = &args.report {
        write(file, &report)?;
    }
    if out.json {
        out.json(&report)?;
    } else {
        for line in report.lines() {
            out.line(line)?;
        }
        out.done()?;
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

/// The whole report in JSON, under its name once it is whole.
fn write(file: &Path, report: &Report) -> anyhow::Result<()> {
    let doing = || format!("write the report {}", file.display());
    let text = serde_json::to_string_pretty(report).with_context(doing)?;
    let mut partial = file.as_os_str().to_owned();
    partial.push(format!(".partial-{}", std::process::id()));
    let written = std::fs::File::create(&partial).and_then(|mut to| {
        to.write_all(text.as_bytes())?;
        to.write_all(b"\n")?;
        to.sync_all()
    });
    let named = written.and_then(|()| std::fs::rename(&partial, file));
    if named.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    named.with_context(doing)
}
