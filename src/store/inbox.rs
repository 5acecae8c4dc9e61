//! The inbox: webhooks of others, each believed before it comes here. One row per event of a source, for
//! ever; what an event does is done in the transaction that marks it done, so that nothing is done twice and
//! nothing that failed is marked.

use super::events::{Heading, Receivers};
use super::external::ExternalPayment;
use super::{ReadTx, StoreError, WriteTx};
use crate::clock::rfc3339;
use crate::rules::ids;
use crate::rules::retry::{Retry, after_failure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::{OptionalExtension, params};
use serde::Serialize;
use serde_json::value::RawValue;

/// The largest body that is kept.
pub const INBOX_BODY_BYTES_MAX: usize = 65_536;

/// Other contents of one event that are kept; more say nothing new.
const ASIDE_MAX: i64 = 8;

/// The longest note that is kept.
const NOTE_CHARS_MAX: usize = 500;

/// Steps from source to source by the index that makes their events unique.
pub(super) const INBOX_SOURCES: &str = "WITH RECURSIVE named (source) AS \
     (SELECT min(source) FROM inbox UNION ALL \
      SELECT (SELECT min(i.source) FROM inbox i WHERE i.source > named.source) \
      FROM named WHERE named.source IS NOT NULL) SELECT source FROM named WHERE source IS NOT NULL";

/// An event that a source sent and that is believed.
#[derive(Clone, Debug)]
pub struct NewInbox {
    /// The config's name of who sent it.
    pub source: String,
    /// The event, from signed bytes.
    pub event_id: String,
    /// What it holds.
    pub fingerprint: [u8; 32],
    /// The bytes that were signed.
    pub body: Vec<u8>,
}

/// What became of a delivery. Each names the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// It is the first of its event, which waits for its turn.
    New(String),
    /// The event is known: nothing is done again.
    Again(String),
    /// The event is known with another content: that is kept beside it, and operators are told.
    SetAside(String),
}

/// What an event does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing, and why.
    Nothing(String),
    /// A chain is looked at; which one and why, in words.
    Hint(String),
    /// The merchant is told of it, as it came.
    Forward {
        /// The merchant.
        merchant: String,
    },
    /// A merchant is credited with what the source was paid.
    Credit(Vec<ExternalPayment>),
}

impl Effect {
    fn word(&self) -> &'static str {
        match self {
            Effect::Nothing(_) => "nothing",
            Effect::Hint(_) => "deposit.hint",
            Effect::Forward { .. } => "forward",
            Effect::Credit(_) => "credit.external",
        }
    }
}

/// An event whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueInbox {
    /// Its public id.
    pub id: String,
    /// Who sent it.
    pub source: String,
    /// The bytes that were signed.
    pub body: Vec<u8>,
}

/// What follows a run that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxRetry {
    /// It is run again then, Unix milliseconds.
    At(i64),
    /// It waits for an operator.
    Parked,
    /// Somebody else settled it meanwhile.
    Settled,
}

#[derive(Serialize)]
struct ForwardData<'a> {
    inbox: &'a str,
    sequence: i64,
    source: &'a str,
    event_id: &'a str,
    received_at: String,
    /// The body, where it is JSON: byte for byte, but for carriage returns between its parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a RawValue>,
    /// The body, where it is not, or is deeper than JSON is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_base64: Option<String>,
}

#[derive(Serialize)]
struct TroubleData<'a> {
    inbox: &'a str,
    sequence: i64,
    source: &'a str,
    event_id: &'a str,
    received_at: String,
    reason: &'a str,
}

/// A row as its own verbs read it.
pub(super) struct Held {
    pub key: i64,
    pub id: String,
    pub source: String,
    event_id: String,
    body: Option<Vec<u8>>,
    state: String,
    attempts: u32,
    received_at: i64,
}

