//! Addresses that a later state of a restored database may have handed out: from the high-water file, derived
//! again by whoever has the source, and watched before the chain goes on. To whom such an address was given
//! the file says too, for as many as it holds; of the others the source's own merchant is known, or nobody.

use super::addresses::{AddressKind, NewAddress};
use super::chains::{ChainKey, one};
use super::codec::{int, uint};
use super::owners::Owners;
use super::restore::{Begin, Reserved};
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::{ChainId, Script};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// Whose payments to an address are that nobody knows the merchant of.
pub const NOBODY: &str = "unassigned";

/// What such an address is for.
const REFERENCE: &str = "restored";

/// Addresses to be watched on account of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredRange {
    /// The restore.
    pub generation: i64,
    /// `evm`, or the identity of the chain.
    pub scope: String,
    /// SHA-256 of what the source derives from.
    pub pin: [u8; 32],
    /// The source in this database, if it knows it, and its name.
    pub source: Option<(i64, String)>,
    /// The first index.
    pub first: u64,
    /// The next one to be watched.
    pub next: u64,
    /// The first index that is not of the range.
    pub end: u64,
    /// `waiting`, `done`, `left_out` or `superseded`.
    pub state: String,
    /// What it waits for; empty = nothing.
    pub trouble: String,
    owners: String,
    merchant: Option<String>,
}

impl RestoredRange {
    /// What people call it.
    pub fn name(&self) -> String {
        match &self.source {
            Some((_, name)) => name.clone(),
            None => format!("{} {}", self.scope, const_hex::encode(&self.pin[..8])),
        }
    }
}

const SELECT: &str = "SELECT r.generation, r.scope, r.pin, r.first_index, r.next_index, r.end_index, \
     r.state, r.trouble, r.owners, s.id, s.name, s.merchant FROM restored_ranges r \
     LEFT JOIN address_sources s ON s.scope = r.scope AND s.pin = r.pin";

fn range_row(row: &Row<'_>) -> Result<RestoredRange, StoreError> {
    let source: Option<i64> = row.get(9)?;
    let name: Option<String> = row.get(10)?;
    Ok(RestoredRange {
        generation: row.get(0)?,
        scope: row.get(1)?,
        pin: row.get(2)?,
        first: uint(row.get(3)?)?,
        next: uint(row.get(4)?)?,
        end: uint(row.get(5)?)?,
        state: row.get(6)?,
        trouble: row.get(7)?,
        owners: row.get(8)?,
        source: source.zip(name),
        merchant: row.get(11)?,
    })
}

/// Does a scope hold for this chain?
fn is_on(scope: &str, chain: &ChainId) -> bool {
    scope == chain.as_str() || (scope == "evm" && chain.is_evm())
}

/// Scope and pin of a source, from its name in the high-water file.
fn parts(source: &str) -> Result<(&str, [u8; 32]), StoreError> {
    let read = source.rsplit_once('/').and_then(|(scope, pin)| {
        let mut bytes = [0; 32];
        const_hex::decode_to_slice(pin, &mut bytes).ok()?;
        Some((scope, bytes))
    });
    read.ok_or_else(|| StoreError::Corrupt(format!("a source of the high-water file: {source:?}")))
}

/// Is it known that addresses of this source were handed out up to there?
pub(super) fn has(conn: &Connection, source: &str, end: u64) -> Result<bool, StoreError> {
    let (scope, pin) = parts(source)?;
    let known: Option<i64> = one(
        conn,
        "SELECT 1 FROM restored_ranges WHERE scope = ?1 AND pin = ?2 AND end_index >= ?3 LIMIT 1",
        params![scope, pin, int(end)?],
    )?;
    Ok(known.is_some())
}

/// Writes down what is to be watched, and takes it out of the pools at once. What an earlier restore still
/// had to watch is part of it.
pub(super) fn begin(conn: &Connection, new: &Begin) -> Result<(), StoreError> {
    for reserved in &new.reserved {
        reserve(conn, new.generation, reserved)?;
    }
    // Of sources that the high-water file does not name.
    conn.execute(
        "INSERT INTO restored_ranges (generation, scope, pin, first_index, next_index, end_index, owners, \
         state) SELECT ?1, scope, pin, next_index, next_index, end_index, owners, 'waiting' \
         FROM restored_ranges w WHERE state = 'waiting' AND generation < ?1 \
         AND NOT EXISTS (SELECT 1 FROM restored_ranges n \
                         WHERE n.generation = ?1 AND n.scope = w.scope AND n.pin = w.pin)",
        [new.generation],
    )?;
    conn.execute(
        "UPDATE restored_ranges SET state = 'superseded' WHERE state = 'waiting' AND generation < ?1",
        [new.generation],
    )?;
    Ok(())
}

