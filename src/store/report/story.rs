//! Everything that the database knows of one transaction.

use super::super::addresses::AddressKind;
use super::super::chains::{ChainKey, ChainRow, one};
use super::super::codec::uint;
use super::super::credits::{JournalEntry, second_credit};
use super::super::deposits::Deposit;
use super::super::{ReadTx, StoreError};
use crate::rules::invoice::Mark;
use crate::rules::{Amount, BlockHash, Outpoint, Script, Txid, ids};
use rusqlite::{OptionalExtension, params};

/// A transaction on one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxStory {
    /// The chain, with its cursor.
    pub chain: ChainRow,
    /// The transaction.
    pub txid: Txid,
    /// True when it makes new coin.
    pub is_coinbase: bool,
    /// Unix milliseconds.
    pub first_seen_at: i64,
    /// True when the last applied mempool list has it.
    pub is_listed: bool,
    /// Who took its place.
    pub replaced_by: Option<Txid>,
    /// The best-chain blocks that hold it, lowest first.
    pub blocks: Vec<(u64, Option<BlockHash>)>,
    /// What it spends.
    pub inputs: Vec<InputRow>,
    /// Those of its outputs that are ours.
    pub outputs: Vec<OutputStory>,
}

/// One input of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRow {
    /// What is spent.
    pub outpoint: Outpoint,
    /// Other stored transactions that spend the same.
    pub rivals: Vec<Txid>,
}

/// An output of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputStory {
    /// Output number.
    pub vout: u64,
    /// The script paid to.
    pub script: Script,
    /// What payments to it are.
    pub kind: AddressKind,
    /// The merchant's slug.
    pub merchant: String,
    /// What the address is for.
    pub reference: String,
    /// CAIP-19 id of the asset.
    pub asset: String,
    /// The asset's symbol.
    pub symbol: String,
    /// The asset's decimals.
    pub decimals: u8,
    /// Base units.
    pub amount: Amount,
    /// `external`, `mixed` or `internal`.
    pub origin: String,
    /// The transaction that spends it.
    pub spent_by: Option<Txid>,
    /// How often a block brought it again.
    pub duplicates: u64,
    /// How often the chain stopped because a second credit of it was refused.
    pub refused_credits: u64,
    /// Its deposit, if it counts as a payment.
    pub deposit: Option<DepositStory>,
}

/// A deposit with its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepositStory {
    /// The deposit.
    pub deposit: Deposit,
    /// When it was held, Unix milliseconds.
    pub held_at: Option<i64>,
    /// Each change, oldest first.
    pub audit: Vec<AuditRow>,
    /// Its credit, if it ever was credited.
    pub credit: Option<CreditStory>,
    /// Events of the deposit and of its credit, oldest first.
    pub events: Vec<EventRow>,
    /// The invoice of its address, and what it is to that.
    pub invoice: Option<(String, Option<Mark>)>,
}

/// One change and its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Unix milliseconds.
    pub at: i64,
    /// `move`, `hold`, `release`, `policy`, ...
    pub action: String,
    /// The state before.
    pub from: Option<String>,
    /// The state after.
    pub to: Option<String>,
    /// The block that caused it.
    pub block: Option<(u64, BlockHash)>,
    /// The cause in words.
    pub cause: String,
    /// `daemon` or `operator`.
    pub actor: String,
}

/// A credit with its books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreditStory {
    /// Its public id.
    pub id: String,
    /// Unix milliseconds.
    pub created_at: i64,
    /// The amount, or 0 while it is reversed. Base units.
    pub net: Amount,
    /// The entries, in order.
    pub journal: Vec<JournalEntry>,
}

/// One event, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Its public id.
    pub id: String,
    /// Its number among all events.
    pub seq: i64,
    /// Its number within its subject.
    pub sequence: i64,
    /// Its type.
    pub kind: String,
    /// Unix milliseconds.
    pub at: i64,
}

