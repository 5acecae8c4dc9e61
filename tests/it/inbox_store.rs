//! The inbox in the store: an event is taken in once and does what it does once, a payment that another
//! provider tells of is credited once, and what we watch ourselves never on a provider's word.

use crate::evm_rig::evm;
use crate::rig::{Rig, in_simulation};
use crate::schema;
use creditd::rules::{Amount, ChainId, Script, Txid, ids};
use creditd::store::report::{Filter, Page};
use creditd::store::{
    Effect, ExternalAsset, ExternalPayment, InboxRetry, NamedOutput, NewInbox, Received, StoreError,
};
use std::time::Duration;

const PAGE: Page = Page {
    after: None,
    limit: 100,
};

fn event(id: &str, body: &str) -> NewInbox {
    NewInbox {
        source: "gateway".to_owned(),
        event_id: id.to_owned(),
        fingerprint: ids::external_txid(body).0,
        body: body.as_bytes().to_vec(),
    }
}

fn payment(id: &str, amount: u64) -> ExternalPayment {
    ExternalPayment {
        merchant: "shop".to_owned(),
        payment: id.to_owned(),
        asset: ExternalAsset {
            code: "USD".to_owned(),
            decimals: 2,
        },
        amount: Amount::from_u64(amount),
        reference: "order-1".to_owned(),
        output: None,
        scripts: Vec::new(),
    }
}

async fn receive(rig: &Rig, id: &str, body: &str) -> Received {
    let new = event(id, body);
    rig.write(move |tx| tx.receive_inbox(&new)).await
}

async fn settle(rig: &Rig, id: &str, effect: Effect) -> Result<bool, StoreError> {
    let id = ids::inbox_id("gateway", id);
    rig.store().write(move |tx| tx.settle_inbox(&id, &effect)).await
}

async fn credit(rig: &Rig, id: &str, payments: &[ExternalPayment]) -> Result<bool, StoreError> {
    receive(rig, id, id).await;
    settle(rig, id, Effect::Credit(payments.to_vec())).await
}

fn refusal(outcome: Result<bool, StoreError>) -> String {
    match outcome {
        Err(StoreError::Refused(why)) => why,
        other => panic!("not refused: {other:?}"),
    }
}

fn count(rig: &Rig, table: &str) -> i64 {
    rig.tables.count(&format!("SELECT count(*) FROM {table}"))
}

#[test]
fn an_event_is_taken_in_once_and_what_it_does_is_done_once() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let id = ids::inbox_id("gateway", "evt_1");
        assert_eq!(receive(&rig, "evt_1", "a").await, Received::New(id.clone()));
        for _ in 0..2 {
            assert_eq!(receive(&rig, "evt_1", "a").await, Received::Again(id.clone()));
        }
        let now = rig.clock.now_ms();
        let due = rig.read(|tx| tx.due_inbox(now, 10));
        assert_eq!((due.len(), &due[0].id, &*due[0].body), (1, &id, &b"a"[..]));

        let effect = Effect::Credit(vec![payment("pay_1", 500)]);
        assert!(settle(&rig, "evt_1", effect.clone()).await.unwrap());
        for _ in 0..2 {
            assert!(!settle(&rig, "evt_1", effect.clone()).await.unwrap());
            assert_eq!(receive(&rig, "evt_1", "a").await, Received::Again(id.clone()));
        }
        assert!(rig.read(|tx| tx.due_inbox(i64::MAX, 10)).is_empty());
        assert_eq!(count(&rig, "credits"), 1);
        assert_eq!(count(&rig, "events WHERE type = 'credit.created'"), 1);
        assert_eq!(rig.tables.count("SELECT duplicates FROM inbox"), 4);
        rig.check();
    });
}

