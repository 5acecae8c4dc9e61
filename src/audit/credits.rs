//! Every credit that counts, asked of the chain by its outpoint; and what should have been credited long ago.

use super::ground::{ASKED_AGAIN, Ground, Node, Standing, Stop};
use super::report::{ChainReport, Credits, unproven};
use super::unspent::in_block;
use super::{Told, Word, words};
use crate::chain::SourceError;
use crate::chain::bitcoin::{BitcoinSource, BlockAgain};
use crate::chain::evm::{Again, EvmSource};
use crate::egress::HttpDial;
use crate::rules::audit::{AuditPass, Claim, FindingKind, judge_credit};
use crate::rules::{BlockHash, Outpoint, Paid, TaggedBlock};
use crate::store::{AuditMark, ClaimRow, FindingRow, StoreError};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the pass.
const PASS: &str = "credits";

/// So many are asked for between two marks: at once, and one after the other.
const SLICE: u32 = 200;
const SLICE_EVM: u32 = 50;

/// What the node shows at an outpoint.
enum Shown {
    /// This, or nothing.
    Is(Option<Paid>),
    /// The same, by the set of unspent coins.
    IsUnspent(Paid),
    /// It cannot say, and why.
    Unproven(String),
}

/// What was found before and still counts, by credit.
type Known = BTreeMap<String, Vec<FindingRow>>;

/// What a look at some credits says.
#[derive(Default)]
struct Judged {
    suspects: Vec<FindingRow>,
    /// Credits that the node could not show.
    unproven: BTreeSet<String>,
}

/// Asks for all of them: first those that the last run, cut off, did not come to.
pub(super) async fn pass(
    ground: &Ground<'_>,
    node: &Node,
    report: &mut ChainReport,
    told: Told<'_>,
) -> Result<(), StoreError> {
    let mut credits = Credits::default();
    let ended = slices(ground, node, &mut credits, told).await;
    report.is_cut |= credits.is_cut;
    report.credits = Some(credits);
    report.note_end(ended)
}

async fn slices(ground: &Ground<'_>, node: &Node, credits: &mut Credits, told: Told<'_>) -> Result<(), Stop> {
    let first = ground.stand(node).await?;
    overdue(ground, node, &first).await?;
    let known = known(ground, &first).await?;
    let (key, top, wanted) = (first.chain.key, first.top, first.wanted);
    let (counts, mut mark) = ground
        .store
        .apart(move |database| {
            database.read(|tx| Ok((tx.claim_counts(key, top, wanted)?, tx.audit_mark(key, PASS)?)))
        })
        .await?;
    (credits.too_young, credits.beyond) = (counts.young, counts.above - counts.young);
    if ground.audit.scope.again {
        mark.place = 0;
    }
    let limit = match node {
        Node::Bitcoin(_) => SLICE,
        Node::Evm(_) => SLICE_EVM,
    };
    let began = ground.audit.clock.instant();
    let mut round = Round::new(mark.place, top);
    while !ground.is_over() {
        let standing = ground.stand(node).await?;
        let (place, top) = (i64::try_from(mark.place).unwrap_or(i64::MAX), standing.top);
        round.is_short |= top < round.top;
        let claims = ground
            .store
            .apart(move |database| database.read(|tx| tx.claims(key, place, top, limit)))
            .await?;
        let (claims, last) = round.of_it(claims);
        slice(ground, node, &standing, claims, &known, credits).await?;
        mark.place = match last {
            Some(last) => u64::try_from(last).unwrap_or_default(),
            None => 0,
        };
        if last.is_none() && standing.top == standing.wanted {
            mark.round_at = Some(ground.audit.clock.now_ms());
        }
        set_mark(ground, &standing, &mark).await?;
        if last.is_none() && (ground.audit.goes_on.is_some() || !round.begin_again()) {
            credits.is_whole = credits.beyond == 0 && round.is_whole();
            credits.has_ended = true;
            return Ok(());
        }
        let (alias, all) = (ground.config.alias(), counts.all);
        told(Word::Part {
            line: &format!("{alias} credits: {} of {all}", credits.checked),
            name: &format!("{alias} credits"),
            done: credits.checked,
            all,
            per_second: None,
        });
        ground
            .keep_pace(began, credits.checked - credits.by_unspent)
            .await;
    }
    credits.is_cut = true;
    Ok(())
}

