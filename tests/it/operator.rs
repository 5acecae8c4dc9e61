//! What operators do while the chain goes on: holds, policies, rescans, late addresses, own coin.

use crate::rig::{Rig, in_simulation, native};
use crate::scripted::{Hook, Out, script};
use creditd::store::{AddressKind, Backfill, NewAddress, WriteTx};
use std::time::Duration;

async fn rescan(rig: &mut Rig, from: u64, backfill: Backfill) {
    assert!(rig.ask_rescan(from, backfill).await);
    rig.settle().await;
}

/// Another process adds a rule and asks for a backfill of it, both in one breath.
fn add_and_backfill(rig: &Rig, number: u32, from: Option<u64>) -> impl FnMut() + Send + 'static {
    let (mut beside, key, memory) = (rig.command(), rig.key, rig.memory.clone());
    let work = move |tx: &mut WriteTx<'_>| {
        let rule = NewAddress {
            script: script(number),
            kind: AddressKind::Watch,
            merchant: "late",
            internal: "ignore",
            reference: "",
        };
        tx.add_addresses(key, std::slice::from_ref(&rule))?;
        from.map_or(Ok(()), |from| {
            tx.ask_rescan(key, from, &Backfill::Script(rule.script.clone()), "test")
                .map(drop)
        })
    };
    move || {
        beside.write(0, work).unwrap();
        if let Some(from) = from {
            memory.lock().unwrap().lower(Some(&script(number)), from);
        }
    }
}

#[test]
fn a_hold_takes_the_credit_back_and_its_release_gives_it_again() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let pay = rig.pay(&to, 5);
        let at = pay.outpoint(0);
        rig.mine(&[&pay]);
        rig.extend(3);
        rig.settle().await;
        let id = rig.tables.deposit(&at).id;
        for _ in 0..2 {
            let id = id.clone();
            rig.write(move |tx| tx.hold(&id, "looks odd")).await;
            rig.check();
        }
        rig.extend(2);
        rig.settle().await;
        assert_eq!(rig.tables.journal(&at), ["credit", "reversal:held"]);
        for _ in 0..2 {
            let id = id.clone();
            rig.write(move |tx| tx.release(&id, "is fine")).await;
            rig.check();
        }
        rig.settle().await;
        assert_eq!(
            rig.tables.journal(&at),
            ["credit", "reversal:held", "reinstatement"],
            "without a new block"
        );
        rig.compare();
    });
}

/// The mark stays while blocks come and go under it.
#[test]
fn a_held_deposit_follows_the_chain_and_is_never_credited() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let a = rig.extend(1);
        let pay = rig.pay(&to, 5);
        let at = pay.outpoint(0);
        rig.send(&pay);
        rig.settle().await;
        let id = rig.tables.deposit(&at).id;
        let hold = id.clone();
        rig.write(move |tx| tx.hold(&hold, "looks odd")).await;
        let release = |id: String| move |tx: &mut WriteTx<'_>| tx.release(&id, "is fine");
        let refused = rig
            .store()
            .write(release(id.clone()))
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains("is seen"), "{refused}");
        let block = rig.mine(&[&pay]);
        rig.extend(5);
        rig.settle().await;
        rig.go_to(rig.extend_on(a, 8));
        rig.evict(&pay);
        rig.settle().await;
        let deposit = rig.tables.deposit(&at);
        assert_eq!(
            (deposit.state.as_str(), deposit.held.as_deref()),
            ("orphaned", Some("operator"))
        );
        let refused = rig
            .store()
            .write(release(id.clone()))
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains("is orphaned"), "{refused}");
        rig.go_to(rig.extend_on(block, 12));
        rig.settle().await;
        rig.compare();
        assert!(rig.tables.journal(&at).is_empty());
        rig.write(release(id)).await;
        rig.settle().await;
        assert_eq!(rig.tables.journal(&at), ["credit"]);
        rig.compare();
    });
}

