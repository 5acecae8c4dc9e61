//! Sources of addresses to hand out: which the config names, what each is pinned to, and which chains its
//! addresses are watched on. What is derived and handed out of them is in `pool`.

use super::chains::ChainKey;
use super::codec::{int, uint};
use super::pool::POOL_JOB;
use super::{ReadTx, StoreError, WriteTx};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::BTreeMap;

/// What addresses are derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// An output descriptor.
    Descriptor,
    /// An account key of EVM chains.
    Evm,
    /// A list that somebody made.
    List,
}

impl SourceKind {
    /// The word in the database and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            SourceKind::Descriptor => "descriptor",
            SourceKind::Evm => "evm",
            SourceKind::List => "list",
        }
    }

    fn from_word(word: &str) -> Result<SourceKind, StoreError> {
        [SourceKind::Descriptor, SourceKind::Evm, SourceKind::List]
            .into_iter()
            .find(|kind| kind.word() == word)
            .ok_or_else(|| StoreError::Corrupt(format!("kind of addresses {word:?}")))
    }
}

/// A source as the config has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSource {
    /// Its name.
    pub name: String,
    /// `evm`, or the identity of the chain.
    pub scope: String,
    /// What it is.
    pub kind: SourceKind,
    /// SHA-256 of what it derives from.
    pub pin: [u8; 32],
    /// Whose only.
    pub merchant: Option<String>,
    /// How many are kept ready.
    pub pool_size: u32,
    /// The chains that its addresses are watched on.
    pub chains: Vec<ChainKey>,
}

/// Whether the database hands out what the config names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceStanding {
    /// It does.
    Pinned,
    /// It was never named before and is from now on.
    New,
    /// The name is pinned to something else: nothing is handed out until an operator says so.
    Differs {
        /// What it is pinned to.
        pinned: [u8; 32],
    },
}

/// A source as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRow {
    /// The database's own number.
    pub id: i64,
    /// The config's name for it.
    pub name: String,
    /// `evm`, or the identity of the chain.
    pub scope: String,
    /// What it is.
    pub kind: SourceKind,
    /// SHA-256 of what it derives from.
    pub pin: [u8; 32],
    /// Whose only.
    pub merchant: Option<String>,
    /// It is the one that its name stands for.
    pub is_current: bool,
    /// The config of the running daemon names it.
    pub is_listed: bool,
    /// How many are kept ready.
    pub pool_size: u64,
    /// The next index to derive.
    pub next_index: u64,
    /// What keeps the pool from being filled; empty = nothing.
    pub trouble: String,
    /// How many are ready.
    pub free: u64,
    /// How many were handed out.
    pub taken: u64,
    /// How many are left out for good.
    pub skipped: u64,
}

const COLUMNS: &str = "s.id, s.name, s.scope, s.kind, s.pin, s.merchant, s.is_current, s.is_listed, \
     s.pool_size, s.next_index, s.trouble, \
     (SELECT count(*) FROM pool_addresses p WHERE p.source = s.id AND p.state = 'free'), \
     (SELECT count(*) FROM pool_addresses p WHERE p.source = s.id AND p.state = 'taken'), \
     (SELECT count(*) FROM pool_addresses p WHERE p.source = s.id AND p.state = 'skipped')";

impl ReadTx<'_> {
    /// Every source that was ever used, by name, the current one of a name first.
    pub fn address_sources(&self) -> Result<Vec<SourceRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM address_sources s ORDER BY s.name, s.is_current DESC, s.id");
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query([])?;
        let mut sources = Vec::new();
        while let Some(row) = rows.next()? {
            sources.push(source_row(row)?);
        }
        Ok(sources)
    }

    /// What a name is pinned to.
    fn pinned(&self, name: &str) -> Result<Option<(i64, String, [u8; 32])>, StoreError> {
        let current = "SELECT id, scope, pin FROM address_sources WHERE name = ?1 AND is_current = 1";
        let mut statement = self.conn().prepare_cached(current)?;
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        Ok(statement.query_row([name], read).optional()?)
    }
}

