//! Addresses to hand out, from the config to a paid invoice, beside a real bitcoind.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::common::anvil::AnvilNode;
use crate::common::api::Client;
use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;
use crate::common::stub::{Call, Reply, StubNode};
use crate::common::wait::{PATIENCE, wait_until};

/// A descriptor that the node's own wallet receives on, as it tells it to others.
pub fn descriptor(node: &RegtestNode) -> String {
    let listed = node.call("listdescriptors", &[]);
    let all = listed["descriptors"].as_array().unwrap();
    let of =
        |entry: &&Value| entry["internal"] == false && entry["desc"].as_str().unwrap().starts_with("wpkh(");
    all.iter().find(of).unwrap()["desc"].as_str().unwrap().to_owned()
}

fn setup(url: String, cookie: PathBuf, source: &str) -> Setup {
    Setup {
        api: "listen = \"127.0.0.1:0\"".to_owned(),
        tables: format!("[[addresses]]\nname = \"shop\"\nchain = \"btc\"\npool = 20\n{source}\n"),
        ..Setup::new(url, cookie)
    }
}

fn derived(node: &RegtestNode, descriptor: &str) -> Setup {
    setup(
        node.url(),
        node.cookie_file(),
        &format!("descriptor = {}", json!(descriptor)),
    )
}

fn merchant(daemon: &Daemon) -> Client {
    daemon.client("shop", "invoice:write,invoice:read")
}

/// Asks for an invoice until there is an address for it.
#[track_caller]
fn invoice(client: &Client, key: &str, amount: &str) -> Value {
    let body = json!({"asset": "BTC", "amount": amount}).to_string();
    wait_until("an address is handed out", PATIENCE, || {
        let reply = client.post("/v1/invoices", key, &body);
        // Until the pool is filled.
        assert!([201, 503].contains(&reply.status), "{reply:?}");
        (reply.status == 201).then(|| reply.json())
    })
}

/// Asks for an invoice until there is none for this reason.
#[track_caller]
fn refused_because(client: &Client, reason: &str) {
    let body = json!({"asset": "BTC", "amount": "1"}).to_string();
    wait_until(reason, PATIENCE, || {
        let reply = client.post("/v1/invoices", "refused", &body);
        assert_eq!(reply.status, 503, "{reply:?}");
        reply.body.contains(reason).then_some(())
    });
}

fn is_of_wallet(node: &RegtestNode, address: &Value) -> bool {
    node.call("getaddressinfo", std::slice::from_ref(address))["ismine"] == true
}

#[test]
fn addresses_of_the_nodes_own_wallet_are_handed_out_once_each_and_paid() {
    let node = RegtestNode::start();
    node.fund();
    let mut daemon = Daemon::start(&derived(&node, &descriptor(&node)));
    let mut client = merchant(&daemon);
    let first = invoice(&client, "one", "0.01");
    let mut handed_out = BTreeSet::from([first["address"].to_string()]);
    assert!(is_of_wallet(&node, &first["address"]), "{first}");
    // More than are kept ready at a time.
    for number in 0..30 {
        let next = invoice(&client, &format!("more-{number}"), "0.5");
        assert!(is_of_wallet(&node, &next["address"]), "{next}");
        assert!(handed_out.insert(next["address"].to_string()), "{next}");
    }
    let (coin, change) = (node.coin(), node.new_address());
    let address = first["address"].as_str().unwrap();
    let rest = coin.sat - 1_001_000;
    let paid = node.spend(&[&coin], &[(address, 1_000_000), (&change, rest)]);
    node.generateblock(&[&paid.hex]);
    node.mine(2);
    daemon.wait_invoice(first["id"].as_str().unwrap(), "settled", "paid");
    for is_clean in [true, false] {
        match is_clean {
            true => daemon.stop(),
            false => daemon.kill9(),
        }
        daemon.start_again();
        client.port = daemon.api_port();
        let next = invoice(&client, &format!("after-{is_clean}"), "0.5");
        assert!(is_of_wallet(&node, &next["address"]), "{next}");
        assert!(handed_out.insert(next["address"].to_string()), "{next}");
    }
    daemon.assert_sound();
}

#[test]
fn nothing_is_handed_out_that_the_node_has_not_derived_too() {
    let node = RegtestNode::start();
    node.fund();
    let other = node.new_address();
    let stub = StubNode::in_front_of(&node);
    let answer = move |call: &Call| {
        (call.method == "deriveaddresses").then(|| {
            let range = call.params[1].as_array().unwrap();
            let count = range[1].as_u64().unwrap() - range[0].as_u64().unwrap() + 1;
            Reply::Result(json!(vec![other.clone(); usize::try_from(count).unwrap()]))
        })
    };
    stub.handle(answer);
    let source = format!("descriptor = {}", json!(descriptor(&node)));
    let daemon = Daemon::start(&setup(stub.url(), stub.cookie_file(), &source));
    let client = merchant(&daemon);
    refused_because(&client, "two derivations of the indexes from 0 on differ");
    // A node that cannot be asked is no second opinion either.
    stub.handle(|call| (call.method == "deriveaddresses").then_some(Reply::Error(-1, "no wallets today")));
    refused_because(&client, "no wallets today");
    stub.handle(|_| None);
    let made = invoice(&client, "now", "1");
    assert!(is_of_wallet(&node, &made["address"]), "{made}");
}

