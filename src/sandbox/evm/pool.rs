//! Transactions that wait for a block, by sender and nonce: one for each.

use super::state::State;
use super::tx::{Address, Signed};
use crate::rules::Txid;
use crate::sandbox::SandboxError;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Pool {
    waiting: BTreeMap<(Address, u64), Arc<Signed>>,
    /// Those without a nonce: first in the next block.
    first: Vec<Arc<Signed>>,
}

impl Pool {
    /// Takes a transaction in; one of the same sender and nonce goes if it paid a tenth less per gas.
    pub(super) fn put(&mut self, tx: Arc<Signed>, state: &State) -> Result<(), SandboxError> {
        let refused = |why: &str| Err(SandboxError::Refused(why.to_owned()));
        if self.get(&tx.hash).is_some() {
            return refused("already known");
        }
        let Some(nonce) = tx.nonce else {
            self.first.push(tx);
            return Ok(());
        };
        if nonce < state.nonce(tx.tx.from) {
            return refused("nonce too low");
        }
        let place = (tx.tx.from, nonce);
        if let Some(held) = self.waiting.get(&place) {
            let price = held.tx.gas_price;
            if tx.tx.gas_price <= price || tx.tx.gas_price - price < price / 10 {
                return refused("replacement transaction underpriced");
            }
        }
        self.waiting.insert(place, tx);
        Ok(())
    }

    pub(super) fn get(&self, hash: &Txid) -> Option<&Arc<Signed>> {
        self.all().find(|tx| tx.hash == *hash)
    }

    /// All of them, those without a nonce first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Signed>> {
        self.first.iter().chain(self.waiting.values())
    }

    /// True if it was there.
    pub(super) fn remove(&mut self, hash: &Txid) -> bool {
        let before = self.all().count();
        self.first.retain(|tx| tx.hash != *hash);
        self.waiting.retain(|_, tx| tx.hash != *hash);
        self.all().count() < before
    }

    /// Drops what the accounts are past, and those without a nonce that are in a block.
    pub(super) fn prune(&mut self, state: &State, is_mined: impl Fn(&Txid) -> bool) {
        self.waiting
            .retain(|(from, nonce), _| *nonce >= state.nonce(*from));
        self.first.retain(|tx| !is_mined(&tx.hash));
    }

    /// The next nonce of a sender, with what waits without a gap.
    pub(super) fn next_nonce(&self, of: Address, state: &State) -> u64 {
        let mut next = state.nonce(of);
        while self.waiting.contains_key(&(of, next)) {
            next += 1;
        }
        next
    }

    /// What a block can take now, in order: whoever waits behind a gap of nonces waits on.
    pub(super) fn ready(&self, state: &State) -> Vec<Arc<Signed>> {
        let is_ready = |tx: &&Arc<Signed>| self.is_ready(tx, state);
        self.all().filter(is_ready).cloned().collect()
    }

    /// Does nothing stand between a transaction and the next block?
    pub(super) fn is_ready(&self, tx: &Signed, state: &State) -> bool {
        tx.nonce
            .is_none_or(|nonce| nonce < self.next_nonce(tx.tx.from, state))
    }
}
