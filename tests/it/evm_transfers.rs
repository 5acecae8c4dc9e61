//! What counts as a payment on EVM chains: tokens that are listed, movements from elsewhere, nonces that
//! nobody else has used up.

use crate::evm_rig::{LATER, TUSD, evm, evm_with, list, payer};
use crate::rig::{Rig, in_simulation};
use crate::scripted::{Call, account};
use creditd::rules::Doubt;
use creditd::store::{AddressKind, Backfill};
use std::time::Duration;

#[test]
fn each_movement_of_a_transaction_is_a_payment_of_its_own() {
    in_simulation(async {
        let mut rig = evm().await;
        let (one, two) = (rig.watch(1).await, rig.watch(2).await);
        rig.extend(2);
        let pool = account(77);
        let call = payer(&rig)
            .value(&one, 5)
            .log(0, TUSD, &one, 7)
            .log(2, TUSD, &two, 9)
            .log(3, LATER, &two, 11)
            .log(4, TUSD, &account(900), 13)
            .log(5, TUSD, &two, 0)
            .inner(0, &pool, &two, 15);
        let tx = rig.make(&call);
        rig.send(&tx);
        rig.settle().await;
        assert_eq!(
            rig.tables.events(),
            ["deposit.seen"],
            "what moves inside shows in the block"
        );
        rig.mine(&[&tx]);
        rig.extend(2);
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.tables.deposits().len(), 4);
        for at in [tx.outpoint(0), tx.log(0, 0), tx.log(2, 0), tx.outpoint(1 << 32)] {
            assert_eq!(rig.deposit_state(&at), "credited", "{at}");
        }
    });
}

/// C16: a token counts from the block after it was listed; what was sent before needs an operator.
#[test]
fn c16_a_token_that_is_listed_later_credits_nothing_of_the_past() {
    in_simulation(async {
        let mut rig = evm().await;
        let to = rig.watch(1).await;
        rig.extend(2);
        let old = rig.make(&payer(&rig).log(0, LATER, &to, 5));
        rig.mine(&[&old]);
        rig.extend(3);
        rig.settle().await;
        let asked = rig.ask_rescan(1, Backfill::Token([LATER; 20])).await;
        assert!(!asked, "not listed yet");
        let cursor = rig.cursor().unwrap();
        list(&mut rig.settings, LATER);
        rig.reopen().await;
        rig.settle().await;
        assert_eq!(rig.tables.count("SELECT count(*) FROM deposits"), 0);
        assert!(rig.ask_rescan(1, Backfill::Nothing).await);
        // Its block read again by a reorg below the height from which the token counts.
        let below = rig.best_chain()[2].hash();
        let at = rig.mine_on(below, &[&old]);
        rig.go_to(rig.extend_on(at, 4));
        let new = rig.make(&payer(&rig).log(0, LATER, &to, 6));
        rig.mine(&[&new]);
        rig.extend(2);
        rig.settle().await;
        assert_ne!(rig.cursor(), Some(cursor));
        rig.compare_evm();
        assert_eq!(rig.deposit_state(&old.log(0, 0)), "absent");
        assert_eq!(rig.deposit_state(&new.log(0, 0)), "credited");
        assert!(rig.ask_rescan(1, Backfill::Token([LATER; 20])).await);
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.deposit_state(&old.log(0, 0)), "credited");
        let before = rig.tables.event_ids();
        assert!(rig.ask_rescan(1, Backfill::All).await);
        rig.settle().await;
        assert_eq!(rig.tables.event_ids(), before);
    });
}

/// The coin of a chain that is followed with tokens alone is listed later; from the first start it counts.
#[test]
fn coin_that_is_listed_later_credits_nothing_of_the_past() {
    in_simulation(async {
        let mut rig = evm_with(2, |settings| {
            settings.chain.assets.remove(0);
        })
        .await;
        let to = rig.watch(1).await;
        rig.extend(2);
        let (old, token) = (rig.pay_coin(&to, 5), rig.pay_token(0, &to, 5));
        rig.mine(&[&old, &token]);
        rig.extend(3);
        rig.settle().await;
        assert_eq!(rig.tables.deposits().len(), 1);
        let coin = evm().await.settings.chain.assets[0].clone();
        rig.settings.chain.assets.push(coin);
        rig.reopen().await;
        let new = rig.pay_coin(&to, 6);
        rig.mine(&[&new]);
        assert!(rig.ask_rescan(1, Backfill::Nothing).await);
        rig.extend(3);
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.deposit_state(&old.outpoint(0)), "absent");
        assert_eq!(rig.deposit_state(&new.outpoint(0)), "credited");
    });
}

