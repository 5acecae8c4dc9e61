//! What a test remembers by itself, so that a naive scan does not take the store's word: from which block
//! each rule counts, and which payments to it were met at their time.

use crate::scripted::{Block, Leg, Tree, Tx, World, asset_key};
use crate::tables::Rule;
use creditd::rules::policy::Policy;
use creditd::rules::{BlockHash, Outpoint, Script};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Memory {
    rules: BTreeMap<Script, Own>,
    /// From which height the assets of an EVM chain count, by [`asset_key`].
    pub assets: BTreeMap<u64, u64>,
    /// Backfills of scripts whose rule has not been looked at yet.
    lowered: BTreeMap<Script, u64>,
    /// Blocks of ours whose payments are noted.
    walked: BTreeSet<BlockHash>,
    /// The height of the cursor at the last look, and the highest ever.
    cursor: Option<u64>,
    pub highest: u64,
    /// Every policy that the daemon ever ran with.
    pub policies: Vec<Policy>,
    pub faults: Vec<String>,
}

#[derive(Debug)]
struct Own {
    from: u64,
    /// By a backfill: an old block may hold more payments now than when one of them was credited.
    is_lowered: bool,
    /// Payments in blocks that were ours.
    met: BTreeSet<Outpoint>,
    /// Payments that some node had in its mempool: met if the list came to be applied.
    maybe_met: BTreeSet<Outpoint>,
}

impl Memory {
    pub fn with_policy(policy: &Policy) -> Memory {
        Memory {
            policies: vec![policy.clone()],
            ..Memory::default()
        }
    }

    /// A backfill down to a height; `None` = of every rule there is.
    pub fn lower(&mut self, script: Option<&Script>, from: u64) {
        if let Some(script) = script.filter(|script| !self.rules.contains_key(*script)) {
            self.lowered.insert(script.clone(), from);
        }
        for (of, own) in &mut self.rules {
            if script.is_none_or(|script| script == of) && own.from > from {
                own.from = from;
                own.is_lowered = true;
            }
        }
    }

    /// Looks at what happened since the last look. `start` is the first block that is read, where the cursor
    /// is not set yet.
    pub fn look(&mut self, world: &mut World, cursor: Option<BlockHash>, start: Option<u64>, rules: &[Rule]) {
        let tip = cursor.map(|hash| world.tree.block(&hash).height());
        let next = [self.cursor, tip].map(|height| height.map(|height| height + 1).or(start));
        for rule in rules {
            self.note_rule(rule, next);
        }
        self.cursor = tip.or(self.cursor);
        self.highest = self.highest.max(tip.unwrap_or(0));
        if let Some(cursor) = cursor {
            let mut new: Vec<Arc<Block>> = world.tree.branch(&cursor);
            new.retain(|block| self.walked.insert(block.hash()));
            for block in new {
                block
                    .txs
                    .iter()
                    .for_each(|tx| self.meet(tx, block.height(), true));
            }
        }
        for node in &world.nodes {
            // Listed ones count as if they were in the next block.
            node.mempool.iter().for_each(|tx| self.meet(tx, u64::MAX, false));
        }
    }

    fn note_rule(&mut self, rule: &Rule, next: [Option<u64>; 2]) {
        let Some(from) = rule.from else { return };
        if let Some(own) = self.rules.get(&rule.script) {
            if own.from != from {
                self.faults.push(format!(
                    "rule of {:?} counts from {from}, was added for {}",
                    rule.script, own.from
                ));
            }
            return;
        }
        // Added somewhere between the two looks.
        let next: Vec<u64> = next.into_iter().flatten().collect();
        let (Some(low), Some(high)) = (next.iter().min(), next.iter().max()) else {
            return;
        };
        let lowered = self.lowered.get(&rule.script).copied();
        let most = lowered.unwrap_or(u64::MAX);
        if !(*low.min(&most)..=*high.min(&most)).contains(&from) {
            self.faults.push(format!(
                "rule of {:?} counts from {from}, added at {low} to {high}",
                rule.script
            ));
        }
        let own = Own {
            from,
            is_lowered: lowered.is_some(),
            met: BTreeSet::new(),
            maybe_met: BTreeSet::new(),
        };
        self.rules.insert(rule.script.clone(), own);
    }

    fn meet(&mut self, tx: &Tx, height: u64, is_certain: bool) {
        for (vout, out) in (0..).zip(&tx.outputs) {
            let from = |leg: &Leg| self.assets.get(&asset_key(&leg.asset)).copied();
            let is_listed = out.leg.as_ref().is_none_or(|leg| from(leg) <= Some(height));
            if tx.is_failed
                || (out.leg.is_some() && out.amount == 0)
                || out.leg.as_ref().is_some_and(|leg| from(leg).is_none())
                || !is_listed
            {
                continue;
            }
            let Some(own) = self.rules.get_mut(&out.script).filter(|own| own.from <= height) else {
                continue;
            };
            match is_certain {
                true => own.met.insert(tx.met_key(vout)),
                false => own.maybe_met.insert(tx.met_key(vout)),
            };
        }
    }

    /// Blocks that came and went between two looks may have been met too.
    pub fn look_aside(&mut self, tree: &Tree) {
        let aside: Vec<Arc<Block>> = tree
            .blocks()
            .filter(|block| !self.walked.contains(&block.hash()))
            .cloned()
            .collect();
        for block in aside {
            block
                .txs
                .iter()
                .for_each(|tx| self.meet(tx, block.height(), false));
        }
    }

    /// The rules as they are remembered; of what the store says it has met, only what it can have met counts.
    pub fn correct(&self, rules: &mut [Rule]) {
        for rule in rules {
            let Some(own) = self.rules.get(&rule.script) else {
                continue;
            };
            rule.from = Some(own.from);
            rule.met.retain(|at| own.maybe_met.contains(at));
            rule.met.extend(&own.met);
        }
    }

    /// The merchants of whom an old block may hold more than it did.
    pub fn backfilled(&self, rules: &[Rule]) -> BTreeSet<String> {
        let is_lowered = |rule: &&Rule| self.rules.get(&rule.script).is_some_and(|own| own.is_lowered);
        rules
            .iter()
            .filter(is_lowered)
            .map(|rule| rule.merchant.clone())
            .collect()
    }
}
