//! What the metrics show, read at each scrape, so that a restart loses nothing. Counts come from the tallies
//! and everything else through an index: a scrape costs the same however much was ever credited.

use super::super::chains::{ChainKey, ChainRow, one};
use super::super::codec::{int, uint};
use super::super::{JobRow, ReadTx, RestoreStage, StoreError, WriteTx};
use rusqlite::params;

/// A restored backup numbers its events from a new multiple of 2^32 on.
const EVENTS: &str = "SELECT max(seq) & 0xFFFFFFFF FROM events";
const TALLIES: &str = "SELECT kind, count FROM tallies WHERE subject = ?1 AND chain = ?2 ORDER BY kind";
/// What waits for a finality tag that its block does not have yet is not due, however deep it is.
const NEXT_DUE: &str = "SELECT min(d.due_height) FROM deposits d JOIN chains c ON c.id = ?1 \
     WHERE d.chain = ?1 AND d.state = 'confirming' AND d.held_reason IS NULL AND (d.tag IS NULL \
     OR d.due_height <= CASE d.tag WHEN 'safe' THEN c.safe_height ELSE c.finalized_height END)";
const HELD: &str = "SELECT count(*) FROM deposits WHERE chain = ?1 AND held_reason IS NOT NULL";
const RESCANS: &str = "SELECT count(*) FROM rescans WHERE chain = ?1 AND state = 'running'";
const UNATTRIBUTED: &str = "SELECT count(*) FROM unattributed WHERE chain = ?1 AND state = 'open'";
const AUDIT_FINDINGS: &str = "SELECT kind, count(*) FROM audit_findings \
     WHERE gone_at IS NULL AND chain = ?1 GROUP BY kind";
const AUDIT_BOOKS: &str = "SELECT kind, count(*) FROM audit_findings \
     WHERE gone_at IS NULL AND chain IS NULL GROUP BY kind";
/// Stretches that touch are one: there are as many as a node has holes.
const AUDIT_UNREAD: &str = "SELECT coalesce(sum(to_height - from_height + 1), 0) \
     FROM audit_unread WHERE chain = ?1";
const AUDIT_MARKS: &str =
    "SELECT pass, place, round_at FROM audit_marks WHERE chain = ?1 AND pass <> 'evidence'";
const TIME: &str =
    "SELECT time_secs FROM headers WHERE chain = ?1 AND height <= ?2 ORDER BY height DESC LIMIT 1";
/// The one that reads a whole list: there are as many rows as endpoints, and two look-ups for each. Those of
/// one invoice each, which most may be, are stepped through by the index of what is not delivered.
const ENDPOINTS: &str = "WITH RECURSIVE undelivered (endpoint) AS \
     (SELECT min(endpoint) FROM deliveries WHERE state IN ('waiting', 'leased') \
      UNION ALL SELECT (SELECT min(d.endpoint) FROM deliveries d \
                        WHERE d.state IN ('waiting', 'leased') AND d.endpoint > undelivered.endpoint) \
      FROM undelivered WHERE undelivered.endpoint IS NOT NULL) \
     SELECT iif(e.paused_reason IS NOT NULL, 2, e.failures > 0), \
     (SELECT at FROM events WHERE seq = (SELECT min(event) FROM deliveries d \
      WHERE d.endpoint = e.id AND d.state IN ('waiting', 'leased'))), \
     (SELECT min(next_at) FROM deliveries d WHERE d.endpoint = e.id AND d.state = 'waiting') \
     FROM (SELECT id FROM endpoints INDEXED BY endpoints_by_merchant WHERE invoice IS NULL \
           UNION ALL SELECT n.id FROM undelivered u JOIN endpoints n ON n.id = u.endpoint \
           WHERE n.invoice IS NOT NULL) l JOIN endpoints e ON e.id = l.id";

/// Everything about the database as a whole, and each chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// Raised by each restore.
    pub generation: u64,
    /// Every chain that was ever followed.
    pub chains: Vec<ChainReadings>,
    /// Events ever written.
    pub events: u64,
    /// Deliveries by state.
    pub deliveries: Vec<(String, u64)>,
    /// Attempts by outcome: `delivered`, `refused`, `unanswered`.
    pub attempts: Vec<(String, u64)>,
    /// Endpoints that answer, that have not been answering, and that are paused.
    pub endpoints: [EndpointReadings; 3],
    /// Background jobs.
    pub jobs: Vec<JobRow>,
    /// Events of the inbox by state, and as `set_aside` those that came with another content.
    pub inbox: Vec<(String, u64)>,
    /// What the audit found in the books as a whole, by kind.
    pub audit_books: Vec<(String, u64)>,
}

