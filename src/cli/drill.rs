//! `drill`.

use super::drill_args::Drill;
use super::out::{self, Out};
use super::report_file::ReportFile;
use super::{Outcome, Problem};
use crate::check::split_refusal;
use crate::config::Config;
use crate::drill::{self, DrillError, Untried};
use crate::store::StoreError;
use crate::telemetry::error_line;
use std::path::Path;

const NO_GOOD: &str = "this backup is no good: drill another, and make a new one";

/// What is wrong with a backup is mended otherwise than what is wrong with the database.
fn not_drilled(args: &Drill, error: DrillError) -> anyhow::Error {
    let next = match (&args.from_backup, &error) {
        // Also where it is met later: the copy that the error names is gone by then.
        (
            Some(_),
            DrillError::Store {
                source: StoreError::Damaged { .. },
                ..
            },
        ) => NO_GOOD,
        (
            None,
            DrillError::Store {
                source: StoreError::Damaged { what, .. },
                ..
            },
        ) => {
            let damaged = format!("the database is damaged ({what})");
            return Problem::misuse(damaged, "keep the file, and restore a backup").into();
        }
        (_, DrillError::Unknown(_)) => {
            "run it again when the node answers; --chain NAME leaves the other chains' nodes alone, \
             --without-nodes all of them"
        }
        (_, DrillError::Interrupted) => "run it again: nothing of it is left, and nothing was changed",
        (Some(_), DrillError::Store { doing, source }) if *doing == drill::OPENING => match source {
            StoreError::Missing(_) => "name a file that `creditd backup` or [backup] made",
            StoreError::NotOurs { .. } => "name a backup of creditd: this is another file",
            StoreError::Corrupt(_) => NO_GOOD,
            StoreError::SchemaTooOld { .. } => {
                "a daemon of this version upgrades it when it is restored; drill a backup that was made since"
            }
            StoreError::SchemaTooNew { .. } => "drill it with the newer creditd that made it",
            StoreError::Refused(_) => "name the backup itself, without a log beside it",
            _ => return error.into(),
        },
        _ => return error.into(),
    };
    let file = args.from_backup.as_deref().unwrap_or(Path::new("")).display();
    Problem::misuse(format!("drill {file}: {}", backup_words(&error)), next).into()
}

/// Without what the store says of a database in use.
fn backup_words(error: &DrillError) -> String {
    match error {
        DrillError::Store {
            source: StoreError::Missing(path),
            ..
        } if path.exists() => "it is empty".to_owned(),
        DrillError::Store {
            source: StoreError::Missing(_),
            ..
        } => "there is no such file".to_owned(),
        DrillError::Store {
            source: StoreError::Refused(text),
            ..
        } => split_refusal(text).0.to_owned(),
        DrillError::Store {
            source: StoreError::Damaged { what, .. },
            ..
        } => format!("it is damaged ({what})"),
        DrillError::Store {
            source: StoreError::SchemaTooOld { file, ours },
            ..
        } => {
            format!("it has schema version {file}, and this creditd needs {ours}")
        }
        other => error_line(other),
    }
}

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
        Err(error) => return Err(not_drilled(args, error)),
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
        (true, false) => Err(not_whole(report.untried())),
    }
}

/// Nothing was found, and not everything was looked at, or nothing.
fn not_whole(untried: Option<Untried>) -> anyhow::Error {
    let Some(why) = untried else {
        let next = "see what was NOT FED and why; --without-nodes feeds what needs no node";
        return Problem::misuse("not everything could be fed again", next).into();
    };
    let next = match why {
        Untried::NotFed => "see NOT FED: wait for the node, or mend what is said there, then run it again",
        Untried::LeftOut => {
            "leave out --without-nodes: blocks come again then; --days N goes further back for the rest"
        }
        Untried::Nothing => "drill one that has followed its chains; --days N goes further back",
    };
    Problem::misuse(
        "nothing could be tried, so that this says nothing about the database",
        next,
    )
    .into()
}
