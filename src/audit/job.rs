//! The audit by the clock.

use super::{Audit, Pace, Report, Scope, Walks, run};
use crate::clock::Clock;
use crate::config::Config;
use crate::jobs::Job;
use crate::store::{JobOutcome, Store};
use crate::telemetry::error_line;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
        walks: Walks::default(),
    };
    let (store, books) = (store.clone(), Arc::new(BooksOnce::default()));
    Some(Job::new(
        "audit",
        settings.every?,
        settings.longest + SLACK,
        move || {
            let (mut audit, store, books) = (audit.clone(), store.clone(), books.clone());
            async move {
                audit.scope.books = books.is_due();
                match run(&audit, &store, &mut |_| {}).await {
                    Ok(report) => books.note(outcome(&report)),
                    Err(error) => books.note(JobOutcome::Failed(error_line(&error))),
                }
            }
        },
    ))
}

/// A run that goes on at once where the last one was cut asks the books no second time.
#[derive(Debug, Default)]
struct BooksOnce(AtomicBool);

impl BooksOnce {
    fn is_due(&self) -> bool {
        !self.0.load(Ordering::Acquire)
    }

    fn note(&self, outcome: JobOutcome) -> JobOutcome {
        self.0
            .store(matches!(outcome, JobOutcome::More(_)), Ordering::Release);
        outcome
    }
}

/// Where the time was over before it was through, the next run comes at once: new blocks come meanwhile.
fn outcome(report: &Report) -> JobOutcome {
    let (mut credits, mut blocks) = (0, 0);
    for chain in &report.chains {
        credits += chain.credits.as_ref().map_or(0, |credits| credits.checked);
        if let Some(outputs) = &chain.outputs {
            blocks += (outputs.to_height + 1).saturating_sub(outputs.from_height);
        }
    }
    let found = report.found.len();
    let mut said = format!("{credits} credits, {blocks} blocks");
    if let Some(books) = &report.books {
        said += &format!(", {} checks", books.checks);
    }
    said += &format!("; {found} found");
    if report.unproven() > 0 {
        said += &format!(", {} unproven", report.unproven());
    }
    match report.chains.iter().any(|chain| chain.is_cut) {
        true => JobOutcome::More(said),
        false => JobOutcome::Done(said),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Books, ChainReport};
    use super::*;

    #[test]
    fn books_are_asked_once_however_often_it_goes_on() {
        let books = BooksOnce::default();
        let cut = |is_cut: bool| Report {
            books: books.is_due().then(Books::default),
            chains: vec![ChainReport {
                is_cut,
                ..ChainReport::default()
            }],
            ..Report::default()
        };
        let mut asked = Vec::new();
        for is_cut in [true, true, true, false, false, true, false] {
            asked.push(books.is_due());
            books.note(outcome(&cut(is_cut)));
        }
        assert_eq!(asked, [true, false, false, false, true, true, false]);
    }
}
