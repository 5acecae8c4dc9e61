//! What an EVM transaction pays can change when a reorg runs it again: another amount, another position, or
//! nothing. What an outpoint stands for never changes, so each content that a position ever had is a row of
//! its own, and at most one of them counts: the one that the best chain shows.

use super::advance::Reorg;
use super::chains::one;
use super::codec::int;
use super::deposits::{Cause, Place};
use super::matching::{Context, Matched};
use super::txs::Made;
use super::{StoreError, WriteTx};
use crate::rules::position;
use crate::rules::state::{Fact, State};
use crate::rules::{Amount, HeldHeader};
use rusqlite::{OptionalExtension, params};

/// The row that an output has, or the number that a new one gets.
pub(super) enum Execution {
    /// It is known with this content: its row and its number.
    Known(i64, u64),
    /// It is not: its number, and whether an earlier content of its position was ever credited.
    New(u64, bool),
}

impl WriteTx<'_> {
    /// Which execution of its position an output of an EVM transaction is.
    pub(super) fn execution(&self, tx: i64, hit: &Matched<'_>, asset: i64) -> Result<Execution, StoreError> {
        let mut was_credited = false;
        for execution in 0.. {
            let vout = position::executed(hit.output.vout, execution).ok_or_else(|| {
                StoreError::Corrupt(format!("position {} was executed too often", hit.output.vout))
            })?;
            let row: Option<(i64, i64, i64, Amount)> = self
                .conn()
                .prepare_cached("SELECT id, address, asset, amount FROM outputs WHERE tx = ?1 AND vout = ?2")?
                .query_row(params![tx, int(vout)?], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                })
                .optional()?;
            let Some((output, address, known, amount)) = row else {
                return Ok(Execution::New(vout, was_credited));
            };
            if (address, known, amount) == (hit.address.id, asset, hit.output.amount) {
                return Ok(Execution::Known(output, vout));
            }
            let credited = "SELECT 1 FROM credits WHERE output = ?1";
            was_credited |= one::<i64>(self.conn(), credited, [output])?.is_some();
        }
        Err(StoreError::Corrupt("executions without end".into()))
    }

    /// Orphans what a transaction paid in earlier runs and does not pay as the best chain has it now. Before
    /// anything of the new run counts, so that a credit is reversed before another one can be written.
    pub(super) fn leave_executions(
        &mut self,
        at: &Context,
        tx: i64,
        made: &[Made],
        held: &HeldHeader,
        reorg: &Reorg,
    ) -> Result<(), StoreError> {
        let cause = self.rerun_cause(tx, held, reorg, "shows other content at its position")?;
        for mut deposit in self.deposits_of_tx(tx)? {
            let is_here = made.iter().any(|made| made.deposit.output == deposit.output);
            // What the config does not list any more is not looked for.
            if is_here || !at.assets.contains_key(&deposit.kind) {
                continue;
            }
            match deposit.state {
                Some(State::Confirming | State::Credited | State::Failed | State::Replaced) => {
                    self.move_deposit(&mut deposit, Fact::ContentChanged, None, &cause)?;
                }
                Some(State::Seen | State::Evicted | State::Orphaned) | None => {}
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
