//! What the page names is in the sources: marks that the simulator hits, and tests. A name that nobody knows
//! would be claimed for ever.

use super::matrix::{FaultRow, MATRIX};
use super::{root, rows};
use std::path::Path;

/// A file of the checkout, by its path from the root, and its text.
type Source = (String, String);

fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

/// The code that can hit a mark. The list of those that have to be hit hits none.
fn simulator() -> Vec<Source> {
    let mut found = [sources("tests/sim"), sources("tests/world")].concat();
    found.retain(|(name, _)| name != "tests/sim/marks.rs");
    assert!(found.len() > 40, "the walk found too little: {}", found.len());
    found
}

/// Marks of a row that no code can hit.
fn unknown_marks(row: &FaultRow, simulator: &[Source]) -> Vec<String> {
    let is_there = |mark: &str| {
        let literal = format!("\"{mark}\"");
        simulator.iter().any(|(_, text)| text.contains(&literal))
    };
    let unknown = row.marks.iter().filter(|mark| !is_there(mark));
    unknown
        .map(|mark| format!("{}: nothing hits the mark {mark}", row.fault))
        .collect()
}

/// Is it the name of a test in that text?
fn has_test(text: &str, test: &str) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let name = format!("fn {test}(");
    let at = lines.iter().position(|line| line.contains(&name));
    let above = lines[..at.unwrap_or(0)].iter().rev().map(|line| line.trim());
    let mut attributes = above.take_while(|line| !line.is_empty() && *line != "}");
    attributes.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
}

/// Tests that a row names and that are not there; or that it has neither marks nor tests.
fn unknown_tests(row: &FaultRow) -> Vec<String> {
    let is_there = |(file, test): (&str, &str)| {
        let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        has_test(&text, test)
    };
    let unknown = row.elsewhere.iter().filter(|named| !is_there(**named));
    let mut faults: Vec<String> = unknown
        .map(|(file, test)| format!("{}: no test {test} in {file}", row.fault))
        .collect();
    if row.marks.is_empty() && row.elsewhere.is_empty() {
        faults.push(format!("{}: neither a mark nor a test", row.fault));
    }
    faults
}

/// The files that a text of the page links to and that are not there. The page is in `docs`.
fn dead_links(text: &str, docs: &Path) -> Vec<String> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let dead = links.filter(|(link, _)| !docs.join(link).is_file());
    dead.map(|(link, _)| link.to_owned()).collect()
}

#[test]
fn every_mark_of_the_matrix_is_hit_by_some_code() {
    let simulator = simulator();
    let faults: Vec<String> = MATRIX
        .iter()
        .flat_map(|row| unknown_marks(row, &simulator))
        .collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn every_row_of_the_matrix_has_a_mark_or_names_a_test_that_exists() {
    let faults: Vec<String> = MATRIX.iter().flat_map(unknown_tests).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn every_mark_is_of_one_row() {
    let mut marks: Vec<&str> = MATRIX.iter().flat_map(|row| row.marks).copied().collect();
    let all = marks.len();
    marks.sort_unstable();
    marks.dedup();
    assert_eq!(marks.len(), all);
}

#[test]
fn what_the_invariants_are_asked_by_is_there() {
    let docs = root().join("docs");
    let dead: Vec<String> = rows::INVARIANTS
        .iter()
        .flat_map(|row| dead_links(row.by, &docs))
        .collect();
    assert!(dead.is_empty(), "\n{}\n", dead.join("\n"));
}

#[test]
fn planted_names_are_found() {
    let row = |marks, elsewhere| FaultRow {
        fault: "a fault",
        must: "",
        checks: "",
        marks,
        elsewhere,
    };
    let simulator = [("tests/sim/a.rs".to_owned(), "hit(\"one\")".to_owned())];
    let found = unknown_marks(&row(&["one", "on", "two"], &[]), &simulator);
    assert_eq!(
        found,
        ["on", "two"].map(|mark| format!("a fault: nothing hits the mark {mark}"))
    );
    let file = "tests/evidence/sources.rs";
    let tests = &[
        ("tests/evidence/sources.rs", "planted_names_are_found"),
        ("tests/evidence/sources.rs", "planted_names_are"),
        // A function, and no test.
        ("tests/evidence/sources.rs", "unknown_tests"),
        ("tests/evidence/gone.rs", "planted_names_are_found"),
    ];
    assert_eq!(
        unknown_tests(&row(&[], tests)),
        [
            format!("a fault: no test planted_names_are in {file}"),
            format!("a fault: no test unknown_tests in {file}"),
            "a fault: no test planted_names_are_found in tests/evidence/gone.rs".to_owned(),
        ]
    );
    assert_eq!(
        unknown_tests(&row(&[], &[])),
        ["a fault: neither a mark nor a test"]
    );
    let linked = "[a](../tests/evidence/sources.rs), [b](../tests/evidence/gone.rs)";
    assert_eq!(
        dead_links(linked, &root().join("docs")),
        ["../tests/evidence/gone.rs"]
    );
}
