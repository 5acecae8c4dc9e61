//! Payments that no reorg disturbs: from the mempool to the credit, in every form in which they come.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bitcoincore_rpc::bitcoin::hashes::Hash as _;
use bitcoincore_rpc::bitcoin::opcodes::all::{OP_CHECKMULTISIG, OP_CHECKSIG, OP_PUSHNUM_1, OP_RETURN};
use bitcoincore_rpc::bitcoin::script::Builder;
use bitcoincore_rpc::bitcoin::{
    PublicKey, ScriptBuf, ScriptHash, WScriptHash, WitnessProgram, WitnessVersion,
};

use serde_json::{Value, json};

use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;
use crate::common::stub::StubNode;
use crate::shop::{Shop, TO_CREDIT, Trouble, fresh_address, print_address, text};

const CREDITED: [&str; 3] = ["deposit.seen", "deposit.confirming", "credit.created"];

/// One payment from the mempool to its credit. Also run under every kind of trouble.
pub fn payment_becomes_a_credit(shop: &mut Shop) {
    let address = shop.watch();
    shop.meanwhile();
    let txid = shop.node.send(&address, 10_000_000);
    shop.await_state(&txid, "seen")
        .assert_is("seen", &["deposit.seen"], &[]);
    shop.meanwhile();
    let block = shop.node.mine(1).remove(0);
    let height = shop.node.height();
    for depth in 1..3 {
        shop.settle();
        let deposit = shop.deposit(&txid);
        deposit.assert_is("confirming", &["deposit.seen", "deposit.confirming"], &[]);
        assert_eq!(
            (&deposit.0["depth"], &deposit.0["block_height"]),
            (&depth.into(), &height.into())
        );
        shop.meanwhile();
        shop.node.mine(1);
    }
    shop.settle();
    let deposit = shop.deposit(&txid);
    deposit.assert_is("credited", &CREDITED, &["credit"]);
    let entry = &deposit.0["credit"]["journal"][0];
    assert_eq!(entry["block_hash"], block.as_str(), "{entry}");
    assert_eq!(entry["due_hash"], shop.node.tip(), "{entry}");
    assert_eq!(
        (
            &entry["block_height"],
            &entry["due_height"],
            &entry["confirmations_required"]
        ),
        (&height.into(), &(height + 2).into(), &3.into()),
    );
    shop.meanwhile();
    shop.node.mine(5);
    shop.settle();
    let later = shop.deposit(&txid);
    later.assert_is("credited", &CREDITED, &["credit"]);
    assert_eq!(
        (later.net_sat(), &later.0["credit"]),
        (10_000_000, &deposit.0["credit"])
    );
}

#[test]
fn payment_is_seen_confirmed_and_credited_once() {
    let mut shop = Shop::open();
    payment_becomes_a_credit(&mut shop);
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (1, 10_000_000));
    shop.trouble = Trouble::DaemonRestarts;
    shop.meanwhile();
    shop.node.mine(TO_CREDIT);
    shop.settle();
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (1, 10_000_000));
    shop.assert_sound();
}

#[test]
fn every_output_counts_by_itself() {
    let shop = Shop::open();
    let (twice, once) = (shop.watch(), shop.watch());
    let (coin, change) = (shop.node.coin(), shop.node.new_address());
    let rest = coin.sat - 25_000_000 - 10_000;
    let first = shop.node.spend(
        &[&coin],
        &[(&twice, 10_000_000), (&change, rest), (&twice, 15_000_000)],
    );
    shop.node.broadcast(&first);
    // The same address again in the same block, and another one.
    let (second, third) = (shop.node.send(&twice, 1_000_000), shop.node.send(&once, 700));
    let mut paid: BTreeSet<(String, u64, u64)> = BTreeSet::from([
        (first.txid.clone(), 0, 10_000_000),
        (first.txid.clone(), 2, 15_000_000),
    ]);
    shop.await_state(&second, "seen");
    shop.node.mine(1 + TO_CREDIT);
    shop.settle();
    for (txid, sat) in [(second, 1_000_000), (third, 700)] {
        let deposit = shop.deposit(&txid);
        paid.insert((txid, deposit.0["vout"].as_u64().unwrap(), sat));
    }
    assert_eq!(credited(&shop), paid);
    assert_eq!(shop.credited_sat("shop"), 26_000_700);
    let outputs = shop.tx(&first.txid)["outputs"].as_array().unwrap().clone();
    let numbers: Vec<_> = outputs.iter().map(|output| output["vout"].as_u64()).collect();
    assert_eq!(numbers, [Some(0), Some(2)], "the change is nobody's business");
    shop.assert_sound();
}

