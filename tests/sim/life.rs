//! One life of the daemon: its parts as tasks of one runtime with paused time. It ends by death, by itself,
//! or by a stop.

use crate::death::Alive;
use crate::disk::Folder;
use crate::receivers::Receivers;
use crate::script::{CrashAt, Terms};
use crate::world::World;
use creditd::store::{Store, StoreError};
use std::time::Duration;

pub struct Life {
    pub store: Store,
}

/// How a span of a life ended.
#[derive(Debug)]
pub enum Ended {
    Span,
    Dead(CrashAt),
    Part { name: &'static str, why: String },
}

#[derive(Debug)]
pub enum StartFailed {
    Store(StoreError),
    Other(String),
    Dead(CrashAt),
}

impl Life {
    /// Starts the daemon at a wall time.
    pub fn start(
        _folder: &Folder,
        _world: &mut World,
        _terms: &Terms,
        _at_ms: i64,
        _alive: Alive,
        _receivers: &Receivers,
    ) -> Result<Life, StartFailed> {
        unreachable!("not built yet")
    }

    pub fn run_for(&mut self, _span: Duration) -> Ended {
        unreachable!("not built yet")
    }

    pub fn now_ms(&self) -> i64 {
        unreachable!("not built yet")
    }

    /// Everything is dropped as it stands.
    pub fn kill(self) {}

    /// A clean stop.
    pub fn stop(self) -> Result<(), String> {
        unreachable!("not built yet")
    }
}
