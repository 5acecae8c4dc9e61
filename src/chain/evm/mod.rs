//! A chain of Ethereum's kind through its nodes' JSON-RPC: what is needed of their answers, and nothing more.
//! Start at [`EvmSource`].

pub mod answers;
mod balances;
mod block;
pub mod bloom;
mod config;
pub mod encode;
pub mod endpoints;
pub mod fields;
mod headers;
mod of_config;
mod pending;
pub mod proof;
mod receipts;
mod reread;
mod rlp;
mod scan;
mod tip;
mod tokens;
pub mod trace;
mod traced;
mod traces;
pub mod transfer;
pub mod trie;
mod tries;
mod wanted;

pub use block::RawBlock;
pub use config::{EvmRules, Inner, NativeRule, TokenRule, TraceCall};
pub use of_config::{Pinned, nodes_of};
pub use reread::{Again, CoinAgain, Offer, TransfersAgain};

use crate::chain::rpc::{Answer, Limits, Question};
use crate::chain::{ChainSource, HeaderInfo, Help, Identity, NodeTip, SourceError};
use crate::clock::Clock;
use crate::egress::Dial;
use crate::index::Index;
use crate::rules::{
    Amount, Asset, BlockHash, ChainId, HeldHeader, MempoolList, ScannedBlock, Script, TaggedBlock,
};
use endpoints::{EndpointId, Endpoints};
use fields::Account;
use headers::HeaderCache;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tries::Tries;

/// What a block, its logs, its traces or a list of pending transactions may take.
const LARGE: Limits = Limits {
    deadline: Duration::from_secs(60),
    body_bytes_max: 512 << 20,
};

/// So often a node may lack a block that it has promised before another one is asked: behind one address
/// there may be several, and the branch may have changed in between.
const MISSES: u32 = 4;

/// How the reason begins where an answer came and cannot be.
const ODD: &str = "odd answer: ";

/// What was met and set aside, counted since the start of the daemon.
#[derive(Debug, Default)]
pub struct EvmCounters {
    /// Blocks whose list of logs lacked transfers that their receipts have.
    pub log_mismatches: AtomicU64,
    /// Logs of listed tokens that begin like a transfer and are none of an amount.
    pub unsupported_transfers: AtomicU64,
    /// Transactions that no endpoint could trace, so that coin inside them was not seen.
    pub untraced: AtomicU64,
}

/// A chain of Ethereum's kind.
pub struct EvmSource<D> {
    rules: EvmRules,
    endpoints: Arc<Endpoints<D>>,
    /// A look at the endpoints that stand by: those may be slower than our own looks, so it goes on by
    /// itself.
    looking: Mutex<JoinSet<()>>,
    /// More than one endpoint has to agree before something is credited.
    needs_several: bool,
    clock: Clock,
    headers: HeaderCache,
    counters: Arc<EvmCounters>,
    /// Tokens whose contract says something else than the config.
    disabled: Mutex<BTreeSet<Account>>,
    /// They were asked once since the start: what was listed then stays listed.
    has_checked_tokens: AtomicBool,
    /// What a node said later against one of them, in words.
    doubt: Mutex<String>,
    /// The node has `trace_block` alone.
    traces_flat: AtomicBool,
    /// The endpoint that last refused to show its whole pool, and when it did.
    lacks_pool: Mutex<Option<(EndpointId, Instant)>>,
    tip: Mutex<Option<tip::Seen>>,
    /// Blocks with something in them that cannot be read, and that cannot be traced.
    bad: Tries,
    untraced: Tries,
    /// How often since the last block that was read a node did not have one that it had promised.
    missed: AtomicU32,
}

impl<D: Dial> EvmSource<D> {
    /// The chain of the rules.
    pub fn chain(&self) -> &ChainId {
        &self.rules.chain
    }

    /// A source that asks these endpoints for what the rules name.
    pub fn new(rules: EvmRules, endpoints: Endpoints<D>, clock: Clock) -> EvmSource<D> {
        EvmSource {
            rules,
            needs_several: endpoints.quorum() > 1,
            endpoints: Arc::new(endpoints),
            looking: Mutex::default(),
            clock,
            headers: HeaderCache::default(),
            counters: Arc::default(),
            disabled: Mutex::default(),
            has_checked_tokens: AtomicBool::new(false),
            doubt: Mutex::default(),
            traces_flat: AtomicBool::new(false),
            lacks_pool: Mutex::default(),
            tip: Mutex::default(),
            bad: Tries::default(),
            untraced: Tries::default(),
            missed: AtomicU32::new(0),
        }
    }

    /// What was met and set aside.
    pub fn counters(&self) -> Arc<EvmCounters> {
        Arc::clone(&self.counters)
    }

    /// Its endpoints and how they stand.
    pub fn endpoints(&self) -> &Endpoints<D> {
        &self.endpoints
    }

    /// What says no more than where a node stands.
    const SMALL: Limits = Limits {
        deadline: Duration::from_secs(10),
        body_bytes_max: 16 << 20,
    };

