//! Every credit that counts, asked of the chain by its outpoint; and what should have been credited long ago.

use super::ground::{ASKED_AGAIN, Ground, Node, Standing, Stop};
use super::report::{ChainReport, Credits, unproven};
use super::unspent::in_block;
use super::{Told, words};
use crate::chain::SourceError;
use crate::chain::bitcoin::{BitcoinSource, BlockAgain};
use crate::chain::evm::{Again, EvmSource};
use crate::egress::HttpDial;
use crate::rules::audit::{Claim, FindingKind, judge_credit};
use crate::rules::{BlockHash, Outpoint, Paid, TaggedBlock};
use crate::store::{AuditMark, FindingRow, StoreError};
use crate::telemetry::error_line;
use std::collections::{BTreeMap, BTreeSet};

/// The name of the pass.
const PASS: &str = "credits";

/// So many are asked for between two marks.
const SLICE: u32 = 200;

/// What the node shows at an outpoint.
enum Shown {
    /// This, or nothing.
    Is(Option<Paid>),
    /// The same, by the set of unspent coins.
    IsUnspent(Paid),
    /// It cannot say, and why.
    Unproven(String),
}

/// Asks for all of them, from where the last run was cut off.
pub(super) async fn pass(
    ground: &Ground<'_>,
    node: &Node,
    report: &mut ChainReport,
    told: Told<'_>,
) -> Result<(), StoreError> {
    let mut credits = Credits::default();
    let ended = slices(ground, node, &mut credits, told).await;
    report.credits = Some(credits);
    report.note_end(ended)
}

async fn slices(ground: &Ground<'_>, node: &Node, credits: &mut Credits, told: Told<'_>) -> Result<(), Stop> {
    let first = ground.stand(node).await?;
    overdue(ground, node, &first).await?;
    let known = known(ground, &first).await?;
    let key = first.chain.key;
    let (total, mut mark) = ground
        .store
        .apart(move |database| database.read(|tx| Ok((tx.claim_count(key)?, tx.audit_mark(key, PASS)?))))
        .await?;
    if ground.audit.scope.again {
        mark.place = 0;
    }
    let began = ground.audit.clock.instant();
    while !ground.is_over() {
        let standing = ground.stand(node).await?;
        let (place, top) = (i64::try_from(mark.place).unwrap_or(i64::MAX), standing.top);
        let claims = ground
            .store
            .apart(move |database| database.read(|tx| tx.claims(key, place, top, SLICE)))
            .await?;
        let last = claims.last().map(|row| row.place);
        let claims: Vec<Claim> = claims.into_iter().map(|row| row.claim).collect();
        slice(ground, node, &standing, claims, &known, credits).await?;
        mark.place = match last {
            Some(last) => u64::try_from(last).unwrap_or_default(),
            None => 0,
        };
        if last.is_none() {
            mark.round_at = Some(ground.audit.clock.now_ms());
        }
        set_mark(ground, &standing, &mark).await?;
        if last.is_none() {
            credits.is_whole = true;
            credits.too_young = total.saturating_sub(credits.checked);
            return Ok(());
        }
        told(&format!(
            "{} credits: {} of {total}",
            ground.config.alias(),
            credits.checked
        ));
        ground
            .keep_pace(began, credits.checked - credits.by_unspent)
            .await;
    }
    Ok(())
}

async fn set_mark(ground: &Ground<'_>, standing: &Standing, mark: &AuditMark) -> Result<(), StoreError> {
    let (key, mark) = (standing.chain.key, mark.clone());
    let set = ground.store.write(move |tx| tx.set_audit_mark(key, PASS, &mark));
    set.await
}

