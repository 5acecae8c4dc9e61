//! Requests as no library would send them, over raw sockets to the real listener: each has a definite answer
//! within a deadline, and holds nobody else up.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use creditd::clock::Clock;

use crate::common::api::{Client, Reply, connect, fill_pool, raw, read_reply, with_api};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;
use crate::inbox::{SECRET, SOURCES};

/// A body, or the next request of a connection, may take 15 seconds.
const SLOW: std::ops::Range<Duration> = Duration::from_secs(14)..Duration::from_secs(25);

fn started(node: &FakeNode, api: &str) -> (Daemon, Client) {
    let setup = Setup {
        api: format!("listen = \"127.0.0.1:0\"\n{api}"),
        tables: SOURCES.to_owned(),
        ..with_api(&node.stub)
    };
    let mut daemon = Daemon::prepare(&setup);
    std::fs::write(daemon.folder().join("secret"), SECRET).unwrap();
    daemon.start_again();
    daemon.wait_height(1);
    fill_pool(&daemon, 50);
    let shop = daemon.client("shop", "all");
    (daemon, shop)
}

/// The head of a POST of an invoice, with what else it says.
fn head(shop: &Client, key: &str, more: &str) -> String {
    format!(
        "POST /v1/invoices HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {key}\r\n\
         Content-Type: application/json\r\n{more}\r\n",
        shop.key
    )
}

fn whole(shop: &Client, key: &str, body: &str) -> String {
    let length = body.len();
    head(shop, key, &format!("Content-Length: {length}\r\n")) + body
}

fn chunked(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

/// One answer of a connection that goes on. An interim one has no body.
fn next_reply(stream: &mut TcpStream) -> Reply {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes.clone()).unwrap().to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1);
    let length = length.map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    bytes.extend(body);
    read_reply(&mut &bytes[..]).unwrap()
}

/// Sends bytes, waits for the answer, and says how long that took.
fn timed(port: u16, bytes: &[u8]) -> (Reply, Duration) {
    let clock = Clock::real();
    let began = clock.instant();
    let mut stream = connect(port);
    stream.write_all(bytes).unwrap();
    let reply = next_reply(&mut stream);
    (reply, clock.instant() - began)
}

const GOOD: &str = r#"{"asset":"BTC","amount":"1"}"#;

