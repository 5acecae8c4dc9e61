//! Plays a random script on a rig: miners, payers, nodes that fail, operators, crashes. Each act is decoded
//! from one number, so that a script is a list of numbers: it is replayed from a seed and made shorter by
//! leaving some out.

use crate::dice::Dice;
use crate::rig::{Rig, policy};
use crate::scripted::{Block, Coinbase, Hook, Out, Tx, World, script};
use crate::tables::DepositRow;
use creditd::rules::policy::Policy;
use creditd::rules::{BlockHash, Outpoint, Script};
use creditd::store::{AddressKind, Backfill, NewAddress, Terms, WriteTx};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Scripts from the start: number, kind, merchant, what own transfers are.
const EARLY: [(u32, AddressKind, &str, &str); 6] = [
    (0, AddressKind::Watch, "shop", "ignore"),
    (1, AddressKind::Watch, "shop", "ignore"),
    (2, AddressKind::Own, "shop", "ignore"),
    (3, AddressKind::Watch, "bank", "hold"),
    (4, AddressKind::Watch, "club", "credit"),
    (5, AddressKind::Watch, "club", "credit"),
];
/// Scripts that may be added later; nobody spends from them.
const LATE: std::ops::Range<u32> = 6..9;
/// Scripts that are nobody's.
const FOREIGN: std::ops::Range<u32> = 900..902;

pub fn policies() -> [Policy; 3] {
    [
        policy(&[(40, 1), (90, 2)], 4),
        policy(&[], 2),
        policy(&[(60, 3)], 6),
    ]
}

pub struct Player {
    pub rig: Rig,
    /// Tips of branches that were left.
    left: Vec<BlockHash>,
    /// Every transaction that was ever made.
    txs: Vec<Arc<Tx>>,
    /// May rules be added late, operators act, and processes die?
    is_quiet: bool,
}

impl Player {
    /// A world with its early rules. A quiet one has miners, payers and nodes alone.
    pub async fn new(is_quiet: bool) -> Player {
        let rig = Rig::with(|settings| {
            settings.terms.policies = Terms::native(policies()[0].clone());
            settings.terms.evict_after_ms = 20_000;
        })
        .await;
        add_early(&rig).await;
        Player {
            rig,
            left: vec![],
            txs: vec![],
            is_quiet,
        }
    }

    /// One act and some rounds, in each of which everything is checked.
    pub async fn act(&mut self, number: u64) {
        let mut dice = Dice::new(number);
        match dice.roll(if self.is_quiet { 16 } else { 26 }) {
            0..=4 => self.mine(&mut dice),
            5..=6 => self.reorg(&mut dice),
            7 => self.go_back(&mut dice),
            8..=10 => self.send(&mut dice),
            11 => self.replace(&mut dice),
            12 => self.drop_from_mempool(&mut dice),
            13 => self.switch(&mut dice),
            14..=15 => self.trouble(&mut dice),
            16..=17 => self.crash(&mut dice).await,
            18..=19 => self.add_late(&mut dice).await,
            20 => self.edit_policy(&mut dice).await,
            21..=22 => self.hold_or_release(&mut dice).await,
            23..=24 => self.rescan(&mut dice).await,
            _ => self.rig.wait(Duration::from_secs(15)).await,
        }
        let rounds = dice.roll(4);
        self.rig.rounds(rounds).await;
    }

    /// Faults end, the nodes agree, evictions run out.
    pub async fn quiesce(&mut self) {
        {
            let mut world = self.rig.chain.world();
            world.current = 0;
            world.alternates = false;
            world.hook = None;
            let best = world.nodes.iter().map(|node| world.tree.block(&node.tip));
            let best = best.max_by_key(|block| block.held.chainwork).unwrap().hash();
            for node in &mut world.nodes {
                node.faults = Default::default();
                node.headers_only.clear();
            }
            world.all_go_to(best);
        }
        // As many blocks as any branch that a node ever had, and one more: nobody doubts the tip.
        let ours = self
            .rig
            .cursor()
            .map(|hash| self.rig.chain.world().tree.block(&hash));
        while ours.as_ref().is_some_and(|ours| {
            let world = self.rig.chain.world();
            world.tree.block(&world.tip()).held.chainwork < ours.held.chainwork
        }) {
            self.rig.extend(1);
        }
        self.rig.extend(1);
        self.accept_what_is_too_deep().await;
        self.rig.settle().await;
        self.rig.wait(Duration::from_secs(45)).await;
    }

