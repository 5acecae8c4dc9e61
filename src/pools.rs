//! Filling the pools of addresses to hand out: each is derived in two ways, and only what both agree on is
//! put in. What is handed out, and when, is the store's; see `store::pool`. Start at [`Pools::list`].

use crate::chain::bitcoin::BitcoinSource;
use crate::config::{AddressSource, ListError, Scope, SourceFrom};
use crate::egress::Dial;
use crate::jobs::{self, Job};
use crate::rules::{ChainId, Script};
use crate::store::{
    JobOutcome, NewChain, NewSource, POOL_JOB, PoolWork, RestoredRange, SourceKind, SourceStanding, Store,
    StoreError, WriteTx,
};
use crate::telemetry::error_line;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A pool that is half empty makes the job due at once; this is for one whose last filling failed.
const EVERY: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(120);

/// So many are derived and checked at a time: a write of this size lets others have their turn.
const BATCH: u32 = 200;

/// What keeps the pool of a list from being filled at its end.
const LIST_OVER: &str = "the list has no more addresses: add some at its end";

/// What keeps addresses of a restored backup from being watched where nobody has them.
const NOT_IN_CONFIG: &str = "the config has no [[addresses]] with these: bring them back and restart, or \
                             `creditd restored --leave-out`";

/// The sources of the config, with what checks them.
pub struct Pools<D> {
    /// By what the database pins each.
    sources: BTreeMap<[u8; 32], AddressSource>,
    /// The nodes that derive a second time.
    nodes: BTreeMap<ChainId, BitcoinSource<D>>,
}

