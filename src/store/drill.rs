//! What a drill needs of a database: opening the copy that it works on, taking what is secret out of it, and
//! the past inputs that are kept. Nothing here is for a database that anybody needs.

use super::chains::{ChainKey, one};
use super::codec::uint;
use super::idempotency::IS_OVER;
use super::{Database, KeptAnswer, KeyScope, NewInbox, OpenMode, ReadTx, StoreError, WriteTx};
use crate::webhook::Scheme;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::config::DbConfig;
use rusqlite::params;
use sha2::{Digest as _, Sha256};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// An answer that is kept under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRow {
    /// The key.
    pub scope: KeyScope,
    /// Of the request that it answers.
    pub fingerprint: [u8; 32],
    /// The answer.
    pub answer: KeptAnswer,
}

/// An event that came in.
#[derive(Clone, Debug)]
pub struct InboxRow {
    /// Its place in the inbox.
    pub position: i64,
    /// Its public id.
    pub id: String,
    /// What came; the body is empty where it is no longer kept.
    pub new: NewInbox,
    /// Its turn is yet to come.
    pub is_waiting: bool,
}

/// An event that an endpoint has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentRow {
    /// Its place among the deliveries.
    pub position: i64,
    /// The event.
    pub event: String,
    /// The endpoint.
    pub endpoint: String,
    /// SHA-256 of what was sent.
    pub digest: [u8; 32],
}

/// The secret that stands for the `number`-th of an endpoint in a copy that was scrubbed.
pub fn stand_in(endpoint: &str, scheme: Scheme, number: u64) -> String {
    let bytes = Sha256::digest(format!("a drill's secret of {endpoint}, {number}"));
    let prefix = match scheme {
        Scheme::V1 => "whsec_",
        Scheme::V1a => "whsk_",
    };
    format!("{prefix}{}", STANDARD.encode(bytes))
}

/// Where an endpoint is in a copy that was scrubbed: nowhere, by a name that is reserved for that.
const NOWHERE: &str = "https://drill.invalid/";

/// The endpoint that a URL of a scrubbed copy stands for.
pub fn stood_for(url: &str) -> Option<&str> {
    url.strip_prefix(NOWHERE)
}

impl Database {
    /// Opens a copy as a daemon does. It survives no power loss, and needs not to.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub fn open_scratch(path: &Path) -> Result<Database, StoreError> {
        let database = Database::open(path, OpenMode::Daemon)?;
        database.conn.pragma_update(None, "synchronous", "OFF")?;
        Ok(database)
    }

    /// Takes what others must not know out of a copy, and writes what is left of it to another file: pages of
    /// the copy that are free may hold what once stood there.
    ///
    /// # Errors
    /// Those of the two files.
    pub fn scrub(copy: &Path, to: &Path, now_ms: i64) -> Result<(), StoreError> {
        let name = to.to_str().ok_or_else(|| {
            StoreError::Refused(format!("{} is no name that SQLite can open", to.display()))
        })?;
        let database = Database::open_scratch(copy)?;
        // What is rewritten is most of some databases: in a log it would stand beside the copy once more.
        let conn = &database.conn;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
        let journal: String = conn.query_row("PRAGMA journal_mode = OFF", [], |row| row.get(0))?;
        if journal != "off" {
            return Err(StoreError::Refused(format!(
                "the copy keeps its log: its journal mode is {journal}"
            )));
        }
        conn.execute_batch("BEGIN")?;
        WriteTx::new(conn, now_ms).scrub()?;
        conn.execute_batch("COMMIT")?;
        conn.execute("VACUUM INTO ?1", [name])?;
        drop(database);
        let only_ours = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(to, only_ours)
            .map_err(|error| StoreError::file("keep to ourselves", to, error))
    }
}

