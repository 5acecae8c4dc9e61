//! The end of the demonstration: the books, and the proof that feeding everything in again changes nothing.

use super::stage::{Stage, Who};
use super::{DemoError, WHOLE_LIST};
use crate::store::report::{DeliveryFilter, Filter};
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
    let journals = stage.read(|tx| {
        let credits = tx.list_credits(&Filter::default(), WHOLE_LIST)?;
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
            let block = entry.cause.map_or(0, |cause| cause.block_height);
            stage.print(&format!(
                "  {}  {:<13}  {sign}{amount} {}  block {block}",
                credit.reference, entry.kind, credit.symbol
            ));
        }
    }
    let balances = stage.read(|tx| tx.balances(None))?;
    let credited: BTreeMap<String, String> = balances
        .iter()
        .map(|balance| (balance.asset.clone(), balance.credited.to_string()))
        .collect();
    let sums = stage.receiver.sums().into_iter();
    let sums: BTreeMap<String, String> = sums.map(|(asset, sum)| (asset, sum.to_string())).collect();
    stage.print("the receiver's own books, kept from callbacks alone, in base units");
    for (asset, sum) in &sums {
        stage.print(&format!("  {sum} of {asset}"));
    }
    stage.expect("they say the same", credited == sums);
    Ok(())
}

/// Reads the whole chain again, three times, sends every callback again, and compares all rows.
pub(super) fn prove(stage: &mut Stage) -> Result<(), DemoError> {
    let before = rows(stage)?;
    for round in 1..=RESCANS {
        for chain in ["btc", "evm"] {
            let args = [
                "rescan",
                "--chain",
                chain,
                "--from",
                "0",
                "--reason",
                "demonstration",
                "--apply",
            ];
            stage.say(
                Who::Hand,
                &format!("$ creditd {}   ({round} of {RESCANS})", args.join(" ")),
            );
            stage.creditd.answer(&args)?;
        }
        stage.until("the rescan to be done", |stage| {
            let chains = stage.read(|tx| tx.chain_status())?;
            Ok(chains.iter().all(|chain| chain.rescans.is_empty()))
        })?;
    }
    send_again(stage)?;
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
        "everything that must always hold does hold (docs/invariants.md)",
        violations.is_empty(),
    );
    Ok(())
}

/// Sends every callback once more.
fn send_again(stage: &mut Stage) -> Result<(), DemoError> {
    let sent = stage.read(|tx| tx.list_deliveries(&DeliveryFilter::default(), WHOLE_LIST))?;
    let (count, known, sums) = (sent.len(), stage.receiver.count(), stage.receiver.sums());
    let before = stage.receiver.repeats();
    stage.say(
        Who::Hand,
        &format!(
            "$ creditd callbacks retry EVENT --endpoint ENDPOINT --reason demonstration --apply   \
             (for each of {count})"
        ),
    );
    stage.is_quiet = true;
    for delivery in sent.iter().rev() {
        let (event, endpoint) = (&delivery.row.event, &delivery.row.endpoint);
        let args = [
            "callbacks",
            "retry",
            event,
            "--endpoint",
            endpoint,
            "--reason",
            "demonstration",
            "--apply",
        ];
        stage.creditd.answer(&args)?;
    }
    stage.until("every callback to come again", |stage| {
        let open = stage.read(|tx| tx.list_deliveries(&DeliveryFilter::default(), WHOLE_LIST))?;
        let is_settled = open.iter().all(|delivery| delivery.row.state == "delivered");
        Ok(is_settled && stage.receiver.repeats() >= before + count)
    })?;
    stage.is_quiet = false;
    stage.say(
        Who::Receiver,
        &format!("{count} callbacks again: the same ids and bytes, nothing to do"),
    );
    stage.expect(
        "the receiver's books stand",
        (stage.receiver.count(), stage.receiver.sums()) == (known, sums),
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
