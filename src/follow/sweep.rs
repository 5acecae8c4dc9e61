//! The sweep of balances: beside the tip, in the time between two looks at the node. An exchange that is
//! under way when it is time to look is kept and taken on after the round, so that a slow node makes only the
//! sweep slow; and what fails is trouble of the sweep, never of the chain.

use super::{FollowError, Follower, Settings, Trouble};
use crate::chain::{ChainSource, NodeTip, SourceError};
use crate::clock::{Clock, millis};
use crate::rules::{Amount, BlockHash, Script};
use crate::store::{
    BalanceRead, ChainKey, JobOutcome, Opening, Store, StoreError, SweepSpan, SweepWork, Work,
};
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The most balances that are asked for at a time.
const SLICE_MAX: u32 = 500;

/// The longest pause after an exchange that failed.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// A block so close to the tip that a node which does not tell its state only lags.
const LAG_BLOCKS: u64 = 32;

type Asking = Pin<Box<dyn Future<Output = Result<Vec<BalanceRead>, SourceError>> + Send>>;

/// A sweep, and how it stands.
pub(super) struct Sweep {
    every: Duration,
    /// Nobody else holds it: the lock is there because the exchange itself cannot be looked at from several
    /// threads.
    asking: Mutex<Option<Asking>>,
    /// After trouble: not before.
    not_before: Option<Instant>,
    failures: u32,
    waits_for: String,
}

impl Sweep {
    pub(super) fn new(every: Duration) -> Sweep {
        Sweep {
            every,
            asking: Mutex::new(None),
            not_before: None,
            failures: 0,
            waits_for: String::new(),
        }
    }

    /// What it waits for, in words; empty when for nothing.
    pub(super) fn waits_for(&self) -> &str {
        &self.waits_for
    }

    fn asking(&mut self) -> &mut Option<Asking> {
        self.asking.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a sweep needs of its follower.
struct Sweeping<'f, S> {
    source: &'f Arc<S>,
    store: &'f Store,
    clock: Clock,
    key: ChainKey,
    settings: &'f Settings,
    script_count: usize,
    sweep: &'f mut Sweep,
}

impl<S: ChainSource> Follower<S> {
    /// Compares the balance of each watched address once in `every` with what was recorded.
    #[must_use]
    pub fn with_sweep(mut self, every: Option<Duration>) -> Follower<S> {
        self.sweep = every.map(Sweep::new);
        self
    }

    /// Waits for the next look at the node, and sweeps meanwhile.
    pub(super) async fn wait_and_sweep(&mut self, node: &NodeTip, span: Duration) -> Result<(), FollowError> {
        let is_at_ease = self.node_trouble(node).is_none();
        let sweeping = self.sweep.as_mut().map(|sweep| Sweeping {
            source: &self.source,
            store: &self.store,
            clock: self.clock,
            key: self.key,
            settings: &self.settings,
            script_count: self.index.script_count(),
            sweep,
        });
        let Some(mut sweeping) = sweeping.filter(|_| is_at_ease) else {
            self.source.wait(node.hash, span).await;
            return Ok(());
        };
        let fault = tokio::select! {
            biased;
            () = self.source.wait(node.hash, span) => None,
            fault = sweeping.slice_and_rest(node) => Some(fault),
        };
        fault.map_or(Ok(()), |fault| Err(self.fatal(Trouble::Store(fault))))
    }
}

impl<S: ChainSource> Sweeping<'_, S> {
    /// One slice; returns only when the database cannot be used any more.
    async fn slice_and_rest(&mut self, node: &NodeTip) -> StoreError {
        match self.slice(node).await {
            Ok(()) | Err(StoreError::Busy(_) | StoreError::DiskFull(_)) => pending().await,
            Err(error) => error,
        }
    }

