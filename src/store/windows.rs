//! Which headers are held: those of the reorg window, and of what lies below it a few for ever.

use super::chains::{ChainKey, ChainRow, one};
use super::codec::{int, uint};
use super::{StoreError, WriteTx};
use crate::rules::HeldHeader;
use crate::rules::fork::REORG_WINDOW_MAX;
use rusqlite::params;

impl WriteTx<'_> {
    /// Forgets the headers of a stretch below the window, but for those that must be kept for ever: every
    /// 144th, the one that the chain started on (there is always one to re-anchor to), those of blocks with
    /// an output of ours, and those at a due height (a late credit names them).
    pub(super) fn forget_headers(&mut self, chain: ChainKey, from: u64, to: u64) -> Result<(), StoreError> {
        self.recall.forget_headers();
        self.conn()
            .prepare_cached(
                "DELETE FROM headers WHERE chain = ?1 AND height BETWEEN ?2 AND ?3 AND height % 144 <> 0 \
                 AND NOT EXISTS (SELECT 1 FROM inclusions i \
                                 WHERE i.chain = ?1 AND i.height = headers.height) \
                 AND NOT EXISTS (SELECT 1 FROM deposits d \
                                 WHERE d.chain = ?1 AND d.due_height = headers.height) \
                 AND NOT EXISTS (SELECT 1 FROM chains c \
                                 WHERE c.id = ?1 AND c.start_height = headers.height + 1)",
            )?
            .execute(params![chain.0, int(from)?, int(to)?])?;
        Ok(())
    }

    /// Forgets what an older, larger window holds below this one. Each connect forgets one height, so nothing
    /// lies deeper than the largest window that there can be. What is not final on an EVM chain stays.
    pub fn forget_below_window(&mut self, chain: ChainKey, window: u64) -> Result<(), StoreError> {
        let row = self.chain_by_key(chain)?;
        self.note_window(&row, window)?;
        let below = row
            .cursor
            .and_then(|tip| Some((tip, tip.height.checked_sub(window + 1)?)));
        let Some((tip, below)) = below else {
            return Ok(());
        };
        let below = row
            .finalized
            .map_or(below, |last| below.min(last.saturating_sub(1)));
        self.forget_headers(chain, tip.height.saturating_sub(REORG_WINDOW_MAX), below)
    }

    /// A better branch may have fewer blocks. What was forgotten below the window of the higher tip is not
    /// missing from that of the lower one.
    pub(super) fn note_lower_tip(
        &mut self,
        chain: ChainKey,
        from: &HeldHeader,
        tip: &HeldHeader,
        window: u64,
    ) -> Result<(), StoreError> {
        if tip.height < from.height {
            let changed = self
                .conn()
                .prepare_cached("UPDATE chains SET headers_from = max(headers_from, ?2) WHERE id = ?1")?
                .execute(params![chain.0, int(from.height.saturating_sub(window))?])?;
            if changed != 1 {
                return Err(StoreError::Corrupt(format!("chain {} is gone", chain.0)));
            }
        }
        Ok(())
    }

    /// What a smaller window forgot is not missing from a larger one.
    fn note_window(&mut self, row: &ChainRow, window: u64) -> Result<(), StoreError> {
        let sql = "SELECT reorg_window FROM chains WHERE id = ?1";
        let before = one::<Option<i64>>(self.conn(), sql, [row.key.0])?.flatten();
        let before = before.map(uint).transpose()?;
        if before == Some(window) {
            return Ok(());
        }
        let held_from = match (before, &row.cursor) {
            (Some(before), Some(tip)) if before < window => tip.height.saturating_sub(before),
            _ => 0,
        };
        let changed = self.conn().execute(
            "UPDATE chains SET reorg_window = ?2, headers_from = max(headers_from, ?3) \
             WHERE id = ?1 AND reorg_window IS ?4",
            params![
                row.key.0,
                int(window)?,
                int(held_from)?,
                before.map(int).transpose()?
            ],
        )?;
        match changed {
            1 => Ok(()),
            _ => Err(StoreError::Corrupt(format!(
                "chain {} and its window are gone",
                row.key.0
            ))),
        }
    }
}
