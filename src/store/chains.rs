//! Chains: who they are, the headers that we hold, the cursor, and the follower's named state.

use super::assets::NewAsset;
use super::codec::{int, uint};
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::chain_state::ChainState;
use crate::rules::{BlockHash, ChainId, Header, HeldHeader, ListVersion};
use rusqlite::{OptionalExtension, Row, params};

/// The database's own number of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainKey(pub(super) i64);

/// A chain as the database knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainRow {
    /// Its key in this database.
    pub key: ChainKey,
    /// Its identity.
    pub id: ChainId,
    /// Its genesis block; `None` of an EVM chain whose nodes were not asked yet.
    pub genesis: Option<BlockHash>,
    /// The config's short name.
    pub alias: String,
    /// The first height that is read; `None` before the first start.
    pub start_height: Option<u64>,
    /// The last connected block; `None` before the first start.
    pub cursor: Option<HeldHeader>,
    /// EVM: the highest of our blocks that the nodes called safe.
    pub safe: Option<u64>,
    /// EVM: the highest of our blocks that the nodes called final.
    pub finalized: Option<u64>,
    /// The number of the last applied mempool list.
    pub mempool_poll: i64,
    /// When the last list was applied, Unix milliseconds.
    pub list_applied_at: Option<i64>,
    /// The follower's state.
    pub state: ChainState,
    /// The reason for it, in words.
    pub state_reason: String,
    /// Since when, Unix milliseconds.
    pub state_since: i64,
    /// The height of the node's tip when it was last asked.
    pub node_tip_height: Option<u64>,
    /// When the node last answered, Unix milliseconds.
    pub node_seen_at: Option<i64>,
}

/// The longest reason that is kept: the body of an event stays far below 20 kB.
const REASON_CHARS_MAX: usize = 1_000;

const CHAIN_COLUMNS: &str = "id, caip, genesis, alias, start_height, cursor_height, mempool_poll, \
 list_applied_at, \
     state, state_reason, state_since, node_tip_height, node_seen_at, safe_height, finalized_height";

const HEADER_COLUMNS: &str = "height, hash, parent, time_secs, bits, work, chainwork";

fn header_row(row: &Row<'_>) -> Result<HeldHeader, StoreError> {
    Ok(HeldHeader {
        height: uint(row.get(0)?)?,
        header: bare_header(row, 1)?,
        chainwork: row.get(6)?,
    })
}

/// A header from the columns `hash, parent, time_secs, bits, work` that start at `first`.
pub(super) fn bare_header(row: &Row<'_>, first: usize) -> Result<Header, StoreError> {
    Ok(Header {
        hash: row.get(first)?,
        parent: row.get(first + 1)?,
        time_secs: uint(row.get(first + 2)?)?,
        bits: row.get(first + 3)?,
        work: row.get(first + 4)?,
    })
}

