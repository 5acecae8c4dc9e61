//! The same against a real EVM node: coin, coin that a contract sends, a token, and what failed.

use serde_json::{Value, json};

use super::planted::{Spoilt, all_missed, kinds, sql};
use super::{AUDIT, assert_unchecked, audit, change};
use crate::common::anvil::{AnvilNode, quantity};
use crate::common::contracts::Token;
use crate::common::daemon::{Daemon, Setup};
use crate::common::evm::Splitter;
use crate::common::evm_proxy::EvmProxy;
use crate::common::evm_proxy::script::{Asked, Fault};

const E1: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
const E2: &str = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359";
const E3: &str = "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB";

fn setup(node: &AnvilNode, token: &Token) -> Setup {
    setup_at(&node.url(), node, token)
}

/// With a node that is asked at another place.
fn setup_at(url: &str, node: &AnvilNode, token: &Token) -> Setup {
    Setup::for_evm(format!(
        "{AUDIT}[[evm]]\nalias = \"dev\"\nchain_id = {}\ninstance = \"test\"\npoll_ms = 20\n\
         [[evm.endpoint]]\nname = \"own\"\nurl = \"{}\"\n\
         [evm.native]\nsymbol = \"ETH\"\ninner = \"traces\"\npolicy = [ {{ confirmations = 3 }} ]\n\
         [[evm.token]]\ncontract = \"{}\"\nsymbol = \"TUSD\"\ndecimals = 6\n\
         policy = [ {{ confirmations = 3 }} ]\n",
        node.chain_id(),
        url,
        token.address.to_lowercase()
    ))
}

fn watch(daemon: &Daemon, address: &str) {
    daemon.json(&["watch", "add", address, "--merchant", "shop"]);
}

fn wait_height(daemon: &Daemon, height: u64) {
    daemon.wait_for("the chain is followed", &["chain", "status"], |status| {
        let chain = &status["chains"][0];
        (chain["state"] == "following" && chain["height"].as_u64()? >= height).then_some(())
    });
}

fn wait_credited(daemon: &Daemon, count: usize) {
    daemon.wait_for("payments are credited", &["credits"], |answer| {
        (answer["credits"].as_array()?.len() == count).then_some(())
    });
}

/// What the SQL of a planted fault says beside the rows that it is about.
const ONE_MORE: &str = "UPDATE outputs SET amount = AMOUNT + 1 WHERE id = OUT; \
     UPDATE credits SET amount = AMOUNT + 1 WHERE output = OUT; \
     UPDATE events SET body = replace(body, AMOUNT, AMOUNT + 1) WHERE subject IN (DEP, CR);";

/// A shop that was paid in each way, and what it was paid by.
struct Paid {
    node: AnvilNode,
    token: Token,
    daemon: Daemon,
    coin: String,
    tokens: String,
    failed: String,
}

fn bare(txid: &str) -> String {
    txid.trim_start_matches("0x").to_owned()
}

fn paid() -> Paid {
    let node = AnvilNode::start(31_337);
    let payer = node.account(0);
    let token = Token::deploy(&node, "TUSD", 6);
    token.mint(&node, &payer, 1_000_000_000);
    let splitter = Splitter::deploy(&node);
    node.mine(1);
    let daemon = Daemon::start(&setup(&node, &token));
    wait_height(&daemon, node.height());
    for address in [E1, E2, E3] {
        watch(&daemon, address);
    }
    let coin = node.invoke(&payer, E1, "0x", 1_500);
    let tokens = token.transfer(&node, &payer, E1, 5_000_000);
    splitter.split(&node, &payer, &[(E1, 7_000), (E2, 8_000)], 15_000);
    node.refuse_coin_at(E3);
    let failed = node.invoke(&payer, E3, "0x", 2_500);
    node.mine(12);
    wait_credited(&daemon, 4);
    wait_height(&daemon, node.height());
    Paid {
        node,
        token,
        daemon,
        coin: bare(&coin),
        tokens: bare(&tokens),
        failed: bare(&failed),
    }
}

#[test]
fn evm_audit_of_a_sound_database_finds_nothing() {
    let paid = paid();
    let (answer, code) = audit(&paid.daemon, &[]);
    assert_eq!((&answer["found"], code), (&json!([]), 0), "{answer:#}");
    let chain = &answer["chains"][0];
    assert_eq!(
        (&chain["credits"]["checked"], &chain["credits"]["proven"]),
        (&json!(4), &json!(4))
    );
    assert!(chain["outputs"]["payments"].as_u64().unwrap() >= 3, "{chain:#}");
    assert_eq!(chain["not_looked_for"].as_array().unwrap().len(), 1, "{chain:#}");
}

