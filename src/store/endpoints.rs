//! Endpoints: where merchants and operators are told, and what their callbacks are signed with.

use super::chains::one;
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::ids;
use crate::webhook::Key;
use rusqlite::{OptionalExtension, Row, params};

/// So long the same rotation, for the same reason, is taken for the same command.
const SAME_COMMAND_MS: i64 = 86_400_000;

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The database's own number.
    pub(super) key: i64,
    /// Its public id.
    pub id: String,
    /// Whose events it gets; `None` = those of operators.
    pub merchant: Option<String>,
    /// The one invoice that it is told of; `None` = whatever it asked for.
    pub invoice: Option<String>,
    /// Where callbacks go.
    pub url: String,
    /// Event types and patterns, separated by spaces.
    pub types: String,
    /// Why it is paused, if it is.
    pub paused_reason: Option<String>,
    /// Failed attempts in a row for which no message can be blamed.
    pub failures: u32,
    /// When it was added, Unix milliseconds.
    pub created_at: i64,
}

/// A merchant cannot have more: each event is queued for each of them in its own transaction.
const ENDPOINTS_MAX: i64 = 1_000;

/// By its time: of all that was ever noted few are rotations.
pub(super) const ROTATED: &str =
    "SELECT 1 FROM audit WHERE action = 'rotate-secret' AND cause = ?1 AND at = ?2";

pub(super) const ENDPOINT_SELECT: &str = "SELECT e.id, e.ep_id, m.slug, e.url, e.types, e.paused_reason, \
     e.failures, e.created_at, v.inv_id \
     FROM endpoints e LEFT JOIN merchants m ON m.id = e.merchant LEFT JOIN invoices v ON v.id = e.invoice";

pub(super) fn endpoint_row(row: &Row<'_>) -> Result<Endpoint, rusqlite::Error> {
    Ok(Endpoint {
        key: row.get(0)?,
        id: row.get(1)?,
        merchant: row.get(2)?,
        url: row.get(3)?,
        types: row.get(4)?,
        paused_reason: row.get(5)?,
        failures: row.get(6)?,
        created_at: row.get(7)?,
        invoice: row.get(8)?,
    })
}

pub(super) fn endpoints_about() -> String {
    format!(
        "{ENDPOINT_SELECT} WHERE e.id IN (SELECT id FROM endpoints WHERE merchant = ?1 AND invoice IS NULL \
         UNION ALL SELECT p.id FROM invoices i JOIN endpoints p ON p.invoice = i.id \
         WHERE i.inv_id = ?2 AND i.merchant = ?1) ORDER BY e.id"
    )
}

impl Endpoint {
    /// Does it get events of this type and subject? That of one invoice is told of that one alone.
    pub fn is_subscribed(&self, kind: &str, subject: &str) -> bool {
        self.invoice.as_ref().is_none_or(|invoice| invoice == subject) && covers(&self.types, kind)
    }
}

/// Does a list of types and patterns cover an event type?
pub(super) fn covers(types: &str, kind: &str) -> bool {
    types
        .split_whitespace()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => kind.starts_with(prefix),
            None => pattern == kind,
        })
}

