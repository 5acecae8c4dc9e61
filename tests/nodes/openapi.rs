//! `/openapi.json` as a foreign client takes it: schemathesis asks the running daemon all that the document
//! allows and much that it forbids, and holds every answer to it. Its settings say what is left out, and why.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::api::Client;
use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;
use crate::common::wait::{PATIENCE, wait_until};
use crate::foreign_webhooks::fetched;
use crate::pools::descriptor;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Far more addresses than the client takes, a source of webhooks, and requests without a limit.
fn setup(node: &RegtestNode, folder: &Path) -> Setup {
    let secret = folder.join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    Setup {
        api: "listen = \"127.0.0.1:0\"\nrate_per_second = 100000".to_owned(),
        tables: format!(
            "[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n\
             [[addresses]]\nname = \"shop\"\nchain = \"btc\"\npool = 1000\ndescriptor = {}\n\
             [[inbox]]\nsource = \"gateway\"\nverifier = \"hmac\"\nsecret_files = [{}]\n\
             effect = \"forward\"\nmerchant = \"shop\"\n[inbox.hmac]\nheader = \"X-Signature\"\n",
            json!(descriptor(node)),
            json!(secret.display().to_string()),
        ),
        ..Setup::for_node(node)
    }
}

#[track_caller]
fn invoice(client: &Client, reference: &str) -> Value {
    let body = json!({"asset": "BTC", "amount": "0.001", "reference": reference}).to_string();
    wait_until("an address is handed out", PATIENCE, || {
        let reply = client.post("/v1/invoices", reference, &body);
        (reply.status == 201).then(|| reply.json())
    })
}

/// A merchant who has some of everything; the payment of a settled invoice, and an endpoint.
fn trade(node: &RegtestNode, daemon: &Daemon, client: &Client) -> (String, String) {
    let url = "http://127.0.0.1:9/hook";
    let endpoint = daemon.json(&["endpoint", "add", url, "--merchant", "shop"]);
    let [paid, late, _] = ["order-1", "order-2", "order-3"].map(|order| invoice(client, order));
    let id = |invoice: &Value| invoice["id"].as_str().unwrap().to_owned();
    let cancel = format!("/v1/invoices/{}/cancel", id(&late));
    client.post(&cancel, "order-2", "{}").expect(200);
    let payment = node.payment(paid["address"].as_str().unwrap(), 100_000);
    node.generateblock(&[&payment.hex]);
    node.mine(2);
    daemon.wait_invoice(&id(&paid), "settled", "paid");
    let endpoint = endpoint["endpoint"]["id"].as_str();
    (payment.txid, endpoint.unwrap().to_owned())
}

#[test]
fn a_foreign_client_finds_the_server_as_its_document_describes_it() {
    let node = RegtestNode::start();
    node.fund();
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&setup(&node, folder.path()));
    let client = daemon.client("shop", "all");
    daemon.wait_height(node.height());
    let (paid, endpoint) = trade(&node, &daemon, &client);
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nodes/schemathesis");
    for file in ["schemathesis.toml", "hooks.py"] {
        std::fs::copy(ours.join(file), folder.path().join(file)).unwrap();
    }
    let document = format!("http://127.0.0.1:{}/openapi.json", client.port);
    let output = Command::new(fetched("SCHEMATHESIS_EXE", "schemathesis/bin/schemathesis"))
        .args(["run", "--no-color", &document])
        .current_dir(folder.path())
        .env("API_KEY", &client.key)
        .env("ENDPOINT", endpoint)
        .env("INBOX_SECRET", SECRET)
        .env("PAID_TXID", paid)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // It came to answers, and not only to refusals.
    let made = daemon.count("SELECT count(*) FROM invoices");
    assert!(made > 10, "{made} invoices\n{said}");
    daemon.assert_sound();
}
