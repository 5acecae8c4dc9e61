//! Background jobs by the clock: each is leased from the database, run, and settled, so that it is safe to
//! run twice and by two workers at once. What a job does is its owner's; here is only when, and what is told
//! of it. Start at [`Jobs::run`].

use crate::clock::{Clock, millis};
use crate::pulse::Pulse;
use crate::store::{JobLease, JobOutcome, JobRun, Store, StoreError, WriteTx};
use crate::telemetry::error_line;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};

/// How often the table is looked at: commands and other transactions make jobs due without waking us.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a stop waits for runs that are about to end, and then for what dropped ones leave behind.
const LANDING_MAX: Duration = Duration::from_secs(1);
const CLEARING_MAX: Duration = Duration::from_millis(400);

/// What is done elsewhere for a run that was dropped, until it is done no more.
type Clearing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One run of a job on its way.
pub type Running = Pin<Box<dyn Future<Output = JobOutcome> + Send>>;

/// A job: what to do, and how often.
pub struct Job {
    name: &'static str,
    every: Duration,
    longest: Duration,
    work: Box<dyn Fn() -> Running + Send + Sync>,
    cleared: Option<Box<dyn Fn() -> Clearing + Send + Sync>>,
}

impl Job {
    /// Runs `work` once in `every`. A run that takes longer than `longest` is dropped at the await that it
    /// has come to and counts as failed, so that none outlives its lease.
    pub fn new<F>(
        name: &'static str,
        every: Duration,
        longest: Duration,
        work: impl Fn() -> F + Send + Sync + 'static,
    ) -> Job
    where
        F: Future<Output = JobOutcome> + Send + 'static,
    {
        Job {
            name,
            every,
            longest,
            work: Box::new(move || Box::pin(work())),
            cleared: None,
        }
    }

    /// What a stop waits for once its runs are dropped: others that work for them are told to end.
    #[must_use]
    pub fn with_clearing<F>(mut self, cleared: impl Fn() -> F + Send + Sync + 'static) -> Job
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.cleared = Some(Box::new(move || Box::pin(cleared())));
        self
    }

