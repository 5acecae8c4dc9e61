//! The whole database as lines of text, so that two moments of one database, or two databases that were fed
//! the same chain in other ways, can be compared. Counters and times of looking are left out; nothing else
//! is.

use super::{ReadTx, StoreError};
use rusqlite::types::ValueRef;
use std::fmt::Write as _;

/// Columns that count how often something came, or say when the node was last looked at.
pub(super) const COUNTERS: &[(&str, &str)] = &[
    ("meta", "epoch"),
    ("chains", "mempool_poll"),
    ("chains", "reorg_window"),
    ("chains", "headers_from"),
    ("chains", "list_clock_ms"),
    ("chains", "list_applied_at"),
    ("chains", "node_tip_height"),
    ("chains", "node_seen_at"),
    ("chains", "state"),
    ("chains", "state_reason"),
    ("chains", "state_since"),
    ("txs", "rival"),
    ("txs", "rival_lists"),
    ("outputs", "duplicates"),
    ("inbox", "duplicates"),
    ("inbox", "last_at"),
];

/// What two databases that were fed one chain in different ways must agree on: money, places and rules, by
/// public ids. Histories differ (one saw a reorg that the other slept through), and so do times and row
/// numbers.
const AGREED: &[&str] = &[
    "SELECT 'chain', caip, start_height, cursor_height FROM chains",
    "SELECT 'inclusion', lower(hex(t.txid)), i.height, lower(hex(h.hash)) FROM inclusions i \
     JOIN txs t ON t.id = i.tx LEFT JOIN headers h ON h.chain = i.chain AND h.height = i.height",
    // A transaction that is in no block is remembered by whoever saw it, and by nobody else.
    "SELECT 'output', lower(hex(t.txid)), o.vout, lower(hex(a.script)), o.amount, o.origin, \
     iif(o.spent_height IS NULL, NULL, lower(hex(o.spent_by))), o.spent_height \
     FROM outputs o JOIN txs t ON t.id = o.tx JOIN addresses a ON a.id = o.address \
     WHERE EXISTS (SELECT 1 FROM inclusions WHERE tx = t.id)",
    "SELECT 'deposit', d.dep_id, m.slug, s.caip, d.state, d.height, d.confirmations, \
     d.due_height, d.held_reason \
     FROM deposits d JOIN merchants m ON m.id = d.merchant JOIN assets s ON s.id = d.asset \
     WHERE d.height IS NOT NULL",
    "SELECT 'live', c.id, lower(hex(c.txid)), c.vout, c.amount, m.slug FROM credits c \
     JOIN merchants m ON m.id = c.merchant WHERE (SELECT count(*) FROM journal WHERE credit = c.id) % 2 = 1",
];

/// Tables that count, or that tell of somebody's looking: nothing that is fed in goes there.
const LOOKING: &[&str] = &[
    "tallies",
    "jobs",
    "audit_runs",
    "audit_marks",
    "audit_findings",
    "audit_ledger",
    "audit_unread",
    "evidence_blocks",
    "evidence",
];

impl ReadTx<'_> {
    /// All tables, row by row. Feeding anything again that was fed before must not change it.
    pub fn projection(&self) -> Result<Vec<String>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' \
             ORDER BY name",
        )?;
        let names = statement.query_map([], |row| row.get(0))?;
        let mut names = names.collect::<Result<Vec<String>, _>>()?;
        names.retain(|name| !LOOKING.contains(&name.as_str()));
        let mut lines = Vec::new();
        for name in names {
            lines.extend(self.rows_as_text(&name, COUNTERS)?);
        }
        Ok(lines)
    }

    /// What does not depend on how the chain was fed.
    pub fn agreed_projection(&self) -> Result<Vec<String>, StoreError> {
        let mut lines = Vec::new();
        for sql in AGREED {
            lines.extend(self.as_text("", sql)?);
        }
        lines.sort();
        Ok(lines)
    }

    /// The rows of a table in the order of their values, without the columns that `except` names.
    pub(super) fn rows_as_text(
        &self,
        table: &str,
        except: &[(&str, &str)],
    ) -> Result<Vec<String>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT name FROM pragma_table_info(?1) ORDER BY cid")?;
        let names = statement.query_map([table], |row| row.get(0))?;
        let columns: Vec<String> = names.collect::<Result<Vec<String>, _>>()?;
        let kept = |name: &&String| !except.contains(&(table, name.as_str()));
        let columns: Vec<String> = columns
            .iter()
            .filter(kept)
            .map(|name| format!("\"{name}\""))
            .collect();
        let mut lines = self.as_text(table, &format!("SELECT {} FROM \"{table}\"", columns.join(", ")))?;
        lines.sort();
        Ok(lines)
    }

    fn as_text(&self, head: &str, sql: &str) -> Result<Vec<String>, StoreError> {
        let mut statement = self.conn().prepare_cached(sql)?;
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut rows = statement.query([])?;
        let mut lines = Vec::new();
        while let Some(row) = rows.next()? {
            let mut line = head.to_owned();
            for (place, name) in names.iter().enumerate() {
                let value = row.get_ref(place)?;
                // Writing to a string cannot fail.
                let _ = match value {
                    ValueRef::Null => write!(line, " {name}=-"),
                    ValueRef::Integer(number) => write!(line, " {name}={number}"),
                    ValueRef::Real(number) => write!(line, " {name}={number:?}"),
                    ValueRef::Text(text) => write!(line, " {name}={:?}", String::from_utf8_lossy(text)),
                    ValueRef::Blob(bytes) => write!(line, " {name}={}", const_hex::encode(bytes)),
                };
            }
            lines.push(line);
        }
        Ok(lines)
    }
}
