//! Whether everything that an endpoint asked for is on its way to it, or was.

use super::checks::{VIOLATIONS_MAX, Violation};
use super::endpoints::covers;
use super::{ReadTx, StoreError};
use crate::rules::invariants::Invariant;
use rusqlite::params;

/// Events after one, for an owner, that an endpoint was not sent.
pub(super) const MISSED_BY_OWNER: &str = "SELECT type, id FROM events e \
     WHERE merchant IS ?2 AND seq > ?3 AND ?4 IS NULL AND subject NOT LIKE 'endpoint:%' \
     AND NOT EXISTS (SELECT 1 FROM deliveries WHERE event = e.seq AND endpoint = ?1)";

/// The same about one invoice. The plus keeps to what the invoice has: each may have an endpoint of its own.
pub(super) const MISSED_BY_INVOICE: &str = "SELECT type, id FROM events e \
     WHERE subject = ?4 AND +seq > ?3 AND +merchant IS ?2 \
     AND NOT EXISTS (SELECT 1 FROM deliveries WHERE event = e.seq AND endpoint = ?1)";

impl ReadTx<'_> {
    /// Everything that an endpoint asked for and that happened since it was added is on its way to it, or
    /// was: of so many endpoints after one, and the last of them where there may be more. No more is told
    /// than one look tells of.
    pub(super) fn check_deliveries(
        &self,
        from: i64,
        limit: i64,
        found: &mut Vec<Violation>,
    ) -> Result<Option<i64>, StoreError> {
        let mut endpoints = self.conn().prepare_cached(
            "SELECT e.id, e.ep_id, e.merchant, e.types, e.after_event, v.inv_id FROM endpoints e \
             LEFT JOIN invoices v ON v.id = e.invoice WHERE e.id > ?1 ORDER BY e.id LIMIT ?2",
        )?;
        let (mut count, mut last) = (0, None);
        let mut rows = endpoints.query([from, limit])?;
        while let Some(row) = rows.next()? {
            let (key, merchant): (i64, Option<i64>) = (row.get(0)?, row.get(2)?);
            let (id, types): (String, String) = (row.get(1)?, row.get(3)?);
            let (after, invoice): (i64, Option<String>) = (row.get(4)?, row.get(5)?);
            (count, last) = (count + 1, Some(key));
            let mut events = self.conn().prepare_cached(match &invoice {
                Some(_) => MISSED_BY_INVOICE,
                None => MISSED_BY_OWNER,
            })?;
            let mut missed = events.query(params![key, merchant, after, invoice])?;
            while found.len() < VIOLATIONS_MAX
                && let Some(event) = missed.next()?
            {
                let (kind, event): (String, String) = (event.get(0)?, event.get(1)?);
                if covers(&types, &kind) {
                    found.push(Violation {
                        invariant: Invariant::I10OneEvent,
                        subject: id.clone(),
                        what: format!("event {event} ({kind}) was never queued for it"),
                    });
                }
            }
        }
        Ok(last.filter(|_| count == limit))
    }
}
