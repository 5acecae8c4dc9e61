//! `creditd drill` beside real nodes, and a daemon that goes on meanwhile.

use std::process::{Output, Stdio};

use creditd::clock::Clock;
use creditd::store::{Database, Effect, NewInbox, OpenMode};
use serde_json::{Value, json};

use crate::restores::Market;

/// Runs the drill, and lets both chains go on until it has ended.
fn drill(market: &Market, args: &[&str]) -> Output {
    let all = [&["drill", "--json"], args].concat();
    let mut command = market.daemon.command(&all);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        // What is pending stays so.
        market.bitcoin.generateblock(&[]);
        market.anvil.mine(1);
    }
    child.wait_with_output().unwrap()
}

#[track_caller]
fn report(output: &Output, code: i32) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{stdout}{stderr}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"))
}

fn send(market: &Market, to: &Value, wei: &str) {
    let transfer = json!([{"from": market.anvil.account(0), "to": to, "value": wei}]);
    market.anvil.call("eth_sendTransaction", transfer);
}

/// Payments on both chains, a reorg on each, a restored backup, and a payment that is pending.
fn live_through(market: &mut Market) {
    let first = market.invoice("first", "BTC", "0.01");
    let paid = market.pay(&first["address"], 1_000_000);
    let root = market.bitcoin.height();
    market.bitcoin.generateblock(&[&paid]);
    market.bitcoin.mine(2);
    let id = |invoice: &Value| invoice["id"].as_str().unwrap().to_owned();
    market.daemon.wait_invoice(&id(&first), "settled", "paid");
    let copy = market.back_up("early.db");
    // Away for good, and in again, higher up.
    market.bitcoin.invalidate(&market.bitcoin.block_hash(root + 1));
    for _ in 0..4 {
        market.bitcoin.generateblock(&[]);
    }
    market.daemon.wait_height(root + 4);
    market.bitcoin.generateblock(&[&paid]);
    market.bitcoin.mine(3);
    let second = market.invoice("second", "ETH", "0.5");
    send(market, &second["address"], "0x6f05b59d3b20000");
    market.anvil.mine(1);
    market.anvil.reorg(1, &[]);
    market.anvil.mine(2);
    send(market, &second["address"], "0x6f05b59d3b20000");
    market.anvil.mine(3);
    market.daemon.wait_invoice(&id(&second), "settled", "paid");
    market.wait_delivered();
    market.put_in_place(&copy);
    market.start();
    market.wait_restored();
    let third = market.invoice("third", "BTC", "0.02");
    let (coin, change) = (market.bitcoin.coin(), market.bitcoin.new_address());
    let to = third["address"].as_str().unwrap();
    let rest = coin.sat - 2_001_000;
    let pending = market
        .bitcoin
        .spend(&[&coin], &[(to, 2_000_000), (&change, rest)]);
    market.bitcoin.broadcast(&pending);
    market.daemon.wait_deposit(&pending.txid, 0, "seen");
    market.wait_delivered();
}

/// Two webhooks of another service, one of them done.
fn take_in(market: &Market) {
    let mut database = Database::open(&market.daemon.database(), OpenMode::Write).unwrap();
    let id = |event: &str| creditd::rules::ids::inbox_id("gateway", event);
    let taken = database.write(Clock::real().now_ms(), |tx| {
        for event in ["evt_1", "evt_2"] {
            tx.receive_inbox(&NewInbox {
                source: "gateway".to_owned(),
                event_id: event.to_owned(),
                fingerprint: [7; 32],
                body: b"{}".to_vec(),
            })?;
        }
        tx.park_inbox(&id("evt_1"), "a test")?;
        tx.settle_inbox(&id("evt_2"), &Effect::Nothing("a test".to_owned()))
    });
    assert!(taken.unwrap());
}

