//! One step of a chain as one transaction: disconnects down to the fork point, connects up the new branch,
//! then, and only then, what became of every deposit, and which of them are due. State, journal, audit,
//! events, headers and cursor move together or not at all.

use super::chains::ChainKey;
use super::codec::int;
use super::deposits::{Cause, Fork};
use super::due::place;
use super::matching::Context;
use super::txs::{Made, Met, remember};
use super::{StoreError, WriteTx};
use crate::index;
use crate::rules::policy::Policy;
use crate::rules::state::{Fact, State};
use crate::rules::{
    Amount, Asset, CandidateTx, ChainId, HeldHeader, ListVersion, Outpoint, ScannedBlock, Script, Tags,
};
use rusqlite::params;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// What a follower's config says about its chain, as far as the store decides by it.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What payments need, by asset.
    pub policies: BTreeMap<Asset, Policy>,
    /// How many blocks below the tip can be undone.
    pub reorg_window: u64,
    /// How long a transaction must be absent from applied lists before it counts as evicted.
    pub evict_after_ms: i64,
}

impl Terms {
    /// What payments of the native coin alone need.
    pub fn native(policy: Policy) -> BTreeMap<Asset, Policy> {
        BTreeMap::from([(Asset::Native, policy)])
    }
}

/// One step of a chain.
#[derive(Clone, Debug)]
pub struct Advance {
    /// The chain.
    pub chain: ChainKey,
    /// The tip that the step starts from: somebody else having moved it is a contradiction.
    pub from: HeldHeader,
    /// Disconnect everything above this height first.
    pub fork_height: Option<u64>,
    /// The blocks to connect, each on the one before.
    pub blocks: Vec<ScannedBlock>,
    /// Nothing above this height is credited: the node knows a better branch that forks there.
    pub credit_ceiling: Option<u64>,
    /// EVM: the blocks that the node calls safe and final.
    pub tags: Tags,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advanced {
    /// Committed.
    Done {
        /// The new tip.
        tip: HeldHeader,
        /// Outpoints that the index must know from now on.
        outpoints: Vec<Outpoint>,
        /// How many credits, reinstatements included, it wrote.
        credited: u64,
    },
    /// A rule added since the blocks were filtered hits one of them, or addresses of a restored backup have
    /// to be watched first: nothing was written, filter again.
    RulesChanged,
}

/// What a step carries from its disconnects to its end.
#[derive(Default)]
pub(super) struct Reorg {
    /// Where the branches part.
    pub fork: Option<Fork>,
    /// Transactions whose block was disconnected, with that block.
    pub left: BTreeMap<i64, HeldHeader>,
    /// Transactions that a block connected in this step holds.
    pub arrived: BTreeSet<i64>,
    /// What the index must know from now on.
    pub outpoints: Vec<Outpoint>,
}

impl WriteTx<'_> {
    /// Takes a chain one step on.
    ///
    /// # Errors
    /// `Contradiction` when a block does not follow from the tip; nothing is written then.
    pub fn advance(&mut self, step: &Advance, terms: &Terms) -> Result<Advanced, StoreError> {
        let row = self.chain_by_key(step.chain)?;
        let mut tip = row
            .cursor
            .ok_or_else(|| StoreError::Contradiction("this chain has no cursor yet".into()))?;
        if tip.header.hash != step.from.header.hash {
            return Err(StoreError::Contradiction(format!(
                "the tip is {}, not {}",
                row.id.print(tip.header.hash),
                row.id.print(step.from.header.hash)
            )));
        }
        if self.rules_hit_since(step.chain, &step.blocks)? || self.has_waiting_addresses(step.chain)? {
            return Ok(Advanced::RulesChanged);
        }
        let mut at = self.context(step.chain)?;
        // On the way to the first final block that is told, what is above it can be undone already.
        at.finalized = at.finalized.or(step.tags.finalized.map(|last| last.height));
        let mut reorg = Reorg {
            fork: step.fork_height.map(|height| Fork {
                height,
                depth: tip.height.saturating_sub(height),
            }),
            ..Reorg::default()
        };
        while step.fork_height.is_some_and(|fork| tip.height > fork) {
            tip = self.disconnect(step.chain, &tip, &mut reorg)?;
        }
        if tip.height < step.from.height {
            self.count_reorg(step.chain, step.from.height - tip.height)?;
        }
        for block in &step.blocks {
            tip = self.connect(&at, &tip, block, terms, &mut reorg)?;
        }
        self.note_lower_tip(step.chain, &step.from, &tip, terms.reorg_window)?;
        self.settle_left(&at, &reorg, terms)?;
        self.accept_tags(step.chain, &tip, &step.tags, terms)?;
        let credited = self.credit_due(step.chain, &tip, step.credit_ceiling)?;
        self.cursor_moved(row.id.as_str(), tip.height);
        Ok(Advanced::Done {
            tip,
            outpoints: reorg.outpoints,
            credited,
        })
    }

