//! The metrics of the audit.

use super::text::{Labels, Page};
use crate::rules::audit::FindingKind;
use crate::store::report::Readings;

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
    let of_books = FindingKind::ALL.into_iter().filter(|kind| kind.is_of_books());
    let mut findings: Vec<(Labels, i64)> = of_books
        .map(|kind| {
            (
                labels(BOOKS, "kind", kind.word()),
                found(&readings.audit_books, kind),
            )
        })
        .collect();
    let (mut heights, mut unread, mut rounds) = (Vec::new(), Vec::new(), Vec::new());
    for chain in &readings.chains {
        let alias = chain.chain.alias.as_str();
        for kind in FindingKind::ALL {
            if !kind.is_of_books() {
                findings.push((
                    labels(alias, "kind", kind.word()),
                    found(&chain.audit_findings, kind),
                ));
            }
        }
        let pass = |name: &str| chain.audit_passes.iter().find(|(pass, ..)| pass == name);
        let height = pass("outputs").map_or(0, |(_, place, _)| i64::try_from(*place).unwrap_or(i64::MAX));
        heights.push((vec![("chain", alias.to_owned())], height));
        let blocks = i64::try_from(chain.audit_unread).unwrap_or(i64::MAX);
        unread.push((vec![("chain", alias.to_owned())], blocks));
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
        "audit_unread_blocks",
        "Blocks that the audit went past and could not read",
        unread,
    );
    page.gauges(
        "audit_round_time_seconds",
        "Unix time at which the audit was last through, or of the start where it never was",
        rounds,
    );
}

fn found(counts: &[(String, u64)], kind: FindingKind) -> i64 {
    let found = counts.iter().find(|(word, _)| word == kind.word());
    found.map_or(0, |(_, count)| i64::try_from(*count).unwrap_or(i64::MAX))
}
