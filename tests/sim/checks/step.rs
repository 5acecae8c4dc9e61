//! After each step, what is new: credits against the blocks of the world and against what nodes had told,
//! moves of the cursor, evictions.

use super::{Checks, Fault};
use crate::disk::Folder;
use crate::scripted::TipTold;
use crate::world::{Chain, World};
use creditd::rules::{BlockHash, Txid};
use std::collections::BTreeMap;

/// Of what a node told, so much is remembered when a move of the cursor is judged.
const TOLD_MAX: usize = 20_000;

/// And so much when a credit is held against ceilings.
const CEILINGS_MAX: usize = 200;

/// An execution's number is in a place above these bits, on EVM chains.
const PLACE: u64 = (1 << 40) - 1;

/// Up to where everything was looked at.
#[derive(Debug, Default)]
pub struct Tails {
    journal: i64,
    audit: i64,
    cursors: BTreeMap<String, BlockHash>,
    /// How often an operator accepted a reorg.
    accepted: i64,
}

/// A new entry of the journal that adds a credit.
struct Entry {
    id: i64,
    credit: String,
    alias: String,
    txid: Txid,
    vout: u64,
    amount: String,
    block: BlockHash,
    due: BlockHash,
    due_height: u64,
}

impl Checks {
    /// All checks of one step.
    pub fn follow(&mut self, folder: &Folder, world: &World) -> Result<(), Fault> {
        self.entries(folder, world)?;
        self.cursors(folder, world)?;
        self.audited(folder)
    }

    /// I3 against the world: the block is there and holds the payment, and the due block is on top of it.
    fn entries(&mut self, folder: &Folder, world: &World) -> Result<(), Fault> {
        let sql = format!(
            "SELECT j.id, j.credit, h.alias, c.txid, c.vout, c.amount, j.block_hash, j.due_hash, \
             j.due_height FROM journal j JOIN credits c ON c.id = j.credit JOIN chains h ON h.id = c.chain \
             WHERE j.id > {} AND j.kind <> 'reversal' AND j.block_hash IS NOT NULL ORDER BY j.id",
            self.tails.journal
        );
        let new = self.eyes(folder).tables.rows(&sql, |row| Entry {
            id: row.get(0).unwrap(),
            credit: row.get(1).unwrap(),
            alias: row.get(2).unwrap(),
            txid: Txid(row.get(3).unwrap()),
            vout: row.get::<_, i64>(4).unwrap() as u64,
            amount: row.get(5).unwrap(),
            block: BlockHash(row.get(6).unwrap()),
            due: BlockHash(row.get(7).unwrap()),
            due_height: row.get::<_, i64>(8).unwrap() as u64,
        });
        for entry in new {
            self.tails.journal = entry.id;
            let chain = world
                .chains()
                .iter()
                .position(|chain| chain.alias() == entry.alias);
            let Some(number) = chain else { continue };
            let chain = &world.chains()[number];
            let what = entry.fault(chain).or_else(|| entry.ceiling_fault(chain));
            if let Some(what) = what {
                return Err(Fault::new("I3", format!("{}: {what}", entry.credit)));
            }
        }
        Ok(())
    }

    /// A branch is left only for another that a node has named.
    fn cursors(&mut self, folder: &Folder, world: &World) -> Result<(), Fault> {
        let sql = "SELECT c.alias, h.hash, (SELECT count(*) FROM reanchors) FROM chains c \
                   JOIN headers h ON h.chain = c.id AND h.height = c.cursor_height";
        let now = self.eyes(folder).tables.rows(sql, |row| {
            let alias: String = row.get(0).unwrap();
            (
                alias,
                BlockHash(row.get(1).unwrap()),
                row.get::<_, i64>(2).unwrap(),
            )
        });
        for (alias, cursor, accepted) in now {
            let before = self.tails.cursors.insert(alias.clone(), cursor);
            let is_accepted = std::mem::replace(&mut self.tails.accepted, accepted) != accepted;
            let Some(before) = before.filter(|_| !is_accepted) else {
                continue;
            };
            let Some(number) = world.chains().iter().position(|chain| chain.alias() == alias) else {
                continue;
            };
            let chain = &world.chains()[number];
            let nodes = chain.nodes.world();
            if nodes.tree.is_on(&before, &cursor) {
                continue;
            }
            let ours = nodes.tree.block(&before).held.chainwork;
            let is_better = |told: &TipTold| {
                !nodes.tree.is_on(&told.tip, &before) && (chain.is_evm || told.chainwork >= ours)
            };
            let told = nodes.told.as_ref().map_or(&[][..], |told| &told.tips);
            if !told.iter().rev().take(TOLD_MAX).any(is_better) {
                let what =
                    format!("{alias} left {before} for {cursor}, and no node had named a better branch");
                return Err(Fault::new("I7", what));
            }
        }
        Ok(())
    }

    /// Every move was written down; nothing is counted twice.
    fn audited(&mut self, folder: &Folder) -> Result<(), Fault> {
        let sql = format!(
            "SELECT id, action, from_state, to_state FROM audit WHERE id > {} AND output IS NOT NULL",
            self.tails.audit
        );
        let new = self.eyes(folder).tables.rows(&sql, |row| {
            let text = |at: usize| row.get::<_, Option<String>>(at).unwrap().unwrap_or_default();
            (row.get::<_, i64>(0).unwrap(), text(1), text(2), text(3))
        });
        for (id, action, from, to) in new {
            self.tails.audit = self.tails.audit.max(id);
            if action == "move" && from == "credited" && to == "seen" {
                return Err(Fault::new("I8", format!("audit row {id}: from credited to seen")));
            }
        }
        Ok(())
    }
}

impl Entry {
    fn fault(&self, chain: &Chain) -> Option<String> {
        let nodes = chain.nodes.world();
        let Some(block) = nodes.tree.blocks().find(|block| block.hash() == self.block) else {
            return Some(format!("block {} is nowhere", self.block));
        };
        let holds = block.txs.iter().find(|tx| tx.txid == self.txid && !tx.is_failed);
        let Some(tx) = holds else {
            return Some(format!("block {} does not hold its payment", self.block));
        };
        if !nodes.tree.is_on(&self.block, &self.due) {
            return Some(format!(
                "its due block {} is not on top of {}",
                self.due, self.block
            ));
        }
        let place = self.vout & PLACE;
        let is_paid = match chain.is_evm {
            true => tx.outputs.iter().any(|out| out.amount.to_string() == self.amount),
            false => tx
                .outputs
                .get(place as usize)
                .is_some_and(|out| out.amount.to_string() == self.amount),
        };
        (!is_paid).then(|| format!("block {} pays another amount than {}", self.block, self.amount))
    }

    /// Not above the height at which the nodes, together, stopped being sure.
    fn ceiling_fault(&self, chain: &Chain) -> Option<String> {
        let nodes = chain.nodes.world();
        let mut told = nodes
            .told
            .iter()
            .flat_map(|told| told.tips.iter().rev().take(CEILINGS_MAX));
        let allows = |told: &TipTold| told.ceiling.is_none_or(|ceiling| ceiling >= self.due_height);
        let is_told = nodes.told.as_ref().is_some_and(|told| !told.tips.is_empty());
        (is_told && !told.any(allows))
            .then(|| format!("due at {}, which is above every ceiling told", self.due_height))
    }
}
