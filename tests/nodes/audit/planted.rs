//! Faults planted in the files of a stopped daemon, consistently: the tables alone show nothing.

use creditd::rules::ids;
use creditd::rules::{ChainId, Outpoint, Txid};
use creditd::store::{Database, OpenMode};
use rusqlite::Connection;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

use crate::common::daemon::Daemon;
use crate::common::planted::{Figures, past_guards};
use crate::shop::text;

/// Takes the guards of the tables away, for this connection and this file.
pub const UNGUARD: &str = "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON; \
     DROP TRIGGER credits_no_update; DROP TRIGGER credits_no_delete; DROP TRIGGER journal_no_update; \
     DROP TRIGGER journal_no_delete; DROP TRIGGER journal_no_gap; DROP TRIGGER journal_no_second; \
     DROP TRIGGER events_no_update; DROP TRIGGER events_no_delete;";

/// What is planted: its name, the SQL (`OUT`, `TX`, `CR` and `DEP` stand for the payment's rows), the kind
/// that must be found, and whether blocks must be read again to find it.
pub const PLANTED: &[(&str, &str, &str)] = &[
    (
        "one unit more",
        "UPDATE outputs SET amount = '10000001' WHERE id = OUT; \
         UPDATE credits SET amount = '10000001' WHERE output = OUT; \
         UPDATE events SET body = replace(replace(body, '10000000', '10000001'), '\"0.1\"', \
         '\"0.10000001\"') \
           WHERE subject IN (DEP, CR);",
        "other_content",
    ),
    (
        "the address of another order",
        "UPDATE outputs SET address = (SELECT max(id) FROM addresses) WHERE id = OUT;",
        "other_content",
    ),
    (
        "an invented payment",
        "INSERT INTO txs (id, chain, txid, is_coinbase, sender, first_seen_at) \
           SELECT 1000, chain, NEWTX, 0, sender, first_seen_at FROM txs WHERE id = TX; \
         INSERT INTO inclusions SELECT chain, height, 1000 FROM inclusions WHERE tx = TX; \
         INSERT INTO inputs VALUES (1000, zeroblob(32), 7); \
         INSERT INTO outputs (id, tx, vout, address, asset, amount, payer, origin) \
           SELECT 1000, 1000, vout, address, asset, amount, payer, origin FROM outputs WHERE id = OUT; \
         INSERT INTO deposits SELECT 1000, chain, NEWDEP, merchant, asset, state, height, \
           confirmations, tag, due_height, held_reason, held_at, first_seen_at FROM deposits WHERE output = \
           OUT; \
         INSERT INTO credits SELECT NEWCR, chain, NEWTX, vout, 1000, merchant, asset, \
           amount, created_at, inbox, reference FROM credits WHERE output = OUT; \
         INSERT INTO journal SELECT 1000, NEWCR, sequence, kind, at, block_height, block_hash, \
           confirmations, tag, due_height, due_hash, reason FROM journal WHERE credit = CR; \
         INSERT INTO audit SELECT id + 1000, at, chain, 1000, action, from_state, to_state, height, hash, \
         cause, \
           actor FROM audit WHERE output = OUT; \
         INSERT INTO events SELECT seq + 1000, id || 'x', NEWDEP, sequence, type, merchant, at, \
           body FROM events WHERE subject = DEP; \
         INSERT INTO events SELECT seq + 1000, id || 'x', NEWCR, sequence, type, merchant, at, \
           body FROM events WHERE subject = CR;",
        "not_on_chain",
    ),
    (
        "a payment that is gone",
        "DELETE FROM events WHERE subject IN (DEP, CR); DELETE FROM audit WHERE output = OUT; \
         DELETE FROM journal WHERE credit = CR; DELETE FROM credits WHERE output = OUT; \
         DELETE FROM deposits WHERE output = OUT; DELETE FROM inclusions WHERE tx = TX; \
         DELETE FROM inputs WHERE tx = TX; DELETE FROM outputs WHERE tx = TX; DELETE FROM txs WHERE id = TX; \
         UPDATE tallies SET count = count - 1 WHERE (subject = 'deposits' AND kind = 'credited') \
           OR (subject = 'journal' AND kind = 'credit');",
        "unbooked",
    ),
    (
        "a credit that never was",
        "DELETE FROM events WHERE subject = CR; DELETE FROM audit WHERE output = OUT AND to_state = \
         'credited'; \
         DELETE FROM journal WHERE credit = CR; DELETE FROM credits WHERE output = OUT; \
         UPDATE deposits SET state = 'confirming' WHERE output = OUT; \
         UPDATE tallies SET count = count - 1 WHERE subject = 'journal' AND kind = 'credit';",
        "overdue",
    ),
    (
        "said to be own coin",
        "DELETE FROM events WHERE subject IN (DEP, CR); DELETE FROM audit WHERE output = OUT; \
         DELETE FROM journal WHERE credit = CR; DELETE FROM credits WHERE output = OUT; \
         DELETE FROM deposits WHERE output = OUT; UPDATE outputs SET origin = 'internal' WHERE id = OUT; \
         UPDATE tallies SET count = count - 1 WHERE (subject = 'deposits' AND kind = 'credited') \
           OR (subject = 'journal' AND kind = 'credit');",
        "not_internal",
    ),
    (
        "another block at its height",
        "UPDATE headers SET parent = zeroblob(32) WHERE height = 1 + (SELECT height FROM inclusions WHERE \
         tx = TX); \
         UPDATE journal SET block_hash = zeroblob(32) WHERE block_height = (SELECT height FROM inclusions \
         WHERE tx = TX); \
         UPDATE audit SET hash = zeroblob(32) WHERE height = (SELECT height FROM inclusions WHERE tx = TX); \
         UPDATE headers SET hash = zeroblob(32) WHERE height = (SELECT height FROM inclusions WHERE tx = \
         TX);",
        "other_block",
    ),
];

