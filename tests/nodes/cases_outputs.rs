//! C24 (a) and C32: each output of each transaction counts by itself, and needs no lookup.

use serde_json::json;

use crate::common::asks::D1;
use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;
use crate::common::wait::{PATIENCE, wait_until};
use crate::common::wallet::RawTx;

/// Private key 1, whose addresses the tests watch.
const KEY_ONE: &str = "cMahea7zqjxrtgAbB7LSGbcQUr1uX1ojuat9jZodMN87JcbXMTcA";

fn follow(node: &RegtestNode, more: &str) -> Daemon {
    node.fund();
    let setup = Setup {
        chain_lines: more.to_owned(),
        ..Setup::for_node(node)
    };
    Daemon::watching(&setup, D1, node.height())
}

#[test]
fn c24_payment_that_the_node_cannot_look_up_any_more_is_credited() {
    let node = RegtestNode::start();
    let mut daemon = follow(&node, "evict_after_secs = 1\n");
    let paid = node.payment(D1, 3_000_000);
    node.broadcast(&paid);
    daemon.wait_deposit(&paid.txid, 0, "seen");
    node.mine(1);
    let refused = node.try_call("getrawtransaction", &[json!(paid.txid)]);
    let refused = refused
        .expect_err("this node has no index of transactions")
        .to_string();
    assert!(refused.contains("-5"), "{refused}");
    daemon.wait_deposit(&paid.txid, 0, "confirming");
    daemon.stop();
    daemon.start_again();
    // Longer than an absent payment is kept, in lists that do not hold it: one new transaction in each.
    let clock = || daemon.count("SELECT list_clock_ms FROM chains");
    let began = clock();
    while clock() < began + 1_500 {
        let applied = daemon.count("SELECT mempool_poll FROM chains");
        node.send(&node.new_address(), 10_000);
        wait_until("the list is applied", PATIENCE, || {
            (daemon.count("SELECT mempool_poll FROM chains") > applied).then_some(())
        });
    }
    assert_eq!(daemon.deposit(&paid.txid, 0).unwrap()["state"], "confirming");
    node.mine(2);
    daemon.wait_deposit(&paid.txid, 0, "credited");
    assert_eq!(daemon.net_sum(), 3_000_000);
    assert_eq!(daemon.events_of("deposit.evicted").len(), 0);
    daemon.assert_sound();
}

/// Spends an output of the watched address itself, signed with its key: the id and the raw hex.
fn spend_own(
    node: &RegtestNode,
    paid: &RawTx,
    vout: u32,
    sat: u64,
    outputs: &[(&str, &str)],
) -> (String, String) {
    let outputs: Vec<_> = outputs
        .iter()
        .map(|(address, btc)| json!({ *address: btc }))
        .collect();
    let inputs = json!([{ "txid": paid.txid, "vout": vout }]);
    let unsigned = node.call("createrawtransaction", &[inputs, json!(outputs)]);
    let spent = json!([{
        "txid": paid.txid, "vout": vout, "scriptPubKey": "0014751e76e8199196d454941c45d1b3a323f1433bd6",
        "amount": format!("{}.{:08}", sat / 100_000_000, sat % 100_000_000),
    }]);
    let signed = node.call("signrawtransactionwithkey", &[unsigned, json!([KEY_ONE]), spent]);
    assert_eq!(signed["complete"], true, "{signed}");
    let hex = signed["hex"].as_str().unwrap().to_owned();
    let decoded = node.call("decoderawtransaction", &[json!(hex)]);
    let txid = decoded["txid"].as_str().unwrap().to_owned();
    (txid, hex)
}

/// T1 pays twice beside its change, T2 once, and T3 moves the first of them back to where it is; `order` is
/// that of T1 and T2 in their block.
fn several_outputs(order: [usize; 2], is_swept_at_once: bool) {
    let node = RegtestNode::start();
    let mut daemon = follow(&node, "");
    let change = node.new_address();
    let coin = node.coin();
    let rest = coin.sat - 25_001_000;
    let t1 = node.spend(&[&coin], &[(D1, 10_000_000), (&change, rest), (D1, 15_000_000)]);
    let t2 = node.payment(D1, 1_000_000);
    let (t3_id, t3_hex) = spend_own(&node, &t1, 0, 10_000_000, &[(D1, "0.0999")]);
    node.broadcast(&t1);
    daemon.wait_deposit(&t1.txid, 2, "seen");
    daemon.stop();
    daemon.start_again();
    let pair = [&t1, &t2];
    let mut block: Vec<&str> = order.iter().map(|place| pair[*place].hex.as_str()).collect();
    if is_swept_at_once {
        block.push(&t3_hex);
    }
    node.generateblock(&block);
    node.mine(2);
    if !is_swept_at_once {
        node.call("sendrawtransaction", &[json!(t3_hex)]);
        node.mine(3);
    }
    daemon.wait_height(node.height());
    let credited: Vec<(String, u64, String)> = daemon
        .credits()
        .iter()
        .map(|credit| {
            (
                credit["txid"].as_str().unwrap().to_owned(),
                credit["vout"].as_u64().unwrap(),
                credit["net_base"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let mut expected = vec![
        (t1.txid.clone(), 0, "10000000".to_owned()),
        (t1.txid.clone(), 2, "15000000".to_owned()),
        (t2.txid.clone(), 0, "1000000".to_owned()),
    ];
    let mut told = credited.clone();
    told.sort();
    expected.sort();
    assert_eq!(told, expected, "{order:?}");
    assert_eq!(daemon.events_of("credit.created").len(), 3);
    // The coin that came back is shown, and is no payment.
    let swept = daemon.tx(&t3_id).unwrap();
    assert_eq!(swept["outputs"][0]["origin"], "internal", "{swept}");
    assert!(swept["outputs"][0]["deposit"].is_null(), "{swept}");
    let spent = daemon.tx(&t1.txid).unwrap();
    assert_eq!(spent["outputs"][0]["spent_by"], t3_id.as_str());
    assert_eq!(daemon.net_sum(), 26_000_000);
    daemon.assert_sound();
}

#[test]
fn c32_every_output_to_one_address_counts_and_what_comes_back_does_not() {
    several_outputs([0, 1], false);
}

#[test]
fn c32_order_inside_the_block_changes_nothing() {
    several_outputs([1, 0], false);
}

#[test]
fn c32_own_output_spent_in_the_same_block_is_internal_too() {
    several_outputs([0, 1], true);
}
