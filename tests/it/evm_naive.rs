//! What the tables must say of an EVM chain, worked out the slow way from nothing but the blocks of the best
//! chain, the pending transactions, the rules and the policy. Shares no code with the store.

use crate::naive::Origin;
use crate::rig::Rig;
use crate::scripted::{Block, Leg, Out, Tx, asset_key};
use crate::tables::Rule;
use creditd::rules::policy::{Policy, Requirement};
use creditd::rules::position::Position;
use creditd::rules::{Amount, Asset, Outpoint, Script, Txid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a place pays on the best chain, by the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Paid {
    script: Script,
    asset: u64,
    amount: u64,
    origin: Origin,
    height: u64,
    merchant: String,
    /// Is it a payment, and does it start held?
    deposit: Option<bool>,
}

#[derive(Debug, Default)]
struct Naive {
    paid: BTreeMap<Outpoint, Paid>,
    /// Transactions of the best chain that failed.
    failed: BTreeMap<Txid, u64>,
    mined: BTreeSet<Txid>,
    /// Payments that are pending.
    seen: BTreeSet<Outpoint>,
}

/// An output's row, with its deposit's.
#[derive(Clone, Debug)]
struct Row {
    at: Outpoint,
    script: Script,
    asset: u64,
    amount: u64,
    origin: String,
    state: Option<String>,
    height: Option<u64>,
    needs: Option<Requirement>,
    due: Option<u64>,
    is_held: bool,
    was_released: bool,
    entries: u64,
    was_moved: bool,
    tx_height: Option<u64>,
}

impl Row {
    fn place(&self) -> Outpoint {
        Outpoint {
            vout: self.at.vout % (1 << 40),
            ..self.at
        }
    }

    fn execution(&self) -> u64 {
        Position::of_number(self.at.vout).unwrap().1
    }

    fn is_live(&self) -> bool {
        self.entries % 2 == 1
    }

    fn shows(&self, paid: &Paid) -> bool {
        let origin = match paid.origin {
            Origin::External => "external",
            Origin::Mixed => "mixed",
            Origin::Internal => "internal",
        };
        (&self.script, self.asset, self.amount) == (&paid.script, paid.asset, paid.amount)
            && self.origin == origin
    }
}

impl Naive {
    fn take(&mut self, tx: &Tx, height: u64, rules: &[Rule], assets: &BTreeMap<u64, u64>, is_mined: bool) {
        if is_mined {
            self.mined.insert(tx.txid);
        }
        if tx.is_failed {
            self.failed.insert(tx.txid, height);
            return;
        }
        for (vout, out) in (0..).zip(&tx.outputs) {
            let leg = out.leg.as_ref().unwrap();
            let Some(rule) = rules.iter().find(|rule| rule.script == out.script) else {
                continue;
            };
            let Some(asset_from) = assets.get(&asset_key(&leg.asset)) else {
                continue;
            };
            let counts = rule.from.is_some_and(|from| from <= height) && *asset_from <= height;
            if out.amount == 0 || !(counts || rule.met.contains(&tx.met_key(vout))) {
                continue;
            }
            let paid = paid(tx, out, leg, rule, rules, height);
            match is_mined {
                true => {
                    self.paid.insert(tx.outpoint(leg.place), paid);
                }
                false if paid.deposit.is_some() => {
                    self.seen.insert(tx.outpoint(leg.place));
                }
                false => {}
            }
        }
    }

    fn needs(&self, of: &Paid, policy: &Policy) -> Requirement {
        let together = self.paid.values().filter(|other| {
            other.deposit.is_some()
                && (other.height, &other.merchant, other.asset) == (of.height, &of.merchant, of.asset)
        });
        policy.required(Amount::from_u64(together.map(|other| other.amount).sum()))
    }
}

fn paid(tx: &Tx, out: &Out, leg: &Leg, rule: &Rule, rules: &[Rule], height: u64) -> Paid {
    let is_of = |who: &Script| {
        rules
            .iter()
            .any(|other| other.script == *who && other.merchant == rule.merchant)
    };
    let origin = match (is_of(&leg.from), is_of(tx.sender.as_ref().unwrap())) {
        (true, _) => Origin::Internal,
        (false, true) => Origin::Mixed,
        (false, false) => Origin::External,
    };
    let deposit = match (origin, rule.internal.as_str()) {
        _ if !rule.is_watched => None,
        (Origin::External, _) | (Origin::Internal, "credit") => Some(leg.doubt.is_some()),
        (Origin::Mixed, _) | (Origin::Internal, "hold") => Some(true),
        (Origin::Internal, _) => None,
    };
    Paid {
        script: out.script.clone(),
        asset: asset_key(&leg.asset),
        amount: out.amount,
        origin,
        height,
        merchant: rule.merchant.clone(),
        deposit,
    }
}

impl Rig {
    fn evm_scan(&self) -> Naive {
        let blocks: Vec<Arc<Block>> = self.best_chain();
        let mempool = self.chain.world().node().mempool.clone();
        let mut rules = self.tables.rules();
        let mut memory = self.memory.lock().unwrap();
        memory.look_aside(&self.chain.world().tree);
        memory.correct(&mut rules);
        let (assets, mut naive) = (self.tables.assets(), Naive::default());
        for block in &blocks {
            for tx in &block.txs {
                naive.take(tx, block.height(), &rules, &assets, true);
            }
        }
        let next = blocks.len() as u64;
        for tx in &mempool {
            naive.take(&tx.pending(), next, &rules, &assets, false);
        }
        naive
    }

    fn evm_rows(&self) -> Vec<Row> {
        let sql = "SELECT t.txid, o.vout, a.script, coalesce(hex(substr(s.contract, 1, 1)), ''), o.amount, \
             o.origin, d.state, d.height, d.confirmations, d.tag, d.due_height, d.held_reason IS NOT NULL, \
             EXISTS (SELECT 1 FROM audit WHERE output = o.id AND action = 'release'), \
             (SELECT count(*) FROM journal j JOIN credits c ON c.id = j.credit WHERE c.output = o.id), \
             EXISTS (SELECT 1 FROM audit WHERE output = o.id AND from_state = 'credited' \
                     AND to_state = 'credited'), \
             (SELECT max(height) FROM inclusions WHERE tx = t.id) \
             FROM outputs o JOIN txs t ON t.id = o.tx JOIN addresses a ON a.id = o.address \
             JOIN assets s ON s.id = o.asset LEFT JOIN deposits d ON d.output = o.id ORDER BY o.tx, o.vout";
        self.tables.rows(sql, |row| {
            let contract: String = row.get(3).unwrap();
            let (confirmations, tag): (Option<u32>, Option<String>) =
                (row.get(8).unwrap(), row.get(9).unwrap());
            let height = |column| {
                row.get::<_, Option<i64>>(column)
                    .unwrap()
                    .map(|height| height as u64)
            };
            Row {
                at: Outpoint {
                    txid: Txid(row.get(0).unwrap()),
                    vout: row.get::<_, i64>(1).unwrap() as u64,
                },
                script: Script(row.get::<_, Vec<u8>>(2).unwrap().into()),
                asset: u64::from_str_radix(&contract, 16).map_or(0, |byte| byte + 1),
                amount: row.get::<_, String>(4).unwrap().parse().unwrap(),
                origin: row.get(5).unwrap(),
                state: row.get(6).unwrap(),
                height: height(7),
                needs: match tag {
                    Some(tag) => Requirement::from_tag(&tag),
                    None => confirmations.map(Requirement::Confirmations),
                },
                due: height(10),
                is_held: row.get(11).unwrap(),
                was_released: row.get(12).unwrap(),
                entries: row.get::<_, i64>(13).unwrap() as u64,
                was_moved: row.get(14).unwrap(),
                tx_height: height(15),
            }
        })
    }

    /// At rest the tables are what a naive scan says.
    #[track_caller]
    pub fn compare_evm(&self) {
        self.look();
        let (naive, rows) = (self.evm_scan(), self.evm_rows());
        let mut wrong = self.memory.lock().unwrap().faults.clone();
        for (at, paid) in &naive.paid {
            let here: Vec<&Row> = rows.iter().filter(|row| row.place() == *at).collect();
            let shown: Vec<&&Row> = here.iter().filter(|row| row.shows(paid)).collect();
            match shown[..] {
                [row] => wrong.extend(self.wrong_with(row, paid, &naive, &here)),
                _ => wrong.push(format!("{at} pays {paid:?}, and the rows are {here:?}")),
            }
        }
        for row in &rows {
            let (state, at) = (row.state.as_deref().unwrap_or("none"), row.at);
            let is_paid = naive.paid.get(&row.place()).is_some_and(|paid| row.shows(paid));
            let is_in_block = matches!(state, "confirming" | "credited") || row.is_live();
            if is_in_block && !is_paid {
                wrong.push(format!("{at} is not on the best chain: {row:?}"));
            }
            let failed = naive.failed.get(&at.txid).copied();
            if row.state.is_some() && failed.is_some() != (state == "failed") {
                wrong.push(format!("{at} failed at {failed:?}: {row:?}"));
            }
            if state == "failed" && row.height != failed {
                wrong.push(format!("{at} failed at {failed:?}: {row:?}"));
            }
            let is_pending = naive.seen.contains(&at) && !naive.mined.contains(&at.txid);
            if row.execution() == 0
                && row.at.vout == 0
                && row.state.is_some()
                && is_pending != (state == "seen")
            {
                wrong.push(format!("{at}, pending: {is_pending}: {row:?}"));
            }
        }
        wrong.extend(self.wrong_evm_causes());
        assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    }

    fn wrong_with(&self, row: &Row, paid: &Paid, naive: &Naive, here: &[&Row]) -> Vec<String> {
        let (mut wrong, at) = (Vec::new(), row.at);
        let state = row.state.as_deref().unwrap_or("none");
        if row.tx_height != Some(paid.height) {
            wrong.push(format!("{at} is in block {}: {row:?}", paid.height));
        }
        let Some(starts_held) = paid.deposit else {
            if row.state.is_some() && !row.is_held {
                wrong.push(format!("{at} is no payment: {row:?}"));
            }
            return wrong;
        };
        if row.height != Some(paid.height) || !matches!(state, "confirming" | "credited") {
            wrong.push(format!("{at} is in block {}: {row:?}", paid.height));
        }
        let is_rerun = row.entries == 0
            && here
                .iter()
                .any(|earlier| earlier.execution() < row.execution() && earlier.entries > 0);
        if (starts_held || is_rerun) && !row.is_held && !row.was_released {
            wrong.push(format!("{at} was to be held: {row:?}"));
        }
        let policy = &self.settings.terms.policies[&Asset::Native];
        let (needs, tip) = (naive.needs(paid, policy), self.best_chain().len() as u64 - 1);
        let is_old = row.entries > 0 && (row.is_held || row.was_released);
        if state == "confirming" && !is_old && row.needs != Some(needs) {
            wrong.push(format!("{at} needs {needs:?}: {row:?}"));
        }
        let tags = {
            let world = self.chain.world();
            let node = &world.nodes[world.current];
            let mut tags = node.finality.tags(&world.tree, &node.tip);
            for tag in [&mut tags.safe, &mut tags.finalized] {
                *tag = tag.filter(|block| world.tree.is_on(&block.hash, &node.tip));
            }
            tags
        };
        let is_due = match needs {
            Requirement::Confirmations(depth) => paid.height + u64::from(depth) - 1 <= tip,
            Requirement::Safe => tags.safe.is_some_and(|block| paid.height <= block.height),
            Requirement::Finalized => tags.finalized.is_some_and(|block| paid.height <= block.height),
        };
        if is_due && !is_old && !row.is_held && !row.is_live() {
            wrong.push(format!("{at} was to be credited by {needs:?}: {row:?}"));
        }
        if row.is_live() && !row.was_moved && !self.is_justified(row, paid) {
            wrong.push(format!("{at} is credited and needs {needs:?}: {row:?}"));
        }
        wrong
    }

    /// Was it due by what it needed, at the heights that there were?
    fn is_justified(&self, row: &Row, paid: &Paid) -> bool {
        let (Some(needs), Some(due)) = (row.needs, row.due) else {
            return false;
        };
        let (safe, finalized) = self.accepted();
        let highest = self.memory.lock().unwrap().highest;
        match needs {
            Requirement::Confirmations(depth) => due == paid.height + u64::from(depth) - 1 && due <= highest,
            Requirement::Safe => due == paid.height && safe >= Some(due),
            Requirement::Finalized => due == paid.height && finalized >= Some(due),
        }
    }

    /// Each credit was given on a chain that there was: the block that made it due stands on the payment's.
    fn wrong_evm_causes(&self) -> Vec<String> {
        let sql =
            "SELECT block_height, block_hash, due_height, due_hash FROM journal WHERE kind <> 'reversal'";
        let causes = self.tables.rows(sql, |row| {
            let hash = |column| creditd::rules::BlockHash(row.get(column).unwrap());
            let height = |column| row.get::<_, i64>(column).unwrap() as u64;
            (height(0), hash(1), height(2), hash(3))
        });
        let world = self.chain.world();
        let wrong = causes.into_iter().filter(|(height, hash, due, due_hash)| {
            world.tree.ancestor(due_hash, *height) != Some(*hash)
                || world.tree.block(due_hash).height() != *due
        });
        wrong
            .map(|cause| format!("no chain gives this credit: {cause:?}"))
            .collect()
    }
}
