//! What earlier runs left to this one: blocks that they could not read, and what they found. Both come behind
//! the walk and at its pace, so that neither a node that shows little nor a long list holds up what is new.

use super::super::ground::{Standing, Stop};
use super::super::held::{ask, is_same};
use super::super::report::Outputs;
use super::{SLICE, Slice, Walk};
use crate::store::{FindingRow, Unread};
use std::collections::BTreeMap;

/// So many stretches are taken from the table at a time.
const PAGE: usize = 100;

/// After so many stretches in a row of which nothing can be read the others wait for the next runs ...
const STUCK_IN_A_ROW: u32 = 20;
/// ... of which each begins so many further up.
const TURN: u64 = 17;

impl Walk<'_> {
    /// What was found in blocks before, which are not read again otherwise. Others are first in each run: all
    /// of them have their turn, though no run has time for all.
    pub(super) async fn look_again(&mut self, known: Vec<FindingRow>) -> Result<(), Stop> {
        let mut blocks: BTreeMap<u64, Vec<FindingRow>> = BTreeMap::new();
        for row in known {
            if let Some(height) = row.height {
                blocks.entry(height).or_default().push(row);
            }
        }
        let first = first_of(self.ground.run, blocks.len());
        let mut blocks: Vec<_> = blocks.into_iter().collect();
        blocks.rotate_left(first);
        for (height, known) in blocks {
            if self.ground.is_over() {
                return Ok(());
            }
            let standing = self.ground.stand(self.node).await?;
            if height > standing.booked_to() {
                continue;
            }
            let asked = ask(&self.ground, self.node, &standing, (height, height)).await?;
            self.count(1).await;
            // What the node cannot show now was found all the same.
            let Some(read) = asked.ok().filter(|read| read.unproven.is_empty()) else {
                continue;
            };
            for row in known {
                if !read.faults.iter().any(|fault| is_same(fault, &row)) {
                    self.ground.clear(row).await?;
                }
            }
        }
        Ok(())
    }

    /// Blocks that earlier runs passed over: of each stretch as many as can be read now. Another stretch is
    /// first in each run.
    pub(super) async fn retry(&mut self, first: &Standing, outputs: &mut Outputs) -> Result<(), Stop> {
        let (key, run) = (first.chain.key, self.ground.run);
        let begin = self.ground.store.read(move |tx| {
            let count = tx.unread_count(key)?.max(1);
            let turn = run.unsigned_abs().wrapping_mul(TURN) % count;
            Ok(tx.unread_at(key, turn)?.map_or(0, |stretch| stretch.from))
        });
        let begin = begin.await?;
        let mut stuck = 0;
        for (from, to) in [(begin, u64::MAX), (0, begin.saturating_sub(1))] {
            let mut above = from;
            loop {
                let stretches = self
                    .ground
                    .store
                    .read(move |tx| tx.unread(key, above, PAGE))
                    .await?;
                let Some(last) = stretches.last() else {
                    break;
                };
                above = last.to + 1;
                for stretch in stretches.iter().filter(|stretch| stretch.from <= to) {
                    // One that the node has dropped costs no question.
                    let is_gone = first.pruned_below.is_some_and(|kept| kept > stretch.to);
                    if !is_gone {
                        let has_read = self.retry_one(stretch, outputs).await?;
                        stuck = if has_read { 0 } else { stuck + 1 };
                    }
                    if self.ground.is_over() || stuck == STUCK_IN_A_ROW {
                        return Ok(());
                    }
                }
                if above > to {
                    break;
                }
            }
        }
        Ok(())
    }

    /// True where anything of it could be read.
    async fn retry_one(&mut self, stretch: &Unread, outputs: &mut Outputs) -> Result<bool, Stop> {
        let (mut height, before) = (stretch.from, outputs.retried);
        while height <= stretch.to && !self.ground.is_over() {
            let standing = self.ground.stand(self.node).await?;
            height = height.max(standing.pruned_below.unwrap_or_default());
            let last = stretch.to.min(height + SLICE - 1).min(standing.booked_to());
            let (mut slice, from) = (Slice::default(), height);
            while height <= last {
                let asked = ask(&self.ground, self.node, &standing, (height, height)).await?;
                self.count(1).await;
                let Ok(read) = asked else {
                    break;
                };
                outputs.payments += read.payments;
                outputs.retried += u64::from(read.unproven.is_empty());
                slice.note(height, height, read);
                height += 1;
            }
            let is_stuck = height <= last || height == from;
            self.conclude(&standing, slice).await?;
            if is_stuck {
                break;
            }
        }
        Ok(outputs.retried > before)
    }
}

/// Which one of so many is first in a run: by steps of the golden section, which leave no wide gap anywhere
/// after any number of runs.
fn first_of(run: i64, count: usize) -> usize {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let part = u128::from(run.unsigned_abs().wrapping_mul(GOLDEN));
    usize::try_from((part * count as u128) >> 64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_was_found_has_its_turn_though_no_run_has_time_for_all() {
        assert_eq!(first_of(7, 0), 0);
        for count in [1, 2, 17, 34, 1_000, 6_765] {
            let share = (count / 10).max(1);
            let mut is_seen = vec![false; count];
            for run in 1_000..1_030 {
                let first = first_of(run, count);
                assert!(first < count);
                for place in first..first + share {
                    is_seen[place % count] = true;
                }
            }
            assert!(is_seen.iter().all(|is_seen| *is_seen), "of {count}");
        }
    }
}
