//! An audit leaves the tables to whoever asks meanwhile.

use crate::sample::Sample;
use creditd::audit;
use creditd::clock::Clock;
use creditd::config::Config;
use creditd::store::Store;
use rusqlite::Connection;
use std::path::Path;
use std::time::Duration;

/// One check goes through so many rows in one look.
const HEADERS: u32 = 300_000;

/// A long chain, each block upon the one before.
fn grow(path: &Path) {
    let grow = format!(
        "WITH RECURSIVE n (height) AS (SELECT 1000 UNION ALL SELECT height + 1 FROM n LIMIT {HEADERS}) \
         INSERT INTO headers (chain, height, hash, parent, time_secs, bits, work, chainwork) \
         SELECT 1, height, unhex(printf('%064x', height)), unhex(printf('%064x', height - 1)), 0, 0, \
         zeroblob(32), zeroblob(32) FROM n"
    );
    Connection::open(path).unwrap().execute_batch(&grow).unwrap();
}

#[test]
fn audit_leaves_the_reader_free() {
    let sample = Sample::filled();
    let path = sample.files.database();
    grow(&path);
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
        let began = clock.instant();
        let running = tokio::spawn(async move { job.once(clock).await });
        let (mut count, mut slowest) = (0_u32, Duration::ZERO);
        while !running.is_finished() {
            let asked = clock.instant();
            store.read(|tx| tx.chains()).await.unwrap();
            store.write(|tx| Ok(tx.now_ms())).await.unwrap();
            slowest = slowest.max(clock.instant() - asked);
            count += 1;
        }
        let took = clock.instant() - began;
        let said = format!(
            "{count} answers, the slowest in {slowest:?}, the audit in {took:?}: {:?}",
            running.await.unwrap()
        );
        assert!(count > 50 && slowest * 3 < took, "{said}");
        // It was long enough to be in the way.
        assert!(took > Duration::from_millis(200), "{said}");
    });
}
