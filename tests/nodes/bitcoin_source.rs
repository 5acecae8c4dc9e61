//! The Bitcoin source against a real node.

use std::sync::Arc;
use std::time::Duration;

use creditd::address::Network;
use creditd::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use creditd::chain::rpc::Auth;
use creditd::chain::{ChainSource, SourceError};
use creditd::clock::Clock;
use creditd::egress::HttpDial;
use creditd::index::{Index, short};
use creditd::rules::{BlockHash, ListVersion, ScannedBlock, Txid};
use serde_json::json;

use crate::common::node::RegtestNode;
use crate::common::wait::PATIENCE;

/// The address of private key 1 (BIP 173), and the script that it stands for.
const D1: &str = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080";
const D1_SCRIPT: &str = "0014751e76e8199196d454941c45d1b3a323f1433bd6";

fn source(node: &RegtestNode, may_use_rest: bool) -> BitcoinSource<HttpDial> {
    let config = BitcoinConfig {
        instance: Some("test".to_owned()),
        may_use_rest,
        ..BitcoinConfig::new(node.url(), Auth::Cookie(node.cookie_file()), Network::Regtest)
    };
    BitcoinSource::new(config, HttpDial::new(), Clock::real())
}

fn watching_d1() -> Index {
    let mut index = Index::default();
    index.add_scripts([short(&const_hex::decode(D1_SCRIPT).unwrap())], ListVersion(1));
    index
}

fn hash(text: &str) -> BlockHash {
    BlockHash::from_hex(text).unwrap()
}

fn txid(text: &str) -> Txid {
    Txid::from_hex(text).unwrap()
}

fn amounts(block: &ScannedBlock) -> Vec<String> {
    let outputs = block.txs.iter().flat_map(|tx| &tx.outputs);
    outputs.map(|output| output.amount.to_string()).collect()
}

#[tokio::test]
async fn rest_and_rpc_give_equal_blocks() {
    let node = RegtestNode::start();
    node.fund();
    for sat in [10_000_000, 1_000, 29_000_000] {
        node.send(D1, sat);
    }
    node.mine(1);
    let (over_rest, over_rpc, index) = (source(&node, true), source(&node, false), watching_d1());
    for source in [&over_rest, &over_rpc] {
        let identity = source.identity().await.unwrap();
        assert!(
            identity.software.starts_with("/Satoshi:"),
            "{}",
            identity.software
        );
    }
    assert!(over_rest.is_rest_on() && !over_rpc.is_rest_on());
    let tip = over_rest.tip().await.unwrap();
    assert_eq!((tip.height, tip.headers, tip.is_syncing), (111, 111, false));
    let hashes = over_rest.hashes(0, 1_000).await.unwrap();
    assert_eq!(hashes.len(), 112);
    let mut held = over_rpc.header(hashes[0]).await.unwrap().unwrap().held;
    for hash in &hashes[1..] {
        let block = over_rest.block(*hash, &index).await.unwrap();
        assert_eq!(block, over_rpc.block(*hash, &index).await.unwrap());
        assert_eq!(block.header.parent, held.header.hash);
        over_rpc.check_link(&held, &block.header).unwrap();
        let work = held.chainwork.checked_add(block.header.work).unwrap();
        held = over_rpc.header(*hash).await.unwrap().unwrap().held;
        assert_eq!((held.header, held.chainwork), (block.header, work));
    }
    assert_eq!((held.chainwork, held.header.hash), (tip.chainwork, tip.hash));
    let mut found = amounts(&over_rest.block(tip.hash, &index).await.unwrap());
    found.sort();
    assert_eq!(found, ["1000", "10000000", "29000000"]);
}

#[tokio::test]
async fn stale_block_is_found_and_known_to_be_off_the_chain() {
    let node = RegtestNode::start();
    node.mine(3);
    let source = source(&node, true);
    let stale = hash(&node.tip());
    node.invalidate(&node.tip());
    node.mine(2);
    let info = source.header(stale).await.unwrap().unwrap();
    assert_eq!((info.held.height, info.is_active), (3, false));
    assert_eq!(source.header(BlockHash([1; 32])).await.unwrap(), None);
    let unknown = source.block(BlockHash([1; 32]), &Index::default()).await;
    assert!(
        matches!(unknown, Err(SourceError::UnknownBlock(_))),
        "{unknown:?}"
    );
    assert_eq!(
        source.tip().await.unwrap().credit_ceiling,
        None,
        "invalid branches do not count"
    );
}

