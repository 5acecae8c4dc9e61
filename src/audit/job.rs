//! The audit by the clock.

use super::{Audit, Done, Pace, Report, Scope, Walks, run};
use crate::clock::Clock;
use crate::config::Config;
use crate::jobs::Job;
use crate::store::{JobOutcome, Store};
use crate::telemetry::error_line;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

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
    let every = settings.every?;
    let (store, once, walks) = (store.clone(), Arc::new(Once::new(every)), audit.walks.clone());
    let job = Job::new("audit", every, settings.longest + SLACK, move || {
        let (mut audit, store, once) = (audit.clone(), store.clone(), once.clone());
        async move {
            let began = clock.instant();
            let done = once.done(began);
            audit.scope.books = done.is_none();
            audit.goes_on = Some(done.unwrap_or_default());
            match run(&audit, &store, &mut |_| {}).await {
                Ok(report) => once.note(began, &report),
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

/// What a run that goes on at once where the last one was cut does no second time, for as long as one run is
/// from the next: a walk of many days must not keep the books and credits from being asked daily.
#[derive(Debug)]
struct Once {
    every: Duration,
    kept: Mutex<Option<Kept>>,
    /// A run that asks for all of it has begun, and has not said how it ended.
    is_whole_under_way: AtomicBool,
}

/// What the runs since one that asked for all of it have done.
#[derive(Debug)]
struct Kept {
    began: Instant,
    done: Done,
}

impl Once {
    fn new(every: Duration) -> Once {
        Once {
            every,
            kept: Mutex::new(None),
            is_whole_under_way: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` = the last one was through, or it is time to ask for all of it again. Where one that asked for
    /// all was given up before its end, the next leaves the books out: however long they take, the chains are
    /// asked.
    fn done(&self, now: Instant) -> Option<Done> {
        if self.is_whole_under_way.swap(false, Ordering::Relaxed) {
            return Some(Done::default());
        }
        let mut kept = self.lock();
        *kept = kept
            .take()
            .filter(|kept| now.saturating_duration_since(kept.began) < self.every);
        let done = kept.as_ref().map(|kept| kept.done.clone());
        self.is_whole_under_way.store(done.is_none(), Ordering::Relaxed);
        done
    }

    /// Notes what a run that began then says.
    fn note(&self, began: Instant, report: &Report) -> JobOutcome {
        let outcome = outcome(report);
        self.is_whole_under_way.store(false, Ordering::Relaxed);
        match outcome {
            JobOutcome::More(_) => {
                let done = Done::default();
                let mut kept = self.lock();
                kept.get_or_insert(Kept { began, done }).done.note(report);
            }
            JobOutcome::Done(_) | JobOutcome::Failed(_) => self.forget(),
        }
        outcome
    }

    fn forget(&self) {
        self.is_whole_under_way.store(false, Ordering::Relaxed);
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

    #[tokio::test(start_paused = true)]
    async fn what_has_ended_is_done_once_however_often_it_goes_on() {
        let clock = Clock::simulated(0);
        let hours = |count: u64| Duration::from_secs(3_600 * count);
        let once = Once::new(hours(24));
        let note = |chains: Vec<ChainReport>| {
            let chains = Report {
                chains,
                ..Report::default()
            };
            once.note(clock.instant(), &chains);
            once.done(clock.instant())
        };
        assert_eq!(once.done(clock.instant()), None, "the first asks for all of it");
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
        assert_eq!(once.done(clock.instant()), None);

        // One that was given up, in the books or behind them.
        assert_eq!(
            once.done(clock.instant()),
            done(&[], &[]),
            "the chains have their turn"
        );
        assert_eq!(once.done(clock.instant()), None, "and the books again");
        once.forget();

        // A walk that takes days is cut again and again.
        for _ in 0..3 {
            assert_eq!(note(vec![cut("a", true, true)]), done(&["a"], &["a"]));
            clock.sleep(hours(23)).await;
            assert_eq!(note(vec![cut("b", true, false)]), done(&["a", "b"], &["a"]));
            clock.sleep(hours(1)).await;
            assert_eq!(
                once.done(clock.instant()),
                None,
                "a day after all of it was asked"
            );
        }
    }
}
