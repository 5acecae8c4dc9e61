//! One task per chain: compare tips, fetch, commit, wait. It owns the in-memory [`Index`] of its chain and
//! decides nothing by itself: what a difference of tips means is [`rules::fork`](crate::rules::fork)'s,
//! what a block means is the store's. It can be dropped at any await: everything it knows is in the
//! database. Start at [`Follower::run`].

mod ahead;
mod blocks;
mod branches;
mod credits;
mod expiry;
mod finality;
mod lists;
mod report;
mod rescan;
mod restore;
mod start;
mod sweep;

use crate::chain::{ChainSource, NodeTip, SourceError};
use crate::clock::{Clock, millis};
use crate::index::Index;
use crate::pulse::Pulse;
use crate::rules::chain_state::ChainState;
use crate::rules::fork::{EqualBranches, ForkStep};
use crate::rules::{BlockHash, HeldHeader, MempoolList, Tags};
use crate::store::{ChainKey, ChainRow, NewChain, Store, StoreError, Terms};
use expiry::ListSeen;
use finality::Finality;
use std::sync::Arc;
use std::time::Duration;
use sweep::Sweep;
use thiserror::Error;

/// Where a chain that was never followed starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the block after the tip that the node has then.
    Tip,
    /// At a height, from 1.
    Height(u64),
}

/// What the config says about one chain.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who the chain is.
    pub chain: NewChain,
    /// Where it starts when it was never followed.
    pub start: Start,
    /// What decides about deposits.
    pub terms: Terms,
    /// How often the tip is asked for.
    pub poll: Duration,
    /// How often the mempool is listed.
    pub mempool: Duration,
    /// A tip older than this is not believed to be the newest; `None` on chains that mine on demand.
    pub tip_age_max: Option<Duration>,
    /// EVM: how long every node must have served a branch that is no better than ours, and it alone, before
    /// it is taken; `None` = only on an operator's word.
    pub fork_patience: Option<Duration>,
}

/// Why a follower stopped for good: only the database can make it.
#[derive(Debug, Error)]
#[error("follow {alias}")]
pub struct FollowError {
    /// The chain's short name.
    pub alias: String,
    /// What the database said.
    #[source]
    pub source: StoreError,
}

/// Trouble in one round. The chain waits or halts in a named state; the next round tries again.
#[derive(Debug, Error)]
enum Trouble {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A state that the round itself found.
    #[error("{reason}")]
    Stuck { state: ChainState, reason: String },
}

/// How the next round begins.
enum Next {
    /// There is more to do at once.
    AtOnce,
    /// Everything is done: wait for the node.
    Wait,
}

/// Outpoints of interest are loaded anew after this many connected blocks, which forgets those past the
/// window.
const RELOAD_BLOCKS: u64 = 144;

/// Where operators find what to do about a reorg that is too deep.
const REANCHOR: &str = "docs/operations.md has the steps (A reorg deeper than the window)";

/// The follower of one chain.
pub struct Follower<S: ChainSource> {
    source: Arc<S>,
    store: Store,
    clock: Clock,
    settings: Settings,
    terms: Arc<Terms>,
    key: ChainKey,
    index: Index,
    /// True once the node has shown who it is; false again after it was out of reach.
    is_identified: bool,
    /// The number of the last mempool list that was asked for.
    poll: i64,
    last_list: Option<(Arc<MempoolList>, tokio::time::Instant)>,
    listed_at: Option<tokio::time::Instant>,
    list_seen: Option<ListSeen>,
    /// When what may expire was last looked for, for `creditd jobs`.
    expiry_noted_at: Option<tokio::time::Instant>,
    connected_since_load: u64,
    equals: EqualBranches,
    /// Our tip and the node's when a fork point between them was found last, and its height.
    forked: Option<(BlockHash, BlockHash, u64)>,
    /// Since when every node has served a branch that is no better than ours.
    left_since: Option<tokio::time::Instant>,
    /// The block of ours that other nodes were asked for last and did not have yet.
    agreeing: Option<HeldHeader>,
    /// The finality tags that were told last.
    tags: Tags,
    /// Up to where our blocks are safe, and final, and since when.
    finality: Finality,
    failures: u32,
    /// How many hints of something to see were followed.
    hints_seen: u64,
    /// For how many looks in a row the node has been behind, or without a block that it has promised.
    looks_behind: u32,
    /// What is under way since a backup was restored, in words; empty when nothing.
    restoring: String,
    /// What a rescan needs and the node does not have; empty when nothing.
    rescan_waits_for: String,
    /// Balances that are compared from time to time.
    sweep: Option<Sweep>,
    /// The node's height at this round's look, which a reason may name; `None` before it has told one.
    node_seen: Option<u64>,
    reported: Option<(ChainState, String, Option<u64>)>,
    pulse: Pulse,
}

