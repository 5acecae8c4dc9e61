//! Reorgs at a real node: of every small depth, before and past a credit, there and back, into another block,
//! between two nodes, and deeper than the window. In the drawings a dot is an empty block and P holds the
//! payment.

use serde_json::json;

use crate::common::node::RegtestNode;
use crate::common::wait::PATIENCE;
use crate::common::wallet::RawTx;
use crate::shop::{Shop, TO_CREDIT, fresh_address};

const SEEN: &str = "deposit.seen";
const CONFIRMING: &str = "deposit.confirming";
const ORPHANED: &str = "deposit.orphaned";
const CREATED: &str = "credit.created";
const REVERSED: &str = "credit.reversed";
const REINSTATED: &str = "credit.reinstated";

/// A payment that was seen and then mined, with the hash of its block, which is the tip.
#[track_caller]
fn mined_payment(shop: &mut Shop, sat: u64) -> (RawTx, String) {
    let payment = shop.seen_payment(sat);
    shop.meanwhile();
    let block = shop.node.mine(1).remove(0);
    shop.settle();
    (payment, block)
}

/// `A-P-...` (depth d) / `A-.-...` (d + 1), and back: `A-P-...-.-.`. Also run under every kind of trouble.
pub fn reorg_there_and_back(shop: &mut Shop, depth: u32) {
    let (RawTx { txid, .. }, block) = mined_payment(shop, 10_000_000);
    let height = shop.node.height();
    shop.mine_empty(depth - 1);
    shop.settle();
    let is_credited = depth > TO_CREDIT;
    let mut events = vec![SEEN, CONFIRMING];
    let mut journal = Vec::new();
    if is_credited {
        events.push(CREATED);
        journal.push("credit");
    }
    let before = shop.deposit(&txid);
    before.assert_is(
        if is_credited { "credited" } else { "confirming" },
        &events,
        &journal,
    );
    shop.meanwhile();

    shop.node.invalidate(&block);
    let other = shop.mine_empty(depth + 1).remove(0);
    shop.settle();
    // Gone from the chain, and at once back in the node's mempool.
    events.extend([if is_credited { REVERSED } else { ORPHANED }, SEEN]);
    journal.extend(is_credited.then_some("reversal"));
    let there = shop.await_state(&txid, "seen");
    there.assert_is("seen", &events, &journal);
    assert_eq!(there.net_sat(), 0);
    shop.meanwhile();

    shop.node.reconsider(&block);
    shop.node.invalidate(&other);
    shop.mine_empty(2);
    shop.settle();
    events.extend([CONFIRMING, if is_credited { REINSTATED } else { CREATED }]);
    journal.push(if is_credited { "reinstatement" } else { "credit" });
    let back = shop.deposit(&txid);
    back.assert_is("credited", &events, &journal);
    assert_eq!(
        (back.net_sat(), &back.0["block_height"]),
        (10_000_000, &json!(height))
    );
    if is_credited {
        assert_eq!(
            back.0["credit"]["id"], before.0["credit"]["id"],
            "the same credit again"
        );
    }
    shop.meanwhile();
    shop.mine_empty(1);
    shop.settle();
    shop.deposit(&txid).assert_is("credited", &events, &journal);
}

#[test]
fn reorg_of_every_small_depth_and_back_ends_at_one_credit() {
    let mut shop = Shop::open();
    for depth in 1..=6 {
        reorg_there_and_back(&mut shop, depth);
    }
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (6, 60_000_000));
    shop.assert_sound();
}

#[test]
fn flip_flop_writes_one_entry_each_time_and_no_more() {
    let mut shop = Shop::open();
    let (RawTx { txid, .. }, first) = mined_payment(&mut shop, 20_000);
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    let mut branches = [first, String::new()];
    let (mut events, mut journal) = (vec![SEEN, CONFIRMING, CREATED], vec!["credit"]);
    for _ in 0..3 {
        let height = shop.node.height();
        for is_back in [false, true] {
            let (from, to) = if is_back { (1, 0) } else { (0, 1) };
            if !branches[to].is_empty() {
                shop.node.reconsider(&branches[to]);
            }
            shop.node.invalidate(&branches[from]);
            let mined = (shop.node.height()..=height + u64::from(is_back))
                .map(|_| shop.mine_empty(1).remove(0))
                .collect::<Vec<_>>();
            if branches[to].is_empty() {
                branches[to] = mined[0].clone();
            }
            shop.settle();
            if is_back {
                events.extend([CONFIRMING, REINSTATED]);
                journal.push("reinstatement");
                shop.deposit(&txid).assert_is("credited", &events, &journal);
            } else {
                events.extend([REVERSED, SEEN]);
                journal.push("reversal");
                shop.await_state(&txid, "seen")
                    .assert_is("seen", &events, &journal);
            }
        }
    }
    shop.mine_empty(3);
    shop.settle();
    shop.deposit(&txid).assert_is("credited", &events, &journal);
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (1, 20_000));
    shop.assert_sound();
}

