//! How an endpoint stands, in words.

use super::choose::Look;
use crate::chain::rpc::RpcError;
use crate::rules::TaggedBlock;
use std::time::Duration;
use tokio::time::Instant;

/// So many blocks are a difference: with fewer, an endpoint's tip is level with that of the one in use.
const APART_BLOCKS: u64 = 3;

/// An endpoint in use that has shown the same tip for so long is stuck, if others show higher ones; so is one
/// that has been lower than another for so long, however it moves.
const STUCK: Duration = Duration::from_secs(60);

/// How long an endpoint is left alone after its first failure; twice as long after each more.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest that it is left alone.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How an endpoint stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was not asked yet.
    Unchecked,
    /// It is on our chain and has answered since then.
    Healthy {
        /// Since when.
        since: Instant,
    },
    /// It does not answer, or not so that it can be used.
    Unreachable {
        /// Why, at the last try.
        why: String,
        /// Since when.
        since: Instant,
        /// Not before then is it asked again, if there is another.
        again_at: Instant,
    },
    /// It has had enough of us.
    RateLimited {
        /// Its own words.
        why: String,
        /// Nothing is asked of it before.
        until: Instant,
    },
    /// It showed another chain, and is not used again until a restart.
    Quarantined {
        /// What it showed.
        why: String,
    },
}

impl Standing {
    /// The words that follow the endpoint's name.
    pub fn words(&self, now: Instant) -> String {
        let secs = |later: Instant, earlier: Instant| later.saturating_duration_since(earlier).as_secs();
        match self {
            Standing::Unchecked => "not checked yet".to_owned(),
            Standing::Healthy { since } => format!("healthy for {} s", secs(now, *since)),
            Standing::Unreachable { why, since, .. } => {
                format!("unreachable for {} s: {why}", secs(now, *since))
            }
            Standing::RateLimited { why, until } => {
                format!("over its limit, left alone for {} s: {why}", secs(*until, now))
            }
            Standing::Quarantined { why } => format!("not used until a restart: {why}"),
        }
    }

    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Standing::Unchecked => "unchecked",
            Standing::Healthy { .. } => "healthy",
            Standing::Unreachable { .. } => "unreachable",
            Standing::RateLimited { .. } => "rate_limited",
            Standing::Quarantined { .. } => "quarantined",
        }
    }
}

/// A tip as an endpoint showed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenTip {
    /// The block.
    pub block: TaggedBlock,
    /// When it was shown first.
    pub since: Instant,
    /// When it was shown last.
    pub at: Instant,
}

/// What an endpoint's tip is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// Nothing: no tip of the one in use is known, or it does not matter.
    None,
    /// The endpoint is the one in use.
    Itself,
    /// The height of the tip of the one in use.
    Height(u64),
}

/// What is remembered of an endpoint.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) standing: Standing,
    pub(super) tip: Option<SeenTip>,
    /// When it last showed who it is, and how many connections had been begun by then.
    pub(super) shown: Option<(Instant, u64)>,
    /// The height above which a checkpoint is still to be shown.
    pub(super) unproven_above: Option<u64>,
    /// When it was last asked for its tip while it stood by.
    pub(super) looked_at: Option<Instant>,
    /// The one in use: since when another one has been ahead of it.
    behind_since: Option<Instant>,
    failures: u32,
}

impl Record {
    pub(super) fn new() -> Record {
        Record {
            standing: Standing::Unchecked,
            tip: None,
            shown: None,
            unproven_above: None,
            looked_at: None,
            behind_since: None,
            failures: 0,
        }
    }

    /// What matters of it for the choice.
    pub(super) fn look(&self, now: Instant, reference: Reference) -> Look {
        match &self.standing {
            Standing::Unchecked => Look::Untried,
            Standing::Healthy { since } => {
                let span = now.saturating_duration_since(*since);
                match reference {
                    Reference::Itself if self.is_stuck() || self.is_long_behind(now) => Look::Stuck,
                    Reference::Itself | Reference::None => Look::Steady(span),
                    Reference::Height(theirs) => match self.tip.map(|tip| tip.block.height) {
                        Some(ours) if ours >= theirs.saturating_add(APART_BLOCKS) => Look::Ahead(span),
                        Some(ours) if ours.saturating_add(APART_BLOCKS) > theirs => Look::Steady(span),
                        Some(_) | None => Look::Behind,
                    },
                }
            }
            Standing::Unreachable { again_at, .. } => Look::Failed(again_at.saturating_duration_since(now)),
            Standing::RateLimited { until, .. } => match until.saturating_duration_since(now) {
                // Its time has come: nothing more is known against it.
                Duration::ZERO => Look::Untried,
                left => Look::Limited(left),
            },
            Standing::Quarantined { .. } => Look::Quarantined,
        }
    }

    /// Has it shown one and the same tip, to whoever asked, for long?
    fn is_stuck(&self) -> bool {
        self.tip
            .is_some_and(|tip| tip.at.saturating_duration_since(tip.since) >= STUCK)
    }

    fn is_long_behind(&self, now: Instant) -> bool {
        self.behind_since
            .is_some_and(|since| now.saturating_duration_since(since) >= STUCK)
    }

    /// Is another one ahead of it now?
    pub(super) fn note_behind(&mut self, now: Instant, is_behind: bool) {
        self.behind_since = is_behind.then(|| self.behind_since.unwrap_or(now));
    }

    /// It has answered.
    pub(super) fn answered(&mut self, now: Instant) {
        self.failures = 0;
        match &self.standing {
            Standing::Healthy { .. } | Standing::Quarantined { .. } => {}
            Standing::Unchecked | Standing::Unreachable { .. } | Standing::RateLimited { .. } => {
                self.standing = Standing::Healthy { since: now };
            }
        }
    }

    /// It has not, or so that nothing of it can be used.
    pub(super) fn failed(&mut self, now: Instant, error: &RpcError) {
        match error {
            RpcError::RateLimited { retry_after, why } => {
                if !matches!(self.standing, Standing::Quarantined { .. }) {
                    self.standing = Standing::RateLimited {
                        why: why.clone(),
                        until: now + *retry_after,
                    };
                }
            }
            other => self.unusable(now, other.to_string()),
        }
    }

    /// The same where it has answered, and oddly.
    pub(super) fn unusable(&mut self, now: Instant, why: String) {
        let since = match &self.standing {
            Standing::Quarantined { .. } => return,
            Standing::Unreachable { since, .. } => *since,
            Standing::Unchecked | Standing::Healthy { .. } | Standing::RateLimited { .. } => now,
        };
        let pause = FIRST_PAUSE
            .saturating_mul(1 << self.failures.min(6))
            .min(LONGEST_PAUSE);
        self.failures += 1;
        // Whoever answers next may be another.
        self.shown = None;
        self.standing = Standing::Unreachable {
            why,
            since,
            again_at: now + pause,
        };
    }

    /// It is on another chain.
    pub(super) fn quarantine(&mut self, why: String) {
        self.tip = None;
        self.shown = None;
        self.standing = Standing::Quarantined { why };
    }

    /// It showed this tip.
    pub(super) fn saw(&mut self, now: Instant, block: TaggedBlock) {
        let since = match self.tip {
            Some(tip) if tip.block == block => tip.since,
            Some(_) | None => now,
        };
        self.tip = Some(SeenTip {
            block,
            since,
            at: now,
        });
    }
}
