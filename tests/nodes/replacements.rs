//! Payments that another transaction takes the place of, in the mempool and in blocks, their descendants, and
//! payments that the node forgets. T1, T2, T3 spend one coin.

use crate::common::node::RegtestNode;
use crate::common::wait::{PATIENCE, wait_until};
use crate::common::wallet::{Coin, RawTx};
use crate::shop::{Shop, TO_CREDIT, fresh_address};

const SEEN: &str = "deposit.seen";
const CONFIRMING: &str = "deposit.confirming";
const REPLACED: &str = "deposit.replaced";
const EVICTED: &str = "deposit.evicted";
const CREATED: &str = "credit.created";
const REVERSED: &str = "credit.reversed";

/// Spends all of a coin to one address; a later one must leave a larger fee.
fn spend(shop: &Shop, coin: &Coin, address: &str, fee: u64) -> RawTx {
    shop.node.spend(&[coin], &[(address, coin.sat - fee)])
}

#[track_caller]
fn assert_replaced(shop: &Shop, lost: &RawTx, by: &RawTx, events: &[&str]) {
    let deposit = shop.await_deposit(&lost.txid, &format!("replaced by {}", by.txid), |deposit| {
        deposit.0["replaced_by"] == by.txid.as_str()
    });
    deposit.assert_is("replaced", events, &[]);
}