#[tokio::test]
async fn better_branch_without_its_blocks_caps_credits() {
    let (node, other) = (RegtestNode::start(), RegtestNode::start());
    node.mine(4);
    for height in 1..=2 {
        let block = node.call("getblock", &[json!(node.block_hash(height)), json!(0)]);
        other.call("submitblock", &[block]);
    }
    other.mine(5);
    for height in 3..=7 {
        let header = other.call("getblockheader", &[json!(other.block_hash(height)), json!(false)]);
        node.call("submitheader", &[header]);
    }
    let source = source(&node, true);
    let tip = source.tip().await.unwrap();
    assert_eq!((tip.height, tip.headers, tip.is_syncing), (4, 7, true));
    assert_eq!(tip.credit_ceiling, Some(2));
    let missing = hash(&other.block_hash(5));
    assert!(
        source
            .header(missing)
            .await
            .unwrap()
            .is_some_and(|info| !info.is_active)
    );
    let answer = source.block(missing, &Index::default()).await;
    assert!(matches!(answer, Err(SourceError::MissingData(_))), "{answer:?}");
}

#[tokio::test]
async fn mempool_follows_the_node() {
    let node = RegtestNode::start();
    node.fund();
    let (source, index) = (source(&node, true), watching_d1());
    let list = source.mempool(&index).await.unwrap().unwrap();
    assert!(list.listed.is_empty() && list.txs.is_empty() && list.is_complete);

    let first = node.send(D1, 5_000_000);
    node.send(&node.new_address(), 1_000_000);
    let list = source.mempool(&index).await.unwrap().unwrap();
    assert_eq!((list.listed.len(), list.tip), (2, hash(&node.tip())));
    assert_eq!(
        list.txs.iter().map(|tx| tx.txid).collect::<Vec<_>>(),
        [txid(&first)]
    );
    let spent = list.txs[0].inputs.clone();

    let second = node.bump(&first);
    let list = source.mempool(&index).await.unwrap().unwrap();
    let replaced = list.txs.iter().find(|tx| tx.txid == txid(&second)).unwrap();
    assert!(replaced.inputs.iter().any(|input| spent.contains(input)));
    assert!(!list.listed.contains(&txid(&first)));

    node.mine(1);
    let list = source.mempool(&index).await.unwrap().unwrap();
    assert!(list.listed.is_empty() && list.txs.is_empty());
}

#[tokio::test]
async fn pruned_node_says_what_it_has_left() {
    let node = RegtestNode::start_with(&["-fastprune", "-prune=1"]);
    node.mine(700);
    node.call("pruneblockchain", &[json!(300)]);
    let source = source(&node, true);
    source.identity().await.unwrap();
    let tip = source.tip().await.unwrap();
    let lowest = tip.pruned_below.unwrap();
    assert!((2..=301).contains(&lowest), "{lowest}");
    let at = |height| hash(&node.block_hash(height));
    let gone = source.block(at(1), &Index::default()).await;
    assert!(matches!(gone, Err(SourceError::Pruned { .. })), "{gone:?}");
    source.block(at(lowest), &Index::default()).await.unwrap();
    assert!(source.is_rest_on(), "a pruned block does not switch REST off");
}

#[tokio::test]
async fn wait_ends_with_the_next_block() {
    let node = Arc::new(RegtestNode::start());
    let source = source(&node, true);
    let tip = source.tip().await.unwrap().hash;
    let clock = Clock::real();
    let (began, span) = (clock.instant(), Duration::from_millis(200));
    source.wait(tip, span).await;
    assert!(clock.instant() - began >= span, "nothing new");
    let miner = Arc::clone(&node);
    let mining = std::thread::spawn(move || miner.mine(1));
    let began = clock.instant();
    source.wait(tip, PATIENCE).await;
    assert!(clock.instant() - began < PATIENCE);
    assert_ne!(source.tip().await.unwrap().hash, tip);
    mining.join().unwrap();
}

#[tokio::test]
async fn c27_node_restart_is_survived_with_its_new_cookie() {
    let mut node = RegtestNode::start();
    node.mine(2);
    let source = source(&node, true);
    let identity = source.identity().await.unwrap();
    node.stop();
    let error = source.tip().await.unwrap_err();
    assert!(matches!(error, SourceError::Unreachable { .. }), "{error:?}");
    let error = source.tip().await.unwrap_err().to_string();
    assert!(
        error.contains("connection refused") || error.contains("cookie file missing"),
        "{error}"
    );
    node.start_again();
    assert_eq!(source.identity().await.unwrap(), identity);
    assert_eq!(source.tip().await.unwrap().height, 2);
}