    /// The nodes may have gone far while nobody followed them: then the operator's word is asked for.
    async fn accept_what_is_too_deep(&mut self) {
        let Some(ours) = self.rig.cursor() else { return };
        let (fork, height) = {
            let world = self.rig.chain.world();
            let fork = world.tree.fork(&ours, &world.tip());
            (fork.height(), world.tree.block(&ours).height())
        };
        if fork + self.rig.settings.terms.reorg_window >= height {
            return;
        }
        self.rig.rounds(3).await;
        assert!(
            self.rig.state().starts_with("reorg_too_deep"),
            "{}",
            self.rig.state()
        );
        let key = self.rig.key;
        let held = (0..=fork)
            .rev()
            .find(|at| self.rig.read(|tx| tx.header_at(key, *at)).is_some());
        let ask = move |tx: &mut WriteTx<'_>| tx.ask_reanchor(key, held.unwrap(), "dice");
        self.rig.write(ask).await;
    }

    fn out(&self, dice: &mut Dice) -> Out {
        let number = match dice.roll(12) {
            0..=6 => EARLY[dice.roll(EARLY.len())].0,
            7..=9 => LATE.start + dice.roll(LATE.len()) as u32,
            _ => FOREIGN.start + dice.roll(FOREIGN.len()) as u32,
        };
        Out::new(script(number), dice.roll(50) as u64)
    }

    fn outs(&self, dice: &mut Dice) -> Vec<Out> {
        (0..=dice.roll(3)).map(|_| self.out(dice)).collect()
    }

    /// A transaction: with coin from elsewhere, with coin of ours, with both, or with what another one
    /// leaves.
    fn make(&mut self, dice: &mut Dice) -> Arc<Tx> {
        let outs = self.outs(dice);
        let mut world = self.rig.chain.world();
        let mut inputs: Vec<Outpoint> = vec![];
        for _ in 0..=dice.roll(2) {
            // Mostly coin that was made a moment ago: there is still something to be spent.
            let young = &self.txs[self.txs.len().saturating_sub(12)..];
            let old = dice.pick(young).and_then(|tx| spendable(dice, tx));
            let coin = old
                .filter(|_| !dice.once_in(3))
                .unwrap_or_else(|| world.tree.coin());
            if !inputs.contains(&coin) {
                inputs.push(coin);
            }
        }
        let tx = world.tree.tx(inputs, outs);
        self.txs.push(tx.clone());
        tx
    }

    fn rival(&mut self, of: &Tx, dice: &mut Dice) -> Arc<Tx> {
        let outs = self.outs(dice);
        let mut world = self.rig.chain.world();
        let mut inputs = vec![*dice.pick(&of.inputs).unwrap()];
        if dice.once_in(3) {
            inputs.push(world.tree.coin());
        }
        let tx = world.tree.tx(inputs, outs);
        self.txs.push(tx.clone());
        tx
    }

    /// What of `wanted` can be mined on a block, in this order.
    fn minable(&self, parent: &BlockHash, wanted: Vec<Arc<Tx>>) -> Vec<Arc<Tx>> {
        let mut coins = self.rig.chain.world().tree.coins(parent);
        let fits = |tx: &Arc<Tx>| {
            let fits = coins.allows(tx);
            if fits {
                coins.apply(tx);
            }
            fits
        };
        wanted.into_iter().filter(fits).collect()
    }

    fn block(&mut self, parent: BlockHash, wanted: Vec<Arc<Tx>>, dice: &mut Dice) -> BlockHash {
        let txs = self.minable(&parent, wanted);
        let coinbase = match dice.once_in(8) {
            true => Coinbase::Pays(self.outs(dice)),
            false => Coinbase::Plain,
        };
        let units = if dice.once_in(10) {
            5 + dice.roll(12) as u64
        } else {
            10
        };
        let mut world = self.rig.chain.world();
        world.tree.mine_with(parent, txs, coinbase, units)
    }

    fn mine(&mut self, dice: &mut Dice) {
        for _ in 0..=dice.roll(3) {
            let tip = self.rig.tip();
            let mut wanted = vec![];
            if dice.once_in(2) {
                wanted.extend(self.rig.chain.world().node().mempool.clone());
                wanted.retain(|_| !dice.once_in(3));
            }
            for _ in 0..dice.roll(3) {
                wanted.push(self.make(dice));
            }
            let block = self.block(tip, wanted, dice);
            self.arrive(block, dice);
        }
    }

