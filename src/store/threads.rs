//! The loops of the writer and the reader thread.

use std::path::Path;

use tokio::sync::{mpsc, oneshot};

use super::counters::Tally;
use super::transact::Work;
use super::{BackupPlan, Database, OpenMode, StoreError};
use crate::clock::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Small writes that share one commit, at most. A larger batch would save no more syncs and make all of them
/// wait.
pub(super) const BATCH_MAX: usize = 64;

/// What the writer is asked.
pub(super) enum WriteItem {
    /// May share a commit.
    Small(Box<dyn Work>),
    /// A transaction of its own.
    Alone(Box<dyn Work>),
    /// Work off the queue, close the file, and say how that went.
    Close(oneshot::Sender<Result<(), StoreError>>),
}

/// What the reader is asked.
pub(super) enum ReadItem {
    /// Reads and answers by itself.
    Read(Box<dyn FnOnce(&Database) + Send>),
    /// Work off the queue, close the connection.
    Stop(oneshot::Sender<()>),
}

/// Opens `path` as a daemon on a thread of its own: checking a large file takes minutes, and whoever waits
/// may be told to stop meanwhile.
pub(super) async fn open(path: &Path) -> Result<Database, StoreError> {
    let (answer, opened) = oneshot::channel();
    let owned = path.to_owned();
    spawn("store-opener", path, move || {
        // Nobody may be waiting any more; the file is then closed again.
        let _ = answer.send(Database::open(&owned, OpenMode::Daemon));
    })?;
    opened.await.unwrap_or(Err(StoreError::Closed))
}

/// Makes a backup on a thread of its own, with a connection of its own: the copy of a large file takes
/// minutes. `busy` is let go when it has ended, whoever waits.
pub(super) async fn back_up(path: &Path, plan: BackupPlan, busy: BusyGuard) -> Result<String, StoreError> {
    let (answer, made) = oneshot::channel();
    let owned = path.to_owned();
    spawn("store-backup", path, move || {
        let reader = Database::open(&owned, OpenMode::ReadOnly);
        let outcome = reader.and_then(|database| database.back_up(&plan));
        drop(busy);
        let _ = answer.send(outcome);
    })?;
    made.await.unwrap_or(Err(StoreError::Closed))
}

/// One at a time: held while something is under way.
#[derive(Debug)]
pub(super) struct BusyGuard(Arc<AtomicBool>);

impl BusyGuard {
    /// `None` while somebody else holds it.
    pub(super) fn take(flag: &Arc<AtomicBool>) -> Option<BusyGuard> {
        let was_busy = flag.swap(true, Ordering::AcqRel);
        (!was_busy).then(|| BusyGuard(flag.clone()))
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Starts the writer thread. It ends when it is told to, or when nobody can ask it any more.
pub(super) fn start_writer(
    database: Database,
    clock: Clock,
    tally: Arc<Tally>,
    mut queue: mpsc::Receiver<WriteItem>,
) -> Result<(), StoreError> {
    let path = database.path().to_owned();
    spawn("store-writer", &path, move || {
        write_all(database, clock, &tally, &mut queue);
    })
}

/// Starts the reader thread, which ends likewise.
pub(super) fn start_reader(
    database: Database,
    mut queue: mpsc::Receiver<ReadItem>,
) -> Result<(), StoreError> {
    let path = database.path().to_owned();
    spawn("store-reader", &path, move || {
        let mut stopped = None;
        while let Some(item) = queue.blocking_recv() {
            match item {
                ReadItem::Read(read) => read(&database),
                ReadItem::Stop(answer) => {
                    queue.close();
                    stopped = Some(answer);
                }
            }
        }
        drop(database);
        stopped.map(|answer| answer.send(()));
    })
}

fn spawn(name: &str, path: &Path, body: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    match thread.spawn(body) {
        Ok(_) => Ok(()),
        Err(error) => Err(StoreError::file("start a thread for", path, error)),
    }
}

fn write_all(mut database: Database, clock: Clock, tally: &Tally, queue: &mut mpsc::Receiver<WriteItem>) {
    let mut closing = None;
    let mut next = queue.blocking_recv();
    while let Some(item) = next.take() {
        match item {
            WriteItem::Small(first) => {
                let mut batch = vec![first];
                next = fill(&mut batch, queue);
                commit(&mut database, clock, tally, batch);
            }
            WriteItem::Alone(work) => commit(&mut database, clock, tally, vec![work]),
            WriteItem::Close(answer) => {
                queue.close();
                closing = Some(answer);
            }
        }
        next = next.or_else(|| queue.blocking_recv());
    }
    let outcome = database.close();
    closing.map(|answer| answer.send(outcome));
}

/// Takes the small writes that wait already, in their order. Returns the first item that may not join.
fn fill(batch: &mut Vec<Box<dyn Work>>, queue: &mut mpsc::Receiver<WriteItem>) -> Option<WriteItem> {
    while batch.len() < BATCH_MAX {
        match queue.try_recv() {
            Ok(WriteItem::Small(work)) => batch.push(work),
            Ok(other) => return Some(other),
            Err(_) => return None,
        }
    }
    None
}

fn commit(database: &mut Database, clock: Clock, tally: &Tally, mut batch: Vec<Box<dyn Work>>) {
    let began = clock.instant();
    let outcomes = database.write_batch(clock.now_ms(), &mut batch, || tally.beat());
    assert!(outcomes.len() == batch.len(), "every member is answered");
    tally.committed(batch.len(), began.elapsed());
    tally.note_high_water(database.is_high_water_failing());
    for (work, outcome) in batch.into_iter().zip(outcomes) {
        work.answer(outcome);
    }
}