#[test]
fn a_body_that_does_not_come_or_end_is_told_so_in_time() {
    let node = FakeNode::regtest(1);
    let (daemon, shop) = started(&node, "");
    let inbox = |more: &str| {
        format!("POST /v1/inbox/p1 HTTP/1.1\r\nHost: a\r\nStripe-Signature: t=1,v1=aa\r\n{more}\r\n")
    };
    let slow = [
        head(&shop, "1", "Content-Length: 28\r\n"),
        head(&shop, "2", "Content-Length: 28\r\n") + &GOOD[..10],
        head(&shop, "3", "Transfer-Encoding: chunked\r\n") + "5\r\n{\"ass",
        inbox("Content-Length: 28\r\n"),
        inbox("Transfer-Encoding: chunked\r\n") + "5\r\n{\"ass\r\n",
    ];
    std::thread::scope(|scope| {
        let sent = slow
            .each_ref()
            .map(|bytes| scope.spawn(|| timed(shop.port, bytes.as_bytes())));
        // Meanwhile others are served.
        shop.get("/v1/key").expect(200);
        for (sent, bytes) in sent.into_iter().zip(&slow) {
            let (reply, took) = sent.join().unwrap();
            assert_eq!(reply.problem(408).0, "body_too_slow", "{bytes}");
            assert!(SLOW.contains(&took), "{bytes}: {took:?}");
        }
    });
    // One that ends too soon: nobody sends the rest.
    for bytes in [
        head(&shop, "4", "Content-Length: 28\r\n") + &GOOD[..10],
        head(&shop, "5", "Transfer-Encoding: chunked\r\n") + "5\r\n{\"ass",
        inbox("Content-Length: 28\r\n") + "{",
    ] {
        let mut stream = connect(shop.port);
        stream.write_all(bytes.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let reply = read_reply(&mut stream).unwrap();
        assert_eq!(reply.problem(400).0, "body_incomplete", "{bytes}");
    }
    assert_eq!(daemon.count("SELECT count(*) FROM idempotency"), 0);
}

#[test]
fn a_body_over_the_limit_is_refused_announced_or_not_and_one_at_it_is_not() {
    let node = FakeNode::regtest(1);
    let (daemon, shop) = started(&node, "");
    let of = |bytes: usize| format!("{GOOD}{}", " ".repeat(bytes - GOOD.len()));
    for (bytes, status) in [(65_536, 201), (65_537, 413), (80_000, 413)] {
        let body = of(bytes);
        let announced = raw(shop.port, whole(&shop, &format!("a{bytes}"), &body).as_bytes()).unwrap();
        let head = head(
            &shop,
            &format!("b{bytes}"),
            "Transfer-Encoding: chunked\r\nConnection: close\r\n",
        );
        let streamed = raw(shop.port, (head + &chunked(&body)).as_bytes()).unwrap();
        for reply in [announced, streamed] {
            assert_eq!(reply.status, status, "{bytes}: {reply:?}");
            assert!(status != 413 || reply.problem(413).0 == "body_too_large");
        }
    }
    // The head alone is enough, also to a source's door.
    for head in [
        head(&shop, "c", "Content-Length: 9999999999\r\n"),
        "POST /v1/inbox/p1 HTTP/1.1\r\nHost: a\r\nContent-Length: 65537\r\n\r\n".to_owned(),
    ] {
        let (reply, took) = timed(shop.port, head.as_bytes());
        assert_eq!(reply.problem(413).0, "body_too_large");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
    // Lengths that are none, or two of them.
    for length in ["-1", "1e3", "5, 6", "99999999999999999999999"] {
        let bytes = head(&shop, "d", &format!("Content-Length: {length}\r\n")) + GOOD;
        assert_eq!(raw(shop.port, bytes.as_bytes()).unwrap().status, 400, "{length}");
    }
    let two = head(&shop, "e", "Content-Length: 28\r\nContent-Length: 5\r\n") + GOOD;
    assert_eq!(raw(shop.port, two.as_bytes()).unwrap().status, 400);
    shop.get("/v1/key").expect(200);
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), 2);
}

#[test]
fn a_length_and_chunks_in_one_request_smuggle_no_second_one() {
    let node = FakeNode::regtest(1);
    let (daemon, shop) = started(&node, "");
    let hidden = whole(&shop, "hidden", GOOD);
    let bytes =
        head(&shop, "K", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n" + &hidden;
    let mut stream = connect(shop.port);
    stream.write_all(bytes.as_bytes()).unwrap();
    let reply = next_reply(&mut stream);
    assert!((400..500).contains(&reply.status), "{reply:?}");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(String::from_utf8_lossy(&rest), "", "the connection ends");
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), 0);
}

