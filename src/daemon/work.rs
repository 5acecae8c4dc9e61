//! The jobs that run by the clock, and their runner.

use super::DaemonError;
use super::chains::new_chains;
use crate::audit::{self, evidence};
use crate::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use crate::clock::{Clock, millis};
use crate::config::{BackupConfig, BitcoinChain, Config};
use crate::egress::{Dial, HttpDial};
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

/// All that the config asks for, and what the inbox has of sources that were in it.
pub fn jobs<D: Dial>(
    config: &Config,
    pools: Option<Pools<D>>,
    inbox: &[String],
    (store, clock): (&Store, Clock),
) -> Vec<Job> {
    let backup = config.backup.as_ref();
    let mut jobs = inbox::work::jobs(config, inbox, store, clock);
    jobs.extend(pools.map(|pools| Arc::new(pools).job(store)));
    jobs.extend(backup.map(|backup| backup_job(backup, store, clock)));
    jobs.extend(audit::job(config, store, clock));
    jobs.extend(evidence::job(config, store, clock));
    jobs.push(retention_job(store));
    jobs
}

/// The jobs that a copy of the database can be given: no pool, which derives addresses, and no backup. The
/// inbox's are those of the daemon, with what the copy has of sources that were in the config.
pub fn drill_jobs(config: &Config, inbox: &[String], store: &Store, clock: Clock) -> Vec<Job> {
    let mut jobs = inbox::work::jobs(config, inbox, store, clock);
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
    // The chains wait for it; what cannot be done now is tried again by the job.
    if let Some(trouble) = pools.watch_restored(store).await? {
        tracing::error!("after the restored backup: {trouble}");
    }
    Ok((!config.addresses.is_empty()).then_some(pools))
}

/// The sources that the inbox has events of, whether the config names them or not.
pub(super) async fn inbox_sources(store: &Store) -> Result<Vec<String>, DaemonError> {
    let known = store.read(|tx| tx.inbox_sources()).await;
    known.map_err(DaemonError::Database)
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
    use crate::address::{self, Network};
    use crate::config::ChainConfig;
    use crate::daemon::follower_settings;
    use crate::follow::Follower;
    use crate::sandbox::Sandbox;
    use crate::store::{AddressKind, Database, Keep, KeptAnswer, KeyScope, NewAddress, NewInbox, OpenMode};

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
        let kept = store.write(move |tx| tx.keep_answer(&scope, &[1; 32], &answer, &Keep::until(keep_until)));
        kept.await.unwrap();
    }

    const WORLD: &str = r#"
