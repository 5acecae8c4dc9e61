//! The guarantees that the schema itself gives, whatever the code above it does: credits, journal and events
//! are only ever added to, and a second credit of an outpoint cannot be.

use rusqlite::Connection;

use super::Scratch;
use crate::store::Database;

const FIXTURE: &str = "
    INSERT INTO chains (id, caip, genesis, alias) VALUES (1, 'bip122:a', zeroblob(32), 'btc');
    INSERT INTO assets (id, chain, caip, symbol, decimals, is_listed)
        VALUES (1, 1, 'bip122:a/slip44:0', 'BTC', 8, 1);
    INSERT INTO merchants (id, slug, created_at) VALUES (1, 'shop', 0);
    INSERT INTO addresses (id, chain, script, kind, merchant, version, added_at)
        VALUES (1, 1, x'0014', 'watch', 1, 1, 0);
    INSERT INTO txs (id, chain, txid, is_coinbase, first_seen_at) VALUES (1, 1, zeroblob(32), 0, 0);
    INSERT INTO outputs (id, tx, vout, address, asset, amount, origin)
        VALUES (1, 1, 0, 1, 1, '5000', 'external'), (2, 1, 1, 1, 1, '5000', 'external');
    INSERT INTO credits (id, chain, txid, vout, output, merchant, asset, amount, created_at)
        VALUES ('cr_1', 1, zeroblob(32), 0, 1, 1, 1, '5000', 0);
    INSERT INTO journal
        (id, credit, sequence, kind, at, block_height, block_hash, confirmations, due_height, due_hash)
        VALUES (1, 'cr_1', 1, 'credit', 0, 5, zeroblob(32), 2, 6, zeroblob(32));
    INSERT INTO events (seq, id, subject, sequence, type, merchant, at, body)
        VALUES (1, 'evt_1', 'cr_1', 1, 'credit.created', 1, 0, '{}');";

pub(super) fn fixture() -> (Scratch, Database) {
    let (scratch, database) = Scratch::new();
    database.conn.execute_batch(FIXTURE).unwrap();
    (scratch, database)
}

/// All rows of the three tables, as text.
fn books(conn: &Connection) -> Vec<String> {
    let rows = "SELECT 'c', quote(id), quote(txid), quote(vout), quote(amount) FROM credits
                UNION ALL SELECT 'j', quote(credit), quote(sequence), kind, quote(at) FROM journal
                UNION ALL SELECT 'e', quote(id), quote(sequence), type, body FROM events";
    let mut statement = conn.prepare(rows).unwrap();
    let text = |row: &rusqlite::Row<'_>| {
        let columns: Result<Vec<String>, _> = (0..5).map(|column| row.get(column)).collect();
        Ok(columns?.join(" "))
    };
    let all = statement.query_map([], text).unwrap();
    all.collect::<Result<_, _>>().unwrap()
}

#[track_caller]
fn refused(conn: &Connection, sql: &str) {
    let before = books(conn);
    let error = conn.execute_batch(sql).expect_err(sql);
    assert_eq!(
        error.sqlite_error_code(),
        Some(rusqlite::ErrorCode::ConstraintViolation),
        "{sql}: {error}"
    );
    assert_eq!(books(conn), before, "{sql}");
}

#[test]
fn the_books_refuse_every_update_and_delete() {
    let (_scratch, database) = fixture();
    for table in ["credits", "journal", "events"] {
        refused(&database.conn, &format!("UPDATE {table} SET id = id"));
        refused(&database.conn, &format!("UPDATE OR REPLACE {table} SET id = id"));
        refused(&database.conn, &format!("UPDATE OR IGNORE {table} SET id = id"));
    }
    // Nothing refers to the event, so nothing but its own trigger refuses.
    for table in ["credits", "journal", "events"] {
        refused(&database.conn, &format!("DELETE FROM {table}"));
    }
}