impl WriteTx<'_> {
    /// Takes out of a copy what others must not know: secrets of endpoints, where those are, hashes of API
    /// keys, what payment pages are found by, and answers kept under idempotency keys, some of which hold
    /// secrets.
    fn scrub(&mut self) -> Result<(), StoreError> {
        self.scrub_tokens()?;
        let mut secrets = self.conn().prepare(
            "SELECT s.id, s.scheme, e.ep_id, row_number() OVER \
             (PARTITION BY s.endpoint ORDER BY s.expires_at IS NULL DESC, s.expires_at DESC, s.id DESC) - 1 \
             FROM endpoint_secrets s JOIN endpoints e ON e.id = s.endpoint",
        )?;
        let secrets = secrets.query_map([], |row| {
            let (id, scheme, endpoint): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok((id, scheme, endpoint, row.get::<_, i64>(3)?))
        })?;
        for (id, scheme, endpoint, number) in secrets.collect::<Result<Vec<_>, _>>()? {
            let scheme = match scheme.as_str() {
                "v1a" => Scheme::V1a,
                _ => Scheme::V1,
            };
            let secret = stand_in(&endpoint, scheme, uint(number)?);
            let replace = "UPDATE endpoint_secrets SET secret = ?2 WHERE id = ?1";
            self.conn()
                .prepare_cached(replace)?
                .execute(params![id, secret])?;
        }
        self.conn()
            .execute("UPDATE endpoints SET url = ?1 || ep_id", [NOWHERE])?;
        let mut hashes = self.conn().prepare("SELECT id, hash FROM api_keys")?;
        let hashes = hashes.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        for (id, hash) in hashes.collect::<Result<Vec<(i64, [u8; 32])>, _>>()? {
            let replace = "UPDATE api_keys SET hash = ?2 WHERE id = ?1";
            self.conn()
                .prepare_cached(replace)?
                .execute(params![id, digest(&hash)])?;
        }
        // What receivers answered is theirs.
        self.conn().execute("UPDATE attempts SET reply = x''", [])?;
        self.scrub_answers()
    }

    /// Terms of invoices do not change, but in a copy.
    fn scrub_tokens(&mut self) -> Result<(), StoreError> {
        let guard = "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = 'invoices_terms_stay'";
        let guard: String = self.conn().query_row(guard, [], |row| row.get(0))?;
        self.conn().execute("DROP TRIGGER invoices_terms_stay", [])?;
        self.conn()
            .execute("UPDATE invoices SET token = 'drill_' || inv_id", [])?;
        self.conn().execute_batch(&guard)?;
        Ok(())
    }

    fn scrub_answers(&mut self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let rows = self.answers_where("1 OR ?1 OR ?2", (0, 0), after.as_ref(), ANSWERS)?;
            let Some(last) = rows.last() else {
                return Ok(());
            };
            after = Some(last.scope.clone());
            for row in rows {
                let body = format!("sha256:{}", const_hex::encode(digest(row.answer.body.as_bytes())));
                let replace = "UPDATE idempotency SET body = ?5 \
                     WHERE owner = ?1 AND method = ?2 AND path = ?3 AND key = ?4";
                let KeyScope {
                    owner,
                    method,
                    path,
                    key,
                } = row.scope;
                let values = params![owner, method, path, key, body];
                self.conn().prepare_cached(replace)?.execute(values)?;
            }
        }
    }
}

/// Answers that are read at a time.
const ANSWERS: u32 = 1_000;

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