/// Credits that something was found about. Those that count no more are taken back at once.
async fn known(ground: &Ground<'_>, standing: &Standing) -> Result<BTreeSet<String>, StoreError> {
    let mut known = BTreeSet::new();
    for row in ground.known_findings(&standing.chain).await? {
        if !row.subject.starts_with("cr_") {
            continue;
        }
        let subject = row.subject.clone();
        match ground.store.read(move |tx| tx.claim_of(&subject)).await? {
            Some(_) => drop(known.insert(row.subject)),
            None => ground.clear(&standing.chain, &row.subject).await?,
        }
    }
    Ok(known)
}

/// One slice: what does not agree is asked again, the books and the node, before it is told.
async fn slice(
    ground: &Ground<'_>,
    node: &Node,
    standing: &Standing,
    claims: Vec<Claim>,
    known: &BTreeSet<String>,
    credits: &mut Credits,
) -> Result<(), Stop> {
    credits.checked += claims.len() as u64;
    let mut suspects = judge(node, standing, &claims, credits).await?;
    for claim in &claims {
        let is_bad = suspects.iter().any(|row| row.subject == claim.id);
        if !is_bad && known.contains(&claim.id) {
            ground.clear(&standing.chain, &claim.id).await?;
        }
    }
    for _ in 0..ASKED_AGAIN {
        if suspects.is_empty() {
            return Ok(());
        }
        ground.wait().await;
        let standing = ground.stand(node).await?;
        let ids: Vec<String> = suspects.iter().map(|row| row.subject.clone()).collect();
        let count = ids.len() as u64;
        let claims = ground.store.read(move |tx| {
            let mut claims = Vec::new();
            for id in &ids {
                claims.extend(tx.claim_of(id)?);
            }
            Ok(claims)
        });
        let mut claims = claims.await?;
        claims.retain(|claim| claim.height <= standing.top);
        // One that counts no more, or has moved to a younger block, is asked for by a later run.
        credits.checked -= count - claims.len() as u64;
        suspects = judge(node, &standing, &claims, credits).await?;
    }
    ground.tell(suspects).await?;
    Ok(())
}

async fn judge(
    node: &Node,
    standing: &Standing,
    claims: &[Claim],
    credits: &mut Credits,
) -> Result<Vec<FindingRow>, Stop> {
    let mut suspects = Vec::new();
    for (claim, shown) in claims.iter().zip(show(node, claims).await?) {
        let is_unspent = matches!(shown, Shown::IsUnspent(_));
        let paid = match shown {
            Shown::Unproven(why) => {
                unproven(
                    &mut credits.unproven,
                    &mut credits.unproven_count,
                    claim.id.clone(),
                    why,
                );
                continue;
            }
            Shown::Is(paid) => paid,
            Shown::IsUnspent(paid) => Some(paid),
        };
        match judge_credit(claim, paid.as_ref()) {
            None => {
                credits.proven += 1;
                credits.by_unspent += u64::from(is_unspent);
            }
            Some(kind) => suspects.push(FindingRow {
                chain: Some(standing.chain.key),
                kind,
                subject: claim.id.clone(),
                height: Some(claim.height),
                what: words::of_credit(standing, kind, claim, paid.as_ref()),
                found_at: 0,
            }),
        }
    }
    Ok(suspects)
}

/// What the node has at the outpoints of these claims, in their order.
async fn show(node: &Node, claims: &[Claim]) -> Result<Vec<Shown>, SourceError> {
    match node {
        Node::Bitcoin(source) => show_coins(node, source, claims).await,
        Node::Evm(source) => show_receipts(node, source, claims).await,
    }
}

async fn show_receipts(
    node: &Node,
    source: &EvmSource<HttpDial>,
    claims: &[Claim],
) -> Result<Vec<Shown>, SourceError> {
    let mut shown = Vec::with_capacity(claims.len());
    for claim in claims {
        let hash = match claim.hash {
            Some(hash) => Some(hash),
            None => node.hash_at(claim.height).await?,
        };
        let Some(hash) = hash else {
            let why = format!("the node has no block at height {}", claim.height);
            shown.push(Shown::Unproven(why));
            continue;
        };
        let booked = TaggedBlock {
            height: claim.height,
            hash,
        };
        shown.push(match source.payment_again(claim.outpoint, booked).await? {
            Again::Shown(paid) => Shown::Is(Some(paid)),
            Again::Absent => Shown::Is(None),
            Again::Unproven(why) => Shown::Unproven(why),
        });
    }
    Ok(shown)
}

