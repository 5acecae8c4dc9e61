//! Bitcoin: the simulated node, and a real one.

use std::collections::BTreeMap;
use std::path::Path;

use creditd::address::Network;
use creditd::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use creditd::chain::rpc::Auth;
use creditd::clock::Clock;
use creditd::egress::HttpDial;
use creditd::rules::{BlockHash, Script, Txid};
use creditd::sandbox::Sandbox;
use creditd::store::{NewAsset, NewChain};
use serde_json::json;
use tempfile::TempDir;

use super::bench::REORG_WINDOW;
use super::stage::{Payee, Stage};
use crate::common::node::RegtestNode;
use crate::common::wallet::{Coin, RawTx};

/// The address of private key 1 (BIP 173), and the script that it stands for.
const WATCHED: &str = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080";
const WATCHED_SCRIPT: &str = "0014751e76e8199196d454941c45d1b3a323f1433bd6";

/// What a payment offers to the miner; each rival offers so much more.
const FEE: u64 = 10_000;

fn config(url: &str, cookie: &Path) -> BitcoinConfig {
    BitcoinConfig {
        instance: Some("test".to_owned()),
        ..BitcoinConfig::new(url, Auth::Cookie(cookie.to_owned()), Network::Regtest)
    }
}

fn source(url: &str, cookie: &Path) -> BitcoinSource<HttpDial> {
    BitcoinSource::new(config(url, cookie), HttpDial::new(), Clock::real())
}

fn chain() -> NewChain {
    let id = config("http://127.0.0.1", Path::new("")).chain();
    NewChain {
        assets: vec![NewAsset::bitcoin(&id, "BTC")],
        id,
        genesis: Some(Network::Regtest.genesis()),
        alias: "btc".to_owned(),
    }
}

fn watched() -> Script {
    Script(const_hex::decode(WATCHED_SCRIPT).unwrap().into())
}

/// The address and the amount that a transaction pays.
fn output(payee: Payee) -> (String, u64) {
    match payee {
        Payee::Us(sat) => (WATCHED.to_owned(), sat),
        Payee::Nobody => (Sandbox::address("nobody"), 5_000_000),
    }
}

/// The simulated node.
pub struct Simulated {
    node: Sandbox,
    /// The first blocks of the branch that [`Stage::step_aside`] took off, and of the other.
    left: Option<[BlockHash; 2]>,
    _folder: TempDir,
}

impl Stage for Simulated {
    type Source = BitcoinSource<HttpDial>;

    const SHOWS_WAITING: bool = true;

    const SEES_EVERY_SENDER: bool = true;

    const UNDOABLE: u32 = REORG_WINDOW;

    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = Sandbox::start(folder.path(), Clock::real()).unwrap();
        let left = None;
        Self {
            node,
            left,
            _folder: folder,
        }
    }

    fn source(&self) -> Self::Source {
        source(self.node.url(), self.node.cookie_file())
    }

    fn chain(&self) -> NewChain {
        chain()
    }

    fn watched(&self) -> Script {
        watched()
    }

    fn tip(&self) -> BlockHash {
        self.node.tip()
    }

    fn pay(&mut self, payee: Payee) -> Txid {
        let (address, sat) = output(payee);
        self.node.pay(&address, sat).unwrap()
    }

    fn rival(&mut self, txid: Txid, payee: Payee) -> Txid {
        let (address, sat) = output(payee);
        self.node.conflict(txid, &address, sat).unwrap()
    }

    fn send(&mut self, txid: Txid) {
        self.node.resend(txid).unwrap();
    }

    fn mine(&mut self, first: &[Txid], count: u32) {
        self.node.mine_with(first).unwrap();
        for _ in 1..count {
            self.node.mine_with(&[]).unwrap();
        }
    }

    fn reorg(&mut self, depth: u32, count: u32, first: &[Txid]) {
        if count == depth + 1 {
            self.node.reorg(depth, first).unwrap();
        } else {
            self.node.invalidate(self.lowest(depth)).unwrap();
            self.mine(first, count);
        }
    }

    fn step_aside(&mut self, depth: u32, count: u32) {
        if count == 0 {
            self.node.lag(depth);
            return;
        }
        let left = self.lowest(depth);
        self.node.invalidate(left).unwrap();
        self.mine(&[], count);
        self.left = Some([left, self.lowest(count)]);
    }

    fn come_back(&mut self) {
        match self.left.take() {
            Some([left, other]) => {
                self.node.invalidate(other).unwrap();
                self.node.reconsider(left).unwrap();
            }
            None => self.node.catch_up(),
        }
    }
}