/// C45: BTCPay sends an event under another delivery id, others tell of one payment in several events.
#[test]
fn a_payment_is_credited_once_whatever_event_tells_of_it() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        for id in ["evt_1", "evt_2", "evt_3"] {
            assert!(credit(&rig, id, &[payment("pay_1", 500)]).await.unwrap());
        }
        assert_eq!(count(&rig, "credits"), 1);
        assert_eq!(count(&rig, "journal"), 1);
        // Another amount under the same id: one of the two is false, and the books stay as they are.
        let why = refusal(credit(&rig, "evt_4", &[payment("pay_1", 501)]).await);
        assert!(why.contains("with another content"), "{why}");
        let mut other = payment("pay_1", 500);
        other.merchant = "other".to_owned();
        refusal(credit(&rig, "evt_5", &[other]).await);
        assert_eq!(count(&rig, "inbox WHERE state = 'waiting'"), 2);
        assert_eq!(
            count(&rig, "merchants WHERE slug = 'other'"),
            0,
            "nothing of it is left"
        );
        assert_eq!(count(&rig, "credits"), 1);
        rig.check();
    });
}

#[test]
fn one_event_of_several_payments_is_done_whole_or_not_at_all() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        refusal(credit(&rig, "evt_1", &[payment("pay_1", 500), payment("pay_2", 0)]).await);
        assert_eq!(count(&rig, "credits"), 0);
        let both = [payment("pay_1", 500), payment("pay_2", 7)];
        assert!(credit(&rig, "evt_1", &both).await.unwrap());
        assert_eq!(count(&rig, "credits"), 2);
        rig.check();
    });
}

#[test]
fn the_same_event_with_another_content_is_set_aside_and_told() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let id = ids::inbox_id("gateway", "evt_1");
        receive(&rig, "evt_1", "a").await;
        for _ in 0..3 {
            assert_eq!(receive(&rig, "evt_1", "b").await, Received::SetAside(id.clone()));
        }
        assert_eq!(count(&rig, "inbox_aside"), 1);
        assert_eq!(
            count(&rig, "events WHERE type = 'inbox.set_aside' AND merchant IS NULL"),
            1
        );
        let told = rig.read(|tx| tx.events_after(0, 10));
        assert_eq!(schema::faults_of(told[0].body.as_bytes()), [""; 0]);
        for number in 0..20 {
            receive(&rig, "evt_1", &number.to_string()).await;
        }
        assert_eq!(count(&rig, "inbox_aside"), 8, "a flood of them fills no disk");
        // The first one is what counts.
        let due = rig.read(|tx| tx.due_inbox(i64::MAX, 10));
        assert_eq!((due.len(), &*due[0].body), (1, &b"a"[..]));
        rig.check();
    });
}

/// Why-not-simpler 6: a gateway tells of an output that we watch too.
#[test]
fn what_we_watch_is_not_credited_on_a_providers_word() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        rig.extend(1);
        let ours = rig.pay(&to, 5);
        rig.send(&ours);
        rig.settle().await;
        let named = |vout| ExternalPayment {
            output: Some(NamedOutput {
                txid: ours.txid,
                vout,
            }),
            ..payment("pay_1", 500)
        };
        for vout in [Some(0), None] {
            let why = refusal(credit(&rig, "evt_1", &[named(vout)]).await);
            assert!(why.contains("watched here"), "{why}");
        }
        // By its address alone, paid or not.
        let chain = rig.settings.chain.id.clone();
        let by_address = |chain: &ChainId, script: &Script| ExternalPayment {
            scripts: vec![(chain.clone(), script.clone())],
            ..payment("pay_1", 500)
        };
        refusal(credit(&rig, "evt_1", &[by_address(&chain, &to)]).await);
        assert_eq!(count(&rig, "credits"), 0);
        // Another output of that transaction, another address, and an address on another chain are not ours.
        assert!(credit(&rig, "evt_1", &[named(Some(1))]).await.unwrap());
        let stranger = by_address(&chain, &rig.script(2));
        let elsewhere = by_address(&ChainId::from_stored("bip122:other".into()), &to);
        for (id, mut payment) in [("evt_2", stranger), ("evt_3", elsewhere)] {
            payment.payment = id.to_owned();
            assert!(credit(&rig, id, &[payment]).await.unwrap());
        }
        rig.check();
    });
}

