//! Every block read again, for what is paid to scripts of ours: is it booked, as the chain has it?

mod begin;
mod earlier;
mod paid;

use super::ground::{Ground, Node, Standing, Stop};
use super::held::{Read, ask, confirm};
use super::limits::Unasked;
use super::report::{ChainReport, Outputs, UNPROVEN_NAMED, unproven};
use super::{Told, Word};
use crate::clock::millis;
use crate::rules::audit::AuditPass;
use crate::store::{FindingRow, StoreError, Unread};
use begin::{Begin, begin, changed_from};
use paid::Paid;
use std::time::Duration;
use tokio::time::Instant;

/// The name of the pass.
const PASS: &str = "outputs";

/// So many blocks between two marks.
const SLICE: u64 = 20;

/// So often it steps back where blocks do not follow from each other, before it ends: a reorg is under way.
const STEPS_BACK: u32 = 3;

/// From one word of progress to the next.
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// After so many blocks in a row that the node cannot show it is looked for the first one that it can.
const UNREAD_IN_A_ROW: u32 = 20;

/// What earlier runs left gets one part of so many of the time, however much is new.
const PARTS: usize = 4;

/// A walk through the blocks.
struct Walk<'a> {
    ground: Ground<'a>,
    node: &'a Node,
    begin: Begin,
    paid: Paid,
    /// Blocks up to here are asked for one by one: not all of them can be shown.
    single_to: u64,
    unread_in_a_row: u32,
    steps_back: u32,
    blocks: u64,
    began: Instant,
    told_at: Instant,
    /// It has come as far as can be read now.
    is_through: bool,
}

/// What a slice came to.
#[derive(Default)]
struct Slice {
    suspects: Vec<FindingRow>,
    read: Vec<(u64, u64)>,
    unread: Vec<Unread>,
}

impl Slice {
    fn note(&mut self, from: u64, to: u64, read: Read) {
        self.suspects.extend(read.faults);
        self.read.push((from, to));
        for (height, why) in read.unproven {
            self.note_unread(height, height, why);
        }
    }

    fn note_unread(&mut self, from: u64, to: u64, why: String) {
        self.unread.push(Unread { from, to, why });
    }
}

/// Reads on from where the last run came to.
pub(super) async fn pass(
    ground: &Ground<'_>,
    node: &Node,
    report: &mut ChainReport,
    told: Told<'_>,
) -> Result<(), StoreError> {
    let mut outputs = Outputs::default();
    let ended = walk(ground, node, &mut outputs, told).await;
    name_unread(ground, &mut outputs).await?;
    report.is_cut |= (!outputs.is_to_tip || outputs.retried > 0) && ground.is_over();
    report.outputs = Some(outputs);
    report.note_end(ended)
}

/// Blocks that were passed over, in this run or in one before.
async fn name_unread(ground: &Ground<'_>, outputs: &mut Outputs) -> Result<(), StoreError> {
    let id = ground.config.chain().clone();
    let unread = ground.store.read(move |tx| {
        let Some(chain) = tx.chain(&id)? else {
            return Ok((Vec::new(), 0));
        };
        let named = tx.unread(chain.key, 0, UNPROVEN_NAMED)?;
        Ok((named, tx.unread_count(chain.key)?))
    });
    let (named, count) = unread.await?;
    let more = count.saturating_sub(named.len() as u64);
    for stretch in named {
        let (list, count) = (&mut outputs.unproven, &mut outputs.unproven_count);
        unproven(list, count, stretch.name(), stretch.why);
    }
    outputs.unproven_count += more;
    Ok(())
}

