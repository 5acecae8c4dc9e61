//! Order within a subject: newer events wait for older ones, but not for ever.

use crate::mail::{Mail, PATIENCE, Reply, Sent};
use crate::rig::in_simulation;
use creditd::rules::Outpoint;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const HOOK: &str = "https://shop.example/hook";
const MINUTE: Duration = Duration::from_secs(60);

/// The books of a receiver that keeps the highest version per credit, from what has arrived so far.
fn books(bodies: impl Iterator<Item = Value>) -> BTreeMap<String, (i64, String)> {
    let mut books: BTreeMap<String, (i64, String)> = BTreeMap::new();
    for body in bodies {
        let data = &body["data"];
        let credit = data["credit"].as_str().unwrap().to_owned();
        let version = data["version"].as_i64().unwrap();
        let kept = books.entry(credit).or_default();
        if version > kept.0 {
            *kept = (version, data["net_base"].as_str().unwrap().to_owned());
        }
    }
    books
}

/// A payment that is credited, reversed by a reorg and credited again, with the endpoint paused meanwhile:
/// three events of one credit wait.
async fn three_events(mail: &mut Mail) -> Outpoint {
    let endpoint = mail.add(Some("shop"), HOOK, "credit.*").await;
    let id = endpoint.clone();
    mail.rig
        .write(move |tx| tx.pause_endpoint(&id, "a test", "operator"))
        .await;
    let to = mail.rig.watch(1).await;
    let payment = mail.rig.pay(&to, 50_000);
    mail.rig.settle().await;
    let fork = mail.rig.tip();
    mail.rig.mine(&[&payment]);
    mail.rig.extend(2);
    mail.rig.settle().await;
    let branch = mail.rig.extend_on(fork, 5);
    mail.rig.go_to(branch);
    mail.rig.settle().await;
    mail.rig.mine(&[&payment]);
    mail.rig.extend(2);
    mail.rig.settle().await;
    assert_eq!(mail.rig.tables.journal(&payment.outpoint(0)).len(), 3);
    mail.rig
        .write(move |tx| tx.resume_endpoint(&endpoint, "a test"))
        .await;
    payment.outpoint(0)
}

#[test]
fn c41_newer_event_waits_for_the_older_one_and_the_receiver_ends_at_credited() {
    in_simulation(async {
        // The first attempt of the first event arrives, and its answer comes after the time-out.
        let mut mail = Mail::new(|_, _| Reply::Status(200)).await;
        mail.answer(|sent, before| match (sent.kind().as_str(), before) {
            ("credit.created", 0) => Reply::Hangs,
            _ => Reply::Status(200),
        });
        three_events(&mut mail).await;
        mail.pass(5 * MINUTE).await;
        let sent = mail.to(HOOK);
        let kinds: Vec<String> = mail.kinds(HOOK);
        assert_eq!(
            kinds,
            [
                "credit.created",
                "credit.created",
                "credit.reversed",
                "credit.reinstated"
            ]
        );
        assert_eq!(sent[0].id, sent[1].id);
        assert!(sent[1].at - sent[0].at >= 15_000, "not beside the first attempt");
        // Each body is the state as of its event, not as of its sending.
        let told: Vec<(i64, String, String)> = sent[1..].iter().map(|sent| frozen(&sent.json())).collect();
        let wanted = [
            (1, "50000", "credited"),
            (2, "0", "orphaned"),
            (3, "50000", "credited"),
        ];
        let first = told[0].0;
        for ((version, net, state), (place, wanted_net, wanted_state)) in told.iter().zip(wanted) {
            assert_eq!(version - first + 1, place);
            assert_eq!((net.as_str(), state.as_str()), (wanted_net, wanted_state));
        }
        let books = books(sent.iter().map(Sent::json));
        let nets: Vec<&str> = books.values().map(|(_, net)| net.as_str()).collect();
        assert_eq!(nets, ["50000"]);
        mail.assert_sound();
    });
}

fn frozen(body: &Value) -> (i64, String, String) {
    let data = &body["data"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    assert_eq!(data["version"], data["sequence"]);
    (
        data["version"].as_i64().unwrap(),
        text(&data["net_base"]),
        text(&data["deposit"]["state"]),
    )
}

#[test]
fn c41_poison_event_holds_back_the_reversal_for_three_tries_and_is_parked_by_itself() {
    in_simulation(async {
        let mut mail = Mail::new(|sent, _| match sent.kind().as_str() {
            "credit.created" => Reply::Status(422),
            _ => Reply::Status(200),
        })
        .await;
        three_events(&mut mail).await;
        mail.pass(10 * MINUTE).await;
        let kinds = mail.kinds(HOOK);
        assert_eq!(kinds[..3], ["credit.created"; 3]);
        assert_eq!(kinds[3..], ["credit.reversed", "credit.reinstated"]);
        mail.pass(6 * 24 * 60 * MINUTE).await;
        let kinds = mail.kinds(HOOK);
        assert_eq!(kinds.iter().filter(|kind| *kind == "credit.created").count(), 10);
        assert_eq!(kinds.len(), 12);
        let states = |state: &str| {
            mail.deliveries(None)
                .iter()
                .filter(|row| row.state == state)
                .count()
        };
        assert_eq!((states("parked"), states("delivered")), (1, 2));
        mail.assert_sound();
    });
}

#[test]
fn patience_ends_by_time_where_the_receiver_asks_for_a_long_wait() {
    in_simulation(async {
        let mut mail = Mail::new(|sent, _| match sent.kind().as_str() {
            "credit.created" => Reply::Later(503, 7_200),
            _ => Reply::Status(200),
        })
        .await;
        three_events(&mut mail).await;
        let queued = mail.rig.clock.now_ms();
        mail.pass(PATIENCE + MINUTE).await;
        assert_eq!(
            mail.kinds(HOOK),
            ["credit.created", "credit.reversed", "credit.reinstated"]
        );
        let second = &mail.to(HOOK)[1];
        let waited = second.at - queued;
        // It was queued a little before this test looked at the clock.
        assert!((600_000..=902_000).contains(&waited), "{waited} ms");
        mail.assert_sound();
    });
}
