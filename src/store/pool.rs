//! The pool: addresses that were derived in two ways that agreed, each handed out once, in the transaction of
//! what it is for. The high-water file has its index before that transaction is committed.

use super::address_sources::mark_name;
use super::addresses::AddressKey;
use super::chains::ChainKey;
use super::codec::{int, uint};
use super::{AddressKind, AddressTake, NewAddress, ReadTx, StoreError, WriteTx};
use crate::rules::Script;
use rusqlite::{OptionalExtension, params};

/// Who wants an address, and for what.
#[derive(Clone, Copy, Debug)]
pub struct TakeAddress<'a> {
    /// A chain that it is to be watched on; of an EVM chain it is watched on all of the config.
    pub chain: ChainKey,
    /// The merchant's slug; the merchant is made at its first use.
    pub merchant: &'a str,
    /// `ignore`, `hold` or `credit`: what own transfers of a merchant are that is made here.
    pub internal: &'a str,
    /// What it is for, in the merchant's words.
    pub reference: &'a str,
}

/// An address that is handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenAddress {
    /// Its rule on the chain that was asked for.
    pub address: AddressKey,
    /// Its rules on all chains, that one included.
    pub on: Vec<(ChainKey, AddressKey)>,
    /// What is watched.
    pub script: Script,
    /// The source's name.
    pub source: String,
    /// Its index there.
    pub number: u32,
}

/// Why there is none to hand out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolEmpty {
    /// The config names no source for this chain and merchant.
    #[error("no [[addresses]] of the config has addresses of this chain for this merchant")]
    NoSource,
    /// The config names a source that is not the one that its name is pinned to.
    #[error(
        "the config has other addresses under the name {name} than before: an operator must look \
         (`creditd addresses status`)"
    )]
    NotPinned {
        /// The source.
        name: String,
    },
    /// A backup was restored, and the chain has not caught up since.
    #[error("{0}")]
    Restoring(String),
    /// All that were derived are handed out.
    #[error("the pool {name} is empty{}", why(trouble))]
    Empty {
        /// The source.
        name: String,
        /// What keeps it from being filled; empty where it is only a matter of time.
        trouble: String,
    },
}

fn why(trouble: &str) -> String {
    match trouble {
        "" => String::new(),
        trouble => format!(": {trouble}"),
    }
}

/// What is to be done for a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolWork {
    /// The source.
    pub source: i64,
    /// Its name in the config.
    pub name: String,
    /// SHA-256 of what it derives from.
    pub pin: [u8; 32],
    /// The next index to derive.
    pub next_index: u32,
    /// How many are missing.
    pub missing: u32,
    /// What kept it from being filled before.
    pub trouble: String,
}

/// The source that a take is from.
struct Chosen {
    id: i64,
    name: String,
    mark: String,
    pool_size: i64,
    next_index: i64,
    trouble: String,
}

/// Indexes are what BIP 32 has without hardening.
pub(super) const INDEX_END: u64 = 1 << 31;

/// Of those that were handed out there are more every day: only the free ones are counted.
pub(super) const POOL_WORK: &str = "SELECT s.id, s.name, s.pin, s.next_index, s.pool_size, s.trouble, \
     (SELECT count(*) FROM pool_addresses p WHERE p.source = s.id AND p.state = 'free') \
     FROM address_sources s WHERE s.is_current = 1 AND s.is_listed = 1 ORDER BY s.name, s.id";

/// The name of the job that fills pools.
pub const POOL_JOB: &str = "address-pool";

