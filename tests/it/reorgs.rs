//! Reorgs, as the real follower and store take them. Heights are written behind block names; ours is drawn
//! first.

use crate::rig::{Rig, in_simulation};
use crate::scripted::{Hook, World, script};
use std::time::Duration;

/// A-B..F / A-B'-C': a node that was restored from an old folder, on a branch that is not as good.
#[test]
fn worse_branch_reverses_nothing() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let a = rig.extend(3);
        let pay = rig.pay(&to, 5);
        rig.mine(&[&pay]);
        let good = rig.extend(4);
        rig.settle().await;
        let stale = rig.extend_on(a, 2);
        {
            let mut world = rig.chain.world();
            let World { tree, nodes, .. } = &mut *world;
            nodes[1].restore(tree, stale);
            world.current = 1;
        }
        let before = rig.projection();
        rig.rounds(50).await;
        assert!(rig.state().starts_with("behind"), "{}", rig.state());
        assert_eq!(rig.cursor(), Some(good));
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        rig.chain.world().current = 0;
        rig.settle().await;
        assert_eq!(rig.state(), "following");
        rig.compare();
        let moves = |lines: &[String]| lines.iter().filter(|l| !l.contains("action=\"state\"")).count();
        assert_eq!(
            moves(&before),
            moves(&rig.projection()),
            "nothing but states changed"
        );
    });
}

#[test]
fn an_equal_branch_is_taken_only_from_a_node_that_left_ours() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let a = rig.extend(3);
        let ours = rig.extend(2);
        rig.settle().await;
        let theirs = rig.extend_on(a, 2);
        {
            let mut world = rig.chain.world();
            let World { tree, nodes, .. } = &mut *world;
            nodes[1].restore(tree, theirs);
            world.current = 1;
        }
        rig.rounds(10).await;
        assert_eq!(rig.cursor(), Some(ours), "this node never heard of our tip");
        rig.chain.world().go_to(0, theirs);
        rig.chain.world().current = 0;
        rig.settle().await;
        assert_eq!(rig.cursor(), Some(theirs), "this node had our tip and left it");
        rig.compare();
    });
}

/// A-P-C-D-E / A-B'-..-G' / then back again: credit, reversal, reinstatement, once each.
#[test]
fn a_credit_follows_its_payment_out_of_the_chain_and_back() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let a = rig.extend(2);
        let pay = rig.pay(&to, 5);
        let at = pay.outpoint(0);
        let p = rig.mine(&[&pay]);
        let e = rig.extend(3);
        rig.settle().await;
        assert_eq!(rig.tables.journal(&at), ["credit"]);
        let g = rig.extend_on(a, 5);
        rig.go_to(g);
        // The nodes have it in their mempools again, but the reorg alone does not say so.
        rig.evict(&pay);
        rig.settle().await;
        assert_eq!(rig.tables.state(&at), "orphaned");
        assert_eq!(rig.tables.journal(&at), ["credit", "reversal:orphaned"]);
        rig.compare();
        rig.go_to(rig.extend_on(e, 2));
        rig.settle().await;
        rig.rounds(20).await;
        assert_eq!(
            rig.tables.journal(&at),
            ["credit", "reversal:orphaned", "reinstatement"]
        );
        rig.compare();
        assert_eq!(
            rig.tables.events(),
            [
                "deposit.confirming",
                "credit.created",
                "credit.reversed",
                "deposit.confirming",
                "credit.reinstated"
            ]
        );
        assert!(rig.is_on_chain(&p));
    });
}

/// A-P-C-D / A-B'-P'-D'-E': the same transaction one block later.
#[test]
fn a_credit_stands_when_its_transaction_moves_to_another_block() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let a = rig.extend(2);
        let pay = rig.pay(&to, 5);
        rig.mine(&[&pay]);
        rig.extend(2);
        rig.settle().await;
        let events = rig.tables.events();
        let b = rig.extend_on(a, 1);
        let p = rig.mine_on(b, &[&pay]);
        rig.go_to(rig.extend_on(p, 2));
        rig.settle().await;
        assert_eq!(
            rig.tables.events(),
            events,
            "nobody is told of a move that changes nothing"
        );
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        let deposit = rig.tables.deposit(&pay.outpoint(0));
        assert_eq!((deposit.height, deposit.due), (Some(4), Some(6)));
        rig.compare();
        // It leaves from there too, and then the credit goes.
        rig.go_to(rig.extend_on(b, 6));
        rig.evict(&pay);
        rig.settle().await;
        assert_eq!(
            rig.tables.journal(&pay.outpoint(0)),
            ["credit", "reversal:orphaned"]
        );
        rig.compare();
    });
}

