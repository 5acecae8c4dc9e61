//! The drill: what would change in production if everything of the last days came once more? All of it is
//! fed to a copy of the database, so that nothing can: the node is only asked, callbacks go to nobody, time
//! and the tip of each chain stand where they were when the copy was made. Start at [`run`].

mod chains;
mod copy;
mod dials;
mod feed;
mod pinned;
mod report;

pub use report::{Broken, Changed, Fed, Input, Report, Settled, Unexpected};

use crate::chain::SourceError;
use crate::clock::Clock;
use crate::config::{ChainConfig, Config, SecretError};
use crate::follow::FollowError;
use crate::store::{Compared, Database, FED_AGAIN, OpenMode, RestoreState, RowDiff, StoreError};
use crate::telemetry::error_line;
use chains::{Any, Stand, on};
use copy::{Bench, Folder};
use feed::Feeding;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};

/// How often the copy is made anew because a node has left its tip.
const COPIES_MAX: u32 = 3;

/// Rows that are told by name.
const ROWS_MAX: usize = 1_000;

/// A day, in milliseconds.
const DAY_MS: i64 = 86_400_000;

/// Called before an input is fed, with the pass, the input and the file of the copy.
pub type Before = Arc<dyn Fn(u32, Input, &Path) + Send + Sync>;

/// How the drill goes about it.
#[derive(Clone)]
pub struct Drill {
    /// What came in so many days is fed again.
    pub days: u32,
    /// So many times.
    pub passes: u32,
    /// The blocks and lists of this chain alone; `None` = of all.
    pub chain: Option<String>,
    /// Where the copy is made; `None` = beside the backups, or the database.
    pub folder: Option<PathBuf>,
    /// Leaves the copy there.
    pub is_kept: bool,
    /// Feeds no blocks and no lists.
    pub is_without_nodes: bool,
    /// For tests, which spoil the copy there.
    pub before: Option<Before>,
}

impl Default for Drill {
    fn default() -> Drill {
        Drill {
            days: 7,
            passes: 3,
            chain: None,
            folder: None,
            is_kept: false,
            is_without_nodes: false,
            before: None,
        }
    }
}

