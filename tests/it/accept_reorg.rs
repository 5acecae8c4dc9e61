//! Reorgs deeper than what we hold, and the operator's word about them.

use crate::rig::{Rig, in_simulation};
use crate::scripted::{Coinbase, Hook, World};
use creditd::follow::Start;
use creditd::rules::BlockHash;

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

/// As many blocks as are kept may leave, and not one more, whether the chain is followed from block 1 or from
/// the tip of the moment.
#[test]
fn c06_reorg_at_the_edge_of_the_window_is_followed_and_one_block_deeper_halts() {
    in_simulation(async {
        for window in [6, 20, 144] {
            for start in [Start::Height(1), Start::Tip] {
                for deeper in [0, 1] {
                    let what = format!("{window} + {deeper}, {start:?}");
                    let mut rig = Rig::with(|settings| {
                        settings.terms.reorg_window = window;
                        settings.start = start;
                    })
                    .await;
                    let depth = usize::try_from(window).unwrap() + deeper;
                    let fork = rig.extend(150);
                    if start == Start::Tip {
                        // All that leaves but the payment lies below the start.
                        rig.extend(depth - 4);
                        rig.settle().await;
                    }
                    let to = rig.watch(1).await;
                    let pay = rig.pay(&to, 5);
                    if start != Start::Tip {
                        rig.mine(&[&pay]);
                        rig.extend(depth - 1);
                    } else {
                        rig.mine(&[&pay]);
                        rig.extend(3);
                    }
                    rig.settle().await;
                    assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"], "{what}");
                    rig.go_to(rig.extend_on(fork, depth + 1));
                    rig.evict(&pay);
                    rig.rounds(6).await;
                    let kinds = rig.tables.journal(&pay.outpoint(0));
                    if deeper == 0 {
                        rig.settle().await;
                        assert_eq!(rig.state(), "following", "{what}");
                        assert_eq!(kinds, ["credit", "reversal:orphaned"], "{what}");
                        let depths = "SELECT json_extract(body, '$.data.reorg_depth') FROM events \
                                      WHERE type = 'credit.reversed'";
                        assert_eq!(rig.tables.count(depths), i64::try_from(depth).unwrap(), "{what}");
                        rig.compare();
                    } else {
                        assert!(
                            rig.state().starts_with("reorg_too_deep"),
                            "{what}: {}",
                            rig.state()
                        );
                        assert_eq!(kinds, ["credit"], "{what}");
                    }
                }
            }
        }
    });
}

fn waiting(rig: &Rig) -> i64 {
    rig.tables
        .count("SELECT count(*) FROM reanchors WHERE state = 'asked'")
}

/// A chain that is halted by a reorg deeper than the window, with credited payments in blocks 1 and 31 of 35,
/// the first of which both branches have: the hash of block 30, and our tip.
async fn halted(rig: &mut Rig) -> (BlockHash, BlockHash) {
    let to = rig.watch(1).await;
    let (early, pay) = (rig.pay(&to, 1), rig.pay(&to, 5));
    rig.mine(&[&early]);
    let a = rig.extend(1);
    let below = rig.extend(28);
    rig.mine(&[&pay]);
    let ours = rig.extend(4);
    rig.settle().await;
    assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
    rig.go_to(rig.extend_on(a, 40));
    rig.rounds(3).await;
    assert!(rig.state().starts_with("reorg_too_deep"), "{}", rig.state());
    (below, ours)
}

