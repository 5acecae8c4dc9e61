//! Invoices under the real follower: what is paid to them, taken back by reorgs, late, or not for them.

use crate::evm_rig::{TUSD, evm, payer};
use crate::rig::{Rig, in_simulation};
use crate::schema;
use crate::till::{RUNS_MS, events, invoice, invoice_with, read, told, try_invoice};
use creditd::rules::invoice::{Mark, Tolerance};
use creditd::rules::{Amount, ids};
use creditd::store::{AddressKind, Backfill, CancelOutcome, NewCallback, StoreError};
use creditd::webhook::Key;

/// C32: every output counts once, whatever the transaction and the block.
#[test]
fn c32_several_outputs_and_payments_pay_one_invoice_once() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.round().await;
        let id = invoice(&rig, 1, 25).await;
        let to = rig.script(1);
        let change = rig.script(900);
        let one = rig.spend(&[rig.coin()], &[(&to, 10), (&change, 3), (&to, 15)]);
        let other = rig.pay(&to, 1);
        rig.mine(&[&one, &other]);
        rig.settle().await;
        assert_eq!(told(&rig, &id), "unpaid in_time open 0 26 0");
        rig.reopen().await;
        // What is ours already is no payment when it comes back.
        rig.mine(&[&rig.spend(&[one.outpoint(0)], &[(&to, 9)])]);
        rig.extend(3);
        rig.settle().await;
        assert_eq!(told(&rig, &id), "overpaid in_time settled 26 0 0");
        assert_eq!(read(&rig, &id).overpaid(), Amount::from_u64(1));
        let paid = events(&rig, &id);
        assert_eq!(paid, ["created", "paid", "overpaid", "settled"]);
        assert_eq!(rig.tables.count("SELECT count(*) FROM credits"), 3);
    });
}

/// Every event of an invoice has the shape that is promised.
#[test]
fn invoice_events_have_their_schema() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.round().await;
        let id = invoice_with(&rig, 1, 25, |new| {
            new.reference = "order 7".to_owned();
            new.metadata = r#"{"cart":[1,2],"é":"ü"}"#.to_owned();
            new.confirmations = Some(1);
        })
        .await;
        rig.mine(&[&rig.pay(&rig.script(1), 25)]);
        rig.extend(3);
        rig.settle().await;
        assert_eq!(events(&rig, &id), ["created", "paid", "settled"]);
        let bodies: Vec<String> = rig
            .tables
            .rows("SELECT body FROM events", |row| row.get(0).unwrap());
        for body in bodies {
            assert_eq!(schema::faults_of(body.as_bytes()), [""; 0], "{body}");
        }
        let data = rig.tables.rows(
            "SELECT body -> 'data' FROM events WHERE type = 'invoice.paid'",
            |row| row.get::<_, String>(0).unwrap(),
        );
        assert!(
            data[0].contains(r#""metadata":{"cart":[1,2],"é":"ü"}"#),
            "{data:?}"
        );
    });
}

/// Payments that become due one after the other reach the amount once.
#[test]
fn parts_are_told_one_by_one_and_the_amount_once() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.round().await;
        let id = invoice(&rig, 1, 30).await;
        let to = rig.script(1);
        for amount in [10, 10, 10, 10] {
            rig.mine(&[&rig.pay(&to, amount)]);
            rig.settle().await;
        }
        for _ in 0..2 {
            rig.extend(1);
            rig.settle().await;
        }
        assert_eq!(told(&rig, &id), "overpaid in_time settled 40 0 0");
        let kinds = [
            "created",
            "partially_paid",
            "partially_paid",
            "paid",
            "settled",
            "overpaid",
        ];
        assert_eq!(events(&rig, &id), kinds);
    });
}

/// C05: the payment is replaced in a reorg by another one with the same coin.
#[test]
fn c05_a_payment_replaced_in_a_reorg_pays_the_invoice_once() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.extend(2);
        rig.settle().await;
        let id = invoice(&rig, 1, 50).await;
        let to = rig.script(1);
        let fork = rig.tip();
        let first = rig.pay(&to, 50);
        rig.mine(&[&first]);
        rig.settle().await;
        assert_eq!(told(&rig, &id), "unpaid in_time open 0 50 0");
        let second = rig.replace(&first, &to, 49);
        let branch = rig.mine_on(fork, &[&second]);
        rig.go_to(rig.extend_on(branch, 5));
        rig.round().await;
        rig.reopen().await;
        rig.settle().await;
        assert_eq!(told(&rig, &id), "partial in_time open 49 0 0");
        assert_eq!(events(&rig, &id), ["created", "partially_paid"]);
    });
}