fn source_row(row: &Row<'_>) -> Result<SourceRow, StoreError> {
    Ok(SourceRow {
        id: row.get(0)?,
        name: row.get(1)?,
        scope: row.get(2)?,
        kind: SourceKind::from_word(&row.get::<_, String>(3)?)?,
        pin: row.get(4)?,
        merchant: row.get(5)?,
        is_current: row.get(6)?,
        is_listed: row.get(7)?,
        pool_size: uint(row.get(8)?)?,
        next_index: uint(row.get(9)?)?,
        trouble: row.get(10)?,
        free: uint(row.get(11)?)?,
        taken: uint(row.get(12)?)?,
        skipped: uint(row.get(13)?)?,
    })
}

impl WriteTx<'_> {
    /// Makes these the sources that addresses are handed out of, as far as their names are pinned to them; a
    /// name that is new is pinned. The outcomes are in their order.
    pub fn set_address_sources(&mut self, sources: &[NewSource]) -> Result<Vec<SourceStanding>, StoreError> {
        self.conn()
            .execute("UPDATE address_sources SET is_listed = 0 WHERE is_listed = 1", [])?;
        let mut standings = Vec::with_capacity(sources.len());
        for new in sources {
            let standing = match self.pinned(&new.name)? {
                None => {
                    self.pin(new, "first named in the config", "daemon")?;
                    SourceStanding::New
                }
                Some((_, scope, pin)) if (&scope, pin) == (&new.scope, new.pin) => SourceStanding::Pinned,
                Some((_, _, pinned)) => SourceStanding::Differs { pinned },
            };
            if !matches!(standing, SourceStanding::Differs { .. }) {
                self.list_source(new)?;
            }
            standings.push(standing);
        }
        Ok(standings)
    }

    /// Pins a name to what the config has for it now, on an operator's word. False where it is already.
    pub fn repin_source(&mut self, new: &NewSource, reason: &str) -> Result<bool, StoreError> {
        let pinned = self.pinned(&new.name)?;
        if pinned.is_some_and(|(_, scope, pin)| (&scope, pin) == (&new.scope, new.pin)) {
            return Ok(false);
        }
        self.pin(new, reason, "operator")?;
        self.list_source(new)?;
        self.hurry_job(POOL_JOB)?;
        Ok(true)
    }

    /// A row of before keeps its indexes: the config may go back to it, or give it another name.
    fn pin(&mut self, new: &NewSource, reason: &str, actor: &str) -> Result<(), StoreError> {
        let now = self.now_ms();
        let owner = self
            .conn()
            .prepare_cached(
                "SELECT name FROM address_sources WHERE scope = ?1 AND pin = ?2 AND is_listed = 1 \
                 AND name <> ?3",
            )?
            .query_row(params![new.scope, new.pin, new.name], |row| {
                row.get::<_, String>(0)
            })
            .optional()?;
        if let Some(owner) = owner {
            return Err(StoreError::Refused(format!(
                "{} and {owner} would hand out the same addresses: name only one of them",
                new.name
            )));
        }
        self.conn().execute(
            "UPDATE address_sources SET is_current = 0, is_listed = 0 WHERE name = ?1 AND is_current = 1",
            [&new.name],
        )?;
        self.conn().execute(
            "INSERT INTO address_sources \
             (name, scope, kind, pin, is_current, is_listed, pool_size, added_at) \
             VALUES (?1, ?2, ?3, ?4, 1, 0, ?5, ?6) ON CONFLICT (scope, pin) DO UPDATE SET name = ?1, \
             is_current = 1, trouble = ''",
            params![new.name, new.scope, new.kind.word(), new.pin, new.pool_size, now],
        )?;
        // Of a restored backup that does not know it: what was handed out stays so.
        self.conn().execute(
            "UPDATE address_sources SET next_index = max(next_index, (SELECT ifnull(max(end_index), 0) \
             FROM restored_ranges WHERE scope = ?1 AND pin = ?2)) WHERE scope = ?1 AND pin = ?2",
            params![new.scope, new.pin],
        )?;
        let cause = format!(
            "{} is pinned to {}: {reason}",
            new.name,
            const_hex::encode(new.pin)
        );
        self.conn().execute(
            "INSERT INTO audit (at, action, cause, actor) VALUES (?1, 'pin', ?2, ?3)",
            params![now, cause, actor],
        )?;
        Ok(())
    }

    /// Takes over what the config says of a source that its name is pinned to.
    fn list_source(&mut self, new: &NewSource) -> Result<(), StoreError> {
        let listed: i64 = self
            .conn()
            .prepare_cached(
                "UPDATE address_sources SET is_listed = 1, merchant = ?3, pool_size = ?4 \
                 WHERE scope = ?1 AND pin = ?2 AND is_current = 1 RETURNING id",
            )?
            .query_row(params![new.scope, new.pin, new.merchant, new.pool_size], |row| {
                row.get(0)
            })?;
        let end: i64 = self
            .conn()
            .prepare_cached(
                "SELECT ifnull(max(number) + 1, 0) FROM pool_addresses WHERE source = ?1 AND state = 'taken'",
            )?
            .query_row([listed], |row| row.get(0))?;
        for known in self.source_chains(listed)? {
            if !new.chains.contains(&known) {
                self.conn()
                    .prepare_cached(
                        "UPDATE address_source_chains SET is_listed = 0, \
                         spread_from = iif(spread_from < spread_to, spread_from, ?3) \
                         WHERE source = ?1 AND chain = ?2",
                    )?
                    .execute(params![listed, known.0, end])?;
            }
        }
        for chain in &new.chains {
            // On a chain that comes (back) later those are to be watched that were handed out without it.
            self.conn()
                .prepare_cached(
                    "INSERT INTO address_source_chains (source, chain, is_listed, spread_from, spread_to) \
                     VALUES (?1, ?2, 1, 0, ?3) ON CONFLICT (source, chain) DO UPDATE \
                     SET spread_to = iif(is_listed = 1, spread_to, ?3), is_listed = 1",
                )?
                .execute(params![listed, chain.0, end])?;
        }
        Ok(())
    }

    /// Notes what keeps a source's pool from being filled; empty = nothing.
    pub fn note_source_trouble(&mut self, source: i64, trouble: &str) -> Result<(), StoreError> {
        self.conn()
            .prepare_cached("UPDATE address_sources SET trouble = ?2 WHERE id = ?1 AND trouble <> ?2")?
            .execute(params![source, trouble])?;
        Ok(())
    }
}

