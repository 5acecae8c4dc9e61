//! Assets: what can be paid on a chain. A token is a matching rule like an address: it counts from the height
//! at which it was first listed, or what somebody was sent long before would be credited.

use super::chains::{ChainKey, ChainRow, one};
use super::codec::{int, uint};
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::{Asset, ChainId};
use rusqlite::params;

/// What can be paid on a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAsset {
    /// The coin, or the token's contract.
    pub asset: Asset,
    /// CAIP-19 id.
    pub caip: String,
    /// Its symbol, for people only.
    pub symbol: String,
    /// Its decimals.
    pub decimals: u8,
    /// Nothing below this height counts where it is listed anew.
    pub from: Option<u64>,
}

/// The database's own number of an asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssetKey(pub(super) i64);

/// An asset as the database knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownAsset {
    /// Its key in this database.
    pub key: AssetKey,
    /// Its chain.
    pub chain: ChainKey,
    /// CAIP-19 id.
    pub caip: String,
    /// The token's contract; `None` = the chain's own coin.
    pub contract: Option<[u8; 20]>,
    /// Its symbol, for people only.
    pub symbol: String,
    /// Its decimals.
    pub decimals: u8,
    /// The config of the last start lists it, if it still had the chain; always so of what a source of
    /// webhooks told of.
    pub is_listed: bool,
}

impl NewAsset {
    /// Bitcoin's coin.
    pub fn bitcoin(chain: &ChainId, symbol: impl Into<String>) -> NewAsset {
        NewAsset {
            asset: Asset::Native,
            caip: chain.bitcoin_asset(),
            symbol: symbol.into(),
            decimals: 8,
            from: None,
        }
    }
}