/// A credit whose block is lost takes the invoice back with it, and comes back with it.
#[test]
fn a_reorg_reverses_an_invoice_and_pays_it_again() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.extend(2);
        rig.settle().await;
        let id = invoice(&rig, 1, 50).await;
        let fork = rig.tip();
        let pay = rig.pay(&rig.script(1), 50);
        rig.mine(&[&pay]);
        rig.extend(2);
        rig.settle().await;
        assert_eq!(told(&rig, &id), "paid in_time settled 50 0 0");
        rig.go_to(rig.extend_on(fork, 6));
        rig.settle().await;
        assert_eq!(read(&rig, &id).status.paid, Amount::ZERO);
        rig.mine(&[&pay]);
        rig.extend(2);
        rig.settle().await;
        assert_eq!(told(&rig, &id), "paid in_time settled 50 0 0");
        let kinds = [
            "created", "paid", "settled", "reversed", "reopened", "paid", "settled",
        ];
        assert_eq!(events(&rig, &id), kinds);
        let ids = format!(
            "SELECT id FROM events WHERE subject = '{id}' AND type = 'invoice.paid' ORDER BY \
         seq"
        );
        let paid: Vec<String> = rig.tables.rows(&ids, |row| row.get(0).unwrap());
        assert_eq!(
            paid[0],
            ids::first_event_id(&id, "invoice.paid"),
            "it outlives a restore"
        );
        assert_eq!(paid[1], ids::event_id(&id, "invoice.paid", 6));
    });
}

/// C35 (b): no address stands for two invoices.
#[test]
fn c35_an_address_has_one_invoice_for_ever() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.round().await;
        let first = invoice(&rig, 1, 10).await;
        let again = |error: StoreError| error.to_string();
        let second = try_invoice(&rig, 1, 5, |_| {}).await.map_err(again);
        assert!(second.unwrap_err().contains(&first));
        let cancel = first.clone();
        rig.write(move |tx| tx.cancel_invoice(&cancel, "operator", "taken back"))
            .await;
        let third = try_invoice(&rig, 1, 5, |_| {}).await.map_err(again);
        assert!(third.unwrap_err().contains(&first), "nor after it was cancelled");
        rig.mine(&[&rig.pay(&rig.script(1), 10)]);
        rig.extend(2);
        rig.settle().await;
        assert_eq!(rig.tables.count("SELECT count(*) FROM invoices"), 1);
    });
}

/// C35 (a): what an address received before is nobody's payment of the new invoice.
#[test]
fn c35_what_came_before_an_invoice_does_not_pay_it() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.round().await;
        let to = rig.watch(1).await;
        let waiting = rig.pay(&to, 3);
        rig.mine(&[&rig.pay(&to, 20)]);
        rig.extend(3);
        rig.send(&waiting);
        rig.settle().await;
        let id = try_invoice(&rig, 1, 20, |_| {}).await.unwrap().id;
        assert_eq!(told(&rig, &id), "unpaid in_time open 0 0 1");
        rig.mine(&[&waiting]);
        rig.extend(2);
        let (key, script) = (rig.key, to.clone());
        rig.write(move |tx| tx.ask_rescan(key, 1, &Backfill::Script(script.clone()), "older ones"))
            .await;
        rig.settle().await;
        assert_eq!(
            told(&rig, &id),
            "unpaid in_time open 0 0 2",
            "nor what was waiting then"
        );
        let invoice = read(&rig, &id);
        let marks = rig.read(|tx| tx.invoice_payments(&invoice));
        assert!(marks.iter().all(|payment| payment.mark == Some(Mark::Unassigned)));
        rig.mine(&[&rig.pay(&to, 20)]);
        rig.extend(2);
        rig.settle().await;
        assert_eq!(told(&rig, &id), "paid in_time settled 20 0 2");
    });
}

/// What a backfill finds below the invoice's birth is not for it either.
#[test]
fn a_backfill_pays_no_younger_invoice() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.script(1);
        rig.mine(&[&rig.pay(&to, 20)]);
        rig.extend(3);
        rig.settle().await;
        let id = invoice(&rig, 1, 20).await;
        let key = rig.key;
        rig.write(move |tx| tx.ask_rescan(key, 1, &Backfill::All, "older ones"))
            .await;
        rig.settle().await;
        assert_eq!(rig.tables.count("SELECT count(*) FROM credits"), 1);
        assert_eq!(told(&rig, &id), "unpaid in_time open 0 0 1");
        assert_eq!(events(&rig, &id), ["created", "state"]);
    });
}

/// A payment that was met in time counts where a reorg mines it again, be it below the invoice's birth.
#[test]
fn a_reorg_below_its_birth_takes_no_payment_from_an_invoice() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.extend(2);
        rig.settle().await;
        let fork = rig.tip();
        rig.extend(2);
        rig.settle().await;
        let id = invoice(&rig, 1, 20).await;
        let pay = rig.pay(&rig.script(1), 20);
        rig.send(&pay);
        rig.settle().await;
        let branch = rig.mine_on(fork, &[&pay]);
        rig.go_to(rig.extend_on(branch, 3));
        rig.settle().await;
        assert_eq!(told(&rig, &id), "paid in_time settled 20 0 0");
    });
}

