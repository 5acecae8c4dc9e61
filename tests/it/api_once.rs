//! The same request acts once: sent again, in parallel, with a kill between, on a database that takes no
//! write; and what of its answer is kept.

use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::common::api::{Client, Reply, fill_pool, with_api};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;
use crate::common::metrics::Scrape;
use crate::common::stub::StubNode;
use crate::common::wait::{PATIENCE, wait_until};
use crate::full_disk::Disk;

/// Bodies of an amount of the coin.
fn invoice(amount: &str) -> String {
    json!({"asset": "BTC", "amount": amount}).to_string()
}

pub(super) fn is_replayed(reply: &Reply) -> bool {
    reply.header("idempotent-replayed") == Some("true")
}

/// As many requests as 50 clients make, and three times over.
fn setup(stub: &StubNode) -> Setup {
    Setup {
        api: "listen = \"127.0.0.1:0\"\nrate_per_second = 100000".to_owned(),
        ops_listen: "127.0.0.1:0".to_owned(),
        tables: "[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n".to_owned(),
        ..with_api(stub)
    }
}

fn started(node: &FakeNode) -> (Daemon, Client) {
    let daemon = Daemon::start(&setup(&node.stub));
    daemon.wait_height(1);
    fill_pool(&daemon, 500);
    let shop = daemon.client("shop", "all");
    (daemon, shop)
}

/// Holds the write lock while it lives.
pub(super) fn locked(daemon: &Daemon) -> Connection {
    let connection = Connection::open(daemon.database()).unwrap();
    connection.busy_timeout(Duration::from_secs(20)).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection
}

/// Waits until so many writes wait for their turn.
#[track_caller]
pub(super) fn wait_queued(daemon: &Daemon, writes: usize) {
    wait_until("writes are queued", PATIENCE, || {
        let page = Scrape::parse(&daemon.ops("/metrics").1);
        (page.value("creditd_store_queued_writes", &[]) >= writes as f64).then_some(())
    });
}

fn sent_later(client: &Client, key: &'static str, body: String) -> std::thread::JoinHandle<Reply> {
    let client = client.clone();
    std::thread::spawn(move || client.post("/v1/invoices", key, &body))
}

#[test]
fn c46_same_key_other_body_other_merchant_other_route() {
    let node = FakeNode::regtest(1);
    let (daemon, shop) = started(&node);
    let other = daemon.client("other", "all");
    let first = shop.post("/v1/invoices", "K", &invoice("10"));
    let made = first.expect(201);
    assert!(!is_replayed(&first));
    for (key, body) in [
        ("K", invoice("10")),
        ("\"K\"", invoice("10")),
        ("K", " {\n\"amount\" : \"10\", \"asset\":\"BTC\" }".to_owned()),
    ] {
        let again = shop.post("/v1/invoices", key, &body);
        assert_eq!(again.expect(201), made);
        assert_eq!(again.body, first.body, "the same bytes");
        assert!(is_replayed(&again));
    }
    let mismatch = shop.post("/v1/invoices", "K", &invoice("20"));
    assert_eq!(mismatch.problem(422).0, "idempotency_key_reused");
    // A query makes it another request.
    let queried = shop.post("/v1/invoices?a=1", "K", &invoice("10"));
    assert_eq!(queried.problem(422).0, "idempotency_key_reused");
    // The key is free on another route, on the concrete path of another id, and for another merchant.
    shop.post("/v1/addresses", "K", r#"{"chain":"btc"}"#).expect(201);
    let id = made["id"].as_str().unwrap();
    let second = shop.post("/v1/invoices", "K2", &invoice("1")).expect(201);
    for id in [id, second["id"].as_str().unwrap()] {
        let cancelled = shop
            .post(&format!("/v1/invoices/{id}/cancel"), "K", "{}")
            .expect(200);
        assert_eq!(
            (&cancelled["id"], &cancelled["life"]),
            (&json!(id), &json!("cancelled"))
        );
    }
    let theirs = other.post("/v1/invoices", "K", &invoice("10"));
    assert!(!is_replayed(&theirs));
    assert_ne!(theirs.expect(201)["id"], made["id"]);
    let long = "k".repeat(256);
    shop.post("/v1/invoices", &long, &invoice("1")).expect(201);
    for key in [
        "",
        "\"\"",
        &"k".repeat(257),
        &"k".repeat(10_000),
        "\"open",
        "two words",
    ] {
        let refused = shop.post("/v1/invoices", key, &invoice("1"));
        let shown: String = key.chars().take(20).collect();
        assert_eq!(refused.problem(400).0, "idempotency_key_invalid", "{shown}");
    }
    let send = |headers: &[(&str, &str)]| {
        let headers = [headers, &[("Content-Type", "application/json")]].concat();
        shop.send("POST", "/v1/invoices", &headers, &invoice("1"))
    };
    assert_eq!(send(&[]).problem(400).0, "idempotency_key_missing");
    let two = send(&[("Idempotency-Key", "a"), ("Idempotency-Key", "a")]);
    assert_eq!(two.problem(400).0, "idempotency_key_invalid");
    assert_eq!(
        daemon.count("SELECT count(*) FROM invoices WHERE amount = '1000000000'"),
        2
    );
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), 4);
}

