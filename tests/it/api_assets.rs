//! What can be asked for is what the config names: neither what other providers count in, nor what it named
//! once, is in the way; and nothing that another config would answer otherwise is kept under a key.

use serde_json::{Value, json};

use crate::common::api::{Client, Reply, fill_pool, with_api};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;
use crate::common::wait::{PATIENCE, wait_until};
use crate::inbox::{SECRET, SOURCES, signed};
use creditd::clock::Clock;
use creditd::sandbox::evm::{Address, EvmSandbox, Token};

/// Two contracts of one symbol: the later takes the place of the former.
const FORMER: &str = "0x00000000000000000000000000000000000000f1";
const LATER: &str = "0x00000000000000000000000000000000000000f2";

fn invoice(client: &Client, key: &str, body: &Value) -> Reply {
    client.post("/v1/invoices", key, &body.to_string())
}

/// A provider that tells of bitcoin makes no second bitcoin to ask for.
#[test]
fn an_external_credit_of_the_same_symbol_leaves_invoices_as_they_were() {
    let node = FakeNode::regtest(1);
    let mut setup = with_api(&node.stub);
    setup.tables = SOURCES.replace("asset = \"USD\"", "asset = \"BTC\"");
    let mut daemon = Daemon::prepare(&setup);
    std::fs::write(daemon.folder().join("secret"), SECRET).unwrap();
    daemon.start_again();
    daemon.wait_height(1);
    fill_pool(&daemon, 5);
    let shop = daemon.client("shop", "all");
    let event = r#"{"id":"evt_1","payment":"pay_1","amount":500}"#;
    let headers = signed("p1", event, Clock::real().now_ms() / 1_000);
    let headers = [(headers[0].0.as_str(), headers[0].1.as_str())];
    shop.send("POST", "/v1/inbox/p1", &headers, event).expect(200);
    let credit = wait_until("it is credited", PATIENCE, || {
        let credits = shop.get("/v1/credits").expect(200)["credits"].clone();
        credits.get(0).cloned()
    });
    // Where it stands has a name, by which it is found.
    assert_eq!(credit["chain"], "ext:p1");
    let balances = shop.get("/v1/balances").expect(200);
    assert_eq!(balances["balances"][0]["chain"], "ext:p1");
    let found = shop.get("/v1/credits?chain=ext:p1").expect(200);
    assert_eq!(found["credits"], json!([credit]));
    let found = shop.get("/v1/credits?chain=btc").expect(200);
    assert_eq!(found["credits"], json!([]));

    let made = invoice(&shop, "K", &json!({"asset": "BTC", "amount": "1"})).expect(201);
    assert!(made["chain"].as_str().unwrap().starts_with("bip122:"), "{made}");
    // Nobody can pay there.
    let unknown = ("unknown_chain".to_owned(), Some("chain".to_owned()));
    let there = json!({"chain": "ext:p1", "asset": "BTC", "amount": "1"});
    assert_eq!(invoice(&shop, "there", &there).problem(422), unknown);
    let address = shop.post("/v1/addresses", "there", r#"{"chain":"ext:p1"}"#);
    assert_eq!(address.problem(422), unknown);
    let by_id = invoice(&shop, "id", &json!({"asset": "ext:p1/BTC", "amount": "1"}));
    assert_eq!(by_id.problem(422).0, "unknown_asset");
}

/// `btc`, and the EVM chain `dev` with tokens: contract and symbol of each.
fn with_tokens(node: &FakeNode, evm: &EvmSandbox, tokens: &[(&str, &str)]) -> Setup {
    let mut tables = format!(
        "[[addresses]]\nname = \"evm\"\nchain = \"evm\"\nlist_file = \"addresses\"\n\
         [[evm]]\nalias = \"dev\"\nchain_id = 31337\ninstance = \"test\"\npoll_ms = 20\n\
         [[evm.endpoint]]\nname = \"own\"\nurl = \"{}\"\n\
         [evm.native]\nsymbol = \"ETH\"\ninner = \"none\"\npolicy = [ {{ confirmations = 2 }} ]\n",
        evm.url()
    );
    for (contract, symbol) in tokens {
        tables += &format!(
            "[[evm.token]]\ncontract = \"{contract}\"\nsymbol = \"{symbol}\"\ndecimals = 6\n\
             policy = [ {{ confirmations = 2 }} ]\n"
        );
    }
    Setup {
        tables,
        ..with_api(&node.stub)
    }
}

#[test]
fn what_the_config_names_no_more_is_not_asked_for_and_what_it_names_anew_is() {
    let node = FakeNode::regtest(1);
    let evm = EvmSandbox::start(31_337, Clock::real()).unwrap();
    for contract in [FORMER, LATER] {
        let contract = Address::from_hex(contract).unwrap();
        let token = Token {
            decimals: 6,
            symbol: "TUSD".to_owned(),
        };
        evm.set_token(contract, token);
    }
    let mut daemon = Daemon::prepare(&with_tokens(&node, &evm, &[(FORMER, "TUSD")]));
    let addresses: Vec<String> = (1..=9).map(|number| format!("0x{number:040x}")).collect();
    std::fs::write(daemon.folder().join("addresses"), addresses.join("\n")).unwrap();
    let settled = |daemon: &Daemon| {
        wait_until("the chain is followed", PATIENCE, || {
            (daemon.chain("dev")?["state"] == "following").then_some(())
        });
    };
    let made = |client: &Client, key: &str, body: &Value| {
        wait_until("an address is ready", PATIENCE, || {
            let reply = invoice(client, key, body);
            (reply.status != 503).then_some(reply)
        })
    };
    daemon.start_again();
    settled(&daemon);
    let shop = daemon.client("shop", "all");
    let dollars = json!({"asset": "TUSD", "amount": "1"});
    let first = made(&shop, "first", &dollars).expect(201);
    assert!(first["asset"].as_str().unwrap().ends_with("f1"), "{first}");
    let other = json!({"asset": "OUSD", "amount": "1"});
    assert_eq!(invoice(&shop, "later", &other).problem(422).0, "unknown_asset");

    // The token moves to another contract, and another one comes: what was refused is done now.
    daemon.stop();
    let third = "0x00000000000000000000000000000000000000f3";
    let contract = Address::from_hex(third).unwrap();
    let token = Token {
        decimals: 6,
        symbol: "OUSD".to_owned(),
    };
    evm.set_token(contract, token);
    let tokens = [(LATER, "TUSD"), (third, "OUSD")];
    daemon.write_config(&with_tokens(&node, &evm, &tokens));
    daemon.start_again();
    settled(&daemon);
    let shop = daemon.client_with(&shop.key);
    let second = made(&shop, "second", &dollars).expect(201);
    assert!(second["asset"].as_str().unwrap().ends_with("f2"), "{second}");
    made(&shop, "later", &other).expect(201);
    // The former one still names what was paid in it.
    shop.get(&format!("/v1/deposits?asset={FORMER}")).expect(200);
    let former = json!({"asset": FORMER, "amount": "1"});
    assert_eq!(invoice(&shop, "former", &former).problem(422).0, "unknown_asset");

    // Without the chain nobody would see a payment: nothing is asked for there, and none of it is kept.
    daemon.stop();
    daemon.write_config(&with_api(&node.stub));
    daemon.start_again();
    let shop = daemon.client_with(&shop.key);
    let unknown = ("unknown_asset".to_owned(), Some("asset".to_owned()));
    assert_eq!(invoice(&shop, "third", &dollars).problem(422), unknown);
    let address = shop.post("/v1/addresses", "third", r#"{"chain":"dev"}"#);
    assert_eq!(address.problem(422).0, "unknown_chain");
    daemon.stop();
    daemon.write_config(&with_tokens(&node, &evm, &tokens));
    daemon.start_again();
    settled(&daemon);
    let shop = daemon.client_with(&shop.key);
    made(&shop, "third", &dollars).expect(201);
    shop.post("/v1/addresses", "third", r#"{"chain":"dev"}"#)
        .expect(201);
}
