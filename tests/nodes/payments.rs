//! Payments that nothing disturbs: from the mempool to the credit, in every form in which they come.

use crate::shop::{Shop, TO_CREDIT};

/// One payment from the mempool to its credit. Also run under every kind of trouble.
pub fn payment_is_credited_once(shop: &mut Shop) {
    let address = shop.watch();
    shop.meanwhile();
    let txid = shop.node.send(&address, 10_000_000);
    shop.await_state(&txid, "seen")
        .assert_is("seen", &["deposit.seen"], &[]);
    shop.meanwhile();
    let block = shop.node.mine(1).remove(0);
    let height = shop.node.height();
    for depth in 1..3 {
        shop.settle();
        let deposit = shop.deposit(&txid);
        deposit.assert_is("confirming", &["deposit.seen", "deposit.confirming"], &[]);
        assert_eq!((&deposit.0["depth"], &deposit.0["block_height"]), (&depth.into(), &height.into()));
        shop.meanwhile();
        shop.node.mine(1);
    }
    shop.settle();
    let credited = ["deposit.seen", "deposit.confirming", "credit.created"];
    let deposit = shop.deposit(&txid);
    deposit.assert_is("credited", &credited, &["credit"]);
    let entry = &deposit.0["credit"]["journal"][0];
    assert_eq!(entry["block_hash"], block.as_str(), "{entry}");
    assert_eq!(entry["due_hash"], shop.node.tip(), "{entry}");
    assert_eq!(
        (&entry["block_height"], &entry["due_height"], &entry["confirmations_required"]),
        (&height.into(), &(height + 2).into(), &3.into()),
    );
    shop.meanwhile();
    shop.node.mine(5);
    shop.settle();
    let later = shop.deposit(&txid);
    later.assert_is("credited", &credited, &["credit"]);
    assert_eq!((later.net_sat(), &later.0["credit"]), (10_000_000, &deposit.0["credit"]));
}

#[test]
fn payment_is_seen_confirmed_and_credited_once() {
    let mut shop = Shop::open();
    payment_is_credited_once(&mut shop);
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (1, 10_000_000));
    shop.daemon.stop();
    shop.daemon.start_again();
    shop.node.mine(TO_CREDIT);
    shop.settle();
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (1, 10_000_000));
    shop.assert_sound();
}