/// While the first is still running: another body is refused at once, the same waits or is told to come
/// again.
#[test]
fn c46_another_body_while_the_first_runs_is_told_so_before_it_is_told_to_wait() {
    let node = FakeNode::regtest(1);
    let (daemon, shop) = started(&node);
    let lock = locked(&daemon);
    // Whichever of the two comes first runs, and waits for the lock.
    let mut sent = vec![
        ("10", sent_later(&shop, "K", invoice("10"))),
        ("20", sent_later(&shop, "K", invoice("20"))),
    ];
    let refused = wait_until("the other one is answered", PATIENCE, || {
        let at = sent.iter().position(|(_, sent)| sent.is_finished())?;
        Some(sent.remove(at).1.join().unwrap())
    });
    assert_eq!(refused.problem(422).0, "idempotency_key_reused");
    let (amount, first) = sent.remove(0);
    let waiting = sent_later(&shop, "K", invoice(amount));
    lock.execute_batch("ROLLBACK").unwrap();
    let (first, waited) = (first.join().unwrap(), waiting.join().unwrap());
    assert_eq!(first.expect(201), waited.expect(201));
    assert_eq!(
        [is_replayed(&first), is_replayed(&waited)]
            .iter()
            .filter(|is| **is)
            .count(),
        1
    );
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), 1);
}

#[test]
fn c48a_a_database_that_takes_no_write_is_a_503_that_nobody_remembers() {
    let node = FakeNode::regtest(1);
    let (daemon, shop) = started(&node);
    let lock = locked(&daemon);
    let first = sent_later(&shop, "K", invoice("10"));
    // A parallel repeat is told to come again before the first is given up.
    let second = sent_later(&shop, "K", invoice("10"));
    let mut codes = [first, second].map(|sent| {
        let reply = sent.join().unwrap();
        assert!(reply.header("retry-after").is_some(), "{reply:?}");
        (reply.status, reply.problem(reply.status).0)
    });
    codes.sort();
    assert_eq!(codes[0], (409, "in_progress".to_owned()));
    // Behind writes of followers that wait for the lock as well it may come to no try at all.
    let (status, code) = &codes[1];
    assert!(
        *status == 503 && ["database_unavailable", "timeout"].contains(&code.as_str()),
        "{code}"
    );
    lock.execute_batch("ROLLBACK").unwrap();
    let retried = shop.post("/v1/invoices", "K", &invoice("10"));
    retried.expect(201);
    // One that came to no try in time is still queued, and may be what made the invoice.
    assert!(
        !is_replayed(&retried) || code == "timeout",
        "a real new attempt after {code}"
    );
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), 1);
}

#[test]
fn c48a_a_full_disk_is_a_503_that_nobody_remembers() {
    let node = FakeNode::regtest(1);
    let disk = Disk::new();
    let mut daemon = Daemon::prepare(&setup(&node.stub));
    disk.carry(&mut daemon, Vec::new());
    daemon.start_again();
    daemon.wait_height(1);
    fill_pool(&daemon, 500);
    let shop = daemon.client("shop", "all");
    disk.fill();
    let refused = shop.post("/v1/invoices", "K", &invoice("10"));
    assert_eq!(refused.problem(503).0, "database_unavailable");
    let told = "when API keys were last used cannot be written down";
    wait_until("it is told", PATIENCE, || {
        daemon.log().contains(told).then_some(())
    });
    for _ in 0..20 {
        shop.get("/v1/invoices").expect(200);
    }
    assert_eq!(daemon.log().matches(told).count(), 1, "once");
    disk.free();
    wait_until("there is space again", PATIENCE, || {
        let reply = shop.post("/v1/invoices", "K", &invoice("10"));
        assert!(
            reply.status == 201 && !is_replayed(&reply) || reply.status == 503,
            "{reply:?}"
        );
        (reply.status == 201).then_some(())
    });
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), 1);
}

