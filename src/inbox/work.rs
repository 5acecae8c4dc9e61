//! The jobs of the inbox: doing what events do, and forgetting their bodies.

use super::effect;
use crate::clock::{Clock, millis};
use crate::config::{Config, INBOX_KEEP, InboxEffect, InboxSource};
use crate::jobs::{self, Job};
use crate::rules::ChainId;
use crate::store::{DueInbox, Effect, INBOX_JOB, JobOutcome, Store, StoreError};
use crate::telemetry::error_line;
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// An event makes the job due at once; this is for those whose turn comes again.
const EVERY: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(60);
/// Events that are worked off together: their writes share commits.
const BATCH: u32 = 64;

const FORGET_JOB: &str = "inbox_bodies";
const FORGET_EVERY: Duration = Duration::from_secs(3_600);
const FORGET_BATCH: u32 = 1_000;

/// How one event ended.
enum Ended {
    Done(Option<ChainId>),
    Parked,
    /// It will be tried again.
    Failed(String),
    /// The database cannot be used now; nothing was changed.
    Waits(StoreError),
}

/// The jobs that the config's sources need, and those that the database has events of: what a source sent
/// that the config does not name any more is settled and forgotten too. None without any source.
pub fn jobs(config: &Config, known: &[String], store: &Store, clock: Clock) -> Vec<Job> {
    let mut sources: BTreeMap<String, Duration> =
        known.iter().map(|source| (source.clone(), INBOX_KEEP)).collect();
    sources.extend(
        config
            .inbox
            .iter()
            .map(|source| (source.source.clone(), source.keep)),
    );
    if sources.is_empty() {
        return Vec::new();
    }
    let config = Arc::new(config.clone());
    let by = store.clone();
    let work = Job::new(INBOX_JOB, EVERY, LONGEST, move || {
        run(config.clone(), by.clone(), clock)
    });
    let forget = Job::write(store, FORGET_JOB, FORGET_EVERY, LONGEST, move |tx| {
        let now = tx.now_ms();
        let mut dropped = 0;
        for (source, keep) in &sources {
            dropped += tx.drop_inbox_bodies(source, now - millis(*keep), FORGET_BATCH)?;
        }
        let done = format!("{dropped} bodies dropped");
        Ok(match dropped {
            0 => JobOutcome::Done(String::new()),
            some if some >= FORGET_BATCH as usize => JobOutcome::More(done),
            _ => JobOutcome::Done(done),
        })
    });
    vec![work, forget]
}

/// Works off what is due now. Safe to run twice, and by two at once: each event is settled once.
pub async fn run(config: Arc<Config>, store: Store, clock: Clock) -> JobOutcome {
    let now = clock.now_ms();
    let due = match store.read(move |tx| tx.due_inbox(now, BATCH)).await {
        Ok(due) => due,
        Err(error) => return jobs::outcome(Err(error)),
    };
    let count = due.len();
    let ended = join_all(due.into_iter().map(|event| one(&config, &store, event))).await;
    let (mut done, mut parked, mut hinted) = (0_usize, 0_usize, BTreeSet::new());
    let mut failed = None;
    for ended in ended {
        match ended {
            Ended::Done(chain) => {
                done += 1;
                hinted.extend(chain);
            }
            Ended::Parked => parked += 1,
            Ended::Failed(why) => failed = Some(why),
            Ended::Waits(error) => failed = Some(error_line(&error)),
        }
    }
    hinted.iter().for_each(|chain| store.hint(chain));
    if done + parked > 0 {
        store.wake();
    }
    let words = match (done, parked) {
        (0, 0) => String::new(),
        (done, 0) => format!("{done} done"),
        (done, parked) => format!("{done} done, {parked} parked"),
    };
    match failed {
        Some(why) => JobOutcome::Failed(why),
        None if count == BATCH as usize => JobOutcome::More(words),
        None => JobOutcome::Done(words),
    }
}

async fn one(config: &Config, store: &Store, event: DueInbox) -> Ended {
    let source = config.inbox.iter().find(|source| source.source == event.source);
    let effect = match source {
        Some(source) => effect::of(source, config, &event.body),
        None => Err(format!(
            "the config has no [[inbox]] source {} any more: bring it back, then `creditd inbox retry`",
            event.source
        )),
    };
    let why = match effect {
        Ok(effect) => match settle(store, &event, effect, source).await {
            Ok(chain) => return Ended::Done(chain),
            Err(StoreError::Refused(why)) => why,
            Err(error) if error.is_passing() || is_over(&error) => return Ended::Waits(error),
            Err(error) => return fail(store, &event, &error).await,
        },
        Err(why) => why,
    };
    tracing::warn!(
        source = %event.source, inbox = %event.id,
        "event {} of {} is parked: {why}", event.id, event.source
    );
    let id = event.id;
    match store.write(move |tx| tx.park_inbox(&id, &why)).await {
        Ok(_) => Ended::Parked,
        Err(error) => Ended::Waits(error),
    }
}

/// Is it about the daemon and its database as a whole?
fn is_over(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::StaleEpoch { .. } | StoreError::Io(_) | StoreError::Closed
    )
}

/// Does it, and says which chain to look at.
async fn settle(
    store: &Store,
    event: &DueInbox,
    effect: Effect,
    source: Option<&InboxSource>,
) -> Result<Option<ChainId>, StoreError> {
    let hinted = match (&effect, source.map(|source| &source.effect)) {
        (Effect::Hint(_), Some(InboxEffect::Hint { chain, .. })) => Some(chain.clone()),
        _ => None,
    };
    let id = event.id.clone();
    store.write(move |tx| tx.settle_inbox(&id, &effect)).await?;
    Ok(hinted)
}

async fn fail(store: &Store, event: &DueInbox, error: &StoreError) -> Ended {
    let (id, why) = (event.id.clone(), error_line(error));
    tracing::warn!(source = %event.source, inbox = %id, "event {id} of {} failed: {why}", event.source);
    let noted = why.clone();
    match store.write(move |tx| tx.fail_inbox(&id, &noted)).await {
        Ok(_) => Ended::Failed(why),
        Err(error) => Ended::Waits(error),
    }
}