/// A token leaves the config while payments of it are on their way: nothing new of it counts, and what is
/// there stays as long as its block does. In another block nobody reads what it pays: it is held there.
#[test]
fn a_token_that_is_listed_no_more_is_credited_in_its_block_and_held_in_another() {
    in_simulation(async {
        let mut rig = evm().await;
        let to = rig.watch(1).await;
        let below = rig.extend(3);
        let (credited, young, gone) = (
            rig.pay_token(0, &to, 5),
            rig.pay_token(0, &to, 6),
            rig.pay_token(0, &to, 7),
        );
        let both = rig.make(&payer(&rig).value(&to, 1).log(0, TUSD, &to, 2));
        rig.mine(&[&credited]);
        rig.extend(2);
        rig.mine(&[&young, &gone, &both]);
        rig.extend(1);
        rig.settle().await;
        let token = rig.settings.chain.assets.pop().unwrap();
        rig.settings.terms.policies.remove(&token.asset);
        rig.reopen().await;
        rig.extend(1);
        rig.settle().await;
        assert_eq!(rig.deposit_state(&young.log(0, 0)), "credited");
        let at = rig.mine_on(below, &[&young]);
        let at = rig.mine_on(at, &[&credited]);
        let at = rig.mine_on(at, &[&both.failed()]);
        rig.go_to(rig.extend_on(at, 5));
        rig.mempools_forget();
        rig.settle().await;
        for tx in [&credited, &young] {
            assert_eq!(rig.deposit_state(&tx.log(0, 0)), "confirming held:unlisted");
            assert_eq!(rig.tables.journal(&tx.log(0, 0)), ["credit", "reversal:held"]);
        }
        assert!(rig.release(&young.log(0, 0)).await.unwrap());
        rig.settle().await;
        assert_eq!(rig.deposit_state(&young.log(0, 0)), "credited");
        assert_eq!(rig.deposit_state(&gone.log(0, 0)), "orphaned");
        assert_eq!(rig.deposit_state(&both.log(0, 0)), "failed");
        rig.reopen().await;
        // What failed may pay now, and nobody looks.
        let at = rig.mine_on(below, &[&both, &credited, &young]);
        rig.go_to(rig.extend_on(at, 9));
        rig.settle().await;
        assert_eq!(rig.deposit_state(&both.outpoint(0)), "credited");
        assert_eq!(rig.deposit_state(&both.log(0, 0)), "orphaned");
        // What was released was that run.
        assert_eq!(rig.deposit_state(&young.log(0, 0)), "confirming held:unlisted");
        rig.settings.terms.policies.insert(
            token.asset,
            rig.settings.terms.policies[&creditd::rules::Asset::Native].clone(),
        );
        rig.settings.chain.assets.push(token);
        rig.reopen().await;
        rig.extend(1);
        rig.settle().await;
        assert_eq!(rig.deposit_state(&young.log(0, 0)), "confirming held:unlisted");
    });
}