#[test]
fn what_comes_after_a_cancellation_is_credited_and_not_for_the_invoice() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.round().await;
        let id = invoice(&rig, 1, 20).await;
        let to = rig.script(1);
        rig.send(&rig.pay(&to, 5));
        rig.settle().await;
        let cancel = id.clone();
        let cancelled = rig
            .write(move |tx| tx.cancel_invoice(&cancel, "merchant", "taken back"))
            .await;
        assert!(matches!(&cancelled, CancelOutcome::Cancelled(_)));
        let cancel = id.clone();
        let again = rig
            .write(move |tx| tx.cancel_invoice(&cancel, "merchant", "taken back"))
            .await;
        assert_eq!(again, cancelled, "again, it changes nothing");
        rig.rounds(3).await;
        let waiting = rig.chain.world().node().mempool.clone();
        rig.mine(&[&waiting[0], &rig.pay(&to, 20)]);
        rig.extend(2);
        rig.settle().await;
        assert_eq!(told(&rig, &id), "partial in_time cancelled 5 0 2");
        assert_eq!(events(&rig, &id), ["created", "cancelled", "partially_paid"]);
        assert_eq!(
            rig.tables.count("SELECT count(*) FROM credits"),
            2,
            "credited all the same"
        );
    });
}

#[test]
fn a_settled_invoice_is_not_taken_back() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.round().await;
        let id = invoice(&rig, 1, 20).await;
        rig.mine(&[&rig.pay(&rig.script(1), 20)]);
        rig.extend(2);
        rig.settle().await;
        let cancel = id.clone();
        let outcome = rig
            .write(move |tx| tx.cancel_invoice(&cancel, "merchant", "taken back"))
            .await;
        assert!(matches!(outcome, CancelOutcome::Settled(invoice) if invoice.id == id));
        assert_eq!(told(&rig, &id), "paid in_time settled 20 0 0");
    });
}

/// An invoice asks for more confirmations, never for fewer.
#[test]
fn an_invoice_raises_the_confirmations_and_never_lowers_them() {
    in_simulation(async {
        for (asked, needed) in [(5, 5), (1, 3)] {
            let mut rig = Rig::new().await;
            rig.round().await;
            let id = invoice_with(&rig, 1, 20, move |new| new.confirmations = Some(asked)).await;
            rig.mine(&[&rig.pay(&rig.script(1), 20)]);
            rig.extend(needed - 2);
            rig.settle().await;
            assert_eq!(told(&rig, &id), "unpaid in_time open 0 20 0", "{asked}");
            rig.reopen().await;
            rig.extend(1);
            rig.settle().await;
            assert_eq!(told(&rig, &id), "paid in_time settled 20 0 0", "{asked}");
        }
    });
}

/// An endpoint of one invoice hears of that invoice and of nothing else.
#[test]
fn an_endpoint_of_one_invoice_is_told_of_it_alone() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.round().await;
        rig.listen(Some("shop"), "*").await;
        let callback = |new: &mut creditd::store::NewInvoice| {
            let key = Key::parse("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").unwrap();
            new.callback = Some(NewCallback {
                url: "https://example.com/one".to_owned(),
                types: "*".to_owned(),
                key,
            });
        };
        let id = invoice_with(&rig, 1, 20, callback).await;
        let other = invoice(&rig, 2, 20).await;
        rig.mine(&[&rig.pay(&rig.script(1), 20), &rig.pay(&rig.script(2), 20)]);
        rig.extend(2);
        rig.settle().await;
        let heard = "SELECT DISTINCT d.subject FROM deliveries d JOIN endpoints e ON e.id = d.endpoint \
                     WHERE e.invoice IS NOT NULL";
        let heard: Vec<String> = rig.tables.rows(heard, |row| row.get(0).unwrap());
        assert_eq!(heard, std::slice::from_ref(&id));
        let all = "SELECT count(DISTINCT d.subject) FROM deliveries d JOIN endpoints e ON e.id = d.endpoint \
                   WHERE e.invoice IS NULL";
        assert_eq!(
            rig.tables.count(all),
            6,
            "two invoices, deposits and credits: {other}"
        );
        // In the metrics it is one while something is on its way to it.
        let endpoints = || rig.read(|tx| tx.readings()).endpoints.map(|group| group.count);
        assert_eq!(endpoints(), [2, 0, 0]);
        let raw = rusqlite::Connection::open(rig.path()).unwrap();
        let deliver = "UPDATE deliveries SET state = 'delivered', settled_at = 0";
        raw.execute(deliver, []).unwrap();
        assert_eq!(endpoints(), [1, 0, 0]);
    });
}

