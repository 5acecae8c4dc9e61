//! Callbacks to receivers that are slow, dead, rude or late, and what operators and merchants get of them.

use crate::mail::{Mail, Reply, Sent, TIMEOUT};
use crate::rig::in_simulation;
use creditd::rules::retry::LADDER_SECS;
use std::collections::BTreeSet;
use std::time::Duration;

const HOOK: &str = "https://shop.example/hook";
const OTHER: &str = "https://other.example/hook";
const OPS: &str = "https://ops.example/hook";
const DAY: Duration = Duration::from_secs(86_400);
const MINUTE: Duration = Duration::from_secs(60);

/// Seconds between the attempts.
fn waits(sent: &[Sent]) -> Vec<i64> {
    sent.windows(2)
        .map(|pair| (pair[1].at - pair[0].at) / 1_000)
        .collect()
}

/// Is each wait that of the ladder, give or take its jitter and the time an attempt takes?
#[track_caller]
fn assert_on_ladder(sent: &[Sent], slack_secs: i64) {
    for (wait, nominal) in waits(sent).into_iter().zip(&LADDER_SECS[1..]) {
        let nominal = i64::try_from(*nominal).unwrap();
        let (least, most) = (nominal * 8 / 10 - 1, nominal * 12 / 10 + 2 + slack_secs);
        assert!((least..=most).contains(&wait), "{wait} s instead of {nominal}");
    }
}

fn ids(sent: &[Sent]) -> BTreeSet<&str> {
    sent.iter().map(|sent| sent.id.as_str()).collect()
}

#[test]
fn dead_receiver_is_tried_along_the_ladder_then_the_event_is_parked_and_replayed_byte_by_byte() {
    in_simulation(async {
        let mut mail = Mail::new(|_, _| Reply::Refused).await;
        let endpoint = mail.add(Some("shop"), HOOK, "credit.*").await;
        mail.credit().await;
        mail.pass(5 * DAY).await;
        let sent = mail.to(HOOK);
        assert_eq!((sent.len(), ids(&sent).len()), (10, 1), "{:?}", waits(&sent));
        assert_on_ladder(&sent, 0);
        let stamps: BTreeSet<&str> = sent.iter().map(|sent| sent.timestamp.as_str()).collect();
        assert_eq!(stamps.len(), 10, "each attempt has its own time");
        let row = mail.deliveries(None).remove(0);
        assert_eq!((row.state.as_str(), row.attempts), ("parked", 10));
        assert!(row.last_error.unwrap().contains("nobody listens"));
        mail.pass(30 * DAY).await;
        assert_eq!(mail.to(HOOK).len(), 10, "what is parked stays");
        mail.answer(|_, _| Reply::Status(204));
        assert!(mail.retry(&sent[0].id, &endpoint).await);
        assert!(!mail.retry(&sent[0].id, &endpoint).await, "it waits already");
        mail.pass(MINUTE).await;
        let all = mail.to(HOOK);
        assert_eq!((all.len(), ids(&all).len()), (11, 1));
        assert_eq!(mail.deliveries(None)[0].state, "delivered");
        mail.assert_sound();
    });
}

#[test]
fn redirects_and_errors_are_failed_attempts() {
    in_simulation(async {
        for status in [301, 302, 303, 307, 308, 400, 401, 404, 422, 500, 503] {
            let mut mail = Mail::new(move |_, _| Reply::Status(status)).await;
            mail.add(Some("shop"), HOOK, "credit.*").await;
            mail.credit().await;
            mail.pass(10 * MINUTE).await;
            let sent = mail.to(HOOK);
            assert_eq!((sent.len(), ids(&sent).len()), (3, 1), "{status}");
            assert_on_ladder(&sent, 0);
            let row = mail.deliveries(None).remove(0);
            assert_eq!((row.state.as_str(), row.last_status), ("waiting", Some(status)));
            mail.assert_sound();
        }
    });
}

/// C39: what leads inside is tried again as seldom as anything else, and what is kept of it names the reason.
#[test]
fn c39_a_blocked_address_is_not_retried_at_speed() {
    in_simulation(async {
        let mut mail = Mail::new(|_, _| Reply::Blocked).await;
        let endpoint = mail.add(Some("shop"), HOOK, "credit.*").await;
        mail.credit().await;
        mail.pass(10 * MINUTE).await;
        let sent = mail.to(HOOK);
        assert_eq!((sent.len(), ids(&sent).len()), (3, 1));
        assert_on_ladder(&sent, 0);
        let attempts = mail.rig.read(|tx| tx.attempts(&sent[0].id, &endpoint));
        assert_eq!(attempts.len(), 3);
        for attempt in attempts {
            let (code, words) = attempt.error.split_once(": ").unwrap();
            assert_eq!((code, attempt.status), ("blocked_address", None));
            assert!(words.contains("127.0.0.1"), "{words}");
        }
        mail.pass(5 * DAY).await;
        assert_eq!(mail.deliveries(None)[0].state, "parked");
    });
}

