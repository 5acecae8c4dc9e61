//! Finality tags: what they make due, which of them count, and what they keep.

use crate::evm_rig::{TUSD, evm_with, flat, need, payer};
use crate::rig::{Rig, in_simulation, policy};
use crate::scripted::{Finality, World};
use creditd::follow::Start;
use creditd::rules::policy::Requirement;
use creditd::rules::policy::Requirement::{Confirmations, Finalized, Safe};
use creditd::rules::{BlockHash, TaggedBlock, Tags};
use creditd::store::{AddressKind, Backfill, WriteTx};
use std::time::Duration;

async fn needing(tag: Requirement) -> Rig {
    evm_with(2, |settings| need(settings, &flat(tag))).await
}

fn headers(rig: &Rig) -> i64 {
    rig.tables.count("SELECT count(*) FROM headers")
}

#[test]
fn a_payment_is_credited_when_its_block_has_the_tag() {
    in_simulation(async {
        for tag in [Safe, Finalized] {
            let mut rig = needing(tag).await;
            let to = rig.watch(1).await;
            let below = rig.extend(3);
            let pay = rig.make(&payer(&rig).value(&to, 5).log(0, TUSD, &to, 6));
            let block = rig.mine(&[&pay]);
            rig.extend(30);
            rig.says(Some(below), Some(below));
            rig.settle().await;
            rig.compare_evm();
            assert_eq!(
                rig.deposit_state(&pay.outpoint(0)),
                "confirming",
                "however deep it is"
            );
            match tag {
                Safe => rig.says(Some(block), Some(below)),
                _ => rig.says(Some(below), Some(block)),
            }
            rig.rounds(3).await;
            rig.compare_evm();
            for at in [pay.outpoint(0), pay.log(0, 0)] {
                assert_eq!(rig.tables.journal(&at), ["credit"]);
                assert_eq!(rig.tables.deposit(&at).due, Some(4));
            }
            let named = "SELECT count(*) FROM journal WHERE due_hash = block_hash AND due_height = 4 \
                         AND tag IS NOT NULL";
            assert_eq!(rig.tables.count(named), 2);
        }
    });
}

#[test]
fn tags_that_say_nothing_of_our_chain_are_ignored() {
    in_simulation(async {
        let mut rig = needing(Finalized).await;
        let to = rig.watch(1).await;
        let below = rig.extend(5);
        let pay = rig.pay_coin(&to, 5);
        let block = rig.mine(&[&pay]);
        rig.extend(4);
        rig.says(Some(below), Some(below));
        rig.settle().await;
        assert_eq!(rig.accepted(), (Some(5), Some(5)));
        let elsewhere = rig.extend_on(below, 3);
        let above = TaggedBlock {
            height: 500,
            hash: BlockHash([7; 32]),
        };
        let lower = rig.best_chain()[2].hash();
        let lies = [
            Some(rig.tagged(elsewhere)),
            Some(above),
            Some(rig.tagged(lower)),
            None,
        ];
        for lie in lies {
            let tags = Tags {
                safe: lie,
                finalized: lie,
            };
            rig.finality(Finality::Says(tags));
            rig.rounds(5).await;
            assert_eq!(rig.accepted(), (Some(5), Some(5)), "{lie:?}");
            assert_eq!(rig.deposit_state(&pay.outpoint(0)), "confirming");
        }
        // Two nodes, one of which lags.
        rig.finality(Finality::Says(Tags {
            safe: None,
            finalized: Some(rig.tagged(lower)),
        }));
        {
            let mut world = rig.chain.world();
            world.alternates = true;
            let tagged = TaggedBlock {
                height: 6,
                hash: block,
            };
            world.nodes[1].finality = Finality::Says(Tags {
                safe: Some(tagged),
                finalized: Some(tagged),
            });
        }
        rig.rounds(9).await;
        assert_eq!(rig.accepted(), (Some(6), Some(6)));
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        rig.compare_evm();
    });
}