impl<D: Dial> Pools<D> {
    /// Makes the sources of the config those that addresses are handed out of, as far as their names are
    /// pinned to them. What cannot be used is told in the log and hands out nothing.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn list(
        sources: &[AddressSource],
        chains: Vec<NewChain>,
        nodes: BTreeMap<ChainId, BitcoinSource<D>>,
        store: &Store,
    ) -> Result<Pools<D>, StoreError> {
        let mut usable = BTreeMap::new();
        let mut usable_now = Vec::new();
        for source in sources {
            match source.pin() {
                Ok(pin) => {
                    usable.insert(pin, source.clone());
                    usable_now.push((pin, source.clone()));
                }
                Err(error) => tracing::error!(
                    "the addresses {:?} are not handed out: {}",
                    source.name,
                    error_line(&error)
                ),
            }
        }
        let names: Vec<String> = usable_now.iter().map(|(_, source)| source.name.clone()).collect();
        let standings = store
            .write_patiently(move |tx| {
                let mut new = Vec::with_capacity(usable_now.len());
                for (pin, source) in &usable_now {
                    new.push(pinned(tx, source, *pin, &chains)?);
                }
                tx.set_address_sources(&new)
            })
            .await?;
        for (name, standing) in names.iter().zip(standings) {
            if let SourceStanding::Differs { .. } = standing {
                tracing::error!(
                    "the addresses {name:?} are not handed out: the config has others under this name than \
                     before. If that is meant: `creditd addresses repin {name}`"
                );
            }
        }
        Ok(Pools {
            sources: usable,
            nodes,
        })
    }

    /// The job that fills them.
    pub fn job(self: Arc<Pools<D>>, store: &Store) -> Job {
        let store = store.clone();
        Job::new(POOL_JOB, EVERY, LONGEST, move || {
            let (pools, store) = (self.clone(), store.clone());
            async move { jobs::outcome(pools.run(&store).await) }
        })
    }

    /// Does a part of what is to be done for each source. Safe to run twice, and by two at once: an index is
    /// put in once.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn run(&self, store: &Store) -> Result<JobOutcome, StoreError> {
        let (mut filled, mut is_more) = (0, false);
        let mut failed = self.watch_restored(store).await?;
        for work in store.read(|tx| tx.pool_work()).await? {
            // Of a source that only another config has nothing is known here.
            let Some(source) = self.sources.get(&work.pin) else {
                continue;
            };
            let id = work.source;
            is_more |= store.write(move |tx| tx.spread_addresses(id, BATCH)).await? == u64::from(BATCH);
            let count = work.missing.min(BATCH);
            if count == 0 {
                continue;
            }
            let trouble = match self.derive(source, &work, count, store).await? {
                // No failure: whether the pool has some left is another matter.
                Ok(scripts) if scripts.is_empty() => LIST_OVER.to_owned(),
                Ok(scripts) => {
                    is_more |= work.missing > count;
                    filled += scripts.len();
                    let first = work.next_index;
                    // Where another worker was faster its addresses are as good.
                    store
                        .write(move |tx| tx.fill_pool(id, first, &scripts).map(drop))
                        .await?;
                    continue;
                }
                Err(trouble) => {
                    failed = Some(format!("{}: {trouble}", work.name));
                    trouble
                }
            };
            if work.trouble != trouble {
                store
                    .write(move |tx| tx.note_source_trouble(id, &trouble))
                    .await?;
            }
        }
        Ok(match (failed, filled) {
            (Some(why), _) => JobOutcome::Failed(why),
            (None, 0) if !is_more => JobOutcome::Done(String::new()),
            (None, filled) if is_more => JobOutcome::More(format!("{filled} addresses derived")),
            (None, filled) => JobOutcome::Done(format!("{filled} addresses derived")),
        })
    }

    /// Watches, after a restored backup, what may have been handed out since: derived once more, for each was
    /// handed out because two derivations had agreed on it. What is done stays done, and chains wait for the
    /// rest. Returns what keeps some from being watched.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn watch_restored(&self, store: &Store) -> Result<Option<String>, StoreError> {
        let mut failed = None;
        for mut range in store.read(|tx| tx.waiting_ranges()).await? {
            let (generation, scope, pin) = (range.generation, range.scope.clone(), range.pin);
            loop {
                let (scripts, is_over) = match self.of_range(&range, store).await? {
                    Ok(found) => found,
                    Err(trouble) => {
                        failed = Some(format!("{}: {trouble}", range.name()));
                        store
                            .write_patiently(move |tx| tx.note_range_trouble(&range, &trouble))
                            .await?;
                        break;
                    }
                };
                let next = range.next + scripts.len() as u64;
                let watched = range.clone();
                store
                    .write_patiently(move |tx| tx.watch_restored(&watched, &scripts, is_over))
                    .await?;
                if is_over || next >= range.end {
                    let (name, first, last) = (range.name(), range.first, next.saturating_sub(1));
                    tracing::info!(
                        generation, scope = %scope, pin = %const_hex::encode(pin),
                        "addresses {first} to {last} of {name}, which may have been handed out since the \
                         backup, are watched"
                    );
                    break;
                }
                range.next = next;
            }
        }
        Ok(failed)
    }

    /// The next scripts of a range, and whether the source has no more; or why there are none.
    async fn of_range(
        &self,
        range: &RestoredRange,
        store: &Store,
    ) -> Result<Result<(Vec<Script>, bool), String>, StoreError> {
        let source = self.sources.get(&range.pin);
        let Some(source) = source.filter(|source| source.scope.word() == range.scope) else {
            return Ok(Err(NOT_IN_CONFIG.to_owned()));
        };
        let count = u32::try_from(range.end - range.next)
            .unwrap_or(u32::MAX)
            .min(BATCH);
        let first = u32::try_from(range.next).unwrap_or(u32::MAX);
        let found = match &source.from {
            SourceFrom::Derived(derivation) => Ok(derivation.scripts(first, count)),
            SourceFrom::List(_) => {
                let last = match (&range.source, first.checked_sub(1)) {
                    (Some((id, _)), Some(before)) => {
                        let id = *id;
                        store.read(move |tx| tx.pool_script(id, before)).await?
                    }
                    (None, _) | (_, None) => None,
                };
                of_list(source.list(), first, count, last.as_ref())
            }
        };
        Ok(found.map(|scripts| {
            let is_over = scripts.len() < count as usize;
            (scripts, is_over)
        }))
    }

    /// The next `count` scripts of a source, or fewer at the end of a list; or why there are none.
    async fn derive(
        &self,
        source: &AddressSource,
        work: &PoolWork,
        count: u32,
        store: &Store,
    ) -> Result<Result<Vec<Script>, String>, StoreError> {
        let (first, id) = (work.next_index, work.source);
        let derivation = match &source.from {
            SourceFrom::Derived(derivation) => derivation,
            SourceFrom::List(_) => {
                let last = store
                    .read(move |tx| match first.checked_sub(1) {
                        Some(before) => tx.pool_script(id, before),
                        None => Ok(None),
                    })
                    .await?;
                return Ok(of_list(source.list(), first, count, last.as_ref()));
            }
        };
        let ours = derivation.scripts(first, count);
        let theirs = match derivation.scripts_again(first, count) {
            Some(again) => again,
            None => match self
                .by_node(&source.scope, &derivation.text(), first, count)
                .await
            {
                Ok(theirs) => theirs,
                Err(trouble) => return Ok(Err(trouble)),
            },
        };
        Ok(match ours.len() == count as usize && ours == theirs {
            true => Ok(ours),
            false => Err(format!(
                "two derivations of the indexes from {first} on differ: nothing is handed out of them"
            )),
        })
    }

    async fn by_node(
        &self,
        scope: &Scope,
        descriptor: &str,
        first: u32,
        count: u32,
    ) -> Result<Vec<Script>, String> {
        let node = match scope {
            Scope::Bitcoin { chain, .. } => self.nodes.get(chain),
            Scope::Evm => None,
        };
        let node = node.ok_or("no node derives a second time")?;
        let derived = node.derive(descriptor, first, count).await;
        derived.map_err(|error| error_line(&error))
    }
}