async fn walk(ground: &Ground<'_>, node: &Node, outputs: &mut Outputs, told: Told<'_>) -> Result<(), Stop> {
    let first = ground.stand(node).await?;
    let known = ground.known_findings(&first.chain, AuditPass::Outputs).await?;
    let begin = begin(ground, node, &first).await?;
    outputs.from_height = begin.mark.place;
    outputs.to_height = begin.mark.place.saturating_sub(1);
    if let Some(from) = ground.audit.scope.from.filter(|from| *from > first.top) {
        return Err(ground.beyond(from, &first));
    }
    let now = ground.audit.clock.instant();
    let mut walk = Walk {
        ground: ground.but_the_last(PARTS),
        node,
        begin,
        paid: Paid::default(),
        single_to: 0,
        unread_in_a_row: 0,
        steps_back: 0,
        blocks: 0,
        began: now,
        told_at: now,
        is_through: false,
    };
    walk.go_on(outputs, told).await?;
    // A long list of the one leaves the other its half.
    walk.ground = ground.part(2);
    walk.look_again(known).await?;
    walk.ground = *ground;
    walk.retry(&first, outputs).await?;
    // What they have left.
    walk.go_on(outputs, told).await
}

impl Walk<'_> {
    /// Slice by slice, as far as can be read now.
    async fn go_on(&mut self, outputs: &mut Outputs, told: Told<'_>) -> Result<(), Stop> {
        while !self.is_through && !self.ground.is_over() {
            let standing = self.ground.stand(self.node).await?;
            let top = standing.booked_to();
            let place = self.begin.mark.place;
            if place > top {
                self.is_through = true;
                return self.end(&standing, outputs).await;
            }
            let mut slice = Slice::default();
            let last = top.min(place + SLICE - 1);
            self.slice(&standing, last, &mut slice, outputs, told).await?;
            self.conclude(&standing, slice).await?;
        }
        Ok(())
    }

    /// As far as can be read now.
    async fn end(&mut self, standing: &Standing, outputs: &mut Outputs) -> Result<(), Stop> {
        if standing.top == standing.wanted {
            self.begin.mark.round_at = Some(self.ground.audit.clock.now_ms());
        }
        self.keep(standing, Slice::default()).await?;
        outputs.is_to_tip = standing.booked_to() == standing.top;
        if !outputs.is_to_tip {
            let why = "a rescan is still on its way there".to_owned();
            let subject = format!("blocks {} to {}", self.begin.mark.place, standing.top);
            unproven(&mut outputs.unproven, &mut outputs.unproven_count, subject, why);
        }
        Ok(())
    }

    /// What does not agree is asked again, and then told; and how far it has come is kept.
    async fn conclude(&mut self, standing: &Standing, mut slice: Slice) -> Result<(), Stop> {
        let suspects = std::mem::take(&mut slice.suspects);
        slice
            .unread
            .extend(confirm(&self.ground, self.node, suspects).await?);
        self.keep(standing, slice).await?;
        Ok(())
    }

    async fn keep(&mut self, standing: &Standing, slice: Slice) -> Result<(), StoreError> {
        self.begin.mark.thin();
        self.paid.thin(&self.begin.mark.trail);
        let (key, mark) = (standing.chain.key, self.begin.mark.clone());
        let is_kept = self.begin.kept_from.is_some_and(|from| mark.place >= from);
        let kept = self.ground.store.write(move |tx| {
            if is_kept {
                tx.set_audit_mark(key, PASS, &mark)?;
            }
            for (from, to) in &slice.read {
                tx.note_read(key, *from, *to)?;
            }
            for unread in &slice.unread {
                tx.note_unread(key, unread)?;
            }
            Ok(())
        });
        kept.await
    }

    /// Blocks up to `last`, and what in them does not agree.
    async fn slice(
        &mut self,
        standing: &Standing,
        last: u64,
        slice: &mut Slice,
        outputs: &mut Outputs,
        told: Told<'_>,
    ) -> Result<(), Stop> {
        while self.begin.mark.place <= last && !self.ground.is_over() {
            let height = self.begin.mark.place;
            // Logs come by ranges of blocks.
            let to = match self.node {
                Node::Evm(_) if height > self.single_to => last,
                Node::Evm(_) | Node::Bitcoin(_) => height,
            };
            let below = self.begin.mark.below();
            match ask(&self.ground, self.node, standing, (height, to)).await? {
                Ok(read) if below.is_some_and(|below| below != read.parent) => {
                    self.step_back(height, outputs).await?;
                    break;
                }
                Ok(read) => {
                    outputs.payments += read.payments;
                    self.paid.go_on(to, read.payments);
                    self.begin.mark.go_on(to + 1, Some(read.hash));
                    slice.note(height, to, read);
                    self.unread_in_a_row = 0;
                    self.count(to + 1 - height).await;
                }
                Err(_) if to > height => self.single_to = to,
                Err(why) => {
                    let next = self.after_unread(standing, height).await?;
                    slice.note_unread(height, next - 1, why);
                    // A node has the hashes of blocks that it cannot show: a reorg below must be noticed.
                    let below = self.node.hash_at(next - 1).await.ok().flatten();
                    self.begin.mark.go_on(next, below);
                    self.paid.go_on(next - 1, 0);
                    self.count(1).await;
                }
            }
            outputs.to_height = self.begin.mark.place.saturating_sub(1);
            self.tell(standing, outputs.from_height, told);
        }
        Ok(())
    }

    /// So many blocks more were asked for: no more than the pace allows.
    async fn count(&mut self, blocks: u64) {
        self.blocks += blocks;
        self.ground.keep_pace(self.began, self.blocks).await;
    }

    /// Where to go on behind a block that the node cannot show. A node that has dropped old blocks has none
    /// below a height, and everything above.
    async fn after_unread(&mut self, standing: &Standing, height: u64) -> Result<u64, Stop> {
        if let Some(kept) = standing.pruned_below.filter(|kept| *kept > height) {
            return Ok(kept);
        }
        self.unread_in_a_row += 1;
        if self.unread_in_a_row < UNREAD_IN_A_ROW {
            return Ok(height + 1);
        }
        self.unread_in_a_row = 0;
        let (mut unread, mut shown) = (height, standing.booked_to() + 1);
        while unread + 1 < shown {
            let middle = unread + (shown - unread) / 2;
            match ask(&self.ground, self.node, standing, (middle, middle)).await? {
                Ok(_) => shown = middle,
                Err(_) => unread = middle,
            }
            self.count(1).await;
        }
        Ok(shown)
    }

    /// The block does not follow from the one before: there was a reorg between two looks. It goes on above
    /// the highest block that was read and that the chain still has.
    async fn step_back(&mut self, height: u64, outputs: &mut Outputs) -> Result<(), Stop> {
        self.steps_back += 1;
        if self.steps_back > STEPS_BACK {
            let why = format!("its blocks below {height} change while they are read");
            return Err(Stop::Unasked(Unasked::TwoBranches.because(why)));
        }
        let changed = changed_from(self.node, &self.begin.mark.trail).await?;
        // None: the reorg was taken back meanwhile.
        let back = changed.unwrap_or(height).max(self.begin.floor).min(height);
        // Blocks below the height that somebody asked for have changed, too: they are for the next run.
        if self.ground.audit.scope.from.is_some() && changed.is_some_and(|changed| changed < back) {
            self.begin.kept_from = None;
        }
        self.begin.mark.go_back(back);
        // What has changed below where it goes on is nothing to hold the next block against.
        if let Some(changed) = changed {
            self.begin.mark.trail.split_off(&changed);
        }
        outputs.payments = outputs.payments.saturating_sub(self.paid.go_back(back));
        outputs.from_height = outputs.from_height.min(back);
        outputs.to_height = back.saturating_sub(1);
        Ok(())
    }

    fn tell(&mut self, standing: &Standing, first: u64, told: Told<'_>) {
        let now = self.ground.audit.clock.instant();
        if now - self.told_at < TOLD_EVERY {
            return;
        }
        self.told_at = now;
        let ms = u64::try_from(millis(now - self.began)).unwrap_or(1).max(1);
        let (alias, place) = (self.ground.config.alias(), self.begin.mark.place);
        let (done, all) = (
            place.saturating_sub(first),
            (standing.top + 1).saturating_sub(first),
        );
        let per_second = self.blocks * 1_000 / ms;
        told(Word::Part {
            line: &format!(
                "{alias} outputs: {} %, block {place} of {}, {per_second} blocks a second",
                done * 100 / all.max(1),
                standing.top
            ),
            name: &format!("{alias} outputs"),
            done,
            all,
            per_second: Some(per_second),
        });
    }
}
