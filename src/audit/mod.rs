//! The audit: asks nodes and books anew, by another path than the daemon's, whether what was credited is
//! right, and whether anything is missing. It tells and never mends: all that it writes are its own marks,
//! findings and runs. Start at [`run`].

mod blocks;
mod books;
mod credits;
pub mod evidence;
mod ground;
mod held;
mod job;
mod limits;
mod outputs;
pub mod proof;
mod report;
mod unspent;
mod walks;
mod words;

pub use job::job;
pub use limits::NotChecked;
pub use report::{
    Books, Broken, ChainReport, Credits, Damaged, Found, Ledger, Outputs, Report, Unproven, UnspentCoins,
};
pub use walks::Walks;

use crate::chain::evm::Pinned;
use crate::clock::{Clock, rfc3339};
use crate::config::{ChainConfig, Config, InnerSource};
use crate::rules::ChainId;
use crate::store::{ChainKey, ChainRow, FindingRow, ReadTx, Store, StoreError};
use ground::Ground;
use limits::Unasked;
use std::collections::BTreeSet;
use std::time::Duration;
use thiserror::Error;
use tokio::time::Instant;

/// What is to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Only this chain, by its alias.
    pub chain: Option<String>,
    /// The tables, of themselves.
    pub books: bool,
    /// Credits, at the nodes.
    pub credits: bool,
    /// Blocks, for payments that are not booked.
    pub outputs: bool,
    /// Bitcoin: all unspent coins, for the same.
    pub unspent: bool,
    /// The blocks from this height on, whether they were read before or not.
    pub from: Option<u64>,
    /// Everything, whether it was asked before or not.
    pub again: bool,
}

impl Scope {
    fn asks_nodes(&self) -> bool {
        self.credits || self.outputs || self.unspent
    }
}

/// How much of the nodes' time it may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Blocks in a second; `None` = as many as the node gives.
    pub blocks_per_second: Option<u32>,
    /// In all; `None` = until it is done. What is left then is for the next run.
    pub longest: Option<Duration>,
}

/// An audit to run.
#[derive(Clone, Debug)]
pub struct Audit {
    /// The settings.
    pub config: Config,
    /// The time.
    pub clock: Clock,
    /// What is to be asked.
    pub scope: Scope,
    /// How fast.
    pub pace: Pace,
    /// `daemon` or `operator`.
    pub actor: &'static str,
    /// It goes on with one that was cut off, of which this is not done a second time; `None` = by itself.
    pub goes_on: Option<Done>,
    /// What its nodes do for it beyond an answer.
    pub walks: Walks,
}

/// What a run came to the end of, by the aliases of the chains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Chains whose credits were all asked for.
    pub credits: BTreeSet<String>,
    /// Chains whose unspent coins were.
    pub unspent: BTreeSet<String>,
}

impl Done {
    fn has_credits(this: &Option<Done>, alias: &str) -> bool {
        this.as_ref().is_some_and(|done| done.credits.contains(alias))
    }

    fn has_unspent(this: &Option<Done>, alias: &str) -> bool {
        this.as_ref().is_some_and(|done| done.unspent.contains(alias))
    }

    /// With what a report says.
    fn note(&mut self, report: &Report) {
        for chain in &report.chains {
            if chain.credits.as_ref().is_some_and(|credits| credits.has_ended) {
                self.credits.insert(chain.chain.clone());
            }
            if chain.unspent.is_some() {
                self.unspent.insert(chain.chain.clone());
            }
        }
    }
}

