//! Coins of the merchant that move: change, sweeps, consolidations and payjoins are not customers' payments,
//! and a customer's payment beside them is not lost.

use crate::common::wallet::{Coin, RawTx};
use crate::shop::{Deposit, Shop, TO_CREDIT, fresh_address, text};

const SEEN: &str = "deposit.seen";
const CONFIRMING: &str = "deposit.confirming";
const HELD: &str = "deposit.held";
const RELEASED: &str = "deposit.released";
const CREATED: &str = "credit.created";
const REVERSED: &str = "credit.reversed";
const REINSTATED: &str = "credit.reinstated";

const FEE: u64 = 1_000;

/// A shop whose merchants differ in what a transfer between their own addresses is: `shop` ignores it.
fn open() -> Shop {
    Shop::open_with(|setup| {
        for rule in ["hold", "credit"] {
            setup.tables += &format!("[[merchant]]\nslug = \"{rule}\"\ninternal = \"{rule}\"\n\n");
        }
    })
}

/// An address of the node's wallet, so that its coins can be spent, which a merchant watches.
#[track_caller]
fn watched(shop: &Shop, merchant: &str) -> String {
    let address = shop.node.new_address();
    shop.watch_for(merchant, &address);
    address
}

#[track_caller]
fn own(shop: &Shop, merchant: &str) -> String {
    let address = shop.node.new_address();
    shop.daemon
        .json(&["watch", "own", &address, "--merchant", merchant]);
    address
}

/// Mines a transaction that was listed before, and buries it past its credit.
#[track_caller]
fn list_and_bury(shop: &Shop, tx: &RawTx) {
    shop.node.broadcast(tx);
    shop.daemon
        .wait_for("the transaction is known", &["tx", &tx.txid], |answer| {
            answer["transactions"][0]["in_mempool"].as_bool()?.then_some(())
        });
    shop.node.mine(1 + TO_CREDIT);
    shop.settle();
}

/// (origin, kind, state of its deposit or nothing, why it is held) of each of our outputs.
#[track_caller]
fn outputs(shop: &Shop, tx: &RawTx) -> Vec<[String; 4]> {
    let told = shop.tx(&tx.txid);
    let outputs = told["outputs"].as_array().unwrap();
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    outputs
        .iter()
        .map(|output| {
            [
                text(&output["origin"]),
                text(&output["kind"]),
                word(&output["deposit"]["state"]),
                word(&output["deposit"]["held"]),
            ]
        })
        .collect()
}

#[track_caller]
fn assert_outputs(shop: &Shop, tx: &RawTx, expected: &[[&str; 4]]) {
    assert_eq!(outputs(shop, tx), expected, "{:#}", shop.tx(&tx.txid));
}

/// Two customers' coins of a merchant are consolidated, paid out with change, and moved on; what becomes of
/// the outputs to its own watched addresses is `moved` (state, why it is held). The sum of those.
#[track_caller]
fn move_own_coins(shop: &Shop, merchant: &str, customers: &[Coin; 2], moved: [&str; 2]) -> u64 {
    let [a, b, c] = [(); 3].map(|()| watched(shop, merchant));
    let change = own(shop, merchant);
    let internal = ["internal", "watch", moved[0], moved[1]];
    let no_payment = ["internal", "own", "", ""];
    let payments = [&a, &b].map(String::as_str).into_iter().zip(customers);
    let coins: Vec<Coin> = payments
        .map(|(address, coin)| {
            let payment = shop.node.spend(
                &[coin],
                &[
                    (address, 10_000_000),
                    (&fresh_address(), coin.sat - 10_000_000 - FEE),
                ],
            );
            list_and_bury(shop, &payment);
            assert_outputs(shop, &payment, &[["external", "watch", "credited", ""]]);
            payment.coin(0)
        })
        .collect();
    // Consolidation, and with it a sweep into a watched address.
    let swept = 20_000_000 - FEE;
    let sweep = shop.node.spend(&coins.iter().collect::<Vec<_>>(), &[(&c, swept)]);
    list_and_bury(shop, &sweep);
    assert_outputs(shop, &sweep, &[internal]);
    // A payout with change to a declared own address and to a watched one.
    let payout = shop.node.spend(
        &[&sweep.coin(0)],
        &[
            (&fresh_address(), 5_000_000),
            (&change, 9_000_000),
            (&a, 4_000_000),
        ],
    );
    list_and_bury(shop, &payout);
    assert_outputs(shop, &payout, &[no_payment, internal]);
    // The change moves on into a watched address, and from there, unconfirmed, into another.
    let back = shop.node.spend(&[&payout.coin(1)], &[(&b, 9_000_000 - FEE)]);
    shop.node.broadcast(&back);
    let on = shop.node.spend(&[&back.coin(0)], &[(&c, 9_000_000 - 2 * FEE)]);
    list_and_bury(shop, &on);
    assert_outputs(shop, &back, &[internal]);
    assert_outputs(shop, &on, &[internal]);
    swept + 4_000_000 + (9_000_000 - FEE) + (9_000_000 - 2 * FEE)
}

