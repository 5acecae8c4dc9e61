//! Coin that contracts send is not seen where nobody traces: balances find it. It is told, and nobody is
//! credited by it, whatever is done to its record.

mod bank;
mod till;

use crate::rig::{in_simulation, stop_after};
use bank::Move::{Inner, Left, Paid};
use creditd::rules::{Amount, Outpoint, Script, Txid};
use creditd::store::report::{Filter, Page};
use creditd::store::{Backfill, ClosedAs, StoreError};
use std::future::Future;
use std::time::Duration;
use till::Till;

const NOTHING: [u64; 0] = [];

fn account(number: u8) -> Script {
    Script([number; 20].into())
}

fn simulate<F: Future<Output = ()>>(test: impl FnOnce(Till) -> F) {
    in_simulation(async { test(Till::new().await).await });
}

#[test]
fn inner_coin_is_found_once_when_it_is_final_and_credits_nobody() {
    simulate(|mut till| async move {
        till.watch(1..=3).await;
        till.bank.world().mine_empty(3);
        till.look(15).await;
        till.mine(&[Paid(account(1), 5), Inner(account(1), 7), Paid(account(2), 9)]);
        till.look(15).await;
        assert_eq!(till.amounts(), NOTHING, "not final yet");
        till.bank.world().mine_empty(4);
        till.look(15).await;
        assert_eq!(till.amounts(), NOTHING, "read before it came");
        till.bank.world().mine_empty(4);
        till.look(15).await;
        assert_eq!(till.amounts(), [7]);
        let found = till.found().remove(0);
        assert_eq!((found.from_height, found.to_height), (3, 8));
        assert_eq!((found.script, found.merchant.as_str()), (account(1), "shop"));
        let books = (vec!["14".to_owned()], 1);
        assert_eq!(till.books(), books);

        till.sweep().await;
        till.start().await;
        till.sweep().await;
        assert_eq!((till.amounts(), till.books()), (vec![7], books));
        let audited = "SELECT count(*) FROM audit WHERE action = 'unattributed'";
        assert_eq!(till.count(audited), 1);
    });
}

#[test]
fn coin_that_leaves_hides_what_came_meanwhile_and_nothing_after_it() {
    simulate(|mut till| async move {
        till.watch(1..=1).await;
        till.sweep().await;
        till.mine(&[Left(account(1), 100), Inner(account(1), 30)]);
        till.sweep().await;
        assert_eq!(till.amounts(), NOTHING);
        till.mine(&[Inner(account(1), 8)]);
        till.mine(&[Left(account(1), 3)]);
        till.sweep().await;
        assert_eq!(till.amounts(), [5], "at least so much");
        till.mine(&[Paid(account(1), 2), Left(account(1), 2)]);
        till.sweep().await;
        assert_eq!(till.amounts(), [5]);
    });
}

#[test]
fn a_crash_at_any_await_of_a_sweep_loses_and_doubles_nothing() {
    in_simulation(async {
        for times in 0.. {
            let mut till = Till::new().await;
            till.bank.world().pause = Duration::from_millis(300);
            till.watch(1..=2).await;
            till.bank.world().mine_empty(2);
            till.look(3).await;
            till.mine(&[Paid(account(1), 5), Inner(account(1), 7), Inner(account(2), 1)]);
            let is_whole = stop_after(till.sweep(), times).await.is_some();
            till.start().await;
            till.sweep().await;
            let mut amounts = till.amounts();
            amounts.sort_unstable();
            assert_eq!(amounts, [1, 7], "await {times}");
            assert_eq!(till.books(), (vec!["5".to_owned()], 2), "await {times}");
            if is_whole {
                assert!(times > 30, "{times}");
                break;
            }
        }
    });
}

#[test]
fn what_left_the_chain_with_its_block_is_not_told() {
    simulate(|mut till| async move {
        till.bank.world().mine_empty(5);
        till.look(10).await;
        till.watch(1..=2).await;
        // Both the start of the interval and the reading are in blocks that go.
        till.mine(&[Inner(account(1), 7)]);
        till.look(15).await;
        till.mine(&[Inner(account(2), 9)]);
        till.look(15).await;
        till.bank.world().go_back(3);
        till.mine(&[Paid(account(1), 3)]);
        till.mine(&[]);
        till.mine(&[Inner(account(2), 4)]);
        till.mine(&[]);
        till.sweep().await;
        till.sweep().await;
        assert_eq!(till.amounts(), [4]);
    });
}