impl ReadTx<'_> {
    /// The sources that addresses are handed out of and whose pools are not full, or that have addresses to
    /// be watched on a chain that came later.
    pub fn pool_work(&self) -> Result<Vec<PoolWork>, StoreError> {
        let mut statement = self.conn().prepare_cached(POOL_WORK)?;
        let mut rows = statement.query([])?;
        let mut work = Vec::new();
        while let Some(row) = rows.next()? {
            let (next_index, pool_size, free) = (uint(row.get(3)?)?, uint(row.get(4)?)?, uint(row.get(6)?)?);
            let missing = pool_size.saturating_sub(free).min(INDEX_END - next_index);
            work.push(PoolWork {
                source: row.get(0)?,
                name: row.get(1)?,
                pin: row.get(2)?,
                next_index: u32::try_from(next_index)
                    .map_err(|_| StoreError::Corrupt("an index of addresses".to_owned()))?,
                missing: u32::try_from(missing).unwrap_or(u32::MAX),
                trouble: row.get(5)?,
            });
        }
        Ok(work)
    }

    /// The script at an index; `None` where another source has it, or nothing was derived.
    ///
    /// # Errors
    /// Those of the database.
    pub fn pool_script(&self, source: i64, number: u32) -> Result<Option<Script>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT script FROM pool_addresses WHERE source = ?1 AND number = ?2")?;
        Ok(statement
            .query_row(params![source, number], |row| row.get(0))
            .optional()?)
    }

    fn chosen(&self, take: &TakeAddress<'_>) -> Result<Option<Chosen>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT s.id, s.name, s.scope, s.pin, s.pool_size, s.next_index, s.trouble \
             FROM address_source_chains c JOIN address_sources s ON s.id = c.source \
             WHERE c.chain = ?1 AND c.is_listed = 1 AND s.is_listed = 1 AND s.is_current = 1 \
             AND (s.merchant = ?2 OR s.merchant IS NULL) ORDER BY s.merchant IS NULL, s.id LIMIT 1",
        )?;
        let found = statement.query_row(params![take.chain.0, take.merchant], |row| {
            Ok(Chosen {
                id: row.get(0)?,
                name: row.get(1)?,
                mark: mark_name(&row.get::<_, String>(2)?, &row.get(3)?),
                pool_size: row.get(4)?,
                next_index: row.get(5)?,
                trouble: row.get(6)?,
            })
        });
        Ok(found.optional()?)
    }

    /// A source that the config names for this, but under a name that is pinned to something else, or that it
    /// named once.
    fn not_chosen(&self, take: &TakeAddress<'_>) -> Result<PoolEmpty, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT s.name FROM address_source_chains c JOIN address_sources s ON s.id = c.source \
             WHERE c.chain = ?1 AND s.is_current = 1 AND (s.merchant = ?2 OR s.merchant IS NULL) \
             ORDER BY s.merchant IS NULL LIMIT 1",
        )?;
        let name = statement.query_row(params![take.chain.0, take.merchant], |row| row.get(0));
        Ok(match name.optional()? {
            Some(name) => PoolEmpty::NotPinned { name },
            None => PoolEmpty::NoSource,
        })
    }

    pub(super) fn source_chains(&self, source: i64) -> Result<Vec<ChainKey>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT chain FROM address_source_chains WHERE source = ?1 AND is_listed = 1 ORDER BY chain",
        )?;
        let rows = statement.query_map([source], |row| Ok(ChainKey(row.get(0)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn next_free(&self, source: i64) -> Result<Option<(i64, i64, Script)>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT id, number, script FROM pool_addresses WHERE source = ?1 AND state = 'free' \
             ORDER BY number LIMIT 1",
        )?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        Ok(statement.query_row([source], read).optional()?)
    }

    pub(super) fn is_known_script(&self, chain: ChainKey, script: &Script) -> Result<bool, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT 1 FROM addresses WHERE chain = ?1 AND script = ?2")?;
        Ok(statement.exists(params![chain.0, script])?)
    }
}

