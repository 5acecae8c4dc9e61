//! A thousand endpoints, a hundred of which are dead: those who answer notice nothing of it.

use crate::mail::{Mail, Reply, Sent};
use crate::rig::in_simulation;
use std::collections::BTreeMap;
use std::time::Duration;

const ENDPOINTS: usize = 1_000;
/// Every so many is dead.
const DEAD_EVERY: usize = 10;
const PAYMENTS: u32 = 5;

/// What an event may take to everyone who answers, with the deliverer's look every second.
const DELAY_MS_MAX: i64 = 2_000;

fn url(number: usize) -> String {
    let kind = if number.is_multiple_of(DEAD_EVERY) {
        "dead"
    } else {
        "good"
    };
    format!("https://{kind}{number}.example/hook")
}

/// All endpoints answer at first. Then the dead ones die, and many events come at once.
fn play(death: fn() -> Reply) {
    in_simulation(async {
        let mut mail = Mail::new(|_, _| Reply::Status(200)).await;
        for number in 0..ENDPOINTS {
            mail.add(Some("shop"), &url(number), "*").await;
        }
        mail.credit().await;
        mail.pass(Duration::from_secs(5)).await;
        assert!(mail.by_url().values().all(|sent| sent.len() == 2));
        mail.answer(move |sent, _| match sent.url.contains("dead") {
            true => death(),
            false => Reply::Status(200),
        });
        let fork = mail.rig.tip();
        let mut payments = Vec::new();
        for number in 0..PAYMENTS {
            let to = mail.rig.watch(1_000 + number).await;
            payments.push(mail.rig.pay(&to, 70_000));
        }
        mail.rig.settle().await;
        let together: Vec<_> = payments.iter().collect();
        mail.rig.mine(&together);
        mail.rig.extend(2);
        mail.rig.settle().await;
        let branch = mail.rig.extend_on(fork, 4);
        mail.rig.go_to(branch);
        mail.rig.settle().await;
        mail.pass(Duration::from_secs(60)).await;
        assert_undisturbed(&mail);
        mail.assert_sound();
    });
}

fn assert_undisturbed(mail: &Mail) {
    let events = mail.rig.read(|tx| tx.events_after(0, 10_000));
    assert!(events.iter().any(|event| event.kind == "credit.reversed"));
    let made: BTreeMap<&str, i64> = events.iter().map(|event| (event.id.as_str(), event.at)).collect();
    let by_url = mail.by_url();
    assert_eq!(by_url.len(), ENDPOINTS);
    for (url, sent) in by_url.iter().filter(|(url, _)| url.contains("good")) {
        assert_eq!(sent.len(), events.len(), "{url} gets each event once");
        let mut last: BTreeMap<String, i64> = BTreeMap::new();
        for sent in sent {
            let took = sent.at - made[sent.id.as_str()];
            assert!(took <= DELAY_MS_MAX, "{url} got {} after {took} ms", sent.kind());
            let (subject, sequence) = place_of(sent);
            let before = last.insert(subject, sequence);
            assert!(
                before.is_none_or(|before| before < sequence),
                "{url}: not in order"
            );
        }
    }
}

/// The subject of an event, and its number there.
fn place_of(sent: &Sent) -> (String, i64) {
    let data = &sent.json()["data"];
    let subject = data["credit"]
        .as_str()
        .or(data["deposit"]["id"].as_str())
        .unwrap();
    (subject.to_owned(), data["sequence"].as_i64().unwrap())
}

#[test]
fn hundred_hanging_endpoints_of_a_thousand_delay_nobody() {
    play(|| Reply::Hangs);
}

#[test]
fn hundred_refusing_endpoints_of_a_thousand_delay_nobody() {
    play(|| Reply::Refused);
}
