//! What was done about restored backups.

use super::super::codec::uint;
use super::super::restore::chain_rows;
use super::super::{ReadTx, RestoredChain, RestoredRange, StoreError};
use rusqlite::params;

/// A restored backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// The generation that it began.
    pub generation: i64,
    /// `daemon`, or `operator` where it was declared.
    pub actor: String,
    /// How it was noticed.
    pub reason: String,
    /// When; `None` = just now, by a daemon that is starting.
    pub at: Option<i64>,
    /// What was done on each chain.
    pub chains: Vec<(RestoredChain, ToldAnew)>,
    /// What may have been handed out since the backup.
    pub ranges: Vec<RestoredRange>,
}

/// How much is told anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToldAnew {
    /// Credits that were told.
    pub credits: u64,
    /// Invoices that were told.
    pub invoices: u64,
    /// What is still to be told.
    pub waiting: u64,
}

impl ReadTx<'_> {
    /// Every restore that this database knows of, newest first.
    ///
    /// # Errors
    /// Those of the database.
    pub fn restores(&self) -> Result<Vec<RestoreReport>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT generation, actor, reason, at FROM restores ORDER BY generation DESC")?;
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let generation: i64 = row.get(0)?;
            let chains = chain_rows(self.conn(), "generation = ?1 ORDER BY caip", [generation])?;
            let chains = chains.into_iter().map(|chain| {
                let told = self.told_anew(&chain)?;
                Ok((chain, told))
            });
            found.push(RestoreReport {
                generation,
                actor: row.get(1)?,
                reason: row.get(2)?,
                at: row.get(3)?,
                chains: chains.collect::<Result<_, StoreError>>()?,
                ranges: self.restored_ranges("r.generation = ?1 ORDER BY r.scope, r.pin", [generation])?,
            });
        }
        Ok(found)
    }

    fn told_anew(&self, chain: &RestoredChain) -> Result<ToldAnew, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT count(iif(r.kind = 'credit', r.event, NULL)), \
             count(iif(r.kind = 'invoice', r.event, NULL)), count(*) - count(r.event) \
             FROM restated r JOIN chains c ON c.id = r.chain WHERE r.generation = ?1 AND c.caip = ?2",
        )?;
        let (credits, invoices, waiting) = statement
            .query_row(params![chain.generation, chain.caip], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        Ok(ToldAnew {
            credits: uint(credits)?,
            invoices: uint(invoices)?,
            waiting: uint(waiting)?,
        })
    }
}