impl ReadTx<'_> {
    /// Events whose turn it is, the most overdue first.
    pub fn due_inbox(&self, now_ms: i64, limit: u32) -> Result<Vec<DueInbox>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT in_id, source, body FROM inbox WHERE state = 'waiting' AND next_at <= ?1 \
             ORDER BY next_at, id LIMIT ?2",
        )?;
        let rows = statement.query_map(params![now_ms, limit], |row| {
            Ok(DueInbox {
                id: row.get(0)?,
                source: row.get(1)?,
                body: row.get(2)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Every source that ever sent an event, by name.
    ///
    /// # Errors
    /// Those of the database.
    pub fn inbox_sources(&self) -> Result<Vec<String>, StoreError> {
        let mut statement = self.conn().prepare(INBOX_SOURCES)?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn held_inbox(&self, id: &str) -> Result<Held, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT id, in_id, source, event_id, body, state, attempts, received_at FROM inbox \
             WHERE in_id = ?1",
        )?;
        let held = statement.query_row([id], |row| {
            Ok(Held {
                key: row.get(0)?,
                id: row.get(1)?,
                source: row.get(2)?,
                event_id: row.get(3)?,
                body: row.get(4)?,
                state: row.get(5)?,
                attempts: row.get(6)?,
                received_at: row.get(7)?,
            })
        });
        held.optional()?.ok_or_else(|| {
            StoreError::Refused(format!(
                "no event {id} in the inbox: `creditd inbox list` shows ids"
            ))
        })
    }
}

impl WriteTx<'_> {
    /// Takes in an event. Of any number of deliveries, one makes the row, by the table's own constraint.
    pub fn receive_inbox(&mut self, new: &NewInbox) -> Result<Received, StoreError> {
        let now = self.now_ms();
        let id = ids::inbox_id(&new.source, &new.event_id);
        let made = self
            .conn()
            .prepare_cached(
                "INSERT INTO inbox (in_id, source, event_id, fingerprint, body, state, next_at, received_at, \
                 last_at) VALUES (?1, ?2, ?3, ?4, ?5, 'waiting', ?6, ?6, ?6) \
                 ON CONFLICT (source, event_id) DO NOTHING",
            )?
            .execute(params![
                id,
                new.source,
                new.event_id,
                new.fingerprint.as_slice(),
                new.body,
                now
            ])?;
        if made == 1 {
            self.hurry_job(INBOX_JOB)?;
            return Ok(Received::New(id));
        }
        let same = self
            .conn()
            .prepare_cached(
                "UPDATE inbox SET duplicates = duplicates + 1, last_at = ?2 WHERE in_id = ?1 \
                 RETURNING fingerprint = ?3",
            )?
            .query_row(params![id, now, new.fingerprint.as_slice()], |row| row.get(0))?;
        if same {
            return Ok(Received::Again(id));
        }
        self.set_aside(&id, new)?;
        Ok(Received::SetAside(id))
    }

    fn set_aside(&mut self, id: &str, new: &NewInbox) -> Result<(), StoreError> {
        let held = self.held_inbox(id)?;
        let now = self.now_ms();
        let added = self
            .conn()
            .prepare_cached(
                "INSERT INTO inbox_aside (inbox, fingerprint, body, received_at) SELECT ?1, ?2, ?3, ?4 \
                 WHERE (SELECT count(*) FROM inbox_aside WHERE inbox = ?1) < ?5 \
                 ON CONFLICT (inbox, fingerprint) DO NOTHING",
            )?
            .execute(params![
                held.key,
                new.fingerprint.as_slice(),
                new.body,
                now,
                ASIDE_MAX
            ])?;
        if added == 0 {
            return Ok(());
        }
        tracing::warn!(
            source = %held.source, inbox = %id,
            "{} sent event {id} again with another content: set aside, and nothing done", held.source
        );
        self.trouble_event(&held, "inbox.set_aside", "sent again with another content")
    }

    /// Does what an event does, and marks it done. False, and nothing is done, where it was settled before.
    ///
    /// # Errors
    /// `Refused` where it can never be done as it is; nothing is then, and it is for the caller to park it.
    pub fn settle_inbox(&mut self, id: &str, effect: &Effect) -> Result<bool, StoreError> {
        let held = self.held_inbox(id)?;
        let now = self.now_ms();
        let marked = self
            .conn()
            .prepare_cached(
                "UPDATE inbox SET state = 'done', effect = ?2, settled_at = ?3 \
                 WHERE id = ?1 AND state = 'waiting'",
            )?
            .execute(params![held.key, effect.word(), now])?;
        if marked == 0 {
            return Ok(false);
        }
        let note = match effect {
            Effect::Nothing(why) => why.clone(),
            Effect::Hint(what) => what.clone(),
            Effect::Forward { merchant } => self.forward(&held, merchant)?,
            Effect::Credit(payments) => self.credit_external(&held, payments)?,
        };
        self.note_inbox(held.key, &note)?;
        Ok(true)
    }

    /// Notes that a run failed for a reason that may pass, and says when the next one is.
    pub fn fail_inbox(&mut self, id: &str, why: &str) -> Result<InboxRetry, StoreError> {
        let held = self.held_inbox(id)?;
        let attempts = held.attempts.saturating_add(1);
        let seed = held.key.unsigned_abs();
        let Retry::AfterMs(wait_ms) = after_failure(attempts, None, seed) else {
            return Ok(match self.park_inbox(id, why)? {
                true => InboxRetry::Parked,
                false => InboxRetry::Settled,
            });
        };
        let next_at = self.now_ms() + i64::try_from(wait_ms).unwrap_or(i64::MAX / 2);
        let put_off = self
            .conn()
            .prepare_cached(
                "UPDATE inbox SET attempts = ?2, next_at = ?3 WHERE id = ?1 AND state = 'waiting'",
            )?
            .execute(params![held.key, attempts, next_at])?;
        if put_off == 0 {
            return Ok(InboxRetry::Settled);
        }
        self.note_inbox(held.key, why)?;
        Ok(InboxRetry::At(next_at))
    }

    /// Leaves an event that cannot be done to an operator. False where it was settled before.
    pub fn park_inbox(&mut self, id: &str, why: &str) -> Result<bool, StoreError> {
        let held = self.held_inbox(id)?;
        let now = self.now_ms();
        let parked = self
            .conn()
            .prepare_cached(
                "UPDATE inbox SET state = 'parked', attempts = attempts + 1, settled_at = ?2 \
                 WHERE id = ?1 AND state = 'waiting'",
            )?
            .execute(params![held.key, now])?;
        if parked == 0 {
            return Ok(false);
        }
        self.note_inbox(held.key, why)?;
        let why = kept(why);
        self.trouble_event(&held, "inbox.parked", &why)?;
        Ok(true)
    }

    /// Gives a parked event another turn, with the whole ladder before it.
    ///
    /// # Errors
    /// `Refused` when there is none of that id, or it is not parked.
    pub fn retry_inbox(&mut self, id: &str, reason: &str) -> Result<(), StoreError> {
        let held = self.held_inbox(id)?;
        let now = self.now_ms();
        let given = self
            .conn()
            .prepare_cached(
                "UPDATE inbox SET state = 'waiting', attempts = 0, next_at = ?2, settled_at = NULL \
                 WHERE id = ?1 AND state = 'parked'",
            )?
            .execute(params![held.key, now])?;
        if given == 0 {
            return Err(StoreError::Refused(format!("{id} is {}, not parked", held.state)));
        }
        let words = format!("{id}: {reason}");
        self.conn()
            .prepare_cached(
                "INSERT INTO audit (at, action, from_state, to_state, cause, actor) \
                 VALUES (?1, 'inbox', 'parked', 'waiting', ?2, 'operator')",
            )?
            .execute(params![now, words])?;
        self.hurry_job(INBOX_JOB)
    }

    /// Drops the bodies of a source's events that were done before `before_ms`, and of what was set aside
    /// beside them nothing: somebody has to look at that. Returns how many.
    pub fn drop_inbox_bodies(
        &mut self,
        source: &str,
        before_ms: i64,
        limit: u32,
    ) -> Result<usize, StoreError> {
        let dropped = self
            .conn()
            .prepare_cached(
                "UPDATE inbox SET body = NULL WHERE id IN (SELECT id FROM inbox WHERE source = ?1 \
                 AND state = 'done' AND body IS NOT NULL AND settled_at < ?2 LIMIT ?3)",
            )?
            .execute(params![source, before_ms, limit])?;
        Ok(dropped)
    }

    fn note_inbox(&mut self, key: i64, note: &str) -> Result<(), StoreError> {
        self.conn()
            .prepare_cached("UPDATE inbox SET note = ?2 WHERE id = ?1")?
            .execute(params![key, kept(note)])?;
        Ok(())
    }

    /// Tells a merchant of an event, in the words of who sent it.
    fn forward(&mut self, held: &Held, merchant: &str) -> Result<String, StoreError> {
        let merchant_key = self.ensure_merchant(merchant)?;
        let body = held.body.as_deref().unwrap_or_default();
        // In JSON they are white space. A stream of events cannot carry one, and what is told is the same
        // bytes everywhere.
        let text = str::from_utf8(body).ok().map(|text| text.replace('\r', ""));
        let text = text.filter(|text| is_readable(text));
        let content: Option<&RawValue> = text.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let sequence = self.next_sequence(&held.id)?;
        let data = ForwardData {
            inbox: &held.id,
            sequence,
            source: &held.source,
            event_id: &held.event_id,
            received_at: rfc3339(held.received_at),
            content,
            content_base64: content.is_none().then(|| STANDARD.encode(body)),
        };
        let heading = Heading {
            subject: &held.id,
            kind: "inbox.forwarded",
            merchant: Some(merchant_key),
            is_first_of_its_kind: false,
            to: Receivers::Subscribed,
        };
        let event = self.write_event(&heading, sequence, data)?;
        Ok(format!("forwarded to {merchant} as {event}"))
    }

    fn trouble_event(&mut self, held: &Held, kind: &str, reason: &str) -> Result<(), StoreError> {
        let sequence = self.next_sequence(&held.id)?;
        let data = TroubleData {
            inbox: &held.id,
            sequence,
            source: &held.source,
            event_id: &held.event_id,
            received_at: rfc3339(held.received_at),
            reason,
        };
        let heading = Heading {
            subject: &held.id,
            kind,
            merchant: None,
            is_first_of_its_kind: false,
            to: Receivers::Subscribed,
        };
        self.write_event(&heading, sequence, data)?;
        Ok(())
    }
}

/// Is a text JSON that whoever reads the event can read, ours and others? As deep as readers go, less what
/// the event puts around it.
fn is_readable(text: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(&format!("[[[[{text}]]]]")).is_ok()
}

/// The job that works the inbox off.
pub const INBOX_JOB: &str = "inbox";

fn kept(note: &str) -> String {
    note.chars().take(NOTE_CHARS_MAX).collect()
}
