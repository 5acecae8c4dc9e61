//! Finality tags of EVM chains: which of our blocks the nodes called safe and final. A tag counts only if its
//! hash is our header at that height, and a lower one than the last says nothing: behind one address there
//! may be a node that lags, or one on another branch.

use super::advance::Terms;
use super::chains::ChainKey;
use super::codec::int;
use super::{StoreError, WriteTx};
use crate::rules::{HeldHeader, TaggedBlock, Tags};
use rusqlite::params;

impl WriteTx<'_> {
    /// Takes the node's tags over as far as they name blocks of ours above the ones accepted before.
    pub(super) fn accept_tags(
        &mut self,
        chain: ChainKey,
        tip: &HeldHeader,
        tags: &Tags,
        terms: &Terms,
    ) -> Result<(), StoreError> {
        if tags.safe.is_none() && tags.finalized.is_none() {
            return Ok(());
        }
        let row = self.chain_by_key(chain)?;
        let below_window = tip.height.checked_sub(terms.reorg_window + 1);
        if let Some(safe) = self.acceptable(chain, tags.safe, row.safe)? {
            self.conn()
                .prepare_cached("UPDATE chains SET safe_height = ?2 WHERE id = ?1")?
                .execute(params![chain.0, int(safe)?])?;
        }
        let Some(last) = self.acceptable(chain, tags.finalized, row.finalized)? else {
            return Ok(());
        };
        self.conn()
            .prepare_cached("UPDATE chains SET finalized_height = ?2 WHERE id = ?1")?
            .execute(params![chain.0, int(last)?])?;
        // What was kept only because it was not final.
        let before = row.finalized.unwrap_or_default();
        match below_window {
            Some(below_window) if before <= below_window => {
                self.forget_headers(chain, before, below_window.min(last.saturating_sub(1)))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn acceptable(
        &self,
        chain: ChainKey,
        tagged: Option<TaggedBlock>,
        accepted: Option<u64>,
    ) -> Result<Option<u64>, StoreError> {
        let Some(tagged) = tagged.filter(|tagged| accepted.is_none_or(|last| tagged.height > last)) else {
            return Ok(None);
        };
        let ours = self.hash_at(chain, tagged.height)?;
        Ok((ours == Some(tagged.hash)).then_some(tagged.height))
    }

    /// What was tagged and is not on our chain any more is not tagged any more.
    pub(super) fn lower_tags(&mut self, chain: ChainKey, tip: u64) -> Result<(), StoreError> {
        self.conn()
            .prepare_cached(
                "UPDATE chains SET safe_height = min(safe_height, ?2), \
                 finalized_height = min(finalized_height, ?2) \
                 WHERE id = ?1 AND (safe_height > ?2 OR finalized_height > ?2)",
            )?
            .execute(params![chain.0, int(tip)?])?;
        Ok(())
    }
}