#[test]
fn a_deposit_found_later_at_an_output_that_a_provider_named_is_held() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        rig.extend(1);
        let (listed, mined, other) = (rig.pay(&to, 5), rig.pay(&to, 6), rig.pay(&to, 7));
        for (id, txid, vout) in [
            ("evt_1", listed.txid, Some(0)),
            ("evt_2", mined.txid, None),
            ("evt_3", other.txid, Some(1)),
        ] {
            let named = ExternalPayment {
                output: Some(NamedOutput { txid, vout }),
                ..payment(id, 500)
            };
            assert!(credit(&rig, id, &[named]).await.unwrap());
        }
        rig.send(&listed);
        rig.settle().await;
        rig.mine(&[&listed, &mined, &other]);
        rig.extend(5);
        rig.settle().await;
        for (tx, held) in [
            (&listed, Some("external")),
            (&mined, Some("external")),
            (&other, None),
        ] {
            let deposit = rig.tables.deposit(&tx.outpoint(0));
            assert_eq!(deposit.held.as_deref(), held, "{}", tx.txid);
            assert_eq!(deposit.was_credited, held.is_none());
        }
        // The operator may know better.
        let id = rig.tables.deposit(&mined.outpoint(0)).id;
        rig.write(move |tx| tx.release(&id, "the gateway took it back"))
            .await;
        rig.settle().await;
        assert_eq!(rig.tables.journal(&mined.outpoint(0)), ["credit"]);
        rig.reopen().await;
        rig.settle().await;
        assert_eq!(
            rig.tables.deposit(&listed.outpoint(0)).held.as_deref(),
            Some("external")
        );
    });
}

/// On EVM chains a provider counts positions in its own way: by the transaction alone it is ours.
#[test]
fn on_evm_chains_a_position_that_a_provider_names_says_nothing() {
    in_simulation(async {
        let mut rig = evm().await;
        let to = rig.watch(1).await;
        rig.extend(1);
        let (ours, later) = (rig.pay_token(7, &to, 50), rig.pay_token(7, &to, 60));
        let named = |id: &str, txid| ExternalPayment {
            output: Some(NamedOutput { txid, vout: Some(3) }),
            ..payment(id, 500)
        };
        assert!(
            credit(&rig, "evt_1", &[named("pay_1", later.txid)])
                .await
                .unwrap()
        );
        rig.mine(&[&ours, &later]);
        rig.extend(5);
        rig.settle().await;
        let why = refusal(credit(&rig, "evt_2", &[named("pay_2", ours.txid)]).await);
        assert!(why.contains("watched here"), "{why}");
        for (tx, held) in [(&ours, None), (&later, Some("external"))] {
            assert_eq!(rig.tables.deposit(&tx.log(7, 0)).held.as_deref(), held);
        }
        rig.check();
    });
}

