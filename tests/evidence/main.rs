//! The page of evidence (`docs/evidence.md`): rendered from `docs/evidence.json`, and held to it byte for
//! byte. Nobody writes a figure by hand: `tests/run evidence` runs everything, gathers what the runs left
//! under `target/evidence/` (the forms are in `data`), and renders. Needs only the checkout.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

use std::path::{Path, PathBuf};

mod data;
mod gather;
mod matrix;
mod render;
mod rows;
mod sources;

use data::{Evidence, faults};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> PathBuf {
    root().join("docs/evidence.md")
}

fn raw() -> PathBuf {
    root().join("docs/evidence.json")
}

fn limits() -> String {
    std::fs::read_to_string(root().join("tests/evidence/limits.md")).unwrap()
}

/// Writing is asked for by `tests/run evidence` (`evidence`), or where only words have changed (`page`);
/// everybody else compares.
fn is_writing(what: &str) -> bool {
    std::env::var_os("CREDITD_WRITE").is_some_and(|value| value == what)
}

#[test]
fn the_page_of_evidence_is_what_the_runs_left() {
    if is_writing("evidence") {
        let evidence = gather::gather(root());
        let mut faults = faults(&evidence, &gather::planted_bugs(root()));
        faults.extend(gather::of_other_trees(root(), &evidence));
        let text = serde_json::to_string_pretty(&evidence).unwrap();
        std::fs::write(raw(), format!("{text}\n")).unwrap();
        std::fs::write(page(), render::page(&evidence, &limits())).unwrap();
        // Written all the same: what is wrong is to be seen.
        assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
        return;
    }
    let evidence: Evidence = serde_json::from_str(&std::fs::read_to_string(raw()).unwrap()).unwrap();
    if is_writing("page") {
        std::fs::write(page(), render::page(&evidence, &limits())).unwrap();
    }
    let held = std::fs::read_to_string(page()).unwrap();
    let expected = render::page(&evidence, &limits());
    let differs = held
        .lines()
        .zip(expected.lines())
        .find(|(held, wanted)| held != wanted);
    assert_eq!(
        differs, None,
        "docs/evidence.md is not what docs/evidence.json gives: `tests/run evidence`"
    );
    assert_eq!(held, expected);
}