/// What was safe can be undone; what is there then is not safe yet.
#[test]
fn a_reorg_below_the_safe_block_lowers_it() {
    in_simulation(async {
        let mut rig = needing(Safe).await;
        let to = rig.watch(1).await;
        let below = rig.extend(5);
        let (pay, other) = (rig.pay_coin(&to, 5), rig.pay_coin(&to, 6));
        let block = rig.mine(&[&pay]);
        rig.says(Some(block), None);
        rig.settle().await;
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        let at = rig.mine_on(below, &[&other]);
        rig.go_to(rig.extend_on(at, 1));
        rig.mempools_forget();
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.accepted().0, Some(5));
        assert_eq!(rig.deposit_state(&pay.outpoint(0)), "orphaned");
        assert_eq!(rig.deposit_state(&other.outpoint(0)), "confirming");
        rig.says(Some(at), None);
        rig.settle().await;
        assert_eq!(rig.deposit_state(&other.outpoint(0)), "credited");
    });
}

/// Fast finality: an ordinary reorg above the final block is one; a branch without it is held, then halted,
/// and an operator may take it. What is on it then is not final because the old one was.
#[test]
fn a_branch_without_our_final_block_is_for_the_operator() {
    in_simulation(async {
        let mut rig = needing(Finalized).await;
        let to = rig.watch(1).await;
        let below = rig.extend(5);
        rig.finality(Finality::Below {
            safe: 1,
            finalized: 2,
        });
        let (pay, other) = (rig.pay_coin(&to, 5), rig.pay_coin(&to, 6));
        let block = rig.mine(&[&pay]);
        rig.extend(2);
        rig.settle().await;
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        // At the final block: an ordinary reorg.
        rig.go_to(rig.extend_on(block, 3));
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.state(), "following");
        let ours = rig.tip();
        // Below it: not taken, however high.
        let last = rig.accepted().1.unwrap();
        let at = rig.mine_on(below, &[&other]);
        let theirs = rig.extend_on(at, 6);
        rig.go_to(theirs);
        rig.mempools_forget();
        rig.wait(Duration::from_secs(500)).await;
        assert!(rig.state().starts_with("behind"), "{}", rig.state());
        let said = rig.state();
        assert!(said.contains("leaves out our final block"), "{said}");
        assert!(said.contains("every node has served for 600 s"), "{said}");
        assert!(!said.contains("no better"), "{said}");
        assert_eq!(rig.cursor(), Some(ours));
        rig.wait(Duration::from_secs(200)).await;
        assert!(rig.state().starts_with("reorg_too_deep"), "{}", rig.state());
        assert!(rig.state().contains("without our final block"), "{}", rig.state());
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        assert_eq!(rig.accepted().1, Some(last));
        // The new branch is not final yet.
        rig.finality(Finality::Says(Tags::default()));
        let key = rig.key;
        rig.write(move |tx: &mut WriteTx<'_>| tx.ask_reanchor(key, 5, "they have gone"))
            .await;
        rig.rounds(10).await;
        assert_eq!(rig.cursor(), Some(theirs));
        assert_eq!(rig.accepted().1, Some(5));
        assert_eq!(
            rig.tables.journal(&pay.outpoint(0)),
            ["credit", "reversal:orphaned"]
        );
        assert_eq!(rig.deposit_state(&other.outpoint(0)), "confirming");
        assert!(rig.state().starts_with("finality_stalled"), "{}", rig.state());
        rig.finality(Finality::Below {
            safe: 0,
            finalized: 2,
        });
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.state(), "following");
        assert_eq!(rig.deposit_state(&other.outpoint(0)), "credited");
    });
}

