//! Bugs planted one after the other, each as a patch of tests/bugs: the simulator must find each within the
//! number of seeds that the patch names, or a check is missing or blind. A seed that fails without the bug
//! too finds nothing. What came of it is written down bug by bug, in tests/bugs/table.md.

use crate::run::{Exit, commit};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// All bugs in one build: each behind `crate::planted(NUMBER)`, which reads this.
const SWITCHES: &str = "tests/bugs/switches.diff";
const SWITCH: &str = "PLANTED";

/// Of one bug the search ends after so long, as not found: a bug may keep a seed from ever ending.
const SECS_MAX: &str = "5400";

/// What is above the rows of the table.
const HEAD: &str = "\
# Planted bugs

Each is a patch of this folder that somebody could have written. The simulator must find it within its bound
of seeds, by a seed in which nothing is wrong without it. This page is written by
`cargo test --profile sim --all-features --test sim -- bugs`, row by row, each at the commit that it names.

A row `by a switch` is not of a build of its patch: all bugs are in one build of that commit, each behind a
switch of `switches.diff`, which does the same by hand. One switch is on in the run that finds it; the run
without it is the same build with all of them off.

| bug | place | expected | bound | found by | at |
|---|---|---|---|---|---|
";

const FOUND: &str = "seed ";

/// After the commit of a row that is of the one build of all bugs.
const BY_SWITCH: &str = " by a switch";

/// Of a verdict, for a cell: a row of the books may be printed in it.
const VERDICT_CHARS_MAX: usize = 220;

/// What a patch says about itself, above its first file.
struct Bug {
    path: PathBuf,
    name: String,
    number: u32,
    found_by: String,
    seeds: u64,
    kind: String,
    /// The first lines that it changes.
    place: String,
}

/// What came of a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    bug: String,
    place: String,
    expected: String,
    bound: String,
    /// `seed 17: WRONG ...`, or why it was not found.
    what: String,
    /// The commit.
    at: String,
}

/// The simulator with a bug.
struct Planted {
    path: PathBuf,
    /// In one build with all others: the number that it is switched on by.
    number: Option<u32>,
}

/// A copy of the commit that is checked out here, and the simulator of it as it is: the one that runs.
struct Copy {
    tree: PathBuf,
    clean: PathBuf,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Plants all bugs, or those of these numbers; `is_rest`: of them those that no row says are found;
/// `together`: in one build, by switches; it is there already, or is made.
pub fn run(numbers: &[&str], is_rest: bool, together: Option<Option<&Path>>) -> Result<Exit, String> {
    let bugs = bugs()?;
    let mut table = Table::read(&bugs);
    let is_asked = |bug: &&Bug| {
        let is_named = |asked: &&str| asked.parse::<u32>().is_ok_and(|asked| asked == bug.number);
        (numbers.is_empty() || numbers.iter().any(is_named)) && !(is_rest && table.is_found(&bug.name))
    };
    let asked: Vec<&Bug> = bugs.iter().filter(is_asked).collect();
    let copy = Copy::check_out()?;
    let together = match together {
        Some(Some(built)) => Some(built.to_owned()),
        Some(None) => Some(copy.with(&root().join(SWITCHES))??),
        None => None,
    };
    let (mut found, mut exit) = (0, Exit::Fine);
    for (number, bug) in asked.iter().enumerate() {
        eprintln!(
            "bug {} of {}: {}, {found} found",
            number + 1,
            asked.len(),
            bug.name
        );
        let row = match &together {
            Some(path) => bug.row(copy.search(bug, &Planted::switched(path, bug.number))?, BY_SWITCH),
            None => copy.try_out(bug)?,
        };
        println!("{}: {}", row.bug, row.what);
        match row.is_found() {
            true => found += 1,
            false => exit = Exit::Wrong,
        }
        table.0.insert(row.bug.clone(), row);
        table.write()?;
    }
    println!("{found} of {} planted bugs were found", asked.len());
    Ok(exit)
}

fn bugs() -> Result<Vec<Bug>, String> {
    let folder = root().join("tests/bugs");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "patch"));
    paths.sort();
    paths.into_iter().map(Bug::read).collect()
}

