//! The heaviest single transaction: a block that makes thousands of deposits due, against the least that
//! could put the same rows into SQLite. `cargo bench --bench due`; see docs/speed.md.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench stops at the first surprise"
)]
#![allow(clippy::float_arithmetic, reason = "a ratio is not money")]

#[path = "../tests/common/mod.rs"]
mod common;
mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use creditd::clock::Clock;
use creditd::rules::policy::{Policy, Requirement, Tier};
use creditd::rules::{
    Amount, Asset, BlockHash, CandidateOutput, CandidateTx, Header, HeldHeader, ListVersion, Outpoint,
    ScannedBlock, Tags, Txid, Work,
};
use creditd::store::{Advance, Advanced, Database, OpenMode, Terms};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params_from_iter};
use support::addresses;
use support::table::{Table, Target, best, quotient};
use support::timed;

const DEPOSITS: u32 = 5_000;

/// Each way is run so often, in turns, each time on a fresh copy of the database.
const ROUNDS: usize = 5;

/// The tables that a block writes, in the order in which rows may refer to each other.
const TABLES: [&str; 10] = [
    "headers",
    "txs",
    "inclusions",
    "inputs",
    "outputs",
    "deposits",
    "credits",
    "journal",
    "events",
    "audit",
];

fn main() {
    let mut table = Table::new("ms");
    // Deposits of an earlier block become due.
    measure(&mut table, "due at an empty block", 6);
    // The block itself holds them, and one confirmation is enough.
    measure(&mut table, "paid and due in one block", 1);
    table.print(&format!(
        "one block with {DEPOSITS} due deposits, best of {ROUNDS}"
    ));
}

fn measure(table: &mut Table, what: &str, confirmations: u32) {
    let folder = tempfile::tempdir().unwrap();
    let before = folder.path().join("before.db");
    let (step, terms) = prepare(&before, confirmations);
    let mut ours = Vec::new();
    let mut others = [Kept::Keys, Kept::Indexes, Kept::Rules].map(|kept| (kept, Vec::new()));
    let mut plain = Vec::new();
    let mut rows = 0;
    for round in 0..ROUNDS {
        let after = addresses::copy(&before, folder.path(), &format!("after-{round}.db"));
        ours.push(advance(&after, &step, &terms));
        let changes = changes(&before, &after);
        rows = changes
            .iter()
            .map(|change| change.inserts.len() + change.updates.len())
            .sum();
        for (kept, spans) in &mut others {
            let copy = addresses::copy(&before, folder.path(), &format!("{kept:?}-{round}.db"));
            kept.strip(&copy);
            spans.push(write(&copy, &changes, *kept == Kept::Rules));
        }
        let copy = without_keys(&before, &folder.path().join(format!("plain-{round}.db")));
        plain.push(write(&copy, &changes, false));
    }
    let [keys, indexes, rules] = others.map(|(_, spans)| best(&spans));
    let (ours, plain) = (best(&ours), best(&plain));
    let figure = |span: Duration| format!("{:.1}", span.as_secs_f64() * 1_000.0);
    table.figure(
        &format!("{what}: {rows} rows, bare SQLite with keys and unique indexes"),
        figure(keys),
    );
    table.ratio(
        &format!("{what}: creditd, by that"),
        figure(ours),
        quotient(ours, keys),
        Target::AtMost(3.0),
    );
    for (with, span) in [
        ("our other indexes too", indexes),
        ("our triggers, CHECKs and foreign keys too", rules),
        ("no keys at all", plain),
    ] {
        table.figure(&format!("{what}: the same rows with {with}"), figure(span));
        let by_that = format!("{what}: creditd, by that");
        table.ratio(&by_that, figure(ours), quotient(ours, span), Target::None);
    }
}

/// What a database keeps of ours when it stands for bare SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// Primary keys and unique indexes, without which a row could come twice: the one that counts.
    Keys,
    /// Every index.
    Indexes,
    /// Every index, trigger, CHECK and foreign key.
    Rules,
}

