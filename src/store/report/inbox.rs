//! Events of the inbox for people, a page at a time.

use super::super::codec::uint;
use super::super::{ReadTx, StoreError};
use super::lists::{Listed, Page};
use rusqlite::Row;
use rusqlite::types::Value;

/// An event that another service sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRow {
    key: i64,
    /// Its id here.
    pub id: String,
    /// The config's name of who sent it.
    pub source: String,
    /// Its id there.
    pub event_id: String,
    /// `waiting`, `done` or `parked`.
    pub state: String,
    /// Runs that failed, since it came or was last asked to be tried again.
    pub attempts: u64,
    /// When it is tried next, Unix milliseconds; `None` unless it waits.
    pub next_at: Option<i64>,
    /// What it did.
    pub effect: Option<String>,
    /// More about that; of one that did nothing yet, why its last run failed.
    pub note: String,
    /// When it came first, Unix milliseconds.
    pub received_at: i64,
    /// When it was done or parked.
    pub settled_at: Option<i64>,
    /// Times that it came again.
    pub duplicates: u64,
    /// When it came last.
    pub last_at: i64,
    /// How often it came with another content, which did nothing.
    pub asides: u64,
}

/// Which events. Everything that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxFilter {
    /// Only of this source.
    pub source: Option<String>,
    /// Only `waiting`, `done` or `parked` ones.
    pub state: Option<String>,
    /// Only those that came with another content too.
    pub is_set_aside: bool,
}

/// What came under the id of an event with another content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsideRow {
    /// As it was signed.
    pub body: Vec<u8>,
    /// When it came first, Unix milliseconds.
    pub received_at: i64,
}

const SELECT: &str = "SELECT id, in_id, source, event_id, state, attempts, next_at, effect, note, \
     received_at, settled_at, duplicates, last_at, \
     (SELECT count(*) FROM inbox_aside a WHERE a.inbox = inbox.id) FROM inbox";

fn inbox_row(row: &Row<'_>) -> Result<InboxRow, StoreError> {
    let state: String = row.get(4)?;
    let next_at = row.get(6)?;
    Ok(InboxRow {
        key: row.get(0)?,
        id: row.get(1)?,
        source: row.get(2)?,
        event_id: row.get(3)?,
        attempts: uint(row.get(5)?)?,
        next_at: (state == "waiting").then_some(next_at),
        state,
        effect: row.get(7)?,
        note: row.get(8)?,
        received_at: row.get(9)?,
        settled_at: row.get(10)?,
        duplicates: uint(row.get(11)?)?,
        last_at: row.get(12)?,
        asides: uint(row.get(13)?)?,
    })
}

impl ReadTx<'_> {
    /// Events, newest first.
    ///
    /// # Errors
    /// Those of the database.
    pub fn list_inbox(&self, filter: &InboxFilter, page: Page) -> Result<Vec<Listed<InboxRow>>, StoreError> {
        let mut sql = format!("{SELECT} WHERE id < ?");
        let mut values = vec![Value::from(page.after.unwrap_or(i64::MAX))];
        for (condition, value) in [
            (" AND source = ?", &filter.source),
            (" AND state = ?", &filter.state),
        ] {
            if let Some(value) = value {
                sql.push_str(condition);
                values.push(Value::from(value.clone()));
            }
        }
        if filter.is_set_aside {
            sql.push_str(" AND EXISTS (SELECT 1 FROM inbox_aside a WHERE a.inbox = inbox.id)");
        }
        sql.push_str(" ORDER BY id DESC LIMIT ?");
        values.push(Value::from(page.limit));
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        let mut listed = Vec::new();
        while let Some(row) = rows.next()? {
            let row = inbox_row(row)?;
            listed.push(Listed {
                position: row.key,
                row,
            });
        }
        Ok(listed)
    }

    /// One event.
    ///
    /// # Errors
    /// Those of the database.
    pub fn inbox_event(&self, id: &str) -> Result<Option<InboxRow>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached(&format!("{SELECT} WHERE in_id = ?1"))?;
        let mut rows = statement.query([id])?;
        rows.next()?.map(inbox_row).transpose()
    }

    /// An event as it was signed; `None` once that is no longer kept.
    ///
    /// # Errors
    /// Those of the database.
    pub fn inbox_body(&self, event: &InboxRow) -> Result<Option<Vec<u8>>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT body FROM inbox WHERE id = ?1")?;
        Ok(statement.query_row([event.key], |row| row.get(0))?)
    }

    /// What came under an event's id with another content, in the order in which it came.
    ///
    /// # Errors
    /// Those of the database.
    pub fn inbox_asides(&self, event: &InboxRow) -> Result<Vec<AsideRow>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT body, received_at FROM inbox_aside WHERE inbox = ?1 ORDER BY received_at, fingerprint",
        )?;
        let rows = statement.query_map([event.key], |row| {
            Ok(AsideRow {
                body: row.get(0)?,
                received_at: row.get(1)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