/// Why there is no report.
#[derive(Debug, Error)]
pub enum AuditError {
    /// The config has no such chain.
    #[error("the config has no chain {0}")]
    NoChain(String),
    /// The database.
    #[error("read the books")]
    Store(#[from] StoreError),
}

/// What is told on the way.
#[derive(Clone, Copy, Debug)]
pub enum Word<'a> {
    /// A line for people.
    Line(&'a str),
    /// How far a part is.
    Part {
        /// The same in a line.
        line: &'a str,
        /// What is looked at.
        name: &'a str,
        /// So much of `all` is done.
        done: u64,
        /// All there is to do.
        all: u64,
        /// How fast it goes, where that is known.
        per_second: Option<u64>,
    },
}

/// Who hears how far it is.
pub type Told<'a> = &'a mut (dyn FnMut(Word<'_>) + Send);

/// Asks. What was asked is noted slice by slice: dropped at any await, the next run goes on there.
///
/// # Errors
/// [`AuditError`]. A node that does not answer is none: what it cannot say is in the report.
pub async fn run(audit: &Audit, store: &Store, told: Told<'_>) -> Result<Report, AuditError> {
    if let Some(alias) = &audit.scope.chain
        && audit.config.find(alias).is_none()
    {
        return Err(AuditError::NoChain(alias.clone()));
    }
    let (clock, actor) = (audit.clock, audit.actor);
    let started_at = clock.now_ms();
    let run = store.write(move |tx| tx.begin_audit(actor)).await?;
    let mut report = Report {
        run,
        started_at: rfc3339(started_at),
        ..Report::default()
    };
    if audit.scope.books {
        told(Word::Line("books"));
        report.books = Some(books::pass(audit, store, told).await?);
    }
    // However long the books took, the chains have all of it.
    let ends = audit.pace.longest.map(|longest| clock.instant() + longest);
    report.chains = match report
        .books
        .as_ref()
        .is_some_and(|books| !books.damaged.is_empty())
    {
        true => unasked(audit),
        false => all_chains(audit, store, run, ends, told).await?,
    };
    found(audit, store, &mut report).await?;
    report.ended_at = rfc3339(clock.now_ms());
    report.is_clean = report.found_count == 0;
    report.is_complete = report.chains.iter().all(ChainReport::is_complete);
    let text = report.to_json();
    store.write(move |tx| tx.end_audit(run, &text)).await?;
    Ok(report)
}

/// Where the audit itself came upon damage, or the file could not be opened for it: the tables are looked at
/// over another connection, as the first error ended the use of that one, and nothing is noted.
///
/// # Errors
/// Those of the database, but for damage, which is the answer.
pub async fn of_damaged(audit: &Audit, error: &StoreError) -> Result<Report, StoreError> {
    let started_at = audit.clock.now_ms();
    let damaged = books::damage(audit, error).await?;
    let found: Vec<Found> = damaged
        .iter()
        .map(|row| Found::of_damage(row, started_at))
        .collect();
    let chains = unasked(audit);
    Ok(Report {
        run: 0,
        started_at: rfc3339(started_at),
        ended_at: rfc3339(audit.clock.now_ms()),
        found_count: found.len() as u64,
        found,
        is_clean: false,
        is_complete: chains.iter().all(ChainReport::is_complete),
        chains,
        books: Some(Books {
            damaged,
            ..Books::default()
        }),
    })
}

/// What stands of the chains that were meant, and of the books.
async fn found(audit: &Audit, store: &Store, report: &mut Report) -> Result<(), StoreError> {
    let scope = &audit.scope;
    let known = store.read(|tx| tx.chains()).await?;
    let is_asked = |row: &&ChainRow| {
        let mut asked = report.chains.iter();
        scope.chain.is_none() || asked.any(|asked| asked.chain_id == row.id.as_str())
    };
    let mut of: Vec<Option<&ChainRow>> = known.iter().filter(is_asked).map(Some).collect();
    if scope.chain.is_none() || scope.books {
        of.insert(0, None);
    }
    let keys: Vec<Option<ChainKey>> = of.iter().map(|chain| chain.map(|chain| chain.key)).collect();
    let rows = store.read(move |tx| {
        let counts = keys.iter().map(|key| tx.findings_count(*key));
        let counts: Vec<u64> = counts.collect::<Result<_, _>>()?;
        let mut rows = Vec::new();
        for (key, named) in keys.iter().zip(report::named(&counts)) {
            rows.extend(tx.oldest_findings(*key, named)?);
        }
        Ok((rows, counts.iter().sum()))
    });
    let (rows, count) = rows.await?;
    let alias = |row: &FindingRow| known.iter().find(|chain| Some(chain.key) == row.chain);
    report.found = rows.iter().map(|row| Found::of(row, alias(row))).collect();
    report.found_count = count;
    Ok(())
}

fn is_meant(audit: &Audit, chain: &ChainConfig<'_>) -> bool {
    audit
        .scope
        .chain
        .as_ref()
        .is_none_or(|alias| alias == chain.alias())
}

/// Of a damaged file no chain is asked about.
fn unasked(audit: &Audit) -> Vec<ChainReport> {
    let meant = audit.config.chains().filter(|chain| is_meant(audit, chain));
    let report = |chain: ChainConfig<'_>| {
        let mut report = ChainReport::of(chain);
        report.note_stop(Unasked::Damaged.because("the database is damaged: no node was asked"));
        report
    };
    match audit.scope.asks_nodes() {
        true => meant.map(report).collect(),
        false => Vec::new(),
    }
}

/// Each chain has its share of the time, whatever the others take, and what one leaves the next ones have.
/// Another one is first in each run.
async fn all_chains(
    audit: &Audit,
    store: &Store,
    run: i64,
    ends: Option<Instant>,
    told: Told<'_>,
) -> Result<Vec<ChainReport>, StoreError> {
    let scope = &audit.scope;
    let chains: Vec<ChainConfig<'_>> = audit
        .config
        .chains()
        .filter(|chain| is_meant(audit, chain))
        .collect();
    let mut reports: Vec<ChainReport> = chains.iter().map(|chain| ChainReport::of(*chain)).collect();
    if !scope.asks_nodes() {
        return Ok(reports);
    }
    let first = usize::try_from(run).unwrap_or_default();
    for turn in 0..chains.len() {
        let at = (first + turn) % chains.len();
        let ends = share(ends, audit.clock.instant(), chains.len() - turn);
        let ground = Ground::new(audit, store, chains[at], (run, ends));
        chain_passes(&ground, &mut reports[at], told).await?;
    }
    if scope.chain.is_none() {
        let is_known = |row: &ChainRow| audit.config.chains().any(|chain| *chain.chain() == row.id);
        for (row, why) in limits::forgotten(store, is_known).await? {
            reports.push(ChainReport {
                chain: row.alias,
                chain_id: row.id.as_str().to_owned(),
                not_checked: vec![why],
                ..ChainReport::default()
            });
        }
    }
    Ok(reports)
}

/// When the next of so many parts ends, all of which end at `ends`.
fn share(ends: Option<Instant>, now: Instant, parts: usize) -> Option<Instant> {
    let parts = u32::try_from(parts.max(1)).unwrap_or(u32::MAX);
    ends.map(|ends| now + ends.saturating_duration_since(now) / parts)
}

async fn chain_passes(
    ground: &Ground<'_>,
    report: &mut ChainReport,
    told: Told<'_>,
) -> Result<(), StoreError> {
    let scope = &ground.audit.scope;
    let node = match ground.connect().await? {
        Ok(node) => node,
        Err(why) => {
            report.note_stop(why);
            return Ok(());
        }
    };
    report.not_looked_for.extend(not_looked_for(ground.config));
    match ground.settled(&node).await {
        Ok(standing) => report.not_checked.extend(ground.limits(&standing).await?),
        Err(stop) => return report.note_end(Err(stop)),
    }
    let (alias, done) = (ground.config.alias(), &ground.audit.goes_on);
    if scope.credits && !Done::has_credits(done, alias) {
        let parts = if scope.outputs { 2 } else { 1 };
        credits::pass(&ground.part(parts), &node, report, told).await?;
    }
    if scope.outputs {
        outputs::pass(ground, &node, report, told).await?;
    }
    match &node {
        ground::Node::Bitcoin(source) if scope.unspent && !Done::has_unspent(done, alias) => {
            unspent::pass(ground, source, &node, report, told).await?;
        }
        ground::Node::Evm(_) if scope.unspent => no_unspent_set(scope, report),
        ground::Node::Bitcoin(_) | ground::Node::Evm(_) => {}
    }
    Ok(())
}

/// Whoever asks for this chain alone is told that nothing was done; beside others it is so by its kind.
fn no_unspent_set(scope: &Scope, report: &mut ChainReport) {
    let what = "EVM nodes have no set of unspent coins: nothing was asked for --unspent";
    match scope.chain {
        Some(_) => report.not_checked.push(Unasked::NoUnspentSet.because(what)),
        None => report.not_looked_for.push(what.to_owned()),
    }
}

/// What the books know of a chain, which its endpoints are held against.
fn pinned(tx: &ReadTx<'_>, chain: &ChainId) -> Result<Pinned, StoreError> {
    let Some(row) = tx.chain(chain)? else {
        return Ok(Pinned::default());
    };
    Ok(Pinned {
        genesis: row.genesis,
        inner: tx.inner_sources(row.key)?,
    })
}

/// What nobody sees, and what the daemon alone does.
fn not_looked_for(chain: ChainConfig<'_>) -> Option<String> {
    let ChainConfig::Evm(chain) = chain else {
        return None;
    };
    match chain.native.as_ref()?.inner {
        InnerSource::Eip7708 => None,
        InnerSource::Traces(_) => {
            Some("credits of coin that contracts send are asked for; what is not booked is not".to_owned())
        }
        InnerSource::None { .. } => {
            let why = "coin that contracts send is seen by nobody: `creditd unattributed list`";
            Some(why.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_takes_the_time_of_the_others() {
        let now = Instant::now();
        let minutes = |count: u64| Duration::from_secs(60 * count);
        let ends = Some(now + minutes(30));
        assert_eq!(share(None, now, 3), None);
        assert_eq!(share(ends, now, 3), Some(now + minutes(10)));
        let later = now + minutes(10);
        assert_eq!(share(ends, later, 2), Some(now + minutes(20)));
        // One that was through early leaves the rest to the others, one that was late all that there is.
        assert_eq!(share(ends, now + minutes(2), 2), Some(now + minutes(16)));
        assert_eq!(share(ends, now + minutes(40), 1), Some(now + minutes(40)));
    }
}