#[test]
fn transfers_between_own_addresses_are_what_the_merchant_says() {
    let shop = open();
    // Set aside before the wallet holds coins of the merchants.
    let customers: Vec<[Coin; 2]> = (0..3).map(|_| [(); 2].map(|()| shop.node.coin())).collect();
    move_own_coins(&shop, "shop", &customers[0], ["", ""]);
    assert_eq!(shop.credited_sat("shop"), 20_000_000);
    move_own_coins(&shop, "hold", &customers[1], ["confirming", "internal"]);
    assert_eq!(shop.credited_sat("hold"), 20_000_000);
    let moved = move_own_coins(&shop, "credit", &customers[2], ["credited", ""]);
    assert_eq!(shop.credited_sat("credit"), 20_000_000 + moved);
    // What was held is the operator's to decide, one by one.
    let held = shop
        .daemon
        .json(&["deposits", "list", "--held", "--merchant", "hold"]);
    let held = held["deposits"].as_array().unwrap().clone();
    assert_eq!(held.len(), 4, "{held:#?}");
    let id = text(&held[0]["id"]);
    let amount: u64 = text(&held[0]["amount_base"]).parse().unwrap();
    assert_eq!(repair(&shop, "release", &id, true), "done");
    let txid = text(&held[0]["txid"]);
    shop.await_state(&txid, "credited").assert_is(
        "credited",
        &[SEEN, HELD, CONFIRMING, RELEASED, CREATED],
        &["credit"],
    );
    assert_eq!(shop.credited_sat("hold"), 20_000_000 + amount);
    shop.assert_sound();
}

/// Holds or releases a deposit; the outcome.
#[track_caller]
fn repair(shop: &Shop, action: &str, id: &str, is_applied: bool) -> String {
    let mut args = vec!["deposits", action, id, "--reason", "the test wants it"];
    args.extend(is_applied.then_some("--apply"));
    text(&shop.daemon.json(&args)["outcome"])
}

/// A payjoin that is held and listed: the shop's coin and the customer's, one output to the shop for both.
#[track_caller]
fn held_payjoin(shop: &Shop, till: &str) -> RawTx {
    let [first, second] = [(); 2].map(|()| shop.node.coin());
    let payment = shop.node.spend(
        &[&first],
        &[(till, 1_000_000), (&fresh_address(), first.sat - 1_000_000 - FEE)],
    );
    list_and_bury(shop, &payment);
    let payjoin = shop.node.spend(
        &[&payment.coin(0), &second],
        &[
            (&shop.watch(), 3_000_000),
            (&fresh_address(), second.sat - 2_000_000 - FEE),
        ],
    );
    shop.node.broadcast(&payjoin);
    shop.await_deposit(&payjoin.txid, "held", |deposit| !deposit.0["held"].is_null())
        .assert_is("seen", &[SEEN, HELD], &[]);
    payjoin
}

