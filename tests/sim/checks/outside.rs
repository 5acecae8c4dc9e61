//! What somebody outside of the daemon can hold against it: a client with an answer, the owner of a node.

use super::{Checks, Fault};
use crate::clients::Promise;
use crate::disk::Folder;
use crate::inbox::Senders;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Calls of nodes in a second, on the average of a span; and so many more at once, of a long branch or list.
const CALLS_A_SECOND_MAX: u64 = 150;
const CALLS_AT_ONCE_MAX: u64 = 5_000;

impl Checks {
    /// I12: what a client has an answer for is there, whatever happened since.
    pub fn promised(&mut self, folder: &Folder, promises: &[Promise]) -> Result<(), Fault> {
        if promises.is_empty() {
            return Ok(());
        }
        let tables = &self.eyes(folder).tables;
        let all = |sql: &str| -> BTreeSet<String> {
            tables.rows(sql, |row| row.get(0).unwrap()).into_iter().collect()
        };
        let invoices = all("SELECT inv_id FROM invoices");
        let cancelled = all("SELECT inv_id FROM invoices WHERE cancelled_at IS NOT NULL");
        let addresses = all("SELECT reference FROM addresses");
        let endpoints = all("SELECT ep_id FROM endpoints");
        let webhooks = all("SELECT source || ' ' || event_id FROM inbox");
        let is_kept = |promise: &&Promise| match promise {
            Promise::Invoice(id) => invoices.contains(id),
            Promise::Cancelled(id) => cancelled.contains(id),
            Promise::Address(reference) => addresses.contains(reference),
            Promise::Endpoint(id) => endpoints.contains(id),
            Promise::Webhook(source, id) => webhooks.contains(&format!("{source} {id}")),
        };
        match promises.iter().find(|promise| !is_kept(promise)) {
            None => Ok(()),
            Some(lost) => Err(Fault::new("I12", format!("answered, and not there: {lost:?}"))),
        }
    }

    /// I15: no reference has more effects than keys asked for it.
    pub fn effects(&mut self, folder: &Folder, most: &BTreeMap<String, usize>) -> Result<(), Fault> {
        let sql = "SELECT reference, count(DISTINCT script) FROM addresses WHERE reference <> '' GROUP BY 1";
        let there = self.eyes(folder).tables.rows(sql, |row| {
            let (reference, count): (String, i64) = (row.get(0).unwrap(), row.get(1).unwrap());
            (reference, count as usize)
        });
        for (reference, count) in there {
            if let Some(most) = most.get(&reference).filter(|most| count > **most) {
                let what = format!("{count} addresses for `{reference}`, asked for by {most} keys");
                return Err(Fault::new("I15", what));
            }
        }
        Ok(())
    }

    /// I17: nothing is stored of what its source did not say, or said long ago.
    pub fn refused(&mut self, folder: &Folder, senders: &Senders) -> Result<(), Fault> {
        let sql = "SELECT source || ' ' || event_id FROM inbox";
        let stored = self
            .eyes(folder)
            .tables
            .rows(sql, |row| row.get::<_, String>(0).unwrap());
        let bad = senders.not_believed();
        let is_bad = |stored: &&String| {
            bad.iter()
                .any(|(source, id)| format!("{source} {id}") == **stored)
        };
        match stored.iter().find(is_bad) {
            None => Ok(()),
            Some(stored) => Err(Fault::new("I17", format!("{stored} was refused and is stored"))),
        }
    }

    /// I26: nodes are asked no faster than there is something to be asked.
    pub fn pace(&mut self, calls: u64, span: Duration) -> Result<(), Fault> {
        let most = CALLS_AT_ONCE_MAX + CALLS_A_SECOND_MAX * span.as_secs();
        match calls <= most {
            true => Ok(()),
            false => {
                let what = format!("{calls} calls of nodes in {} s, at most {most}", span.as_secs());
                Err(Fault::new("I26", what))
            }
        }
    }
}
