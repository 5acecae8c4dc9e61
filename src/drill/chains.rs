//! The chains of a drill: each with a source that only reads, and what of it is fed again. A new follower is
//! opened for each feeding, as a start of the daemon does.

use super::copy::Bench;
use super::dials::ReadingDial;
use super::pinned::{Pin, Pinned, Recorded};
use super::report::Step;
use super::restored::is_under_way;
use super::waiting::{Far, PATIENCE, STALLED_PAUSE, Told, Trouble, Waiting};
use super::words::counted;
use super::{DrillError, Stop};
use crate::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use crate::chain::evm::{EvmRules, EvmSource, nodes_of};
use crate::chain::{ChainSource, Help, NodeTip, SourceError};
use crate::clock::Clock;
use crate::config::{BitcoinChain, ChainConfig, EvmChain};
use crate::daemon;
use crate::egress::HttpDial;
use crate::follow::{Follower, Settings};
use crate::rules::chain_state::ChainState;
use crate::rules::{HeldHeader, TaggedBlock, Tags};
use crate::store::{Backfill, ChainKey, ChainRow, ListApplied, Listing, StoreError, WriteTx};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

type Way = ReadingDial<HttpDial>;

/// Between two rounds of a follower here: there is nothing to wait for.
const PAUSE: Duration = Duration::from_millis(5);

/// Rounds without anything left to do before a chain is taken to be settled: lists are applied in each.
const QUIET_ROUNDS: u32 = 6;

/// Most rounds of that, while what lists say of replaced payments is not agreed yet.
const QUIET_MAX: u32 = 500;

/// How far the node is put back.
const BEHIND: u64 = 3;

/// One chain.
pub(super) struct Chain<S> {
    pub(super) alias: String,
    settings: Settings,
    source: Arc<S>,
    list: Recorded,
}

/// A chain that the copy has followed, as it is there.
#[derive(Clone)]
pub(super) struct Stand {
    pub(super) row: ChainRow,
    pub(super) pin: Pin,
    /// A lower block, for a node that is behind.
    lower: Option<Pin>,
}

/// A chain of either kind.
pub(super) enum Any {
    Bitcoin(Chain<BitcoinSource<Way>>),
    Evm(Chain<EvmSource<Way>>),
}

impl Any {
    pub(super) fn bitcoin(chain: &BitcoinChain, clock: Clock) -> Result<Any, DrillError> {
        let node = BitcoinConfig::of(chain).map_err(|source| DrillError::Secret {
            alias: chain.alias.clone(),
            source,
        })?;
        let source = BitcoinSource::new(node, ReadingDial::new(HttpDial::new()), clock);
        Ok(Any::Bitcoin(Chain::new(ChainConfig::Bitcoin(chain), source)))
    }

    pub(super) async fn evm(chain: &EvmChain, bench: &Bench, clock: Clock) -> Result<Any, DrillError> {
        let nodes = nodes_of(chain, |endpoint| {
            ReadingDial::new(HttpDial::believing(endpoint.ca_file.clone()))
        });
        let nodes = nodes.map_err(|source| DrillError::Secret {
            alias: chain.alias.clone(),
            source,
        })?;
        let (new, inner) = (
            daemon::new_chain(ChainConfig::Evm(chain)),
            EvmRules::of(chain).last_inner(),
        );
        let known = bench.write("read the copy", move |tx| daemon::pin(tx, &new, inner));
        let source = EvmSource::of(chain, nodes, &known.await?, clock);
        Ok(Any::Evm(Chain::new(ChainConfig::Evm(chain), source)))
    }

    pub(super) fn alias(&self) -> &str {
        match self {
            Any::Bitcoin(chain) => &chain.alias,
            Any::Evm(chain) => &chain.alias,
        }
    }
}

/// Runs a method of [`Chain`] on a chain of either kind.
macro_rules! on {
    ($any:expr, $chain:ident => $call:expr) => {
        match $any {
            $crate::drill::chains::Any::Bitcoin($chain) => $call,
            $crate::drill::chains::Any::Evm($chain) => $call,
        }
    };
}
pub(super) use on;

/// A node that is below a block says nothing about it.
fn not_behind(tip: &NodeTip, at: &HeldHeader) -> Result<(), Stop> {
    match at.height.checked_sub(tip.height) {
        None | Some(0) => Ok(()),
        Some(blocks) => Err(Stop::WhyNot(format!(
            "not tried: the node is {} behind, at height {}",
            counted(blocks, "block"),
            tip.height
        ))),
    }
}

