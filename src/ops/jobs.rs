//! The metrics of background jobs.

use super::text::{Labels, Page};
use crate::store::JobRow;
use std::time::Duration;

/// Last run, duration, failures and lateness of each job.
pub(super) fn exposition(page: &mut Page, now_ms: i64, jobs: &[JobRow]) {
    let gauges = |value: &dyn Fn(&JobRow) -> Option<i64>| -> Vec<(Labels, i64)> {
        let row = |job: &JobRow| Some((labels(job), value(job)?));
        jobs.iter().filter_map(row).collect()
    };
    let rows = jobs.iter().map(|job| (labels(job), job.runs));
    page.counters(
        "job_runs",
        "Runs of a background job, failed ones included",
        rows.collect(),
    );
    page.gauges(
        "job_failures",
        "Failed runs of a job in a row, up to now",
        gauges(&|job| Some(i64::try_from(job.failures).unwrap_or(i64::MAX))),
    );
    page.gauges(
        "job_last_run_time_seconds",
        "Unix time at which a run of the job ended last",
        gauges(&|job| Some(job.ended_at? / 1000)),
    );
    page.gauges(
        "job_last_success_time_seconds",
        "Unix time at which a run of the job went well last",
        gauges(&|job| Some(job.done_at? / 1000)),
    );
    let took = |job: &JobRow| {
        let took = Duration::from_millis(u64::try_from(job.took_ms?).unwrap_or(0));
        Some((labels(job), took.as_secs_f64()))
    };
    page.spans(
        "job_last_duration_seconds",
        "How long the run took that ended last",
        jobs.iter().filter_map(took).collect(),
    );
    page.gauges(
        "job_overdue_seconds",
        "By how much the next run of a job is late that nobody runs; 0 = it is not, or it has no time",
        gauges(&|job| Some(overdue_secs(job, now_ms))),
    );
}

fn overdue_secs(job: &JobRow, now_ms: i64) -> i64 {
    let is_running = job.lease_until.is_some_and(|until| until > now_ms);
    match job.next_at {
        Some(at) if !is_running => (now_ms.saturating_sub(at) / 1000).max(0),
        Some(_) | None => 0,
    }
}

fn labels(job: &JobRow) -> Labels {
    vec![("job", job.name.clone()), ("chain", job.chain.clone())]
}
