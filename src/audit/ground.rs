//! Where an audit of one chain stands: its node, how far both sides have come, and whether they are on one
//! branch. Nothing that differs is believed at once: a reorg may be under way.

use super::Audit;
use super::limits::{NotChecked, Unasked};
use crate::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use crate::chain::evm::{EvmSource, nodes_of};
use crate::chain::{ChainSource as _, SourceError};
use crate::config::{ChainConfig, EvmChain};
use crate::egress::HttpDial;
use crate::rules::audit::{AuditPass, Reach};
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
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub audit: &'a Audit,
    pub store: &'a Store,
    pub config: ChainConfig<'a>,
    /// The number of the run.
    pub run: i64,
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
    /// Blocks up to here are old enough, and both sides have them.
    pub top: u64,
    /// Blocks up to here are old enough.
    pub wanted: u64,
    /// How far the node is.
    pub node_tip: u64,
    pub reach: Reach,
    /// Payments from here on may not be booked yet: a rescan is on its way there.
    pub rescan_from: Option<u64>,
    /// The follower is at work, so that what is due must be credited.
    pub is_following: bool,
    /// The lowest block that the node still has.
    pub pruned_below: Option<u64>,
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
    Unasked(NotChecked),
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
        Stop::Unasked(NotChecked::from(&error))
    }
}

impl<'a> Ground<'a> {
    pub(super) fn new(
        audit: &'a Audit,
        store: &'a Store,
        config: ChainConfig<'a>,
        (run, ends): (i64, Option<Instant>),
    ) -> Ground<'a> {
        Ground {
            audit,
            store,
            config,
            run,
            ends,
        }
    }

    /// The same for the first of so many parts of the time.
    pub(super) fn part(&self, parts: usize) -> Ground<'a> {
        Ground {
            ends: super::share(self.ends, self.audit.clock.instant(), parts),
            ..*self
        }
    }

    /// The same for all but the last of so many parts of the time.
    pub(super) fn but_the_last(&self, parts: usize) -> Ground<'a> {
        let now = self.audit.clock.instant();
        let last =
            |ends: Instant| super::share(Some(ends), now, parts).map_or(ends, |first| ends - (first - now));
        Ground {
            ends: self.ends.map(last),
            ..*self
        }
    }

    /// True once the time of the run is over.
    pub(super) fn is_over(&self) -> bool {
        self.ends.is_some_and(|ends| self.audit.clock.instant() >= ends)
    }

    /// The node, who says that it is on the chain of the config; or why it cannot be asked.
    pub(super) async fn connect(&self) -> Result<Result<Node, NotChecked>, StoreError> {
        let clock = self.audit.clock;
        let unknown = |why: String| Unasked::NoLogin.because(why);
        let node = match self.config {
            ChainConfig::Bitcoin(chain) => match BitcoinConfig::of(chain) {
                Ok(config) => Node::Bitcoin(Box::new(BitcoinSource::new(config, HttpDial::new(), clock))),
                Err(error) => return Ok(Err(unknown(error_line(&error)))),
            },
            ChainConfig::Evm(chain) => match self.endpoints(chain).await? {
                Ok(source) => Node::Evm(Box::new(source)),
                Err(why) => return Ok(Err(unknown(why))),
            },
        };
        Ok(match node.identify().await {
            Ok(()) => Ok(node),
            Err(error) => Err(NotChecked::from(&error)),
        })
    }

    /// The endpoints in the reverse order of preference: where there are several, another one is asked than
    /// the daemon asks.
    async fn endpoints(&self, chain: &EvmChain) -> Result<Result<EvmSource<HttpDial>, String>, StoreError> {
        let id = chain.chain.clone();
        let pinned = self.store.read(move |tx| super::pinned(tx, &id)).await?;
        let nodes = nodes_of(chain, |endpoint| HttpDial::believing(endpoint.ca_file.clone()));
        Ok(match nodes {
            Ok(mut nodes) => {
                nodes.reverse();
                Ok(EvmSource::of_each(chain, nodes, &pinned, self.audit.clock))
            }
            Err(error) => Err(error_line(&error)),
        })
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
            return Err(unfollowed("creditd never followed it"));
        };
        let Some(cursor) = chain.cursor else {
            return Err(unfollowed("creditd has read no block of it"));
        };
        let (node_tip, pruned_below) = node.tip().await?;
        let common = self.common(node, &chain, cursor.height.min(node_tip)).await?;
        let age_blocks = self.audit.config.audit.age_blocks;
        let wanted = cursor.height.saturating_sub(age_blocks);
        Ok(Standing {
            top: wanted.min(common),
            wanted,
            node_tip,
            reach: Reach {
                cursor: cursor.height,
                safe: chain.safe,
                finalized: chain.finalized,
                age_blocks,
            },
            rescan_from,
            is_following: chain.state == ChainState::Following,
            pruned_below,
            assets,
            chain,
        })
    }

    /// The same, once the follower is at work, or has not come to it for a while.
    pub(super) async fn settled(&self, node: &Node) -> Result<Standing, Stop> {
        let mut standing = self.stand(node).await?;
        for _ in 0..ASKED_AGAIN {
            if standing.is_following {
                break;
            }
            self.wait().await;
            standing = self.stand(node).await?;
        }
        Ok(standing)
    }

    /// The height where both sides have the same block: the highest that both have, or nothing is said.
    async fn common(&self, node: &Node, chain: &ChainRow, height: u64) -> Result<u64, Stop> {
        let key = chain.key;
        let ours = self.store.read(move |tx| tx.header_at(key, height)).await?;
        let Some(ours) = ours else {
            let why = format!("its node is at height {height} only, far behind the books");
            return Err(Stop::Unasked(Unasked::NodeBehind.because(why)));
        };
        match node.hash_at(height).await? {
            Some(theirs) if theirs == ours.header.hash => Ok(height),
            Some(_) | None => Err(Stop::Unasked(Unasked::TwoBranches.because(format!(
                "its node and the books are on two branches at height {height}"
            )))),
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

    /// What a pass found of this chain and what still stands.
    pub(super) async fn known_findings(
        &self,
        chain: &ChainRow,
        pass: AuditPass,
    ) -> Result<Vec<FindingRow>, StoreError> {
        let key = chain.key;
        self.store.read(move |tx| tx.findings(Some(key), pass)).await
    }

    /// Takes back what agrees now.
    pub(super) async fn clear(&self, known: FindingRow) -> Result<(), StoreError> {
        self.store.write(move |tx| tx.clear_finding(&known)).await
    }
}

fn unfollowed(why: &str) -> Stop {
    Stop::Unasked(Unasked::NeverFollowed.because(why))
}

impl Node {
    /// Why a node that answers does not show something; one that does not answer ends the pass.
    pub(super) async fn alone(&self, error: SourceError) -> Result<String, Stop> {
        match error {
            error @ SourceError::WrongNetwork(_) => Err(error.into()),
            error if self.tip().await.is_err() => Err(error.into()),
            error => Ok(match self {
                Node::Bitcoin(_) => error_line(&error),
                Node::Evm(source) => error.print_on(source.chain(), &error_line(&error)),
            }),
        }
    }

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
