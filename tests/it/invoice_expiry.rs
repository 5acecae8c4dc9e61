//! When an invoice expires, and when it does not: only a look at the chain that began after its time was over
//! lets it, and what came in time comes back into its own.

use crate::rig::{Rig, in_simulation};
use crate::till::{RUNS_MS, events, invoice, invoice_with, read, told};
use creditd::store::{ChainLook, Keep, Kept, KeptAnswer, KeyScope, WriteTx};
use std::time::Duration;

/// Blocks of the scripted chain are ten minutes apart; at this height one is within an invoice's time, and
/// the next one is not.
const LAST_IN_TIME: usize = 1;

async fn short(rig: &Rig, number: u32) -> String {
    invoice_with(rig, number, 20, |new| new.expires_at += 20_000 - RUNS_MS).await
}

#[test]
fn an_invoice_expires_when_its_time_is_over_and_nothing_came() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.settle().await;
        let id = short(&rig, 1).await;
        rig.wait(Duration::from_secs(18)).await;
        assert_eq!(told(&rig, &id), "unpaid in_time open 0 0 0");
        rig.wait(Duration::from_secs(8)).await;
        assert_eq!(told(&rig, &id), "unpaid in_time expired 0 0 0");
        rig.wait(Duration::from_secs(30)).await;
        rig.reopen().await;
        rig.settle().await;
        assert_eq!(events(&rig, &id), ["created", "expired"]);
        let why = "SELECT cause FROM audit WHERE action = 'invoice'";
        let why: Vec<String> = rig.tables.rows(why, |row| row.get(0).unwrap());
        assert!(
            why[0].starts_with(&id) && why[0].contains("mempool list"),
            "{why:?}"
        );
    });
}

/// C26: paid in a block of its time while node and daemon were off; they catch up after it.
#[test]
fn c26_an_invoice_paid_while_everything_was_off_does_not_expire() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.settle().await;
        let id = invoice(&rig, 1, 20).await;
        rig.jump(RUNS_MS + 300_000).await;
        // The node shows itself without the block, and says that it is catching up.
        rig.chain.world().node().faults.is_syncing = true;
        rig.rounds(10).await;
        assert_eq!(told(&rig, &id), "unpaid in_time open 0 0 0");
        rig.mine(&[&rig.pay(&rig.script(1), 20)]);
        rig.rounds(10).await;
        rig.chain.world().node().faults.is_syncing = false;
        rig.extend(2);
        rig.settle().await;
        rig.rounds(10).await;
        assert_eq!(told(&rig, &id), "paid in_time settled 20 0 0");
        assert_eq!(events(&rig, &id), ["created", "paid", "settled"]);
        assert_eq!(rig.tables.count("SELECT count(*) FROM credits"), 1);
        let invoice = read(&rig, &id);
        let payments = rig.read(|tx| tx.invoice_payments(&invoice));
        assert_eq!(payments[0].paid_at, 1_700_000_600_000, "its block's time");
    });
}

/// The node is there, our own blocks are behind its tip: it is synced, we are not.
#[test]
fn a_daemon_that_is_behind_its_node_lets_nothing_expire() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.settle().await;
        let id = invoice(&rig, 1, 20).await;
        rig.jump(RUNS_MS + 300_000).await;
        let block = rig.mine(&[&rig.pay(&rig.script(1), 20)]);
        rig.chain.world().node().faults.missing.insert(block);
        rig.rounds(10).await;
        assert_eq!(told(&rig, &id), "unpaid in_time open 0 0 0");
        rig.chain.world().node().faults.missing.clear();
        rig.extend(2);
        rig.settle().await;
        assert_eq!(events(&rig, &id), ["created", "paid", "settled"]);
    });
}

#[test]
fn a_chain_that_is_out_of_reach_lets_nothing_expire() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.settle().await;
        let id = short(&rig, 1).await;
        for node in &mut rig.chain.world().nodes {
            node.faults.is_down = true;
        }
        rig.wait(Duration::from_secs(60)).await;
        assert_eq!(told(&rig, &id), "unpaid in_time open 0 0 0");
        for node in &mut rig.chain.world().nodes {
            node.faults.is_down = false;
        }
        rig.settle().await;
        assert_eq!(told(&rig, &id), "unpaid in_time expired 0 0 0");
    });
}

/// A list under which the tip moved says nothing, and is not the same as none to be had.
#[test]
fn a_list_that_the_tip_moved_under_lets_nothing_expire() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.settle().await;
        let id = short(&rig, 1).await;
        rig.wait(Duration::from_secs(15)).await;
        for _ in 0..15 {
            let next = rig.extend_on(rig.tip(), 1);
            rig.chain.world().node().faults.moves_to = Some(next);
            rig.round().await;
            assert_eq!(told(&rig, &id), "unpaid in_time open 0 0 0");
        }
        rig.chain.world().node().faults.moves_to = None;
        rig.settle().await;
        assert_eq!(told(&rig, &id), "unpaid in_time expired 0 0 0");
    });
}

