//! Sending again because somebody says so, and what a callback that does not go out says that it waits for.

use crate::common::daemon::Daemon;
use crate::mail::{Mail, PATIENCE, Reply};
use crate::rig::in_simulation;
use crate::sample::Sample;
use creditd::clock::millis;
use creditd::store::Resend;
use creditd::store::report::{Blocker, DeliveryFilter, Page};
use rusqlite::Connection;
use serde_json::Value;
use std::time::Duration;

const HOOK: &str = "https://shop.example/hook";
const MOMENT: Duration = Duration::from_secs(2);

async fn ask_for_a_test(mail: &Mail, endpoint: &str) -> String {
    let id = endpoint.to_owned();
    mail.rig.write(move |tx| tx.test_endpoint(&id)).await
}

#[test]
fn second_test_event_of_an_endpoint_goes_out_although_the_first_one_failed() {
    in_simulation(async {
        let mut mail = Mail::new(|_, _| Reply::Refused).await;
        let endpoint = mail.add(Some("shop"), HOOK, "credit.*").await;
        let first = ask_for_a_test(&mail, &endpoint).await;
        mail.pass(10 * MOMENT).await;
        mail.answer(|_, _| Reply::Status(200));
        let before = mail.to(HOOK).len();
        let second = ask_for_a_test(&mail, &endpoint).await;
        assert_ne!(first, second);
        mail.pass(MOMENT).await;
        let sent = mail.to(HOOK);
        assert_eq!(
            sent[before..].iter().map(|sent| &sent.id).collect::<Vec<_>>(),
            [&second]
        );
        let number = |at: usize| sent[at].json()["data"]["sequence"].as_i64().unwrap();
        assert_eq!(number(before), number(0) + 1);
        mail.assert_sound();
        mail.rig.check();
    });
}

/// Two events of a deposit, the first of which is refused.
async fn one_behind_another(mail: &mut Mail) -> String {
    let endpoint = mail.add(Some("shop"), HOOK, "deposit.*").await;
    let to = mail.rig.watch(1).await;
    let payment = mail.rig.pay(&to, 50_000);
    mail.rig.mine(&[&payment]);
    mail.rig.settle().await;
    mail.pass(10 * MOMENT).await;
    let deposit = mail.deliveries(None).remove(0).subject;
    assert!(mail.rig.write(move |tx| tx.hold(&deposit, "a test")).await);
    mail.pass(MOMENT).await;
    endpoint
}

fn blocker_of_the_newest(mail: &Mail) -> Option<Blocker> {
    let page = Page {
        after: None,
        limit: 1,
    };
    let patience_from = mail.rig.clock.now_ms() - millis(PATIENCE);
    mail.rig.read(|tx| {
        let newest = tx.list_deliveries(&DeliveryFilter::default(), page)?.remove(0);
        tx.blocker(newest.position, patience_from)
    })
}

#[test]
fn callback_that_is_held_back_names_the_older_one_until_that_has_had_its_three_tries() {
    in_simulation(async {
        let mut mail = Mail::new(|sent, _| match sent.kind().as_str() {
            "deposit.confirming" => Reply::Status(422),
            _ => Reply::Status(200),
        })
        .await;
        one_behind_another(&mut mail).await;
        let rows = mail.deliveries(None);
        assert_eq!(rows[0].state, "waiting", "{rows:?}");
        let blocker = blocker_of_the_newest(&mail).unwrap();
        assert_eq!(
            (&blocker.event, blocker.next_at),
            (&rows[1].event, rows[1].next_at)
        );
        mail.pass(10 * 60 * Duration::from_secs(1)).await;
        assert_eq!(mail.deliveries(None)[0].state, "delivered");
        assert_eq!(blocker_of_the_newest(&mail), None);
        mail.assert_sound();
    });
}

#[test]
fn what_waits_at_an_endpoint_goes_out_at_once_in_order_when_it_is_asked_for() {
    in_simulation(async {
        for is_resumed in [false, true] {
            let mut mail = Mail::new(|_, _| Reply::Refused).await;
            let endpoint = one_behind_another(&mut mail).await;
            let id = endpoint.clone();
            if is_resumed {
                mail.rig
                    .write(move |tx| tx.pause_endpoint(&id, "a test", "operator"))
                    .await;
            }
            let before = mail.to(HOOK).len();
            mail.answer(|_, _| Reply::Status(200));
            mail.pass(MOMENT).await;
            assert_eq!(
                mail.to(HOOK).len(),
                before,
                "it is minutes until its next attempt"
            );
            let id = endpoint.clone();
            if is_resumed {
                mail.rig.write(move |tx| tx.resume_endpoint(&id, "mended")).await;
            } else {
                let all = move |tx: &mut creditd::store::WriteTx<'_>| {
                    tx.retry_endpoint(&id, Resend::Undelivered, 100, "mended")
                };
                assert_eq!(mail.rig.write(all).await, 1, "the other is due and held back");
            }
            mail.pass(2 * MOMENT).await;
            assert_eq!(mail.kinds(HOOK)[before..], ["deposit.confirming", "deposit.held"]);
            mail.assert_sound();
        }
    });
}