#[test]
fn a_second_row_for_the_same_fact_is_loud_under_every_conflict_clause() {
    let (_scratch, database) = fixture();
    let again = [
        // The same outpoint under another id, the same id for another outpoint, the same output.
        "INTO credits (id, chain, txid, vout, output, merchant, asset, amount, created_at)
             VALUES ('cr_2', 1, zeroblob(32), 0, 2, 1, 1, '5000', 0)",
        "INTO credits (id, chain, txid, vout, output, merchant, asset, amount, created_at)
             VALUES ('cr_1', 1, zeroblob(32), 1, 2, 1, 1, '5000', 0)",
        "INTO credits (id, chain, txid, vout, output, merchant, asset, amount, created_at)
             VALUES ('cr_2', 1, zeroblob(32), 1, 1, 1, 1, '5000', 0)",
        "INTO journal (credit, sequence, kind, at, block_height, block_hash, confirmations, due_height, \
         due_hash)
             VALUES ('cr_1', 1, 'credit', 9, 5, zeroblob(32), 2, 6, zeroblob(32))",
        "INTO journal
             (id, credit, sequence, kind, at, block_height, block_hash, confirmations, due_height)
             VALUES (1, 'cr_1', 2, 'reversal', 9, 5, zeroblob(32), 2, 6)",
        "INTO events (id, subject, sequence, type, merchant, at, body)
             VALUES ('evt_1', 'cr_1', 2, 'credit.created', 1, 0, '{\"other\":1}')",
        "INTO events (id, subject, sequence, type, merchant, at, body)
             VALUES ('evt_2', 'cr_1', 1, 'credit.created', 1, 0, '{\"other\":1}')",
        "INTO events (seq, id, subject, sequence, type, merchant, at, body)
             VALUES (1, 'evt_2', 'cr_1', 2, 'credit.created', 1, 0, '{\"other\":1}')",
    ];
    for row in again {
        for verb in [
            "INSERT",
            "INSERT OR REPLACE",
            "INSERT OR IGNORE",
            "INSERT OR FAIL",
            "REPLACE",
        ] {
            refused(&database.conn, &format!("{verb} {row}"));
        }
    }
}

#[test]
fn a_credit_has_an_output_or_a_source_and_its_webhook() {
    let (_scratch, database) = fixture();
    let more = "
        INSERT INTO chains (id, caip, alias) VALUES (2, 'ext:gateway', 'ext:gateway');
        INSERT INTO inbox
            (id, in_id, source, event_id, fingerprint, body, state, next_at, received_at, last_at)
            VALUES (1, 'in_1', 'gateway', 'evt_1', zeroblob(32), x'00', 'waiting', 0, 0, 0);";
    database.conn.execute_batch(more).unwrap();
    let credit = |id: &str, chain: i64, output: &str, inbox: &str, reference: &str| {
        format!(
            "INSERT INTO credits (id, chain, txid, vout, output, merchant, asset, amount, created_at, inbox, \
             reference) \
             VALUES ('{id}', {chain}, zeroblob(32), 7, {output}, 1, 1, '5', 0, {inbox}, {reference})"
        )
    };
    for (chain, output, inbox, reference) in [
        (1, "NULL", "NULL", "NULL"),
        (1, "NULL", "1", "''"),
        (2, "2", "NULL", "NULL"),
        (2, "2", "1", "''"),
        (2, "NULL", "1", "NULL"),
        (1, "2", "NULL", "''"),
    ] {
        refused(&database.conn, &credit("cr_2", chain, output, inbox, reference));
    }
    let told = credit("cr_2", 2, "NULL", "1", "''");
    database.conn.execute_batch(&told).unwrap();
    for verb in ["INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE"] {
        let again = credit("cr_3", 2, "NULL", "1", "''").replacen("INSERT", verb, 1);
        refused(&database.conn, &again);
    }
    let entry = |credit: &str, cause: &str| {
        format!(
            "INSERT INTO journal (credit, sequence, kind, at, block_height, block_hash, confirmations, \
             due_height, due_hash) VALUES ('{credit}', 1, 'credit', 0, {cause})"
        )
    };
    let (none, block) = (
        "NULL, NULL, NULL, NULL, NULL",
        "5, zeroblob(32), 2, 6, zeroblob(32)",
    );
    refused(&database.conn, &entry("cr_2", block));
    refused(&database.conn, &entry("cr_2", "NULL, NULL, 2, NULL, NULL"));
    database.conn.execute_batch(&entry("cr_2", none)).unwrap();
    database
        .conn
        .execute_batch(&credit("cr_4", 1, "2", "NULL", "NULL"))
        .unwrap();
    refused(&database.conn, &entry("cr_4", none));
    for change in [
        "DELETE FROM inbox",
        "UPDATE inbox SET event_id = 'evt_2'",
        "UPDATE inbox SET body = x'01'",
        "UPDATE inbox SET body = NULL",
        "UPDATE inbox SET fingerprint = randomblob(32)",
    ] {
        refused(&database.conn, change);
    }
}

