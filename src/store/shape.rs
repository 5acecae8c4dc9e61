//! Whether a file still has the tables, indexes and triggers that creditd gave it. The triggers are what
//! keeps the ledger append-only, so a file without them is refused, though its rows may be as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use rusqlite::Connection;

use super::migrate::SCHEMA;
use super::open::explain_content;
use super::{Database, StoreError};

/// So many differences are named.
const NAMED: usize = 5;

/// What tests plant faults with, also under a daemon that is killed and started again. What ships knows no
/// such name.
const PLANTED: Option<&str> = if cfg!(feature = "points") {
    Some("planted")
} else {
    None
};

/// Kind and name of an object of the file, and what it is: the table that it is of, and its definition.
type Objects = BTreeMap<(String, String), (String, String)>;

/// What this program makes.
static OURS: LazyLock<Result<Objects, String>> = LazyLock::new(|| {
    let made = Connection::open_in_memory().and_then(|conn| {
        conn.execute_batch(SCHEMA.fresh)?;
        objects(&conn)
    });
    made.map_err(|error| error.to_string())
});

/// How a file differs from what this program makes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differences {
    /// What the ledger cannot do with: missing or changed, or a trigger that would act on our tables.
    wrong: Vec<String>,
    /// What somebody made beside it, and which changes nothing of ours by itself.
    beside: Vec<String>,
}

impl Database {
    /// What the file has beside what creditd made: somebody's own indexes, views and tables, which do no
    /// harm.
    ///
    /// # Errors
    /// [`StoreError::SchemaChanged`] where it has not all of what creditd made, or a trigger on it.
    pub fn check_schema(&self) -> Result<Vec<String>, StoreError> {
        self.read(|tx| refuse_changed(tx.conn(), &self.path))
    }
}

/// As a daemon does at its start: what stands beside is told in its log.
pub(super) fn accept(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    let beside = refuse_changed(conn, path)?;
    if !beside.is_empty() {
        let beside = first_of(&beside);
        tracing::warn!("the database holds what creditd did not make: {beside}");
    }
    Ok(())
}

/// [`Database::check_schema`]. Writes nothing.
pub(super) fn refuse_changed(conn: &Connection, path: &Path) -> Result<Vec<String>, StoreError> {
    let found = objects(conn).map_err(|error| explain_content(path, error))?;
    let ours = OURS
        .as_ref()
        .map_err(|error| StoreError::Corrupt(error.clone()))?;
    let differences = compare(&found, ours);
    if differences.wrong.is_empty() {
        return Ok(differences.beside);
    }
    Err(StoreError::SchemaChanged {
        path: path.to_owned(),
        what: first_of(&differences.wrong),
    })
}

/// As a line of a log: the first of them, and how many more there are.
fn first_of(all: &[String]) -> String {
    let named = all.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>();
    match all.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{}, and {more} more", named.join(", ")),
    }
}

/// What SQLite makes itself is not asked for: counters, statistics, the indexes of constraints.
fn objects(conn: &Connection) -> Result<Objects, rusqlite::Error> {
    let all = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema \
               WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let mut statement = conn.prepare(all)?;
    let object = |row: &rusqlite::Row<'_>| Ok(((row.get(0)?, row.get(1)?), (row.get(2)?, row.get(3)?)));
    statement.query_map([], object)?.collect()
}

fn compare(found: &Objects, ours: &Objects) -> Differences {
    let tables: BTreeSet<&str> = ours.values().map(|(table, _)| table.as_str()).collect();
    let mut differences = Differences::default();
    for ((kind, name), is) in ours {
        match found.get(&(kind.clone(), name.clone())) {
            None => differences.wrong.push(format!("{kind} {name} is missing")),
            Some(there) if is_same(kind, there, is) => {}
            Some(_) => differences.wrong.push(format!("{kind} {name} is another")),
        }
    }
    for ((kind, name), (table, _)) in found {
        if ours.contains_key(&(kind.clone(), name.clone())) || PLANTED == Some(name) {
            continue;
        }
        // A trigger has the table's name as it was typed.
        match kind == "trigger" && tables.contains(table.to_ascii_lowercase().as_str()) {
            true => differences
                .wrong
                .push(format!("{kind} {name} on {table} is not creditd's")),
            false => differences.beside.push(format!("{kind} {name}")),
        }
    }
    differences
}

