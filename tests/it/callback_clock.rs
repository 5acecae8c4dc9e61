//! Callbacks when the wall clock was ahead and is set back: nothing waits for a time that is far away.

use crate::mail::{Mail, PATIENCE, Reply};
use crate::rig::in_simulation;
use std::time::Duration;

const HOOK: &str = "https://shop.example/hook";
const MINUTE: Duration = Duration::from_secs(60);
const HOUR_MS: i64 = 3_600_000;
const YEAR_MS: i64 = 365 * 24 * HOUR_MS;

/// How the deliverer learns of the time that it is: it runs, or it starts.
async fn set_back(mail: &mut Mail, by_ms: i64, is_restarted: bool) {
    mail.rig.clock.set_by(-by_ms);
    if is_restarted {
        mail.crash().await;
    }
}

#[test]
fn clock_that_was_ahead_does_not_freeze_what_was_queued_meanwhile() {
    in_simulation(async {
        for (by_ms, is_restarted) in [
            (YEAR_MS, false),
            (YEAR_MS, true),
            (HOUR_MS, false),
            (HOUR_MS, true),
        ] {
            let mut mail = Mail::new(|_, _| Reply::Status(200)).await;
            let endpoint = mail.add(Some("shop"), HOOK, "credit.*").await;
            let id = endpoint.clone();
            mail.rig
                .write(move |tx| tx.pause_endpoint(&id, "a test", "operator"))
                .await;
            mail.rig.clock.set_by(by_ms);
            mail.credit().await;
            mail.pass(Duration::from_secs(5)).await;
            mail.rig
                .write(move |tx| tx.resume_endpoint(&endpoint, "a test"))
                .await;
            set_back(&mut mail, by_ms, is_restarted).await;
            mail.pass(Duration::from_secs(5)).await;
            assert_eq!(mail.kinds(HOOK), ["credit.created"], "{by_ms} ms, {is_restarted}");
        }
    });
}

#[test]
fn clock_that_was_ahead_does_not_stop_the_ladder() {
    in_simulation(async {
        for is_restarted in [false, true] {
            let mut mail = Mail::new(|_, before| match before {
                0 => Reply::Status(500),
                _ => Reply::Status(200),
            })
            .await;
            mail.add(Some("shop"), HOOK, "credit.*").await;
            mail.rig.clock.set_by(YEAR_MS);
            mail.credit().await;
            mail.pass(Duration::from_secs(1)).await;
            set_back(&mut mail, YEAR_MS, is_restarted).await;
            mail.pass(MINUTE).await;
            assert_eq!(mail.to(HOOK).len(), 2, "{is_restarted}");
        }
    });
}

#[test]
fn clock_that_was_ahead_does_not_make_patience_endless() {
    in_simulation(async {
        for is_restarted in [false, true] {
            let mut mail = Mail::new(|sent, _| match sent.kind().as_str() {
                "deposit.confirming" => Reply::Later(503, 86_000),
                _ => Reply::Status(200),
            })
            .await;
            mail.add(Some("shop"), HOOK, "deposit.confirming deposit.orphaned")
                .await;
            mail.rig.clock.set_by(YEAR_MS);
            let to = mail.rig.watch(1).await;
            let payment = mail.rig.pay(&to, 50_000);
            mail.rig.settle().await;
            let fork = mail.rig.tip();
            mail.rig.mine(&[&payment]);
            mail.rig.settle().await;
            mail.pass(Duration::from_secs(5)).await;
            // Told too late to be the first: it is refused, asked to come again tomorrow, and then the
            // receiver goes on refusing it.
            set_back(&mut mail, YEAR_MS, is_restarted).await;
            let branch = mail.rig.extend_on(fork, 3);
            mail.rig.go_to(branch);
            mail.rig.settle().await;
            mail.pass(PATIENCE + MINUTE).await;
            let kinds = mail.kinds(HOOK);
            assert!(
                kinds.contains(&"deposit.orphaned".to_owned()),
                "{is_restarted}: {kinds:?}"
            );
        }
    });
}