/// Seen in time, it keeps the invoice open; once it is evicted another look lets it expire.
#[test]
fn what_waits_keeps_an_invoice_open_until_it_is_evicted() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.settle().await;
        let id = short(&rig, 1).await;
        let pay = rig.pay(&rig.script(1), 20);
        rig.send(&pay);
        rig.wait(Duration::from_secs(50)).await;
        assert_eq!(told(&rig, &id), "unpaid in_time open 0 20 0");
        rig.evict(&pay);
        rig.wait(Duration::from_secs(50)).await;
        assert_eq!(
            told(&rig, &id),
            "unpaid in_time open 0 20 0",
            "absent, and not for long"
        );
        rig.wait(Duration::from_secs(40)).await;
        assert_eq!(told(&rig, &id), "unpaid in_time expired 0 0 0");
        rig.send(&pay);
        rig.settle().await;
        assert_eq!(
            told(&rig, &id),
            "unpaid in_time open 0 20 0",
            "it is back, and was in time"
        );
        assert_eq!(events(&rig, &id), ["created", "expired", "reopened"]);
    });
}

/// A block whose time is before the expiry comes after it was decided.
#[test]
fn a_payment_that_turns_out_to_be_in_time_revises_the_expiry() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.settle().await;
        let id = invoice(&rig, 1, 20).await;
        rig.jump(RUNS_MS + 300_000).await;
        rig.settle().await;
        rig.rounds(5).await;
        assert_eq!(told(&rig, &id), "unpaid in_time expired 0 0 0");
        rig.mine(&[&rig.pay(&rig.script(1), 20)]);
        rig.settle().await;
        assert_eq!(told(&rig, &id), "unpaid in_time open 0 20 0");
        rig.extend(2);
        rig.settle().await;
        assert_eq!(told(&rig, &id), "paid in_time settled 20 0 0");
        assert_eq!(
            events(&rig, &id),
            ["created", "expired", "reopened", "paid", "settled"]
        );
        assert_eq!(read(&rig, &id).expired_at, None);
    });
}

#[test]
fn a_late_payment_is_credited_and_told_as_late() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.extend(LAST_IN_TIME);
        rig.settle().await;
        let id = invoice(&rig, 1, 20).await;
        rig.jump(RUNS_MS + 300_000).await;
        rig.settle().await;
        rig.mine(&[&rig.pay(&rig.script(1), 20)]);
        rig.extend(2);
        rig.settle().await;
        assert_eq!(told(&rig, &id), "paid late expired 20 0 1");
        assert_eq!(events(&rig, &id), ["created", "expired", "paid"]);
        assert_eq!(rig.tables.count("SELECT count(*) FROM credits"), 1);
    });
}

/// A reorg takes a settled invoice's payment after its time: that alone lets nothing expire, the next look
/// does, unless the payment waits in the mempool again.
#[test]
fn a_reorg_after_its_time_lets_an_invoice_expire_only_by_another_look() {
    in_simulation(async {
        for is_lost in [false, true] {
            let mut rig = Rig::new().await;
            rig.settle().await;
            let fork = rig.tip();
            let id = short(&rig, 1).await;
            let pay = rig.pay(&rig.script(1), 20);
            rig.mine(&[&pay]);
            rig.extend(2);
            rig.settle().await;
            rig.wait(Duration::from_secs(40)).await;
            assert_eq!(told(&rig, &id), "paid in_time settled 20 0 0");
            let other = rig.replace(&pay, &rig.script(900), 20);
            let branch = match is_lost {
                true => rig.mine_on(fork, &[&other]),
                false => fork,
            };
            rig.go_to(rig.extend_on(branch, 5));
            rig.settle().await;
            rig.rounds(4).await;
            let (expected, last) = match is_lost {
                true => ("unpaid in_time expired 0 0 0", "expired"),
                false => ("unpaid in_time open 0 20 0", "reopened"),
            };
            assert_eq!(told(&rig, &id), expected);
            let told = events(&rig, &id);
            assert_eq!(told[..5], ["created", "paid", "settled", "reversed", "reopened"]);
            assert_eq!(told.last().unwrap(), last);
        }
    });
}

