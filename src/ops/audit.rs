//! The metrics of the audit.

use super::text::{Labels, Page};
use crate::rules::audit::FindingKind;
use crate::store::report::{ChainReadings, Readings};

/// Passes whose rounds are told, run or not.
const PASSES: [&str; 2] = ["credits", "outputs"];

/// The books as a whole, where other findings have their chain.
const BOOKS: &str = "books";

/// What stands, how far it has come, and when it was last through.
pub(super) fn exposition(page: &mut Page, started_ms: i64, readings: &Readings) {
    // Where the config wants none, nobody waits for the next.
    let is_on = readings.jobs.iter().any(|job| job.name == "audit");
    let labels = |chain: &str, name, value: &str| -> Labels {
        vec![("chain", chain.to_owned()), (name, value.to_owned())]
    };
    let broken = i64::try_from(readings.audit_books).unwrap_or(i64::MAX);
    let kind = FindingKind::Invariant.word();
    let mut findings = vec![(labels(BOOKS, "kind", kind), broken)];
    let (mut heights, mut rounds) = (Vec::new(), Vec::new());
    for chain in &readings.chains {
        let alias = chain.chain.alias.as_str();
        for kind in FindingKind::ALL {
            if kind != FindingKind::Invariant {
                findings.push((labels(alias, "kind", kind.word()), found(chain, kind)));
            }
        }
        let pass = |name: &str| chain.audit_passes.iter().find(|(pass, ..)| pass == name);
        let height = pass("outputs").map_or(0, |(_, place, _)| i64::try_from(*place).unwrap_or(i64::MAX));
        heights.push((vec![("chain", alias.to_owned())], height));
        for name in PASSES.into_iter().filter(|_| is_on) {
            let round_at = pass(name).and_then(|(_, _, round_at)| *round_at);
            rounds.push((
                labels(alias, "pass", name),
                round_at.unwrap_or(started_ms) / 1_000,
            ));
        }
    }
    page.gauges(
        "audit_findings",
        "What the audit found and what still stands, by kind",
        findings,
    );
    page.gauges(
        "audit_next_height",
        "The next block that the audit reads; 0 = it has read none",
        heights,
    );
    page.gauges(
        "audit_round_time_seconds",
        "Unix time at which the audit was last through, or of the start where it never was",
        rounds,
    );
}

fn found(chain: &ChainReadings, kind: FindingKind) -> i64 {
    let found = chain.audit_findings.iter().find(|(word, _)| word == kind.word());
    found.map_or(0, |(_, count)| i64::try_from(*count).unwrap_or(i64::MAX))
}
