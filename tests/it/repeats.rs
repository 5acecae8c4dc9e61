//! One story that holds every kind of event, told again and again: with a crash at each await, a failing
//! answer at each call, and every part fed more than once. It must end in the same books each time.

use crate::rig::{Rig, in_simulation, policy};
use crate::scripted::{World, script};
use creditd::store::{AddressKind, Backfill, Terms};
use std::time::Duration;

const CHAPTERS: usize = 9;

/// What happens in the world, chapter by chapter. Everything in it is the same each time it is told.
async fn tell(rig: &mut Rig, chapter: usize) {
    let (to, own) = (script(1), script(2));
    let elsewhere = script(900);
    let last = |rig: &Rig, back: usize| {
        let blocks = rig.best_chain();
        blocks[blocks.len() - 1 - back].clone()
    };
    match chapter {
        0 => {
            rig.watch(1).await;
            rig.add(AddressKind::Own, 2, "shop", "ignore").await;
            rig.extend(2);
        }
        1 => {
            let pay = rig.pay(&to, 5);
            rig.send(&pay);
            rig.send(&rig.spend(&[pay.outpoint(0)], &[(&elsewhere, 4)]));
        }
        2 => {
            let first = rig.chain.world().node().mempool[0].clone();
            rig.send(&rig.replace(&first, &to, 50));
        }
        3 => {
            let mempool = rig.chain.world().node().mempool.clone();
            let (hot, pay) = (rig.pay(&own, 9), rig.pay(&to, 7));
            let mut all: Vec<_> = mempool.iter().collect();
            all.extend([&hot, &pay]);
            rig.mine(&all);
            rig.mine(&[&rig.spend(&[hot.outpoint(0)], &[(&to, 8)])]);
        }
        4 => {
            rig.extend(3);
            rig.mine(&[&rig.pay(&to, 60)]);
        }
        5 => {
            // Six blocks go, seven come: one payment is lost to a rival, one moves, two are gone.
            let fork = last(rig, 6).hash();
            let lost = last(rig, 5).txs.clone();
            let rival = rig.replace(&lost[1], &to, 49);
            let at = rig.mine_on(fork, &[&rival]);
            let at = rig.mine_on(at, &[&lost[3]]);
            rig.go_to(rig.extend_on(at, 5));
            let mut world = rig.chain.world();
            world.nodes.iter_mut().for_each(|node| node.mempool.clear());
        }
        6 => {
            rig.watch(7).await;
            assert!(rig.ask_rescan(1, Backfill::All).await);
        }
        7 => {
            let ids: Vec<String> = rig.tables.deposits().into_values().map(|d| d.id).collect();
            rig.write(move |tx| ids.iter().try_for_each(|id| tx.hold(id, "chapter 7").map(drop)))
                .await;
        }
        _ => {
            let deposits = rig.tables.deposits().into_values();
            let ids: Vec<String> = deposits.filter(|d| d.height.is_some()).map(|d| d.id).collect();
            rig.write(move |tx| {
                ids.iter()
                    .try_for_each(|id| tx.release(id, "chapter 8").map(drop))
            })
            .await;
            rig.extend(1);
        }
    }
}

async fn rig() -> Rig {
    Rig::with(|settings| {
        settings.terms.policies = Terms::native(policy(&[(20, 1)], 3));
        settings.terms.evict_after_ms = 20_000;
    })
    .await
}

/// The books and what the merchant was told, without times.
fn books(rig: &Rig) -> (Vec<String>, Vec<String>) {
    let mut events = rig.tables.event_ids();
    events.sort();
    (rig.read(|tx| tx.agreed_projection()), events)
}

async fn told_once() -> (Vec<String>, Vec<String>) {
    let mut rig = rig().await;
    for chapter in 0..CHAPTERS {
        tell(&mut rig, chapter).await;
        rig.settle().await;
    }
    rig.wait(Duration::from_secs(35)).await;
    rig.compare();
    let kinds = rig.tables.events();
    for kind in [
        "deposit.seen",
        "deposit.replaced",
        "deposit.held",
        "deposit.released",
        "deposit.orphaned",
    ] {
        assert!(kinds.iter().any(|k| k == kind), "{kind} is not in the story");
    }
    for kind in ["credit.created", "credit.reversed", "credit.reinstated"] {
        assert!(kinds.iter().any(|k| k == kind), "{kind} is not in the story");
    }
    books(&rig)
}

