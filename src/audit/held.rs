//! Blocks, held against the books: what they pay to scripts of ours, and whether it is booked so.

use super::ground::{ASKED_AGAIN, Ground, Node, Standing, Stop};
use super::{blocks, words};
use crate::rules::audit::{AuditPass, Booked, FindingKind, judge_paid};
use crate::rules::{BlockHash, Paid};
use crate::store::{FindingRow, Unread};
use std::collections::BTreeSet;

/// What was read of a block.
pub(super) struct Read {
    pub hash: BlockHash,
    pub parent: BlockHash,
    pub payments: u64,
    pub faults: Vec<FindingRow>,
    /// Heights where it may pay something that the node cannot show.
    pub unproven: Vec<(u64, String)>,
}

/// A block, or why the node cannot show it.
pub(super) type Asked = Result<Read, String>;

/// Reads blocks, and holds what they pay against the books.
pub(super) async fn ask(
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
            pass: AuditPass::Outputs,
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
        pass: AuditPass::Outputs,
        kind,
        subject: words::outpoint(standing, &paid.outpoint),
        height: Some(paid.at.height),
        what: words::of_paid(standing, kind, paid, booked),
        found_at: 0,
    }
}

/// What does not agree is asked again, the books and the node, before it is told; and what could not be asked
/// again.
pub(super) async fn confirm(
    ground: &Ground<'_>,
    node: &Node,
    mut suspects: Vec<FindingRow>,
) -> Result<Vec<Unread>, Stop> {
    let mut unread = Vec::new();
    for _ in 0..ASKED_AGAIN {
        if suspects.is_empty() {
            return Ok(unread);
        }
        ground.wait().await;
        let standing = ground.stand(node).await?;
        let heights: BTreeSet<u64> = suspects.iter().filter_map(|row| row.height).collect();
        let mut still = Vec::new();
        for height in heights {
            let at = |why| Unread {
                from: height,
                to: height,
                why,
            };
            if height > standing.booked_to() {
                // Since the first look: another endpoint answers, or a rescan is on its way.
                unread.push(at(
                    "it could not be asked again: the node or the books stand below it".to_owned(),
                ));
                continue;
            }
            match ask(ground, node, &standing, (height, height)).await? {
                Ok(read) => {
                    let is_suspect = |row: &FindingRow| suspects.iter().any(|known| is_same(known, row));
                    still.extend(read.faults.into_iter().filter(is_suspect));
                    unread.extend(read.unproven.into_iter().map(|(_, why)| at(why)));
                }
                Err(why) => unread.push(at(why)),
            }
        }
        suspects = still;
    }
    ground.tell(suspects).await?;
    Ok(unread)
}

pub(super) fn is_same(one: &FindingRow, other: &FindingRow) -> bool {
    (one.kind, &one.subject) == (other.kind, &other.subject)
}
