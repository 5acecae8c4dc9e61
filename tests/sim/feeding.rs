//! One finished world shown to a new daemon in many ways: all databases must agree.

use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    AsItHappened,
    TipFirst,
    EveryKth(u8),
    EachTwice,
    FullReplay,
    CondensedDisconnects,
    EveryTip,
    Balancer,
    CrashEachRound,
    ListsLate,
    LoserFirst,
}

/// The lines of the agreed projection after that.
pub fn feed(_world: &World, _way: Way, _dice: u64) -> Vec<String> {
    Vec::new()
}
