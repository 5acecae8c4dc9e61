//! Invoices on a sandbox, with the config that it writes: addresses are derived twice, paid and credited.

use std::net::{Ipv4Addr, SocketAddr};

use creditd::clock::Clock;
use creditd::sandbox::service::{Service, Settings};
use serde_json::{Value, json};

use crate::common::daemon::{Daemon, Setup};
use crate::common::http;
use crate::common::wait::{PATIENCE, wait_until};

/// A daemon with the sandbox's own config, but for its ports.
fn beside(service: &Service) -> Daemon {
    let mut daemon = Daemon::prepare(&Setup::for_evm(""));
    let (head, tables) = (
        "[ops]\nlisten = \"off\"\n[api]\nlisten = \"127.0.0.1:0\"\n",
        service.config(),
    );
    let (first, rest) = tables.split_once("\n\n").unwrap();
    std::fs::write(daemon.config_file(), format!("{first}\n\n{head}\n{rest}")).unwrap();
    daemon.json(&["check"]);
    daemon.start_again();
    daemon
}

fn trigger(service: &Service, chain: &str, verb: &str, body: &Value) {
    let port = service.url().rsplit_once(':').unwrap().1.parse().unwrap();
    let request = http::Request {
        verb: "POST".to_owned(),
        path: format!("/v1/{chain}/{verb}"),
        authorization: None,
        body: body.to_string().into_bytes(),
    };
    let (status, _, answer) = http::forward(port, &request, "nobody:").unwrap();
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn invoices_are_made_paid_and_credited_on_a_sandbox() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        folder: folder.path().to_owned(),
        control: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        bitcoin_port: 0,
        evm_port: 0,
        block_every: None,
    };
    let service = Service::start(&settings, Clock::real()).unwrap();
    let daemon = beside(&service);
    let client = daemon.client("shop", "invoice:write,invoice:read");
    for (chain, asset, amount) in [
        ("btc", "BTC", "0.29"),
        ("evm", "ETH", "1.5"),
        ("evm", "TUSD", "5"),
    ] {
        let body = json!({"asset": asset, "amount": amount, "expires_in": 86_400}).to_string();
        let made = wait_until("an address is handed out", PATIENCE, || {
            let reply = client.post("/v1/invoices", asset, &body);
            assert!([201, 503].contains(&reply.status), "{reply:?}");
            (reply.status == 201).then(|| reply.json())
        });
        let token = (asset == "TUSD").then_some(asset);
        let pay = json!({"to": made["address"], "amount": amount, "token": token});
        trigger(&service, chain, "deposit", &pay);
        trigger(&service, chain, "mine", &json!({"blocks": 3}));
        daemon.wait_invoice(made["id"].as_str().unwrap(), "settled", "paid");
    }
    assert_eq!(daemon.credits().len(), 3);
    let pools = daemon.json(&["addresses", "status"]);
    assert_eq!(pools["pools"][0]["trouble"], Value::Null, "{pools}");
    daemon.assert_sound();
}