#[test]
fn another_descriptor_under_a_name_hands_out_nothing_and_another_name_goes_on() {
    let node = RegtestNode::start();
    node.fund();
    let own = descriptor(&node);
    let mut daemon = Daemon::start(&derived(&node, &own));
    let mut client = merchant(&daemon);
    let first = invoice(&client, "one", "1");
    daemon.stop();
    // The branch of the wallet's change: other addresses.
    let body = own.split('#').next().unwrap();
    let changed = body.replace("/0/*", "/1/*");
    assert_ne!(changed, body);
    daemon.write_config(&derived(&node, &changed));
    daemon.start_again();
    client.port = daemon.api_port();
    refused_because(&client, "an operator must look (`creditd addresses status`)");
    let told = "the addresses \"shop\" are not handed out: the config has others under this name";
    assert!(daemon.log().contains(told), "it is told in the log");
    daemon.stop();
    // The right ones under another name: they go on where they were.
    let mut renamed = derived(&node, &own);
    renamed.tables = renamed.tables.replace("name = \"shop\"", "name = \"till\"");
    daemon.write_config(&renamed);
    daemon.start_again();
    client.port = daemon.api_port();
    let second = invoice(&client, "two", "1");
    assert_ne!(second["address"], first["address"]);
    assert!(is_of_wallet(&node, &second["address"]), "{second}");
}

#[test]
fn a_list_is_handed_out_in_its_order_and_may_only_grow_at_its_end() {
    let node = RegtestNode::start();
    node.fund();
    let addresses: Vec<String> = (0..4).map(|_| node.new_address()).collect();
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("addresses.txt");
    let write = |lines: &[String]| std::fs::write(&list, lines.join("\n")).unwrap();
    write(&addresses[..2]);
    let source = format!("list_file = {}", json!(list.to_str().unwrap()));
    let mut daemon = Daemon::start(&setup(node.url(), node.cookie_file(), &source));
    let client = merchant(&daemon);
    for (place, address) in addresses[..2].iter().enumerate() {
        let made = invoice(&client, &format!("at-{place}"), "1");
        assert_eq!(made["address"], json!(address));
    }
    refused_because(&client, "the list has no more addresses");
    write(&[&addresses[..1], &addresses[2..]].concat());
    refused_because(
        &client,
        "the address at place 2 of the list is another one than before",
    );
    write(&addresses);
    assert_eq!(invoice(&client, "third", "1")["address"], json!(addresses[2]));
    daemon.stop();
    daemon.assert_sound();
}

/// The account of BIP 44 for the test words "abandon ... about", and its first address: those of every
/// wallet.
pub const EVM_ACCOUNT: &str = "xpub6DCoCpSuQZB2jawqnGMEPS63ePKWkwWPH4TU45Q7LPXWuNd8TMtVxRrgjtEshuqpK3mdhaWHPF\
     sBngh5GFZaM6si3yZdUsT8ddYM3PwnATt";
const EVM_FIRST: &str = "0x9858EfFD232B4033E47d90003D41EC34EcaEda94";

/// Two chains, one pool: an address is watched on both, whichever the invoice is for.
#[test]
fn an_evm_address_is_watched_on_every_evm_chain_and_paid() {
    let (one, two) = (AnvilNode::start(31_901), AnvilNode::start(31_902));
    let chain = |alias: &str, node: &AnvilNode| {
        format!(
            "[[evm]]\nalias = \"{alias}\"\nchain_id = {}\ninstance = \"test\"\npoll_ms = 50\n\
             [[evm.endpoint]]\nname = \"own\"\nurl = \"{}\"\n\
             [evm.native]\nsymbol = \"ETH\"\ninner = \"none\"\n\
             policy = [ {{ confirmations = 2 }} ]\n\n",
            node.chain_id(),
            node.url()
        )
    };
    let tables = format!(
        "{}{}[[addresses]]\nname = \"evm\"\nchain = \"evm\"\npool = 5\n\
         xpub = \"{EVM_ACCOUNT}\"\n",
        chain("one", &one),
        chain("two", &two)
    );
    let daemon = Daemon::start(&Setup {
        api: "listen = \"127.0.0.1:0\"".to_owned(),
        ..Setup::for_evm(tables)
    });
    let client = merchant(&daemon);
    for alias in ["one", "two"] {
        wait_until("the chain is followed", PATIENCE, || {
            (daemon.chain(alias)?["state"] == "following").then_some(())
        });
    }
    let body = json!({"chain": "two", "asset": "ETH", "amount": "0.5"}).to_string();
    let made = wait_until("an address is handed out", PATIENCE, || {
        let reply = client.post("/v1/invoices", "evm", &body);
        assert!([201, 503].contains(&reply.status), "{reply:?}");
        (reply.status == 201).then(|| reply.json())
    });
    assert_eq!(made["address"], EVM_FIRST);
    for node in [&one, &two] {
        let tx = json!([{"from": node.account(0), "to": EVM_FIRST, "value": "0x6f05b59d3b20000"}]);
        node.call("eth_sendTransaction", tx);
        node.mine(2);
    }
    // What came on the chain that was not asked for is credited too, and is nobody's invoice.
    daemon.wait_for("both are credited", &["credits"], |listed| {
        (listed["credits"].as_array()?.len() == 2).then_some(())
    });
    daemon.wait_invoice(made["id"].as_str().unwrap(), "settled", "paid");
}
