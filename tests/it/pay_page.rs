//! The page of an invoice as its payer gets it: what it shows and what it keeps to itself, its news, and what
//! strangers can do with it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use base64::Engine as _;
use bitcoincore_rpc::bitcoin::ScriptBuf;
use creditd::address::{Network, parse};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::common::api::{Client, Reply, connect, fill_pool, with_api};
use crate::common::daemon::Daemon;
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::wait::{PATIENCE, wait_until};

const STRANGE: &str = "<script>alert('1')</script>\"&";

fn open(node: &FakeNode) -> (Daemon, Client) {
    let daemon = Daemon::start(&with_api(&node.stub));
    daemon.wait_height(node.height());
    fill_pool(&daemon, 5);
    let shop = daemon.client("shop", "all");
    (daemon, shop)
}

fn invoice(shop: &Client, more: Value) -> Value {
    let mut body = json!({"asset": "BTC", "amount": "0.29"});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    let body = body.to_string();
    let key: String = Sha256::digest(&body)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    shop.post("/v1/invoices", &key, &body).expect(201)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// What somebody without a key is answered.
fn visit(shop: &Client, path: &str) -> Reply {
    let stranger = Client {
        key: String::new(),
        ..shop.clone()
    };
    stranger.get(path)
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).unwrap();
    rest.split_once(to).unwrap().0
}

/// The news of a page.
struct News(BufReader<TcpStream>);

impl News {
    fn open(port: u16, token: &str) -> (u16, News) {
        let mut stream = connect(port);
        write!(stream, "GET /i/{token}/events HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut news = News(BufReader::new(stream));
        let status = news.line().unwrap();
        (status.split(' ').nth(1).unwrap().parse().unwrap(), news)
    }

    /// The next line; `None` at the end of the stream.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.0.read_line(&mut line).unwrap() > 0).then_some(line)
    }

    /// Reads on until the page stands so.
    fn wait(&mut self, standing: &str, words: &str) -> Value {
        wait_until(&format!("{standing}: {words}"), PATIENCE, || {
            let line = self.line().expect("the stream goes on");
            let news: Value = serde_json::from_str(line.strip_prefix("data: ")?.trim_end()).unwrap();
            let is_it = news["standing"] == standing && text(&news["state"]).contains(words);
            is_it.then_some(news)
        })
    }
}

fn pay(node: &FakeNode, number: u32, invoice: &Value, sat: u64) -> bitcoincore_rpc::bitcoin::Transaction {
    let script = parse(Network::Regtest, text(&invoice["address"])).unwrap();
    let script = ScriptBuf::from(script.0.to_vec());
    let paid = tx(&[coin(number)], &[(script, sat)]);
    node.state().mempool.push(paid.clone());
    paid
}

#[test]
fn a_page_holds_all_that_a_payer_needs_and_no_more() {
    let node = FakeNode::regtest(1);
    let (_daemon, shop) = open(&node);
    let more = json!({"reference": STRANGE, "metadata": {"private": "not for payers"}});
    let invoice = invoice(&shop, more);
    let path = format!("/i/{}", text(&invoice["token"]));
    let page = visit(&shop, &path);
    assert_eq!(page.status, 200);
    let uri = text(&invoice["payment_uri"]).replace('&', "&amp;");
    for part in [
        "<html lang=\"en\">",
        "Waiting for payment",
        "0.29 BTC",
        text(&invoice["address"]),
        &format!("href=\"{uri}\""),
        "<svg class=\"qr\"",
        &text(&invoice["expires_at"]).replace('T', " ")[..19],
        "<noscript><meta http-equiv=\"refresh\"",
        "for &lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;",
    ] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    for part in [
        text(&invoice["id"]),
        "not for payers",
        "private",
        "shop",
        "<script>alert",
        " style=",
        " onclick=",
        "javascript:",
        "http://",
        "https://",
        "url(",
    ] {
        assert!(!page.body.contains(part), "{part}: {}", page.body);
    }
    let news = News::open(shop.port, text(&invoice["token"]))
        .1
        .wait("waiting", "");
    let told = news.to_string();
    assert!(
        !told.contains("not for payers") && !told.contains(text(&invoice["id"])),
        "{told}"
    );
}

#[test]
fn a_page_loads_nothing_runs_nothing_strange_and_is_kept_nowhere() {
    let node = FakeNode::regtest(1);
    let (_daemon, shop) = open(&node);
    let invoice = invoice(&shop, json!({}));
    let path = format!("/i/{}", text(&invoice["token"]));
    let page = visit(&shop, &path);
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("x-robots-tag", "noindex, nofollow"),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
    let policy = page.header("content-security-policy").unwrap();
    let hash = |element: &str| {
        let inside = between(&page.body, &format!("<{element}>"), &format!("</{element}>"));
        base64::engine::general_purpose::STANDARD.encode(Sha256::digest(inside))
    };
    let expected = format!(
        "default-src 'none'; img-src data:; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src \
         'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash("style"),
        hash("script")
    );
    assert_eq!(policy, expected);
    // A head alone has the same head, and no body.
    let head = shop.try_send("HEAD", &path, &[], "").unwrap_err();
    assert!(head.to_string().contains("200 OK"), "{head}");
}

