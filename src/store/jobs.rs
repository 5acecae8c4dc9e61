//! Background jobs: who may run one now, and what came of the last run. A job is leased, run and settled by
//! the number of its lease, so that of two workers one runs it, and of two runs the later one is told of.

use super::chains::ChainKey;
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::retry::job_pause_ms;
use rusqlite::{OptionalExtension, Row, params};

/// The longest text about a run that is kept.
const TEXT_CHARS_MAX: usize = 500;

/// The right to run a job once, until the lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobLease {
    /// The job.
    pub name: String,
    number: i64,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// Well; what it did, in words, empty for nothing.
    Done(String),
    /// Well, and there is more to do at once.
    More(String),
    /// Not at all or in part, and why. It is tried again, sooner than otherwise.
    Failed(String),
}

/// Work that has a lease or a place in line of its own, and leaves only its last run in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Callbacks.
    Delivery,
    /// Lists of a mempool.
    Eviction,
    /// Invoices whose time is over.
    Expiry,
    /// Old blocks, read again.
    Rescan,
    /// Balances of watched addresses.
    Sweep,
}

impl Work {
    /// All of it.
    pub const ALL: [Work; 5] = [
        Work::Delivery,
        Work::Eviction,
        Work::Expiry,
        Work::Rescan,
        Work::Sweep,
    ];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Work::Delivery => "delivery",
            Work::Eviction => "eviction",
            Work::Expiry => "expiry",
            Work::Rescan => "rescan",
            Work::Sweep => "sweep",
        }
    }
}

/// A run that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRun {
    /// When it began, Unix milliseconds.
    pub started_at: i64,
    /// How long it took.
    pub took_ms: i64,
    /// How it ended.
    pub outcome: JobOutcome,
}

/// A job as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// The job.
    pub name: String,
    /// The chain that it works for, by its alias; empty = for none.
    pub chain: String,
    /// Milliseconds from run to run; `None` = it runs as its work comes.
    pub every_ms: Option<i64>,
    /// The next run.
    pub next_at: Option<i64>,
    /// It is being run, at most until then.
    pub lease_until: Option<i64>,
    /// The beginning of the run that ended last.
    pub started_at: Option<i64>,
    /// Its end.
    pub ended_at: Option<i64>,
    /// How long it took.
    pub took_ms: Option<i64>,
    /// Why it failed; empty = it went well.
    pub error: String,
    /// The end of the run that went well last.
    pub done_at: Option<i64>,
    /// What that one did.
    pub done: String,
    /// Runs so far.
    pub runs: u64,
    /// Failed ones in a row, up to now.
    pub failures: u64,
}

/// A lease counts while its daemon is the newest one and its time is not over. The clock may have been set
/// back since: no lease is longer than `?3`, and no pause than the time between two runs.
const LEASE: &str = "UPDATE jobs SET lease = lease + 1, lease_epoch = m.epoch, lease_until = ?2 + ?3, \
     is_hurried = 0 FROM meta m WHERE m.id = 1 AND name = ?1 AND chain = 0 \
     AND (next_at <= ?2 OR next_at > ?2 + every_ms) \
     AND (lease_epoch IS NULL OR lease_epoch <> m.epoch OR lease_until <= ?2 OR lease_until > ?2 + ?3) \
     RETURNING lease";

impl ReadTx<'_> {
    /// Every job that ever ran or is to run.
    pub fn jobs(&self) -> Result<Vec<JobRow>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT j.name, ifnull(c.alias, ''), j.every_ms, j.next_at, \
             CASE WHEN j.lease_epoch = m.epoch THEN j.lease_until END, j.started_at, j.ended_at, j.took_ms, \
             j.error, j.done_at, j.done, j.runs, j.failures \
             FROM jobs j JOIN meta m ON m.id = 1 LEFT JOIN chains c ON c.id = j.chain ORDER BY j.name, 2",
        )?;
        let rows = statement.query_map([], job_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The jobs that are due now, by name.
    pub fn due_jobs(&self, now_ms: i64) -> Result<Vec<String>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT name FROM jobs WHERE chain = 0 AND (next_at <= ?1 OR next_at > ?1 + every_ms) \
             ORDER BY name",
        )?;
        let rows = statement.query_map([now_ms], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

fn job_row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    Ok(JobRow {
        name: row.get(0)?,
        chain: row.get(1)?,
        every_ms: row.get(2)?,
        next_at: row.get(3)?,
        lease_until: row.get(4)?,
        started_at: row.get(5)?,
        ended_at: row.get(6)?,
        took_ms: row.get(7)?,
        error: row.get(8)?,
        done_at: row.get(9)?,
        done: row.get(10)?,
        runs: u64::try_from(row.get::<_, i64>(11)?).unwrap_or(0),
        failures: u64::try_from(row.get::<_, i64>(12)?).unwrap_or(0),
    })
}

