//! Every check finds what it is for: a row is spoilt behind the store's back, and the right property is
//! named.

use crate::common::planted::{Figures, past_guards};
use crate::rig::{Rig, folder, in_simulation};
use crate::till::invoice;
use creditd::rules::invariants::Invariant;
use creditd::store::{Database, OpenMode, Violation};
use rusqlite::Connection;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Takes the guards of the tables away.
const UNGUARD: &str = "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON; \
     DROP TRIGGER credits_no_update; DROP TRIGGER credits_no_delete; DROP TRIGGER journal_no_update; \
     DROP TRIGGER journal_no_delete; DROP TRIGGER journal_no_gap; DROP TRIGGER journal_no_second; \
     DROP TRIGGER events_no_update; DROP TRIGGER events_no_delete; DROP TRIGGER invoices_terms_stay;";

/// What is spoilt, and the property that says so.
const PLANTED: &[(&str, Invariant)] = &[
    (
        "UPDATE credits SET amount = '6' WHERE amount = '5'",
        Invariant::I3Justified,
    ),
    (
        "UPDATE credits SET merchant = 2 WHERE amount = '5'",
        Invariant::I3Justified,
    ),
    (
        "UPDATE credits SET vout = 7 WHERE amount = '5'",
        Invariant::I3Justified,
    ),
    (
        "UPDATE journal SET due_height = block_height + 1 WHERE id = 1",
        Invariant::I3Justified,
    ),
    (
        "UPDATE journal SET due_height = 1000 WHERE id = 1",
        Invariant::I3Justified,
    ),
    (
        "UPDATE journal SET at = at + 1 WHERE id = 1",
        Invariant::I3Justified,
    ),
    (
        "UPDATE journal SET block_hash = zeroblob(32) WHERE id = 1",
        Invariant::I3Justified,
    ),
    (
        "UPDATE journal SET due_hash = zeroblob(32) WHERE id = 1",
        Invariant::I3Justified,
    ),
    ("UPDATE txs SET is_coinbase = 1", Invariant::I3Justified),
    (
        "UPDATE journal SET sequence = 3 WHERE id = 1",
        Invariant::I5Alternates,
    ),
    (
        "UPDATE journal SET kind = 'reversal' WHERE id = 1",
        Invariant::I5Alternates,
    ),
    (
        "INSERT INTO journal (credit, sequence, kind, at, block_height, block_hash, confirmations, \
         due_height, \
         reason) SELECT credit, 2, 'reversal', at, block_height, block_hash, confirmations, due_height, \
         'orphaned' \
         FROM journal WHERE id = 1",
        Invariant::I5Alternates,
    ),
    ("DELETE FROM journal WHERE id = 1", Invariant::I5Alternates),
    (
        "UPDATE deposits SET held_reason = 'x', held_at = 0 WHERE state = 'credited'",
        Invariant::I5Alternates,
    ),
    (
        "INSERT INTO inputs SELECT (SELECT max(tx) FROM inclusions), prev_txid, prev_vout FROM inputs \
         WHERE tx = (SELECT min(tx) FROM inclusions)",
        Invariant::I6NoDoubleSpend,
    ),
    (
        "DELETE FROM deposits WHERE state = 'seen'",
        Invariant::I7RescanEqual,
    ),
    (
        "UPDATE addresses SET kind = 'own' WHERE id = 1",
        Invariant::I7RescanEqual,
    ),
    (
        "DELETE FROM inclusions WHERE tx = (SELECT min(tx) FROM inclusions)",
        Invariant::I8AllowedEdges,
    ),
    (
        "UPDATE deposits SET state = 'evicted' WHERE state = 'seen'",
        Invariant::I8AllowedEdges,
    ),
    ("UPDATE txs SET is_listed = 0", Invariant::I8AllowedEdges),
    (
        "UPDATE deposits SET state = 'replaced' WHERE state = 'seen'",
        Invariant::I8AllowedEdges,
    ),
    (
        "UPDATE txs SET is_listed = 1 WHERE id = (SELECT min(tx) FROM inclusions)",
        Invariant::I8AllowedEdges,
    ),
    (
        "DELETE FROM audit WHERE to_state = 'confirming'",
        Invariant::I8AllowedEdges,
    ),
    (
        "UPDATE audit SET to_state = 'orphaned' WHERE to_state = 'seen'",
        Invariant::I8AllowedEdges,
    ),
    (
        "UPDATE audit SET from_state = 'unreachable' WHERE action = 'state'",
        Invariant::I8AllowedEdges,
    ),
    (
        "INSERT INTO audit (at, chain, output, action, cause) VALUES (0, 1, 999, 'move', '')",
        Invariant::I8AllowedEdges,
    ),
    ("DELETE FROM headers WHERE height = 3", Invariant::I9CursorHonest),
    (
        "UPDATE headers SET parent = zeroblob(32) WHERE height = 4",
        Invariant::I9CursorHonest,
    ),
    (
        "UPDATE headers SET chainwork = zeroblob(32) WHERE height = 4",
        Invariant::I9CursorHonest,
    ),
    (
        "UPDATE chains SET cursor_height = cursor_height - 1",
        Invariant::I9CursorHonest,
    ),
    (
        "DELETE FROM headers WHERE height = (SELECT min(height) FROM inclusions)",
        Invariant::I9CursorHonest,
    ),
    (
        "UPDATE outputs SET spent_height = 1000, spent_by = zeroblob(32) WHERE id = 1",
        Invariant::I9CursorHonest,
    ),
    (
        "DELETE FROM events WHERE type = 'credit.created'",
        Invariant::I10OneEvent,
    ),
    (
        "DELETE FROM events WHERE type = 'deposit.seen'",
        Invariant::I10OneEvent,
    ),
    (
        "INSERT INTO events (id, subject, sequence, type, at, body) VALUES ('evt_1', 'dep_1', 1, 'x', 0, \
         '{}')",
        Invariant::I10OneEvent,
    ),
    (
        "UPDATE events SET sequence = sequence + 1 WHERE type = 'credit.created'",
        Invariant::I10OneEvent,
    ),
    (
        "UPDATE events SET id = 'evt_1' WHERE seq = 1",
        Invariant::I10OneEvent,
    ),
    (
        "UPDATE events SET merchant = 2 WHERE type = 'credit.created'",
        Invariant::I10OneEvent,
    ),
    (
        "UPDATE events SET body = replace(body, '\"net_base\":\"5\"', '\"net_base\":\"50\"')",
        Invariant::I10OneEvent,
    ),
    (
        "UPDATE events SET type = 'deposit.held' WHERE type = 'deposit.seen'",
        Invariant::I10OneEvent,
    ),
    (
        "UPDATE credits SET id = 'cr_1' WHERE amount = '5'",
        Invariant::I10OneEvent,
    ),
    (
        "UPDATE deposits SET dep_id = 'dep_1' WHERE state = 'seen'",
        Invariant::I10OneEvent,
    ),
    (
        "UPDATE tallies SET count = count + 1 WHERE subject = 'deposits' AND kind = 'seen'",
        Invariant::I20Recomputed,
    ),
    (
        "DELETE FROM tallies WHERE subject = 'journal'",
        Invariant::I20Recomputed,
    ),
    ("DELETE FROM deliveries WHERE id = 1", Invariant::I20Recomputed),
    ("UPDATE invoices SET paid = '12'", Invariant::I4InvoiceBooks),
    ("UPDATE invoices SET life = 'expired'", Invariant::I20Recomputed),
    (
        "UPDATE invoices SET amount_state = 'partial'",
        Invariant::I20Recomputed,
    ),
    ("UPDATE invoices SET strays = 1", Invariant::I20Recomputed),
    ("UPDATE invoices SET is_short = 1", Invariant::I20Recomputed),
    ("UPDATE invoices SET amount = '9'", Invariant::I20Recomputed),
    ("UPDATE invoices SET expired_at = 1", Invariant::I20Recomputed),
    ("UPDATE invoices SET inv_id = 'inv_1'", Invariant::I10OneEvent),
    (
        "UPDATE tallies SET count = count + 1 WHERE subject = 'invoices'",
        Invariant::I20Recomputed,
    ),
    (
        "DELETE FROM events WHERE type = 'invoice.paid'",
        Invariant::I10OneEvent,
    ),
    (
        "DELETE FROM events WHERE type = 'invoice.created'",
        Invariant::I10OneEvent,
    ),
    (
        "UPDATE events SET id = 'evt_1' WHERE type = 'invoice.paid'",
        Invariant::I10OneEvent,
    ),
    (
        "UPDATE events SET type = 'invoice.state' WHERE type = 'invoice.settled'",
        Invariant::I10OneEvent,
    ),
    (
        "UPDATE events SET body = replace(body, '\"paid_base\":\"11\"', '\"paid_base\":\"12\"')",
        Invariant::I10OneEvent,
    ),
];