impl<S: ChainSource> Chain<S> {
    fn new(chain: ChainConfig<'_>, source: S) -> Chain<S> {
        let mut settings = daemon::follower_settings(chain);
        settings.poll = PAUSE;
        settings.mempool = Duration::ZERO;
        Chain {
            alias: chain.alias().to_owned(),
            settings,
            source: Arc::new(source),
            list: Recorded::default(),
        }
    }

    /// Where the chain stands in the copy; `None` where it was never followed.
    pub(super) async fn stand(&self, bench: &Bench) -> Result<Option<Stand>, DrillError> {
        let id = self.settings.chain.id.clone();
        bench
            .read("read the copy", move |tx| {
                let row = tx.chain(&id)?;
                let Some((row, at)) = row.and_then(|row| row.cursor.map(|at| (row, at))) else {
                    return Ok(None);
                };
                let tagged = |height: Option<u64>| -> Result<Option<TaggedBlock>, StoreError> {
                    let held = height.map(|height| tx.header_at(row.key, height));
                    let block = |held: HeldHeader| TaggedBlock {
                        height: held.height,
                        hash: held.header.hash,
                    };
                    Ok(held.transpose()?.flatten().map(block))
                };
                let tags = Tags {
                    safe: tagged(row.safe)?,
                    finalized: tagged(row.finalized)?,
                };
                let lower = tx.header_at(row.key, at.height.saturating_sub(BEHIND))?;
                let lower = lower.filter(|lower| lower.height < at.height);
                Ok(Some(Stand {
                    pin: Pin { at, tags },
                    lower: lower.map(|at| Pin { at, tags }),
                    row,
                }))
            })
            .await
    }

    /// Is the copy's tip (still) on the node's chain?
    pub(super) async fn look(&self, stand: &Stand) -> Result<(), Stop> {
        self.source.identity().await?;
        let (tip, at) = (self.source.tip().await?, stand.pin.at);
        not_behind(&tip, &at)?;
        match self.source.header(at.header.hash).await? {
            Some(info) if info.is_active => Ok(()),
            Some(_) | None => Err(Stop::Left {
                alias: self.alias.clone(),
                why: format!(
                    "the node does not have block {} at height {}, the copy's tip, on its chain",
                    self.settings.chain.id.print(at.header.hash),
                    at.height
                ),
            }),
        }
    }

    /// Lets the chain stand where the node's tip is, for a backup that has to catch up.
    pub(super) async fn go_to_tip(&self, stand: &mut Stand) -> Result<(), Stop> {
        self.source.identity().await?;
        let tip = self.source.tip().await?;
        not_behind(&tip, &stand.pin.at)?;
        let Some(info) = self.source.header(tip.hash).await? else {
            return Err(Stop::WhyNot(format!(
                "{}: the node left its tip just now",
                self.alias
            )));
        };
        stand.pin = Pin {
            at: info.held,
            tags: tip.tags,
        };
        Ok(())
    }

    async fn follower(
        &self,
        bench: &Bench,
        pin: Pin,
    ) -> Result<(Follower<Pinned<S>>, Arc<Pinned<S>>), DrillError> {
        let pinned = Arc::new(Pinned::new(self.source.clone(), pin, self.list.clone()));
        let store = bench.store.clone();
        let opened = Follower::open_shared(pinned.clone(), store, bench.clock, self.settings.clone());
        Ok((opened.await?, pinned))
    }

    /// A round; what the trouble was, if any.
    async fn round(
        &self,
        bench: &Bench,
        follower: &mut Follower<Pinned<S>>,
        key: ChainKey,
    ) -> Result<Option<Trouble>, DrillError> {
        follower.step().await?;
        let row = bench
            .read("read the copy", move |tx| tx.chain_by_key(key))
            .await?;
        Ok(match row.state {
            ChainState::Following | ChainState::Syncing | ChainState::FinalityStalled => None,
            ChainState::Starting
            | ChainState::Behind
            | ChainState::Unreachable
            | ChainState::MissingData
            | ChainState::DiskFull
            | ChainState::WrongNetwork
            | ChainState::PrunedGap
            | ChainState::ReorgTooDeep
            | ChainState::BadBlock => Some(Trouble {
                why: format!("{}: {}", row.state.word(), row.state_reason),
                is_halt: row.state.is_halt(),
            }),
        })
    }

