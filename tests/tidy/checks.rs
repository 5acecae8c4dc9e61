//! The checks themselves: text in, faults out, so that planted faults can be tried on them.

use crate::paths::{self, UsedPath};
use crate::table;

const FILE_LINES_MAX: usize = 500;
const MAIN_LINES_MAX: usize = 10;
const COLUMNS_MAX: usize = 110;
/// The scan that the simulator holds the tables against is right only as long as it can be read in one go.
const NAIVE_LINES_MAX: usize = 150;

/// Where time may be read and slept on, against the lint.
const MAY_TAKE_TIME: &[&str] = &["src/clock.rs", "tests/common/wait.rs"];

/// Where the process may end without its main: a signal that is to end it at once is heard there.
const MAY_EXIT: &[&str] = &["src/ends.rs"];

pub fn is_source(name: &str) -> bool {
    name.starts_with("src/") && name.ends_with(".rs")
}

/// The module path of a source file: `src/chain/rpc/auth.rs` is `chain`, `rpc`, `auth`.
fn module_path(name: &str) -> Vec<&str> {
    let inner = name.trim_start_matches("src/").trim_end_matches(".rs");
    let mut modules: Vec<&str> = inner.split('/').collect();
    if modules.last() == Some(&"mod") {
        modules.pop();
    }
    modules
}

/// The names under `[dependencies]`, as code writes them.
pub fn dependencies(manifest: &str) -> Vec<String> {
    let lines = manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name.trim().replace('-', "_"))
        .collect()
}

/// Paths that break the module table.
pub fn imports(name: &str, source: &str, dependencies: &[String]) -> Vec<String> {
    let modules = module_path(name);
    let user = modules[0];
    let used = paths::used_paths(source);
    let faults = used.iter().filter_map(|path| {
        let why = import_fault(user, modules.len(), path, dependencies)?;
        Some(format!(
            "{name}:{}: {why} ({})",
            path.line,
            path.segments.join("::")
        ))
    });
    faults.collect()
}

fn import_fault(user: &str, depth: usize, path: &UsedPath, dependencies: &[String]) -> Option<String> {
    let segments: Vec<&str> = path.segments.iter().map(String::as_str).collect();
    let first = *segments.first()?;
    match first {
        "crate" | "creditd" => table::forbids_module(user, segments.get(1)?),
        "self" | "super" => {
            let below: Vec<&str> = segments
                .iter()
                .copied()
                .skip_while(|word| *word == "self")
                .collect();
            let ups = below.iter().take_while(|word| **word == "super").count();
            let is_at_root = ups == depth + path.inline_mods && user != "lib" && user != "main";
            if is_at_root {
                table::forbids_module(user, below.get(ups)?)
            } else {
                None
            }
        }
        "std" if user == "rules" => {
            let part = *segments.get(1)?;
            let is_clock = part == "time" && segments.get(2).is_some_and(|what| *what != "Duration");
            let is_impure = is_clock || table::IMPURE_STD.contains(&part);
            is_impure.then(|| format!("`rules` is pure: no std::{part}"))
        }
        // A unit test may compare with any crate; the modules of ours keep to the table in tests too.
        _ if path.is_test => None,
        _ => table::forbids_crate(user, first, dependencies.iter().any(|name| name == first)),
    }
}

/// Modules that src/lib.rs declares and the table does not know.
pub fn modules_without_row(lib: &str) -> Vec<String> {
    let tokens = paths::tokens(lib);
    let declared = tokens
        .windows(2)
        .filter(|pair| pair[0].text == "mod")
        .map(|pair| pair[1].text.as_str());
    let unknown = declared.filter(|module| !table::is_known(module));
    unknown
        .map(|module| format!("src/lib.rs: `{module}` has no row in tests/tidy/table.rs"))
        .collect()
}

/// What the watcher reads a block with. Whoever reads the chain again, to hold the books against it, reads it
/// by other code.
const DECODERS: [&str; 8] = [
    "scan", "skim", "decode", "block", "wanted", "traced", "receipts", "transfer",
];

/// Is it `src/chain/CHAIN/reread.rs`, or a file below?
pub fn is_reread(name: &str) -> bool {
    is_source(name)
        && name
            .split('/')
            .any(|part| part == "reread" || part == "reread.rs")
}

