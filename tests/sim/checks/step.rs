//! After each step, what is new: credits against the blocks of the world and against what nodes had told,
//! moves of the cursor, evictions against the lists that were told.

use super::{Checks, Fault};
use crate::disk::Folder;
use crate::scripted::TipTold;
use crate::world::{Chain, World};
use creditd::rules::{BlockHash, TaggedBlock, Txid};
use std::collections::BTreeMap;

/// A follower goes by the tip that it asked for last: one of those told since the last look, or of so many
/// before.
const TIPS_BEFORE: usize = 4;

/// Behind JSON a tip is told with every answer.
const TIPS_BEFORE_BY_WIRE: usize = 200;

/// Between two lists no more time than this counts as absence: the time from list to list, and some delay.
const LIST_GAP_MAX_MS: i64 = 2_000 + 30_000;

/// An execution's number is in a place above these bits, on EVM chains.
const PLACE: u64 = (1 << 40) - 1;

/// Up to where everything was looked at.
#[derive(Debug, Default)]
pub struct Tails {
    journal: i64,
    reversals: i64,
    audit: i64,
    cursors: BTreeMap<String, BlockHash>,
    /// How often an operator accepted a reorg.
    accepted: BTreeMap<String, i64>,
    /// How much each chain's nodes had told.
    told: BTreeMap<String, ToldUntil>,
    /// Where among the lists each payment was that was seen.
    sights: BTreeMap<i64, usize>,
}

/// How many tips and lists.
#[derive(Clone, Copy, Debug, Default)]
struct ToldUntil {
    tips: usize,
    lists: usize,
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
    height: u64,
    due: BlockHash,
    tag: Option<String>,
    /// An operator let it go, also where nobody says that its transaction succeeded.
    is_released: bool,
}

impl ToldUntil {
    /// The first tip that a follower may still go by.
    fn tips_from(self, chain: &Chain) -> usize {
        self.tips.saturating_sub(match chain.wire {
            Some(_) => TIPS_BEFORE_BY_WIRE,
            None => TIPS_BEFORE,
        })
    }
}

impl Checks {
    /// All checks of one step.
    pub fn follow(&mut self, folder: &Folder, world: &World) -> Result<(), Fault> {
        self.entries(folder, world)?;
        self.reversals(folder, world)?;
        self.cursors(folder, world)?;
        self.audited(folder, world)?;
        for chain in world.chains() {
            let nodes = chain.nodes.world();
            let until = nodes.told.as_ref().map(|told| ToldUntil {
                tips: told.tips.len(),
                lists: told.lists.len(),
            });
            self.tails
                .told
                .insert(chain.alias().to_owned(), until.unwrap_or_default());
        }
        Ok(())
    }

    /// I3 against the world: the block is there and holds the payment, and the due block is on top of it.
    fn entries(&mut self, folder: &Folder, world: &World) -> Result<(), Fault> {
        let sql = "SELECT j.id, j.credit, h.alias, c.txid, c.vout, c.amount, j.block_hash, \
                   j.block_height, j.due_hash, j.tag, \
                   EXISTS (SELECT 1 FROM audit WHERE output = c.output AND action = 'release') \
                   FROM journal j JOIN credits c ON c.id = j.credit JOIN chains h ON h.id = c.chain \
                   WHERE j.id > ?1 AND j.kind <> 'reversal' AND j.block_hash IS NOT NULL ORDER BY j.id";
        let after = self.tails.journal;
        let new = self.eyes(folder).tables.rows_of(sql, [after], |row| Entry {
            id: row.get(0).unwrap(),
            credit: row.get(1).unwrap(),
            alias: row.get(2).unwrap(),
            txid: Txid(row.get(3).unwrap()),
            vout: row.get::<_, i64>(4).unwrap() as u64,
            amount: row.get(5).unwrap(),
            block: BlockHash(row.get(6).unwrap()),
            height: row.get::<_, i64>(7).unwrap() as u64,
            due: BlockHash(row.get(8).unwrap()),
            tag: row.get(9).unwrap(),
            is_released: row.get(10).unwrap(),
        });
        for entry in new {
            self.tails.journal = entry.id;
            let chain = world
                .chains()
                .iter()
                .position(|chain| chain.alias() == entry.alias);
            let Some(number) = chain else { continue };
            let chain = &world.chains()[number];
            let until = self.tails.told.get(&entry.alias).copied().unwrap_or_default();
            let what = entry
                .fault(chain)
                .or_else(|| entry.ceiling_fault(chain, until.tips_from(chain)))
                .or_else(|| entry.tag_fault(chain));
            if let Some(what) = what {
                return Err(Fault::new("I3", format!("{}: {what}", entry.credit)));
            }
        }
        Ok(())
    }

