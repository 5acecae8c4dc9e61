//! Deliveries and their attempts, for people.

use super::super::codec::uint;
use super::super::{ReadTx, StoreError};
use super::lists::{Listed, Page};
use crate::rules::retry::ORDER_ATTEMPTS;
use rusqlite::types::Value;
use rusqlite::{Row, params};

/// Which deliveries. Everything that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    /// Only those of this event.
    pub event: Option<String>,
    /// Only those to this endpoint.
    pub endpoint: Option<String>,
    /// Only those in this state: `waiting`, `leased`, `delivered` or `parked`.
    pub state: Option<&'static str>,
}

/// A delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    /// The event's id.
    pub event: String,
    /// The event's number.
    pub seq: u64,
    /// The event's type.
    pub kind: String,
    /// The event's subject.
    pub subject: String,
    /// The endpoint's id.
    pub endpoint: String,
    /// `waiting`, `leased`, `delivered` or `parked`.
    pub state: String,
    /// Attempts so far.
    pub attempts: u32,
    /// The next attempt, while it waits; Unix milliseconds.
    pub next_at: Option<i64>,
    /// When it was delivered or parked, Unix milliseconds.
    pub settled_at: Option<i64>,
    /// Of the last attempt, if it had an answer.
    pub last_status: Option<u16>,
    /// Why the last attempt failed, if it did.
    pub last_error: Option<String>,
}

/// What holds a delivery back: another one of its subject, to the same endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The other event's id.
    pub event: String,
    /// When it is tried next, Unix milliseconds; `None` while it is on its way.
    pub next_at: Option<i64>,
}

/// An attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRow {
    /// From 1.
    pub number: u32,
    /// When it began, Unix milliseconds.
    pub at: i64,
    /// How long it took.
    pub took_ms: i64,
    /// Of the answer, if there was one.
    pub status: Option<u16>,
    /// Why it failed; empty when delivered.
    pub error: String,
    /// The beginning of the answer's body. For operators only.
    pub reply: Vec<u8>,
}

const DELIVERY_SELECT: &str = "SELECT d.id, v.id, v.seq, v.type, d.subject, e.ep_id, d.state, d.attempts, \
     d.next_at, d.settled_at, a.status, a.error FROM deliveries d JOIN events v ON v.seq = d.event \
     JOIN endpoints e ON e.id = d.endpoint \
     LEFT JOIN attempts a ON a.delivery = d.id AND a.number = d.attempts";

fn delivery_row(row: &Row<'_>) -> Result<Listed<DeliveryRow>, StoreError> {
    let state: String = row.get(6)?;
    let next_at: i64 = row.get(8)?;
    Ok(Listed {
        position: row.get(0)?,
        row: DeliveryRow {
            event: row.get(1)?,
            seq: uint(row.get(2)?)?,
            kind: row.get(3)?,
            subject: row.get(4)?,
            endpoint: row.get(5)?,
            next_at: (state == "waiting").then_some(next_at),
            state,
            attempts: row.get(7)?,
            settled_at: row.get(9)?,
            last_status: row.get(10)?,
            last_error: row
                .get::<_, Option<String>>(11)?
                .filter(|error| !error.is_empty()),
        },
    })
}

impl ReadTx<'_> {
    /// Deliveries, newest first.
    ///
    /// # Errors
    /// `Refused` for an unknown endpoint.
    pub fn list_deliveries(
        &self,
        filter: &DeliveryFilter,
        page: Page,
    ) -> Result<Vec<Listed<DeliveryRow>>, StoreError> {
        let mut sql = format!("{DELIVERY_SELECT} WHERE d.id < ?");
        let mut values = vec![Value::from(page.after.unwrap_or(i64::MAX))];
        if let Some(endpoint) = &filter.endpoint {
            sql.push_str(" AND d.endpoint = ?");
            values.push(Value::from(self.endpoint(endpoint)?.key));
        }
        if let Some(event) = &filter.event {
            sql.push_str(" AND d.event = (SELECT seq FROM events WHERE id = ?)");
            values.push(Value::from(event.clone()));
        }
        if let Some(state) = filter.state {
            sql.push_str(" AND d.state = ?");
            values.push(Value::from(state.to_owned()));
        }
        sql.push_str(" ORDER BY d.id DESC LIMIT ?");
        values.push(Value::from(i64::from(page.limit)));
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        let mut list = Vec::new();
        while let Some(row) = rows.next()? {
            list.push(delivery_row(row)?);
        }
        Ok(list)
    }

    /// What a delivery waits for besides its own time, by the rule that leases keep to: the oldest that is
    /// in its way. `patience_from`: those queued by then hold back nothing any more once they were tried.
    ///
    /// # Errors
    /// Those of the database.
    pub fn blocker(&self, delivery: i64, patience_from: i64) -> Result<Option<Blocker>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT v.id, o.state, o.next_at FROM deliveries d \
             JOIN deliveries o ON o.endpoint = d.endpoint AND o.subject = d.subject AND o.id <> d.id \
             JOIN events v ON v.seq = o.event \
             WHERE d.id = ?1 AND d.state = 'waiting' \
             AND (o.state = 'leased' OR (o.state = 'waiting' AND o.event < d.event \
                  AND o.attempts - o.attempts_before < ?2 \
                  AND (o.attempts = o.attempts_before OR o.queued_at > ?3))) \
             ORDER BY o.event LIMIT 1",
        )?;
        let mut rows = statement.query(params![delivery, ORDER_ATTEMPTS, patience_from])?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let state: String = row.get(1)?;
        let next_at: i64 = row.get(2)?;
        Ok(Some(Blocker {
            event: row.get(0)?,
            next_at: (state == "waiting").then_some(next_at),
        }))
    }

    /// The frozen body of an event.
    ///
    /// # Errors
    /// `Refused` when there is none.
    pub fn event_body(&self, event: &str) -> Result<String, StoreError> {
        super::super::chains::one(self.conn(), "SELECT body FROM events WHERE id = ?1", [event])?.ok_or_else(
            || StoreError::Refused(format!("no event {event}: `creditd callbacks list` shows ids")),
        )
    }

    /// The attempts of an event at an endpoint, in order.
    ///
    /// # Errors
    /// Those of the database.
    pub fn attempts(&self, event: &str, endpoint: &str) -> Result<Vec<AttemptRow>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT a.number, a.at, a.took_ms, a.status, a.error, a.reply FROM attempts a \
             JOIN deliveries d ON d.id = a.delivery \
             WHERE d.event = (SELECT seq FROM events WHERE id = ?1) \
             AND d.endpoint = (SELECT id FROM endpoints WHERE ep_id = ?2) ORDER BY a.number",
        )?;
        let rows = statement.query_map(params![event, endpoint], |row| {
            Ok(AttemptRow {
                number: row.get(0)?,
                at: row.get(1)?,
                took_ms: row.get(2)?,
                status: row.get(3)?,
                error: row.get(4)?,
                reply: row.get(5)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
