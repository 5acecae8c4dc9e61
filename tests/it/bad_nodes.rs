//! Nodes that fail, lag, prune, lie about nothing and know too little: the chain waits in a named state and
//! skips nothing.

use crate::rig::{Rig, in_simulation};
use crate::scripted::World;
use creditd::store::Backfill;
use std::time::Duration;

/// A block that pays, and what the node cannot give of it.
#[test]
fn a_gap_is_named_and_never_skipped() {
    in_simulation(async {
        for is_pruned in [true, false] {
            let mut rig = Rig::new().await;
            let to = rig.watch(1).await;
            rig.extend(3);
            rig.settle().await;
            let pay = rig.pay(&to, 5);
            let block = rig.mine(&[&pay]);
            rig.extend(10);
            {
                let mut world = rig.chain.world();
                let faults = &mut world.node().faults;
                if is_pruned {
                    faults.pruned_below = Some(9);
                } else {
                    faults.missing = [block].into();
                }
            }
            rig.rounds(30).await;
            let state = rig.state();
            if is_pruned {
                assert!(
                    state.starts_with("pruned_gap") && state.contains("4 to 8"),
                    "{state}"
                );
            } else {
                assert!(
                    state.starts_with("missing_data") && state.contains("4 to 14"),
                    "{state}"
                );
            }
            assert_eq!(rig.tables.count("SELECT cursor_height FROM chains"), 3);
            rig.chain.world().node().faults = Default::default();
            rig.settle().await;
            assert_eq!(rig.state(), "following");
            assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
            rig.compare();
        }
    });
}

/// A rescan asks a pruned node for what it no longer has: the tip goes on as if nothing had been asked.
#[test]
fn a_rescan_that_a_pruned_node_cannot_serve_stops_no_payment() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        rig.extend(30);
        rig.settle().await;
        rig.chain.world().node().faults.pruned_below = Some(20);
        let key = rig.key;
        rig.write(move |tx| tx.ask_rescan(key, 5, &Backfill::Nothing, "test"))
            .await;
        rig.rounds(10).await;
        let pay = rig.pay(&to, 5);
        rig.send(&pay);
        rig.rounds(5).await;
        assert_eq!(rig.tables.state(&pay.outpoint(0)), "seen");
        rig.mine(&[&pay]);
        rig.extend(2);
        rig.rounds(5).await;
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        let state = rig.state();
        assert!(state.starts_with("following rescan 1 waits: block"), "{state}");
        rig.chain.world().node().faults.pruned_below = None;
        rig.settle().await;
        assert_eq!(rig.state(), "following");
        rig.compare();
    });
}

#[test]
fn a_node_on_another_network_is_believed_nothing() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.watch(1).await;
        rig.extend(3);
        let other = rig.mine_on(rig.tip(), &[]);
        rig.chain.world().node().faults.other_genesis = Some(other);
        rig.rounds(5).await;
        assert!(rig.state().starts_with("wrong_network"), "{}", rig.state());
        assert_eq!(rig.tables.count("SELECT count(*) FROM headers"), 0);
        assert_eq!(rig.tables.events(), ["chain.halted"]);
        rig.chain.world().node().faults.other_genesis = None;
        rig.settle().await;
        assert_eq!(rig.tables.events(), ["chain.halted", "chain.resumed"]);
        // It shows itself again after it was out of reach.
        rig.chain.world().node().faults.is_down = true;
        rig.rounds(3).await;
        rig.extend(1);
        let node = |rig: &Rig, is_down, other| {
            let mut world = rig.chain.world();
            world.node().faults.is_down = is_down;
            world.node().faults.other_genesis = other;
        };
        node(&rig, false, Some(other));
        rig.rounds(5).await;
        assert_eq!(rig.tables.count("SELECT cursor_height FROM chains"), 3);
        node(&rig, false, None);
        rig.settle().await;
        assert_eq!(rig.tables.count("SELECT cursor_height FROM chains"), 4);
    });
}

/// A node that starts from nothing is below us for long: it is waited for, and nothing is undone.
#[test]
fn a_node_that_starts_anew_is_waited_for() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let pay = rig.pay(&to, 5);
        rig.mine(&[&pay]);
        let tip = rig.extend(40);
        rig.settle().await;
        let genesis = rig.chain.world().tree.genesis();
        for height in [0, 10, 30, 41] {
            {
                let mut world = rig.chain.world();
                let World { tree, nodes, .. } = &mut *world;
                let to = tree.ancestor(&tip, height).unwrap_or(genesis);
                nodes[0].restore(tree, to);
            }
            rig.rounds(5).await;
            assert_eq!(rig.cursor(), Some(tip));
        }
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        rig.extend(1);
        rig.settle().await;
        rig.compare();
    });
}

/// Down for an hour: asked at growing spans, and at once in order again.
#[test]
fn a_node_out_of_reach_is_asked_again_and_named() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        rig.extend(1);
        rig.settle().await;
        rig.chain.world().node().faults.is_down = true;
        let calls = rig.chain.world().node().calls;
        rig.wait(Duration::from_secs(3600)).await;
        assert!(rig.state().starts_with("unreachable"), "{}", rig.state());
        let asked = rig.chain.world().node().calls - calls;
        assert!((300..800).contains(&asked), "{asked} calls in an hour");
        rig.chain.world().node().faults.is_down = false;
        let pay = rig.pay(&to, 5);
        rig.mine(&[&pay]);
        rig.extend(2);
        rig.settle().await;
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        rig.compare();
    });
}

/// While the node catches up old payments are credited, and nothing is told from what is absent.
#[test]
fn a_node_that_catches_up_credits_what_is_old() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let pay = rig.pay(&to, 5);
        rig.mine(&[&pay]);
        rig.extend(5);
        rig.chain.world().node().faults.is_syncing = true;
        rig.rounds(10).await;
        assert!(rig.state().starts_with("syncing"), "{}", rig.state());
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        rig.chain.world().node().faults.is_syncing = false;
        rig.settle().await;
        assert_eq!(rig.state(), "following");
        rig.compare();
    });
}
