//! What goes on at a node by itself: payments, bumps, double spends, blocks and small reorgs, all drawn from
//! a seed. Whatever it does, every payment ends deep in the chain or is replaced before it was ever three
//! blocks deep, so that all who watch must end at the same credits, whatever they saw of it.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::Arc;

use bitcoincore_rpc::bitcoin::consensus::encode::deserialize_hex;
use bitcoincore_rpc::bitcoin::{Address, Block, ScriptBuf};
use serde_json::json;

use crate::common::node::RegtestNode;
use crate::common::wallet::{Coin, RawTx};
use crate::shop::{fresh_address, text};

/// Numbers from a seed (SplitMix64).
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % end
    }
}

/// A transaction that spends a coin, and the fee that it pays.
struct Paid {
    coin: Coin,
    fee: u64,
    tx: RawTx,
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub payments: u32,
    pub bumps: u32,
    pub blocks: u32,
    pub reorgs: u32,
    pub double_spends: u32,
}

pub struct Market {
    node: Arc<RegtestNode>,
    /// The height that it began at.
    pub start: u64,
    pub addresses: Vec<String>,
    coins: Vec<Coin>,
    /// Listed and in no block.
    open: Vec<Paid>,
    /// What each block since the last reorg brought, the newest last.
    young: Vec<Vec<Paid>>,
    pub tally: Tally,
}

impl Market {
    /// A market at a node's tip that pays these addresses with these coins.
    pub fn new(node: &Arc<RegtestNode>, addresses: Vec<String>, coins: Vec<Coin>) -> Self {
        Self {
            node: Arc::clone(node),
            start: node.height(),
            addresses,
            coins,
            open: Vec::new(),
            young: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Something happens.
    pub fn step(&mut self, draw: &mut Draw) {
        match draw.below(14) {
            0..=4 => self.pay(draw),
            5..=6 => self.bump(draw),
            7 => self.pay_in_block(draw),
            8..=11 => self.mine(),
            _ => self.reorg(draw),
        }
    }

    /// Everything open is mined and buried.
    pub fn close(&mut self) {
        self.mine();
        self.mine_empty(8);
    }

    /// What the best chain pays to the addresses: satoshi by (txid, output).
    pub fn paid(&self) -> BTreeMap<(String, u64), u64> {
        let script = |address: &String| {
            Address::from_str(address)
                .unwrap()
                .assume_checked()
                .script_pubkey()
        };
        let ours: Vec<ScriptBuf> = self.addresses.iter().map(script).collect();
        let mut paid = BTreeMap::new();
        for height in self.start + 1..=self.node.height() {
            let hash = self.node.block_hash(height);
            let hex = text(&self.node.call("getblock", &[json!(hash), json!(0)]));
            let block: Block = deserialize_hex(&hex).unwrap();
            for tx in &block.txdata {
                let hits = (0..).zip(&tx.output);
                for (vout, output) in hits.filter(|(_, output)| ours.contains(&output.script_pubkey)) {
                    paid.insert((tx.compute_txid().to_string(), vout), output.value.to_sat());
                }
            }
        }
        paid
    }

    fn make(&mut self, draw: &mut Draw) -> Option<Paid> {
        let coin = self.coins.pop()?;
        self.tally.payments += 1;
        Some(self.spend(coin, 1_000, true, draw))
    }

    fn spend(&self, coin: Coin, fee: u64, pays_us: bool, draw: &mut Draw) -> Paid {
        let nobody = fresh_address();
        let address = match pays_us {
            true => &self.addresses[draw.below(self.addresses.len() as u64) as usize],
            false => &nobody,
        };
        let sat = 10_000 + draw.below(90_000);
        let rest = coin.sat - sat - fee;
        // The order of the outputs too: the same payment is not always output 0.
        let mut outputs = [(address.as_str(), sat), (nobody.as_str(), rest)];
        outputs.rotate_left(draw.below(2) as usize);
        let tx = self.node.spend(&[&coin], &outputs);
        Paid { coin, fee, tx }
    }

    fn pay(&mut self, draw: &mut Draw) {
        if let Some(paid) = self.make(draw) {
            self.node.broadcast(&paid.tx);
            self.open.push(paid);
        }
    }

    fn pay_in_block(&mut self, draw: &mut Draw) {
        if let Some(paid) = self.make(draw) {
            self.node.generateblock(&[&paid.tx.hex]);
            self.tally.blocks += 1;
            self.young.push(vec![paid]);
        }
    }

    fn bump(&mut self, draw: &mut Draw) {
        if self.open.is_empty() {
            return;
        }
        let old = self.open.swap_remove(draw.below(self.open.len() as u64) as usize);
        let pays_us = draw.below(3) > 0;
        let new = self.spend(old.coin, old.fee + 5_000, pays_us, draw);
        self.node.broadcast(&new.tx);
        self.tally.bumps += 1;
        self.open.push(new);
    }

    fn mine(&mut self) {
        self.node.mine(1);
        self.tally.blocks += 1;
        self.young.push(std::mem::take(&mut self.open));
    }

    fn mine_empty(&mut self, count: u64) {
        for _ in 0..count {
            self.node.generateblock(&[]);
            self.tally.blocks += 1;
        }
    }

    /// Up to five blocks are replaced by one more. Their payments come again, in the first new block, in the
    /// second, or only after the new branch has won; of two young blocks one payment may be spent elsewhere
    /// instead.
    fn reorg(&mut self, draw: &mut Draw) {
        let is_double_spend = draw.below(2) == 0;
        let depth = 1 + draw.below(if is_double_spend { 2 } else { 5 });
        let tip = self.node.height();
        if tip < self.start + depth {
            return;
        }
        self.node.invalidate(&self.node.block_hash(tip - depth + 1));
        self.tally.reorgs += 1;
        let first = self.young.len().saturating_sub(depth as usize);
        let lost = self.young.drain(first..).flatten().next();
        if let Some(paid) = lost.filter(|_| is_double_spend) {
            let other = self.spend(paid.coin, paid.fee + 50_000, false, draw);
            self.node.broadcast(&other.tx);
            self.tally.double_spends += 1;
        }
        let before = [0, 1, depth + 1][draw.below(3) as usize];
        self.mine_empty(before);
        self.mine();
        self.mine_empty(depth.saturating_sub(before));
        self.young.clear();
    }
}
