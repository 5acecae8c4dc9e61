//! Many seeds on some threads: counts, marks, failures made small, and the exit code.

use crate::marks::Marks;
use crate::run::{self, Exit, Outcome, Verdict};
use crate::script::{Kind, Script};
use crate::shrink;
use creditd::clock::Clock;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// From so many seeds on, everything that can happen has to have happened.
const SEEDS_FOR_MARKS: u64 = 500;
/// One seed in so many runs twice.
const TWICE_EVERY: u64 = 100;
/// Whoever waits is told this often how far it is.
const TELL_EVERY_MS: u64 = 60_000;
/// So many failures are shown and made small; the others are counted.
const SHOWN_MAX: usize = 5;

#[derive(Clone, Copy, Debug)]
pub struct Batch {
    pub first: u64,
    pub seeds: u64,
    pub jobs: usize,
    pub secs: u64,
    pub acts: usize,
    pub kind: Option<Kind>,
    pub is_until_found: bool,
}

/// What the seeds came to.
#[derive(Default)]
struct Sum {
    seeds: u64,
    acts: u64,
    told_ms: u64,
    marks: Marks,
    lives: u64,
    failed: Vec<(Script, Outcome)>,
    /// By verdict and invariant.
    failures: BTreeMap<String, u64>,
    differ: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Batch {
    pub fn run(&self) -> Exit {
        let clock = Clock::real();
        let began = clock.now_ms();
        let (next, sum) = (AtomicU64::new(self.first), Mutex::new(Sum::default()));
        std::thread::scope(|threads| {
            for _ in 0..self.jobs {
                threads.spawn(|| self.work(&next, &sum, clock, began));
            }
        });
        let sum = sum.into_inner().unwrap();
        let took_ms = (clock.now_ms() - began).max(1) as u64;
        let exit = self.tell(&sum, took_ms);
        self.keep(&sum, took_ms, exit);
        exit
    }

    fn work(&self, next: &AtomicU64, sum: &Mutex<Sum>, clock: Clock, began: i64) {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let is_late = (clock.now_ms() - began) as u64 / 1_000 >= self.secs;
            let is_found = self.is_until_found && !sum.lock().unwrap().failures.is_empty();
            if seed >= self.first.saturating_add(self.seeds) || is_late || is_found {
                return;
            }
            let script = Script::draw(seed, self.acts, self.kind);
            let outcome = run::seed(&script);
            let second = seed.is_multiple_of(TWICE_EVERY).then(|| run::seed(&script));
            let mut sum = sum.lock().unwrap();
            if let Some(what) = second.and_then(|second| first_difference(&outcome, &second)) {
                sum.differ.push(format!("seed {seed}: {what}"));
            }
            sum.take(script, outcome);
            let passed_ms = (clock.now_ms() - began) as u64;
            if passed_ms - sum.told_ms >= TELL_EVERY_MS {
                sum.told_ms = passed_ms;
                eprintln!(
                    "{} of {} seeds after {} s",
                    sum.seeds,
                    self.seeds,
                    passed_ms / 1_000
                );
            }
        }
    }

    fn tell(&self, sum: &Sum, took_ms: u64) -> Exit {
        let a_minute = sum.seeds * 60_000 / took_ms;
        println!(
            "{} of {} seeds, {} acts each, {} lives: {} failed, {} differ; {} s, {a_minute} seeds a minute",
            sum.seeds,
            self.seeds,
            self.acts,
            sum.lives,
            sum.failures.values().sum::<u64>(),
            sum.differ.len(),
            took_ms / 1_000,
        );
        for (what, count) in &sum.failures {
            println!("  {count} x {what}");
        }
        for what in &sum.differ {
            println!("NOT REPEATABLE {what}");
        }
        let zeros = sum.marks.zeros();
        let is_large = sum.seeds >= SEEDS_FOR_MARKS && self.kind.is_none();
        match (is_large, zeros.is_empty()) {
            (true, true) => {}
            (true, false) => println!("never took effect: {}", zeros.join(", ")),
            (false, _) => println!(
                "NOT JUDGED: what has to take effect; that needs {SEEDS_FOR_MARKS} seeds of all kinds \
                 ({} of its marks did not)",
                zeros.len()
            ),
        }
        for (number, (script, outcome)) in sum.failed.iter().enumerate() {
            report(script, outcome);
            // Where a bug was planted, that it is found is enough.
            if number == 0 && !self.is_until_found {
                keep_small(script, outcome);
            }
        }
        let mut exits: Vec<Exit> = sum
            .failed
            .iter()
            .map(|(_, outcome)| outcome.verdict.exit())
            .collect();
        exits.extend((!sum.differ.is_empty()).then_some(Exit::Differs));
        exits.extend((is_large && !zeros.is_empty()).then_some(Exit::NothingTookEffect));
        // Who looks for a bug ends where it is found.
        let is_looking = !self.is_until_found || exits.is_empty();
        let is_cut = is_looking && sum.seeds < self.seeds;
        if is_cut {
            let late = self.seeds - sum.seeds;
            println!("CUT by --secs {}: {late} seeds did not run", self.secs);
        }
        exits.extend(is_cut.then_some(Exit::Cut));
        [Exit::Wrong, Exit::Crashed, Exit::Stuck, Exit::Differs]
            .into_iter()
            .chain([Exit::NothingTookEffect, Exit::Cut])
            .find(|exit| exits.contains(exit))
            .unwrap_or(Exit::Fine)
    }