/// What a node refuses to pass on by a policy of its own is still a payment. The wallet sets a lock time of
/// up to a hundred blocks below the tip, so it makes one of 21 by itself now and then.
#[test]
fn a_lock_time_that_some_nodes_refuse_makes_no_difference() {
    let shop = Shop::open();
    let address = shop.watch();
    let options = json!({ "locktime": 21, "fee_rate": 10 });
    let outputs = json!([{ address: 0.1 }]);
    let none = Value::Null;
    let sent = shop
        .node
        .call("send", &[outputs, none.clone(), none.clone(), none, options]);
    let txid = text(&sent["txid"]);
    shop.await_state(&txid, "seen");
    shop.node.mine(TO_CREDIT + 1);
    shop.settle();
    assert_eq!(shop.credited_sat("shop"), 10_000_000);
    shop.assert_sound();
}

/// (txid, vout, satoshi) of every credit that nets to its amount.
fn credited(shop: &Shop) -> BTreeSet<(String, u64, u64)> {
    let credits = shop.credits();
    let credits = credits.iter().filter(|credit| credit["net_base"] != "0");
    credits
        .map(|credit| {
            (
                text(&credit["txid"]),
                credit["vout"].as_u64().unwrap(),
                text(&credit["net_base"]).parse().unwrap(),
            )
        })
        .collect()
}

#[test]
fn a_thousand_outputs_in_one_block_are_a_thousand_credits() {
    const EACH: u64 = 500;
    let mut shop = Shop::open();
    let addresses: Vec<String> = (0..2 * EACH).map(|_| fresh_address()).collect();
    let file = shop.daemon.folder().join("addresses.txt");
    std::fs::write(&file, addresses.join("\n")).unwrap();
    let file = file.to_str().unwrap();
    shop.daemon.json(&["watch", "import", file, "--merchant", "shop"]);
    let paying = |addresses: &[String]| {
        let coin = shop.node.coin();
        let outputs = (10_000..)
            .zip(addresses)
            .map(|(sat, address)| (address.as_str(), sat));
        let mut outputs: Vec<(&str, u64)> = outputs.collect();
        let change = shop.node.new_address();
        outputs.push((&change, coin.sat - EACH * 11_000));
        shop.node.spend(&[&coin], &outputs)
    };
    let (listed, unlisted) = (
        paying(&addresses[..EACH as usize]),
        paying(&addresses[EACH as usize..]),
    );
    shop.node.broadcast(&listed);
    shop.daemon
        .wait_for("the first half is seen", &["balances"], |_| {
            let seen = shop.daemon.json(&["deposits", "list", "--limit", "10000"]);
            (seen["deposits"].as_array()?.len() == EACH as usize).then_some(())
        });
    shop.node.generateblock(&[&listed.txid, &unlisted.hex]);
    shop.trouble = Trouble::DaemonDies;
    shop.meanwhile();
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    let expected = [&listed.txid, &unlisted.txid]
        .into_iter()
        .flat_map(|txid| (0..EACH).map(move |vout| (txid.clone(), vout, 10_000 + vout)));
    assert_eq!(credited(&shop), expected.collect());
    assert_eq!(shop.credits().len(), 2 * EACH as usize);
    shop.assert_sound();
}

