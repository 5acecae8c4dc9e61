//! Proofs of credits, as they are stored: which are due, what is kept of them, and what each is of.

use super::chains::one;
use super::codec::{int, uint};
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::{Amount, Asset, BlockHash, ChainId, Outpoint, Script, TaggedBlock, Txid};
use rusqlite::{OptionalExtension as _, Row, params};

/// A proof, or that there could be none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The block that the payment was in.
    pub block: BlockHash,
    /// The credit's part of it; `None` = it could not be had.
    pub body: Option<Vec<u8>>,
    /// Why not.
    pub why: String,
    /// When it was made.
    pub made_at: i64,
}

/// What a proof is of: a credit at a block that made it due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvidenceOf {
    /// The journal's entry.
    pub entry: i64,
    /// The credit.
    pub credit: String,
    /// Its chain.
    pub chain: ChainId,
    /// Its outpoint; of an EVM chain with its execution.
    pub outpoint: Outpoint,
    /// Who was paid.
    pub script: Script,
    /// In what.
    pub asset: Asset,
    /// How much.
    pub amount: Amount,
    /// The block that holds the payment.
    pub block: TaggedBlock,
    /// The block at which it was due.
    pub due: TaggedBlock,
}

/// What is stored of the credits of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvidence {
    /// Their block.
    pub block: TaggedBlock,
    /// What they share.
    pub shared: Option<Vec<u8>>,
    /// Each credit's own part, or why there is none.
    pub credits: Vec<(String, Result<Vec<u8>, String>)>,
}

const OF: &str = "SELECT j.id, c.id, n.caip, c.txid, c.vout, a.script, s.contract, c.amount, j.block_height, \
                  j.block_hash, j.due_height, j.due_hash \
                  FROM journal j JOIN credits c ON c.id = j.credit JOIN chains n ON n.id = c.chain \
                  JOIN outputs o ON o.id = c.output JOIN addresses a ON a.id = o.address \
                  JOIN assets s ON s.id = c.asset ";

/// Entries that proofs are to be made of. The plus keeps the new ones first: a chain's credits are not read
/// through each time.
pub(super) fn due_sql() -> String {
    format!(
        "{OF} WHERE j.id > ?1 AND +n.caip = ?2 AND j.kind <> 'reversal' AND j.block_hash IS NOT NULL \
         ORDER BY j.id LIMIT ?3"
    )
}

fn evidence_of_row(row: &Row<'_>) -> Result<EvidenceOf, StoreError> {
    let contract: Option<Vec<u8>> = row.get(6)?;
    let contract = contract.map(<[u8; 20]>::try_from).transpose();
    let contract = contract.map_err(|_| StoreError::Corrupt("a contract of another length".into()))?;
    Ok(EvidenceOf {
        entry: row.get(0)?,
        credit: row.get(1)?,
        chain: ChainId::from_stored(row.get(2)?),
        outpoint: Outpoint {
            txid: row.get::<_, Txid>(3)?,
            vout: uint(row.get(4)?)?,
        },
        script: row.get(5)?,
        asset: contract.map_or(Asset::Native, Asset::Token),
        amount: row.get(7)?,
        block: TaggedBlock {
            height: uint(row.get(8)?)?,
            hash: row.get(9)?,
        },
        due: TaggedBlock {
            height: uint(row.get(10)?)?,
            hash: row.get(11)?,
        },
    })
}

