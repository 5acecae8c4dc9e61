//! What is another merchant's is not there; and events are the same over HTTP as in callbacks.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::common::api::{Client, connect, fill_pool, with_api};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;
use crate::common::receiver::{Receiver, answer};
use crate::common::wait::{PATIENCE, wait_until};

fn started(node: &FakeNode) -> Daemon {
    let daemon = Daemon::start(&Setup {
        tables: "[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n".to_owned(),
        ..with_api(&node.stub)
    });
    daemon.wait_height(1);
    fill_pool(&daemon, 20);
    daemon
}

const INVOICE: &str = r#"{"asset":"BTC","amount":"1","reference":"order-1"}"#;

#[test]
fn what_is_another_merchants_is_as_if_it_were_not_there() {
    let node = FakeNode::regtest(1);
    let daemon = started(&node);
    let (shop, other) = (daemon.client("shop", "all"), daemon.client("other", "all"));
    let invoice = shop.post("/v1/invoices", "i", INVOICE).expect(201)["id"].clone();
    let url = r#"{"url":"http://127.0.0.1:9/hook"}"#;
    let endpoint = shop.post("/v1/endpoints", "e", url).expect(201)["endpoint"]["id"].clone();
    let event = shop.get("/v1/events").expect(200)["events"][0]["id"].clone();
    let [invoice, endpoint, event] = [&invoice, &endpoint, &event].map(|id| id.as_str().unwrap());
    let state = || {
        let tables = [
            "invoices",
            "endpoints",
            "endpoint_secrets",
            "events",
            "deliveries",
            "audit",
        ];
        tables.map(|table| daemon.count(&format!("SELECT count(*) FROM {table}")))
    };
    let before = state();
    let asks = |client: &Client, path: &str, key: &str| match path.rsplit('/').next() {
        Some("cancel" | "pause" | "resume" | "rotate-secret" | "test" | "replay") => {
            client.post(path, key, "{}")
        }
        _ => client.get(path),
    };
    for path in [
        format!("/v1/invoices/{invoice}"),
        format!("/v1/invoices/{invoice}/cancel"),
        format!("/v1/endpoints/{endpoint}/pause"),
        format!("/v1/endpoints/{endpoint}/resume"),
        format!("/v1/endpoints/{endpoint}/rotate-secret"),
        format!("/v1/endpoints/{endpoint}/test"),
        format!("/v1/events/{event}/replay"),
    ] {
        let refused = asks(&other, &path, &path);
        assert_eq!(refused.problem(404).0, "not_found", "{path}");
        // An id that nobody has gets the same answer: nothing says whether it is somebody's.
        let nobodys = path
            .replace(|letter: char| letter.is_ascii_digit(), "0")
            .replace("/v0/", "/v1/");
        assert_eq!(asks(&other, &nobodys, &nobodys).body, refused.body, "{path}");
    }
    for (path, list) in [
        ("/v1/invoices", "invoices"),
        ("/v1/invoices?reference=order-1", "invoices"),
        ("/v1/endpoints", "endpoints"),
        ("/v1/events", "events"),
    ] {
        assert_eq!(other.get(path).expect(200)[list], json!([]), "{path}");
        assert_ne!(shop.get(path).expect(200)[list], json!([]), "{path}");
    }
    // Nor is an event of one's own sent to the endpoint of another.
    other.post("/v1/invoices", "own", INVOICE).expect(201);
    let own = other.get("/v1/events").expect(200)["events"][0]["id"].clone();
    let body = json!({"endpoint": endpoint}).to_string();
    let path = format!("/v1/events/{}/replay", own.as_str().unwrap());
    let replayed = other.post(&path, "to-theirs", &body);
    assert_eq!(replayed.problem(404).0, "not_found");
    assert_eq!(state()[4..], before[4..], "nothing was sent or changed");
    assert_eq!(state()[1..3], before[1..3]);
    shop.get(&format!("/v1/invoices/{invoice}")).expect(200);
    assert_eq!(
        shop.get("/v1/endpoints").expect(200)["endpoints"][0]["state"],
        "active"
    );
    daemon
        .operator()
        .get(&format!("/v1/invoices/{invoice}"))
        .expect(200);
}

