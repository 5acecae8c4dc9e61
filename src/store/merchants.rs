//! Merchants: made at their first use, with the rule for their own transfers.

use super::chains::one;
use super::{ReadTx, StoreError, WriteTx};
use rusqlite::params;

impl ReadTx<'_> {
    /// Whether anything was ever entered for this merchant.
    ///
    /// # Errors
    /// Those of the database.
    pub fn has_merchant(&self, slug: &str) -> Result<bool, StoreError> {
        let found: Option<i64> = one(self.conn(), "SELECT id FROM merchants WHERE slug = ?1", [slug])?;
        Ok(found.is_some())
    }
}

/// A merchant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MerchantRow {
    /// Its name.
    pub slug: String,
    /// What its own transfers are.
    pub internal: String,
    /// When it was made, Unix milliseconds.
    pub created_at: i64,
}

impl ReadTx<'_> {
    /// All merchants, by name.
    ///
    /// # Errors
    /// Those of the database.
    pub fn merchants(&self) -> Result<Vec<MerchantRow>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT slug, internal, created_at FROM merchants ORDER BY slug")?;
        let rows = statement.query_map([], |row| {
            Ok(MerchantRow {
                slug: row.get(0)?,
                internal: row.get(1)?,
                created_at: row.get(2)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl WriteTx<'_> {
    /// Makes a merchant; false when there is one of that name.
    pub fn add_merchant(&mut self, slug: &str) -> Result<bool, StoreError> {
        let is_known = self.has_merchant(slug)?;
        self.ensure_merchant(slug)?;
        Ok(!is_known)
    }

    /// The merchant of a slug, made at its first use.
    pub(super) fn ensure_merchant(&mut self, slug: &str) -> Result<i64, StoreError> {
        let now = self.now_ms();
        self.conn()
            .prepare_cached(
                "INSERT INTO merchants (slug, created_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            )?
            .execute(params![slug, now])?;
        let merchant = one(self.conn(), "SELECT id FROM merchants WHERE slug = ?1", [slug])?;
        merchant.ok_or_else(|| StoreError::Corrupt("a merchant vanished".into()))
    }

    /// Sets what own transfers of the named merchants are; all others go back to `ignore`. Outputs that
    /// were met before keep what they are.
    pub fn set_internal_rules(&mut self, rules: &[(String, &'static str)]) -> Result<(), StoreError> {
        let now = self.now_ms();
        let mut named = Vec::new();
        for (slug, internal) in rules {
            named.push(self.conn().query_row(
                "INSERT INTO merchants (slug, internal, created_at) VALUES (?1, ?2, ?3) \
                 ON CONFLICT (slug) DO UPDATE SET internal = excluded.internal RETURNING id",
                params![slug, internal, now],
                |row| row.get::<_, i64>(0),
            )?);
        }
        let mut statement = self
            .conn()
            .prepare("SELECT id FROM merchants WHERE internal <> 'ignore'")?;
        let others = statement
            .query_map([], |row| row.get(0))?
            .collect::<Result<Vec<i64>, _>>()?;
        for other in others.into_iter().filter(|other| !named.contains(other)) {
            self.conn()
                .execute("UPDATE merchants SET internal = 'ignore' WHERE id = ?1", [other])?;
        }
        Ok(())
    }
}