#[test]
fn without_a_final_tag_what_is_below_the_window_is_final() {
    simulate(|mut till| async move {
        till.bank.world().lag = None;
        till.watch(1..=1).await;
        till.look(5).await;
        till.mine(&[Inner(account(1), 7)]);
        till.look(15).await;
        till.bank.world().mine_empty(19);
        till.look(15).await;
        assert_eq!(till.amounts(), NOTHING);
        till.bank.world().mine_empty(1);
        till.look(15).await;
        assert_eq!(till.amounts(), [7]);
    });
}

#[test]
fn where_the_first_state_is_gone_the_interval_opens_later_and_says_so() {
    simulate(|mut till| async move {
        till.bank.world().states = 40;
        till.watch(1..=1).await;
        till.every = Duration::from_secs(3_600);
        till.bank.world().mine_empty(10);
        till.mine(&[Inner(account(1), 7)]);
        till.bank.world().mine_empty(90);
        till.start().await;
        till.look(30).await;
        let late = "SELECT count(*) FROM audit WHERE action = 'sweep' AND cause LIKE \
             'balances of 1 addresses are compared from height 85 on, not from 0:%'";
        assert_eq!(till.count(late), 1);
        till.mine(&[Inner(account(1), 2)]);
        till.every = Duration::from_secs(10);
        till.start().await;
        till.sweep().await;
        assert_eq!(till.amounts(), [2]);
    });
}

#[test]
fn trouble_of_a_sweep_is_not_the_chains() {
    simulate(|mut till| async move {
        till.watch(1..=1).await;
        till.look(5).await;
        till.bank.world().is_mute = true;
        till.mine(&[Paid(account(1), 5), Inner(account(1), 7)]);
        till.look(60).await;
        let (state, reason) = till.state();
        assert_eq!(state, "following");
        assert!(
            reason.starts_with("the sweep of balances waits: ask for balances: not today"),
            "{reason}"
        );
        assert_eq!(till.books(), (vec!["5".to_owned()], 0));
        assert!(till.bank.world().asked.len() < 15, "it is left alone");

        till.bank.world().is_mute = false;
        till.look(60).await;
        till.sweep().await;
        assert_eq!(till.amounts(), [7]);
        assert_eq!(till.state(), ("following".to_owned(), String::new()));
    });
}

#[test]
fn a_slow_sweep_does_not_hold_back_the_tip() {
    simulate(|mut till| async move {
        till.watch(1..=1).await;
        till.look(15).await;
        till.bank.world().pause = Duration::from_secs(30);
        for _ in 0..20 {
            till.mine(&[Paid(account(1), 1)]);
            till.look(2).await;
            let behind = till.read(|tx, key| tx.chain_by_key(key)).cursor.unwrap();
            assert_eq!(behind.header.hash, till.bank.tip_hash());
        }
        till.mine(&[Inner(account(1), 7)]);
        till.look(120).await;
        till.sweep().await;
        till.look(60).await;
        assert_eq!(till.amounts(), [7]);
    });
}

#[test]
fn each_balance_is_read_once_in_a_sweep_and_a_few_at_a_time() {
    simulate(|mut till| async move {
        till.watch(1..=40).await;
        till.every = Duration::from_secs(20);
        till.start().await;
        till.look(5).await;
        till.bank.world().asked.clear();
        for _ in 0..100 {
            till.mine(&[]);
            till.look(2).await;
        }
        let asked = std::mem::take(&mut till.bank.world().asked);
        assert!(asked.iter().all(|count| *count <= 2), "{asked:?}");
        // Read, final four blocks later, and due again twenty seconds after it was read: ten times at most.
        let total: usize = asked.iter().sum();
        assert!((40 * 3..=40 * 10).contains(&total), "{total}");
    });
}