/// Accepted at a height that only our branch has or that both have, and then there is nothing to accept any
/// more: the node comes back to our branch, goes on from it, or leaves it within the window. The word is
/// void; it does not wait for the next such moment.
#[test]
fn an_accepted_reorg_that_is_none_any_more_is_void() {
    in_simulation(async {
        for fork in [0, 1, 30, 33] {
            for turn in ["back", "on", "aside", "aside and back"] {
                let what = format!("{turn}, accepted at {fork}");
                let mut rig = Rig::new().await;
                let (below, ours) = halted(&mut rig).await;
                let key = rig.key;
                rig.write(move |tx| tx.ask_reanchor(key, fork, "too early")).await;
                let to = match turn {
                    "back" => ours,
                    "on" => rig.extend_on(ours, 2),
                    _ => rig.extend_on(below, 6),
                };
                // As if they had never heard of the other branch, which is better still.
                {
                    let mut world = rig.chain.world();
                    let World { tree, nodes, .. } = &mut *world;
                    nodes.iter_mut().for_each(|node| node.restore(tree, to));
                }
                let events = rig.tables.events().len();
                rig.settle().await;
                assert_eq!((rig.state().as_str(), waiting(&rig)), ("following", 0), "{what}");
                let told = rig.tables.events()[events..].to_vec();
                match turn {
                    "back" | "on" => assert_eq!(told, ["chain.resumed"], "{what}"),
                    _ => {
                        let reversed = told.iter().filter(|kind| *kind == "credit.reversed");
                        assert_eq!((reversed.count(), told.len() < 5), (1, true), "{what}: {told:?}");
                    }
                }
                if turn == "aside and back" {
                    rig.go_to(rig.extend_on(ours, 3));
                    rig.settle().await;
                    assert_eq!(rig.state(), "following", "{what}");
                }
                rig.compare();
            }
        }
    });
}

/// The word is about one look: while the node is merely lower on our own chain it waits.
#[test]
fn an_accepted_reorg_waits_while_the_node_lags() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let (below, _) = halted(&mut rig).await;
        let theirs = rig.tip();
        let key = rig.key;
        rig.write(move |tx| tx.ask_reanchor(key, 0, "it is right")).await;
        {
            let mut world = rig.chain.world();
            let World { tree, nodes, .. } = &mut *world;
            nodes.iter_mut().for_each(|node| node.restore(tree, below));
        }
        let events = rig.tables.events();
        rig.rounds(5).await;
        assert_eq!((waiting(&rig), rig.tables.events()), (1, events));
        rig.go_to(theirs);
        rig.settle().await;
        assert_eq!((rig.state().as_str(), waiting(&rig)), ("following", 0));
        rig.compare();
    });
}

/// The node stays on a branch of less work for good, by a rule that changed: the operator's word takes us
/// there, and what it does not hold is reversed.
#[test]
fn a_worse_branch_is_taken_on_the_operators_word_alone() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let a = rig.extend(3);
        let pay = rig.pay(&to, 5);
        let ours = rig.mine(&[&pay]);
        rig.extend(4);
        rig.settle().await;
        let worse = rig.extend_on(a, 2);
        {
            let mut world = rig.chain.world();
            let World { tree, nodes, .. } = &mut *world;
            nodes.iter_mut().for_each(|node| node.restore(tree, worse));
        }
        rig.rounds(20).await;
        assert!(rig.state().starts_with("behind"), "{}", rig.state());
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        let key = rig.key;
        rig.write(move |tx| tx.ask_reanchor(key, 3, "they follow other rules"))
            .await;
        rig.settle().await;
        assert_eq!(rig.cursor(), Some(worse));
        assert_eq!(
            rig.tables.journal(&pay.outpoint(0)),
            ["credit", "reversal:orphaned"]
        );
        rig.compare();
        rig.go_to(rig.extend_on(ours, 1));
        rig.settle().await;
        rig.compare();
    });
}

/// The operator accepts a reorg that there is none of: refused, as often as it is asked.
#[test]
fn accepting_a_reorg_on_a_chain_in_order_is_refused() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let pay = rig.pay(&to, 5);
        rig.mine(&[&pay]);
        rig.extend(5);
        rig.settle().await;
        let events = rig.tables.events();
        for _ in 0..3 {
            let (key, store) = (rig.key, rig.store());
            let asked = store.write(move |tx| tx.ask_reanchor(key, 0, "a mistake"));
            let why = asked.await.unwrap_err().to_string();
            assert!(why.contains("btc is following"), "{why}");
            rig.settle().await;
        }
        assert_eq!((waiting(&rig), rig.tables.events()), (0, events));
        rig.compare();
    });
}

