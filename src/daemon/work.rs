//! The jobs that run by the clock, and their runner.

use super::DaemonError;
use crate::clock::Clock;
use crate::jobs::{Job, Jobs};
use crate::pulse::Pulse;
use crate::store::Store;
use std::pin::pin;
use tokio::sync::watch;
use tokio::task::JoinSet;

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
