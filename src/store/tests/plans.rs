//! How SQLite is made to plan statements.

use rusqlite::StatementStatus;

use super::Scratch;
use crate::rules::invariants::Invariant;
use crate::store::Database;
use crate::store::audit_runs::{FINDINGS_COUNT, FINDINGS_OF_CHAIN, FINDINGS_OF_PASS, findings_sql};
use crate::store::audited::{CLAIMS_SLICE, claims_sql};
use crate::store::check_queries::QUERIES;
use crate::store::deliveries::DUE_ENDPOINTS;
use crate::store::delivery_checks::{MISSED_BY_INVOICE, MISSED_BY_OWNER};
use crate::store::endpoints::{ROTATED, endpoints_about};
use crate::store::evidence::{AGAIN, LOST, MOVED, due_sql};
use crate::store::idempotency::{FORGET, over_sql};
use crate::store::inbox::INBOX_SOURCES;
use crate::store::pool::POOL_WORK;
use crate::store::report::{EndpointFilter, Page, endpoints_query};

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

fn plan(database: &Database, sql: &str) -> Vec<String> {
    let steps = database.read(|tx| {
        let mut statement = tx.conn().prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
        let nulls = vec![rusqlite::types::Null; statement.parameter_count()];
        let steps = statement.query_map(rusqlite::params_from_iter(nulls), |row| row.get::<_, String>(3))?;
        Ok(steps.collect::<Result<Vec<_>, _>>()?)
    });
    steps.unwrap()
}

/// What is done for one thing, or by the clock, must not become slower with all that ever was.
#[test]
fn nothing_walks_through_what_only_grows() {
    let (_scratch, database) = Scratch::new();
    for (sql, wanted) in [
        (POOL_WORK, "INDEX pool_addresses_free (source=?)"),
        (ROTATED, "INDEX audit_of_rotations (at=?)"),
        (&endpoints_about(), "INDEX endpoints_by_invoice (invoice=?)"),
        (&over_sql(), "INDEX idempotency_by_end (keep_until<?)"),
        (INBOX_SOURCES, "sqlite_autoindex_inbox_2 (source>?)"),
        (FORGET, "PRIMARY KEY (owner=? AND method=? AND path=? AND key=?)"),
        (AGAIN, "INDEX evidence_waiting (next_at<?)"),
        (LOST, "INDEX evidence_blocks_by_height (chain=? AND height>?)"),
        (MOVED, "INDEX deposits_by_height (chain=? AND height>?)"),
        (
            &findings_sql(FINDINGS_OF_PASS),
            "INDEX audit_findings_standing (chain=?)",
        ),
        (
            &findings_sql(FINDINGS_OF_CHAIN),
            "INDEX audit_findings_standing (chain=?)",
        ),
        (FINDINGS_COUNT, "INDEX audit_findings_standing (chain=?)"),
    ] {
        let steps = plan(&database, sql);
        // Sources are as many as the config ever named, those of addresses and those of the inbox.
        let is_few = |step: &str| step.starts_with("SCAN s USING") || step == "SCAN named";
        let is_walk = |step: &String| step.starts_with("SCAN") && !is_few(step);
        assert!(!steps.iter().any(is_walk), "{sql}: {steps:#?}");
        assert!(
            steps.iter().any(|step| step.ends_with(wanted)),
            "{sql}: {steps:#?}"
        );
    }
}

/// Slices of the audit and of proofs go on where the last ended, whatever else a chain has.
#[test]
fn slices_begin_at_their_mark_and_sort_nothing() {
    let (_scratch, database) = Scratch::new();
    for (sql, first) in [
        (
            claims_sql(CLAIMS_SLICE),
            "SEARCH c USING INTEGER PRIMARY KEY (rowid>?)",
        ),
        (due_sql(), "SEARCH j USING INTEGER PRIMARY KEY (rowid>?)"),
    ] {
        let steps = plan(&database, &sql);
        assert_eq!(steps[0], first, "{steps:#?}");
        assert!(
            !steps.iter().any(|step| step.contains("TEMP B-TREE")),
            "{steps:#?}"
        );
    }
}

/// Of endpoints that are told of one invoice each there may be millions.
#[test]
fn a_page_of_endpoints_passes_over_no_others() {
    let (_scratch, database) = Scratch::new();
    let page = Page {
        after: None,
        limit: 1,
    };
    for (invoice, is_paused, wanted) in [
        (None, false, "endpoints_by_merchant (merchant=? AND rowid>?)"),
        (None, true, "endpoints_paused (merchant=? AND rowid>?)"),
        (
            Some("inv_1"),
            false,
            "endpoints_by_invoice (invoice=? AND rowid>?)",
        ),
        (
            Some("inv_1"),
            true,
            "endpoints_by_invoice (invoice=? AND rowid>?)",
        ),
    ] {
        let filter = EndpointFilter {
            merchant: Some("shop".to_owned()),
            invoice: invoice.map(str::to_owned),
            is_paused,
        };
        let (sql, _) = endpoints_query(&filter, Some(1), page);
        let steps = plan(&database, &sql);
        assert!(steps[0].ends_with(wanted), "{steps:#?}");
    }
}

/// An endpoint of one invoice is not asked about all that happened since.
#[test]
fn what_an_endpoint_missed_is_looked_for_where_it_is() {
    let (_scratch, database) = Scratch::new();
    for (sql, wanted) in [
        (
            MISSED_BY_INVOICE,
            "SEARCH e USING INDEX sqlite_autoindex_events_2 (subject=?)",
        ),
        (
            MISSED_BY_OWNER,
            "SEARCH e USING INDEX events_by_merchant (merchant=? AND rowid>?)",
        ),
    ] {
        let steps = plan(&database, sql);
        assert_eq!(steps[0], wanted, "{steps:#?}");
        assert!(
            !steps.iter().any(|step| step.contains("SCAN")),
            "{sql}: {steps:#?}"
        );
    }
}

/// The audit asks once a day: to pair all credits of a chain with each other would never end.
#[test]
fn double_spends_are_looked_for_through_their_inputs() {
    let (_scratch, database) = Scratch::new();
    let of_i6 = |(invariant, _): &&(Invariant, &str)| *invariant == Invariant::I6NoDoubleSpend;
    let (_, sql) = QUERIES.iter().find(of_i6).unwrap();
    let steps = plan(&database, sql);
    assert!(!steps.iter().any(|step| step.contains("(chain=?)")), "{steps:#?}");
    let others = steps.iter().find(|step| step.starts_with("SEARCH b ")).unwrap();
    assert!(others.contains("(output=?)"), "{steps:#?}");
}