impl Bug {
    fn read(path: PathBuf) -> Result<Bug, String> {
        let wrong = |why: &str| format!("{}: {why}", path.display());
        let text = std::fs::read_to_string(&path).map_err(|error| wrong(&error.to_string()))?;
        let says = |key: &str| {
            let lines = text.lines().take_while(|line| !line.starts_with("---"));
            let mut lines = lines.filter_map(|line| line.strip_prefix(key));
            lines.next().unwrap_or_default().trim().to_owned()
        };
        let after = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key))
                .unwrap_or_default()
        };
        let line = after("@@ -").split([',', ' ']).next().unwrap_or_default();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let number = name.split('-').next().unwrap_or_default().parse();
        Ok(Bug {
            number: number.map_err(|_| wrong("which number?"))?,
            name: name.into_owned(),
            found_by: says("Found by:"),
            seeds: says("Seeds:").parse().map_err(|_| wrong("how many seeds?"))?,
            kind: says("Kind:"),
            place: format!("{}:{line}", after("+++ b/")),
            path,
        })
    }

    fn row(&self, what: String, how: &str) -> Row {
        Row {
            bug: self.name.clone(),
            place: self.place.clone(),
            expected: self.found_by.clone(),
            bound: match self.kind.as_str() {
                "any" => self.seeds.to_string(),
                kind => format!("{} {kind}", self.seeds),
            },
            what,
            at: format!("{}{how}", commit()),
        }
    }
}

impl Row {
    fn is_found(&self) -> bool {
        self.what.starts_with(FOUND)
    }
}

impl Planted {
    fn switched(path: &Path, number: u32) -> Planted {
        Planted {
            path: path.to_owned(),
            number: Some(number),
        }
    }
}

impl Copy {
    /// Only what differs is written, so that nothing is built again for nothing.
    fn check_out() -> Result<Copy, String> {
        let tree = root().join("target/bugs/tree");
        let place = tree.display().to_string();
        let head = git(root(), &["rev-parse", "HEAD"])?;
        let head = String::from_utf8_lossy(&head.stdout).trim().to_owned();
        let is_there = git(&tree, &["checkout", "--quiet", "--force", "--detach", &head]);
        if !is_there.is_ok_and(|ran| ran.status.success()) {
            let _ = std::fs::remove_dir_all(&tree);
            let _ = git(root(), &["worktree", "prune"]);
            let added = git(root(), &["worktree", "add", "--detach", &place, &head])?;
            success("git worktree add", &added)?;
        }
        let clean = std::env::current_exe().map_err(|error| format!("the simulator: {error}"))?;
        Ok(Copy { tree, clean })
    }

    /// Builds the simulator of what is in the copy now.
    fn build(&self) -> Result<PathBuf, String> {
        let args = "test --offline --profile sim --all-features --test sim --no-run --message-format json";
        let ran = Command::new("cargo")
            .args(args.split(' '))
            .current_dir(&self.tree)
            // A bug changes little: what it does not touch is not built again.
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_TARGET_DIR", root().join("target/bugs/target"))
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        success("it does not build", &ran)?;
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        let said = said
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut built = said.filter_map(|said| said["executable"].as_str().map(PathBuf::from));
        built
            .next_back()
            .ok_or_else(|| "cargo names no executable".to_owned())
    }

    /// The simulator with a change. The inner error: why there is none.
    fn with(&self, patch: &Path) -> Result<Result<PathBuf, String>, String> {
        let patch = patch.display().to_string();
        let applied = git(&self.tree, &["apply", &patch])?;
        if let Err(why) = success("it applies no longer", &applied) {
            return Ok(Err(why));
        }
        let built = self.build();
        let taken_back = git(&self.tree, &["apply", "-R", &patch])?;
        success(&format!("{patch}: take back"), &taken_back)?;
        Ok(built)
    }

    fn try_out(&self, bug: &Bug) -> Result<Row, String> {
        match self.with(&bug.path)? {
            Ok(path) => Ok(bug.row(self.search(bug, &Planted { path, number: None })?, "")),
            Err(why) => {
                eprintln!("{why}");
                Ok(bug.row(first_line(&why), ""))
            }
        }
    }

    /// The simulator without the bug: of one with switches the same, and none is on.
    fn without(&self, planted: &Planted) -> Planted {
        match planted.number {
            Some(_) => Planted::switched(&planted.path, 0),
            None => Planted {
                path: self.clean.clone(),
                number: None,
            },
        }
    }

    /// The first seed that fails because of a bug.
    fn search(&self, bug: &Bug, planted: &Planted) -> Result<String, String> {
        let (mut from, mut also) = (1, vec![]);
        while from <= bug.seeds {
            let said = self.batch(planted, bug, from, bug.seeds - from + 1)?;
            let failed = said.lines().filter_map(|line| {
                let (seed, verdict) = line.strip_prefix("seed ")?.split_once(": ")?;
                Some((seed.parse::<u64>().ok()?, verdict.to_owned()))
            });
            let Some((seed, verdict)) = failed.min() else {
                if !said.contains(" acts each, ") {
                    also.push("it did not end".to_owned());
                }
                break;
            };
            let fails = |simulator: &Planted| {
                let said = self.batch(simulator, bug, seed, 1)?;
                Ok::<bool, String>(said.lines().any(|line| line.starts_with("seed ")))
            };
            match (fails(planted)?, fails(&self.without(planted))?) {
                (true, false) => return Ok(format!("{FOUND}{seed}: {}", cut(&verdict))),
                (_, true) => also.push(format!("seed {seed} fails without it too")),
                (false, false) => also.push(format!("seed {seed} does not fail again")),
            }
            from = seed + 1;
        }
        let also = also.iter().map(|why| format!("; {why}"));
        Ok(format!(
            "not found in {} seeds{}",
            bug.seeds,
            also.collect::<String>()
        ))
    }

