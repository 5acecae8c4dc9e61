//! What the store did, counted for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A reading of the counters. All but `queued` only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// Batches of writes that were run, each one commit if all went well.
    pub batches: u64,
    /// Writes in them, refused ones included.
    pub writes: u64,
    /// The most writes that shared a batch.
    pub batch_writes_max: u64,
    /// Time spent in batches, commits included.
    pub write_micros: u64,
    /// The longest batch.
    pub write_micros_max: u64,
    /// Writes that wait or run right now.
    pub queued: u64,
}

/// The counters, shared by the handle and the writer thread.
#[derive(Debug, Default)]
pub(super) struct Tally {
    batches: AtomicU64,
    writes: AtomicU64,
    batch_writes_max: AtomicU64,
    write_micros: AtomicU64,
    write_micros_max: AtomicU64,
    queued: AtomicU64,
}

/// One write in the queue, for as long as somebody waits for it.
#[derive(Debug)]
pub(super) struct Place<'a>(&'a AtomicU64);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tally {
    pub(super) fn enter_queue(&self) -> Place<'_> {
        self.queued.fetch_add(1, Ordering::Relaxed);
        Place(&self.queued)
    }

    pub(super) fn committed(&self, writes: usize, took: Duration) {
        let writes = u64::try_from(writes).unwrap_or(u64::MAX);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(writes, Ordering::Relaxed);
        self.batch_writes_max.fetch_max(writes, Ordering::Relaxed);
        self.write_micros.fetch_add(micros, Ordering::Relaxed);
        self.write_micros_max.fetch_max(micros, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> StoreCounters {
        StoreCounters {
            batches: self.batches.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            batch_writes_max: self.batch_writes_max.load(Ordering::Relaxed),
            write_micros: self.write_micros.load(Ordering::Relaxed),
            write_micros_max: self.write_micros_max.load(Ordering::Relaxed),
            queued: self.queued.load(Ordering::Relaxed),
        }
    }
}
