//! What must always hold, asked of the tables: each check returns the rows that break it, so that tests after
//! every step and an operator's audit ask the same questions. Owns no repair: a violation is told, never
//! mended. Start at [`ReadTx::violations`]; what the history of each deposit must look like is in `history`.

use super::chains::one;
use super::check_queries::QUERIES;
use super::codec::{int, uint};
use super::{ReadTx, StoreError};
use crate::rules::invariants::Invariant;
use crate::rules::{BlockHash, Work};
use rusqlite::{OptionalExtension as _, params};
use std::collections::BTreeSet;

/// A property that does not hold, and the row that breaks it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The property.
    pub invariant: Invariant,
    /// What it is about: a credit, a deposit, a transaction, a height.
    pub subject: String,
    /// What is wrong with it.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.invariant.name(), self.subject, self.what)
    }
}

/// Every row of the ledger, byte for byte, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerSnapshot(BTreeSet<String>);

impl LedgerSnapshot {
    /// The rows that were there at this moment and are not, or are others, in a later one.
    pub fn lost_in(&self, later: &LedgerSnapshot) -> Vec<Violation> {
        let lost = self.0.difference(&later.0).map(|row| Violation {
            invariant: Invariant::I2AppendOnly,
            subject: "ledger".to_owned(),
            what: format!("changed or gone: {row}"),
        });
        lost.collect()
    }
}

/// What more than one statement asks.
#[derive(Clone, Copy)]
enum Part {
    Headers,
    Deposits,
    ExternalCredits,
    InboxEvents,
    ChainEvents,
    Unattributed,
    Deliveries,
    Strays,
    Invoices,
    References,
}

const PARTS: &[Part] = &[
    Part::Headers,
    Part::Deposits,
    Part::ExternalCredits,
    Part::InboxEvents,
    Part::ChainEvents,
    Part::Unattributed,
    Part::Deliveries,
    Part::Strays,
    Part::Invoices,
    Part::References,
];

/// Checks are numbered from 0 up to this.
pub const CHECKS: usize = QUERIES.len() + PARTS.len();

/// The last of them, asked of whole files alone.
const REFERENCES: usize = CHECKS - 1;

/// One look of a check tells of so many violations: where there are more, the first are enough to act on.
pub const VIOLATIONS_MAX: usize = 1_000;

/// One look of a check goes through so many deposits, invoices or endpoints.
const DEPOSITS_MAX: i64 = 10_000;
const INVOICES_MAX: i64 = 1_000;
const ENDPOINTS_MAX: i64 = 1_000;

/// What one look of a check found.
#[derive(Debug, Default)]
pub struct Looked {
    /// At most [`VIOLATIONS_MAX`].
    pub found: Vec<Violation>,
    /// Where the same check goes on, if it is not through.
    pub next: Option<i64>,
}

