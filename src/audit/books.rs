//! The file and its tables asked of themselves: whether it is whole, every invariant that a query can tell,
//! and that no row of the ledger was changed since the last run.

use super::report::Damaged;
use super::{Audit, Books, Broken, Ledger, Told, Word};
use crate::clock::rfc3339;
use crate::rules::audit::{AuditPass, FindingKind};
use crate::rules::invariants::Invariant;
use crate::store::{CHECKS, Database, FindingRow, LedgerMark, OpenMode, Store, StoreError, Violation};
use crate::telemetry::{counted, error_line};
use std::collections::BTreeSet;

/// So many faults of a damaged table are named.
const FAULTS_NAMED: usize = 5;

/// What the ledger as a whole is called among the findings.
const LEDGER: &str = "I2 ledger";

/// What stands for the name of a table where it is not known which one it is.
const UNKNOWN: &str = "unknown";

/// Where SQLite keeps the definitions of tables, indexes and triggers.
const TABLES: &str = "sqlite_schema";

/// What stands for the name of a property where the schema refuses a row: no property of ours says why.
const SCHEMA: &str = "schema";

/// Asks them, one transaction each. Of a damaged file nothing is asked: what its tables say means nothing.
pub(super) async fn pass(audit: &Audit, store: &Store, told: Told<'_>) -> Result<Books, StoreError> {
    let (damaged, mut refused) = damaged(store).await?;
    refused.extend(changed_schema(store).await?);
    // Said before it is written: that may meet the damage itself.
    for damaged in &damaged {
        let (table, what) = (&damaged.table, &damaged.what);
        tracing::error!(table, "audit: table {table} is damaged: {what}");
        told(Word::Line(&format!("table {table} is damaged: {what}")));
    }
    note(
        store,
        FindingKind::Damaged,
        damaged.iter().map(Damaged::row).collect(),
    )
    .await?;
    if !damaged.is_empty() {
        return Ok(Books {
            damaged,
            ..Books::default()
        });
    }
    let window = audit.config.smallest_window();
    let mut broken = Vec::new();
    for number in 0..CHECKS {
        let mut next = Some(0);
        while let Some(from) = next {
            let looked = store
                .apart(move |database| database.read(|tx| tx.check(number, window, from)))
                .await?;
            broken.extend(looked.found);
            next = looked.next;
            give_way().await;
        }
    }
    let (ledger, changed) = ledger(audit, store).await?;
    broken.extend(changed);
    let rows = refused.iter().map(row_of_refused).chain(broken.iter().map(row));
    note(store, FindingKind::Invariant, rows.collect()).await?;
    let broken = refused.into_iter().chain(broken.iter().map(Broken::of));
    Ok(Books {
        checks: CHECKS,
        damaged,
        broken: broken.collect(),
        ledger: Some(ledger),
    })
}

/// All damaged tables of the file where `error` says that there is damage.
pub(super) async fn damage(audit: &Audit, error: &StoreError) -> Result<Vec<Damaged>, StoreError> {
    let looked = match Database::open(&audit.config.database, OpenMode::ReadOnly) {
        Ok(database) => damaged(&Store::inline(database, audit.clock)).await,
        Err(error) => Err(error),
    };
    let mut found = match looked {
        Err(again) if again.is_damage() => Vec::new(),
        looked => looked?.0,
    };
    if found.is_empty() {
        let table = match error {
            StoreError::SchemaChanged { .. } => TABLES,
            _ => UNKNOWN,
        };
        found.push(Damaged {
            table: table.to_owned(),
            what: error_line(error),
        });
    }
    Ok(found)
}

/// Also under a daemon that runs on the file: the next start would refuse it.
async fn changed_schema(store: &Store) -> Result<Option<Broken>, StoreError> {
    match store.apart(|database| database.check_schema()).await {
        Ok(_) => Ok(None),
        Err(error @ StoreError::SchemaChanged { .. }) => Ok(Some(Broken {
            invariant: SCHEMA.to_owned(),
            subject: TABLES.to_owned(),
            what: error_line(&error),
        })),
        Err(error) => Err(error),
    }
}

/// Whoever stops the audit is heard between two looks, though each is made at once on the caller.
async fn give_way() {
    tokio::task::yield_now().await;
}

/// Asks each table, one transaction each: what is damaged, and what the schema refuses.
async fn damaged(store: &Store) -> Result<(Vec<Damaged>, Vec<Broken>), StoreError> {
    let (mut damaged, mut refused, mut place) = (Vec::new(), Vec::new(), -1);
    loop {
        let table = store
            .apart(move |database| database.read(|tx| tx.check_table_after(place)))
            .await?;
        let Some(table) = table else {
            return Ok((damaged, refused));
        };
        place = table.place;
        refused.extend(table.broken.first().map(|first| Broken {
            invariant: SCHEMA.to_owned(),
            subject: table.name.clone(),
            what: format!(
                "the schema refuses at least {}: written past its guards, or the file is damaged: {first}",
                counted(table.broken.len() as u64, "value")
            ),
        }));
        if !table.faults.is_empty() {
            let named = table.faults.iter().take(FAULTS_NAMED).map(String::as_str);
            let more = match table.faults.len().saturating_sub(FAULTS_NAMED) {
                0 => String::new(),
                more => format!(", and at least {more} more"),
            };
            damaged.push(Damaged {
                what: named.collect::<Vec<_>>().join("; ") + &more,
                table: table.name,
            });
        }
        give_way().await;
    }
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
        gone => format!(", {} fewer than then", counted(gone, noun)),
    };
    format!(
        "of the first {} credits and {} journal entries one was changed or is gone since {since}{}{}",
        known.credits,
        known.journal,
        gone(known.credits, then.credits, "credit"),
        gone(known.journal, then.journal, "entry"),
    )
}

/// Notes what was found of a kind, and takes back what is found no more.
async fn note(store: &Store, kind: FindingKind, rows: Vec<FindingRow>) -> Result<(), StoreError> {
    let told = rows.clone();
    let news = store.write(move |tx| {
        let stand: BTreeSet<&str> = told.iter().map(|row| row.subject.as_str()).collect();
        let mut news = Vec::new();
        for row in &told {
            news.push(tx.note_finding(row)?);
        }
        for known in tx.findings(None, AuditPass::Books)? {
            if known.kind == kind && !stand.contains(known.subject.as_str()) {
                tx.clear_finding(&known)?;
            }
        }
        Ok(news)
    });
    for (row, is_news) in rows.iter().zip(news.await?) {
        if is_news && kind != FindingKind::Damaged {
            let subject = &row.subject;
            tracing::error!(subject, "audit: {subject}: {}", row.what);
        }
    }
    Ok(())
}

fn row_of_refused(refused: &Broken) -> FindingRow {
    row_of_broken(format!("{SCHEMA} {}", refused.subject), &refused.what)
}

fn row(broken: &Violation) -> FindingRow {
    let subject = match broken.invariant {
        Invariant::I2AppendOnly => LEDGER.to_owned(),
        invariant => format!("{} {}", invariant.name(), broken.subject),
    };
    row_of_broken(subject, &broken.what)
}

fn row_of_broken(subject: String, what: &str) -> FindingRow {
    FindingRow {
        chain: None,
        pass: AuditPass::Books,
        kind: FindingKind::Invariant,
        subject,
        height: None,
        what: what.to_owned(),
        found_at: 0,
    }
}