#[test]
fn a_run_that_failed_leaves_nothing_done_and_is_tried_again_until_it_is_parked() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        receive(&rig, "evt_1", "a").await;
        let id = ids::inbox_id("gateway", "evt_1");
        let fail = |rig: &Rig| {
            let (store, id) = (rig.store(), id.clone());
            async move {
                store
                    .write(move |tx| tx.fail_inbox(&id, "no luck"))
                    .await
                    .unwrap()
            }
        };
        let mut waits = Vec::new();
        loop {
            match fail(&rig).await {
                InboxRetry::At(at) => waits.push(at - rig.clock.now_ms()),
                InboxRetry::Parked => break,
                InboxRetry::Settled => panic!("nobody settled it"),
            }
            assert!(rig.read(|tx| tx.due_inbox(rig.clock.now_ms(), 10)).is_empty());
            assert_eq!(count(&rig, "inbox WHERE state = 'waiting' AND effect IS NULL"), 1);
        }
        assert!(waits.is_sorted() && waits.len() == 9, "{waits:?}");
        assert_eq!(fail(&rig).await, InboxRetry::Settled);
        assert_eq!(
            count(&rig, "events WHERE type = 'inbox.parked' AND merchant IS NULL"),
            1
        );
        assert!(
            !settle(&rig, "evt_1", Effect::Nothing("late".to_owned()))
                .await
                .unwrap()
        );
        rig.check();

        let again = id.clone();
        rig.write(move |tx| tx.retry_inbox(&again, "mended")).await;
        let twice = id.clone();
        let refused = rig
            .store()
            .write(move |tx| tx.retry_inbox(&twice, "mended"))
            .await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
        let effect = Effect::Credit(vec![payment("pay_1", 500)]);
        assert!(settle(&rig, "evt_1", effect).await.unwrap());
        assert_eq!(
            count(&rig, "audit WHERE action = 'inbox' AND actor = 'operator'"),
            1
        );
        rig.check();
    });
}

#[test]
fn a_merchant_gets_an_event_as_it_came() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        rig.listen(Some("shop"), "inbox.*").await;
        let json = r#"{"price" : 1.10, "big":12345678901234567890123, "text":"caf\u00e9"}"#;
        // Deeper than others read, and closed too early: both are told as what they are, bytes.
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for (id, body) in [
            ("evt_1", json),
            ("evt_2", "plain text"),
            ("evt_3", deep.as_str()),
            ("evt_4", "1]]]],[[[[1"),
        ] {
            receive(&rig, id, body).await;
            for _ in 0..2 {
                let forward = Effect::Forward {
                    merchant: "shop".to_owned(),
                };
                settle(&rig, id, forward).await.unwrap();
            }
        }
        let bodies: Vec<String> = rig
            .tables
            .rows("SELECT body FROM events ORDER BY seq", |row| row.get(0).unwrap());
        assert_eq!(bodies.len(), 4);
        for body in &bodies {
            serde_json::from_str::<serde_json::Value>(body).unwrap();
        }
        assert!(bodies[2].contains(r#""content_base64":"W1tbW1"#), "{}", bodies[2]);
        assert!(
            bodies[3].contains(r#""content_base64":"MV1dXV0"#),
            "{}",
            bodies[3]
        );
        assert!(
            bodies[0].contains(&format!(r#""content":{json}"#)),
            "{}",
            bodies[0]
        );
        assert!(
            bodies[1].contains(r#""content_base64":"cGxhaW4gdGV4dA==""#),
            "{}",
            bodies[1]
        );
        assert_eq!(count(&rig, "deliveries"), 4);
        rig.check();
    });
}

#[test]
fn the_row_of_an_event_outlives_its_body() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        for id in ["evt_1", "evt_2"] {
            receive(&rig, id, id).await;
        }
        settle(&rig, "evt_1", Effect::Credit(vec![payment("pay_1", 500)]))
            .await
            .unwrap();
        rig.wait(Duration::from_secs(60)).await;
        let now = rig.clock.now_ms();
        let dropped = rig
            .write(move |tx| tx.drop_inbox_bodies("gateway", now, 10))
            .await;
        assert_eq!(dropped, 1, "what waits is kept");
        assert_eq!(count(&rig, "inbox WHERE body IS NULL"), 1);
        assert_eq!(
            rig.write(move |tx| tx.drop_inbox_bodies("gateway", now, 10))
                .await,
            0
        );
        let id = ids::inbox_id("gateway", "evt_1");
        assert_eq!(receive(&rig, "evt_1", "evt_1").await, Received::Again(id.clone()));
        assert_eq!(receive(&rig, "evt_1", "other").await, Received::SetAside(id));
        assert_eq!(count(&rig, "credits"), 1);
        rig.check();
    });
}

