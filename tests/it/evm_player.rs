//! Plays a random script on a rig with an EVM chain: transactions that move several things and run otherwise
//! in the next block that holds them, nonces that are used up by others, nodes that forget, lag and lie about
//! finality, operators, crashes. Each act is decoded from one number, as in [`crate::player`].

use crate::dice::Dice;
use crate::evm_rig::{LATER, TUSD, evm_with, flat, list, need};
use crate::rig::{Rig, policy};
use crate::scripted::{Block, Call, Finality, Hook, Tx, World, account, token};
use crate::tables::DepositRow;
use creditd::rules::policy::{Policy, Requirement};
use creditd::rules::{BlockHash, Doubt, Script, TaggedBlock, Tags, Txid};
use creditd::store::{AddressKind, Backfill, NewAddress, WriteTx};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Accounts from the start: number, kind, merchant, what own transfers are.
const EARLY: [(u32, AddressKind, &str, &str); 6] = [
    (0, AddressKind::Watch, "shop", "ignore"),
    (1, AddressKind::Watch, "shop", "ignore"),
    (2, AddressKind::Own, "shop", "ignore"),
    (3, AddressKind::Watch, "bank", "hold"),
    (4, AddressKind::Watch, "club", "credit"),
    (5, AddressKind::Watch, "club", "credit"),
];
/// Accounts that may be added later; nobody spends from them.
const LATE: std::ops::Range<u32> = 6..9;
/// Who sends and whose tokens move: strangers, mostly.
const SENDERS: [u32; 8] = [50, 51, 52, 53, 50, 0, 2, 5];
/// The blocks below the tip that nodes call safe and final.
const HONEST: Finality = Finality::Below {
    safe: 2,
    finalized: 12,
};

pub fn policies() -> [Policy; 4] {
    [
        policy(&[(40, 1), (90, 2)], 4),
        policy(&[], 2),
        flat(Requirement::Safe),
        flat(Requirement::Finalized),
    ]
}

pub struct Player {
    pub rig: Rig,
    left: Vec<BlockHash>,
    /// Every transaction that was ever made, as its sender wrote it.
    calls: BTreeMap<Txid, Call>,
    txs: Vec<Arc<Tx>>,
    nonces: BTreeMap<u32, u64>,
    is_quiet: bool,
}

pub async fn add_early(rig: &Rig) {
    rig.listen(Some("shop"), "*").await;
    rig.listen(None, "*").await;
    for (number, kind, merchant, internal) in EARLY {
        rig.add(kind, number, merchant, internal).await;
    }
}

impl Player {
    pub async fn new(is_quiet: bool, policy: usize) -> Player {
        let rig = evm_with(2, |settings| {
            need(settings, &policies()[policy]);
            settings.terms.evict_after_ms = 20_000;
        })
        .await;
        rig.finality(HONEST);
        add_early(&rig).await;
        Player {
            rig,
            left: vec![],
            calls: BTreeMap::new(),
            txs: vec![],
            nonces: BTreeMap::new(),
            is_quiet,
        }
    }

    /// One act and some rounds, in each of which everything is checked.
    pub async fn act(&mut self, number: u64) {
        let mut dice = Dice::new(number);
        match dice.roll(if self.is_quiet { 16 } else { 27 }) {
            0..=4 => self.mine(&mut dice),
            5..=7 => self.reorg(&mut dice),
            8 => self.go_back(&mut dice),
            9..=10 => self.send(&mut dice),
            11 => self.replace(&mut dice),
            12 => self.drop_pending(&mut dice),
            13 => self.switch(&mut dice),
            14..=15 => self.trouble(&mut dice),
            16..=18 => drop(self.rig.crash(dice.roll(25)).await),
            19..=20 => self.add_late(&mut dice).await,
            21 => self.edit(&mut dice).await,
            22..=23 => self.hold_or_release(&mut dice).await,
            24..=25 => self.rescan(&mut dice).await,
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
            let best = best.max_by_key(|block| block.height()).unwrap().hash();
            for node in &mut world.nodes {
                node.faults = Default::default();
                node.finality = HONEST;
            }
            world.all_go_to(best);
        }
        let height = |rig: &Rig, hash: &BlockHash| rig.chain.world().tree.block(hash).height();
        let ours = self.rig.cursor().map_or(0, |hash| height(&self.rig, &hash));
        while height(&self.rig, &self.rig.tip()) <= ours {
            self.rig.extend(1);
        }
        self.rig.extend(1);
        self.accept_what_is_too_deep().await;
        self.rig.settle().await;
        self.rig.wait(Duration::from_secs(45)).await;
    }