/// The window reaches down to the final block: headers above it are kept, restarts included, a reorg of that
/// depth is an ordinary one, and what becomes final is forgotten.
#[test]
fn what_is_not_final_can_be_undone() {
    in_simulation(async {
        for start in [Start::Height(1), Start::Tip] {
            let mut rig = evm_with(2, |settings| settings.start = start).await;
            let last = rig.extend(10);
            rig.says(Some(last), Some(last));
            if start == Start::Tip {
                rig.extend(50);
                rig.settle().await;
            }
            let to = rig.watch(1).await;
            let fork = rig.extend(5);
            let (kept, lost) = (rig.pay_coin(&to, 5), rig.pay_coin(&to, 6));
            rig.mine(&[&kept, &lost]);
            rig.extend(if start == Start::Tip { 0 } else { 50 });
            rig.extend(3);
            rig.settle().await;
            let tip = rig.best_chain().len() as i64 - 1;
            let held = |rig: &Rig| {
                rig.tables
                    .count("SELECT count(*) FROM headers WHERE height >= 10")
            };
            assert_eq!(held(&rig), tip - 9, "{start:?}");
            rig.reopen().await;
            assert_eq!(held(&rig), tip - 9, "{start:?}: after a restart");
            let lowest = if start == Start::Tip { last } else { fork };
            let at = rig.extend_on(lowest, 5);
            let at = rig.mine_on(at, &[&kept]);
            rig.go_to(rig.extend_on(at, 60));
            rig.mempools_forget();
            rig.settle().await;
            rig.compare_evm();
            assert_eq!(rig.state(), "following");
            assert_eq!(rig.deposit_state(&kept.outpoint(0)), "credited");
            assert_eq!(rig.deposit_state(&lost.outpoint(0)), "orphaned");
            let tip = rig.best_chain().len() as u64 - 1;
            let near = rig.best_chain()[tip as usize - 2].hash();
            rig.says(None, Some(near));
            rig.extend(1);
            rig.settle().await;
            // Of what is below the window: genesis, the block of the payment, the one at its due height, and
            // where it started.
            assert!(headers(&rig) <= 21 + 4, "{start:?}: {}", headers(&rig));
            rig.compare_evm();
        }
    });
}

/// A chain that is read from far below its final block keeps what is above it from the start.
#[test]
fn catching_up_keeps_what_is_not_final() {
    in_simulation(async {
        let mut rig = evm_with(2, |settings| settings.terms.reorg_window = 5).await;
        rig.extend(200);
        rig.finality(Finality::Below {
            safe: 0,
            finalized: 90,
        });
        rig.settle().await;
        assert_eq!(rig.accepted(), (Some(200), Some(110)));
        assert_eq!(
            rig.tables
                .count("SELECT count(*) FROM headers WHERE height >= 110"),
            91
        );
        let fork = rig.best_chain()[115].hash();
        rig.go_to(rig.extend_on(fork, 90));
        rig.settle().await;
        assert_eq!(rig.state(), "following");
        rig.compare_evm();
    });
}

/// A reorg below the configured window meets a payment that was mined there, and sees what became of it.
#[test]
fn a_reorg_below_the_window_knows_what_was_there() {
    in_simulation(async {
        let mut rig = evm_with(2, |settings| settings.terms.reorg_window = 5).await;
        let to = rig.watch(1).await;
        let last = rig.extend(5);
        rig.says(None, Some(last));
        let call = payer(&rig);
        let (pay, failing) = (rig.make(&call.clone().value(&to, 5)), rig.pay_coin(&to, 6));
        let rival = rig.make(&call.value(&crate::scripted::account(900), 5));
        rig.mine(&[&pay, &failing]);
        rig.extend(30);
        rig.settle().await;
        rig.reopen().await;
        let at = rig.mine_on(last, &[&rival, &failing.failed()]);
        rig.go_to(rig.extend_on(at, 31));
        rig.mempools_forget();
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.deposit_state(&pay.outpoint(0)), "replaced");
        assert_eq!(rig.deposit_state(&failing.outpoint(0)), "failed");
    });
}

