//! What the runs leave under `target/evidence/`, one file a part, and what is wrong with it. The names of the
//! files are those of the fields of [`Evidence`]: `sim.json`, `bugs.json`, `kills.json`, `nodes.json`,
//! `audit.json`.

use super::matrix::{FaultRow, MATRIX};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// All of it, as `docs/evidence.json` holds it. A part that was never run is null.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    pub measured: Option<Measured>,
    pub sim: Option<Sim>,
    pub bugs: Option<Bugs>,
    pub kills: Option<Vec<Kills>>,
    pub nodes: Option<Nodes>,
    pub audit: Option<Audit>,
}

/// On what, and when.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    pub date: String,
    pub machine: String,
    /// Git's name of the folder `src`: a commit cannot hold its own name.
    pub src: String,
    /// Git's name of `schema.sql`.
    pub schema: String,
}

/// A batch of the simulator, as it leaves it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sim {
    /// The first seed.
    pub first: u64,
    pub seeds: u64,
    /// Of each seed.
    pub acts: u64,
    /// Starts of the daemon.
    pub lives: u64,
    pub took_ms: u64,
    pub jobs: u64,
    /// Seeds that failed, by verdict.
    pub failures: BTreeMap<String, u64>,
    /// Seeds that ran twice and ended differently.
    pub differ: Vec<String>,
    /// How often each fault took effect.
    pub marks: BTreeMap<String, u64>,
    /// Those that never did and must.
    pub missing_marks: Vec<String>,
    pub exit: u64,
    pub commit: String,
}

impl Sim {
    /// The marks of a row of the matrix, and how often each was hit: those that never were too.
    pub fn marks_of(&self, row: &FaultRow) -> Vec<(String, u64)> {
        row.marks
            .iter()
            .map(|mark| self.hits((*mark).to_owned()))
            .collect()
    }

    /// Those of no row.
    pub fn other_marks(&self) -> Vec<(String, u64)> {
        let in_rows: Vec<&str> = MATRIX.iter().flat_map(|row| row.marks).copied().collect();
        let all = self.marks.keys().chain(&self.missing_marks);
        let mut others: Vec<&String> = all.filter(|mark| !in_rows.contains(&mark.as_str())).collect();
        others.sort();
        others.dedup();
        others.into_iter().map(|mark| self.hits(mark.clone())).collect()
    }

    fn hits(&self, mark: String) -> (String, u64) {
        let hits = self.marks.get(&mark).copied().unwrap_or(0);
        (mark, hits)
    }
}

/// Bugs that were put into the code on purpose, as the simulator leaves them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bugs {
    pub commit: String,
    /// Of them: in one build of all, each behind a switch. The others: a build of the patch alone.
    pub by_switches: u64,
    pub bugs: Vec<Bug>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bug {
    /// The file in `tests/bugs`, without its ending.
    pub bug: String,
    pub must_be_found_by: String,
    pub within_seeds: String,
    pub found: bool,
    /// `seed 17: ...`, the first line of what was said.
    pub what: String,
}

/// One N-loop: killed at the N-th point, for every N.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kills {
    #[serde(rename = "loop")]
    pub name: String,
    pub commit: String,
    pub points: u64,
    /// Whole stories that were played.
    pub passes: u64,
    pub kills: u64,
    /// Of the kills, those in a start after one.
    pub in_recovery: u64,
    /// How often it was killed at each point.
    pub by_name: BTreeMap<String, u64>,
    /// Effects that were there twice afterwards.
    pub double: u64,
    /// Effects that somebody was told of and that were gone.
    pub lost: u64,
    /// Stories that did not come to their end, or to one of other books.
    pub failed: u64,
}

/// Tests against real nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    pub commit: String,
    pub bitcoind: String,
    pub anvil: String,
    pub tests: u64,
}

/// Faults planted into the books, for the audit.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// How often each kind was planted and found.
    pub kinds: BTreeMap<String, Planted>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planted {
    pub planted: u64,
    pub found: u64,
}

impl Evidence {
    /// The parts that were never run.
    pub fn missing(&self) -> Vec<&'static str> {
        let parts = [
            ("measured", self.measured.is_some()),
            ("sim", self.sim.is_some()),
            ("bugs", self.bugs.is_some()),
            ("kills", self.kills.is_some()),
            ("nodes", self.nodes.is_some()),
            ("audit", self.audit.is_some()),
        ];
        let missing = parts.into_iter().filter(|(_, is_there)| !is_there);
        missing.map(|(name, _)| name).collect()
    }

    /// The commits that the parts were run on: one, or what the page says is of no tree that ever was.
    pub fn commits(&self) -> BTreeSet<&str> {
        let parts = [
            self.sim.as_ref().map(|sim| &sim.commit),
            self.bugs.as_ref().map(|bugs| &bugs.commit),
            self.nodes.as_ref().map(|nodes| &nodes.commit),
        ];
        let kills = self.kills.iter().flatten().map(|kills| &kills.commit);
        let commits = parts.into_iter().flatten().chain(kills);
        // Rows of bugs may be of several.
        commits.flat_map(|all| all.split(", ")).collect()
    }
}

/// What is wrong with what was run. `patches` are the files of planted bugs that there are.
pub fn faults(evidence: &Evidence, patches: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    faults.extend(evidence.sim.iter().flat_map(sim_faults));
    faults.extend(evidence.bugs.iter().flat_map(|bugs| bug_faults(bugs, patches)));
    for kills in evidence.kills.iter().flatten() {
        let Kills {
            name,
            double,
            lost,
            failed,
            ..
        } = kills;
        if *double + *lost + *failed > 0 {
            faults.push(format!(
                "loop of {name}: {double} double, {lost} lost, {failed} stories failed"
            ));
        }
        if kills.kills == 0 {
            faults.push(format!("loop of {name}: nobody was killed"));
        }
    }
    for (kind, Planted { planted, found }) in evidence.audit.iter().flat_map(|audit| &audit.kinds) {
        if *planted == 0 || found != planted {
            faults.push(format!("audit, {kind}: {planted} planted, {found} found"));
        }
    }
    faults
}

fn sim_faults(sim: &Sim) -> Vec<String> {
    let mut faults = Vec::new();
    let never = sim.missing_marks.iter();
    faults.extend(never.map(|mark| format!("mark {mark}: never")));
    for row in MATRIX.iter().filter(|row| row.elsewhere.is_empty()) {
        if sim.marks_of(row).iter().all(|(_, hits)| *hits == 0) {
            faults.push(format!(
                "{}: it never took effect, and no test is named",
                row.fault
            ));
        }
    }
    for (verdict, seeds) in &sim.failures {
        faults.push(format!("{seeds} seeds ended so: {verdict}"));
    }
    faults.extend(sim.differ.iter().map(|seed| format!("not repeatable: {seed}")));
    if sim.exit != 0 && faults.is_empty() {
        faults.push(format!("the batch ended with {}", sim.exit));
    }
    faults
}

fn bug_faults(Bugs { bugs, .. }: &Bugs, patches: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    for bug in bugs {
        if !bug.found {
            faults.push(format!(
                "{}: not found within {} seeds",
                bug.bug, bug.within_seeds
            ));
        }
        if !patches.contains(&bug.bug) {
            faults.push(format!("{}: no such file in tests/bugs", bug.bug));
        }
    }
    let tried = |patch: &&String| bugs.iter().any(|bug| bug.bug == **patch);
    let untried = patches.iter().filter(|patch| !tried(patch));
    faults.extend(untried.map(|patch| format!("{patch}: never tried")));
    faults
}
