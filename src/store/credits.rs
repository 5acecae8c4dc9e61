//! The ledger: the one credit of an outpoint and its journal. Rows are only ever inserted; a second credit of
//! an outpoint is refused by the table and halts the chain.

use super::chains::one;
use super::codec::{int, uint};
use super::deposits::{Cause, Deposit, Fork, Place, columns_of, needs};
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::policy::Requirement;
use crate::rules::{Amount, BlockHash, Outpoint, ids};
use rusqlite::{Row, params};

/// One line of the books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// From 1, without gap.
    pub sequence: u64,
    /// `credit`, `reversal` or `reinstatement`.
    pub kind: String,
    /// Unix milliseconds.
    pub at: i64,
    /// What on its chain made it so; `None` where another provider told of the payment.
    pub cause: Option<ChainCause>,
    /// Of a reversal: the state it moved to, or `held`.
    pub reason: String,
}

/// What on a chain is the cause of a journal entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainCause {
    /// The payment's block.
    pub block_height: u64,
    /// Its hash.
    pub block_hash: BlockHash,
    /// What was required.
    pub needs: Requirement,
    /// The height at which the credit was due.
    pub due_height: u64,
    /// The block at the due height; `None` on a reversal.
    pub due_hash: Option<BlockHash>,
}

/// What a journal entry changes: the entry's place in the books of its credit.
pub(super) struct Booked {
    pub credit_id: String,
    pub entry: JournalEntry,
    pub net: Amount,
    /// Of a reversal by a reorg: where the branches part.
    pub fork: Option<Fork>,
}

impl ReadTx<'_> {
    /// The journal of a credit, in order.
    pub fn journal(&self, credit: &str) -> Result<Vec<JournalEntry>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT sequence, kind, at, block_height, block_hash, confirmations, due_height, \
             due_hash, reason, tag FROM journal WHERE credit = ?1 ORDER BY sequence",
        )?;
        let mut rows = statement.query([credit])?;
        let mut entries = Vec::new();
        while let Some(row) = rows.next()? {
            entries.push(JournalEntry {
                sequence: uint(row.get(0)?)?,
                kind: row.get(1)?,
                at: row.get(2)?,
                cause: chain_cause(row)?,
                reason: row.get(8)?,
            });
        }
        Ok(entries)
    }
}

fn chain_cause(row: &Row<'_>) -> Result<Option<ChainCause>, StoreError> {
    let Some(block_height) = row.get(3)? else {
        return Ok(None);
    };
    Ok(Some(ChainCause {
        block_height: uint(block_height)?,
        block_hash: row.get(4)?,
        needs: needs(row.get(5)?, row.get(9)?)?
            .ok_or_else(|| StoreError::Corrupt("a journal entry without requirement".into()))?,
        due_height: uint(row.get(6)?)?,
        due_hash: row.get(7)?,
    }))
}

