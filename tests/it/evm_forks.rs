//! Which branch is taken on chains whose nodes forget what they left: the higher one, and what every node has
//! gone over to.

use crate::evm_rig::{evm, evm_with};
use crate::rig::{Rig, in_simulation};
use crate::scripted::{Hook, Scripted, World};
use creditd::rules::{BlockHash, ChainId};
use std::time::Duration;

/// Ours of nine blocks with a credit in the fourth, and the block below it.
async fn ours(nodes: usize) -> (Rig, BlockHash, creditd::rules::Outpoint) {
    let mut rig = evm_with(nodes, |_| {}).await;
    let to = rig.watch(1).await;
    let below = rig.extend(3);
    let pay = rig.pay_coin(&to, 5);
    rig.mine(&[&pay]);
    rig.extend(5);
    rig.settle().await;
    rig.compare_evm();
    let at = pay.outpoint(0);
    assert_eq!(rig.tables.journal(&at), ["credit"]);
    (rig, below, at)
}

#[test]
fn a_higher_branch_is_taken_at_once_and_an_equal_one_after_three_looks() {
    in_simulation(async {
        let (mut rig, below, at) = ours(1).await;
        rig.go_to(rig.extend_on(below, 7));
        rig.mempools_forget();
        rig.round().await;
        assert_eq!(rig.cursor(), Some(rig.tip()));
        assert_eq!(rig.tables.journal(&at), ["credit", "reversal:orphaned"]);
        rig.settle().await;
        let (ours, fork) = (rig.tip(), rig.best_chain()[8].hash());
        rig.go_to(rig.extend_on(fork, 2));
        rig.rounds(2).await;
        assert_eq!(rig.cursor(), Some(ours));
        rig.round().await;
        assert_eq!(rig.cursor(), Some(rig.tip()));
        rig.settle().await;
        rig.compare_evm();
    });
}

#[test]
fn a_lower_branch_waits_until_every_node_has_long_gone_over_to_it() {
    in_simulation(async {
        let (mut rig, below, at) = ours(2).await;
        let (tip, lower) = (rig.tip(), rig.extend_on(below, 4));
        rig.only(0, lower);
        rig.wait(Duration::from_secs(3_000)).await;
        let (state, lower_hash) = (rig.state(), ChainId::evm(1, None).print(lower));
        assert!(state.starts_with("behind"), "{state}");
        assert!(
            state.contains(&format!("the node's tip {lower_hash} at height")),
            "{state}"
        );
        assert_eq!(rig.cursor(), Some(tip), "one node still has ours");
        rig.only(1, lower);
        rig.wait(Duration::from_secs(590)).await;
        assert_eq!(rig.cursor(), Some(tip));
        assert_eq!(rig.tables.journal(&at), ["credit"]);
        // A node that is down says nothing.
        rig.chain.world().nodes[0].faults.is_down = true;
        rig.rounds(5).await;
        rig.chain.world().nodes[0].faults.is_down = false;
        rig.wait(Duration::from_secs(590)).await;
        assert_eq!(rig.cursor(), Some(tip), "patience begins anew");
        rig.wait(Duration::from_secs(30)).await;
        assert_eq!(rig.cursor(), Some(lower));
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(
            (rig.state().as_str(), rig.tables.journal(&at).len()),
            ("following", 2)
        );
    });
}

/// Behind one address, two nodes on two branches: no credit is ever taken back and given again.
#[test]
fn a_balancer_between_two_branches_flips_no_credit() {
    in_simulation(async {
        for length in [4, 5, 6] {
            let (mut rig, below, at) = ours(2).await;
            let tip = rig.extend_on(below, length);
            rig.chain.world().go_to(1, tip);
            rig.chain.world().alternates = true;
            rig.wait(Duration::from_secs(2_000)).await;
            assert_eq!(rig.tables.journal(&at), ["credit"], "{length}");
        }
    });
}

