//! The state table of a deposit: one function, [`step`], through which every move goes. A pair that is not
//! listed is an [`IllegalMove`], never a silent skip; a fact that changes nothing is `Ok(None)`. No state is
//! terminal.

use thiserror::Error;

/// Where a deposit stands. The `held` mark is beside it, not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// In the node's mempool, by the last applied list that had it.
    Seen,
    /// Successful in a block of the best chain, not credited.
    Confirming,
    /// Credited: the journal of its credit nets to the amount.
    Credited,
    /// Was seen, and has been absent from mempool and chain for long.
    Evicted,
    /// Another transaction spends one of its inputs, or of an unconfirmed ancestor.
    Replaced,
    /// Its block left the best chain (EVM: or the chain shows other content at its position).
    Orphaned,
    /// EVM: in a block of the best chain with a status other than 1.
    Failed,
}

impl State {
    /// Every state, in the order of the type.
    pub const ALL: [State; 7] = [
        State::Seen,
        State::Confirming,
        State::Credited,
        State::Evicted,
        State::Replaced,
        State::Orphaned,
        State::Failed,
    ];

    /// The word used in SQL, JSON, logs and documentation.
    pub fn word(self) -> &'static str {
        match self {
            State::Seen => "seen",
            State::Confirming => "confirming",
            State::Credited => "credited",
            State::Evicted => "evicted",
            State::Replaced => "replaced",
            State::Orphaned => "orphaned",
            State::Failed => "failed",
        }
    }

    /// Reads [`State::word`] back.
    pub fn from_word(word: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.word() == word)
    }

    /// True while the deposit's transaction is in a block of the best chain.
    pub fn is_in_block(self) -> bool {
        match self {
            State::Confirming | State::Credited | State::Failed => true,
            State::Seen | State::Evicted | State::Replaced | State::Orphaned => false,
        }
    }
}

/// Something that became true of a deposit's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fact {
    /// It is in an applied mempool list.
    Listed,
    /// It is, successfully, in a best-chain block: for the first time, or moved there.
    Included,
    /// The tip reached the due height with its block on our chain.
    Due,
    /// It has been absent from mempool and chain for `evict_after` of applied lists.
    Absent,
    /// Another transaction spends one of its inputs, or of an unconfirmed ancestor; it is in no block.
    Conflicted,
    /// After a reorg's connects its block is gone, the new branch does not hold it, and nothing there
    /// conflicts.
    BlockLeft,
    /// The same, and a transaction of the new branch conflicts.
    BlockLeftReplaced,
    /// EVM: it is in a best-chain block with a status other than 1.
    Reverted,
    /// EVM: the best chain shows other content at its position.
    ContentChanged,
    /// An operator or a rule set the hold mark.
    HoldSet,
    /// An operator released the hold mark.
    HoldReleased,
}

impl Fact {
    /// Every fact.
    pub const ALL: [Fact; 11] = [
        Fact::Listed,
        Fact::Included,
        Fact::Due,
        Fact::Absent,
        Fact::Conflicted,
        Fact::BlockLeft,
        Fact::BlockLeftReplaced,
        Fact::Reverted,
        Fact::ContentChanged,
        Fact::HoldSet,
        Fact::HoldReleased,
    ];
}

/// What a move announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Announce {
    /// `deposit.seen`
    Seen,
    /// `deposit.confirming`
    Confirming,
    /// `deposit.evicted`
    Evicted,
    /// `deposit.replaced`
    Replaced,
    /// `deposit.orphaned`
    Orphaned,
    /// `deposit.failed`
    Failed,
    /// `deposit.held`
    Held,
    /// `deposit.released`
    Released,
    /// `credit.created` the first time, `credit.reinstated` later; writes the journal entry of that kind.
    Credit,
    /// `credit.reversed`; writes a reversal.
    Reversal,
}

impl Announce {
    /// The event type of a deposit's own event; `None` for those of its credit.
    pub fn deposit_event(self) -> Option<&'static str> {
        match self {
            Announce::Seen => Some("deposit.seen"),
            Announce::Confirming => Some("deposit.confirming"),
            Announce::Evicted => Some("deposit.evicted"),
            Announce::Replaced => Some("deposit.replaced"),
            Announce::Orphaned => Some("deposit.orphaned"),
            Announce::Failed => Some("deposit.failed"),
            Announce::Held => Some("deposit.held"),
            Announce::Released => Some("deposit.released"),
            Announce::Credit | Announce::Reversal => None,
        }
    }
}