/// `A-T1-.-.` / `A-T2-.-.-.`: both branches pay us with the same coin, and the chain goes to and fro.
#[test]
fn double_spend_on_both_branches_is_credited_on_the_branch_that_stands() {
    let shop = Shop::open();
    let (coin, addresses) = (shop.node.coin(), [shop.watch(), shop.watch()]);
    let txs = [0, 1].map(|i| {
        let sat = coin.sat - 1_000 * (1 + i as u64);
        shop.node.spend(&[&coin], &[(&addresses[i], sat)])
    });
    let mut blocks = [shop.node.generateblock(&[&txs[0].hex]), String::new()];
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    let mut kept = (vec![CONFIRMING, CREATED], vec!["credit"]);
    let mut lost: (Vec<&str>, Vec<&str>) = (vec![], vec![]);
    for flip in 0..4 {
        let (from, to) = (flip % 2, (flip + 1) % 2);
        let height = shop.node.height();
        if flip > 0 {
            shop.node.reconsider(&blocks[to]);
        }
        shop.node.invalidate(&blocks[from]);
        if flip == 0 {
            blocks[to] = shop.node.generateblock(&[&txs[to].hex]);
        }
        while shop.node.height() <= height {
            shop.mine_empty(1);
        }
        shop.settle();
        std::mem::swap(&mut kept, &mut lost);
        lost.0.push(REVERSED);
        lost.1.push("reversal");
        let is_first = kept.0.is_empty();
        kept.0
            .extend([CONFIRMING, if is_first { CREATED } else { REINSTATED }]);
        kept.1.push(if is_first { "credit" } else { "reinstatement" });
        let gone = shop.deposit(&txs[from].txid);
        gone.assert_is("replaced", &lost.0, &lost.1);
        assert_eq!(gone.0["replaced_by"], txs[to].txid.as_str());
        shop.deposit(&txs[to].txid)
            .assert_is("credited", &kept.0, &kept.1);
        assert_eq!(shop.credited_sat("shop"), coin.sat - 1_000 * (1 + to as u64));
    }
    assert_eq!(shop.credits().len(), 2);
    shop.assert_sound();
}

#[test]
fn payment_in_another_block_of_the_new_branch_keeps_its_credit() {
    let mut shop = Shop::open();
    // A-P-.-. / A-.-P-.: at another height, and shallower than it was credited at.
    let (RawTx { txid, .. }, block) = mined_payment(&mut shop, 30_000);
    let height = shop.node.height();
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    let credited = [SEEN, CONFIRMING, CREATED];
    let before = shop.deposit(&txid);
    before.assert_is("credited", &credited, &["credit"]);
    shop.node.invalidate(&block);
    shop.mine_empty(1);
    let new = shop.node.generateblock(&[&txid]);
    shop.mine_empty(1);
    shop.settle();
    let moved = shop.deposit(&txid);
    moved.assert_is("credited", &credited, &["credit"]);
    assert_eq!(
        moved.0["credit"], before.0["credit"],
        "the credit stands as it was"
    );
    assert_eq!(moved.0["block_height"], height + 1);
    assert_eq!(moved.0["depth"], 2);
    assert_eq!(shop.tx(&txid)["blocks"][0]["hash"], new);
    // And once more, into the tip: depth 1.
    shop.node.invalidate(&new);
    shop.mine_empty(2);
    shop.node.generateblock(&[&txid]);
    shop.settle();
    let tip = shop.deposit(&txid);
    tip.assert_is("credited", &credited, &["credit"]);
    assert_eq!(
        (&tip.0["depth"], &tip.0["credit"]),
        (&json!(1), &before.0["credit"])
    );
    // One that is not credited yet moves too, says so, and waits from its new block on.
    let (RawTx { txid: young, .. }, block) = mined_payment(&mut shop, 40_000);
    shop.node.invalidate(&block);
    shop.mine_empty(1);
    shop.node.generateblock(&[&young]);
    shop.settle();
    let waiting = shop.deposit(&young);
    waiting.assert_is("confirming", &[SEEN, CONFIRMING, CONFIRMING], &[]);
    assert_eq!(waiting.0["depth"], 1);
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    shop.deposit(&young)
        .assert_is("credited", &[SEEN, CONFIRMING, CONFIRMING, CREATED], &["credit"]);
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (2, 70_000));
    shop.assert_sound();
}

