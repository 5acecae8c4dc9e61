//! The same of everything else that a node is asked: the tip, headers, who it is, balances, the pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use creditd::chain::evm::{EvmSource, Inner};
use creditd::chain::{ChainSource as _, HeaderInfo, Identity, NodeTip, SourceError};
use creditd::rules::{Amount, HeldHeader, MempoolList, Script, TaggedBlock};

use super::mode;
use super::mutate::{Change, mutate};
use super::world::{Repeater, World, source};
use crate::dice::Dice;
use crate::properties::number;
use crate::rig::in_simulation;

#[derive(Debug)]
enum Said {
    Tip(NodeTip),
    Headers(Vec<HeldHeader>),
    Header(Option<HeaderInfo>),
    Identity(Identity),
    Balances(Vec<Option<Amount>>),
    Pool(Option<MempoolList>),
}

const QUESTIONS: usize = 6;

async fn ask(source: &EvmSource<Repeater>, world: &World, question: usize) -> Result<Said, SourceError> {
    let script = |place: usize| Script(world.ours[place].0.into());
    let asked = [(world.block, script(0)), (world.block, script(1))];
    Ok(match question {
        0 => Said::Tip(source.tip().await?),
        1 => Said::Headers(source.headers(0, 4).await?),
        2 => Said::Header(source.header(world.block).await?),
        3 => Said::Identity(source.identity().await?),
        4 => Said::Balances(source.balances(&asked).await?),
        _ => Said::Pool(source.mempool(&world.index()).await?),
    })
}

fn check(truth: &Said, now: &Said, changes: &[Change]) -> Option<&'static str> {
    let is_false = match (truth, now) {
        (Said::Tip(truth), Said::Tip(now)) => {
            let is = |now: Option<TaggedBlock>, truth| now.is_none() || now == truth;
            let tags = is(now.tags.safe, truth.tags.safe) && is(now.tags.finalized, truth.tags.finalized);
            let place = (now.hash, now.height, now.time_secs) == (truth.hash, truth.height, truth.time_secs);
            !(tags && place && (now.is_syncing || now.headers == truth.headers))
        }
        (Said::Headers(truth), Said::Headers(now)) => !truth.starts_with(now),
        (Said::Header(Some(truth)), Said::Header(now)) => now.is_some_and(|now| now.held != truth.held),
        (Said::Identity(truth), Said::Identity(now)) => {
            (&now.chain, now.genesis) != (&truth.chain, truth.genesis)
        }
        (Said::Balances(truth), Said::Balances(now)) => {
            let mut pairs = truth.iter().zip(now);
            now.len() != truth.len() || pairs.any(|(truth, now)| now.is_some() && now != truth)
        }
        (Said::Pool(_), Said::Pool(None)) => false,
        (Said::Pool(Some(truth)), Said::Pool(Some(now))) => return check_pool(truth, now, changes),
        _ => true,
    };
    is_false.then_some("it is not so")
}

fn check_pool(truth: &MempoolList, now: &MempoolList, changes: &[Change]) -> Option<&'static str> {
    let is_gone = truth.listed.iter().any(|txid| !now.listed.contains(txid));
    // A whole entry that is left out is missed by nobody.
    let lost =
        |change: &Change| change.field.starts_with("0x") || ["queued", "garbled"].contains(&&*change.field);
    if now.is_complete && is_gone && !changes.iter().any(lost) {
        return Some("one that is there counts as gone");
    }
    if now.tip != truth.tip || now.listed.iter().any(|txid| !truth.listed.contains(txid)) {
        return Some("one is new in the pool");
    }
    for tx in &now.txs {
        let known = truth.txs.iter().find(|known| known.txid == tx.txid);
        let paid = |outputs: &[creditd::rules::CandidateOutput]| {
            let paid = outputs
                .iter()
                .map(|one| (one.vout, one.script.clone(), one.asset, one.amount));
            paid.collect::<Vec<_>>()
        };
        if known.is_none_or(|known| !paid(&known.outputs).starts_with(&paid(&tx.outputs))) {
            return Some("it pays something else");
        }
    }
    None
}

#[test]
fn whatever_else_a_node_says_with_changes_is_true_or_refused() {
    let mode = mode("others", Some(Inner::Unseen));
    let mut faults = Vec::new();
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    in_simulation(async {
        let world = Arc::new(World::new(false));
        let mut truths = Vec::new();
        for question in 0..QUESTIONS {
            let dial = Repeater::new(&world, mode);
            let truth = ask(&source(&dial, mode), &world, question).await.unwrap();
            let asked = std::mem::take(&mut dial.said().asked);
            truths.push((truth, asked));
        }
        assert!(matches!(&truths[5].0, Said::Pool(Some(pool)) if pool.is_complete && pool.txs.len() == 1));
        assert_eq!(world.height(), 6);
        let first = number("CREDITD_SEED", 1);
        for seed in first..first + number("CREDITD_SEEDS", 1_200) {
            let mut dice = Dice::new(seed);
            let question = dice.roll(QUESTIONS);
            let (truth, asked) = &truths[question];
            let dial = Repeater::new(&world, mode);
            let keys: Vec<&String> = asked.keys().collect();
            let mut changes = Vec::new();
            for _ in 0..1 + dice.roll(3) {
                let key = keys[dice.roll(keys.len())];
                let (method, _) = key.split_once(' ').unwrap();
                let (text, change) = mutate(&mut dice, method, &asked[key], &[]);
                dial.said().instead.insert(key.clone(), text);
                changes.push(change);
            }
            let fault = match ask(&source(&dial, mode), &world, question).await {
                Ok(now) => {
                    *outcomes.entry("told").or_default() += 1;
                    check(truth, &now, &changes).map(|fault| format!("{fault}: {now:?}"))
                }
                Err(_) => {
                    *outcomes.entry("refused").or_default() += 1;
                    None
                }
            };
            faults.extend(fault.map(|fault| format!("seed {seed}: {fault}\n    {changes:?}")));
        }
    });
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
}
