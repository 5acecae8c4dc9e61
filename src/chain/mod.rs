//! Talks to nodes and turns what they say into candidates. It owns the quirks of each node's RPC and knows
//! nothing of the database: it is given the in-memory [`Index`] to filter against and returns values of
//! [`crate::rules`].

pub mod bitcoin;
pub mod evm;
pub mod proof;
pub mod rpc;

use crate::index::Index;
use crate::rules::{
    Amount, Asset, BlockHash, ChainId, Header, HeldHeader, MempoolList, ScannedBlock, Script, Tags, Work,
};
use std::future::Future;
use std::time::Duration;
use thiserror::Error;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Who a node is, asked at start and at every reconnect before anything else of it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The chain, by the node's own genesis block and the configured instance.
    pub chain: ChainId,
    /// The genesis block.
    pub genesis: BlockHash,
    /// The node's software and version, for people.
    pub software: String,
    /// What the config lists and the chain contradicts: it is not watched.
    pub unlisted: Vec<Asset>,
}

/// Where a node stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTip {
    /// The tip of its active chain.
    pub hash: BlockHash,
    /// The tip's height.
    pub height: u64,
    /// The work summed up to the tip.
    pub chainwork: Work,
    /// The tip's time, Unix seconds.
    pub time_secs: u64,
    /// True while the node itself says that it is catching up, or knows more headers than blocks.
    pub is_syncing: bool,
    /// The highest header that the node knows.
    pub headers: u64,
    /// The lowest height whose block a pruned node still has.
    pub pruned_below: Option<u64>,
    /// The fork point of a branch with more work that the node knows but is not on: nothing above is
    /// credited.
    pub credit_ceiling: Option<u64>,
    /// EVM: the blocks to which the node gives finality tags.
    pub tags: Tags,
}

impl NodeTip {
    /// The same node where it has shown a block above the tip that it told.
    #[must_use]
    pub fn moved_on(self, to: &HeldHeader) -> NodeTip {
        NodeTip {
            hash: to.header.hash,
            height: to.height,
            chainwork: to.chainwork,
            time_secs: to.header.time_secs,
            headers: self.headers.max(to.height),
            ..self
        }
    }
}

/// What a node says of one header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderInfo {
    /// The header at its height.
    pub held: HeldHeader,
    /// True when it is on the node's active chain now (Bitcoin Core: `confirmations` is not -1).
    pub is_active: bool,
}

/// Why a node could not answer. The variants follow what the follower does next.
#[derive(Debug, Error)]
pub enum SourceError {
    /// Refused, timed out, broken, warming up, unauthorized, an odd answer: wait and ask again.
    #[error("{doing}: {why}")]
    Unreachable {
        /// What we were asking.
        doing: String,
        /// The reason in words for people.
        why: String,
        /// What helps.
        help: Help,
        /// What lies beneath.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The node is up and does not know this block (any more, or yet): look at its tip again.
    #[error("the node does not know block {0}")]
    UnknownBlock(BlockHash),
    /// The node is on another network than the config says: nothing of it is used until the operator acts.
    #[error("wrong network: {0}")]
    WrongNetwork(String),
    /// The node knows the block but has dropped its content.
    #[error("block {hash} is pruned at the node")]
    Pruned {
        /// The block.
        hash: BlockHash,
    },
    /// The node has the header but not (yet) the block.
    #[error("the node has not downloaded block {0} yet")]
    MissingData(BlockHash),
    /// The block breaks a rule that no honest node's block breaks.
    #[error("bad block {hash}: {why}")]
    BadBlock {
        /// The block.
        hash: BlockHash,
        /// The broken rule.
        why: String,
    },
}

/// What helps where a node gives no answer: what is said of the next step must not send anybody elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Help {
    /// To start it, or to mend it or its address: it is not there, or answers what makes no sense.
    Node,
    /// To name who we are, so that it lets us in.
    Login,
    /// Nothing but time: it is there, and starting.
    Time,
    /// To ask less often: it has had enough of us.
    LowerRate,
}

impl SourceError {
    /// Words that this error was told in, with its block as people of the chain write it.
    pub fn print_on(&self, chain: &ChainId, words: &str) -> String {
        match self {
            SourceError::UnknownBlock(hash)
            | SourceError::MissingData(hash)
            | SourceError::Pruned { hash }
            | SourceError::BadBlock { hash, .. } => words.replacen(&hash.to_string(), &chain.print(hash), 1),
            SourceError::Unreachable { .. } | SourceError::WrongNetwork(_) => words.to_owned(),
        }
    }
}