/// The height is changed while the follower works the first one off: the new one waits for its turn.
#[test]
fn a_word_that_is_changed_while_it_is_worked_off_is_not_lost() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        halted(&mut rig).await;
        let key = rig.key;
        rig.write(move |tx| tx.ask_reanchor(key, 0, "first")).await;
        rig.chain.world().hook = Some(Hook {
            during: "hashes",
            // Two pieces of the window are searched first.
            after: 2,
            run: {
                let mut beside = rig.command();
                Box::new(move || {
                    beside.write(0, |tx| tx.ask_reanchor(key, 1, "second")).unwrap();
                })
            },
        });
        rig.round().await;
        assert_eq!(waiting(&rig), 1);
        rig.settle().await;
        let done = rig
            .tables
            .count("SELECT fork_height FROM reanchors WHERE state = 'done'");
        assert_eq!((done, waiting(&rig)), (1, 0));
        rig.compare();
    });
}

/// The window is raised, and the next reorg forks where headers were forgotten under the old one: the fork is
/// not the next header below that happens to be kept (every 144th). Halt, and the operator's word leads on.
#[test]
fn a_reorg_below_what_is_held_in_a_row_halts_under_a_raised_window() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let early = rig.pay(&to, 1);
        rig.extend(143);
        rig.mine(&[&early]);
        let fork = rig.extend(16);
        let late = rig.pay(&to, 2);
        rig.mine(&[&late]);
        rig.extend(39);
        rig.settle().await;
        rig.settings.terms.reorg_window = 100;
        rig.reopen().await;
        let ours = rig.extend(1);
        rig.settle().await;
        assert_eq!(rig.tables.journal(&late.outpoint(0)), ["credit"]);
        rig.go_to(rig.extend_on(fork, 60));
        rig.evict(&late);
        rig.rounds(5).await;
        assert!(rig.state().starts_with("reorg_too_deep"), "{}", rig.state());
        assert_eq!(rig.cursor(), Some(ours));
        let key = rig.key;
        rig.write(move |tx| tx.ask_reanchor(key, 144, "it is right"))
            .await;
        rig.settle().await;
        assert_eq!(rig.state(), "following");
        assert_eq!(rig.tables.journal(&early.outpoint(0)), ["credit"]);
        assert_eq!(
            rig.tables.journal(&late.outpoint(0)),
            ["credit", "reversal:orphaned"]
        );
        rig.compare();
        // What was followed under the larger window can be undone.
        rig.extend(30);
        rig.settle().await;
        rig.go_to(rig.extend_on(fork, 100));
        rig.settle().await;
        assert_eq!(rig.state(), "following");
        rig.compare();
    });
}

/// The window is lowered: what it does not hold any more is forgotten, but for what is kept for ever.
#[test]
fn a_lowered_window_forgets_the_headers_below_it() {
    in_simulation(async {
        let mut rig = Rig::with(|settings| settings.terms.reorg_window = 200).await;
        let to = rig.watch(1).await;
        let (one, other) = (rig.pay(&to, 1), rig.pay(&to, 2));
        rig.extend(99);
        rig.mine(&[&one]);
        rig.extend(79);
        rig.mine(&[&other]);
        rig.extend(20);
        rig.settle().await;
        let held = |rig: &Rig, from: i64, to: i64| {
            let range = format!("SELECT count(*) FROM headers WHERE height BETWEEN {from} AND {to}");
            rig.tables.count(&range)
        };
        assert_eq!(held(&rig, 0, 200), 201);
        rig.settings.terms.reorg_window = 20;
        rig.reopen().await;
        // The start, the payment, the height at which it became due, and the 144th.
        assert_eq!(held(&rig, 0, 179), 4);
        assert_eq!(held(&rig, 180, 200), 21);
        rig.extend(30);
        rig.settle().await;
        assert_eq!(held(&rig, 0, 209), 6);
        rig.compare();
    });
}

