//! Proofs of credits, as they are stored: which are wanted, what is kept of them, and what each is of.

use super::chains::one;
use super::codec::{int, uint};
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::{Amount, Asset, BlockHash, ChainId, Outpoint, Script, TaggedBlock, Txid};
use rusqlite::{OptionalExtension as _, Row, params};
use std::collections::BTreeSet;

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
    /// How often nodes were asked for it.
    pub tries: u32,
    /// When they are asked again, for it or for a better one; `None` = no more.
    pub next_at: Option<i64>,
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
    /// The height at which it was due; of a payment that has moved, as far above its block as it was then.
    pub due_height: u64,
    /// How often nodes were asked for a proof of it in that block.
    pub tries: u32,
}

/// What is to be proved next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvidenceWanted {
    /// The credits.
    pub of: Vec<EvidenceOf>,
    /// The entry of the journal up to which all is known once these are, where that is a new one.
    pub mark: Option<i64>,
    /// What waited, and is of a block in which the books do not have the credit any more.
    pub gone: Vec<(String, BlockHash)>,
    /// There may be more.
    pub is_cut: bool,
}

/// What is stored of the credits of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvidence {
    /// Their block.
    pub block: TaggedBlock,
    /// What they share.
    pub shared: Option<Vec<u8>>,
    /// Each credit's own.
    pub credits: Vec<OwnEvidence>,
}

/// What a credit has of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnEvidence {
    /// The credit.
    pub credit: String,
    /// Its part, or why there is none.
    pub body: Result<Vec<u8>, String>,
    /// When nodes are to be asked again; `None` = this is the last word.
    pub next_at: Option<i64>,
}

const OF: &str = "SELECT j.id, c.id, n.caip, c.txid, c.vout, a.script, s.contract, c.amount, j.block_height, \
                  j.block_hash, j.due_height, j.due_hash \
                  FROM journal j JOIN credits c ON c.id = j.credit JOIN chains n ON n.id = c.chain \
                  JOIN outputs o ON o.id = c.output JOIN addresses a ON a.id = o.address \
                  JOIN assets s ON s.id = c.asset ";

/// Entries that nodes were not asked about yet. The plus keeps the new ones first: a chain's credits are not
/// read through each time. What a run that was cut off has come to stands behind the mark and is not asked
/// for again.
pub(super) fn due_sql() -> String {
    format!(
        "{OF} WHERE j.id > ?1 AND +n.caip = ?2 AND j.kind <> 'reversal' AND j.block_hash IS NOT NULL \
         AND NOT EXISTS (SELECT 1 FROM evidence e WHERE e.credit = j.credit AND e.block = j.block_hash) \
         ORDER BY j.id LIMIT ?3"
    )
}

/// What is to be asked for again.
pub(super) const AGAIN: &str = "SELECT e.credit, e.block, e.tries FROM evidence e \
    JOIN credits c ON c.id = e.credit JOIN chains n ON n.id = c.chain \
    WHERE e.next_at <= ?1 AND +n.caip = ?2 ORDER BY e.next_at LIMIT ?3";

/// Was a block lost since credits of it were proved? A reorg goes back as far as the window, on EVM chains as
/// far as what is not final; a tag that has gone on since is why the window lies below it.
pub(super) const LOST: &str = "SELECT 1 FROM evidence_blocks b \
    JOIN chains n ON n.id = b.chain \
    WHERE n.caip = ?1 \
    AND b.height >= min(n.cursor_height, coalesce(n.finalized_height, n.cursor_height)) - ?2 \
    AND NOT EXISTS (SELECT 1 FROM headers h WHERE h.chain = b.chain AND h.hash = b.hash) LIMIT 1";

/// Credits that stand in a block for which nodes were not asked: a reorg that loses neither payment nor
/// credit leaves the journal as it is.
pub(super) const MOVED: &str = "SELECT c.id FROM chains n \
    JOIN deposits d ON d.chain = n.id AND d.state = 'credited' \
    AND d.height >= min(n.cursor_height, coalesce(n.finalized_height, n.cursor_height)) - ?2 \
    JOIN headers h ON h.chain = d.chain AND h.height = d.height \
    JOIN credits c ON c.output = d.output \
    WHERE n.caip = ?1 \
    AND NOT EXISTS (SELECT 1 FROM evidence e WHERE e.credit = c.id AND e.block = h.hash) \
    ORDER BY d.height LIMIT ?3";

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
        due_height: uint(row.get(10)?)?,
        tries: 0,
    })
}