/// One chain as seen through its node or nodes. Nothing is remembered between calls that could change an
/// answer but the mempool's known transactions, which only save fetches.
pub trait ChainSource: Send + Sync + 'static {
    /// A block as the node sent it.
    type Raw: Send + Sync;

    /// Asks who the node is and holds it against the config: network, genesis, checkpoints.
    fn identity(&self) -> impl Future<Output = Result<Identity, SourceError>> + Send;

    /// The node's tip, from one answer.
    fn tip(&self) -> impl Future<Output = Result<NodeTip, SourceError>> + Send;

    /// One header by hash, `None` when the node does not know it.
    fn header(&self, hash: BlockHash)
    -> impl Future<Output = Result<Option<HeaderInfo>, SourceError>> + Send;

    /// The hashes of the active chain from `height` on, at most `count`; shorter at the tip, empty above it.
    fn hashes(
        &self,
        height: u64,
        count: usize,
    ) -> impl Future<Output = Result<Vec<BlockHash>, SourceError>> + Send;

    /// The headers of the active chain from `height` on, in order, at most `count`; shorter at the tip. They
    /// need not be linked: the node may go to another branch between two answers.
    fn headers(
        &self,
        height: u64,
        count: usize,
    ) -> impl Future<Output = Result<Vec<HeldHeader>, SourceError>> + Send {
        async move {
            let mut headers = Vec::with_capacity(count.min(1 << 16));
            for hash in self.hashes(height, count).await? {
                let info = self.header(hash).await?;
                headers.push(info.ok_or(SourceError::UnknownBlock(hash))?.held);
            }
            Ok(headers)
        }
    }

    /// One block by hash, as the node sent it. Several may be asked for at a time, so that the node works
    /// while we filter.
    fn fetch(&self, hash: BlockHash) -> impl Future<Output = Result<Self::Raw, SourceError>> + Send;

    /// The same for a block of a branch that is about to take the place of ours: with all that may tell what
    /// becomes of the transactions that ours held.
    fn fetch_whole(&self, hash: BlockHash) -> impl Future<Output = Result<Self::Raw, SourceError>> + Send {
        self.fetch(hash)
    }

    /// Checks a fetched block (Bitcoin: hash, proof of work, merkle root) and filters it against the index.
    /// On Bitcoin it asks nobody and keeps its thread busy for milliseconds; on EVM chains it asks for the
    /// receipts of what hit.
    ///
    /// # Errors
    /// [`SourceError::BadBlock`], and [`SourceError::Unreachable`] for what is no such block at all.
    fn scan(
        &self,
        hash: BlockHash,
        raw: &Self::Raw,
        index: &Index,
    ) -> impl Future<Output = Result<ScannedBlock, SourceError>> + Send;

    /// One block by hash, fetched, checked and filtered.
    fn block(
        &self,
        hash: BlockHash,
        index: &Index,
    ) -> impl Future<Output = Result<ScannedBlock, SourceError>> + Send {
        async move { self.scan(hash, &self.fetch(hash).await?, index).await }
    }

    /// Holds a header against its parent by the rules that need both (on Bitcoin, that difficulty moves only
    /// where it may: proof of work is worth nothing under a difficulty of the sender's choice). Asks nobody.
    ///
    /// # Errors
    /// [`SourceError::BadBlock`].
    fn check_link(&self, parent: &HeldHeader, header: &Header) -> Result<(), SourceError> {
        let _ = (parent, header);
        Ok(())
    }

    /// Does every node of the chain that there is have `theirs` on its chain, and not `ours`? Asked before a
    /// branch is taken that is no better than ours, so an answer that fails is a no.
    fn is_left_by_all(&self, ours: &HeldHeader, theirs: &NodeTip) -> impl Future<Output = bool> + Send {
        let _ = (ours, theirs);
        async { false }
    }

    /// What a node has said that its operator should look at, while the chain goes on; empty when nothing.
    fn complaint(&self) -> String {
        String::new()
    }

    /// Does the operator want more than one node to agree before something is credited?
    fn needs_agreement(&self) -> bool {
        false
    }

    /// Do as many nodes as the operator wants say that this block of ours is on their chain?
    fn is_agreed(&self, ours: &HeldHeader) -> impl Future<Output = bool> + Send {
        let _ = ours;
        async { true }
    }

    /// Is there a mempool to be listed at all?
    fn lists_mempool(&self) -> bool {
        true
    }

    /// The mempool, filtered against the index. `None` where the chain has none, or its tip moved during the
    /// listing.
    fn mempool(&self, index: &Index)
    -> impl Future<Output = Result<Option<MempoolList>, SourceError>> + Send;

    /// The balances of the chain's own coin that accounts have at blocks, in the order of the questions.
    /// `None` where the node has none to tell: it has dropped the state of that block, or does not know the
    /// block.
    fn balances(
        &self,
        asked: &[(BlockHash, Script)],
    ) -> impl Future<Output = Result<Vec<Option<Amount>>, SourceError>> + Send {
        let none = vec![None; asked.len()];
        async move { Ok(none) }
    }

    /// Returns when the node's tip is likely another than `tip`, which it told last, or after `span`. Carries
    /// no fact; with a node that fails it waits for `span`.
    fn wait(&self, tip: BlockHash, span: Duration) -> impl Future<Output = ()> + Send;
}

/// Runs what keeps a thread busy for milliseconds. The daemon's other tasks, the fetches of the next blocks
/// among them, go on on another thread; without one there is nothing to hand over.
pub(crate) fn keep_busy<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_of_an_error_is_written_as_its_chain_writes_it() {
        let (hash, digits) = (BlockHash([0xab; 32]), "ab".repeat(32));
        let (btc, evm) = (ChainId::bitcoin(&hash, None), ChainId::evm(1, None));
        let why = "odd".to_owned();
        for error in [
            SourceError::UnknownBlock(hash),
            SourceError::MissingData(hash),
            SourceError::Pruned { hash },
            SourceError::BadBlock {
                hash,
                why: why.clone(),
            },
        ] {
            let words = error.to_string();
            assert_eq!(error.print_on(&btc, &words), words);
            let printed = error.print_on(&evm, &words);
            assert_eq!(printed, words.replace(&digits, &format!("0x{digits}")), "{words}");
        }
        assert_eq!(SourceError::WrongNetwork(why.clone()).print_on(&evm, &why), why);
    }
}
