//! The mempool, as the real follower and store take it: seen, replaced, evicted, and back.

use crate::rig::{Rig, in_simulation};
use crate::scripted::{Hook, Out, Tx, World, script};
use creditd::store::{AddressKind, NewAddress};
use std::time::Duration;

const EVICT: Duration = Duration::from_secs(90);

/// T1, bumped by T2, bumped by T3 on the same input: each is news for T1, and none is an illegal move.
#[test]
fn a_chain_of_replacements_holds_nothing() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let (to, elsewhere) = (rig.watch(1).await, script(900));
        rig.extend(1);
        let first = rig.pay(&to, 5);
        let second = rig.replace(&first, &to, 4);
        let third = rig.replace(&first, &elsewhere, 3);
        for tx in [&first, &second, &third] {
            rig.send(tx);
            rig.settle().await;
        }
        rig.rounds(20).await;
        let one = rig.tables.deposit(&first.outpoint(0));
        assert_eq!(
            (one.state.as_str(), one.replaced_by),
            ("replaced", Some(third.txid))
        );
        assert_eq!(rig.tables.state(&second.outpoint(0)), "replaced");
        assert_eq!(
            rig.tables.events(),
            [
                "deposit.seen",
                "deposit.seen",
                "deposit.replaced",
                "deposit.replaced",
                "deposit.replaced"
            ]
        );
        assert_eq!(
            rig.tables
                .count("SELECT count(*) FROM deposits WHERE held_reason IS NOT NULL"),
            0
        );
        rig.compare();
        // A miner takes the first one all the same.
        rig.mine(&[&first]);
        rig.extend(2);
        rig.settle().await;
        assert_eq!(rig.tables.journal(&first.outpoint(0)), ["credit"]);
        rig.compare();
    });
}

/// The same where each of them pays us, and is therefore known to the lists that come after.
#[test]
fn each_payment_that_replaces_another_is_named_by_all_before_it() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        rig.extend(1);
        let first = rig.pay(&to, 9);
        let mut bumps = vec![first.clone()];
        rig.send(&first);
        rig.settle().await;
        for amount in [8, 7, 6] {
            let last = rig.replace(&first, &to, amount);
            rig.send(&last);
            rig.settle().await;
            for lost in &bumps {
                let deposit = rig.tables.deposit(&lost.outpoint(0));
                assert_eq!(
                    (deposit.state.as_str(), deposit.replaced_by),
                    ("replaced", Some(last.txid))
                );
            }
            bumps.push(last);
            rig.compare();
        }
    });
}

/// P -> C -> D, all unconfirmed; P is replaced, so nothing that descends from it can ever confirm.
#[test]
fn descendants_of_a_replaced_transaction_are_replaced() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let (to, elsewhere) = (rig.watch(1).await, script(900));
        rig.extend(1);
        let parent = rig.pay(&elsewhere, 9);
        let child = rig.spend(&[parent.outpoint(0)], &[(&elsewhere, 8)]);
        let pay = rig.spend(&[child.outpoint(0)], &[(&to, 7)]);
        let rival = rig.replace(&parent, &elsewhere, 1);
        for tx in [&parent, &child, &pay] {
            rig.send(tx);
        }
        rig.settle().await;
        assert_eq!(rig.tables.state(&pay.outpoint(0)), "seen");
        rig.send(&rival);
        rig.settle().await;
        let deposit = rig.tables.deposit(&pay.outpoint(0));
        assert_eq!(
            (deposit.state.as_str(), deposit.replaced_by),
            ("replaced", Some(rival.txid))
        );
        rig.compare();
    });
}

/// A payment with two inputs, each spent by a transaction of its own: it is replaced, and stays so at each
/// poll.
#[test]
fn two_replacers_do_not_take_turns() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let (to, elsewhere) = (rig.watch(1).await, script(900));
        rig.extend(1);
        let (a, b) = (rig.coin(), rig.coin());
        let pay = rig.spend(&[a, b], &[(&to, 7)]);
        rig.send(&pay);
        rig.settle().await;
        rig.send(&rig.spend(&[a], &[(&elsewhere, 1)]));
        rig.send(&rig.spend(&[b], &[(&elsewhere, 1)]));
        rig.settle().await;
        let events = rig.tables.events();
        rig.wait(Duration::from_secs(60)).await;
        assert_eq!(rig.tables.events(), events);
        let mempool = rig.chain.world().node().mempool.clone();
        rig.mine(&mempool.iter().collect::<Vec<_>>());
        rig.settle().await;
        let events = rig.tables.events();
        for _ in 0..3 {
            let key = rig.key;
            rig.write(move |tx| tx.ask_rescan(key, 1, &creditd::store::Backfill::Nothing, "again"))
                .await;
            rig.settle().await;
        }
        assert_eq!(rig.tables.events(), events, "a rescan is no news");
        rig.compare();
    });
}