#[test]
fn json_that_is_deep_or_names_a_field_twice_is_refused() {
    let node = FakeNode::regtest(1);
    let (daemon, shop) = started(&node, "");
    let deep = |open: &str, close: &str, times: usize| {
        let (open, close) = (open.repeat(times), close.repeat(times));
        format!(r#"{{"asset":"BTC","amount":"1","metadata":{{"a":{open}1{close}}}}}"#)
    };
    for (body, status, code) in [
        (deep("[", "]", 30), 201, ""),
        (deep("{\"a\":", "}", 30), 201, ""),
        (deep("[", "]", 31), 400, "json_too_deep"),
        (deep("{\"a\":", "}", 31), 400, "json_too_deep"),
        (deep("[", "]", 30_000), 400, "json_too_deep"),
        ("[".repeat(65_000), 400, "json_too_deep"),
        ("{\"a\":".repeat(13_000), 400, "json_too_deep"),
        (
            r#"{"asset":"BTC","amount":"1","amount":"2"}"#.to_owned(),
            422,
            "invalid_field",
        ),
        (
            r#"{"asset":"BTC","amount":"1","metadata":{"a":{"b":1,"b":1}}}"#.to_owned(),
            422,
            "invalid_field",
        ),
        (
            r#"{"asset":"BTC","amount":"1"} {}"#.to_owned(),
            400,
            "malformed_json",
        ),
        ("{\"asset\":\"\u{0}\"}".to_owned(), 400, "malformed_json"),
    ] {
        let key = format!("{}", body.len());
        let reply = shop.post("/v1/invoices", &key, &body);
        let shown: String = body.chars().take(80).collect();
        assert_eq!(reply.status, status, "{shown}: {reply:?}");
        assert!(
            status == 201 || reply.problem(status).0 == code,
            "{shown}: {reply:?}"
        );
    }
    let bytes = [
        head(&shop, "latin", "Content-Length: 10\r\n").as_bytes(),
        b"{\"a\":\"\xff\xfe\"}",
    ]
    .concat();
    assert_eq!(timed(shop.port, &bytes).0.problem(400).0, "malformed_json");
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), 2);
}

#[test]
fn requests_one_behind_the_other_are_answered_in_their_order() {
    let node = FakeNode::regtest(1);
    let (daemon, shop) = started(&node, "");
    let key = format!(
        "GET /v1/key HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n",
        shop.key
    );
    let many = [
        whole(&shop, "K", GOOD),
        key.clone(),
        whole(&shop, "K", GOOD),
        "GET /v1/nowhere HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        head(&shop, "L", "Transfer-Encoding: chunked\r\n") + &chunked(GOOD),
        key,
    ];
    let mut stream = connect(shop.port);
    stream.write_all(many.concat().as_bytes()).unwrap();
    let replies = many.map(|_| next_reply(&mut stream));
    assert_eq!(
        replies.each_ref().map(|reply| reply.status),
        [201, 200, 201, 404, 201, 200]
    );
    assert_eq!(replies[0].body, replies[2].body);
    assert_eq!(replies[2].header("idempotent-replayed"), Some("true"));
    assert_eq!(replies[1].body, replies[5].body);
    // More than are ever read ahead, and nobody takes an answer: that connection alone waits.
    let mut rude = connect(shop.port);
    rude.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let flood = "GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n".repeat(20_000);
    let _ = rude.write_all(flood.as_bytes());
    shop.get("/v1/key").expect(200);
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), 2);
}

#[test]
fn who_finds_every_place_taken_is_answered_once_one_is_free() {
    let node = FakeNode::regtest(1);
    let (_daemon, shop) = started(&node, "connections = 16");
    let key = format!(
        "GET /v1/key HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n",
        shop.key
    );
    let taken = |_| {
        let mut stream = connect(shop.port);
        stream.write_all(key.as_bytes()).unwrap();
        assert_eq!(next_reply(&mut stream).status, 200);
        stream
    };
    // All have asked and go on: none is ended for whoever comes.
    let mut held: Vec<TcpStream> = (0..16).map(taken).collect();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| timed(shop.port, key.as_bytes()));
        // One of them may ask again, and then goes.
        held[0].write_all(key.as_bytes()).unwrap();
        assert_eq!(next_reply(&mut held[0]).status, 200);
        drop(held.remove(0));
        let (reply, took) = waiting.join().unwrap();
        assert!(reply.status == 200 && took < Duration::from_secs(10), "{took:?}");
    });
    // And where nobody goes, the place of one that asks nothing more is free in time.
    let _fourth = taken(0);
    let (reply, took) = timed(shop.port, key.as_bytes());
    assert!(reply.status == 200 && took < SLOW.end, "{took:?}");
}

