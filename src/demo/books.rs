//! The end of the demonstration: the books, and the proof that feeding everything in again changes nothing.

use super::DemoError;
use super::stage::{Stage, Who};
use crate::store::report::{Filter, Page};
use std::collections::BTreeMap;

/// Tables that record the asking: commands write a row each time that they are given.
const ASKED: [&str; 5] = ["rescans", "rescan_blocks", "audit", "deliveries", "attempts"];

/// How often the whole chain is read again.
const RESCANS: u32 = 3;

/// The reorg window of the demonstration's config, which is the default.
const REORG_WINDOW: u64 = 144;

/// Everything that is known and booked, by table.
type Rows = BTreeMap<String, Vec<String>>;

/// Prints balances, credits and the journal.
pub(super) fn show(stage: &mut Stage) -> Result<(), DemoError> {
    for args in [&["balances"][..], &["credits"]] {
        stage.print(&format!("$ creditd {}", args.join(" ")));
        let answer = stage.creditd.answer(args)?;
        stage.print(&answer);
    }
    let page = Page {
        after: None,
        limit: 100,
    };
    let journals = stage.read(|tx| {
        let credits = tx.list_credits(&Filter::default(), page)?;
        let with_journal = credits.into_iter().map(|credit| {
            let entries = tx.journal(&credit.row.id)?;
            Ok((credit.row, entries))
        });
        with_journal.collect::<Result<Vec<_>, crate::store::StoreError>>()
    })?;
    stage.print("the journal, oldest credit first");
    for (credit, entries) in journals.iter().rev() {
        for entry in entries {
            let sign = if entry.kind == "reversal" { '-' } else { '+' };
            let amount = credit.amount.to_units_string(credit.decimals);
            stage.print(&format!(
                "  {}  {:<13}  {sign}{amount} {}  block {}",
                credit.reference, entry.kind, credit.symbol, entry.block_height
            ));
        }
    }
    Ok(())
}

/// Reads the whole chain again, three times, and compares all rows.
pub(super) fn prove(stage: &mut Stage) -> Result<(), DemoError> {
    let before = rows(stage)?;
    for round in 1..=RESCANS {
        stage.say(
            Who::Hand,
            &format!("creditd rescan --from 0 --apply ({round} of {RESCANS})"),
        );
        let args = ["rescan", "--from", "0", "--reason", "demonstration", "--apply"];
        stage.creditd.answer(&args)?;
        stage.until("the rescan to be done", |stage| {
            let chains = stage.read(|tx| tx.chain_status())?;
            Ok(chains.iter().all(|chain| chain.rescans.is_empty()))
        })?;
    }
    let after = rows(stage)?;
    let count: usize = before.values().map(Vec::len).sum();
    for (table, old) in &before {
        let new = after.get(table);
        if new != Some(old) {
            stage.print(&format!("  table {table} is not what it was"));
        }
    }
    stage.expect(
        &format!(
            "nothing changed: {count} rows of {} tables, byte for byte",
            before.len()
        ),
        before == after,
    );
    let violations = stage.read(|tx| tx.violations(REORG_WINDOW))?;
    for violation in &violations {
        stage.print(&format!("  {violation}"));
    }
    stage.expect(
        "everything that must always hold does hold",
        violations.is_empty(),
    );
    Ok(())
}

fn rows(stage: &mut Stage) -> Result<Rows, DemoError> {
    let mut rows = Rows::new();
    for line in stage.read(|tx| tx.projection())? {
        let table = line.split(' ').next().unwrap_or_default().to_owned();
        if !ASKED.contains(&table.as_str()) {
            rows.entry(table).or_default().push(line);
        }
    }
    Ok(rows)
}
