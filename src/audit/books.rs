//! The tables asked of themselves: every invariant that a query can tell, and that no row of the ledger was
//! changed since the last run.

use super::{Audit, Books, Broken, Ledger};
use crate::clock::rfc3339;
use crate::rules::audit::{AuditPass, FindingKind};
use crate::rules::invariants::Invariant;
use crate::store::{CHECKS, FindingRow, LedgerMark, Store, StoreError, Violation};
use std::collections::BTreeSet;

/// What the ledger as a whole is called among the findings.
const LEDGER: &str = "I2 ledger";

/// Asks them, one transaction each.
pub(super) async fn pass(audit: &Audit, store: &Store) -> Result<Books, StoreError> {
    let window = audit.config.smallest_window();
    let mut broken: Vec<Violation> = Vec::new();
    for number in 0..CHECKS {
        let mut next = Some(0);
        while let Some(from) = next {
            let looked = store
                .apart(move |database| database.read(|tx| tx.check(number, window, from)))
                .await?;
            broken.extend(looked.found);
            next = looked.next;
        }
    }
    let (ledger, changed) = ledger(audit, store).await?;
    broken.extend(changed);
    note(store, &broken).await?;
    Ok(Books {
        checks: CHECKS,
        broken: broken.iter().map(Broken::of).collect(),
        ledger: Some(ledger),
    })
}

/// The ledger's beginning is hashed as far as the last run hashed it, and then as far as it goes now. That is
/// kept at once: a run that comes to no end is compared, too.
async fn ledger(audit: &Audit, store: &Store) -> Result<(Ledger, Option<Violation>), StoreError> {
    let (known, then, now) = store
        .apart(|database| {
            database.read(|tx| {
                let known = tx.kept_ledger()?;
                let then = known
                    .as_ref()
                    .map(|(mark, _)| tx.ledger_mark(Some(mark)))
                    .transpose()?;
                Ok((known, then, tx.ledger_mark(None)?))
            })
        })
        .await?;
    match (known, then) {
        // What it was is kept, or the next run would find nothing any more.
        (Some((known, at)), Some(then)) if known != then => {
            let since = rfc3339(at);
            let violation = Violation {
                invariant: Invariant::I2AppendOnly,
                subject: "ledger".to_owned(),
                what: changed_words(&known, &then, &since),
            };
            Ok((Ledger::of(&known, since), Some(violation)))
        }
        _ => {
            let kept = now.clone();
            store.write(move |tx| tx.keep_ledger(&kept)).await?;
            Ok((Ledger::of(&now, rfc3339(audit.clock.now_ms())), None))
        }
    }
}

fn changed_words(known: &LedgerMark, then: &LedgerMark, since: &str) -> String {
    let gone = |was: u64, is: u64, noun: &str| match was.saturating_sub(is) {
        0 => String::new(),
        gone => format!(", {gone} {noun} fewer than then"),
    };
    format!(
        "of the first {} credits and {} journal entries one was changed or is gone since {since}{}{}",
        known.credits,
        known.journal,
        gone(known.credits, then.credits, "credits"),
        gone(known.journal, then.journal, "entries"),
    )
}

async fn note(store: &Store, broken: &[Violation]) -> Result<(), StoreError> {
    let rows: Vec<FindingRow> = broken.iter().map(row).collect();
    store
        .write(move |tx| {
            let stand: BTreeSet<&str> = rows.iter().map(|row| row.subject.as_str()).collect();
            for row in &rows {
                if tx.note_finding(row)? {
                    tracing::error!(subject = row.subject, "audit: {}: {}", row.subject, row.what);
                }
            }
            for known in tx.findings()? {
                let is_over = known.pass == AuditPass::Books && !stand.contains(known.subject.as_str());
                if is_over {
                    tx.clear_finding(&known)?;
                }
            }
            Ok(())
        })
        .await
}

fn row(broken: &Violation) -> FindingRow {
    let subject = match broken.invariant {
        Invariant::I2AppendOnly => LEDGER.to_owned(),
        invariant => format!("{} {}", invariant.name(), broken.subject),
    };
    FindingRow {
        chain: None,
        pass: AuditPass::Books,
        kind: FindingKind::Invariant,
        subject,
        height: None,
        what: broken.what.clone(),
        found_at: 0,
    }
}
