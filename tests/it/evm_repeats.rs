//! One story of an EVM chain with every kind of run, told again and again: with a crash at each await, a
//! failing answer at each call, everything fed more than once. It ends in the same books each time. And rows
//! that are spoilt on purpose: the check that is for them names each.

use crate::evm_rig::{TUSD, evm_with, flat, need, payer};
use crate::planted::spoil;
use crate::rig::{Rig, in_simulation};
use crate::scripted::{Block, Call, Finality, Tx, account};
use creditd::rules::policy::Requirement;
use creditd::store::{AddressKind, Backfill, WriteTx};
use std::sync::Arc;
use std::time::Duration;

const CHAPTERS: usize = 8;

/// What the teller remembers of the world.
#[derive(Default)]
struct Told {
    calls: Vec<(Call, Arc<Tx>)>,
}

impl Told {
    fn make(&mut self, rig: &Rig, call: Call) -> Arc<Tx> {
        let tx = rig.make(&call);
        self.calls.push((call, tx.clone()));
        tx
    }
}

fn block(rig: &Rig, height: usize) -> Arc<Block> {
    rig.best_chain()[height].clone()
}

/// Every block is safe, and final three blocks later.
const NEAR: Finality = Finality::Below {
    safe: 0,
    finalized: 3,
};

/// What happens in the world, chapter by chapter. Everything in it is the same each time it is told.
async fn tell(rig: &mut Rig, told: &mut Told, chapter: usize) {
    let (to, other) = (account(1), account(3));
    match chapter {
        0 => {
            rig.watch(1).await;
            rig.add(AddressKind::Own, 2, "shop", "ignore").await;
            rig.add(AddressKind::Watch, 3, "bank", "hold").await;
            rig.finality(NEAR);
            rig.extend(3);
        }
        1 => {
            for amount in [5, 6, 7] {
                let call = payer(rig).value(&to, amount).log(0, TUSD, &other, amount);
                rig.send(&told.make(rig, call));
            }
        }
        2 => {
            // One is replaced, one is mined, one fails.
            let rival = told.calls[0].0.emptied().value(&account(900), 1);
            let rival = told.make(rig, rival);
            rig.send(&rival);
            rig.mine(&[&told.calls[1].1.clone(), &told.calls[2].1.failed()]);
            rig.extend(1);
        }
        3 => {
            let swap = Call::new(&account(2), 1).log_from(4, TUSD, &account(77), &to, 9);
            let token = payer(rig).log(7, TUSD, &to, 50);
            let (swap, token) = (told.make(rig, swap), told.make(rig, token));
            rig.mine(&[&swap, &token]);
            rig.extend(4);
        }
        4 => {
            // Six blocks go, seven come. What was final then is not any more, so an operator is asked.
            let (fork, length) = (block(rig, 5).hash(), rig.best_chain().len() - 6);
            let (call, token) = told.calls[5].clone();
            let less = call.changed(1, 0, &to).again(&token);
            let shifted = told.calls[4].0.changed(0, 0, &to).again(&told.calls[4].1);
            let at = rig.mine_on(fork, &[&less, &shifted]);
            rig.go_to(rig.extend_on(at, length));
            rig.mempools_forget();
            rig.wait(Duration::from_secs(12)).await;
            let key = rig.key;
            let ask = move |tx: &mut WriteTx<'_>| tx.ask_reanchor(key, 5, "chapter 4").map(drop);
            let _ = rig.store().write(ask).await;
        }
        5 => {
            let ids: Vec<String> = rig.tables.deposits().into_values().map(|d| d.id).collect();
            rig.write(move |tx| {
                ids.iter().for_each(|id| drop(tx.release(id, "chapter 5")));
                Ok(())
            })
            .await;
            rig.extend(5);
        }
        6 => {
            // The tip runs again, and fails what it held.
            let late = payer(rig).value(&to, 3);
            let late = told.make(rig, late);
            let fork = rig.tip();
            rig.mine(&[&late]);
            rig.settle().await;
            let at = rig.mine_on(fork, &[&late.failed()]);
            rig.go_to(rig.extend_on(at, 1));
        }
        _ => {
            rig.watch(900).await;
            assert!(rig.ask_rescan(1, Backfill::All).await);
            rig.extend(4);
        }
    }
}

async fn rig() -> Rig {
    evm_with(2, |settings| {
        need(settings, &flat(Requirement::Finalized));
        settings.terms.evict_after_ms = 20_000;
        settings.fork_patience = Some(Duration::from_secs(5));
    })
    .await
}

/// The books and what the merchant was told, without times.
fn books(rig: &Rig) -> (Vec<String>, Vec<String>) {
    let mut events = rig.tables.event_ids();
    events.sort();
    (rig.read(|tx| tx.agreed_projection()), events)
}

async fn told_once() -> Rig {
    let (mut rig, mut told) = (rig().await, Told::default());
    for chapter in 0..CHAPTERS {
        tell(&mut rig, &mut told, chapter).await;
        rig.settle().await;
    }
    rig.wait(Duration::from_secs(35)).await;
    rig.compare_evm();
    rig
}