    /// What the database can do by itself, then one exchange with the node.
    async fn slice(&mut self, node: &NodeTip) -> Result<(), StoreError> {
        if self.sweep.asking().is_none() {
            if self.sweep.not_before.is_some_and(|at| self.clock.instant() < at) {
                return Ok(());
            }
            *self.sweep.asking() = self.next_exchange(node).await?;
        }
        let Some(asking) = self.sweep.asking() else {
            return Ok(());
        };
        let told = asking.await;
        *self.sweep.asking() = None;
        self.take_balances(told).await
    }

    async fn next_exchange(&self, node: &NodeTip) -> Result<Option<Asking>, StoreError> {
        let (key, window) = (self.key, self.settings.terms.reorg_window);
        let every = self.sweep.every;
        let span = SweepSpan {
            every_ms: millis(every),
            openings_max: SLICE_MAX,
            readings_max: slice(self.script_count, self.settings.poll, every),
            reorg_window: window,
        };
        let now = self.clock.now_ms();
        let work = self.store.read(move |tx| tx.sweep_work(key, span, now)).await?;
        let Some(work) = work else {
            return Ok(None);
        };
        if work.has_chores {
            let chores = self.store.write(move |tx| tx.sweep_chores(key, window));
            let found = chores.await?;
            if found > 0 {
                let alias = &self.settings.chain.alias;
                tracing::warn!(
                    chain = %alias,
                    "{alias}: coin came to {found} watched addresses that no recorded payment explains: \
                     `creditd unattributed list`"
                );
                self.store.wake();
            }
        }
        // Readings are of the node's tip, which is ours when there is nothing left to connect.
        let is_at_tip = work.tip.header.hash == node.hash;
        if !is_at_tip || (work.due.is_empty() && work.openings.is_empty()) {
            return Ok(None);
        }
        Ok(Some(Box::pin(ask(Arc::clone(self.source), work))))
    }

    async fn take_balances(&mut self, told: Result<Vec<BalanceRead>, SourceError>) -> Result<(), StoreError> {
        let waits_for = match told {
            Ok(reads) => {
                let is_told = reads.is_empty() || reads.iter().any(|read| read.balance.is_some());
                let key = self.key;
                let noted = self.store.write(move |tx| {
                    tx.note_balances(key, &reads)?;
                    let done = JobOutcome::Done(format!("{} balances", reads.len()));
                    tx.note_work(Work::Sweep, Some(key), None, &done)
                });
                noted.await?;
                match is_told {
                    true => String::new(),
                    false => "the sweep of balances waits: the node tells none at the blocks that it was \
                              asked for"
                        .to_owned(),
                }
            }
            Err(error) => format!("the sweep of balances waits: {error}"),
        };
        let sweep = &mut *self.sweep;
        if waits_for.is_empty() {
            (sweep.failures, sweep.not_before) = (0, None);
        } else {
            let pause = self.settings.poll * 2_u32.saturating_pow(sweep.failures.min(16));
            sweep.failures = sweep.failures.saturating_add(1);
            sweep.not_before = Some(self.clock.instant() + pause.min(PAUSE_MAX));
        }
        let alias = &self.settings.chain.alias;
        match (waits_for.is_empty(), sweep.waits_for.is_empty()) {
            (true, false) => tracing::info!(chain = %alias, "{alias}: the sweep of balances goes on"),
            (false, true) => tracing::warn!(chain = %alias, "{alias}: {waits_for}"),
            (true, true) | (false, false) => {}
        }
        sweep.waits_for = waits_for;
        Ok(())
    }
}

/// How many balances to read at each look, so that each is read once in `every`.
fn slice(count: usize, poll: Duration, every: Duration) -> u32 {
    let looks = (every.as_millis() / poll.as_millis().max(1)).max(1);
    let count = u128::try_from(count).unwrap_or(u128::MAX);
    u32::try_from(count.div_ceil(looks)).map_or(SLICE_MAX, |slice| slice.clamp(1, SLICE_MAX))
}