impl ReadTx<'_> {
    /// A chain by its identity.
    pub fn chain(&self, id: &ChainId) -> Result<Option<ChainRow>, StoreError> {
        let sql = format!("SELECT {CHAIN_COLUMNS} FROM chains WHERE caip = ?1");
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query([id.as_str()])?;
        rows.next()?.map(|row| self.chain_row(row)).transpose()
    }

    /// A chain by its key.
    pub fn chain_by_key(&self, key: ChainKey) -> Result<ChainRow, StoreError> {
        let sql = format!("SELECT {CHAIN_COLUMNS} FROM chains WHERE id = ?1");
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query([key.0])?;
        match rows.next()? {
            Some(row) => self.chain_row(row),
            None => Err(StoreError::Corrupt(format!(
                "chain {} is not in the database",
                key.0
            ))),
        }
    }

    /// What never changes of a chain: its identity and its genesis block.
    pub(super) fn chain_identity(&self, key: ChainKey) -> Result<(ChainId, Option<BlockHash>), StoreError> {
        self.recall.chain(key, || {
            let mut statement = self
                .conn()
                .prepare_cached("SELECT caip, genesis FROM chains WHERE id = ?1")?;
            Ok(statement.query_row([key.0], |row| {
                Ok((ChainId::from_stored(row.get(0)?), row.get(1)?))
            })?)
        })
    }

    /// The chain of a stored transaction.
    pub(super) fn chain_of_tx(&self, tx: i64) -> Result<ChainId, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT c.caip FROM txs t JOIN chains c ON c.id = t.chain WHERE t.id = ?1")?;
        Ok(ChainId::from_stored(statement.query_row([tx], |row| row.get(0))?))
    }

    /// Every chain that was ever followed.
    pub fn chains(&self) -> Result<Vec<ChainRow>, StoreError> {
        self.chains_where("caip NOT GLOB 'ext:*'")
    }

    pub(super) fn chains_where(&self, filter: &str) -> Result<Vec<ChainRow>, StoreError> {
        let sql = format!("SELECT {CHAIN_COLUMNS} FROM chains WHERE {filter} ORDER BY id");
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query([])?;
        let mut chains = Vec::new();
        while let Some(row) = rows.next()? {
            chains.push(self.chain_row(row)?);
        }
        Ok(chains)
    }

    fn chain_row(&self, row: &Row<'_>) -> Result<ChainRow, StoreError> {
        let key = ChainKey(row.get(0)?);
        let cursor = match row.get::<_, Option<i64>>(5)? {
            Some(height) => Some(self.header_at(key, uint(height)?)?.ok_or_else(|| {
                StoreError::Contradiction(format!(
                    "the cursor stands at height {height}, whose header is not held"
                ))
            })?),
            None => None,
        };
        let word: String = row.get(8)?;
        Ok(ChainRow {
            key,
            id: ChainId::from_stored(row.get(1)?),
            genesis: row.get(2)?,
            alias: row.get(3)?,
            start_height: row.get::<_, Option<i64>>(4)?.map(uint).transpose()?,
            cursor,
            mempool_poll: row.get(6)?,
            list_applied_at: row.get(7)?,
            state: ChainState::from_word(&word)
                .ok_or_else(|| StoreError::Corrupt(format!("chain state {word:?}")))?,
            state_reason: row.get(9)?,
            state_since: row.get(10)?,
            node_tip_height: row.get::<_, Option<i64>>(11)?.map(uint).transpose()?,
            node_seen_at: row.get(12)?,
            safe: row.get::<_, Option<i64>>(13)?.map(uint).transpose()?,
            finalized: row.get::<_, Option<i64>>(14)?.map(uint).transpose()?,
        })
    }

    /// The header that we hold at a height.
    pub fn header_at(&self, chain: ChainKey, height: u64) -> Result<Option<HeldHeader>, StoreError> {
        self.recall.header(chain, height, || {
            let sql = format!("SELECT {HEADER_COLUMNS} FROM headers WHERE chain = ?1 AND height = ?2");
            let mut statement = self.conn().prepare_cached(&sql)?;
            let mut rows = statement.query(params![chain.0, int(height)?])?;
            rows.next()?.map(header_row).transpose()
        })
    }

    /// The hash of the block that we hold at a height.
    pub(super) fn hash_at(&self, chain: ChainKey, height: u64) -> Result<Option<BlockHash>, StoreError> {
        Ok(self.header_at(chain, height)?.map(|held| held.header.hash))
    }

    /// The lowest header that we hold at or above a height: below the reorg window not every header is kept.
    pub fn header_at_or_above(&self, chain: ChainKey, height: u64) -> Result<Option<HeldHeader>, StoreError> {
        // Nearly always there is one at that height, and it is the same for many of a block's payments.
        if let Some(held) = self.header_at(chain, height)? {
            return Ok(Some(held));
        }
        let sql = format!(
            "SELECT {HEADER_COLUMNS} FROM headers WHERE chain = ?1 AND height >= ?2 ORDER BY height LIMIT 1"
        );
        let mut statement = self.conn().prepare_cached(&sql)?;
        let mut rows = statement.query(params![chain.0, int(height)?])?;
        rows.next()?.map(header_row).transpose()
    }

    /// Heights and hashes of the headers that we hold from `height` up to the cursor, highest first.
    pub fn hashes_down_to(&self, chain: ChainKey, height: u64) -> Result<Vec<(u64, BlockHash)>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT height, hash FROM headers WHERE chain = ?1 AND height >= ?2 ORDER BY height DESC",
        )?;
        let mut rows = statement.query(params![chain.0, int(height)?])?;
        let mut hashes = Vec::new();
        while let Some(row) = rows.next()? {
            hashes.push((uint(row.get(0)?)?, row.get(1)?));
        }
        Ok(hashes)
    }

    /// The current version of the watch rules.
    pub fn list_version(&self) -> Result<ListVersion, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached("SELECT list_version FROM meta WHERE id = 1")?;
        Ok(ListVersion(statement.query_row([], |row| row.get(0))?))
    }

    /// The generation of this database: part of every version number.
    pub fn generation(&self) -> Result<i64, StoreError> {
        self.recall
            .generation(|| super::database::generation(self.conn()))
    }
}