/// A-P-C / A-B'-P'-D': not credited yet, so the merchant is told where it is now, once.
#[test]
fn an_uncredited_payment_that_moves_is_told_of_once() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let a = rig.extend(2);
        let pay = rig.pay(&to, 5);
        rig.mine(&[&pay]);
        rig.extend(1);
        rig.settle().await;
        let b = rig.extend_on(a, 1);
        let p = rig.mine_on(b, &[&pay]);
        rig.go_to(rig.extend_on(p, 1));
        rig.settle().await;
        assert_eq!(rig.tables.events(), ["deposit.confirming", "deposit.confirming"]);
        rig.compare();
    });
}

/// A-T1-C-D-E / A-T2-C'-D'-E'-F': one coin, paid to one address by two transactions.
#[test]
fn double_spend_by_reorg_to_the_same_address_is_paid_once() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let a = rig.extend(2);
        let first = rig.pay(&to, 5);
        let second = rig.replace(&first, &to, 5);
        rig.mine(&[&first]);
        rig.extend(3);
        rig.settle().await;
        let b = rig.mine_on(a, &[&second]);
        rig.go_to(b);
        rig.round().await;
        rig.go_to(rig.extend_on(b, 4));
        assert!(rig.crash(3).await);
        rig.settle().await;
        let (one, two) = (first.outpoint(0), second.outpoint(0));
        assert_eq!(rig.tables.journal(&one), ["credit", "reversal:replaced"]);
        assert_eq!(rig.tables.journal(&two), ["credit"]);
        let lost = rig.tables.deposit(&one);
        assert_eq!(
            (lost.state.as_str(), lost.replaced_by),
            ("replaced", Some(second.txid))
        );
        rig.compare();
    });
}

/// The payment's parent and the payment lie in one block that is lost; the new branch spends the parent's
/// coin. The payment was first seen in that block, so what it depends on must have been kept there.
#[test]
fn a_payment_is_replaced_when_the_new_branch_spends_its_ancestors_coin() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let elsewhere = script(900);
        let a = rig.extend(2);
        let grandparent = rig.pay(&elsewhere, 9);
        let parent = rig.spend(&[grandparent.outpoint(0)], &[(&elsewhere, 8)]);
        let pay = rig.spend(&[parent.outpoint(0)], &[(&to, 7)]);
        let rival = rig.replace(&grandparent, &elsewhere, 9);
        rig.mine(&[&grandparent, &parent, &pay]);
        rig.extend(3);
        rig.settle().await;
        let b = rig.mine_on(a, &[&rival]);
        rig.go_to(rig.extend_on(b, 4));
        rig.settle().await;
        let deposit = rig.tables.deposit(&pay.outpoint(0));
        assert_eq!(
            (deposit.state.as_str(), deposit.replaced_by),
            ("replaced", Some(rival.txid))
        );
        rig.compare();
    });
}

/// A-T1.. / A-T2.. / A-T1-..: whoever lost may win again.
#[test]
fn a_replacement_undone_by_a_reorg_is_paid_again() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let a = rig.extend(2);
        let first = rig.pay(&to, 5);
        let second = rig.replace(&first, &to, 6);
        let one = rig.mine_on(a, &[&first]);
        let two = rig.mine_on(a, &[&second]);
        let mut length = 3;
        for _ in 0..3 {
            for branch in [one, two] {
                length += 1;
                rig.go_to(rig.extend_on(branch, length));
                rig.settle().await;
                rig.compare();
            }
        }
        let kinds = rig.tables.journal(&first.outpoint(0));
        assert_eq!(kinds.len(), 6, "{kinds:?}");
        assert_eq!(rig.tables.journal(&second.outpoint(0)).len(), 5);
        let events = rig.tables.events().len();
        rig.rounds(40).await;
        assert_eq!(
            rig.tables.events().len(),
            events,
            "events come from blocks, not from polls"
        );
    });
}

/// A-B, then A-B'-...: the daemon starts at the tip B, and B is lost at once.
#[test]
fn the_block_that_a_chain_was_started_after_can_be_lost() {
    in_simulation(async {
        let mut rig = Rig::with(|settings| settings.start = creditd::follow::Start::Tip).await;
        let a = rig.extend(30);
        rig.extend(1);
        rig.round().await;
        let to = rig.watch(1).await;
        let pay = rig.pay(&to, 5);
        rig.send(&pay);
        rig.settle().await;
        let b = rig.mine_on(a, &[&pay]);
        rig.go_to(rig.extend_on(b, 3));
        rig.settle().await;
        assert_eq!(rig.state(), "following");
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
    });
}