    /// Waits where nothing went on, and says so once. A node that has left the tip never goes on with it, and
    /// a halt does not end by itself: neither is waited for.
    async fn wait(
        &self,
        bench: &Bench,
        stand: &Stand,
        waiting: &mut Waiting,
        Trouble { why, is_halt }: Trouble,
        told: Told<'_>,
    ) -> Result<(), Stop> {
        let stood = waiting.stood();
        if is_halt || stood >= PATIENCE {
            return Err(Stop::WhyNot(why));
        }
        if waiting.is_time_to_look(stood) {
            if let Err(left @ Stop::Left { .. }) = self.look(stand).await {
                return Err(left);
            }
            if waiting.is_first_look() {
                let (alias, most) = (&self.alias, PATIENCE.as_secs());
                told(format!(
                    "{alias}: nothing goes on ({why}), waiting up to {most} s"
                ));
            }
        }
        bench.clock.sleep(STALLED_PAUSE).await;
        Ok(())
    }

    /// Follows until nothing is left to do.
    pub(super) async fn settle(&self, bench: &Bench, stand: &Stand, told: Told<'_>) -> Result<(), Stop> {
        let key = stand.row.key;
        let (mut follower, _) = self.follower(bench, stand.pin).await?;
        self.work_off(bench, &mut follower, stand, told).await?;
        for quiet in 1..=QUIET_MAX {
            self.round(bench, &mut follower, key).await?;
            let is_agreed = bench.read("read the copy", move |tx| tx.has_rivals(key));
            if quiet >= QUIET_ROUNDS && !is_agreed.await? {
                break;
            }
        }
        Ok(())
    }

    /// Follows until the pinned tip is reached and nothing of a restore is left to do there.
    pub(super) async fn restore(&self, bench: &Bench, stand: &Stand, told: Told<'_>) -> Result<(), Stop> {
        let (key, id) = (stand.row.key, self.settings.chain.id.clone());
        let tip = stand.pin.at.height;
        let (mut follower, _) = self.follower(bench, stand.pin).await?;
        let (mut waiting, mut far) = (Waiting::new(bench.clock), Far::default());
        let mut last = None;
        loop {
            let trouble = self.round(bench, &mut follower, key).await?;
            let caip = id.as_str().to_owned();
            let standing = bench.read("read the copy", move |tx| {
                let row = tx.chain_by_key(key)?;
                let restores = tx.restores()?;
                let of_chain = restores.iter().flat_map(|restore| &restore.chains);
                let mut open = of_chain.filter(|(chain, _)| chain.caip == caip && is_under_way(chain.state));
                let told = open.next().map(|(_, told)| told.waiting);
                Ok((row.cursor.map(|at| at.height), told))
            });
            let at = standing.await?;
            if at == (Some(tip), None) {
                return Ok(());
            }
            if let Some(at) = at.0.and_then(|at| far.is_news(at)) {
                told(format!("{} is restored, {at} of {tip}", self.alias));
            }
            if last.as_ref() == Some(&at) {
                let trouble = trouble.unwrap_or_else(|| Trouble::stands("the restore does not go on"));
                self.wait(bench, stand, &mut waiting, trouble, told).await?;
            } else {
                waiting = Waiting::new(bench.clock);
            }
            last = Some(at);
        }
    }

    /// Follows until no rescan is running.
    async fn work_off(
        &self,
        bench: &Bench,
        follower: &mut Follower<Pinned<S>>,
        stand: &Stand,
        told: Told<'_>,
    ) -> Result<(), Stop> {
        let (key, tip) = (stand.row.key, stand.pin.at.height);
        let (mut waiting, mut far) = (Waiting::new(bench.clock), Far::default());
        let mut last = None;
        loop {
            let trouble = self.round(bench, follower, key).await?;
            let running = bench
                .read("read the copy", move |tx| tx.running_rescans(key))
                .await?;
            let row = bench
                .read("read the copy", move |tx| tx.chain_by_key(key))
                .await?;
            let at: Vec<(i64, u64, u64)> = running
                .iter()
                .map(|rescan| (rescan.id, rescan.next_height, rescan.applied_to))
                .collect();
            if at.is_empty() && trouble.is_none() {
                return Ok(());
            }
            if let Some(at) = at.first().and_then(|(_, next, _)| far.is_news(*next)) {
                told(format!("{} blocks, {at} of {tip}", self.alias));
            }
            if last.as_ref() == Some(&at) {
                let trouble = trouble.unwrap_or_else(|| Trouble::stands(&row.state_reason));
                self.wait(bench, stand, &mut waiting, trouble, told).await?;
            } else {
                waiting = Waiting::new(bench.clock);
            }
            last = Some(at);
        }
    }