/// Raised, lowered, and a tier moved, each with a restart: what is uncredited follows, what is credited
/// stays.
#[test]
fn an_edited_policy_counts_for_what_is_not_credited_yet() {
    in_simulation(async {
        let mut rig = Rig::with(|settings| settings.terms.policies = native(&[], 2)).await;
        let to = rig.watch(1).await;
        let (first, second) = (rig.pay(&to, 5), rig.pay(&to, 5));
        rig.mine(&[&first]);
        rig.mine(&[&second]);
        rig.settle().await;
        assert_eq!(rig.tables.journal(&first.outpoint(0)), ["credit"]);
        rig.settings.terms.policies = native(&[], 5);
        rig.reopen().await;
        rig.extend(1);
        rig.settle().await;
        assert_eq!(
            rig.tables.state(&second.outpoint(0)),
            "confirming",
            "not by the old policy"
        );
        assert_eq!(rig.tables.journal(&first.outpoint(0)), ["credit"]);
        rig.compare();
        rig.settings.terms.policies = native(&[(6, 1)], 5);
        rig.reopen().await;
        rig.settle().await;
        assert_eq!(
            rig.tables.journal(&second.outpoint(0)),
            ["credit"],
            "at once, without a block"
        );
        rig.compare();
        let before = rig.projection();
        rig.reopen().await;
        rig.settle().await;
        assert_eq!(rig.projection(), before, "the same policy again is nothing");
    });
}

/// One transaction pays a customer's lasting address out of coin of the same merchant and others; a payjoin;
/// change.
#[test]
fn own_coin_is_told_from_payments() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let (a, b) = (rig.watch(1).await, rig.watch(2).await);
        let own = rig.add(AddressKind::Own, 3, "shop", "ignore").await;
        let other = rig.add(AddressKind::Watch, 4, "other", "ignore").await;
        let paid = rig.pay(&a, 10);
        let hot = rig.pay(&own, 10);
        rig.mine(&[&paid, &hot]);
        let stranger = rig.chain.world().tree.coin();
        // Change to a watched address, through an own one first: coin of ours all the way.
        let sweep = rig.spend(&[paid.outpoint(0)], &[(&own, 5), (&other, 4)]);
        let back = rig.spend(&[sweep.outpoint(0)], &[(&b, 5)]);
        let payjoin = rig.spend(&[hot.outpoint(0), stranger], &[(&a, 17)]);
        rig.mine(&[&sweep, &back, &payjoin]);
        rig.extend(3);
        rig.settle().await;
        rig.compare();
        assert_eq!(
            rig.tables.journal(&sweep.outpoint(1)),
            ["credit"],
            "another merchant was paid"
        );
        assert_eq!(rig.tables.state(&back.outpoint(0)), "absent");
        let held = rig.tables.deposit(&payjoin.outpoint(0));
        assert_eq!(
            (held.state.as_str(), held.held.as_deref()),
            ("confirming", Some("own_inputs"))
        );
        let id = held.id;
        rig.write(move |tx| tx.release(&id, "a payjoin")).await;
        rig.settle().await;
        assert_eq!(rig.tables.journal(&payjoin.outpoint(0)), ["credit"]);
        rig.compare();
    });
}

#[test]
fn own_transfers_are_held_or_credited_where_the_merchant_says_so() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let a = rig.add(AddressKind::Watch, 1, "holds", "hold").await;
        let b = rig.add(AddressKind::Watch, 2, "credits", "credit").await;
        let (one, two) = (rig.pay(&a, 5), rig.pay(&b, 5));
        rig.mine(&[&one, &two]);
        let (held, credited) = (
            rig.spend(&[one.outpoint(0)], &[(&a, 4)]),
            rig.spend(&[two.outpoint(0)], &[(&b, 4)]),
        );
        rig.mine(&[&held, &credited]);
        rig.extend(3);
        rig.settle().await;
        rig.compare();
        assert_eq!(
            rig.tables.deposit(&held.outpoint(0)).held.as_deref(),
            Some("internal")
        );
        assert_eq!(rig.tables.journal(&credited.outpoint(0)), ["credit"]);
    });
}

#[test]
fn several_outputs_to_one_address_are_several_payments_and_nothing_is_none() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let outs = [5, 5, 0].map(|amount| Out::new(to.clone(), amount));
        let pay = rig.chain.world().tree.pay(outs.to_vec());
        rig.send(&pay);
        rig.settle().await;
        rig.mine(&[&pay]);
        rig.extend(3);
        rig.settle().await;
        rig.compare();
        assert_eq!(rig.tables.count("SELECT count(*) FROM credits"), 2);
        assert_eq!(rig.tables.state(&pay.outpoint(2)), "absent");
    });
}