#[test]
fn drill_beside_a_busy_daemon_changes_nothing() {
    let mut market = Market::open(31_921);
    live_through(&mut market);
    take_in(&market);
    let heard = market.receiver.heard().len();
    assert!(heard > 5);
    let report = report(&drill(&market, &[]), 0);
    assert_eq!(
        (&report["is_clean"], &report["is_complete"], &report["generation"]),
        (&json!(true), &json!(true), &json!(1)),
        "{report}"
    );
    let counts: Vec<(String, Value, bool)> = report["fed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fed| {
            let input = fed["input"].as_str().unwrap().to_owned();
            assert_eq!(fed["passes"], 3, "{fed}");
            (input, fed["chain"].clone(), fed["count"].as_u64().unwrap() > 0)
        })
        .collect();
    for (input, chain) in [
        ("blocks", json!("btc")),
        ("node", json!("btc")),
        ("mempool", json!("btc")),
        ("blocks", json!("eth")),
        ("node", json!("eth")),
        ("idempotency", Value::Null),
        ("inbox", Value::Null),
        ("jobs", Value::Null),
        ("deliveries", Value::Null),
        ("start", Value::Null),
    ] {
        assert!(
            counts.contains(&(input.to_owned(), chain.clone(), true)),
            "{input} {chain} in {counts:?}"
        );
    }
    market.daemon.stop();
    self::report(&drill(&market, &["--passes", "1"]), 0);
    assert_eq!(market.receiver.heard().len(), heard, "nobody is told by a drill");
    market.daemon.assert_sound();
}

#[test]
fn drill_restores_a_backup_of_both_chains_and_changes_nothing() {
    let mut market = Market::open(31_923);
    let [early, late] = ["early", "late"].map(|key| market.invoice(key, "ETH", "0.5"));
    let pay = |market: &Market, invoice: &Value| {
        send(market, &invoice["address"], "0x6f05b59d3b20000");
        market.anvil.mine(3);
        let id = invoice["id"].as_str().unwrap();
        market.daemon.wait_invoice(id, "settled", "paid");
    };
    pay(&market, &early);
    let copy = market.back_up("early.db");
    pay(&market, &late);
    let from_backup = ["--passes", "1", "--from-backup", copy.to_str().unwrap()];
    let restored = report(&drill(&market, &from_backup), 0);
    assert_eq!(restored["generation"], 1, "{restored}");
    for (alias, credits) in [("btc", 0), ("eth", 2)] {
        let mut chains = restored["restored"].as_array().unwrap().iter();
        let chain = chains.find(|chain| chain["chain"] == alias).unwrap();
        assert_eq!(
            (&chain["is_done"], &chain["credits_told"]),
            (&json!(true), &json!(credits)),
            "{restored}"
        );
    }
    let settled = restored["settled"].as_array().unwrap();
    let credits = settled.iter().find(|settled| settled["table"] == "credits");
    assert_eq!(credits.unwrap()["rows"], 1, "{restored}");
    assert_eq!(market.daemon.credits().len(), 2, "production was not touched");
}

#[test]
fn drill_finds_what_a_rule_lowered_by_hand_would_credit() {
    let market = Market::open(31_922);
    let late = json!("0x00000000000000000000000000000000000d0e11");
    send(&market, &late, "0xde0b6b3a7640000");
    market.anvil.mine(3);
    market.daemon.wait_height_of("eth", market.anvil.height());
    let watch = [
        "watch",
        "add",
        late.as_str().unwrap(),
        "--chain",
        "eth",
        "--merchant",
        "shop",
    ];
    market.daemon.json(&watch);
    market.anvil.mine(3);
    market.daemon.wait_height_of("eth", market.anvil.height());
    report(&drill(&market, &["--passes", "1"]), 0);
    let mine = rusqlite::Connection::open(market.daemon.database()).unwrap();
    let lower = "UPDATE addresses SET from_height = 0 WHERE hex(script) LIKE '%000D0E11'";
    assert_eq!(mine.execute(lower, []).unwrap(), 1);
    drop(mine);
    let found = report(&drill(&market, &["--passes", "1"]), 1);
    let credits: Vec<&Value> = found["changed"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|change| change["table"] == "credits")
        .collect();
    assert_eq!(credits.len(), 1, "{found}");
    assert_eq!(
        (&credits[0]["input"], &credits[0]["chain"]),
        (&json!("blocks"), &json!("eth"))
    );
    assert!(
        credits[0]["is"]
            .as_str()
            .unwrap()
            .contains("amount=1000000000000000000")
    );
    assert_eq!(market.daemon.credits().len(), 0, "production was not touched");
}
