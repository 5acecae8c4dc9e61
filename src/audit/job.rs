//! The audit by the clock.

use super::{Audit, Pace, Report, Scope, run};
use crate::clock::Clock;
use crate::config::Config;
use crate::jobs::Job;
use crate::store::{JobOutcome, Store};
use crate::telemetry::error_line;
use std::time::Duration;

/// Beyond its time a run may take so long: the books, a slice that is under way, the walk through the unspent
/// coins of a large chain.
const SLACK: Duration = Duration::from_secs(45 * 60);

/// The daemon's own audit; `None` where the config wants none. What is found is an error in the log, a metric
/// and an alert; what could not be asked waits for the next run.
pub fn job(config: &Config, store: &Store, clock: Clock) -> Option<Job> {
    let settings = &config.audit;
    let audit = Audit {
        config: config.clone(),
        clock,
        scope: Scope {
            chain: None,
            books: true,
            credits: true,
            outputs: true,
            unspent: settings.has_unspent,
            from: None,
            again: false,
        },
        pace: Pace {
            blocks_per_second: Some(settings.blocks_per_second),
            longest: Some(settings.longest),
        },
        actor: "daemon",
    };
    let store = store.clone();
    Some(Job::new(
        "audit",
        settings.every?,
        settings.longest + SLACK,
        move || {
            let (audit, store) = (audit.clone(), store.clone());
            async move {
                match run(&audit, &store, &mut |_| {}).await {
                    Ok(report) => outcome(&report),
                    Err(error) => JobOutcome::Failed(error_line(&error)),
                }
            }
        },
    ))
}

/// Where the time was over before the blocks were, the next run comes at once: new ones come meanwhile.
fn outcome(report: &Report) -> JobOutcome {
    let (mut credits, mut blocks, mut is_behind) = (0, 0, false);
    for chain in &report.chains {
        credits += chain.credits.as_ref().map_or(0, |credits| credits.checked);
        if let Some(outputs) = &chain.outputs {
            blocks += (outputs.to_height + 1).saturating_sub(outputs.from_height);
            is_behind |= !outputs.is_to_tip && outputs.unproven_count == 0 && chain.stopped.is_none();
        }
    }
    let checks = report.books.as_ref().map_or(0, |books| books.checks);
    let found = report.found.len();
    let mut said = format!("{credits} credits, {blocks} blocks, {checks} checks; {found} found");
    if report.unproven() > 0 {
        said += &format!(", {} unproven", report.unproven());
    }
    match is_behind {
        true => JobOutcome::More(said),
        false => JobOutcome::Done(said),
    }
}