async fn show_coins(
    node: &Node,
    source: &BitcoinSource<HttpDial>,
    claims: &[Claim],
) -> Result<Vec<Shown>, SourceError> {
    let outpoints: Vec<Outpoint> = claims.iter().map(|claim| claim.outpoint).collect();
    let coins = source.unspent(&outpoints).await?;
    let mut hashes: BTreeMap<u64, Option<BlockHash>> = BTreeMap::new();
    let mut block: Option<BlockAgain> = None;
    let mut shown = Vec::with_capacity(claims.len());
    for (claim, coin) in claims.iter().zip(coins) {
        let height = coin.as_ref().map_or(claim.height, |coin| coin.height);
        let hash = match hashes.get(&height) {
            Some(hash) => *hash,
            None => node.hash_at(height).await?,
        };
        hashes.insert(height, hash);
        let Some(hash) = hash else {
            shown.push(Shown::Unproven(format!(
                "the node has no block at height {height}"
            )));
            continue;
        };
        let at = TaggedBlock { height, hash };
        if let Some(coin) = coin {
            shown.push(Shown::IsUnspent(in_block(&coin, at)));
            continue;
        }
        if block.as_ref().is_none_or(|block| block.at != at) {
            block = match source.read_again(at).await {
                Ok(read) => Some(read),
                Err(error @ (SourceError::Pruned { .. } | SourceError::MissingData(_))) => {
                    let why = format!("it is spent, and {}", error_line(&error));
                    shown.push(Shown::Unproven(why));
                    continue;
                }
                Err(error @ SourceError::BadBlock { .. }) => {
                    shown.push(Shown::Unproven(error_line(&error)));
                    continue;
                }
                Err(error) => return Err(error),
            };
        }
        shown.push(Shown::Is(
            block.as_ref().and_then(|block| block.paid_at(claim.outpoint)),
        ));
    }
    Ok(shown)
}

/// What waits although it was due long ago, while the follower is at work.
async fn overdue(ground: &Ground<'_>, node: &Node, first: &Standing) -> Result<(), Stop> {
    let mut late = look(ground, first).await?;
    for row in ground.known_findings(&first.chain).await? {
        let is_over =
            row.kind == FindingKind::Overdue && !late.iter().any(|late| late.subject == row.subject);
        if is_over {
            ground.clear(&first.chain, &row.subject).await?;
        }
    }
    for _ in 0..ASKED_AGAIN {
        if late.is_empty() {
            return Ok(());
        }
        ground.wait().await;
        let standing = ground.stand(node).await?;
        let again = look(ground, &standing).await?;
        late.retain(|late| again.iter().any(|row| row.subject == late.subject));
    }
    ground.tell(late).await?;
    Ok(())
}

async fn look(ground: &Ground<'_>, standing: &Standing) -> Result<Vec<FindingRow>, StoreError> {
    if !standing.is_following {
        return Ok(Vec::new());
    }
    let (key, reach) = (standing.chain.key, standing.reach);
    let waiting = ground.store.read(move |tx| tx.waiting(key, reach.cursor)).await?;
    let late = waiting.iter().filter(|deposit| deposit.is_overdue(&reach));
    let row = |deposit: &crate::rules::audit::BookedDeposit| FindingRow {
        chain: Some(key),
        kind: FindingKind::Overdue,
        subject: deposit.id.clone(),
        height: None,
        what: words::of_waiting(standing, deposit),
        found_at: 0,
    };
    Ok(late.map(row).collect())
}
