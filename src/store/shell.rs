//! The shells around a database, with the same verbs. The threaded one is the daemon's: a writer thread that
//! commits small writes together, and a reader thread beside it; they are the only threads of the program
//! that are not tokio's, beside those that open the file, back it up and read it for long. The tasked one
//! runs the same two loops as tasks, for the simulator. The inline one runs everything at once on the caller,
//! for tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::counters::{StoreCounters, Tally};
use super::fault::{Fault, FaultCell};
use super::threads::{self, BusyGuard, ReadItem, ReadLoop, WriteItem, WriteLoop};
use super::transact::Work;
use super::{BackupPlan, Database, Finding, OpenMode, ReadTx, StoreError, WriteTx};
use crate::clock::Clock;
use crate::rules::ChainId;

/// Writes and reads that may wait in their queues; whoever comes next waits before it is let in.
const QUEUE_MAX: usize = 256;

/// Between two tries of a patient write.
const PATIENT_PAUSE: Duration = Duration::from_secs(1);

/// The database as the rest of the daemon sees it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    shell: Shell,
    fault: FaultCell,
    tally: Arc<Tally>,
    clock: Clock,
    path: Arc<PathBuf>,
    /// Counts wake-ups for whoever works off queues in the database. They carry no facts.
    wakes: watch::Sender<u64>,
    /// Counts, by chain, how often somebody said that there is something to see.
    hints: watch::Sender<Hints>,
    /// A backup is being made.
    is_backing_up: Arc<AtomicBool>,
    /// The tables are looked through for long.
    is_looking: Arc<AtomicBool>,
}

/// How often a chain was hinted at, by its identity.
type Hints = BTreeMap<ChainId, u64>;

#[derive(Clone, Debug)]
enum Shell {
    Queued {
        writes: mpsc::Sender<WriteItem>,
        reads: mpsc::Sender<ReadItem>,
        /// The loops are tasks, and no thread is started for anything.
        is_tasked: bool,
    },
    Inline {
        // `None` once closed.
        database: Arc<Mutex<Option<Database>>>,
    },
}

impl Store {
    /// Opens the file at `path` as a daemon does, without holding up the caller's thread, and starts the
    /// store on it. Returns what was noticed while opening too.
    ///
    /// # Errors
    /// As [`Database::open`]; a second connection or a thread cannot be had.
    pub async fn open(path: &Path, clock: Clock) -> Result<(Store, Vec<Finding>), StoreError> {
        let database = threads::open(path).await?;
        let findings = database.findings().to_vec();
        Ok((Store::threaded(database, clock)?, findings))
    }

    /// Starts the writer and the reader thread on `database`, which a daemon opened.
    ///
    /// # Errors
    /// The second connection or a thread cannot be had.
    pub fn threaded(database: Database, clock: Clock) -> Result<Store, StoreError> {
        let (store, writer, reader) = Store::queued(database, clock, false)?;
        reader.start()?;
        writer.start()?;
        Ok(store)
    }

    /// The same without threads: the writer and the reader are tasks that the caller spawns. When their
    /// futures are dropped, what is queued is lost and every later call fails, as at a kill.
    ///
    /// # Errors
    /// The second connection cannot be had.
    pub fn tasked(
        database: Database,
        clock: Clock,
    ) -> Result<
        (
            Store,
            impl Future<Output = ()> + Send + 'static,
            impl Future<Output = ()> + Send + 'static,
        ),
        StoreError,
    > {
        let (store, writer, reader) = Store::queued(database, clock, true)?;
        Ok((store, writer.run(), reader.run()))
    }

    fn queued(
        database: Database,
        clock: Clock,
        is_tasked: bool,
    ) -> Result<(Store, WriteLoop, ReadLoop), StoreError> {
        let fault = database.fault.clone();
        let path = Arc::new(database.path().to_owned());
        let tally = Arc::new(Tally::default());
        let mut reader = Database::open(database.path(), OpenMode::ReadOnly)?;
        reader.fault = fault.clone();
        let (writes, write_queue) = mpsc::channel(QUEUE_MAX);
        let (reads, read_queue) = mpsc::channel(QUEUE_MAX);
        let store = Store {
            shell: Shell::Queued {
                writes,
                reads,
                is_tasked,
            },
            fault,
            tally: tally.clone(),
            clock,
            path,
            wakes: watch::Sender::new(0),
            hints: watch::Sender::new(Hints::new()),
            is_backing_up: Arc::default(),
            is_looking: Arc::default(),
        };
        let writer = WriteLoop::new(database, clock, tally, write_queue);
        Ok((store, writer, ReadLoop::new(reader, read_queue)))
    }