#[test]
fn closing_is_an_act_of_its_own_and_credits_nobody() {
    simulate(|mut till| async move {
        till.watch(1..=3).await;
        till.sweep().await;
        till.mine(&[Inner(account(1), 7), Inner(account(2), 8), Paid(account(3), 1)]);
        till.sweep().await;
        let [first, second] = till.found().try_into().unwrap();
        let before = till.books();
        let nowhere = Outpoint {
            txid: Txid([9; 32]),
            vout: 1 << 32,
        };
        let elsewhere = till.read(|tx, _| {
            let page = Page {
                after: None,
                limit: 1,
            };
            Ok(tx.list_deposits(&Filter::default(), page)?.remove(0).row.outpoint)
        });
        let refused = till.close(&first.id, ClosedAs::Outpoint(elsewhere)).await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
        assert!(till.close(&first.id, ClosedAs::Outpoint(nowhere)).await.unwrap());
        assert!(!till.close(&first.id, ClosedAs::Outpoint(nowhere)).await.unwrap());
        let again = till.close(&first.id, ClosedAs::NotAPayment).await;
        assert!(matches!(again, Err(StoreError::Refused(_))), "{again:?}");
        let twice = till.close(&second.id, ClosedAs::Outpoint(nowhere)).await;
        assert!(matches!(twice, Err(StoreError::Refused(_))), "{twice:?}");
        assert!(till.close(&second.id, ClosedAs::NotAPayment).await.unwrap());
        assert!(till.close("un_0", ClosedAs::NotAPayment).await.is_err());
        till.sweep().await;
        assert_eq!((till.amounts(), till.books()), (vec![7, 8], before));
        let audited = "SELECT count(*) FROM audit WHERE action = 'unattributed' AND actor = 'operator'";
        assert_eq!(till.count(audited), 2);
    });
}

#[test]
fn an_output_that_is_recorded_later_explains_an_open_record_and_closes_none() {
    simulate(|mut till| async move {
        till.watch(1..=1).await;
        till.sweep().await;
        till.mine(&[Inner(account(1), 7)]);
        till.sweep().await;
        let found = till.found().remove(0);
        assert_eq!(
            (found.recorded_since, found.is_explained()),
            (Amount::ZERO, false)
        );

        till.bank.world().is_traced = true;
        let key = till.read(|_, key| Ok(key));
        let store = till.store();
        let asking = store.write(move |tx| tx.ask_rescan(key, 1, &Backfill::Nothing, "traced now"));
        asking.await.unwrap();
        till.sweep().await;
        let explained = till.found();
        assert_eq!(explained.len(), 1);
        assert!(explained[0].is_explained() && explained[0].closed.is_none());
        assert_eq!(
            till.books(),
            (vec!["7".to_owned()], 1),
            "by its own outpoint, once"
        );

        let outpoint = till.read(|tx, _| {
            let page = Page {
                after: None,
                limit: 1,
            };
            Ok(tx.list_deposits(&Filter::default(), page)?.remove(0).row.outpoint)
        });
        assert!(till.close(&found.id, ClosedAs::Outpoint(outpoint)).await.unwrap());
        till.sweep().await;
        assert_eq!(till.books(), (vec!["7".to_owned()], 1));
    });
}

/// Booked by hand and closed as what it was; then somebody reads the blocks again, and it is seen.
#[test]
fn what_was_closed_as_a_payment_before_it_was_seen_is_held_when_it_is() {
    simulate(|mut till| async move {
        till.watch(1..=2).await;
        till.sweep().await;
        till.mine(&[Inner(account(1), 7), Inner(account(2), 8)]);
        let block = till.bank.tip_hash();
        till.sweep().await;
        let found = till.found();
        let first = found.iter().find(|row| row.script == account(1)).unwrap();
        let outpoint = Outpoint {
            txid: Txid([&block.0[..31], &[0]].concat().try_into().unwrap()),
            vout: 1 << 32,
        };
        assert!(till.close(&first.id, ClosedAs::Outpoint(outpoint)).await.unwrap());

        till.bank.world().is_traced = true;
        let key = till.read(|_, key| Ok(key));
        let store = till.store();
        let asking = store.write(move |tx| tx.ask_rescan(key, 1, &Backfill::Nothing, "traced now"));
        asking.await.unwrap();
        till.sweep().await;
        assert_eq!(till.books().0, ["8"]);
        let held = "SELECT count(*) FROM deposits WHERE held_reason = 'closed_by_hand'";
        assert_eq!(till.count(held), 1);
    });
}