fn cursor_of(row: &ChainRow) -> Result<HeldHeader, StoreError> {
    row.cursor
        .ok_or_else(|| StoreError::Contradiction("an anchored chain without cursor".into()))
}

impl<S: ChainSource> Follower<S> {
    /// Makes the chain known to the database, applies the policy as it is now to what is uncredited, and
    /// loads the index.
    ///
    /// # Errors
    /// What the database says.
    pub async fn open(
        source: S,
        store: Store,
        clock: Clock,
        settings: Settings,
    ) -> Result<Follower<S>, FollowError> {
        Follower::open_shared(Arc::new(source), store, clock, settings).await
    }

    /// The same, errors too, with a source that somebody else looks at as well.
    pub async fn open_shared(
        source: Arc<S>,
        store: Store,
        clock: Clock,
        settings: Settings,
    ) -> Result<Follower<S>, FollowError> {
        let terms = Arc::new(settings.terms.clone());
        let alias = settings.chain.alias.clone();
        let fail = |source| FollowError {
            alias: alias.clone(),
            source,
        };
        let new = settings.chain.clone();
        let policy = terms.clone();
        let opened = store.write_patiently(move |tx| {
            let row = tx.ensure_chain(&new)?;
            let changed = tx.apply_policy(row.key, &policy)?;
            tx.forget_below_window(row.key, policy.reorg_window)?;
            Ok((row, changed))
        });
        let (row, changed) = opened.await.map_err(fail)?;
        if changed > 0 {
            tracing::info!(chain = %alias, "the policy changed for {changed} uncredited deposits of {alias}");
        }
        let mut follower = Follower {
            source,
            store,
            clock,
            terms,
            key: row.key,
            index: Index::default(),
            is_identified: false,
            poll: row.mempool_poll,
            last_list: None,
            listed_at: None,
            list_seen: None,
            expiry_noted_at: None,
            connected_since_load: 0,
            equals: EqualBranches::default(),
            forked: None,
            left_since: None,
            agreeing: None,
            tags: Tags::default(),
            finality: Finality::new(clock.instant()),
            failures: 0,
            hints_seen: 0,
            looks_behind: 0,
            restoring: String::new(),
            rescan_waits_for: String::new(),
            sweep: None,
            node_seen: None,
            reported: None,
            pulse: Pulse::default(),
            settings,
        };
        follower.refresh_index().await.map_err(fail)?;
        follower
            .reload_outpoints(row.cursor.as_ref())
            .await
            .map_err(fail)?;
        Ok(follower)
    }

    /// Shows its signs of life and its state on `pulse`.
    #[must_use]
    pub fn with_pulse(mut self, pulse: Pulse) -> Follower<S> {
        self.pulse = pulse;
        self
    }

    /// Follows the chain for ever.
    ///
    /// # Errors
    /// Only when the database cannot be used any more; everything else is a named state.
    pub async fn run(mut self) -> Result<(), FollowError> {
        loop {
            self.step().await?;
        }
    }

    /// One round and the wait after it. Public so that tests and the simulator can count rounds.
    ///
    /// # Errors
    /// As [`Follower::run`].
    pub async fn step(&mut self) -> Result<(), FollowError> {
        self.pulse.beat(self.clock, Duration::ZERO);
        match self.round().await {
            Ok((tip, Next::AtOnce)) => {
                self.went_well();
                self.report_following(&tip).await
            }
            Ok((tip, Next::Wait)) => {
                self.went_well();
                self.report_following(&tip).await?;
                let span = self.until_next_look();
                self.pulse.beat(self.clock, span);
                self.wait_for_news(&tip, span).await
            }
            Err(trouble) => self.suffer(trouble).await,
        }
    }

