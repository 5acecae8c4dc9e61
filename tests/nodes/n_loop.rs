//! The daemon is killed at the N-th point that it passes (`creditd::points`), at each in its turn, through
//! one whole story: its first start, payments, a reorg that takes a credited payment away and one that brings
//! it back, a request that is repeated, a backup, the stop. Killed again while it recovers, too. However it
//! went, the books are those of a daemon that was left alone.
//!
//! What this sees and what it cannot see is in docs/simulation.md, with the bugs that were planted to find
//! out.

mod bitcoin;
mod effects;
mod evm;
mod story;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Seek as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use self::bitcoin::Bitcoind;
use self::effects::{Effects, Outpoint};
use self::evm::Anvil;
use self::story::Story;
use crate::books::{Books, sound_books};
use crate::common::daemon::Setup;

/// Every point that the story must pass, so that none of them is a name in the code alone.
const NAMES: [&str; 34] = [
    "lock.take",
    "open.locked",
    "open.made",
    "open.checked",
    "open.compared",
    "schema.before",
    "schema.after",
    "begin.before",
    "begin.after",
    "commit.before",
    "commit.after",
    "highwater.create",
    "highwater.written",
    "highwater.synced",
    "highwater.renamed",
    "highwater.folder",
    "highwater.append",
    "highwater.appended",
    "node.ask",
    "node.answered",
    "callback.send",
    "callback.answered",
    "api.committed",
    "job.leased",
    "job.ran",
    "backup.create",
    "backup.copied",
    "backup.synced",
    "backup.renamed",
    "backup.folder",
    "ready",
    "stopping",
    "close.before",
    "close.folded",
];

/// Where everything since the last commit is undone. The short run kills at each of these, beside one kill
/// at each name.
const UNDOES: &str = "commit.before";

/// Every so many of the kills come twice: in the short run, and in the long one.
const DOUBLED: [usize; 2] = [6, 8];

/// The long run ends where so many stories in a row were over before their point. Two are never of quite the
/// same length: the daemon polls.
const UNREACHED: u64 = 16;

/// A run ends after so many things that are wrong.
const WRONG_MAX: usize = 10;

/// Second kills: at this point of the start after the first one.
const AGAIN: [u64; 4] = [1, 4, 16, 64];

/// A node with three branches above one block, each longer than the one before. None of them or one is the
/// best chain. The first pays, the second pays another instead, the third has the transactions of the first.
trait Stage {
    fn cast(&self) -> &Cast;
    /// The chain alone.
    fn setup(&self) -> Setup;
    /// Makes a branch the best chain, or the block below them all.
    fn show(&self, branch: Option<usize>);
    /// The highest block of what is shown.
    fn tip(&self) -> String;
}

/// Who plays.
struct Cast {
    node: &'static str,
    symbol: &'static str,
    /// Watched: paid on the first branch, paid on the second, of an invoice paid on the first, of one that is
    /// cancelled.
    addresses: [String; 4],
    /// Units of both invoices.
    invoices: [&'static str; 2],
    /// What every credit nets to in the end.
    paid: BTreeMap<Outpoint, u64>,
}

/// What a run has come to.
#[derive(Default)]
struct Figures {
    points: u64,
    passes: u32,
    kills: u32,
    in_recovery: u32,
    by_name: BTreeMap<String, u32>,
    double: Vec<String>,
    lost: Vec<String>,
    /// Stories that did not come to their end, or to one of other books.
    failed: Vec<String>,
}

impl Figures {
    fn add(&mut self, plan: &[String], deaths: Vec<String>, effects: Effects) {
        let named = |what: String| format!("killed at {plan:?}: {what}");
        self.double.extend(effects.double.into_iter().map(named));
        self.lost.extend(effects.lost.into_iter().map(named));
        self.passes += 1;
        self.kills += deaths.len() as u32;
        self.in_recovery += deaths.len().saturating_sub(1) as u32;
        for name in deaths {
            *self.by_name.entry(name).or_default() += 1;
        }
    }

