//! Jobs by the clock: leased, run, settled; by two workers, across crashes, under a clock that is set back.

use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;
use crate::rig::{folder, in_simulation};
use creditd::clock::Clock;
use creditd::jobs::{Job, Jobs};
use creditd::store::{
    BackupPlan, Database, JobOutcome, JobRow, JobRun, OpenMode, Store, StoreError, Work, WriteTx,
};
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(10);
const LEASE_MS: i64 = 20_000;

struct Bench {
    path: PathBuf,
    clock: Clock,
    store: Store,
    count: Arc<AtomicUsize>,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let folder = folder();
        let path = folder.path().join("ledger.db");
        let clock = Clock::simulated(1_700_000_000_000);
        Bench {
            store: Store::inline(Database::open(&path, OpenMode::Daemon).unwrap(), clock),
            path,
            clock,
            count: Arc::default(),
            _folder: folder,
        }
    }

    /// Another daemon takes over, as after a kill.
    async fn open_again(&mut self) {
        self.store.close().await.unwrap();
        self.store = Store::inline(Database::open(&self.path, OpenMode::Daemon).unwrap(), self.clock);
    }

    /// A job that counts its runs, takes a second, and ends so.
    fn job(&self, ends: impl Fn(usize) -> JobOutcome + Clone + Send + Sync + 'static) -> Job {
        let (count, clock) = (self.count.clone(), self.clock);
        Job::new("count", EVERY, LONGEST, move || {
            let (count, ends) = (count.clone(), ends.clone());
            async move {
                let run = count.fetch_add(1, Ordering::Relaxed) + 1;
                clock.sleep(Duration::from_secs(1)).await;
                ends(run)
            }
        })
    }

    fn runner(&self, job: Job) -> tokio::task::JoinHandle<Result<(), StoreError>> {
        tokio::spawn(Jobs::new(self.store.clone(), self.clock, vec![job]).run(pending()))
    }

    fn runs(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    async fn row(&self) -> JobRow {
        let mut jobs = self.store.read(|tx| tx.jobs()).await.unwrap();
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        jobs.remove(0)
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> T {
        self.store.write(work).await.unwrap()
    }
}

fn done(_: usize) -> JobOutcome {
    JobOutcome::Done("counted".to_owned())
}

#[test]
fn two_workers_run_a_job_once_at_a_time() {
    in_simulation(async {
        let bench = Bench::new();
        let both = [bench.runner(bench.job(done)), bench.runner(bench.job(done))];
        bench.clock.sleep(EVERY * 5 + Duration::from_secs(5)).await;
        assert_eq!(bench.runs(), 6, "at the start, and once a minute");
        let row = bench.row().await;
        assert_eq!((row.runs, row.failures, row.error.as_str()), (6, 0, ""));
        assert_eq!((row.took_ms, row.done.as_str()), (Some(1_000), "counted"));
        assert_eq!(row.lease_until, None);
        both.iter().for_each(|runner| runner.abort());
    });
}

#[test]
fn a_failed_run_is_repeated_sooner_and_sooner_no_more() {
    in_simulation(async {
        let bench = Bench::new();
        let runner = bench.runner(bench.job(|run| match run {
            ..4 => JobOutcome::Failed(format!("no luck {run}")),
            4 => JobOutcome::More("half".to_owned()),
            _ => JobOutcome::Done("all".to_owned()),
        }));
        bench.clock.sleep(Duration::from_millis(4_500)).await;
        let row = bench.row().await;
        assert_eq!(
            (row.failures, row.error.as_str(), row.done_at),
            (2, "no luck 2", None)
        );
        bench.clock.sleep(Duration::from_secs(10)).await;
        let row = bench.row().await;
        assert_eq!((row.runs, row.failures, row.error.as_str()), (5, 0, ""));
        assert_eq!((row.done.as_str(), bench.runs()), ("all", 5));
        bench.clock.sleep(EVERY - Duration::from_secs(10)).await;
        assert_eq!(bench.runs(), 5, "after success it has its time again");
        runner.abort();
    });
}

#[test]
fn a_run_that_never_ends_is_given_up_before_its_lease_is_over() {
    in_simulation(async {
        let bench = Bench::new();
        let count = bench.count.clone();
        let job = Job::new("count", EVERY, LONGEST, move || {
            count.fetch_add(1, Ordering::Relaxed);
            pending()
        });
        let both = [bench.runner(job), bench.runner(bench.job(done))];
        bench.clock.sleep(LONGEST - Duration::from_secs(1)).await;
        assert_eq!(bench.runs(), 1, "the other worker waits");
        bench.clock.sleep(Duration::from_secs(3)).await;
        let row = bench.row().await;
        assert!(row.error.starts_with("took longer than 10 s"), "{row:?}");
        both.iter().for_each(|runner| runner.abort());
    });
}

#[test]
fn a_run_that_was_overtaken_settles_nothing() {
    in_simulation(async {
        let mut bench = Bench::new();
        bench.write(|tx| tx.set_jobs(&[("count", 60_000)])).await;
        let first = bench.write(|tx| tx.lease_job("count", LEASE_MS)).await.unwrap();
        assert_eq!(bench.write(|tx| tx.lease_job("count", LEASE_MS)).await, None);
        bench.clock.sleep(Duration::from_millis(20_000)).await;
        let second = bench.write(|tx| tx.lease_job("count", LEASE_MS)).await.unwrap();
        let run = JobRun {
            started_at: bench.clock.now_ms(),
            took_ms: 5,
            outcome: JobOutcome::Done("by the first".to_owned()),
        };
        let late = run.clone();
        assert!(!bench.write(move |tx| tx.settle_job(&first, &late)).await);
        assert_eq!(bench.row().await.runs, 0);
        // A kill: nobody has it, however long its lease was.
        bench.open_again().await;
        let third = bench.write(|tx| tx.lease_job("count", LEASE_MS)).await.unwrap();
        let late = run.clone();
        assert!(!bench.write(move |tx| tx.settle_job(&second, &late)).await);
        let (lease, kept) = (third.clone(), run.clone());
        assert!(bench.write(move |tx| tx.settle_job(&lease, &kept)).await);
        assert!(!bench.write(move |tx| tx.settle_job(&third, &run)).await, "once");
        assert_eq!(bench.row().await.runs, 1);
    });
}

/// Dropped at each await in turn, then a new daemon: the job's own write is there once per run that was
/// settled or begun, and the last one goes well.
#[test]
fn a_crash_at_any_await_leaves_a_job_that_runs_again() {
    in_simulation(async {
        let mut polls = 0;
        loop {
            let mut bench = Bench::new();
            let clock = bench.clock;
            let runner = Jobs::new(bench.store.clone(), clock, vec![bench.job(done)]);
            let mut runner = Box::pin(runner.run(async move { clock.sleep(Duration::from_secs(3)).await }));
            let mut left = polls;
            let ended = std::future::poll_fn(|context| match (left, runner.as_mut().poll(context)) {
                (_, Poll::Ready(ended)) => Poll::Ready(Some(ended)),
                (0, Poll::Pending) => Poll::Ready(None),
                (_, Poll::Pending) => {
                    left -= 1;
                    Poll::Pending
                }
            });
            let is_over = ended.await.is_some_and(|ended| ended.is_ok());
            drop(runner);
            bench.open_again().await;
            let before = bench.runs();
            let again = bench.runner(bench.job(done));
            bench.clock.sleep(EVERY * 2).await;
            again.abort();
            let row = bench.row().await;
            assert!(bench.runs() > before && row.failures == 0, "{polls}: {row:?}");
            assert_eq!(row.done, "counted", "{polls}");
            if is_over {
                assert!(polls >= 3, "{polls}");
                break;
            }
            polls += 1;
        }
    });
}

#[test]
fn a_clock_that_is_set_back_stops_no_job() {
    in_simulation(async {
        let bench = Bench::new();
        let runner = bench.runner(bench.job(done));
        bench.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(bench.runs(), 1);
        bench.clock.set_by(-86_400_000);
        bench.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(bench.runs(), 2, "the next run was planned by the old time");
        bench.clock.sleep(EVERY).await;
        assert_eq!(bench.runs(), 3);
        runner.abort();
    });
}

#[test]
fn a_job_that_is_configured_no_more_is_forgotten_and_a_hurried_one_comes_at_once() {
    in_simulation(async {
        let bench = Bench::new();
        bench
            .write(|tx| {
                tx.set_jobs(&[("count", 60_000), ("old", 1_000)])?;
                tx.note_work(
                    Work::Delivery,
                    None,
                    Some(7),
                    &JobOutcome::Done("2 sent".to_owned()),
                )
            })
            .await;
        let runner = bench.runner(bench.job(done));
        bench.clock.sleep(Duration::from_secs(5)).await;
        let jobs = bench.store.read(|tx| tx.jobs()).await.unwrap();
        let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["count", "delivery"]);
        assert_eq!(
            (jobs[1].every_ms, jobs[1].took_ms, jobs[1].runs),
            (None, Some(7), 1)
        );
        bench.write(|tx| tx.hurry_job("count")).await;
        bench.clock.sleep(Duration::from_secs(2)).await;
        assert_eq!(bench.runs(), 2);
        runner.abort();
    });
}

