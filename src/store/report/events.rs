//! The outbox in its order, for whoever follows along.

use super::super::codec::uint;
use super::super::{ReadTx, StoreError};
use rusqlite::{OptionalExtension as _, Row, params};

/// An event as it was frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenEvent {
    /// Its number among all events.
    pub seq: u64,
    /// Its id.
    pub id: String,
    /// Its type.
    pub kind: String,
    /// Unix milliseconds.
    pub at: i64,
    /// Its body: JSON.
    pub body: String,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventAbout {
    /// Its type.
    pub kind: String,
    /// The credit, deposit, invoice, chain, webhook or endpoint.
    pub subject: String,
    /// The database's number of the merchant whose it is; `None` = that of operators.
    pub merchant: Option<i64>,
}

impl ReadTx<'_> {
    /// The events after number `seq` of one merchant, or of operators, in order.
    ///
    /// # Errors
    /// Those of the database.
    pub fn events_of_owner(
        &self,
        merchant: Option<i64>,
        seq: u64,
        limit: u32,
    ) -> Result<Vec<FrozenEvent>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT seq, id, type, at, body FROM events INDEXED BY events_by_merchant \
             WHERE merchant IS ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
        )?;
        let after = i64::try_from(seq).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![merchant, after, limit])?;
        let mut events = Vec::new();
        while let Some(row) = rows.next()? {
            events.push(frozen(row)?);
        }
        Ok(events)
    }

    /// What an event is about, and whose it is; `None` where there is none.
    ///
    /// # Errors
    /// Those of the database.
    pub fn event_about(&self, id: &str) -> Result<Option<EventAbout>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT type, subject, merchant FROM events WHERE id = ?1")?;
        let found = statement.query_row([id], |row| {
            Ok(EventAbout {
                kind: row.get(0)?,
                subject: row.get(1)?,
                merchant: row.get(2)?,
            })
        });
        Ok(found.optional()?)
    }

    /// The events after number `seq`, in order.
    ///
    /// # Errors
    /// Those of the database.
    pub fn events_after(&self, seq: u64, limit: u32) -> Result<Vec<FrozenEvent>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT seq, id, type, at, body FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2",
        )?;
        let mut rows = statement.query(params![i64::try_from(seq).unwrap_or(i64::MAX), limit])?;
        let mut events = Vec::new();
        while let Some(row) = rows.next()? {
            events.push(frozen(row)?);
        }
        Ok(events)
    }
}

fn frozen(row: &Row<'_>) -> Result<FrozenEvent, StoreError> {
    Ok(FrozenEvent {
        seq: uint(row.get(0)?)?,
        id: row.get(1)?,
        kind: row.get(2)?,
        at: row.get(3)?,
        body: row.get(4)?,
    })
}
