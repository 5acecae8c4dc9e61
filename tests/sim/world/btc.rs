//! Transactions of a Bitcoin chain, and what payers do with any.

use super::{Chain, Template, Touched, rules};
use crate::dice::Dice;
use crate::script::{In, Out as To, TxSpec};
use crate::scripted::{Coinbase, Out, Tx, World as Nodes};
use creditd::rules::{BlockHash, Outpoint};
use std::sync::Arc;

/// Coin is spent that was made a moment ago: there is still something to be spent.
const YOUNG: usize = 12;

impl Chain {
    fn out(&self, out: &To) -> Out {
        let script = rules::script(self.is_evm, rules::number(out.to));
        Out::new(script, u64::from(out.amount))
    }

    fn outs(&self, outs: &[To]) -> Vec<Out> {
        let outs: Vec<Out> = outs.iter().map(|out| self.out(out)).collect();
        match outs.is_empty() {
            true => vec![Out::new(rules::script(self.is_evm, rules::FOREIGN), 1)],
            false => outs,
        }
    }

    /// That output of young transactions whose spending is known to be ours from the start, or nobody's.
    fn young(&self, number: u32) -> Option<Outpoint> {
        let young = self.txs.iter().rev().take(YOUNG);
        let late: Vec<_> = rules::NEVER_SPENT
            .into_iter()
            .flatten()
            .map(|late| rules::script(false, late))
            .collect();
        let outputs = young.flat_map(|tx| (0..).zip(&tx.outputs).map(move |(vout, out)| (tx, vout, out)));
        let known = outputs.filter(|(_, _, out)| !late.contains(&out.script));
        let known: Vec<Outpoint> = known.map(|(tx, vout, _)| tx.outpoint(vout)).collect();
        (!known.is_empty()).then(|| known[number as usize % known.len()])
    }

    pub(super) fn make(&mut self, spec: &TxSpec) -> Arc<Tx> {
        if self.is_evm {
            return self.make_call(spec);
        }
        let inputs = spec.ins.iter().map(|input| match input {
            In::Fresh => None,
            In::Output(number) => self.young(*number),
        });
        let inputs: Vec<Option<Outpoint>> = inputs.collect();
        self.pay(inputs, &spec.outs)
    }

    /// With coin from elsewhere where there is none.
    fn pay(&mut self, from: Vec<Option<Outpoint>>, outs: &[To]) -> Arc<Tx> {
        let outs = self.outs(outs);
        let mut world = self.nodes.world();
        let mut inputs: Vec<Outpoint> = vec![];
        for input in from {
            let input = input.unwrap_or_else(|| world.tree.coin());
            if !inputs.contains(&input) {
                inputs.push(input);
            }
        }
        if inputs.is_empty() {
            inputs.push(world.tree.coin());
        }
        let tx = world.tree.tx(inputs, outs);
        drop(world);
        self.txs.push(tx.clone());
        tx
    }

    /// Another transaction that only one of the two can be mined with; what it pays is drawn.
    pub(super) fn rival(&mut self, of: &Tx, fate: &mut Dice) -> Arc<Tx> {
        let mut outs = vec![];
        for _ in 0..=fate.roll(2) {
            outs.push(To {
                to: match fate.roll(3) {
                    0 => crate::script::To::Foreign(0),
                    1 => crate::script::To::Early(fate.roll(6) as u8),
                    _ => crate::script::To::Late(fate.roll(11) as u8),
                },
                amount: fate.roll(50) as u32,
            });
        }
        let spec = TxSpec {
            ins: vec![In::Fresh; fate.roll(2)],
            outs,
            shape: fate.next() as u32,
        };
        self.rival_by(of, &spec, fate)
    }

    fn rival_by(&mut self, of: &Tx, spec: &TxSpec, dice: &mut Dice) -> Arc<Tx> {
        if self.is_evm {
            return self.rival_call(of, spec);
        }
        let Some(input) = dice.pick(&of.inputs).copied() else {
            return self.make(spec);
        };
        let others = spec.ins.iter().filter(|input| matches!(input, In::Fresh));
        let inputs = std::iter::once(Some(input)).chain(others.map(|_| None));
        self.pay(inputs.collect(), &spec.outs)
    }

    pub(super) fn block(&mut self, template: Template) -> BlockHash {
        let Template {
            parent,
            wanted,
            coinbase,
            work,
        } = template;
        let txs = self.minable(&parent, wanted);
        let coinbase = match coinbase {
            Some(outs) if !self.is_evm => Coinbase::Pays(self.outs(&outs)),
            _ => Coinbase::Plain,
        };
        let units = if self.is_evm {
            1
        } else {
            u64::from(work).clamp(1, 40)
        };
        self.nodes.world().tree.mine_with(parent, txs, coinbase, units)
    }

    pub(super) fn send(&mut self, spec: &TxSpec, dice: &mut Dice) -> Option<Touched> {
        let tx = self.make(spec);
        self.offer(&tx, dice)
    }

    /// Most nodes hear of a transaction.
    fn offer(&self, tx: &Arc<Tx>, dice: &mut Dice) -> Option<Touched> {
        let mut world = self.nodes.world();
        let Nodes { tree, nodes, .. } = &mut *world;
        let mut taken = 0;
        for node in nodes {
            if !dice.once_in(8) && node.accept(tree, tx) {
                taken += 1;
            }
        }
        (taken > 0).then(|| format!("{} at {taken} nodes", tx.txid))
    }

    /// That one of what waits at the node that answers.
    fn waiting(&self, number: u32) -> Option<Arc<Tx>> {
        let mut world = self.nodes.world();
        let mempool = &world.node().mempool;
        (!mempool.is_empty()).then(|| mempool[number as usize % mempool.len()].clone())
    }

    pub(super) fn replace(&mut self, of: u32, spec: &TxSpec, dice: &mut Dice) -> Option<Touched> {
        let old = self.waiting(of)?;
        let tx = self.rival_by(&old, spec, dice);
        self.offer(&tx, dice)
    }

    /// One of what waits is forgotten by all, or one of those that were comes back.
    pub(super) fn evict(&mut self, of: u32, dice: &mut Dice) -> Option<Touched> {
        if of.is_multiple_of(3) && !self.evicted.is_empty() {
            let tx = self.evicted.swap_remove(of as usize / 3 % self.evicted.len());
            return self.offer(&tx, dice).map(|back| format!("back: {back}"));
        }
        let tx = self.waiting(of)?;
        let mut world = self.nodes.world();
        world.nodes.iter_mut().for_each(|node| node.evict(&tx.txid));
        drop(world);
        let told = tx.txid.to_string();
        self.evicted.push(tx);
        Some(told)
    }
}
