//! Sending again because an operator says so: one event, or all that an endpoint has not got. What is sent
//! again begins the ladder anew and keeps its id, its body and its earlier attempts.

use super::codec::uint;
use super::endpoints::Endpoint;
use super::{ReadTx, StoreError, WriteTx};
use rusqlite::{OptionalExtension, params};

/// Which of an endpoint's callbacks are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend {
    /// Those that were given up.
    Parked,
    /// Those too that wait for their next attempt.
    Undelivered,
}

/// What an endpoint has not got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undelivered {
    /// Waits for an attempt.
    pub waiting: u64,
    /// Of them those whose next attempt is not due yet.
    pub later: u64,
    /// Was given up.
    pub parked: u64,
}

impl ReadTx<'_> {
    /// The number and the subject of an event that an endpoint may be told of.
    ///
    /// # Errors
    /// Refuses an event of another owner, and at the endpoint of one invoice what is not of that invoice.
    pub fn sendable(&self, event: &str, endpoint: &str) -> Result<(i64, String, Endpoint), StoreError> {
        let endpoint = self.endpoint(endpoint)?;
        let found: Option<(i64, String, Option<i64>)> = self
            .conn()
            .query_row(
                "SELECT v.seq, v.subject, v.merchant FROM events v WHERE v.id = ?1",
                [event],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .optional()?;
        let Some((seq, subject, merchant)) = found else {
            return Err(StoreError::Refused(format!(
                "no event {event}: `creditd callbacks list` shows ids"
            )));
        };
        let owner = self.owner_of(&endpoint)?;
        if owner != merchant {
            return Err(StoreError::Refused(format!(
                "{event} is not an event of the owner of {}: `creditd endpoint list` shows whose each is",
                endpoint.id
            )));
        }
        let is_of_invoice = |invoice: &String| *invoice == subject || subject.starts_with("endpoint:");
        match endpoint.invoice.as_ref().is_none_or(is_of_invoice) {
            true => Ok((seq, subject, endpoint)),
            false => Err(StoreError::Refused(format!(
                "{event} is not of the one invoice that {} is told of: `creditd endpoint list` shows which",
                endpoint.id
            ))),
        }
    }

    /// How much an endpoint has not got at a moment.
    pub fn undelivered(&self, endpoint: &Endpoint, now_ms: i64) -> Result<Undelivered, StoreError> {
        let count = |sql: &str, now: i64| -> Result<u64, StoreError> {
            let mut statement = self.conn().prepare_cached(sql)?;
            uint(statement.query_row(params![endpoint.key, now], |row| row.get(0))?)
        };
        let waiting =
            "SELECT count(*) FROM deliveries WHERE endpoint = ?1 AND state = 'waiting' AND next_at > ?2";
        let parked =
            "SELECT count(*) FROM deliveries WHERE endpoint = ?1 AND state = 'parked' AND ?2 IS NOT NULL";
        Ok(Undelivered {
            waiting: count(waiting, i64::MIN)?,
            later: count(waiting, now_ms)?,
            parked: count(parked, now_ms)?,
        })
    }
}

impl WriteTx<'_> {
    /// Sends an event to an endpoint again, or for the first time: from the first step of the ladder, its
    /// earlier attempts kept. False when it is on its way or due anyway.
    pub fn retry_delivery(&mut self, event: &str, endpoint: &str, reason: &str) -> Result<bool, StoreError> {
        let (seq, subject, endpoint) = self.sendable(event, endpoint)?;
        let now = self.now_ms();
        let changed = self.queue_delivery(seq, endpoint.key, &subject)?
            || 1 == self.conn().execute(
                "UPDATE deliveries SET state = 'waiting', attempts_before = attempts, queued_at = ?3, \
                 next_at = ?3, settled_at = NULL \
                 WHERE event = ?1 AND endpoint = ?2 AND (state IN ('delivered', 'parked') \
                       OR (state = 'waiting' AND (attempts > attempts_before OR next_at > ?3)))",
                params![seq, endpoint.key, now],
            )?;
        if changed {
            self.conn().execute(
                "INSERT INTO audit (at, action, cause, actor) VALUES (?1, 'retry', ?2, ?3)",
                params![now, format!("{event} to {}: {reason}", endpoint.id), self.actor],
            )?;
        }
        Ok(changed)
    }

    /// Sends again now what an endpoint has not got, at most `rows_max` of it; returns how many. Those that
    /// are due already are left as they are, so that calling it until it returns 0 ends.
    pub fn retry_endpoint(
        &mut self,
        endpoint: &str,
        which: Resend,
        rows_max: u32,
        reason: &str,
    ) -> Result<usize, StoreError> {
        let endpoint = self.endpoint(endpoint)?;
        let mut count = self.send_now(&endpoint, "state = 'parked'", rows_max)?;
        if count == 0 && which == Resend::Undelivered {
            count = self.send_now(&endpoint, "state = 'waiting' AND next_at > ?2", rows_max)?;
        }
        if count > 0 {
            self.conn().execute(
                "INSERT INTO audit (at, action, cause, actor) VALUES (?1, 'retry', ?2, ?3)",
                params![
                    self.now_ms(),
                    format!("{count} events to {}: {reason}", endpoint.id),
                    self.actor
                ],
            )?;
        }
        Ok(count)
    }

    /// Makes due at once what waits for its next attempt at an endpoint.
    pub(super) fn send_waiting_now(&mut self, endpoint: &Endpoint) -> Result<(), StoreError> {
        self.send_now(endpoint, "state = 'waiting' AND next_at > ?2", u32::MAX)?;
        Ok(())
    }

    fn send_now(&mut self, endpoint: &Endpoint, which: &str, rows_max: u32) -> Result<usize, StoreError> {
        // A subject's order stays: by it a lease goes, whatever the times.
        let mut statement = self.conn().prepare_cached(&format!(
            "UPDATE deliveries SET state = 'waiting', attempts_before = attempts, queued_at = ?2, \
             next_at = ?2, settled_at = NULL WHERE id IN \
             (SELECT id FROM deliveries WHERE endpoint = ?1 AND {which} LIMIT ?3)"
        ))?;
        Ok(statement.execute(params![endpoint.key, self.now_ms(), rows_max])?)
    }
}
