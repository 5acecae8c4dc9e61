//! Deliveries: the way of each event to each endpoint. A worker leases what is due, sends it without
//! holding anything open here, and settles. Per endpoint and subject one delivery is on its way at a time,
//! in order; an endpoint that does not answer gets one at a time in all, so that it holds up nobody else.

use super::codec::{int, uint};
use super::endpoints::covers;
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::retry::{self, ORDER_ATTEMPTS, Retry, WAIT_MS_MAX};
use crate::webhook::Key;
use rusqlite::{OptionalExtension, params};

/// At most so many deliveries are on their way to one healthy endpoint.
const IN_FLIGHT_MAX: usize = 8;

/// How much of a receiver's answer is kept.
pub const REPLY_BYTES_MAX: usize = 1024;

/// What the worker sends.
#[derive(Clone, Debug)]
pub struct Leased {
    /// The delivery's number.
    pub delivery: i64,
    /// The endpoint's public id.
    pub endpoint: String,
    /// Where to.
    pub url: String,
    /// The event's id: the same at every endpoint and attempt.
    pub event: String,
    /// The frozen body.
    pub body: String,
    /// The keys to sign with, newest first.
    pub keys: Vec<Key>,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// Whose room it takes.
    pub share: Share,
}

/// Whose part of the room a delivery takes. Nobody knows in advance who will not answer: every endpoint has a
/// claim to one on its way, and what goes beyond shares a part that cannot take all of the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// The only one on its way to its endpoint.
    First,
    /// Beside others to the same endpoint.
    Extra,
    /// To an endpoint that has not been answering: the only one, and out of a part of its own.
    Suspect,
}

/// How many more deliveries may go on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Of all shares.
    pub all: usize,
    /// Of them [`Share::Extra`].
    pub extra: usize,
    /// Of them [`Share::Suspect`].
    pub suspect: usize,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The delivery's number.
    pub delivery: i64,
    /// The number of the attempt.
    pub number: u32,
    /// When it began, Unix milliseconds.
    pub at: i64,
    /// How long it took.
    pub took_ms: i64,
    /// The answer.
    pub outcome: Outcome,
    /// The beginning of the answer's body.
    pub reply: Vec<u8>,
}

/// A receiver's answer, by what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 2xx.
    Delivered {
        /// The status.
        status: u16,
    },
    /// 410: the receiver wants no more of anything; its endpoint is paused.
    Gone,
    /// Any other answer.
    Refused {
        /// The status.
        status: u16,
        /// `Retry-After` in seconds.
        retry_after_secs: Option<u64>,
    },
    /// No answer, or none that could be used.
    Unanswered {
        /// Why, in words.
        why: String,
    },
}

impl Outcome {
    fn status(&self) -> Option<u16> {
        match self {
            Outcome::Delivered { status } | Outcome::Refused { status, .. } => Some(*status),
            Outcome::Gone => Some(410),
            Outcome::Unanswered { .. } => None,
        }
    }

    pub(crate) fn error(&self) -> String {
        match self {
            Outcome::Delivered { .. } => String::new(),
            Outcome::Gone => "410: the receiver is gone".to_owned(),
            Outcome::Refused { status, .. } => format!("answered {status}"),
            Outcome::Unanswered { why } => why.clone(),
        }
    }

    /// True when the endpoint and not the event is to blame.
    pub(crate) fn blames_endpoint(&self) -> bool {
        match self {
            Outcome::Delivered { .. } | Outcome::Gone => false,
            Outcome::Refused { status, .. } => *status == 429 || *status >= 500,
            Outcome::Unanswered { .. } => true,
        }
    }
}

/// What is due at an endpoint and may go. An event waits for older ones of its subject that are on their way,
/// or that have neither been tried often nor waited long; and never travels beside another of its subject.
/// The list of states says what the lines below it imply: without it no index by subject applies, and each
/// event of a receiver that refuses thousands is held against all of them.
pub(super) const DUE_IN_ORDER: &str = "SELECT d.id, v.id, v.body, d.attempts, d.subject \
     FROM deliveries d JOIN events v ON v.seq = d.event \
     WHERE d.endpoint = ?1 AND d.state = 'waiting' AND d.next_at <= ?2 AND NOT EXISTS \
     (SELECT 1 FROM deliveries o \
      WHERE o.endpoint = d.endpoint AND o.subject = d.subject AND o.id <> d.id \
      AND o.state IN ('waiting', 'leased') \
      AND (o.state = 'leased' OR (o.event < d.event \
           AND o.attempts - o.attempts_before < ?3 \
           AND (o.attempts = o.attempts_before OR o.queued_at > ?4)))) \
     ORDER BY d.next_at, d.id LIMIT ?5";

