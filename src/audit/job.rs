//! The audit by the clock.

use super::{Audit, Done, Pace, Report, Scope, Walks, run};
use crate::clock::Clock;
use crate::config::Config;
use crate::jobs::Job;
use crate::store::{JobOutcome, Store};
use crate::telemetry::error_line;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
        goes_on: Some(Done::default()),
        walks: Walks::default(),
    };
    let (store, once, walks) = (store.clone(), Arc::new(Once::default()), audit.walks.clone());
    let job = Job::new("audit", settings.every?, settings.longest + SLACK, move || {
        let (mut audit, store, once) = (audit.clone(), store.clone(), once.clone());
        async move {
            let done = once.done();
            audit.scope.books = done.is_none();
            audit.goes_on = Some(done.unwrap_or_default());
            match run(&audit, &store, &mut |_| {}).await {
                Ok(report) => once.note(&report),
                Err(error) => {
                    once.forget();
                    JobOutcome::Failed(error_line(&error))
                }
            }
        }
    });
    Some(job.with_clearing(move || {
        let walks = walks.clone();
        async move { walks.stopped().await }
    }))
}

/// What a run that goes on at once where the last one was cut does no second time; `None` = the last one was
/// through.
#[derive(Debug, Default)]
struct Once(Mutex<Option<Done>>);

impl Once {
    fn lock(&self) -> MutexGuard<'_, Option<Done>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self) -> Option<Done> {
        self.lock().clone()
    }

    fn note(&self, report: &Report) -> JobOutcome {
        let outcome = outcome(report);
        match outcome {
            JobOutcome::More(_) => self.lock().get_or_insert_default().note(report),
            JobOutcome::Done(_) | JobOutcome::Failed(_) => self.forget(),
        }
        outcome
    }

    fn forget(&self) {
        *self.lock() = None;
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
    let found = report.found_count;
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
    use super::super::{ChainReport, Credits, UnspentCoins};
    use super::*;

    fn chain(name: &str, has_ended: bool, has_unspent: bool, is_cut: bool) -> ChainReport {
        ChainReport {
            chain: name.to_owned(),
            credits: Some(Credits {
                has_ended,
                ..Credits::default()
            }),
            unspent: has_unspent.then(UnspentCoins::default),
            is_cut,
            ..ChainReport::default()
        }
    }

    fn done(credits: &[&str], unspent: &[&str]) -> Option<Done> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Some(Done {
            credits: names(credits),
            unspent: names(unspent),
        })
    }

    #[test]
    fn what_has_ended_is_done_once_however_often_it_goes_on() {
        let once = Once::default();
        let note = |chains: Vec<ChainReport>| {
            once.note(&Report {
                chains,
                ..Report::default()
            });
            once.done()
        };
        assert_eq!(once.done(), None, "the first asks for all of it");
        let cut = |name, has_ended, has_unspent| chain(name, has_ended, has_unspent, true);
        assert_eq!(note(vec![cut("a", false, false)]), done(&[], &[]));
        assert_eq!(
            note(vec![cut("a", true, false), cut("b", false, true)]),
            done(&["a"], &["b"])
        );
        assert_eq!(note(vec![cut("b", true, false)]), done(&["a", "b"], &["b"]));
        assert_eq!(
            note(vec![chain("a", false, false, false)]),
            None,
            "it was through"
        );
        note(vec![cut("a", true, true)]);
        once.forget();
        assert_eq!(once.done(), None);
    }
}