/// A source of the config as the database has it, with its chains, which are made known if need be.
///
/// # Errors
/// Those of the database.
pub fn pinned(
    tx: &mut WriteTx<'_>,
    source: &AddressSource,
    pin: [u8; 32],
    chains: &[NewChain],
) -> Result<NewSource, StoreError> {
    let mut on = Vec::new();
    for chain in chains.iter().filter(|chain| is_on(&source.scope, &chain.id)) {
        on.push(tx.ensure_chain(chain)?.key);
    }
    Ok(NewSource {
        name: source.name.clone(),
        scope: source.scope.word(),
        kind: kind(source),
        pin,
        merchant: source.merchant.clone(),
        pool_size: source.pool_size,
        chains: on,
    })
}

fn is_on(scope: &Scope, chain: &ChainId) -> bool {
    match scope {
        Scope::Bitcoin { chain: own, .. } => own == chain,
        Scope::Evm => chain.is_evm(),
    }
}

fn kind(source: &AddressSource) -> SourceKind {
    match (&source.from, &source.scope) {
        (SourceFrom::List(_), _) => SourceKind::List,
        (SourceFrom::Derived(_), Scope::Evm) => SourceKind::Evm,
        (SourceFrom::Derived(_), Scope::Bitcoin { .. }) => SourceKind::Descriptor,
    }
}

/// The next lines of a list, none at its end; its last line that was used is still where it was: otherwise
/// what comes next may be one that somebody has already.
fn of_list(
    list: Result<Vec<Script>, ListError>,
    first: u32,
    count: u32,
    last: Option<&Script>,
) -> Result<Vec<Script>, String> {
    let list = list.map_err(|error| error_line(&error))?;
    let first = first as usize;
    if last.is_some_and(|last| first.checked_sub(1).and_then(|at| list.get(at)) != Some(last)) {
        return Err(format!(
            "the address at place {first} of the list is another one than before: a list may only grow at \
             its \
             end"
        ));
    }
    Ok(list.into_iter().skip(first).take(count as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(n: u8) -> Script {
        Script(vec![n].into())
    }

    #[test]
    fn a_list_goes_on_where_it_ended_and_only_if_it_was_not_changed() {
        let list = || Ok((1..=5).map(script).collect());
        let (first, last) = (script(1), script(3));
        assert_eq!(of_list(list(), 0, 2, None), Ok(vec![script(1), script(2)]));
        assert_eq!(of_list(list(), 3, 9, Some(&last)), Ok(vec![script(4), script(5)]));
        // Where the pool has no such place (another source has its address) there is nothing to hold it to.
        assert_eq!(of_list(list(), 3, 1, None), Ok(vec![script(4)]));
        let changed = of_list(list(), 3, 9, Some(&first)).unwrap_err();
        assert!(changed.contains("place 3"), "{changed}");
        let shorter = of_list(Ok(vec![script(1)]), 3, 9, Some(&last)).unwrap_err();
        assert!(shorter.contains("place 3"), "{shorter}");
        assert_eq!(of_list(list(), 5, 1, Some(&script(5))), Ok(Vec::new()));
    }
}
