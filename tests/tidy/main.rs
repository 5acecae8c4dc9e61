//! Rules of the house that no other tool checks: who may use whom, sizes, words. Needs only the checkout.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

mod checks;
mod paths;
mod planted;
mod table;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file of the checkout with its path from the root, without what git ignores and other people's texts.
fn files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            if [".git", "target", "Cargo.lock"].contains(&name.as_str()) || name.starts_with("LICENSE") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                found.push((name, text));
            }
        }
    }
    found.sort();
    found
}

fn dependencies() -> Vec<String> {
    checks::dependencies(&fs::read_to_string(root().join("Cargo.toml")).unwrap())
}

#[track_caller]
fn assert_clean(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn imports_keep_to_the_module_table() {
    let dependencies = dependencies();
    let files = files();
    let sources: Vec<_> = files.iter().filter(|(name, _)| checks::is_source(name)).collect();
    assert!(sources.len() >= 5, "the walk found too little: {}", sources.len());
    let faults = sources
        .iter()
        .flat_map(|(name, text)| checks::imports(name, text, &dependencies));
    assert_clean(&faults.collect::<Vec<_>>());
}

#[test]
fn another_path_shares_no_decoder() {
    let files = files();
    let again: Vec<_> = files.iter().filter(|(name, _)| checks::is_reread(name)).collect();
    assert!(again.len() >= 3, "the walk found too little: {}", again.len());
    let faults = again
        .iter()
        .flat_map(|(name, text)| checks::shared_decoders(name, text, &files));
    assert_clean(&faults.collect::<Vec<_>>());
}

#[test]
fn every_module_has_a_row_in_the_table() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    assert_clean(&checks::modules_without_row(&lib));
}

#[test]
fn the_architecture_names_every_module() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let modules: Vec<&str> = lib
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .collect();
    assert!(modules.len() > 15, "{modules:?}");
    let missing = modules
        .into_iter()
        .filter(|module| !text.contains(&format!("| [`{module}`](../src/{module}")));
    assert_clean(&missing.map(str::to_owned).collect::<Vec<_>>());
}

#[test]
fn files_and_lines_are_short() {
    let faults = files()
        .iter()
        .flat_map(|(name, text)| checks::sizes(name, text))
        .collect::<Vec<_>>();
    assert_clean(&faults);
}

#[test]
fn no_test_is_ignored_and_nothing_is_left_for_later() {
    let faults = files()
        .iter()
        .flat_map(|(name, text)| checks::tokens(name, text))
        .collect::<Vec<_>>();
    assert_clean(&faults);
}

#[test]
fn the_project_speaks_only_of_itself() {
    let faults = files()
        .iter()
        .flat_map(|(name, text)| checks::words(name, text))
        .collect::<Vec<_>>();
    assert_clean(&faults);
}

/// A planted bug that fits no more would no longer be looked for.
#[test]
fn every_planted_bug_still_fits() {
    let patches: Vec<_> = fs::read_dir(root().join("tests/bugs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|end| end == "patch" || end == "diff")
        })
        .collect();
    assert!(patches.len() >= 50, "{} are left", patches.len());
    let faults: Vec<String> = patches
        .iter()
        .filter_map(|patch| {
            let applied = std::process::Command::new("git")
                .args(["apply", "--check"])
                .arg(patch)
                .current_dir(root())
                .output()
                .unwrap();
            let why = String::from_utf8_lossy(&applied.stderr).into_owned();
            (!applied.status.success()).then(|| format!("{}: {why}", patch.display()))
        })
        .collect();
    assert_clean(&faults);
}

/// Of each file that a patch changes, with its name, the lines of the change.
fn changed(patch: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut changed: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut at = None;
    for line in patch.lines().filter(|line| !line.starts_with("--- a/")) {
        match (line.strip_prefix("+++ b/"), at) {
            (Some(name), _) => at = Some(name),
            (None, Some(name)) => changed.entry(name).or_default().push(line),
            (None, None) => {}
        }
    }
    changed
}

/// The table is filled by one build with all of them. What a switch does instead cannot be compared with what
/// its patch does: where it does it, and instead of what, can.
#[test]
fn every_planted_bug_has_its_switch_where_its_patch_is() {
    let folder = root().join("tests/bugs");
    let switches = fs::read_to_string(folder.join("switches.diff")).unwrap();
    let switches = changed(&switches);
    let mut faults = vec![];
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.as_ref().unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".patch") {
            continue;
        }
        let number: u32 = name.split('-').next().unwrap().parse().unwrap();
        let patch = fs::read_to_string(entry.unwrap().path()).unwrap();
        for (file, lines) in changed(&patch) {
            let there = switches.get(file).map(Vec::as_slice).unwrap_or_default();
            if !there
                .iter()
                .any(|line| line.starts_with('+') && line.contains(&format!("planted({number})")))
            {
                faults.push(format!("{name}: no switch in {file}"));
            }
            let known: BTreeSet<&str> = there
                .iter()
                .filter_map(|line| line.get(1..))
                .map(str::trim)
                .collect();
            let gone = lines
                .iter()
                .filter_map(|line| line.strip_prefix('-'))
                .map(str::trim);
            let is_telling = |line: &&str| line.contains(char::is_alphanumeric);
            faults.extend(
                gone.filter(is_telling)
                    .filter(|line| !known.contains(line))
                    .map(|line| format!("{name}: its switch in {file} is not at `{line}`")),
            );
        }
    }
    assert_clean(&faults);
}
