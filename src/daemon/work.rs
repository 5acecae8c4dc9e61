//! The jobs that run by the clock, and their runner.

use super::DaemonError;
use crate::clock::{Clock, millis};
use crate::config::{BackupConfig, Config};
use crate::inbox;
use crate::jobs::{self, Job, Jobs};
use crate::pulse::Pulse;
use crate::store::{BackupPlan, JobOutcome, Store};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A backup that takes longer has met a disk that hangs.
const BACKUP_MAX: Duration = Duration::from_secs(6 * 3_600);

/// All that the config asks for.
pub(super) fn jobs(config: &Config, store: &Store, clock: Clock) -> Vec<Job> {
    let backup = config.backup.as_ref();
    let mut jobs = inbox::work::jobs(config, store, clock);
    jobs.extend(backup.map(|backup| backup_job(backup, store, clock)));
    jobs
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
