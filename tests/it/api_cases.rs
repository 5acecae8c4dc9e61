//! What goes wrong with amounts, addresses and URLs, asked for by a merchant's program.

use creditd::clock::Clock;
use creditd::sandbox::evm::{Address, EvmSandbox, Token, U256};
use serde_json::json;

use crate::common::api::{Client, fill_pool, with_api};
use crate::common::asks::{D1, D3};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::FakeNode;
use crate::common::wait::{PATIENCE, wait_until};
use crate::sample_evm::E1;

const TUSD: &str = "0xdddddddddddddddddddddddddddddddddddddddd";

fn at(text: &str) -> Address {
    Address::from_hex(&text.to_lowercase()).unwrap()
}

/// `btc`, and an EVM chain `dev` with a token of 6 decimals, whose only address to hand out is `E1`.
fn on_both(node: &FakeNode) -> (Daemon, EvmSandbox, Client) {
    let evm = EvmSandbox::start(31_337, Clock::real()).unwrap();
    let token = Token {
        decimals: 6,
        symbol: "TUSD".to_owned(),
    };
    evm.set_token(at(TUSD), token);
    let tables = format!(
        "[[evm]]\nalias = \"dev\"\nchain_id = 31337\ninstance = \"test\"\npoll_ms = 20\npending_ms = 50\n\
         [[evm.endpoint]]\nname = \"own\"\nurl = \"{}\"\n\
         [evm.native]\nsymbol = \"ETH\"\ninner = \"none\"\npolicy = [ {{ confirmations = 2 }} ]\n\
         [[evm.token]]\ncontract = \"{TUSD}\"\nsymbol = \"TUSD\"\ndecimals = 6\n\
         policy = [ {{ confirmations = 2 }} ]\n\
         [[addresses]]\nname = \"evm\"\nchain = \"evm\"\nlist_file = \"addresses\"\n",
        evm.url()
    );
    let setup = Setup {
        tables,
        ..with_api(&node.stub)
    };
    let mut daemon = Daemon::prepare(&setup);
    std::fs::write(daemon.folder().join("addresses"), E1.to_lowercase()).unwrap();
    daemon.start_again();
    for alias in ["btc", "dev"] {
        wait_until("both chains are followed", PATIENCE, || {
            (daemon.chain(alias)?["state"] == "following").then_some(())
        });
    }
    let shop = daemon.client("shop", "all");
    (daemon, evm, shop)
}

#[test]
fn c18_more_digits_than_a_token_has_are_refused_and_never_rounded() {
    let node = FakeNode::regtest(1);
    let (daemon, _evm, shop) = on_both(&node);
    let post = |key: &str, amount: &str| {
        let body = json!({"asset": "TUSD", "amount": amount}).to_string();
        shop.post("/v1/invoices", key, &body)
    };
    let too_precise = ("amount_too_precise".to_owned(), Some("amount".to_owned()));
    assert_eq!(post("seven", "10.1234567").problem(422), too_precise);
    // A zero that says nothing is a digit too many all the same.
    assert_eq!(post("zero", "10.1234560").problem(422), too_precise);
    let body = json!({"asset": "TUSD", "amount": "10", "tolerance": "0.0000001"}).to_string();
    let tolerance = shop.post("/v1/invoices", "tolerance", &body).problem(422);
    assert_eq!(tolerance.1.as_deref(), Some("tolerance"));
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), 0);
    let made = wait_until("the address is in the pool", PATIENCE, || {
        let reply = post("six", "10.123456");
        (reply.status != 503).then_some(reply)
    });
    let made = made.expect(201);
    assert_eq!(
        (&made["amount_base"], &made["amount"]),
        (&json!("10123456"), &json!("10.123456"))
    );
}

#[test]
fn c23_every_right_spelling_finds_an_address_and_wrong_ones_are_422() {
    let node = FakeNode::regtest(1);
    let (daemon, evm, shop) = on_both(&node);
    for address in [D1, D3] {
        daemon.json(&["watch", "add", address, "--merchant", "shop", "--chain", "btc"]);
    }
    // The token's contract in other letters is the same asset; what is handed out has its one spelling.
    let body = json!({"asset": TUSD.to_uppercase().replace("0X", "0x"), "amount": "1"}).to_string();
    let made = wait_until("the address is in the pool", PATIENCE, || {
        let reply = shop.post("/v1/invoices", "one", &body);
        (reply.status != 503).then_some(reply)
    });
    let made = made.expect(201);
    assert_eq!((&made["address"], &made["symbol"]), (&json!(E1), &json!("TUSD")));
    evm.pay(at(E1), U256::from(5_u64)).unwrap();
    evm.mine(3).unwrap();
    daemon.wait_for("the payment is credited", &["credits"], |listed| {
        (listed["credits"].as_array()?.len() == 1).then_some(())
    });
    let upper = E1.to_uppercase().replace("0X", "0x");
    for spelling in [E1, &E1.to_lowercase(), &upper] {
        let found = shop.get(&format!("/v1/deposits?address={spelling}")).expect(200);
        let found = found["deposits"].as_array().unwrap().clone();
        assert_eq!(found.len(), 1, "{spelling}");
        assert_eq!(found[0]["address"], E1, "{spelling}");
    }
    for spelling in [D1, &D1.to_uppercase(), D3] {
        shop.get(&format!("/v1/deposits?address={spelling}")).expect(200);
    }
    for (spelling, code) in [
        (E1.replacen("5aA", "5aa", 1), "bad_address_checksum"),
        (E1.replacen("7Ef1", "7ef1", 1), "bad_address_checksum"),
        (D1.replace("qw508", "QW508"), "mixed_case_address"),
        (D3.to_lowercase(), "bad_address_checksum"),
        (D1.replacen("w508", "w509", 1), "bad_address_checksum"),
    ] {
        let refused = shop.get(&format!("/v1/deposits?address={spelling}")).problem(422);
        assert_eq!(
            refused,
            (code.to_owned(), Some("address".to_owned())),
            "{spelling}"
        );
    }
}