    /// The node that answers goes to a block; the other mostly does too.
    fn arrive(&mut self, block: BlockHash, dice: &mut Dice) {
        let mut world = self.rig.chain.world();
        let current = world.current;
        self.left.push(world.tip());
        world.go_to(current, block);
        if !dice.once_in(6) {
            world.all_go_to(block);
        }
    }

    /// The last blocks are lost to a longer branch, which may hold what they held, rivals of it, or neither.
    fn reorg(&mut self, dice: &mut Dice) {
        let tip = self.rig.tip();
        let height = self.rig.chain.world().tree.block(&tip).height();
        let depth = (1 + dice.roll(8) as u64).min(height);
        let (mut at, lost): (BlockHash, Vec<Arc<Block>>) = {
            let world = self.rig.chain.world();
            let branch = world.tree.branch(&tip);
            let fork = branch[(height - depth) as usize].hash();
            (fork, branch[(height - depth) as usize + 1..].to_vec())
        };
        let mut waiting: Vec<Arc<Tx>> = lost.iter().flat_map(|block| block.txs.clone()).collect();
        waiting.retain(|tx| !tx.is_coinbase);
        let work = self.rig.chain.world().tree.block(&tip).held.chainwork;
        loop {
            let mut wanted = vec![];
            for tx in &waiting {
                match dice.roll(4) {
                    0 => wanted.push(self.rival(tx, dice)),
                    1 => {}
                    _ => wanted.push(tx.clone()),
                }
            }
            wanted.retain(|_| dice.once_in(2));
            at = self.block(at, wanted, dice);
            if self.rig.chain.world().tree.block(&at).held.chainwork > work {
                break;
            }
        }
        self.arrive(at, dice);
    }

    /// A branch that was left grows and wins, if it leaves ours inside the window.
    fn go_back(&mut self, dice: &mut Dice) {
        let Some(mut at) = dice.pick(&self.left).copied() else {
            return;
        };
        let tip = self.rig.tip();
        let (fork, ours) = {
            let world = self.rig.chain.world();
            (world.tree.fork(&at, &tip), world.tree.block(&tip))
        };
        if fork.height() + 14 < ours.height() || fork.hash() == at {
            return;
        }
        while self.rig.chain.world().tree.block(&at).held.chainwork <= ours.held.chainwork {
            at = self.block(at, vec![], dice);
        }
        self.arrive(at, dice);
    }

    fn send(&mut self, dice: &mut Dice) {
        let tx = self.make(dice);
        self.accept(&tx, dice);
    }

    fn accept(&self, tx: &Arc<Tx>, dice: &mut Dice) {
        let mut world = self.rig.chain.world();
        let World { tree, nodes, .. } = &mut *world;
        for node in nodes {
            if !dice.once_in(8) {
                node.accept(tree, tx);
            }
        }
    }

    fn replace(&mut self, dice: &mut Dice) {
        let mempool = self.rig.chain.world().node().mempool.clone();
        if let Some(old) = dice.pick(&mempool) {
            let tx = self.rival(old, dice);
            self.accept(&tx, dice);
        }
    }

    fn drop_from_mempool(&mut self, dice: &mut Dice) {
        let mut world = self.rig.chain.world();
        let mempool = world.node().mempool.clone();
        if let Some(tx) = dice.pick(&mempool) {
            world.nodes.iter_mut().for_each(|node| node.evict(&tx.txid));
        }
    }

    /// Another node answers: one that lags, one on a branch that was left, or each in turn.
    fn switch(&mut self, dice: &mut Dice) {
        let stale = dice.pick(&self.left).copied();
        let mut world = self.rig.chain.world();
        let World {
            tree,
            nodes,
            current,
            alternates,
            ..
        } = &mut *world;
        match (dice.roll(4), stale) {
            (0, Some(stale)) => nodes[1 - *current].restore(tree, stale),
            (1, _) => *alternates = !*alternates,
            (_, _) => *current = 1 - *current,
        }
        let height = |hash: &BlockHash| tree.block(hash).height();
        // A branch that is better and leaves ours below the window would be for the operator.
        let fork = tree.fork(&nodes[0].tip, &nodes[1].tip).height();
        if nodes.iter().any(|node| height(&node.tip) > fork + 14) {
            let best = nodes.iter().map(|node| tree.block(&node.tip));
            let best = best.max_by_key(|block| block.held.chainwork).unwrap().hash();
            world.all_go_to(best);
        }
    }

