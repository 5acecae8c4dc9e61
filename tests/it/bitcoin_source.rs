//! The Bitcoin source against a played node: who it is, where it stands, what its blocks hold.

use std::time::Duration;

use bitcoincore_rpc::bitcoin;
use bitcoincore_rpc::bitcoin::consensus::encode::{serialize, serialize_hex};
use bitcoincore_rpc::bitcoin::hashes::Hash as _;
use bitcoincore_rpc::bitcoin::{Block, ScriptBuf, Transaction};
use creditd::address::Network;
use creditd::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use creditd::chain::rpc::Auth;
use creditd::chain::{ChainSource, SourceError};
use creditd::clock::Clock;
use creditd::config::Checkpoint;
use creditd::egress::HttpDial;
use creditd::index::{Index, short};
use creditd::rules::{Amount, BlockHash, ListVersion, Outpoint, ScannedBlock, Txid};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::fake_chain::{FakeNode, coin, grind, mine, mine_exactly, output, tx};
use crate::common::stub::Reply;

mod blocks;
mod identity;
mod mempool;
mod tip;

const MAIN: &str = "bip122:000000000019d6689c085ae165831e93";
const SIGNET: &str = "bip122:00000008819873e925422c1ff0f99f7c";
const REGTEST: &str = "bip122:0f9188f13cb7b2c71f2a335e3a4fc328";

pub fn config(node: &FakeNode) -> BitcoinConfig {
    BitcoinConfig {
        instance: Some("test".to_owned()),
        ..BitcoinConfig::new(
            node.stub.url(),
            Auth::Cookie(node.stub.cookie_file()),
            Network::Regtest,
        )
    }
}

pub fn source(config: BitcoinConfig) -> BitcoinSource<HttpDial> {
    BitcoinSource::new(config, HttpDial::new(), Clock::real())
}

pub fn ours(hash: bitcoin::BlockHash) -> BlockHash {
    BlockHash::from_hex(&hash.to_string()).unwrap()
}

pub fn our_txid(tx: &Transaction) -> Txid {
    Txid::from_hex(&tx.compute_txid().to_string()).unwrap()
}

/// A pay-to-witness-key-hash script.
pub fn script(number: u8) -> ScriptBuf {
    ScriptBuf::from([&[0, 20][..], &[number; 20]].concat())
}

pub fn index_of(scripts: &[&ScriptBuf]) -> Index {
    let mut index = Index::default();
    index.add_scripts(
        scripts.iter().map(|script| short(script.as_bytes())),
        ListVersion(1),
    );
    index
}

/// A node on `chain` that has nothing but the genesis block.
fn node_at_genesis(network: bitcoin::Network) -> FakeNode {
    let node = FakeNode::regtest(0);
    {
        let mut state = node.state();
        state.chain = vec![bitcoin::constants::genesis_block(network)];
        state.info = json!({"chain": network.to_core_arg()});
    }
    node
}

fn on(network: Network, node: &FakeNode) -> BitcoinConfig {
    BitcoinConfig {
        network,
        instance: None,
        ..config(node)
    }
}

#[track_caller]
fn wrong_network<T: std::fmt::Debug>(answer: Result<T, SourceError>) -> String {
    match answer {
        Err(SourceError::WrongNetwork(why)) => why,
        other => panic!("a wrong network, not {other:?}"),
    }
}

fn amounts(block: &ScannedBlock) -> Vec<u64> {
    let outputs = block.txs.iter().flat_map(|tx| &tx.outputs);
    outputs
        .map(|output| output.amount.to_string().parse().unwrap())
        .collect()
}

fn our_outpoint(theirs: bitcoin::OutPoint) -> Outpoint {
    Outpoint {
        txid: Txid::from_hex(&theirs.txid.to_string()).unwrap(),
        vout: u64::from(theirs.vout),
    }
}
