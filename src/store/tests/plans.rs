//! How SQLite is made to plan statements.

use rusqlite::StatementStatus;

use super::Scratch;

#[test]
fn a_statement_is_planned_once_whatever_is_bound() {
    let (_scratch, database) = Scratch::new();
    let last = "SELECT max(sequence) FROM events WHERE subject = ?1";
    let planned_again = database.read(|tx| {
        let mut statement = tx.conn().prepare(last)?;
        for subject in ["a", "b", "c"] {
            statement.query_row([subject], |row| row.get::<_, Option<i64>>(0))?;
        }
        Ok(statement.get_status(StatementStatus::RePrepare))
    });
    assert_eq!(planned_again.unwrap(), 0);
}