    /// A job that is one write transaction.
    pub fn write(
        store: &Store,
        name: &'static str,
        every: Duration,
        longest: Duration,
        work: impl Fn(&mut WriteTx<'_>) -> Result<JobOutcome, StoreError> + Clone + Send + Sync + 'static,
    ) -> Job {
        let store = store.clone();
        Job::new(name, every, longest, move || {
            let (store, work) = (store.clone(), work.clone());
            async move { outcome(store.write(work).await) }
        })
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs it now, without a lease and whoever else does: each job is safe to run at any time. A run that
    /// takes too long is given up.
    pub async fn once(&self, clock: Clock) -> JobOutcome {
        tokio::select! { biased;
            outcome = (self.work)() => outcome,
            () = clock.sleep(self.longest) => {
                JobOutcome::Failed(format!("took longer than {} s and was given up", self.longest.as_secs()))
            }
        }
    }

    /// Longer than a run can take.
    fn lease_ms(&self) -> i64 {
        millis(self.longest * 2)
    }
}

/// What the database said, as the outcome of a run.
pub fn outcome(said: Result<JobOutcome, StoreError>) -> JobOutcome {
    said.unwrap_or_else(|error| JobOutcome::Failed(error_line(&error)))
}

/// A run that has ended, with its lease.
type Ended = (JobLease, JobRun);

/// The runner of all jobs.
pub struct Jobs {
    store: Store,
    clock: Clock,
    jobs: Vec<Arc<Job>>,
    running: JoinSet<Ended>,
    pulse: Pulse,
}

impl Jobs {
    /// A runner for `jobs`.
    pub fn new(store: Store, clock: Clock, jobs: Vec<Job>) -> Jobs {
        Jobs {
            store,
            clock,
            jobs: jobs.into_iter().map(Arc::new).collect(),
            running: JoinSet::new(),
            pulse: Pulse::default(),
        }
    }

    /// Shows its signs of life on `pulse`.
    #[must_use]
    pub fn with_pulse(mut self, pulse: Pulse) -> Jobs {
        self.pulse = pulse;
        self
    }

    /// Runs what is due until `stop`, and then settles what ends within a moment. What does not is dropped:
    /// its lease is void at the next start.
    ///
    /// # Errors
    /// Only when the database cannot be used any more: a full disk is waited out.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), StoreError> {
        let mut stop = pin!(stop);
        let known: Vec<(&'static str, i64)> = self
            .jobs
            .iter()
            .map(|job| (job.name, millis(job.every)))
            .collect();
        let known = move |tx: &mut WriteTx<'_>| tx.set_jobs(&known);
        tokio::select! { biased;
            () = &mut stop => return Ok(()),
            set = self.store.write_patiently(known) => set?,
        }
        loop {
            match self.round().await {
                Ok(()) | Err(StoreError::DiskFull(_) | StoreError::Busy(_)) => {}
                Err(error) => return Err(error),
            }
            self.pulse.beat(self.clock, LOOK_EVERY);
            tokio::select! { biased;
                () = &mut stop => return self.wind_up().await,
                Some(ended) = self.running.join_next() => self.settle(ended).await?,
                () = self.clock.sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Leases what is due and starts it.
    async fn round(&mut self) -> Result<(), StoreError> {
        let now = self.clock.now_ms();
        let due = self.store.read(move |tx| tx.due_jobs(now)).await?;
        for job in &self.jobs {
            if !due.iter().any(|name| name == job.name) {
                continue;
            }
            let (name, lease_ms) = (job.name, job.lease_ms());
            let lease = self.store.write(move |tx| tx.lease_job(name, lease_ms)).await?;
            if let Some(lease) = lease {
                self.running.spawn(run_one(job.clone(), self.clock, lease));
            }
        }
        Ok(())
    }

    /// Notes how a run ended. One whose task died is noted by nobody: it is run again when its lease is over.
    async fn settle(&mut self, ended: Result<Ended, JoinError>) -> Result<(), StoreError> {
        let Ok((lease, run)) = ended else {
            return Ok(());
        };
        if let JobOutcome::Failed(why) = &run.outcome {
            tracing::warn!(job = lease.name, "job {} failed: {why}", lease.name);
        }
        loop {
            let (lease, run) = (lease.clone(), run.clone());
            match self.store.write(move |tx| tx.settle_job(&lease, &run)).await {
                Err(StoreError::DiskFull(_) | StoreError::Busy(_)) => {
                    self.pulse.beat(self.clock, LOOK_EVERY);
                    self.clock.sleep(LOOK_EVERY).await;
                }
                settled => return settled.map(drop),
            }
        }
    }

    async fn wind_up(&mut self) -> Result<(), StoreError> {
        let clock = self.clock;
        let landing = async {
            while let Some(ended) = self.running.join_next().await {
                self.settle(ended).await?;
            }
            Ok(())
        };
        let landed = tokio::select! { biased;
            landed = landing => landed,
            () = clock.sleep(LANDING_MAX) => Ok(()),
        };
        let clearing = async {
            self.running.shutdown().await;
            for cleared in self.jobs.iter().filter_map(|job| job.cleared.as_ref()) {
                cleared().await;
            }
        };
        tokio::select! { biased;
            () = clearing => {}
            () = clock.sleep(CLEARING_MAX) => {}
        }
        landed
    }
}

async fn run_one(job: Arc<Job>, clock: Clock, lease: JobLease) -> Ended {
    let (started_at, began) = (clock.now_ms(), clock.instant());
    crate::points::pass("job.leased");
    let outcome = job.once(clock).await;
    crate::points::pass("job.ran");
    let run = JobRun {
        started_at,
        took_ms: millis(clock.instant() - began),
        outcome,
    };
    (lease, run)
}
