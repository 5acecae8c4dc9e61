//! What a follower loads into memory: the short hashes of its rules and the outpoints of interest.

use super::chains::ChainKey;
use super::codec::{int, uint};
use super::{ReadTx, StoreError};
use crate::index::{self, Index};
use crate::rules::Outpoint;
use rusqlite::params;

impl ReadTx<'_> {
    /// Brings an index up to the current rules of its chain; true when anything was added. Costs one small
    /// read when nothing changed.
    pub fn refresh_scripts(&self, chain: ChainKey, index: &mut Index) -> Result<bool, StoreError> {
        let version = self.list_version()?;
        if index.version() == version && version.0 != 0 {
            return Ok(false);
        }
        let since = if index.script_count() == 0 {
            0
        } else {
            index.version().0
        };
        let count: i64 = self
            .conn()
            .prepare_cached("SELECT count(*) FROM addresses WHERE chain = ?1 AND version > ?2")?
            .query_row(params![chain.0, since], |row| row.get(0))?;
        index.reserve_scripts(usize::try_from(count).unwrap_or_default());
        let mut statement = self
            .conn()
            .prepare_cached("SELECT script FROM addresses WHERE chain = ?1 AND version > ?2")?;
        let mut rows = statement.query(params![chain.0, since])?;
        let mut is_changed = false;
        while let Some(row) = rows.next()? {
            let script = row
                .get_ref(0)?
                .as_blob()
                .map_err(|error| StoreError::Corrupt(error.to_string()))?;
            index.add_scripts([index::short(script)], version);
            is_changed = true;
        }
        index.add_scripts([], version);
        Ok(is_changed)
    }

    /// Every outpoint whose spending concerns us: outputs of ours that no block inside the window has spent
    /// long ago, and what stored transactions spend that are unconfirmed or inside the window.
    pub fn outpoints_of_interest(
        &self,
        chain: ChainKey,
        window_from: u64,
    ) -> Result<Vec<Outpoint>, StoreError> {
        let from = int(window_from)?;
        let mut outpoints = Vec::new();
        let mut statement = self.conn().prepare_cached(
            "SELECT t.txid, o.vout FROM outputs o JOIN txs t ON t.id = o.tx \
             WHERE t.chain = ?1 AND (o.spent_height IS NULL OR o.spent_height >= ?2)",
        )?;
        let mut rows = statement.query(params![chain.0, from])?;
        while let Some(row) = rows.next()? {
            outpoints.push(Outpoint {
                txid: row.get(0)?,
                vout: uint(row.get(1)?)?,
            });
        }
        let mut statement = self.conn().prepare_cached(
            "SELECT i.prev_txid, i.prev_vout FROM txs t JOIN inputs i ON i.tx = t.id WHERE t.chain = ?1 \
             AND NOT EXISTS (SELECT 1 FROM inclusions n WHERE n.tx = t.id AND n.height < ?2)",
        )?;
        let mut rows = statement.query(params![chain.0, from])?;
        while let Some(row) = rows.next()? {
            outpoints.push(Outpoint {
                txid: row.get(0)?,
                vout: uint(row.get(1)?)?,
            });
        }
        Ok(outpoints)
    }
}
