//! Several nodes behind one address, that do not agree.

use crate::rig::{Rig, in_simulation, native};
use crate::scripted::World;
use std::time::Duration;

fn reversals(rig: &Rig) -> i64 {
    rig.tables
        .count("SELECT count(*) FROM journal WHERE kind = 'reversal'")
}

/// Two nodes on branches of one length behind a balancer that gives each call to the other one.
#[test]
fn a_balancer_between_two_branches_flips_nothing() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let a = rig.extend(3);
        let pay = rig.pay(&to, 5);
        let ours = rig.mine_on(a, &[&pay]);
        let ours = rig.extend_on(ours, 4);
        let theirs = rig.extend_on(a, 5);
        rig.go_to(ours);
        rig.settle().await;
        {
            let mut world = rig.chain.world();
            let World { tree, nodes, .. } = &mut *world;
            nodes[1].restore(tree, theirs);
            world.alternates = true;
        }
        let events = rig.tables.events();
        rig.rounds(120).await;
        assert_eq!(rig.cursor(), Some(ours));
        assert_eq!(rig.tables.events(), events);
        assert_eq!(reversals(&rig), 0);
    });
}

/// Two nodes that know both branches of one length, each on its own. Once they take turns, once each of them
/// answers for a while: a look or two at the other branch say nothing, and a branch that was left for an
/// equal one is not gone back to before it is better.
#[test]
fn two_nodes_on_equal_branches_flip_no_credit() {
    in_simulation(async {
        for (turn, reversed) in [(1, 0), (2, 0), (5, 1)] {
            let mut rig = Rig::with(|settings| settings.terms.policies = native(&[], 1)).await;
            let to = rig.watch(1).await;
            let a = rig.extend(3);
            let (pay, other) = (rig.pay(&to, 5), rig.pay(&to, 7));
            let ours = rig.mine_on(a, &[&pay]);
            let theirs = rig.mine_on(a, &[&other]);
            rig.go_to(theirs);
            rig.go_to(ours);
            rig.settle().await;
            rig.chain.world().go_to(1, theirs);
            for _ in 0..40 {
                for node in [0, 1] {
                    rig.chain.world().current = node;
                    rig.rounds(turn).await;
                }
            }
            assert_eq!(reversals(&rig), reversed, "{turn} looks at each");
            // The first node's branch wins; after it the other's.
            rig.chain.world().current = 0;
            let better = rig.extend_on(ours, 1);
            rig.go_to(better);
            rig.settle().await;
            assert_eq!(rig.tables.state(&pay.outpoint(0)), "credited");
            assert_eq!(reversals(&rig), 2 * reversed);
            rig.compare();
            rig.go_to(rig.extend_on(theirs, 2));
            rig.settle().await;
            assert_eq!(rig.tables.state(&other.outpoint(0)), "credited");
            rig.compare();
        }
    });
}

/// One of two nodes behind one address is always a block behind: the chain is followed, and neither the audit
/// nor the log gets a line for each answer of the other one.
#[test]
fn a_balancer_with_a_node_that_lags_changes_no_state() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.extend(5);
        rig.settle().await;
        let moves = "SELECT count(*) FROM audit WHERE action = 'state'";
        let before = rig.tables.count(moves);
        for _ in 0..30 {
            let (last, next) = (rig.tip(), rig.extend_on(rig.tip(), 1));
            rig.chain.world().go_to(0, next);
            rig.chain.world().go_to(1, last);
            for node in [0, 1, 0, 1] {
                rig.chain.world().current = node;
                rig.round().await;
            }
            rig.chain.world().current = 0;
        }
        assert_eq!(rig.tables.count(moves), before);
        assert_eq!(rig.state(), "following");
        // One that stays behind is named.
        rig.chain.world().current = 1;
        rig.rounds(5).await;
        assert!(rig.state().starts_with("behind"), "{}", rig.state());
    });
}

/// Single calls are shared out between two nodes, one of which hears of each block two looks later: it does
/// not know the block that the other one has just named. That is no change of state at each block.
#[test]
fn a_balancer_of_calls_with_a_node_that_lags_changes_no_state() {
    in_simulation(async {
        for first in [0, 1] {
            let mut rig = Rig::new().await;
            rig.extend(5);
            rig.settle().await;
            let moves = "SELECT count(*) FROM audit WHERE action = 'state'";
            let before = rig.tables.count(moves);
            rig.chain.world().alternates = true;
            for _ in 0..30 {
                let next = rig.extend_on(rig.cursor().unwrap(), 1);
                rig.chain.world().go_to(0, next);
                rig.chain.world().current = first;
                rig.rounds(2).await;
                rig.chain.world().go_to(1, next);
                rig.rounds(2).await;
                assert_eq!(rig.cursor(), Some(next));
            }
            assert_eq!(rig.tables.count(moves), before, "from node {first} on");
            assert_eq!(rig.state(), "following");
        }
    });
}

/// Single calls are shared out between three nodes, of which one alone has the next block. Where it is always
/// the one that says where it stands, and another that gives the hashes above ours, there is nothing to
/// connect, and the list of the mempool stays due: no reason to ask them without a pause.
#[test]
fn a_balancer_of_calls_with_nodes_that_lag_is_asked_at_the_usual_pace() {
    in_simulation(async {
        for first in [0, 1, 2] {
            let mut rig = Rig::new().await;
            rig.extend(5);
            rig.settle().await;
            let next = rig.extend_on(rig.cursor().unwrap(), 1);
            {
                let mut world = rig.chain.world();
                let third = world.nodes[0].clone();
                world.nodes.truncate(2);
                world.nodes.push(third);
                world.go_to(0, next);
                (world.current, world.alternates) = (first, true);
            }
            let asked = |rig: &Rig| -> u64 { rig.chain.world().nodes.iter().map(|node| node.calls).sum() };
            let (began, before) = (rig.clock.instant(), asked(&rig));
            while rig.clock.instant() - began < Duration::from_secs(60) && asked(&rig) - before < 5_000 {
                rig.round().await;
            }
            let calls = asked(&rig) - before;
            assert!(calls < 500, "{calls} calls in a minute, from node {first} on");
        }
    });
}

/// A node that has promised a block and does not have it is named after three looks in a row, as one that is
/// behind; each look says so of another block.
#[test]
fn a_node_that_lacks_a_block_is_named_after_three_looks() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.extend(5);
        rig.settle().await;
        for look in 1..=4 {
            let next = rig.extend(1);
            rig.chain.world().node().faults.missing.insert(next);
            rig.round().await;
            let expected = if look < 3 { "following" } else { "missing_data" };
            assert!(rig.state().starts_with(expected), "look {look}: {}", rig.state());
        }
        rig.chain.world().node().faults.missing.clear();
        rig.settle().await;
        assert_eq!(rig.state(), "following");
    });
}
