//! What whoever plays with the Bitcoin node asks of it beside the node's own calls.

use super::chain::Chain;
use super::{Place, Sandbox, SandboxError};
use crate::rules::Txid;
use bitcoincore_rpc::bitcoin::{Address, Network, Script};

impl Sandbox {
    /// Where a transaction is.
    pub fn place(&self, txid: Txid) -> Place {
        self.node.read(|chain| {
            if chain.mempool.get(&txid).is_some() {
                return Place::Waits;
            }
            let tip = chain.tip().height;
            let holds = |height: &u32| {
                let block = chain.at(*height);
                block.is_some_and(|block| block.txs.iter().any(|tx| tx.txid == txid))
            };
            match (0..=tip).rev().find(holds) {
                Some(height) => Place::Mined(tip - height + 1),
                None => Place::Gone,
            }
        })
    }

    /// Whom a transaction pays first, and how much, in satoshi.
    pub fn payment_of(&self, txid: Txid) -> Option<(String, u64)> {
        self.node.read(|chain| {
            let output = chain.txs.get(&txid)?.outputs.first()?;
            let address = Address::from_script(Script::from_bytes(&output.script), Network::Regtest);
            Some((address.ok()?.to_string(), output.sat))
        })
    }

    /// What the last blocks hold beside their rewards, parents before children.
    pub fn mined_in(&self, depth: u32) -> Vec<Txid> {
        self.node.read(|chain| {
            let tip = chain.tip().height;
            let heights = tip.saturating_sub(depth) + 1..=tip;
            let blocks = heights.filter_map(|height| chain.at(height));
            let txs = blocks.flat_map(|block| block.txs.iter().skip(1));
            txs.map(|tx| tx.txid).collect()
        })
    }

    /// Begins anew: a chain as at the start, and no trouble.
    ///
    /// # Errors
    /// None that can happen.
    pub fn reset(&self) -> Result<(), SandboxError> {
        self.set_trouble(None, None);
        self.node.change(Chain::begin_again);
        self.mine(super::FIRST_BLOCKS).map(|_| ())
    }
}
