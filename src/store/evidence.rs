//! Proofs of credits, as they are stored.

use super::{ReadTx, StoreError};
use crate::rules::BlockHash;

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
}