/// Rows that point at nothing, which a join passes over, and what a merchant was told that is not so.
const DANGLING: &[(&str, Invariant)] = &[
    (
        "UPDATE outputs SET address = 9999 WHERE id = (SELECT output FROM credits WHERE amount = '5')",
        Invariant::I3Justified,
    ),
    (
        "UPDATE outputs SET asset = 9999 WHERE id = (SELECT output FROM credits WHERE amount = '5')",
        Invariant::I3Justified,
    ),
    (
        "UPDATE outputs SET tx = 9999 WHERE id = (SELECT output FROM credits WHERE amount = '5')",
        Invariant::I3Justified,
    ),
    (
        "UPDATE credits SET output = 9999 WHERE amount = '5'",
        Invariant::I3Justified,
    ),
    (
        "UPDATE credits SET asset = 9999 WHERE amount = '5'",
        Invariant::I3Justified,
    ),
    (
        "UPDATE journal SET credit = 'cr_9' WHERE id = 1",
        Invariant::I3Justified,
    ),
    (
        "DELETE FROM addresses WHERE id = (SELECT address FROM invoices)",
        Invariant::I3Justified,
    ),
    (
        "UPDATE deposits SET output = 9999 WHERE state = 'seen'",
        Invariant::I3Justified,
    ),
    ("UPDATE invoices SET address = 9999", Invariant::I3Justified),
    (
        "UPDATE invoices SET merchant = (SELECT id FROM merchants WHERE id <> invoices.merchant)",
        Invariant::I4InvoiceBooks,
    ),
    (
        "UPDATE events SET body = replace(body, '\"amount_base\":\"5\"', '\"amount_base\":\"50\"') \
         WHERE type = 'credit.created'",
        Invariant::I10OneEvent,
    ),
    (
        "UPDATE events SET body = replace(body, '\"amount_base\":\"7\"', '\"amount_base\":\"70\"') \
         WHERE type = 'deposit.seen'",
        Invariant::I10OneEvent,
    ),
];