fn reserve(conn: &Connection, generation: i64, reserved: &Reserved) -> Result<(), StoreError> {
    let (scope, pin) = parts(&reserved.source)?;
    let first_free: Option<i64> = conn
        .query_row(
            "SELECT ifnull((SELECT min(number) FROM pool_addresses p WHERE p.source = s.id \
             AND p.state = 'free'), s.next_index) FROM address_sources s WHERE s.scope = ?1 AND s.pin = ?2",
            params![scope, pin],
            |row| row.get(0),
        )
        .optional()?;
    let earlier: Option<(i64, i64, String)> = conn
        .query_row(
            "SELECT next_index, end_index, owners FROM restored_ranges \
             WHERE scope = ?1 AND pin = ?2 AND state = 'waiting' AND generation < ?3",
            params![scope, pin, generation],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    let (mut first, mut end) = (first_free.unwrap_or_default(), int(reserved.end)?);
    let mut owners = serde_json::to_string(&reserved.owners)
        .map_err(|error| StoreError::Corrupt(format!("owners of addresses: {error}")))?;
    if let Some((earlier_next, earlier_end, earlier_owners)) = earlier {
        (first, end) = (first.min(earlier_next), end.max(earlier_end));
        if reserved.owners.is_empty() {
            owners = earlier_owners;
        }
    }
    if first >= end {
        return Ok(());
    }
    conn.execute(
        "INSERT INTO restored_ranges (generation, scope, pin, first_index, next_index, end_index, owners, \
         state) VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, 'waiting')",
        params![generation, scope, pin, first, end, owners],
    )?;
    conn.execute(
        "UPDATE pool_addresses SET state = 'taken', taken_at = derived_at WHERE state = 'free' \
         AND number < ?3 AND source = (SELECT id FROM address_sources WHERE scope = ?1 AND pin = ?2)",
        params![scope, pin, end],
    )?;
    conn.execute(
        "UPDATE address_sources SET next_index = ?3 WHERE scope = ?1 AND pin = ?2 AND next_index < ?3",
        params![scope, pin, end],
    )?;
    Ok(())
}

impl ReadTx<'_> {
    /// Everything that is still to be watched on account of a restore.
    ///
    /// # Errors
    /// Those of the database.
    pub fn waiting_ranges(&self) -> Result<Vec<RestoredRange>, StoreError> {
        self.restored_ranges("r.state = 'waiting' ORDER BY r.scope, r.pin", [])
    }

    pub(super) fn restored_ranges(
        &self,
        filter: &str,
        params: impl rusqlite::Params,
    ) -> Result<Vec<RestoredRange>, StoreError> {
        let mut statement = self.conn().prepare_cached(&format!("{SELECT} WHERE {filter}"))?;
        let mut rows = statement.query(params)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(range_row(row)?);
        }
        Ok(found)
    }

    /// Which addresses of a chain have to be watched before it goes on, and what keeps them from that; `None`
    /// = none.
    pub(super) fn waiting_addresses(&self, chain: &ChainId) -> Result<Option<String>, StoreError> {
        let scope = if chain.is_evm() { "evm" } else { chain.as_str() };
        let known = "SELECT 1 FROM restored_ranges WHERE scope = ?1 AND state = 'waiting' LIMIT 1";
        if one::<i64>(self.conn(), known, [scope])?.is_none() {
            return Ok(None);
        }
        let waiting = self.restored_ranges("r.scope = ?1 AND r.state = 'waiting' LIMIT 1", [scope])?;
        Ok(waiting.first().map(|range| {
            let (name, next, last) = (range.name(), range.next, range.end.saturating_sub(1));
            let trouble = match range.trouble.as_str() {
                "" => String::new(),
                trouble => format!(": {trouble}"),
            };
            format!(
                "a backup was restored: addresses {next} to {last} of {name}, which may have been handed \
                 out since, are to be watched first{trouble}"
            )
        }))
    }
}

