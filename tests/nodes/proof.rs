//! Proofs of credits of real nodes: each kind is printed and verifies, nothing tampered with does, and a
//! proof is there before a pruning node drops what it is made from.

use std::path::Path;
use std::process::{Command, Output};

use creditd::audit::proof::{VerifyError, verify};
use ethers_core::utils::get_contract_address;
use serde_json::{Value, json};

use crate::common::anvil::AnvilNode;
use crate::common::contracts::Token;
use crate::common::daemon::{Daemon, Setup};
use crate::common::evm::Splitter;
use crate::common::evm_proxy::EvmProxy;
use crate::common::evm_proxy::script::Fault;
use crate::common::node::RegtestNode;
use crate::common::wait::{PATIENCE, wait_until};

/// The address of private key 1 (BIP 173).
const D1: &str = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080";
/// A witness program of version 1, by the same key.
const D2: &str = "bcrt1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqc8gma6";

const E1: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

const DOCUMENT: &str = include_str!("../../docs/proof.md");

fn watch(daemon: &Daemon, chain: &str, address: &str) {
    daemon.json(&["watch", "add", address, "--chain", chain, "--merchant", "shop"]);
}

#[track_caller]
fn wait_credits(daemon: &Daemon, count: usize) -> Vec<Value> {
    daemon.wait_for("payments are credited", &["credits"], |answer| {
        let rows = answer["credits"].as_array()?;
        (rows.len() == count).then(|| rows.clone())
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The file of a credit, and with which exit code it is printed.
fn printed(daemon: &Daemon, credit: &Value, more: &[&str]) -> (String, i32) {
    let output = daemon.cli(&[&["proof", credit["id"].as_str().unwrap()], more].concat());
    let file = text(&output.stdout);
    assert!(file.starts_with('{'), "{}", text(&output.stderr));
    (file, output.status.code().unwrap())
}

/// `creditd proof verify` where there is nothing else: no config, no environment, an empty folder.
fn verified(file: &str, more: &[&str]) -> (String, i32) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proof.json");
    std::fs::write(&path, file).unwrap();
    let output = bare(
        folder.path(),
        &[&["proof", "verify", "proof.json"], more].concat(),
    );
    (
        text(&output.stdout) + &text(&output.stderr),
        output.status.code().unwrap(),
    )
}

fn bare(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_creditd"));
    command
        .env_clear()
        .current_dir(folder)
        .args(args)
        .output()
        .unwrap()
}

/// Every leaf of a JSON value by the way to it, and every item of a list by its own.
fn ways(value: &Value, here: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(key, below)| ways(below, &format!("{here}/{key}"), found)),
        Value::Array(items) => {
            (0..)
                .zip(items)
                .for_each(|(place, below): (usize, _)| ways(below, &format!("{here}/{place}"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => found.push(here.to_owned()),
    }
}

/// Something else in the place of a leaf.
fn flipped(leaf: &Value) -> Value {
    match leaf {
        Value::Null => json!({}),
        Value::Bool(is) => json!(!is),
        Value::Number(number) => json!(number.as_u64().unwrap() + 1),
        Value::String(text) => {
            let mut text = text.clone();
            let last = match text.pop() {
                None => "x",
                Some('0') => "1",
                Some(_) => "0",
            };
            json!(text + last)
        }
        Value::Array(_) | Value::Object(_) => unreachable!("no leaf"),
    }
}

/// What may be wrong with a file where this leaf is another. What the maker says of himself is not checked.
fn faults_of(way: &str) -> &'static [&'static str] {
    let names = way.split('/').filter(|part| part.parse::<usize>().is_err());
    match names.collect::<Vec<_>>().join("/").as_str() {
        "/format" => &["unreadable"],
        "/credit" | "/chain_id" => &["credit", "form", "chain"],
        "/level" | "/why" => &["level", "unreadable"],
        "/claim/txid" | "/claim/vout" => &["credit", "form"],
        "/claim/script" | "/claim/address" => &["address"],
        "/claim/asset" => &["form", "log", "value", "output"],
        "/claim/amount_base" => &["output", "log", "value"],
        "/claim/block_hash" => &["block", "header", "form"],
        "/claim/block_height" => &["height"],
        "/bitcoin" | "/evm" | "/told" => &["level", "unreadable"],
        "/bitcoin/tx" => &["transaction"],
        "/bitcoin/index" | "/bitcoin/branch" => &["branch", "coinbase"],
        "/bitcoin/coinbase/tx" | "/bitcoin/coinbase/branch" => &["coinbase", "branch", "height"],
        "/bitcoin/headers" => &["block", "work", "headers", "due"],
        "/bitcoin/due/height" | "/bitcoin/due/hash" => &["due"],
        "/bitcoin/anchor" => &["unreadable"],
        "/bitcoin/anchor/height" | "/bitcoin/anchor/hash" => &["anchor"],
        "/bitcoin/anchor/headers" => &["anchor", "work", "headers"],
        "/evm/header" => &["header"],
        "/evm/index" | "/evm/tx_branch" => &["transaction"],
        "/evm/receipt_branch" => &["receipt"],
        "/about/made_at" | "/about/software" => &[],
        other => panic!("no row for {other}"),
    }
}

fn refused(file: &Value) -> Option<String> {
    match verify(&file.to_string(), &[]) {
        Ok(_) => None,
        Err(VerifyError::Unreadable(_)) => Some("unreadable".to_owned()),
        Err(VerifyError::False(fault)) => Some(fault.check.to_owned()),
    }
}

/// Each leaf is made another, dropped, and replaced by that of another good file: none of these is good.
fn assert_tamper_proof(file: &str, other: &str) {
    let (file, other): (Value, Value) = (
        serde_json::from_str(file).unwrap(),
        serde_json::from_str(other).unwrap(),
    );
    assert_eq!(refused(&file), None, "{file:#}");
    let mut found = Vec::new();
    ways(&file, "", &mut found);
    assert!(found.len() > 20, "{found:?}");
    for way in found {
        let names = faults_of(&way);
        let mut spoiled = file.clone();
        let leaf = spoiled.pointer_mut(&way).unwrap();
        *leaf = flipped(leaf);
        assert_refused(&spoiled, &way, "flipped", names);

        let (above, last) = way.rsplit_once('/').unwrap();
        let mut dropped = file.clone();
        match dropped.pointer_mut(above).unwrap() {
            Value::Object(fields) => {
                fields.remove(last);
                assert_eq!(refused(&dropped).as_deref(), Some("unreadable"), "{way} dropped");
            }
            Value::Array(items) => {
                items.remove(last.parse().unwrap());
                assert_refused(&dropped, &way, "dropped", names);
            }
            _ => unreachable!("a leaf hangs below something"),
        }
        let mut swapped = file.clone();
        let leaf = swapped.pointer_mut(&way).unwrap();
        let theirs = other
            .pointer(&way)
            .filter(|theirs| *theirs != leaf && !names.is_empty());
        if let Some(theirs) = theirs {
            *leaf = theirs.clone();
            let names: Vec<&str> = names.iter().copied().chain(["credit"]).collect();
            assert_refused(&swapped, &way, "swapped", &names);
        }
    }
}

fn assert_refused(file: &Value, way: &str, how: &str, names: &[&str]) {
    let refused = refused(file);
    if names.is_empty() {
        assert_eq!(refused, None, "{way} {how}: nobody can check it");
        return;
    }
    let name = refused.unwrap_or_else(|| panic!("{way} {how}: not refused"));
    // What is no hash or no number any more is found before anything is held against it.
    let is_named = names.contains(&name.as_str()) || name == "unreadable" || name == "form";
    assert!(is_named, "{way} {how}: refused by {name}, not {names:?}");
}

fn assert_documented(file: &str) {
    fn keys(value: &Value) -> Vec<String> {
        match value {
            Value::Object(fields) => {
                let below = fields.iter().filter(|(key, _)| !["told"].contains(&key.as_str()));
                fields
                    .keys()
                    .cloned()
                    .chain(below.flat_map(|(_, value)| keys(value)))
                    .collect()
            }
            _ => Vec::new(),
        }
    }
    for key in keys(&serde_json::from_str(file).unwrap()) {
        assert!(
            DOCUMENT.contains(&format!("`{key}`")),
            "`{key}` is not in docs/proof.md"
        );
    }
}

/// Payments of each kind, one of them first in a block that is lost; all credited.
fn bitcoin_payments(node: &RegtestNode) -> (Daemon, Vec<Value>) {
    node.fund();
    let daemon = Daemon::start(&Setup::for_node(node));
    daemon.wait_for("the chain is followed", &["chain", "status"], |status| {
        (status["chains"][0]["height"] == 110).then_some(())
    });
    watch(&daemon, "btc", D1);
    watch(&daemon, "btc", D2);
    node.mine_to(D1, 1);
    for (to, sat) in [(D1, 10_000_000), (D2, 20_000_000), (D1, 546)] {
        node.send(to, sat);
    }
    let lost = node.mine(1).remove(0);
    daemon.wait_for("it is seen in a block", &["deposits", "list"], |answer| {
        let rows = answer["deposits"].as_array()?;
        (rows.iter().filter(|row| row["state"] == "confirming").count() == 4).then_some(())
    });
    node.invalidate(&lost);
    node.mine(100);
    let credits = wait_credits(&daemon, 4);
    (daemon, credits)
}

/// Whoever mines a block on a known one has such a file too: only a block from the payment's on vouches.
fn assert_vouched_for_from_above_alone(file: &str, due: &str) {
    let (said, code) = verified(file, &["--require", "anchored"]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("goes down to a block that everybody knows"),
        "{said}"
    );
    let known: Value = serde_json::from_str(file).unwrap();
    let known = known["bitcoin"]["anchor"]["hash"].as_str().unwrap();
    let trusting = ["--require", "anchored", "--trust", known];
    assert_eq!(verified(file, &trusting).1, 1);
    assert_eq!(verified(file, &["--require", "anchored", "--trust", due]).1, 0);
}

#[test]
fn proofs_of_bitcoin_payments_verify_and_nothing_tampered_with_does() {
    let node = RegtestNode::start();
    let (daemon, credits) = bitcoin_payments(&node);
    let mut files = Vec::new();
    for credit in &credits {
        let (file, code) = printed(&daemon, credit, &[]);
        assert_eq!(code, 0);
        assert_documented(&file);
        let (said, code) = verified(&file, &["--require", "worked", "--blocks", "3"]);
        assert_eq!(code, 0, "{said}");
        files.push((credit, file));
    }
    let of = |amount: &str| {
        let mut found = files
            .iter()
            .filter(|(credit, _)| credit["amount"] == json!(amount));
        found
            .next()
            .unwrap_or_else(|| panic!("{amount}: {credits:?}"))
            .1
            .as_str()
    };
    let (file, other) = (of("0.1"), of("0.2"));
    let json: Value = serde_json::from_str(file).unwrap();
    let (said, _) = verified(file, &[]);
    let part = |way: &str| json.pointer(way).unwrap().to_string().replace('"', "");
    let [id, chain, n, txid] = ["/credit", "/chain_id", "/claim/vout", "/claim/txid"].map(part);
    let expected = format!(
        "credit {id}: 0.1 BTC to {D1} in block 112 of {chain}\n  \
         payment      output {n} of {txid}\n  \
         included     yes: transaction, branch of 2, coinbase of height 112\n  \
         worked       3 blocks, 6 hashes expected\n  \
         anchored     no: it names no block that you trust (--trust)\n\
         not told by this file: whether that branch is the best one today, and whether the credit was \
         reversed since\n",
    );
    assert_eq!(said, expected);
    assert_eq!(json["bitcoin"]["headers"].as_array().unwrap().len(), 3);
    let coinbase = files
        .iter()
        .find(|(credit, _)| !["0.1", "0.2", "0.00000546"].contains(&credit["amount"].as_str().unwrap()));
    let coinbase: Value = serde_json::from_str(&coinbase.unwrap().1).unwrap();
    assert_eq!(coinbase["bitcoin"]["headers"].as_array().unwrap().len(), 101);

    assert_eq!(verified(file, &["--require", "anchored"]).1, 1);
    let due = json["bitcoin"]["due"]["hash"].as_str().unwrap();
    assert_eq!(verified(file, &["--require", "anchored", "--trust", due]).1, 0);
    let (anchored, _) = printed(
        &daemon,
        credits.iter().find(|one| one["amount"] == "0.1").unwrap(),
        &["--from-checkpoint"],
    );
    assert_vouched_for_from_above_alone(&anchored, due);
    assert_tamper_proof(file, other);
    assert_tamper_proof(&anchored, other);
    let (said, code) = verified("{}", &[]);
    assert_eq!(code, 2, "{said}");
    let mut false_file = json;
    false_file["claim"]["amount_base"] = json!("10000001");
    let (said, code) = verified(&false_file.to_string(), &[]);
    assert_eq!(
        (said.as_str(), code),
        ("FALSE  output  it pays 10000000 base units\n", 1)
    );
}

/// Payments of each kind: coin, token, a creation, an inner call; all credited.
fn evm_payments(node: &AnvilNode, urls: &[String], more: &str) -> (Daemon, Vec<Value>) {
    let payer = node.account(0);
    let token = Token::deploy(node, "TUSD", 6);
    let splitter = Splitter::deploy(node);
    token.mint(node, &payer, 1_000_000);
    node.mine(1);
    let endpoint = |(number, url): (u32, &String)| {
        format!("[[evm.endpoint]]\nname = \"node-{number}\"\nurl = \"{url}\"\n")
    };
    let endpoints: String = (1..).zip(urls).map(endpoint).collect();
    let tables = format!(
        "{more}[[evm]]\nalias = \"dev\"\nchain_id = 31337\ninstance = \"test\"\npoll_ms = 20\n\
         ethereum = true\n\
         {endpoints}\
         [evm.native]\nsymbol = \"ETH\"\ninner = \"traces\"\npolicy = [ {{ confirmations = 2 }} ]\n\
         [[evm.token]]\ncontract = \"{}\"\nsymbol = \"TUSD\"\ndecimals = 6\n\
         policy = [ {{ confirmations = 2 }} ]\n",
        token.address.to_lowercase()
    );
    let daemon = Daemon::start(&Setup::for_evm(tables));
    daemon.wait_for("the chain is followed", &["chain", "status"], |status| {
        (status["chains"][0]["height"].as_u64()? >= node.height()).then_some(())
    });
    watch(&daemon, "dev", E1);
    let b = node.account(1);
    let sender = ethers_core::types::H160(const_hex::decode_to_array(&b).unwrap());
    let made = format!("{:?}", get_contract_address(sender, node.next_nonce(&b)));
    watch(&daemon, "dev", &made);
    node.invoke(&payer, E1, "0x", 7);
    token.transfer(node, &payer, E1, 8);
    token.transfer(node, &payer, E1, 9);
    splitter.split(node, &payer, &[(E1, 15)], 15);
    node.send(json!({"from": b, "value": "0x5", "data": "0x00", "gas": "0x30d40"}));
    node.mine(3);
    let credits = wait_credits(&daemon, 5);
    (daemon, credits)
}

#[test]
fn proofs_of_evm_payments_verify_and_what_is_told_is_said_to_be() {
    let node = AnvilNode::start(31_337);
    let (daemon, credits) = evm_payments(&node, &[node.url()], "");
    let file_of = |amount: &str| {
        let credit = credits
            .iter()
            .find(|credit| credit["amount_base"] == json!(amount));
        printed(
            &daemon,
            credit.unwrap_or_else(|| panic!("{amount}: {credits:?}")),
            &[],
        )
    };
    let mut files = Vec::new();
    for amount in ["7", "8", "9", "5"] {
        let (file, code) = file_of(amount);
        assert_eq!(code, 0, "{file}");
        assert_documented(&file);
        let (said, code) = verified(&file, &["--require", "proved"]);
        assert_eq!(code, 0, "{said}");
        eprintln!("{} bytes of JSON: {amount}", file.len());
        files.push(file);
    }
    let json: Value = serde_json::from_str(&files[1]).unwrap();
    let block = json["claim"]["block_hash"].as_str().unwrap();
    assert_eq!(verified(&files[1], &["--require", "worked"]).1, 1);
    assert_eq!(verified(&files[1], &["--require", "anchored"]).1, 1);
    assert_eq!(
        verified(&files[1], &["--require", "anchored", "--trust", block]).1,
        0
    );
    for (file, other) in [(0, 3), (1, 2), (2, 1), (3, 0)] {
        assert_tamper_proof(&files[file], &files[other]);
    }
    let (told, code) = file_of("15");
    assert_eq!(code, 1, "{told}");
    let (said, code) = verified(&told, &[]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("included     no: a node told it so (no hash of the block covers"),
        "{said}"
    );
    let mut false_told: Value = serde_json::from_str(&told).unwrap();
    false_told["claim"]["amount_base"] = json!("16");
    assert_eq!(refused(&false_told).as_deref(), Some("told"));
}

#[test]
fn what_one_evm_node_does_not_have_another_one_proves() {
    let node = AnvilNode::start(31_337);
    let proxy = EvmProxy::in_front_of(&node.url());
    let urls = [proxy.url(), node.url()];
    let (daemon, credits) = evm_payments(&node, &urls, "[evidence]\nstore = false\n");
    let token = credits
        .iter()
        .find(|credit| credit["amount_base"] == "8")
        .unwrap();
    for method in ["eth_getBlockReceipts", "eth_getTransactionReceipt"] {
        proxy.always(method, Fault::Result(Value::Null));
    }
    let (file, code) = printed(&daemon, token, &[]);
    assert_eq!(code, 0, "{file}");
    assert_eq!(verified(&file, &["--require", "proved"]).1, 0);
    // Forms that do not make the hashes are no last word either.
    proxy.lift_all();
    proxy.always("eth_getBlockReceipts", Fault::Result(json!([])));
    let (file, code) = printed(&daemon, token, &[]);
    assert_eq!(code, 0, "{file}");
}

#[test]
fn a_proof_is_kept_before_the_node_prunes() {
    let node = RegtestNode::start_with(&["-fastprune", "-prune=1"]);
    node.fund();
    let mut setup = Setup {
        tables: "[evidence]\nstore = false\n".to_owned(),
        ..Setup::for_node(&node)
    };
    let mut daemon = Daemon::start(&setup);
    daemon.wait_for("the chain is followed", &["chain", "status"], |status| {
        (status["chains"][0]["height"] == 110).then_some(())
    });
    watch(&daemon, "btc", D1);
    node.send(D1, 10_000_000);
    node.mine(3);
    let credit = wait_credits(&daemon, 1).remove(0);
    daemon.stop();
    // A job that is new is due at once.
    setup.tables.clear();
    daemon.write_config(&setup);
    daemon.start_again();
    let stored = || {
        let database = rusqlite::Connection::open(daemon.database()).unwrap();
        let sizes = database.query_row(
            "SELECT length(e.body), length(b.body) FROM evidence e \
             JOIN evidence_blocks b ON b.hash = e.block",
            [],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
        );
        sizes.ok()
    };
    let sizes = wait_until("the proof is stored", PATIENCE, stored);
    eprintln!(
        "stored: {} bytes for the credit, {} for its block",
        sizes.0, sizes.1
    );
    setup.tables = "[evidence]\nstore = false\n".to_owned();
    daemon.stop();
    daemon.write_config(&setup);
    daemon.start_again();
    node.send(D1, 20_000_000);
    node.mine(3);
    let credits = wait_credits(&daemon, 2);
    node.mine(1_000);
    node.call("pruneblockchain", &[json!(900)]);
    let (file, code) = printed(&daemon, &credit, &[]);
    assert_eq!(code, 0, "{file}");
    let (said, code) = verified(&file, &["--require", "worked", "--blocks", "3"]);
    assert_eq!(code, 0, "{said}");
    let late = credits.iter().find(|one| one["id"] != credit["id"]).unwrap();
    let output = daemon.cli(&["proof", late["id"].as_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("is pruned at the node"),
        "{}",
        text(&output.stderr)
    );
}
