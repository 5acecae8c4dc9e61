//! What the audit writes: its runs, and what it found. Losing any of it costs time, and no money.

use super::chains::{ChainKey, one};
use super::codec::{int, uint};
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::audit::{AuditPass, FindingKind};
use rusqlite::{OptionalExtension as _, params};
use sha2::{Digest as _, Sha256};

/// So many runs are remembered.
const RUNS_KEPT: i64 = 400;

/// What is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingRow {
    /// The chain; `None` = of the books as a whole.
    pub chain: Option<ChainKey>,
    /// Who found it.
    pub pass: AuditPass,
    /// What kind.
    pub kind: FindingKind,
    /// What it is about.
    pub subject: String,
    /// The block that shows it, where it was one.
    pub height: Option<u64>,
    /// In words.
    pub what: String,
    /// When it was first found.
    pub found_at: i64,
}

/// The beginning of the ledger, as it was at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerMark {
    /// So many credits.
    pub credits: u64,
    /// So many journal entries.
    pub journal: u64,
    /// The hash of all of them, in the order in which they were written.
    pub sha256: [u8; 32],
}

/// All columns, in the order of the rows.
const LEDGER: [(&str, usize); 2] = [
    (
        "SELECT id, chain, txid, vout, output, merchant, asset, amount, created_at, inbox, reference \
         FROM credits ORDER BY rowid LIMIT ?1",
        11,
    ),
    (
        "SELECT id, credit, sequence, kind, at, block_height, block_hash, confirmations, tag, due_height, \
         due_hash, reason FROM journal ORDER BY id LIMIT ?1",
        12,
    ),
];

/// What stands is few: the plus sorts it, instead of walking through all that was ever found.
pub(super) const FINDINGS_OF_PASS: &str = "chain IS ?1 AND pass = ?2 ORDER BY +id";
pub(super) const FINDINGS_OF_CHAIN: &str = "chain IS ?1 ORDER BY +id LIMIT ?2";
pub(super) const FINDINGS_COUNT: &str =
    "SELECT count(*) FROM audit_findings WHERE gone_at IS NULL AND chain IS ?1";

pub(super) fn findings_sql(which: &str) -> String {
    format!(
        "SELECT chain, kind, subject, height, what, found_at, pass FROM audit_findings \
         WHERE gone_at IS NULL AND {which}"
    )
}

impl ReadTx<'_> {
    /// What a pass found of a chain, or of the books, and what still stands, oldest first.
    pub fn findings(&self, chain: Option<ChainKey>, pass: AuditPass) -> Result<Vec<FindingRow>, StoreError> {
        self.findings_where(FINDINGS_OF_PASS, params![chain.map(|chain| chain.0), pass.word()])
    }

    /// The oldest of what all passes found of a chain, or of the books, and what still stands.
    pub fn oldest_findings(
        &self,
        chain: Option<ChainKey>,
        limit: usize,
    ) -> Result<Vec<FindingRow>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.findings_where(FINDINGS_OF_CHAIN, params![chain.map(|chain| chain.0), limit])
    }

    /// How much of it there is.
    pub fn findings_count(&self, chain: Option<ChainKey>) -> Result<u64, StoreError> {
        let count = one::<i64>(self.conn(), FINDINGS_COUNT, [chain.map(|chain| chain.0)])?;
        uint(count.unwrap_or_default())
    }

    fn findings_where(
        &self,
        which: &str,
        values: impl rusqlite::Params,
    ) -> Result<Vec<FindingRow>, StoreError> {
        let mut statement = self.conn().prepare_cached(&findings_sql(which))?;
        let mut rows = statement.query(values)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let kind: String = row.get(1)?;
            let height: Option<i64> = row.get(3)?;
            let pass: String = row.get(6)?;
            found.push(FindingRow {
                chain: row.get::<_, Option<i64>>(0)?.map(ChainKey),
                pass: AuditPass::from_word(&pass)
                    .ok_or_else(|| StoreError::Corrupt(format!("a finding of the pass {pass}")))?,
                kind: FindingKind::from_word(&kind)
                    .ok_or_else(|| StoreError::Corrupt(format!("a finding of the kind {kind}")))?,
                subject: row.get(2)?,
                height: height.map(uint).transpose()?,
                what: row.get(4)?,
                found_at: row.get(5)?,
            });
        }
        Ok(found)
    }

    /// The ledger as it was hashed last, and when that was.
    pub fn kept_ledger(&self) -> Result<Option<(LedgerMark, i64)>, StoreError> {
        let row = self.conn().query_row(
            "SELECT credits, journal, sha256, at FROM audit_ledger",
            [],
            |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, i64>(1)?,
                    row.get(2)?,
                    row.get(3)?,
                ))
            },
        );
        let Some((credits, journal, sha256, at)) = row.optional()? else {
            return Ok(None);
        };
        let mark = LedgerMark {
            credits: uint(credits)?,
            journal: uint(journal)?,
            sha256,
        };
        Ok(Some((mark, at)))
    }

    /// The ledger from its beginning on: as much of it as `like` has, or all of it.
    pub fn ledger_mark(&self, like: Option<&LedgerMark>) -> Result<LedgerMark, StoreError> {
        let limits = match like {
            Some(like) => [int(like.credits)?, int(like.journal)?],
            None => [i64::MAX; 2],
        };
        let mut hash = Sha256::new();
        let mut counts = [0_u64; 2];
        for (((sql, columns), limit), count) in LEDGER.iter().zip(limits).zip(&mut counts) {
            let mut statement = self.conn().prepare_cached(sql)?;
            let mut rows = statement.query([limit])?;
            while let Some(row) = rows.next()? {
                *count += 1;
                for column in 0..*columns {
                    add(&mut hash, row.get_ref(column)?);
                }
            }
        }
        Ok(LedgerMark {
            credits: counts[0],
            journal: counts[1],
            sha256: hash.finalize().into(),
        })
    }
}