/// What was measured once stays good: no mark at zero, no bug unfound, nothing double or lost.
#[test]
fn the_evidence_shows_no_fault() {
    let evidence: Evidence = serde_json::from_str(&std::fs::read_to_string(raw()).unwrap()).unwrap();
    let faults = faults(&evidence, &gather::planted_bugs(root()));
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// `tests/run --long` asks whether the evidence is of the code that is here, and of all parts.
#[test]
fn the_evidence_is_of_this_tree_where_that_is_asked() {
    if std::env::var_os("CREDITD_EVIDENCE").is_none_or(|value| value != "current") {
        return;
    }
    let evidence: Evidence = serde_json::from_str(&std::fs::read_to_string(raw()).unwrap()).unwrap();
    assert_eq!(
        evidence.missing(),
        Vec::<&str>::new(),
        "parts that were never run"
    );
    assert_eq!(evidence.commits().len(), 1, "the parts are of several commits");
    let measured = evidence.measured.expect("where it was measured");
    assert_eq!(
        (measured.src, measured.schema),
        gather::trees(root()),
        "`tests/run evidence`"
    );
}

#[test]
fn every_invariant_has_its_words() {
    for invariant in creditd::rules::invariants::Invariant::ALL {
        let name = invariant.name();
        assert!(rows::INVARIANTS.iter().any(|row| row.name == name), "{name}");
    }
}

mod tests {
    use super::*;

    const SAMPLE: &str = include_str!("sample.json");

    fn sample() -> Evidence {
        serde_json::from_str(SAMPLE).unwrap()
    }

    fn patches() -> Vec<String> {
        ["01-credit-twice", "02-forget-a-reorg"]
            .map(str::to_owned)
            .to_vec()
    }

    /// Every mark of the matrix was hit, as after a whole run.
    fn whole() -> Evidence {
        let mut evidence = sample();
        let sim = evidence.sim.as_mut().unwrap();
        for mark in matrix::MATRIX.iter().flat_map(|row| row.marks) {
            sim.marks.entry((*mark).to_owned()).or_insert(7);
        }
        evidence
    }

    #[test]
    fn a_page_says_all_that_a_run_left() {
        insta::assert_snapshot!(render::page(&whole(), "- a limit\n"));
    }

    #[test]
    fn a_page_of_nothing_says_so() {
        let page = render::page(&Evidence::default(), "- a limit\n");
        assert_eq!(page.matches("**Not run yet.**").count(), 7, "{page}");
        assert_eq!(Evidence::default().missing().len(), 6);
        assert!(
            faults(&Evidence::default(), &patches()).is_empty(),
            "nothing is claimed"
        );
    }

    #[test]
    fn a_whole_run_has_no_fault() {
        assert_eq!(faults(&whole(), &patches()), Vec::<String>::new());
        assert_eq!(whole().missing(), Vec::<&str>::new());
    }

    #[test]
    fn parts_of_other_commits_are_told_apart() {
        let mut evidence = whole();
        assert_eq!(evidence.commits().len(), 1);
        "89abcde".clone_into(&mut evidence.kills.as_mut().unwrap()[0].commit);
        assert_eq!(evidence.commits().len(), 2);
        assert!(render::page(&evidence, "").contains("At commit `89abcde`."));
    }

    fn row_of(page: &str, fault: &str) -> String {
        let start = format!("| {fault} |");
        let row = page.lines().find(|line| line.starts_with(&start));
        row.unwrap().to_owned()
    }

    /// A mark that was never hit is not left out, and a row of such marks says who holds it instead.
    #[test]
    fn a_mark_that_was_never_hit_is_on_the_page() {
        let mut evidence = whole();
        let marks = &mut evidence.sim.as_mut().unwrap().marks;
        for mark in ["second_refused", "thawed_daemon", "killed_backup"] {
            marks.remove(mark);
        }
        let page = render::page(&evidence, "");
        let row = row_of(&page, "two daemons on one file");
        let shown =
            "| **second_refused 0**, **thawed_daemon 0**: held by the tests beside | [`it/store_open.rs`]";
        assert!(row.contains(shown), "{row}");
        let row = row_of(&page, "kill -9 at any point, again during recovery");
        assert!(row.contains("**killed_backup 0**, killed_elsewhere 7 |"), "{row}");
        assert_eq!(page.matches(" 0**").count(), 3, "{page}");
        let row = row_of(&page, "malformed HTTP");
        assert!(
            row.contains("| **not simulated**, held by the tests beside | [`it/api_sockets.rs`]"),
            "{row}"
        );
        assert_eq!(page.matches("held by nothing").count(), 0, "{page}");
    }

    #[test]
    fn each_fault_of_a_run_is_named() {
        type Spoil = fn(&mut Evidence);
        let rows: [(&str, Spoil); 9] = [
            ("mark killed_begin: never", |e| {
                let sim = e.sim.as_mut().unwrap();
                sim.marks.remove("killed_begin");
                sim.missing_marks.push("killed_begin".to_owned());
            }),
            ("mark unheard_of: never", |e| {
                e.sim
                    .as_mut()
                    .unwrap()
                    .missing_marks
                    .push("unheard_of".to_owned());
            }),
            ("an old backup restored: it never took effect", |e| {
                let row = matrix::MATRIX
                    .iter()
                    .find(|row| row.fault == "an old backup restored");
                for mark in row.unwrap().marks {
                    e.sim.as_mut().unwrap().marks.remove(*mark);
                }
            }),
            ("3 seeds ended so: wrong I7", |e| {
                e.sim.as_mut().unwrap().failures.insert("wrong I7".to_owned(), 3);
            }),
            ("not repeatable: seed 100", |e| {
                e.sim.as_mut().unwrap().differ.push("seed 100".to_owned());
            }),
            ("01-credit-twice: not found within 200 seeds", |e| {
                e.bugs.as_mut().unwrap().bugs[0].found = false;
            }),
            ("01-credit-again: no such file", |e| {
                let bugs = &mut e.bugs.as_mut().unwrap().bugs;
                let mut other = bugs[0].clone();
                other.bug = "01-credit-again".to_owned();
                bugs.push(other);
            }),
            ("02-forget-a-reorg: never tried", |e| {
                e.bugs.as_mut().unwrap().bugs.pop();
            }),
            ("loop of statements: 1 double, 0 lost", |e| {
                e.kills.as_mut().unwrap()[0].double = 1;
            }),
        ];
        for (expected, spoil) in rows {
            let mut evidence = whole();
            spoil(&mut evidence);
            let found = faults(&evidence, &patches());
            assert_eq!(found.len(), 1, "{expected}: {found:?}");
            assert!(found[0].contains(expected), "{expected}: {found:?}");
        }
    }
}