#[test]
fn every_kind_of_address_counts_and_nothing_else_does() {
    let shop = Shop::open();
    // The public key of private key 1.
    let key: PublicKey = "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
        .parse()
        .unwrap();
    let program =
        |version, bytes: &[u8]| ScriptBuf::new_witness_program(&WitnessProgram::new(version, bytes).unwrap());
    let with_address = [
        ScriptBuf::new_p2pkh(&key.pubkey_hash()),
        ScriptBuf::new_p2sh(&ScriptHash::hash(b"any script")),
        ScriptBuf::new_p2wpkh(&key.wpubkey_hash().unwrap()),
        ScriptBuf::new_p2wsh(&WScriptHash::hash(b"any script")),
        program(WitnessVersion::V1, &key.to_bytes()[1..]),
        program(WitnessVersion::V1, &[0x4e, 0x73]),
        program(WitnessVersion::V2, &[7; 32]),
        program(WitnessVersion::V16, &[7; 2]),
    ];
    let bytes = key.to_bytes();
    let push = <&bitcoincore_rpc::bitcoin::script::PushBytes>::try_from(bytes.as_slice()).unwrap();
    let without_address = [
        ScriptBuf::new_p2pk(&key),
        Builder::new()
            .push_opcode(OP_PUSHNUM_1)
            .push_key(&key)
            .push_opcode(OP_PUSHNUM_1)
            .push_opcode(OP_CHECKMULTISIG)
            .into_script(),
        Builder::new()
            .push_opcode(OP_RETURN)
            .push_slice(push)
            .into_script(),
        // A watched script with something behind it is another script.
        Builder::from([with_address[2].to_bytes(), vec![OP_CHECKSIG.to_u8()]].concat()).into_script(),
    ];
    for script in &with_address {
        shop.watch_for("shop", &print_address(script));
    }
    let (coin, sats) = (shop.node.coin(), 1_000_000..);
    let scripts = without_address
        .iter()
        .chain(&with_address)
        .chain(&without_address);
    let mut outputs: Vec<(ScriptBuf, u64)> = scripts.cloned().zip(sats).collect();
    let taken: u64 = outputs.iter().map(|(_, sat)| sat).sum();
    outputs.push((
        ScriptBuf::new_p2wsh(&WScriptHash::hash(b"change")),
        coin.sat - taken - 10_000,
    ));
    let payment = shop.node.spend_to_scripts(&[&coin], &outputs);
    shop.node.generateblock(&[&payment.hex]);
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    let (before, ours) = (without_address.len() as u64, with_address.len() as u64);
    let expected = (before..before + ours).map(|vout| (payment.txid.clone(), vout, 1_000_000 + vout));
    assert_eq!(credited(&shop), expected.collect());
    let tx = shop.tx(&payment.txid);
    let addresses: Vec<String> = tx["outputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|output| text(&output["address"]))
        .collect();
    let wanted: Vec<String> = with_address.iter().map(print_address).collect();
    assert_eq!(addresses, wanted);
    shop.assert_sound();
}

#[test]
fn block_reward_is_credited_at_depth_101_and_gone_when_its_block_is() {
    let shop = Shop::open();
    let coinbase = |block: &str| {
        let block = shop.node.call("getblock", &[block.into(), 1.into()]);
        text(&block["tx"][0])
    };
    let (lasting, lost) = (shop.watch(), shop.watch());
    let block = shop.node.mine_to(&lasting, 1).remove(0);
    let height = shop.node.height();
    let reward = coinbase(&block);
    // A second one, orphaned while it is young.
    let stale = shop.node.mine_to(&lost, 1).remove(0);
    let orphan = coinbase(&stale);
    shop.await_state(&orphan, "confirming");
    shop.node.invalidate(&stale);
    shop.mine_empty(2);
    shop.settle();
    let gone = ["deposit.confirming", "deposit.orphaned"];
    shop.deposit(&orphan).assert_is("orphaned", &gone, &[]);
    // Depth 100: 99 blocks above it.
    shop.mine_empty(97);
    shop.settle();
    let young = shop.deposit(&reward);
    young.assert_is("confirming", &["deposit.confirming"], &[]);
    assert_eq!(
        (&young.0["depth"], &young.0["due_height"]),
        (&100.into(), &(height + 100).into())
    );
    shop.mine_empty(1);
    shop.settle();
    let grown = shop.deposit(&reward);
    let created = ["deposit.confirming", "credit.created"];
    grown.assert_is("credited", &created, &["credit"]);
    assert_eq!(grown.0["depth"], 101);
    // A reorg past all of that: the reward never comes back, its credit is reversed.
    shop.node.invalidate(&block);
    shop.mine_empty(102);
    shop.settle();
    let reversed = ["deposit.confirming", "credit.created", "credit.reversed"];
    shop.deposit(&reward)
        .assert_is("orphaned", &reversed, &["credit", "reversal"]);
    shop.deposit(&orphan).assert_is("orphaned", &gone, &[]);
    assert_eq!(shop.credited_sat("shop"), 0);
    shop.assert_sound();
}

#[test]
fn dead_chain_holds_up_no_other() {
    let (first, other) = (RegtestNode::start(), RegtestNode::start());
    other.fund();
    let mut shop = Shop::open_at(first, |setup| setup.add_chain("two", &other));
    shop.settle_on("two", &other);
    let watch_on = |chain: &str| {
        let address = fresh_address();
        let args = ["watch", "add", &address, "--merchant", "shop", "--chain", chain];
        shop.daemon.json(&args);
        address
    };
    let (here, there) = (watch_on("btc"), watch_on("two"));
    let late = shop.node.send(&here, 5_000);
    shop.await_state(&late, "seen");
    shop.node.stop();
    let reason = shop.await_chain_state("btc", "unreachable");
    assert!(!reason.is_empty());
    // Also when one is dead from the start.
    for sat in [1_000, 2_000] {
        let txid = other.send(&there, sat);
        shop.await_state(&txid, "seen");
        other.mine(1 + TO_CREDIT);
        shop.settle_on("two", &other);
        shop.deposit(&txid).assert_is("credited", &CREDITED, &["credit"]);
        shop.daemon.stop();
        shop.daemon.start_again();
        shop.await_chain_state("btc", "unreachable");
    }
    shop.node.start_again();
    let hex = text(&shop.node.call("gettransaction", &[late.as_str().into()])["hex"]);
    shop.node.generateblock(&[&hex]);
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    shop.deposit(&late).assert_is("credited", &CREDITED, &["credit"]);
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (3, 8_000));
    shop.assert_sound();
}

