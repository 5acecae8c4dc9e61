//! What strangers and clumsy clients can do to the API's listener: slow heads, large heads, many connections,
//! too many requests; and where it may listen at all.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use creditd::config::Config;

use crate::common::api::{connect, fill_pool, raw, read_reply, with_api};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;
use crate::common::wait::{PATIENCE, wait_until};

/// Reads until the other side ends the connection.
fn is_ended(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn slow_heads_end_and_hold_nobody_up() {
    let node = FakeNode::regtest(1);
    let setup = Setup {
        api: "listen = \"127.0.0.1:0\"\nconnections = 16".to_owned(),
        ..with_api(&node.stub)
    };
    let daemon = Daemon::start(&setup);
    let shop = daemon.client("shop", "all");
    // More than there are places, each with a head that never ends.
    let mut slow: Vec<TcpStream> = (0..40).map(|_| connect(shop.port)).collect();
    for stream in &mut slow {
        let _ = stream.write_all(b"GET /v1/key HTTP/1.1\r\nHost: a\r\n");
    }
    shop.get("/v1/key").expect(200);
    // And one that has asked once, and then begins a second time.
    let mut second = connect(shop.port);
    write!(
        second,
        "GET /v1/key HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n",
        shop.key
    )
    .unwrap();
    let mut first_byte = [0];
    second.read_exact(&mut first_byte).unwrap();
    second.write_all(b"GET /v1/key HTTP/1.1\r\nHo").unwrap();
    for mut stream in slow {
        assert!(is_ended(&mut stream), "a slow head ends");
    }
    assert!(is_ended(&mut second), "a slow second head ends");
    shop.get("/v1/key").expect(200);
}

#[test]
fn heads_are_bounded_and_what_is_no_http_is_told_so() {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::start(&with_api(&node.stub));
    let shop = daemon.client("shop", "all");
    let head = |more: &str| format!("GET /v1/key HTTP/1.1\r\nHost: a\r\n{more}\r\n");
    let large = format!("X-Large: {}\r\n", "x".repeat(20_000));
    assert_eq!(raw(shop.port, head(&large).as_bytes()).unwrap().status, 431);
    let many: String = (0..70).map(|number| format!("X-{number}: 1\r\n")).collect();
    assert_eq!(raw(shop.port, head(&many).as_bytes()).unwrap().status, 431);
    assert_eq!(
        raw(shop.port, b"\x16\x03\x01\x02\x00\r\n\r\n").unwrap().status,
        400
    );
    let answer = shop.send("DELETE", "/v1/key", &[], "");
    assert_eq!(answer.problem(405).0, "method_not_allowed");
    assert_eq!(answer.header("allow"), Some("GET,HEAD"));
    let answer = shop.get("/v1/key/");
    assert_eq!(answer.problem(404).0, "not_found");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    shop.get("/v1/key").expect(200);
}

#[test]
fn a_key_that_asks_too_often_is_told_when_to_come_again_and_others_are_not() {
    let node = FakeNode::regtest(1);
    let setup = Setup {
        api: "listen = \"127.0.0.1:0\"\nrate_per_second = 2".to_owned(),
        ..with_api(&node.stub)
    };
    let daemon = Daemon::start(&setup);
    let (shop, other) = (daemon.client("shop", "all"), daemon.client("other", "all"));
    let refused = wait_until("the burst is used up", PATIENCE, || {
        let answer = shop.get("/v1/key");
        (answer.status != 200).then_some(answer)
    });
    assert_eq!(refused.problem(429).0, "rate_limited");
    assert_eq!(refused.header("retry-after"), Some("1"));
    other.get("/v1/key").expect(200);
    wait_until("the key may ask again", PATIENCE, || {
        (shop.get("/v1/key").status == 200).then_some(())
    });
}

#[test]
fn a_public_address_needs_tls_or_a_proxy_that_speaks_it() {
    let node = FakeNode::regtest(0);
    for (lines, is_good) in [
        ("listen = \"127.0.0.1:9334\"", true),
        ("listen = \"[::1]:9334\"", true),
        ("", true),
        ("listen = \"0.0.0.0:9334\"", false),
        ("listen = \"[::]:9334\"", false),
        ("listen = \"192.168.1.2:9334\"", false),
        ("listen = \"0.0.0.0:9334\"\nbehind_proxy = false", false),
        ("listen = \"0.0.0.0:9334\"\nbehind_proxy = true", true),
        (
            "listen = \"0.0.0.0:9334\"\ntls_cert_file = \"a.pem\"\ntls_key_file = \"b.pem\"",
            true,
        ),
        ("listen = \"0.0.0.0:9334\"\ntls_cert_file = \"a.pem\"", false),
        ("tls_key_file = \"b.pem\"", false),
        ("idempotency_days = 0", false),
        ("public_url = \"https://pay.example\"", true),
        ("public_url = \"https://pay.example:8443/creditd/\"", true),
        ("public_url = \"http://127.0.0.1:9334\"", true),
        ("public_url = \"http://pay.example\"", false),
        ("public_url = \"pay.example\"", false),
        ("public_url = \"https://me@pay.example\"", false),
        ("public_url = \"https://pay.example/?a=b\"", false),
        ("public_url = \"https://pay.example/#a\"", false),
        ("public_url = \"javascript:alert(1)\"", false),
        ("public_url = \"\"", false),
        ("listen = \"off\"\npublic_url = \"https://pay.example\"", false),
    ] {
        let setup = Setup {
            api: lines.to_owned(),
            ..Setup::for_stub(&node.stub)
        };
        let daemon = Daemon::prepare(&setup);
        let config = Config::load(Some(&daemon.config_file()));
        assert_eq!(config.is_ok(), is_good, "{lines}: {config:?}");
    }
}

#[test]
fn tls_is_spoken_where_there_is_a_certificate_and_a_slow_handshake_ends() {
    let node = FakeNode::regtest(1);
    let setup = Setup {
        api: "listen = \"127.0.0.1:0\"\ntls_cert_file = \"api.pem\"\ntls_key_file = \"api.key\"".to_owned(),
        ..with_api(&node.stub)
    };
    let mut daemon = Daemon::prepare(&setup);
    let output = daemon.cli(&["run"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && told.contains("read the certificate of [api]"),
        "{told}"
    );

    let own = rcgen::generate_simple_self_signed(["api.example".to_owned()]).unwrap();
    std::fs::write(daemon.folder().join("api.pem"), own.cert.pem()).unwrap();
    std::fs::write(daemon.folder().join("api.key"), own.signing_key.serialize_pem()).unwrap();
    daemon.start_again();
    let shop = daemon.client("shop", "all");

    let mut roots = rustls::RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from("api.example").unwrap();
    let mut session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut tcp = connect(shop.port);
    let mut stream = rustls::Stream::new(&mut session, &mut tcp);
    write!(
        stream,
        "GET /v1/key HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
        shop.key
    )
    .unwrap();
    assert_eq!(read_reply(&mut stream).unwrap().expect(200)["merchant"], "shop");

    // In the clear nothing is answered, and who says nothing is not waited for.
    assert!(shop.try_send("GET", "/v1/key", &[], "").is_err());
    let mut silent = connect(shop.port);
    assert!(is_ended(&mut silent));
    daemon.stop();
}

/// Two hundred characters are told, and not of which size.
#[test]
fn a_reference_may_be_of_the_largest_characters() {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::start(&with_api(&node.stub));
    daemon.wait_height(1);
    fill_pool(&daemon, 5);
    let shop = daemon.client("shop", "all");
    let ask = |count: usize| {
        let reference = "\u{1f600}".repeat(count);
        let body = format!(r#"{{"asset":"BTC","amount":"1","reference":"{reference}"}}"#);
        shop.post("/v1/invoices", &count.to_string(), &body)
    };
    ask(200).expect(201);
    assert_eq!(
        ask(201).problem(422),
        ("invalid_field".to_owned(), Some("reference".to_owned()))
    );
    // What no single field is to blame for names none.
    let body = r#"{"asset":"BTC","amount":"1","tolerance":"1"}"#;
    let refused = shop.post("/v1/invoices", "all-of-it", body);
    assert_eq!(refused.problem(422), ("refused_terms".to_owned(), None));
}
