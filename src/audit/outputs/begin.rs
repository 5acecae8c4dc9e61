//! Where a walk through the blocks begins: where the last one came to, unless rules were lowered since, or
//! the chain has other blocks below.

use super::super::ground::{Ground, Node, Standing, Stop};
use super::PASS;
use crate::rules::BlockHash;
use crate::store::AuditMark;
use std::collections::BTreeMap;

/// Where to begin.
pub(super) struct Begin {
    pub mark: AuditMark,
    /// Marks are kept once the walk has come so far: not those of blocks beyond the ones that were read
    /// before. `None` = never.
    pub kept_from: Option<u64>,
    /// Nothing counts below it, or nothing was asked for.
    pub floor: u64,
}

/// What decides where a walk without a height of its own begins.
struct Due {
    /// Where the last one came to; 0 = there was none.
    known: u64,
    /// The lowest height that any rule counts from.
    all: u64,
    /// The lowest that rules count from which came or were lowered since.
    lowered: Option<u64>,
    /// From here on the chain has other blocks than were read.
    changed: Option<u64>,
}

impl Due {
    fn place(&self) -> u64 {
        match self.known {
            0 => self.all,
            known => {
                let lowest = [self.lowered, self.changed].into_iter().flatten().min();
                lowest.map_or(known, |lowest| known.min(lowest.max(self.all)))
            }
        }
    }
}

pub(super) async fn begin(ground: &Ground<'_>, node: &Node, standing: &Standing) -> Result<Begin, Stop> {
    let key = standing.chain.key;
    let (mark, lowered, all, listed, version) = ground
        .store
        .apart(move |database| {
            database.read(|tx| {
                let mark = tx.audit_mark(key, PASS)?;
                let (version, lowered) = (tx.list_version()?, tx.lowest_from(key, Some(mark.version))?);
                Ok((
                    mark,
                    lowered,
                    tx.lowest_from(key, None)?,
                    tx.listed_from(key)?,
                    version,
                ))
            })
        })
        .await?;
    let is_lowered =
        |(caip, from): &(&String, &u64)| mark.tokens.get(*caip).is_none_or(|before| before > from);
    let tokens = listed.iter().filter(is_lowered).map(|(_, from)| *from).min();
    let start = standing.chain.start_height.unwrap_or_default();
    let due = Due {
        known: mark.place,
        all: all.unwrap_or(start).max(1),
        lowered: [lowered, tokens].into_iter().flatten().min(),
        changed: changed_from(node, &mark.trail).await?,
    };
    let mut begin = of(mark, &due, ground.audit.scope.from, ground.audit.scope.again);
    (begin.mark.version, begin.mark.tokens) = (version.0, listed);
    Ok(begin)
}

/// A walk that begins above what is due leaves the mark where it is: what lies between was not read. One that
/// begins below it moves it once it has passed it: cut off before, it has cost nothing that was read.
fn of(mut mark: AuditMark, due: &Due, from: Option<u64>, is_again: bool) -> Begin {
    let place = match (from, is_again) {
        // The first block of a chain pays nobody.
        (Some(from), _) => from.max(1),
        (None, true) => due.all,
        (None, false) => due.place(),
    };
    let kept_from = match from {
        None => Some(0),
        Some(_) => Some(due.place()).filter(|due| place <= *due),
    };
    mark.go_back(place);
    Begin {
        mark,
        kept_from,
        floor: from.unwrap_or(due.all).min(place),
    }
}

/// From where on the chain may have other blocks than were read: above the highest of them that it still has.
/// Of what a node that is behind does not have it says nothing.
pub(super) async fn changed_from(node: &Node, trail: &BTreeMap<u64, BlockHash>) -> Result<Option<u64>, Stop> {
    let mut is_changed = false;
    for (height, hash) in trail.iter().rev() {
        match node.hash_at(*height).await? {
            Some(theirs) if theirs == *hash => return Ok(is_changed.then_some(height + 1)),
            Some(_) => is_changed = true,
            None => {}
        }
    }
    Ok(is_changed.then_some(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(known: u64, lowered: Option<u64>, changed: Option<u64>) -> Due {
        Due {
            known,
            all: 10,
            lowered,
            changed,
        }
    }

    #[test]
    fn what_is_due_is_the_lowest_that_was_not_read() {
        for (due, place) in [
            (due(0, None, None), 10),
            (due(0, Some(50), None), 10),
            (due(100, None, None), 100),
            (due(100, Some(40), None), 40),
            (due(100, Some(140), None), 100),
            (due(100, Some(40), Some(30)), 30),
            (due(100, Some(40), Some(70)), 40),
            (due(100, None, Some(0)), 10),
        ] {
            assert_eq!(due.place(), place);
        }
    }

    /// Rules were lowered to 40 since the walk came to 100: one from 60 on has not read what they count in.
    #[test]
    fn a_walk_from_above_lowered_rules_keeps_no_mark() {
        let mark = AuditMark {
            place: 100,
            trail: [(20, BlockHash([2; 32])), (99, BlockHash([9; 32]))].into(),
            ..AuditMark::default()
        };
        let lowered = due(100, Some(40), None);
        for (from, is_again, place, kept_from) in [
            (Some(60), false, 60, None),
            (Some(41), false, 41, None),
            (Some(40), false, 40, Some(40)),
            (Some(15), false, 15, Some(40)),
            (Some(0), false, 1, Some(40)),
            (Some(200), false, 200, None),
            (None, false, 40, Some(0)),
            (None, true, 10, Some(0)),
        ] {
            let begin = of(mark.clone(), &lowered, from, is_again);
            assert_eq!(
                (begin.mark.place, begin.kept_from),
                (place, kept_from),
                "{from:?}"
            );
            assert!(begin.mark.trail.keys().all(|height| *height < place), "{from:?}");
            assert!(begin.floor <= place, "{from:?}");
        }
        // Whoever walks on knows which block it was.
        assert_eq!(
            of(mark, &due(100, None, None), None, false).mark.below(),
            Some(BlockHash([9; 32]))
        );
    }
}