#[test]
fn retry_after_is_obeyed_up_to_a_day() {
    in_simulation(async {
        let asks = [120, 0, u64::MAX];
        let mut mail = Mail::new(move |_, before| match asks.get(before) {
            Some(secs) => Reply::Later(429, *secs),
            None => Reply::Status(200),
        })
        .await;
        mail.add(Some("shop"), HOOK, "credit.*").await;
        mail.credit().await;
        mail.pass(3 * DAY).await;
        let sent = mail.to(HOOK);
        let [first, second, third] = waits(&sent)[..] else {
            panic!("{:?}", waits(&sent));
        };
        assert!((120..=122).contains(&first), "{first}");
        assert!(
            (239..=362).contains(&second),
            "asking for less than the ladder changes nothing: {second}"
        );
        assert!((86_400..=86_402).contains(&third), "{third}");
        mail.assert_sound();
    });
}

#[test]
fn gone_pauses_the_endpoint_until_it_is_resumed_and_loses_nothing() {
    in_simulation(async {
        let mut mail = Mail::new(|_, _| Reply::Status(410)).await;
        let endpoint = mail.add(Some("shop"), HOOK, "credit.*").await;
        mail.credit().await;
        mail.pass(MINUTE).await;
        assert_eq!(mail.to(HOOK).len(), 1);
        mail.credit().await;
        mail.pass(10 * DAY).await;
        assert_eq!(mail.to(HOOK).len(), 1, "it is left alone");
        let id = endpoint.clone();
        let reason = mail.rig.read(|tx| tx.endpoint(&id)).paused_reason.unwrap();
        assert!(reason.contains("410"), "{reason}");
        mail.answer(|_, _| Reply::Status(200));
        mail.rig
            .write(move |tx| tx.resume_endpoint(&endpoint, "it is back"))
            .await;
        mail.pass(MINUTE).await;
        assert_eq!(ids(&mail.to(HOOK)).len(), 2);
        assert!(mail.deliveries(None).iter().all(|row| row.state == "delivered"));
        mail.assert_sound();
    });
}

#[test]
fn answer_after_our_time_out_means_the_same_id_and_bytes_again() {
    in_simulation(async {
        let mut mail = Mail::new(|_, before| match before {
            0 => Reply::Hangs,
            _ => Reply::Status(200),
        })
        .await;
        mail.add(Some("shop"), HOOK, "credit.*").await;
        mail.credit().await;
        mail.pass(MINUTE).await;
        let sent = mail.to(HOOK);
        assert_eq!((sent.len(), ids(&sent).len()), (2, 1));
        assert_ne!(sent[0].timestamp, sent[1].timestamp);
        assert_ne!(sent[0].signature, sent[1].signature);
        assert_eq!(mail.deliveries(None)[0].state, "delivered");
        mail.assert_sound();
    });
}

#[test]
fn crash_between_send_and_settle_means_the_same_id_and_bytes_again() {
    in_simulation(async {
        let mut mail = Mail::new(|_, _| Reply::Hangs).await;
        mail.add(Some("shop"), HOOK, "credit.*").await;
        mail.credit().await;
        mail.pass(Duration::from_secs(3)).await;
        assert_eq!(mail.to(HOOK).len(), 1, "it is on its way");
        mail.answer(|_, _| Reply::Status(200));
        mail.crash().await;
        mail.pass(Duration::from_secs(3)).await;
        let sent = mail.to(HOOK);
        assert_eq!((sent.len(), ids(&sent).len()), (2, 1));
        mail.assert_sound();
    });
}

#[test]
fn slow_receiver_gets_its_events_and_delays_no_other() {
    in_simulation(async {
        let slow = TIMEOUT - Duration::from_secs(1);
        let mut mail = Mail::new(move |sent, _| match sent.url.as_str() {
            HOOK => Reply::After(slow),
            _ => Reply::Status(200),
        })
        .await;
        mail.add(Some("shop"), HOOK, "*").await;
        mail.add(Some("shop"), OTHER, "*").await;
        for _ in 0..20 {
            mail.credit().await;
        }
        mail.pass(10 * MINUTE).await;
        let (slow, quick) = (mail.to(HOOK), mail.to(OTHER));
        assert_eq!(ids(&slow), ids(&quick), "the same ids at both");
        assert_eq!((slow.len(), quick.len()), (40, 40), "slow is not failed");
        for sent in &quick {
            let queued = mail.deliveries(Some(&sent.id)).pop().unwrap();
            assert_eq!((queued.attempts, queued.state.as_str()), (1, "delivered"));
        }
        mail.assert_sound();
    });
}

