//! Comparing two files of one database: of every table and every column it is known whether it counts.

use super::Scratch;
use crate::store::compare::names;
use crate::store::{Compared, Database, FED_AGAIN, OpenMode, RowDiff, stand_in, stood_for};
use crate::webhook::{Key, Scheme};
use rusqlite::Connection;
use std::collections::BTreeSet;

/// Tables whose rows count, and the columns of them that do not.
const COUNTED: &[(&str, &[&str])] = &[
    ("address_source_chains", &[]),
    ("address_sources", &[]),
    ("addresses", &[]),
    ("api_keys", &[]),
    ("assets", &[]),
    ("audit", &[]),
    ("balance_marks", &[]),
    (
        "chains",
        &[
            "mempool_poll",
            "list_clock_ms",
            "list_applied_at",
            "node_tip_height",
            "node_seen_at",
            "state",
            "state_reason",
            "state_since",
            "reorg_window",
            "headers_from",
        ],
    ),
    ("credits", &[]),
    (
        "deliveries",
        &[
            "attempts",
            "attempts_before",
            "queued_at",
            "next_at",
            "settled_at",
        ],
    ),
    ("deposits", &[]),
    ("endpoint_secrets", &[]),
    ("endpoints", &["failures"]),
    ("events", &[]),
    ("external_outputs", &[]),
    ("headers", &[]),
    ("idempotency", &[]),
    ("inbox", &["duplicates", "last_at"]),
    ("inbox_aside", &[]),
    ("inclusions", &[]),
    ("inner_sources", &[]),
    ("inputs", &[]),
    ("invoices", &[]),
    ("journal", &[]),
    ("merchants", &[]),
    ("meta", &["epoch"]),
    ("node_endpoints", &[]),
    ("outputs", &["duplicates"]),
    ("pool_addresses", &[]),
    ("reanchors", &[]),
    ("restated", &[]),
    ("restored_chains", &[]),
    ("restored_ranges", &[]),
    ("restores", &[]),
    ("txs", &["rival", "rival_lists"]),
    ("unattributed", &[]),
];

/// A file that takes any rows, a copy of it, and a reader's look at what differs.
struct Two {
    scratch: Scratch,
    mine: Connection,
}

impl Two {
    fn new() -> Two {
        let (scratch, database) = Scratch::new();
        drop(database);
        let mine = Connection::open(&scratch.path).unwrap();
        let triggers = column(&mine, "SELECT name FROM sqlite_schema WHERE type = 'trigger'");
        let drops: String = triggers
            .iter()
            .map(|name| format!("DROP TRIGGER {name};"))
            .collect();
        let free = "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON; \
             PRAGMA synchronous = OFF; DROP TABLE notes;";
        mine.execute_batch(&format!("{free}{drops}")).unwrap();
        for table in names(&mine).unwrap() {
            insert(&mine, &table, 1_001);
        }
        Two { scratch, mine }
    }

    fn compared(&self, sql: &str) -> Compared {
        let base = self.scratch.path.with_extension("base");
        let _ = std::fs::remove_file(&base);
        self.mine
            .execute("VACUUM INTO ?1", [base.to_str().unwrap()])
            .unwrap();
        self.mine.execute_batch("SAVEPOINT spoilt").unwrap();
        self.mine.execute_batch(sql).unwrap();
        self.mine.execute_batch("RELEASE spoilt").unwrap();
        let reader = Database::open(&self.scratch.path, OpenMode::ReadOnly).unwrap();
        reader.differs_from(&base, &FED_AGAIN, 100).unwrap()
    }

    fn differs(&self, sql: &str) -> Vec<RowDiff> {
        self.compared(sql).diffs
    }
}