#[test]
fn terms_that_cannot_be_are_refused_and_leave_nothing() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.round().await;
        rig.watch(1).await;
        rig.add(AddressKind::Own, 2, "shop", "ignore").await;
        let refused = [
            (1, "more than 0", try_invoice(&rig, 1, 0, |_| {}).await),
            (
                1,
                "tolerance",
                try_invoice(&rig, 1, 5, |new| {
                    new.tolerance = Tolerance {
                        base: Amount::from_u64(5),
                        percent_hundredths: 0,
                    };
                })
                .await,
            ),
            (
                1,
                "later",
                try_invoice(&rig, 1, 5, |new| new.expires_at -= RUNS_MS).await,
            ),
            (
                1,
                "another merchant",
                try_invoice(&rig, 1, 5, |new| new.merchant = "bank".into()).await,
            ),
            (
                1,
                "JSON",
                try_invoice(&rig, 1, 5, |new| new.metadata = "[]".into()).await,
            ),
            (2, "own", try_invoice(&rig, 2, 5, |_| {}).await),
        ];
        for (number, words, outcome) in refused {
            let error = outcome.unwrap_err();
            assert!(matches!(error, StoreError::Refused(_)), "{number}: {error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        assert_eq!(rig.tables.count("SELECT count(*) FROM invoices"), 0);
        assert_eq!(
            rig.tables
                .count("SELECT count(*) FROM events WHERE subject LIKE 'inv%'"),
            0
        );
    });
}

/// A restored database counts from another generation: whoever acts on the first `invoice.paid` gets it under
/// the same id, and every number is higher.
#[test]
fn the_first_paid_event_keeps_its_id_in_another_generation() {
    in_simulation(async {
        let mut told = Vec::new();
        for generation in [0, 3] {
            let mut rig = Rig::new().await;
            let raw = rusqlite::Connection::open(rig.path()).unwrap();
            raw.execute("UPDATE meta SET generation = ?1", [generation])
                .unwrap();
            drop(raw);
            rig.settle().await;
            let id = invoice(&rig, 1, 20).await;
            rig.mine(&[&rig.pay(&rig.script(1), 20)]);
            rig.extend(2);
            rig.settle().await;
            let sql = "SELECT type, id, sequence FROM events WHERE subject LIKE 'inv%' ORDER BY seq";
            let rows: Vec<(String, String, i64)> = rig.tables.rows(sql, |row| {
                (row.get(0).unwrap(), row.get(1).unwrap(), row.get(2).unwrap())
            });
            assert_eq!(read(&rig, &id).version, rows.last().unwrap().2);
            told.push(rows);
        }
        for (before, after) in told[0].iter().zip(&told[1]) {
            assert_eq!(before.0, after.0);
            assert_eq!(
                before.1 == after.1,
                before.0 == "invoice.paid",
                "{before:?}, {after:?}"
            );
            assert_eq!(after.2, before.2 + (3 << 32));
        }
    });
}

/// An address takes whatever is sent to it; an invoice is paid in its own asset alone.
#[test]
fn another_asset_at_its_address_does_not_pay_an_invoice() {
    in_simulation(async {
        let mut rig = evm().await;
        rig.extend(1);
        rig.settle().await;
        let id = invoice(&rig, 1, 7).await;
        let to = rig.script(1);
        rig.mine(&[&rig.make(&payer(&rig).log(0, TUSD, &to, 7))]);
        rig.extend(2);
        rig.settle().await;
        assert_eq!(told(&rig, &id), "unpaid in_time open 0 0 1");
        rig.mine(&[&rig.make(&payer(&rig).value(&to, 7))]);
        rig.extend(2);
        rig.settle().await;
        assert_eq!(told(&rig, &id), "paid in_time settled 7 0 1");
        assert_eq!(events(&rig, &id), ["created", "state", "paid", "settled"]);
        assert_eq!(rig.tables.count("SELECT count(*) FROM credits"), 2);
    });
}

/// An EVM chain whose pending transactions are not listed: the tip alone is looked at.
#[test]
fn an_invoice_of_a_chain_without_mempool_expires_by_the_tip_alone() {
    in_simulation(async {
        let mut rig = evm().await;
        rig.chain.world().lists_mempool = false;
        rig.rounds(3).await;
        let id = invoice_with(&rig, 1, 7, |new| new.expires_at += 20_000 - RUNS_MS).await;
        rig.rounds(15).await;
        assert_eq!(told(&rig, &id), "unpaid in_time open 0 0 0");
        rig.rounds(15).await;
        assert_eq!(told(&rig, &id), "unpaid in_time expired 0 0 0");
    });
}
