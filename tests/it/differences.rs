//! What of the tables is not as the naive scan says.

use crate::memory::Memory;
use crate::naive::{Naive, Origin, Output};
use crate::tables::{DepositRow, Tables, outpoint, txid};
use creditd::rules::Txid;
use creditd::rules::policy::Policy;
use std::collections::{BTreeMap, BTreeSet};

impl Tables {
    /// What of the tables is not as the naive scan says.
    pub fn differences(&self, naive: &Naive, policy: &Policy, memory: &Memory) -> Vec<String> {
        let mut wrong = self.output_differences(naive);
        let deposits = self.deposits();
        let due = naive.due_now(policy);
        let backfilled = memory.backfilled(&self.rules());
        for (outpoint, output) in &naive.outputs {
            let Some(starts_held) = output.deposit else {
                let found = deposits.get(outpoint).filter(|deposit| deposit.held.is_none());
                wrong.extend(found.map(|d| format!("{outpoint} is {}, and is no payment", d.state)));
                continue;
            };
            let Some(deposit) = deposits.get(outpoint) else {
                wrong.push(format!("{outpoint} is a payment without a deposit"));
                continue;
            };
            if deposit.height != Some(output.height) {
                wrong.push(format!("{outpoint} is in block {}: {deposit:?}", output.height));
            }
            if starts_held && deposit.held.is_none() && !deposit.was_released {
                wrong.push(format!("{outpoint} was to be held: {deposit:?}"));
            }
            if due.contains(outpoint) && deposit.held.is_none() && !deposit.is_live {
                wrong.push(format!("{outpoint} was to be credited: {deposit:?}"));
            }
            let needs = (naive.confirmations(output, policy), naive.due(output, policy));
            // A credit that a hold took back keeps what it needed until the daemon starts again.
            let is_old = deposit.was_credited && (deposit.held.is_some() || deposit.was_released);
            if deposit.state == "confirming"
                && !is_old
                && (deposit.confirmations, deposit.due) != (Some(needs.0), Some(needs.1))
            {
                wrong.push(format!("{outpoint} needs {needs:?}: {deposit:?}"));
            }
            let is_known = deposit.is_live && !deposit.was_moved && !backfilled.contains(&output.merchant);
            if is_known && !is_justified(deposit, output, naive, memory) {
                wrong.push(format!("{outpoint} is credited and needs {needs:?}: {deposit:?}"));
            }
        }
        for (outpoint, deposit) in &deposits {
            let is_mined = naive.outputs.contains_key(outpoint);
            if !is_mined && (deposit.height.is_some() || deposit.is_live) {
                wrong.push(format!("{outpoint} is in no block: {deposit:?}"));
            }
            if naive.seen.contains(outpoint) != (deposit.state == "seen") {
                wrong.push(format!("{outpoint}, in the mempool: {}: {deposit:?}", !is_mined));
            }
        }
        wrong
    }

    fn output_differences(&self, naive: &Naive) -> Vec<String> {
        let sql = "SELECT t.txid, i.height FROM inclusions i JOIN txs t ON t.id = i.tx";
        let inclusions: BTreeSet<(Txid, u64)> = self
            .rows(sql, |row| (txid(row, 0), row.get::<_, i64>(1).unwrap() as u64))
            .into_iter()
            .collect();
        let mut wrong: Vec<String> = inclusions
            .symmetric_difference(&naive.inclusions)
            .map(|(txid, height)| format!("inclusion of {txid} at {height}"))
            .collect();
        let rows = self.rows(
            "SELECT t.txid, o.vout, o.amount, o.origin, o.spent_by, o.spent_height FROM outputs o \
             JOIN txs t ON t.id = o.tx WHERE EXISTS (SELECT 1 FROM inclusions WHERE tx = t.id)",
            |row| {
                let spent = row
                    .get::<_, Option<i64>>(5)
                    .unwrap()
                    .map(|height| (txid(row, 4), height as u64));
                let (amount, origin): (String, String) = (row.get(2).unwrap(), row.get(3).unwrap());
                (outpoint(row), (amount, origin, spent))
            },
        );
        let found: BTreeMap<_, _> = rows.into_iter().collect();
        let expected = naive.outputs.iter().map(|(outpoint, output)| {
            let origin = match output.origin {
                Origin::External => "external",
                Origin::Mixed => "mixed",
                Origin::Internal => "internal",
            };
            (
                *outpoint,
                (output.amount.to_string(), origin.to_owned(), output.spent),
            )
        });
        let expected: BTreeMap<_, _> = expected.collect();
        for outpoint in found.keys().chain(expected.keys()).collect::<BTreeSet<_>>() {
            let (is, must) = (found.get(outpoint), expected.get(outpoint));
            if is != must {
                wrong.push(format!("output {outpoint} is {is:?}, must be {must:?}"));
            }
        }
        wrong
    }
}

/// Had a credit the confirmations that a policy of its time asks for, and did the chain reach its due height?
fn is_justified(deposit: &DepositRow, output: &Output, naive: &Naive, memory: &Memory) -> bool {
    let (Some(confirmations), Some(due)) = (deposit.confirmations, deposit.due) else {
        return false;
    };
    let depth = u64::from(confirmations).max(if output.is_coinbase { 101 } else { 1 });
    naive.allows(output, confirmations, &memory.policies)
        && due == output.height + depth - 1
        && due <= memory.highest
}
