//! The threaded shell: who shares a commit, who is answered when, how it ends.

use std::sync::mpsc;

use super::{Scratch, note, notes};
use crate::clock::Clock;
use crate::store::{Database, Fault, OpenMode, ReadTx, Store, StoreError, WriteTx};

/// Holds the writer back until it is told to go on.
fn gate(store: &Store) -> (mpsc::Sender<()>, tokio::task::JoinHandle<Result<(), StoreError>>) {
    let (open, opened) = mpsc::channel();
    let store = store.clone();
    let wait = move |_: &mut WriteTx<'_>| opened.recv().map_err(|_| StoreError::Closed);
    let held = tokio::spawn(async move { store.write_alone(wait).await });
    (open, held)
}

/// Lets every task run until all of them wait.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_refused_member_of_a_batch_is_answered_alone() {
    let (scratch, database) = Scratch::new();
    let store = Store::threaded(database, Clock::real()).unwrap();
    let (open, held) = gate(&store);
    settle().await;
    let write = |id, refuse| {
        let store = store.clone();
        tokio::spawn(async move {
            let outcome = store.write(move |tx| {
                note(tx, id)?;
                if refuse {
                    return Err(StoreError::Refused("no".into()));
                }
                Ok(id)
            });
            outcome.await
        })
    };
    let (first, again, refused, last) = (write(1, false), write(1, false), write(2, true), write(3, false));
    settle().await;
    open.send(()).unwrap();
    held.await.unwrap().unwrap();
    assert_eq!(first.await.unwrap().unwrap(), 1);
    assert!(matches!(again.await.unwrap(), Err(StoreError::Constraint(_))));
    assert!(matches!(refused.await.unwrap(), Err(StoreError::Refused(_))));
    assert_eq!(last.await.unwrap().unwrap(), 3);
    assert_eq!(store.counters().batch_writes_max, 4);
    assert_eq!(scratch.notes(), [1, 3]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn nobody_is_answered_before_the_commit() {
    let (scratch, database) = Scratch::new();
    let store = Store::threaded(database, Clock::real()).unwrap();
    let (open, held) = gate(&store);
    settle().await;
    let quick = tokio::spawn({
        let store = store.clone();
        async move { store.write(|tx| note(tx, 1)).await }
    });
    settle().await;
    // The second member of the same batch says that the first has run, then holds the commit back.
    let (running, runs) = tokio::sync::oneshot::channel();
    let (go_on, waits) = mpsc::channel::<()>();
    let mut running = Some(running);
    let slow = tokio::spawn({
        let store = store.clone();
        async move {
            let work = move |tx: &mut WriteTx<'_>| {
                running.take().map(|running| running.send(()));
                waits.recv().unwrap();
                note(tx, 2)
            };
            store.write(work).await
        }
    });
    settle().await;
    open.send(()).unwrap();
    held.await.unwrap().unwrap();
    runs.await.unwrap();
    settle().await;
    assert!(!quick.is_finished());
    assert_eq!(scratch.notes(), Vec::<i64>::new());
    go_on.send(()).unwrap();
    quick.await.unwrap().unwrap();
    slow.await.unwrap().unwrap();
    assert_eq!(scratch.notes(), [1, 2]);
}

#[tokio::test]
async fn a_closed_store_has_written_all_and_left_one_file() {
    let (scratch, database) = Scratch::new();
    let store = Store::threaded(database, Clock::real()).unwrap();
    let writes: Vec<_> = (0..100)
        .map(|id| {
            let store = store.clone();
            tokio::spawn(async move { store.write(move |tx| note(tx, id)).await })
        })
        .collect();
    settle().await;
    store.close().await.unwrap();
    let mut written = Vec::new();
    for (id, write) in (0..).zip(writes) {
        match write.await.unwrap() {
            Ok(()) => written.push(id),
            Err(error) => assert!(matches!(error, StoreError::Closed), "{error:?}"),
        }
    }
    assert_eq!(scratch.notes(), written);
    let late = store.write(|tx| note(tx, 1000)).await;
    assert!(matches!(late, Err(StoreError::Closed)));
    assert!(matches!(store.read(|_| Ok(())).await, Err(StoreError::Closed)));
    store.close().await.unwrap();
    assert!(!scratch.path.with_extension("db-wal").exists());
    drop(scratch.open());
}

#[tokio::test]
async fn a_read_sees_what_was_answered_and_goes_on_during_a_write() {
    let (_scratch, database) = Scratch::new();
    let store = Store::threaded(database, Clock::real()).unwrap();
    store.write(|tx| note(tx, 1)).await.unwrap();
    let (open, held) = gate(&store);
    settle().await;
    let count = |tx: &ReadTx<'_>| {
        Ok(tx
            .conn()
            .query_row("SELECT count(*) FROM notes", [], |row| row.get::<_, i64>(0))?)
    };
    assert_eq!(store.read(count).await.unwrap(), 1);
    open.send(()).unwrap();
    held.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_daemon_that_was_overtaken_writes_nothing_more() {
    let (scratch, database) = Scratch::new();
    let store = Store::threaded(database, Clock::real()).unwrap();
    let other = rusqlite::Connection::open(&scratch.path).unwrap();
    other.execute("UPDATE meta SET epoch = epoch + 1", []).unwrap();
    for id in [1, 2] {
        let outcome = store.write(move |tx| note(tx, id)).await;
        assert!(
            matches!(outcome, Err(StoreError::StaleEpoch { .. })),
            "{outcome:?}"
        );
    }
    assert!(matches!(store.failed().await, Fault::StaleEpoch { .. }));
    assert_eq!(scratch.notes(), Vec::<i64>::new());
}

