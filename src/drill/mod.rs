//! The drill: what would change in production if everything of the last days came once more? All of it is
//! fed to a copy of the database, so that nothing can: the node is only asked, callbacks go to nobody, time
//! and the tip of each chain stand where they were when the copy was made. Start at [`run`].

mod chains;
mod copy;
mod dials;
mod error;
mod feed;
mod pinned;
mod report;
mod restored;
mod waiting;
mod words;

pub use copy::OPENING;
pub use error::DrillError;
pub use report::{Broken, Changed, Fed, Input, Report, Restored, Settled, Unexpected, Untried};

use crate::clock::Clock;
use crate::config::{ChainConfig, Config};
use crate::ends::Ends;
use crate::store::{Compared, Database, FED_AGAIN, OpenMode, RowDiff};
use chains::{Any, Stand, on};
use copy::{Bench, Folder, check_room, clear_away};
use error::Stop;
use feed::Feeding;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    /// A backup to drill instead of the database: it is restored first, in the copy.
    pub from_backup: Option<PathBuf>,
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
            from_backup: None,
            is_kept: false,
            is_without_nodes: false,
            before: None,
        }
    }
}

/// Runs it until it is done, or until a signal that would end the process. `told` is given lines about how
/// far it is.
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
    let mut ends = {
        let _context = runtime.enter();
        Ends::all().map_err(DrillError::System)?
    };
    let parent = parent(config, drill);
    // First, because what a killed one has left there may be what takes the room.
    clear_away(&parent);
    check_room(&parent, drill.from_backup.as_ref().unwrap_or(&config.database))?;
    let folder = Folder::make(&parent, drill.is_kept)?;
    let (path, config, drill) = (folder.path().to_owned(), config.clone(), drill.clone());
    let is_kept = drill.is_kept;
    let outcome = runtime.block_on(async {
        // A task, because comparing and copying keep their thread busy for long.
        let working = tokio::spawn(work(config, drill, path, Box::new(told)));
        tokio::select! { biased;
            _ = ends.any() => Err(DrillError::Interrupted),
            ended = working => ended.map_err(|error| DrillError::System(error.into()))?,
        }
    });
    match outcome {
        Ok(report) => {
            let kept = is_kept.then(|| folder.place());
            drop(folder);
            ends.end_the_process(runtime);
            Ok(Report { kept, ..report })
        }
        Err(error) => {
            folder.remove();
            // What still runs after a signal works on files that are gone, until the process is.
            runtime.shutdown_background();
            Err(error)
        }
    }
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

/// A node may leave the tip of the copy while it is made or fed; one that has done so each time is on another
/// branch than the daemon, and keeps its own chain out.
async fn work(config: Config, drill: Drill, folder: PathBuf, mut told: Told) -> Result<Report, DrillError> {
    let (mut copies, mut left_out) = (1, LeftOut::new());
    loop {
        let line = match in_copy(&config, &drill, &folder, &left_out, &mut told).await {
            Ok(report) => return Ok(report),
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::WhyNot(why)) if copies >= COPIES_MAX => return Err(DrillError::Unknown(why)),
            Err(Stop::WhyNot(why)) => why,
            Err(Stop::Left { alias, why }) => {
                let line = format!("{alias}: {why}");
                if copies >= COPIES_MAX {
                    left_out.insert(alias, why);
                }
                line
            }
        };
        told(format!("{line}: copying again"));
        copies += 1;
    }
}

/// The chains that are left out, by their aliases, and why.
type LeftOut = BTreeMap<String, String>;

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