impl WriteTx<'_> {
    /// Makes these the jobs that run by the clock, each with the milliseconds between two runs. A new one is
    /// due at once; one that is not among them any more is forgotten.
    pub fn set_jobs(&mut self, jobs: &[(&str, i64)]) -> Result<(), StoreError> {
        let now = self.now_ms();
        let mut gone: Vec<String> = Vec::new();
        for known in self.jobs()?.into_iter().filter(|job| job.every_ms.is_some()) {
            if jobs.iter().all(|(name, _)| *name != known.name) {
                gone.push(known.name);
            }
        }
        for name in gone {
            let forget = "DELETE FROM jobs WHERE name = ?1 AND chain = 0";
            self.conn().prepare_cached(forget)?.execute([name])?;
        }
        for (name, every_ms) in jobs {
            self.conn()
                .prepare_cached(
                    "INSERT INTO jobs (name, chain, every_ms, next_at) VALUES (?1, 0, ?2, ?3) \
                     ON CONFLICT (name, chain) DO UPDATE SET every_ms = excluded.every_ms, \
                     next_at = min(ifnull(next_at, ?3), ?3 + excluded.every_ms)",
                )?
                .execute(params![name, every_ms, now])?;
        }
        Ok(())
    }

    /// Leases a job that is due and that nobody runs; `None` where it is not, or somebody does.
    pub fn lease_job(&mut self, name: &str, lease_ms: i64) -> Result<Option<JobLease>, StoreError> {
        let now = self.now_ms();
        let leased = self
            .conn()
            .prepare_cached(LEASE)?
            .query_row(params![name, now, lease_ms], |row| row.get(0))
            .optional()?;
        let name = name.to_owned();
        Ok(leased.map(|number| JobLease { name, number }))
    }

    /// Notes how a leased run ended and when the next one is due. False, and nothing is changed, where
    /// somebody else leased the job meanwhile.
    pub fn settle_job(&mut self, lease: &JobLease, run: &JobRun) -> Result<bool, StoreError> {
        let row = self.conn().prepare_cached(
            "SELECT every_ms, failures, is_hurried FROM jobs WHERE name = ?1 AND chain = 0 AND lease = ?2 \
             AND lease_epoch IS NOT NULL",
        );
        let found: Option<(Option<i64>, u32, bool)> = row?
            .query_row(params![lease.name, lease.number], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        let Some((Some(every_ms), failures, is_hurried)) = found else {
            return Ok(false);
        };
        let now = self.now_ms();
        let next_at = match &run.outcome {
            JobOutcome::Done(_) if is_hurried => now,
            // From its beginning on, so that a long run does not make the job rarer.
            JobOutcome::Done(_) => (run.started_at + every_ms).clamp(now, now + every_ms),
            JobOutcome::More(_) => now,
            JobOutcome::Failed(_) => now + job_pause_ms(failures.saturating_add(1), every_ms),
        };
        self.note_run(&lease.name, 0, Some((run.started_at, run.took_ms)), &run.outcome)?;
        self.conn()
            .prepare_cached(
                "UPDATE jobs SET lease_epoch = NULL, lease_until = NULL, next_at = ?2 \
                 WHERE name = ?1 AND chain = 0",
            )?
            .execute(params![lease.name, next_at])?;
        Ok(true)
    }

    /// Makes a job due now, in the transaction of what there is for it to do; one that is being run may have
    /// looked already, and runs once more after that. A job that fails keeps its pause, and one that is not
    /// known is not missed.
    pub fn hurry_job(&mut self, name: &str) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.conn()
            .prepare_cached(
                "UPDATE jobs SET is_hurried = lease_epoch IS NOT NULL, \
                 next_at = iif(failures = 0, min(next_at, ?2), next_at) \
                 WHERE name = ?1 AND chain = 0 AND ((failures = 0 AND next_at > ?2) \
                 OR (lease_epoch IS NOT NULL AND is_hurried = 0))",
            )?
            .execute(params![name, now])?;
        Ok(())
    }

    /// Leaves the last run of work that has a lease or a place in line of its own, in that work's own
    /// transaction; `None` where nobody measured how long it took.
    pub fn note_work(
        &mut self,
        work: Work,
        chain: Option<ChainKey>,
        took_ms: Option<i64>,
        outcome: &JobOutcome,
    ) -> Result<(), StoreError> {
        let span = took_ms.map(|took_ms| (self.now_ms().saturating_sub(took_ms), took_ms));
        self.note_run(work.name(), chain.map_or(0, |chain| chain.0), span, outcome)
    }

    fn note_run(
        &mut self,
        name: &str,
        chain: i64,
        span: Option<(i64, i64)>,
        outcome: &JobOutcome,
    ) -> Result<(), StoreError> {
        let kept = |text: &str| -> String { text.chars().take(TEXT_CHARS_MAX).collect() };
        let (done, error) = match outcome {
            JobOutcome::Done(text) | JobOutcome::More(text) => (Some(kept(text)), String::new()),
            JobOutcome::Failed(why) => (None, kept(why)),
        };
        let now = self.now_ms();
        self.conn()
            .prepare_cached(
                "INSERT INTO jobs (name, chain, started_at, ended_at, took_ms, error, done_at, done, runs, \
                 failures) VALUES (?1, ?2, ?3, ?4, ?5, ?6, iif(?7 IS NULL, NULL, ?4), ifnull(?7, ''), 1, \
                 ?7 IS NULL) ON CONFLICT (name, chain) DO UPDATE SET started_at = excluded.started_at, \
                 ended_at = excluded.ended_at, took_ms = excluded.took_ms, error = excluded.error, \
                 done_at = ifnull(excluded.done_at, done_at), done = ifnull(?7, done), runs = runs + 1, \
                 failures = iif(?7 IS NULL, failures + 1, 0)",
            )?
            .execute(params![
                name,
                chain,
                span.map(|(started_at, _)| started_at),
                now,
                span.map(|(_, took_ms)| took_ms),
                error,
                done
            ])?;
        Ok(())
    }
}
