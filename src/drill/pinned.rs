//! A chain whose tip stands where the copy's cursor is, whatever its node goes on to: so that what is fed
//! again is what was fed before, and nothing newer.

use crate::chain::{ChainSource, HeaderInfo, Help, Identity, NodeTip, SourceError};
use crate::index::Index;
use crate::rules::{
    Amount, BlockHash, Header, HeldHeader, MempoolList, ScannedBlock, Script, TaggedBlock, Tags,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where a chain stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pin {
    /// The tip.
    pub at: HeldHeader,
    /// The finality tags.
    pub tags: Tags,
}

/// The list that is told each time, once it was read.
pub(super) type Recorded = Arc<Mutex<Option<MempoolList>>>;

/// A source behind a tip that stands.
pub(super) struct Pinned<S> {
    inner: Arc<S>,
    pin: Mutex<Pin>,
    list: Recorded,
}

impl<S: ChainSource> Pinned<S> {
    pub(super) fn new(inner: Arc<S>, pin: Pin, list: Recorded) -> Pinned<S> {
        Pinned {
            inner,
            pin: Mutex::new(pin),
            list,
        }
    }

    /// Lets the tip stand elsewhere from now on.
    pub(super) fn set(&self, pin: Pin) {
        *self.lock() = pin;
    }

    fn lock(&self) -> MutexGuard<'_, Pin> {
        self.pin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pin(&self) -> Pin {
        *self.lock()
    }

    /// How many of `count` from `height` on are not above the tip.
    fn cut(&self, height: u64, count: usize) -> usize {
        let left = (self.pin().at.height + 1).saturating_sub(height);
        usize::try_from(left).unwrap_or(usize::MAX).min(count)
    }
}

fn odd(why: String) -> SourceError {
    SourceError::Unreachable {
        doing: "read the chain up to the copy's tip".to_owned(),
        why,
        help: Help::Node,
        source: None,
    }
}

fn up_to(tag: Option<TaggedBlock>, height: u64) -> Option<TaggedBlock> {
    tag.filter(|tag| tag.height <= height)
}

impl<S: ChainSource> ChainSource for Pinned<S> {
    type Raw = S::Raw;

    async fn identity(&self) -> Result<Identity, SourceError> {
        self.inner.identity().await
    }

    async fn tip(&self) -> Result<NodeTip, SourceError> {
        let (told, pin) = (self.inner.tip().await?, self.pin());
        let at = pin.at;
        if told.height < at.height {
            return Err(odd(format!(
                "the node is at height {}, the copy at {}",
                told.height, at.height
            )));
        }
        Ok(NodeTip {
            hash: at.header.hash,
            height: at.height,
            chainwork: at.chainwork,
            time_secs: at.header.time_secs,
            headers: at.height,
            is_syncing: false,
            tags: Tags {
                safe: up_to(pin.tags.safe, at.height),
                finalized: up_to(pin.tags.finalized, at.height),
            },
            ..told
        })
    }

    async fn header(&self, hash: BlockHash) -> Result<Option<HeaderInfo>, SourceError> {
        self.inner.header(hash).await
    }

    async fn hashes(&self, height: u64, count: usize) -> Result<Vec<BlockHash>, SourceError> {
        match self.cut(height, count) {
            0 => Ok(Vec::new()),
            count => self.inner.hashes(height, count).await,
        }
    }

    async fn headers(&self, height: u64, count: usize) -> Result<Vec<HeldHeader>, SourceError> {
        match self.cut(height, count) {
            0 => Ok(Vec::new()),
            count => self.inner.headers(height, count).await,
        }
    }

    async fn fetch(&self, hash: BlockHash) -> Result<S::Raw, SourceError> {
        self.inner.fetch(hash).await
    }

    async fn fetch_whole(&self, hash: BlockHash) -> Result<S::Raw, SourceError> {
        self.inner.fetch_whole(hash).await
    }

    async fn scan(&self, hash: BlockHash, raw: &S::Raw, index: &Index) -> Result<ScannedBlock, SourceError> {
        self.inner.scan(hash, raw, index).await
    }

    fn check_link(&self, parent: &HeldHeader, header: &Header) -> Result<(), SourceError> {
        self.inner.check_link(parent, header)
    }

    fn needs_agreement(&self) -> bool {
        self.inner.needs_agreement()
    }

    async fn is_agreed(&self, ours: &HeldHeader) -> bool {
        self.inner.is_agreed(ours).await
    }

    fn lists_mempool(&self) -> bool {
        self.inner.lists_mempool()
    }

    /// The list that was read first, as one of the tip that stands: the node may have gone on.
    async fn mempool(&self, index: &Index) -> Result<Option<MempoolList>, SourceError> {
        let known = || self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = known().clone() {
            return Ok(Some(list));
        }
        let Some(list) = self.inner.mempool(index).await? else {
            return Ok(None);
        };
        let list = MempoolList {
            tip: self.pin().at.header.hash,
            ..list
        };
        *known() = Some(list.clone());
        Ok(Some(list))
    }

    async fn balances(&self, asked: &[(BlockHash, Script)]) -> Result<Vec<Option<Amount>>, SourceError> {
        self.inner.balances(asked).await
    }

    async fn wait(&self, _: BlockHash, _: Duration) {}
}