/// An operator's word took us back to a height that is held alone, and then the chain is left below it: at a
/// block that is held because it paid us, under which the one between is not held.
#[test]
fn a_reorg_below_a_height_that_was_gone_back_to_halts_again() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        rig.extend(138);
        let pay = rig.pay(&to, 1);
        rig.mine(&[&pay]);
        let fork = rig.extend(2);
        let sparse = rig.extend(3);
        rig.extend(40);
        rig.settle().await;
        rig.go_to(rig.extend_on(sparse, 50));
        rig.rounds(3).await;
        assert!(rig.state().starts_with("reorg_too_deep"), "{}", rig.state());
        let key = rig.key;
        rig.write(move |tx| tx.ask_reanchor(key, 144, "it is right"))
            .await;
        // They have but one block above it now.
        let next = rig.extend_on(sparse, 1);
        {
            let mut world = rig.chain.world();
            let World { tree, nodes, .. } = &mut *world;
            nodes.iter_mut().for_each(|node| node.restore(tree, next));
        }
        rig.settle().await;
        rig.go_to(rig.extend_on(fork, 60));
        rig.rounds(5).await;
        assert!(rig.state().starts_with("reorg_too_deep"), "{}", rig.state());
        assert_eq!(rig.cursor(), Some(next));
        rig.write(move |tx| tx.ask_reanchor(key, 139, "once more")).await;
        rig.settle().await;
        assert_eq!(rig.state(), "following");
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        rig.compare();
    });
}

/// A better branch that is not better within the blocks of one reorg: its blocks are lighter than ours. The
/// chain is behind for good, and the operator's word leads on.
#[test]
fn a_branch_that_is_better_only_after_many_blocks_is_taken_on_the_operators_word() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let fork = rig.extend(3);
        let pay = rig.pay(&to, 5);
        rig.mine(&[&pay]);
        let ours = rig.extend(9);
        rig.settle().await;
        // Ours: ten blocks of work 10; theirs: 120 of work 1.
        let theirs = (0..120).fold(fork, |tip, _| {
            let mut world = rig.chain.world();
            world.tree.mine_with(tip, vec![], Coinbase::Plain, 1)
        });
        rig.go_to(theirs);
        rig.rounds(10).await;
        assert!(rig.state().starts_with("behind"), "{}", rig.state());
        assert_eq!(rig.cursor(), Some(ours));
        let key = rig.key;
        rig.write(move |tx| tx.ask_reanchor(key, 3, "they are many"))
            .await;
        rig.settle().await;
        assert_eq!((rig.state().as_str(), waiting(&rig)), ("following", 0));
        assert_eq!(rig.cursor(), Some(theirs));
        assert_eq!(
            rig.tables.journal(&pay.outpoint(0)),
            ["credit", "reversal:orphaned"]
        );
        rig.compare();
    });
}

/// A branch that was left for an equal one is not gone back to by itself before it is better; on the
/// operator's word it is.
#[test]
fn an_equal_branch_that_was_left_is_taken_on_the_operators_word() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let fork = rig.extend(3);
        let (one, other) = (rig.extend_on(fork, 2), rig.extend_on(fork, 2));
        rig.go_to(one);
        rig.settle().await;
        rig.go_to(other);
        rig.settle().await;
        rig.go_to(one);
        rig.rounds(10).await;
        assert!(rig.state().starts_with("behind"), "{}", rig.state());
        assert_eq!(rig.cursor(), Some(other));
        let key = rig.key;
        rig.write(move |tx| tx.ask_reanchor(key, 3, "it is right")).await;
        rig.settle().await;
        assert_eq!((rig.state().as_str(), waiting(&rig)), ("following", 0));
        assert_eq!(rig.cursor(), Some(one));
        rig.compare();
    });
}