#[tokio::test]
async fn what_is_read_apart_has_a_thread_and_a_connection_of_its_own() {
    let (_scratch, database) = Scratch::new();
    let store = Store::threaded(database, Clock::real()).unwrap();
    store.write(|tx| note(tx, 1)).await.unwrap();
    // Neither a write nor a read that takes long is in its way, and it in nobody's.
    let (open, held) = gate(&store);
    let (go_on, waits) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel();
    let apart = tokio::spawn({
        let store = store.clone();
        async move {
            let work = move |database: &Database| {
                let before = notes(database);
                begun
                    .send(std::thread::current().name().unwrap().to_owned())
                    .unwrap();
                waits.recv().unwrap();
                let after = notes(database);
                let write = database.read(|tx| Ok(tx.conn().execute("DELETE FROM notes", [])?));
                assert!(write.is_err(), "{write:?}");
                Ok((before, after))
            };
            store.apart(work).await
        }
    });
    settle().await;
    assert_eq!(begins.recv().unwrap(), "store-audit");
    // One at a time, also when nobody waits for it any more.
    let second = store.apart(|_| Ok(())).await;
    assert!(matches!(second, Err(StoreError::Refused(_))), "{second:?}");
    store.read(|_| Ok(())).await.unwrap();
    open.send(()).unwrap();
    held.await.unwrap().unwrap();
    store.write(|tx| note(tx, 2)).await.unwrap();
    go_on.send(()).unwrap();
    assert_eq!(apart.await.unwrap().unwrap(), (vec![1], vec![1, 2]));
    store.close().await.unwrap();
    let late = store.apart(|_| Ok(())).await;
    assert!(matches!(late, Err(StoreError::Closed)), "{late:?}");
}

#[tokio::test]
async fn the_inline_shell_has_the_same_verbs() {
    let (scratch, database) = Scratch::new();
    let store = Store::inline(database, Clock::simulated(77));
    assert_eq!(
        store.write(|tx| note(tx, 1).map(|()| tx.now_ms())).await.unwrap(),
        77
    );
    let twice = store.write_alone(|tx| note(tx, 1)).await;
    assert!(matches!(twice, Err(StoreError::Constraint(_))));
    store
        .read(|tx| Ok(tx.conn().execute_batch("SELECT 1")?))
        .await
        .unwrap();
    let apart = store.apart(|database| Ok(notes(database))).await;
    assert_eq!(apart.unwrap(), [1]);
    store.close().await.unwrap();
    assert!(matches!(store.write(|_| Ok(())).await, Err(StoreError::Closed)));
    assert_eq!(notes(&scratch.open()), [1]);
}

#[tokio::test]
async fn after_a_damaged_page_the_store_is_used_no_more_and_says_so() {
    let (scratch, mut database) = Scratch::new();
    let fill = "INSERT INTO notes (body) VALUES (hex(zeroblob(20000)))";
    database.write(1, |tx| Ok(tx.conn().execute(fill, [])?)).unwrap();
    database
        .conn
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let store = Store::threaded(database, Clock::real()).unwrap();
    assert_eq!(store.fault(), None);
    // Everything behind the first page, under the reader, which has not read it yet.
    let mut bytes = std::fs::read(&scratch.path).unwrap();
    bytes[4096..].fill(0xee);
    std::fs::write(&scratch.path, bytes).unwrap();
    let all = |tx: &ReadTx<'_>| {
        Ok(tx
            .conn()
            .query_row("SELECT sum(length(body)) FROM notes", [], |row| {
                row.get::<_, i64>(0)
            })?)
    };
    assert!(matches!(store.read(all).await, Err(StoreError::Io(_))));
    assert!(matches!(store.failed().await, Fault::Io(_)));
    // The writer is another connection to the same broken file.
    assert!(matches!(
        store.write(|tx| note(tx, 7)).await,
        Err(StoreError::Io(_))
    ));
    assert!(matches!(
        store.write_alone(|_| Ok(())).await,
        Err(StoreError::Io(_))
    ));
    let before = std::fs::read(&scratch.path).unwrap();
    assert!(matches!(store.close().await, Err(StoreError::Io(_))));
    assert_eq!(std::fs::read(&scratch.path).unwrap(), before);
    assert!(matches!(
        Database::open(&scratch.path, OpenMode::Daemon),
        Err(StoreError::Damaged { .. })
    ));
}
