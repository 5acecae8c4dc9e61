//! What an audit tells, as it is stored and as `--json` shows it.

use super::ground::Stop;
use super::limits::NotChecked;
use crate::clock::rfc3339;
use crate::config::ChainConfig;
use crate::rules::audit::{AuditPass, FindingKind};
use crate::store::{ChainRow, FindingRow, LedgerMark, StoreError, Violation};
use serde::{Deserialize, Serialize};

/// So many that are unproven are named; all are counted.
pub(super) const UNPROVEN_NAMED: usize = 100;

/// So much of what was found is named; all is counted, and all is in the table `audit_findings`.
const FOUND_NAMED: usize = 1_000;

/// What one run found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its number; 0 = it was not noted, as the file is damaged.
    pub run: i64,
    /// When it began.
    pub started_at: String,
    /// When it ended.
    pub ended_at: String,
    /// The tables; `None` = they were not asked.
    pub books: Option<Books>,
    /// The chains.
    pub chains: Vec<ChainReport>,
    /// What does not agree, found now or before and still so: the first of each chain.
    pub found: Vec<Found>,
    /// How much of it there is.
    pub found_count: u64,
    /// Nothing was found.
    pub is_clean: bool,
    /// Nothing was left out.
    pub is_complete: bool,
}

/// The tables, asked of themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books {
    /// So many questions.
    pub checks: usize,
    /// What is damaged in the file. Where there is any, no question was asked.
    pub damaged: Vec<Damaged>,
    /// What does not hold.
    pub broken: Vec<Broken>,
    /// The ledger as it is kept for the next run.
    pub ledger: Option<Ledger>,
}

/// A damaged table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damaged {
    /// Its name.
    pub table: String,
    /// What SQLite's check says.
    pub what: String,
}

/// What does not hold in the tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// The name of the property.
    pub invariant: String,
    /// What it is about.
    pub subject: String,
    /// In words.
    pub what: String,
}

/// The beginning of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// So many credits.
    pub credits: u64,
    /// So many journal entries.
    pub journal: u64,
    /// Their hash.
    pub sha256: String,
    /// When they were hashed.
    pub since: String,
}

/// One chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainReport {
    /// Its alias.
    pub chain: String,
    /// Its identity.
    pub chain_id: String,
    /// Why nothing more of it could be asked.
    pub stopped: Option<String>,
    /// What was not looked at, why, and what to do about it.
    pub not_checked: Vec<NotChecked>,
    /// Its time was over before it was through.
    pub is_cut: bool,
    /// Its credits; `None` = they were not asked.
    pub credits: Option<Credits>,
    /// Its blocks; `None` = they were not asked.
    pub outputs: Option<Outputs>,
    /// Its unspent coins; `None` = they were not asked.
    pub unspent: Option<UnspentCoins>,
    /// What nobody looked for, here or in the daemon.
    pub not_looked_for: Vec<String>,
}

/// Credits, held against the chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credits {
    /// So many were asked for.
    pub checked: u64,
    /// So many are on the best chain as booked.
    pub proven: u64,
    /// Of these so many by the set of unspent coins (Bitcoin).
    pub by_unspent: u64,
    /// So many are younger than the audit looks.
    pub too_young: u64,
    /// So many are in blocks that the node does not have.
    pub beyond: u64,
    /// All that count were asked for, by this run.
    pub is_whole: bool,
    /// Its time was over before.
    #[serde(skip)]
    pub(super) is_cut: bool,
    /// It came to the last one.
    #[serde(skip)]
    pub(super) has_ended: bool,
    /// What the node could not show.
    pub unproven: Vec<Unproven>,
    /// So many of them; the first are named.
    pub unproven_count: u64,
}

/// Blocks, read again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outputs {
    /// The first.
    pub from_height: u64,
    /// The last; below the first where none was read.
    pub to_height: u64,
    /// So many blocks beside them that earlier runs could not read and this one could.
    pub retried: u64,
    /// So many payments to scripts of ours, in all of them.
    pub payments: u64,
    /// As far as the audit looks.
    pub is_to_tip: bool,
    /// What the node could not show.
    pub unproven: Vec<Unproven>,
    /// So many of them, those of earlier runs included; the first are named.
    pub unproven_count: u64,
}

/// Unspent coins of watched addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnspentCoins {
    /// The node was at this height.
    pub height: u64,
    /// So many.
    pub coins: u64,
}

/// What could not be shown, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unproven {
    /// What.
    pub subject: String,
    /// Why.
    pub why: String,
}

/// What does not agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// What kind; see [`FindingKind`].
    pub kind: String,
    /// The pass that found it, and takes it back once it agrees again.
    pub pass: String,
    /// The chain's alias; `None` = of the books as a whole.
    pub chain: Option<String>,
    /// What it is about.
    pub subject: String,
    /// In words.
    pub what: String,
    /// When it was first found.
    pub found_at: String,
}

