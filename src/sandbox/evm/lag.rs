//! A node that is behind the others of its chain, and transactions that stand in each other's way.

use super::chain::{Block, Chain};
use super::tx::{Nonce, Tx};
use crate::rules::{BlockHash, Txid};
use crate::sandbox::SandboxError;

/// What a lagging node does not know meanwhile.
pub(super) struct Lag {
    /// Where the chain goes on.
    tip: BlockHash,
    blocks: Vec<Block>,
}

impl Chain {
    /// Goes back by some blocks and forgets them, and all that came on other branches above. A node that lags
    /// already lags more.
    pub(super) fn lag(&mut self, blocks: u64) {
        let tip = self.tip();
        let (hash, height) = (tip.hash, tip.number.saturating_sub(blocks));
        let Some(at) = self.at(height).map(|block| block.hash) else {
            return;
        };
        // A block below the tip is always a place to go to.
        let _ = self.set_tip(&at);
        let above: Vec<BlockHash> = self
            .blocks
            .values()
            .filter(|block| block.number > height)
            .map(|block| block.hash)
            .collect();
        let forgotten = above.iter().filter_map(|hash| self.blocks.remove(hash));
        let forgotten: Vec<Block> = forgotten.collect();
        let lag = self.lag.get_or_insert_with(|| Lag {
            tip: hash,
            blocks: Vec::new(),
        });
        lag.blocks.extend(forgotten);
    }

    pub(super) fn catch_up(&mut self) {
        if let Some(lag) = self.lag.take() {
            let known = lag.blocks.into_iter().map(|block| (block.hash, block));
            self.blocks.extend(known);
            let _ = self.set_tip(&lag.tip);
        }
    }

    pub(super) fn is_lagging(&self) -> bool {
        self.lag.is_some()
    }

    /// Takes note of a transaction that only a block can bring, in the place of another one.
    pub(super) fn rival(&mut self, txid: &Txid, change: impl FnOnce(&mut Tx)) -> Result<Txid, SandboxError> {
        let (first, effects) = self.known(txid)?;
        let Some(nonce) = first.nonce else {
            let why = format!("{txid} has no nonce: nothing can take its place");
            return Err(SandboxError::Refused(why));
        };
        let mut tx = first.tx.clone();
        tx.effects = effects.as_ref().clone();
        change(&mut tx);
        tx.from = first.tx.from;
        tx.nonce = Nonce::Given(nonce);
        let price = first.tx.gas_price;
        tx.gas_price = price.saturating_add(price.div_ceil(10));
        Ok(self.prepare(tx))
    }
}