    fn print(&self, node: &str) {
        let figures = json!({
            "node": node, "points": self.points, "passes": self.passes, "kills": self.kills,
            "kills_in_recovery": self.in_recovery, "by_name": self.by_name,
            "double_or_lost_effects": self.double.len() + self.lost.len(),
        });
        eprintln!("{figures:#}");
    }

    fn check_effects(&self) {
        let (double, lost, failed) = (&self.double, &self.lost, self.failed.join("\n"));
        assert!(
            double.is_empty() && lost.is_empty() && failed.is_empty(),
            "double: {double:#?}\nlost: {lost:#?}\nfailed:\n{failed}"
        );
    }

    /// Where every story goes wrong, some are enough.
    fn check_many(&self) {
        if self.double.len() + self.lost.len() + self.failed.len() >= WRONG_MAX {
            self.check_effects();
        }
    }

    fn check(&self) {
        self.check_effects();
        let is_killed = |name: &&&str| self.by_name.contains_key(**name);
        let never: Vec<_> = NAMES.iter().filter(|name| !is_killed(name)).collect();
        assert!(never.is_empty(), "never killed at {never:?}");
        assert!(self.in_recovery > 0, "never killed in its recovery");
        // A point near the end is not always reached.
        let (kills, passes) = (self.kills, self.passes);
        assert!(kills * 4 >= passes * 3, "{kills} kills in {passes} passes");
    }

    /// Puts the row of this loop into a file that has those of others, whose tests may run beside this one.
    fn write(&self, node: &str, file: &Path) {
        let name = format!("daemon beside {node}");
        let row = json!({
            "loop": name, "commit": commit(), "points": self.points, "passes": self.passes,
            "kills": self.kills, "in_recovery": self.in_recovery, "by_name": self.by_name,
            "double": self.double.len(), "lost": self.lost.len(), "failed": self.failed.len(),
        });
        let mut options = std::fs::File::options();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(file)
            .unwrap();
        file.lock().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let mut rows: Vec<Value> = match text.is_empty() {
            true => Vec::new(),
            false => serde_json::from_str(&text).unwrap(),
        };
        rows.retain(|known| known["loop"] != name);
        rows.push(row);
        rows.sort_by_key(|row| row["loop"].to_string());
        file.rewind().unwrap();
        file.set_len(0).unwrap();
        writeln!(file, "{:#}", Value::from(rows)).unwrap();
    }
}

/// Git's name of what is checked out here.
fn commit() -> String {
    let asked = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    String::from_utf8(asked.unwrap().stdout)
        .unwrap()
        .trim()
        .to_owned()
}

/// All stories on one stage.
struct Loop<'a> {
    stage: &'a dyn Stage,
    /// One whose daemon noted every point, and died of none.
    left_alone: Story<'a>,
    books: Books,
    figures: Figures,
}