/// Two rivals of one payment, where only the second conflicts with another payment too.
#[test]
fn a_rival_replaces_every_payment_that_it_conflicts_with() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let (to, elsewhere) = (rig.watch(1).await, script(900));
        let start = rig.extend(1);
        let (a, b, c) = (rig.coin(), rig.coin(), rig.coin());
        // Each in a block of a branch of its own; a third branch has neither.
        let (one, two) = (rig.spend(&[a, b], &[(&to, 7)]), rig.spend(&[b, c], &[(&to, 8)]));
        let first = rig.mine_on(start, &[&two]);
        rig.go_to(first);
        rig.settle().await;
        let second = rig.mine_on(start, &[&one]);
        rig.go_to(rig.extend_on(second, 1));
        rig.settle().await;
        rig.go_to(rig.extend_on(start, 3));
        rig.chain
            .world()
            .nodes
            .iter_mut()
            .for_each(|node| node.mempool.clear());
        rig.send(&rig.spend(&[a], &[(&elsewhere, 1)]));
        let rival = rig.spend(&[b], &[(&elsewhere, 1)]);
        rig.send(&rival);
        rig.settle().await;
        let state = |tx: &Tx| rig.tables.deposit(&tx.outpoint(0));
        assert_eq!(state(&one).state, "replaced");
        assert_eq!(
            (state(&two).state.as_str(), state(&two).replaced_by),
            ("replaced", Some(rival.txid))
        );
        rig.compare();
    });
}

#[test]
fn an_evicted_payment_comes_back() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        rig.extend(1);
        let pay = rig.pay(&to, 5);
        let at = pay.outpoint(0);
        rig.send(&pay);
        rig.settle().await;
        rig.evict(&pay);
        rig.settle().await;
        assert_eq!(rig.tables.state(&at), "seen", "one list is no proof");
        rig.wait(EVICT).await;
        assert_eq!(rig.tables.state(&at), "evicted");
        rig.send(&pay);
        rig.settle().await;
        assert_eq!(rig.tables.state(&at), "seen");
        rig.evict(&pay);
        rig.wait(EVICT).await;
        rig.mine(&[&pay]);
        rig.extend(2);
        rig.settle().await;
        assert_eq!(rig.tables.journal(&at), ["credit"]);
        rig.compare();
    });
}

/// The daemon is down for a day: the first list after it does not know the payment any more, which says
/// little.
#[test]
fn time_without_lists_evicts_nothing() {
    in_simulation(async {
        // A gap without lists counts as 30 seconds at most.
        let mut rig = Rig::with(|settings| settings.terms.evict_after_ms = 120_000).await;
        let to = rig.watch(1).await;
        rig.extend(1);
        let pay = rig.pay(&to, 5);
        rig.send(&pay);
        rig.settle().await;
        rig.evict(&pay);
        rig.clock.sleep(Duration::from_secs(86_400)).await;
        rig.reopen().await;
        rig.settle().await;
        assert_eq!(rig.tables.state(&pay.outpoint(0)), "seen");
        // The node is out of reach for an hour.
        rig.chain.world().node().faults.is_down = true;
        rig.wait(Duration::from_secs(3600)).await;
        rig.chain.world().node().faults.is_down = false;
        rig.settle().await;
        assert_eq!(rig.tables.state(&pay.outpoint(0)), "seen");
        // A node that catches up has an empty mempool for reasons of its own.
        rig.chain.world().node().faults.is_syncing = true;
        rig.wait(Duration::from_secs(3600)).await;
        assert_eq!(rig.tables.state(&pay.outpoint(0)), "seen");
        rig.chain.world().node().faults.is_syncing = false;
        rig.settle().await;
        assert_eq!(
            rig.tables.state(&pay.outpoint(0)),
            "seen",
            "that hour counts for nothing"
        );
        rig.wait(2 * EVICT).await;
        assert_eq!(rig.tables.state(&pay.outpoint(0)), "evicted");
        rig.compare();
    });
}