    /// The lowest block whose time is not before `since_secs`, of those that the copy has read; above its tip
    /// where there is none.
    async fn first_since(&self, stand: &Stand, since_secs: u64) -> Result<u64, SourceError> {
        let (mut low, mut high) = (
            stand.row.start_height.unwrap_or(1).max(1),
            stand.pin.at.height + 1,
        );
        while low < high {
            let middle = low + (high - low) / 2;
            let held = self.source.headers(middle, 1).await?;
            let held = held.first().ok_or_else(|| SourceError::Unreachable {
                doing: format!("look for the first block of the drill at height {middle}"),
                why: "the node has none there".to_owned(),
                help: Help::Node,
                source: None,
            })?;
            match held.header.time_secs < since_secs {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok(low)
    }

    /// Feeds every block since a moment once more.
    pub(super) async fn blocks(
        &self,
        bench: &Bench,
        stand: &Stand,
        since_secs: u64,
        told: Told<'_>,
    ) -> Result<Step, Stop> {
        let (key, tip) = (stand.row.key, stand.pin.at.height);
        let from = self.first_since(stand, since_secs).await?;
        if from > tip {
            return Ok(Step::default());
        }
        let ask = bench.write("ask for a rescan", move |tx| {
            tx.ask_rescan(key, from, &Backfill::Nothing, "drill")
        });
        let rescan = ask.await?;
        let (mut follower, _) = self.follower(bench, stand.pin).await?;
        let fed = self.work_off(bench, &mut follower, stand, told).await;
        if let Err(Stop::WhyNot(_)) = &fed {
            let cancel = move |tx: &mut WriteTx<'_>| tx.cancel_rescan(key, rescan.id, "drill");
            bench.write("cancel a rescan", cancel).await?;
        }
        fed?;
        Ok(Step {
            from: Some(from),
            to: Some(tip),
            count: tip - from + 1,
            refused: 0,
        })
    }

    /// Lets the node be behind for some rounds, and be back.
    pub(super) async fn behind(&self, bench: &Bench, stand: &Stand, told: Told<'_>) -> Result<Step, Stop> {
        let (key, Some(lower)) = (stand.row.key, stand.lower) else {
            return Ok(Step::default());
        };
        let (mut follower, pinned) = self.follower(bench, lower).await?;
        for _ in 0..QUIET_ROUNDS {
            self.round(bench, &mut follower, key).await?;
        }
        pinned.set(stand.pin);
        self.work_off(bench, &mut follower, stand, told).await?;
        Ok(Step {
            from: Some(lower.at.height),
            to: Some(stand.pin.at.height),
            count: 1,
            refused: 0,
        })
    }

    /// Feeds the recorded mempool list, and lists that are outdated. `None` where nothing is listed.
    pub(super) async fn lists(
        &self,
        bench: &Bench,
        stand: &Stand,
        told: Told<'_>,
    ) -> Result<Option<Step>, Stop> {
        if !self.source.lists_mempool() {
            return Ok(None);
        }
        let key = stand.row.key;
        let (mut follower, _) = self.follower(bench, stand.pin).await?;
        self.work_off(bench, &mut follower, stand, told).await?;
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(list) = list else {
            return Err(Stop::WhyNot("the node's mempool could not be listed".to_owned()));
        };
        let poll = bench
            .read("read the copy", move |tx| Ok(tx.chain_by_key(key)?.mempool_poll))
            .await?;
        let mut elsewhere = list.clone();
        elsewhere.tip = stand.pin.at.header.parent;
        let terms = self.settings.terms.clone();
        let mut refused = 0;
        for (list, poll) in [(list.clone(), poll), (list.clone(), 0), (elsewhere, poll + 1)] {
            let terms = terms.clone();
            let listing = Listing {
                poll,
                is_synced: true,
                every_ms: 0,
            };
            let apply = bench.write("apply a list", move |tx| {
                tx.apply_mempool(key, &list, listing, &terms)
            });
            refused += u64::from(apply.await? == ListApplied::Outdated);
        }
        Ok(Some(Step {
            count: list.listed.len() as u64,
            refused,
            ..Step::default()
        }))
    }
}