async fn in_copy(
    config: &Config,
    drill: &Drill,
    folder: &Path,
    left_out: &LeftOut,
    told: &mut Told,
) -> Result<Report, Stop> {
    let clock = Clock::real();
    let from = drill.from_backup.as_ref().unwrap_or(&config.database);
    let bench = Bench::make(from, folder, clock, told).await?;
    match drill.from_backup.is_some() {
        true => restored::declare(&bench).await?,
        false if restored::is_open(&bench).await? => return Err(DrillError::Restoring.into()),
        false => {}
    }
    let generation = bench.read("read the copy", |tx| tx.generation()).await?;
    let lines = lines(config, drill, &bench, left_out).await?;
    let spans = (drill.days, drill.passes);
    let mut report = report::begin(bench.at_ms, bench.bytes, generation, spans);
    report.is_without_nodes = drill.is_without_nodes;
    if !drill.is_without_nodes && drill.chain.is_none() {
        not_drilled(config, &bench, &mut report).await?;
    }
    let mut running = Running {
        report,
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
async fn lines(config: &Config, drill: &Drill, bench: &Bench, left_out: &LeftOut) -> Result<Vec<Line>, Stop> {
    let (mut lines, clock) = (Vec::new(), bench.clock);
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
        let mut stand = on!(&chain, chain => chain.stand(bench).await)?;
        let left = left_out.get(chain.alias());
        let mut why_not =
            left.map(|why| format!("not tried: {why}, though it was copied {COPIES_MAX} times"));
        if stand.is_none() {
            why_not = unread(drill).map(str::to_owned).or(why_not);
        }
        if let (Some(stand), None) = (&mut stand, &why_not) {
            let looked = match drill.from_backup.is_some() {
                true => on!(&chain, chain => chain.go_to_tip(stand).await),
                false => on!(&chain, chain => chain.look(stand).await),
            };
            match looked {
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

/// Why a chain is not fed of which no block was read; `None` where it is no fault: a chain that is new in the
/// config, beside others, has nothing to come again.
fn unread(drill: &Drill) -> Option<&'static str> {
    match (&drill.from_backup, &drill.chain) {
        (Some(_), _) => Some("not tried: the backup has read no block of it"),
        (None, Some(_)) => {
            Some("it was never followed: `creditd run` with this config does that, then drill it")
        }
        (None, None) => None,
    }
}

/// Names the chains that the copy has followed and the config does not name any more: nothing of them is fed.
async fn not_drilled(config: &Config, bench: &Bench, report: &mut Report) -> Result<(), DrillError> {
    for row in bench.read("read the copy", |tx| tx.chains()).await? {
        let is_named = config.chains().any(|chain| *chain.chain() == row.id);
        if row.cursor.is_none() || is_named {
            continue;
        }
        let why = format!(
            "the config does not name chain {}, which is in the database",
            row.id
        );
        report.of(Input::Blocks, Some(&row.alias)).why_not = Some(why);
    }
    Ok(())
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
            let settled = match self.drill.from_backup.is_some() {
                true => on!(&line.chain, chain => chain.restore(&self.bench, stand, told).await),
                false => Ok(()),
            };
            let settled = match settled {
                Ok(()) => on!(&line.chain, chain => chain.settle(&self.bench, stand, told).await),
                stopped => stopped,
            };
            match settled {
                Ok(()) => {}
                Err(Stop::WhyNot(why)) => line.why_not = Some(why),
                Err(other) => return Err(other),
            }
            // A restored one has a higher tip now.
            line.stand = on!(&line.chain, chain => chain.stand(&self.bench).await)?;
        }
        self.feeding.settle(&self.bench).await?;
        let settled = compare(&self.bench, &before)?;
        self.report.settle(&settled);
        // It has served; and twice the size is enough for a drill.
        let _ = std::fs::remove_file(before);
        if self.drill.from_backup.is_some() {
            self.report.restored = restored::report(&self.bench, &self.lines).await?;
        }
        self.check(0).await?;
        let baseline = self.bench.baseline();
        self.bench.keep_as(&baseline)?;
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
        let mut say = |line: String| told(format!("pass {pass}: {line}"));
        let fed = match input {
            Input::Blocks => {
                let fed = on!(&line.chain, chain => chain.blocks(bench, stand, since_secs, &mut say).await);
                fed.map(Some)
            }
            Input::Node => on!(&line.chain, chain => chain.behind(bench, stand, &mut say).await).map(Some),
            Input::Mempool => on!(&line.chain, chain => chain.lists(bench, stand, &mut say).await),
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