#[test]
fn the_story_of_an_evm_chain_holds_every_kind_of_run() {
    in_simulation(async {
        let rig = told_once().await;
        let kinds = rig.tables.kinds();
        for kind in [
            "credit.created",
            "credit.reversed",
            "deposit.failed",
            "deposit.held",
            "deposit.orphaned",
            "deposit.released",
            "deposit.replaced",
            "deposit.seen",
            "mixed",
        ] {
            assert!(kinds.contains(kind), "{kind} is not in the story: {kinds:?}");
        }
        let reruns = "SELECT count(*) FROM audit a JOIN outputs o ON o.id = a.output \
                      WHERE o.vout >= 1099511627776 AND a.to_state = 'credited'";
        assert_eq!(rig.tables.count(reruns), 1);
    });
}

/// N-loop: for each chapter a crash at the N-th await, until a chapter goes by without one.
#[test]
fn a_crash_at_any_await_of_an_evm_chain_changes_nothing() {
    in_simulation(async {
        let expected = books(&told_once().await);
        let mut crashes = 0;
        for crashing in 0..CHAPTERS {
            for times in 0.. {
                let (mut rig, mut told) = (rig().await, Told::default());
                let mut is_crashed = false;
                for chapter in 0..CHAPTERS {
                    tell(&mut rig, &mut told, chapter).await;
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

/// After each chapter everything is asked for once, twice, three times more.
#[test]
fn what_is_fed_again_changes_nothing_on_an_evm_chain() {
    in_simulation(async {
        let expected = books(&told_once().await);
        for times in 1..=3 {
            let (mut rig, mut told) = (rig().await, Told::default());
            for chapter in 0..CHAPTERS {
                tell(&mut rig, &mut told, chapter).await;
                rig.settle().await;
                for _ in 0..times {
                    rig.reopen().await;
                    let key = rig.key;
                    let ask = move |tx: &mut WriteTx<'_>| tx.ask_rescan(key, 1, &Backfill::Nothing, "again");
                    let _ = rig.store().write(ask).await;
                    rig.settle().await;
                }
            }
            rig.wait(Duration::from_secs(35)).await;
            assert_eq!(books(&rig), expected, "{times} times more");
        }
    });
}

/// What is spoilt, and what the check that is for it says.
const PLANTED: &[(&str, &str)] = &[
    (
        "UPDATE deposits SET state = 'credited' WHERE output IN \
         (SELECT id FROM outputs WHERE tx = (SELECT tx FROM outputs WHERE vout >= 1099511627776))",
        "2 credited executions",
    ),
    (
        "UPDATE deposits SET held_reason = NULL, held_at = NULL WHERE held_reason = 'reexecuted'",
        "an earlier content of its position was credited",
    ),
    ("UPDATE chains SET finalized_height = 1000", "final up to 1000"),
    ("UPDATE chains SET safe_height = 1000", "safe up to 1000"),
    ("UPDATE chains SET finalized_height = 1", "which is not finalized"),
    (
        "DELETE FROM headers WHERE height = (SELECT finalized_height FROM chains)",
        "final up to",
    ),
    (
        "UPDATE deposits SET height = height + 1 WHERE state = 'failed'",
        "it is failed at height",
    ),
    (
        "UPDATE deposits SET state = 'evicted' WHERE state = 'orphaned'",
        "it is evicted at height none",
    ),
];

#[test]
fn every_check_of_evm_chains_finds_what_it_is_for() {
    let rig = in_simulation(async {
        let mut rig = evm_with(1, |settings| need(settings, &flat(Requirement::Finalized))).await;
        let to = rig.watch(1).await;
        let below = rig.extend(3);
        rig.finality(Finality::Below {
            safe: 0,
            finalized: 2,
        });
        let kept = rig.pay_coin(&to, 5);
        rig.mine(&[&kept]);
        let fork = rig.tip();
        let (call, failing) = (payer(&rig), rig.pay_coin(&to, 6));
        let tx = rig.make(&call.clone().log(7, TUSD, &to, 50));
        rig.send(&failing);
        rig.settle().await;
        rig.mine(&[&tx, &failing.failed()]);
        rig.extend(3);
        rig.settle().await;
        // Final, credited, and left with an operator's word.
        let less = call.log(7, TUSD, &to, 45).again(&tx);
        let at = rig.mine_on(fork, &[&less, &failing.failed()]);
        rig.go_to(rig.extend_on(at, 5));
        rig.wait(Duration::from_secs(700)).await;
        let key = rig.key;
        rig.write(move |tx: &mut WriteTx<'_>| tx.ask_reanchor(key, 4, "test"))
            .await;
        rig.settle().await;
        rig.compare_evm();
        assert!(rig.is_on_chain(&below));
        rig
    });
    for (sql, says) in PLANTED {
        let found = spoil(&rig, sql);
        assert!(
            found.iter().any(|violation| violation.what.contains(says)),
            "{sql}: {found:#?}"
        );
    }
}
