//! The source of EVM chains over a real node: which candidates it makes of blocks.

use serde_json::{Value, json};

use creditd::chain::ChainSource as _;
use creditd::chain::evm::fields::Account;
use creditd::chain::evm::{EvmRules, EvmSource, Inner, NativeRule, TokenRule, TraceCall};
use creditd::clock::Clock;
use creditd::egress::HttpDial;
use creditd::index::{Index, short};
use creditd::rules::position::Position;
use creditd::rules::{Asset, BlockHash, CandidateTx, ChainId, ListVersion, ScannedBlock};
use std::collections::BTreeMap;

use crate::common::anvil::AnvilNode;
use crate::common::contracts::Token;
use crate::common::evm::Splitter;
use crate::common::evm_endpoint;
use crate::common::evm_proxy::EvmProxy;
use crate::common::evm_proxy::script::{Asked, Fault};

pub const CHAIN_ID: u64 = 73_577;

const D1: &str = "0xd1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1";
const D2: &str = "0xd2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2";
const D3: &str = "0xd3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3";

pub fn bytes(text: &str) -> [u8; 20] {
    const_hex::decode_to_array(text).unwrap()
}

pub fn source(url: &str, tokens: &[&Token], inner: Option<Inner>) -> EvmSource<HttpDial> {
    let chain = ChainId::evm(CHAIN_ID, Some("test"));
    let token = |token: &&Token| {
        let rule = TokenRule {
            symbol: "TUSD".to_owned(),
            decimals: 6,
            is_balance_checked: false,
            is_unindexed: false,
        };
        (Account(bytes(&token.address)), rule)
    };
    let rules = EvmRules {
        chain,
        tokens: tokens.iter().map(token).collect::<BTreeMap<_, _>>(),
        native: inner.map(NativeRule::by),
        has_bloom: true,
        lists_pending: false,
    };
    let clock = Clock::real();
    let endpoints = evm_endpoint::only(CHAIN_ID, url, HttpDial::new(), clock);
    EvmSource::new(rules, endpoints, clock)
}

fn index() -> Index {
    let mut index = Index::default();
    index.add_scripts([D1, D2].map(|address| short(&bytes(address))), ListVersion(1));
    index
}

/// What each candidate pays, as text: position, asset, payee, amount.
fn paid(block: &ScannedBlock) -> Vec<String> {
    let text = |tx: &CandidateTx| {
        let one = |output: &creditd::rules::CandidateOutput| {
            let asset = match output.asset {
                Asset::Native => "coin",
                Asset::Token(_) => "token",
            };
            let (position, _) = Position::of_number(output.vout).unwrap();
            let to = const_hex::encode(&output.script.0[..1]);
            format!("{position:?} {} {asset} to {to}", output.amount)
        };
        let outputs: Vec<String> = tx.outputs.iter().map(one).collect();
        match tx.is_failed {
            true => "failed".to_owned(),
            false => outputs.join(", "),
        }
    };
    block.txs.iter().map(text).collect()
}

async fn read(source: &EvmSource<HttpDial>, hash: &str) -> Vec<String> {
    let hash = BlockHash::from_hex(&hash[2..]).unwrap();
    let raw = source.fetch(hash).await.unwrap();
    let block = source.scan(hash, &raw, &index()).await.unwrap();
    assert_eq!(block.header.hash, hash);
    paid(&block)
}