/// Endpoints that are alike in how they are doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointReadings {
    /// `ok`, `failing` or `paused`.
    pub state: &'static str,
    /// How many.
    pub count: u64,
    /// When the oldest event was written that one of them has not got; `None` if they have all.
    pub oldest_event_at: Option<i64>,
    /// When the most overdue attempt should have begun; may be in the future.
    pub next_attempt_at: Option<i64>,
}

/// One chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainReadings {
    /// The chain.
    pub chain: ChainRow,
    /// Deposits by state.
    pub deposits: Vec<(String, u64)>,
    /// Deposits that are held.
    pub held: u64,
    /// Journal entries by kind.
    pub journal: Vec<(String, u64)>,
    /// Outputs that a block brought again.
    pub duplicates: u64,
    /// Reorgs by how many blocks they disconnected, shallowest first.
    pub reorgs: Vec<(u64, u64)>,
    /// Rescans that are not done.
    pub rescans: u64,
    /// What is under way since a backup was restored.
    pub restoring: Option<RestoreStage>,
    /// Unattributed amounts that are open.
    pub unattributed: u64,
    /// What the audit found, by kind.
    pub audit_findings: Vec<(String, u64)>,
    /// Blocks that the audit went past and could not read.
    pub audit_unread: u64,
    /// The passes of the audit: name, place, and when each was last through, Unix milliseconds.
    pub audit_passes: Vec<(String, u64, Option<i64>)>,
    /// Invoices by where they stand.
    pub invoices: Vec<(String, u64)>,
    /// Credited payments to invoices' addresses that belong to no order, ever.
    pub strays: u64,
    /// The lowest height at which a deposit falls or fell due that is neither credited nor held.
    pub next_due_height: Option<u64>,
    /// The time of the block at that height, or of the last block we hold below it, Unix seconds.
    pub next_due_time_secs: Option<u64>,
}