/// An address counts from the block after it was added; a reorg can take its payment below that.
#[test]
fn payment_that_a_reorg_moves_below_its_addresss_first_height_keeps_its_credit() {
    let shop = Shop::open();
    // What was paid before the address was added stays uncounted, also when its block is mined again.
    let early = fresh_address();
    let past = shop.pay(&early, 90_000);
    let block = shop.node.generateblock(&[&past.hex]);
    shop.settle();
    shop.watch_for("shop", &early);
    let (paid, unseen) = (shop.seen_payment(10_000), shop.pay(&shop.watch(), 20_000));
    shop.node.mine(1 + TO_CREDIT);
    shop.settle();
    let credited = [SEEN, CONFIRMING, CREATED];
    shop.deposit(&paid.txid)
        .assert_is("credited", &credited, &["credit"]);
    shop.node.invalidate(&block);
    shop.node.generateblock(&[&past.hex, &paid.hex]);
    shop.node.generateblock(&[&unseen.hex]);
    shop.mine_empty(3);
    shop.settle();
    shop.deposit(&paid.txid)
        .assert_is("credited", &credited, &["credit"]);
    shop.deposit(&unseen.txid)
        .assert_is("credited", &[CONFIRMING, CREATED], &["credit"]);
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (2, 30_000));
    shop.assert_sound();
}

#[test]
fn joined_node_with_more_work_takes_payments_away_and_gives_them_back() {
    let shop = Shop::open_at(RegtestNode::listening(), |_| {});
    let (here, there) = (&shop.node, RegtestNode::listening());
    here.connect_peer(&there);
    there.catch_up_with(here, PATIENCE);
    here.disconnect_peer(&there);
    // Here both payments are in blocks, and one is credited; over there one coin went elsewhere.
    let (spent_twice, kept) = (shop.watch(), shop.watch());
    let (coin, elsewhere) = (here.coin(), fresh_address());
    let ours = here.spend(&[&coin], &[(&spent_twice, coin.sat - 1_000)]);
    let theirs = here.spend(&[&coin], &[(&elsewhere, coin.sat - 2_000)]);
    here.broadcast(&ours);
    shop.await_state(&ours.txid, "seen");
    here.mine(1);
    let young = here.send(&kept, 50_000);
    shop.await_state(&young, "seen");
    here.mine(TO_CREDIT);
    shop.settle();
    shop.deposit(&ours.txid)
        .assert_is("credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
    shop.deposit(&young)
        .assert_is("confirming", &[SEEN, CONFIRMING], &[]);
    there.generateblock(&[&theirs.hex]);
    there.mine(4);
    here.connect_peer(&there);
    here.catch_up_with(&there, PATIENCE);
    shop.settle();
    let lost = shop.deposit(&ours.txid);
    lost.assert_is(
        "replaced",
        &[SEEN, CONFIRMING, CREATED, REVERSED],
        &["credit", "reversal"],
    );
    assert_eq!(lost.0["replaced_by"], theirs.txid.as_str());
    shop.await_state(&young, "seen")
        .assert_is("seen", &[SEEN, CONFIRMING, ORPHANED, SEEN], &[]);
    here.mine(1 + TO_CREDIT);
    shop.settle();
    shop.deposit(&young).assert_is(
        "credited",
        &[SEEN, CONFIRMING, ORPHANED, SEEN, CONFIRMING, CREATED],
        &["credit"],
    );
    assert_eq!(shop.deposit(&ours.txid).state(), "replaced");
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (2, 50_000));
    shop.assert_sound();
}