    /// The nodes may have left what was final while nobody followed them: then the operator is asked.
    async fn accept_what_is_too_deep(&mut self) {
        let Some(ours) = self.rig.cursor() else { return };
        let (fork, height) = {
            let world = self.rig.chain.world();
            (
                world.tree.fork(&ours, &world.tip()).height(),
                world.tree.block(&ours).height(),
            )
        };
        let last = self.rig.accepted().1;
        if last.is_none_or(|last| last <= fork) && fork + self.rig.settings.terms.reorg_window >= height {
            return;
        }
        self.rig.wait(Duration::from_secs(700)).await;
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

    fn to(dice: &mut Dice) -> Script {
        account(match dice.roll(12) {
            0..=6 => EARLY[dice.roll(EARLY.len())].0,
            7..=9 => LATE.start + dice.roll(LATE.len()) as u32,
            _ => 900,
        })
    }

    fn written(&self, mut call: Call, dice: &mut Dice) -> Call {
        if dice.once_in(2) {
            call = call.value(&Player::to(dice), dice.roll(50) as u64);
        }
        let mut log = dice.roll(3) as u32;
        for _ in 0..dice.roll(4) {
            let from = account(SENDERS[dice.roll(SENDERS.len())]);
            let (to, amount) = (Player::to(dice), dice.roll(50) as u64);
            call = match dice.roll(5) {
                0 => call.inner(log, &from, &to, amount),
                1 => call.log_from(log, LATER, &from, &to, amount),
                _ => call.log_from(log, TUSD, &from, &to, amount),
            };
            if dice.once_in(12) {
                call = call.doubt(Doubt::ALL[dice.roll(2)]);
            }
            log += 1 + dice.roll(2) as u32;
        }
        call
    }

    fn make(&mut self, dice: &mut Dice) -> Arc<Tx> {
        let number = SENDERS[dice.roll(SENDERS.len())];
        let nonce = self.nonces.entry(number).or_default();
        let call = match dice.once_in(6) {
            true => Call::deposit(&account(number)),
            false => {
                *nonce += 1;
                Call::new(&account(number), *nonce)
            }
        };
        let call = self.written(call, dice);
        self.keep(call)
    }

    fn keep(&mut self, call: Call) -> Arc<Tx> {
        let tx = self.rig.make(&call);
        self.calls.insert(tx.txid, call);
        self.txs.push(tx.clone());
        tx
    }

    /// Another transaction of the same sender and nonce.
    fn rival(&mut self, of: &Tx, dice: &mut Dice) -> Arc<Tx> {
        let call = self.calls[&of.txid].emptied();
        let call = self.written(call, dice);
        self.keep(call)
    }

    /// The same transaction, which may run in another way.
    fn again(&self, tx: &Arc<Tx>, dice: &mut Dice) -> Arc<Tx> {
        if dice.once_in(2) {
            return self.calls[&tx.txid].again(tx);
        }
        let other = account([0, 1, 2, 4, 50][dice.roll(5)]);
        let call = self.calls[&tx.txid].changed(dice.roll(7), dice.roll(4), &other);
        call.again(tx)
    }

    fn block(&mut self, parent: BlockHash, wanted: Vec<Arc<Tx>>) -> BlockHash {
        let mut world = self.rig.chain.world();
        let mut coins = world.tree.coins(&parent);
        let fits = |tx: &Arc<Tx>| {
            let fits = coins.allows(tx);
            if fits {
                coins.apply(tx);
            }
            fits
        };
        let txs = wanted.into_iter().filter(fits).collect();
        world.tree.mine(parent, txs)
    }

    fn mine(&mut self, dice: &mut Dice) {
        for _ in 0..=dice.roll(3) {
            let tip = self.rig.tip();
            let mut wanted = vec![];
            if dice.once_in(2) {
                let pending = self.rig.chain.world().node().mempool.clone();
                let pending = pending.iter().filter(|_| !dice.once_in(3)).cloned();
                wanted.extend(pending.collect::<Vec<_>>());
            }
            wanted = wanted.iter().map(|tx| self.again(tx, dice)).collect();
            for _ in 0..dice.roll(3) {
                wanted.push(self.make(dice));
            }
            let block = self.block(tip, wanted);
            self.arrive(block, dice);
        }
    }

    fn arrive(&mut self, block: BlockHash, dice: &mut Dice) {
        let mut world = self.rig.chain.world();
        let current = world.current;
        self.left.push(world.tip());
        world.go_to(current, block);
        if !dice.once_in(6) {
            world.all_go_to(block);
        }
    }

    /// The last blocks are lost to a longer branch, on which what they held runs again, is replaced, or is
    /// not.
    fn reorg(&mut self, dice: &mut Dice) {
        let tip = self.rig.tip();
        let branch = self.rig.chain.world().tree.branch(&tip);
        let height = branch.len() - 1;
        let depth = (1 + dice.roll(8)).min(height);
        let mut at = branch[height - depth].hash();
        let lost: &[Arc<Block>] = &branch[height - depth + 1..];
        let waiting: Vec<Arc<Tx>> = lost.iter().flat_map(|block| block.txs.clone()).collect();
        for _ in 0..depth + 1 - usize::from(dice.once_in(4)) {
            let mut wanted = vec![];
            for tx in &waiting {
                match dice.roll(5) {
                    0 => wanted.push(self.rival(tx, dice)),
                    1 => {}
                    _ => wanted.push(self.again(tx, dice)),
                }
            }
            wanted.retain(|_| dice.once_in(2));
            at = self.block(at, wanted);
        }
        self.arrive(at, dice);
    }

    /// A branch that was left grows and wins, if it leaves ours above what is final.
    fn go_back(&mut self, dice: &mut Dice) {
        if self.left.is_empty() {
            return;
        }
        let mut at = self.left[dice.roll(self.left.len())];
        let tip = self.rig.tip();
        let (fork, ours) = {
            let world = self.rig.chain.world();
            (world.tree.fork(&at, &tip), world.tree.block(&tip))
        };
        if fork.height() + 10 < ours.height() || fork.hash() == at {
            return;
        }
        while self.rig.chain.world().tree.block(&at).height() <= ours.height() {
            at = self.block(at, vec![]);
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

    fn pending(&self, dice: &mut Dice) -> Option<Arc<Tx>> {
        let pending = self.rig.chain.world().node().mempool.clone();
        (!pending.is_empty()).then(|| pending[dice.roll(pending.len())].clone())
    }

    fn replace(&mut self, dice: &mut Dice) {
        if let Some(old) = self.pending(dice) {
            let tx = self.rival(&old, dice);
            self.accept(&tx, dice);
        }
    }

    fn drop_pending(&mut self, dice: &mut Dice) {
        if let Some(tx) = self.pending(dice) {
            self.rig.evict(&tx);
        }
    }

    /// Another node answers: one that lags, one on a branch that was left, or each in turn.
    fn switch(&mut self, dice: &mut Dice) {
        let stale = (!self.left.is_empty()).then(|| self.left[dice.roll(self.left.len())]);
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
    }

    fn trouble(&mut self, dice: &mut Dice) {
        let left = (!self.left.is_empty()).then(|| self.left[dice.roll(self.left.len())]);
        let mut world = self.rig.chain.world();
        let tip = world.tip();
        let left = left.unwrap_or(tip);
        let tagged = TaggedBlock {
            height: world.tree.block(&left).height(),
            hash: left,
        };
        let listed = world.node().mempool.last().map(|tx| tx.txid);
        let calls = world.node().calls;
        let node = world.node();
        match dice.roll(9) {
            0 => node
                .faults
                .fails
                .extend((0..=dice.roll(3) as u64).map(|n| calls + 1 + n)),
            1 => node.faults.is_down = !node.faults.is_down,
            2 => node.faults.is_syncing = !node.faults.is_syncing,
            3 => node.faults.missing = [tip].into(),
            4 => node.faults.is_noisy = !node.faults.is_noisy,
            5 => node.faults.unfetchable = listed.into_iter().collect(),
            // What it calls safe may be anywhere; what it calls final is none of ours, or long so.
            6 => {
                let elsewhere = TaggedBlock {
                    hash: BlockHash([9; 32]),
                    ..tagged
                };
                node.finality = Finality::Says(Tags {
                    safe: Some(tagged),
                    finalized: Some(elsewhere),
                });
            }
            7 => node.finality = Finality::Untold,
            _ => (node.faults, node.finality) = (Default::default(), HONEST),
        }
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
                    script: account(number),
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

    /// Another policy, or another token.
    async fn edit(&mut self, dice: &mut Dice) {
        if dice.once_in(3) && self.rig.settings.chain.assets.len() < 3 {
            list(&mut self.rig.settings, LATER);
        } else {
            need(&mut self.rig.settings, &policies()[dice.roll(4)]);
        }
        self.rig.reopen().await;
    }

    async fn hold_or_release(&mut self, dice: &mut Dice) {
        let deposits = self.rig.tables.deposits().into_values();
        let is_hold = dice.once_in(3);
        let fits = |d: &DepositRow| is_hold || d.held.is_some();
        let ids: Vec<String> = deposits.filter(fits).map(|d| d.id).collect();
        if ids.is_empty() {
            return;
        }
        let picked = ids[dice.roll(ids.len())].clone();
        for _ in 0..2 {
            let id = picked.clone();
            let work = move |tx: &mut WriteTx<'_>| match is_hold {
                true => tx.hold(&id, "dice"),
                false => tx.release(&id, "dice"),
            };
            let _ = self.rig.store().write(work).await;
        }
    }

    async fn rescan(&mut self, dice: &mut Dice) {
        let from = 1 + dice.roll(30) as u64;
        let backfill = match dice.roll(4) {
            0 => Backfill::All,
            1 => Backfill::Script(account(LATE.start)),
            2 => Backfill::Token(token(LATER)),
            _ => Backfill::Nothing,
        };
        self.rig.ask_rescan(from, backfill).await;
    }
}
