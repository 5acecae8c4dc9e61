//! The outbox in its order, for whoever follows along.

use super::super::codec::uint;
use super::super::{ReadTx, StoreError};
use rusqlite::params;

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

impl ReadTx<'_> {
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
            events.push(FrozenEvent {
                seq: uint(row.get(0)?)?,
                id: row.get(1)?,
                kind: row.get(2)?,
                at: row.get(3)?,
                body: row.get(4)?,
            });
        }
        Ok(events)
    }
}
