//! Every block read again, for what is paid to scripts of ours: is it booked, as the chain has it?

use super::ground::{ASKED_AGAIN, Ground, Node, Standing, Stop};
use super::report::{ChainReport, Outputs, unproven};
use super::{Told, blocks, words};
use crate::clock::millis;
use crate::rules::audit::{Booked, FindingKind, judge_paid};
use crate::rules::{BlockHash, Paid};
use crate::store::{AuditMark, FindingRow, StoreError};
use std::collections::BTreeSet;
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

/// What was read of a block.
struct Read {
    hash: BlockHash,
    parent: BlockHash,
    payments: u64,
    faults: Vec<FindingRow>,
    /// What it may pay and the node cannot show.
    unproven: Vec<(String, String)>,
}

/// A block, or why the node cannot show it.
type Asked = Result<Read, String>;

/// A walk through the blocks.
struct Walk<'a> {
    ground: &'a Ground<'a>,
    node: &'a Node,
    mark: AuditMark,
    /// Its marks are kept: not those of blocks beyond the ones that were read before.
    is_kept: bool,
    steps_back: u32,
    blocks: u64,
    began: Instant,
    told_at: Instant,
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
    report.outputs = Some(outputs);
    report.note_end(ended)
}

async fn walk(ground: &Ground<'_>, node: &Node, outputs: &mut Outputs, told: Told<'_>) -> Result<(), Stop> {
    let first = ground.stand(node).await?;
    look_again(ground, node, &first).await?;
    let (mark, is_kept) = begin(ground, &first).await?;
    outputs.from_height = mark.place;
    outputs.to_height = mark.place.saturating_sub(1);
    let now = ground.audit.clock.instant();
    let mut walk = Walk {
        ground,
        node,
        mark,
        is_kept,
        steps_back: 0,
        blocks: 0,
        began: now,
        told_at: now,
    };
    while !ground.is_over() {
        let standing = ground.stand(node).await?;
        let top = standing.booked_to();
        if walk.mark.place > top {
            return walk.end(&standing, outputs).await;
        }
        let last = top.min(walk.mark.place + SLICE - 1);
        let suspects = walk.slice(&standing, last, outputs, told).await?;
        confirm(ground, node, suspects).await?;
        keep(ground, &standing, &walk.mark, is_kept).await?;
    }
    Ok(())
}