/// Uses of the watcher's decoders in `source`, a file of `src/chain/CHAIN/reread`: by path, or by a method
/// that one of them has. `files` are all sources.
pub fn shared_decoders(name: &str, source: &str, files: &[(String, String)]) -> Vec<String> {
    let folder = match name.split_once("reread") {
        Some((folder, _)) if is_reread(name) => folder,
        _ => return Vec::new(),
    };
    let mut faults = Vec::new();
    for path in paths::used_paths(source) {
        let is_ours = matches!(path.segments[0].as_str(), "crate" | "super" | "self");
        let mut words = path.segments.iter().filter(|_| is_ours);
        let named = words.find(|word| DECODERS.contains(&word.as_str()));
        if let Some(module) = named {
            faults.push(format!("{name}:{}: names the watcher's `{module}`", path.line));
        }
    }
    let theirs = DECODERS.map(|module| format!("{folder}{module}.rs"));
    let methods: Vec<String> = files
        .iter()
        .filter(|(file, _)| theirs.contains(file))
        .flat_map(|(_, text)| methods(text))
        .collect();
    for pair in paths::tokens(source).windows(2) {
        if pair[0].text == "." && methods.contains(&pair[1].text) {
            faults.push(format!(
                "{name}:{}: calls the watcher's `{}`",
                pair[1].line, pair[1].text
            ));
        }
    }
    faults
}

/// The names of functions that have a `self`.
fn methods(source: &str) -> Vec<String> {
    let tokens = paths::tokens(source);
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut found = Vec::new();
    for at in (0..tokens.len()).filter(|at| text(*at) == "fn") {
        let opens = (at..tokens.len()).find(|at| text(*at) == "(");
        let first = opens.map_or(0, |opens| opens + 1);
        let mut words = (first..first + 3).map(text);
        if words.by_ref().find(|word| !matches!(*word, "&" | "mut")) == Some("self") {
            found.push(text(at + 1).to_owned());
        }
    }
    found
}

fn is_hand_written(name: &str, text: &str) -> bool {
    name.ends_with(".rs") || name.ends_with(".sql") || name.ends_with(".sh") || text.starts_with("#!")
}

/// Files and lines that are too long.
pub fn sizes(name: &str, text: &str) -> Vec<String> {
    if !is_hand_written(name, text) {
        return Vec::new();
    }
    let lines_max = match name {
        "src/main.rs" => MAIN_LINES_MAX,
        "tests/sim/naive.rs" => NAIVE_LINES_MAX,
        // One file by design: a database is read from it as a whole.
        "schema.sql" => usize::MAX,
        _ => FILE_LINES_MAX,
    };
    let lines = text.lines().count();
    let mut faults = Vec::new();
    if lines > lines_max {
        faults.push(format!("{name}: {lines} lines, at most {lines_max}"));
    }
    for (line, text) in (1..).zip(text.lines()) {
        let columns = text.chars().count();
        if columns > COLUMNS_MAX {
            faults.push(format!("{name}:{line}: {columns} columns, at most {COLUMNS_MAX}"));
        }
    }
    faults
}

/// Sequences of tokens that no Rust file of ours may hold.
pub fn tokens(name: &str, source: &str) -> Vec<String> {
    if !name.ends_with(".rs") {
        return Vec::new();
    }
    let tokens = paths::tokens(source);
    let mut faults = Vec::new();
    let mut forbid = |sequence: &[&str], why: &str| {
        for window in tokens.windows(sequence.len()) {
            if window
                .iter()
                .zip(sequence)
                .all(|(token, word)| token.text == *word)
            {
                faults.push(format!("{name}:{}: {why}", window[0].line));
            }
        }
    };
    forbid(&["#", "[", "ignore"], "a test that does not run proves nothing");
    forbid(&["todo", "!"], "finish it or leave it out");
    forbid(&["unimplemented", "!"], "finish it or leave it out");
    if !MAY_EXIT.contains(&name) {
        forbid(
            &["process", "::", "exit"],
            "return an exit code from main, so that destructors run",
        );
    }
    if !MAY_TAKE_TIME.contains(&name) {
        forbid(
            &["clippy", "::", "disallowed_methods"],
            "time comes from clock, in tests from wait_until",
        );
    }
    if name.starts_with("src/rules/") {
        forbid(&["async"], "`rules` waits for nothing");
        forbid(&["await"], "`rules` waits for nothing");
        forbid(
            &["HashMap"],
            "the order of a HashMap differs from run to run: BTreeMap",
        );
        forbid(
            &["HashSet"],
            "the order of a HashSet differs from run to run: BTreeSet",
        );
    }
    faults
}

/// Words that mean something only to somebody who saw the project being made.
pub fn words(name: &str, text: &str) -> Vec<String> {
    // In two parts, or this file would be the first fault.
    let strangers = [
        ["../", "shared"],
        ["issue", " #"],
        ["/", "work/"],
        ["LAND", ".md"],
        ["wt/", "tool"],
    ];
    let mut faults = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        for word in strangers.map(|parts| parts.concat()) {
            if text.contains(&word) {
                faults.push(format!("{name}:{line}: speaks of {word:?}"));
            }
        }
    }
    faults
}