    /// One look at the node and everything that follows from it.
    async fn round(&mut self) -> Result<(NodeTip, Next), Trouble> {
        self.node_seen = None;
        if !self.is_identified {
            let identity = self.source.identity().await?;
            let alias = &self.settings.chain.alias;
            tracing::info!(chain = %alias, software = %identity.software, "{alias} is {}", identity.chain);
            let (key, genesis, unlisted) = (self.key, identity.genesis, identity.unlisted);
            self.store
                .write(move |tx| {
                    tx.pin_genesis(key, genesis)?;
                    tx.unlist(key, &unlisted)
                })
                .await
                .map_err(|error| match error {
                    StoreError::Refused(why) => Trouble::Source(SourceError::WrongNetwork(why)),
                    other => Trouble::Store(other),
                })?;
            self.is_identified = true;
        }
        let asked_at = self.clock.now_ms();
        let mut node = self.source.tip().await?;
        self.node_seen = Some(node.height);
        self.pulse.note_node(node.height);
        self.refresh_index().await?;
        let Some(row) = self.anchored(&node).await? else {
            return Ok((node, Next::AtOnce));
        };
        let is_restoring = self.is_restoring().await?;
        let mut tip = cursor_of(&row)?;
        self.finality.note(self.clock.instant(), row.safe, row.finalized);
        let step = self.judge(&tip, &node, row.finalized).await?;
        let followed = self.follow_tip(step, &tip, &node).await;
        if matches!(followed, Err(Trouble::Source(_) | Trouble::Store(_))) {
            // The node may have shown two branches while the fork point was looked for.
            self.forked = None;
        }
        if self.reanchor(step, &followed).await? {
            return Ok((node, Next::AtOnce));
        }
        if followed? {
            let key = self.key;
            let row = self.store.read(move |tx| tx.chain_by_key(key)).await?;
            tip = cursor_of(&row)?;
            if tip.header.hash != node.hash && tip.height <= node.height {
                return Ok((node, Next::AtOnce));
            }
            // Where blocks come faster than rounds, there are always more: what is due at the tip and beside
            // it has its turn all the same. Read beyond the tip that it told, the node is where we are.
            self.finality.note(self.clock.instant(), row.safe, row.finalized);
            node = node.moved_on(&tip);
        }
        self.credit_waiting(&tip, &node).await?;
        self.list_mempool(&tip, &node).await?;
        self.expire(&tip, &node, asked_at).await?;
        if is_restoring && self.go_on_restoring(&tip, &node).await? {
            return Ok((node, Next::AtOnce));
        }
        let next = if self.rescan_slice(&tip, &node).await? {
            Next::AtOnce
        } else {
            Next::Wait
        };
        Ok((node, next))
    }

    /// Works off a re-anchoring that an operator asked for, once the node serves our hash there. `followed`
    /// is what came of `step`: where we can go along with the node without anybody's word, the word is void.
    async fn reanchor(&mut self, step: ForkStep, followed: &Result<bool, Trouble>) -> Result<bool, Trouble> {
        let key = self.key;
        let Some(asked) = self.store.read(move |tx| tx.asked_reanchor(key)).await? else {
            return Ok(false);
        };
        let ours = self
            .store
            .read(move |tx| tx.header_at(key, asked.fork_height))
            .await?;
        let why = if ours.is_none_or(|ours| ours.header.hash != asked.fork_hash) {
            Some("our chain has left that block by itself")
        } else {
            match (step, followed) {
                (ForkStep::AtTip | ForkStep::Extend, _) => Some("the node is on our branch"),
                (ForkStep::Reorg { .. }, Ok(_)) => Some("the node's branch left ours within the window"),
                (ForkStep::Reorg { .. }, Err(Trouble::Stuck { .. })) => None,
                (ForkStep::Reorg { .. }, Err(_)) | (ForkStep::Behind, _) => return Ok(false),
                (ForkStep::TooDeep | ForkStep::BehindOnOtherBranch, _) => None,
            }
        };
        if let Some(why) = why {
            self.store
                .write(move |tx| tx.void_reanchor(key, &asked, why))
                .await?;
            return Ok(false);
        }
        if self.source.hashes(asked.fork_height, 1).await?.first() != Some(&asked.fork_hash) {
            // Until it does, the chain goes on (or stays halted) as if nothing had been asked.
            return Ok(false);
        }
        let terms = self.terms.clone();
        let working = self
            .store
            .write_alone(move |tx| tx.work_reanchor(key, &asked, &terms));
        if !working.await? {
            return Ok(false);
        }
        self.last_list = None;
        self.reload_outpoints(None).await?;
        Ok(true)
    }