impl Walk<'_> {
    /// As far as can be read now.
    async fn end(&mut self, standing: &Standing, outputs: &mut Outputs) -> Result<(), Stop> {
        self.mark.round_at = Some(self.ground.audit.clock.now_ms());
        keep(self.ground, standing, &self.mark, self.is_kept).await?;
        outputs.is_to_tip = standing.booked_to() == standing.top;
        if !outputs.is_to_tip {
            let why = "a rescan is still on its way there".to_owned();
            let subject = format!("blocks {} to {}", self.mark.place, standing.top);
            unproven(&mut outputs.unproven, &mut outputs.unproven_count, subject, why);
        }
        Ok(())
    }

    /// Blocks up to `last`; what in them does not agree.
    async fn slice(
        &mut self,
        standing: &Standing,
        last: u64,
        outputs: &mut Outputs,
        told: Told<'_>,
    ) -> Result<Vec<FindingRow>, Stop> {
        let mut suspects = Vec::new();
        while self.mark.place <= last && !self.ground.is_over() {
            let height = self.mark.place;
            // Logs come by ranges of blocks.
            let to = match self.node {
                Node::Bitcoin(_) => height,
                Node::Evm(_) => last,
            };
            match ask(self.ground, self.node, standing, (height, to)).await? {
                Ok(read) if self.mark.hash.is_some_and(|below| below != read.parent) => {
                    self.step_back(standing, height, outputs.from_height)?;
                    break;
                }
                Ok(read) => {
                    outputs.payments += read.payments;
                    suspects.extend(read.faults);
                    for (subject, why) in read.unproven {
                        unproven(&mut outputs.unproven, &mut outputs.unproven_count, subject, why);
                    }
                    (self.mark.place, self.mark.hash) = (to + 1, Some(read.hash));
                }
                Err(why) => {
                    // A pruned node has nothing below that, and everything above.
                    let next = standing
                        .pruned_below
                        .map_or(height + 1, |kept| kept.max(height + 1));
                    let subject = format!("blocks {height} to {}", next - 1);
                    unproven(&mut outputs.unproven, &mut outputs.unproven_count, subject, why);
                    (self.mark.place, self.mark.hash) = (next, None);
                }
            }
            outputs.to_height = outputs.to_height.max(self.mark.place.saturating_sub(1));
            self.blocks += self.mark.place.saturating_sub(height);
            self.tell(standing, outputs.from_height, told);
            self.ground.keep_pace(self.began, self.blocks).await;
        }
        Ok(suspects)
    }

    /// The block does not follow from the one before: there was a reorg between two looks.
    fn step_back(&mut self, standing: &Standing, height: u64, first: u64) -> Result<(), Stop> {
        self.steps_back += 1;
        if self.steps_back > STEPS_BACK {
            let why = format!("its blocks below {height} change while they are read");
            return Err(Stop::Unasked(why));
        }
        let back = height.saturating_sub(standing.window);
        (self.mark.place, self.mark.hash) = (back.max(first.min(height)), None);
        Ok(())
    }

    fn tell(&mut self, standing: &Standing, first: u64, told: Told<'_>) {
        let now = self.ground.audit.clock.instant();
        if now - self.told_at < TOLD_EVERY {
            return;
        }
        self.told_at = now;
        let ms = u64::try_from(millis(now - self.began)).unwrap_or(1).max(1);
        let (alias, place) = (self.ground.config.alias(), self.mark.place);
        let (done, all) = (
            place.saturating_sub(first),
            (standing.top + 1).saturating_sub(first),
        );
        told(&format!(
            "{alias} outputs: {} %, block {place} of {}, {} blocks a second",
            done * 100 / all.max(1),
            standing.top,
            self.blocks * 1_000 / ms
        ));
    }
}

/// Where to begin, and whether marks are to be kept: not those of blocks beyond the ones that were read.
async fn begin(ground: &Ground<'_>, standing: &Standing) -> Result<(AuditMark, bool), Stop> {
    let key = standing.chain.key;
    let (mut mark, lowest, listed, version) = ground
        .store
        .apart(move |database| {
            database.read(|tx| {
                let mark = tx.audit_mark(key, PASS)?;
                let since = (mark.place > 0).then_some(mark.version);
                let (version, lowest) = (tx.list_version()?, tx.lowest_from(key, since)?);
                Ok((mark, lowest, tx.listed_from(key)?, version))
            })
        })
        .await?;
    let start = standing.chain.start_height.unwrap_or_default();
    let known = mark.place;
    let mut place = match known {
        0 => lowest.unwrap_or(start).max(1),
        known => lowest.map_or(known, |lowest| known.min(lowest)),
    };
    let is_lowered = |caip: &String, from: u64| mark.tokens.get(caip).is_none_or(|before| *before > from);
    for (caip, from) in &listed {
        if known > 0 && is_lowered(caip, *from) {
            place = place.min(*from);
        }
    }
    if ground.audit.scope.again {
        let all = ground
            .store
            .apart(move |database| database.read(|tx| tx.lowest_from(key, None)))
            .await?;
        place = all.unwrap_or(start).max(1);
    }
    if let Some(from) = ground.audit.scope.from {
        place = from;
    }
    if place != known {
        (mark.place, mark.hash) = (place, None);
    }
    (mark.version, mark.tokens) = (version.0, listed);
    Ok((
        mark,
        known == 0 && ground.audit.scope.from.is_none() || place <= known,
    ))
}

async fn keep(
    ground: &Ground<'_>,
    standing: &Standing,
    mark: &AuditMark,
    is_kept: bool,
) -> Result<(), StoreError> {
    if !is_kept {
        return Ok(());
    }
    let (key, mark) = (standing.chain.key, mark.clone());
    let kept = ground.store.write(move |tx| tx.set_audit_mark(key, PASS, &mark));
    kept.await
}

