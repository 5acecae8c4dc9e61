//! `/v1/inbox/{source}` of the real daemon: stored and done once, whoever sends it how often.

use crate::common::api::{Client, with_api};
use crate::common::daemon::Daemon;
use crate::common::fake_chain::FakeNode;
use crate::common::metrics::Scrape;
use crate::common::wait::{PATIENCE, wait_until};
use crate::inbox::{SECRET, SOURCES, signed};
use crate::tables::Tables;
use creditd::clock::Clock;

/// C43 over HTTP, with a kill in between.
#[test]
fn c43_deliveries_in_parallel_and_across_a_kill_act_once() {
    let node = FakeNode::regtest(1);
    let mut setup = with_api(&node.stub);
    setup.tables = SOURCES.to_owned();
    setup.ops_listen = "127.0.0.1:0".to_owned();
    let mut daemon = Daemon::prepare(&setup);
    std::fs::write(daemon.database().with_file_name("secret"), SECRET).unwrap();
    daemon.start_again();
    let body = r#"{"id":"evt_1","payment":"pay_1","amount":500}"#;
    let post_body = |port: u16, source: &str, at: i64, body: &str| {
        let key = String::new();
        let headers = signed(source, body, at);
        let client = Client { port, key };
        client.send(
            "POST",
            &format!("/v1/inbox/{source}"),
            &[(&headers[0].0, &headers[0].1)],
            body,
        )
    };
    let post = |port: u16, source: &str, at: i64| post_body(port, source, at, body);
    let now = || Clock::real().now_ms() / 1_000;
    for _ in 0..2 {
        let port = daemon.api_port();
        std::thread::scope(|scope| {
            for number in 0..40 {
                let source = ["p1", "p2"][number % 2];
                scope.spawn(move || post(port, source, now()).expect(200));
            }
        });
        daemon.kill9();
        daemon.start_again();
    }
    let port = daemon.api_port();
    assert_eq!(post(port, "p1", now()).expect(200)["outcome"], "duplicate");
    assert_eq!(post(port, "p1", now() - 301).problem(401).0, "stale_time");
    assert_eq!(post(port, "p9", now()).problem(404).0, "not_found");
    let set_aside = || {
        let page = Scrape::parse(&daemon.ops("/metrics").1);
        page.value("creditd_inbox_set_aside_total", &[])
    };
    assert!(set_aside().abs() < f64::EPSILON);
    for _ in 0..3 {
        let other = post_body(
            port,
            "p1",
            now(),
            r#"{"id":"evt_1","payment":"pay_1","amount":501}"#,
        );
        assert_eq!(other.expect(200)["outcome"], "set_aside");
    }
    assert!(
        (set_aside() - 1.0).abs() < f64::EPSILON,
        "one content, however often"
    );
    let tables = Tables::open(&daemon.database());
    let count = |table: &str| tables.count(&format!("SELECT count(*) FROM {table}"));
    wait_until("both are done", PATIENCE, || {
        (count("inbox WHERE state = 'done'") == 2).then_some(())
    });
    assert_eq!((count("inbox"), count("credits"), count("journal")), (2, 1, 1));
    assert_eq!(count("events WHERE type = 'inbox.forwarded'"), 1);
}