    async fn ask(&self, doing: &str, questions: &[Question]) -> Result<Vec<Answer>, SourceError> {
        if questions.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.endpoints.ask(doing, questions, LARGE).await?.answers)
    }

    /// What one endpoint refuses, does not have or tells wrongly may be told rightly by another.
    fn blame<T>(&self, outcome: Result<T, SourceError>) -> Result<T, SourceError> {
        match &outcome {
            Err(SourceError::Unreachable { why, .. }) => {
                let why = why.strip_prefix(ODD).unwrap_or(why);
                self.endpoints.pass_over_current(why);
            }
            Err(SourceError::BadBlock { hash, why }) => {
                self.endpoints
                    .pass_over_current(&format!("block 0x{hash}: {why}"));
            }
            Err(SourceError::UnknownBlock(hash)) if self.missed.fetch_add(1, Ordering::Relaxed) >= MISSES => {
                self.missed.store(0, Ordering::Relaxed);
                let why = format!("it shows block 0x{hash} on its chain and does not have it");
                self.endpoints.pass_over_current(&why);
            }
            _ => {}
        }
        outcome
    }

    /// Whole transactions say who sent what: needed where the coin is watched, and to see who took the place
    /// of a pending transaction.
    fn reads_whole_blocks(&self) -> bool {
        self.rules.native.is_some() || self.rules.lists_pending
    }

    /// Begins a look at those that stand by, if none is under way. It ends with the source.
    fn look_around(&self) {
        let mut looking = locked(&self.looking);
        while looking.try_join_next().is_some() {}
        if looking.is_empty() {
            let endpoints = Arc::clone(&self.endpoints);
            looking.spawn(async move { endpoints.look_around().await });
        }
    }

    /// The tokens that are listed and are what the config says.
    fn listed_tokens(&self) -> Vec<Account> {
        let disabled = locked(&self.disabled);
        let listed = self.rules.tokens.keys();
        listed
            .filter(|token| !disabled.contains(token))
            .copied()
            .collect()
    }
}

impl<D: Dial> ChainSource for EvmSource<D> {
    type Raw = RawBlock;

    async fn identity(&self) -> Result<Identity, SourceError> {
        let mut identity = self.endpoints.identity().await?;
        let contradicted = self.check_tokens().await?;
        let mut disabled = locked(&self.disabled);
        if !self.has_checked_tokens.swap(true, Ordering::Relaxed) {
            // Until the next start, whatever another node says.
            *disabled = contradicted;
        } else if let Some(token) = contradicted.iter().find(|token| !disabled.contains(token)) {
            // What one bad endpoint says in between takes nobody's payments away.
            *locked(&self.doubt) = format!("a node contradicts the decimals of token {token}");
        } else {
            locked(&self.doubt).clear();
        }
        identity.unlisted = disabled.iter().map(|token| Asset::Token(token.0)).collect();
        Ok(identity)
    }

    fn complaint(&self) -> String {
        locked(&self.doubt).clone()
    }

    async fn tip(&self) -> Result<NodeTip, SourceError> {
        self.blame(self.look_at_tip().await)
    }

    async fn header(&self, hash: BlockHash) -> Result<Option<HeaderInfo>, SourceError> {
        self.blame(self.look_up_header(hash).await)
    }

    async fn hashes(&self, height: u64, count: usize) -> Result<Vec<BlockHash>, SourceError> {
        let headers = self.blame(self.headers_from(height, count).await)?;
        Ok(headers.iter().map(|held| held.header.hash).collect())
    }

    async fn headers(&self, height: u64, count: usize) -> Result<Vec<HeldHeader>, SourceError> {
        self.blame(self.headers_from(height, count).await)
    }

    async fn fetch(&self, hash: BlockHash) -> Result<RawBlock, SourceError> {
        self.blame(self.fetch_block(hash, self.reads_whole_blocks()).await)
    }

    async fn fetch_whole(&self, hash: BlockHash) -> Result<RawBlock, SourceError> {
        self.blame(self.fetch_block(hash, true).await)
    }

    async fn scan(
        &self,
        hash: BlockHash,
        raw: &RawBlock,
        index: &Index,
    ) -> Result<ScannedBlock, SourceError> {
        let scanned = self.blame(self.scan_block(hash, raw, index).await)?;
        self.missed.store(0, Ordering::Relaxed);
        Ok(scanned)
    }

    async fn is_left_by_all(&self, ours: &HeldHeader, _theirs: &NodeTip) -> bool {
        self.endpoints.is_left_by_all(tagged(ours)).await
    }

    fn needs_agreement(&self) -> bool {
        self.needs_several
    }

    async fn is_agreed(&self, ours: &HeldHeader) -> bool {
        self.endpoints.agreement(tagged(ours)).await.is_reached()
    }

    fn lists_mempool(&self) -> bool {
        self.rules.lists_pending && self.rules.native.is_some()
    }

    async fn mempool(&self, index: &Index) -> Result<Option<MempoolList>, SourceError> {
        match self.lists_mempool() {
            true => self.blame(self.list_pending(index).await),
            false => Ok(None),
        }
    }

    async fn balances(&self, asked: &[(BlockHash, Script)]) -> Result<Vec<Option<Amount>>, SourceError> {
        self.balances_at(asked).await
    }

    /// Asked by the clock alone: of what a node sends by itself, nothing would be believed unasked.
    async fn wait(&self, _tip: BlockHash, span: Duration) {
        self.look_around();
        self.clock.sleep(span).await;
    }
}

fn tagged(held: &HeldHeader) -> TaggedBlock {
    TaggedBlock {
        height: held.height,
        hash: held.header.hash,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn odd_answer(doing: impl Into<String>, why: &str) -> SourceError {
    SourceError::Unreachable {
        doing: doing.into(),
        why: format!("{ODD}{why}"),
        help: Help::Node,
        source: None,
    }
}
