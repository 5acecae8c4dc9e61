//! What can be spent on a branch.

use super::tree::{FOREIGN, Tx};
use creditd::rules::{Outpoint, Txid};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Coin from elsewhere, and the nonces of senders, are there once each.
fn is_endless(input: &Outpoint) -> bool {
    input.txid.0.starts_with(&FOREIGN) || input.txid.0.starts_with(&[0; 12])
}

/// The coins of one branch up to some block.
#[derive(Clone, Debug, Default)]
pub struct Sets {
    unspent: BTreeSet<Outpoint>,
    spent: BTreeSet<Outpoint>,
    txids: BTreeSet<Txid>,
}

/// The coins of one branch, and what happened since.
#[derive(Clone, Debug, Default)]
pub struct Coins {
    below: Arc<Sets>,
    /// Unspent ones of it are younger than its spends.
    here: Sets,
}

impl Coins {
    pub fn on(below: Arc<Sets>) -> Coins {
        Coins {
            below,
            here: Sets::default(),
        }
    }

    pub fn apply(&mut self, tx: &Tx) {
        if tx.is_coinbase && tx.outputs.is_empty() {
            return;
        }
        for input in &tx.inputs {
            self.here.unspent.remove(input);
            self.here.spent.insert(*input);
        }
        self.here.txids.insert(tx.txid);
        let outputs = (0..tx.outputs.len() as u64).map(|vout| tx.outpoint(vout));
        self.here.unspent.extend(outputs);
    }

    /// May this transaction come next?
    pub fn allows(&self, tx: &Tx) -> bool {
        let is_known = self.here.txids.contains(&tx.txid) || self.below.txids.contains(&tx.txid);
        !is_known && tx.inputs.iter().all(|input| self.has(input))
    }

    /// Is it used up on this branch?
    pub fn is_spent(&self, input: &Outpoint) -> bool {
        self.here.spent.contains(input) || self.below.spent.contains(input)
    }

    fn has(&self, input: &Outpoint) -> bool {
        if self.here.unspent.contains(input) {
            return true;
        }
        !self.here.spent.contains(input)
            && (self.below.unspent.contains(input)
                || (is_endless(input) && !self.below.spent.contains(input)))
    }

    /// All of it as the state of a block.
    pub fn into_sets(self) -> Arc<Sets> {
        let Coins { below, here } = self;
        if here.txids.is_empty() {
            return below;
        }
        let mut sets = Arc::unwrap_or_clone(below);
        for spent in here.spent {
            sets.unspent.remove(&spent);
            sets.spent.insert(spent);
        }
        sets.unspent.extend(here.unspent);
        sets.txids.extend(here.txids);
        Arc::new(sets)
    }
}