async fn filled() -> Rig {
    let mut rig = Rig::new().await;
    let to = rig.watch(1).await;
    rig.listen(Some("shop"), "deposit.* credit.created").await;
    rig.listen(Some("other"), "*").await;
    rig.add(creditd::store::AddressKind::Watch, 2, "other", "ignore")
        .await;
    rig.settle().await;
    invoice(&rig, 3, 11).await;
    rig.mine(&[&rig.pay(&rig.script(3), 11)]);
    let (one, two) = (rig.pay(&to, 5), rig.pay(&to, 8));
    rig.mine(&[&one]);
    rig.mine(&[&two]);
    rig.extend(4);
    rig.send(&rig.pay(&to, 7));
    rig.settle().await;
    rig.compare();
    rig
}

/// A copy of a rig's database with something spoilt.
fn spoilt(rig: &Rig, folder: &Path, sql: &str) -> PathBuf {
    let path = folder.join("creditd.db");
    let from = Connection::open(rig.path()).unwrap();
    from.execute("VACUUM INTO ?1", [path.to_str().unwrap()]).unwrap();
    let spoil = Connection::open(&path).unwrap();
    past_guards(&spoil, UNGUARD, |spoil| {
        assert!(spoil.execute(sql, []).unwrap() > 0, "nothing spoilt: {sql}");
    });
    path
}

/// What the checks find in it.
pub fn spoil(rig: &Rig, sql: &str) -> Vec<Violation> {
    let folder = folder();
    let path = spoilt(rig, folder.path(), sql);
    let spoilt = Database::open(&path, OpenMode::ReadOnly).unwrap();
    spoilt.read(|tx| tx.violations(20)).unwrap()
}