#[test]
fn evm_audit_finds_each_planted_fault() {
    let Paid {
        node: _node,
        token: _,
        mut daemon,
        coin,
        tokens,
        failed,
    } = paid();
    daemon.stop();
    let mut missed = Vec::new();
    for (txid, amount) in [(&coin, 1_500), (&tokens, 5_000_000)] {
        let spoilt = Spoilt::of(&daemon, txid, &failed);
        let one_more = ONE_MORE
            .replace("AMOUNT + 1", &format!("'{}'", amount + 1))
            .replace("AMOUNT", &format!("'{amount}'"));
        let cases = [
            ("one more", one_more.as_str(), "other_content"),
            ("gone", sql("a payment that is gone"), "unbooked"),
            (
                "to somebody else",
                sql("the address of another order"),
                "other_content",
            ),
            ("said to be own coin", sql("said to be own coin"), "not_internal"),
        ];
        missed.extend(all_missed(&spoilt, "dev", &cases));
    }
    let spoilt = Spoilt::of(&daemon, &coin, &failed);
    let contract = bare(E3);
    let of_failed = format!(
        "{} UPDATE outputs SET amount = '2500', \
         address = (SELECT id FROM addresses WHERE script = X'{contract}') \
         WHERE id = 1000; UPDATE credits SET amount = '2500' WHERE output = 1000; \
         UPDATE events SET body = replace(body, '1500', '2500') WHERE subject IN (NEWDEP, NEWCR);",
        sql("an invented payment")
    );
    let cases = [
        ("a failed transaction", of_failed.as_str(), "not_successful"),
        ("another block", sql("another block at its height"), "other_block"),
    ];
    missed.extend(all_missed(&spoilt, "dev", &cases));
    let spoilt = Spoilt::of(&daemon, &tokens, "00".repeat(32).as_str());
    let other_asset = "UPDATE outputs SET asset = (SELECT id FROM assets WHERE contract IS NULL) \
         WHERE id = OUT; \
         UPDATE credits SET asset = (SELECT id FROM assets WHERE contract IS NULL) WHERE output = OUT; \
         UPDATE deposits SET asset = (SELECT id FROM assets WHERE contract IS NULL) WHERE output = OUT;";
    let cases = [
        ("another asset", other_asset, "other_content"),
        ("invented", sql("an invented payment"), "not_on_chain"),
        (
            "a credit that never was",
            sql("a credit that never was"),
            "overdue",
        ),
    ];
    missed.extend(all_missed(&spoilt, "dev", &cases));
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// What was paid, beside a stopped daemon and a node that may lack something.
fn paid_before_a_proxy() -> (Paid, EvmProxy) {
    let mut paid = paid();
    paid.daemon.stop();
    let proxy = EvmProxy::in_front_of(&paid.node.url());
    paid.daemon
        .write_config(&setup_at(&proxy.url(), &paid.node, &paid.token));
    (paid, proxy)
}

/// One block without receipts and one that is not there at all: they are named, in each answer until they can
/// be read, and the others are read.
#[test]
fn blocks_that_a_node_cannot_show_stop_no_pass() {
    let (paid, proxy) = paid_before_a_proxy();
    let tokens = json!([format!("0x{}", paid.tokens)]);
    let found = paid.node.call("eth_getTransactionReceipt", tokens.clone());
    let receipt = u64::try_from(quantity(&found["blockNumber"])).unwrap();
    let block = receipt + 3;
    proxy.always(
        Asked::with("eth_getTransactionReceipt", tokens),
        Fault::Result(Value::Null),
    );
    proxy.always(
        Asked::with("eth_getBlockByNumber", json!([format!("{block:#x}"), true])),
        Fault::Error(-32_000, "missing trie node"),
    );
    for _ in 0..2 {
        let (answer, code) = audit(&paid.daemon, &[]);
        assert_eq!((&answer["found"], code), (&json!([]), 2), "{answer:#}");
        let outputs = &answer["chains"][0]["outputs"];
        assert_eq!(outputs["to_height"], paid.node.height(), "{answer:#}");
        assert_eq!(outputs["unproven_count"], 2, "{answer:#}");
        for height in [receipt, block] {
            let name = format!("block {height}");
            let unproven = outputs["unproven"].as_array().unwrap().iter();
            let mut named = unproven.filter(|unproven| unproven["subject"] == name.as_str());
            assert!(named.next().is_some(), "{name}: {answer:#}");
        }
    }
    proxy.lift_all();
    let (answer, code) = audit(&paid.daemon, &[]);
    assert_eq!((&answer["found"], code), (&json!([]), 0), "{answer:#}");
    assert_eq!(answer["chains"][0]["outputs"]["unproven_count"], 0, "{answer:#}");
}

/// Whoever asks for what there is not is told that nothing was done.
#[test]
fn evm_has_no_set_of_unspent_coins_and_says_so() {
    let mut paid = paid();
    paid.daemon.stop();
    let found = audit(&paid.daemon, &["--unspent", "--chain", "dev"]);
    let unchecked = assert_unchecked(&found, "no_unspent_set");
    assert!(
        unchecked["what"].as_str().unwrap().contains("--unspent"),
        "{unchecked}"
    );
}

/// The same chain id and another first block: whatever it would give proves nothing of ours.
#[test]
fn a_node_of_another_first_block_is_asked_for_no_proof() {
    let mut paid = paid();
    paid.daemon.stop();
    let other = AnvilNode::start_with(31_337, &["--timestamp", "1700000000"]);
    let config = setup_at(&other.url(), &paid.node, &paid.token);
    paid.daemon.write_config(&config);
    let credits = paid.daemon.json(&["credits"]);
    let output = paid
        .daemon
        .cli(&["proof", credits["credits"][0]["id"].as_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("its first block is 0x"), "{stderr}");
}

/// Below the configured window and above what is final: as deep as the daemon itself goes along.
#[test]
fn evm_blocks_that_a_deep_reorg_replaced_are_read() {
    let node = AnvilNode::start(31_337);
    let payer = node.account(0);
    let token = Token::deploy(&node, "TUSD", 6);
    node.mine(1);
    let mut shallow = setup(&node, &token);
    shallow.tables = shallow
        .tables
        .replace("poll_ms = 20", "poll_ms = 20\nreorg_window = 6");
    let mut daemon = Daemon::start(&shallow);
    wait_height(&daemon, node.height());
    watch(&daemon, E1);
    node.mine(60);
    wait_height(&daemon, node.height());
    let (answer, code) = audit(&daemon, &[]);
    assert_eq!((&answer["found"], code), (&json!([]), 0), "{answer:#}");
    let payment = json!({ "from": payer, "to": E1, "value": "0x5dc" });
    node.reorg(40, &[(payment, 1)]);
    node.mine(3);
    wait_height(&daemon, node.height());
    wait_credited(&daemon, 1);
    let txid = daemon.json(&["credits"])["credits"][0]["txid"]
        .as_str()
        .unwrap()
        .to_owned();
    daemon.stop();
    let spoilt = Spoilt::of(&daemon, &bare(&txid), "00".repeat(32).as_str());
    let (answer, code) = spoilt
        .spoil(sql("a payment that is gone"))
        .audit(&["--chain", "dev"]);
    assert_eq!(
        (kinds(&answer), code),
        (["unbooked".to_owned()].into(), 1),
        "{answer:#}"
    );
}

/// More addresses than a node takes by name: what a token pays to others is not looked into.
#[test]
fn transfers_to_strangers_are_not_looked_into() {
    let (paid, proxy) = paid_before_a_proxy();
    let (node, payer) = (&paid.node, paid.node.account(0));
    for number in 1..=40_u128 {
        let stranger = format!("0x{:040x}", 0xabcd_0000 + number);
        paid.token.transfer(node, &payer, &stranger, 1_000 + number);
    }
    node.mine(2);
    paid.daemon.write_config(&setup(node, &paid.token));
    let mut daemon = paid.daemon;
    daemon.start_again();
    wait_height(&daemon, node.height());
    daemon.stop();
    daemon.write_config(&setup_at(&proxy.url(), node, &paid.token));
    change(
        &daemon,
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <= 5000) \
         INSERT INTO addresses (chain, script, kind, merchant, from_height, version, added_at) \
         SELECT 1, unhex(printf('%040x', 268435456 + i)), 'watch', 1, 1000000, 1, 0 FROM n",
    );
    let (answer, code) = audit(&daemon, &["--again", "--chain", "dev"]);
    assert_eq!((&answer["found"], code), (&json!([]), 0), "{answer:#}");
    let payments = answer["chains"][0]["outputs"]["payments"].as_u64().unwrap();
    assert!(payments >= 3, "{answer:#}");
    let receipts = proxy.count("eth_getTransactionReceipt");
    assert!(receipts < 30, "{receipts} receipts were asked for");
}