#[test]
fn the_journal_alternates_without_gap() {
    let (_scratch, database) = fixture();
    let entry = |sequence: i64, kind: &str, due: &str| {
        format!(
            "INSERT INTO journal
                 (credit, sequence, kind, at, block_height, block_hash, confirmations, due_height, due_hash)
             VALUES ('cr_1', {sequence}, '{kind}', 0, 5, zeroblob(32), 2, 6, {due})"
        )
    };
    let due = "zeroblob(32)";
    for (sequence, kind, due) in [
        (2, "credit", due),
        (2, "reinstatement", due),
        (3, "reinstatement", due),
        (2, "reversal", due),
        (2, "refund", "NULL"),
        (0, "reversal", "NULL"),
    ] {
        refused(&database.conn, &entry(sequence, kind, due));
    }
    database
        .conn
        .execute_batch(&entry(2, "reversal", "NULL"))
        .unwrap();
    refused(&database.conn, &entry(3, "reversal", "NULL"));
    refused(&database.conn, &entry(4, "reversal", "NULL"));
    refused(&database.conn, &entry(3, "reinstatement", "NULL"));
    database
        .conn
        .execute_batch(&entry(3, "reinstatement", due))
        .unwrap();
}

#[test]
fn a_key_of_the_wrong_form_is_refused() {
    let (_scratch, database) = fixture();
    let text = format!("'{}'", "ab".repeat(32));
    for txid in ["x'00'", "zeroblob(33)", "NULL", &text, "7"] {
        refused(
            &database.conn,
            &format!("INSERT INTO txs (chain, txid, is_coinbase, first_seen_at) VALUES (1, {txid}, 0, 0)"),
        );
        refused(
            &database.conn,
            &format!(
                "INSERT INTO credits (id, chain, txid, vout, output, merchant, asset, amount, created_at)
                     VALUES ('cr_2', 1, {txid}, 1, 2, 1, 1, '5000', 0)"
            ),
        );
    }
    let keys = [
        "NULL, 1, zeroblob(32), 1, 2",
        "'cr_2', NULL, zeroblob(32), 1, 2",
        "'cr_2', 1, zeroblob(32), NULL, 2",
    ];
    for key in keys {
        refused(
            &database.conn,
            &format!(
                "INSERT INTO credits (id, chain, txid, vout, output, merchant, asset, amount, created_at)
                     VALUES ({key}, 1, 1, '5000', 0)"
            ),
        );
    }
    for amount in ["'0'", "'05'", "'-5'", "'5.0'", "''", "'1e3'", "NULL", "' 5'"] {
        refused(
            &database.conn,
            &format!(
                "INSERT INTO credits (id, chain, txid, vout, output, merchant, asset, amount, created_at)
                     VALUES ('cr_2', 1, zeroblob(32), 1, 2, 1, 1, {amount}, 0)"
            ),
        );
    }
}
