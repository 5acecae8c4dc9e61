//! Keys that end while they are used, and bodies whose meaning is easily lost: numbers, line ends, letters of
//! several bytes.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::api::{Client, connect, fill_pool, read_reply, with_api};
use crate::common::daemon::Daemon;
use crate::common::fake_chain::FakeNode;
use crate::common::wait::{PATIENCE, wait_until};
use crate::inbox::{SECRET, SOURCES, signed};
use creditd::clock::Clock;

fn started(node: &FakeNode, tables: &str) -> Daemon {
    let mut setup = with_api(&node.stub);
    setup.api += "\nrate_per_second = 100000";
    setup.tables = format!("[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n{tables}");
    let mut daemon = Daemon::prepare(&setup);
    std::fs::write(daemon.folder().join("secret"), SECRET).unwrap();
    daemon.start_again();
    daemon.wait_height(1);
    daemon
}

fn revoke(daemon: &Daemon, client: &Client) {
    let id = client.get("/v1/key").expect(200)["id"].clone();
    daemon.json(&[
        "key",
        "revoke",
        id.as_str().unwrap(),
        "--reason",
        "leaked",
        "--apply",
    ]);
}

/// A body may take its time; what it asks for is not done for a key that was revoked meanwhile, nor is the
/// answer of before told.
#[test]
fn a_key_that_is_revoked_while_its_request_is_sent_does_nothing() {
    let node = FakeNode::regtest(1);
    let daemon = started(&node, "");
    fill_pool(&daemon, 5);
    let shop = daemon.client("shop", "all");
    let body = r#"{"asset":"BTC","amount":"1"}"#;
    shop.post("/v1/invoices", "known", body).expect(201);
    let begun = |key: &str| {
        let mut stream = connect(shop.port);
        let head = format!(
            "POST /v1/invoices HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Idempotency-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Expect: 100-continue\r\n\r\n",
            shop.key,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        // The body is asked for once the key was looked at.
        let mut told = [0; 25];
        stream.read_exact(&mut told).unwrap();
        assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    };
    let streams = ["known", "new"].map(begun);
    revoke(&daemon, &shop);
    for mut stream in streams {
        stream.write_all(body.as_bytes()).unwrap();
        let reply = read_reply(&mut stream).unwrap();
        assert_eq!(reply.problem(401).0, "key_revoked");
        let _ = stream.shutdown(Shutdown::Both);
    }
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), 1);
    assert_eq!(daemon.count("SELECT count(*) FROM idempotency"), 1);
}

/// Two large numbers that are one float are two requests; what cannot be kept as it is, is refused.
#[test]
fn a_number_that_would_be_another_one_is_refused_and_not_rounded() {
    let node = FakeNode::regtest(1);
    let daemon = started(&node, "");
    fill_pool(&daemon, 5);
    let shop = daemon.client("shop", "all");
    let post = |key: &str, number: &str| {
        let body = format!(r#"{{"asset":"BTC","amount":"1","metadata":{{"order":{number}}}}}"#);
        shop.post("/v1/invoices", key, &body)
    };
    for number in ["10000000000000000000001", "0.1000000000000000000001"] {
        assert_eq!(post("K", number).problem(400).0, "number_not_exact", "{number}");
    }
    let made = post("K", "18446744073709551615").expect(201);
    assert_eq!(made["metadata"]["order"], json!(u64::MAX));
    assert_eq!(post("L", "1.50").expect(201)["metadata"]["order"], json!(1.5));
}

/// 200 characters of any script are a reference.
#[test]
fn a_reference_is_counted_in_characters() {
    let node = FakeNode::regtest(1);
    let daemon = started(&node, "");
    fill_pool(&daemon, 5);
    let shop = daemon.client("shop", "all");
    for (key, longer_key, letter) in [("a", "c", "\u{6f22}"), ("b", "d", "\u{1f600}")] {
        let reference = letter.repeat(200);
        let body = json!({"asset": "BTC", "amount": "1", "reference": reference}).to_string();
        let made = shop.post("/v1/invoices", key, &body).expect(201);
        assert_eq!(made["reference"], reference.as_str());
        let body = json!({"chain": "btc", "reference": reference}).to_string();
        shop.post("/v1/addresses", key, &body).expect(201);
        let longer = json!({"asset": "BTC", "amount": "1", "reference": format!("{reference}x")});
        let refused = shop.post("/v1/invoices", longer_key, &longer.to_string());
        assert_eq!(refused.problem(422).1.as_deref(), Some("reference"));
    }
}

/// A forwarded body with the line ends of another system is the same in a list and in a stream, whose lines
/// end at either of the two letters.
#[test]
fn a_forwarded_body_with_carriage_returns_is_streamed_with_the_bytes_of_the_list() {
    let node = FakeNode::regtest(1);
    let daemon = started(&node, SOURCES);
    let shop = daemon.client("shop", "all");
    let body = "{\r\n  \"id\": \"evt_1\",\r\r\n  \"text\": \"a\\r\\nb\"\r\n}\r\n";
    let headers = signed("p2", body, Clock::real().now_ms() / 1_000);
    let headers = [(headers[0].0.as_str(), headers[0].1.as_str())];
    shop.send("POST", "/v1/inbox/p2", &headers, body).expect(200);
    let listed = wait_until("it is forwarded", PATIENCE, || {
        let reply = shop.get("/v1/events");
        (!reply.expect(200)["events"].as_array()?.is_empty()).then_some(reply)
    });
    let told: Value = listed.expect(200)["events"][0]["body"]["data"]["content"].clone();
    assert_eq!(told, serde_json::from_str::<Value>(body).unwrap());
    let mut stream = connect(shop.port);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "GET /v1/events/stream HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n",
        shop.key
    );
    stream.write_all(head.as_bytes()).unwrap();
    // As a browser reads it: up to the empty line that ends an event, of lines that end at \r\n, \n or \r.
    let (mut text, mut block) = (String::new(), [0; 4_096]);
    while !text.contains("\n\n\r\n") {
        let count = stream.read(&mut block).unwrap();
        assert!(count > 0, "the stream ended: {text}");
        text += str::from_utf8(&block[..count]).unwrap();
    }
    let event = &text[text.find("id: ").unwrap()..text.find("\n\n\r\n").unwrap()];
    let unified = event.replace("\r\n", "\n").replace('\r', "\n");
    let data: Vec<&str> = unified
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect();
    let data = data.join("\n");
    assert!(listed.body.contains(&data), "{data}\n{}", listed.body);
}