/// Only a table's definition is ever written anew by SQLite; of a trigger the order of its words counts.
fn is_same(kind: &str, one: &(String, String), other: &(String, String)) -> bool {
    one == other || (kind == "table" && one.0 == other.0 && parts(&one.1) == parts(&other.1))
}

/// The parts of a definition: cut at the commas and sorted, without comments, quotes around names and spaces
/// that mean nothing. `ALTER TABLE` writes a new column behind the table's constraints, which means the same.
pub(super) fn parts(sql: &str) -> Vec<String> {
    let code: String = sql
        .lines()
        .map(|line| line.split("--").next().unwrap_or(""))
        .collect::<Vec<_>>()
        .join(" ");
    let words = code
        .replace('"', "")
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace(',', " , ");
    let mut parts = vec![String::new()];
    for word in words.split_whitespace() {
        match (word, parts.last_mut()) {
            (",", _) | (_, None) => parts.push(String::new()),
            (word, Some(part)) => *part += &format!("{word} "),
        }
    }
    // The bracket that ends the definition stands behind whichever part is last.
    for part in &mut parts {
        *part = part.trim_end().trim_end_matches(") STRICT").trim_end().to_owned();
    }
    parts.sort();
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is done to a file, what of it is wrong, and what stands beside.
    const CASES: [(&str, &[&str], &[&str]); 11] = [
        ("ANALYZE", &[], &[]),
        (
            "DROP TRIGGER credits_no_delete",
            &["trigger credits_no_delete is missing"],
            &[],
        ),
        (
            "DROP TRIGGER credits_no_delete; \
             CREATE TRIGGER credits_no_delete BEFORE DELETE ON credits WHEN 0 BEGIN SELECT 1; END",
            &["trigger credits_no_delete is another"],
            &[],
        ),
        (
            "DROP TRIGGER credits_no_delete; \
             CREATE TRIGGER credits_no_delete BEFORE DELETE ON notes BEGIN SELECT 1; END",
            &["trigger credits_no_delete is another"],
            &["table notes"],
        ),
        // The same words in another order.
        (
            "DROP INDEX addresses_by_version; \
             CREATE INDEX addresses_by_version ON addresses (version, chain)",
            &["index addresses_by_version is another"],
            &[],
        ),
        (
            "CREATE TRIGGER mine AFTER INSERT ON Credits BEGIN SELECT 1; END",
            &["trigger mine on Credits is not creditd's"],
            &[],
        ),
        (
            "ALTER TABLE merchants ADD COLUMN mine TEXT",
            &["table merchants is another"],
            &[],
        ),
        (
            "DROP INDEX audit_of_states",
            &["index audit_of_states is missing"],
            &[],
        ),
        ("CREATE INDEX mine ON credits (created_at)", &[], &["index mine"]),
        ("CREATE VIEW mine AS SELECT 1", &[], &["view mine"]),
        (
            "CREATE TRIGGER mine AFTER INSERT ON notes BEGIN SELECT 1; END",
            &[],
            &["table notes", "trigger mine"],
        ),
    ];

    fn made() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(SCHEMA.fresh).unwrap();
        conn
    }

    #[test]
    fn every_difference_is_named() {
        let ours = objects(&made()).unwrap();
        assert!(ours.len() > 100, "{}", ours.len());
        assert_eq!(compare(&ours, &ours), Differences::default());
        for (sql, wrong, beside) in CASES {
            let changed = made();
            if sql.contains(" notes ") {
                changed.execute_batch("CREATE TABLE notes (a)").unwrap();
            }
            changed.execute_batch(sql).unwrap();
            let found = compare(&objects(&changed).unwrap(), &ours);
            assert_eq!(
                (found.wrong.as_slice(), found.beside.as_slice()),
                (
                    wrong
                        .iter()
                        .map(|word| (*word).to_owned())
                        .collect::<Vec<_>>()
                        .as_slice(),
                    beside
                        .iter()
                        .map(|word| (*word).to_owned())
                        .collect::<Vec<_>>()
                        .as_slice(),
                ),
                "{sql}"
            );
        }
    }

    #[test]
    fn the_first_few_are_named() {
        let all: Vec<String> = (1..=7).map(|number| number.to_string()).collect();
        assert_eq!(first_of(&all), "1, 2, 3, 4, 5, and 2 more");
        assert_eq!(first_of(&all[..5]), "1, 2, 3, 4, 5");
    }
}
