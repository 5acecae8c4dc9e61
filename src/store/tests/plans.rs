//! How SQLite is made to plan statements.

use rusqlite::StatementStatus;

use super::Scratch;
use crate::store::deliveries::DUE_ENDPOINTS;
use crate::store::endpoints::{ROTATED, endpoints_about};
use crate::store::idempotency::{FORGET, over_sql};
use crate::store::pool::POOL_WORK;

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

/// Each invoice may have an endpoint of its own: a lease must not become slower with all that ever were.
#[test]
fn leasing_looks_only_at_endpoints_that_something_waits_for() {
    let (_scratch, database) = Scratch::new();
    let steps = database.read(|tx| {
        let mut statement = tx
            .conn()
            .prepare(&format!("EXPLAIN QUERY PLAN {DUE_ENDPOINTS}"))?;
        let steps = statement.query_map((0, 0), |row| row.get::<_, String>(3))?;
        Ok(steps.collect::<Result<Vec<_>, _>>()?)
    });
    let walks = |step: &&String| {
        let is_the_walk = step.starts_with("SCAN w") || step.contains("INDEX deliveries_waiting");
        step.starts_with("SCAN") && !is_the_walk
    };
    let steps = steps.unwrap();
    assert_eq!(steps.iter().filter(walks).count(), 0, "{steps:#?}");
    assert!(steps.iter().any(|step| step.contains("SEARCH e ")), "{steps:#?}");
}

/// What is done for one thing, or by the clock, must not become slower with all that ever was.
#[test]
fn nothing_walks_through_what_only_grows() {
    let (_scratch, database) = Scratch::new();
    let plan = |sql: &str| {
        let steps = database.read(|tx| {
            let mut statement = tx.conn().prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
            let nulls = vec![rusqlite::types::Null; statement.parameter_count()];
            let steps =
                statement.query_map(rusqlite::params_from_iter(nulls), |row| row.get::<_, String>(3))?;
            Ok(steps.collect::<Result<Vec<_>, _>>()?)
        });
        steps.unwrap()
    };
    for (sql, wanted) in [
        (POOL_WORK, "INDEX pool_addresses_free (source=?)"),
        (ROTATED, "INDEX audit_of_rotations (at=?)"),
        (&endpoints_about(), "INDEX endpoints_by_invoice (invoice=?)"),
        (&over_sql(), "INDEX idempotency_by_end (keep_until<?)"),
        (FORGET, "PRIMARY KEY (owner=? AND method=? AND path=? AND key=?)"),
    ] {
        let steps = plan(sql);
        // Sources are as many as the config ever named.
        let is_walk = |step: &String| step.starts_with("SCAN") && !step.starts_with("SCAN s USING");
        assert!(!steps.iter().any(is_walk), "{sql}: {steps:#?}");
        assert!(
            steps.iter().any(|step| step.ends_with(wanted)),
            "{sql}: {steps:#?}"
        );
    }
}