#[test]
fn lists_and_balances_show_credits_with_and_without_a_chain() {
    in_simulation(async {
        let mut rig = Rig::new().await;
        let to = rig.watch(1).await;
        let paid = rig.pay(&to, 5);
        rig.mine(&[&paid]);
        rig.extend(4);
        rig.settle().await;
        credit(&rig, "evt_1", &[payment("pay_1", 1_250)]).await.unwrap();
        rig.settle().await;

        let credits = rig.read(|tx| tx.list_credits(&Filter::default(), PAGE));
        assert_eq!(credits.len(), 2);
        let (told, seen) = (&credits[0].row, &credits[1].row);
        assert_eq!((told.script.as_ref(), told.block_height), (None, None));
        assert_eq!(told.inbox.as_deref(), Some(&*ids::inbox_id("gateway", "evt_1")));
        assert_eq!(
            (told.reference.as_str(), told.symbol.as_str()),
            ("order-1", "USD")
        );
        assert_eq!(told.asset, "ext:gateway/USD");
        assert_eq!(told.net, Amount::from_u64(1_250));
        assert_eq!((seen.script.as_ref(), &seen.inbox), (Some(&to), &None));
        assert!(seen.block_height.is_some());
        let entries = rig.read(|tx| tx.journal(&told.id));
        assert_eq!((entries.len(), entries[0].cause), (1, None));

        let balances = rig.read(|tx| tx.balances(Some("shop")));
        let sums: Vec<(String, String)> = balances
            .iter()
            .map(|sum| (sum.symbol.clone(), sum.credited.to_string()))
            .collect();
        assert!(sums.contains(&("USD".to_owned(), "1250".to_owned())), "{sums:?}");
        assert_eq!(sums.len(), 2);

        // No follower stands behind it, so nothing that asks for one meets it.
        assert_eq!(rig.read(|tx| tx.chains()).len(), 1);
        assert_eq!(rig.read(|tx| tx.chain_status()).len(), 1);
        assert_eq!(rig.read(|tx| tx.readings()).chains.len(), 1);
        let external = rig.read(|tx| tx.external_chains());
        assert_eq!((external.len(), external[0].id.as_str()), (1, "ext:gateway"));
        assert!(external[0].id.is_external());
        assert!(rig.read(|tx| tx.tx_story(&told.outpoint.txid)).is_empty());
        rig.reopen().await;
        rig.settle().await;
    });
}

/// How gateways write outputs.
#[test]
fn outputs_are_read_as_gateways_write_them() {
    let txid = "ab".repeat(32);
    let named = |vout| {
        vec![NamedOutput {
            txid: Txid([0xab; 32]),
            vout,
        }]
    };
    for (text, expected) in [
        (txid.clone(), named(None)),
        (format!("0x{txid}"), named(None)),
        (format!("{txid}-1"), named(Some(1))),
        (format!("{txid}:1"), named(Some(1))),
        // However it is written, that transaction is meant.
        (format!("{txid}:"), named(None)),
        (format!("{txid}:-1"), named(None)),
        (format!("{txid}:x"), named(None)),
        (format!("{txid}#1"), named(None)),
        (format!("{txid}_1"), named(None)),
        (format!("{txid}/1"), named(None)),
        (format!(" {txid}\n"), named(None)),
        (format!("{txid}:1 "), named(Some(1))),
        (format!("https://explorer.example/tx/{txid}?a=1"), named(None)),
        (format!("{txid},{txid}"), [named(None), named(None)].concat()),
        (txid[1..].to_owned(), Vec::new()),
        (format!("{txid}ab"), Vec::new()),
        (String::new(), Vec::new()),
        ("lnbc1".to_owned(), Vec::new()),
    ] {
        assert_eq!(NamedOutput::all_in(&text), expected, "{text}");
    }
}
