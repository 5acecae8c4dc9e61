//! An audit leaves the tables to whoever asks meanwhile.

use crate::common::wait::{PATIENCE, wait_until};
use crate::sample::Sample;
use creditd::audit;
use creditd::clock::Clock;
use creditd::config::Config;
use creditd::store::{JobOutcome, Store};
use rusqlite::Connection;
use std::path::Path;
use std::sync::mpsc;
use tokio::sync::oneshot;

/// What the audit keeps once it is through with the books.
fn has_ledger(path: &Path) -> bool {
    let database = Connection::open(path).unwrap();
    let count = database.query_row("SELECT count(*) FROM audit_ledger", [], |row| {
        row.get::<_, i64>(0)
    });
    count.unwrap() == 1
}

/// Whatever the audit asks of the books, it asks beside the reader of all others: with that one held up from
/// the first look to the last it comes to their end, and no look of its own holds up anybody.
#[test]
fn audit_leaves_the_reader_free() {
    let sample = Sample::filled();
    let path = sample.files.database();
    let config = Config::load(Some(&sample.files.config_file())).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let clock = Clock::real();
        let (store, _) = Store::open(&path, clock).await.unwrap();
        let job = audit::job(&config, &store, clock).unwrap();
        // The reader is held up.
        let (entered, is_in) = oneshot::channel();
        let (leave, left) = mpsc::channel::<()>();
        let mut entered = Some(entered);
        let reader = store.clone();
        let held = tokio::spawn(async move {
            let look = reader.read(move |_| {
                if let Some(entered) = entered.take() {
                    entered.send(()).unwrap();
                    left.recv().unwrap();
                }
                Ok(())
            });
            look.await
        });
        is_in.await.unwrap();
        let running = tokio::spawn(async move { (job.once(clock).await, job) });
        tokio::task::block_in_place(|| {
            wait_until("the books are through", PATIENCE, || {
                has_ledger(&path).then_some(())
            });
        });
        store.write(|tx| Ok(tx.now_ms())).await.unwrap();
        assert!(!held.is_finished(), "the reader was held up all the time");
        leave.send(()).unwrap();
        held.await.unwrap().unwrap();
        let (outcome, job) = running.await.unwrap();
        assert!(matches!(outcome, JobOutcome::Done(_)), "{outcome:?}");
        // A look of the audit takes as long as it takes: who asks meanwhile is answered.
        let (entered, is_in) = oneshot::channel();
        let (leave, left) = mpsc::channel::<()>();
        let apart = store.clone();
        let looking = tokio::spawn(async move {
            let look = apart.apart(move |database| {
                database.read(|tx| tx.chains())?;
                entered.send(()).unwrap();
                left.recv().unwrap();
                Ok(())
            });
            look.await
        });
        is_in.await.unwrap();
        for _ in 0..3 {
            store.read(|tx| tx.chains()).await.unwrap();
            store.write(|tx| Ok(tx.now_ms())).await.unwrap();
        }
        // And the audit has no other way to look.
        let refused = job.once(clock).await;
        assert!(
            matches!(&refused, JobOutcome::Failed(why) if why.contains("long look")),
            "{refused:?}"
        );
        leave.send(()).unwrap();
        looking.await.unwrap().unwrap();
    });
}
