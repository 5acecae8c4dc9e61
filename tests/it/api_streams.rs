//! Streams of events end with the key that they were asked for with.

use std::io::{BufRead as _, BufReader, Write as _};

use crate::common::api::{connect, with_api};
use crate::common::daemon::Daemon;
use crate::common::fake_chain::FakeNode;
use crate::common::wait::{PATIENCE, wait_until};

/// A stream that is never quiet ends as well.
#[test]
fn a_busy_stream_ends_when_its_key_is_revoked() {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::start(&with_api(&node.stub));
    let (shop, reader) = (daemon.client("shop", "all"), daemon.client("shop", "events:read"));
    let body = r#"{"url":"https://shop.example/hook"}"#;
    let added = shop.post("/v1/endpoints", "e", body).expect(201);
    let test = format!("/v1/endpoints/{}/test", added["endpoint"]["id"].as_str().unwrap());
    let mut stream = connect(reader.port);
    let head = format!(
        "GET /v1/events/stream HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n",
        reader.key
    );
    stream.write_all(head.as_bytes()).unwrap();
    shop.post(&test, "first", "{}").expect(202);
    let mut lines = BufReader::new(stream).lines();
    let is_event = |line: &String| line.starts_with("data: ");
    lines.by_ref().map(Result::unwrap).find(is_event).unwrap();
    let id = reader.get("/v1/key").expect(200)["id"]
        .as_str()
        .unwrap()
        .to_owned();
    daemon.json(&["key", "revoke", &id, "--reason", "lost", "--apply"]);
    let rest = std::thread::spawn(move || lines.count());
    let mut number = 0;
    wait_until("the stream has ended", PATIENCE, || {
        number += 1;
        shop.post(&test, &number.to_string(), "{}").expect(202);
        rest.is_finished().then_some(())
    });
    rest.join().unwrap();
}