impl ReadTx<'_> {
    /// Reads everything.
    ///
    /// # Errors
    /// Those of the database.
    pub fn readings(&self) -> Result<Readings, StoreError> {
        let chains = self.chains()?.into_iter().map(|chain| self.chain_readings(chain));
        let events = one::<Option<i64>>(self.conn(), EVENTS, [])?;
        Ok(Readings {
            generation: uint(self.generation()?)?,
            chains: chains.collect::<Result<_, _>>()?,
            events: uint(events.flatten().unwrap_or(0))?,
            deliveries: self.tallied("deliveries", None)?,
            attempts: self.tallied("attempts", None)?,
            endpoints: self.endpoint_readings()?,
            jobs: self.jobs()?,
            inbox: self.tallied("inbox", None)?,
            audit_books: self.counted_by(AUDIT_BOOKS, [])?,
        })
    }

    fn chain_readings(&self, chain: ChainRow) -> Result<ChainReadings, StoreError> {
        let key = chain.key;
        let count =
            |sql: &str| -> Result<u64, StoreError> { uint(one(self.conn(), sql, [key.0])?.unwrap_or(0)) };
        let reorgs = self.tallied("reorgs", Some(key))?.into_iter();
        let mut reorgs: Vec<(u64, u64)> = reorgs
            .filter_map(|(depth, count)| Some((depth.parse().ok()?, count)))
            .collect();
        reorgs.sort_unstable();
        let next_due_height = one::<Option<i64>>(self.conn(), NEXT_DUE, [key.0])?.flatten();
        Ok(ChainReadings {
            deposits: self.tallied("deposits", Some(key))?,
            held: count(HELD)?,
            journal: self.tallied("journal", Some(key))?,
            duplicates: self.tallied_alone("duplicates", key)?,
            audit_findings: self.counted_by(AUDIT_FINDINGS, [key.0])?,
            audit_unread: count(AUDIT_UNREAD)?,
            audit_passes: self.audit_passes(key)?,
            invoices: self.tallied("invoices", Some(key))?,
            strays: self.tallied_alone("strays", key)?,
            reorgs,
            rescans: count(RESCANS)?,
            restoring: self.restore_stage(key)?,
            unattributed: count(UNATTRIBUTED)?,
            next_due_height: next_due_height.map(uint).transpose()?,
            next_due_time_secs: match next_due_height {
                Some(height) => self.time_at_or_below(key, height)?,
                None => None,
            },
            chain,
        })
    }

    fn time_at_or_below(&self, chain: ChainKey, height: i64) -> Result<Option<u64>, StoreError> {
        let time = one::<i64>(self.conn(), TIME, params![chain.0, height])?;
        time.map(uint).transpose()
    }

    fn tallied(&self, subject: &str, chain: Option<ChainKey>) -> Result<Vec<(String, u64)>, StoreError> {
        let mut statement = self.conn().prepare_cached(TALLIES)?;
        let mut rows = statement.query(params![subject, chain.map_or(0, |key| key.0)])?;
        let mut counts = Vec::new();
        while let Some(row) = rows.next()? {
            counts.push((row.get(0)?, uint(row.get(1)?)?));
        }
        Ok(counts)
    }

    /// Counts by a word.
    fn counted_by(&self, sql: &str, values: impl rusqlite::Params) -> Result<Vec<(String, u64)>, StoreError> {
        let mut statement = self.conn().prepare_cached(sql)?;
        let rows = statement.query_map(values, |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.map(|row| {
            let (word, count) = row?;
            Ok((word, uint(count)?))
        })
        .collect()
    }

    fn audit_passes(&self, chain: ChainKey) -> Result<Vec<(String, u64, Option<i64>)>, StoreError> {
        let mut statement = self.conn().prepare_cached(AUDIT_MARKS)?;
        let rows = statement.query_map([chain.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.map(|row| {
            let (pass, place, round_at) = row?;
            Ok((pass, uint(place)?, round_at))
        })
        .collect()
    }

    /// Of a subject that has one kind.
    fn tallied_alone(&self, subject: &str, chain: ChainKey) -> Result<u64, StoreError> {
        let tallied = self.tallied(subject, Some(chain))?;
        Ok(tallied.first().map_or(0, |(_, count)| *count))
    }

    fn endpoint_readings(&self) -> Result<[EndpointReadings; 3], StoreError> {
        let mut readings = ["ok", "failing", "paused"].map(|state| EndpointReadings {
            state,
            ..EndpointReadings::default()
        });
        let mut statement = self.conn().prepare_cached(ENDPOINTS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let place: u8 = row.get(0)?;
            let Some(group) = readings.get_mut(usize::from(place)) else {
                continue;
            };
            group.count += 1;
            group.oldest_event_at = earlier(group.oldest_event_at, row.get(1)?);
            group.next_attempt_at = earlier(group.next_attempt_at, row.get(2)?);
        }
        Ok(readings)
    }
}

fn earlier(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    a.into_iter().chain(b).min()
}

impl WriteTx<'_> {
    /// Counts a reorg that disconnected `depth` blocks, in its own transaction.
    pub(in super::super) fn count_reorg(&mut self, chain: ChainKey, depth: u64) -> Result<(), StoreError> {
        self.conn()
            .prepare_cached(
                "INSERT INTO tallies (subject, chain, kind, count) VALUES ('reorgs', ?1, ?2, 1) \
                 ON CONFLICT (subject, chain, kind) DO UPDATE SET count = min(count, 9223372036854775806) + \
                 1",
            )?
            .execute(params![chain.0, int(depth)?.to_string()])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scrape must not become slower with every payment.
    #[test]
    fn no_reading_walks_through_a_table_that_grows() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../../schema.sql")).unwrap();
        let mut scans = Vec::new();
        for sql in [
            EVENTS,
            TALLIES,
            NEXT_DUE,
            HELD,
            RESCANS,
            UNATTRIBUTED,
            AUDIT_FINDINGS,
            AUDIT_BOOKS,
            AUDIT_MARKS,
            AUDIT_UNREAD,
            TIME,
            ENDPOINTS,
        ] {
            let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let nulls = vec![rusqlite::types::Null; statement.parameter_count()];
            let steps = statement
                .query_map(rusqlite::params_from_iter(nulls), |row| row.get(3))
                .unwrap();
            let steps: Vec<String> = steps.map(Result::unwrap).collect();
            scans.extend(steps.into_iter().filter(|step| step.starts_with("SCAN")));
        }
        // Endpoints but those of one invoice each, and of those the ones that something waits for.
        let walks = [
            "SCAN endpoints USING INDEX endpoints_by_merchant",
            "SCAN undelivered",
            "SCAN u",
        ];
        assert_eq!(scans, walks);
    }
}