impl ReadTx<'_> {
    /// An endpoint by its public id.
    ///
    /// # Errors
    /// `Refused` when there is none.
    pub fn endpoint(&self, id: &str) -> Result<Endpoint, StoreError> {
        self.find_endpoint(id)?.ok_or_else(|| {
            StoreError::Refused(format!("no endpoint {id}: `creditd endpoint list` shows ids"))
        })
    }

    /// The same; `None` where there is none.
    ///
    /// # Errors
    /// Those of the database.
    pub fn find_endpoint(&self, id: &str) -> Result<Option<Endpoint>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached(&format!("{ENDPOINT_SELECT} WHERE e.ep_id = ?1"))?;
        Ok(statement.query_map([id], endpoint_row)?.next().transpose()?)
    }

    /// A merchant's endpoints that may be told of this subject: those of other invoices, of which there may
    /// be as many as invoices, are not looked at.
    ///
    /// # Errors
    /// Those of the database.
    pub fn endpoints_about(&self, merchant: i64, subject: &str) -> Result<Vec<Endpoint>, StoreError> {
        let mut statement = self.conn().prepare_cached(&endpoints_about())?;
        let rows = statement.query_map(params![merchant, subject], endpoint_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The keys that an endpoint's callbacks are signed with at a moment, newest first.
    pub fn live_keys(&self, endpoint: &Endpoint, now_ms: i64) -> Result<Vec<Key>, StoreError> {
        self.keys_of(endpoint.key, now_ms)
    }

    /// When the endpoint's key was last rotated, if that was for this reason and not long ago: while the key
    /// before it is still used, or within a day.
    pub fn rotated_for(
        &self,
        endpoint: &Endpoint,
        reason: &str,
        now_ms: i64,
    ) -> Result<Option<i64>, StoreError> {
        // Audit rows have the endpoint in their words; the youngest secret has its own time.
        let made: Option<(i64, bool)> = self
            .conn()
            .query_row(
                "SELECT s.created_at, EXISTS (SELECT 1 FROM endpoint_secrets o \
                 WHERE o.endpoint = s.endpoint AND o.expires_at > ?2) \
                 FROM endpoint_secrets s WHERE s.endpoint = ?1 ORDER BY s.id DESC LIMIT 1",
                params![endpoint.key, now_ms],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()?;
        let Some((made_at, is_overlapping)) = made else {
            return Ok(None);
        };
        let cause = format!("{}: {reason}", endpoint.id);
        let is_same = one::<i64>(self.conn(), ROTATED, params![cause, made_at])?;
        let is_recent = is_overlapping || made_at > now_ms.saturating_sub(SAME_COMMAND_MS);
        Ok(is_same.filter(|_| is_recent).map(|_| made_at))
    }

    /// The owner's key; `None` for operators.
    pub(super) fn owner_of(&self, endpoint: &Endpoint) -> Result<Option<i64>, StoreError> {
        let owner = one::<Option<i64>>(
            self.conn(),
            "SELECT merchant FROM endpoints WHERE id = ?1",
            [endpoint.key],
        )?;
        Ok(owner.flatten())
    }

    pub(super) fn keys_of(&self, endpoint: i64, now_ms: i64) -> Result<Vec<Key>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT secret FROM endpoint_secrets \
             WHERE endpoint = ?1 AND (expires_at IS NULL OR expires_at > ?2) ORDER BY id DESC",
        )?;
        let mut rows = statement.query(params![endpoint, now_ms])?;
        let mut keys = Vec::new();
        while let Some(row) = rows.next()? {
            // What it is must not be told: it would tell the secret.
            let unreadable = |_| StoreError::Corrupt(format!("a secret of endpoint {endpoint}"));
            keys.push(Key::parse(&row.get::<_, String>(0)?).map_err(unreadable)?);
        }
        Ok(keys)
    }
}