impl ReadTx<'_> {
    /// From which height on inner coin is read from which source, lowest first.
    pub fn inner_sources(&self, chain: ChainKey) -> Result<Vec<(u64, String)>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT from_height, source FROM inner_sources WHERE chain = ?1 ORDER BY from_height",
        )?;
        let mut rows = statement.query([chain.0])?;
        let mut pinned = Vec::new();
        while let Some(row) = rows.next()? {
            pinned.push((uint(row.get(0)?)?, row.get(1)?));
        }
        Ok(pinned)
    }

    /// Everything that any chain could ever be paid in.
    pub fn assets(&self) -> Result<Vec<KnownAsset>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT id, chain, caip, contract, symbol, decimals, is_listed FROM assets ORDER BY id",
        )?;
        let rows = statement.query_map([], |row| {
            Ok(KnownAsset {
                key: AssetKey(row.get(0)?),
                chain: ChainKey(row.get(1)?),
                caip: row.get(2)?,
                contract: row.get(3)?,
                symbol: row.get(4)?,
                decimals: row.get(5)?,
                is_listed: row.get(6)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Does the config of the last start list this token?
    pub fn is_listed(&self, chain: ChainKey, contract: &[u8; 20]) -> Result<bool, StoreError> {
        let found = one::<i64>(
            self.conn(),
            "SELECT 1 FROM assets WHERE chain = ?1 AND contract = ?2 AND is_listed = 1",
            params![chain.0, contract],
        )?;
        Ok(found.is_some())
    }
}

impl WriteTx<'_> {
    /// A chain has one coin. Under another id the payments that are known would be others, and count again.
    fn refuse_other_coin(&self, chain: &ChainRow, caip: &str) -> Result<(), StoreError> {
        let known = one::<String>(
            self.conn(),
            "SELECT caip FROM assets WHERE chain = ?1 AND contract IS NULL",
            params![chain.key.0],
        )?;
        match known.filter(|known| known != caip) {
            None => Ok(()),
            Some(known) => Err(StoreError::Refused(format!(
                "the coin of {} is {known} in the database and {caip} in the config: payments are told with \
                 the \
                 former; correct coin_type in the config",
                chain.alias
            ))),
        }
    }

    /// Pins where inner coin is read from the next block on, `traces`, `eip7708` or `none`, and says where it
    /// is read from which height on, lowest first. What is pinned for blocks that were read stays, but for
    /// blocks in which it was not seen at all: nothing of it has a place there yet, and read again it gets
    /// one.
    pub fn pin_inner(&mut self, chain: ChainKey, source: &str) -> Result<Vec<(u64, String)>, StoreError> {
        let mut pinned = self.inner_sources(chain)?;
        if pinned.last().is_some_and(|(_, last)| last == source) {
            return Ok(pinned);
        }
        let row = self.chain_by_key(chain)?;
        let from = match (&row.cursor, pinned.last()) {
            // Of coin that is watched from now on nothing counts that came before.
            (_, None) | (None, _) => 0,
            (Some(_), Some((from, source))) if source == "none" => *from,
            (Some(tip), Some(_)) => tip.height + 1,
        };
        self.conn().execute(
            "INSERT INTO inner_sources (chain, from_height, source) VALUES (?1, ?2, ?3) \
             ON CONFLICT (chain, from_height) DO UPDATE SET source = excluded.source",
            params![chain.0, int(from)?, source],
        )?;
        // Above it stands what was pinned before the cursor went back: of blocks that are read anew.
        self.conn().execute(
            "DELETE FROM inner_sources WHERE chain = ?1 AND from_height > ?2",
            params![chain.0, int(from)?],
        )?;
        if let Some((_, before)) = pinned.last() {
            let words = format!("inner coin is read by {source} from height {from} on; before, by {before}");
            self.audit_chain(chain, "inner", before, source, &words)?;
        }
        pinned.retain(|(height, _)| *height < from);
        pinned.push((from, source.to_owned()));
        Ok(pinned)
    }

    /// Takes assets off the list that the chain itself contradicts; those listed anew count from then on.
    pub fn unlist(&mut self, chain: ChainKey, assets: &[Asset]) -> Result<(), StoreError> {
        for asset in assets {
            let contract = match asset {
                Asset::Native => None,
                Asset::Token(contract) => Some(contract.as_slice()),
            };
            self.conn().execute(
                "UPDATE assets SET is_listed = 0 WHERE chain = ?1 AND contract IS ?2",
                params![chain.0, contract],
            )?;
        }
        Ok(())
    }

    /// Decimals that were written wrongly are put right before anything was told with them, never after.
    fn correct_decimals(&mut self, chain: &ChainRow, new: &NewAsset) -> Result<(), StoreError> {
        let known = one::<u8>(
            self.conn(),
            "SELECT decimals FROM assets WHERE chain = ?1 AND caip = ?2",
            params![chain.key.0, new.caip],
        )?;
        let Some(known) = known.filter(|known| *known != new.decimals) else {
            return Ok(());
        };
        let is_told = one::<bool>(
            self.conn(),
            "SELECT EXISTS (SELECT 1 FROM outputs WHERE asset = a.id) \
             OR EXISTS (SELECT 1 FROM unattributed WHERE asset = a.id) \
             OR EXISTS (SELECT 1 FROM invoices WHERE asset = a.id) FROM assets a \
             WHERE a.chain = ?1 AND a.caip = ?2",
            params![chain.key.0, new.caip],
        )?;
        if is_told == Some(true) {
            return Err(StoreError::Refused(format!(
                "{} has {known} decimals in the database and {} in the config: amounts were told with \
                 {known}, and its contract cannot have changed; correct the config",
                new.caip, new.decimals
            )));
        }
        self.conn().execute(
            "UPDATE assets SET decimals = ?3 WHERE chain = ?1 AND caip = ?2",
            params![chain.key.0, new.caip, new.decimals],
        )?;
        let words = format!(
            "{}: the config has other decimals, and nothing was told with the former",
            new.caip
        );
        self.audit_chain(
            chain.key,
            "decimals",
            &known.to_string(),
            &new.decimals.to_string(),
            &words,
        )
    }

    /// Lists what the config names. What it names anew counts from the next block on: tokens that somebody
    /// was sent before are no payments.
    pub(super) fn ensure_assets(&mut self, chain: &ChainRow, assets: &[NewAsset]) -> Result<(), StoreError> {
        let from = match (&chain.cursor, chain.start_height) {
            (Some(tip), _) => Some(int(tip.height + 1)?),
            (None, start) => start.map(int).transpose()?,
        };
        let mut listed = Vec::new();
        for new in assets {
            let (contract, from) = match &new.asset {
                // Whoever follows a chain from its first block on has always watched its coin.
                Asset::Native if chain.cursor.is_none() => (None, Some(0)),
                Asset::Native => (None, from),
                Asset::Token(contract) => (Some(contract.as_slice()), from),
            };
            let floor = new.from.map(int).transpose()?;
            let from = from.max(floor);
            if new.asset == Asset::Native {
                self.refuse_other_coin(chain, &new.caip)?;
            }
            self.correct_decimals(chain, new)?;
            let id: i64 = self
                .conn()
                .prepare_cached(
                    "INSERT INTO assets (chain, caip, contract, symbol, decimals, from_height, is_listed) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1) ON CONFLICT (chain, caip) DO UPDATE \
                     SET symbol = excluded.symbol, is_listed = 1, from_height = \
                     iif(assets.is_listed = 1, assets.from_height, excluded.from_height) RETURNING id",
                )?
                .query_row(
                    params![chain.key.0, new.caip, contract, new.symbol, new.decimals, from],
                    |row| row.get(0),
                )?;
            listed.push(id.to_string());
        }
        self.conn().execute(
            "UPDATE assets SET is_listed = 0 WHERE chain = ?1 AND is_listed = 1 \
             AND NOT instr(?2, ',' || id || ',')",
            params![chain.key.0, format!(",{},", listed.join(","))],
        )?;
        Ok(())
    }
}