#[test]
fn twenty_blocks_past_the_credit_reverse_it_once() {
    let shop = Shop::open();
    let (address, coin, elsewhere) = (shop.watch(), shop.node.coin(), fresh_address());
    let paid = shop.node.spend(&[&coin], &[(&address, coin.sat - 1_000)]);
    let other = shop.node.spend(&[&coin], &[(&elsewhere, coin.sat - 2_000)]);
    shop.node.broadcast(&paid);
    shop.await_state(&paid.txid, "seen");
    let block = shop.node.mine(1).remove(0);
    shop.mine_empty(19);
    shop.settle();
    shop.deposit(&paid.txid)
        .assert_is("credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
    shop.node.invalidate(&block);
    shop.mine_empty(5);
    shop.node.generateblock(&[&other.hex]);
    shop.mine_empty(15);
    shop.settle();
    let reversed = [SEEN, CONFIRMING, CREATED, REVERSED];
    let gone = shop.deposit(&paid.txid);
    gone.assert_is("replaced", &reversed, &["credit", "reversal"]);
    assert_eq!(gone.0["replaced_by"], other.txid.as_str());
    let reversal = &gone.0["credit"]["journal"][1];
    assert_eq!(reversal["block_hash"], block.as_str());
    assert_eq!(reversal["reason"], "replaced");
    shop.mine_empty(3);
    shop.settle();
    shop.deposit(&paid.txid)
        .assert_is("replaced", &reversed, &["credit", "reversal"]);
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (1, 0));
    shop.assert_sound();
}

/// The window is 144 blocks; the fork point is one below it, at a height whose header is kept for ever.
#[test]
fn reorg_past_the_window_halts_until_an_operator_accepts_it() {
    const FORK: u32 = 144;
    let mut shop = Shop::open();
    shop.mine_empty(FORK - u32::try_from(shop.node.height()).unwrap());
    shop.settle();
    let (lost, block) = mined_payment(&mut shop, 60_000);
    let (kept, _) = mined_payment(&mut shop, 70_000);
    shop.mine_empty(143);
    shop.settle();
    let credited = [SEEN, CONFIRMING, CREATED];
    for txid in [&lost.txid, &kept.txid] {
        shop.deposit(txid).assert_is("credited", &credited, &["credit"]);
    }
    shop.node.invalidate(&block);
    shop.node.generateblock(&[&kept.hex]);
    shop.mine_empty(145);
    let reason = shop.await_chain_state("btc", "reorg_too_deep");
    assert!(reason.contains("144 blocks"), "{reason}");
    assert_eq!(
        shop.daemon.cli(&["chain", "status"]).status.code(),
        Some(1),
        "a problem found"
    );
    // Nothing moves while it is halted, restarts included.
    shop.daemon.stop();
    shop.daemon.start_again();
    shop.await_chain_state("btc", "reorg_too_deep");
    shop.mine_empty(1);
    for txid in [&lost.txid, &kept.txid] {
        shop.deposit(txid).assert_is("credited", &credited, &["credit"]);
    }
    let accept = |fork: u32, more: &[&str]| {
        let fork = fork.to_string();
        let args = [
            &[
                "chain",
                "accept-reorg",
                "--fork",
                &fork,
                "--reason",
                "it is right",
            ],
            more,
        ]
        .concat();
        shop.daemon.cli(&args)
    };
    // A header that is not held cannot be gone back to, and the answer names one that can.
    let refused = accept(FORK - 1, &["--apply"]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("no header is held at height 143\n  next: the nearest below is at 111"),
        "{stderr}"
    );
    let dry = accept(FORK, &[]);
    let listed = String::from_utf8_lossy(&dry.stdout).into_owned();
    assert!(
        listed.contains("2 deposits then out of a block, 2 of"),
        "{listed}"
    );
    shop.deposit(&lost.txid)
        .assert_is("credited", &credited, &["credit"]);
    assert!(accept(FORK, &["--apply"]).status.success());
    shop.settle();
    let reversed = [SEEN, CONFIRMING, CREATED, REVERSED];
    shop.deposit(&lost.txid)
        .assert_is("orphaned", &reversed, &["credit", "reversal"]);
    let again = [SEEN, CONFIRMING, CREATED, REVERSED, CONFIRMING, REINSTATED];
    shop.deposit(&kept.txid)
        .assert_is("credited", &again, &["credit", "reversal", "reinstatement"]);
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (2, 70_000));
    shop.assert_sound();
}