/// One allowed move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The state after it.
    pub to: State,
    /// The event that it writes, if any. Only `Credit` and `Reversal` touch the journal.
    pub announce: Option<Announce>,
}

/// A fact met a deposit in a state in which it cannot happen. That one deposit is held; the chain goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a deposit that is {from:?} (held: {is_held}) cannot meet {fact:?}")]
pub struct IllegalMove {
    /// Its state.
    pub from: Option<State>,
    /// Whether it was held.
    pub is_held: bool,
    /// What happened.
    pub fact: Fact,
}

/// The table. `from` is `None` for a deposit met for the first time.
///
/// # Errors
/// [`IllegalMove`] for every pair that the table does not list.
pub fn step(from: Option<State>, is_held: bool, fact: Fact) -> Result<Option<Step>, IllegalMove> {
    use State::{Confirming, Credited, Evicted, Failed, Orphaned, Replaced, Seen};
    let illegal = Err(IllegalMove { from, is_held, fact });
    let go = |to, announce| {
        Ok(Some(Step {
            to,
            announce: Some(announce),
        }))
    };
    let quietly = |to| Ok(Some(Step { to, announce: None }));
    match (fact, from) {
        (Fact::Listed, None | Some(Evicted | Replaced | Orphaned | Failed)) => go(Seen, Announce::Seen),
        (Fact::Listed, Some(Seen)) => Ok(None),
        (Fact::Listed, Some(Confirming | Credited)) => illegal,

        (Fact::Included, None | Some(Seen | Confirming | Evicted | Replaced | Orphaned | Failed)) => {
            go(Confirming, Announce::Confirming)
        }
        // The credit stands: it was justified when it was written, and its payment is still on the chain.
        (Fact::Included, Some(Credited)) => quietly(Credited),

        (Fact::Due, Some(Confirming)) if !is_held => go(Credited, Announce::Credit),
        (Fact::Due, None | Some(Seen | Confirming | Credited | Evicted | Replaced | Orphaned | Failed)) => {
            illegal
        }

        (Fact::Absent, Some(Seen)) => go(Evicted, Announce::Evicted),
        (Fact::Absent, None | Some(Confirming | Credited | Evicted | Replaced | Orphaned | Failed)) => {
            illegal
        }

        (Fact::Conflicted, Some(Seen | Evicted | Orphaned | Failed | Replaced)) => {
            go(Replaced, Announce::Replaced)
        }
        (Fact::Conflicted, None | Some(Confirming | Credited)) => illegal,

        (Fact::BlockLeft, Some(Confirming | Failed)) => go(Orphaned, Announce::Orphaned),
        (Fact::BlockLeft, Some(Credited)) => go(Orphaned, Announce::Reversal),
        (Fact::BlockLeft, None | Some(Seen | Evicted | Replaced | Orphaned)) => illegal,

        (Fact::BlockLeftReplaced, Some(Confirming)) => go(Replaced, Announce::Replaced),
        (Fact::BlockLeftReplaced, Some(Credited)) => go(Replaced, Announce::Reversal),
        (Fact::BlockLeftReplaced, None | Some(Seen | Evicted | Replaced | Orphaned | Failed)) => illegal,

        (Fact::Reverted, Some(Seen | Evicted | Orphaned | Replaced | Confirming)) => {
            go(Failed, Announce::Failed)
        }
        (Fact::Reverted, Some(Credited)) => go(Failed, Announce::Reversal),
        (Fact::Reverted, Some(Failed)) => quietly(Failed),
        (Fact::Reverted, None) => Ok(None),

        (Fact::ContentChanged, Some(Confirming | Failed | Replaced | Seen | Evicted)) => {
            go(Orphaned, Announce::Orphaned)
        }
        (Fact::ContentChanged, Some(Credited)) => go(Orphaned, Announce::Reversal),
        (Fact::ContentChanged, None | Some(Orphaned)) => illegal,

        (Fact::HoldSet, Some(Credited)) => go(Confirming, Announce::Reversal),
        (Fact::HoldSet, Some(from)) if !is_held => go(from, Announce::Held),
        (Fact::HoldSet, Some(Seen | Confirming | Evicted | Replaced | Orphaned | Failed)) => Ok(None),
        (Fact::HoldSet, None) => illegal,

        (Fact::HoldReleased, Some(from)) if is_held => go(from, Announce::Released),
        (Fact::HoldReleased, Some(_)) => Ok(None),
        (Fact::HoldReleased, None) => illegal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as drawn for people, one row per fact: what each state becomes. `.` = nothing changes, `x` =
    /// illegal. Columns: absent, seen, confirming, credited, evicted, replaced, orphaned, failed.
    const DRAWN: &[(Fact, [&str; 8])] = &[
        (
            Fact::Listed,
            ["seen", ".", "x", "x", "seen", "seen", "seen", "seen"],
        ),
        (
            Fact::Included,
            [
                "confirming",
                "confirming",
                "confirming",
                "credited",
                "confirming",
                "confirming",
                "confirming",
                "confirming",
            ],
        ),
        (Fact::Due, ["x", "x", "credited", "x", "x", "x", "x", "x"]),
        (Fact::Absent, ["x", "evicted", "x", "x", "x", "x", "x", "x"]),
        (
            Fact::Conflicted,
            [
                "x", "replaced", "x", "x", "replaced", "replaced", "replaced", "replaced",
            ],
        ),
        (
            Fact::BlockLeft,
            ["x", "x", "orphaned", "orphaned", "x", "x", "x", "orphaned"],
        ),
        (
            Fact::BlockLeftReplaced,
            ["x", "x", "replaced", "replaced", "x", "x", "x", "x"],
        ),
        (
            Fact::Reverted,
            [
                ".", "failed", "failed", "failed", "failed", "failed", "failed", "failed",
            ],
        ),
        (
            Fact::ContentChanged,
            [
                "x", "orphaned", "orphaned", "orphaned", "orphaned", "orphaned", "x", "orphaned",
            ],
        ),
        (
            Fact::HoldSet,
            [
                "x",
                "seen",
                "confirming",
                "confirming",
                "evicted",
                "replaced",
                "orphaned",
                "failed",
            ],
        ),
        (Fact::HoldReleased, ["x", ".", ".", ".", ".", ".", ".", "."]),
    ];

    const COLUMNS: [Option<State>; 8] = [
        None,
        Some(State::Seen),
        Some(State::Confirming),
        Some(State::Credited),
        Some(State::Evicted),
        Some(State::Replaced),
        Some(State::Orphaned),
        Some(State::Failed),
    ];

    #[test]
    fn every_pair_is_as_drawn() {
        assert_eq!(DRAWN.len(), Fact::ALL.len());
        for (fact, row) in DRAWN {
            for (from, expected) in COLUMNS.into_iter().zip(row) {
                let got = match step(from, false, *fact) {
                    Ok(None) => ".",
                    Ok(Some(step)) => step.to.word(),
                    Err(_) => "x",
                };
                assert_eq!(got, *expected, "{from:?} meets {fact:?}");
            }
        }
    }

    #[test]
    fn the_journal_is_touched_exactly_by_entering_and_leaving_credited() {
        for from in COLUMNS {
            for fact in Fact::ALL {
                for is_held in [false, true] {
                    let Ok(Some(step)) = step(from, is_held, fact) else {
                        continue;
                    };
                    let (was, is) = (from == Some(State::Credited), step.to == State::Credited);
                    assert_eq!(
                        step.announce == Some(Announce::Credit),
                        !was && is,
                        "{from:?} {fact:?}"
                    );
                    assert_eq!(
                        step.announce == Some(Announce::Reversal),
                        was && !is,
                        "{from:?} {fact:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn nothing_held_is_credited_and_no_disconnect_leads_to_seen() {
        for fact in Fact::ALL {
            for from in COLUMNS.into_iter().filter(|from| *from != Some(State::Credited)) {
                if let Ok(Some(step)) = step(from, true, fact) {
                    assert_ne!(step.to, State::Credited, "held {from:?} meets {fact:?}");
                }
            }
            for from in [State::Confirming, State::Credited] {
                if let Ok(Some(step)) = step(Some(from), false, fact) {
                    assert_ne!(step.to, State::Seen, "{from:?} meets {fact:?}");
                }
            }
        }
    }

    #[test]
    fn no_state_is_terminal() {
        for from in State::ALL {
            let leaves = Fact::ALL
                .iter()
                .any(|fact| matches!(step(Some(from), false, *fact), Ok(Some(s)) if s.to != from));
            assert!(leaves, "{from:?} has no way out");
        }
    }

    #[test]
    fn words_are_read_back() {
        for state in State::ALL {
            assert_eq!(State::from_word(state.word()), Some(state));
        }
        assert_eq!(State::from_word("Seen"), None);
    }
}
