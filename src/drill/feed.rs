//! What is fed again that comes from no chain: answers under keys, webhooks of others, jobs, callbacks, and a
//! start. The inputs are read from the copy as it was when it was settled, a page at a time.

use super::copy::Bench;
use super::dials::NullReceiver;
use super::report::{Input, Report, Step};
use super::{DrillError, Stop};
use crate::config::Config;
use crate::daemon;
use crate::deliver::{Deliverer, Settings};
use crate::jobs::Job;
use crate::store::{
    Database, Effect, JobOutcome, Keep, Kept, KeptRow, OpenMode, ReadTx, Received, SentRow, StoreError,
};
use std::path::PathBuf;
use std::time::Duration;

/// Rows that are read at a time.
const PAGE: u32 = 500;

/// How often each job is run in a pass.
const JOB_RUNS: u32 = 3;

/// More runs of a job that says that there is more to do.
const JOB_RUNS_MAX: u32 = 10_000;

/// Between two looks whether callbacks are still on their way, and after how many looks without any progress
/// the rest is taken to wait for something that does not come while time stands.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 200;

/// What it takes to feed these.
pub(super) struct Feeding {
    config: Config,
    baseline: PathBuf,
    receiver: NullReceiver,
    callbacks: Settings,
    at_ms: i64,
    since_ms: i64,
}

impl Feeding {
    pub(super) fn new(config: &Config, bench: &Bench, span_ms: i64) -> Feeding {
        Feeding {
            baseline: bench.baseline(),
            receiver: NullReceiver::new(bench.at_ms),
            callbacks: Settings {
                attempt_timeout: config.callbacks.attempt_timeout,
                order_patience: config.callbacks.order_patience,
                in_flight_max: config.callbacks.concurrency,
            },
            at_ms: bench.at_ms,
            since_ms: bench.at_ms.saturating_sub(span_ms),
            config: config.clone(),
        }
    }

    /// From when on inputs are fed, Unix seconds.
    pub(super) fn since_secs(&self) -> u64 {
        u64::try_from(self.since_ms / 1_000).unwrap_or(0)
    }

    /// Runs the jobs, and sends what is due, so that nothing of that is left to do.
    pub(super) async fn settle(&self, bench: &Bench) -> Result<(), Stop> {
        for job in self.jobs_of(bench).await? {
            let mut runs = 0;
            while let JobOutcome::More(_) = job.once(bench.clock).await {
                runs += 1;
                if runs == JOB_RUNS_MAX {
                    break;
                }
            }
        }
        self.deliver(bench).await?;
        self.receiver.take();
        Ok(())
    }

    /// One pass of an input.
    pub(super) async fn feed(
        &self,
        input: Input,
        pass: u32,
        bench: &mut Bench,
        report: &mut Report,
    ) -> Result<Step, Stop> {
        let mut wonder = |what: String| report.wonder(pass, (input, None), what);
        let count = match input {
            Input::Idempotency => self.answers(bench, &mut wonder).await?,
            Input::Inbox => self.inbox(bench, &mut wonder).await?,
            Input::Jobs => self.jobs(bench, &mut wonder).await?,
            Input::Deliveries => self.deliveries(bench, &mut wonder).await?,
            Input::Start => self.start(bench).await?,
            // Those of the chains.
            Input::Blocks | Input::Node | Input::Mempool => 0,
        };
        Ok(Step {
            count,
            ..Step::default()
        })
    }

