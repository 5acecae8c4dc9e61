//! What an EVM transaction pays can change when a reorg runs it again: another amount, another position, or
//! nothing. What an outpoint stands for never changes, so each content that a position ever had is a row of
//! its own, and at most one of them counts: the one that the best chain shows. Whose coin moves is part of
//! the content as far as it decides whether it is a payment.

use super::advance::Reorg;
use super::chains::one;
use super::codec::int;
use super::deposits::{Cause, Deposit, HELD_UNLISTED, Place};
use super::matching::{Context, Matched};
use super::repair::HELD_OPERATOR;
use super::txs::Made;
use super::unattributed::HELD_CLOSED_BY_HAND;
use super::{StoreError, WriteTx};
use crate::rules::position;
use crate::rules::state::{Fact, State};
use crate::rules::{Amount, HeldHeader, Script};
use rusqlite::{OptionalExtension, params};

/// The row that an output has, or the number that a new one gets.
pub(super) enum Execution {
    /// It is known with this content: its row and its number.
    Known(i64, u64),
    /// It is not: its number.
    New(u64),
    /// It is not, and another content of its position stands in the same block.
    Contradicted,
}

/// An execution of a position as the table has it.
struct Row {
    output: i64,
    address: i64,
    asset: i64,
    amount: Amount,
    payer: Option<Script>,
    state: Option<State>,
}

