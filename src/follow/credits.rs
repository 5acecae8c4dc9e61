//! Crediting what no new block brings up, and asking other nodes before.

use super::{Follower, Trouble};
use crate::chain::{ChainSource, NodeTip};
use crate::rules::HeldHeader;

impl<S: ChainSource> Follower<S> {
    /// Nothing above it is credited. Where several nodes have to agree, they are asked at the tip: nothing is
    /// credited on the way there.
    pub(super) fn ceiling(&self, node: &NodeTip) -> Option<u64> {
        match self.source.needs_agreement() {
            true => Some(0),
            false => node.credit_ceiling,
        }
    }

    /// Credits what became due without a new tip: a released hold, a ceiling that was lifted, a block that
    /// became final, nodes that agree now.
    pub(super) async fn credit_waiting(&mut self, tip: &HeldHeader, node: &NodeTip) -> Result<(), Trouble> {
        if node.tags != self.tags {
            if self.finality.is_news(&node.tags) {
                // With nothing to credit: the tags are to be accepted first.
                self.credit_now(tip, node, self.ceiling(node)).await?;
            }
            self.tags = node.tags;
        }
        if self.source.needs_agreement() {
            return self.credit_agreed(tip, node).await;
        }
        let (key, height, ceiling) = (self.key, tip.height, node.credit_ceiling);
        let is_due = self
            .store
            .read(move |tx| tx.has_due(key, height, ceiling))
            .await?;
        if is_due {
            self.credit_now(tip, node, ceiling).await?;
        }
        Ok(())
    }

    /// The other nodes are asked for the block that made the youngest of what is due so. It proves as much as
    /// our tip does, and soon they have it: our tip is always news to some. A block that they did not have is
    /// asked for again, or where something is due at each block none would ever be agreed to.
    async fn credit_agreed(&mut self, tip: &HeldHeader, node: &NodeTip) -> Result<(), Trouble> {
        let (key, height, ceiling) = (self.key, tip.height, node.credit_ceiling);
        let asked = self.agreeing.take();
        let point = self
            .store
            .read(move |tx| tx.agreement_point(key, height, ceiling, asked.as_ref()));
        let Some(point) = point.await? else {
            return Ok(());
        };
        if !self.source.is_agreed(&point).await {
            self.agreeing = Some(point);
            return Ok(());
        }
        let ceiling = self
            .store
            .read(move |tx| tx.agreed_ceiling(key, height, ceiling, &point));
        let ceiling = ceiling.await?;
        self.credit_now(tip, node, ceiling).await
    }
}