/// Why there was no drill.
#[derive(Debug, Error)]
pub enum DrillError {
    /// The folder of the copy, or a file in it.
    #[error("{doing} {}", path.display())]
    Folder {
        /// What was being done.
        doing: &'static str,
        /// With which.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The database or its copy.
    #[error("{doing}")]
    Store {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: StoreError,
    },
    /// A node's secret cannot be read.
    #[error("log in at the node of chain {alias}")]
    Secret {
        /// The chain.
        alias: String,
        /// Why.
        #[source]
        source: SecretError,
    },
    /// A follower met a copy that cannot be used.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// Again and again a node has left the tip of the copy.
    #[error("{0}, though it was copied {COPIES_MAX} times")]
    Left(String),
    /// Much changes by itself then.
    #[error("a restored backup is being repaired: nothing is as it was")]
    Restoring,
    /// The operating system refused threads or signal handlers.
    #[error("start the drill")]
    System(#[source] io::Error),
    /// It was told to stop.
    #[error("stopped before its end")]
    Interrupted,
}

/// Why an input is not fed (any further).
#[derive(Debug, Error)]
enum Stop {
    /// It cannot be had.
    #[error("{0}")]
    WhyNot(String),
    /// The node has left the tip of the copy.
    #[error("{0}")]
    Left(String),
    /// The drill cannot go on.
    #[error(transparent)]
    Failed(#[from] DrillError),
}

impl From<SourceError> for Stop {
    fn from(error: SourceError) -> Stop {
        Stop::WhyNot(error_line(&error))
    }
}

/// Runs it until it is done, or until SIGINT or SIGTERM. `told` is given lines about how far it is.
///
/// # Errors
/// [`DrillError`]; nothing is left of the copy then.
pub fn run(
    config: &Config,
    drill: &Drill,
    told: impl FnMut(String) + Send + 'static,
) -> Result<Report, DrillError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(DrillError::System)?;
    let folder = Folder::make(&parent(config, drill), drill.is_kept)?;
    let (path, config, drill) = (folder.path().to_owned(), config.clone(), drill.clone());
    let outcome = runtime.block_on(async move {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(DrillError::System)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(DrillError::System)?;
        // A task, because comparing and copying keep their thread busy for long.
        let working = tokio::spawn(work(config, drill, path, Box::new(told)));
        tokio::select! { biased;
            _ = interrupt.recv() => Err(DrillError::Interrupted),
            _ = terminate.recv() => Err(DrillError::Interrupted),
            ended = working => ended.map_err(|error| DrillError::System(error.into()))?,
        }
    });
    if outcome.is_err() {
        folder.remove();
    }
    // What still runs after a signal works on files that are gone, until the process is.
    runtime.shutdown_background();
    outcome
}

fn parent(config: &Config, drill: &Drill) -> PathBuf {
    let beside = config
        .database
        .parent()
        .filter(|beside| !beside.as_os_str().is_empty());
    let backups = config.backup.as_ref().map(|backup| backup.folder.as_path());
    let folder = drill.folder.as_deref().or(backups).or(beside);
    folder.unwrap_or(Path::new(".")).to_owned()
}

type Told = Box<dyn FnMut(String) + Send>;

async fn work(config: Config, drill: Drill, folder: PathBuf, mut told: Told) -> Result<Report, DrillError> {
    let mut copies = 1;
    loop {
        match in_copy(&config, &drill, &folder, &mut told).await {
            Ok(report) => return Ok(report),
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Left(why) | Stop::WhyNot(why)) if copies == COPIES_MAX => {
                return Err(DrillError::Left(why));
            }
            Err(Stop::Left(why) | Stop::WhyNot(why)) => {
                told(format!("{why}: copying again"));
                copies += 1;
            }
        }
    }
}

/// A chain, where it stands in the copy, and why its node is of no use, if so.
struct Line {
    chain: Any,
    stand: Option<Stand>,
    why_not: Option<String>,
}

/// All of one drill.
struct Running<'a> {
    drill: &'a Drill,
    bench: Bench,
    lines: Vec<Line>,
    feeding: Feeding,
    report: Report,
    window: u64,
}

async fn in_copy(config: &Config, drill: &Drill, folder: &Path, told: &mut Told) -> Result<Report, Stop> {
    let clock = Clock::real();
    let bench = Bench::make(&config.database, folder, clock, told).await?;
    let (generation, is_restoring) = bench
        .read("read the copy", |tx| {
            let open = |state: RestoreState| match state {
                RestoreState::CatchingUp | RestoreState::Stating => true,
                RestoreState::Done | RestoreState::Superseded => false,
            };
            let restores = tx.restores()?;
            let is_open = restores
                .iter()
                .any(|restore| restore.chains.iter().any(|(chain, _)| open(chain.state)));
            Ok((tx.generation()?, is_open))
        })
        .await?;
    if is_restoring {
        return Err(DrillError::Restoring.into());
    }
    let lines = lines(config, drill, &bench, clock).await?;
    let spans = (drill.days, drill.passes);
    let mut running = Running {
        report: report::begin(bench.at_ms, bench.bytes, generation, spans),
        feeding: Feeding::new(config, &bench, i64::from(drill.days).saturating_mul(DAY_MS)),
        window: config.smallest_window(),
        drill,
        bench,
        lines,
    };
    running.settle(told).await?;
    running.feed(told).await?;
    running.report.conclude();
    running.bench.close().await;
    Ok(running.report)
}