/// The machine's clock goes back and forward by years: only time under observation evicts, and money does not
/// know it.
#[test]
fn a_clock_that_jumps_evicts_and_credits_nothing() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let pay = rig.pay(&to, 5);
        rig.mine(&[&pay]);
        let waiting = rig.pay(&to, 6);
        rig.send(&waiting);
        rig.settle().await;
        rig.evict(&waiting);
        rig.settle().await;
        for years in [-20, 30, -5] {
            rig.jump(years * 365 * 86_400_000).await;
            rig.rounds(3).await;
            assert_eq!(rig.tables.state(&waiting.outpoint(0)), "seen", "{years}");
            assert_eq!(rig.tables.state(&pay.outpoint(0)), "confirming", "{years}");
        }
        rig.wait(EVICT).await;
        assert_eq!(rig.tables.state(&waiting.outpoint(0)), "evicted");
        rig.extend(2);
        rig.settle().await;
        rig.compare();
    });
}

/// The node's tip moves while it lists: the list belongs to neither tip.
#[test]
fn a_list_under_a_moving_tip_is_dropped() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        rig.extend(1);
        let pay = rig.pay(&to, 5);
        rig.send(&pay);
        rig.settle().await;
        let block = rig.mine_on(rig.tip(), &[&pay]);
        rig.chain.world().node().faults.moves_to = Some(block);
        rig.settle().await;
        assert_eq!(rig.tables.state(&pay.outpoint(0)), "confirming");
        rig.compare();
    });
}

#[test]
fn a_listed_transaction_that_cannot_be_fetched_is_neither_seen_nor_absent() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        rig.extend(1);
        let (seen, unseen) = (rig.pay(&to, 5), rig.pay(&to, 6));
        rig.send(&seen);
        rig.settle().await;
        rig.send(&unseen);
        rig.chain.world().node().faults.unfetchable = [seen.txid, unseen.txid].into();
        rig.wait(EVICT).await;
        assert_eq!(rig.tables.state(&seen.outpoint(0)), "seen");
        assert_eq!(rig.tables.state(&unseen.outpoint(0)), "absent");
        rig.chain.world().node().faults.unfetchable.clear();
        rig.settle().await;
        assert_eq!(rig.tables.state(&unseen.outpoint(0)), "seen");
        rig.compare();
    });
}

/// Own coin P moves on to T before it is mined, and P cannot be fetched when T is first met: T looks like
/// money from outside. In the block it is known to be own.
#[test]
fn own_coin_is_not_credited_because_its_parent_could_not_be_fetched() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let (hot, to) = (
            rig.add(AddressKind::Own, 1, "shop", "ignore").await,
            rig.watch(2).await,
        );
        rig.extend(1);
        let parent = rig.pay(&hot, 9);
        let own = rig.spend(&[parent.outpoint(0)], &[(&to, 8)]);
        rig.send(&parent);
        rig.send(&own);
        rig.chain.world().node().faults.unfetchable = [parent.txid].into();
        rig.settle().await;
        rig.mine(&[&parent, &own]);
        rig.extend(5);
        rig.settle().await;
        assert_eq!(rig.tables.journal(&own.outpoint(0)), Vec::<String>::new());
        rig.compare();
    });
}

/// The list is read, then an address that it pays is added, then the list is applied.
#[test]
fn an_address_added_while_the_mempool_is_listed_is_seen() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.watch(1).await;
        rig.extend(1);
        rig.settle().await;
        let late = script(2);
        let pay = rig.pay(&late, 5);
        rig.send(&pay);
        let (mut beside, key) = (rig.command(), rig.key);
        rig.chain.world().hook = Some(Hook {
            during: "mempool",
            after: 0,
            run: Box::new(move || {
                let rule = NewAddress {
                    script: late.clone(),
                    kind: AddressKind::Watch,
                    merchant: "late",
                    internal: "ignore",
                    reference: "",
                };
                let add =
                    |tx: &mut creditd::store::WriteTx<'_>| tx.add_addresses(key, std::slice::from_ref(&rule));
                beside.write(0, add).unwrap();
            }),
        });
        rig.settle().await;
        assert_eq!(rig.tables.state(&pay.outpoint(0)), "seen");
        rig.compare();
    });
}

