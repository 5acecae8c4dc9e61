//! Where an audit of one chain stands: its node, how far both sides have come, and whether they are on one
//! branch. Nothing that differs is believed at once: a reorg may be under way.

use super::Audit;
use crate::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use crate::chain::evm::endpoints::{Endpoints, EndpointsConfig, Node as Endpoint};
use crate::chain::evm::{EvmRules, EvmSource};
use crate::chain::{ChainSource as _, SourceError};
use crate::config::{ChainConfig, EvmChain};
use crate::egress::HttpDial;
use crate::rules::audit::Reach;
use crate::rules::chain_state::ChainState;
use crate::rules::{Asset, BlockHash};
use crate::store::{ChainRow, FindingRow, Store, StoreError};
use crate::telemetry::error_line;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// A disagreement is asked about so often before it is told ...
pub(super) const ASKED_AGAIN: u32 = 3;
/// ... so far apart.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// The audit of one chain.
pub(super) struct Ground<'a> {
    pub audit: &'a Audit,
    pub store: &'a Store,
    pub config: ChainConfig<'a>,
    ends: Option<Instant>,
}

/// A chain's node, asked by other calls than the daemon's.
pub(super) enum Node {
    Bitcoin(Box<BitcoinSource<HttpDial>>),
    Evm(Box<EvmSource<HttpDial>>),
}

/// How far both sides are, on one branch.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub chain: ChainRow,
    /// Blocks up to here are old enough.
    pub top: u64,
    pub reach: Reach,
    /// Payments from here on may not be booked yet: a rescan is on its way there.
    pub rescan_from: Option<u64>,
    /// The follower is at work, so that what is due must be credited.
    pub is_following: bool,
    /// The lowest block that the node still has.
    pub pruned_below: Option<u64>,
    /// How many blocks a reorg may disconnect.
    pub window: u64,
    /// Short names and digits.
    pub assets: BTreeMap<Asset, (String, u8)>,
}

impl Standing {
    /// Blocks up to here are old enough, and no rescan is on its way there.
    pub(super) fn booked_to(&self) -> u64 {
        let below = self.rescan_from.map(|from| from.saturating_sub(1));
        below.map_or(self.top, |below| below.min(self.top))
    }
}

/// Why a pass ends.
#[derive(Debug)]
pub(super) enum Stop {
    /// Nothing more can be asked of this chain now.
    Unasked(String),
    /// The database.
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Stop {
        Stop::Store(error)
    }
}

impl From<SourceError> for Stop {
    fn from(error: SourceError) -> Stop {
        Stop::Unasked(error_line(&error))
    }
}

