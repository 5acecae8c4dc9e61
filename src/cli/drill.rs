//! `drill`.

use super::drill_args::Drill;
use super::out::{self, Out};
use super::report_file::ReportFile;
use super::{Outcome, Problem};
use crate::config::Config;
use crate::drill::{self, DrillError};

/// Feeds a copy of the database the last days once more. What that would change is a problem found.
pub(super) fn drill(out: &mut Out, config: &Config, args: &Drill) -> anyhow::Result<Outcome> {
    if let Some(alias) = &args.chain
        && config.find(alias).is_none()
    {
        let aliases: Vec<&str> = config.chains().map(|chain| chain.alias()).collect();
        let next = format!("--chain with one of {}", aliases.join(", "));
        return Err(Problem::misuse(format!("the config has no chain {alias}"), next).into());
    }
    let report_to = args.report.as_deref().map(ReportFile::begin).transpose()?;
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
    if let Some(file) = report_to {
        file.end(&report)?;
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
