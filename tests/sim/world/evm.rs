//! Transactions of an EVM chain: several movements in one, and another outcome in the next block that holds
//! it.

use super::{Chain, rules};
use crate::dice::Dice;
use crate::script::TxSpec;
use crate::scripted::{Call, Coins, Tx, account};
use creditd::rules::Doubt;
use creditd::rules::Outpoint;
use std::sync::Arc;

/// Real nodes take the nonces of a sender in their order.
pub(super) fn is_next(coins: &Coins, tx: &Tx) -> bool {
    tx.inputs.iter().all(|input| {
        let before = input.vout.checked_sub(1).filter(|before| *before > 0);
        before.is_none_or(|vout| coins.is_spent(&Outpoint { vout, ..*input }))
    })
}

impl Chain {
    /// Its outs become its own value, logs of tokens and inner calls, as its shape says.
    fn written(&self, mut call: Call, spec: &TxSpec, shape: &mut Dice) -> Call {
        let mut outs = spec.outs.iter();
        let paid = |out: &crate::script::Out| (account(rules::number(out.to)), u64::from(out.amount));
        if shape.once_in(2)
            && let Some(out) = outs.next()
        {
            let (to, amount) = paid(out);
            call = call.value(&to, amount);
        }
        let mut log = shape.roll(3) as u32;
        for out in outs {
            let from = account(rules::SENDERS[shape.roll(rules::SENDERS.len())]);
            let (to, mut amount) = paid(out);
            // A call that moves nothing is none: its place is the next one's.
            amount += u64::from(amount == 0 && self.wire.is_some());
            call = match shape.roll(5) {
                0 => call.inner(log, &from, &to, amount),
                1 => call.log_from(log, rules::LATER, &from, &to, amount),
                _ => call.log_from(log, rules::TUSD, &from, &to, amount),
            };
            if shape.once_in(12) && self.wire.is_none() {
                call = call.doubt(Doubt::ALL[shape.roll(2)]);
            }
            log += 1 + shape.roll(2) as u32;
        }
        let call = if shape.once_in(12) { call.fails() } else { call };
        self.as_wired(call)
    }

    pub(super) fn make_call(&mut self, spec: &TxSpec) -> Arc<Tx> {
        let shape = &mut Dice::new(u64::from(spec.shape));
        let number = rules::SENDERS[shape.roll(rules::SENDERS.len())];
        let call = match shape.once_in(6) {
            true => Call::deposit(&account(number)),
            false => {
                let nonce = self.nonces.entry(number).or_default();
                *nonce += 1;
                Call::new(&account(number), *nonce)
            }
        };
        let call = self.written(call, spec, shape);
        self.keep(call)
    }

    fn keep(&mut self, call: Call) -> Arc<Tx> {
        let tx = call.send(&mut self.nodes.world().tree);
        self.calls.insert(tx.txid, call);
        self.txs.push(tx.clone());
        tx
    }

    /// Another transaction of the same sender and nonce.
    pub(super) fn rival_call(&mut self, of: &Tx, spec: &TxSpec) -> Arc<Tx> {
        let shape = &mut Dice::new(u64::from(spec.shape));
        let call = self.calls[&of.txid].emptied();
        let call = self.written(call, spec, shape);
        self.keep(call)
    }

    /// The same transaction in another block, where it may run in another way.
    pub(super) fn run_again(&self, tx: &Arc<Tx>, fate: &mut Dice) -> Arc<Tx> {
        if !self.is_evm {
            return tx.clone();
        }
        let call = &self.calls[&tx.txid];
        if fate.once_in(2) {
            return call.again(tx);
        }
        let other = account([0, 1, 2, 4, 50][fate.roll(5)]);
        let call = call.changed(fate.roll(7), fate.roll(4), &other);
        self.as_wired(call).again(tx)
    }

    fn as_wired(&self, call: Call) -> Call {
        match self.wire {
            Some(_) => call.without_self_calls(&account(53)),
            None => call,
        }
    }
}