    /// For a page of evidence.
    fn keep(&self, sum: &Sum, took_ms: u64, exit: Exit) {
        let folder = root().join("target/evidence");
        let report = json!({
            "first": self.first,
            "seeds": sum.seeds,
            "acts": self.acts,
            "lives": sum.lives,
            "jobs": self.jobs,
            "took_ms": took_ms,
            "seeds_a_minute": sum.seeds * 60_000 / took_ms,
            "failures": sum.failures,
            "differ": sum.differ,
            "marks": sum.marks.0,
            "missing_marks": sum.marks.zeros(),
            "exit": exit as u8,
            "commit": run::commit(),
        });
        let written = std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(folder.join("sim.json"), format!("{report:#}\n")));
        if let Err(error) = written {
            eprintln!("could not write {}: {error}", folder.display());
        }
    }
}

impl Sum {
    fn take(&mut self, script: Script, outcome: Outcome) {
        self.seeds += 1;
        self.acts += script.lines.len() as u64;
        self.lives += u64::from(outcome.lives);
        self.marks.add(&outcome.marks);
        if outcome.verdict != Verdict::Fine {
            *self.failures.entry(outcome.verdict.class()).or_default() += 1;
            let classes = self.failed.iter().map(|(_, failed)| failed.verdict.class());
            let is_new = !classes.collect::<Vec<_>>().contains(&outcome.verdict.class());
            if is_new && self.failed.len() < SHOWN_MAX {
                self.failed.push((script, outcome));
            }
        }
    }
}

fn first_difference(one: &Outcome, other: &Outcome) -> Option<String> {
    if one.verdict != other.verdict {
        return Some(format!("{} and {}", one.verdict, other.verdict));
    }
    let mut lines = one.trace.iter().zip(&other.trace);
    let differ = lines.find(|(one, other)| one != other);
    if let Some((one, other)) = differ {
        return Some(format!("\n  {one}\n  {other}"));
    }
    (one.digest != other.digest).then(|| "the same trace, and another end".to_owned())
}

fn report(script: &Script, outcome: &Outcome) {
    println!("\nseed {}: {}", script.seed, outcome.verdict);
    let from = outcome.trace.len().saturating_sub(10);
    for line in &outcome.trace[from..] {
        println!("    {line}");
    }
    println!(
        "  replay: git checkout {} && cargo test --profile sim --all-features --test sim \
         -- seed {} --kind {:?} --acts {}",
        run::commit(),
        script.seed,
        script.kind,
        script.lines.len(),
    );
}

/// Makes a failure small and writes it down.
fn keep_small(script: &Script, outcome: &Outcome) {
    let small = shrink::shrink(script, &outcome.verdict);
    let folder = root().join("target/sim");
    let path = folder.join(format!("{}.sim", script.seed));
    let text = format!("# {}\n{}", first_line(&outcome.verdict), small.print());
    match std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, text)) {
        Ok(()) => println!(
            "  small ({} of {} acts): target/sim/{}.sim",
            small.lines.len(),
            script.lines.len(),
            script.seed
        ),
        Err(error) => eprintln!("could not write {}: {error}", path.display()),
    }
}

fn first_line(verdict: &Verdict) -> String {
    verdict.to_string().lines().next().unwrap_or_default().to_owned()
}

/// One script, with everything that happened.
pub fn show(script: &Script) -> Exit {
    let outcome = run::seed(script);
    outcome.trace.iter().for_each(|line| println!("{line}"));
    println!("{:?}", outcome.marks.0);
    println!("seed {} ({:?}): {}", script.seed, script.kind, outcome.verdict);
    if outcome.verdict != Verdict::Fine {
        keep_small(script, &outcome);
    }
    outcome.verdict.exit()
}

/// Every script that once found a fault: none may fail again.
pub fn regressions() -> Result<Exit, String> {
    let folder = root().join("tests/regressions");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        return Ok(Exit::Fine);
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "sim"));
    paths.sort();
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    files(&paths.iter().map(String::as_str).collect::<Vec<_>>())
}

pub fn files(paths: &[&str]) -> Result<Exit, String> {
    let mut worst = Exit::Fine;
    for path in paths {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        let script = Script::parse(&text).map_err(|error| format!("{path}: {error}"))?;
        let outcome = run::seed(&script);
        println!("{path}: {}", outcome.verdict);
        if outcome.verdict != Verdict::Fine {
            outcome.trace.iter().for_each(|line| println!("    {line}"));
            worst = outcome.verdict.exit();
        }
    }
    Ok(worst)
}