/// Kind and length first: no two rows hash alike.
fn add(hash: &mut Sha256, value: rusqlite::types::ValueRef<'_>) {
    use rusqlite::types::ValueRef;
    let mut put = |kind: u8, bytes: &[u8]| {
        hash.update([kind]);
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    match value {
        ValueRef::Null => put(0, &[]),
        ValueRef::Integer(number) => put(1, &number.to_be_bytes()),
        ValueRef::Real(number) => put(2, &number.to_be_bytes()),
        ValueRef::Text(text) => put(3, text),
        ValueRef::Blob(bytes) => put(4, bytes),
    }
}

impl WriteTx<'_> {
    /// Notes that a run begins; its number.
    pub fn begin_audit(&mut self, actor: &str) -> Result<i64, StoreError> {
        self.conn().execute(
            "INSERT INTO audit_runs (actor, started_at) VALUES (?1, ?2)",
            params![actor, self.now_ms],
        )?;
        Ok(self.conn().last_insert_rowid())
    }

    /// Keeps the ledger as it is now, for the next run.
    pub fn keep_ledger(&mut self, mark: &LedgerMark) -> Result<(), StoreError> {
        self.conn().execute(
            "INSERT INTO audit_ledger (id, credits, journal, sha256, at) VALUES (1, ?1, ?2, ?3, ?4) \
             ON CONFLICT (id) DO UPDATE SET credits = excluded.credits, journal = excluded.journal, \
             sha256 = excluded.sha256, at = excluded.at",
            params![int(mark.credits)?, int(mark.journal)?, mark.sha256, self.now_ms],
        )?;
        Ok(())
    }

    /// Notes that it came to its end, and forgets the oldest ones.
    pub fn end_audit(&mut self, run: i64, report: &str) -> Result<(), StoreError> {
        self.conn().execute(
            "UPDATE audit_runs SET ended_at = ?2, report = ?3 WHERE id = ?1",
            params![run, self.now_ms, report],
        )?;
        self.conn().execute(
            "DELETE FROM audit_runs WHERE id <= ?1 - ?2",
            params![run, RUNS_KEPT],
        )?;
        Ok(())
    }

    /// Notes what does not agree; true where that is news.
    pub fn note_finding(&mut self, found: &FindingRow) -> Result<bool, StoreError> {
        let chain = found.chain.map(|chain| chain.0);
        let stood = one::<i64>(
            self.conn(),
            "SELECT 1 FROM audit_findings WHERE pass = ?4 AND kind = ?1 \
             AND coalesce(chain, 0) = coalesce(?2, 0) AND subject = ?3 AND gone_at IS NULL",
            params![found.kind.word(), chain, found.subject, found.pass.word()],
        )?;
        self.conn().execute(
            "INSERT INTO audit_findings (chain, kind, subject, height, what, found_at, seen_at, pass) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7) \
             ON CONFLICT (pass, kind, coalesce(chain, 0), subject) DO UPDATE SET what = excluded.what, \
             height = excluded.height, seen_at = excluded.seen_at, \
             found_at = iif(gone_at IS NULL, found_at, excluded.found_at), gone_at = NULL",
            params![
                chain,
                found.kind.word(),
                found.subject,
                found.height.map(int).transpose()?,
                found.what,
                self.now_ms,
                found.pass.word()
            ],
        )?;
        Ok(stood.is_none())
    }

    /// What was asked again by the pass that found it, and agrees now.
    pub fn clear_finding(&mut self, known: &FindingRow) -> Result<(), StoreError> {
        self.conn()
            .prepare_cached(
                "UPDATE audit_findings SET gone_at = ?5 WHERE pass = ?1 AND kind = ?2 \
                 AND coalesce(chain, 0) = coalesce(?3, 0) AND subject = ?4 AND gone_at IS NULL",
            )?
            .execute(params![
                known.pass.word(),
                known.kind.word(),
                known.chain.map(|chain| chain.0),
                known.subject,
                self.now_ms
            ])?;
        Ok(())
    }
}