/// T1, T2 and T3 all pay us, each in place of the one before; T3 is mined. Also run under every kind of
/// trouble.
pub fn two_bumps_in_a_row(shop: &mut Shop) {
    let (coin, address) = (shop.node.coin(), shop.watch());
    let before = shop.credited_sat("shop");
    let [t1, t2, t3] = [1_000, 10_000, 20_000].map(|fee| spend(shop, &coin, &address, fee));
    shop.node.broadcast(&t1);
    shop.await_state(&t1.txid, "seen");
    shop.meanwhile();
    shop.node.broadcast(&t2);
    shop.await_state(&t2.txid, "seen");
    assert_replaced(shop, &t1, &t2, &[SEEN, REPLACED]);
    shop.meanwhile();
    shop.node.broadcast(&t3);
    shop.await_state(&t3.txid, "seen");
    // One event for each replacer, though it was replaced before.
    assert_replaced(shop, &t1, &t3, &[SEEN, REPLACED, REPLACED]);
    assert_replaced(shop, &t2, &t3, &[SEEN, REPLACED]);
    shop.meanwhile();
    shop.node.mine(1);
    shop.settle();
    shop.meanwhile();
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    let paid = shop.deposit(&t3.txid);
    paid.assert_is("credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
    assert_eq!(paid.net_sat(), coin.sat - 20_000);
    assert_replaced(shop, &t1, &t3, &[SEEN, REPLACED, REPLACED]);
    assert_replaced(shop, &t2, &t3, &[SEEN, REPLACED]);
    assert_eq!(shop.credited_sat("shop"), before + coin.sat - 20_000);
}

#[test]
fn bumps_in_the_mempool_leave_one_payment() {
    let mut shop = Shop::open();
    two_bumps_in_a_row(&mut shop);
    let before = shop.credited_sat("shop");
    // The wallet's own bump, which pays us the same from a smaller change.
    let first = shop.node.send(&shop.watch(), 5_000_000);
    shop.await_state(&first, "seen");
    let second = shop.node.bump(&first);
    shop.await_state(&second, "seen");
    shop.node.mine(1 + TO_CREDIT);
    shop.settle();
    let lost = shop.deposit(&first);
    lost.assert_is("replaced", &[SEEN, REPLACED], &[]);
    assert_eq!(lost.0["replaced_by"], second.as_str());
    shop.deposit(&second)
        .assert_is("credited", &[SEEN, CONFIRMING, CREATED], &["credit"]);
    assert_eq!(shop.credited_sat("shop"), before + 5_000_000);
    // And one that pays somebody else.
    let (coin, address) = (shop.node.coin(), shop.watch());
    let (t1, t2) = (
        spend(&shop, &coin, &address, 1_000),
        spend(&shop, &coin, &fresh_address(), 10_000),
    );
    shop.node.broadcast(&t1);
    shop.await_state(&t1.txid, "seen");
    shop.node.broadcast(&t2);
    assert_replaced(&shop, &t1, &t2, &[SEEN, REPLACED]);
    shop.node.mine(1 + TO_CREDIT);
    shop.settle();
    assert_replaced(&shop, &t1, &t2, &[SEEN, REPLACED]);
    assert_eq!(
        (shop.credits().len(), shop.credited_sat("shop")),
        (2, before + 5_000_000)
    );
    shop.assert_sound();
}

/// T1 is listed, T2 comes with a block; a reorg puts T1 into its place. Also run under every kind of trouble.
pub fn replacement_in_a_block_undone_by_a_reorg(shop: &mut Shop) {
    let (coin, address) = (shop.node.coin(), shop.watch());
    let [t1, t2] = [1_000, 10_000].map(|fee| spend(shop, &coin, &address, fee));
    shop.node.broadcast(&t1);
    shop.await_state(&t1.txid, "seen");
    shop.meanwhile();
    let block = shop.node.generateblock(&[&t2.hex]);
    shop.mine_empty(1);
    shop.settle();
    assert_replaced(shop, &t1, &t2, &[SEEN, REPLACED]);
    shop.deposit(&t2.txid).assert_is("confirming", &[CONFIRMING], &[]);
    shop.meanwhile();
    shop.node.invalidate(&block);
    shop.node.generateblock(&[&t1.hex]);
    shop.mine_empty(1);
    shop.settle();
    shop.deposit(&t1.txid)
        .assert_is("confirming", &[SEEN, REPLACED, CONFIRMING], &[]);
    assert_replaced(shop, &t2, &t1, &[CONFIRMING, REPLACED]);
    shop.meanwhile();
    shop.mine_empty(3);
    shop.settle();
    let paid = shop.deposit(&t1.txid);
    paid.assert_is("credited", &[SEEN, REPLACED, CONFIRMING, CREATED], &["credit"]);
    assert_eq!(paid.net_sat(), coin.sat - 1_000);
    assert_replaced(shop, &t2, &t1, &[CONFIRMING, REPLACED]);
}

#[test]
fn replacement_first_seen_in_a_block_and_undone_is_paid_once() {
    let mut shop = Shop::open();
    replacement_in_a_block_undone_by_a_reorg(&mut shop);
    assert_eq!(shop.credits().len(), 1);
    shop.assert_sound();
}

/// A payment that was never in a mempool list, and its replacement by another block.
#[test]
fn double_spend_by_a_reorg_is_paid_once() {
    let mut shop = Shop::open();
    for depth in [1, 4] {
        let (coin, address) = (shop.node.coin(), shop.watch());
        let [t1, t2] = [1_000, 10_000].map(|fee| spend(&shop, &coin, &address, fee));
        let block = shop.node.generateblock(&[&t1.hex]);
        shop.mine_empty(depth - 1);
        shop.settle();
        shop.node.invalidate(&block);
        shop.node.generateblock(&[&t2.hex]);
        shop.mine_empty(depth);
        shop.settle();
        shop.trouble = crate::shop::Trouble::DaemonRestarts;
        shop.meanwhile();
        shop.mine_empty(5);
        shop.settle();
        let lost = shop.deposit(&t1.txid);
        if depth > TO_CREDIT {
            lost.assert_is(
                "replaced",
                &[CONFIRMING, CREATED, REVERSED],
                &["credit", "reversal"],
            );
        } else {
            lost.assert_is("replaced", &[CONFIRMING, REPLACED], &[]);
        }
        assert_eq!(lost.0["replaced_by"], t2.txid.as_str());
        let paid = shop.deposit(&t2.txid);
        paid.assert_is("credited", &[CONFIRMING, CREATED], &["credit"]);
        assert_eq!((paid.net_sat(), lost.net_sat()), (coin.sat - 10_000, 0));
    }
    shop.assert_sound();
}

#[test]
fn descendants_of_a_replaced_transaction_are_replaced_with_it() {
    let shop = Shop::open();
    // A strangers' transaction, its child that pays us, and a grandchild that does too.
    let (coin, stranger) = (shop.node.coin(), shop.node.new_address());
    let parent = spend(&shop, &coin, &stranger, 1_000);
    shop.node.broadcast(&parent);
    let (address, later) = (shop.watch(), shop.watch());
    let from = parent.coin(0);
    let half = from.sat / 2;
    let child = shop
        .node
        .spend(&[&from], &[(&address, half), (&stranger, half - 1_000)]);
    shop.node.broadcast(&child);
    let grandchild = spend(&shop, &child.coin(1), &later, 1_000);
    shop.node.broadcast(&grandchild);
    shop.await_state(&child.txid, "seen");
    shop.await_state(&grandchild.txid, "seen");
    // The parent is replaced by one that has no such output.
    let other = spend(&shop, &coin, &fresh_address(), 100_000);
    shop.node.broadcast(&other);
    for lost in [&child, &grandchild] {
        assert_replaced(&shop, lost, &other, &[SEEN, REPLACED]);
    }
    // A block brings the parent back after all, and the child with it; the grandchild can follow.
    shop.node.generateblock(&[&parent.hex, &child.hex]);
    shop.settle();
    shop.deposit(&child.txid)
        .assert_is("confirming", &[SEEN, REPLACED, CONFIRMING], &[]);
    shop.node.broadcast(&grandchild);
    shop.await_state(&grandchild.txid, "seen");
    shop.node.mine(1 + TO_CREDIT);
    shop.settle();
    shop.deposit(&child.txid)
        .assert_is("credited", &[SEEN, REPLACED, CONFIRMING, CREATED], &["credit"]);
    shop.deposit(&grandchild.txid).assert_is(
        "credited",
        &[SEEN, REPLACED, SEEN, CONFIRMING, CREATED],
        &["credit"],
    );
    // A chain that is all in one block, lost with it: whoever descends from the loser is lost too.
    let coin = shop.node.coin();
    let parent = spend(&shop, &coin, &stranger, 1_000);
    let address = shop.watch();
    shop.node.broadcast(&parent);
    let child = spend(&shop, &parent.coin(0), &address, 1_000);
    let other = spend(&shop, &coin, &fresh_address(), 100_000);
    let block = shop.node.generateblock(&[&parent.hex, &child.hex]);
    shop.settle();
    shop.deposit(&child.txid)
        .assert_is("confirming", &[CONFIRMING], &[]);
    shop.node.invalidate(&block);
    shop.node.generateblock(&[&other.hex]);
    shop.mine_empty(1);
    shop.settle();
    // Its parent was never stored: it was in the same block. That it is gone is all that can be told.
    let gone = shop.deposit(&child.txid);
    assert_eq!(
        (gone.journal().len(), gone.events().len()),
        (0, 2),
        "{:#}",
        gone.0
    );
    assert!(["replaced", "orphaned"].contains(&gone.state().as_str()));
    shop.assert_sound();
}

/// As long a chain as a node relays: each pays us and its child. One replacement takes all of it away at
/// once.
#[test]
fn chain_of_twenty_five_is_replaced_from_its_root() {
    const LONG: usize = 25;
    let shop = Shop::open();
    let (coin, own) = (shop.node.coin(), shop.node.new_address());
    let mut from = coin.clone();
    let mut chain = Vec::new();
    for sat in (10_000..).take(LONG) {
        let tx = shop
            .node
            .spend(&[&from], &[(&shop.watch(), sat), (&own, from.sat - sat - 1_000)]);
        shop.node.broadcast(&tx);
        from = tx.coin(1);
        chain.push(tx);
    }
    for tx in &chain {
        shop.await_state(&tx.txid, "seen");
    }
    let other = spend(&shop, &coin, &fresh_address(), 200_000);
    shop.node.broadcast(&other);
    for tx in &chain {
        assert_replaced(&shop, tx, &other, &[SEEN, REPLACED]);
    }
    // A reorg that undoes the replacement brings them all, in one block.
    let block = shop.node.mine(1).remove(0);
    shop.settle();
    shop.node.invalidate(&block);
    let all: Vec<&str> = chain.iter().map(|tx| tx.hex.as_str()).collect();
    shop.node.generateblock(&all);
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    for tx in &chain {
        shop.deposit(&tx.txid)
            .assert_is("credited", &[SEEN, REPLACED, CONFIRMING, CREATED], &["credit"]);
    }
    assert_eq!(shop.credits().len(), LONG);
    shop.assert_sound();
}

#[test]
fn payment_that_the_node_forgets_is_evicted_and_comes_back() {
    // This node remembers no mempool, and its wallet sends nothing by itself.
    let node = RegtestNode::start_with(&["-persistmempool=0", "-walletbroadcast=0"]);
    let mut shop = Shop::open_at(node, |setup| {
        setup.chain_lines = "evict_after_secs = 1".to_owned();
    });
    let [again, mined] = [10_000, 20_000].map(|sat| shop.seen_payment(sat));
    shop.node.restart();
    shop.settle();
    assert!(shop.node.mempool().is_empty());
    for lost in [&again, &mined] {
        // Absence is measured between applied lists; a new block makes for a new list.
        let evicted = wait_until("evicted", PATIENCE, || {
            shop.mine_empty(1);
            shop.settle();
            let deposit = shop.deposit(&lost.txid);
            (deposit.state() == "evicted").then_some(deposit)
        });
        evicted.assert_is("evicted", &[SEEN, EVICTED], &[]);
    }
    shop.node.broadcast(&again);
    shop.await_state(&again.txid, "seen");
    shop.node.generateblock(&[&again.txid, &mined.hex]);
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    shop.deposit(&again.txid).assert_is(
        "credited",
        &[SEEN, EVICTED, SEEN, CONFIRMING, CREATED],
        &["credit"],
    );
    shop.deposit(&mined.txid)
        .assert_is("credited", &[SEEN, EVICTED, CONFIRMING, CREATED], &["credit"]);
    // While the daemon sleeps nothing is absent: it cannot know.
    let unknown = shop.seen_payment(30_000);
    shop.daemon.stop();
    shop.node.restart();
    shop.daemon.start_again();
    shop.settle();
    shop.deposit(&unknown.txid).assert_is("seen", &[SEEN], &[]);
    shop.assert_sound();
}