impl<'a> Loop<'a> {
    fn begin(stage: &'a dyn Stage) -> Loop<'a> {
        let left_alone = Story::play(stage, &["all".to_owned()]);
        assert_eq!(left_alone.effects(), Effects::default());
        Loop {
            stage,
            books: sound_books(&left_alone.daemon, &stage.cast().paid),
            figures: Figures::default(),
            left_alone,
        }
    }

    /// A story whose first start dies at the first of these points, and the second at the second. Did it die?
    fn kill(&mut self, plan: &[String]) -> bool {
        // Shown by a failure.
        eprintln!("killed at {plan:?}");
        let has_died = match catch_unwind(AssertUnwindSafe(|| self.play(plan))) {
            Ok((deaths, effects)) => {
                let has_died = !deaths.is_empty();
                self.figures.add(plan, deaths, effects);
                has_died
            }
            // The others are played all the same: a long run is to say all that it finds.
            Err(panic) => {
                let said = panic.downcast_ref::<String>().map(String::as_str);
                let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
                let failed = format!("killed at {plan:?}: {}", said.unwrap_or_default());
                self.figures.failed.push(failed);
                true
            }
        };
        self.figures.check_many();
        has_died
    }

    /// The points at which it died, and what is there twice or gone.
    fn play(&self, plan: &[String]) -> (Vec<String>, Effects) {
        let story = Story::play(self.stage, plan);
        let effects = story.effects();
        if effects == Effects::default() {
            assert_eq!(sound_books(&story.daemon, &self.stage.cast().paid), self.books);
            assert_eq!(story.invoices(), self.left_alone.invoices());
        }
        (story.noted(), effects)
    }

    /// How often the story that was left alone passed a point.
    fn times(&self, name: &str) -> usize {
        let passed = self.left_alone.noted();
        passed.iter().filter(|point| *point == name).count()
    }

    fn kill_at_names(&mut self) {
        self.figures.points = self.left_alone.noted().len() as u64;
        for name in NAMES {
            let times = self.times(name);
            assert!(times > 0, "the story never passes {name}");
            self.kill(&[format!("{name}:{}", times.div_ceil(2))]);
        }
    }

    /// Before every commit. Returns these points.
    fn kill_at_commits(&mut self) -> Vec<String> {
        let commits: Vec<String> = (1..=self.times(UNDOES))
            .map(|number| format!("{UNDOES}:{number}"))
            .collect();
        for commit in &commits {
            self.kill(std::slice::from_ref(commit));
        }
        commits
    }

    /// At every number up to the end of the story. Returns them.
    fn kill_at_all(&mut self) -> Vec<String> {
        let (mut number, mut last) = (0, 0);
        while number - last < UNREACHED {
            number += 1;
            if self.kill(&[number.to_string()]) {
                last = number;
            }
        }
        self.figures.points = last;
        (1..=last).map(|number| number.to_string()).collect()
    }

    fn kill_twice(&mut self, points: &[String], every: usize) {
        for (point, again) in points.iter().step_by(every).zip(AGAIN.iter().cycle()) {
            self.kill(&[point.clone(), again.to_string()]);
        }
    }
}

fn run(stage: &dyn Stage) {
    let mut all = Loop::begin(stage);
    // Plays one story again: `CREDITD_TEST_POINTS="17 4"`.
    if let Ok(points) = std::env::var("CREDITD_TEST_POINTS") {
        let plan: Vec<String> = points.split_whitespace().map(str::to_owned).collect();
        all.kill(&plan);
        return all.figures.check_effects();
    }
    all.kill_at_names();
    if std::env::var_os("CREDITD_TEST_LONG").is_some() {
        let points = all.kill_at_all();
        all.kill_twice(&points, DOUBLED[1]);
    } else {
        let points = all.kill_at_commits();
        all.kill_twice(&points, DOUBLED[0]);
    }
    let node = stage.cast().node;
    all.figures.print(node);
    if let Some(file) = std::env::var_os("CREDITD_TEST_KILLS") {
        all.figures.write(node, Path::new(&file));
    }
    all.figures.check();
}

#[test]
fn daemon_killed_at_each_point_in_its_turn_ends_at_the_books_of_one_that_was_not() {
    run(&Bitcoind::new());
}

#[test]
fn daemon_beside_an_evm_node_killed_at_each_point_ends_at_the_books_of_one_that_was_not() {
    run(&Anvil::new());
}

/// A point that no story is killed at says nothing.
#[test]
fn every_point_of_the_code_is_a_name_of_the_loop() {
    let mut found = BTreeSet::new();
    names_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let names = NAMES.map(str::to_owned);
    assert_eq!(found, BTreeSet::from(names));
}

fn names_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names_below(&path, found);
        } else if !path.ends_with("src/points.rs") {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            for call in ["points::pass(", "points::io("] {
                let calls = text.split(call).skip(1);
                found.extend(calls.map(|rest| rest.split('"').nth(1).unwrap().to_owned()));
            }
        }
    }
}
