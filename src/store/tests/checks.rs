//! The numbered checks, and the looks that each is done in.

use super::guarantee::fixture;
use crate::store::checks::VIOLATIONS_MAX;
use crate::store::{CHECKS, Violation};

const DEPOSITS: &str = "
    INSERT INTO deposits (output, chain, dep_id, merchant, asset, state, first_seen_at)
        VALUES (1, 1, 'dep_1', 1, 1, 'evicted', 0), (2, 1, 'dep_2', 1, 1, 'evicted', 0);";

#[test]
fn a_check_in_pieces_finds_what_it_finds_in_one() {
    let (_scratch, database) = fixture();
    database.conn.execute_batch(DEPOSITS).unwrap();
    let looked = database.read(|tx| {
        let (mut whole, mut pieces): (Vec<Violation>, Vec<Violation>) = (vec![], vec![]);
        assert_eq!(tx.check_deposits(0, 3, &mut whole)?, None);
        let first = tx.check_deposits(0, 1, &mut pieces)?;
        assert_eq!(first, Some(1));
        assert_eq!(tx.check_deposits(1, 1, &mut pieces)?, Some(2));
        assert_eq!(tx.check_deposits(2, 1, &mut pieces)?, None);
        Ok((whole, pieces))
    });
    let (whole, pieces) = looked.unwrap();
    assert!(whole.iter().any(|found| found.subject == "dep_2"), "{whole:?}");
    assert_eq!(whole, pieces);
}

#[test]
fn all_violations_are_those_of_the_numbered_checks() {
    let (_scratch, database) = fixture();
    database.conn.execute_batch(DEPOSITS).unwrap();
    let looked = database.read(|tx| {
        let mut found = Vec::new();
        for number in 0..CHECKS {
            let looked = tx.check(number, 10, 0)?;
            // The last one looks at one table at a time.
            assert_eq!(looked.next.is_some(), number == CHECKS - 1);
            found.extend(looked.found);
        }
        assert!(tx.check(CHECKS, 10, 0)?.found.is_empty(), "there is none above");
        Ok((found, tx.violations(10)?))
    });
    let (found, all) = looked.unwrap();
    assert!(!found.is_empty());
    assert_eq!(found, all);
}

/// An endpoint that was never sent anything may have missed millions.
#[test]
fn what_endpoints_missed_is_told_up_to_a_bound() {
    let (_scratch, database) = fixture();
    let missed = format!(
        "INSERT INTO endpoints (id, ep_id, merchant, url, types, after_event, created_at)
             VALUES (1, 'ep_1', 1, 'https://a', '*', 0, 0), (2, 'ep_2', 1, 'https://b', '*', 0, 0);
         WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < {})
         INSERT INTO events (seq, id, subject, sequence, type, merchant, at, body)
             SELECT i, 'evt_' || i, 'cr_' || i, 1, 'credit.created', 1, 0, '{{}}' FROM n",
        VIOLATIONS_MAX + 500
    );
    database.conn.execute_batch(&missed).unwrap();
    let mut found: Vec<Violation> = Vec::new();
    let next = database
        .read(|tx| tx.check_deliveries(0, 10, &mut found))
        .unwrap();
    assert_eq!((found.len(), next), (VIOLATIONS_MAX, None));
}
