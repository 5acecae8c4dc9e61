//! The loops of the writer and the reader, on threads or as tasks, and the threads that end by themselves.

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

/// Runs `work` on a thread of its own, with a connection of its own.
pub(super) async fn apart<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Database) -> Result<T, StoreError> + Send + 'static,
    busy: BusyGuard,
) -> Result<T, StoreError> {
    let (answer, done) = oneshot::channel();
    let owned = path.to_owned();
    spawn("store-audit", path, move || {
        let reader = Database::open(&owned, OpenMode::ReadOnly);
        let outcome = reader.and_then(|database| work(&database));
        drop(busy);
        // Nobody may be waiting any more.
        let _ = answer.send(outcome);
    })?;
    done.await.unwrap_or(Err(StoreError::Closed))
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

/// The writer: works off its queue until it is told to end, or nobody can ask it any more.
pub(super) struct WriteLoop {
    database: Database,
    clock: Clock,
    tally: Arc<Tally>,
    queue: mpsc::Receiver<WriteItem>,
    closing: Option<oneshot::Sender<Result<(), StoreError>>>,
}

impl WriteLoop {
    pub(super) fn new(
        database: Database,
        clock: Clock,
        tally: Arc<Tally>,
        queue: mpsc::Receiver<WriteItem>,
    ) -> WriteLoop {
        WriteLoop {
            database,
            clock,
            tally,
            queue,
            closing: None,
        }
    }

    /// Runs it on a thread of its own.
    pub(super) fn start(mut self) -> Result<(), StoreError> {
        let path = self.database.path().to_owned();
        spawn("store-writer", &path, move || {
            let mut next = self.queue.blocking_recv();
            while let Some(item) = next.take() {
                next = self.turn(item).or_else(|| self.queue.blocking_recv());
            }
            self.end();
        })
    }

    /// Runs it as a task.
    pub(super) async fn run(mut self) {
        let mut next = self.queue.recv().await;
        while let Some(item) = next.take() {
            next = self.turn(item);
            if next.is_none() {
                next = self.queue.recv().await;
            }
        }
        self.end();
    }

    /// Does an item and whatever may share its commit. Returns the first item that may not.
    fn turn(&mut self, item: WriteItem) -> Option<WriteItem> {
        match item {
            WriteItem::Small(first) => {
                let mut batch = vec![first];
                let next = fill(&mut batch, &mut self.queue);
                self.commit(batch);
                next
            }
            WriteItem::Alone(work) => {
                self.commit(vec![work]);
                None
            }
            WriteItem::Close(answer) => {
                self.queue.close();
                self.closing = Some(answer);
                None
            }
        }
    }

    fn commit(&mut self, mut batch: Vec<Box<dyn Work>>) {
        let began = self.clock.instant();
        let now_ms = self.clock.now_ms();
        let outcomes = self
            .database
            .write_batch(now_ms, &mut batch, || self.tally.beat());
        assert!(outcomes.len() == batch.len(), "every member is answered");
        self.tally.committed(batch.len(), began.elapsed());
        self.tally.note_high_water(self.database.is_high_water_failing());
        for (work, outcome) in batch.into_iter().zip(outcomes) {
            work.answer(outcome);
        }
    }

    fn end(self) {
        let outcome = self.database.close();
        self.closing.map(|answer| answer.send(outcome));
    }
}

/// The reader, which ends likewise.
pub(super) struct ReadLoop {
    database: Database,
    queue: mpsc::Receiver<ReadItem>,
    stopped: Option<oneshot::Sender<()>>,
}

impl ReadLoop {
    pub(super) fn new(database: Database, queue: mpsc::Receiver<ReadItem>) -> ReadLoop {
        ReadLoop {
            database,
            queue,
            stopped: None,
        }
    }

    /// Runs it on a thread of its own.
    pub(super) fn start(mut self) -> Result<(), StoreError> {
        let path = self.database.path().to_owned();
        spawn("store-reader", &path, move || {
            while let Some(item) = self.queue.blocking_recv() {
                self.turn(item);
            }
            self.end();
        })
    }

    /// Runs it as a task.
    pub(super) async fn run(mut self) {
        while let Some(item) = self.queue.recv().await {
            self.turn(item);
        }
        self.end();
    }

    fn turn(&mut self, item: ReadItem) {
        match item {
            ReadItem::Read(read) => read(&self.database),
            ReadItem::Stop(answer) => {
                self.queue.close();
                self.stopped = Some(answer);
            }
        }
    }

    fn end(self) {
        drop(self.database);
        self.stopped.map(|answer| answer.send(()));
    }
}

fn spawn(name: &str, path: &Path, body: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    match thread.spawn(body) {
        Ok(_) => Ok(()),
        Err(error) => Err(StoreError::file("start a thread for", path, error)),
    }
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