/// What the command finds in it, by the names of properties, and how it ends.
fn audited(rig: &Rig, sql: &str) -> (BTreeSet<String>, Option<i32>) {
    let folder = folder();
    spoilt(rig, folder.path(), sql);
    let config = "database = \"creditd.db\"\n[ops]\nlisten = \"off\"\n[api]\nlisten = \"off\"\n\
         [[bitcoin]]\nalias = \"btc\"\nnetwork = \"regtest\"\ninstance = \"test\"\nreorg_window = 20\n\
         rpc_url = \"http://127.0.0.1:1\"\ncookie_file = \"cookie\"\n\
         [[bitcoin.policy]]\nconfirmations = 3\n";
    std::fs::write(folder.path().join("creditd.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_creditd"));
    command.current_dir(folder.path()).env_remove("CREDITD_CONFIG");
    let output = command.args(["audit", "--books", "--json"]).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let found = answer["found"].as_array().unwrap().iter();
    let names = found.map(|found| {
        let subject = found["subject"].as_str().unwrap();
        assert_eq!(found["kind"], "invariant", "{found}");
        subject.split(' ').next().unwrap().to_owned()
    });
    (names.collect(), output.status.code())
}

#[test]
fn every_planted_row_is_found_by_the_command() {
    let rig = in_simulation(filled());
    let (sound, code) = audited(&rig, "UPDATE meta SET epoch = epoch");
    assert_eq!((sound, code), (BTreeSet::new(), Some(0)));
    let figures = Figures::default();
    let mut missed = Vec::new();
    for (sql, invariant) in PLANTED.iter().chain(DANGLING) {
        let (found, code) = audited(&rig, sql);
        let is_found = found.contains(invariant.name()) && code == Some(1);
        figures.count(&format!("invariant {}", invariant.name()), is_found);
        if !is_found {
            missed.push(format!("{sql}: {found:?}, {code:?}"));
        }
    }
    figures.leave();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn every_check_finds_what_it_is_for() {
    let rig = in_simulation(filled());
    let whole = rig.read(|tx| tx.ledger_snapshot());
    for (sql, invariant) in PLANTED {
        let folder = folder();
        let path = spoilt(&rig, folder.path(), sql);
        let spoilt = Database::open(&path, OpenMode::ReadOnly).unwrap();
        let found = spoilt.read(|tx| tx.violations(20)).unwrap();
        let names: Vec<&str> = found.iter().map(|v| v.invariant.name()).collect();
        assert!(names.contains(&invariant.name()), "{sql}: {found:#?}");
        let later = spoilt.read(|tx| tx.ledger_snapshot()).unwrap();
        let is_ledger = ["UPDATE credits", "UPDATE journal", "DELETE FROM journal"];
        let is_lost = !whole.lost_in(&later).is_empty();
        assert_eq!(
            is_lost,
            is_ledger.iter().any(|start| sql.starts_with(start)),
            "{sql}"
        );
    }
}

/// The one that no query of a whole ledger can miss, asked of a table without its UNIQUE.
#[test]
fn a_second_credit_of_an_outpoint_is_found() {
    let rig = in_simulation(filled());
    let folder = folder();
    let path = spoilt(&rig, folder.path(), "UPDATE meta SET epoch = epoch");
    let spoil = Connection::open(&path).unwrap();
    spoil
        .execute_batch(
            "PRAGMA foreign_keys = OFF; DROP TRIGGER IF EXISTS credits_no_second; \
             DROP TRIGGER IF EXISTS journal_tally; DROP TRIGGER IF EXISTS journal_by_its_credit; \
             CREATE TABLE other AS SELECT * FROM credits; INSERT INTO other SELECT * FROM credits; \
             DROP TABLE credits; ALTER TABLE other RENAME TO credits;",
        )
        .unwrap();
    drop(spoil);
    let spoilt = Database::open(&path, OpenMode::ReadOnly).unwrap();
    let found = spoilt.read(|tx| tx.violations(20)).unwrap();
    assert!(
        found.iter().any(|v| v.invariant == Invariant::I1OneCredit),
        "{found:#?}"
    );
}

/// Below the window headers are forgotten; a gap there that reaches into it is none of those.
#[test]
fn a_gap_over_the_edge_of_the_window_is_found() {
    let rig = in_simulation(async {
        let mut rig = Rig::with(|settings| settings.terms.reorg_window = 5).await;
        rig.extend(12);
        rig.settle().await;
        rig
    });
    let lowest = "DELETE FROM headers WHERE height = (SELECT cursor_height - 5 FROM chains)";
    let found = spoil(&rig, lowest);
    assert!(
        found
            .iter()
            .any(|found| found.invariant == Invariant::I9CursorHonest),
        "{found:#?}"
    );
}