async fn ask<S: ChainSource>(source: Arc<S>, work: SweepWork) -> Result<Vec<BalanceRead>, SourceError> {
    let SweepWork {
        openings, due, tip, ..
    } = &work;
    let (held, mut gone): (Vec<&Opening>, Vec<&Opening>) =
        openings.iter().partition(|opening| opening.hash.is_some());
    let at_start = held
        .iter()
        .filter_map(|opening| Some((opening.hash?, opening.script.clone())));
    let at_tip = due.iter().map(|(_, script)| (tip.header.hash, script.clone()));
    let asked: Vec<(BlockHash, Script)> = at_start.chain(at_tip).collect();
    let mut told = balances(&*source, &asked).await?.into_iter();
    let mut reads = Vec::new();
    for opening in held {
        let balance = told.next().flatten();
        if balance.is_none() && opening.wanted.saturating_add(LAG_BLOCKS) < tip.height {
            gone.push(opening);
            continue;
        }
        reads.extend(
            opening
                .hash
                .map(|hash| opened(opening, opening.wanted, hash, balance)),
        );
    }
    for ((address, _), balance) in due.iter().zip(told) {
        reads.push(BalanceRead {
            address: *address,
            height: tip.height,
            hash: tip.header.hash,
            balance,
            wanted: None,
        });
    }
    reads.extend(open_later(&*source, &work.later, &gone).await?);
    Ok(reads)
}

/// Opens intervals whose first state is gone, each at the lowest later block whose state the node still has.
async fn open_later<S: ChainSource>(
    source: &S,
    later: &[(u64, BlockHash)],
    gone: &[&Opening],
) -> Result<Vec<BalanceRead>, SourceError> {
    let Some(first) = gone.first() else {
        return Ok(Vec::new());
    };
    let probe = |(_, hash): &(u64, BlockHash)| (*hash, first.script.clone());
    let probes: Vec<(BlockHash, Script)> = later.iter().map(probe).collect();
    let told = balances(source, &probes).await?;
    let there = later.iter().zip(told).filter(|(_, balance)| balance.is_some());
    let there: Vec<(u64, BlockHash)> = there.map(|(block, _)| *block).collect();
    let start = |opening: &&&Opening| {
        let mut above = there.iter().filter(|(height, _)| *height > opening.wanted);
        // Where there is none the balance is not told here either, and others have their turn first.
        above.next().or(later.last()).copied()
    };
    let started = gone
        .iter()
        .filter_map(|opening| Some((*opening, start(&opening)?)));
    let started: Vec<(&Opening, (u64, BlockHash))> = started.collect();
    let asked = started
        .iter()
        .map(|(opening, (_, hash))| (*hash, opening.script.clone()));
    let told = balances(source, &asked.collect::<Vec<_>>()).await?;
    let read = |(&(opening, (height, hash)), balance): (&(&Opening, (u64, BlockHash)), _)| {
        opened(opening, height, hash, balance)
    };
    Ok(started.iter().zip(told).map(read).collect())
}

fn opened(opening: &Opening, height: u64, hash: BlockHash, balance: Option<Amount>) -> BalanceRead {
    BalanceRead {
        address: opening.address,
        height,
        hash,
        balance,
        wanted: Some(opening.wanted),
    }
}

async fn balances<S: ChainSource>(
    source: &S,
    asked: &[(BlockHash, Script)],
) -> Result<Vec<Option<Amount>>, SourceError> {
    match asked {
        [] => Ok(Vec::new()),
        asked => source.balances(asked).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_what_a_sweep_needs_at_each_look() {
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3_600));
        for (count, every, expected) in [
            (0, hour, 1),
            (1, hour, 1),
            (3_600, hour, 1),
            (3_601, hour, 2),
            (1_000_000, hour, 278),
            (10_000_000, hour, 500),
            (40, second, 40),
            (40, second / 10, 40),
        ] {
            assert_eq!(slice(count, second, every), expected, "{count}");
        }
    }
}
