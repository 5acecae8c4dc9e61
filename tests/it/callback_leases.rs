//! Callbacks whose attempt never ends, dies, or is answered while the daemon stops.

use crate::common::asks::{D1, script};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::receiver::{Receiver, answer};
use crate::common::wait::{PATIENCE, wait_until};
use crate::mail::{Mail, Reply, TIMEOUT};
use crate::rig::in_simulation;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const URL: &str = "https://shop.example/hook";

/// One credit for an endpoint whose first attempts end like this, the others well.
async fn credited_with(room: usize, first: Reply) -> Mail {
    let answer = move |_: &crate::mail::Sent, before| match before {
        0 => first,
        _ => Reply::Status(200),
    };
    let mut mail = Mail::with_room(room, answer).await;
    let id = mail.add(Some("shop"), URL, "credit.created").await;
    // Nothing goes out before the follower has come to rest.
    let pause = id.clone();
    mail.rig
        .write(move |tx| tx.pause_endpoint(&pause, "a test", "operator"))
        .await;
    mail.credit().await;
    mail.rig.write(move |tx| tx.resume_endpoint(&id, "a test")).await;
    while mail.to(URL).is_empty() {
        mail.rig.clock.sleep(Duration::from_millis(10)).await;
    }
    mail
}

/// The state of the one delivery.
fn state(mail: &Mail) -> String {
    let deliveries = mail.deliveries(None);
    assert_eq!(deliveries.len(), 1, "{deliveries:?}");
    deliveries[0].state.clone()
}

#[test]
fn an_attempt_that_hangs_or_dies_is_made_again_and_gives_its_room_back() {
    in_simulation(async {
        for (first, attempts_noted) in [(Reply::Stuck, 2), (Reply::Dies, 1)] {
            // Each of them alone would fill the only place for good.
            let mail = credited_with(1, first).await;
            mail.pass(TIMEOUT * 4).await;
            assert_eq!(state(&mail), "delivered", "{first:?}");
            let sent = mail.to(URL);
            assert_eq!(sent.len(), 2, "{first:?}");
            assert_eq!((&sent[0].id, &sent[0].body), (&sent[1].id, &sent[1].body));
            let row = &mail.deliveries(None)[0];
            let noted = mail.rig.read(|tx| tx.attempts(&row.event, &row.endpoint));
            assert_eq!(noted.len(), attempts_noted, "{first:?}: {noted:?}");
            mail.assert_sound();
        }
    });
}

#[test]
fn a_stop_settles_what_is_answered_in_time_and_does_not_wait_for_the_rest() {
    in_simulation(async {
        for (first, expected) in [
            (Reply::Status(200), "delivered"),
            (Reply::After(Duration::from_millis(700)), "delivered"),
            (Reply::After(Duration::from_secs(7)), "leased"),
            (Reply::Stuck, "leased"),
        ] {
            let mut mail = credited_with(256, first).await;
            let began = mail.rig.clock.instant();
            mail.stop().await;
            assert!(
                mail.rig.clock.instant() - began <= Duration::from_secs(1),
                "{first:?}"
            );
            assert_eq!(state(&mail), expected, "{first:?}");
            mail.crash().await;
            mail.pass(TIMEOUT).await;
            assert_eq!(state(&mail), "delivered", "{first:?}");
            let times = if expected == "delivered" { 1 } else { 2 };
            assert_eq!(mail.to(URL).len(), times, "{first:?}");
        }
    });
}

/// The daemon: the answer comes after SIGTERM, and the next start does not send it again.
#[test]
fn an_answer_that_comes_with_a_stop_is_written_down() {
    let node = FakeNode::regtest(3);
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let shut = gate.clone();
    let receiver = Receiver::http(Ipv4Addr::LOCALHOST, move |_, to| {
        let is_open = shut.0.lock().unwrap();
        drop(shut.1.wait_while(is_open, |is_open| !*is_open).unwrap());
        answer(to, 204, b"")
    });
    let mut daemon = Daemon::prepare(&Setup {
        confirmations: 1,
        tables: "[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n".to_owned(),
        ..Setup::for_stub(&node.stub)
    });
    let url = format!("http://{}/hook", receiver.address);
    let types = ["--types", "credit.created"];
    daemon.json(&[&["endpoint", "add", &url, "--merchant", "shop"], &types[..]].concat());
    daemon.watch(D1);
    daemon.start_again();
    daemon.wait_height(3);
    node.mine(vec![tx(&[coin(1)], &[(script(D1), 1_000_000)])]);
    wait_until("the callback is there", PATIENCE, || {
        (!receiver.heard().is_empty()).then_some(())
    });
    let pid = daemon.pid().to_string();
    let sent = Command::new("sh")
        .args(["-c", "kill -TERM \"$1\"", "sh", &pid])
        .status();
    assert!(sent.unwrap().success());
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    assert!(daemon.ended(PATIENCE).success());
    let list = daemon.json(&["callbacks", "list"]);
    assert_eq!(list["callbacks"][0]["state"], "delivered", "{list}");
    assert_eq!(receiver.heard().len(), 1);
}