#[test]
fn c48d_a_422_is_kept_and_what_may_be_another_next_time_is_not() {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::start(&setup(&node.stub));
    daemon.wait_height(1);
    let shop = daemon.client("shop", "all");
    let refused = shop.post("/v1/invoices", "bad", &invoice("-1"));
    assert_eq!(refused.problem(422).0, "invalid_amount");
    let again = shop.post("/v1/invoices", "bad", &invoice("-1"));
    again.problem(422);
    assert!(is_replayed(&again) && again.body == refused.body, "{again:?}");
    assert_eq!(
        shop.post("/v1/invoices", "bad", &invoice("1")).problem(422).0,
        "idempotency_key_reused"
    );

    // An empty pool, and then one that is not.
    let empty = shop.post("/v1/invoices", "K", &invoice("1"));
    assert_eq!(empty.problem(503).0, "no_address");
    assert!(empty.header("retry-after").is_some());
    let missing = shop.post("/v1/invoices/inv_1/cancel", "K", "");
    assert_eq!(missing.problem(404).0, "not_found");
    let broken = shop.post("/v1/invoices", "K", "{");
    assert_eq!(broken.problem(400).0, "malformed_json");
    // The body, its metadata and the lists in there: as deep as may be, and one deeper.
    let nested = |lists: usize| {
        let (open, close) = ("[".repeat(lists), "]".repeat(lists));
        format!(r#"{{"asset":"BTC","amount":"1","metadata":{{"a":{open}{close}}}}}"#)
    };
    assert_eq!(
        shop.post("/v1/invoices", "K", &nested(30)).problem(503).0,
        "no_address"
    );
    assert_eq!(
        shop.post("/v1/invoices", "K", &nested(31)).problem(400).0,
        "json_too_deep"
    );
    let headers = [("Idempotency-Key", "K"), ("Content-Type", "text/plain")];
    assert_eq!(
        shop.send("POST", "/v1/invoices", &headers, "a=1").problem(415).0,
        "unsupported_media_type"
    );
    let large = format!("{{\"asset\":\"{}\"}}", "x".repeat(70_000));
    assert_eq!(
        shop.post("/v1/invoices", "K", &large).problem(413).0,
        "body_too_large"
    );
    assert_eq!(daemon.count("SELECT count(*) FROM idempotency"), 1);
    fill_pool(&daemon, 5);
    shop.post("/v1/invoices", "K", &invoice("1")).expect(201);
}

/// What an operator mends in the config, and the same requests again.
#[test]
fn c48e_what_the_config_alone_refuses_is_not_refused_for_ever() {
    let node = FakeNode::regtest(1);
    let mut daemon = Daemon::start(&with_api(&node.stub));
    daemon.wait_height(1);
    let mut shop = daemon.client("shop", "all");
    let coin = "bip122:0f9188f13cb7b2c71f2a335e3a4fc328/slip44:0";
    let hook = "http://127.0.0.1:9/hook";
    let asked = [
        (
            "invoices",
            json!({"asset": "XBT", "amount": "1"}),
            "unknown_asset",
        ),
        (
            "invoices",
            json!({"chain": "new", "asset": coin, "amount": "1"}),
            "unknown_chain",
        ),
        (
            "invoices",
            json!({"asset": coin, "amount": "1", "callback_url": hook}),
            "url_refused",
        ),
        (
            "invoices",
            json!({"asset": coin, "amount": "1", "confirmations": 200}),
            "invalid_field",
        ),
        ("addresses", json!({"chain": "new"}), "unknown_chain"),
        ("endpoints", json!({"url": hook}), "url_refused"),
    ];
    let post = |shop: &Client, number: usize| {
        let (path, body, _) = &asked[number];
        shop.post(&format!("/v1/{path}"), &format!("K{number}"), &body.to_string())
    };
    for (number, (_, body, code)) in asked.iter().enumerate() {
        assert_eq!(post(&shop, number).problem(422).0, *code, "{body}");
    }
    assert_eq!(daemon.count("SELECT count(*) FROM idempotency"), 0);

    daemon.stop();
    let mended = Setup {
        chain_lines: "symbol = \"XBT\"\nreorg_window = 300\n".to_owned(),
        ..setup(&node.stub)
    };
    daemon.write_config(&mended);
    daemon.start_again();
    shop.port = daemon.api_port();
    fill_pool(&daemon, 20);
    let is_mended = |number: &usize| asked[*number].2 != "unknown_chain";
    for number in (0..asked.len()).filter(is_mended) {
        let reply = post(&shop, number);
        assert_eq!(reply.status, 201, "{number}: {reply:?}");
        assert!(!is_replayed(&reply));
    }
}

/// Killed at moments that move through the request, and asked again.
#[test]
fn c48b_a_kill_between_leaves_no_key_claimed_and_no_effect_twice() {
    let node = FakeNode::regtest(1);
    let (mut daemon, mut shop) = started(&node);
    let mut answered_before_the_kill = 0;
    for round in 0..24_u64 {
        let posts = [
            ("/v1/invoices".to_owned(), invoice("10")),
            ("/v1/addresses".to_owned(), r#"{"chain":"btc"}"#.to_owned()),
            (
                "/v1/endpoints".to_owned(),
                format!("{{\"url\":\"http://127.0.0.1:9/{round}\"}}"),
            ),
        ];
        let key = format!("round-{round}");
        let sent: Vec<_> = posts
            .iter()
            .map(|(path, body)| {
                let (client, path, body, key) = (shop.clone(), path.clone(), body.clone(), key.clone());
                std::thread::spawn(move || client.try_post(&path, &key, &body).ok())
            })
            .collect();
        match round {
            0..20 => crate::common::wait::let_pass(Duration::from_micros(250 * round)),
            // On a busy machine no answer comes that soon.
            _ => wait_until("an answer came", PATIENCE, || {
                sent.iter().any(JoinHandle::is_finished).then_some(())
            }),
        }
        daemon.kill9();
        let before: Vec<_> = sent.into_iter().map(|sent| sent.join().unwrap()).collect();
        daemon.start_again();
        shop.port = daemon.api_port();
        fill_pool(&daemon, 500);
        for ((path, body), before) in posts.iter().zip(before) {
            let after = shop.post(path, &key, body);
            after.expect(201);
            if let Some(before) = before.filter(|before| before.status == 201) {
                answered_before_the_kill += 1;
                assert_eq!(after.body, before.body, "{path}: an answer that was given stands");
                assert!(is_replayed(&after));
            }
            assert_eq!(shop.post(path, &key, body).body, after.body);
        }
    }
    assert!(answered_before_the_kill > 0, "some kills came after an answer");
    let twice = "SELECT count(*) FROM (SELECT 1 FROM idempotency WHERE path = '/v1/invoices' \
                 GROUP BY json_extract(body, '$.id') HAVING count(*) > 1)";
    assert_eq!(daemon.count(twice), 0);
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), 24);
    assert_eq!(daemon.count("SELECT count(*) FROM endpoints"), 24);
    assert_eq!(daemon.count("SELECT count(*) FROM addresses"), 48);
    assert_eq!(
        daemon.count("SELECT count(*) FROM events WHERE type = 'invoice.created'"),
        24
    );
}