    /// I21: what is taken back was in a block that is left, or an operator held it: time alone, whatever the
    /// clock says, takes nothing. A block that was left may stand again before its payment is due again.
    fn reversals(&mut self, folder: &Folder, world: &World) -> Result<(), Fault> {
        let sql = "SELECT j.id, j.credit, h.alias, j.block_hash, cursor.hash, d.held_reason IS NOT NULL \
                   OR EXISTS (SELECT 1 FROM journal WHERE credit = j.credit AND sequence > j.sequence) \
                   OR EXISTS (SELECT 1 FROM audit WHERE output = c.output AND ( \
                   action = 'hold' AND actor = 'operator' \
                   OR action = 'move' AND from_state = 'credited' AND hash = j.block_hash)) \
                   FROM journal j JOIN credits c ON c.id = j.credit \
                   JOIN deposits d ON d.output = c.output JOIN chains h ON h.id = c.chain \
                   JOIN headers cursor ON cursor.chain = h.id AND cursor.height = h.cursor_height \
                   WHERE j.id > ?1 AND j.kind = 'reversal' ORDER BY j.id";
        let after = self.tails.reversals;
        let new = self.eyes(folder).tables.rows_of(sql, [after], |row| {
            let (id, credit): (i64, String) = (row.get(0).unwrap(), row.get(1).unwrap());
            let (alias, has_cause): (String, bool) = (row.get(2).unwrap(), row.get(5).unwrap());
            let hash = |at| BlockHash(row.get(at).unwrap());
            (id, credit, alias, (hash(3), hash(4)), has_cause)
        });
        for (id, credit, alias, (block, cursor), has_cause) in new {
            self.tails.reversals = id;
            crate::marks::hit("taken_back");
            let chain = world.chains().iter().find(|chain| chain.alias() == alias);
            let stands = |chain: &Chain| chain.nodes.world().tree.is_on(&block, &cursor);
            if !has_cause && chain.is_some_and(stands) {
                let what = format!("{credit}: taken back, and block {block} stands");
                return Err(Fault::new("I21", what));
            }
        }
        Ok(())
    }

    /// A branch is left only for another that a node has named.
    fn cursors(&mut self, folder: &Folder, world: &World) -> Result<(), Fault> {
        // An accepted reorg is done in the transaction that moves the cursor, which may be a look after the
        // one that saw it asked for.
        let sql = "SELECT c.alias, h.hash, \
                   (SELECT count(*) FROM reanchors WHERE chain = c.id AND state <> 'asked') FROM chains c \
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
            let is_accepted = self
                .tails
                .accepted
                .insert(alias.clone(), accepted)
                .unwrap_or_default()
                != accepted;
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
            let from = self
                .tails
                .told
                .get(&alias)
                .map_or(0, |until| until.tips_from(chain));
            if !told.iter().skip(from).any(is_better) {
                let what =
                    format!("{alias} left {before} for {cursor}, and no node had named a better branch");
                return Err(Fault::new("I7", what));
            }
        }
        Ok(())
    }

    /// I8: every move of a payment has its cause. It is evicted once it was missing for long enough.
    fn audited(&mut self, folder: &Folder, world: &World) -> Result<(), Fault> {
        let sql = "SELECT a.id, a.from_state, a.to_state, h.alias, a.output FROM audit a \
                   JOIN outputs o ON o.id = a.output JOIN txs t ON t.id = o.tx \
                   JOIN chains h ON h.id = t.chain \
                   WHERE a.id > ?1 AND a.action = 'move' ORDER BY a.id";
        let after = self.tails.audit;
        let new = self.eyes(folder).tables.rows_of(sql, [after], |row| {
            let text = |at: usize| row.get::<_, Option<String>>(at).unwrap().unwrap_or_default();
            let (id, output): (i64, i64) = (row.get(0).unwrap(), row.get(4).unwrap());
            (id, text(1), text(2), text(3), output)
        });
        for (id, from, to, alias, output) in new {
            self.tails.audit = self.tails.audit.max(id);
            if from == "credited" && to == "seen" {
                return Err(Fault::new("I8", format!("audit row {id}: from credited to seen")));
            }
            if to == "seen" {
                let until = self.tails.told.get(&alias).copied().unwrap_or_default();
                self.tails.sights.insert(output, until.lists.saturating_sub(2));
            }
            let seen = self.tails.sights.get(&output).filter(|_| to == "evicted");
            let Some(missing_ms) = seen.and_then(|from| missing_ms(world, &alias, *from)) else {
                continue;
            };
            if missing_ms < self.evict_after_ms {
                let what = format!("audit row {id}: evicted, missing for at most {missing_ms} ms");
                return Err(Fault::new("I8", what));
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
        let holds = block
            .txs
            .iter()
            .find(|tx| tx.txid == self.txid && (!tx.is_failed || self.is_released));
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

    /// Not above the fork of a better branch that the node knew of whose tip was gone by.
    fn ceiling_fault(&self, chain: &Chain, from: usize) -> Option<String> {
        let nodes = chain.nodes.world();
        let told = nodes.told.as_ref().and_then(|told| told.tips.get(from..))?;
        let allows = |told: &TipTold| told.ceiling.is_none_or(|ceiling| ceiling >= self.height);
        (!told.is_empty() && !told.iter().any(allows))
            .then(|| format!("in block {}, which is above every ceiling told", self.height))
    }

    /// What is due by a tag is below a block of its own branch that a node gave the tag.
    fn tag_fault(&self, chain: &Chain) -> Option<String> {
        let tag = self.tag.as_deref()?;
        let nodes = chain.nodes.world();
        let told = nodes.told.as_ref()?;
        let is_tagged = |told: &TipTold| {
            let tags = [told.tags.safe.filter(|_| tag == "safe"), told.tags.finalized];
            let is_above = |tagged: &TaggedBlock| nodes.tree.is_on(&self.block, &tagged.hash);
            tags.iter().flatten().any(is_above)
        };
        (!told.tips.iter().rev().any(is_tagged))
            .then(|| format!("no node called a block {tag} that stands on {}", self.block))
    }
}

/// For how long complete lists, from that one on, can have been without a payment. None where no lists are
/// told.
fn missing_ms(world: &World, alias: &str, from: usize) -> Option<i64> {
    let chain = world.chains().iter().find(|chain| chain.alias() == alias)?;
    let nodes = chain.nodes.world();
    let lists = nodes.told.as_ref()?.lists.get(from..)?;
    let mut last = lists.first()?.at_ms;
    let mut missing = 0;
    for list in lists.iter().filter(|list| list.is_complete) {
        missing += (list.at_ms - last).clamp(0, LIST_GAP_MAX_MS);
        last = list.at_ms;
    }
    Some(missing)
}
