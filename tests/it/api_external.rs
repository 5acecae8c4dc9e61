//! What another provider told of, as the API shows it, and what it takes nothing away from.

use crate::common::api::{Client, fill_pool, with_api};
use crate::common::daemon::Daemon;
use crate::common::fake_chain::FakeNode;
use crate::common::wait::{PATIENCE, wait_until};
use crate::inbox::{SECRET, SOURCES, signed};
use serde_json::{Value, json};

/// A daemon whose merchant was credited 0.5 BTC on the word of the source `btcpay`.
fn credited() -> (Daemon, FakeNode) {
    let node = FakeNode::regtest(1);
    let mut setup = with_api(&node.stub);
    setup.tables = SOURCES.to_owned();
    let mut daemon = Daemon::prepare(&setup);
    std::fs::write(daemon.database().with_file_name("secret"), SECRET).unwrap();
    daemon.start_again();
    daemon.wait_height(1);
    let body = json!({"type": "InvoicePaymentSettled", "storeId": "S", "deliveryId": "d1", "invoiceId": "i1",
                      "payment": {"id": "lightning-1", "value": "0.5"}})
    .to_string();
    let headers = signed("btcpay", &body, 0);
    let sender = Client {
        port: daemon.api_port(),
        key: String::new(),
    };
    let headers = [(headers[0].0.as_str(), headers[0].1.as_str())];
    sender
        .send("POST", "/v1/inbox/btcpay", &headers, &body)
        .expect(200);
    wait_until("it is credited", PATIENCE, || {
        (daemon.count("SELECT count(*) FROM credits") == 1).then_some(())
    });
    (daemon, node)
}

#[test]
fn a_credit_of_another_provider_names_its_chain() {
    let (daemon, _node) = credited();
    let shop = daemon.client("shop", "all");
    let credits =
        |query: &str| -> Value { shop.get(&format!("/v1/credits{query}")).expect(200)["credits"].clone() };
    let all = credits("");
    assert_eq!(
        (&all[0]["chain"], &all[0]["amount"]),
        (&json!("ext:btcpay"), &json!("0.5"))
    );
    assert_eq!(credits("?chain=ext:btcpay"), all);
    assert_eq!(credits("?chain=btc"), json!([]));
    let balances = shop.get("/v1/balances").expect(200)["balances"].clone();
    assert_eq!(balances[0]["chain"], "ext:btcpay");
    // It is no chain that anything can be paid on.
    let body = r#"{"chain":"ext:btcpay"}"#;
    assert_eq!(
        shop.post("/v1/addresses", "a", body).problem(422).0,
        "unknown_chain"
    );
}

#[test]
fn a_symbol_goes_on_naming_what_can_be_paid_when_a_provider_credits_in_it_too() {
    let (daemon, _node) = credited();
    fill_pool(&daemon, 5);
    let shop = daemon.client("shop", "all");
    let made = shop
        .post("/v1/invoices", "i", r#"{"asset":"BTC","amount":"1"}"#)
        .expect(201);
    assert!(made["chain"].as_str().unwrap().starts_with("bip122:"), "{made}");
}