#[test]
fn whoever_has_no_token_is_told_the_same_whatever_it_tries() {
    let node = FakeNode::regtest(1);
    let (_daemon, shop) = open(&node);
    let token = text(&invoice(&shop, json!({}))["token"]).to_owned();
    let unknown = visit(&shop, &format!("/i/{}", "0".repeat(64)));
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.header("content-type"), Some("text/html; charset=utf-8"));
    let but_date = |reply: &Reply| {
        let mut reply = reply.clone();
        reply.headers.retain(|(name, _)| name != "date");
        reply
    };
    for guess in [
        "x",
        "%00",
        "%ff",
        "%3Cscript%3E",
        &token[..63],
        &token.to_uppercase(),
        &format!("{token}0"),
        &"a".repeat(4_000),
    ] {
        if guess != token {
            assert_eq!(
                but_date(&visit(&shop, &format!("/i/{guess}"))),
                but_date(&unknown),
                "{guess}"
            );
            let (status, _) = News::open(shop.port, guess);
            assert_eq!(status, 404, "{guess}");
        }
    }
    // A merchant's key opens nothing here, and the token nothing else.
    assert_eq!(shop.get(&format!("/v1/invoices/{token}")).status, 404);
    let posted = shop.send("POST", &format!("/i/{token}"), &[], "{}");
    assert_eq!(posted.problem(405).0, "method_not_allowed");
}

#[test]
fn a_payment_is_seen_counted_and_confirmed_while_the_page_is_open() {
    let node = FakeNode::regtest(1);
    let (mut daemon, shop) = open(&node);
    let invoice = invoice(&shop, json!({"confirmations": 4}));
    let token = text(&invoice["token"]).to_owned();
    let (status, mut news) = News::open(shop.port, &token);
    assert_eq!(status, 200);
    let first = news.wait("waiting", "Waiting for payment");
    let left = first["left_ms"].as_i64().unwrap();
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");

    let part = pay(&node, 1, &invoice, 20_000_000);
    let told = news.wait("partial", "0.09 BTC is still missing");
    assert!(text(&told["state"]).contains("0 of 4"), "{told}");
    let rest = format!("bitcoin:{}?amount=0.09\"", text(&invoice["address"]));
    assert!(
        text(&told["pay"]).contains(&rest),
        "the rest is asked for: {told}"
    );

    let more = pay(&node, 2, &invoice, 10_000_000);
    let told = news.wait("seen", "0 of 4");
    assert!(
        !text(&told["pay"]).contains("bitcoin:"),
        "nothing is asked for: {told}"
    );
    assert_eq!(told["title"], "0.29 BTC: payment seen");
    node.mine(vec![part.clone(), more]);
    for confirmations in 1..4 {
        news.wait("seen", &format!("{confirmations} of 4"));
        node.mine(vec![]);
    }
    let told = news.wait("overpaid", "0.01 BTC more");
    assert!(
        text(&told["pay"]).contains(&part.compute_txid().to_string()),
        "{told}"
    );
    assert!(
        visit(&shop, &format!("/i/{token}"))
            .body
            .contains("data-standing=\"overpaid\"")
    );

    // It ends with the daemon, and in order.
    daemon.stop();
    let mut last = String::new();
    while let Some(line) = news.line() {
        last = line;
    }
    assert_eq!(last, "\r\n", "the last chunk");
}

#[test]
fn what_is_over_asks_for_nothing() {
    let node = FakeNode::regtest(1);
    let (_daemon, shop) = open(&node);
    let invoice = invoice(&shop, json!({}));
    let id = text(&invoice["id"]);
    shop.post(&format!("/v1/invoices/{id}/cancel"), "c", "{}")
        .expect(200);
    let page = visit(&shop, &format!("/i/{}", text(&invoice["token"])));
    assert!(page.body.contains("The merchant took it back"), "{}", page.body);
    for part in ["bitcoin:", "<svg", text(&invoice["address"])] {
        assert!(!page.body.contains(part), "{part}: {}", page.body);
    }
}

#[test]
fn windows_and_requests_of_one_page_are_bounded_and_others_are_not_held_up() {
    let node = FakeNode::regtest(1);
    let (_daemon, shop) = open(&node);
    let [one, other] = ["a", "b"].map(|reference| invoice(&shop, json!({"reference": reference})));
    let (token, path) = (text(&one["token"]), format!("/i/{}", text(&one["token"])));
    let mut windows = Vec::new();
    let refused = wait_until("no more windows", PATIENCE, || {
        let (status, mut news) = News::open(shop.port, token);
        match status {
            200 => windows.push(news),
            503 => return Some(news.line()),
            429 => {}
            other => panic!("{other}"),
        }
        None
    });
    assert!(refused.is_some());
    assert_eq!(windows.len(), 8);
    let (status, _) = News::open(shop.port, text(&other["token"]));
    assert_eq!(status, 200, "another page");
    drop(windows);
    wait_until("places come back", PATIENCE, || {
        (News::open(shop.port, token).0 == 200).then_some(())
    });
    let refused = wait_until("too many requests", PATIENCE, || {
        let page = visit(&shop, &path);
        (page.status != 200).then_some(page)
    });
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert!(refused.body.contains("Too many requests"), "{}", refused.body);
    assert_eq!(visit(&shop, &format!("/i/{}", text(&other["token"]))).status, 200);
}
