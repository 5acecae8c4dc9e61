//! Transactions that are in no block yet, in the order in which they came: parents before children.

use super::SandboxError;
use super::chain::Chain;
use super::encode::Tx;
use crate::rules::{Outpoint, Txid};
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Mempool {
    txs: Vec<Arc<Tx>>,
}

impl Mempool {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Tx>> {
        self.txs.iter()
    }

    pub(super) fn get(&self, txid: &Txid) -> Option<&Arc<Tx>> {
        self.txs.iter().find(|tx| tx.txid == *txid)
    }

    pub(super) fn insert(&mut self, tx: Arc<Tx>) {
        if self.get(&tx.txid).is_none() {
            self.txs.push(tx);
        }
    }

    pub(super) fn remove(&mut self, txid: &Txid) {
        self.txs.retain(|tx| tx.txid != *txid);
    }

    /// All of them; none is left.
    pub(super) fn take(&mut self) -> Vec<Arc<Tx>> {
        std::mem::take(&mut self.txs)
    }

    /// Those that spend what `tx` spends, with all that depend on them.
    pub(super) fn conflicts(&self, tx: &Tx) -> Vec<Arc<Tx>> {
        let spent: BTreeSet<_> = tx.inputs.iter().map(|input| input.spends).collect();
        let is_conflict = |other: &Tx| {
            other.txid != tx.txid && other.inputs.iter().any(|input| spent.contains(&input.spends))
        };
        self.family(is_conflict)
    }

    /// A transaction of the mempool and all that depend on it.
    pub(super) fn with_descendants(&self, txid: &Txid) -> Vec<Arc<Tx>> {
        self.family(|tx| tx.txid == *txid)
    }

    /// Children stand behind their parents, so one pass finds them all.
    fn family(&self, is_head: impl Fn(&Tx) -> bool) -> Vec<Arc<Tx>> {
        let mut ids = BTreeSet::new();
        let mut found = Vec::new();
        for tx in &self.txs {
            let is_child = tx.inputs.iter().any(|input| ids.contains(&input.spends.txid));
            if is_child || is_head(tx) {
                ids.insert(tx.txid);
                found.push(tx.clone());
            }
        }
        found
    }
}

impl Chain {
    /// Remembers a transaction without sending it.
    pub(super) fn know(&mut self, tx: Tx) -> Arc<Tx> {
        let tx = Arc::new(tx);
        self.txs.insert(tx.txid, tx.clone());
        tx
    }

    /// Takes a transaction into the mempool; it takes the place of any that it conflicts with, if it pays
    /// enough for that.
    pub(super) fn accept(&mut self, tx: Arc<Tx>) -> Result<(), SandboxError> {
        let refuse = |why: &str| Err(SandboxError::Refused(why.to_owned()));
        let next = self.tip().height + 1;
        for input in &tx.inputs {
            let confirmed = self.coins.get(&input.spends);
            let parent = self.mempool.get(&input.spends.txid);
            if confirmed.is_none() && parent.is_none_or(|parent| !has_output(parent, &input.spends)) {
                return refuse("bad-txns-inputs-missingorspent");
            }
            if confirmed.is_some_and(|coin| !coin.is_mature(next)) {
                return refuse("bad-txns-premature-spend-of-coinbase");
            }
        }
        let conflicts = self.mempool.conflicts(&tx);
        if !conflicts.is_empty() {
            let displaced: u64 = conflicts.iter().map(|tx| self.fee(tx)).sum();
            // BIP 125: more than all of them together, by what relaying it costs.
            if self.fee(&tx) < displaced + tx.virtual_size() {
                return refuse("insufficient fee");
            }
            conflicts.iter().for_each(|tx| self.mempool.remove(&tx.txid));
        }
        self.mempool.insert(tx);
        Ok(())
    }

    /// Drops a transaction and all that spend it from the mempool.
    pub(super) fn evict(&mut self, txid: &Txid) -> bool {
        let gone = self.mempool.with_descendants(txid);
        gone.iter().for_each(|tx| self.mempool.remove(&tx.txid));
        !gone.is_empty()
    }
}

fn has_output(tx: &Tx, outpoint: &Outpoint) -> bool {
    usize::try_from(outpoint.vout).is_ok_and(|vout| vout < tx.outputs.len())
}
