//! What a follower loads into memory: the short hashes of its rules and the outpoints of interest.

use super::chains::ChainKey;
use super::codec::{int, uint};
use super::txs::remember;
use super::{ReadTx, StoreError, staged};
use crate::index;
use crate::rules::block::tx_mark;
use crate::rules::{ListVersion, Outpoint};
use rusqlite::{Rows, params};

impl ReadTx<'_> {
    /// The short hashes of the scripts of rules that are newer than `since`, and the version that they stand
    /// at; `None` when there is none. Costs one small read then.
    pub fn newer_scripts(
        &self,
        chain: ChainKey,
        since: ListVersion,
    ) -> Result<Option<(Vec<u64>, ListVersion)>, StoreError> {
        let version = self.list_version()?;
        if version == since {
            return Ok(None);
        }
        let mut statement = self
            .conn()
            .prepare_cached("SELECT script FROM addresses WHERE chain = ?1 AND version > ?2")?;
        let mut rows = statement.query(params![chain.0, since.0])?;
        let mut shorts = Vec::new();
        while let Some(row) = rows.next()? {
            let script = row
                .get_ref(0)?
                .as_blob()
                .map_err(|error| StoreError::Corrupt(error.to_string()))?;
            shorts.push(index::short(script));
        }
        Ok(Some((shorts, version)))
    }

    /// Every outpoint whose spending concerns us: outputs of ours that no block inside the window has spent
    /// long ago, what stored transactions spend that are unconfirmed or inside the window, and what rescans
    /// have read and not applied yet.
    pub fn outpoints_of_interest(
        &self,
        chain: ChainKey,
        window_from: u64,
    ) -> Result<Vec<Outpoint>, StoreError> {
        let from = int(window_from)?;
        let mut outpoints = Vec::new();
        match self.chain_identity(chain)?.0.is_evm() {
            true => self.marks(chain, from, &mut outpoints)?,
            false => self.unspent_outputs(chain, from, &mut outpoints)?,
        }
        let mut statement = self.conn().prepare_cached(
            "SELECT i.prev_txid, i.prev_vout FROM txs t JOIN inputs i ON i.tx = t.id WHERE t.chain = ?1 \
             AND NOT EXISTS (SELECT 1 FROM inclusions n WHERE n.tx = t.id AND n.height < ?2)",
        )?;
        push_outpoints(statement.query(params![chain.0, from])?, &mut outpoints)?;
        let mut statement = self.conn().prepare_cached(
            "SELECT b.candidates FROM rescan_blocks b JOIN rescans r ON r.id = b.rescan WHERE r.chain = ?1 \
             AND b.candidates <> '[]'",
        )?;
        let mut rows = statement.query([chain.0])?;
        while let Some(row) = rows.next()? {
            for candidate in staged::decode(&row.get::<_, String>(0)?)? {
                let vouts = candidate.outputs.iter().map(|output| output.vout);
                remember(&candidate, vouts, &mut outpoints);
            }
        }
        Ok(outpoints)
    }

    /// EVM: the stored transactions that are unconfirmed or inside the window.
    fn marks(&self, chain: ChainKey, from: i64, outpoints: &mut Vec<Outpoint>) -> Result<(), StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT t.txid FROM txs t WHERE t.chain = ?1 \
             AND NOT EXISTS (SELECT 1 FROM inclusions n WHERE n.tx = t.id AND n.height < ?2)",
        )?;
        let mut rows = statement.query(params![chain.0, from])?;
        while let Some(row) = rows.next()? {
            outpoints.push(tx_mark(row.get(0)?));
        }
        Ok(())
    }

    fn unspent_outputs(
        &self,
        chain: ChainKey,
        from: i64,
        outpoints: &mut Vec<Outpoint>,
    ) -> Result<(), StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT t.txid, o.vout FROM outputs o JOIN txs t ON t.id = o.tx \
             WHERE t.chain = ?1 AND (o.spent_height IS NULL OR o.spent_height >= ?2)",
        )?;
        push_outpoints(statement.query(params![chain.0, from])?, outpoints)
    }
}

/// Outpoints of rows of (txid, vout).
fn push_outpoints(mut rows: Rows<'_>, into: &mut Vec<Outpoint>) -> Result<(), StoreError> {
    while let Some(row) = rows.next()? {
        into.push(Outpoint {
            txid: row.get(0)?,
            vout: uint(row.get(1)?)?,
        });
    }
    Ok(())
}