impl ReadTx<'_> {
    /// What is stored of a credit; one for each block that it was in.
    pub fn evidence_of(&self, credit: &str) -> Result<Vec<Evidence>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT block, body, why, made_at, tries, next_at FROM evidence WHERE credit = ?1 \
             ORDER BY made_at, block",
        )?;
        let rows = statement.query_map([credit], |row| {
            Ok(Evidence {
                block: row.get(0)?,
                body: row.get(1)?,
                why: row.get(2)?,
                made_at: row.get(3)?,
                tries: row.get(4)?,
                next_at: row.get(5)?,
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

    /// The next credits of a chain that nodes are to be asked for: new ones first, in the order of the
    /// journal; then what they could not give before; then what a reorg has moved, of `window` blocks or of
    /// those that were not final.
    pub fn evidence_wanted(
        &self,
        chain: &ChainId,
        (now_ms, window): (i64, u64),
        limit: u32,
    ) -> Result<EvidenceWanted, StoreError> {
        let count = limit as usize;
        let (of, mark) = self.evidence_due(chain, limit)?;
        let mut wanted = EvidenceWanted {
            of,
            mark,
            ..EvidenceWanted::default()
        };
        if wanted.of.len() < count {
            self.add_again(&mut wanted, (chain, now_ms), limit)?;
        }
        if wanted.of.len() < count {
            self.add_moved(&mut wanted, (chain, window), limit)?;
        }
        wanted.is_cut = wanted.of.len() + wanted.gone.len() >= count;
        Ok(wanted)
    }

    fn evidence_due(
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

    fn add_again(
        &self,
        wanted: &mut EvidenceWanted,
        (chain, now_ms): (&ChainId, i64),
        limit: u32,
    ) -> Result<(), StoreError> {
        let mut statement = self.conn().prepare_cached(AGAIN)?;
        let rows = statement.query_map(params![now_ms, chain.as_str(), limit], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
        for row in rows.collect::<Result<Vec<(String, BlockHash, u32)>, _>>()? {
            let (credit, block, tries) = row;
            match self.evidence_subject(&credit)? {
                Some(of) if of.block.hash == block => wanted.of.push(EvidenceOf { tries, ..of }),
                Some(_) | None => wanted.gone.push((credit, block)),
            }
        }
        Ok(())
    }

    fn add_moved(
        &self,
        wanted: &mut EvidenceWanted,
        (chain, window): (&ChainId, u64),
        limit: u32,
    ) -> Result<(), StoreError> {
        let window = int(window)?;
        if one::<i64>(self.conn(), LOST, params![chain.as_str(), window])?.is_none() {
            return Ok(());
        }
        let known: BTreeSet<(String, BlockHash)> = wanted
            .of
            .iter()
            .map(|of| (of.credit.clone(), of.block.hash))
            .collect();
        let mut statement = self.conn().prepare_cached(MOVED)?;
        let credits = statement.query_map(params![chain.as_str(), window, limit], |row| row.get(0))?;
        for credit in credits.collect::<Result<Vec<String>, _>>()? {
            let of = self.evidence_subject(&credit)?;
            wanted
                .of
                .extend(of.filter(|of| !known.contains(&(credit, of.block.hash))));
        }
        Ok(())
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
            let above = subject.due_height.saturating_sub(subject.block.height);
            let height = uint(height)?;
            subject.block = TaggedBlock { height, hash };
            subject.due_height = height.saturating_add(above);
        }
        Ok(Some(subject))
    }

    /// The hash that a chain of the books has at a height now; `None` where its header is not kept.
    pub fn kept_hash_at(&self, chain: &ChainId, height: u64) -> Result<Option<BlockHash>, StoreError> {
        let sql = "SELECT h.hash FROM headers h JOIN chains n ON n.id = h.chain \
                   WHERE n.caip = ?1 AND h.height = ?2";
        one(self.conn(), sql, params![chain.as_str(), int(height)?])
    }
}

impl WriteTx<'_> {
    /// Keeps what could be proved of a block's credits. What is there already stays, but for what waited.
    pub fn keep_evidence(&mut self, chain: &ChainId, new: &NewEvidence) -> Result<(), StoreError> {
        let now = self.now_ms();
        let block = &new.block;
        self.conn().execute(
            "INSERT INTO evidence_blocks (chain, hash, height, body) \
             SELECT id, ?2, ?3, ?4 FROM chains WHERE caip = ?1 \
             ON CONFLICT (chain, hash) DO UPDATE SET body = excluded.body \
             WHERE body IS NULL OR length(excluded.body) > length(body)",
            params![chain.as_str(), block.hash, int(block.height)?, new.shared],
        )?;
        for own in &new.credits {
            let (body, why) = match &own.body {
                Ok(body) => (Some(body), ""),
                Err(why) => (None, why.as_str()),
            };
            // A better one may come for what is there; that none came takes nothing away.
            self.conn().execute(
                "INSERT INTO evidence (credit, block, body, why, made_at, tries, next_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6) \
                 ON CONFLICT (credit, block) DO UPDATE \
                 SET body = coalesce(excluded.body, evidence.body), \
                     why = CASE WHEN evidence.body IS NULL THEN excluded.why ELSE '' END, \
                     made_at = CASE WHEN excluded.body IS NULL THEN evidence.made_at \
                                    ELSE excluded.made_at END, \
                     tries = evidence.tries + 1, next_at = excluded.next_at \
                 WHERE evidence.body IS NULL OR evidence.next_at IS NOT NULL",
                params![own.credit, block.hash, body, why, now, own.next_at],
            )?;
        }
        Ok(())
    }

    /// Waits no more for what is of a block in which the books do not have the credit now. Should it come
    /// back to that block, it is as new.
    pub fn drop_waiting_evidence(&mut self, gone: &[(String, BlockHash)]) -> Result<(), StoreError> {
        for (credit, block) in gone {
            let of = params![credit, block];
            let delete = "DELETE FROM evidence WHERE credit = ?1 AND block = ?2 AND body IS NULL";
            self.conn().execute(delete, of)?;
            let settle = "UPDATE evidence SET next_at = NULL WHERE credit = ?1 AND block = ?2";
            self.conn().execute(settle, of)?;
        }
        Ok(())
    }

    /// Notes up to which entry of the journal nodes were asked about a chain's credits.
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
