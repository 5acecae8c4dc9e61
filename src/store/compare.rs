//! Two files that began as one database, row by row: what was added, what is gone and what changed. Rows are
//! looked up by their keys, so that a comparison needs no memory, whatever the size of the tables.

use super::projection::COUNTERS;
use super::transact::roll_back;
use super::{Database, StoreError};
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::path::Path;

/// Text and bytes longer than this are told by their size and hash: bodies are nobody's business, and long.
const SHOWN_BYTES_MAX: usize = 80;

/// So much of a hash tells two contents apart for people.
const SHOWN_HASH_BYTES: usize = 6;

/// What may differ.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// Columns, as table and column.
    pub columns: &'static [&'static [(&'static str, &'static str)]],
    /// Whole tables.
    pub tables: &'static [&'static str],
    /// New rows, as table and a condition on them.
    pub rows: &'static [(&'static str, &'static str)],
}

/// What may differ after past inputs were fed once more: counters, histories of work, and what an operator's
/// own asking leaves.
pub const FED_AGAIN: Allowed = Allowed {
    columns: &[
        COUNTERS,
        &[
            ("deliveries", "attempts"),
            ("deliveries", "attempts_before"),
            ("deliveries", "queued_at"),
            ("deliveries", "next_at"),
            ("deliveries", "settled_at"),
            ("endpoints", "failures"),
        ],
    ],
    tables: &[
        "attempts",
        "audit_findings",
        "audit_ledger",
        "audit_marks",
        "audit_runs",
        "audit_unread",
        "evidence",
        "evidence_blocks",
        "jobs",
        "rescan_blocks",
        "rescans",
        "tallies",
    ],
    rows: &[
        ("audit", "action IN ('rescan', 'retry', 'state')"),
        // A rescan keeps the headers of blocks with payments, which it proved to be of our chain.
        (
            "headers",
            "height <= (SELECT cursor_height FROM chains WHERE chains.id = row.chain)",
        ),
    ],
};

/// A row that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowDiff {
    /// Its table.
    pub table: String,
    /// Its key, in words.
    pub key: String,
    /// How it was, as far as it changed; `None` = it was not there.
    pub was: Option<String>,
    /// How it is, as far as it changed; `None` = it is gone.
    pub is: Option<String>,
}

/// What a comparison has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Tables that were compared.
    pub tables: u64,
    /// Their rows.
    pub rows: u64,
    /// Rows that differ.
    pub count: u64,
    /// The first of them.
    pub diffs: Vec<RowDiff>,
}

/// A table, by the columns that count.
struct Table {
    name: String,
    key: Vec<String>,
    columns: Vec<String>,
}

impl Database {
    /// What differs in this file from `other`, an earlier copy of it; the first `rows_max` rows by name.
    ///
    /// # Errors
    /// Those of the two files.
    pub fn differs_from(
        &self,
        other: &Path,
        allowed: &Allowed,
        rows_max: usize,
    ) -> Result<Compared, StoreError> {
        let name = other.to_str().ok_or_else(|| {
            StoreError::Refused(format!("{} is no name that SQLite can open", other.display()))
        })?;
        self.conn.execute("ATTACH ?1 AS base", [name])?;
        let compared = compare(&self.conn, allowed, rows_max);
        roll_back(&self.conn)?;
        self.conn.execute("DETACH base", [])?;
        compared
    }
}

fn compare(conn: &Connection, allowed: &Allowed, rows_max: usize) -> Result<Compared, StoreError> {
    conn.execute_batch("BEGIN")?;
    let mut compared = Compared::default();
    for name in names(conn)? {
        if allowed.tables.contains(&name.as_str()) {
            continue;
        }
        let table = Table::read(conn, name, allowed)?;
        let rows: i64 = conn.query_row(&format!("SELECT count(*) FROM main.{}", table.name), [], |row| {
            row.get(0)
        })?;
        compared.tables += 1;
        compared.rows += super::codec::uint(rows)?;
        let mut told = |diff: RowDiff| {
            compared.count += 1;
            if compared.diffs.len() < rows_max {
                compared.diffs.push(diff);
            }
        };
        table.one_sided(conn, ("main", "base"), allowed, &mut told)?;
        table.one_sided(conn, ("base", "main"), allowed, &mut told)?;
        table.changed(conn, &mut told)?;
    }
    Ok(compared)
}