/// Reads blocks, and holds what they pay against the books.
async fn ask(
    ground: &Ground<'_>,
    node: &Node,
    standing: &Standing,
    (from, to): (u64, u64),
) -> Result<Asked, Stop> {
    let shown = match node {
        Node::Bitcoin(source) => blocks::of_bitcoin(source, node, from).await?,
        Node::Evm(source) => blocks::of_evm(ground, source, node, standing, (from, to)).await?,
    };
    let shown = match shown {
        Ok(shown) => shown,
        Err(why) => return Ok(Err(why)),
    };
    let (key, paid) = (standing.chain.key, shown.paid.clone());
    let (booked, ours) = ground
        .store
        .apart(move |database| {
            database.read(|tx| Ok((tx.booked(key, paid.clone())?, tx.header_at(key, to)?)))
        })
        .await?;
    let payments = booked.len() as u64;
    let mut faults = Vec::new();
    if let Some(ours) = ours.filter(|ours| ours.header.hash != shown.hash) {
        let id = &standing.chain.id;
        faults.push(FindingRow {
            chain: Some(key),
            kind: FindingKind::OtherBlock,
            subject: format!("block {to}"),
            height: Some(to),
            what: format!(
                "the chain has block {} at height {to}, the books have {}",
                id.print(shown.hash),
                id.print(ours.header.hash)
            ),
            found_at: 0,
        });
    }
    for (paid, booked) in booked {
        let is_internal = booked.output.as_ref().is_some_and(|output| output.is_internal);
        let is_all_ours = is_internal && shown.is_all_ours(ground, key, &paid).await?;
        faults
            .extend(judge_paid(&paid, &booked, is_all_ours).map(|kind| row(standing, kind, &paid, &booked)));
    }
    Ok(Ok(Read {
        hash: shown.hash,
        parent: shown.parent,
        payments,
        faults,
        unproven: shown.unproven,
    }))
}

pub(super) fn row(standing: &Standing, kind: FindingKind, paid: &Paid, booked: &Booked) -> FindingRow {
    FindingRow {
        chain: Some(standing.chain.key),
        kind,
        subject: words::outpoint(standing, &paid.outpoint),
        height: Some(paid.at.height),
        what: words::of_paid(standing, kind, paid, booked),
        found_at: 0,
    }
}

/// What does not agree is asked again, the books and the node, before it is told.
async fn confirm(ground: &Ground<'_>, node: &Node, mut suspects: Vec<FindingRow>) -> Result<(), Stop> {
    for _ in 0..ASKED_AGAIN {
        if suspects.is_empty() {
            return Ok(());
        }
        ground.wait().await;
        let standing = ground.stand(node).await?;
        let heights: BTreeSet<u64> = suspects.iter().filter_map(|row| row.height).collect();
        let mut still = Vec::new();
        for height in heights.into_iter().filter(|height| *height <= standing.top) {
            if let Ok(read) = ask(ground, node, &standing, (height, height)).await? {
                let is_suspect = |row: &FindingRow| {
                    suspects
                        .iter()
                        .any(|known| (known.kind, &known.subject) == (row.kind, &row.subject))
                };
                still.extend(read.faults.into_iter().filter(is_suspect));
            }
        }
        suspects = still;
    }
    ground.tell(suspects).await?;
    Ok(())
}

/// What was found in blocks before, which are not read again otherwise.
async fn look_again(ground: &Ground<'_>, node: &Node, standing: &Standing) -> Result<(), Stop> {
    for known in ground.known_findings(&standing.chain).await? {
        let is_of_block = !known.subject.starts_with("cr_") && known.kind != FindingKind::UnspentUnbooked;
        let Some(height) = known.height.filter(|_| is_of_block) else {
            continue;
        };
        let Ok(read) = ask(ground, node, standing, (height, height)).await? else {
            continue;
        };
        let stands = read
            .faults
            .iter()
            .any(|row| (row.kind, &row.subject) == (known.kind, &known.subject));
        if !stands {
            ground.clear(&standing.chain, &known.subject).await?;
        }
    }
    Ok(())
}
