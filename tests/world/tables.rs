//! The tables as a test reads them: with its own SQL, on its own connection.

use creditd::rules::{BlockHash, Outpoint, Script, Txid};
use rusqlite::{Connection, OpenFlags, Params, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub struct Tables(Connection);

/// More than any test asks.
const STATEMENTS_CACHED: usize = 128;

/// A watch rule as it stands.
#[derive(Clone, Debug)]
pub struct Rule {
    pub script: Script,
    pub merchant: String,
    pub is_watched: bool,
    /// `ignore`, `hold` or `credit`.
    pub internal: String,
    /// `None` before the chain is followed.
    pub from: Option<u64>,
    /// Payments to it that were met at their time: a reorg may mine one again below `from`.
    pub met: Vec<Outpoint>,
}

/// A deposit's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepositRow {
    pub id: String,
    pub state: String,
    pub height: Option<u64>,
    pub confirmations: Option<u32>,
    pub due: Option<u64>,
    pub held: Option<String>,
    pub was_released: bool,
    pub is_live: bool,
    pub was_credited: bool,
    /// A reorg moved it while it was credited: its credit keeps the cause that it had.
    pub was_moved: bool,
    pub replaced_by: Option<Txid>,
}

/// Why a credit was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CauseRow {
    pub of: Outpoint,
    pub height: u64,
    pub hash: BlockHash,
    pub confirmations: u32,
    pub due: u64,
    pub due_hash: BlockHash,
}

pub fn txid(row: &Row<'_>, column: usize) -> Txid {
    Txid(row.get::<_, [u8; 32]>(column).unwrap())
}

pub fn outpoint(row: &Row<'_>) -> Outpoint {
    Outpoint {
        txid: txid(row, 0),
        vout: row.get::<_, i64>(1).unwrap() as u64,
    }
}

impl Tables {
    pub fn open(path: &Path) -> Tables {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let conn = Connection::open_with_flags(path, flags).unwrap();
        conn.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
        Tables(conn)
    }