/// What there is to do came while the job was at work on what there was before.
#[test]
fn a_job_that_is_hurried_while_it_runs_runs_again_at_once() {
    in_simulation(async {
        let bench = Bench::new();
        let runner = bench.runner(bench.job(done));
        bench.clock.sleep(Duration::from_millis(500)).await;
        assert_eq!(bench.runs(), 1, "under way");
        bench.write(|tx| tx.hurry_job("count")).await;
        bench.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(bench.runs(), 2);
        bench.clock.sleep(EVERY - Duration::from_secs(5)).await;
        assert_eq!(bench.runs(), 2, "and once");
        bench.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(bench.runs(), 3);
        runner.abort();
    });
}

/// Failures before this run keep it from nothing that came since it began.
#[test]
fn a_job_that_is_hurried_while_it_recovers_runs_again_at_once() {
    in_simulation(async {
        let bench = Bench::new();
        let runner = bench.runner(bench.job(|run| match run {
            1 => JobOutcome::Failed("no luck".to_owned()),
            _ => done(run),
        }));
        wait_for(&bench, 2).await;
        bench.write(|tx| tx.hurry_job("count")).await;
        bench.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(bench.runs(), 3);
        runner.abort();
    });
}

async fn wait_for(bench: &Bench, runs: usize) {
    while bench.runs() < runs {
        bench.clock.sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn a_scheduled_backup_is_made_once_per_span_and_only_files_of_the_schedule_are_removed() {
    in_simulation(async {
        let bench = Bench::new();
        let folder = folder();
        let plan = |at_ms| BackupPlan {
            folder: folder.path().to_owned(),
            name: BackupPlan::name(at_ms),
            keep: 2,
        };
        let names = || -> Vec<String> {
            let entries = std::fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let others = [
            "creditd-1969-01-01T00-00-00Z.db",
            "creditd-old.db",
            "creditd-old.db.partial-1",
            "creditd-2023-11-13T22-13-20Z.db.partial-x",
        ];
        let cut_off = [
            "creditd-2023-11-13T22-13-20Z.db.partial-1",
            "creditd-2023-11-13T22-13-20Z.db.partial-1-journal",
        ];
        for other in others.iter().chain(&cut_off) {
            std::fs::write(folder.path().join(other), "no backup of ours").unwrap();
        }
        for (day, expected) in [
            (0, &["creditd-2023-11-14T22-13-20Z.db"][..]),
            (0, &["creditd-2023-11-14T22-13-20Z.db"]),
            (
                1,
                &[
                    "creditd-2023-11-14T22-13-20Z.db",
                    "creditd-2023-11-15T22-13-20Z.db",
                ],
            ),
            (
                2,
                &[
                    "creditd-2023-11-15T22-13-20Z.db",
                    "creditd-2023-11-16T22-13-20Z.db",
                ],
            ),
        ] {
            let made = bench
                .store
                .back_up(plan(1_700_000_000_000 + day * 86_400_000))
                .await;
            let ours: Vec<String> = names()
                .into_iter()
                .filter(|name| !others.contains(&name.as_str()))
                .collect();
            assert_eq!(ours, expected, "{made:?}");
            for name in ours {
                Database::open(&folder.path().join(name), OpenMode::ReadOnly)
                    .unwrap()
                    .check_integrity()
                    .unwrap();
            }
        }
        assert_eq!(
            names().len(),
            6,
            "what is not ours stays, and nothing that was cut off"
        );
    });
}

/// The daemon itself: the job runs, is shown, and one that cannot run is a problem found.
#[test]
fn the_daemon_backs_up_by_the_clock_and_says_when_it_cannot() {
    let node = FakeNode::regtest(3);
    let mut daemon = Daemon::prepare(&Setup {
        ops_listen: "127.0.0.1:0".to_owned(),
        tables: "[backup]\nfolder = \"copies\"\n".to_owned(),
        ..Setup::for_stub(&node.stub)
    });
    let line = |daemon: &Daemon| {
        let output = daemon.cli(&["check", "--json"]);
        let lines: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut lines = lines["lines"].as_array().unwrap().iter();
        lines.find(|line| line["name"] == "backup").unwrap()["verdict"].clone()
    };
    assert_eq!(line(&daemon), "bad");
    daemon.start_again();
    let backup = |jobs: &serde_json::Value| {
        let jobs = jobs["jobs"].as_array()?.iter();
        jobs.clone().find(|job| job["job"] == "backup").cloned()
    };
    let failing = daemon.wait_for("it fails", &["jobs"], |jobs| {
        backup(jobs).filter(|job| job["state"] == "failing")
    });
    assert!(failing["error"].as_str().unwrap().contains("copies"), "{failing}");
    assert_eq!(daemon.cli(&["jobs"]).status.code(), Some(1));
    let copies = daemon.folder().join("copies");
    std::fs::create_dir(&copies).unwrap();
    assert_eq!(line(&daemon), "good");
    daemon.wait_for("it works", &["jobs"], |jobs| {
        backup(jobs).filter(|job| job["state"] == "ok")
    });
    assert_eq!(std::fs::read_dir(&copies).unwrap().count(), 1);
    daemon.wait_for("lists are shown", &["jobs"], |jobs| {
        let mut jobs = jobs["jobs"].as_array()?.iter();
        jobs.find(|job| job["job"] == "eviction" && job["chain"] == "btc")
            .map(drop)
    });
    let (_, page) = daemon.ops("/metrics");
    for line in [
        "creditd_job_failures{job=\"backup\",chain=\"\"} 0",
        "creditd_job_overdue_seconds{job=\"backup\",chain=\"\"} 0",
        "creditd_job_failures{job=\"eviction\",chain=\"btc\"} 0",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    daemon.stop();
}