/// An address counts from the block after the one that it was added at; older payments are found by backfill
/// alone.
#[test]
fn a_late_address_finds_its_past_only_by_backfill() {
    in_simulation(async {
        let mut rig = Rig::with(|settings| settings.terms.policies = native(&[(6, 1)], 3)).await;
        let to = script(7);
        let (old, older, other) = (rig.pay(&to, 5), rig.pay(&to, 4), rig.pay(&script(8), 3));
        rig.mine(&[&older]);
        rig.mine(&[&old]);
        rig.mine(&[&other]);
        rig.extend(30);
        rig.settle().await;
        rig.watch(7).await;
        rig.watch(8).await;
        rescan(&mut rig, 1, Backfill::Nothing).await;
        assert_eq!(rig.tables.count("SELECT count(*) FROM outputs"), 0);
        rig.compare();
        rescan(&mut rig, 2, Backfill::Script(to.clone())).await;
        assert_eq!(rig.tables.journal(&old.outpoint(0)), ["credit"]);
        assert_eq!(
            rig.tables.count("SELECT count(*) FROM outputs"),
            1,
            "and no other"
        );
        rig.compare();
        rescan(&mut rig, 1, Backfill::All).await;
        assert_eq!(rig.tables.count("SELECT count(*) FROM credits"), 3);
        rig.compare();
        let before = rig.tables.events();
        for from in [1, 2, 20] {
            rescan(&mut rig, from, Backfill::All).await;
        }
        assert_eq!(rig.tables.events(), before);
        rig.compare();
    });
}

/// An address is imported with coin on it that nobody told us of. Its first sweep leaves change at a watched
/// address: own money. Before the change is credited, a backfill tells.
#[test]
fn change_of_an_old_coin_is_held_once_a_backfill_knows_the_coin() {
    in_simulation(async {
        let mut rig = Rig::with(|settings| settings.terms.policies = native(&[], 10)).await;
        let (old, change) = (script(7), rig.watch(1).await);
        let coin = rig.pay(&old, 50);
        rig.mine(&[&coin]);
        rig.extend(5);
        rig.settle().await;
        let key = rig.key;
        rig.write(move |tx| {
            let rule = NewAddress {
                script: script(7),
                kind: AddressKind::Own,
                merchant: "shop",
                internal: "ignore",
                reference: "",
            };
            tx.add_addresses(key, &[rule])
        })
        .await;
        let sweep = rig.spend(&[coin.outpoint(0)], &[(&change, 40)]);
        rig.mine(&[&sweep]);
        rig.settle().await;
        assert_eq!(rig.tables.state(&sweep.outpoint(0)), "confirming");
        rescan(&mut rig, 1, Backfill::Script(old)).await;
        rig.extend(20);
        rig.settle().await;
        assert!(rig.tables.journal(&sweep.outpoint(0)).is_empty());
        assert_eq!(
            rig.tables.deposit(&sweep.outpoint(0)).held.as_deref(),
            Some("internal")
        );
        rig.compare();
    });
}

/// A block with a credited payment gets a second one by backfill: together they are in the higher tier.
#[test]
fn a_backfill_into_a_paid_block_counts_the_sum() {
    in_simulation(async {
        let mut rig = Rig::with(|settings| settings.terms.policies = native(&[(100, 2)], 12)).await;
        let (known, late) = (rig.watch(1).await, script(2));
        let (one, two) = (rig.pay(&known, 60), rig.pay(&late, 60));
        let (three, four) = (rig.pay(&known, 60), rig.pay(&late, 60));
        rig.mine(&[&one, &two]);
        rig.extend(4);
        rig.mine(&[&three, &four]);
        rig.settle().await;
        assert_eq!(rig.tables.journal(&one.outpoint(0)), ["credit"]);
        rig.watch(2).await;
        rescan(&mut rig, 1, Backfill::All).await;
        assert_eq!(rig.tables.journal(&one.outpoint(0)), ["credit"]);
        let needs = |tx: &crate::scripted::Tx| rig.tables.deposit(&tx.outpoint(0)).confirmations;
        assert_eq!(
            (needs(&two), needs(&three), needs(&four)),
            (Some(12), Some(12), Some(12))
        );
        rig.compare();
        rig.extend(12);
        rig.settle().await;
        rig.compare();
    });
}

/// The address is added while the block that pays it is on its way from the node.
#[test]
fn an_address_added_between_filter_and_commit_is_found() {
    in_simulation(async {
        for after in 0..5 {
            let mut rig = Rig::new().await;
            rig.extend(2);
            rig.settle().await;
            let paid: Vec<_> = (0..5).map(|_| rig.pay(&script(7), 5)).collect();
            for pay in &paid {
                rig.mine(&[pay]);
            }
            rig.chain.world().hook = Some(Hook {
                during: "block",
                after,
                run: Box::new(add_and_backfill(&rig, 7, None)),
            });
            rig.extend(3);
            rig.settle().await;
            assert_eq!(
                rig.tables.count("SELECT count(*) FROM credits"),
                5,
                "after {after} blocks"
            );
            rig.compare();
        }
    });
}