    /// Was a rule added since these blocks were filtered that hits one of their outputs?
    pub(super) fn rules_hit_since(
        &self,
        chain: ChainKey,
        blocks: &[ScannedBlock],
    ) -> Result<bool, StoreError> {
        let Some(oldest) = blocks.iter().map(|block| block.version).min() else {
            return Ok(false);
        };
        if oldest >= self.list_version()? {
            return Ok(false);
        }
        let newer: HashSet<u64> = self
            .scripts_since(chain, oldest)?
            .iter()
            .map(|s| index::short(&s.0))
            .collect();
        Ok(blocks
            .iter()
            .any(|block| block.output_shorts.iter().any(|short| newer.contains(short))))
    }

    /// The scripts of rules newer than a version.
    pub(super) fn scripts_since(
        &self,
        chain: ChainKey,
        version: ListVersion,
    ) -> Result<Vec<Script>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT script FROM addresses WHERE chain = ?1 AND version > ?2")?;
        let rows = statement.query_map(params![chain.0, version.0], |row| row.get(0))?;
        Ok(rows.collect::<Result<Vec<Script>, _>>()?)
    }

    fn disconnect(
        &mut self,
        chain: ChainKey,
        tip: &HeldHeader,
        reorg: &mut Reorg,
    ) -> Result<HeldHeader, StoreError> {
        let below = tip
            .height
            .checked_sub(1)
            .map(|height| self.held(chain, height))
            .transpose()?;
        let Some(below) = below.filter(|below| below.header.hash == tip.header.parent) else {
            let (id, _) = self.chain_identity(chain)?;
            let hash = id.print(tip.header.hash);
            return Err(StoreError::Contradiction(format!(
                "block {hash} has no parent here"
            )));
        };
        let height = int(tip.height)?;
        let mut statement = self
            .conn()
            .prepare_cached("SELECT tx FROM inclusions WHERE chain = ?1 AND height = ?2")?;
        let txs = statement
            .query_map(params![chain.0, height], |row| row.get(0))?
            .collect::<Result<Vec<i64>, _>>()?;
        for tx in txs {
            reorg.left.entry(tx).or_insert(*tip);
            reorg.arrived.remove(&tx);
        }
        self.conn()
            .prepare_cached("DELETE FROM inclusions WHERE chain = ?1 AND height = ?2")?
            .execute(params![chain.0, height])?;
        self.conn()
            .prepare_cached(
                "UPDATE outputs SET spent_by = NULL, spent_height = NULL WHERE spent_height = ?2 \
                 AND tx IN (SELECT id FROM txs WHERE chain = ?1)",
            )?
            .execute(params![chain.0, height])?;
        self.move_cursor(chain, tip.height, below.height)?;
        self.step_back(chain, tip.height)?;
        self.lower_tags(chain, below.height)?;
        self.leave_marks(chain, below.height)?;
        self.recall.forget_headers();
        self.conn()
            .prepare_cached("DELETE FROM headers WHERE chain = ?1 AND height = ?2")?
            .execute(params![chain.0, height])?;
        Ok(below)
    }

    fn connect(
        &mut self,
        at: &Context,
        tip: &HeldHeader,
        block: &ScannedBlock,
        terms: &Terms,
        reorg: &mut Reorg,
    ) -> Result<HeldHeader, StoreError> {
        let held = extend(&at.id, tip, block)?;
        self.insert_header(at.chain, &held)?;
        self.move_cursor(at.chain, tip.height, held.height)?;
        let mut made = Vec::new();
        for candidate in &block.txs {
            made.extend(self.connect_tx(at, &held, candidate, reorg)?);
        }
        self.confirm(&held, made, terms)?;
        if let Some(below) = held.height.checked_sub(terms.reorg_window + 1) {
            // Blocks above the last final one can be undone, however many there are.
            if at.finalized.is_none_or(|last| below < last) {
                self.forget_headers(at.chain, below, below)?;
            }
        }
        Ok(held)
    }

    fn connect_tx(
        &mut self,
        at: &Context,
        held: &HeldHeader,
        candidate: &CandidateTx,
        reorg: &mut Reorg,
    ) -> Result<Vec<Made>, StoreError> {
        let matched = self.matched(at, candidate, held.height)?;
        let known = match candidate.sender {
            Some(_) => self.find_tx(at.chain, &candidate.txid)?,
            None => None,
        };
        let mut made = Vec::new();
        if !matched.is_empty() && !candidate.is_failed {
            let recorded = self.record_tx(at, candidate, &matched, Met::Anew)?;
            self.include_tx(at.chain, recorded.tx, held.height)?;
            if !recorded.is_new {
                self.take_off_lists(recorded.tx)?;
            }
            reorg.arrived.insert(recorded.tx);
            let vouts = matched.iter().map(|hit| hit.output.vout);
            remember(candidate, vouts, &mut reorg.outpoints);
            made = recorded.made;
        } else if let Some(tx) = known {
            self.include_tx(at.chain, tx, held.height)?;
            self.take_off_lists(tx)?;
            reorg.arrived.insert(tx);
        }
        if let Some(tx) = known {
            if candidate.is_failed {
                self.fail_tx(tx, held, reorg)?;
            } else {
                made.extend(self.leave_executions(at, tx, (&matched, &made), held, reorg)?);
            }
        }
        self.note_spends(at.chain, candidate, Some(held.height))?;
        self.replace_conflicts(at.chain, candidate, Some(held), &reorg.left)?;
        Ok(made)
    }

    pub(super) fn include_tx(&mut self, chain: ChainKey, tx: i64, height: u64) -> Result<(), StoreError> {
        self.conn()
            .prepare_cached(
                "INSERT INTO inclusions (chain, height, tx) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            )?
            .execute(params![chain.0, int(height)?, tx])?;
        Ok(())
    }

    /// A transaction that is in a block is neither waited for nor replaced.
    pub(super) fn take_off_lists(&mut self, tx: i64) -> Result<(), StoreError> {
        self.conn()
            .prepare_cached(
                "UPDATE txs SET is_listed = 0, absent_since = NULL, replaced_by = NULL, rival = NULL \
                 WHERE id = ?1 \
                 AND (is_listed = 1 OR absent_since IS NOT NULL OR replaced_by IS NOT NULL)",
            )?
            .execute([tx])?;
        Ok(())
    }

    /// Moves the deposits of one block to `confirming`. How deep they must be follows from the sum of each
    /// merchant's deposits in that block, so the sums come first.
    pub(super) fn confirm(
        &mut self,
        held: &HeldHeader,
        made: Vec<Made>,
        terms: &Terms,
    ) -> Result<(), StoreError> {
        let Some(first) = made.first() else {
            return Ok(());
        };
        let (chain, _) = self.chain_identity(first.deposit.chain)?;
        let sums = self.sums(held.height, &made)?;
        let (height, hash) = (held.height, held.header.hash);
        let words = format!("in block {} at height {height}", chain.print(hash));
        let cause = Cause::block(height, hash, words);
        for Made { mut deposit, hold } in made {
            let sum = sums
                .get(&(deposit.merchant_key, deposit.asset_key))
                .copied()
                .unwrap_or(deposit.amount);
            let place = place(held.height, sum, &deposit, terms)?;
            self.move_deposit(&mut deposit, Fact::Included, Some(place), &cause)?;
            if let Some(reason) = hold {
                self.hold_deposit(&mut deposit, reason, &cause)?;
            }
        }
        Ok(())
    }

    pub(super) fn sums(
        &self,
        height: u64,
        made: &[Made],
    ) -> Result<BTreeMap<(i64, i64), Amount>, StoreError> {
        let mut sums: BTreeMap<(i64, i64), Amount> = BTreeMap::new();
        let Some(chain) = made.first().map(|first| first.deposit.chain) else {
            return Ok(sums);
        };
        let here: BTreeSet<i64> = made.iter().map(|made| made.deposit.output).collect();
        // It only picks a tier, and a token's logs may claim any amount.
        let mut add = |merchant, asset, amount| {
            let sum = sums.entry((merchant, asset)).or_default();
            *sum = sum.saturating_add(amount);
        };
        for Made { deposit, .. } in made {
            add(deposit.merchant_key, deposit.asset_key, deposit.amount);
        }
        let mut statement = self.conn().prepare_cached(
            // The join leaves out deposits whose block at this height has just been disconnected.
            "SELECT d.output, d.merchant, d.asset, o.amount FROM deposits d \
             JOIN outputs o ON o.id = d.output \
             JOIN inclusions i ON i.chain = d.chain AND i.height = d.height AND i.tx = o.tx \
             WHERE d.chain = ?1 AND d.height = ?2 AND d.state <> 'failed'",
        )?;
        let mut rows = statement.query(params![chain.0, int(height)?])?;
        while let Some(row) = rows.next()? {
            if !here.contains(&row.get(0)?) {
                add(row.get(1)?, row.get(2)?, row.get(3)?);
            }
        }
        Ok(sums)
    }

    /// Decides, after the last connect, about every transaction whose block was disconnected.
    pub(super) fn settle_left(
        &mut self,
        at: &Context,
        reorg: &Reorg,
        terms: &Terms,
    ) -> Result<(), StoreError> {
        for (tx, lost) in &reorg.left {
            if reorg.arrived.contains(tx) {
                continue;
            }
            if let Some(height) = self.included_at(*tx)? {
                self.return_to(at.chain, *tx, height, terms)?;
                continue;
            }
            let replaced_by = self.replaced_by(*tx)?;
            let lost_hash = at.id.print(lost.header.hash);
            let (fact, words) = match replaced_by {
                Some(by) => (
                    Fact::BlockLeftReplaced,
                    format!(
                        "block {lost_hash} left the chain; {} took its place",
                        at.id.print(by)
                    ),
                ),
                None => (Fact::BlockLeft, format!("block {lost_hash} left the best chain")),
            };
            let cause = Cause {
                fork: reorg.fork,
                ..Cause::block(lost.height, lost.header.hash, words)
            };
            for mut deposit in self.deposits_of_tx(*tx)? {
                let fact = match (deposit.state, fact) {
                    // Its failed run is undone, and another transaction has used its nonce up.
                    (Some(State::Failed), Fact::BlockLeftReplaced) => Fact::Conflicted,
                    // What an earlier run paid is in no block that could leave; it cannot come back either.
                    (_, Fact::BlockLeftReplaced) if deposit.height.is_none() => Fact::Conflicted,
                    _ => fact,
                };
                if deposit.height.is_some() || fact == Fact::Conflicted {
                    self.move_deposit(&mut deposit, fact, None, &cause)?;
                }
            }
        }
        Ok(())
    }

    /// A coinbase that repeats an older txid lost its later block: it is back at the earlier one.
    fn return_to(&mut self, chain: ChainKey, tx: i64, height: u64, terms: &Terms) -> Result<(), StoreError> {
        let held = self.held(chain, height)?;
        let made = self
            .deposits_of_tx(tx)?
            .into_iter()
            .map(|deposit| Made { deposit, hold: None })
            .collect();
        self.confirm(&held, made, terms)
    }
}

/// The place of a block on our tip.
fn extend(chain: &ChainId, tip: &HeldHeader, block: &ScannedBlock) -> Result<HeldHeader, StoreError> {
    if block.header.parent != tip.header.hash {
        return Err(StoreError::Contradiction(format!(
            "block {} is on {}, our tip is {}",
            chain.print(block.header.hash),
            chain.print(block.header.parent),
            chain.print(tip.header.hash)
        )));
    }
    tip.child(block.header)
        .ok_or_else(|| StoreError::Contradiction("chainwork passes 2^256".into()))
}