/// A-B-C, an address is added, A-B-C'-D': the payment is in C', which stands at the height of C.
#[test]
fn a_payment_in_the_block_that_replaced_the_tip_is_found() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let b = rig.extend(4);
        rig.extend(2);
        rig.settle().await;
        let to = rig.watch(1).await;
        let pay = rig.pay(&to, 5);
        rig.send(&pay);
        rig.settle().await;
        assert_eq!(rig.tables.state(&pay.outpoint(0)), "seen");
        let c = rig.mine_on(b, &[&pay]);
        rig.go_to(rig.extend_on(c, 3));
        rig.settle().await;
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        rig.compare();
    });
}

/// Down for long after a tip that was lost: one block leaves, four hundred come, in transactions of bounded
/// size.
#[test]
fn a_long_new_branch_is_taken_in_bounded_steps() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let a = rig.extend(5);
        let pay = rig.pay(&to, 5);
        rig.mine(&[&pay]);
        rig.settle().await;
        let mut tip = rig.extend_on(a, 1);
        let mut paid = Vec::new();
        for _ in 0..8 {
            let pay = rig.pay(&to, 7);
            tip = rig.mine_on(tip, &[&pay]);
            tip = rig.extend_on(tip, 49);
            paid.push(pay.outpoint(0));
        }
        rig.go_to(tip);
        rig.evict(&pay);
        let (key, beside) = (rig.key, rig.command());
        let (tell, seen) = std::sync::mpsc::channel();
        rig.chain.world().hook = Some(Hook {
            during: "block",
            after: 200,
            run: Box::new(move || {
                let row = beside.read(|tx| tx.chain_by_key(key)).unwrap();
                tell.send(row.cursor.unwrap().height).unwrap();
            }),
        });
        rig.settle().await;
        rig.compare();
        assert!(paid.iter().all(|at| rig.tables.journal(at) == ["credit"]));
        let committed = seen.recv().unwrap();
        assert!(committed >= 64, "{committed} of 200 fetched blocks are committed");
    });
}

/// The filter keeps knowing what lies in blocks that are fetched and not yet committed: each batch of 64
/// holds a payment, which a block of the batch after it spends.
#[test]
fn a_spend_in_the_batch_after_its_coins_is_found_however_long_the_catch_up() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let (to, elsewhere) = (rig.watch(1).await, script(900));
        let mut tip = rig.extend_on(rig.tip(), 31);
        for _ in 0..7 {
            let pay = rig.pay(&to, 5);
            tip = rig.mine_on(tip, &[&pay]);
            tip = rig.extend_on(tip, 62);
            let spend = rig.spend(&[pay.outpoint(0)], &[(&elsewhere, 4)]);
            tip = rig.mine_on(tip, &[&spend]);
        }
        rig.go_to(tip);
        rig.settle().await;
        rig.compare();
    });
}

/// A-P-C-D-E with the headers of A-B'-..-J' known: what lies above A may go any moment.
#[test]
fn a_better_branch_known_by_its_headers_bars_credits_above_the_fork() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let early = rig.pay(&to, 3);
        let a = rig.mine(&[&early]);
        let pay = rig.pay(&to, 5);
        rig.mine(&[&pay]);
        rig.extend(1);
        rig.settle().await;
        let better = rig.extend_on(a, 9);
        {
            let mut world = rig.chain.world();
            world.nodes[0].headers_only.insert(better);
        }
        rig.extend(3);
        rig.wait(Duration::from_secs(20)).await;
        assert_eq!(
            rig.tables.state(&early.outpoint(0)),
            "credited",
            "below the fork nothing is in doubt"
        );
        assert_eq!(rig.tables.state(&pay.outpoint(0)), "confirming");
        // The branch turns out to be nothing: credited at once, without a new block.
        rig.chain.world().nodes[0].headers_only.clear();
        rig.settle().await;
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        rig.compare();
    });
}

/// The block at the due height is lost, the payment's own is not.
#[test]
fn a_credit_outlives_the_block_that_it_became_due_in() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let pay = rig.pay(&to, 5);
        let p = rig.mine(&[&pay]);
        rig.extend(2);
        rig.settle().await;
        assert_eq!(rig.tables.state(&pay.outpoint(0)), "credited");
        rig.go_to(rig.extend_on(p, 3));
        rig.settle().await;
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        rig.compare();
    });
}
