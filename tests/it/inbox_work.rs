//! The inbox while it is worked off: crashes, the job's own time, hints.

use crate::inbox::{AT_MS, Bench, config, paid, signed};
use crate::rig::{Rig, folder, in_simulation, stop_after};
use crate::tables::Tables;
use creditd::clock::Clock;
use creditd::config::Config;
use creditd::inbox::{Inbox, work};
use creditd::rules::ids;
use creditd::store::{Database, OpenMode, Store};
use std::sync::Arc;
use std::time::Duration;

/// The daemon dies at the N-th await of taking in and working off, for every N, and all is sent again.
#[test]
fn a_crash_at_any_await_loses_and_doubles_nothing() {
    let clock = Clock::real();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let story = async |config: &Arc<Config>, store: &Store| {
        let inbox = Inbox::of(config).unwrap();
        for _ in 0..3 {
            for source in ["p1", "p2"] {
                let body = paid("evt_1", "pay_1", 500);
                let headers = signed(source, &body, clock.now_ms() / 1_000);
                let by = (store, clock);
                inbox
                    .accept(by, source, &headers, body.into_bytes())
                    .await
                    .unwrap();
            }
            work::run(config.clone(), store.clone(), clock).await;
        }
    };
    // Whether an await gives way is up to the store's thread: one run that was lucky ends nothing.
    let (mut interrupted, mut whole) = (0, 0);
    for times in 1.. {
        let folder = folder();
        let path = folder.path().join("ledger.db");
        let config = config(folder.path());
        let is_crashed = runtime.block_on(async {
            let (store, _) = Store::open(&path, clock).await.unwrap();
            let ended = stop_after(story(&config, &store), times).await;
            store.close().await.unwrap();
            let (store, _) = Store::open(&path, clock).await.unwrap();
            story(&config, &store).await;
            store.close().await.unwrap();
            ended.is_none()
        });
        let tables = Tables::open(&path);
        let count = |table: &str| tables.count(&format!("SELECT count(*) FROM {table}"));
        assert_eq!(
            (count("inbox WHERE state = 'done'"), count("credits")),
            (2, 1),
            "await {times}"
        );
        assert_eq!((count("events"), count("journal")), (2, 1), "await {times}");
        let reader = Database::open(&path, OpenMode::ReadOnly).unwrap();
        assert!(reader.read(|tx| tx.violations(144)).unwrap().is_empty());
        match is_crashed {
            true => (interrupted, whole) = (interrupted + 1, 0),
            false => whole += 1,
        }
        if whole == 8 {
            // Four events are taken in and one batch is settled, each by a commit that is synced to the
            // disk; whether a read gives way too is up to the reader's thread.
            assert!(interrupted >= 5, "it was hardly ever interrupted: {interrupted}");
            return;
        }
    }
}

#[test]
fn the_job_works_the_inbox_off_soon_and_forgets_bodies_late() {
    in_simulation(async {
        let mut bench = Bench::new();
        let clock = bench.clock;
        let story = async {
            clock.sleep(Duration::from_secs(10)).await;
            bench.post("p1", &paid("evt_1", "pay_1", 500)).await.unwrap();
            let began = clock.instant();
            while bench.count("credits") == 0 {
                let waited = clock.instant() - began;
                assert!(waited < Duration::from_secs(5), "it waits for its ordinary turn");
                clock.sleep(Duration::from_millis(100)).await;
            }
        };
        bench.jobs().run(story).await.unwrap();
        for (days, kept) in [(29, 1), (31, 0)] {
            bench.store.close().await.unwrap();
            bench.clock = Clock::simulated(AT_MS + days * 86_400_000);
            let database = Database::open(&bench.path, OpenMode::Daemon).unwrap();
            bench.store = Store::inline(database, bench.clock);
            let clock = bench.clock;
            let soon = clock.sleep(Duration::from_secs(5));
            bench.jobs().run(soon).await.unwrap();
            assert_eq!(
                bench.count("inbox WHERE body IS NOT NULL"),
                kept,
                "{days} days later"
            );
        }
        bench.check();
    });
}

/// What a source sent that the config does not name any more would wait, and its bodies be kept, for ever:
/// also where no source is left.
#[test]
fn events_of_a_source_that_was_taken_out_are_parked_and_forgotten_like_others() {
    in_simulation(async {
        let mut bench = Bench::new();
        let named = bench.config.clone();
        bench.post("p1", &paid("evt_1", "pay_1", 500)).await.unwrap();
        let clock = bench.clock;
        bench
            .jobs()
            .run(clock.sleep(Duration::from_secs(10)))
            .await
            .unwrap();
        bench.post("p1", &paid("evt_2", "pay_2", 700)).await.unwrap();
        let mut without = Config::clone(&named);
        without.inbox.clear();
        bench.config = Arc::new(without);
        bench
            .jobs()
            .run(clock.sleep(Duration::from_secs(10)))
            .await
            .unwrap();
        let states =
            |bench: &Bench| ["done", "parked"].map(|s| bench.count(&format!("inbox WHERE state = '{s}'")));
        assert_eq!(states(&bench), [1, 1]);
        assert_eq!(bench.count("inbox WHERE note LIKE '%bring it back%'"), 1);
        bench.store.close().await.unwrap();
        bench.clock = Clock::simulated(AT_MS + 31 * 86_400_000);
        let clock = bench.clock;
        let database = Database::open(&bench.path, OpenMode::Daemon).unwrap();
        bench.store = Store::inline(database, clock);
        bench
            .jobs()
            .run(clock.sleep(Duration::from_secs(10)))
            .await
            .unwrap();
        let kept = bench.count("inbox WHERE body IS NOT NULL AND event_id = 'evt_2'");
        assert_eq!((kept, bench.count("inbox WHERE body IS NOT NULL")), (1, 1));
        // Nothing is lost by it.
        bench.config = named;
        let id = ids::inbox_id("p1", "evt_2");
        let retried = bench.store.write(move |tx| tx.retry_inbox(&id, "it is back"));
        retried.await.unwrap();
        bench
            .jobs()
            .run(clock.sleep(Duration::from_secs(10)))
            .await
            .unwrap();
        assert_eq!((states(&bench), bench.count("credits")), ([2, 0], 2));
        bench.check();
    });
}

/// A hint makes the follower look and list at once, however long its pauses are.
#[test]
fn a_hint_ends_the_followers_pause() {
    in_simulation(async {
        let mut rig = Rig::with(|settings| {
            settings.poll = Duration::from_secs(600);
            settings.mempool = Duration::from_secs(600);
        })
        .await;
        let to = rig.watch(1).await;
        rig.extend(1);
        rig.settle().await;
        let tx = rig.pay(&to, 5);
        rig.send(&tx);
        let began = rig.clock.instant();
        let other = creditd::rules::ChainId::from_stored("bip122:other".to_owned());
        rig.store().hint(&rig.settings.chain.id);
        rig.store().hint(&other);
        rig.rounds(2).await;
        assert_eq!(rig.tables.state(&tx.outpoint(0)), "seen");
        let waited = rig.clock.instant() - began;
        assert!(
            waited >= Duration::from_secs(500),
            "the second pause is as long as ever: {waited:?}"
        );
        assert!(waited < Duration::from_secs(700), "{waited:?}");
    });
}