#[test]
fn one_txid_on_two_chains_is_two_payments() {
    let (first, second) = (RegtestNode::start(), RegtestNode::start());
    // A node whose newest block is the genesis block of 2011 counts as syncing.
    first.mine(1);
    second.mine(1);
    let mut setup = Setup::for_node(&first);
    setup.add_chain("two", &second);
    let shop = Shop {
        daemon: Daemon::start(&setup),
        node: first,
        trouble: Trouble::None,
    };
    shop.settle();
    shop.settle_on("two", &second);
    let address = fresh_address();
    for chain in ["btc", "two"] {
        let args = ["watch", "add", &address, "--merchant", "shop", "--chain", chain];
        shop.daemon.json(&args);
    }
    // A block reward's transaction holds nothing of its chain but the height.
    let reward = |node: &RegtestNode| {
        let block = node.mine_to(&address, 1).remove(0);
        node.mine(100);
        text(&node.call("getblock", &[block.into(), 1.into()])["tx"][0])
    };
    let txid = reward(&shop.node);
    assert_eq!(reward(&second), txid);
    shop.settle();
    shop.settle_on("two", &second);
    let told = shop.daemon.json(&["tx", &txid]);
    let ids: BTreeSet<String> = told["transactions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tx| text(&tx["outputs"][0]["deposit"]["credit"]["id"]))
        .collect();
    assert_eq!(ids.len(), 2, "{told:#}");
    assert_eq!(shop.credited_sat("shop"), 2 * 5_000_000_000);
    shop.assert_sound();
}

#[test]
fn address_added_while_its_block_is_under_way_counts() {
    let node = RegtestNode::start();
    node.fund();
    let stub = StubNode::in_front_of(&node);
    let mut shop = Shop {
        daemon: Daemon::start(&Setup::for_stub(&stub)),
        node,
        trouble: Trouble::None,
    };
    shop.settle();
    let address = fresh_address();
    let txid = shop.node.send(&address, 7_000);
    // The address comes after the follower has looked at the rules and before it has the block.
    let is_asked = Arc::new(AtomicBool::new(false));
    let mut add = shop
        .daemon
        .prepared(&["watch", "add", &address, "--merchant", "shop"]);
    let asked = Arc::clone(&is_asked);
    stub.handle(move |call| {
        let is_block = call.method == "rest/block" || call.method == "getblock";
        if is_block && !asked.swap(true, Ordering::SeqCst) {
            assert!(add().status.success());
        }
        None
    });
    shop.node.mine(1);
    shop.settle();
    assert!(is_asked.load(Ordering::SeqCst));
    shop.deposit(&txid)
        .assert_is("confirming", &["deposit.confirming"], &[]);
    // And one whose payment is in the mempool already.
    let known = fresh_address();
    let listed = shop.node.send(&known, 8_000);
    shop.watch_for("shop", &known);
    shop.await_state(&listed, "seen");
    shop.node.mine(1 + TO_CREDIT);
    shop.settle();
    shop.deposit(&listed)
        .assert_is("credited", &CREDITED, &["credit"]);
    shop.deposit(&txid)
        .assert_is("credited", &CREDITED[1..], &["credit"]);
    shop.daemon.stop();
    shop.assert_sound();
}

#[test]
fn rescan_finds_older_payments_once_and_only_where_it_may() {
    let shop = Shop::open();
    let (old, older) = (fresh_address(), fresh_address());
    let first = shop.node.height() + 1;
    let (deep, shallow) = (shop.node.send(&older, 30_000), shop.node.send(&old, 40_000));
    shop.node.mine(1);
    // Below the reorg window, where not every header is held.
    shop.mine_empty(150);
    let recent = shop.node.send(&old, 50_000);
    shop.node.mine(1 + TO_CREDIT);
    shop.settle();
    shop.watch_for("shop", &old);
    shop.watch_for("shop", &older);
    let from = first.to_string();
    let rescan = |more: &[&str]| {
        let args = [&["rescan", "--from", &from, "--reason", "moved"], more].concat();
        let answer = shop.daemon.json(&args);
        shop.daemon
            .wait_for("the rescan is done", &["chain", "status"], |status| {
                let rescans = status["chains"][0]["rescans"].as_array()?;
                rescans.is_empty().then_some(())
            });
        text(&answer["outcome"])
    };
    assert_eq!(rescan(&["--apply"]), "done");
    assert_eq!(rescan(&["--backfill", "all"]), "dry");
    assert!(
        shop.credits().is_empty(),
        "nothing below a rule's own height counts"
    );
    assert_eq!(rescan(&["--backfill", &old, "--apply"]), "done");
    let found = ["deposit.confirming", "credit.created"];
    for txid in [&shallow, &recent] {
        shop.await_state(txid, "credited")
            .assert_is("credited", &found, &["credit"]);
    }
    assert_eq!(shop.credited_sat("shop"), 90_000);
    let credits = shop.credits();
    for _ in 0..2 {
        assert_eq!(rescan(&["--backfill", &old, "--apply"]), "done");
        assert_eq!(shop.credits(), credits);
    }
    assert_eq!(rescan(&["--backfill", "all", "--apply"]), "done");
    shop.await_state(&deep, "credited")
        .assert_is("credited", &found, &["credit"]);
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (3, 120_000));
    shop.assert_sound();
}