/// The same between the look at the rules and the reading of old blocks, with and without a rescan under way.
#[test]
fn an_address_added_just_before_a_rescan_reads_is_found_by_its_backfill() {
    in_simulation(async {
        for (during, is_running) in [
            ("tip", true),
            ("hashes", true),
            ("block", true),
            ("mempool", false),
        ] {
            let mut rig = Rig::new().await;
            let pay = rig.pay(&script(7), 5);
            rig.extend(3);
            rig.mine(&[&pay]);
            rig.extend(40);
            rig.settle().await;
            let key = rig.key;
            rig.chain.world().hook = Some(Hook {
                during,
                after: 0,
                run: Box::new(add_and_backfill(&rig, 7, Some(1))),
            });
            if is_running {
                rig.write(move |tx| tx.ask_rescan(key, 2, &Backfill::Nothing, "before"))
                    .await;
            }
            rig.wait(Duration::from_secs(5)).await;
            assert!(rig.chain.world().hook.is_none(), "{during}: never asked");
            rig.settle().await;
            assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"], "{during}");
            rig.compare();
        }
    });
}

/// A rescan has read a block that is lost before its matches are applied: nothing of the lost branch is
/// confirmed.
#[test]
fn a_rescan_never_applies_what_a_reorg_took() {
    in_simulation(async {
        for after in 0..30 {
            let mut rig = Rig::new().await;
            let (late, early) = (script(7), rig.watch(1).await);
            let a = rig.extend(3);
            let (lost, kept) = (rig.pay(&late, 5), rig.pay(&early, 6));
            let ours = rig.mine_on(a, &[&lost, &kept]);
            rig.go_to(rig.extend_on(ours, 12));
            rig.settle().await;
            rig.watch(7).await;
            let theirs = rig.mine_on(a, &[&kept]);
            let theirs = rig.extend_on(theirs, 14);
            let world = rig.chain.clone();
            rig.chain.world().hook = Some(Hook {
                during: "block",
                after,
                run: Box::new(move || world.world().all_go_to(theirs)),
            });
            rescan(&mut rig, 1, Backfill::All).await;
            rig.go_to(theirs);
            rig.evict(&lost);
            rig.wait(Duration::from_secs(90)).await;
            rig.compare();
            assert_eq!(rig.tables.journal(&kept.outpoint(0)).last().unwrap(), "credit");
        }
    });
}

/// Blocks that a rescan has passed are lost before it is done: it steps back, and comes to its end.
#[test]
fn a_rescan_comes_to_its_end_over_a_reorg_below_it() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let late = script(7);
        let (kept, moved) = (rig.pay(&late, 5), rig.pay(&late, 6));
        rig.mine(&[&kept]);
        let fork = rig.extend(58);
        rig.mine(&[&moved]);
        rig.extend(12);
        rig.settle().await;
        rig.watch(7).await;
        assert!(rig.ask_rescan(1, Backfill::All).await);
        rig.round().await;
        assert_eq!(
            rig.tables.count("SELECT next_height FROM rescans"),
            65,
            "a slice is read"
        );
        let theirs = rig.extend_on(fork, 3);
        let theirs = rig.mine_on(theirs, &[&moved]);
        rig.go_to(rig.extend_on(theirs, 12));
        rig.settle().await;
        assert_eq!(rig.tables.journal(&kept.outpoint(0)), ["credit"]);
        assert_eq!(rig.tables.journal(&moved.outpoint(0)), ["credit"]);
        rig.compare();
    });
}

/// A rescan far below the window stages what it finds; a restart in between forgets nothing of it.
#[test]
fn a_rescan_below_the_window_survives_restarts() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let (late, elsewhere) = (script(7), script(900));
        let pay = rig.pay(&late, 5);
        rig.mine(&[&pay]);
        rig.extend(100);
        rig.mine(&[&rig.spend(&[pay.outpoint(0)], &[(&elsewhere, 4)])]);
        rig.extend(200);
        rig.settle().await;
        rig.watch(7).await;
        assert!(rig.ask_rescan(1, Backfill::All).await);
        for times in 1..12 {
            assert!(rig.crash(times).await);
        }
        for _ in 0..6 {
            rig.round().await;
            rig.reopen().await;
        }
        rig.settle().await;
        assert_eq!(rig.tables.journal(&pay.outpoint(0)), ["credit"]);
        rig.compare();
    });
}