#[track_caller]
fn assert_held(deposit: &Deposit, reason: &str, events: &[&str], journal: &[&str]) {
    deposit.assert_is("confirming", events, journal);
    assert_eq!(deposit.0["held"], reason);
}

#[test]
fn payment_with_a_coin_of_ours_in_it_waits_for_the_operator() {
    let shop = open();
    let RawTx { txid, .. } = held_payjoin(&shop, &watched(&shop, "shop"));
    let id = text(&shop.deposit(&txid).0["id"]);
    let early = shop
        .daemon
        .cli(&["deposits", "release", &id, "--reason", "r", "--apply"]);
    assert_eq!(early.status.code(), Some(1), "in no block yet: refused");
    let block = shop.node.mine(1).remove(0);
    shop.node.mine(TO_CREDIT);
    shop.settle();
    let mut events = vec![SEEN, HELD, CONFIRMING];
    assert_held(&shop.deposit(&txid), "own_inputs", &events, &[]);
    // Without --apply it is only said.
    assert_eq!(repair(&shop, "release", &id, false), "dry");
    shop.node.mine(1);
    shop.settle();
    assert_held(&shop.deposit(&txid), "own_inputs", &events, &[]);
    // Released: credited by the next round, without another block.
    assert_eq!(repair(&shop, "release", &id, true), "done");
    events.extend([RELEASED, CREATED]);
    shop.await_state(&txid, "credited")
        .assert_is("credited", &events, &["credit"]);
    let outpoint = format!("{txid}:0");
    assert_eq!(repair(&shop, "release", &outpoint, true), "nothing");
    assert_eq!(shop.credited_sat("shop"), 4_000_000);
    // Held again: the credit is reversed, once.
    assert_eq!(repair(&shop, "hold", &outpoint, true), "done");
    assert_eq!(repair(&shop, "hold", &id, true), "nothing");
    events.push(REVERSED);
    let held = shop.deposit(&txid);
    assert_held(&held, "operator", &events, &["credit", "reversal"]);
    assert_eq!(held.0["credit"]["journal"][1]["reason"], "held");
    assert_eq!(shop.credited_sat("shop"), 1_000_000);
    // A reorg moves it under the hold, which stays.
    shop.node.invalidate(&block);
    shop.mine_empty(1);
    shop.node.generateblock(&[&txid]);
    shop.mine_empty(TO_CREDIT + 2);
    shop.settle();
    events.push(CONFIRMING);
    assert_held(&shop.deposit(&txid), "operator", &events, &["credit", "reversal"]);
    assert_eq!(repair(&shop, "release", &id, true), "done");
    events.extend([RELEASED, REINSTATED]);
    let journal = ["credit", "reversal", "reinstatement"];
    shop.await_state(&txid, "credited")
        .assert_is("credited", &events, &journal);
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (2, 4_000_000));
    shop.assert_sound();
}

#[test]
fn coin_of_one_merchant_is_a_customers_coin_to_another() {
    let shop = open();
    let coin = shop.node.coin();
    let (till, other) = (watched(&shop, "shop"), watched(&shop, "hold"));
    let payment = shop.node.spend(
        &[&coin],
        &[(&till, 2_000_000), (&fresh_address(), coin.sat - 2_000_000 - FEE)],
    );
    list_and_bury(&shop, &payment);
    let across = shop.node.spend(&[&payment.coin(0)], &[(&other, 2_000_000 - FEE)]);
    list_and_bury(&shop, &across);
    assert_outputs(&shop, &across, &[["external", "watch", "credited", ""]]);
    assert_eq!(shop.credited_sat("hold"), 2_000_000 - FEE);
    assert_eq!(
        shop.credited_sat("shop"),
        2_000_000,
        "paying out reverses nothing"
    );
    shop.assert_sound();
}
