//! The jobs that run by the clock, and their runner.

use super::DaemonError;
use super::chains::new_chains;
use crate::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use crate::clock::{Clock, millis};
use crate::config::{BackupConfig, BitcoinChain, Config};
use crate::egress::HttpDial;
use crate::inbox;
use crate::jobs::{self, Job, Jobs};
use crate::pools::Pools;
use crate::pulse::Pulse;
use crate::store::{BackupPlan, JobOutcome, Store, StoreError};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A backup that takes longer has met a disk that hangs.
const BACKUP_MAX: Duration = Duration::from_secs(6 * 3_600);

/// Answers to requests are forgotten so often, and so many in one transaction.
const RETENTION_EVERY: Duration = Duration::from_secs(3_600);
const RETENTION_MAX: Duration = Duration::from_secs(60);
const RETENTION_BATCH: u32 = 1_000;

/// All that the config asks for.
pub(super) fn jobs(
    config: &Config,
    pools: Option<Pools<HttpDial>>,
    (store, clock): (&Store, Clock),
) -> Vec<Job> {
    let backup = config.backup.as_ref();
    let mut jobs = inbox::work::jobs(config, store, clock);
    jobs.extend(pools.map(|pools| Arc::new(pools).job(store)));
    jobs.extend(backup.map(|backup| backup_job(backup, store, clock)));
    jobs.push(retention_job(store));
    jobs
}

/// Forgets the answers kept under idempotency keys, secrets of endpoints among them, when their time is over.
fn retention_job(store: &Store) -> Job {
    Job::write(store, "retention", RETENTION_EVERY, RETENTION_MAX, |tx| {
        let gone = tx.forget_answers(RETENTION_BATCH)?;
        let done = format!("{gone} answers forgotten");
        Ok(match gone {
            0 => JobOutcome::Done(String::new()),
            some if some >= RETENTION_BATCH as usize => JobOutcome::More(done),
            _ => JobOutcome::Done(done),
        })
    })
}

/// What addresses are handed out of, with the nodes that derive each a second time; `None` where the config
/// names nothing.
///
/// # Errors
/// Those of the database.
pub(super) async fn pools(
    config: &Config,
    nodes: &[BitcoinConfig],
    (store, clock): (&Store, Clock),
) -> Result<Option<Pools<HttpDial>>, StoreError> {
    let chains = new_chains(config);
    let node = |(chain, node): (&BitcoinChain, &BitcoinConfig)| {
        let source = BitcoinSource::new(node.clone(), HttpDial::new(), clock);
        (chain.chain.clone(), source)
    };
    let nodes = config.bitcoin.iter().zip(nodes).map(node).collect();
    let pools = Pools::list(&config.addresses, chains, nodes, store).await?;
    Ok((!config.addresses.is_empty()).then_some(pools))
}

/// Spans are counted from 1970 on: two runs in the same one make one file.
fn backup_job(backup: &BackupConfig, store: &Store, clock: Clock) -> Job {
    let (backup, store, every_ms) = (backup.clone(), store.clone(), millis(backup.every));
    Job::new("backup", backup.every, BACKUP_MAX, move || {
        let now = clock.now_ms();
        let plan = BackupPlan {
            folder: backup.folder.clone(),
            name: BackupPlan::name(now - now % every_ms),
            keep: backup.keep,
        };
        let store = store.clone();
        async move { jobs::outcome(store.back_up(plan).await.map(JobOutcome::Done)) }
    })
}

/// Starts running `jobs`, and returns the pulse of that. What is under way at a stop and does not end in time
/// is run again at the next start.
pub(super) fn start(
    jobs: Vec<Job>,
    (store, clock): (&Store, Clock),
    mut told_to_stop: watch::Receiver<bool>,
    parts: &mut JoinSet<Result<(), DaemonError>>,
) -> Pulse {
    let pulse = Pulse::default();
    let jobs = Jobs::new(store.clone(), clock, jobs).with_pulse(pulse.clone());
    parts.spawn(async move {
        let stop = pin!(async {
            // Should nobody be left who could tell, that is a stop too.
            let _ = told_to_stop.wait_for(|is_told| *is_told).await;
        });
        jobs.run(stop).await.map_err(DaemonError::Jobs)
    });
    pulse
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Database, KeptAnswer, KeyScope, OpenMode};

    const AT_MS: i64 = 1_700_000_000_000;

    async fn keep(store: &Store, key: String, keep_until: i64) {
        let scope = KeyScope {
            owner: 1,
            method: "POST".to_owned(),
            path: "/v1/endpoints".to_owned(),
            key,
        };
        let answer = KeptAnswer {
            status: 201,
            body: r#"{"secret":"whsec_x"}"#.to_owned(),
        };
        let kept = store.write(move |tx| tx.keep_answer(&scope, &[1; 32], &answer, keep_until));
        kept.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_forgotten_when_their_time_is_over_and_no_sooner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let clock = Clock::simulated(AT_MS);
        let store = Store::inline(Database::open(&path, OpenMode::Daemon).unwrap(), clock);
        for number in 0..=RETENTION_BATCH {
            keep(&store, format!("over-{number}"), AT_MS).await;
        }
        keep(&store, "later".to_owned(), AT_MS + millis(RETENTION_EVERY)).await;
        let count = || {
            let reader = rusqlite::Connection::open(&path).unwrap();
            let count = reader.query_row("SELECT count(*) FROM idempotency", [], |row| row.get(0));
            count.unwrap_or(-1_i64)
        };
        let runner = Jobs::new(store.clone(), clock, vec![retention_job(&store)]);
        let runner = tokio::spawn(runner.run(std::future::pending()));
        clock.sleep(RETENTION_EVERY - Duration::from_secs(10)).await;
        assert_eq!(
            count(),
            1,
            "more than a batch at once, and not what is to be kept"
        );
        let rows = store.read(|tx| tx.jobs()).await.unwrap();
        assert_eq!((rows[0].name.as_str(), rows[0].runs), ("retention", 2));
        clock.sleep(Duration::from_secs(20)).await;
        assert_eq!(count(), 0);
        runner.abort();
    }
}
