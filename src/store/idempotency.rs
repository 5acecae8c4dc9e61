//! Answers kept under idempotency keys. The key's row is written in the transaction of the effect that it
//! answers for, so that nothing is ever claimed and left.

use super::chains::one;
use super::{ReadTx, StoreError, WriteTx};
use rusqlite::{OptionalExtension, params};

/// An answer counts until its time is over and the invoice that it made, if it did, has ended: a payment or a
/// node that is late keeps one open beyond what was agreed. `?1` is now.
pub(super) const IS_OVER: &str = "keep_until <= ?1 \
     AND NOT EXISTS (SELECT 1 FROM invoices i WHERE i.id = invoice AND i.life = 'open')";

pub(super) fn over_sql() -> String {
    format!("SELECT owner, method, path, key FROM idempotency WHERE {IS_OVER} LIMIT ?2")
}

/// One by one: of a list of keys SQLite looks up the owners alone, and walks through all that each has.
pub(super) const FORGET: &str =
    "DELETE FROM idempotency WHERE owner = ?1 AND method = ?2 AND path = ?3 AND key = ?4";

/// Where a key counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyScope {
    /// The merchant's number; 0 = operators.
    pub owner: i64,
    /// `POST`, or `CLI` for an operator's command.
    pub method: String,
    /// The concrete path, ids included, or the command's words.
    pub path: String,
    /// The key.
    pub key: String,
}

/// The longest key.
const KEY_BYTES_MAX: usize = 256;

impl KeyScope {
    /// What a key may be, in words.
    pub const KEY_FORM: &'static str = "1 to 256 visible ASCII characters, in double quotes or bare";

    /// The key that is meant by a text: a structured-field string or bare, which are the same.
    pub fn read_key(text: &str) -> Option<String> {
        let text = text.trim();
        let key = match text.strip_prefix('"') {
            Some(rest) => unquoted(rest)?,
            None => text.to_owned(),
        };
        let is_key =
            (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
        is_key.then_some(key)
    }
}

/// The rest of a structured-field string (RFC 8941) after its first quote.
fn unquoted(rest: &str) -> Option<String> {
    let mut key = String::new();
    let mut letters = rest.chars();
    loop {
        match letters.next()? {
            '"' => break,
            '\\' => match letters.next()? {
                letter @ ('"' | '\\') => key.push(letter),
                _ => return None,
            },
            letter => key.push(letter),
        }
    }
    letters.as_str().is_empty().then_some(key)
}

/// An answer that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    /// The status; of a command its exit code.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// How long an answer is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// At least until then.
    pub until: i64,
    /// And while this invoice is open.
    pub invoice: Option<String>,
}

impl Keep {
    /// Until then, of no invoice.
    pub fn until(until: i64) -> Keep {
        Keep { until, invoice: None }
    }
}

/// What is kept under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing.
    Nothing,
    /// The answer to this request.
    Answer(KeptAnswer),
    /// The answer to another request.
    OtherRequest,
}

impl ReadTx<'_> {
    /// What is kept under a key at a moment, for a request of this fingerprint.
    ///
    /// # Errors
    /// Those of the database.
    pub fn kept_answer(
        &self,
        scope: &KeyScope,
        fingerprint: &[u8; 32],
        now_ms: i64,
    ) -> Result<Kept, StoreError> {
        let found: Option<([u8; 32], u16, String)> = self
            .conn()
            .prepare_cached(&format!(
                "SELECT fingerprint, status, body FROM idempotency \
                 WHERE owner = ?2 AND method = ?3 AND path = ?4 AND key = ?5 AND NOT ({IS_OVER})",
            ))?
            .query_row(
                params![now_ms, scope.owner, scope.method, scope.path, scope.key],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .optional()?;
        Ok(match found {
            None => Kept::Nothing,
            Some((known, status, body)) if known == *fingerprint => Kept::Answer(KeptAnswer { status, body }),
            Some(_) => Kept::OtherRequest,
        })
    }

    /// The database's own number of a merchant.
    ///
    /// # Errors
    /// Those of the database.
    pub fn merchant_number(&self, slug: &str) -> Result<Option<i64>, StoreError> {
        one(self.conn(), "SELECT id FROM merchants WHERE slug = ?1", [slug])
    }
}

impl WriteTx<'_> {
    /// Keeps an answer, in the transaction of what it answers for.
    ///
    /// # Errors
    /// `Constraint` where one is kept already: [`ReadTx::kept_answer`] comes first, in the same transaction.
    pub fn keep_answer(
        &mut self,
        scope: &KeyScope,
        fingerprint: &[u8; 32],
        answer: &KeptAnswer,
        keep: &Keep,
    ) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.conn()
            .prepare_cached(&format!(
                "DELETE FROM idempotency \
                 WHERE owner = ?2 AND method = ?3 AND path = ?4 AND key = ?5 AND {IS_OVER}",
            ))?
            .execute(params![now, scope.owner, scope.method, scope.path, scope.key])?;
        self.conn()
            .prepare_cached(
                "INSERT INTO idempotency (owner, method, path, key, fingerprint, status, body, created_at, \
                 keep_until, invoice) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, \
                 (SELECT id FROM invoices WHERE inv_id = ?10))",
            )?
            .execute(params![
                scope.owner,
                scope.method,
                scope.path,
                scope.key,
                fingerprint,
                answer.status,
                answer.body,
                now,
                keep.until,
                keep.invoice
            ])?;
        Ok(())
    }

    /// Forgets answers whose time is over, `limit` of them at most; how many.
    ///
    /// # Errors
    /// Those of the database.
    pub fn forget_answers(&mut self, limit: u32) -> Result<usize, StoreError> {
        let now = self.now_ms();
        let mut over: Vec<KeyScope> = Vec::new();
        {
            let mut statement = self.conn().prepare_cached(&over_sql())?;
            let mut rows = statement.query(params![now, limit])?;
            while let Some(row) = rows.next()? {
                over.push(KeyScope {
                    owner: row.get(0)?,
                    method: row.get(1)?,
                    path: row.get(2)?,
                    key: row.get(3)?,
                });
            }
        }
        for scope in &over {
            self.conn().prepare_cached(FORGET)?.execute(params![
                scope.owner,
                scope.method,
                scope.path,
                scope.key
            ])?;
        }
        Ok(over.len())
    }
}
