//! The first start of a chain: where its cursor is set, and which headers are held below it.

use super::{Follower, Start, Trouble};
use crate::chain::{ChainSource, Help, NodeTip, SourceError};
use crate::rules::chain_state::ChainState;
use crate::rules::{ChainId, HeldHeader, TaggedBlock};
use crate::store::ChainRow;

/// At the start the last final block is looked for at most so far below: some hours of the fastest chains.
const UNFINAL_MAX: u64 = 10_000;

impl<S: ChainSource> Follower<S> {
    /// The chain with its cursor; sets the cursor where there is none yet, and says `None` then.
    pub(super) async fn anchored(&mut self, node: &NodeTip) -> Result<Option<ChainRow>, Trouble> {
        let key = self.key;
        let row = self.store.read(move |tx| tx.chain_by_key(key)).await?;
        if row.cursor.is_some() {
            return Ok(Some(row));
        }
        let height = match self.settings.start {
            Start::Tip => node.height,
            Start::Height(height) => height.saturating_sub(1),
        };
        let headers = self.headers_up_to(height, node.tags.finalized).await?;
        let Some((at, below)) = headers.split_last() else {
            return Err(Trouble::Stuck {
                state: ChainState::Syncing,
                reason: format!(
                    "the start is at height {}, the node at {}",
                    height + 1,
                    node.height
                ),
            });
        };
        let (at, below) = (*at, below.to_vec());
        let hash = self.settings.chain.id.print(at.header.hash);
        let anchoring = self.store.write(move |tx| {
            tx.hold_below(key, &below)?;
            tx.anchor(key, &at)
        });
        anchoring.await?;
        let alias = &self.settings.chain.alias;
        tracing::info!(chain = %alias, "{alias} starts after block {hash} at height {height}");
        Ok(None)
    }

    /// The node's headers of a reorg window up to `height`, in order; empty when the node is not there yet.
    /// Without those below the start, the first reorg after it would be deeper than what we hold, and a final
    /// block below them could not be accepted.
    async fn headers_up_to(
        &self,
        height: u64,
        finalized: Option<TaggedBlock>,
    ) -> Result<Vec<HeldHeader>, Trouble> {
        let last = finalized.map(|last| last.height.max(height.saturating_sub(UNFINAL_MAX)));
        let lowest = self.window_from(height, last);
        let wanted = usize::try_from(height - lowest + 1).unwrap_or(usize::MAX);
        let told = self.source.headers(lowest, wanted).await?;
        if told.len() < wanted {
            return Ok(Vec::new());
        }
        let mut headers: Vec<HeldHeader> = Vec::with_capacity(wanted);
        for (height, held) in (lowest..).zip(told) {
            if headers
                .last()
                .is_some_and(|below| below.header.hash != held.header.parent)
            {
                // The node went to another branch between two answers.
                return Err(Trouble::Source(SourceError::UnknownBlock(held.header.hash)));
            }
            check_place(&self.settings.chain.id, &held, height, headers.last())?;
            headers.push(held);
        }
        Ok(headers)
    }
}

/// A header's place is the node's word. Everything above is counted up from it, so it has to fit the question
/// and the header below.
fn check_place(
    chain: &ChainId,
    held: &HeldHeader,
    height: u64,
    below: Option<&HeldHeader>,
) -> Result<(), SourceError> {
    let hash = chain.print(held.header.hash);
    let odd = |why| SourceError::Unreachable {
        doing: format!("read header {hash} at height {height}"),
        why,
        help: Help::Node,
        source: None,
    };
    if held.height != height {
        return Err(odd(format!("odd answer: its height is {}", held.height)));
    }
    let chainwork = below.map(|below| below.chainwork.checked_add(held.header.work));
    match chainwork {
        Some(sum) if sum != Some(held.chainwork) => Err(odd(
            "odd answer: its chainwork is not that of the header below and its own".to_owned(),
        )),
        Some(_) | None => Ok(()),
    }
}
