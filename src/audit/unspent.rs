//! Bitcoin: the unspent coins of all watched scripts, from the node's own set: a pruned node has it whole. A
//! coin that nobody booked is a payment that was missed.

use super::ground::{ASKED_AGAIN, Ground, Node, Standing, Stop};
use super::report::{ChainReport, UnspentCoins};
use super::{Told, Word, held};
use crate::chain::bitcoin::{BitcoinConfig, BitcoinSource, Unspent, UnspentSet};
use crate::config::ChainConfig;
use crate::egress::HttpDial;
use crate::rules::audit::{AuditPass, FindingKind, judge_paid};
use crate::rules::{Asset, Outpoint, Paid, Script, TaggedBlock, Txid};
use crate::store::{FindingRow, StoreError};

/// So many scripts are read from the table at a time.
const PAGE: u32 = 10_000;

/// Asks for all of them.
pub(super) async fn pass(
    ground: &Ground<'_>,
    source: &BitcoinSource<HttpDial>,
    node: &Node,
    report: &mut ChainReport,
    told: Told<'_>,
) -> Result<(), StoreError> {
    let ended = walk(ground, source, node, told).await;
    let ended = ended.map(|coins| report.unspent = Some(coins));
    report.note_end(ended)
}

async fn walk(
    ground: &Ground<'_>,
    source: &BitcoinSource<HttpDial>,
    node: &Node,
    told: Told<'_>,
) -> Result<UnspentCoins, Stop> {
    let first = ground.stand(node).await?;
    let scripts = scripts(ground, &first).await?;
    let alias = ground.config.alias().to_owned();
    let mut tell = |hundredths: u8| {
        told(Word::Part {
            line: &format!("{alias} unspent: {hundredths} %"),
            name: &format!("{alias} unspent"),
            done: hundredths.into(),
            all: 100,
            per_second: None,
        });
    };
    let walk = match ground.config {
        ChainConfig::Bitcoin(chain) => BitcoinConfig::of(chain).ok(),
        ChainConfig::Evm(_) => None,
    };
    let walk = walk.map(|config| {
        let second = BitcoinSource::new(config, HttpDial::new(), ground.audit.clock);
        ground.audit.walks.begin(second)
    });
    let set = source.unspent_of(&scripts, &mut tell).await;
    // Dropped on the way here, it is stopped.
    if let Some(walk) = walk {
        walk.end();
    }
    let set = set?;
    let standing = ground.stand(node).await?;
    let mut suspects = judge(ground, &standing, &set.coins).await?;
    for known in ground.known_findings(&standing.chain, AuditPass::Unspent).await? {
        let is_it = |row: &FindingRow| (row.kind, &row.subject) == (known.kind, &known.subject);
        let still = suspects.iter().any(|(row, _)| is_it(row));
        if !still && is_gone(ground, (source, node), &standing, &set, &known).await? {
            ground.clear(known).await?;
        }
    }
    for _ in 0..ASKED_AGAIN {
        if suspects.is_empty() {
            break;
        }
        ground.wait().await;
        let standing = ground.stand(node).await?;
        let outpoints: Vec<Outpoint> = suspects.iter().map(|(_, outpoint)| *outpoint).collect();
        // One that is spent meanwhile is for the blocks to show.
        let coins: Vec<Unspent> = source.unspent(&outpoints).await?.into_iter().flatten().collect();
        suspects = judge(ground, &standing, &coins).await?;
    }
    ground
        .tell(suspects.into_iter().map(|(row, _)| row).collect())
        .await?;
    Ok(UnspentCoins {
        height: set.height,
        coins: set.coins.len() as u64,
    })
}

/// Whether what was found once is shown to be so no more: the books agree to a coin that is still there, or
/// to the block that made it. That it is missing among the coins shows nothing: it may be spent, or the node
/// be behind.
async fn is_gone(
    ground: &Ground<'_>,
    (source, node): (&BitcoinSource<HttpDial>, &Node),
    standing: &Standing,
    set: &UnspentSet,
    known: &FindingRow,
) -> Result<bool, Stop> {
    let (Some(outpoint), Some(height)) = (outpoint(&known.subject), known.height) else {
        return Ok(false);
    };
    if let Some(coin) = set.coins.iter().find(|coin| coin.outpoint == outpoint) {
        // One that is old enough was held against the books, and is no suspect.
        return Ok(coin.height <= standing.booked_to());
    }
    if height > standing.booked_to().min(set.height) {
        return Ok(false);
    }
    let Some(hash) = node.hash_at(height).await? else {
        return Ok(false);
    };
    let paid = match source.read_again(TaggedBlock { height, hash }).await {
        Ok(block) => block.paid_at(outpoint),
        Err(error) => {
            node.alone(error).await?;
            return Ok(false);
        }
    };
    // Another block has its place: what it pays is for the walk through the blocks to show.
    let Some(paid) = paid else {
        return Ok(true);
    };
    let key = standing.chain.key;
    let booked = ground
        .store
        .read(move |tx| tx.booked(key, vec![paid.clone()]))
        .await?;
    Ok(booked
        .iter()
        .all(|(paid, booked)| judge_paid(paid, booked, true).is_none()))
}

/// The outpoint that a finding is about.
fn outpoint(subject: &str) -> Option<Outpoint> {
    let (txid, vout) = subject.split_once(':')?;
    Some(Outpoint {
        txid: Txid::from_typed(txid)?,
        vout: vout.parse().ok()?,
    })
}

async fn scripts(ground: &Ground<'_>, standing: &Standing) -> Result<Vec<Script>, StoreError> {
    let (key, mut place, mut scripts) = (standing.chain.key, 0, Vec::new());
    loop {
        let page = ground
            .store
            .apart(move |database| database.read(|tx| tx.watched_scripts(key, place, PAGE)))
            .await?;
        let Some((last, _)) = page.last() else {
            return Ok(scripts);
        };
        place = *last;
        scripts.extend(page.into_iter().map(|(_, script)| script));
    }
}

/// Those that are old enough to be booked.
async fn judge(
    ground: &Ground<'_>,
    standing: &Standing,
    coins: &[Unspent],
) -> Result<Vec<(FindingRow, Outpoint)>, StoreError> {
    let key = standing.chain.key;
    let top = standing.booked_to();
    let old = coins.iter().filter(|coin| coin.height <= top);
    let paid: Vec<Paid> = old.map(|coin| paid(coin, coin.height)).collect();
    let booked = ground
        .store
        .apart(move |database| database.read(|tx| tx.booked(key, paid.clone())))
        .await?;
    let mut found = Vec::new();
    for (paid, booked) in booked {
        // Whose coin it spends is not known here: that it is own coin is believed.
        let kind = match judge_paid(&paid, &booked, true) {
            Some(FindingKind::Unbooked) => FindingKind::UnspentUnbooked,
            Some(kind) => kind,
            None => continue,
        };
        let row = FindingRow {
            pass: AuditPass::Unspent,
            ..held::row(standing, kind, &paid, &booked)
        };
        found.push((row, paid.outpoint));
    }
    Ok(found)
}

/// A coin as a payment in a block; of the block only the height is known.
fn paid(coin: &Unspent, height: u64) -> Paid {
    in_block(
        coin,
        TaggedBlock {
            height,
            hash: crate::rules::BlockHash([0; 32]),
        },
    )
}

/// A coin as a payment in its block.
pub(super) fn in_block(coin: &Unspent, at: TaggedBlock) -> Paid {
    Paid {
        at,
        outpoint: coin.outpoint,
        script: coin.script.clone(),
        asset: Asset::Native,
        amount: coin.amount,
        from: None,
        is_success: true,
    }
}