#[tokio::test]
async fn coin_and_tokens_are_found_where_they_stand() {
    let node = AnvilNode::start(CHAIN_ID);
    let (a, b) = (node.account(0), node.account(1));
    let token = Token::deploy(&node, "TUSD", 6);
    let other = Token::deploy(&node, "TUSD", 6);
    let splitter = Splitter::deploy(&node);
    token.mint(&node, &a, 1_000_000);
    other.mint(&node, &a, 1_000_000);
    node.mine(1);

    node.pay(&a, D1, 7);
    node.pay(&b, D3, 8);
    token.transfer(&node, &a, D2, 9);
    token.transfer(&node, &a, D3, 10);
    token.transfer(&node, &a, D1, 0);
    other.transfer(&node, &a, D1, 11);
    token.pay(&node, &a, &[(D3, 1), (D1, 12), (D2, 13), (D1, 14)]);
    splitter.split(&node, &a, &[(D1, 15), (D3, 16), (D2, 17)], 50);
    splitter.nest(&node, &a, &[(D2, 18), (D1, 19)], 37);
    splitter.split_by_delegate(&node, &a, &[(D1, 20)], 20);
    splitter.split_around_revert(&node, &a, (D1, 21), &[(D1, 22)], 22);
    let block = node.mine(1).remove(0);
    let tokens = [
        "Log(0) 9 token to d2",
        "Log(1) 12 token to d1, Log(2) 13 token to d2, Log(3) 14 token to d1",
    ];
    let coin = "Native 7 coin to d1";
    let inner = [
        "Inner(0) 15 coin to d1, Inner(2) 17 coin to d2",
        "Inner(0) 18 coin to d2, Inner(1) 19 coin to d1",
        "Inner(0) 20 coin to d1",
        "Inner(0) 22 coin to d1",
    ];
    for call in [TraceCall::Any, TraceCall::Debug, TraceCall::Flat] {
        let all = source(&node.url(), &[&token], Some(Inner::Traces(call)));
        let found = read(&all, &block).await;
        assert_eq!(found[..3], [coin, tokens[0], tokens[1]]);
        assert_eq!(found.len(), 7);
        assert_eq!(found[3..], inner);
    }
    let coin_only = source(&node.url(), &[], Some(Inner::Unseen));
    assert_eq!(read(&coin_only, &block).await, [coin]);
    let tokens_only = source(&node.url(), &[&token], None);
    assert_eq!(read(&tokens_only, &block).await, tokens);
}

#[tokio::test]
async fn a_failed_payment_is_a_failed_candidate() {
    let node = AnvilNode::start(CHAIN_ID);
    let a = node.account(0);
    node.refuse_coin_at(D1);
    node.invoke(&a, D1, "0x", 5);
    let block = node.mine(1).remove(0);
    let coin = source(&node.url(), &[], Some(Inner::Traces(TraceCall::Any)));
    assert_eq!(read(&coin, &block).await, ["failed"]);
}

#[tokio::test]
async fn a_creation_pays_the_contract_that_it_makes() {
    let node = AnvilNode::start(CHAIN_ID);
    let a = node.account(0);
    // Code that does nothing.
    let hash = node.send(json!({"from": a, "value": "0x5", "data": "0x00", "gas": "0x30d40"}));
    let block = node.mine(1).remove(0);
    let receipt: Value = node.receipt(&hash).unwrap();
    let contract = receipt["contractAddress"].as_str().unwrap().to_owned();
    let coin = source(&node.url(), &[], Some(Inner::Unseen));
    let block = BlockHash::from_hex(&block[2..]).unwrap();
    let raw = coin.fetch(block).await.unwrap();
    let mut index = index();
    index.add_scripts([short(&bytes(&contract))], ListVersion(2));
    let scanned = coin.scan(block, &raw, &index).await.unwrap();
    assert_eq!(scanned.txs[0].outputs[0].script.0[..], bytes(&contract));
    assert_eq!(scanned.txs[0].outputs[0].amount.to_string(), "5");
}

#[tokio::test]
async fn a_tip_is_one_small_question_and_heights_are_read_once() {
    let node = AnvilNode::start(CHAIN_ID);
    node.mine(100);
    let proxy = EvmProxy::in_front_of(&node.url());
    let coin = source(&proxy.url(), &[], Some(Inner::Unseen));
    let tip = coin.tip().await.unwrap();
    proxy.forget_calls();
    for _ in 0..3 {
        assert_eq!(coin.tip().await.unwrap(), tip);
    }
    assert_eq!(proxy.tally(), [("eth_getBlockByNumber".to_owned(), 3)].into());
    assert_eq!(tip.height, 100);
    assert_eq!(tip.tags.safe.unwrap().height, 68);
    assert_eq!(tip.tags.finalized.unwrap().height, 36);
    let hashes = coin.hashes(90, 512).await.unwrap();
    assert_eq!(hashes.len(), 11);
    assert_eq!(*hashes.last().unwrap(), tip.hash);
    let header = coin.header(tip.hash).await.unwrap().unwrap();
    assert!(header.is_active);
    assert_eq!(header.held.header.parent, hashes[9]);
    assert!(coin.header(BlockHash([9; 32])).await.unwrap().is_none());
}