impl WriteTx<'_> {
    /// Writes the credit, or its reinstatement, of a deposit that has just become `credited`. Everything that
    /// makes it right is looked at once more here, in the transaction that writes it.
    pub(super) fn write_credit(&mut self, deposit: &Deposit) -> Result<(), StoreError> {
        assert!(
            deposit.held_reason.is_none() && !deposit.amount.is_zero(),
            "nothing held or empty is credited"
        );
        if deposit.sender.is_some() {
            self.check_alone(deposit)?;
        }
        let (height, needs, due_height) = placed(deposit)?;
        let block = self.held(deposit.chain, height)?;
        // Below the window not every header is kept; a late credit (released hold, edited policy) names the
        // next one.
        let due = self
            .header_at_or_above(deposit.chain, due_height)?
            .ok_or_else(|| {
                StoreError::Contradiction(format!("{} is credited before its due height", deposit.id))
            })?;
        let credit_id = ids::credit_id(&self.chain_identity(deposit.chain)?.0, &deposit.outpoint);
        let entries = self.entry_count(&credit_id)?;
        if entries == 0 {
            self.insert_credit(&credit_id, deposit)?;
        }
        let entry = JournalEntry {
            sequence: entries + 1,
            kind: if entries == 0 { "credit" } else { "reinstatement" }.to_owned(),
            at: self.now_ms(),
            cause: Some(ChainCause {
                block_height: height,
                block_hash: block.header.hash,
                needs,
                due_height: due.height,
                due_hash: Some(due.header.hash),
            }),
            reason: String::new(),
        };
        self.book(
            deposit,
            Booked {
                credit_id,
                entry,
                net: deposit.amount,
                fork: None,
            },
        )
    }

    /// Writes the reversal of a deposit that has just stopped being `credited`; `was_at` is where it stood.
    pub(super) fn write_reversal(
        &mut self,
        deposit: &Deposit,
        was_at: Option<Place>,
        reason: &str,
        cause: &Cause,
    ) -> Result<(), StoreError> {
        let Some((was_at, (needs, due_height))) = was_at.and_then(|at| Some((at, at.due?))) else {
            return Err(StoreError::Corrupt(format!(
                "deposit {} was credited without a block",
                deposit.id
            )));
        };
        let credit_id = ids::credit_id(&self.chain_identity(deposit.chain)?.0, &deposit.outpoint);
        let entries = self.entry_count(&credit_id)?;
        // The lost block's header is gone by now and is named by the cause; a hold finds its block still
        // held.
        let block_hash = match cause.hash {
            Some(hash) => hash,
            None => self.held(deposit.chain, was_at.height)?.header.hash,
        };
        let entry = JournalEntry {
            sequence: entries + 1,
            kind: "reversal".to_owned(),
            at: self.now_ms(),
            cause: Some(ChainCause {
                block_height: was_at.height,
                block_hash,
                needs,
                due_height,
                due_hash: None,
            }),
            reason: reason.to_owned(),
        };
        self.book(
            deposit,
            Booked {
                credit_id,
                entry,
                net: Amount::ZERO,
                fork: cause.fork,
            },
        )
    }

    /// Was it credited in the block where it is, until a hold took the credit back? Its release gives that
    /// back as it was, whatever the policy has become since, and whether or not the daemon was started anew
    /// in between.
    pub(super) fn is_held_credit(&self, deposit: &Deposit) -> Result<bool, StoreError> {
        let found = one::<i64>(
            self.conn(),
            "SELECT 1 FROM credits c JOIN journal j ON j.credit = c.id \
             JOIN headers h ON h.chain = c.chain AND h.height = j.block_height AND h.hash = j.block_hash \
             WHERE c.output = ?1 AND j.reason = 'held' AND j.block_height = ?2 \
             AND j.sequence = (SELECT max(sequence) FROM journal WHERE credit = c.id)",
            params![deposit.output, deposit.height.map(int).transpose()?],
        )?;
        Ok(found.is_some())
    }

    fn entry_count(&self, credit_id: &str) -> Result<u64, StoreError> {
        let count = one::<i64>(
            self.conn(),
            "SELECT count(*) FROM journal WHERE credit = ?1",
            [credit_id],
        )?;
        uint(count.unwrap_or_default())
    }

    fn insert_credit(&mut self, credit_id: &str, deposit: &Deposit) -> Result<(), StoreError> {
        let now = self.now_ms();
        let (chain, _) = self.chain_identity(deposit.chain)?;
        // Plain INSERT on purpose: a collision here means that somebody was paid already, and must be loud.
        self.conn()
            .prepare_cached(
                "INSERT INTO credits (id, chain, txid, vout, output, merchant, asset, amount, created_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                credit_id,
                deposit.chain.0,
                deposit.outpoint.txid,
                int(deposit.outpoint.vout)?,
                deposit.output,
                deposit.merchant_key,
                deposit.asset_key,
                deposit.amount,
                now
            ])
            .map_err(|error| match StoreError::from(error) {
                StoreError::Constraint(why) => {
                    let words = chain.print(second_credit(&deposit.outpoint));
                    StoreError::Contradiction(format!("{words}: {why}"))
                }
                other => other,
            })?;
        Ok(())
    }

    fn book(&mut self, deposit: &Deposit, booked: Booked) -> Result<(), StoreError> {
        self.write_entry(&booked.credit_id, &booked.entry)?;
        self.credit_event(deposit, &booked)
    }

    /// Writes a line of the books.
    pub(super) fn write_entry(&mut self, credit_id: &str, entry: &JournalEntry) -> Result<(), StoreError> {
        let cause = entry.cause.as_ref();
        let (confirmations, tag) = columns_of(cause.map(|cause| cause.needs));
        let height = |of: fn(&ChainCause) -> u64| cause.map(|cause| int(of(cause))).transpose();
        self.conn()
            .prepare_cached(
                "INSERT INTO journal (credit, sequence, kind, at, block_height, block_hash, \
                 confirmations, tag, due_height, due_hash, reason) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute(params![
                credit_id,
                int(entry.sequence)?,
                entry.kind,
                entry.at,
                height(|cause| cause.block_height)?,
                cause.map(|cause| cause.block_hash),
                confirmations,
                tag,
                height(|cause| cause.due_height)?,
                cause.and_then(|cause| cause.due_hash),
                entry.reason
            ])?;
        Ok(())
    }
}

/// How the reason begins for which a chain halts at a second credit, as yet without what its people put in
/// front of a hash.
pub(super) fn second_credit(of: &Outpoint) -> String {
    format!("{of} cannot be credited")
}

fn placed(deposit: &Deposit) -> Result<(u64, Requirement, u64), StoreError> {
    match (deposit.height, deposit.due()) {
        (Some(height), Some((needs, due_height))) => Ok((height, needs, due_height)),
        _ => Err(StoreError::Corrupt(format!(
            "deposit {} has no block",
            deposit.id
        ))),
    }
}
