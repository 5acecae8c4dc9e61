//! SQLite's own check of pages, tables and indexes, a table at a time: damage that no question comes upon
//! stays unseen until one does. It knows no checksums: what was damaged within a value is seen only where the
//! schema refuses the value.

use super::{ReadTx, StoreError};
use rusqlite::{ErrorCode, OptionalExtension as _};

/// What SQLite's check says of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeTable {
    /// Its place: the next ones have higher ones.
    pub place: i64,
    /// Its name.
    pub name: String,
    /// What is wrong with its pages or those of one of its indexes, in lines; the first hundred at most.
    pub faults: Vec<String>,
    /// What the schema refuses in its rows: written past its guards, or the file is damaged there. Of one row
    /// there may be several.
    pub broken: Vec<String>,
}

/// The table of tables, with which the list of free pages is checked.
const SCHEMA_TABLE: &str = "sqlite_schema";

impl ReadTx<'_> {
    /// Checks the next table after a place, from -1 on; `None` where there is none. About ten seconds for a
    /// gigabyte.
    ///
    /// # Errors
    /// Those of the database, but for damage, which is the answer.
    pub fn check_table_after(&self, place: i64) -> Result<Option<WholeTable>, StoreError> {
        if place < 0 {
            return Ok(Some(self.check_table(0, SCHEMA_TABLE)?));
        }
        let next = self.conn().prepare_cached(
            "SELECT rowid, name FROM sqlite_schema WHERE type = 'table' AND rowid > ?1 \
             ORDER BY rowid LIMIT 1",
        );
        let next = next?.query_row([place], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
        });
        match next.optional()? {
            Some((place, name)) => Ok(Some(self.check_table(place, &name)?)),
            None => Ok(None),
        }
    }

    fn check_table(&self, place: i64, name: &str) -> Result<WholeTable, StoreError> {
        let check = format!("PRAGMA integrity_check('{}')", name.replace('\'', "''"));
        let mut faults = Vec::new();
        let asked = self.conn().prepare(&check).and_then(|mut statement| {
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let lines: String = row.get(0)?;
                faults.extend(lines.lines().map(str::to_owned));
            }
            Ok(())
        });
        match asked {
            // It may give up over what it finds.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
                faults.push(error.to_string());
            }
            asked => asked?,
        }
        // A line of stars names the file above others.
        faults.retain(|fault| fault != "ok" && !fault.starts_with("***"));
        let (broken, faults) = faults.into_iter().partition(|fault| is_of_rows(fault));
        Ok(WholeTable {
            place,
            name: name.to_owned(),
            faults,
            broken,
        })
    }
}

/// Whether it is about what stands in a row, and not about where rows stand.
fn is_of_rows(fault: &str) -> bool {
    fault.starts_with("CHECK constraint failed in ") || fault.contains(" value in ")
}
