//! Collects what the runs left, and on what they ran.

use super::data::{Evidence, Measured};
use serde::de::DeserializeOwned;
use std::path::Path;
use std::process::Command;

/// Everything under `target/evidence/`; what is not there was not run.
pub fn gather(root: &Path) -> Evidence {
    let folder = root.join("target/evidence");
    let (src, schema) = trees(root);
    Evidence {
        measured: Some(Measured {
            date: said(root, "date", &["-u", "+%Y-%m-%d"]),
            machine: machine(),
            src,
            schema,
        }),
        sim: part(&folder, "sim"),
        bugs: part(&folder, "bugs"),
        kills: part(&folder, "kills"),
        nodes: part(&folder, "nodes"),
        audit: part(&folder, "audit"),
    }
}

fn part<T: DeserializeOwned>(folder: &Path, name: &str) -> Option<T> {
    let file = folder.join(format!("{name}.json"));
    let text = std::fs::read(&file).ok()?;
    let read = serde_json::from_slice(&text);
    Some(read.unwrap_or_else(|error| panic!("{}: {error}", file.display())))
}

/// The planted bugs that there are.
pub fn planted_bugs(root: &Path) -> Vec<String> {
    let folder = std::fs::read_dir(root.join("tests/bugs"));
    let mut names: Vec<String> = folder
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| Some(name.strip_suffix(".patch")?.to_owned()))
        .collect();
    names.sort();
    names
}

/// Git's names of `src` and `schema.sql`, as they are in the checkout.
pub fn trees(root: &Path) -> (String, String) {
    let changed = said(root, "git", &["status", "--porcelain", "--", "src", "schema.sql"]);
    assert_eq!(
        changed, "",
        "src or schema.sql are not committed: no name tells what was run"
    );
    let name = |of: &str| said(root, "git", &["rev-parse", &format!("HEAD:{of}")]);
    (name("src"), name("schema.sql"))
}

/// Parts that were run on something else than what is here.
pub fn of_other_trees(root: &Path, evidence: &Evidence) -> Vec<String> {
    let here = trees(root);
    let tree = |commit: &str, of: &str| {
        let asked = Command::new("git")
            .args(["rev-parse", "--verify", &format!("{commit}:{of}")])
            .current_dir(root)
            .output();
        String::from_utf8(asked.unwrap().stdout)
            .unwrap()
            .trim()
            .to_owned()
    };
    let is_other = |commit: &&str| (tree(commit, "src"), tree(commit, "schema.sql")) != here;
    let commits = evidence.commits();
    let others = commits.into_iter().filter(is_other);
    others
        .map(|commit| format!("what ran on {commit} ran on another src or schema.sql than is here"))
        .collect()
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let model = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("", |model| model.trim_start_matches([' ', '\t', ':']));
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kb = memory.lines().find_map(|line| {
        let kb = line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?;
        kb.parse::<u64>().ok()
    });
    let gib = kb.unwrap_or(0).div_ceil(1024 * 1024);
    format!("{cores} cores, {gib} GiB, {model}")
}

fn said(root: &Path, program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