/// What is needed to make a chain known to the database.
#[derive(Clone, Debug)]
pub struct NewChain {
    /// Its identity.
    pub id: ChainId,
    /// Its genesis block: pinned, so that an identity never stands for two chains. `None` where only the
    /// nodes can tell it.
    pub genesis: Option<BlockHash>,
    /// The config's short name, for people only.
    pub alias: String,
    /// What can be paid on it.
    pub assets: Vec<NewAsset>,
}

impl WriteTx<'_> {
    /// Makes a chain known, or returns it as it is. Alias and symbol follow the config; everything else is
    /// pinned.
    ///
    /// # Errors
    /// `Refused` when the identity is known with another genesis block.
    pub fn ensure_chain(&mut self, new: &NewChain) -> Result<ChainRow, StoreError> {
        self.conn()
            .prepare_cached(
                "INSERT INTO chains (caip, genesis, alias) VALUES (?1, ?2, ?3) ON CONFLICT (caip) DO NOTHING",
            )?
            .execute(params![new.id.as_str(), new.genesis, new.alias])?;
        let chain = self
            .chain(&new.id)?
            .ok_or_else(|| StoreError::Corrupt("a chain vanished".into()))?;
        if let Some(genesis) = new.genesis {
            self.pin_genesis(chain.key, genesis)?;
        }
        if chain.alias != new.alias {
            self.conn().execute(
                "UPDATE chains SET alias = ?2 WHERE id = ?1",
                params![chain.key.0, new.alias],
            )?;
        }
        self.ensure_assets(&chain, &new.assets)?;
        self.chain_by_key(chain.key)
    }

    /// Pins the genesis block of a chain.
    ///
    /// # Errors
    /// `Refused` when it is known with another one.
    pub fn pin_genesis(&mut self, chain: ChainKey, genesis: BlockHash) -> Result<(), StoreError> {
        let (id, known) = self.chain_identity(chain)?;
        match known {
            Some(known) if known == genesis => Ok(()),
            Some(known) => Err(StoreError::Refused(format!(
                "{id} is known with genesis block {}, this one has {}: give the other chain another instance \
                 name",
                id.print(known),
                id.print(genesis)
            ))),
            None => {
                self.conn().execute(
                    "UPDATE chains SET genesis = ?2 WHERE id = ?1",
                    params![chain.0, genesis],
                )?;
                Ok(())
            }
        }
    }

    /// Sets the cursor of a chain that has none: the block before the first one that is read. Rules added
    /// before this moment count from the first block.
    pub fn anchor(&mut self, chain: ChainKey, at: &HeldHeader) -> Result<(), StoreError> {
        let start = int(at.height + 1)?;
        self.insert_header(chain, at)?;
        let changed = self.conn().execute(
            "UPDATE chains SET start_height = ?2, cursor_height = ?3 WHERE id = ?1 AND cursor_height IS NULL",
            params![chain.0, start, int(at.height)?],
        )?;
        if changed != 1 {
            return Err(StoreError::Contradiction(
                "this chain has a cursor already".into(),
            ));
        }
        self.conn().execute(
            "UPDATE addresses SET from_height = ?2 WHERE chain = ?1 AND from_height IS NULL",
            params![chain.0, start],
        )?;
        self.conn().execute(
            "UPDATE assets SET from_height = ?2 WHERE chain = ?1 AND from_height IS NULL",
            params![chain.0, start],
        )?;
        self.conn().execute(
            "UPDATE invoices SET birth_height = ?2 WHERE chain = ?1 AND birth_height IS NULL",
            params![chain.0, start],
        )?;
        let (id, _) = self.chain_identity(chain)?;
        self.cursor_moved(id.as_str(), at.height);
        Ok(())
    }

    /// Holds the headers below the block that a chain is about to be anchored at, in order, so that a reorg
    /// which crosses the start is an ordinary one.
    pub fn hold_below(&mut self, chain: ChainKey, headers: &[HeldHeader]) -> Result<(), StoreError> {
        let is_linked = headers.windows(2).all(|pair| match pair {
            [below, above] => above.header.parent == below.header.hash,
            _ => true,
        });
        if !is_linked {
            return Err(StoreError::Contradiction(
                "the headers below the start are not linked".into(),
            ));
        }
        headers
            .iter()
            .try_for_each(|held| self.insert_header(chain, held))
    }

    pub(super) fn insert_header(&mut self, chain: ChainKey, held: &HeldHeader) -> Result<(), StoreError> {
        let header = &held.header;
        self.conn()
            .prepare_cached(
                "INSERT INTO headers (chain, height, hash, parent, time_secs, bits, work, chainwork) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                chain.0,
                int(held.height)?,
                header.hash,
                header.parent,
                int(header.time_secs)?,
                i64::from(header.bits),
                header.work,
                held.chainwork
            ])?;
        Ok(())
    }

    /// Moves the cursor from one height to the next or to the one before; both are named so that two writers
    /// cannot both believe that they moved it.
    pub(super) fn move_cursor(&mut self, chain: ChainKey, from: u64, to: u64) -> Result<(), StoreError> {
        let changed = self
            .conn()
            .prepare_cached("UPDATE chains SET cursor_height = ?3 WHERE id = ?1 AND cursor_height = ?2")?
            .execute(params![chain.0, int(from)?, int(to)?])?;
        if changed != 1 {
            return Err(StoreError::Contradiction(format!(
                "the cursor is not at height {from}"
            )));
        }
        Ok(())
    }

    /// Notes what the node last said of its height, for people.
    pub fn note_node(&mut self, chain: ChainKey, tip_height: u64) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.conn()
            .prepare_cached("UPDATE chains SET node_tip_height = ?2, node_seen_at = ?3 WHERE id = ?1")?
            .execute(params![chain.0, int(tip_height)?, now])?;
        Ok(())
    }

    /// Records the follower's named state. Entering or leaving a halt writes its event; the same state again,
    /// with the same reason, is nothing.
    pub fn set_chain_state(
        &mut self,
        chain: ChainKey,
        to: ChainState,
        reason: &str,
    ) -> Result<(), StoreError> {
        let row = self.chain_by_key(chain)?;
        // Reasons quote what nodes say, and events quote reasons.
        let reason = reason
            .char_indices()
            .nth(REASON_CHARS_MAX)
            .map_or(reason, |(end, _)| &reason[..end]);
        if row.state == to && row.state_reason == reason {
            return Ok(());
        }
        // A node that goes away does not end a halt, and a halt that nothing ended is not announced as over.
        if row.state.is_halt() && !to.ends_halt() {
            return Ok(());
        }
        let since = if row.state == to {
            row.state_since
        } else {
            self.now_ms()
        };
        self.conn().execute(
            "UPDATE chains SET state = ?2, state_reason = ?3, state_since = ?4 WHERE id = ?1",
            params![chain.0, to.word(), reason, since],
        )?;
        if row.state == to {
            return Ok(());
        }
        let cause = if reason.is_empty() {
            "the node and the database agree"
        } else {
            reason
        };
        self.audit_chain(chain, "state", row.state.word(), to.word(), cause)?;
        match (row.state.is_halt(), to.is_halt()) {
            (false, true) => self.chain_event(&row, "chain.halted", to, reason),
            (true, false) => self.chain_event(&row, "chain.resumed", to, reason),
            (true, true) | (false, false) => Ok(()),
        }
    }

    pub(super) fn audit_chain(
        &mut self,
        chain: ChainKey,
        action: &str,
        from: &str,
        to: &str,
        cause: &str,
    ) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.conn()
            .prepare_cached(
                "INSERT INTO audit (at, chain, action, from_state, to_state, cause) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![now, chain.0, action, from, to, cause])?;
        Ok(())
    }

    /// The header at a height that must be there: one of the window, or one that an output keeps.
    pub(super) fn held(&self, chain: ChainKey, height: u64) -> Result<HeldHeader, StoreError> {
        self.header_at(chain, height)?
            .ok_or_else(|| StoreError::Contradiction(format!("no header is held at height {height}")))
    }
}

/// One column of one row, or `None` when there is no row.
pub(super) fn one<T: rusqlite::types::FromSql>(
    conn: &rusqlite::Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> Result<Option<T>, StoreError> {
    Ok(conn
        .prepare_cached(sql)?
        .query_row(params, |row| row.get(0))
        .optional()?)
}