    /// Brings our tip to the node's, as far as one round goes. True when there may be more.
    async fn follow_tip(
        &mut self,
        step: ForkStep,
        tip: &HeldHeader,
        node: &NodeTip,
    ) -> Result<bool, Trouble> {
        let node_is_better = node.chainwork >= tip.chainwork;
        let behind = |reason: String| {
            Err(Trouble::Stuck {
                state: ChainState::Behind,
                reason,
            })
        };
        match step {
            ForkStep::AtTip => Ok(false),
            ForkStep::Extend => self.catch_up(tip, node).await,
            ForkStep::Reorg { fork_height } => self.reorg(tip, node, fork_height, !node_is_better).await,
            ForkStep::Behind => behind(format!(
                "the node is at height {}, we are at {} on the same chain",
                node.height, tip.height
            )),
            ForkStep::BehindOnOtherBranch => behind(self.other_branch(tip, node)),
            ForkStep::TooDeep => Err(Trouble::Stuck {
                state: ChainState::ReorgTooDeep,
                reason: match self.left_since {
                    Some(_) => format!(
                        "the nodes have left our branch for one without our final block, or without any of \
                         the last {} blocks below height {}; {REANCHOR}",
                        self.terms.reorg_window, tip.height
                    ),
                    None => format!(
                        "no common ancestor in the last {} blocks below height {}, as far as they are held \
                         in a row; {REANCHOR}",
                        self.terms.reorg_window, tip.height
                    ),
                },
            }),
        }
    }

    /// Why the node's tip is not to be believed the newest, if so.
    fn node_trouble(&self, node: &NodeTip) -> Option<String> {
        if node.is_syncing {
            return Some(format!(
                "the node is catching up: block {} of {}",
                node.height, node.headers
            ));
        }
        let age_secs = self.clock.now_ms() / 1000 - i64::try_from(node.time_secs).unwrap_or(i64::MAX);
        let limit = self.settings.tip_age_max?;
        let is_old = i64::try_from(limit.as_secs()).is_ok_and(|limit| age_secs > limit);
        is_old.then(|| format!("the node's newest block is {} minutes old", age_secs / 60))
    }

    async fn refresh_index(&mut self) -> Result<(), StoreError> {
        let (key, since) = (self.key, self.index.version());
        let newer = self.store.read(move |tx| tx.newer_scripts(key, since)).await?;
        if let Some((shorts, version)) = newer {
            self.index.reserve_scripts(shorts.len());
            self.index.add_scripts(shorts, version);
        }
        Ok(())
    }

    async fn reload_outpoints(&mut self, cursor: Option<&HeldHeader>) -> Result<(), StoreError> {
        let (key, window, cursor) = (self.key, self.terms.reorg_window, cursor.copied());
        let outpoints = self.store.read(move |tx| {
            let finalized = tx.chain_by_key(key)?.finalized;
            let height = cursor.map_or(0, |tip| branches::lowest(tip.height, window, finalized));
            tx.outpoints_of_interest(key, height)
        });
        let outpoints = outpoints.await?;
        self.index.replace_outpoints(outpoints);
        self.connected_since_load = 0;
        Ok(())
    }

    fn until_next_look(&self) -> Duration {
        // A list that is due already was put off by this round: it is for the next look, not for one at once.
        let list_due = self
            .listed_at
            .map(|at| self.settings.mempool.saturating_sub(self.clock.instant() - at))
            .filter(|due| !due.is_zero());
        let poll = self.settings.poll;
        list_due
            .map_or(poll, |due| poll.min(due))
            .max(Duration::from_millis(1))
    }

    /// The span of `since` in milliseconds, for batches that end by time.
    fn elapsed_ms(&self, since: tokio::time::Instant) -> i64 {
        millis(self.clock.instant() - since)
    }
}