impl Kept {
    /// Takes the rest away. CHECKs and foreign keys stay in the file and are not looked at (see [`write`]).
    fn strip(self, path: &Path) {
        let gone = match self {
            Kept::Keys => "type = 'trigger' OR (type = 'index' AND sql LIKE 'CREATE INDEX %')",
            Kept::Indexes => "type = 'trigger'",
            Kept::Rules => return,
        };
        let conn = Connection::open(path).unwrap();
        let list = format!("SELECT 'DROP ' || type || ' ' || name FROM sqlite_schema WHERE {gone}");
        let drops: Vec<String> = {
            let mut statement = conn.prepare(&list).unwrap();
            let rows = statement.query_map([], |row| row.get(0)).unwrap();
            rows.map(Result::unwrap).collect()
        };
        assert!(!drops.is_empty(), "nothing is taken away for {self:?}");
        conn.execute_batch(&drops.join(";")).unwrap();
    }
}

/// A database at `path`, closed, that the returned step makes `DEPOSITS` credits in.
fn prepare(path: &Path, confirmations: u32) -> (Advance, Terms) {
    addresses::seed(path, 0..DEPOSITS);
    let tier = Tier {
        below: None,
        needs: Requirement::Confirmations(confirmations),
    };
    let terms = Terms {
        policies: Terms::native(Policy::new(&[tier]).unwrap()),
        reorg_window: 144,
        evict_after_ms: 600_000,
    };
    let mut database = Database::open(path, OpenMode::Daemon).unwrap();
    let now = Clock::real().now_ms();
    let mut tip = held(100);
    let key = database
        .write(now, |tx| {
            let chain = tx.ensure_chain(&addresses::new_chain())?;
            tx.anchor(chain.key, &tip)?;
            Ok(chain.key)
        })
        .unwrap();
    let mut step = None;
    for number in 0..confirmations {
        if let Some(step) = step.take() {
            let done = database.write(now, |tx| tx.advance(&step, &terms)).unwrap();
            assert!(matches!(done, Advanced::Done { credited: 0, .. }));
        }
        let (from, next) = (tip, held(tip.height + 1));
        tip = next;
        step = Some(Advance {
            chain: key,
            from,
            fork_height: None,
            blocks: vec![ScannedBlock {
                header: next.header,
                version: ListVersion(1),
                txs: if number == 0 { payments() } else { Vec::new() },
                output_shorts: Vec::new(),
            }],
            credit_ceiling: None,
            tags: Tags::default(),
        });
    }
    database.close().unwrap();
    (step.unwrap(), terms)
}