impl<'a> Ground<'a> {
    pub(super) fn new(
        audit: &'a Audit,
        store: &'a Store,
        config: ChainConfig<'a>,
        ends: Option<Instant>,
    ) -> Ground<'a> {
        Ground {
            audit,
            store,
            config,
            ends,
        }
    }

    /// True once the time of the run is over.
    pub(super) fn is_over(&self) -> bool {
        self.ends.is_some_and(|ends| self.audit.clock.instant() >= ends)
    }

    /// The node, who says that it is on the chain of the config; or why it cannot be asked.
    pub(super) async fn connect(&self) -> Result<Result<Node, String>, StoreError> {
        let clock = self.audit.clock;
        let node = match self.config {
            ChainConfig::Bitcoin(chain) => match BitcoinConfig::of(chain) {
                Ok(config) => Node::Bitcoin(Box::new(BitcoinSource::new(config, HttpDial::new(), clock))),
                Err(error) => return Ok(Err(error_line(&error))),
            },
            ChainConfig::Evm(chain) => match self.endpoints(chain).await? {
                Ok(source) => Node::Evm(Box::new(source)),
                Err(why) => return Ok(Err(why)),
            },
        };
        Ok(match node.identify().await {
            Ok(()) => Ok(node),
            Err(error) => Err(error_line(&error)),
        })
    }

    /// The endpoints in the reverse order of preference: where there are several, another one is asked than
    /// the daemon asks.
    async fn endpoints(&self, chain: &EvmChain) -> Result<Result<EvmSource<HttpDial>, String>, StoreError> {
        let id = chain.chain.clone();
        let known = self.store.read(move |tx| {
            let Some(row) = tx.chain(&id)? else {
                return Ok((None, Vec::new()));
            };
            Ok((row.genesis, tx.inner_sources(row.key)?))
        });
        let (genesis, pinned) = known.await?;
        let mut nodes = Vec::new();
        for endpoint in chain.endpoints.iter().rev() {
            let dial = HttpDial::believing(endpoint.ca_file.clone());
            match Endpoint::of(endpoint, chain.batch_max, dial) {
                Ok(node) => nodes.push(node),
                Err(error) => return Ok(Err(error_line(&error))),
            }
        }
        let config = EndpointsConfig {
            quorum: 1,
            ..EndpointsConfig::of(chain)
        };
        let clock = self.audit.clock;
        let endpoints = Endpoints::new(config, nodes, genesis, clock);
        let mut rules = EvmRules::of(chain);
        if !pinned.is_empty() {
            rules = rules.with_pinned(&pinned);
        }
        Ok(Ok(EvmSource::new(rules, endpoints, clock)))
    }

    /// Where both sides are now.
    pub(super) async fn stand(&self, node: &Node) -> Result<Standing, Stop> {
        let id = self.config.chain().clone();
        let known = self.store.read(move |tx| {
            let Some(chain) = tx.chain(&id)? else {
                return Ok(None);
            };
            let key = chain.key;
            let rescans = tx.running_rescans(key)?;
            let assets = tx.assets()?.into_iter().filter(|asset| asset.chain == key);
            let assets: BTreeMap<Asset, (String, u8)> = assets
                .map(|asset| {
                    let kind = asset.contract.map_or(Asset::Native, Asset::Token);
                    (kind, (asset.symbol, asset.decimals))
                })
                .collect();
            Ok(Some((
                chain,
                rescans.iter().map(|rescan| rescan.next_height).min(),
                assets,
            )))
        });
        let Some((chain, rescan_from, assets)) = known.await? else {
            return Err(Stop::Unasked("creditd never followed it".to_owned()));
        };
        let Some(cursor) = chain.cursor else {
            return Err(Stop::Unasked("creditd has read no block of it".to_owned()));
        };
        let (tip, pruned_below) = node.tip().await?;
        let common = self.common(node, &chain, cursor.height.min(tip)).await?;
        let age_blocks = self.audit.config.audit.age_blocks;
        Ok(Standing {
            top: common.saturating_sub(age_blocks),
            reach: Reach {
                cursor: cursor.height,
                safe: chain.safe,
                finalized: chain.finalized,
                age_blocks,
            },
            rescan_from,
            is_following: chain.state == ChainState::Following,
            pruned_below,
            window: self.audit.config.smallest_window(),
            assets,
            chain,
        })
    }

    /// The height where both sides have the same block: the highest that both have, or nothing is said.
    async fn common(&self, node: &Node, chain: &ChainRow, height: u64) -> Result<u64, Stop> {
        let key = chain.key;
        let ours = self.store.read(move |tx| tx.header_at(key, height)).await?;
        let Some(ours) = ours else {
            let why = format!("its node is at height {height} only, far behind the books");
            return Err(Stop::Unasked(why));
        };
        match node.hash_at(height).await? {
            Some(theirs) if theirs == ours.header.hash => Ok(height),
            Some(_) | None => Err(Stop::Unasked(format!(
                "its node and the books are on two branches at height {height}: ask again when creditd \
                 follows it"
            ))),
        }
    }

    /// Between two looks at what does not agree.
    pub(super) async fn wait(&self) {
        self.audit.clock.sleep(AGAIN_AFTER).await;
    }

    /// Waits so that no more than the pace allows is asked: `blocks` since `began`.
    pub(super) async fn keep_pace(&self, began: Instant, blocks: u64) {
        let Some(rate) = self.audit.pace.blocks_per_second else {
            return;
        };
        let due = Duration::from_millis(blocks.saturating_mul(1_000) / u64::from(rate.max(1)));
        let taken = self.audit.clock.instant() - began;
        if let Some(rest) = due.checked_sub(taken) {
            self.audit.clock.sleep(rest).await;
        }
    }

    /// Writes down what does not agree, and logs what is news.
    pub(super) async fn tell(&self, found: Vec<FindingRow>) -> Result<(), StoreError> {
        if found.is_empty() {
            return Ok(());
        }
        let told = found.clone();
        let news = self.store.write(move |tx| {
            let mut news = Vec::new();
            for row in &told {
                news.push(tx.note_finding(row)?);
            }
            Ok(news)
        });
        for (row, is_news) in found.iter().zip(news.await?) {
            if is_news {
                let (chain, kind) = (self.config.alias(), row.kind.word());
                tracing::error!(chain, kind, "audit: {kind} {}: {}", row.subject, row.what);
            }
        }
        Ok(())
    }

    /// What stands of this chain.
    pub(super) async fn known_findings(&self, chain: &ChainRow) -> Result<Vec<FindingRow>, StoreError> {
        let key = chain.key;
        let all = self.store.read(|tx| tx.findings()).await?;
        Ok(all.into_iter().filter(|row| row.chain == Some(key)).collect())
    }

    /// Takes back what agrees now.
    pub(super) async fn clear(&self, chain: &ChainRow, subject: &str) -> Result<(), StoreError> {
        let (key, subject) = (chain.key, subject.to_owned());
        let cleared = self.store.write(move |tx| tx.clear_finding(Some(key), &subject));
        cleared.await
    }
}

impl Node {
    async fn identify(&self) -> Result<(), SourceError> {
        match self {
            Node::Bitcoin(source) => source.identity().await.map(drop),
            Node::Evm(source) => source.identity().await.map(drop),
        }
    }

    /// The node's height, and the lowest block that it still has.
    pub(super) async fn tip(&self) -> Result<(u64, Option<u64>), SourceError> {
        let tip = match self {
            Node::Bitcoin(source) => source.tip().await?,
            Node::Evm(source) => source.tip().await?,
        };
        Ok((tip.height, tip.pruned_below))
    }

    pub(super) async fn hash_at(&self, height: u64) -> Result<Option<BlockHash>, SourceError> {
        Ok(self.hashes(height, 1).await?.first().copied())
    }

    pub(super) async fn hashes(&self, height: u64, count: usize) -> Result<Vec<BlockHash>, SourceError> {
        match self {
            Node::Bitcoin(source) => source.hashes(height, count).await,
            Node::Evm(source) => source.hashes(height, count).await,
        }
    }
}