/// Streams that are never closed, and not even read, leave room for the requests of others.
#[test]
fn streams_of_one_merchant_take_no_connections_from_others() {
    let node = FakeNode::regtest(1);
    let mut setup = with_api(&node.stub);
    setup.api += "\nconnections = 64";
    let daemon = Daemon::start(&setup);
    let (shop, other) = (daemon.client("shop", "all"), daemon.client("other", "all"));
    let open = |client: &Client| {
        let mut stream = connect(client.port);
        let head = format!(
            "GET /v1/events/stream HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n",
            client.key
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        (String::from_utf8(status.to_vec()).unwrap(), stream)
    };
    let (taken, refused): (Vec<_>, Vec<_>) = (0..60)
        .map(|_| open(&shop))
        .partition(|(status, _)| status == "HTTP/1.1 200");
    assert_eq!(taken.len(), 8);
    assert!(refused.iter().all(|(status, _)| status == "HTTP/1.1 503"));
    drop(refused);
    let problem = shop.get("/v1/events/stream");
    assert_eq!(problem.problem(503).0, "too_many_streams");
    assert!(problem.header("retry-after").is_some());
    other.get("/v1/key").expect(200);
    assert_eq!(open(&other).0, "HTTP/1.1 200");
    // Places come back. Who has said all may still read, so that only a line that is written to a closed
    // connection tells that it is closed: the second one, where nothing was left unread.
    drop(taken);
    wait_until("a place is free again", Duration::from_secs(45), || {
        (open(&shop).0 == "HTTP/1.1 200").then_some(())
    });
}

/// What is refused is told, and kept, in a few words, however long the request was.
#[test]
fn a_refusal_does_not_grow_with_what_it_refuses() {
    let node = FakeNode::regtest(1);
    let daemon = started(&node, "");
    let shop = daemon.client("shop", "all");
    let long = "\u{20ac}".repeat(10_000);
    let names = [long.as_str(); 2].map(|name| format!(r#""{name}":1"#)).join(",");
    let bodies = [
        format!(r#"{{"asset":"BTC","amount":"1","{long}":1}}"#),
        format!(r#"{{"asset":"BTC","amount":"1","expires_in":"{long}"}}"#),
        format!(r#"{{"asset":"BTC","amount":"1","metadata":{{"{long}":[{{"a":1,"a":1}}]}}}}"#),
        format!(
            r#"{{"asset":"BTC","amount":"1","callback_url":"http://127.0.0.1/","callback_types":["{long}"]}}"#
        ),
        format!("{{{names}}}"),
    ];
    for (number, body) in bodies.iter().enumerate() {
        let reply = shop.post("/v1/invoices", &number.to_string(), body);
        assert_eq!(reply.status, 422, "{number}");
        assert!(reply.body.len() < 3_000, "{number}: {} bytes", reply.body.len());
    }
    let kept = daemon.count("SELECT max(length(body)) FROM idempotency");
    assert!((1..3_000).contains(&kept), "{kept}");
    // Terms that contradict each other are no one field's fault.
    let contrary = r#"{"asset":"BTC","amount":"1","tolerance":"1"}"#;
    fill_pool(&daemon, 1);
    let refused = shop.post("/v1/invoices", "contrary", contrary).problem(422);
    assert_eq!(refused, ("refused_terms".to_owned(), None));
}