fn edit(files: &Daemon, sql: &str) {
    let database = Connection::open(files.database()).unwrap();
    assert!(database.execute(sql, []).unwrap() > 0, "{sql}");
}

fn tell(files: &Daemon, args: &[&str]) -> String {
    let output = files.cli(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A database without a daemon, and an endpoint with one callback that waits for tomorrow.
fn with_one_that_waits() -> (Sample, String, String) {
    let sample = Sample::filled();
    let hook = ["endpoint", "add", "https://192.0.43.8/", "--merchant", "shop"];
    let added = sample.files.json(&hook);
    let endpoint = added["endpoint"]["id"].as_str().unwrap().to_owned();
    let tested = sample
        .files
        .cli(&["endpoint", "test", &endpoint, "--wait-secs", "0", "--json"]);
    let tested: Value = serde_json::from_slice(&tested.stdout).unwrap();
    let event = tested["event"].as_str().unwrap().to_owned();
    (sample, endpoint, event)
}

const TOMORROW: &str =
    "UPDATE deliveries SET attempts = 4, next_at = queued_at + 86400000, state = 'waiting'";
const PARKED: &str = "UPDATE deliveries SET attempts = 4, settled_at = queued_at, state = 'parked'";
const DELIVERED: &str = "UPDATE deliveries SET attempts = 4, settled_at = queued_at, state = 'delivered'";

#[test]
fn retry_of_an_event_sends_now_wherever_it_waits_or_is_parked_or_says_why_not() {
    let (sample, endpoint, event) = with_one_that_waits();
    let retry = ["callbacks", "retry", &event, "--reason", "mended", "--apply"];
    for state in [TOMORROW, PARKED] {
        edit(&sample.files, state);
        let told = tell(&sample.files, &retry);
        assert!(
            told.contains(&format!("done: send {event} now to {endpoint}")),
            "{told}"
        );
        let told = tell(&sample.files, &retry);
        assert!(
            told.contains(&format!("nothing to do: {event} is due at {endpoint} already")),
            "{told}"
        );
    }
    edit(&sample.files, DELIVERED);
    let told = tell(&sample.files, &retry);
    assert!(
        told.contains(&format!(
            "was delivered to {endpoint}; with --endpoint {endpoint}"
        )),
        "{told}"
    );
}

#[test]
fn retry_of_an_endpoint_sends_all_that_it_has_not_got_or_only_what_is_parked() {
    let (sample, endpoint, _) = with_one_that_waits();
    let all = [
        "callbacks",
        "retry",
        "--endpoint",
        &endpoint,
        "--reason",
        "x",
        "--apply",
    ];
    let parked = [&all[..], &["--parked"]].concat();
    edit(&sample.files, TOMORROW);
    let told = tell(&sample.files, &parked);
    assert!(told.contains("nothing to do: nothing is parked"), "{told}");
    let told = tell(&sample.files, &all);
    assert!(told.contains("what waits there (1 callbacks)"), "{told}");
    let told = tell(&sample.files, &all);
    assert!(told.contains("nothing to do: 1 callbacks to"), "{told}");
    edit(&sample.files, PARKED);
    let told = tell(&sample.files, &parked);
    assert!(told.starts_with("done: send now"), "{told}");
}

#[test]
fn resume_says_what_is_sent_and_what_stays_parked() {
    let (sample, endpoint, _) = with_one_that_waits();
    let resume = ["endpoint", "resume", &endpoint, "--reason", "x", "--apply"];
    let told = tell(&sample.files, &resume);
    assert!(
        told.contains("is not paused") && told.contains("callbacks retry --endpoint"),
        "{told}"
    );
    tell(
        &sample.files,
        &["endpoint", "pause", &endpoint, "--reason", "x", "--apply"],
    );
    edit(&sample.files, PARKED);
    let told = tell(&sample.files, &resume);
    assert!(told.contains("the 1 that are parked stay so"), "{told}");
}

#[test]
fn test_event_that_nobody_sends_says_that_no_daemon_runs() {
    let (sample, endpoint, _) = with_one_that_waits();
    let output = sample
        .files
        .cli(&["endpoint", "test", &endpoint, "--wait-secs", "0"]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("no daemon runs on this database; start it"),
        "{told}"
    );
}