#[test]
fn lists_are_of_what_was_asked_for_page_by_page() {
    let node = FakeNode::regtest(1);
    let daemon = started(&node);
    let shop = daemon.client("shop", "all");
    let made: Vec<String> = ["a", "b", "c"]
        .iter()
        .map(|key| {
            shop.post("/v1/invoices", key, INVOICE).expect(201)["id"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    shop.post(&format!("/v1/invoices/{}/cancel", made[1]), "k", "")
        .expect(200);
    let ids = |query: &str| -> Vec<String> {
        let listed = shop.get(&format!("/v1/invoices?{query}")).expect(200);
        let rows = listed["invoices"].as_array().unwrap().iter();
        rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    let newest_first = [made[2].clone(), made[1].clone(), made[0].clone()];
    assert_eq!(ids(""), newest_first);
    assert_eq!(ids("life=cancelled"), [made[1].clone()]);
    assert_eq!(ids("life=open&chain=btc"), [made[2].clone(), made[0].clone()]);
    assert_eq!(ids("amount_state=unpaid"), newest_first);
    assert_eq!(ids("amount_state=paid"), [""; 0]);
    assert_eq!(ids("reference=order-2"), [""; 0]);
    let mut paged = Vec::new();
    let mut query = "limit=2".to_owned();
    loop {
        let page = shop.get(&format!("/v1/invoices?{query}")).expect(200);
        assert!(page["invoices"].as_array().unwrap().len() <= 2);
        paged.extend(ids(&query));
        match page["next"].as_str() {
            Some(next) => query = format!("limit=2&after={next}"),
            None => break,
        }
    }
    assert_eq!(paged, newest_first);
    for (query, field) in [
        ("life=gone", "life"),
        ("amount_state=some", "amount_state"),
        ("limit=0", "limit"),
    ] {
        let refused = shop.get(&format!("/v1/invoices?{query}")).problem(400);
        assert_eq!(refused.1.as_deref(), Some(field));
    }
    // Events: the number to go on after, also where there are no more yet.
    let (mut after, mut kinds) = (0, Vec::new());
    for count in [3, 1, 0] {
        let page = shop.get(&format!("/v1/events?limit=3&after={after}")).expect(200);
        let events = page["events"].as_array().unwrap();
        assert_eq!(events.len(), count);
        kinds.extend(
            events
                .iter()
                .map(|event| event["type"].as_str().unwrap().to_owned()),
        );
        after = page["next"].as_u64().unwrap();
    }
    let created = "invoice.created";
    assert_eq!(kinds, [created, created, created, "invoice.cancelled"]);
}

/// There may be as many endpoints of one invoice each as there are invoices.
#[test]
fn endpoints_come_in_pages_and_those_of_invoices_where_they_are_asked_for() {
    let node = FakeNode::regtest(1);
    let daemon = started(&node);
    let shop = daemon.client("shop", "all");
    let id = |made: &Value| made["endpoint"].as_str().unwrap().to_owned();
    let own: Vec<String> = (0..3)
        .map(|number| {
            let body = json!({"url": format!("http://127.0.0.1:9/{number}")}).to_string();
            let added = shop
                .post("/v1/endpoints", &format!("e{number}"), &body)
                .expect(201);
            added["endpoint"]["id"].as_str().unwrap().to_owned()
        })
        .collect();
    let of_invoices: Vec<(String, String)> = (0..2)
        .map(|number| {
            let url = format!("http://127.0.0.1:9/invoice/{number}");
            let body = json!({"asset": "BTC", "amount": "1", "callback_url": url}).to_string();
            let made = shop
                .post("/v1/invoices", &format!("i{number}"), &body)
                .expect(201);
            (made["id"].as_str().unwrap().to_owned(), id(&made["callback"]))
        })
        .collect();
    let ids = |page: &Value| -> Vec<String> {
        let rows = page["endpoints"].as_array().unwrap().iter();
        rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    let listed = |query: &str| shop.get(&format!("/v1/endpoints?{query}")).expect(200);
    assert_eq!(ids(&listed("")), own);
    let first = listed("limit=2");
    assert_eq!(ids(&first), own[..2]);
    let rest = listed(&format!("limit=2&after={}", first["next"].as_str().unwrap()));
    assert_eq!((ids(&rest), &rest["next"]), (own[2..].to_vec(), &Value::Null));
    let (invoice, endpoint) = &of_invoices[1];
    let of_invoice = ids(&listed(&format!("invoice={invoice}")));
    assert_eq!(of_invoice, [endpoint.as_str()]);
    assert_eq!(ids(&listed("paused=true")), [""; 0]);
    for paused in [&own[1], endpoint] {
        let path = format!("/v1/endpoints/{paused}/pause");
        shop.post(&path, paused, "").expect(200);
    }
    let paused = [own[1].as_str(), endpoint];
    assert_eq!(ids(&listed("paused=true")), paused);
    assert_eq!(
        ids(&listed(&format!("paused=true&invoice={invoice}"))),
        paused[1..]
    );
    // The command says the same, and another merchant is shown none of it.
    assert_eq!(ids(&daemon.json(&["endpoint", "list"])), own);
    let args = ["endpoint", "list", "--merchant", "shop", "--paused"];
    assert_eq!(ids(&daemon.json(&args)), paused);
    let args = ["endpoint", "list", "--invoice", &invoice[..12]];
    assert_eq!(ids(&daemon.json(&args)), paused[1..]);
    let other = daemon.client("other", "all");
    for query in ["", "paused=true", &format!("invoice={invoice}")] {
        let page = other.get(&format!("/v1/endpoints?{query}")).expect(200);
        assert_eq!(page["endpoints"], json!([]), "{query}");
    }
    let refused = shop.get("/v1/endpoints?paused=maybe").problem(400);
    assert_eq!(refused.1.as_deref(), Some("paused"));
}

#[derive(Deserialize)]
struct Listed {
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    seq: u64,
    id: String,
    body: Box<RawValue>,
}

#[test]
fn events_over_http_have_the_ids_and_the_very_bytes_of_their_callbacks() {
    let node = FakeNode::regtest(1);
    let daemon = started(&node);
    let shop = daemon.client("shop", "all");
    let receiver = Receiver::http(Ipv4Addr::LOCALHOST, |_, to| answer(to, 200, b""));
    let url = json!({"url": format!("http://{}/hook", receiver.address)}).to_string();
    shop.post("/v1/endpoints", "e", &url).expect(201);
    for number in 0..3 {
        let body = json!({"asset": "BTC", "amount": "1", "reference": format!("\u{e4}\u{1f600}\"{number}"),
                          "metadata": {"b": 1.50, "a": [1e3]}});
        let made = shop
            .post("/v1/invoices", &number.to_string(), &body.to_string())
            .expect(201);
        let path = format!("/v1/invoices/{}/cancel", made["id"].as_str().unwrap());
        shop.post(&path, "c", "").expect(200);
    }
    let called = wait_until("all callbacks have come", PATIENCE, || {
        let heard = receiver.heard();
        let by_id: BTreeMap<String, Vec<u8>> = heard
            .into_iter()
            .map(|one| (one.header("webhook-id").unwrap().to_owned(), one.body))
            .collect();
        (by_id.len() == 6).then_some(by_id)
    });
    let reply = shop.get("/v1/events");
    reply.expect(200);
    let listed: Listed = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(listed.events.len(), 6);
    for event in &listed.events {
        assert_eq!(event.body.get().as_bytes(), called[&event.id], "{}", event.id);
    }
    // The stream goes on after the number that it is given, with the same bytes again.
    let mut stream = connect(shop.port);
    let head = format!(
        "GET /v1/events/stream HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\nLast-Event-ID: {}\r\n\r\n",
        shop.key, listed.events[1].seq
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut streamed = BufReader::new(stream)
        .lines()
        .map(Result::unwrap)
        .filter_map(|line| {
            let body = line.strip_prefix("data: ")?;
            Some(body.to_owned())
        });
    for event in &listed.events[2..] {
        assert_eq!(streamed.next().unwrap(), event.body.get());
    }
    shop.post("/v1/invoices", "later", INVOICE).expect(201);
    assert!(
        streamed.next().unwrap().contains("order-1"),
        "what comes later is streamed as it comes"
    );
}

#[test]
fn the_endpoint_of_one_invoice_is_sent_that_one_again_and_no_other() {
    let node = FakeNode::regtest(1);
    let daemon = started(&node);
    let shop = daemon.client("shop", "all");
    let made = ["a", "b"].map(|name| {
        let url = format!("http://127.0.0.1:9/{name}");
        let body = json!({"asset": "BTC", "amount": "1", "callback_url": url}).to_string();
        let invoice = shop.post("/v1/invoices", name, &body).expect(201);
        invoice["callback"]["endpoint"].as_str().unwrap().to_owned()
    });
    let url = r#"{"url":"http://127.0.0.1:9/hook"}"#;
    let all = shop.post("/v1/endpoints", "e", url).expect(201)["endpoint"]["id"].clone();
    let events = shop.get("/v1/events").expect(200)["events"].clone();
    let event = events[0]["id"].as_str().unwrap();
    let path = format!("/v1/events/{event}/replay");
    let to_other = json!({"endpoint": made[1]}).to_string();
    assert_eq!(shop.post(&path, "other", &to_other).problem(409).0, "refused");
    let told = daemon.cli(&[
        "callbacks",
        "retry",
        event,
        "--endpoint",
        &made[1],
        "--reason",
        "asked",
    ]);
    let words = String::from_utf8(told.stderr).unwrap();
    assert!(
        words.contains("not of the one invoice"),
        "dry, and refused all the same: {words}"
    );
    assert_eq!(
        shop.post(&path, "all", "{}").expect(202)["endpoints"],
        json!([made[0], all]),
        "its own, and those of every invoice"
    );
    daemon.assert_sound();
}
