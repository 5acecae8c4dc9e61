//! What the tables must say, worked out the slow way from nothing but the blocks of the best chain, the
//! mempool, the rules and the policy. Shares no code with the store: it is the second opinion.

use crate::scripted::{Block, Tx};
use crate::tables::Rule;
use creditd::rules::policy::Policy;
use creditd::rules::{Amount, Outpoint, Txid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    External,
    Mixed,
    Internal,
}

/// An output of the best chain that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub height: u64,
    pub amount: u64,
    pub merchant: String,
    pub origin: Origin,
    pub spent: Option<(Txid, u64)>,
    /// Is it a payment, and does it start held?
    pub deposit: Option<bool>,
    pub is_coinbase: bool,
}

/// The outcome.
#[derive(Debug, Default)]
pub struct Naive {
    pub outputs: BTreeMap<Outpoint, Output>,
    pub inclusions: BTreeSet<(Txid, u64)>,
    /// Payments in the mempool.
    pub seen: BTreeSet<Outpoint>,
    tip: u64,
}

impl Naive {
    pub fn scan(blocks: &[Arc<Block>], mempool: &[Arc<Tx>], rules: &[Rule]) -> Naive {
        let mut naive = Naive::default();
        for block in blocks {
            for tx in &block.txs {
                naive.take(tx, block.height(), rules, true);
            }
            naive.tip = block.height();
        }
        let mined: BTreeSet<Outpoint> = naive.outputs.keys().copied().collect();
        let next = naive.tip + 1;
        let mut with_mempool = Naive {
            outputs: naive.outputs.clone(),
            ..Naive::default()
        };
        mempool
            .iter()
            .for_each(|tx| with_mempool.take(tx, next, rules, false));
        naive.seen = with_mempool
            .outputs
            .into_iter()
            .filter(|(outpoint, output)| output.deposit.is_some() && !mined.contains(outpoint))
            .map(|(outpoint, _)| outpoint)
            .collect();
        naive
    }

    fn take(&mut self, tx: &Tx, height: u64, rules: &[Rule], is_mined: bool) {
        for input in tx.inputs.iter().filter(|_| is_mined) {
            if let Some(spent) = self.outputs.get_mut(input) {
                spent.spent = Some((tx.txid, height));
            }
        }
        for (vout, out) in (0..).zip(&tx.outputs) {
            let at = Outpoint { txid: tx.txid, vout };
            let rule = rules.iter().find(|rule| {
                rule.script == out.script
                    && (rule.from.is_some_and(|from| from <= height) || rule.met.contains(&at))
            });
            let Some(rule) = rule else { continue };
            let is_own = |input: &&Outpoint| {
                self.outputs
                    .get(input)
                    .is_some_and(|output| output.merchant == rule.merchant)
            };
            let own = tx.inputs.iter().filter(is_own).count();
            let origin = match own {
                0 => Origin::External,
                all if all == tx.inputs.len() => Origin::Internal,
                _ => Origin::Mixed,
            };
            let deposit = match (origin, rule.internal.as_str()) {
                _ if !rule.is_watched || out.amount == 0 => None,
                (Origin::External, _) | (Origin::Internal, "credit") => Some(false),
                (Origin::Mixed, _) | (Origin::Internal, "hold") => Some(true),
                (Origin::Internal, _) => None,
            };
            let output = Output {
                height,
                amount: out.amount,
                merchant: rule.merchant.clone(),
                origin,
                spent: None,
                deposit,
                is_coinbase: tx.is_coinbase,
            };
            self.outputs.insert(tx.outpoint(vout), output);
            self.inclusions.insert((tx.txid, height));
        }
    }

    /// The confirmations that a payment needs: by the sum of its merchant's payments in its block.
    pub fn confirmations(&self, output: &Output, policy: &Policy) -> u32 {
        let together = self.outputs.values().filter(|other| {
            other.deposit.is_some() && other.height == output.height && other.merchant == output.merchant
        });
        let sum: u64 = together.map(|other| other.amount).sum();
        policy.required(Amount::from_u64(sum)).confirmations().unwrap()
    }

    /// The tip height at which a payment is due.
    pub fn due(&self, output: &Output, policy: &Policy) -> u64 {
        let depth = u64::from(self.confirmations(output, policy));
        output.height + if output.is_coinbase { depth.max(101) } else { depth } - 1
    }

    /// Could these be the confirmations that were needed, by one of these policies?
    pub fn allows(&self, output: &Output, confirmations: u32, policies: &[Policy]) -> bool {
        let needs = |policy| self.confirmations(output, policy);
        policies.iter().map(needs).any(|needs| needs == confirmations)
    }

    /// The payments that must be credited unless they are held.
    pub fn due_now(&self, policy: &Policy) -> BTreeSet<Outpoint> {
        let is_due = |(_, output): &(&Outpoint, &Output)| {
            output.deposit.is_some() && self.due(output, policy) <= self.tip
        };
        let due = self.outputs.iter().filter(is_due);
        due.map(|(outpoint, _)| *outpoint).collect()
    }
}