/// Tip and list are looked at once more in the transaction that decides.
#[test]
fn a_look_that_is_void_by_now_decides_nothing() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.settle().await;
        let id = short(&rig, 1).await;
        let (key, tip) = (rig.key, rig.tip());
        let poll = rig.tables.count("SELECT mempool_poll FROM chains");
        let later = rig.clock.now_ms() + RUNS_MS;
        let good = ChainLook {
            tip,
            poll: Some(poll),
            read_at: later,
        };
        let other_tip = ChainLook {
            tip: rig.extend_on(tip, 1),
            ..good
        };
        let other_list = ChainLook {
            poll: Some(poll - 1),
            ..good
        };
        let too_early = ChainLook {
            read_at: read(&rig, &id).terms.expires_at,
            ..good
        };
        for (look, count) in [
            (other_tip, 0),
            (other_list, 0),
            (too_early, 0),
            (good, 1),
            (good, 0),
        ] {
            let decided = rig.write(move |tx| tx.settle_expiries(key, &look)).await;
            assert_eq!(decided, count, "{look:?}");
        }
        rig.check();
        assert_eq!(events(&rig, &id), ["created", "expired"]);
    });
}

/// A hold is the operator's to end: what came in time and is held keeps the invoice open.
#[test]
fn a_held_payment_keeps_an_invoice_open() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.settle().await;
        let id = short(&rig, 1).await;
        let pay = rig.pay(&rig.script(1), 20);
        rig.mine(&[&pay]);
        rig.extend(2);
        rig.settle().await;
        let deposits: Vec<String> = rig.tables.deposits().into_values().map(|d| d.id).collect();
        let held = deposits[0].clone();
        rig.write(move |tx| tx.hold(&held, "asked").map(drop)).await;
        rig.wait(Duration::from_secs(40)).await;
        assert_eq!(told(&rig, &id), "unpaid in_time open 0 20 0");
        let held = deposits[0].clone();
        rig.write(move |tx| tx.release(&held, "asked").map(drop)).await;
        rig.settle().await;
        assert_eq!(told(&rig, &id), "paid in_time settled 20 0 0");
        let kinds = [
            "created", "paid", "settled", "reversed", "reopened", "paid", "settled",
        ];
        assert_eq!(events(&rig, &id), kinds);
    });
}

/// N-loop: a crash at the N-th await around the moment when its time is over.
#[test]
fn a_crash_at_any_await_lets_an_invoice_expire_once() {
    in_simulation(async {
        let mut crashes = 0;
        for times in 0.. {
            let mut rig = Rig::new().await;
            rig.settle().await;
            let id = short(&rig, 1).await;
            rig.wait(Duration::from_secs(19)).await;
            let mut is_crashed = false;
            for _ in 0..4 {
                is_crashed |= rig.crash(times).await;
            }
            rig.wait(Duration::from_secs(15)).await;
            assert_eq!(told(&rig, &id), "unpaid in_time expired 0 0 0", "await {times}");
            assert_eq!(events(&rig, &id), ["created", "expired"], "await {times}");
            crashes += usize::from(is_crashed);
            if !is_crashed {
                break;
            }
        }
        assert!(crashes >= 3, "{crashes}");
    });
}

#[test]
fn an_answer_is_kept_as_long_as_its_invoice_is_open() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.round().await;
        let id = invoice(&rig, 1, 25).await;
        let scope = KeyScope {
            owner: 1,
            method: "POST".to_owned(),
            path: "/v1/invoices".to_owned(),
            key: "k".to_owned(),
        };
        let answer = KeptAnswer {
            status: 201,
            body: format!("{{\"id\":\"{id}\"}}"),
        };
        let (kept, at, made) = (answer.clone(), scope.clone(), id.clone());
        let keep = move |tx: &mut WriteTx<'_>| {
            let keep = Keep {
                until: tx.now_ms(),
                invoice: Some(made.clone()),
            };
            tx.keep_answer(&at, &[1; 32], &kept, &keep)?;
            // One that only names it, as an operator's command may.
            let names_it = KeyScope {
                owner: 0,
                ..at.clone()
            };
            tx.keep_answer(&names_it, &[1; 32], &kept, &Keep::until(tx.now_ms()))
        };
        rig.store().write(keep).await.unwrap();
        let forget = |tx: &mut WriteTx<'_>| tx.forget_answers(10);
        assert_eq!(
            rig.store().write(forget).await.unwrap(),
            1,
            "the one of no invoice"
        );
        assert_eq!(rig.store().write(forget).await.unwrap(), 0);
        let at = scope.clone();
        let look = move |tx: &mut WriteTx<'_>| tx.kept_answer(&at, &[1; 32], tx.now_ms());
        assert_eq!(
            rig.store().write(look.clone()).await.unwrap(),
            Kept::Answer(answer)
        );
        let cancel = id.clone();
        rig.store()
            .write(move |tx| tx.cancel_invoice(&cancel, "merchant", "taken back"))
            .await
            .unwrap();
        assert_eq!(rig.store().write(look).await.unwrap(), Kept::Nothing);
        assert_eq!(rig.store().write(forget).await.unwrap(), 1);
    });
}
