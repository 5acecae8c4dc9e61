//! What we read of one transaction, in a block or in the mempool.

use super::convert;
use crate::rules::{Amount, Ancestor, Asset, CandidateOutput, Outpoint, Script, Txid};
use bitcoincore_rpc::bitcoin;
use bitcoincore_rpc::bitcoin::Transaction;
use std::collections::BTreeSet;

/// How many unconfirmed ancestors are kept of one transaction. Nodes relay chains of 25 (or clusters of 64);
/// a miner may make longer ones, of which the nearest are enough to give a state its name.
pub(super) const ANCESTORS_MAX: usize = 128;

/// The unconfirmed transactions that `inputs` depend on, nearest first. `read` knows the inputs of those that
/// are unconfirmed themselves (or in the same block) and `None` of all others.
pub(super) fn ancestors(inputs: &[Outpoint], read: impl Fn(&Txid) -> Option<Vec<Outpoint>>) -> Vec<Ancestor> {
    let mut found: Vec<Ancestor> = Vec::new();
    let mut met = BTreeSet::new();
    let mut from = inputs.to_vec();
    let mut next = 0;
    loop {
        for input in &from {
            if found.len() < ANCESTORS_MAX
                && met.insert(input.txid)
                && let Some(inputs) = read(&input.txid)
            {
                found.push(Ancestor {
                    txid: input.txid,
                    inputs,
                });
            }
        }
        match found.get(next) {
            Some(ancestor) => from.clone_from(&ancestor.inputs),
            None => return found,
        }
        next += 1;
    }
}

/// A coinbase has no inputs: what stands there spends nothing.
pub(super) fn inputs(tx: &Transaction) -> Vec<Outpoint> {
    if tx.is_coinbase() {
        return Vec::new();
    }
    tx.input
        .iter()
        .map(|input| convert::outpoint(input.previous_output))
        .collect()
}

/// What is wrong with a transaction that pays somebody more than all coins that there can be. No node takes
/// it, so whoever shows it made it up.
pub(super) fn overpays(tx: &Transaction) -> Option<&'static str> {
    let is_over = tx
        .output
        .iter()
        .any(|output| output.value > bitcoin::Amount::MAX_MONEY);
    is_over.then_some("an output of more than all coins")
}

pub(super) fn candidate_output(vout: u64, output: &bitcoin::TxOut) -> CandidateOutput {
    CandidateOutput {
        vout,
        script: Script(output.script_pubkey.as_bytes().into()),
        asset: Asset::Native,
        from: None,
        doubt: None,
        amount: Amount::from_u64(output.value.to_sat()),
    }
}

/// Only scripts that an address stands for can be watched: never a bare key, bare multisig or data.
pub(super) fn has_address(script: &bitcoin::Script) -> bool {
    script.is_witness_program() || script.is_p2pkh() || script.is_p2sh()
}
