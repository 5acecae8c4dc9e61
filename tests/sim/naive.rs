//! What the tables must say, by a scan of the finished chain that shares no code with the daemon: plain
//! integers and byte arrays. `compare` holds the tables against it.

mod compare;
mod plain;

pub use compare::{Moment, differences};

use plain::{At, Id, Needs, Out, Paid, Rule, Terms, Tx};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Naive {
    pub paid: BTreeMap<At, Paid>,
    /// Transactions of the best chain, and those that failed there.
    pub mined: BTreeMap<Id, u64>,
    pub failed: BTreeMap<Id, u64>,
    /// Payments that wait.
    pub seen: BTreeSet<At>,
    /// Who uses up what, on the best chain.
    used: BTreeMap<At, Id>,
    pub tip: u64,
}

impl Naive {
    pub fn scan(blocks: &[(u64, Vec<Tx>)], waiting: &[Tx], terms: &Terms) -> Naive {
        let mut naive = Naive::default();
        for (height, txs) in blocks {
            txs.iter().for_each(|tx| naive.take(tx, *height, terms));
            naive.tip = *height;
        }
        let mut next = Naive {
            paid: naive.paid.clone(),
            ..Naive::default()
        };
        waiting.iter().for_each(|tx| next.take(tx, naive.tip + 1, terms));
        let is_new = |(at, paid): &(&At, &Paid)| paid.deposit.is_some() && !naive.mined.contains_key(&at.0);
        naive.seen = next.paid.iter().filter(is_new).map(|(at, _)| *at).collect();
        naive
    }

    fn take(&mut self, tx: &Tx, height: u64, terms: &Terms) {
        self.mined.insert(tx.id, height);
        for input in &tx.inputs {
            self.used.insert(*input, tx.id);
            if let Some(paid) = self.paid.get_mut(input) {
                paid.spent = Some((tx.id, height));
            }
        }
        if tx.is_failed {
            self.failed.insert(tx.id, height);
            return;
        }
        for out in &tx.outs {
            let is_evm = tx.sender.is_some();
            let rule = terms.rules.iter().find(|rule| rule.script == out.script);
            let (Some(rule), Some(asset_from)) = (rule, terms.assets.get(&out.asset)) else {
                continue;
            };
            let counts = rule.from.is_some_and(|from| from <= height) && *asset_from <= height;
            let key = (tx.id, if is_evm { out.asset } else { out.place });
            if !(counts || rule.met.contains(&key)) || (is_evm && out.amount == 0) {
                continue;
            }
            let origin = self.origin(tx, out, &rule.merchant, terms);
            let deposit = match (origin, rule.internal.as_str()) {
                _ if !rule.is_watched || out.amount == 0 => None,
                ("external", _) | ("internal", "credit") => Some(out.is_doubtful),
                ("mixed", _) | ("internal", "hold") => Some(true),
                _ => None,
            };
            let paid = Paid {
                height,
                out: out.clone(),
                merchant: rule.merchant.clone(),
                raised: rule.raised,
                origin,
                spent: None,
                deposit,
                is_coinbase: tx.is_coinbase,
            };
            self.paid.insert((tx.id, out.place), paid);
        }
    }

    fn origin(&self, tx: &Tx, out: &Out, merchant: &str, terms: &Terms) -> &'static str {
        let is_of = |who: &Option<Vec<u8>>| {
            let ours = |rule: &Rule| Some(&rule.script) == who.as_ref() && rule.merchant == merchant;
            terms.rules.iter().any(ours)
        };
        if tx.sender.is_some() {
            return match (is_of(&out.from), is_of(&tx.sender)) {
                (true, _) => "internal",
                (false, true) => "mixed",
                _ => "external",
            };
        }
        let own = |input: &&At| self.paid.get(input).is_some_and(|paid| paid.merchant == merchant);
        match tx.inputs.iter().filter(own).count() {
            0 => "external",
            all if all == tx.inputs.len() => "internal",
            _ => "mixed",
        }
    }

    /// Who of the known transactions can be mined no more: somebody on the best chain uses up an input of it,
    /// or of a known one that it descends from.
    pub fn replaced(&self, known: &[Tx]) -> BTreeSet<Id> {
        let mut gone = BTreeSet::new();
        loop {
            let is_lost = |tx: &&Tx| {
                let by_others = |input: &At| {
                    self.used.get(input).is_some_and(|by| *by != tx.id) || gone.contains(&input.0)
                };
                !self.mined.contains_key(&tx.id) && !gone.contains(&tx.id) && tx.inputs.iter().any(by_others)
            };
            let more: Vec<Id> = known.iter().filter(is_lost).map(|tx| tx.id).collect();
            if more.is_empty() {
                return gone;
            }
            gone.extend(more);
        }
    }

    /// What a payment needs: by the sum of its merchant's payments of that asset in its block, and by its
    /// invoice.
    pub fn needs(&self, of: &Paid, terms: &Terms) -> Needs {
        let together = self.paid.values().filter(|paid| {
            paid.deposit.is_some()
                && (paid.height, &paid.merchant, paid.out.asset) == (of.height, &of.merchant, of.out.asset)
        });
        let sum: u64 = together.map(|paid| paid.out.amount).sum();
        let fits = |(below, _): &&(Option<u64>, Needs)| below.is_none_or(|below| sum < below);
        match terms.tiers.iter().find(fits).map(|(_, needs)| *needs).unwrap() {
            Needs::Depth(depth) => Needs::Depth(depth.max(of.raised)),
            tag => tag,
        }
    }

    /// The height that the tip, or the last block with the tag, has to reach.
    pub fn due(of: &Paid, needs: Needs) -> u64 {
        match needs {
            Needs::Depth(depth) if of.is_coinbase => of.height + depth.max(101) - 1,
            Needs::Depth(depth) => of.height + depth - 1,
            Needs::Safe | Needs::Final => of.height,
        }
    }
}