/// Ten blocks of a chain that nothing calls final are undone by a shorter one, and its blocks are many more
/// than the window.
#[test]
fn a_branch_that_is_longer_than_the_window_is_taken_where_finality_is_further() {
    in_simulation(async {
        let mut rig = evm_with(1, |settings| settings.terms.reorg_window = 5).await;
        let to = rig.watch(1).await;
        let last = rig.extend(3);
        rig.says(None, Some(last));
        let pay = rig.pay_coin(&to, 5);
        rig.mine(&[&pay]);
        rig.extend(40);
        rig.settle().await;
        // Higher: at once. Lower: after patience.
        rig.go_to(rig.extend_on(last, 42));
        rig.mempools_forget();
        rig.settle().await;
        assert_eq!(rig.deposit_state(&pay.outpoint(0)), "orphaned");
        let at = rig.mine_on(last, &[&pay]);
        let lower = rig.extend_on(at, 30);
        rig.go_to(lower);
        rig.wait(Duration::from_secs(700)).await;
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.cursor(), Some(lower));
        assert_eq!(
            rig.tables.journal(&pay.outpoint(0)),
            ["credit", "reversal:orphaned", "reinstatement"]
        );
    });
}

/// C06 (b): 157 blocks leave, 100 are kept, nothing is final. The chain halts by name and asks each look
/// once.
#[test]
fn c06_b_a_reorg_past_the_window_halts_until_the_operator_accepts_it() {
    in_simulation(async {
        let mut rig = evm_with(1, |settings| settings.terms.reorg_window = 100).await;
        let to = rig.watch(1).await;
        let below = rig.extend(20);
        let pay = rig.pay_coin(&to, 5);
        rig.mine(&[&pay]);
        let kept = rig.tip();
        rig.extend(157);
        rig.settle().await;
        let at = rig.extend_on(kept, 159);
        let events = rig.tables.events();
        rig.go_to(at);
        rig.rounds(3).await;
        assert!(
            rig.state()
                .starts_with("reorg_too_deep no common ancestor in the last 100 blocks"),
            "{}",
            rig.state()
        );
        let mut halted = events;
        halted.push("chain.halted".to_owned());
        let before = rig.chain.world().node().calls;
        rig.rounds(10).await;
        let calls = rig.chain.world().node().calls - before;
        assert!(calls <= 50, "{calls} questions in ten looks");
        assert_eq!(rig.tables.events(), halted);
        let key = rig.key;
        rig.write(move |tx| tx.ask_reanchor(key, 21, "they have gone"))
            .await;
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.cursor(), Some(at));
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        assert!(rig.is_on_chain(&below));
    });
}

/// Where two nodes have to agree, a payment confirms and waits for the second.
#[test]
fn a_credit_waits_until_enough_nodes_agree() {
    in_simulation(async {
        let mut rig = evm_with(3, |_| {}).await;
        rig.chain.world().quorum = Some(2);
        let to = rig.watch(1).await;
        rig.extend(3);
        rig.settle().await;
        let pay = rig.pay_coin(&to, 5);
        let at = rig.mine_on(rig.tip(), &[&pay]);
        let at = rig.extend_on(at, 6);
        rig.chain.world().go_to(0, at);
        rig.rounds(20).await;
        assert_eq!(rig.deposit_state(&pay.outpoint(0)), "confirming");
        assert_eq!(rig.state(), "following");
        rig.reopen().await;
        rig.rounds(5).await;
        assert_eq!(rig.deposit_state(&pay.outpoint(0)), "confirming");
        rig.chain.world().go_to(2, at);
        rig.rounds(2).await;
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        rig.compare_evm();
    });
}

/// The same for what an operator releases, a rescan finds and a tag makes due.
#[test]
fn nothing_is_credited_around_the_agreement() {
    in_simulation(async {
        let mut rig = evm().await;
        rig.chain.world().quorum = Some(2);
        let to = rig.watch(1).await;
        rig.extend(1);
        let pay = rig.pay_coin(&to, 5);
        rig.mine(&[&pay]);
        rig.settle().await;
        let id = rig.tables.deposit(&pay.outpoint(0)).id;
        rig.write(move |tx| tx.hold(&id, "test")).await;
        let old = rig.pay_coin(&crate::scripted::account(2), 6);
        rig.mine(&[&old]);
        rig.extend(5);
        rig.settle().await;
        rig.watch(2).await;
        let stray = {
            let world = &mut *rig.chain.world();
            let World { tree, nodes, .. } = world;
            let at = tree.extend(tree.genesis(), 2);
            nodes[1].restore(tree, at);
            at
        };
        assert!(!rig.is_on_chain(&stray));
        rig.release(&pay.outpoint(0)).await.unwrap();
        assert!(rig.ask_rescan(1, creditd::store::Backfill::All).await);
        rig.rounds(20).await;
        for tx in [&pay, &old] {
            assert_eq!(rig.deposit_state(&tx.outpoint(0)), "confirming");
        }
        let tip = rig.tip();
        rig.chain.world().go_to(1, tip);
        rig.settle().await;
        rig.compare_evm();
        for tx in [&pay, &old] {
            assert_eq!(rig.tables.journal(&tx.outpoint(0)), ["credit"]);
        }
    });
}