impl Simulated {
    /// The lowest of the last `depth` blocks.
    fn lowest(&self, depth: u32) -> BlockHash {
        let height = self.node.height() + 1 - u64::from(depth);
        self.node.block_hash(height).unwrap()
    }
}

/// A real node.
pub struct Real {
    node: RegtestNode,
    /// Coins that nobody has spent.
    coins: Vec<Coin>,
    made: BTreeMap<Txid, Made>,
    /// The first blocks of the branch that [`Stage::step_aside`] took off, and of the other, if it has any.
    left: Option<(String, Option<String>)>,
}

struct Made {
    tx: RawTx,
    coin: Coin,
    fee: u64,
}

impl Stage for Real {
    type Source = BitcoinSource<HttpDial>;

    const SHOWS_WAITING: bool = true;

    const SEES_EVERY_SENDER: bool = true;

    const UNDOABLE: u32 = REORG_WINDOW;

    fn open() -> Self {
        let node = RegtestNode::start();
        node.fund();
        let coins = (0..8).map(|_| node.coin()).collect();
        Self {
            node,
            coins,
            made: BTreeMap::new(),
            left: None,
        }
    }

    fn source(&self) -> Self::Source {
        source(&self.node.url(), &self.node.cookie_file())
    }

    fn chain(&self) -> NewChain {
        chain()
    }

    fn watched(&self) -> Script {
        watched()
    }

    fn tip(&self) -> BlockHash {
        BlockHash::from_hex(&self.node.tip()).unwrap()
    }

    fn pay(&mut self, payee: Payee) -> Txid {
        let coin = self.coins.pop().expect("a coin for each payment");
        let txid = self.make(coin, payee, FEE);
        self.send(txid);
        txid
    }

    fn rival(&mut self, txid: Txid, payee: Payee) -> Txid {
        let Made { coin, fee, .. } = &self.made[&txid];
        self.make(coin.clone(), payee, fee + FEE)
    }

    fn send(&mut self, txid: Txid) {
        self.node.broadcast(&self.made[&txid].tx);
    }

    fn mine(&mut self, first: &[Txid], count: u32) {
        let first: Vec<&str> = first.iter().map(|txid| self.made[txid].tx.hex.as_str()).collect();
        self.node.generateblock(&first);
        for _ in 1..count {
            self.node.generateblock(&[]);
        }
    }

    fn reorg(&mut self, depth: u32, count: u32, first: &[Txid]) {
        let left = self.mined_in_last(depth);
        self.node.invalidate(&self.lowest(depth));
        self.mine(first, count);
        for txid in left {
            // The node takes those of the last ten blocks back by itself, and none that cannot be mined.
            let hex = &self.made[&txid].tx.hex;
            let _ = self.node.try_call("sendrawtransaction", &[json!(hex)]);
        }
    }

    fn step_aside(&mut self, depth: u32, count: u32) {
        let left = self.lowest(depth);
        self.node.invalidate(&left);
        for _ in 0..count {
            self.node.generateblock(&[]);
        }
        let other = (count > 0).then(|| self.lowest(count));
        self.left = Some((left, other));
    }

    fn come_back(&mut self) {
        let (left, other) = self.left.take().expect("it has stepped aside");
        if let Some(other) = other {
            self.node.invalidate(&other);
        }
        self.node.reconsider(&left);
    }
}

impl Real {
    fn make(&mut self, coin: Coin, payee: Payee, fee: u64) -> Txid {
        let ((address, sat), change) = (output(payee), self.node.new_address());
        let rest = coin.sat - sat - fee;
        let tx = self.node.spend(&[&coin], &[(&address, sat), (&change, rest)]);
        let txid = Txid::from_hex(&tx.txid).unwrap();
        self.made.insert(txid, Made { tx, coin, fee });
        txid
    }

    /// The transactions made here that are in the last blocks.
    fn mined_in_last(&self, depth: u32) -> Vec<Txid> {
        let height = self.node.height();
        let heights = height + 1 - u64::from(depth)..=height;
        let blocks = heights.map(|height| self.node.call("getblock", &[json!(self.node.block_hash(height))]));
        let txids = blocks.flat_map(|block| block["tx"].as_array().unwrap().clone());
        let txids = txids.map(|txid| Txid::from_hex(txid.as_str().unwrap()).unwrap());
        txids.filter(|txid| self.made.contains_key(txid)).collect()
    }

    /// The lowest of the last `depth` blocks.
    fn lowest(&self, depth: u32) -> String {
        self.node.block_hash(self.node.height() + 1 - u64::from(depth))
    }
}