/// The files of a stopped daemon, which can be copied and spoilt.
pub struct Spoilt {
    config: String,
    file: Vec<u8>,
    rows: [(&'static str, String); 7],
}

/// A copy of its own, spoilt.
pub struct Copied(TempDir);

impl Copied {
    pub fn database(&self) -> PathBuf {
        self.0.path().join("creditd.db")
    }

    pub fn audit(&self, more: &[&str]) -> (Value, i32) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_creditd"));
        command.current_dir(self.0.path()).env_remove("CREDITD_CONFIG");
        command.args(["audit", "--json"]).args(more).stdin(Stdio::null());
        answer(&command.output().unwrap())
    }

    /// Past the guards of its tables.
    pub fn change(&self, sql: &str) {
        let file = Connection::open(self.database()).unwrap();
        past_guards(&file, UNGUARD, |file| {
            file.execute_batch(sql)
                .unwrap_or_else(|error| panic!("{error}: {sql}"));
            name_events(file);
        });
    }
}

/// Gives the events that were copied with an `x` behind their ids those of their subjects.
fn name_events(database: &Connection) {
    let mut copied = database
        .prepare("SELECT seq, subject, type, sequence FROM events WHERE id LIKE '%x'")
        .unwrap();
    let rows = copied.query_map([], |row| {
        let (subject, kind): (String, String) = (row.get(1)?, row.get(2)?);
        let id = match kind.as_str() {
            "credit.created" => ids::first_event_id(&subject, &kind),
            _ => ids::event_id(&subject, &kind, row.get(3)?),
        };
        Ok((row.get::<_, i64>(0)?, id))
    });
    let rows: Vec<(i64, String)> = rows.unwrap().collect::<Result<_, _>>().unwrap();
    for (seq, id) in rows {
        let named = database.execute("UPDATE events SET id = ?2 WHERE seq = ?1", (seq, id));
        named.unwrap();
    }
}

impl Spoilt {
    /// Of a payment, with the ids of one that is invented: in this transaction, at the same place.
    pub fn of(daemon: &Daemon, txid: &str, invented: &str) -> Self {
        let database = Connection::open(daemon.database()).unwrap();
        let one = |sql: &str| -> String {
            let sql = format!("SELECT CAST(({sql}) AS TEXT)");
            database.query_row(&sql, [], |row| row.get(0)).unwrap()
        };
        let tx = one(&format!("SELECT id FROM txs WHERE txid = X'{txid}'"));
        let out = one(&format!("SELECT output FROM credits WHERE txid = X'{txid}'"));
        let credit = one(&format!("SELECT id FROM credits WHERE output = {out}"));
        let deposit = one(&format!("SELECT dep_id FROM deposits WHERE output = {out}"));
        let chain = ChainId::from_stored(one("SELECT caip FROM chains"));
        let invented = Outpoint {
            txid: Txid::from_hex(invented).unwrap(),
            vout: one(&format!("SELECT vout FROM outputs WHERE id = {out}"))
                .parse()
                .unwrap(),
        };
        drop(database);
        Self {
            config: std::fs::read_to_string(daemon.config_file()).unwrap(),
            file: std::fs::read(daemon.database()).unwrap(),
            rows: [
                ("OUT", out),
                ("TX", tx),
                ("CR", format!("'{credit}'")),
                ("DEP", format!("'{deposit}'")),
                ("NEWTX", format!("X'{}'", invented.txid)),
                ("NEWCR", format!("'{}'", ids::credit_id(&chain, &invented))),
                ("NEWDEP", format!("'{}'", ids::deposit_id(&chain, &invented))),
            ],
        }
    }