fn numbered(family: u8, number: u64) -> [u8; 32] {
    let mut bytes = [family; 32];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bytes[24..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn held(height: u64) -> HeldHeader {
    let work = |sum: u64| {
        let mut bytes = [0; 32];
        bytes[24..].copy_from_slice(&sum.to_be_bytes());
        Work::from_be_bytes(bytes)
    };
    HeldHeader {
        height,
        header: Header {
            hash: BlockHash(numbered(1, height)),
            parent: BlockHash(numbered(1, height - 1)),
            time_secs: 1_700_000_000 + height * 600,
            work: work(2),
            bits: 0x207f_ffff,
        },
        chainwork: work(2 * (height + 1)),
    }
}

/// One payment for each watched address, each in a transaction of its own with one input.
fn payments() -> Vec<CandidateTx> {
    let payment = |n: u32| CandidateTx {
        sender: None,
        is_failed: false,
        txid: Txid(numbered(2, n.into())),
        is_coinbase: false,
        inputs: vec![Outpoint {
            txid: Txid(numbered(3, n.into())),
            vout: 1,
        }],
        outputs: vec![CandidateOutput {
            asset: Asset::Native,
            from: None,
            doubt: None,
            vout: 0,
            script: addresses::watched(n),
            amount: Amount::from_u64(150_000 + u64::from(n)),
        }],
        ancestors: Vec::new(),
    };
    (0..DEPOSITS).map(payment).collect()
}

fn advance(path: &Path, step: &Advance, terms: &Terms) -> Duration {
    let mut database = Database::open(path, OpenMode::Daemon).unwrap();
    let now = Clock::real().now_ms();
    let (took, done) = timed(|| database.write(now, |tx| tx.advance(step, terms)));
    let Advanced::Done { credited, .. } = done.unwrap() else {
        panic!("no rule was added");
    };
    assert_eq!(credited, u64::from(DEPOSITS));
    database.close().unwrap();
    took
}

/// What the step did to one table.
struct Change {
    table: &'static str,
    columns: Vec<String>,
    inserts: Vec<Vec<Value>>,
    /// Whole rows, the key first.
    updates: Vec<Vec<Value>>,
}

fn changes(before: &Path, after: &Path) -> Vec<Change> {
    let conn = Connection::open(after).unwrap();
    let attach = format!("ATTACH '{}' AS before", before.display());
    conn.execute_batch(&attach).unwrap();
    TABLES.iter().map(|table| change(&conn, table)).collect()
}

fn change(conn: &Connection, table: &'static str) -> Change {
    let rows = |sql: &str| {
        let mut statement = conn.prepare(sql).unwrap();
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let read = |row: &rusqlite::Row<'_>| (0..columns.len()).map(|column| row.get(column)).collect();
        let rows: Vec<Vec<Value>> = statement
            .query_map([], read)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        (columns, rows)
    };
    let new = format!("SELECT * FROM main.{table} EXCEPT SELECT * FROM before.{table}");
    let (columns, all) = rows(&new);
    // In every one of these tables that is ever updated the first column is the key.
    let (updates, inserts) = all.into_iter().partition(|row| {
        let held = format!("SELECT count(*) FROM before.{table} WHERE {} = ?1", columns[0]);
        let is_updated = matches!(table, "deposits" | "txs" | "outputs");
        is_updated
            && conn
                .query_row(&held, [&row[0]], |row| row.get::<_, bool>(0))
                .unwrap()
    });
    Change {
        table,
        columns,
        inserts,
        updates,
    }
}

/// Puts the changes into the database at `path` with nothing but prepared statements, in one transaction,
/// under the pragmas of the daemon; CHECKs and foreign keys are looked at only with `has_rules`.
fn write(path: &Path, changes: &[Change], has_rules: bool) -> Duration {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
         PRAGMA recursive_triggers = ON; PRAGMA cell_size_check = ON; PRAGMA cache_size = -12000; \
         PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY",
    )
    .unwrap();
    conn.pragma_update(None, "foreign_keys", has_rules).unwrap();
    conn.pragma_update(None, "ignore_check_constraints", !has_rules)
        .unwrap();
    timed(|| {
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        for change in changes {
            let (table, columns) = (change.table, &change.columns);
            let marks = vec!["?"; columns.len()].join(", ");
            let mut insert = conn
                .prepare(&format!("INSERT INTO {table} VALUES ({marks})"))
                .unwrap();
            for row in &change.inserts {
                insert.execute(params_from_iter(row)).unwrap();
            }
            if change.updates.is_empty() {
                continue;
            }
            let sets: Vec<String> = (1..)
                .zip(columns)
                .skip(1)
                .map(|(n, name)| format!("{name} = ?{n}"))
                .collect();
            let sql = format!("UPDATE {table} SET {} WHERE {} = ?1", sets.join(", "), columns[0]);
            let mut update = conn.prepare(&sql).unwrap();
            for row in &change.updates {
                assert_eq!(update.execute(params_from_iter(row)).unwrap(), 1);
            }
        }
        conn.execute_batch("COMMIT").unwrap();
    })
    .0
}

/// The same content as `before` in tables that have no more than a row number and, where rows are updated,
/// their key.
fn without_keys(before: &Path, path: &Path) -> PathBuf {
    let conn = Connection::open(path).unwrap();
    let attach = format!("ATTACH '{}' AS before", before.display());
    conn.execute_batch(&attach).unwrap();
    for table in TABLES {
        let copy = format!("CREATE TABLE {table} AS SELECT * FROM before.{table}");
        conn.execute_batch(&copy).unwrap();
    }
    conn.execute_batch("CREATE UNIQUE INDEX deposits_key ON deposits (output)")
        .unwrap();
    path.to_owned()
}