impl WriteTx<'_> {
    /// Which execution of its position an output of an EVM transaction is. `is_again`: the block that shows
    /// it is one of ours that is read again. An answer that differs from the first about one block is not
    /// believed over it, or both contents would count.
    pub(super) fn execution(
        &self,
        at: &Context,
        tx: i64,
        hit: &Matched<'_>,
        sender: &Script,
        is_again: bool,
    ) -> Result<Execution, StoreError> {
        let asset = at.asset(hit.output.asset)?.id;
        let mut is_standing = false;
        for execution in 0.. {
            let vout = position::executed(hit.output.vout, execution).ok_or_else(|| {
                StoreError::Corrupt(format!("position {} was executed too often", hit.output.vout))
            })?;
            let Some(row) = self.execution_row(tx, vout)? else {
                return Ok(match is_again && is_standing {
                    true => Execution::Contradicted,
                    false => Execution::New(vout),
                });
            };
            let is_same = (row.address, row.asset, row.amount) == (hit.address.id, asset, hit.output.amount);
            if is_same && self.is_same_origin(at, &row, hit, sender)? {
                return Ok(Execution::Known(row.output, vout));
            }
            is_standing |= match row.state {
                Some(state) => state.is_in_block(),
                // A move of own coin has no deposit, and stands where its transaction is in a block.
                None => {
                    (row.address, row.asset) == (hit.address.id, asset) && self.included_at(tx)?.is_some()
                }
            };
        }
        Err(StoreError::Corrupt("executions without end".into()))
    }

    fn execution_row(&self, tx: i64, vout: u64) -> Result<Option<Row>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT o.id, o.address, o.asset, o.amount, o.payer, d.state \
             FROM outputs o LEFT JOIN deposits d ON d.output = o.id WHERE o.tx = ?1 AND o.vout = ?2",
        )?;
        let row = statement.query_row(params![tx, int(vout)?], |row| {
            Ok(Row {
                output: row.get(0)?,
                address: row.get(1)?,
                asset: row.get(2)?,
                amount: row.get(3)?,
                payer: row.get(4)?,
                state: row.get(5)?,
            })
        });
        Ok(row.optional()?)
    }

    /// Another payer makes another payment only where one of the two is its merchant.
    fn is_same_origin(
        &self,
        at: &Context,
        row: &Row,
        hit: &Matched<'_>,
        sender: &Script,
    ) -> Result<bool, StoreError> {
        if row.payer == hit.output.from {
            return Ok(true);
        }
        let merchant = hit.address.merchant;
        let before = self.evm_origin(at.chain, row.payer.as_ref(), sender, merchant)?;
        Ok(before == self.evm_origin(at.chain, hit.output.from.as_ref(), sender, merchant)?)
    }

    /// Was an earlier content of a deposit's position credited, and neither was this one ever nor has the
    /// operator let it go? Then the merchant was told of another payment in its place.
    pub(super) fn is_rerun(&self, tx: i64, output: i64, vout: u64) -> Result<bool, StoreError> {
        let found = one::<i64>(
            self.conn(),
            "SELECT 1 FROM outputs e JOIN credits c ON c.output = e.id \
             WHERE e.tx = ?1 AND e.vout < ?3 AND e.vout & 1099511627775 = ?3 & 1099511627775 \
             AND NOT EXISTS (SELECT 1 FROM credits WHERE output = ?2) \
             AND NOT EXISTS (SELECT 1 FROM audit WHERE output = ?2 AND action = 'release') LIMIT 1",
            params![tx, output, int(vout)?],
        )?;
        Ok(found.is_some())
    }

    /// Is something else that its transaction paid barred by an operator? A run with another outcome must not
    /// pass that by.
    pub(super) fn is_beside_barred(&self, tx: i64, output: i64) -> Result<bool, StoreError> {
        let found = one::<i64>(
            self.conn(),
            "SELECT 1 FROM outputs o JOIN deposits d ON d.output = o.id WHERE o.tx = ?1 AND o.id <> ?2 \
             AND d.held_reason IN (?3, ?4) LIMIT 1",
            params![tx, output, HELD_OPERATOR, HELD_CLOSED_BY_HAND],
        )?;
        Ok(found.is_some())
    }

    /// Nothing is credited while another content of its position is. Looked at once more by whoever writes a
    /// credit.
    pub(super) fn check_alone(&self, deposit: &Deposit) -> Result<(), StoreError> {
        let other = one::<String>(
            self.conn(),
            "SELECT d.dep_id FROM outputs e JOIN deposits d ON d.output = e.id WHERE e.tx = ?1 AND e.id <> \
             ?2 \
             AND e.vout & 1099511627775 = ?3 & 1099511627775 AND d.state = 'credited' LIMIT 1",
            params![deposit.tx, deposit.output, int(deposit.outpoint.vout)?],
        )?;
        match other {
            None => Ok(()),
            Some(other) => Err(StoreError::Contradiction(format!(
                "{} cannot be credited: {other} is, and stands for another run of it",
                deposit.id
            ))),
        }
    }

    /// Orphans what a transaction paid in earlier runs and does not pay as the best chain has it now, where
    /// it shows what `matched`. Before anything of the new run counts, so that a credit is reversed before
    /// another one can be written. What the config does not list any more nobody looks for: of that it
    /// returns what was in a block, which goes where its transaction goes as long as nothing else is seen in
    /// its place, and is held there: this run may have paid another amount, or nothing.
    pub(super) fn leave_executions(
        &mut self,
        at: &Context,
        tx: i64,
        (matched, made): (&[Matched<'_>], &[Made]),
        held: &HeldHeader,
        reorg: &Reorg,
    ) -> Result<Vec<Made>, StoreError> {
        let cause = self.rerun_cause(tx, held, reorg, "shows other content at its position")?;
        let mut kept = Vec::new();
        for mut deposit in self.deposits_of_tx(tx)? {
            if made.iter().any(|made| made.deposit.output == deposit.output) {
                continue;
            }
            let place = position::place(deposit.outpoint.vout);
            let is_unseen =
                !at.assets.contains_key(&deposit.kind) && matched.iter().all(|hit| hit.output.vout != place);
            match deposit.state {
                Some(State::Confirming | State::Credited) if is_unseen => kept.push(Made {
                    deposit,
                    hold: Some(HELD_UNLISTED),
                }),
                Some(State::Confirming | State::Credited | State::Failed)
                | Some(State::Replaced | State::Seen | State::Evicted) => {
                    self.move_deposit(&mut deposit, Fact::ContentChanged, None, &cause)?;
                }
                Some(State::Orphaned) | None => {}
            }
        }
        Ok(kept)
    }

    /// A replaced transaction is pending again. What the list does not show of it (tokens, inner movements)
    /// is known once it is mined; it is replaced by nobody.
    pub(super) fn leave_replaced(&mut self, tx: i64) -> Result<(), StoreError> {
        let cause = Cause::other("in the node's mempool again: what it pays shows when it is mined");
        for mut deposit in self.deposits_of_tx(tx)? {
            if deposit.state == Some(State::Replaced) {
                self.move_deposit(&mut deposit, Fact::ContentChanged, None, &cause)?;
            }
        }
        Ok(())
    }

    /// A stored transaction is in a block, and failed there: it paid nobody.
    pub(super) fn fail_tx(&mut self, tx: i64, held: &HeldHeader, reorg: &Reorg) -> Result<(), StoreError> {
        let cause = self.rerun_cause(tx, held, reorg, "holds it with a status other than 1")?;
        let place = Place::failed(held.height);
        for mut deposit in self.deposits_of_tx(tx)? {
            self.move_deposit(&mut deposit, Fact::Reverted, Some(place), &cause)?;
        }
        Ok(())
    }

    /// Of a transaction whose block was disconnected in this step the cause is that block; else the one that
    /// shows it now.
    fn rerun_cause(
        &self,
        tx: i64,
        held: &HeldHeader,
        reorg: &Reorg,
        what: &str,
    ) -> Result<Cause, StoreError> {
        let chain = self.chain_of_tx(tx)?;
        let (height, hash) = (held.height, held.header.hash);
        let words = format!("block {} at height {height} {what}", chain.print(hash));
        Ok(match reorg.left.get(&tx) {
            Some(lost) => {
                let left = chain.print(lost.header.hash);
                let words = format!("block {left} left the chain; {words}");
                Cause {
                    fork: reorg.fork,
                    ..Cause::block(lost.height, lost.header.hash, words)
                }
            }
            None => Cause::block(height, hash, words),
        })
    }
}
