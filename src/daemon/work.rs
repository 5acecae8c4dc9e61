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
    jobs
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
