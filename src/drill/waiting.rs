//! How far a feeding is, and for how long nothing of it has gone on.

use crate::clock::Clock;
use std::time::Duration;
use tokio::time::Instant;

/// Is given lines about how far it is.
pub(super) type Told<'a> = &'a mut (dyn FnMut(String) + Send);

/// How long nothing goes on, because a node is busy or limits us, before it is taken to be the trouble.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Between two rounds while nothing goes on.
pub(super) const STALLED_PAUSE: Duration = Duration::from_millis(100);

/// Between two looks whether the node still has the tip.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why nothing goes on.
pub(super) struct Trouble {
    pub(super) why: String,
    /// It does not end by itself.
    pub(super) is_halt: bool,
}

impl Trouble {
    /// Nothing is known but this.
    pub(super) fn stands(why: &str) -> Trouble {
        Trouble {
            why: why.to_owned(),
            is_halt: false,
        }
    }
}

/// Since when nothing has gone on.
pub(super) struct Waiting {
    clock: Clock,
    since: Instant,
    looks: u32,
}

impl Waiting {
    pub(super) fn new(clock: Clock) -> Waiting {
        Waiting {
            since: clock.instant(),
            looks: 0,
            clock,
        }
    }

    /// For how long.
    pub(super) fn stood(&self) -> Duration {
        self.clock.instant() - self.since
    }

    /// Counts the looks.
    pub(super) fn is_time_to_look(&mut self, stood: Duration) -> bool {
        let is_time = stood >= LOOK_EVERY * (self.looks + 1);
        self.looks += u32::from(is_time);
        is_time
    }

    pub(super) fn is_first_look(&self) -> bool {
        self.looks == 1
    }
}

/// Blocks between two lines about how far it is.
const TOLD_BLOCKS: u64 = 1_000;

/// Up to where it was told.
#[derive(Default)]
pub(super) struct Far {
    told: Option<u64>,
}

impl Far {
    /// The height, where it is far enough above the one that was told last. The first one is where it begins.
    pub(super) fn is_news(&mut self, height: u64) -> Option<u64> {
        let told = *self.told.get_or_insert(height);
        if height < told + TOLD_BLOCKS {
            return None;
        }
        self.told = Some(height);
        Some(height)
    }
}