/// How the high-water file names a source.
pub(super) fn mark_name(scope: &str, pin: &[u8; 32]) -> String {
    format!("{scope}/{}", const_hex::encode(pin))
}

/// Of each source the index below which none is free, and all of which may have been handed out.
pub(super) fn first_free(conn: &Connection) -> Result<Vec<(String, u64)>, StoreError> {
    let mut statement = conn.prepare(
        "SELECT s.scope, s.pin, ifnull((SELECT min(number) FROM pool_addresses p \
         WHERE p.source = s.id AND p.state = 'free'), s.next_index) FROM address_sources s",
    )?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (scope, pin): (String, [u8; 32]) = (row.get(0)?, row.get(1)?);
        found.push((mark_name(&scope, &pin), uint(row.get(2)?)?));
    }
    Ok(found)
}

/// Leaves out every address below its source's mark that is still free here.
pub(super) fn skip_reserved(conn: &Connection, marks: &BTreeMap<String, u64>) -> Result<(), StoreError> {
    let mut sources: Vec<(i64, String, [u8; 32])> = Vec::new();
    {
        let mut statement = conn.prepare("SELECT id, scope, pin FROM address_sources")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            sources.push((row.get(0)?, row.get(1)?, row.get(2)?));
        }
    }
    for (id, scope, pin) in sources {
        let Some(mark) = marks.get(&mark_name(&scope, &pin)) else {
            continue;
        };
        let mark = int(*mark)?;
        conn.execute(
            "UPDATE pool_addresses SET state = 'skipped' \
             WHERE source = ?1 AND state = 'free' AND number < ?2",
            params![id, mark],
        )?;
        conn.execute(
            "UPDATE address_sources SET next_index = ?2 WHERE id = ?1 AND next_index < ?2",
            params![id, mark],
        )?;
    }
    Ok(())
}
