//! What the store did, counted for the metrics and for whoever asks whether it still does anything.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the spans that commits are sorted into, in microseconds; longer ones have no bound.
pub const COMMIT_MICROS: [u64; 12] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 10_000_000,
];

/// Upper bounds of the sizes that batches are sorted into.
pub const BATCH_WRITES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// A reading of the counters. All but `queued` and `is_high_water_failing` only rise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Batches that took at most as long as each of [`COMMIT_MICROS`], and longer than the one before.
    pub commit_spans: [u64; COMMIT_MICROS.len()],
    /// Batches of at most as many writes as each of [`BATCH_WRITES`], and of more than the one before.
    pub batch_sizes: [u64; BATCH_WRITES.len()],
    /// Writes that wait or run right now.
    pub queued: u64,
    /// Rises with each thing that the writer does. While it stands still and writes are queued, the writer
    /// hangs.
    pub beats: u64,
    /// Whether the high-water file could not be written: a restored backup would not be noticed.
    pub is_high_water_failing: bool,
}

/// The counters, shared by the handle and the writer thread.
#[derive(Debug, Default)]
pub(super) struct Tally {
    batches: AtomicU64,
    writes: AtomicU64,
    batch_writes_max: AtomicU64,
    write_micros: AtomicU64,
    write_micros_max: AtomicU64,
    commit_spans: [AtomicU64; COMMIT_MICROS.len()],
    batch_sizes: [AtomicU64; BATCH_WRITES.len()],
    queued: AtomicU64,
    beats: AtomicU64,
    is_high_water_failing: AtomicBool,
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

    /// The writer is at something new.
    pub(super) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_high_water(&self, is_failing: bool) {
        self.is_high_water_failing.store(is_failing, Ordering::Relaxed);
    }

    pub(super) fn committed(&self, writes: usize, took: Duration) {
        let writes = u64::try_from(writes).unwrap_or(u64::MAX);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(writes, Ordering::Relaxed);
        self.batch_writes_max.fetch_max(writes, Ordering::Relaxed);
        self.write_micros.fetch_add(micros, Ordering::Relaxed);
        self.write_micros_max.fetch_max(micros, Ordering::Relaxed);
        sort_into(&self.commit_spans, &COMMIT_MICROS, micros);
        sort_into(&self.batch_sizes, &BATCH_WRITES, writes);
        self.beat();
    }

    pub(super) fn read(&self) -> StoreCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreCounters {
            batches: read(&self.batches),
            writes: read(&self.writes),
            batch_writes_max: read(&self.batch_writes_max),
            write_micros: read(&self.write_micros),
            write_micros_max: read(&self.write_micros_max),
            commit_spans: self.commit_spans.each_ref().map(read),
            batch_sizes: self.batch_sizes.each_ref().map(read),
            queued: read(&self.queued),
            beats: read(&self.beats),
            is_high_water_failing: self.is_high_water_failing.load(Ordering::Relaxed),
        }
    }
}

fn sort_into(places: &[AtomicU64], bounds: &[u64], value: u64) {
    let place = bounds.partition_point(|bound| *bound < value);
    if let Some(place) = places.get(place) {
        place.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_sorted_by_time_and_size() {
        let tally = Tally::default();
        for (writes, micros) in [(1, 0), (1, 1_000), (2, 1_001), (64, 10_000_000), (65, 10_000_001)] {
            tally.committed(writes, Duration::from_micros(micros));
        }
        let counters = tally.read();
        assert_eq!(counters.commit_spans, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(counters.batch_sizes, [2, 1, 0, 0, 0, 0, 1]);
        assert_eq!((counters.batches, counters.writes, counters.beats), (5, 133, 5));
    }
}