/// The endpoints that something is due at, in turns. Most endpoints may be those of one invoice each, which
/// is over: it steps from one that has something waiting to the next, by the index, and looks at no other.
pub(super) const DUE_ENDPOINTS: &str = "WITH RECURSIVE waiting (endpoint) AS \
     (SELECT min(endpoint) FROM deliveries WHERE state = 'waiting' \
      UNION ALL SELECT (SELECT min(d.endpoint) FROM deliveries d \
                        WHERE d.state = 'waiting' AND d.endpoint > waiting.endpoint) \
      FROM waiting WHERE waiting.endpoint IS NOT NULL) \
     SELECT e.id, e.ep_id, e.url, e.failures, \
     (SELECT count(*) FROM deliveries l WHERE l.endpoint = e.id AND l.state = 'leased') \
     FROM waiting w JOIN endpoints e ON e.id = w.endpoint WHERE e.paused_reason IS NULL AND EXISTS \
     (SELECT 1 FROM deliveries d WHERE d.endpoint = e.id AND d.state = 'waiting' AND d.next_at <= ?1) \
     ORDER BY e.id <= ?2, e.id";

impl WriteTx<'_> {
    /// Queues an event for everybody subscribed to it, in the event's own transaction.
    pub(super) fn queue_event(
        &mut self,
        seq: i64,
        kind: &str,
        subject: &str,
        merchant: Option<i64>,
    ) -> Result<(), StoreError> {
        let listeners = self.recall.listeners(merchant, || {
            let mut statement = self.conn().prepare_cached(
                "SELECT id, types FROM endpoints WHERE merchant IS ?1 AND invoice IS NULL ORDER BY id",
            )?;
            let rows = statement.query_map([merchant], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<Result<_, _>>()
        })?;
        for (endpoint, types) in listeners.iter() {
            if covers(types, kind) {
                self.queue_delivery(seq, *endpoint, subject)?;
            }
        }
        Ok(())
    }

    /// Queues an event of an invoice for the endpoints of that invoice alone.
    pub(super) fn queue_for_invoice(
        &mut self,
        seq: i64,
        kind: &str,
        subject: &str,
        invoice: i64,
    ) -> Result<(), StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT id, types FROM endpoints WHERE invoice = ?1 ORDER BY id")?;
        let mut rows = statement.query([invoice])?;
        while let Some(row) = rows.next()? {
            if covers(&row.get::<_, String>(1)?, kind) {
                self.queue_delivery(seq, row.get(0)?, subject)?;
            }
        }
        Ok(())
    }

    pub(super) fn queue_delivery(&self, seq: i64, endpoint: i64, subject: &str) -> Result<bool, StoreError> {
        let now = self.now_ms();
        let added = self
            .conn()
            .prepare_cached(
                "INSERT INTO deliveries (event, endpoint, subject, state, queued_at, next_at) \
                 VALUES (?1, ?2, ?3, 'waiting', ?4, ?4) ON CONFLICT (event, endpoint) DO NOTHING",
            )?
            .execute(params![seq, endpoint, subject, now])?;
        Ok(added == 1)
    }

    /// Puts back what an earlier run of the daemon had on its way: whether it arrived is not known, so it
    /// is sent again, with the same id and bytes.
    pub fn return_leases(&mut self) -> Result<usize, StoreError> {
        let now = self.now_ms();
        Ok(self.conn().execute(
            "UPDATE deliveries SET state = 'waiting', next_at = ?1 WHERE state = 'leased'",
            [now],
        )?)
    }

    /// Mends times that a clock wrote which was ahead and has been set back. What waits for its first attempt
    /// waits for nothing else and is due; nothing waits longer than the longest step, no lease is longer than
    /// `lease_ms`, and patience begins again now.
    pub fn clock_was_set_back(&mut self, lease_ms: i64) -> Result<(), StoreError> {
        let now = self.now_ms();
        let latest = now.saturating_add(int(WAIT_MS_MAX)?);
        self.conn().execute(
            "UPDATE deliveries SET next_at = ?1 WHERE state = 'waiting' AND next_at > ?1 \
             AND (attempts = attempts_before OR next_at > ?2)",
            [now, latest],
        )?;
        self.conn().execute(
            "UPDATE deliveries SET next_at = ?1 WHERE state = 'leased' AND next_at > ?1",
            [now.saturating_add(lease_ms)],
        )?;
        self.conn().execute(
            "UPDATE deliveries SET queued_at = ?1 WHERE state IN ('waiting', 'leased') AND queued_at > ?1",
            [now],
        )?;
        Ok(())
    }

    /// Leases what is due and for which there is room, each for `lease_ms`; one whose lease is over is due
    /// again. Endpoints take turns, beginning after `after`; returns where the next call goes on.
    pub fn lease(
        &mut self,
        room: Room,
        lease_ms: i64,
        order_patience_ms: i64,
        after: i64,
    ) -> Result<(Vec<Leased>, i64), StoreError> {
        self.return_overdue()?;
        let (mut leased, mut room, mut last) = (Vec::new(), room, after);
        for due in self.due_endpoints(after)? {
            if room.all == 0 {
                break;
            }
            last = due.key;
            let most = room.for_one(&due);
            if most == 0 {
                continue;
            }
            let before = leased.len();
            self.lease_of(&due, most, lease_ms, order_patience_ms, &mut leased)?;
            leased[before..].iter().for_each(|leased| room.take(leased.share));
        }
        Ok((leased, last))
    }

    /// Whoever had these on their way is gone or hangs.
    fn return_overdue(&mut self) -> Result<(), StoreError> {
        self.conn()
            .prepare_cached(
                "UPDATE deliveries SET state = 'waiting' WHERE state = 'leased' AND next_at <= ?1",
            )?
            .execute([self.now_ms()])?;
        Ok(())
    }

    fn due_endpoints(&self, after: i64) -> Result<Vec<DueEndpoint>, StoreError> {
        let mut statement = self.conn().prepare_cached(DUE_ENDPOINTS)?;
        let mut rows = statement.query(params![self.now_ms(), after])?;
        let mut due = Vec::new();
        while let Some(row) = rows.next()? {
            due.push(DueEndpoint {
                key: row.get(0)?,
                id: row.get(1)?,
                url: row.get(2)?,
                failures: row.get(3)?,
                in_flight: usize::try_from(row.get::<_, i64>(4)?).unwrap_or(IN_FLIGHT_MAX),
            });
        }
        Ok(due)
    }

    fn lease_of(
        &mut self,
        endpoint: &DueEndpoint,
        free: usize,
        lease_ms: i64,
        order_patience_ms: i64,
        leased: &mut Vec<Leased>,
    ) -> Result<(), StoreError> {
        let now = self.now_ms();
        let mut statement = self.conn().prepare_cached(DUE_IN_ORDER)?;
        let patience_from = now.saturating_sub(order_patience_ms);
        let limit = int(free as u64)?;
        let mut rows = statement.query(params![endpoint.key, now, ORDER_ATTEMPTS, patience_from, limit])?;
        let keys = self.keys_of(endpoint.key, now)?;
        let (before, mut subjects) = (leased.len(), std::collections::BTreeSet::new());
        while let Some(row) = rows.next()? {
            // Two that may both go (the older has lost its patience) still go one after the other.
            if !subjects.insert(row.get::<_, String>(4)?) {
                continue;
            }
            let attempts: u32 = row.get(3)?;
            leased.push(Leased {
                delivery: row.get(0)?,
                endpoint: endpoint.id.clone(),
                url: endpoint.url.clone(),
                event: row.get(1)?,
                body: row.get(2)?,
                keys: keys.clone(),
                attempt: attempts + 1,
                share: match (endpoint.failures, endpoint.in_flight) {
                    (0, 0) if leased.len() == before => Share::First,
                    (0, _) => Share::Extra,
                    _ => Share::Suspect,
                },
            });
        }
        let mut mark = self.conn().prepare_cached(
            "UPDATE deliveries SET state = 'leased', attempts = attempts + 1, next_at = ?2, \
             queued_at = CASE attempts WHEN attempts_before THEN ?3 ELSE queued_at END \
             WHERE id = ?1 AND state = 'waiting'",
        )?;
        for one in &leased[before..] {
            mark.execute(params![one.delivery, now.saturating_add(lease_ms), now])?;
        }
        Ok(())
    }

    /// Writes down what came of an attempt. The same again, or one whose lease was taken back, is only noted.
    pub fn settle(&mut self, attempt: &Attempt) -> Result<(), StoreError> {
        self.note_attempt(attempt)?;
        // How often it was tried since it was last asked for.
        let found: Option<(i64, u32)> = self
            .conn()
            .prepare_cached(
                "SELECT endpoint, attempts - attempts_before FROM deliveries \
                 WHERE id = ?1 AND state = 'leased' AND attempts = ?2",
            )?
            .query_row(params![attempt.delivery, attempt.number], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        let Some((endpoint, attempts)) = found else {
            return Ok(());
        };
        self.note_health(endpoint, &attempt.outcome)?;
        let now = self.now_ms();
        let seed = uint(attempt.delivery)?;
        let (state, next_at) = match &attempt.outcome {
            Outcome::Delivered { .. } => ("delivered", now),
            Outcome::Gone | Outcome::Unanswered { .. } => after(attempts, None, seed, now),
            Outcome::Refused { retry_after_secs, .. } => after(attempts, *retry_after_secs, seed, now),
        };
        let settled_at = (state != "waiting").then_some(now);
        self.conn()
            .prepare_cached("UPDATE deliveries SET state = ?2, next_at = ?3, settled_at = ?4 WHERE id = ?1")?
            .execute(params![attempt.delivery, state, next_at, settled_at])?;
        if attempt.outcome == Outcome::Gone {
            let id: String =
                self.conn()
                    .query_row("SELECT ep_id FROM endpoints WHERE id = ?1", [endpoint], |r| {
                        r.get(0)
                    })?;
            self.pause_endpoint(&id, "the receiver answered 410 Gone", "daemon")?;
        }
        Ok(())
    }

    fn note_attempt(&mut self, attempt: &Attempt) -> Result<(), StoreError> {
        let reply = attempt.reply.get(..REPLY_BYTES_MAX).unwrap_or(&attempt.reply);
        self.conn()
            .prepare_cached(
                "INSERT INTO attempts (delivery, number, at, took_ms, status, error, reply) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (delivery, number) DO NOTHING",
            )?
            .execute(params![
                attempt.delivery,
                attempt.number,
                attempt.at,
                attempt.took_ms,
                attempt.outcome.status(),
                attempt.outcome.error(),
                reply
            ])?;
        Ok(())
    }

    fn note_health(&mut self, endpoint: i64, outcome: &Outcome) -> Result<(), StoreError> {
        let sql = if outcome.blames_endpoint() {
            "UPDATE endpoints SET failures = failures + 1 WHERE id = ?1"
        } else {
            "UPDATE endpoints SET failures = 0 WHERE id = ?1 AND failures <> 0"
        };
        self.conn().prepare_cached(sql)?.execute([endpoint])?;
        Ok(())
    }
}

