//! The regtest node itself: it starts, pays, reorganises and comes back.

use bitcoincore_rpc::{Auth, Client, RpcApi};
use serde_json::json;

use crate::common::http::{self, Request};
use crate::common::node::RegtestNode;
use crate::common::stub::{Reply, StubNode};
use crate::common::wait::PATIENCE;

/// The address of private key 1 (BIP 173).
const D1: &str = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080";

#[test]
fn node_mines_and_pays() {
    let node = RegtestNode::start();
    node.fund();
    assert_eq!(node.height(), 110);
    let txid = node.send(D1, 10_000_000);
    assert_eq!(node.mempool(), std::slice::from_ref(&txid));
    let block = node.mine(1).remove(0);
    assert_eq!(node.tip(), block);
    let paid = node.call("getrawtransaction", &[json!(txid), json!(true), json!(block)]);
    let outputs = paid["vout"].as_array().unwrap();
    assert!(
        outputs
            .iter()
            .any(|output| output["scriptPubKey"]["address"] == D1),
        "{paid}"
    );
}

#[test]
fn bumped_payment_replaces_the_first() {
    let node = RegtestNode::start();
    node.fund();
    let first = node.send(D1, 5_000_000);
    let second = node.bump(&first);
    assert_ne!(first, second);
    assert_eq!(node.mempool(), [second]);
}

#[test]
fn branch_after_invalidate_holds_the_other_spend() {
    let node = RegtestNode::start();
    node.fund();
    let (coin, change) = (node.coin(), node.new_address());
    let spend = |fee: u64| {
        node.spend(
            &[&coin],
            &[(D1, 5_000_000), (&change, coin.sat - 5_000_000 - fee)],
        )
    };
    let (first, second) = (spend(1_000), spend(2_000));
    let stale = node.generateblock(&[&first.hex]);
    node.invalidate(&stale);
    let best = node.generateblock(&[&second.hex]);
    assert_ne!(stale, best);
    assert_eq!((node.tip(), node.height()), (best, 111));
    node.mine(1);
    node.reconsider(&stale);
    assert_eq!(node.height(), 112, "the longer branch stays");
}

#[test]
fn joined_nodes_reorganise_to_the_longer_branch() {
    let (a, b) = (RegtestNode::listening(), RegtestNode::listening());
    a.mine(3);
    a.connect_peer(&b);
    b.catch_up_with(&a, PATIENCE);
    a.disconnect_peer(&b);
    let short = a.mine(2).pop().unwrap();
    let long = b.mine(3).pop().unwrap();
    assert_eq!(a.tip(), short);
    a.connect_peer(&b);
    a.catch_up_with(&b, PATIENCE);
    assert_eq!((a.tip(), a.height()), (long, 6));
}

#[test]
fn node_comes_back_with_its_chain_and_a_new_cookie() {
    let mut node = RegtestNode::start();
    node.fund();
    let (tip, cookie) = (node.tip(), std::fs::read(node.cookie_file()).unwrap());
    node.restart();
    assert_eq!(node.tip(), tip);
    assert_ne!(std::fs::read(node.cookie_file()).unwrap(), cookie);
    node.send(D1, 1_000);
    node.kill9();
    assert!(node.try_call("getblockcount", &[]).is_err());
    node.start_again();
    assert!(node.height() <= 110);
}

#[test]
fn stub_in_front_of_a_node_passes_on_what_is_not_scripted() {
    let mut node = RegtestNode::start();
    let tip = node.mine(2).pop().unwrap();
    let stub = StubNode::in_front_of(&node);
    let client = || Client::new(&stub.url(), Auth::CookieFile(stub.cookie_file())).unwrap();
    assert_eq!(client().get_block_count().unwrap(), 2);
    stub.once("getblockcount", Reply::Result(json!(99)));
    assert_eq!(client().get_block_count().unwrap(), 99);
    node.restart();
    assert_eq!(client().get_best_block_hash().unwrap().to_string(), tip);
    assert!(client().call::<String>("getblockhash", &[json!(50)]).is_err());
    let rest = Request {
        verb: "GET".to_owned(),
        path: format!("/rest/block/{tip}.bin"),
        authorization: None,
        body: Vec::new(),
    };
    let port = stub.url().rsplit(':').next().unwrap().parse().unwrap();
    let (status, _, block) = http::forward(port, &rest, "").unwrap();
    assert_eq!((status, block.len() > 80), (200, true));
    assert_eq!(stub.count("rest/block"), 1);
}
