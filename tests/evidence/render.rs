//! The page, from what the runs left.

use super::data::{Evidence, Measured, Sim};
use super::matrix::{FaultRow, MATRIX};
use super::rows::INVARIANTS;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const NOT_RUN: &str = "**Not run yet.**\n";

pub fn page(evidence: &Evidence, limits: &str) -> String {
    let mut page = String::from(
        "# What was tried, and what came of it\n\n\
         Written by `tests/run evidence` from [evidence.json](evidence.json), which the runs themselves\n\
         left; an ordinary test holds the one to the other. What the words mean is in\n\
         [invariants.md](invariants.md).\n\n",
    );
    measured(&mut page, evidence.measured.as_ref());
    seeds(&mut page, evidence.sim.as_ref());
    invariants(&mut page);
    matrix(&mut page, evidence.sim.as_ref());
    bugs(&mut page, evidence);
    kills(&mut page, evidence);
    beside(&mut page, evidence);
    let _ = write!(page, "## Known limits\n\n{limits}");
    page
}

fn heading(page: &mut String, title: &str) {
    let _ = write!(page, "## {title}\n\n");
}

fn table(page: &mut String, columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let _ = writeln!(page, "| {} |", columns.join(" | "));
    let _ = writeln!(page, "|{}", "---|".repeat(columns.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    }
    page.push('\n');
}

/// 1234567 as `1,234,567`.
fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn measured(page: &mut String, measured: Option<&Measured>) {
    let Some(Measured {
        date,
        machine,
        src,
        schema,
    }) = measured
    else {
        let _ = writeln!(page, "{NOT_RUN}");
        return;
    };
    table(
        page,
        &["", ""],
        [
            vec!["on".to_owned(), date.clone()],
            vec!["machine".to_owned(), machine.clone()],
            vec![
                "`src`".to_owned(),
                format!("tree `{src}` (`git rev-parse COMMIT:src`)"),
            ],
            vec!["`schema.sql`".to_owned(), format!("blob `{schema}`")],
        ],
    );
}

fn seeds(page: &mut String, sim: Option<&Sim>) {
    heading(page, "Seeds");
    let Some(sim) = sim else {
        let _ = writeln!(page, "{NOT_RUN}");
        return;
    };
    let last = sim.first.saturating_add(sim.seeds).saturating_sub(1);
    let failed: u64 = sim.failures.values().sum();
    let per_minute = sim.seeds.saturating_mul(60_000) / sim.took_ms.max(1);
    let row = |name: &str, text: String| vec![name.to_owned(), text];
    table(
        page,
        &["", ""],
        [
            row(
                "seeds",
                format!(
                    "{}, from {} to {}",
                    number(sim.seeds),
                    number(sim.first),
                    number(last)
                ),
            ),
            row("ended as they must", number(sim.seeds.saturating_sub(failed))),
            row("acts of each", number(sim.acts)),
            row("starts of the daemon", number(sim.lives)),
            row(
                "time",
                format!(
                    "{} s on {} threads, {} seeds a minute",
                    number(sim.took_ms / 1_000),
                    sim.jobs,
                    number(per_minute)
                ),
            ),
            row(
                "every 100th ran twice",
                match sim.differ.len() {
                    0 => "all ended alike to the last byte".to_owned(),
                    differ => format!("**{differ} ended differently**"),
                },
            ),
            row("commit", format!("`{}`", sim.commit)),
        ],
    );
}

fn invariants(page: &mut String) {
    heading(page, "What must always hold");
    let _ = writeln!(
        page,
        "**S**: after every step, **R**: after every restart, **Q**: once the world is at rest, **E**: by \
         what outsiders were told.\n"
    );
    let rows = INVARIANTS.iter().map(|row| {
        [row.name, row.property, row.when, row.by]
            .map(str::to_owned)
            .to_vec()
    });
    table(page, &["name", "property", "when", "asked by"], rows);
}

fn told(marks: &[(String, u64)]) -> String {
    let marks = marks.iter().map(|(mark, hits)| match hits {
        0 => format!("**{mark} 0**"),
        hits => format!("{mark} {}", number(*hits)),
    });
    marks.collect::<Vec<_>>().join(", ")
}

/// What took effect. Where nothing did, the row says so, whatever it names.
fn took_effect(row: &FaultRow, sim: Option<&Sim>) -> String {
    let Some(sim) = sim else {
        return row.marks.join(", ");
    };
    let marks = sim.marks_of(row);
    let held = match row.elsewhere {
        [] => "held by nothing",
        _ => "held by the tests beside",
    };
    match (marks.is_empty(), marks.iter().any(|(_, hits)| *hits > 0)) {
        (true, _) => format!("**not simulated**, {held}"),
        (false, false) => format!("{}: {held}", told(&marks)),
        (false, true) => told(&marks),
    }
}

/// Tests by their file and name, each file once.
fn named(tests: &[(&str, &str)]) -> String {
    let mut files: Vec<(&str, Vec<&str>)> = Vec::new();
    for (file, test) in tests {
        match files.last_mut().filter(|(last, _)| last == file) {
            Some((_, names)) => names.push(test),
            None => files.push((file, vec![test])),
        }
    }
    let files = files.into_iter().map(|(file, names)| {
        let name = file.trim_start_matches("tests/");
        format!("[`{name}`](../{file}): {}", names.join(", "))
    });
    files.collect::<Vec<_>>().join("; ")
}

fn matrix(page: &mut String, sim: Option<&Sim>) {
    heading(page, "What was done to it");
    let _ = writeln!(
        page,
        "Each number is how often the fault *took effect* in the simulator, not how often it was drawn. \
         Tests beside are of what it does not do, or not in that form.\n"
    );
    if sim.is_none() {
        let _ = writeln!(page, "{NOT_RUN}");
    }
    let rows = MATRIX.iter().map(|row| {
        let own = [row.fault, row.must, row.checks].map(str::to_owned);
        [&own[..], &[took_effect(row, sim), named(row.elsewhere)]].concat()
    });
    let others = sim.map(Sim::other_marks).unwrap_or_default();
    let beside = (!others.is_empty()).then(|| {
        let cells = ["beside", "as if nothing had been", ""].map(str::to_owned);
        [&cells[..], &[told(&others), String::new()]].concat()
    });
    let columns = [
        "fault",
        "what must happen",
        "checks",
        "took effect",
        "tests beside",
    ];
    table(page, &columns, rows.chain(beside));
}

fn bugs(page: &mut String, evidence: &Evidence) {
    heading(page, "Planted bugs");
    let _ = writeln!(
        page,
        "Each is a patch of [tests/bugs](../tests/bugs) that somebody could have written. The simulator must \
         find it.\n"
    );
    let Some(bugs) = &evidence.bugs else {
        let _ = writeln!(page, "{NOT_RUN}");
        return;
    };
    let rows = bugs.bugs.iter().map(|bug| {
        let what = match bug.found {
            true => bug.what.clone(),
            false => "**not found**".to_owned(),
        };
        let own = [&bug.bug, &bug.must_be_found_by, &bug.within_seeds];
        [&own.map(String::clone)[..], &[what]].concat()
    });
    table(
        page,
        &["bug", "must be found by", "within seeds", "found by"],
        rows,
    );
    let found = bugs.bugs.iter().filter(|bug| bug.found).count();
    let all = bugs.bugs.len();
    let _ = writeln!(
        page,
        "{found} of {all} were found, at commit `{}`: {} in one build of all, each behind a switch that does \
         what its patch does; {} in a build of the patch alone.\n",
        bugs.commit,
        bugs.by_switches,
        all as u64 - bugs.by_switches
    );
}

fn kills(page: &mut String, evidence: &Evidence) {
    heading(page, "Killed at every point");
    let Some(kills) = &evidence.kills else {
        let _ = writeln!(page, "{NOT_RUN}");
        return;
    };
    let _ = writeln!(
        page,
        "A real daemon beside a real node ends at its points in their turn, as by `kill -9`, is \
         started again, and must end as one that was left alone \
         ([`n_loop.rs`](../tests/nodes/n_loop.rs)). With fewer kills than points it was the short loop: \
         at each name of a point, and before each commit.\n"
    );
    let rows = kills.iter().map(|kills| {
        let numbers = [
            kills.points,
            kills.passes,
            kills.kills,
            kills.in_recovery,
            kills.double,
            kills.lost,
            kills.failed,
        ];
        [vec![kills.name.clone()], numbers.map(number).to_vec()].concat()
    });
    let columns = [
        "loop",
        "points",
        "stories",
        "kills",
        "of them in recovery",
        "effects there twice",
        "effects lost",
        "other ends",
    ];
    table(page, &columns, rows);
    let rows = kills.iter().map(|kills| {
        let names = kills.by_name.iter();
        let names = names.map(|(name, kills)| format!("{name} {}", number(*kills)));
        vec![kills.name.clone(), names.collect::<Vec<_>>().join(", ")]
    });
    table(page, &["loop", "killed at"], rows);
    at_commits(page, kills.iter().map(|kills| &kills.commit));
}

fn at_commits<'a>(page: &mut String, commits: impl Iterator<Item = &'a String>) {
    let commits: BTreeSet<String> = commits.map(|commit| format!("`{commit}`")).collect();
    let commits: Vec<String> = commits.into_iter().collect();
    let _ = writeln!(page, "At commit {}.\n", commits.join(", "));
}

fn beside(page: &mut String, evidence: &Evidence) {
    heading(page, "Beside the simulator");
    match &evidence.nodes {
        Some(nodes) => {
            let _ = writeln!(
                page,
                "{} tests against real nodes passed, at commit `{}`: {}; {}.\n",
                number(nodes.tests),
                nodes.commit,
                nodes.bitcoind,
                nodes.anvil
            );
        }
        None => {
            let _ = writeln!(page, "Real nodes: {NOT_RUN}");
        }
    }
    match &evidence.audit {
        Some(audit) => {
            let _ = writeln!(page, "Faults planted into the books, for `creditd audit`:\n");
            let rows = audit
                .kinds
                .iter()
                .map(|(kind, planted)| vec![kind.clone(), number(planted.planted), number(planted.found)]);
            table(page, &["kind", "planted", "found"], rows);
        }
        None => {
            let _ = writeln!(
                page,
                "Faults planted into the books, for `creditd audit`: {NOT_RUN}"
            );
        }
    }
}