#[test]
fn finality_that_stands_still_is_shown() {
    in_simulation(async {
        let mut rig = needing(Finalized).await;
        let five = rig.extend(5);
        rig.settle().await;
        assert!(
            rig.state().starts_with("finality_stalled the node tells of no"),
            "{}",
            rig.state()
        );
        rig.says(Some(five), Some(five));
        rig.settle().await;
        assert_eq!(rig.state(), "following");
        // Only the safe block goes on, and the two nodes do not agree on it.
        rig.chain.world().alternates = true;
        for _ in 0..8 {
            let tip = rig.extend(1);
            rig.says(Some(tip), Some(five));
            let three = rig.best_chain()[3].hash();
            let tagged = rig.tagged(three);
            rig.chain.world().nodes[1].finality = Finality::Says(Tags {
                safe: Some(tagged),
                finalized: Some(tagged),
            });
            rig.wait(Duration::from_secs(500)).await;
        }
        assert!(
            rig.state()
                .starts_with("finality_stalled the finalized block has stood at height 5"),
            "{}",
            rig.state()
        );
        rig.finality(Finality::Below {
            safe: 0,
            finalized: 1,
        });
        rig.rounds(5).await;
        assert_eq!(rig.state(), "following");
        let mut rig = needing(Safe).await;
        let ours = rig.extend(5);
        let elsewhere = rig.extend_on(rig.best_chain()[1].hash(), 3);
        rig.says(Some(elsewhere), None);
        rig.wait(Duration::from_secs(4_000)).await;
        assert!(rig.state().contains("not been one of ours"), "{}", rig.state());
        assert_eq!(rig.cursor(), Some(ours));
    });
}

#[test]
fn a_policy_is_edited_from_depth_to_tag_and_back() {
    in_simulation(async {
        let mut rig = needing(Confirmations(30)).await;
        let to = rig.watch(1).await;
        rig.extend(3);
        rig.finality(Finality::Below {
            safe: 0,
            finalized: 8,
        });
        let (old, young) = (rig.pay_coin(&to, 5), rig.pay_coin(&to, 6));
        rig.mine(&[&old]);
        rig.extend(5);
        rig.mine(&[&young]);
        rig.extend(4);
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.tables.count("SELECT count(*) FROM credits"), 0);
        need(&mut rig.settings, &flat(Finalized));
        rig.reopen().await;
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.deposit_state(&old.outpoint(0)), "credited");
        assert_eq!(rig.deposit_state(&young.outpoint(0)), "confirming");
        assert_eq!(rig.tables.deposit(&young.outpoint(0)).due, Some(10));
        need(&mut rig.settings, &policy(&[], 7));
        rig.reopen().await;
        rig.settle().await;
        assert_eq!(rig.deposit_state(&young.outpoint(0)), "confirming");
        assert_eq!(rig.tables.deposit(&young.outpoint(0)).due, Some(16));
        rig.extend(2);
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.deposit_state(&young.outpoint(0)), "credited");
        assert_eq!(rig.tables.journal(&old.outpoint(0)), ["credit"]);
    });
}

/// An address that is added late: of its past, what is final is credited, the rest when it is.
#[test]
fn a_backfill_credits_by_tags() {
    in_simulation(async {
        let mut rig = needing(Finalized).await;
        let to = crate::scripted::account(1);
        rig.extend(40);
        let (old, young) = (rig.pay_coin(&to, 5), rig.pay_coin(&to, 6));
        rig.mine(&[&old]);
        rig.extend(30);
        rig.mine(&[&young]);
        rig.extend(3);
        rig.finality(Finality::Below {
            safe: 0,
            finalized: 5,
        });
        rig.settle().await;
        rig.add(AddressKind::Watch, 1, "shop", "ignore").await;
        assert!(rig.ask_rescan(1, Backfill::All).await);
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.deposit_state(&old.outpoint(0)), "credited");
        assert_eq!(rig.deposit_state(&young.outpoint(0)), "confirming");
        rig.reopen().await;
        rig.extend(2);
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.deposit_state(&young.outpoint(0)), "credited");
        let World { nodes, .. } = &*rig.chain.world();
        assert_eq!(nodes.len(), 2);
    });
}