    pub fn rows<T>(&self, sql: &str, read: impl Fn(&Row<'_>) -> T) -> Vec<T> {
        self.rows_of(sql, [], read)
    }

    /// The same with values for `?1` and so on: a text that stays as it is is prepared once.
    pub fn rows_of<T>(&self, sql: &str, values: impl Params, read: impl Fn(&Row<'_>) -> T) -> Vec<T> {
        let mut statement = self.0.prepare_cached(sql).unwrap();
        let rows = statement.query_map(values, |row| Ok(read(row))).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Changes whenever anybody has written.
    pub fn version(&self) -> i64 {
        self.count("PRAGMA data_version")
    }

    /// One number.
    pub fn count(&self, sql: &str) -> i64 {
        let mut statement = self.0.prepare_cached(sql).unwrap();
        statement.query_row([], |row| row.get(0)).unwrap()
    }

    /// The types of all events, in order.
    pub fn events(&self) -> Vec<String> {
        self.rows("SELECT type FROM events ORDER BY seq", |row| row.get(0).unwrap())
    }

    /// The kinds of what happened: events, origins, quiet moves.
    pub fn kinds(&self) -> BTreeSet<String> {
        let kinds = self.rows(
            "SELECT type FROM events UNION SELECT origin FROM outputs \
             UNION SELECT 'moved while credited' FROM audit WHERE from_state = 'credited' AND to_state = \
             'credited' \
             UNION SELECT 'spent' FROM outputs WHERE spent_height IS NOT NULL",
            |row| row.get(0).unwrap(),
        );
        kinds.into_iter().collect()
    }

    /// What everybody was told: types and subjects, which are derived from what they are about.
    pub fn event_ids(&self) -> Vec<String> {
        self.rows("SELECT type || ' ' || subject || ' ' || id FROM events", |row| {
            row.get(0).unwrap()
        })
    }

    /// Kinds and reasons of a credit's journal entries, in order, by outpoint.
    pub fn journal(&self, of: &Outpoint) -> Vec<String> {
        let rows = self.rows(
            "SELECT c.txid, c.vout, j.kind || iif(j.reason = '', '', ':' || j.reason) \
             FROM journal j JOIN credits c ON c.id = j.credit ORDER BY j.id",
            |row| (outpoint(row), row.get::<_, String>(2).unwrap()),
        );
        rows.into_iter()
            .filter(|(at, _)| at == of)
            .map(|(_, text)| text)
            .collect()
    }

    /// The causes of all credits and reinstatements, in order.
    pub fn causes(&self) -> Vec<CauseRow> {
        self.rows(
            "SELECT c.txid, c.vout, j.block_height, j.block_hash, j.confirmations, j.due_height, j.due_hash \
             FROM journal j JOIN credits c ON c.id = j.credit WHERE j.kind <> 'reversal' ORDER BY j.id",
            |row| CauseRow {
                of: outpoint(row),
                height: row.get::<_, i64>(2).unwrap() as u64,
                hash: BlockHash(row.get(3).unwrap()),
                confirmations: row.get(4).unwrap(),
                due: row.get::<_, i64>(5).unwrap() as u64,
                due_hash: BlockHash(row.get(6).unwrap()),
            },
        )
    }

    /// From which height each asset counts, by [`asset_key`](crate::scripted::asset_key).
    pub fn assets(&self) -> BTreeMap<u64, u64> {
        let sql = "SELECT hex(substr(contract, 1, 1)), from_height FROM assets \
                   WHERE is_listed = 1 AND from_height IS NOT NULL";
        let rows = self.rows(sql, |row| {
            let byte: Option<String> = row.get(0).unwrap();
            let key = byte.filter(|byte| !byte.is_empty());
            let key = key.map_or(0, |byte| 1 + u64::from_str_radix(&byte, 16).unwrap());
            (key, row.get::<_, i64>(1).unwrap() as u64)
        });
        rows.into_iter().collect()
    }

    pub fn rules(&self) -> Vec<Rule> {
        self.rows(
            "SELECT a.script, m.slug, a.kind = 'watch', m.internal, a.from_height, \
             (SELECT group_concat(hex(t.txid) || ':' || iif(t.sender IS NULL, o.vout, \
                                  'x' || coalesce(hex(substr(s.contract, 1, 1)), ''))) \
              FROM outputs o JOIN txs t ON t.id = o.tx JOIN assets s ON s.id = o.asset \
              WHERE o.address = a.id) \
             FROM addresses a JOIN merchants m ON m.id = a.merchant",
            |row| Rule {
                script: Script(row.get::<_, Vec<u8>>(0).unwrap().into()),
                merchant: row.get(1).unwrap(),
                is_watched: row.get(2).unwrap(),
                internal: row.get(3).unwrap(),
                from: row.get::<_, Option<i64>>(4).unwrap().map(|h| h as u64),
                met: outpoints(row.get::<_, Option<String>>(5).unwrap().as_deref()),
            },
        )
    }

    pub fn deposits(&self) -> BTreeMap<Outpoint, DepositRow> {
        let rows = self.rows(
            "SELECT t.txid, o.vout, d.dep_id, d.state, d.height, d.confirmations, d.due_height, \
             d.held_reason, \
             EXISTS (SELECT 1 FROM audit WHERE output = d.output AND action = 'release'), \
             (SELECT count(*) FROM journal j JOIN credits c ON c.id = j.credit WHERE c.output = d.output) % \
             2, \
             t.replaced_by, EXISTS (SELECT 1 FROM credits WHERE output = d.output), \
             EXISTS (SELECT 1 FROM audit WHERE output = d.output AND from_state = 'credited' \
             AND to_state = 'credited') \
             FROM deposits d JOIN outputs o ON o.id = d.output JOIN txs t ON t.id = o.tx",
            |row| {
                let deposit = DepositRow {
                    id: row.get(2).unwrap(),
                    state: row.get(3).unwrap(),
                    height: row.get::<_, Option<i64>>(4).unwrap().map(|h| h as u64),
                    confirmations: row.get(5).unwrap(),
                    due: row.get::<_, Option<i64>>(6).unwrap().map(|h| h as u64),
                    held: row.get(7).unwrap(),
                    was_released: row.get(8).unwrap(),
                    is_live: row.get(9).unwrap(),
                    was_credited: row.get(11).unwrap(),
                    was_moved: row.get(12).unwrap(),
                    replaced_by: row.get::<_, Option<[u8; 32]>>(10).unwrap().map(Txid),
                };
                (outpoint(row), deposit)
            },
        );
        rows.into_iter().collect()
    }

    pub fn deposit(&self, of: &Outpoint) -> DepositRow {
        let all = self.deposits();
        all.get(of).unwrap_or_else(|| panic!("no deposit {of}")).clone()
    }

    pub fn state(&self, of: &Outpoint) -> String {
        self.deposits()
            .get(of)
            .map_or("absent".into(), |d| d.state.clone())
    }
}

/// Reads `TXID:VOUT,TXID:VOUT`; on EVM chains an `x` and a contract's first byte stand for the asset instead.
fn outpoints(list: Option<&str>) -> Vec<Outpoint> {
    let one = |text: &str| {
        let (txid, vout) = text.split_once(':').unwrap();
        Outpoint {
            txid: Txid::from_hex(txid).unwrap(),
            vout: match vout.strip_prefix('x') {
                Some("") => 0,
                Some(byte) => 1 + u64::from_str_radix(byte, 16).unwrap(),
                None => vout.parse().unwrap(),
            },
        }
    };
    list.map(|list| list.split(',').map(one).collect())
        .unwrap_or_default()
}