/// N-loop: for each chapter a crash at the N-th await, until a chapter goes by without one.
#[test]
fn a_crash_at_any_await_changes_nothing() {
    in_simulation(async {
        let expected = told_once().await;
        let mut crashes = 0;
        for crashing in 0..CHAPTERS {
            for times in 0.. {
                let mut rig = rig().await;
                let mut is_crashed = false;
                for chapter in 0..CHAPTERS {
                    tell(&mut rig, chapter).await;
                    if chapter == crashing {
                        is_crashed = rig.crash_within(times).await;
                    }
                    rig.settle().await;
                }
                rig.wait(Duration::from_secs(35)).await;
                assert_eq!(books(&rig), expected, "chapter {crashing}, await {times}");
                crashes += usize::from(is_crashed);
                if !is_crashed {
                    break;
                }
            }
        }
        assert!(crashes > 40, "{crashes}");
    });
}

/// N-loop: the N-th answer of each chapter is an error.
#[test]
fn an_error_at_any_call_changes_nothing() {
    in_simulation(async {
        let expected = told_once().await;
        let mut failures = 0;
        for failing in 0..CHAPTERS {
            for nth in (1..).step_by(1 + failing % 2) {
                let mut rig = rig().await;
                let mut is_met = false;
                for chapter in 0..CHAPTERS {
                    tell(&mut rig, chapter).await;
                    let calls = rig.chain.world().node().calls;
                    if chapter == failing {
                        rig.chain.world().node().faults.fails = [calls + nth].into();
                    }
                    rig.settle().await;
                    is_met |= chapter == failing && rig.chain.world().node().calls >= calls + nth;
                }
                rig.wait(Duration::from_secs(35)).await;
                assert_eq!(books(&rig), expected, "chapter {failing}, call {nth}");
                failures += usize::from(is_met);
                if !is_met {
                    break;
                }
            }
        }
        assert!(failures > 40, "{failures}");
    });
}

/// After each chapter everything is asked for once, twice, three times more.
#[test]
fn what_is_fed_again_changes_nothing() {
    in_simulation(async {
        let expected = told_once().await;
        for times in 1..=3 {
            let mut rig = rig().await;
            for chapter in 0..CHAPTERS {
                tell(&mut rig, chapter).await;
                rig.settle().await;
                for _ in 0..times {
                    rig.reopen().await;
                    let (key, tip) = (rig.key, rig.tables.count("SELECT cursor_height FROM chains"));
                    let ask = move |tx: &mut creditd::store::WriteTx<'_>| {
                        tx.ask_rescan(key, tip as u64 / 2, &Backfill::Nothing, "again")
                    };
                    let _ = rig.store().write(ask).await;
                    rig.settle().await;
                }
            }
            rig.wait(Duration::from_secs(35)).await;
            assert_eq!(books(&rig), expected, "{times} times more");
            rig.compare();
        }
    });
}

/// Nobody listened while it was told: the books are the same, the story is shorter.
#[test]
fn who_slept_through_the_story_has_the_same_books() {
    in_simulation(async {
        let mut awake = rig().await;
        for chapter in 0..6 {
            tell(&mut awake, chapter).await;
            awake.settle().await;
        }
        let (chain, clock, settings) = (awake.chain.clone(), awake.clock, awake.settings.clone());
        let mut asleep = Rig::on(chain, clock, settings).await;
        tell(&mut asleep, 0).await;
        asleep.extend(8);
        for rig in [&mut awake, &mut asleep] {
            rig.settle().await;
            rig.compare();
        }
        assert_eq!(books(&awake).0, books(&asleep).0);
        assert!(books(&awake).1.len() > books(&asleep).1.len());
        let World { nodes, .. } = &*awake.chain.world();
        assert_eq!(nodes.len(), 2);
    });
}