/// Where finality comes late, the window is long, and the node may be far away.
#[test]
fn a_shallow_fork_is_found_without_asking_for_the_whole_window() {
    in_simulation(async {
        let mut rig = evm_with(1, |settings| settings.terms.reorg_window = 600).await;
        let deep = rig.extend(10);
        rig.extend(500);
        let below = rig.extend(50);
        rig.extend(2);
        rig.settle().await;
        for (fork, length, most) in [(below, 5, 30), (deep, 600, 3_000)] {
            rig.chain.world().node().hashes_told = 0;
            let at = rig.extend_on(fork, length);
            rig.go_to(at);
            rig.settle().await;
            assert_eq!(rig.cursor(), Some(at));
            let told = rig.chain.world().node().hashes_told;
            assert!(told <= most, "{told}");
        }
    });
}

/// A node has another block at each look, and one more before we have read what it told; the second node is
/// always three blocks behind. Nothing waits for a tip at which all is quiet.
#[test]
fn where_blocks_come_faster_than_looks_everything_has_its_turn() {
    in_simulation(async {
        let mut rig = evm().await;
        let to = rig.watch(1).await;
        rig.extend(3);
        rig.settle().await;
        rig.chain.world().quorum = Some(2);
        let fresh = |chain: &Scripted, count: usize| {
            let world = &mut *chain.world();
            let at = world.tree.extend(world.nodes[0].tip, count);
            world.go_to(0, at);
            let height = world.tree.block(&at).height();
            let lagging = world.tree.ancestor(&at, height - 3).unwrap();
            world.go_to(1, lagging);
        };
        let pay = rig.pay_coin(&to, 5);
        let at = rig.mine_on(rig.tip(), &[&pay]);
        rig.chain.world().go_to(0, at);
        let polls = "SELECT mempool_poll FROM chains";
        let listed = rig.tables.count(polls);
        assert!(rig.ask_rescan(1, creditd::store::Backfill::All).await);
        for _ in 0..20 {
            fresh(&rig.chain, 1);
            let chain = rig.chain.clone();
            rig.chain.world().hook = Some(Hook {
                during: "tip",
                after: 0,
                run: Box::new(move || fresh(&chain, 1)),
            });
            rig.round().await;
        }
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        let running = "SELECT count(*) FROM rescans WHERE state = 'running'";
        assert_eq!(rig.tables.count(running), 0);
        assert!(rig.tables.count(polls) > listed);
    });
}

/// The second node is five blocks behind, and something is due at each block.
#[test]
fn what_is_due_at_each_block_ages_into_agreement() {
    in_simulation(async {
        let mut rig = evm().await;
        let to = rig.watch(1).await;
        rig.extend(9);
        rig.settle().await;
        rig.chain.world().quorum = Some(2);
        let mut paid = Vec::new();
        for _ in 0..20 {
            let pay = rig.pay_coin(&to, 5);
            let at = rig.mine_on(rig.tip(), &[&pay]);
            paid.push(pay);
            rig.chain.world().go_to(0, at);
            let lagging = {
                let world = rig.chain.world();
                let height = world.tree.block(&at).height() - 5;
                world.tree.ancestor(&at, height).unwrap()
            };
            rig.chain.world().go_to(1, lagging);
            rig.rounds(2).await;
        }
        let state = |number: usize| rig.deposit_state(&paid[number].outpoint(0));
        // Due two blocks after its own, which the second node has three more after that.
        assert_eq!(
            (state(0), state(7)),
            ("credited".to_owned(), "credited".to_owned())
        );
        assert_eq!(
            state(13),
            "confirming",
            "the second node lacks the block at which it was due"
        );
    });
}
