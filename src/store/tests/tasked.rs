//! The tasked shell: the loops of the threaded one on a runtime of one thread, where whoever queues in the
//! same turn shares a commit.

use std::pin::pin;
use std::task::Poll;

use tokio::task::JoinSet;

use super::{Scratch, note, notes};
use crate::clock::Clock;
use crate::store::{Database, ReadTx, Store, StoreError};

/// Both loops run until the set is dropped.
fn start(database: Database) -> (Store, JoinSet<()>) {
    let (store, writer, reader) = Store::tasked(database, Clock::simulated(77)).unwrap();
    let mut loops = JoinSet::new();
    loops.spawn(writer);
    loops.spawn(reader);
    (store, loops)
}

/// Writes a note, and refuses it afterwards if so told.
async fn noted(store: Store, id: i64, is_refused: bool) -> Result<i64, StoreError> {
    let work = move |tx: &mut crate::store::WriteTx<'_>| {
        note(tx, id)?;
        match is_refused {
            true => Err(StoreError::Refused("no".into())),
            false => Ok(tx.now_ms()),
        }
    };
    store.write(work).await
}

#[tokio::test(start_paused = true)]
async fn three_writes_of_one_turn_share_a_commit() {
    let (scratch, database) = Scratch::new();
    let (store, _loops) = start(database);
    let writes = [1, 2, 3].map(|id| tokio::spawn(noted(store.clone(), id, false)));
    for write in writes {
        assert_eq!(write.await.unwrap().unwrap(), 77);
    }
    let counters = store.counters();
    assert_eq!((counters.batches, counters.writes), (1, 3));
    // One that comes later has a commit of its own, and so has a large one in between.
    let alone = store.clone();
    let alone = tokio::spawn(async move { alone.write_alone(|tx| note(tx, 5)).await });
    let small = tokio::spawn(noted(store.clone(), 6, false));
    noted(store.clone(), 4, false).await.unwrap();
    alone.await.unwrap().unwrap();
    small.await.unwrap().unwrap();
    let counters = store.counters();
    assert_eq!((counters.batches, counters.batch_writes_max), (4, 3));
    assert_eq!(scratch.notes(), [1, 2, 3, 4, 5, 6]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_takes_nobody_else_of_its_commit_along() {
    let (scratch, database) = Scratch::new();
    let (store, _loops) = start(database);
    let writes = [(1, false), (2, true), (3, false), (1, false)]
        .map(|(id, is_refused)| tokio::spawn(noted(store.clone(), id, is_refused)));
    let [first, refused, third, again] = writes;
    first.await.unwrap().unwrap();
    assert!(matches!(refused.await.unwrap(), Err(StoreError::Refused(_))));
    third.await.unwrap().unwrap();
    assert!(matches!(again.await.unwrap(), Err(StoreError::Constraint(_))));
    assert_eq!(store.counters().batches, 1);
    assert_eq!(scratch.notes(), [1, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_does_not_take_its_write_back() {
    let (_scratch, database) = Scratch::new();
    let (store, _loops) = start(database);
    {
        let mut write = pin!(noted(store.clone(), 1, false));
        // Once: it is queued, and nobody has run it.
        std::future::poll_fn(|cx| {
            assert!(write.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }
    assert_eq!(store.counters().writes, 0);
    let read = |tx: &ReadTx<'_>| {
        Ok(tx
            .conn()
            .query_row("SELECT count(*) FROM notes", [], |row| row.get::<_, i64>(0))?)
    };
    // One that is queued behind it is answered after it.
    noted(store.clone(), 2, false).await.unwrap();
    assert_eq!(store.read(read).await.unwrap(), 2);
    assert_eq!(store.apart(|database| Ok(notes(database))).await.unwrap(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_killed_store_answers_nobody_and_its_file_can_be_opened_again() {
    let (scratch, database) = Scratch::new();
    let (store, loops) = start(database);
    noted(store.clone(), 1, false).await.unwrap();
    let waiting = tokio::spawn(noted(store.clone(), 2, false));
    drop(loops);
    assert!(matches!(waiting.await.unwrap(), Err(StoreError::Closed)));
    assert!(matches!(
        noted(store.clone(), 3, false).await,
        Err(StoreError::Closed)
    ));
    assert!(matches!(store.read(|_| Ok(())).await, Err(StoreError::Closed)));
    let (again, _loops) = start(scratch.open());
    noted(again.clone(), 4, false).await.unwrap();
    again.close().await.unwrap();
    assert_eq!(scratch.notes(), [1, 4]);
    assert!(!scratch.path.with_extension("db-wal").exists());
}
