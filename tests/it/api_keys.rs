//! Who may ask: keys are made once, stored as hashes, bound to a merchant and to scopes, and end at once.

use crate::common::api::{Client, with_api};
use crate::common::asks::{D1, D2, script};
use crate::common::daemon::Daemon;
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::wait::{PATIENCE, wait_until};

fn code(client: &Client, path: &str, status: u16) -> String {
    client.get(path).problem(status).0
}

#[test]
fn a_key_is_needed_and_must_be_whole_known_and_live() {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::start(&with_api(&node.stub));
    let shop = daemon.client("shop", "invoice:read");
    let told = shop.get("/v1/key").expect(200);
    assert_eq!(told["merchant"], "shop");
    assert_eq!(told["scopes"], serde_json::json!(["invoice:read"]));

    let with = |key: &str| daemon.client_with(key);
    let answer = with("").get("/v1/key");
    assert_eq!(answer.problem(401).0, "key_missing");
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    assert_eq!(code(&with("ck_1234"), "/v1/key", 401), "key_malformed");
    let last = if shop.key.ends_with('0') { "1" } else { "0" };
    let miscopied = format!("{}{last}", &shop.key[..shop.key.len() - 1]);
    assert_eq!(code(&with(&miscopied), "/v1/key", 401), "key_malformed");
    let unknown = creditd::rules::api_key::ApiKey::from_secret([7; 32]).to_text();
    assert_eq!(code(&with(&unknown), "/v1/key", 401), "key_unknown");

    // Of two, another reader may believe the other.
    let second = format!("Bearer {}", shop.key);
    let twice = shop.send("GET", "/v1/key", &[("Authorization", &second)], "");
    assert_eq!(twice.problem(401).0, "key_missing");

    let id = told["id"].as_str().unwrap();
    assert_eq!(
        daemon.json(&["key", "revoke", id, "--reason", "lost"])["outcome"],
        "dry"
    );
    shop.get("/v1/key").expect(200);
    let revoke = ["key", "revoke", id, "--reason", "lost", "--apply"];
    assert_eq!(daemon.json(&revoke)["outcome"], "done");
    assert_eq!(code(&shop, "/v1/key", 401), "key_revoked");
    assert_eq!(daemon.json(&revoke)["outcome"], "nothing");

    let short = daemon.client("shop", "invoice:read");
    short.get("/v1/key").expect(200);
    rusqlite::Connection::open(daemon.database())
        .unwrap()
        .execute("UPDATE api_keys SET expires_at = 1 WHERE revoked_at IS NULL", [])
        .unwrap();
    assert_eq!(code(&short, "/v1/key", 401), "key_expired");
    let listed = daemon.json(&["key", "list"]);
    let states: Vec<_> = listed["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| &key["state"])
        .collect();
    assert_eq!(states, ["revoked", "expired"]);
}

#[test]
fn a_key_is_shown_once_and_nowhere_kept() {
    let node = FakeNode::regtest(1);
    let mut daemon = Daemon::start(&with_api(&node.stub));
    let shop = daemon.client("shop", "all");
    shop.get("/v1/key").expect(200);
    shop.get("/v1/nowhere").problem(404);
    wait_until("the use is noted", PATIENCE, || {
        let listed = daemon.json(&["key", "list"]);
        listed["keys"][0]["last_used_at"].is_string().then_some(())
    });
    daemon.stop();
    let secret = &shop.key[3..67];
    assert!(!daemon.log().contains(secret));
    let file = std::fs::read(daemon.database()).unwrap();
    assert!(!String::from_utf8_lossy(&file).contains(secret));
    let bytes = const_hex::decode(secret).unwrap();
    assert!(!file.windows(32).any(|window| window == bytes));
}

#[test]
fn two_keys_of_a_name_live_while_one_takes_the_place_of_the_other() {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::start(&with_api(&node.stub));
    let (first, second) = (daemon.client("shop", "all"), daemon.client("shop", "all"));
    let create = |owner: &str| {
        let line = format!("key create {owner} --scopes all");
        line.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let cli = |words: Vec<String>| daemon.cli(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let third = create("--merchant shop --name test");
    let refused = cli(third.clone());
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let id = first.get("/v1/key").expect(200)["id"].clone();
    second.get("/v1/key").expect(200);
    // Another merchant and another name have their own.
    daemon.client("other", "all").get("/v1/key").expect(200);
    assert!(cli(create("--merchant shop --name till")).status.success());
    daemon.json(&[
        "key",
        "revoke",
        id.as_str().unwrap(),
        "--reason",
        "rotated",
        "--apply",
    ]);
    assert!(cli(third).status.success());
    second.get("/v1/key").expect(200);

    for (words, status) in [
        ("--merchant nobody --name a --scopes all", 1),
        ("--merchant shop --name a --scopes ops:read", 2),
        ("--ops --name a --scopes invoice:write", 2),
        ("--name a --scopes all", 2),
        ("--merchant shop --name a --scopes everything", 2),
    ] {
        let line = format!("key create {words}");
        let output = cli(line.split(' ').map(str::to_owned).collect());
        assert_eq!(output.status.code(), Some(status), "{line}: {output:?}");
    }
}

/// Two merchants are paid by one transaction, and credited.
fn two_paid() -> (Daemon, FakeNode, String) {
    let node = FakeNode::regtest(3);
    let mut daemon = Daemon::prepare(&with_api(&node.stub));
    daemon.json(&["watch", "add", D1, "--merchant", "shop", "--reference", "order-1"]);
    daemon.json(&[
        "watch",
        "add",
        D2,
        "--merchant",
        "other",
        "--reference",
        "order-1",
    ]);
    daemon.start_again();
    daemon.wait_height(3);
    let paid = tx(&[coin(1)], &[(script(D1), 29_000_000), (script(D2), 5_000)]);
    let txid = paid.compute_txid().to_string();
    node.mine(vec![paid]);
    node.mine(Vec::new());
    node.mine(Vec::new());
    daemon.wait_deposit(&txid, 0, "credited");
    daemon.wait_deposit(&txid, 1, "credited");
    (daemon, node, txid)
}

/// Each sees its own, an operator sees both.
#[test]
fn every_query_is_bound_to_the_merchant_of_the_key() {
    let (daemon, _node, txid) = two_paid();
    let (shop, other) = (daemon.client("shop", "all"), daemon.client("other", "all"));
    let deposits = |client: &Client, query: &str| {
        let answer = client.get(&format!("/v1/deposits{query}")).expect(200);
        let list = answer["deposits"].as_array().unwrap().clone();
        let words = list.iter().map(|row| {
            let word = |key: &str| row[key].as_str().unwrap().to_owned();
            assert_eq!(row["state"], "credited");
            (word("merchant"), word("amount"), word("address"))
        });
        words.collect::<Vec<_>>()
    };
    let row = |merchant: &str, amount: &str, address: &str| {
        (merchant.to_owned(), amount.to_owned(), address.to_owned())
    };
    let (ours, theirs) = ([row("shop", "0.29", D1)], [row("other", "0.00005", D2)]);
    assert_eq!(deposits(&shop, ""), ours);
    assert_eq!(deposits(&other, ""), theirs);
    for query in [
        format!("?txid={txid}"),
        "?reference=order-1".to_owned(),
        "?chain=btc&asset=BTC&state=credited&merchant=shop".to_owned(),
        format!("?address={D1}"),
        format!("?address={}", D1.to_uppercase()),
    ] {
        assert_eq!(deposits(&shop, &query), ours, "{query}");
    }
    assert_eq!(deposits(&shop, &format!("?address={D2}")), []);
    assert_eq!(
        shop.get("/v1/deposits?merchant=other").problem(422).0,
        "unknown_merchant"
    );
    let operator = daemon.operator();
    assert_eq!(deposits(&operator, ""), [theirs.clone(), ours.clone()].concat());
    assert_eq!(deposits(&operator, "?merchant=other"), theirs);
    let page = operator.get("/v1/deposits?limit=1").expect(200);
    let after = format!("?limit=1&after={}", page["next"].as_str().unwrap());
    assert_eq!(deposits(&operator, &after), ours);

    // One transaction pays both: each sees its own part of it, and who has none sees nothing.
    let paid_to = |client: &Client| {
        let told = client.get(&format!("/v1/tx/btc/{txid}")).expect(200);
        let outputs = told["outputs"].as_array().unwrap().clone();
        let words = outputs
            .iter()
            .map(|output| output["address"].as_str().unwrap().to_owned());
        words.collect::<Vec<_>>()
    };
    assert_eq!(paid_to(&shop), [D1]);
    assert_eq!(paid_to(&other), [D2]);
    assert_eq!(paid_to(&operator), [D1, D2]);
    let third = daemon.client("third", "all");
    assert_eq!(code(&third, &format!("/v1/tx/btc/{txid}"), 404), "not_found");

    let credits = shop.get("/v1/credits").expect(200);
    assert_eq!(credits["credits"].as_array().unwrap().len(), 1);
    assert_eq!(credits["credits"][0]["net_base"], "29000000");
    let balances = other.get("/v1/balances").expect(200);
    assert_eq!(balances["balances"].as_array().unwrap().len(), 1);
    assert_eq!(balances["balances"][0]["credited"], "0.00005");
    assert_eq!(
        operator.get("/v1/balances").expect(200)["balances"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn a_query_that_cannot_be_names_its_field() {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::start(&with_api(&node.stub));
    let shop = daemon.client("shop", "all");
    let no_scope = daemon.client("other", "events:read");
    assert_eq!(code(&no_scope, "/v1/deposits", 403), "scope_missing");
    for (query, status, problem, field) in [
        ("limit=0", 400, "invalid_query", "limit"),
        ("limit=1001", 400, "invalid_query", "limit"),
        ("limit=x", 400, "invalid_query", "limit"),
        ("after=x", 400, "invalid_query", "after"),
        ("state=paid", 400, "invalid_query", "state"),
        ("chian=btc", 400, "invalid_query", "chian"),
        ("chain=eth", 422, "unknown_chain", "chain"),
        ("merchant=other", 422, "unknown_merchant", "merchant"),
        ("asset=DOGE", 422, "unknown_asset", "asset"),
        ("txid=12", 422, "invalid_txid", "txid"),
        (
            "address=bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
            422,
            "wrong_network",
            "address",
        ),
        (
            "address=bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt081",
            422,
            "bad_address_checksum",
            "address",
        ),
    ] {
        let answer = shop.get(&format!("/v1/deposits?{query}"));
        let expected = (problem.to_owned(), Some(field.to_owned()));
        assert_eq!(answer.problem(status), expected, "{query}");
    }
    // What could have been meant stands there: no route lists it.
    for (query, known) in [("chain=eth", "one of btc"), ("asset=btc", "one of BTC")] {
        let told = shop.get(&format!("/v1/deposits?{query}")).expect(422);
        let detail = told["detail"].as_str().unwrap();
        assert!(detail.ends_with(known), "{detail}");
    }
}

#[test]
fn what_is_no_text_and_no_number_of_an_event_is_a_problem_too() {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::start(&with_api(&node.stub));
    let shop = daemon.client("shop", "all");
    for path in ["/v1/invoices/%FF", "/v1/tx/btc/%C3%28", "/%80"] {
        assert_eq!(shop.get(path).problem(404).0, "not_found", "{path}");
    }
    for path in ["/v1/invoices/%FF/cancel", "/v1/inbox/%FF"] {
        assert_eq!(shop.post(path, "key", "{}").problem(404).0, "not_found", "{path}");
    }
    // Escapes of text are text.
    shop.get("/v1/deposits?chain=btc").expect(200);
    assert_eq!(
        shop.get("/v1/tx/%62tc/00").problem(422).0,
        "invalid_txid",
        "the chain is known"
    );
    for list in ["events", "events/stream"] {
        let answer = shop.get(&format!("/v1/{list}?after=9223372036854775808"));
        let expected = ("invalid_query".to_owned(), Some("after".to_owned()));
        assert_eq!(answer.problem(400), expected, "{list}");
    }
    shop.get("/v1/events?after=9223372036854775807").expect(200);
}
