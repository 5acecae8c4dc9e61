//! Ids by how they begin: forty hex digits are for programs, people type a few.

use super::super::{ReadTx, StoreError};
use crate::rules::Txid;

/// Candidates that are named at most.
const CANDIDATES_MAX: i64 = 10;

const DEPOSITS: &str = "SELECT dep_id FROM deposits WHERE dep_id >= ?1 AND dep_id < ?2 ORDER BY 1 LIMIT ?3";
const CREDITS: &str = "SELECT id FROM credits WHERE id >= ?1 AND id < ?2 ORDER BY 1 LIMIT ?3";
const EVENTS: &str = "SELECT id FROM events WHERE id >= ?1 AND id < ?2 ORDER BY 1 LIMIT ?3";
const ENDPOINTS: &str = "SELECT ep_id FROM endpoints WHERE ep_id >= ?1 AND ep_id < ?2 ORDER BY 1 LIMIT ?3";
const KEYS: &str = "SELECT key_id FROM api_keys WHERE key_id >= ?1 AND key_id < ?2 ORDER BY 1 LIMIT ?3";
const UNATTRIBUTED: &str =
    "SELECT un_id FROM unattributed WHERE un_id >= ?1 AND un_id < ?2 ORDER BY 1 LIMIT ?3";
const INVOICES: &str = "SELECT inv_id FROM invoices WHERE inv_id >= ?1 AND inv_id < ?2 ORDER BY 1 LIMIT ?3";

const INBOX: &str = "SELECT in_id FROM inbox WHERE in_id >= ?1 AND in_id < ?2 ORDER BY 1 LIMIT ?3";

impl ReadTx<'_> {
    /// The first ids of deposits (`dep_`), credits (`cr_`), events (`evt_`), endpoints (`ep_`), API keys
    /// (`key_`), unattributed amounts (`un_`), invoices (`inv_`) or events of the inbox (`in_`) that begin
    /// so.
    ///
    /// # Errors
    /// Those of the database.
    pub fn ids_beginning(&self, beginning: &str) -> Result<Vec<String>, StoreError> {
        let sql = match beginning.split_once('_') {
            Some(("dep", _)) => DEPOSITS,
            Some(("cr", _)) => CREDITS,
            Some(("evt", _)) => EVENTS,
            Some(("ep", _)) => ENDPOINTS,
            Some(("un", _)) => UNATTRIBUTED,
            Some(("inv", _)) => INVOICES,
            Some(("key", _)) => KEYS,
            Some(("in", _)) => INBOX,
            Some(_) | None => return Ok(Vec::new()),
        };
        let mut statement = self.conn().prepare_cached(sql)?;
        // Every digit sorts before it.
        let end = format!("{beginning}~");
        let ids = statement.query_map((beginning, end, CANDIDATES_MAX), |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// The transaction of a credit.
    ///
    /// # Errors
    /// Those of the database.
    pub fn credit_txid(&self, id: &str) -> Result<Option<Txid>, StoreError> {
        super::super::chains::one(self.conn(), "SELECT txid FROM credits WHERE id = ?1", [id])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_is_looked_for_by_reading_all() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../../schema.sql")).unwrap();
        for sql in [
            DEPOSITS,
            CREDITS,
            EVENTS,
            ENDPOINTS,
            KEYS,
            UNATTRIBUTED,
            INVOICES,
            INBOX,
        ] {
            let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let steps = statement.query_map(("dep_1", "dep_1~", 1), |row| row.get::<_, String>(3));
            let steps: Vec<String> = steps.unwrap().map(Result::unwrap).collect();
            assert!(
                steps.iter().all(|step| step.starts_with("SEARCH")),
                "{sql}: {steps:?}"
            );
        }
    }
}