/// One round through all credits: from where the last run was cut off to the last one, and then those before.
struct Round {
    /// The credit that the last run came to; 0 = it was through.
    began: i64,
    /// The highest block when it began.
    top: u64,
    /// Credits in the highest blocks may have been left out: the node went back.
    is_short: bool,
    is_second: bool,
}

impl Round {
    fn new(place: u64, top: u64) -> Round {
        Round {
            began: i64::try_from(place).unwrap_or(i64::MAX),
            top,
            is_short: false,
            is_second: false,
        }
    }

    /// What of these is to be asked for, and the place of the last.
    fn of_it(&self, mut claims: Vec<ClaimRow>) -> (Vec<Claim>, Option<i64>) {
        if self.is_second {
            claims.retain(|row| row.place <= self.began);
        }
        let last = claims.last().map(|row| row.place);
        (claims.into_iter().map(|row| row.claim).collect(), last)
    }

    /// True where those before are still to be asked for.
    fn begin_again(&mut self) -> bool {
        let is_due = self.began > 0 && !self.is_second;
        self.is_second |= is_due;
        is_due
    }

    fn is_whole(&self) -> bool {
        !self.is_short && (self.began == 0 || self.is_second)
    }
}

async fn set_mark(ground: &Ground<'_>, standing: &Standing, mark: &AuditMark) -> Result<(), StoreError> {
    let (key, mark) = (standing.chain.key, mark.clone());
    let set = ground.store.write(move |tx| tx.set_audit_mark(key, PASS, &mark));
    set.await
}

