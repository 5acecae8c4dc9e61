//! Reorgs deeper than what we hold, and the operator's word about them.

use crate::rig::{Rig, in_simulation};
use crate::scripted::Hook;

/// Thirty blocks are lost under a window of twenty: halt, no effect, and the operator's word undoes exactly
/// what is above the height that he names.
#[test]
fn a_reorg_past_the_window_halts_until_the_operator_accepts_it() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let a = rig.extend(3);
        let kept = rig.pay(&to, 1);
        let kept_block = rig.mine(&[&kept]);
        let (lost, moved) = (rig.pay(&to, 2), rig.pay(&to, 3));
        rig.mine(&[&lost]);
        rig.mine(&[&moved]);
        let ours = rig.extend(30);
        rig.settle().await;
        let fork = rig.mine_on(kept_block, &[&moved]);
        rig.go_to(rig.extend_on(fork, 40));
        rig.evict(&lost);
        let events = rig.tables.events();
        rig.rounds(20).await;
        assert!(rig.state().starts_with("reorg_too_deep"), "{}", rig.state());
        assert_eq!(rig.cursor(), Some(ours));
        let mut halted = events.clone();
        halted.push("chain.halted".to_owned());
        assert_eq!(rig.tables.events(), halted);
        let key = rig.key;
        rig.write(move |tx| tx.ask_reanchor(key, 4, "the network reorganised"))
            .await;
        rig.settle().await;
        assert_eq!(rig.state(), "following");
        assert_eq!(rig.tables.journal(&kept.outpoint(0)), ["credit"]);
        assert_eq!(
            rig.tables.journal(&lost.outpoint(0)),
            ["credit", "reversal:orphaned"]
        );
        let last = rig.tables.journal(&moved.outpoint(0));
        assert_eq!(last.last().unwrap(), "reinstatement");
        rig.compare();
        assert!(rig.is_on_chain(&a));
    });
}

/// A-B-C / A-B'-C'-D', accepted at B while the chain moves on by itself: B is no block of ours when the node
/// comes back to it, and there is nothing left to accept.
#[test]
fn an_accepted_reorg_that_the_chain_overtook_wedges_nothing() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let a = rig.extend(3);
        let pay = rig.pay(&to, 5);
        let ours = rig.mine(&[&pay]);
        rig.extend(2);
        rig.settle().await;
        let theirs = rig.extend_on(a, 4);
        rig.chain.world().hook = Some(Hook {
            during: "tip",
            after: 0,
            run: {
                let (world, mut beside, key) = (rig.chain.clone(), rig.command(), rig.key);
                Box::new(move || {
                    world.world().all_go_to(theirs);
                    beside
                        .write(0, |tx| tx.ask_reanchor(key, 4, "too early"))
                        .unwrap();
                })
            },
        });
        rig.rounds(5).await;
        assert_eq!(rig.cursor(), Some(theirs));
        rig.go_to(rig.extend_on(ours, 6));
        rig.settle().await;
        assert_eq!(rig.state(), "following");
        assert_eq!(
            rig.tables
                .count("SELECT count(*) FROM reanchors WHERE state = 'asked'"),
            0
        );
        rig.compare();
    });
}

/// The operator accepts a reorg that there is none of: the node is on our branch, and nothing is taken back.
#[test]
fn accepting_a_reorg_on_a_chain_in_order_reverses_nothing() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let pay = rig.pay(&to, 5);
        rig.mine(&[&pay]);
        rig.extend(5);
        rig.settle().await;
        let events = rig.tables.events();
        let key = rig.key;
        rig.write(move |tx| tx.ask_reanchor(key, 0, "a mistake")).await;
        rig.settle().await;
        assert_eq!(rig.tables.events(), events);
        assert_eq!(
            rig.tables
                .count("SELECT count(*) FROM reanchors WHERE state = 'asked'"),
            0
        );
        rig.compare();
    });
}