#[test]
fn c33_an_amount_is_a_plain_decimal_text_and_nothing_else() {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::start(&with_api(&node.stub));
    daemon.wait_height(1);
    fill_pool(&daemon, 20);
    let shop = daemon.client("shop", "all");
    let post = |key: &str, field: &str, amount: &str| {
        let body = format!(r#"{{"asset":"BTC","amount":"1","{field}":{amount}}}"#);
        let body = match field {
            "amount" => format!(r#"{{"asset":"BTC","amount":{amount}}}"#),
            _ => body,
        };
        shop.post("/v1/invoices", key, &body)
    };
    for (amount, base) in [
        ("0.29", "29000000"),
        ("1.15", "115000000"),
        ("0.57", "57000000"),
        ("4.35", "435000000"),
        ("16.40", "1640000000"),
        ("0.00000059", "59"),
        ("20999999.97690000", "2099999997690000"),
    ] {
        let made = post(amount, "amount", &format!("\"{amount}\"")).expect(201);
        assert_eq!(made["amount_base"], base, "{amount}");
    }
    let made = daemon.count("SELECT count(*) FROM invoices");
    for amount in [
        "0.29",
        "29",
        "1e-8",
        "null",
        "[]",
        "{}",
        "true",
        r#""1e-8""#,
        r#""0.000000001""#,
        r#""-1""#,
        r#""+1""#,
        r#""0""#,
        r#""0.0""#,
        r#""NaN""#,
        r#""Infinity""#,
        r#"" 1""#,
        r#""1 ""#,
        r#""1,5""#,
        r#""00.1""#,
        r#""01""#,
        r#""1.""#,
        r#"".5""#,
        r#""""#,
        r#""0x10""#,
        r#""1_000""#,
        "\"\u{0663}\"",
        r#""1157920892373161954235709850086879078532699846656405640394575840079131296399360""#,
    ] {
        let key = const_hex::encode(amount);
        let (_, field) = post(&key, "amount", amount).problem(422);
        assert_eq!(field.as_deref(), Some("amount"), "{amount}");
        // Zero and null are right there: nothing less will do.
        if ![r#""0""#, r#""0.0""#, "null"].contains(&amount) {
            let (_, field) = post(&format!("t{key}"), "tolerance", amount).problem(422);
            assert_eq!(field.as_deref(), Some("tolerance"), "{amount}");
        }
    }
    assert_eq!(daemon.count("SELECT count(*) FROM invoices"), made);
}

#[test]
fn c39_urls_that_lead_inside_are_422_at_registration_and_nothing_is_stored() {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::start(&with_api(&node.stub));
    daemon.wait_height(1);
    fill_pool(&daemon, 5);
    let shop = daemon.client("shop", "all");
    let own_node = node.stub.url().replace("127.0.0.1", "localhost");
    let urls = [
        "http://169.254.169.254/",
        "https://169.254.169.254/latest/",
        "http://[::ffff:127.0.0.1]/",
        "https://[::ffff:127.0.0.1]/",
        "http://2130706433/",
        "https://2130706433/",
        "http://0x7f.1/",
        "https://0x7f.1/",
        "http://user:pw@example.test/",
        "https://user:pw@example.test/",
        "ftp://shop.example/",
        "file:///etc/passwd",
        "https://localhost/",
        "https://10.0.0.1/",
        "no url",
        "",
        &own_node,
    ];
    for url in urls {
        let endpoint = json!({"url": url}).to_string();
        let refused = shop.post("/v1/endpoints", &format!("e{url}").replace(' ', "-"), &endpoint);
        assert_eq!(
            refused.problem(422),
            ("url_refused".to_owned(), Some("url".to_owned())),
            "{url}"
        );
        let invoice = json!({"asset": "BTC", "amount": "1", "callback_url": url}).to_string();
        let refused = shop.post("/v1/invoices", &format!("i{url}").replace(' ', "-"), &invoice);
        let expected = ("url_refused".to_owned(), Some("callback_url".to_owned()));
        assert_eq!(refused.problem(422), expected, "{url}");
    }
    for table in ["endpoints", "invoices", "events"] {
        assert_eq!(
            daemon.count(&format!("SELECT count(*) FROM {table}")),
            0,
            "{table}"
        );
    }
}