impl ReadTx<'_> {
    /// The answers that were kept since a moment and count at `now_ms`, in the order of their keys, after
    /// one.
    ///
    /// # Errors
    /// Those of the database.
    pub fn answers_since(
        &self,
        (since_ms, now_ms): (i64, i64),
        after: Option<&KeyScope>,
        limit: u32,
    ) -> Result<Vec<KeptRow>, StoreError> {
        let filter = format!("created_at >= ?2 AND NOT ({IS_OVER})");
        self.answers_where(&filter, (now_ms, since_ms), after, limit)
    }

    fn answers_where(
        &self,
        filter: &str,
        (now_ms, since_ms): (i64, i64),
        after: Option<&KeyScope>,
        limit: u32,
    ) -> Result<Vec<KeptRow>, StoreError> {
        let mut statement = self.conn().prepare_cached(&format!(
            "SELECT owner, method, path, key, fingerprint, status, body FROM idempotency \
             WHERE ({filter}) AND (owner, method, path, key) > (?3, ?4, ?5, ?6) \
             ORDER BY owner, method, path, key LIMIT ?7"
        ))?;
        let first = KeyScope {
            owner: i64::MIN,
            method: String::new(),
            path: String::new(),
            key: String::new(),
        };
        let KeyScope {
            owner,
            method,
            path,
            key,
        } = after.unwrap_or(&first);
        let values = params![now_ms, since_ms, owner, method, path, key, limit];
        let rows = statement.query_map(values, |row| {
            Ok(KeptRow {
                scope: KeyScope {
                    owner: row.get(0)?,
                    method: row.get(1)?,
                    path: row.get(2)?,
                    key: row.get(3)?,
                },
                fingerprint: row.get(4)?,
                answer: KeptAnswer {
                    status: row.get(5)?,
                    body: row.get(6)?,
                },
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The events that came in since a moment, in their order, after one.
    ///
    /// # Errors
    /// Those of the database.
    pub fn inbox_since(&self, since_ms: i64, after: i64, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT id, in_id, source, event_id, fingerprint, body, state FROM inbox \
             WHERE id > ?2 AND received_at >= ?1 ORDER BY id LIMIT ?3",
        )?;
        let rows = statement.query_map(params![since_ms, after, limit], |row| {
            Ok(InboxRow {
                position: row.get(0)?,
                id: row.get(1)?,
                new: NewInbox {
                    source: row.get(2)?,
                    event_id: row.get(3)?,
                    fingerprint: row.get(4)?,
                    body: row.get::<_, Option<Vec<u8>>>(5)?.unwrap_or_default(),
                },
                is_waiting: row.get::<_, String>(6)? == "waiting",
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// What endpoints that are not paused have got since a moment, in the order of the deliveries, after one:
    /// but for subjects of which something waits, which would hold it back.
    ///
    /// # Errors
    /// Those of the database.
    pub fn sent_since(&self, since_ms: i64, after: i64, limit: u32) -> Result<Vec<SentRow>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT d.id, v.id, e.ep_id, v.body FROM deliveries d JOIN events v ON v.seq = d.event \
             JOIN endpoints e ON e.id = d.endpoint \
             WHERE d.id > ?2 AND d.state = 'delivered' AND d.settled_at >= ?1 AND e.paused_reason IS NULL \
             AND NOT EXISTS (SELECT 1 FROM deliveries w WHERE w.endpoint = d.endpoint \
                             AND w.subject = d.subject AND w.state IN ('waiting', 'leased')) \
             ORDER BY d.id LIMIT ?3",
        )?;
        let rows = statement.query_map(params![since_ms, after, limit], |row| {
            Ok(SentRow {
                position: row.get(0)?,
                event: row.get(1)?,
                endpoint: row.get(2)?,
                digest: digest(row.get_ref(3)?.as_bytes()?),
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Do lists of the mempool disagree about replaced payments, so that the next ones may change something?
    ///
    /// # Errors
    /// Those of the database.
    pub fn has_rivals(&self, chain: ChainKey) -> Result<bool, StoreError> {
        let any = "SELECT 1 FROM txs WHERE chain = ?1 AND rival IS NOT NULL LIMIT 1";
        Ok(one::<i64>(self.conn(), any, [chain.0])?.is_some())
    }

    /// Callbacks that are on their way or whose turn has come.
    ///
    /// # Errors
    /// Those of the database.
    pub fn deliveries_due(&self, now_ms: i64) -> Result<u64, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT count(*) FROM deliveries d JOIN endpoints e ON e.id = d.endpoint \
             WHERE (d.state = 'leased' OR (d.state = 'waiting' AND d.next_at <= ?1)) \
             AND e.paused_reason IS NULL",
        )?;
        uint(statement.query_row([now_ms], |row| row.get(0))?)
    }
}
