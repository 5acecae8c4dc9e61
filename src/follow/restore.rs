//! After a restored backup: nothing is connected before the addresses of the lost time are watched, and once
//! the tip is reached what may have changed is told anew, a part at a time. Where it is stands in the
//! database.

use super::{Follower, Trouble, branches};
use crate::chain::{ChainSource, NodeTip};
use crate::rules::HeldHeader;
use crate::rules::chain_state::ChainState;

/// So much is told in one transaction: others have their turn in between.
const TOLD_AT_ONCE: u32 = 200;

impl<S: ChainSource> Follower<S> {
    /// Is a restore under way?
    ///
    /// # Errors
    /// Addresses have to be watched first.
    pub(super) async fn is_restoring(&mut self) -> Result<bool, Trouble> {
        let key = self.key;
        let stage = self.store.read(move |tx| tx.restore_stage(key)).await?;
        let Some(stage) = stage else {
            self.restoring.clear();
            return Ok(false);
        };
        if let Some(reason) = stage.waits_for {
            let state = ChainState::Syncing;
            return Err(Trouble::Stuck { state, reason });
        }
        if self.restoring != stage.words {
            let alias = &self.settings.chain.alias;
            tracing::warn!(chain = %alias, "{alias}: {}", stage.words);
            self.restoring = stage.words;
        }
        Ok(true)
    }

    /// Goes on with a restore whose catch-up is over. True when there may be more to do at once.
    pub(super) async fn go_on_restoring(
        &mut self,
        tip: &HeldHeader,
        node: &NodeTip,
    ) -> Result<bool, Trouble> {
        if self.look_at_tip(tip, node).is_none() {
            return Ok(false);
        }
        let (key, window) = (self.key, self.terms.reorg_window);
        let lowest = move |cursor, finalized| branches::lowest(cursor, window, finalized);
        let telling = self
            .store
            .write(move |tx| tx.go_on_restoring(key, lowest, TOLD_AT_ONCE));
        if telling.await? > 0 {
            self.store.wake();
            return Ok(true);
        }
        self.restoring.clear();
        let alias = &self.settings.chain.alias;
        tracing::info!(
            chain = %alias, height = tip.height,
            "{alias}: the restored backup has caught up, and all is told: `creditd restored` has the report"
        );
        Ok(false)
    }
}