    fn batch(&self, simulator: &Planted, bug: &Bug, first: u64, seeds: u64) -> Result<String, String> {
        let mut command = Command::new("timeout");
        command
            .arg(SECS_MAX)
            .arg(&simulator.path)
            .args(["batch", "--until-found"])
            .args(["--first", &first.to_string(), "--seeds", &seeds.to_string()])
            .current_dir(&self.tree)
            .env(SWITCH, simulator.number.unwrap_or(0).to_string())
            // How far it is.
            .stderr(Stdio::inherit());
        if bug.kind != "any" {
            command.args(["--kind", &bug.kind]);
        }
        let ran = command.output().map_err(|error| format!("timeout: {error}"))?;
        Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
    }
}

/// The rows, by the names of bugs.
struct Table(BTreeMap<String, Row>);

impl Table {
    fn path() -> PathBuf {
        root().join("tests/bugs/table.md")
    }

    /// What was written down about bugs that there still are.
    fn read(bugs: &[Bug]) -> Table {
        let text = std::fs::read_to_string(Table::path()).unwrap_or_default();
        let rows = text.lines().filter_map(|line| {
            let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
            let cells: Vec<String> = line.split(" | ").map(str::to_owned).collect();
            let [bug, place, expected, bound, what, at] = <[String; 6]>::try_from(cells).ok()?;
            let name = |cell: String| cell.trim_matches('`').to_owned();
            let row = Row {
                bug: name(bug),
                place: name(place),
                expected,
                bound,
                what,
                at: name(at),
            };
            let is_there = bugs.iter().any(|bug| bug.name == row.bug);
            is_there.then(|| (row.bug.clone(), row))
        });
        Table(rows.collect())
    }

    fn is_found(&self, bug: &str) -> bool {
        self.0.get(bug).is_some_and(Row::is_found)
    }

    /// For people, and for a page of evidence.
    fn write(&self) -> Result<(), String> {
        let mut text = HEAD.to_owned();
        for row in self.0.values() {
            let cells = [&row.expected, &row.bound, &row.what].map(|cell| cell.replace('|', "/"));
            let _ = writeln!(
                text,
                "| `{}` | `{}` | {} | `{}` |",
                row.bug,
                row.place,
                cells.join(" | "),
                row.at
            );
        }
        let found = self.0.values().filter(|row| row.is_found()).count();
        let _ = writeln!(text, "\n{found} of {} were found.", self.0.len());
        let rows = self.0.values().map(|row| {
            json!({
                "bug": row.bug,
                "must_be_found_by": row.expected,
                "within_seeds": row.bound,
                "found": row.is_found(),
                "what": row.what,
            })
        });
        let commits = self.0.values().map(|row| row.at.trim_end_matches(BY_SWITCH));
        let commits: Vec<&str> = commits.collect::<BTreeSet<_>>().into_iter().collect();
        let switched = self.0.values().filter(|row| row.at.ends_with(BY_SWITCH)).count();
        let report = json!({
            "commit": commits.join(", "),
            "by_switches": switched,
            "bugs": rows.collect::<Vec<_>>(),
        });
        let folder = root().join("target/evidence");
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(folder.join("bugs.json"), format!("{report:#}\n")))
            .and_then(|()| std::fs::write(Table::path(), text))
            .map_err(|error| format!("the table: {error}"))
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn cut(verdict: &str) -> String {
    match verdict.char_indices().nth(VERDICT_CHARS_MAX) {
        Some((end, _)) => format!("{} ...", &verdict[..end]),
        None => verdict.to_owned(),
    }
}

fn git(folder: &Path, args: &[&str]) -> Result<Output, String> {
    let ran = Command::new("git").args(args).current_dir(folder).output();
    ran.map_err(|error| format!("git: {error}"))
}

fn success(doing: &str, ran: &Output) -> Result<(), String> {
    match ran.status.success() {
        true => Ok(()),
        false => Err(format!("{doing}: {}", String::from_utf8_lossy(&ran.stderr))),
    }
}