impl WriteTx<'_> {
    /// Hands out the next address, which counts from the block after the cursor of each of its chains. It is
    /// given to nobody else, whatever becomes of what it was taken for; should this transaction not be
    /// committed, it is as if nothing had happened.
    ///
    /// # Errors
    /// Those of the database. That there is none is an outcome.
    pub fn take_address(
        &mut self,
        take: &TakeAddress<'_>,
    ) -> Result<Result<TakenAddress, PoolEmpty>, StoreError> {
        if let Some(why) = self.barred_by_restore(take.chain)? {
            return Ok(Err(PoolEmpty::Restoring(why)));
        }
        let Some(source) = self.chosen(take)? else {
            return Ok(Err(self.not_chosen(take)?));
        };
        let chains = self.source_chains(source.id)?;
        while let Some((id, number, script)) = self.next_free(source.id)? {
            // Somebody entered it by hand, perhaps for another merchant.
            let mut is_known = false;
            for chain in &chains {
                is_known |= self.is_known_script(*chain, &script)?;
            }
            let state = if is_known { "skipped" } else { "taken" };
            let taken_at = (!is_known).then(|| self.now_ms());
            self.conn()
                .prepare_cached("UPDATE pool_addresses SET state = ?2, taken_at = ?3 WHERE id = ?1")?
                .execute(params![id, state, taken_at])?;
            if source.next_index - number <= source.pool_size / 2 {
                self.hurry_job(POOL_JOB)?;
            }
            if !is_known {
                let on = self.watch_taken(&chains, take, &script)?;
                self.takes.push(AddressTake {
                    source: source.mark,
                    number: uint(number)?,
                    merchant: take.merchant.to_owned(),
                });
                return taken(take.chain, on, script, source.name, number).map(Ok);
            }
        }
        Ok(Err(PoolEmpty::Empty {
            name: source.name,
            trouble: source.trouble,
        }))
    }

    /// Adds the rule on every chain.
    fn watch_taken(
        &mut self,
        chains: &[ChainKey],
        take: &TakeAddress<'_>,
        script: &Script,
    ) -> Result<Vec<(ChainKey, AddressKey)>, StoreError> {
        let rule = NewAddress {
            script: script.clone(),
            kind: AddressKind::Watch,
            merchant: take.merchant,
            internal: take.internal,
            reference: take.reference,
        };
        let mut on = Vec::with_capacity(chains.len());
        for chain in chains {
            on.push((*chain, self.add_taken(*chain, &rule)?));
        }
        Ok(on)
    }

    /// Leaves out an address that somebody enters by hand, before it is counted as one to hand out.
    pub(super) fn skip_known(&mut self, scope: &str, script: &Script) -> Result<(), StoreError> {
        let skipped = self
            .conn()
            .prepare_cached(
                "UPDATE pool_addresses SET state = 'skipped' \
                 WHERE scope = ?1 AND script = ?2 AND state = 'free'",
            )?
            .execute(params![scope, script])?;
        match skipped {
            0 => Ok(()),
            _ => self.hurry_job(POOL_JOB),
        }
    }

    /// Puts newly derived addresses into the pool, the first of them at `first`; those that somebody entered
    /// by hand are left out. False, and nothing is changed, where somebody else has done that meanwhile.
    pub fn fill_pool(&mut self, source: i64, first: u32, scripts: &[Script]) -> Result<bool, StoreError> {
        let next = i64::from(first) + int(scripts.len() as u64)?;
        let moved = self
            .conn()
            .prepare_cached(
                "UPDATE address_sources SET next_index = ?3, trouble = '' WHERE id = ?1 AND next_index = ?2",
            )?
            .execute(params![source, first, next])?;
        if moved == 0 {
            return Ok(false);
        }
        let now = self.now_ms();
        for (number, script) in (first..).zip(scripts) {
            // One that another source has is left to that one: its index here is used up.
            self.conn()
                .prepare_cached(
                    "INSERT INTO pool_addresses (source, number, scope, script, state, derived_at) \
                     SELECT id, ?2, scope, ?3, iif(EXISTS (SELECT 1 FROM address_source_chains c \
                     JOIN addresses a ON a.chain = c.chain AND a.script = ?3 \
                     WHERE c.source = ?1 AND c.is_listed = 1), 'skipped', 'free'), ?4 \
                     FROM address_sources WHERE id = ?1 \
                     ON CONFLICT (scope, script) DO NOTHING",
                )?
                .execute(params![source, number, script, now])?;
        }
        Ok(true)
    }

    /// Watches addresses that were handed out before a chain was there on it too, at most `limit` of them.
    /// How many there were to look at.
    pub fn spread_addresses(&mut self, source: i64, limit: u32) -> Result<u64, StoreError> {
        let waiting: Option<(i64, i64, i64)> = self
            .conn()
            .prepare_cached(
                "SELECT chain, spread_from, spread_to FROM address_source_chains \
                 WHERE source = ?1 AND is_listed = 1 AND spread_from < spread_to LIMIT 1",
            )?
            .query_row([source], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((chain, from, to)) = waiting else {
            return Ok(0);
        };
        let until = (from + i64::from(limit)).min(to);
        let scripts = self.spread_scripts((source, chain), (from, until))?;
        for (script, merchant, reference) in &scripts {
            let rule = NewAddress {
                script: script.clone(),
                kind: AddressKind::Watch,
                merchant,
                internal: "ignore",
                reference,
            };
            self.add_taken(ChainKey(chain), &rule)?;
        }
        self.conn()
            .prepare_cached(
                "UPDATE address_source_chains SET spread_from = ?3 WHERE source = ?1 AND chain = ?2",
            )?
            .execute(params![source, chain, until])?;
        uint(until - from)
    }

    /// Taken addresses of a stretch that the chain has no rule for, with those of another one.
    fn spread_scripts(
        &self,
        (source, chain): (i64, i64),
        (from, until): (i64, i64),
    ) -> Result<Vec<(Script, String, String)>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT p.script, m.slug, a.reference FROM pool_addresses p \
             JOIN address_source_chains c ON c.source = p.source AND c.chain <> ?2 \
             JOIN addresses a ON a.chain = c.chain AND a.script = p.script \
             JOIN merchants m ON m.id = a.merchant \
             WHERE p.source = ?1 AND p.number >= ?3 AND p.number < ?4 AND p.state = 'taken' \
             AND NOT EXISTS (SELECT 1 FROM addresses b WHERE b.chain = ?2 AND b.script = p.script) \
             GROUP BY p.script",
        )?;
        let rows = statement.query_map(params![source, chain, from, until], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

fn taken(
    chain: ChainKey,
    on: Vec<(ChainKey, AddressKey)>,
    script: Script,
    source: String,
    number: i64,
) -> Result<TakenAddress, StoreError> {
    let asked = on.iter().find(|(known, _)| *known == chain);
    let lost = || StoreError::Corrupt("an address was taken on other chains alone".to_owned());
    let address = asked.ok_or_else(lost)?.1;
    Ok(TakenAddress {
        address,
        on,
        script,
        source,
        number: u32::try_from(number).map_err(|_| lost())?,
    })
}
