//! Waiting for the next block without asking all the time, and without taking more than one of the node's
//! threads.

use super::BitcoinSource;
use super::calls::Hash;
use crate::chain::rpc::Limits;
use crate::egress::Dial;
use crate::rules::BlockHash;
use serde::Deserialize;
use serde_json::json;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::time::Instant;

/// The longest that a thread of the node is held.
const SPAN_MAX: Duration = Duration::from_secs(10);

/// What one wait must know of those before it.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Until then a thread of the node still waits for us. A connection that we drop does not free it.
    busy_until: Option<Instant>,
    /// The tip that woke us last: the same one does not wake us again, or a follower that cannot go there
    /// would spin.
    woke_for: Option<BlockHash>,
}

#[derive(Deserialize)]
struct NewBlock {
    hash: Hash,
}

impl<D: Dial> BitcoinSource<D> {
    pub(super) async fn wait_for_tip(&self, tip: BlockHash, span: Duration) {
        let until = self.clock.instant() + span;
        // A block that came since the last look: `waitfornewblock` would only see the one after it.
        let best = self
            .rpc
            .call::<Hash>("getbestblockhash", json!([]), self.small_limits())
            .await;
        if best.is_ok_and(|Hash(best)| self.is_news(best, tip)) {
            return;
        }
        if let Some(best) = self.hold_a_thread(until).await
            && self.is_news(best, tip)
        {
            return;
        }
        self.clock
            .sleep(until.saturating_duration_since(self.clock.instant()))
            .await;
    }

    async fn hold_a_thread(&self, until: Instant) -> Option<BlockHash> {
        let now = self.clock.instant();
        let span = until.saturating_duration_since(now).min(SPAN_MAX);
        let span_ms = u64::try_from(span.as_millis()).unwrap_or(0);
        if span_ms == 0 {
            // For the node that would mean "for ever".
            return None;
        }
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.busy_until.is_some_and(|busy_until| now < busy_until) {
                return None;
            }
            waiting.busy_until = Some(now + span);
        }
        let limits = Limits {
            deadline: span + self.config.call_deadline,
            ..self.small_limits()
        };
        let answer = self
            .rpc
            .call::<NewBlock>("waitfornewblock", json!([span_ms]), limits)
            .await;
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .busy_until = None;
        answer.ok().map(|block| block.hash.0)
    }

    fn is_news(&self, best: BlockHash, tip: BlockHash) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = best != tip && waiting.woke_for != Some(best);
        waiting.woke_for = (best != tip).then_some(best);
        is_news
    }
}