/// A daemon that starts corrects the decimals of an asset while a request waits for its turn.
#[test]
fn an_invoice_asks_by_the_decimals_of_the_moment_in_which_it_is_made() {
    let node = FakeNode::regtest(1);
    let (daemon, shop) = started(&node);
    let lock = locked(&daemon);
    let waiting = sent_later(&shop, "K", invoice("10"));
    wait_queued(&daemon, 1);
    lock.execute_batch("UPDATE assets SET decimals = 6; COMMIT")
        .unwrap();
    let made = waiting.join().unwrap().expect(201);
    assert_eq!(
        (&made["amount"], &made["amount_base"]),
        (&json!("10"), &json!("10000000"))
    );
}

#[test]
fn an_answer_is_kept_as_long_as_is_said_and_never_shorter_than_the_invoice_lives() {
    let node = FakeNode::regtest(1);
    let (daemon, shop) = started(&node);
    let long = json!({"asset": "BTC", "amount": "1", "expires_in": 31_536_000}).to_string();
    shop.post("/v1/invoices", "short", &invoice("1")).expect(201);
    let made = shop.post("/v1/invoices", "long", &long).expect(201);
    let days = |key: &str| {
        let sql = format!("SELECT (keep_until - created_at) / 86400000 FROM idempotency WHERE key = '{key}'");
        daemon.count(&sql)
    };
    assert_eq!((days("short"), days("long")), (30, 365));
    // Its time is over, and the invoice has ended: the key is as new.
    let cancel = format!("/v1/invoices/{}/cancel", made["id"].as_str().unwrap());
    shop.post(&cancel, "cancel", "{}").expect(200);
    let connection = Connection::open(daemon.database()).unwrap();
    connection
        .execute("UPDATE idempotency SET keep_until = 1", [])
        .unwrap();
    let anew = shop.post("/v1/invoices", "long", &long);
    assert!(!is_replayed(&anew));
    assert_ne!(anew.expect(201)["id"], made["id"]);
    let told: Value = shop.get("/openapi.json").expect(200);
    assert!(
        told["info"]["description"].as_str().unwrap().contains("30 days"),
        "{}",
        told["info"]
    );
}