    /// The files as they were, with this change.
    pub fn spoil(&self, sql: &str) -> Copied {
        let copied = Copied(tempfile::tempdir().unwrap());
        std::fs::write(copied.0.path().join("creditd.toml"), &self.config).unwrap();
        std::fs::write(copied.database(), &self.file).unwrap();
        let words = sql.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let filled: String = words
            .map(|word| {
                let bare = word.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
                match self.rows.iter().find(|(name, _)| *name == bare) {
                    Some((name, value)) => word.replacen(name, value, 1),
                    None => word.to_owned(),
                }
            })
            .collect();
        copied.change(&filled);
        copied
    }
}

/// The SQL of one of them.
pub fn sql(name: &str) -> &'static str {
    PLANTED.iter().find(|(known, ..)| *known == name).unwrap().1
}

/// What is wrong with how the audit takes faults, each in a copy of its own.
pub fn all_missed(spoilt: &Spoilt, chain: &str, cases: &[(&str, &str, &str)]) -> Vec<String> {
    let figures = Figures::default();
    let all = std::thread::scope(|scope| {
        let cases = cases.iter().map(|case| {
            let figures = &figures;
            scope.spawn(move || {
                let missed = missed(spoilt, chain, *case);
                figures.count(case.2, missed.is_empty());
                missed
            })
        });
        let cases: Vec<_> = cases.collect();
        cases.into_iter().flat_map(|case| case.join().unwrap()).collect()
    });
    figures.leave();
    all
}

/// What is wrong with how the audit takes a fault; nothing if all is well.
fn missed(spoilt: &Spoilt, chain: &str, (name, sql, kind): (&str, &str, &str)) -> Vec<String> {
    let mut missed = Vec::new();
    let copied = spoilt.spoil(sql);
    // What the tables alone show is no trial of the audit.
    let database = Database::open(&copied.database(), OpenMode::ReadOnly).unwrap();
    let silent = database.read(|tx| tx.violations(144)).unwrap();
    // Nothing is mended, and the next one says the same as long as it is so.
    for more in [&["--again", "--chain", chain][..], &["--chain", chain]] {
        let (answer, code) = copied.audit(more);
        let is_found = kinds(&answer) == BTreeSet::from([kind.to_owned()]) && code == 1;
        if !is_found || !silent.is_empty() || answer["found"][0]["chain"] != chain {
            missed.push(format!(
                "{name} {more:?}: {code} {:#} {silent:?}",
                answer["found"]
            ));
        }
    }
    missed
}

pub fn answer(output: &Output) -> (Value, i32) {
    let answer = serde_json::from_slice(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let answer = answer.unwrap_or_else(|error| panic!("{error}: {stderr}"));
    (answer, output.status.code().unwrap())
}

pub fn kinds(answer: &Value) -> BTreeSet<String> {
    let found = answer["found"].as_array().unwrap().iter();
    found.map(|found| text(&found["kind"])).collect()
}