impl ReadTx<'_> {
    /// What is stored of a credit; one for each block that it was in.
    pub fn evidence_of(&self, credit: &str) -> Result<Vec<Evidence>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT block, body, why, made_at FROM evidence WHERE credit = ?1 ORDER BY made_at, block",
        )?;
        let rows = statement.query_map([credit], |row| {
            Ok(Evidence {
                block: row.get(0)?,
                body: row.get(1)?,
                why: row.get(2)?,
                made_at: row.get(3)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// What the proofs of a block's credits share.
    pub fn evidence_block(&self, chain: &ChainId, block: &BlockHash) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.conn().query_row(
            "SELECT b.body FROM evidence_blocks b JOIN chains n ON n.id = b.chain \
             WHERE n.caip = ?1 AND b.hash = ?2",
            params![chain.as_str(), block],
            |row| row.get(0),
        );
        Ok(found.optional()?.flatten())
    }

    /// The next entries of a chain's journal that may be proved, in their order; and the last entry of the
    /// journal up to which there are no others, where that is a new one.
    pub fn evidence_due(
        &self,
        chain: &ChainId,
        limit: u32,
    ) -> Result<(Vec<EvidenceOf>, Option<i64>), StoreError> {
        let mark: Option<i64> = self
            .conn()
            .query_row(
                "SELECT m.place FROM audit_marks m JOIN chains n ON n.id = m.chain \
                 WHERE n.caip = ?1 AND m.pass = 'evidence'",
                [chain.as_str()],
                |row| row.get(0),
            )
            .optional()?;
        let mut statement = self.conn().prepare_cached(&due_sql())?;
        let mut rows = statement.query(params![mark.unwrap_or(0), chain.as_str(), limit])?;
        let mut due = Vec::new();
        while let Some(row) = rows.next()? {
            due.push(evidence_of_row(row)?);
        }
        let whole = one(self.conn(), "SELECT coalesce(max(id), 0) FROM journal", [])?;
        let last = match due.last() {
            Some(last) if due.len() >= limit as usize => last.entry,
            Some(_) | None => whole.unwrap_or(0),
        };
        Ok((due, Some(last).filter(|last| *last > mark.unwrap_or(0))))
    }

    /// What the proof of a credit is to be of now: the payment in the block that the books have it in. `None`
    /// where there is no such credit, or the last thing that happened to it is its reversal, or no chain is
    /// its cause.
    pub fn evidence_subject(&self, credit: &str) -> Result<Option<EvidenceOf>, StoreError> {
        let sql =
            format!("{OF} WHERE j.credit = ?1 AND j.block_hash IS NOT NULL ORDER BY j.sequence DESC LIMIT 1");
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query([credit])?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        // A reversal names no due block.
        if row.get::<_, Option<Vec<u8>>>(11)?.is_none() {
            return Ok(None);
        }
        let mut subject = evidence_of_row(row)?;
        // A reorg that loses neither payment nor credit leaves the journal as it is.
        let moved = self.conn().query_row(
            "SELECT h.height, h.hash FROM credits c JOIN deposits d ON d.output = c.output \
             JOIN headers h ON h.chain = d.chain AND h.height = d.height WHERE c.id = ?1",
            [credit],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, BlockHash>(1)?)),
        );
        if let Some((height, hash)) = moved.optional()? {
            subject.block = TaggedBlock {
                height: uint(height)?,
                hash,
            };
        }
        Ok(Some(subject))
    }
}

impl WriteTx<'_> {
    /// Keeps what could be proved of a block's credits. What is there already stays, but for what could not
    /// be had before.
    pub fn keep_evidence(&mut self, chain: &ChainId, new: &NewEvidence) -> Result<(), StoreError> {
        let now = self.now_ms();
        let block = &new.block;
        if new.shared.is_some() {
            self.conn().execute(
                "INSERT INTO evidence_blocks (chain, hash, height, body) \
                 SELECT id, ?2, ?3, ?4 FROM chains WHERE caip = ?1 \
                 ON CONFLICT (chain, hash) DO UPDATE SET body = excluded.body \
                 WHERE body IS NULL OR length(excluded.body) > length(body)",
                params![chain.as_str(), block.hash, int(block.height)?, new.shared],
            )?;
        }
        for (credit, own) in &new.credits {
            let (body, why) = match own {
                Ok(body) => (Some(body), ""),
                Err(why) => (None, why.as_str()),
            };
            self.conn().execute(
                "INSERT INTO evidence (credit, block, body, why, made_at) VALUES (?1, ?2, ?3, ?4, ?5) \
                 ON CONFLICT (credit, block) DO UPDATE \
                 SET body = excluded.body, why = excluded.why, made_at = excluded.made_at \
                 WHERE evidence.body IS NULL",
                params![credit, block.hash, body, why, now],
            )?;
        }
        Ok(())
    }

    /// Notes up to which entry of the journal a chain's credits were proved.
    pub fn mark_evidence(&mut self, chain: &ChainId, entry: i64) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.conn().execute(
            "INSERT INTO audit_marks (chain, pass, place, round_at) \
             SELECT id, 'evidence', ?2, ?3 FROM chains WHERE caip = ?1 \
             ON CONFLICT (chain, pass) DO UPDATE SET place = excluded.place, round_at = excluded.round_at",
            params![chain.as_str(), entry, now],
        )?;
        Ok(())
    }
}