impl ReadTx<'_> {
    /// Everything that does not hold, but for rows that point at nothing: SQLite refuses each write of one,
    /// and only a file from elsewhere may have them. That far below the tip no header may be missing, or as
    /// far as the window goes that the chain is followed with.
    ///
    /// # Errors
    /// Those of the database.
    pub fn violations(&self, reorg_window: u64) -> Result<Vec<Violation>, StoreError> {
        let mut found = Vec::new();
        for number in 0..REFERENCES {
            let mut next = Some(0);
            while let Some(from) = next {
                let looked = self.check(number, reorg_window, from)?;
                found.extend(looked.found);
                next = looked.next;
            }
        }
        Ok(found)
    }

    /// One look of the check of a number, from 0 or from where its last look ended: short enough for a
    /// transaction of its own. There is nothing above [`CHECKS`].
    ///
    /// # Errors
    /// Those of the database.
    pub fn check(&self, number: usize, reorg_window: u64, from: i64) -> Result<Looked, StoreError> {
        let mut looked = Looked::default();
        let found = &mut looked.found;
        if let Some((invariant, sql)) = QUERIES.get(number) {
            let mut statement = self.conn().prepare_cached(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                if found.len() == VIOLATIONS_MAX {
                    break;
                }
                found.push(Violation {
                    invariant: *invariant,
                    subject: row.get(0)?,
                    what: row.get(1)?,
                });
            }
            return Ok(looked);
        }
        let part = number.checked_sub(QUERIES.len()).and_then(|at| PARTS.get(at));
        looked.next = match part {
            Some(Part::Deposits) => self.check_deposits(from, DEPOSITS_MAX, found)?,
            Some(Part::Invoices) => self.check_invoices(from, INVOICES_MAX, found)?,
            Some(Part::Deliveries) => self.check_deliveries(from, ENDPOINTS_MAX, found)?,
            Some(Part::References) => self.check_references(from, found)?,
            Some(part) => {
                self.check_part(*part, reorg_window, found)?;
                None
            }
            None => None,
        };
        looked.found.truncate(VIOLATIONS_MAX);
        Ok(looked)
    }

    fn check_part(
        &self,
        part: Part,
        reorg_window: u64,
        found: &mut Vec<Violation>,
    ) -> Result<(), StoreError> {
        match part {
            Part::Headers => self.check_all_headers(reorg_window, found),
            Part::ExternalCredits => self.check_external_credits(found),
            Part::InboxEvents => self.check_inbox_events(found),
            Part::ChainEvents => self.check_chain_events(found),
            Part::Unattributed => self.check_unattributed_events(found),
            Part::Strays => self.check_strays(found),
            Part::Deposits | Part::Invoices | Part::Deliveries | Part::References => Ok(()),
        }
    }

    fn check_all_headers(&self, reorg_window: u64, found: &mut Vec<Violation>) -> Result<(), StoreError> {
        for chain in self.chains()? {
            // Below the point that an operator went back to last, headers were forgotten already.
            let anchor = one::<i64>(
                self.conn(),
                "SELECT fork_height FROM reanchors WHERE chain = ?1 AND state = 'done' \
                 ORDER BY id DESC LIMIT 1",
                [chain.key.0],
            )?;
            let anchor = anchor.map(uint).transpose()?.unwrap_or_default();
            // The config of now is not what the headers were kept by.
            let (window, held_from) = self.conn().query_row(
                "SELECT min(coalesce(reorg_window, ?2), ?2), headers_from FROM chains WHERE id = ?1",
                params![chain.key.0, int(reorg_window)?],
                |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
            )?;
            let (window, held_from) = (uint(window)?, uint(held_from)?);
            let floor = chain.cursor.map_or(0, |tip| {
                let first = chain.start_height.unwrap_or_default().saturating_sub(1);
                let lowest = tip.height.saturating_sub(window).max(held_from);
                lowest.max(first).max(anchor)
            });
            self.check_headers(chain.key.0, chain.id.as_str(), floor, found)?;
        }
        Ok(())
    }

    /// A row that points at nothing is passed over by each question that joins. One table in a look.
    fn check_references(&self, from: i64, found: &mut Vec<Violation>) -> Result<Option<i64>, StoreError> {
        let table = self.conn().prepare_cached(
            "SELECT rowid, name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' \
             AND rowid > ?1 ORDER BY rowid LIMIT 1",
        );
        let table = table?.query_row([from], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
        });
        let Some((number, name)) = table.optional()? else {
            return Ok(None);
        };
        let mut statement = self
            .conn()
            .prepare_cached("SELECT rowid, parent FROM pragma_foreign_key_check(?1) LIMIT ?2")?;
        let mut rows = statement.query(params![name, i64::try_from(VIOLATIONS_MAX).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            let (number, parent): (Option<i64>, String) = (row.get(0)?, row.get(1)?);
            found.push(Violation {
                invariant: Invariant::I3Justified,
                subject: match number {
                    Some(number) => format!("{name} row {number}"),
                    None => format!("{name} a row"),
                },
                what: format!("it points at no row of {parent}"),
            });
        }
        Ok(Some(number))
    }

    /// Headers link to each other wherever two neighbours are held, and from `floor` on all of them are.
    fn check_headers(
        &self,
        chain: i64,
        name: &str,
        floor: u64,
        found: &mut Vec<Violation>,
    ) -> Result<(), StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT height, hash, parent, work, chainwork FROM headers WHERE chain = ?1 ORDER BY height",
        )?;
        let mut rows = statement.query(params![chain])?;
        let mut below: Option<(u64, BlockHash, Work)> = None;
        while let Some(row) = rows.next()? {
            let height = uint(row.get(0)?)?;
            let (hash, parent): (BlockHash, BlockHash) = (row.get(1)?, row.get(2)?);
            let (work, chainwork): (Work, Work) = (row.get(3)?, row.get(4)?);
            let what = match below {
                Some((last, _, _)) if (last + 1).max(floor) < height => {
                    Some(format!("no header at {}", (last + 1).max(floor)))
                }
                None if height > floor && floor > 0 => Some(format!("no header at {floor}")),
                Some((last, last_hash, _)) if last + 1 == height && parent != last_hash => Some(format!(
                    "the header at {height} does not follow from that at {last}"
                )),
                Some((last, _, sum)) if last + 1 == height && sum.checked_add(work) != Some(chainwork) => {
                    Some(format!("the chainwork at {height} does not add up"))
                }
                Some(_) | None => None,
            };
            found.extend(what.map(|what| Violation {
                invariant: Invariant::I9CursorHonest,
                subject: name.to_owned(),
                what,
            }));
            below = Some((height, hash, chainwork));
        }
        Ok(())
    }

    /// The ledger as it stands, to be held against a later one.
    pub fn ledger_snapshot(&self) -> Result<LedgerSnapshot, StoreError> {
        let mut rows = BTreeSet::new();
        for table in ["credits", "journal"] {
            rows.extend(self.rows_as_text(table, &[])?);
        }
        Ok(LedgerSnapshot(rows))
    }
}