struct DueEndpoint {
    key: i64,
    id: String,
    url: String,
    failures: u32,
    in_flight: usize,
}

impl Room {
    /// How many may go to one endpoint now.
    fn for_one(self, endpoint: &DueEndpoint) -> usize {
        let most = match (endpoint.failures, endpoint.in_flight) {
            (0, 0) => 1 + self.extra.min(IN_FLIGHT_MAX - 1),
            (0, flying) => IN_FLIGHT_MAX.saturating_sub(flying).min(self.extra),
            (_, 0) => self.suspect.min(1),
            _ => 0,
        };
        most.min(self.all)
    }

    fn take(&mut self, share: Share) {
        self.all = self.all.saturating_sub(1);
        match share {
            Share::First => {}
            Share::Extra => self.extra = self.extra.saturating_sub(1),
            Share::Suspect => self.suspect = self.suspect.saturating_sub(1),
        }
    }
}

fn after(attempts: u32, asked_secs: Option<u64>, seed: u64, now: i64) -> (&'static str, i64) {
    match retry::after_failure(attempts, asked_secs, seed) {
        Retry::AfterMs(wait_ms) => (
            "waiting",
            now.saturating_add(i64::try_from(wait_ms).unwrap_or(i64::MAX)),
        ),
        Retry::Park => ("parked", now),
    }
}

impl ReadTx<'_> {
    /// When the next delivery falls due or the next lease is over, Unix milliseconds; what waits at paused
    /// endpoints does not count.
    pub fn next_delivery_at(&self) -> Result<Option<i64>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT min(at) FROM \
             (SELECT (SELECT min(d.next_at) FROM deliveries d \
                      WHERE d.endpoint = e.id AND d.state = 'waiting') AS at \
              FROM endpoints e WHERE e.paused_reason IS NULL \
              UNION ALL SELECT next_at FROM deliveries WHERE state = 'leased')",
        )?;
        Ok(statement.query_row([], |row| row.get(0))?)
    }
}
