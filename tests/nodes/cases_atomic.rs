//! C01: credit, status and event are one write. A fault right after the credit row, by an error or by
//! `kill -9`, leaves none of them, however often it comes back.

use std::thread;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use serde_json::Value;

use crate::common::asks::D1;
use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;
use crate::common::wait::{PATIENCE, wait_until};

/// Where in the transaction that credits the fault strikes: before or after which statement.
const PLACES: [&str; 6] = [
    // The event is the last of all: credit and journal entry are written by then.
    "BEFORE INSERT ON events WHEN NEW.type = 'credit.created'",
    "AFTER INSERT ON events WHEN NEW.type = 'credit.created'",
    "AFTER INSERT ON credits WHEN 1",
    "AFTER INSERT ON journal WHEN 1",
    "AFTER UPDATE ON deposits WHEN NEW.state = 'credited'",
    "BEFORE INSERT ON audit WHEN NEW.to_state = 'credited'",
];

/// Puts a fault where the last one was, with no moment in between without one.
fn inject(daemon: &Daemon, place: Option<&str>, act: &str) {
    let mut database = Connection::open(daemon.database()).unwrap();
    database.busy_timeout(PATIENCE).unwrap();
    let change = database
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    change.execute_batch("DROP TRIGGER IF EXISTS planted").unwrap();
    change
        .execute_batch(
            "CREATE VIEW IF NOT EXISTS endless AS \
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        )
        .unwrap();
    if let Some(place) = place {
        change
            .execute_batch(&format!("CREATE TRIGGER planted {place} BEGIN {act}; END"))
            .unwrap();
    }
    change.commit().unwrap();
}

/// Waits until somebody has held the write lock for many tries in a row: the daemon, inside the fault.
fn wait_inside_the_fault(daemon: &Daemon) {
    let database = Connection::open(daemon.database()).unwrap();
    database.busy_timeout(Duration::ZERO).unwrap();
    let mut locked = 0;
    wait_until("the daemon is inside its transaction", PATIENCE, || {
        match database.execute_batch("BEGIN IMMEDIATE; ROLLBACK") {
            Ok(()) => locked = 0,
            Err(_) => locked += 1,
        }
        (locked > 15).then_some(())
    });
}

/// Twenty readers at once; each sees the deposit as it was before the fault.
fn read_in_parallel(daemon: &Daemon, txid: &str) {
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let deposit = daemon.deposit(txid, 0).unwrap();
                assert_eq!(deposit["state"], "confirming", "{deposit}");
                assert_eq!(deposit["credit"], Value::Null, "{deposit}");
            });
        }
    });
}

#[track_caller]
fn assert_nothing_happened(daemon: &Daemon, txid: &str, height: i64, place: &str) {
    read_in_parallel(daemon, txid);
    for table in ["credits", "journal"] {
        let sql = format!("SELECT count(*) FROM {table}");
        assert_eq!(daemon.count(&sql), 0, "{table}, fault {place}");
    }
    assert_eq!(daemon.events_of("credit.created").len(), 0, "{place}");
    assert_eq!(
        daemon.count("SELECT cursor_height FROM chains"),
        height,
        "{place}"
    );
    assert_eq!(daemon.count("SELECT max(height) FROM headers"), height, "{place}");
}

#[test]
fn c01_fault_after_the_credit_row_leaves_nothing_and_the_retry_credits_once() {
    let node = RegtestNode::start();
    node.fund();
    let mut daemon = Daemon::watching(&Setup::for_node(&node), D1, 110);
    let paid = node.payment(D1, 10_000_000);
    node.broadcast(&paid);
    node.mine(2);
    daemon.wait_height(112);
    daemon.wait_deposit(&paid.txid, 0, "confirming");

    for (round, place) in PLACES.into_iter().enumerate() {
        inject(
            &daemon,
            Some(place),
            &format!("SELECT RAISE(ABORT, 'injected {round}')"),
        );
        if round == 0 {
            node.mine(1);
        } else {
            daemon.start_again();
        }
        daemon.wait_state("bad_block", &format!("injected {round}"));
        assert_nothing_happened(&daemon, &paid.txid, 112, place);
        // The same place again, and the process dies in it. A read never waits for that write.
        inject(&daemon, Some(place), "SELECT * FROM endless");
        wait_inside_the_fault(&daemon);
        read_in_parallel(&daemon, &paid.txid);
        daemon.kill9();
        assert_nothing_happened(&daemon, &paid.txid, 112, place);
    }

    inject(&daemon, None, "");
    daemon.start_again();
    daemon.wait_deposit(&paid.txid, 0, "credited");
    daemon.wait_height(113);
    let credits = daemon.credits();
    assert_eq!(credits.len(), 1);
    assert_eq!(credits[0]["amount_base"], "10000000");
    assert_eq!(daemon.events_of("credit.created").len(), 1);
    daemon.assert_sound();
    // Reading it, in parallel or not, changes nothing.
    let before = (daemon.events(), daemon.credits());
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| assert_eq!(daemon.deposit(&paid.txid, 0).unwrap()["state"], "credited"));
        }
    });
    assert_eq!((daemon.events(), daemon.credits()), before);
    daemon.stop();
    no_null_and_no_second(&daemon);
}

/// No part of a credit's key can be NULL, and the row cannot be there twice by any way of inserting.
fn no_null_and_no_second(daemon: &Daemon) {
    let database = Connection::open(daemon.database()).unwrap();
    database.pragma_update(None, "recursive_triggers", true).unwrap();
    let columns = [
        "id",
        "chain",
        "txid",
        "vout",
        "output",
        "merchant",
        "asset",
        "amount",
        "created_at",
    ];
    for column in columns.iter().skip(1) {
        let values = columns.map(|name| match name {
            "id" => "'cr_other'".to_owned(),
            name if name == *column => "NULL".to_owned(),
            name => name.to_owned(),
        });
        let sql = format!("INSERT INTO credits SELECT {} FROM credits", values.join(", "));
        // The trigger against a second row must not hide what the columns say.
        let schema: String = database
            .query_row(
                "SELECT sql FROM sqlite_schema WHERE name = 'credits'",
                [],
                |row| row.get(0),
            )
            .unwrap();
        let line = schema
            .lines()
            .map(str::trim_start)
            .find(|line| line.starts_with(&format!("{column} ")));
        // Only a credit on another provider's word has no output, and then it names that word.
        let is_bound = match *column {
            "output" => schema.contains("CHECK ((output IS NULL) = (inbox IS NOT NULL)"),
            _ => line.is_some_and(|line| line.contains("NOT NULL")),
        };
        assert!(is_bound, "{column}: {line:?}");
        assert!(database.execute(&sql, []).is_err(), "{column} is NULL");
    }
    for verb in ["INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE", "REPLACE"] {
        for id in ["id", "'cr_other'"] {
            let values = columns.map(|name| if name == "id" { id } else { name });
            let sql = format!("{verb} INTO credits SELECT {} FROM credits", values.join(", "));
            assert!(database.execute(&sql, []).is_err(), "{sql}");
        }
    }
    for sql in [
        "UPDATE credits SET amount = '99'",
        "DELETE FROM credits",
        "DELETE FROM journal",
    ] {
        assert!(database.execute(sql, []).is_err(), "{sql}");
    }
    let kept: (i64, String) = database
        .query_row("SELECT count(*), max(amount) FROM credits", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!(kept, (1, "10000000".to_owned()));
}