/// What was found about credits, by credit. Of those that count no more it is taken back at once.
async fn known(ground: &Ground<'_>, standing: &Standing) -> Result<Known, StoreError> {
    let mut known = Known::new();
    for row in ground.known_findings(&standing.chain, AuditPass::Credits).await? {
        let subject = row.subject.clone();
        match ground.store.read(move |tx| tx.claim_of(&subject)).await? {
            Some(_) => known.entry(row.subject.clone()).or_default().push(row),
            None => ground.clear(row).await?,
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
    known: &Known,
    credits: &mut Credits,
) -> Result<(), Stop> {
    credits.checked += claims.len() as u64;
    let Judged {
        mut suspects,
        unproven,
    } = judge(node, standing, &claims, credits).await?;
    for claim in &claims {
        // What could not be shown now was found all the same.
        if unproven.contains(&claim.id) {
            continue;
        }
        for row in known.get(&claim.id).into_iter().flatten() {
            let is_it = |suspect: &FindingRow| (suspect.kind, &suspect.subject) == (row.kind, &row.subject);
            if !suspects.iter().any(is_it) {
                ground.clear(row.clone()).await?;
            }
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
        suspects = judge(node, &standing, &claims, credits).await?.suspects;
    }
    ground.tell(suspects).await?;
    Ok(())
}

async fn judge(
    node: &Node,
    standing: &Standing,
    claims: &[Claim],
    credits: &mut Credits,
) -> Result<Judged, Stop> {
    let mut judged = Judged::default();
    for (claim, shown) in claims.iter().zip(show(node, claims).await?) {
        let is_unspent = matches!(shown, Shown::IsUnspent(_));
        let paid = match shown {
            Shown::Unproven(why) => {
                let (list, count) = (&mut credits.unproven, &mut credits.unproven_count);
                unproven(list, count, claim.id.clone(), why);
                judged.unproven.insert(claim.id.clone());
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
            Some(kind) => judged.suspects.push(FindingRow {
                chain: Some(standing.chain.key),
                pass: AuditPass::Credits,
                kind,
                subject: claim.id.clone(),
                height: Some(claim.height),
                what: words::of_credit(standing, kind, claim, paid.as_ref()),
                found_at: 0,
            }),
        }
    }
    Ok(judged)
}

/// What the node has at the outpoints of these claims, in their order.
async fn show(node: &Node, claims: &[Claim]) -> Result<Vec<Shown>, Stop> {
    match node {
        Node::Bitcoin(source) => show_coins(node, source, claims).await,
        Node::Evm(source) => show_receipts(node, source, claims).await,
    }
}

async fn show_receipts(
    node: &Node,
    source: &EvmSource<HttpDial>,
    claims: &[Claim],
) -> Result<Vec<Shown>, Stop> {
    let mut shown = Vec::with_capacity(claims.len());
    for claim in claims {
        let hash = match claim.hash {
            Some(hash) => Some(hash),
            None => node.hash_at(claim.height).await?,
        };
        let Some(hash) = hash else {
            shown.push(no_block(claim.height));
            continue;
        };
        let booked = TaggedBlock {
            height: claim.height,
            hash,
        };
        shown.push(match source.payment_again(claim.outpoint, booked).await {
            Ok(Again::Shown(paid)) => Shown::Is(Some(paid)),
            Ok(Again::Absent) => Shown::Is(None),
            Ok(Again::Unproven(why)) => Shown::Unproven(why),
            Err(error) => Shown::Unproven(node.alone(error).await?),
        });
    }
    Ok(shown)
}

fn no_block(height: u64) -> Shown {
    Shown::Unproven(format!("the node has no block at height {height}"))
}

async fn show_coins(
    node: &Node,
    source: &BitcoinSource<HttpDial>,
    claims: &[Claim],
) -> Result<Vec<Shown>, Stop> {
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
            shown.push(no_block(height));
            continue;
        };
        let at = TaggedBlock { height, hash };
        let coin = coin.map(|coin| in_block(&coin, at));
        if let Some(coin) = coin
            .as_ref()
            .filter(|coin| judge_credit(claim, Some(coin)).is_none())
        {
            shown.push(Shown::IsUnspent(coin.clone()));
            continue;
        }
        if block.as_ref().is_none_or(|block| block.at != at) {
            block = match source.read_again(at).await {
                Ok(read) => Some(read),
                // There is nothing to hold the coin against.
                Err(SourceError::Pruned { .. } | SourceError::MissingData(_)) if coin.is_some() => {
                    shown.push(Shown::Is(coin));
                    continue;
                }
                Err(error) => {
                    let why = node.alone(error).await?;
                    shown.push(Shown::Unproven(match coin {
                        Some(_) => why,
                        None => format!("it is spent, and {why}"),
                    }));
                    continue;
                }
            };
        }
        let paid = block.as_ref().and_then(|block| block.paid_at(claim.outpoint));
        shown.push(held_against(coin, paid));
    }
    Ok(shown)
}

/// The books are not blamed where a coin is another one than what its block pays.
fn held_against(coin: Option<Paid>, paid: Option<Paid>) -> Shown {
    match coin {
        Some(coin) if paid.as_ref() != Some(&coin) => Shown::Unproven(
            "the node contradicts itself: the unspent coin is not what its block pays".to_owned(),
        ),
        _ => Shown::Is(paid),
    }
}

/// What waits although it was due long ago, while the follower is at work.
async fn overdue(ground: &Ground<'_>, node: &Node, first: &Standing) -> Result<(), Stop> {
    let mut late = look(ground, first).await?;
    for row in ground.known_findings(&first.chain, AuditPass::Overdue).await? {
        // While nothing is followed nothing is late, and nothing is over.
        if first.is_following && !late.iter().any(|late| late.subject == row.subject) {
            ground.clear(row).await?;
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
        pass: AuditPass::Overdue,
        kind: FindingKind::Overdue,
        subject: deposit.id.clone(),
        height: None,
        what: words::of_waiting(standing, deposit),
        found_at: 0,
    };
    Ok(late.map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Amount, Asset, Script, Txid};

    fn row(place: i64) -> ClaimRow {
        ClaimRow {
            place,
            claim: Claim {
                id: format!("cr_{place}"),
                outpoint: Outpoint {
                    txid: Txid([0; 32]),
                    vout: 0,
                },
                script: Script([0; 2].into()),
                asset: Asset::Native,
                amount: Amount::from_u64(1),
                height: 1,
                hash: None,
            },
        }
    }

    /// What this run did not ask for may have been unproven in the one that did.
    #[test]
    fn a_round_that_goes_on_in_the_middle_is_whole_once_it_has_asked_for_those_before() {
        let mut round = Round::new(0, 9);
        assert!(
            round.is_whole() && !round.begin_again(),
            "from the first to the last"
        );
        let mut round = Round::new(5, 9);
        assert!(!round.is_whole());
        let places = |(claims, last): (Vec<Claim>, Option<i64>)| (claims.len(), last);
        assert_eq!(places(round.of_it(vec![row(6), row(8)])), (2, Some(8)));
        assert!(round.begin_again());
        assert_eq!(places(round.of_it(vec![row(2), row(5), row(6)])), (2, Some(5)));
        assert_eq!(places(round.of_it(vec![row(6), row(8)])), (0, None));
        assert!(round.is_whole() && !round.begin_again());
        round.is_short = true;
        assert!(!round.is_whole(), "the node went back meanwhile");
    }
}