    fn past<T>(
        &self,
        read: impl FnMut(&ReadTx<'_>) -> Result<Vec<T>, StoreError>,
    ) -> Result<Vec<T>, DrillError> {
        let opened = Database::open(&self.baseline, OpenMode::ReadOnly);
        let rows = opened.and_then(|baseline| baseline.read(read));
        rows.map_err(|source| DrillError::Store {
            doing: "read the past inputs",
            source,
        })
    }

    /// The requests are not kept, only their fingerprints: what each of them would be answered is looked up.
    async fn answers(&self, bench: &Bench, wonder: &mut (dyn FnMut(String) + Send)) -> Result<u64, Stop> {
        let (mut after, mut count) = (None, 0);
        loop {
            let spans = (self.since_ms, self.at_ms);
            let rows = self.past(|tx| tx.answers_since(spans, after.as_ref(), PAGE))?;
            let Some(last) = rows.last() else {
                return Ok(count);
            };
            after = Some(last.scope.clone());
            count += rows.len() as u64;
            for row in rows {
                if let Some(what) = self.answer(bench, row).await? {
                    wonder(what);
                }
            }
        }
    }

    async fn answer(&self, bench: &Bench, row: KeptRow) -> Result<Option<String>, Stop> {
        let (at_ms, asked) = (self.at_ms, row.clone());
        let mut other = row.fingerprint;
        other[0] ^= 1;
        let found = bench.read("look up an answer", move |tx| {
            let same = tx.kept_answer(&asked.scope, &asked.fingerprint, at_ms)?;
            Ok((same, tx.kept_answer(&asked.scope, &other, at_ms)?))
        });
        let name = format!(
            "{} {} under key {}",
            row.scope.method, row.scope.path, row.scope.key
        );
        match found.await? {
            (Kept::Answer(answer), Kept::OtherRequest) if answer == row.answer => {}
            (Kept::Answer(answer), _) if answer != row.answer => {
                return Ok(Some(format!("{name} is answered otherwise than the first time")));
            }
            (Kept::Nothing | Kept::OtherRequest | Kept::Answer(_), _) => {
                return Ok(Some(format!("{name} is not remembered, and would act again")));
            }
        }
        let (scope, print, answer) = (row.scope, row.fingerprint, row.answer);
        let again = bench
            .store
            .write(move |tx| tx.keep_answer(&scope, &print, &answer, &Keep::until(i64::MAX)));
        match again.await {
            Err(StoreError::Constraint(_)) => Ok(None),
            Ok(()) => Ok(Some(format!("{name} could be kept a second time"))),
            Err(source) => Err(DrillError::Store {
                doing: "keep an answer again",
                source,
            }
            .into()),
        }
    }

    async fn inbox(&self, bench: &Bench, wonder: &mut (dyn FnMut(String) + Send)) -> Result<u64, Stop> {
        let (mut after, mut count) = (0, 0);
        loop {
            let rows = self.past(|tx| tx.inbox_since(self.since_ms, after, PAGE))?;
            let Some(last) = rows.last() else {
                break;
            };
            after = last.position;
            count += rows.len() as u64;
            let strange = bench.write("feed webhooks", move |tx| {
                let mut strange = Vec::new();
                for row in &rows {
                    let received = tx.receive_inbox(&row.new)?;
                    if received != Received::Again(row.id.clone()) {
                        strange.push(format!("{} is {received:?}, and was there already", row.id));
                    } else if !row.is_waiting
                        && tx.settle_inbox(&row.id, &Effect::Nothing("drill".to_owned()))?
                    {
                        strange.push(format!("{} could be done a second time", row.id));
                    }
                }
                Ok(strange)
            });
            strange.await?.into_iter().for_each(&mut *wonder);
        }
        // What should not have been new acts now.
        for job in self.jobs_of(bench).await? {
            if job.name() == crate::store::INBOX_JOB {
                job.once(bench.clock).await;
            }
        }
        Ok(count)
    }

    async fn jobs_of(&self, bench: &Bench) -> Result<Vec<Job>, DrillError> {
        let inbox = bench.read("read the copy", |tx| tx.inbox_sources()).await?;
        Ok(daemon::drill_jobs(
            &self.config,
            &inbox,
            &bench.store,
            bench.clock,
        ))
    }

    async fn jobs(&self, bench: &Bench, wonder: &mut (dyn FnMut(String) + Send)) -> Result<u64, Stop> {
        let jobs = self.jobs_of(bench).await?;
        for job in &jobs {
            for _ in 0..JOB_RUNS {
                if let JobOutcome::Failed(why) = job.once(bench.clock).await {
                    wonder(format!("{} failed: {why}", job.name()));
                }
            }
        }
        Ok(jobs.len() as u64)
    }

    async fn deliveries(&self, bench: &Bench, wonder: &mut (dyn FnMut(String) + Send)) -> Result<u64, Stop> {
        let (mut after, mut count) = (0, 0);
        loop {
            let rows = self.past(|tx| tx.sent_since(self.since_ms, after, PAGE))?;
            let Some(last) = rows.last() else {
                return Ok(count);
            };
            after = last.position;
            count += rows.len() as u64;
            let again = rows.clone();
            let asked = bench.write("send callbacks again", move |tx| {
                let mut refused = Vec::new();
                for SentRow { event, endpoint, .. } in &again {
                    match tx.retry_delivery(event, endpoint, "drill") {
                        Ok(_) => {}
                        Err(StoreError::Refused(why)) => refused.push(why),
                        Err(error) => return Err(error),
                    }
                }
                Ok(refused)
            });
            asked.await?.into_iter().for_each(&mut *wonder);
            self.deliver(bench).await?;
            let got = self.receiver.take();
            got.faults.into_iter().for_each(&mut *wonder);
            for row in rows {
                let key = (row.endpoint, row.event);
                let (endpoint, event) = &key;
                match got.bodies.get(&key) {
                    Some(digest) if *digest == row.digest => {}
                    Some(_) => wonder(format!(
                        "{event} to {endpoint} has other bytes than the first time"
                    )),
                    None => wonder(format!("{event} to {endpoint} was not sent again")),
                }
            }
        }
    }

    /// Sends what is due, to nobody.
    async fn deliver(&self, bench: &Bench) -> Result<(), DrillError> {
        let (store, clock, at_ms) = (bench.store.clone(), bench.clock, self.at_ms);
        let failed = |source| DrillError::Store {
            doing: "send callbacks to nobody",
            source,
        };
        let opened = Deliverer::open(store.clone(), clock, self.receiver.clone(), self.callbacks);
        let deliverer = opened.await.map_err(failed)?;
        let done = async move {
            let (mut last, mut looks) = (u64::MAX, 0);
            loop {
                // What cannot be read ends the deliverer too.
                let due = store.read(move |tx| tx.deliveries_due(at_ms)).await.unwrap_or(0);
                looks = if due < last { 0 } else { looks + 1 };
                last = due.min(last);
                if due == 0 || looks == LOOKS_MAX {
                    return;
                }
                clock.sleep(LOOK_EVERY).await;
            }
        };
        deliverer.run(done).await.map_err(failed)
    }

    async fn start(&self, bench: &mut Bench) -> Result<u64, Stop> {
        bench.restart().await?;
        bench.write("start on the copy", |tx| tx.note_restores()).await?;
        self.deliver(bench).await?;
        Ok(1)
    }
}