/// The same, and a reorg runs the transaction again: its log is one of a token that is listed. Of the
/// position both would be in a block, and the second credit would halt the chain.
#[test]
fn another_run_takes_the_place_of_what_is_listed_no_more() {
    in_simulation(async {
        for (depth, journal, held) in [(3, vec!["credit", "reversal:orphaned"], 1), (1, vec![], 0)] {
            let mut rig = evm_with(2, |settings| list(settings, LATER)).await;
            let to = rig.watch(1).await;
            let below = rig.extend(3);
            let call = payer(&rig);
            let tx = rig.make(&call.clone().log(0, LATER, &to, 5).log(1, LATER, &to, 6));
            rig.mine(&[&tx]);
            rig.extend(depth - 1);
            rig.settle().await;
            let token = rig.settings.chain.assets.pop().unwrap();
            rig.settings.terms.policies.remove(&token.asset);
            rig.reopen().await;
            let run = call.log(0, TUSD, &to, 7).log(1, LATER, &to, 6).again(&tx);
            let at = rig.mine_on(below, &[&run]);
            rig.go_to(rig.extend_on(at, 4));
            rig.settle().await;
            assert_eq!(rig.deposit_state(&tx.log(0, 0)), "orphaned");
            assert_eq!(rig.tables.journal(&tx.log(0, 0)), journal);
            assert_eq!(
                rig.deposit_state(&tx.log(1, 0)),
                "confirming held:unlisted",
                "nothing is in its place"
            );
            let sql = "SELECT count(*) FROM deposits WHERE held_reason = 'reexecuted'";
            assert_eq!(rig.tables.count(sql), held);
            if held > 0 {
                assert!(rig.release(&tx.log(0, 1)).await.unwrap());
                rig.settle().await;
            }
            assert_eq!(rig.deposit_state(&tx.log(0, 1)), "credited");
            rig.extend(1);
            rig.settle().await;
            assert_eq!(rig.cursor(), Some(rig.tip()), "the chain goes on");
        }
    });
}

#[test]
fn own_movements_are_no_payments() {
    in_simulation(async {
        let mut rig = evm().await;
        let (to, router) = (rig.watch(1).await, account(77));
        let own = rig.add(AddressKind::Own, 2, "shop", "ignore").await;
        let (hold, hold_own) = (
            rig.add(AddressKind::Watch, 3, "bank", "hold").await,
            rig.add(AddressKind::Own, 4, "bank", "hold").await,
        );
        let (credit, credit_own) = (
            rig.add(AddressKind::Watch, 5, "club", "credit").await,
            rig.add(AddressKind::Own, 6, "club", "credit").await,
        );
        rig.extend(1);
        let top_up = rig.make(&Call::new(&own, 0).value(&to, 1));
        let swap = rig.make(
            &Call::new(&own, 1)
                .log_from(0, TUSD, &own, &router, 4)
                .log_from(1, TUSD, &router, &to, 3)
                .inner(0, &router, &to, 2),
        );
        let pulled = rig.make(&payer(&rig).log_from(0, TUSD, &own, &to, 7));
        let held = rig.make(&Call::new(&hold_own, 0).value(&hold, 1));
        let credited = rig.make(&Call::new(&credit_own, 0).value(&credit, 1));
        let cross = rig.make(&Call::new(&own, 2).value(&credit, 1));
        for tx in [&top_up, &swap, &held, &credited, &cross] {
            rig.send(tx);
        }
        rig.settle().await;
        rig.mine(&[&top_up, &swap, &pulled, &held, &credited, &cross]);
        rig.extend(3);
        rig.settle().await;
        rig.compare_evm();
        for (at, state) in [
            (top_up.outpoint(0), "absent"),
            (swap.log(1, 0), "confirming held:own_inputs"),
            (swap.outpoint(1 << 32), "confirming held:own_inputs"),
            (pulled.log(0, 0), "absent"),
            (held.outpoint(0), "confirming held:internal"),
            (credited.outpoint(0), "credited"),
            (cross.outpoint(0), "credited"),
        ] {
            assert_eq!(rig.deposit_state(&at), state, "{at}");
        }
    });
}

async fn replaced_by(is_mined: bool) -> Rig {
    let mut rig = evm().await;
    let to = rig.watch(1).await;
    rig.extend(2);
    let call = payer(&rig);
    let first = rig.make(&call.clone().value(&to, 5));
    let second = rig.make(&call.value(&account(900), 5));
    rig.send(&first);
    rig.settle().await;
    assert_eq!(rig.deposit_state(&first.outpoint(0)), "seen");
    match is_mined {
        true => drop(rig.mine(&[&second])),
        false => rig.send(&second),
    }
    rig.settle().await;
    rig.compare_evm();
    assert_eq!(rig.deposit_state(&first.outpoint(0)), "replaced");
    let by = rig.tables.deposit(&first.outpoint(0)).replaced_by;
    assert_eq!(by, Some(second.txid));
    // It comes back.
    let below = rig.best_chain()[2].hash();
    let at = rig.mine_on(below, &[&first]);
    rig.go_to(rig.extend_on(at, 3));
    rig.settle().await;
    rig.compare_evm();
    assert_eq!(rig.deposit_state(&first.outpoint(0)), "credited");
    rig
}