#[test]
fn recovery_after_an_outage_is_no_storm_and_brings_everything() {
    in_simulation(async {
        let mut mail = Mail::new(|_, _| Reply::Refused).await;
        mail.add(Some("shop"), HOOK, "credit.*").await;
        for _ in 0..40 {
            mail.credit().await;
        }
        mail.pass(10 * MINUTE).await;
        mail.take_most(HOOK);
        mail.pass(20 * MINUTE).await;
        assert_eq!(mail.take_most(HOOK), 1, "one at a time while it does not answer");
        mail.answer(|_, _| Reply::After(Duration::from_secs(2)));
        let before = mail.to(HOOK).len();
        // The longest wait that anything can have by now.
        mail.pass(3 * 60 * MINUTE).await;
        let most = mail.take_most(HOOK);
        assert!((1..=8).contains(&most), "{most} at once");
        let after = mail.to(HOOK).split_off(before);
        assert_eq!((after.len(), ids(&after).len()), (40, 40), "each once");
        assert!(mail.deliveries(None).iter().all(|row| row.state == "delivered"));
        mail.assert_sound();
    });
}

#[test]
fn room_for_one_message_is_enough_to_find_out_that_a_receiver_is_back() {
    in_simulation(async {
        let mut mail = Mail::with_room(1, |_, before| match before {
            0 => Reply::Refused,
            _ => Reply::Status(200),
        })
        .await;
        mail.add(Some("shop"), HOOK, "credit.*").await;
        mail.credit().await;
        mail.pass(MINUTE).await;
        assert_eq!(mail.to(HOOK).len(), 2);
        mail.assert_sound();
    });
}

#[test]
fn both_keys_sign_while_they_overlap_and_one_before_and_after() {
    in_simulation(async {
        let mut mail = Mail::new(|_, _| Reply::Refused).await;
        let endpoint = mail.add(Some("shop"), HOOK, "credit.*").await;
        mail.credit().await;
        mail.pass(MINUTE).await;
        mail.rotate(&endpoint, HOOK, DAY).await;
        mail.pass(5 * DAY).await;
        let sent = mail.to(HOOK);
        let signatures: Vec<usize> = sent
            .iter()
            .map(|sent| sent.signature.split(' ').count())
            .collect();
        assert_eq!(
            (signatures[0], signatures[2], signatures[9]),
            (1, 2, 1),
            "{signatures:?}"
        );
        mail.assert_sound();
    });
}

#[test]
fn endpoints_get_what_they_asked_for_from_then_on() {
    in_simulation(async {
        let mut mail = Mail::new(|_, _| Reply::Status(200)).await;
        mail.add(Some("shop"), HOOK, "credit.* deposit.held").await;
        mail.credit().await;
        mail.pass(MINUTE).await;
        assert_eq!(mail.kinds(HOOK), ["credit.created"]);
        let later = mail.add(Some("shop"), OTHER, "*").await;
        mail.add(Some("stranger"), "https://stranger.example/hook", "*")
            .await;
        mail.pass(MINUTE).await;
        assert_eq!(mail.kinds(OTHER), [""; 0], "nothing of before");
        mail.credit().await;
        mail.pass(MINUTE).await;
        assert_eq!(mail.kinds(HOOK), ["credit.created"; 2]);
        assert_eq!(mail.kinds(OTHER), ["deposit.confirming", "credit.created"]);
        assert_eq!(mail.kinds("https://stranger.example/hook"), [""; 0]);
        // A replay that names it brings an older one, the very same.
        let first = mail.to(HOOK).remove(0);
        assert!(mail.retry(&first.id, &later).await);
        mail.pass(MINUTE).await;
        let replayed = mail.to(OTHER).pop().unwrap();
        assert_eq!((replayed.id, replayed.body), (first.id, first.body));
        mail.assert_sound();
    });
}

#[test]
fn operators_hear_of_chains_and_merchants_never_do() {
    in_simulation(async {
        let mut mail = Mail::new(|_, _| Reply::Status(200)).await;
        mail.add(Some("shop"), HOOK, "*").await;
        mail.add(None, OPS, "*").await;
        let fork = mail.rig.extend(3);
        mail.credit().await;
        mail.rig.extend(30);
        mail.rig.settle().await;
        let branch = mail.rig.extend_on(fork, 60);
        mail.rig.go_to(branch);
        mail.rig.rounds(20).await;
        assert!(
            mail.rig.state().starts_with("reorg_too_deep"),
            "{}",
            mail.rig.state()
        );
        mail.pass(MINUTE).await;
        assert_eq!(mail.kinds(OPS), ["chain.halted"]);
        let key = mail.rig.key;
        mail.rig
            .write(move |tx| tx.ask_reanchor(key, 0, "it is real"))
            .await;
        mail.rig.settle().await;
        mail.pass(MINUTE).await;
        assert_eq!(mail.kinds(OPS), ["chain.halted", "chain.resumed"]);
        let shop = mail.kinds(HOOK);
        assert!(shop.iter().all(|kind| !kind.starts_with("chain.")), "{shop:?}");
        assert!(shop.contains(&"credit.reversed".to_owned()), "{shop:?}");
        mail.assert_sound();
    });
}