[backup]
folder = "copies"
[audit]
age_blocks = 0
blocks_per_second = 1000
[[bitcoin]]
alias = "btc"
network = "regtest"
instance = "test"
rpc_url = "NODE"
cookie_file = ".cookie"
poll_ms = 20
[[bitcoin.policy]]
confirmations = 3
[[addresses]]
name = "list"
chain = "btc"
list_file = "addresses"
[[inbox]]
source = "p1"
verifier = "stripe"
secret_files = ["secret"]
effect = "credit.external"
merchant = "shop"
[inbox.credit]
payment = "/payment"
amount = "/amount"
amount_in = "smallest"
asset = "USD"
decimals = 2
"#;

    /// Every job of the daemon: what it has done, and once.
    const ONCE: [(&str, &str, i64); 7] = [
        ("address-pool", "SELECT count(*) FROM pool_addresses", 2),
        // The payment that is not booked.
        ("audit", "SELECT count(*) FROM audit_findings", 1),
        ("backup", "SELECT 1", 1),
        // Of what the chain paid: what a provider told stands in no block. Asked for once, whoever runs.
        (
            "evidence",
            "SELECT count(*) FROM evidence WHERE body IS NOT NULL AND tries = 1",
            1,
        ),
        ("inbox", "SELECT count(*) FROM credits WHERE inbox IS NOT NULL", 2),
        (
            "inbox_bodies",
            "SELECT count(*) FROM inbox WHERE body IS NULL AND settled_at < 2",
            1,
        ),
        ("retention", "SELECT count(*) FROM idempotency", 1),
    ];

    async fn send_in(store: &Store, number: i64) {
        let new = NewInbox {
            source: "p1".to_owned(),
            event_id: format!("evt_{number}"),
            fingerprint: [1; 32],
            body: format!(r#"{{"payment":"pay_{number}","amount":500}}"#).into_bytes(),
        };
        store.write(move |tx| tx.receive_inbox(&new)).await.unwrap();
    }

    /// A payment that is credited, and one that is not booked though its address is watched.
    async fn be_paid(config: &Config, node: &Sandbox, (store, clock): (&Store, Clock)) {
        let chain = &config.bitcoin[0];
        let source = BitcoinSource::new(BitcoinConfig::of(chain).unwrap(), HttpDial::new(), clock);
        let settings = follower_settings(ChainConfig::Bitcoin(chain));
        let mut follower = Follower::open(source, store.clone(), clock, settings)
            .await
            .unwrap();
        let id = chain.chain.clone();
        let watch = async |label: &'static str| {
            let (address, id) = (Sandbox::address(label), id.clone());
            let added = store.write(move |tx| {
                let rule = NewAddress {
                    script: address::parse(Network::Regtest, &address).unwrap(),
                    kind: AddressKind::Watch,
                    merchant: "shop",
                    internal: "ignore",
                    reference: label,
                };
                let key = tx.chain(&id)?.unwrap().key;
                tx.add_addresses(key, &[rule])
            });
            added.await.unwrap();
        };
        follower.step().await.unwrap();
        watch("order").await;
        let paid = ["order", "late"].map(|label| node.pay(&Sandbox::address(label), 10_000).unwrap());
        node.mine_with(&paid).unwrap();
        node.mine(2).unwrap();
        for steps in 0.. {
            let id = id.clone();
            let wanted = store.read(move |tx| tx.evidence_wanted(&id, (AT_MS, 144), 1));
            if !wanted.await.unwrap().of.is_empty() {
                break;
            }
            assert!(steps < 3_000, "waited in vain for the credit");
            follower.step().await.unwrap();
        }
        watch("late").await;
    }

    /// Until `is_so`.
    async fn until(what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..3_000 {
            if is_so() {
                return;
            }
            Clock::real().sleep(Duration::from_millis(10)).await;
        }
        panic!("waited in vain: {what}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn two_workers_run_every_job_three_times_and_each_acts_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::create_dir(file("copies")).unwrap();
        std::fs::write(file("secret"), "sixteen letters and more").unwrap();
        let addresses = ["bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080", "bcrt1pfeesnyr2tx"];
        std::fs::write(file("addresses"), addresses.join("\n")).unwrap();
        let (path, clock) = (file("ledger.db"), Clock::real());
        let node = Sandbox::start(folder.path(), clock).unwrap();
        let world = WORLD.replace("NODE", node.url());
        let config = Config::parse(&file("creditd.toml"), &world).unwrap();
        let (store, _) = Store::open(&path, clock).await.unwrap();
        be_paid(&config, &node, (&store, clock)).await;
        for number in [1, 2] {
            send_in(&store, number).await;
        }
        keep(&store, "over".to_owned(), 1).await;
        keep(&store, "later".to_owned(), i64::MAX).await;
        let bitcoin = config.bitcoin.iter().map(BitcoinConfig::of);
        let nodes: Vec<BitcoinConfig> = bitcoin.collect::<Result<_, _>>().unwrap();
        let mut workers = Vec::new();
        for _ in 0..2 {
            let pools = pools(&config, &nodes, (&store, clock)).await.unwrap();
            let jobs = jobs(&config, pools, &[], (&store, clock));
            let runner = Jobs::new(store.clone(), clock, jobs);
            workers.push(tokio::spawn(runner.run(std::future::pending())));
        }
        let database = rusqlite::Connection::open(&path).unwrap();
        database.busy_timeout(Duration::from_secs(30)).unwrap();
        let count = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        until("the inbox is done", || count("SELECT count(*) FROM credits") == 3).await;
        let lower = "UPDATE addresses SET from_height = 0 WHERE reference = 'late'";
        assert_eq!(database.execute(lower, []).unwrap(), 1);
        let old = "UPDATE inbox SET settled_at = 1 WHERE event_id = 'evt_1'";
        database.execute(old, []).unwrap();
        for _ in 0..3 {
            // Those that go by the clock; others are the chain's.
            let least = || count("SELECT min(runs) FROM jobs WHERE every_ms IS NOT NULL");
            let runs = least();
            let due = "UPDATE jobs SET next_at = 0 WHERE every_ms IS NOT NULL";
            database.execute(due, []).unwrap();
            until("each has run", || least() > runs).await;
        }
        let mut known = store.read(|tx| tx.jobs()).await.unwrap();
        known.retain(|job| job.every_ms.is_some());
        let names: Vec<&str> = known.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ONCE.map(|(name, ..)| name), "each job has a row here");
        assert!(known.iter().all(|job| job.error.is_empty()), "{known:?}");
        for (name, sql, expected) in ONCE {
            assert_eq!(count(sql), expected, "{name}");
        }
        let copies = std::fs::read_dir(file("copies")).unwrap().count();
        assert_eq!(copies, 1, "one span, one copy");
        assert_eq!(store.read(|tx| tx.violations(144)).await.unwrap(), []);
        workers.iter().for_each(|worker| worker.abort());
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