/// The tables, by their names.
pub(super) fn names(conn: &Connection) -> Result<Vec<String>, StoreError> {
    let mut statement = conn.prepare(
        "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' \
         ORDER BY name",
    )?;
    let names = statement.query_map([], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

impl Table {
    fn read(conn: &Connection, name: String, allowed: &Allowed) -> Result<Table, StoreError> {
        let mut statement = conn.prepare("SELECT name, pk FROM pragma_table_info(?1) ORDER BY cid")?;
        let columns = statement.query_map([&name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let columns: Vec<(String, i64)> = columns.collect::<Result<_, _>>()?;
        let mut key: Vec<(i64, String)> = columns
            .iter()
            .filter(|(_, place)| *place > 0)
            .map(|(column, place)| (*place, column.clone()))
            .collect();
        key.sort();
        if key.is_empty() {
            return Err(StoreError::Corrupt(format!("table {name} has no key")));
        }
        let may_differ = |column: &str| {
            let mut all = allowed.columns.iter().copied().flatten();
            all.any(|one| *one == (name.as_str(), column))
        };
        let columns = columns.into_iter().map(|(column, _)| column);
        Ok(Table {
            key: key.into_iter().map(|(_, column)| column).collect(),
            columns: columns.filter(|column| !may_differ(column)).collect(),
            name,
        })
    }

    /// `row.a = other.a AND row.b = other.b`
    fn same_key(&self) -> String {
        let same: Vec<String> = self
            .key
            .iter()
            .map(|column| format!("row.\"{column}\" = other.\"{column}\""))
            .collect();
        same.join(" AND ")
    }

    /// `row.a, row.b`
    fn listed(&self, of: &str) -> String {
        let listed: Vec<String> = self
            .columns
            .iter()
            .map(|column| format!("{of}.\"{column}\""))
            .collect();
        listed.join(", ")
    }

    /// The rows of one side that the other does not have.
    fn one_sided(
        &self,
        conn: &Connection,
        (side, other): (&str, &str),
        allowed: &Allowed,
        told: &mut impl FnMut(RowDiff),
    ) -> Result<(), StoreError> {
        let (name, same, columns) = (&self.name, self.same_key(), self.listed("row"));
        let mut sql = format!(
            "SELECT {columns} FROM {side}.{name} AS row \
             WHERE NOT EXISTS (SELECT 1 FROM {other}.{name} AS other WHERE {same})"
        );
        let conditions = allowed.rows.iter().filter(|(table, _)| table == name);
        for (_, condition) in conditions.filter(|_| side == "main") {
            sql.push_str(&format!(" AND ({condition}) IS NOT TRUE"));
        }
        let mut statement = conn.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (mut key, mut words) = (String::new(), String::new());
            for (place, column) in self.columns.iter().enumerate() {
                let value = row.get_ref(place)?;
                match self.key.contains(column) {
                    true => say(&mut key, column, value),
                    false if value == ValueRef::Null => {}
                    false => say(&mut words, column, value),
                }
            }
            let (was, is) = match side {
                "main" => (None, Some(words)),
                _ => (Some(words), None),
            };
            let table = self.name.clone();
            told(RowDiff { table, key, was, is });
        }
        Ok(())
    }

    /// The rows that both have, with other values.
    fn changed(&self, conn: &Connection, told: &mut impl FnMut(RowDiff)) -> Result<(), StoreError> {
        let (name, same) = (&self.name, self.same_key());
        let (is, was) = (self.listed("row"), self.listed("other"));
        let sql = format!(
            "SELECT {is}, {was} FROM main.{name} AS row CROSS JOIN base.{name} AS other ON {same} \
             WHERE ({is}) IS NOT ({was})"
        );
        let mut statement = conn.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (mut key, mut was, mut is) = (String::new(), String::new(), String::new());
            for (place, column) in self.columns.iter().enumerate() {
                let (new, old) = (row.get_ref(place)?, row.get_ref(place + self.columns.len())?);
                if self.key.contains(column) {
                    say(&mut key, column, new);
                }
                if new != old {
                    say(&mut was, column, old);
                    say(&mut is, column, new);
                }
            }
            told(RowDiff {
                table: self.name.clone(),
                key,
                was: Some(was),
                is: Some(is),
            });
        }
        Ok(())
    }
}

/// Adds `column=value` to `words`. Writing to a string cannot fail.
fn say(words: &mut String, column: &str, value: ValueRef<'_>) {
    if !words.is_empty() {
        words.push(' ');
    }
    let _ = match value {
        ValueRef::Null => write!(words, "{column}=-"),
        ValueRef::Integer(number) => write!(words, "{column}={number}"),
        ValueRef::Real(number) => write!(words, "{column}={number:?}"),
        ValueRef::Text(text) if text.len() <= SHOWN_BYTES_MAX => {
            write!(words, "{column}={}", String::from_utf8_lossy(text))
        }
        ValueRef::Blob(bytes) if bytes.len() <= SHOWN_BYTES_MAX => {
            write!(words, "{column}={}", const_hex::encode(bytes))
        }
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            let hash = Sha256::digest(bytes);
            let hash = const_hex::encode(&hash[..SHOWN_HASH_BYTES]);
            write!(words, "{column}=({} bytes, sha256 {hash}...)", bytes.len())
        }
    };
}