impl WriteTx<'_> {
    /// Watches the next addresses of a range on every chain that it is on, from the block after the cursor
    /// on; `is_over` where the source has no more. False, and nothing is changed, where somebody else has
    /// done that meanwhile.
    ///
    /// # Errors
    /// Those of the database.
    pub fn watch_restored(
        &mut self,
        range: &RestoredRange,
        scripts: &[Script],
        is_over: bool,
    ) -> Result<bool, StoreError> {
        let owners: Owners = serde_json::from_str(&range.owners)
            .map_err(|error| StoreError::Corrupt(format!("owners of addresses: {error}")))?;
        let next = range.next + scripts.len() as u64;
        let is_done = is_over || next >= range.end;
        let moved = self
            .conn()
            .prepare_cached(
                "UPDATE restored_ranges SET next_index = ?5, trouble = '', state = iif(?6, 'done', state) \
                 WHERE generation = ?1 AND scope = ?2 AND pin = ?3 AND next_index = ?4 AND state = 'waiting'",
            )?
            .execute(params![
                range.generation,
                range.scope,
                range.pin,
                int(range.next)?,
                int(next.min(range.end))?,
                is_done
            ])?;
        if moved != 1 {
            return Ok(false);
        }
        let chains = self
            .chains()?
            .into_iter()
            .filter(|chain| is_on(&range.scope, &chain.id));
        let chains: Vec<ChainKey> = chains.map(|chain| chain.key).collect();
        for (number, script) in (range.next..).zip(scripts) {
            let merchant = owners.of(number).or(range.merchant.as_deref()).unwrap_or(NOBODY);
            self.watch_reserved(range, (number, script), merchant, &chains)?;
        }
        Ok(true)
    }

    fn watch_reserved(
        &mut self,
        range: &RestoredRange,
        (number, script): (u64, &Script),
        merchant: &str,
        chains: &[ChainKey],
    ) -> Result<(), StoreError> {
        let now = self.now_ms();
        if let Some((source, _)) = range.source {
            self.conn()
                .prepare_cached(
                    "INSERT INTO pool_addresses (source, number, scope, script, state, derived_at, taken_at) \
                     VALUES (?1, ?2, ?3, ?4, 'taken', ?5, ?5) ON CONFLICT DO NOTHING",
                )?
                .execute(params![source, int(number)?, range.scope, script, now])?;
        }
        let rule = NewAddress {
            script: script.clone(),
            kind: AddressKind::Watch,
            merchant,
            internal: "ignore",
            reference: REFERENCE,
        };
        for chain in chains {
            if !self.is_known_script(*chain, script)? {
                self.add_taken(*chain, &rule)?;
            }
        }
        Ok(())
    }

    /// Notes what keeps a range from being watched.
    ///
    /// # Errors
    /// Those of the database.
    pub fn note_range_trouble(&mut self, range: &RestoredRange, trouble: &str) -> Result<(), StoreError> {
        self.conn().execute(
            "UPDATE restored_ranges SET trouble = ?4 WHERE generation = ?1 AND scope = ?2 AND pin = ?3 \
             AND state = 'waiting' AND trouble <> ?4",
            params![range.generation, range.scope, range.pin, trouble],
        )?;
        Ok(())
    }

    /// Leaves out, on an operator's word, what cannot be watched because nobody has its source any more.
    /// False where it does not wait.
    ///
    /// # Errors
    /// Those of the database.
    pub fn leave_out_range(&mut self, range: &RestoredRange, reason: &str) -> Result<bool, StoreError> {
        let left = self.conn().execute(
            "UPDATE restored_ranges SET state = 'left_out' WHERE generation = ?1 AND scope = ?2 \
             AND pin = ?3 AND state = 'waiting'",
            params![range.generation, range.scope, range.pin],
        )?;
        if left != 1 {
            return Ok(false);
        }
        let (now, last) = (self.now_ms(), range.end.saturating_sub(1));
        let cause = format!(
            "addresses {} to {last} of {} are not watched: {reason}",
            range.next,
            range.name()
        );
        self.conn().execute(
            "INSERT INTO audit (at, action, cause, actor) VALUES (?1, 'restore', ?2, 'operator')",
            params![now, cause],
        )?;
        Ok(true)
    }
}