/// Every short hash says "maybe": the tables decide, so nothing changes but the work.
#[test]
fn colliding_short_hashes_change_nothing() {
    in_simulation(async {
        let mut lines = Vec::new();
        for is_noisy in [false, true] {
            let mut rig = Rig::new().await;
            let (to, elsewhere) = (rig.watch(1).await, script(900));
            rig.chain
                .world()
                .nodes
                .iter_mut()
                .for_each(|node| node.faults.is_noisy = is_noisy);
            rig.extend(2);
            let (pay, other) = (rig.pay(&to, 5), rig.pay(&elsewhere, 6));
            rig.send(&pay);
            rig.send(&other);
            rig.settle().await;
            rig.mine(&[&pay, &other]);
            rig.mine(&[&rig.spend(&[other.outpoint(0)], &[(&elsewhere, 4)])]);
            rig.extend(3);
            rig.settle().await;
            rig.compare();
            lines.push(rig.projection());
        }
        assert_eq!(lines[0], lines[1]);
    });
}

/// Lists of two nodes in turn, one of which does not have the payment, or has another one that spends the
/// same coin, to us or elsewhere: it is in the mempool or it is not, and whoever flips writes no event.
#[test]
fn a_balancer_between_two_mempools_floods_nobody() {
    in_simulation(async {
        let seen = "deposit.seen";
        let replaced = "deposit.replaced";
        for (rival, expected) in [
            (None, vec![seen]),
            (Some(script(900)), vec![seen, replaced]),
            (Some(script(1)), vec![seen, seen, replaced]),
        ] {
            let mut rig = Rig::new().await;
            let to = rig.watch(1).await;
            rig.extend(1);
            let pay = rig.pay(&to, 5);
            {
                let mut world = rig.chain.world();
                let World { tree, nodes, .. } = &mut *world;
                assert!(nodes[0].accept(tree, &pay));
                if let Some(elsewhere) = rival {
                    let rival = tree.tx(pay.inputs.clone(), vec![Out::new(elsewhere, 4)]);
                    assert!(nodes[1].accept(tree, &rival));
                }
            }
            rig.settle().await;
            rig.chain.world().alternates = true;
            rig.wait(Duration::from_secs(600)).await;
            assert_eq!(rig.tables.events(), expected);
        }
    });
}

/// Each of two nodes with rival payments answers for a while: a replacement is told at once, and every way
/// back takes more lists in a row than the one before.
#[test]
fn two_mempools_that_take_turns_flip_less_and_less() {
    in_simulation(async {
        // Three events, and two for each way back: in 3, 6, 12, 24 lists for each of the two.
        for (turn, most) in [(2, 3), (8, 3 + 2 * 4), (30, 3 + 2 * 8)] {
            let mut rig = Rig::new().await;
            let to = rig.watch(1).await;
            rig.extend(1);
            let pay = rig.pay(&to, 5);
            let rival = rig.replace(&pay, &to, 4);
            {
                let mut world = rig.chain.world();
                let World { tree, nodes, .. } = &mut *world;
                assert!(nodes[0].accept(tree, &pay) && nodes[1].accept(tree, &rival));
            }
            for _ in 0..30 {
                for node in [0, 1] {
                    rig.chain.world().current = node;
                    rig.wait(Duration::from_secs(2 * turn)).await;
                }
            }
            let events = rig.tables.events().len();
            assert!(events <= most, "{turn} lists each: {events} events");
            // One of them alone has its way in the end.
            rig.chain.world().current = 0;
            rig.settle().await;
            assert_eq!(rig.tables.state(&pay.outpoint(0)), "seen");
            assert_eq!(rig.tables.state(&rival.outpoint(0)), "replaced");
            rig.compare();
        }
    });
}

/// Three rivals in three mempools: who took the place of the payment does not change at each list.
#[test]
fn replacers_that_take_turns_are_no_news() {
    in_simulation(async {
        let mut rig = Rig::with_nodes(3, |_| {}).await;
        let (to, elsewhere) = (rig.watch(1).await, script(900));
        rig.extend(1);
        let pay = rig.pay(&to, 5);
        rig.send(&pay);
        rig.settle().await;
        for node in 0..3 {
            let rival = rig.replace(&pay, &elsewhere, 1);
            let mut world = rig.chain.world();
            let World { tree, nodes, .. } = &mut *world;
            assert!(nodes[node].accept(tree, &rival));
        }
        for turn in 0..300 {
            rig.chain.world().current = turn % 3;
            rig.wait(Duration::from_secs(2)).await;
        }
        assert_eq!(rig.tables.events(), ["deposit.seen", "deposit.replaced"]);
    });
}