    fn trouble(&mut self, dice: &mut Dice) {
        let left = dice.pick(&self.left).copied();
        let mut world = self.rig.chain.world();
        let tip = world.tip();
        let below = world.tree.block(&tip).held.header.parent;
        let childless = world.node().mempool.last().map(|tx| tx.txid);
        let fork = left.map(|left| world.tree.fork(&left, &tip));
        let calls = world.node().calls;
        let faults = &mut world.node().faults;
        match dice.roll(8) {
            0 => faults
                .fails
                .extend((0..=dice.roll(3) as u64).map(|n| calls + 1 + n)),
            1 => faults.is_down = !faults.is_down,
            2 => faults.is_syncing = !faults.is_syncing,
            3 => {
                faults.missing = [tip, below].into();
            }
            4 => faults.is_noisy = !faults.is_noisy,
            5 => faults.unfetchable = childless.into_iter().collect(),
            6 => faults.moves_to = left.filter(|_| fork.is_some_and(|fork| fork.height() > 0)),
            _ => *faults = Default::default(),
        }
        if let (true, Some(left)) = (dice.once_in(4), left) {
            world.node().headers_only.insert(left);
        }
    }

    async fn crash(&mut self, dice: &mut Dice) {
        self.rig.crash(dice.roll(25)).await;
    }

    /// A rule is added, now or in the middle of what the follower does.
    async fn add_late(&mut self, dice: &mut Dice) {
        let number = LATE.start + dice.roll(LATE.len()) as u32;
        if dice.once_in(2) {
            self.rig.add(AddressKind::Watch, number, "late", "ignore").await;
            return;
        }
        let (mut beside, key) = (self.rig.command(), self.rig.key);
        let hook = Hook {
            during: ["tip", "header", "hashes", "block", "mempool"][dice.roll(5)],
            after: dice.roll(3),
            run: Box::new(move || {
                let rule = NewAddress {
                    script: script(number),
                    kind: AddressKind::Watch,
                    merchant: "late",
                    internal: "ignore",
                    reference: "",
                };
                let add = |tx: &mut WriteTx<'_>| tx.add_addresses(key, std::slice::from_ref(&rule));
                beside.write(0, add).unwrap();
            }),
        };
        self.rig.chain.world().hook = Some(hook);
    }

    async fn edit_policy(&mut self, dice: &mut Dice) {
        self.rig.settings.terms.policies = Terms::native(policies()[dice.roll(3)].clone());
        self.rig.reopen().await;
    }

    async fn hold_or_release(&mut self, dice: &mut Dice) {
        let deposits = self.rig.tables.deposits().into_values();
        let is_hold = dice.once_in(2);
        let fits = |d: &DepositRow| is_hold || d.held.is_some();
        let ids: Vec<String> = deposits.filter(fits).map(|d| d.id).collect();
        let Some(id) = dice.pick(&ids).cloned() else {
            return;
        };
        // Refused where it cannot be; asked twice, for a repeat is no other act.
        for _ in 0..2 {
            let id = id.clone();
            let work = move |tx: &mut WriteTx<'_>| match is_hold {
                true => tx.hold(&id, "dice"),
                false => tx.release(&id, "dice"),
            };
            let _ = self.rig.store().write(work).await;
        }
    }

    async fn rescan(&mut self, dice: &mut Dice) {
        let from = 1 + dice.roll(30) as u64;
        let backfill = match dice.roll(3) {
            0 => Backfill::All,
            1 => Backfill::Script(script(LATE.start)),
            _ => Backfill::Nothing,
        };
        // Refused above the tip, and for a script that is not watched yet.
        self.rig.ask_rescan(from, backfill).await;
    }
}

/// The early rules, in one order: two databases with them are comparable. And somebody who listens.
pub async fn add_early(rig: &Rig) {
    rig.listen(Some("shop"), "*").await;
    rig.listen(Some("club"), "credit.* deposit.held").await;
    rig.listen(None, "*").await;
    for (number, kind, merchant, internal) in EARLY {
        rig.add(kind, number, merchant, internal).await;
    }
}

/// An output whose spending is known to be ours from the start, or nobody's.
fn spendable(dice: &mut Dice, tx: &Tx) -> Option<Outpoint> {
    let late: BTreeSet<Script> = LATE.map(script).collect();
    let known = (0..)
        .zip(&tx.outputs)
        .filter(|(_, out)| !late.contains(&out.script));
    let known: Vec<u64> = known.map(|(vout, _)| vout).collect();
    dice.pick(&known).map(|vout| tx.outpoint(*vout))
}
