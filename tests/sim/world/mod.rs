//! The world of a seed: chains, their nodes, and what these told.

use crate::script::{Act, Kind, Terms};
use creditd::clock::Clock;
use creditd::rules::BlockHash;

/// What nodes answered about their mempool.
#[derive(Clone, Debug)]
pub struct ListTold {
    pub at_ms: i64,
    pub txids: Vec<[u8; 32]>,
    pub is_complete: bool,
}

/// What nodes answered about their tip.
#[derive(Clone, Debug)]
pub struct TipTold {
    pub at_ms: i64,
    pub tip: BlockHash,
    pub safe: Option<u64>,
    pub finalized: Option<u64>,
}

/// What an act touched, for a line of the report.
pub type Touched = String;

#[derive(Debug, Default)]
pub struct World(());

impl World {
    pub fn new(_kind: Kind, _terms: &Terms) -> World {
        World(())
    }

    /// Each life of the daemon has a clock of its own; nodes show its time.
    pub fn set_clock(&mut self, _clock: Clock) {}

    /// Does an act of miners, payers and nodes; `dice` is its number for what it leaves open. `None`: it
    /// meets nothing.
    pub fn act(&mut self, _act: &Act, _dice: u64) -> Option<Touched> {
        None
    }

    /// Faults end, the nodes agree on the best tip, and one more block is mined.
    pub fn heal(&mut self) {}

    pub fn lists_told(&self, _chain: u8) -> &[ListTold] {
        &[]
    }

    pub fn tips_told(&self, _chain: u8) -> &[TipTold] {
        &[]
    }
}
