//! What a payer is given: the URI and the page of an invoice, as the API and the commands name them.

use serde_json::{Value, json};

use crate::common::api::{fill_pool, with_api};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;

#[test]
fn an_invoice_names_its_uri_and_page_and_stops_asking_when_it_is_over() {
    let node = FakeNode::regtest(1);
    let setup = Setup {
        api: "listen = \"127.0.0.1:0\"\npublic_url = \"https://pay.example/shop/\"".to_owned(),
        ..with_api(&node.stub)
    };
    let daemon = Daemon::start(&setup);
    daemon.wait_height(1);
    fill_pool(&daemon, 5);
    let shop = daemon.client("shop", "all");
    let body = r#"{"asset":"BTC","amount":"0.29","tolerance":"0.01","reference":"order 7"}"#;
    let made = shop.post("/v1/invoices", "k", body).expect(201);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (id, address) = (text(&made["id"]), text(&made["address"]));
    // All that is asked for, not what would do.
    let uri = json!(format!("bitcoin:{address}?amount=0.29&message=order%207"));
    let page = json!(format!("https://pay.example/shop/i/{}", text(&made["token"])));
    let path = format!("/v1/invoices/{id}");
    let listed = shop.get("/v1/invoices").expect(200)["invoices"][0].clone();
    let shown = daemon.json(&["invoices", "show", &id])["invoice"].clone();
    for invoice in [&made, &listed, &shop.get(&path).expect(200), &shown] {
        assert_eq!((&invoice["payment_uri"], &invoice["payment_url"]), (&uri, &page));
    }
    let told = String::from_utf8(daemon.cli(&["invoices", "show", &id]).stdout).unwrap();
    for part in [&uri, &page] {
        assert!(told.contains(part.as_str().unwrap()), "{told}");
    }
    let over = shop.post(&format!("{path}/cancel"), "c", "{}").expect(200);
    assert_eq!(
        (&over["payment_uri"], &over["payment_url"]),
        (&Value::Null, &page)
    );
}