#[test]
fn a_client_that_has_said_all_is_answered_and_one_that_says_nothing_is_let_go() {
    let node = FakeNode::regtest(1);
    let (daemon, shop) = started(&node, "");
    for bytes in [
        whole(&shop, "K", GOOD),
        "GET /v1/nowhere HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
    ] {
        let mut stream = connect(shop.port);
        stream.write_all(bytes.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let reply = read_reply(&mut stream).unwrap();
        assert!([201, 404].contains(&reply.status), "{reply:?}");
    }
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), 1);
    for bytes in ["", "GET /v1/key HTTP/1.1\r\nHo"] {
        let mut stream = connect(shop.port);
        stream.write_all(bytes.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(ended.is_ok(), "{bytes:?}: {ended:?}");
        let told = String::from_utf8_lossy(&rest);
        assert!(told.is_empty() || told.starts_with("HTTP/1.1 400"), "{told}");
    }
}

#[test]
fn who_asks_before_sending_a_body_is_told_to_go_on_or_why_not() {
    let node = FakeNode::regtest(1);
    let (_daemon, shop) = started(&node, "");
    let mut stream = connect(shop.port);
    let expecting = head(&shop, "K", "Content-Length: 28\r\nExpect: 100-continue\r\n");
    stream.write_all(expecting.as_bytes()).unwrap();
    assert_eq!(next_reply(&mut stream).status, 100);
    stream.write_all(GOOD.as_bytes()).unwrap();
    next_reply(&mut stream).expect(201);
    // What is refused by its head needs no body.
    for (more, code) in [
        ("Content-Length: 70000\r\nExpect: 100-continue\r\n", 413),
        (
            "Content-Length: 28\r\nExpect: 100-continue\r\nIdempotency-Key: two\r\n",
            400,
        ),
    ] {
        let (reply, took) = timed(shop.port, head(&shop, "L", more).as_bytes());
        assert_eq!(reply.status, code, "{more}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
    let stranger = Client {
        port: shop.port,
        key: "ck_nobody".to_owned(),
    };
    let refused = timed(
        shop.port,
        head(&stranger, "M", "Content-Length: 28\r\nExpect: 100-continue\r\n").as_bytes(),
    );
    assert_eq!(refused.0.status, 401);
}

#[test]
fn old_and_odd_heads_have_an_answer() {
    let node = FakeNode::regtest(1);
    let (_daemon, shop) = started(&node, "");
    let port = shop.port;
    // HTTP/1.0 needs no host, and its connection ends with the answer.
    let old = format!(
        "GET /v1/key HTTP/1.0\r\nAuthorization: Bearer {}\r\n\r\n",
        shop.key
    );
    assert_eq!(raw(port, old.as_bytes()).unwrap().expect(200)["merchant"], "shop");
    for count in [65, 1_000, 100_000] {
        let many: String = (0..count).map(|number| format!("X-{number}: 1\r\n")).collect();
        let bytes = format!("GET /v1/key HTTP/1.1\r\nHost: a\r\n{many}\r\n");
        assert_eq!(raw(port, bytes.as_bytes()).unwrap().status, 431, "{count}");
    }
    let same = "Idempotency-Key: a\r\n".repeat(50);
    let bytes = head(
        &shop,
        "a",
        &format!("{same}Content-Length: 0\r\nConnection: close\r\n"),
    );
    let two = raw(port, bytes.as_bytes()).unwrap();
    assert_eq!(two.problem(400).0, "idempotency_key_invalid");
    for bytes in [
        "GET /v1/key HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET /v1/key\r\n\r\n",
        "GET  HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /v1/key HTTP/1.1\r\nHost a\r\n\r\n",
        "GET /v1/key HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        "\r\n\r\n\0\0\0\0\r\n\r\n",
    ] {
        assert_eq!(raw(port, bytes.as_bytes()).unwrap().status, 400, "{bytes:?}");
    }
    // Who begins with another protocol's first words is let go.
    let mut stream = connect(port);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    assert!(stream.read_to_end(&mut Vec::new()).is_ok());
    let long = format!(
        "GET /v1/{} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "x".repeat(20_000)
    );
    assert!([414, 431].contains(&raw(port, long.as_bytes()).unwrap().status));
    shop.get("/v1/key").expect(200);
}