#[test]
fn a_pending_payment_is_replaced_by_its_senders_nonce() {
    in_simulation(async {
        replaced_by(false).await;
        replaced_by(true).await;
    });
}

/// A token's payment that was mined, lost to a rival and is pending again: what it pays is known when it is
/// mined.
#[test]
fn a_replaced_token_payment_that_is_pending_again_is_replaced_by_nobody() {
    in_simulation(async {
        let mut rig = evm().await;
        let to = rig.watch(1).await;
        let below = rig.extend(2);
        let call = payer(&rig);
        let pay = rig.make(&call.clone().value(&to, 1).log(0, TUSD, &to, 5));
        let rival = rig.make(&call.value(&account(900), 5));
        rig.mine(&[&pay]);
        rig.settle().await;
        let at = rig.mine_on(below, &[&rival]);
        rig.go_to(rig.extend_on(at, 1));
        rig.settle().await;
        assert_eq!(rig.deposit_state(&pay.log(0, 0)), "replaced");
        rig.go_to(rig.extend_on(below, 4));
        rig.mempools_forget();
        rig.send(&pay);
        rig.settle().await;
        rig.wait(Duration::from_secs(30)).await;
        rig.settle().await;
        assert_eq!(rig.deposit_state(&pay.outpoint(0)), "seen");
        assert_eq!(rig.deposit_state(&pay.log(0, 0)), "orphaned");
        rig.mine(&[&pay]);
        rig.extend(2);
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.tables.journal(&pay.log(0, 0)), ["credit"]);
    });
}

/// Deposits of a rollup have no nonce: two of one sender are two payments.
#[test]
fn payments_without_a_nonce_never_replace_each_other() {
    in_simulation(async {
        let mut rig = evm().await;
        let to = rig.watch(1).await;
        rig.extend(1);
        let sender = account(50);
        let first = rig.make(&Call::deposit(&sender).value(&to, 5));
        let second = rig.make(&Call::deposit(&sender).value(&to, 6));
        let below = rig.mine(&[]);
        rig.mine(&[&first]);
        rig.mine(&[&second]);
        rig.extend(3);
        rig.settle().await;
        rig.compare_evm();
        for tx in [&first, &second] {
            assert_eq!(rig.tables.journal(&tx.outpoint(0)), ["credit"]);
        }
        let at = rig.mine_on(below, &[&second]);
        rig.go_to(rig.extend_on(at, 6));
        rig.mempools_forget();
        rig.settle().await;
        rig.compare_evm();
        assert_eq!(rig.deposit_state(&first.outpoint(0)), "orphaned");
        assert_eq!(rig.tables.journal(&second.outpoint(0)), ["credit"]);
    });
}

#[test]
fn a_payment_in_doubt_waits_for_the_operator_and_for_him_once() {
    in_simulation(async {
        for (doubt, word) in [
            (Doubt::Status, "status_unknown"),
            (Doubt::Balance, "balance_differs"),
        ] {
            let mut rig = evm().await;
            let to = rig.watch(1).await;
            rig.extend(1);
            let pay = rig.make(&payer(&rig).log(0, TUSD, &to, 5).doubt(doubt));
            let at = pay.log(0, 0);
            rig.mine(&[&pay]);
            rig.extend(4);
            rig.settle().await;
            rig.compare_evm();
            assert_eq!(rig.deposit_state(&at), format!("confirming held:{word}"));
            rig.release(&at).await.unwrap();
            rig.settle().await;
            assert_eq!(rig.tables.journal(&at), ["credit"]);
            assert!(rig.ask_rescan(1, Backfill::Nothing).await);
            rig.settle().await;
            rig.compare_evm();
            assert_eq!(rig.tables.journal(&at), ["credit"], "read again it is no news");
        }
    });
}