/// The chains whose blocks are fed.
async fn lines(config: &Config, drill: &Drill, bench: &Bench, clock: Clock) -> Result<Vec<Line>, Stop> {
    let mut lines = Vec::new();
    if drill.is_without_nodes {
        return Ok(lines);
    }
    for chain in config.chains() {
        if drill.chain.as_deref().is_some_and(|only| only != chain.alias()) {
            continue;
        }
        let chain = match chain {
            ChainConfig::Bitcoin(chain) => Any::bitcoin(chain, clock)?,
            ChainConfig::Evm(chain) => Any::evm(chain, bench, clock).await?,
        };
        let stand = on!(&chain, chain => chain.stand(bench).await)?;
        let mut why_not = None;
        if let Some(stand) = &stand {
            match on!(&chain, chain => chain.look(stand).await) {
                Ok(()) => {}
                Err(Stop::WhyNot(why)) => why_not = Some(why),
                Err(other) => return Err(other),
            }
        }
        lines.push(Line {
            chain,
            stand,
            why_not,
        });
    }
    Ok(lines)
}

impl Running<'_> {
    /// Lets everything happen that was about to: what then still changes was changed by what is fed again.
    async fn settle(&mut self, told: &mut Told) -> Result<(), Stop> {
        let before = self.bench.before();
        self.bench.keep_as(&before)?;
        told("settling the copy".to_owned());
        for line in &mut self.lines {
            let (Some(stand), None) = (&line.stand, &line.why_not) else {
                continue;
            };
            match on!(&line.chain, chain => chain.settle(&self.bench, stand).await) {
                Ok(()) => {}
                Err(Stop::WhyNot(why)) => line.why_not = Some(why),
                Err(other) => return Err(other),
            }
        }
        self.feeding.settle(&self.bench).await?;
        let settled = compare(&self.bench, &before)?;
        self.report.settle(&settled);
        self.check(0).await?;
        let baseline = self.bench.baseline();
        self.bench.keep_as(&baseline)?;
        // It has served.
        let _ = std::fs::remove_file(before);
        Ok(())
    }

    /// Feeds everything, and where that changed something once more from the beginning, to see which input
    /// it was.
    async fn feed(&mut self, told: &mut Told) -> Result<(), Stop> {
        for pass in 1..=self.drill.passes {
            self.pass(pass, told, &mut None).await?;
            let compared = compare(&self.bench, &self.bench.baseline())?;
            (self.report.rows, self.report.tables) = (compared.rows, compared.tables);
            self.check(pass).await?;
            // Had a node left the copy's tip, blocks of two branches were fed.
            self.look_again().await?;
            if compared.count == 0 {
                continue;
            }
            self.report.changed_rows = compared.count;
            told("something changed: looking for what did".to_owned());
            return self.name_it(pass, &compared.diffs, told).await;
        }
        Ok(())
    }

    async fn name_it(&mut self, last: u32, diffs: &[RowDiff], told: &mut Told) -> Result<(), Stop> {
        self.bench.go_back().await?;
        let fed = std::mem::take(&mut self.report.fed);
        self.report.unexpected.clear();
        let mut seen = Some(BTreeSet::new());
        for pass in 1..=last {
            self.pass(pass, told, &mut seen).await?;
        }
        self.look_again().await?;
        if self.report.changed.is_empty() {
            self.report.fed = fed;
            for diff in diffs {
                self.report.change(last, None, diff);
            }
        }
        Ok(())
    }

    async fn look_again(&self) -> Result<(), Stop> {
        for line in &self.lines {
            let (Some(stand), None) = (&line.stand, &line.why_not) else {
                continue;
            };
            match on!(&line.chain, chain => chain.look(stand).await) {
                Ok(()) | Err(Stop::WhyNot(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    async fn check(&mut self, pass: u32) -> Result<(), Stop> {
        let window = self.window;
        let found = self
            .bench
            .read("check the copy", move |tx| tx.violations(window))
            .await?;
        self.report.hold_against(pass, found);
        Ok(())
    }

    /// One pass of every input. With `seen`, what each of them changed is looked for after it.
    async fn pass(&mut self, pass: u32, told: &mut Told, seen: &mut Option<Seen>) -> Result<(), Stop> {
        for place in 0..self.lines.len() {
            for input in [Input::Blocks, Input::Node, Input::Mempool] {
                self.chain_input(pass, place, input, told).await?;
                let alias = self.lines[place].chain.alias().to_owned();
                self.look_for(pass, (input, Some(&alias)), seen)?;
            }
        }
        for input in Input::ALL {
            let is_of_chain = matches!(input, Input::Blocks | Input::Node | Input::Mempool);
            if is_of_chain {
                continue;
            }
            self.prepare(pass, input);
            let fed = self.feeding.feed(input, pass, &mut self.bench, &mut self.report);
            let step = fed.await?;
            self.report.note(input, None, step);
            self.look_for(pass, (input, None), seen)?;
            told(format!("pass {pass}: {}", input.word()));
        }
        Ok(())
    }

    fn prepare(&self, pass: u32, input: Input) {
        if let Some(before) = &self.drill.before {
            before(pass, input, &self.bench.work());
        }
    }

    async fn chain_input(
        &mut self,
        pass: u32,
        place: usize,
        input: Input,
        told: &mut Told,
    ) -> Result<(), Stop> {
        self.prepare(pass, input);
        let (line, bench) = (&self.lines[place], &self.bench);
        let alias = line.chain.alias().to_owned();
        if let Some(why) = line.why_not.clone() {
            self.report.of(input, Some(&alias)).why_not = Some(why);
            return Ok(());
        }
        let Some(stand) = &line.stand else {
            self.report.note(input, Some(&alias), report::Step::default());
            return Ok(());
        };
        let since_secs = self.feeding.since_secs();
        let mut last = 0;
        let mut at = |next: u64, tip: u64| {
            if next >= last + 1_000 {
                last = next;
                told(format!("pass {pass}: {alias} blocks, {next} of {tip}"));
            }
        };
        let fed = match input {
            Input::Blocks => {
                let fed = on!(&line.chain, chain => chain.blocks(bench, stand, since_secs, &mut at).await);
                fed.map(Some)
            }
            Input::Node => on!(&line.chain, chain => chain.behind(bench, stand).await).map(Some),
            Input::Mempool => on!(&line.chain, chain => chain.lists(bench, stand).await),
            Input::Idempotency | Input::Inbox | Input::Jobs | Input::Deliveries | Input::Start => Ok(None),
        };
        match fed {
            Ok(Some(step)) => self.report.note(input, Some(&alias), step),
            Ok(None) => {}
            Err(Stop::WhyNot(why)) => self.report.of(input, Some(&alias)).why_not = Some(why),
            Err(other) => return Err(other),
        }
        told(format!("pass {pass}: {} {alias}", input.word()));
        Ok(())
    }

    fn look_for(
        &mut self,
        pass: u32,
        fed: (Input, Option<&str>),
        seen: &mut Option<Seen>,
    ) -> Result<(), Stop> {
        let Some(seen) = seen else {
            return Ok(());
        };
        for diff in compare(&self.bench, &self.bench.baseline())?.diffs {
            // Whatever becomes of it later, whoever touched it first began it.
            if seen.insert((diff.table.clone(), diff.key.clone())) {
                self.report.change(pass, Some(fed), &diff);
            }
        }
        Ok(())
    }
}

/// Rows that are known to differ, by table and key.
type Seen = BTreeSet<(String, String)>;

fn compare(bench: &Bench, with: &Path) -> Result<Compared, DrillError> {
    let failed = |source| DrillError::Store {
        doing: "compare the copy with what it was",
        source,
    };
    let now = Database::open(&bench.work(), OpenMode::ReadOnly).map_err(failed)?;
    now.differs_from(with, &FED_AGAIN, ROWS_MAX).map_err(failed)
}