    /// A store whose every call runs at once on the caller: same input, same order, same result.
    pub fn inline(database: Database, clock: Clock) -> Store {
        Store {
            fault: database.fault.clone(),
            tally: Arc::new(Tally::default()),
            clock,
            path: Arc::new(database.path().to_owned()),
            wakes: watch::Sender::new(0),
            hints: watch::Sender::new(Hints::new()),
            is_backing_up: Arc::default(),
            is_looking: Arc::default(),
            shell: Shell::Inline {
                database: Arc::new(Mutex::new(Some(database))),
            },
        }
    }

    /// A small write. It shares a commit with others, and is answered after it. `work` may be run more than
    /// once; only its last run counts. Dropping the future does not take the write back.
    ///
    /// # Errors
    /// What `work` returns, or why nothing was committed. After [`StoreError::Io`] it is unknown whether it
    /// was.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.enqueue(work, WriteItem::Small).await
    }

    /// A large write, such as several blocks of a catch-up: a transaction of its own.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub async fn write_alone<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.enqueue(work, WriteItem::Alone).await
    }

    /// A small write that waits for space and for other writers as long as it takes. For the start, when
    /// there is nothing else to do yet.
    ///
    /// # Errors
    /// As [`Store::write`], but none that passes.
    pub async fn write_patiently<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError> + Send + Clone + 'static,
    ) -> Result<T, StoreError> {
        let mut is_told = false;
        loop {
            match self.write(work.clone()).await {
                Err(error) if error.is_passing() => {
                    if !is_told {
                        tracing::warn!("waiting to write to the database: {error}");
                        is_told = true;
                    }
                    self.clock.sleep(PATIENT_PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn enqueue<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&mut WriteTx<'_>) -> Result<T, StoreError> + Send + 'static,
        item: fn(Box<dyn Work>) -> WriteItem,
    ) -> Result<T, StoreError> {
        match &self.shell {
            Shell::Queued { writes, .. } => {
                let (answer, outcome) = oneshot::channel();
                let work = Box::new(Write {
                    work,
                    done: None,
                    answer,
                });
                let _place = self.tally.enter_queue();
                writes.send(item(work)).await.map_err(|_| StoreError::Closed)?;
                outcome.await.unwrap_or(Err(StoreError::Closed))
            }
            Shell::Inline { database } => with(database, |database| {
                let began = self.clock.instant();
                let outcome = database.write(self.clock.now_ms(), &mut work);
                self.tally.committed(1, began.elapsed());
                self.tally.note_high_water(database.is_high_water_failing());
                outcome
            }),
        }
    }

    /// A read of one consistent state. It sees every write that was answered before it.
    ///
    /// # Errors
    /// What `work` returns, or why the file cannot be read.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnMut(&ReadTx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.shell {
            Shell::Queued { reads, .. } => {
                let (answer, outcome) = oneshot::channel();
                let read = Box::new(|database: &Database| {
                    // Nobody may be waiting any more; there is nobody else to tell.
                    let _ = answer.send(database.read(work));
                });
                let read = ReadItem::Read(read);
                reads.send(read).await.map_err(|_| StoreError::Closed)?;
                outcome.await.unwrap_or(Err(StoreError::Closed))
            }
            Shell::Inline { database } => with(database, |database| database.read(work)),
        }
    }

    /// Reads for long, transaction by transaction, without being in the way of the reads of [`Store::read`]:
    /// `work` has a thread `store-audit` and a read-only connection of its own. Dropping the future does not
    /// stop it.
    ///
    /// # Errors
    /// What `work` returns, or why it was not run; [`StoreError::Refused`] while another look goes on: each
    /// keeps the log from being folded in.
    pub async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.fault.check()?;
        let Some(busy) = BusyGuard::take(&self.is_looking) else {
            return Err(StoreError::Refused(
                "the long look at the tables before still goes on".to_owned(),
            ));
        };
        match &self.shell {
            Shell::Queued { reads, .. } if reads.is_closed() => Err(StoreError::Closed),
            Shell::Queued { is_tasked: false, .. } => threads::apart(&self.path, work, busy).await,
            Shell::Queued { is_tasked: true, .. } => work(&self.reader()?),
            Shell::Inline { database } => with(database, |database| work(database)),
        }
    }

    fn reader(&self) -> Result<Database, StoreError> {
        Database::open(&self.path, OpenMode::ReadOnly)
    }

    /// Makes the backup of a schedule, and says what it did. Dropping the future does not stop it.
    ///
    /// # Errors
    /// As [`Database::back_up`]; [`StoreError::Refused`] while one is being made.
    pub async fn back_up(&self, plan: BackupPlan) -> Result<String, StoreError> {
        let Some(busy) = BusyGuard::take(&self.is_backing_up) else {
            return Err(StoreError::Refused(
                "the backup before is still being made".to_owned(),
            ));
        };
        match &self.shell {
            Shell::Queued { is_tasked: false, .. } => threads::back_up(&self.path, plan, busy).await,
            Shell::Queued { is_tasked: true, .. } => self.reader()?.back_up(&plan),
            Shell::Inline { database } => with(database, |database| database.back_up(&plan)),
        }
    }

    /// Wakes whoever waits on [`Store::woken`]: something was queued. The database alone says what.
    pub fn wake(&self) {
        self.wakes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Changes with each [`Store::wake`]. A wake-up can be missed (a command writes without one): look
    /// anyway.
    pub fn woken(&self) -> watch::Receiver<u64> {
        self.wakes.subscribe()
    }

    /// Says that there is something to see on a chain. Its follower looks at once; what it sees is up to the
    /// node.
    pub fn hint(&self, chain: &ChainId) {
        self.hints
            .send_modify(|hints| *hints.entry(chain.clone()).or_default() += 1);
    }

    /// Waits until a chain was hinted at more often than `seen` times, and says how often it was.
    pub async fn hinted(&self, chain: &ChainId, seen: u64) -> u64 {
        let mut hints = self.hints.subscribe();
        loop {
            let count = hints.borrow_and_update().get(chain).copied().unwrap_or(0);
            if count > seen {
                return count;
            }
            if hints.changed().await.is_err() {
                // Nobody is left who could hint.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Why this store must not be used any more, if so.
    pub fn fault(&self) -> Option<Fault> {
        self.fault.get()
    }

    /// Waits until the store must not be used any more. The daemon then exits and is started anew.
    pub async fn failed(&self) -> Fault {
        self.fault.wait().await
    }

    /// The file, whatever link it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the store did so far.
    pub fn counters(&self) -> StoreCounters {
        self.tally.read()
    }

    /// Works off what is queued, folds the log into the file and lets go of the lock. Later calls, by any
    /// clone, fail with [`StoreError::Closed`].
    ///
    /// # Errors
    /// As [`Database::close`]: the store is closed all the same.
    pub async fn close(&self) -> Result<(), StoreError> {
        match &self.shell {
            Shell::Queued { writes, reads, .. } => {
                // The reader first: the log cannot be folded in while somebody reads from it.
                let (answer, stopped) = oneshot::channel();
                if reads.send(ReadItem::Stop(answer)).await.is_ok() {
                    let _ = stopped.await;
                }
                let (answer, closed) = oneshot::channel();
                if writes.send(WriteItem::Close(answer)).await.is_err() {
                    return Ok(());
                }
                closed.await.unwrap_or(Ok(()))
            }
            Shell::Inline { database } => {
                let database = database.lock().unwrap_or_else(PoisonError::into_inner).take();
                database.map_or(Ok(()), Database::close)
            }
        }
    }
}

fn with<T>(
    database: &Mutex<Option<Database>>,
    work: impl FnOnce(&mut Database) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    // A panic ends the process, except in tests, where the transaction that it interrupted is rolled back
    // below.
    let mut slot = database.lock().unwrap_or_else(PoisonError::into_inner);
    work(slot.as_mut().ok_or(StoreError::Closed)?)
}

/// A write on its way: the work, what it returned last, and who waits.
struct Write<T, F> {
    work: F,
    done: Option<T>,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Work for Write<T, F>
where
    T: Send,
    F: FnMut(&mut WriteTx<'_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, tx: &mut WriteTx<'_>) -> Result<(), StoreError> {
        self.done = None;
        self.done = Some((self.work)(tx)?);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Write { done, answer, .. } = *self;
        // Nobody may be waiting any more; the write stands all the same.
        let _ = answer.send(outcome.and_then(|()| done.ok_or(StoreError::Closed)));
    }
}