impl Report {
    /// As it is stored.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// How much could not be shown, all chains together.
    pub fn unproven(&self) -> u64 {
        let of = |chain: &ChainReport| {
            let credits = chain.credits.as_ref().map_or(0, |credits| credits.unproven_count);
            let outputs = chain.outputs.as_ref().map_or(0, |outputs| outputs.unproven_count);
            credits + outputs + chain.not_checked.len() as u64
        };
        self.chains.iter().map(of).sum()
    }
}

impl ChainReport {
    pub(super) fn of(chain: ChainConfig<'_>) -> ChainReport {
        ChainReport {
            chain: chain.alias().to_owned(),
            chain_id: chain.chain().as_str().to_owned(),
            ..ChainReport::default()
        }
    }

    /// Notes why a pass came to no end, where that is the node's doing.
    pub(super) fn note_end(&mut self, ended: Result<(), Stop>) -> Result<(), StoreError> {
        match ended {
            Ok(()) => {}
            Err(Stop::Unasked(why)) => self.note_stop(why),
            Err(Stop::Store(error)) => return Err(error),
        }
        Ok(())
    }

    /// Notes why nothing more can be asked; each reason once.
    pub(super) fn note_stop(&mut self, why: NotChecked) {
        self.stopped = Some(why.what.clone());
        if !self.not_checked.contains(&why) {
            self.not_checked.push(why);
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        let credits = |credits: &Credits| credits.unproven_count == 0 && credits.is_whole;
        let outputs = |outputs: &Outputs| outputs.unproven_count == 0 && outputs.is_to_tip;
        self.not_checked.is_empty()
            && self.credits.as_ref().is_none_or(credits)
            && self.outputs.as_ref().is_none_or(outputs)
    }
}

/// How much is named of each of several lists: of none so much that another one has less than its share.
pub(super) fn named(counts: &[u64]) -> Vec<usize> {
    let mut shortest_first: Vec<usize> = (0..counts.len()).collect();
    shortest_first.sort_by_key(|at| counts[*at]);
    let (mut named, mut left) = (vec![0; counts.len()], FOUND_NAMED);
    for (turn, at) in shortest_first.into_iter().enumerate() {
        let share = left / (counts.len() - turn);
        named[at] = usize::try_from(counts[at]).unwrap_or(usize::MAX).min(share);
        left -= named[at];
    }
    named
}

/// Names one more that could not be shown.
pub(super) fn unproven(list: &mut Vec<Unproven>, count: &mut u64, subject: String, why: String) {
    *count += 1;
    if list.len() < UNPROVEN_NAMED {
        list.push(Unproven { subject, why });
    }
}

impl Damaged {
    pub(super) fn row(&self) -> FindingRow {
        FindingRow {
            chain: None,
            pass: AuditPass::Books,
            kind: FindingKind::Damaged,
            subject: format!("table {}", self.table),
            height: None,
            what: self.what.clone(),
            found_at: 0,
        }
    }
}

impl Broken {
    pub(super) fn of(broken: &Violation) -> Broken {
        Broken {
            invariant: broken.invariant.name().to_owned(),
            subject: broken.subject.clone(),
            what: broken.what.clone(),
        }
    }
}

impl Ledger {
    pub(super) fn of(mark: &LedgerMark, since: String) -> Ledger {
        Ledger {
            credits: mark.credits,
            journal: mark.journal,
            sha256: const_hex::encode(mark.sha256),
            since,
        }
    }
}

impl Found {
    /// Of damage that is not noted.
    pub(super) fn of_damage(damaged: &Damaged, found_at: i64) -> Found {
        let row = FindingRow {
            found_at,
            ..damaged.row()
        };
        Found::of(&row, None)
    }

    pub(super) fn of(row: &FindingRow, chain: Option<&ChainRow>) -> Found {
        let kind: FindingKind = row.kind;
        Found {
            kind: kind.word().to_owned(),
            pass: row.pass.word().to_owned(),
            chain: chain.map(|chain| chain.alias.clone()),
            subject: row.subject.clone(),
            what: row.what.clone(),
            found_at: rfc3339(row.found_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_with_much_that_was_found_hides_no_other_one() {
        assert_eq!(named(&[]), Vec::<usize>::new());
        assert_eq!(named(&[0, 20_000]), [0, 1_000]);
        assert_eq!(named(&[300, 700]), [300, 700]);
        assert_eq!(named(&[20_000, 3, 20_000]), [498, 3, 499]);
        assert_eq!(named(&[1, 5_000, 400, 5_000]), [1, 333, 333, 333]);
    }
}