impl WriteTx<'_> {
    /// Adds an endpoint with its first key. The same owner and URL again is the same endpoint, whose key
    /// stays; true when it is new.
    ///
    /// # Errors
    /// `Refused` where it is there for other types, or where the owner has as many as there can be.
    pub fn add_endpoint(
        &mut self,
        merchant: Option<&str>,
        url: &str,
        types: &str,
        key: &Key,
    ) -> Result<(Endpoint, bool), StoreError> {
        let owner = merchant.map(|slug| self.ensure_merchant(slug)).transpose()?;
        let id = ids::endpoint_id(merchant, url);
        let now = self.now_ms();
        let is_new = 1
            == self.conn().execute(
                "INSERT INTO endpoints (ep_id, merchant, url, types, created_at, after_event) \
                 VALUES (?1, ?2, ?3, ?4, ?5, (SELECT coalesce(max(seq), 0) FROM events)) \
                 ON CONFLICT (ep_id) DO NOTHING",
                params![id, owner, url, types, now],
            )?;
        let endpoint = self.endpoint(&id)?;
        if is_new {
            self.refuse_too_many(owner)?;
            self.recall.forget_listeners();
            self.insert_key(endpoint.key, key)?;
            self.audit_endpoint(&endpoint, "endpoint", &format!("added for {types}"))?;
        } else if endpoint.types != types {
            return Err(StoreError::Refused(format!(
                "{id} is there already, for the types {}: give this one another URL, such as one with ?2",
                endpoint.types
            )));
        }
        Ok((endpoint, is_new))
    }

    fn refuse_too_many(&self, owner: Option<i64>) -> Result<(), StoreError> {
        let sql = "SELECT count(*) FROM endpoints INDEXED BY endpoints_by_merchant \
                   WHERE merchant IS ?1 AND invoice IS NULL";
        match one::<i64>(self.conn(), sql, [owner])? {
            Some(count) if count > ENDPOINTS_MAX => Err(StoreError::Refused(format!(
                "there are {ENDPOINTS_MAX} endpoints of this owner, and no more than that can be: \
                 fan out behind one of them"
            ))),
            _ => Ok(()),
        }
    }

    pub(super) fn insert_key(&mut self, endpoint: i64, key: &Key) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.conn().execute(
            "INSERT INTO endpoint_secrets (endpoint, scheme, secret, created_at) VALUES (?1, ?2, ?3, ?4)",
            params![endpoint, key.scheme().version(), key.to_secret().reveal(), now],
        )?;
        Ok(())
    }

    /// Adds a key to an endpoint; the others of its scheme go on being used for `overlap_ms`, so that the
    /// receiver can change over. False when the key is there already or it was rotated for this reason a
    /// moment ago: the same command given twice makes one key.
    pub fn rotate_key(
        &mut self,
        id: &str,
        key: &Key,
        overlap_ms: i64,
        reason: &str,
    ) -> Result<bool, StoreError> {
        let endpoint = self.endpoint(id)?;
        let known = "SELECT 1 FROM endpoint_secrets WHERE endpoint = ?1 AND secret = ?2";
        if one::<i64>(
            self.conn(),
            known,
            params![endpoint.key, key.to_secret().reveal()],
        )?
        .is_some()
            || self.rotated_for(&endpoint, reason, self.now_ms())?.is_some()
        {
            return Ok(false);
        }
        let until = self.now_ms().saturating_add(overlap_ms);
        self.conn().execute(
            "UPDATE endpoint_secrets SET expires_at = ?3 \
             WHERE endpoint = ?1 AND scheme = ?2 AND (expires_at IS NULL OR expires_at > ?3)",
            params![endpoint.key, key.scheme().version(), until],
        )?;
        self.insert_key(endpoint.key, key)?;
        self.audit_endpoint(&endpoint, "rotate-secret", reason)?;
        Ok(true)
    }

    /// Pauses an endpoint: its events are queued and not sent. False when it is paused already.
    pub fn pause_endpoint(
        &mut self,
        id: &str,
        reason: &str,
        actor: &'static str,
    ) -> Result<bool, StoreError> {
        let endpoint = self.endpoint(id)?;
        if endpoint.paused_reason.is_some() {
            return Ok(false);
        }
        self.conn().execute(
            "UPDATE endpoints SET paused_reason = ?2 WHERE id = ?1",
            params![endpoint.key, reason],
        )?;
        self.audit_row(&endpoint, "pause", reason, actor)?;
        Ok(true)
    }

    /// Sends what a paused endpoint has queued, whenever it was to be tried next, and what comes. False when
    /// it is not paused.
    pub fn resume_endpoint(&mut self, id: &str, reason: &str) -> Result<bool, StoreError> {
        let endpoint = self.endpoint(id)?;
        if endpoint.paused_reason.is_none() {
            return Ok(false);
        }
        self.conn().execute(
            "UPDATE endpoints SET paused_reason = NULL, failures = 0 WHERE id = ?1",
            [endpoint.key],
        )?;
        self.send_waiting_now(&endpoint)?;
        self.audit_endpoint(&endpoint, "resume", reason)?;
        Ok(true)
    }

    /// Writes an event for this endpoint alone, so that its receiver can be tried. Returns the event's id.
    pub fn test_endpoint(&mut self, id: &str) -> Result<String, StoreError> {
        let endpoint = self.endpoint(id)?;
        self.audit_endpoint(&endpoint, "test", "a test event was asked for")?;
        self.endpoint_event(&endpoint)
    }

    fn audit_endpoint(&mut self, endpoint: &Endpoint, action: &str, words: &str) -> Result<(), StoreError> {
        self.audit_row(endpoint, action, words, self.actor)
    }

    fn audit_row(
        &mut self,
        endpoint: &Endpoint,
        action: &str,
        words: &str,
        actor: &str,
    ) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.conn().execute(
            "INSERT INTO audit (at, action, cause, actor) VALUES (?1, ?2, ?3, ?4)",
            params![now, action, format!("{}: {words}", endpoint.id), actor],
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_what_they_say() {
        let cases = [
            ("*", "credit.created", true),
            ("credit.*", "credit.created", true),
            ("credit.*", "deposit.seen", false),
            ("deposit.seen credit.reversed", "credit.reversed", true),
            ("deposit.seen", "deposit.seen.later", false),
            ("", "credit.created", false),
        ];
        for (types, kind, expected) in cases {
            assert_eq!(covers(types, kind), expected, "{types:?} and {kind}");
        }
    }
}