impl ReadTx<'_> {
    /// A transaction on every chain that knows it; usually one.
    ///
    /// # Errors
    /// Those of the database.
    pub fn tx_story(&self, txid: &Txid) -> Result<Vec<TxStory>, StoreError> {
        let mut stories = Vec::new();
        for chain in self.chains()? {
            let tx = one(
                self.conn(),
                "SELECT id FROM txs WHERE chain = ?1 AND txid = ?2",
                params![chain.key.0, txid],
            )?;
            if let Some(tx) = tx {
                stories.push(self.story_of(chain, tx, *txid)?);
            }
        }
        Ok(stories)
    }

    fn story_of(&self, chain: ChainRow, tx: i64, txid: Txid) -> Result<TxStory, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT is_coinbase, first_seen_at, is_listed, replaced_by FROM txs WHERE id = ?1",
        )?;
        let (is_coinbase, first_seen_at, is_listed, replaced_by) = statement.query_row([tx], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?;
        Ok(TxStory {
            txid,
            is_coinbase,
            first_seen_at,
            is_listed,
            replaced_by,
            blocks: self.blocks_of(chain.key, tx)?,
            inputs: self.inputs_of(chain.key, tx)?,
            outputs: self.outputs_of(&chain, tx, txid)?,
            chain,
        })
    }

    fn blocks_of(&self, chain: ChainKey, tx: i64) -> Result<Vec<(u64, Option<BlockHash>)>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT i.height, h.hash FROM inclusions i \
             LEFT JOIN headers h ON h.chain = i.chain AND h.height = i.height \
             WHERE i.tx = ?1 AND i.chain = ?2 ORDER BY i.height",
        )?;
        let mut rows = statement.query(params![tx, chain.0])?;
        let mut blocks = Vec::new();
        while let Some(row) = rows.next()? {
            blocks.push((uint(row.get(0)?)?, row.get(1)?));
        }
        Ok(blocks)
    }

    fn inputs_of(&self, chain: ChainKey, tx: i64) -> Result<Vec<InputRow>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT prev_txid, prev_vout FROM inputs WHERE tx = ?1 ORDER BY prev_txid, prev_vout",
        )?;
        let spent = statement
            .query_map([tx], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<Vec<(Txid, i64)>, _>>()?;
        let mut rivals = self.conn().prepare_cached(
            "SELECT t.txid FROM inputs i JOIN txs t ON t.id = i.tx \
             WHERE i.prev_txid = ?1 AND i.prev_vout = ?2 AND i.tx <> ?3 AND t.chain = ?4 ORDER BY t.id",
        )?;
        let mut inputs = Vec::with_capacity(spent.len());
        for (txid, vout) in spent {
            let others = rivals.query_map(params![txid, vout, tx, chain.0], |row| row.get(0))?;
            inputs.push(InputRow {
                outpoint: Outpoint {
                    txid,
                    vout: uint(vout)?,
                },
                rivals: others.collect::<Result<_, _>>()?,
            });
        }
        Ok(inputs)
    }

    /// A second credit takes its whole transaction with it, so nothing in there could count it; the halt that
    /// follows names the outpoint.
    fn refused_credits(&self, chain: &ChainRow, of: &Outpoint) -> Result<u64, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT count(*) FROM audit WHERE chain = ?1 AND action = 'state' AND instr(cause, ?2) > 0",
        )?;
        let words = second_credit(of);
        uint(statement.query_row(params![chain.key.0, words], |row| row.get(0))?)
    }

    fn outputs_of(&self, chain: &ChainRow, tx: i64, txid: Txid) -> Result<Vec<OutputStory>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT o.id, o.vout, a.script, a.kind, m.slug, a.reference, o.amount, o.origin, o.spent_by, \
             o.duplicates, s.caip, s.symbol, s.decimals \
             FROM outputs o JOIN addresses a ON a.id = o.address JOIN merchants m ON m.id = a.merchant \
             JOIN assets s ON s.id = o.asset WHERE o.tx = ?1 ORDER BY o.vout",
        )?;
        let mut rows = statement.query([tx])?;
        let mut outputs = Vec::new();
        while let Some(row) = rows.next()? {
            let kind: String = row.get(3)?;
            let vout = uint(row.get(1)?)?;
            outputs.push(OutputStory {
                vout,
                script: row.get(2)?,
                kind: AddressKind::from_word(&kind)
                    .ok_or_else(|| StoreError::Corrupt(format!("address kind {kind:?}")))?,
                merchant: row.get(4)?,
                reference: row.get(5)?,
                asset: row.get(10)?,
                symbol: row.get(11)?,
                decimals: row.get(12)?,
                amount: row.get(6)?,
                origin: row.get(7)?,
                spent_by: row.get(8)?,
                duplicates: uint(row.get(9)?)?,
                refused_credits: self.refused_credits(chain, &Outpoint { txid, vout })?,
                deposit: match self.deposit_of_output(row.get(0)?)? {
                    Some(deposit) => Some(self.deposit_story(chain, deposit)?),
                    None => None,
                },
            });
        }
        Ok(outputs)
    }

    /// A deposit with its history.
    ///
    /// # Errors
    /// Those of the database.
    pub fn deposit_story(&self, chain: &ChainRow, deposit: Deposit) -> Result<DepositStory, StoreError> {
        let credit_id = ids::credit_id(&chain.id, &deposit.outpoint);
        let mut events = self.events_of(&deposit.id)?;
        events.extend(self.events_of(&credit_id)?);
        events.sort_by_key(|event| event.seq);
        Ok(DepositStory {
            held_at: self
                .conn()
                .prepare_cached("SELECT held_at FROM deposits WHERE output = ?1")?
                .query_row([deposit.output], |row| row.get(0))?,
            audit: self.audit_of(deposit.output)?,
            credit: self.credit_story(credit_id, deposit.amount)?,
            events,
            invoice: self.mark_of(&deposit)?,
            deposit,
        })
    }

    fn mark_of(&self, deposit: &Deposit) -> Result<Option<(String, Option<Mark>)>, StoreError> {
        let id = deposit.invoice.as_ref().map(|invoice| invoice.id.as_str());
        let Some(invoice) = id.map(|id| self.invoice(id)).transpose()?.flatten() else {
            return Ok(None);
        };
        let mut payments = self.invoice_payments(&invoice)?.into_iter();
        let this = payments.find(|payment| payment.deposit.id == deposit.id);
        Ok(Some((invoice.id, this.and_then(|payment| payment.mark))))
    }

    fn audit_of(&self, output: i64) -> Result<Vec<AuditRow>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT at, action, from_state, to_state, height, hash, cause, actor FROM audit \
             WHERE output = ?1 ORDER BY id",
        )?;
        let mut rows = statement.query([output])?;
        let mut audit = Vec::new();
        while let Some(row) = rows.next()? {
            let height: Option<i64> = row.get(4)?;
            let hash: Option<BlockHash> = row.get(5)?;
            audit.push(AuditRow {
                at: row.get(0)?,
                action: row.get(1)?,
                from: row.get(2)?,
                to: row.get(3)?,
                block: match (height, hash) {
                    (Some(height), Some(hash)) => Some((uint(height)?, hash)),
                    (_, None) | (None, _) => None,
                },
                cause: row.get(6)?,
                actor: row.get(7)?,
            });
        }
        Ok(audit)
    }

    fn credit_story(&self, id: String, amount: Amount) -> Result<Option<CreditStory>, StoreError> {
        let created_at: Option<i64> = self
            .conn()
            .prepare_cached("SELECT created_at FROM credits WHERE id = ?1")?
            .query_row([&id], |row| row.get(0))
            .optional()?;
        let Some(created_at) = created_at else {
            return Ok(None);
        };
        let journal = self.journal(&id)?;
        Ok(Some(CreditStory {
            id,
            created_at,
            net: super::lists::net(amount, journal.len() as u64),
            journal,
        }))
    }

    /// The events of one subject, without their bodies, oldest first.
    ///
    /// # Errors
    /// Those of the database.
    pub fn events_of(&self, subject: &str) -> Result<Vec<EventRow>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT id, seq, sequence, type, at FROM events WHERE subject = ?1 ORDER BY sequence",
        )?;
        let rows = statement.query_map([subject], |row| {
            Ok(EventRow {
                id: row.get(0)?,
                seq: row.get(1)?,
                sequence: row.get(2)?,
                kind: row.get(3)?,
                at: row.get(4)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