/// Anybody can make a transaction whose trace is too large or takes too long.
#[tokio::test]
async fn a_transaction_that_cannot_be_traced_stops_nobody_else() {
    let node = AnvilNode::start(CHAIN_ID);
    let a = node.account(0);
    let splitter = Splitter::deploy(&node);
    let odd = splitter.split(&node, &a, &[(D1, 15)], 15);
    splitter.split(&node, &a, &[(D2, 17)], 17);
    let block = node.mine(1).remove(0);
    let proxy = EvmProxy::in_front_of(&node.url());
    proxy.always(
        "debug_traceBlockByHash",
        Fault::Error(-32_000, "execution timeout"),
    );
    let of_odd = Asked::with("debug_traceTransaction", json!([odd]));
    proxy.always(of_odd, Fault::Error(-32_000, "execution timeout"));
    let coin = source(&proxy.url(), &[], Some(Inner::Traces(TraceCall::Debug)));
    let hash = BlockHash::from_hex(&block[2..]).unwrap();
    for _ in 0..2 {
        assert!(coin.fetch(hash).await.is_err(), "it is asked again first");
    }
    assert_eq!(read(&coin, &block).await, ["Inner(0) 17 coin to d2"]);
    let untraced = coin
        .counters()
        .untraced
        .load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(untraced, 1);
}

/// Many nodes keep no index of old transactions, but the blocks themselves.
#[tokio::test]
async fn a_node_without_an_index_of_transactions_still_tells_what_a_block_did() {
    let node = AnvilNode::start(CHAIN_ID);
    let a = node.account(0);
    let token = Token::deploy(&node, "TUSD", 6);
    token.mint(&node, &a, 1_000);
    token.transfer(&node, &a, D2, 9);
    let block = node.mine(1).remove(0);
    let proxy = EvmProxy::in_front_of(&node.url());
    for method in ["eth_getTransactionReceipt", "eth_getTransactionByHash"] {
        proxy.always(method, Fault::Result(Value::Null));
    }
    let tokens = source(&proxy.url(), &[&token], None);
    assert_eq!(read(&tokens, &block).await, ["Log(0) 9 token to d2"]);
}

/// A proxy that drops a log moves all that stand behind it.
#[tokio::test]
async fn a_receipt_that_lacks_a_log_is_not_believed() {
    let node = AnvilNode::start(CHAIN_ID);
    let a = node.account(0);
    let token = Token::deploy(&node, "TUSD", 6);
    token.mint(&node, &a, 1_000);
    token.pay(&node, &a, &[(D3, 1), (D1, 12), (D2, 13)]);
    let block = node.mine(1).remove(0);
    let proxy = EvmProxy::in_front_of(&node.url());
    let lacking = Fault::edit(|_, mut receipt| {
        if let Some(logs) = receipt["logs"].as_array_mut().filter(|logs| logs.len() == 3) {
            logs.remove(1);
        }
        receipt
    });
    proxy.always("eth_getTransactionReceipt", lacking);
    let tokens = source(&proxy.url(), &[&token], None);
    let hash = BlockHash::from_hex(&block[2..]).unwrap();
    let raw = tokens.fetch(hash).await.unwrap();
    let outcome = tokens.scan(hash, &raw, &index()).await;
    assert!(outcome.unwrap_err().to_string().contains("not numbered in a row"));
    proxy.lift_all();
    let whole = "Log(1) 12 token to d1, Log(2) 13 token to d2";
    assert_eq!(read(&tokens, &block).await, [whole]);
}