fn column(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

/// Name, value of the `number`-th row, and whether it is of the key.
fn columns(conn: &Connection, table: &str, number: i64) -> Vec<(String, String, bool)> {
    let mut statement = conn
        .prepare("SELECT name, type, pk > 0 FROM pragma_table_info(?1)")
        .unwrap();
    let rows = statement.query_map([table], |row| {
        let (name, kind): (String, String) = (row.get(0)?, row.get(1)?);
        let value = match kind.as_str() {
            "INTEGER" => number.to_string(),
            "TEXT" => format!("'{number}'"),
            "BLOB" => format!("x'{number:064}'"),
            other => panic!("{table}.{name} is {other}"),
        };
        Ok((name, value, row.get(2)?))
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

fn insert(conn: &Connection, table: &str, number: i64) {
    conn.execute_batch(&insertion(conn, table, number)).unwrap();
}

fn insertion(conn: &Connection, table: &str, number: i64) -> String {
    let columns = columns(conn, table, number);
    let names: Vec<&str> = columns.iter().map(|(name, ..)| name.as_str()).collect();
    let values: Vec<&str> = columns.iter().map(|(_, value, _)| value.as_str()).collect();
    format!(
        "INSERT INTO {table} ({}) VALUES ({});",
        names.join(", "),
        values.join(", ")
    )
}

#[test]
fn every_table_is_listed() {
    let two = Two::new();
    let listed: BTreeSet<String> = COUNTED
        .iter()
        .map(|(table, _)| (*table).to_owned())
        .chain(FED_AGAIN.tables.iter().map(|table| (*table).to_owned()))
        .collect();
    let there: BTreeSet<String> = names(&two.mine).unwrap().into_iter().collect();
    assert_eq!(there, listed, "say of each table whether its rows count");
    let compared = two.compared("");
    assert_eq!((compared.count, compared.tables), (0, COUNTED.len() as u64));
    assert!(compared.rows >= compared.tables, "{compared:?}");
}

#[test]
fn differences_of_each_table_are_told() {
    let two = Two::new();
    for (table, free) in COUNTED {
        let added = two.differs(&insertion(&two.mine, table, 2_002));
        assert_eq!(added.len(), 1, "{table}: {added:?}");
        assert!(added[0].table == *table && added[0].was.is_none(), "{added:?}");
        let (keys, others): (Vec<_>, Vec<_>) = columns(&two.mine, table, 2_002)
            .into_iter()
            .partition(|(.., is_key)| *is_key);
        let set: Vec<String> = columns(&two.mine, table, 3_003)
            .into_iter()
            .filter(|(.., is_key)| !is_key)
            .map(|(name, value, _)| format!("{name} = {value}"))
            .collect();
        if !set.is_empty() {
            let is_it: Vec<String> = keys
                .iter()
                .map(|(name, value, _)| format!("{name} = {value}"))
                .collect();
            let (set, is_it) = (set.join(", "), is_it.join(" AND "));
            let changed = two.differs(&format!("UPDATE {table} SET {set} WHERE {is_it}"));
            let told: Vec<&str> = others
                .iter()
                .map(|(name, ..)| name.as_str())
                .filter(|name| !free.contains(name))
                .collect();
            let names = |words: &Option<String>| -> Vec<String> {
                let words = words.clone().unwrap();
                let pairs = words.split(' ').filter_map(|pair| pair.split_once('='));
                pairs.map(|(name, _)| name.to_owned()).collect()
            };
            assert_eq!(changed.len(), 1, "{table}: {changed:?}");
            assert_eq!(names(&changed[0].was), told, "{table}");
            assert_eq!(names(&changed[0].is), told, "{table}");
        }
        let gone = two.differs(&format!("DELETE FROM {table}"));
        assert!(gone.len() >= 2, "{table}: {gone:?}");
        assert!(gone.iter().all(|diff| diff.table == *table && diff.is.is_none()));
    }
    for table in FED_AGAIN.tables {
        let sql = format!(
            "{} DELETE FROM {table} WHERE 1",
            insertion(&two.mine, table, 4_004)
        );
        assert_eq!(two.differs(&sql), [], "{table}");
    }
}

#[test]
fn new_rows_that_asking_again_leaves_are_no_difference() {
    let two = Two::new();
    two.mine
        .execute_batch("UPDATE chains SET cursor_height = 5000 WHERE id = 1001")
        .unwrap();
    let audit = |id: i64, action: &str| {
        format!("INSERT INTO audit (id, at, action, cause) VALUES ({id}, 0, '{action}', '');")
    };
    let asked = format!("{}{}{}", audit(1, "rescan"), audit(2, "retry"), audit(3, "state"));
    assert_eq!(two.differs(&asked), []);
    assert_eq!(two.differs(&audit(4, "move")).len(), 1);
    assert_eq!(
        two.differs("UPDATE audit SET action = 'retry' WHERE id = 3")
            .len(),
        1
    );
    let header =
        |height: i64| insertion(&two.mine, "headers", height).replacen(&height.to_string(), "1001", 1);
    assert_eq!(two.differs(&header(4_000)), []);
    assert_eq!(two.differs(&header(6_000)).len(), 1, "above our tip");
}

#[test]
fn long_contents_are_told_by_their_hash() {
    let two = Two::new();
    let diffs = two.differs("UPDATE events SET body = printf('%.*c', 500, 'x') WHERE seq = 1001");
    let is = diffs[0].is.clone().unwrap();
    assert_eq!(diffs[0].was.as_deref(), Some("body=1001"));
    assert!(
        is.starts_with("body=(500 bytes, sha256 ") && is.len() < 60,
        "{is}"
    );
    let many: String = (0..300)
        .map(|number| insertion(&two.mine, "merchants", number))
        .collect();
    let compared = two.compared(&many);
    assert_eq!((compared.count, compared.diffs.len()), (300, 100));
}

#[test]
fn a_scrubbed_copy_holds_no_secret() {
    let (scratch, database) = Scratch::new();
    drop(database);
    let secrets = [
        "whsec_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "whsk_bbbbbbbbbbbbbbbbbbbbbbbbbbbb",
    ];
    let mine = Connection::open(&scratch.path).unwrap();
    mine.execute_batch(&format!(
        "INSERT INTO endpoints (id, ep_id, url, types, created_at) \
             VALUES (1, 'ep_1', 'https://user:pass@shop.example/hook', '*', 0); \
         INSERT INTO endpoint_secrets (id, endpoint, scheme, secret, created_at, expires_at) \
             VALUES (1, 1, 'v1', '{0}', 0, 9), (2, 1, 'v1a', '{1}', 0, NULL); \
         INSERT INTO api_keys (id, key_id, name, scopes, hash, created_at) \
             VALUES (1, 'key_1', 'x', 'read', x'{2}', 0); \
         INSERT INTO idempotency \
             (owner, method, path, key, fingerprint, status, body, created_at, keep_until) \
             VALUES (0, 'POST', '/v1/endpoints', 'k', zeroblob(32), 201, '{{\"secret\":\"{0}\"}}', 0, 9);",
        secrets[0],
        secrets[1],
        "77".repeat(32)
    ))
    .unwrap();
    mine.execute_batch(
        "PRAGMA foreign_keys = OFF; \
         INSERT INTO invoices (id, inv_id, merchant, chain, address, asset, amount, tolerance, \
             tolerance_hundredths, expires_at, reference, metadata, token, after_output, created_at, \
             amount_state, time_flag, life, paid, pending, strays, is_short) \
             VALUES (1, 'inv_1', 1, 1, 1, 1, '5', '0', 0, 9, '', '{}', 'tok_page', 0, 0, \
             'unpaid', 'in_time', 'open', '0', '0', 0, 0); \
         CREATE TABLE gone (id INTEGER PRIMARY KEY, text TEXT); \
         INSERT INTO gone VALUES (1, 'whsec_long_gone' || printf('%.*c', 5000, 'x')); \
         DROP TABLE gone;",
    )
    .unwrap();
    drop(mine);
    let raw = std::fs::read(&scratch.path).unwrap();
    let is_left = raw.windows(15).any(|window| window == b"whsec_long_gone");
    assert!(is_left, "a free page of the database holds it");
    let to = scratch.path.with_extension("scrubbed");
    Database::scrub(&scratch.path, &to, 1).unwrap();
    let copy = Database::open_scratch(&to).unwrap();
    let conn = &copy.conn;
    let left = column(conn, "SELECT secret FROM endpoint_secrets ORDER BY id");
    let stand_ins = [stand_in("ep_1", Scheme::V1, 1), stand_in("ep_1", Scheme::V1a, 0)];
    assert_eq!(left, stand_ins, "the newest that stays is the first");
    assert!(left.iter().all(|secret| Key::parse(secret).is_ok()));
    let urls = column(conn, "SELECT url FROM endpoints");
    assert_eq!(stood_for(&urls[0]), Some("ep_1"));
    let tokens = column(conn, "SELECT token FROM invoices");
    assert_eq!(tokens, ["drill_inv_1"]);
    let change = conn.execute("UPDATE invoices SET token = 'x'", []);
    assert!(change.is_err(), "its terms stay again");
    copy.close().unwrap();
    let bytes = std::fs::read(&to).unwrap();
    let holds = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
    for secret in [&secrets[..], &["tok_page", "whsec_long_gone"]].concat() {
        assert!(!holds(secret.as_bytes()), "{secret}");
    }
    assert!(!holds(&[0x77; 32]) && !holds(b"shop.example") && holds(b"drill.invalid"));
}
