//! Watch rules: which scripts are ours, whose they are, and from which height on they count. A rule is added
//! once and stays; adding it again changes nothing.

use super::chains::{ChainKey, ChainRow, one};
use super::codec::int;
use super::{ReadTx, StoreError, WriteTx};
use crate::address;
use crate::rules::Script;
use rusqlite::{OptionalExtension, params};
use std::collections::BTreeMap;
use thiserror::Error;

/// The database's own number of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressKey(pub(super) i64);

/// What a rule makes of payments to its script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// They are deposits.
    Watch,
    /// They are moves of own coin.
    Own,
}

impl AddressKind {
    /// The word in the database, in JSON and in tables.
    pub fn word(self) -> &'static str {
        match self {
            AddressKind::Watch => "watch",
            AddressKind::Own => "own",
        }
    }

    /// Reads [`AddressKind::word`] back.
    pub fn from_word(word: &str) -> Option<AddressKind> {
        [AddressKind::Watch, AddressKind::Own]
            .into_iter()
            .find(|kind| kind.word() == word)
    }
}

/// A rule to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAddress<'a> {
    /// The script.
    pub script: Script,
    /// What payments to it are.
    pub kind: AddressKind,
    /// The merchant's slug; the merchant is made at its first use.
    pub merchant: &'a str,
    /// `ignore`, `hold` or `credit`: what own transfers of a merchant are that is made here.
    pub internal: &'a str,
    /// What the address is for, in the operator's words.
    pub reference: &'a str,
}

/// What became of a rule to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressAdded {
    /// It is new.
    Added,
    /// It was there already, for this merchant; nothing changed.
    Known,
    /// It cannot be.
    Conflict(AddressConflict),
}

/// Why a script cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressConflict {
    /// One address belongs to one merchant, or nobody could say whose payment it is.
    #[error("belongs to merchant {0} already")]
    OtherMerchant(String),
    /// Payments to it are deposits; as an own address they would silently stop being any.
    #[error("is watched already, and cannot be both watched and own")]
    IsWatched,
    /// It is declared as own.
    #[error("is declared as the merchant's own already, and cannot be both own and watched")]
    IsOwn,
}

impl ReadTx<'_> {
    /// The key of the rule of a script.
    ///
    /// # Errors
    /// Those of the database.
    pub fn address_key(&self, chain: ChainKey, script: &Script) -> Result<Option<AddressKey>, StoreError> {
        let sql = "SELECT id FROM addresses WHERE chain = ?1 AND script = ?2";
        Ok(one(self.conn(), sql, params![chain.0, script])?.map(AddressKey))
    }
}

impl WriteTx<'_> {
    /// Adds rules to a chain; the outcomes are in their order. They count from the block after the cursor, or
    /// from the chain's start where it has none yet. The list version rises once if anything is new, so that
    /// a follower tries the block that it has under way again.
    ///
    /// # Errors
    /// Those of the database; a rule that cannot be is an outcome.
    pub fn add_addresses(
        &mut self,
        chain: ChainKey,
        rules: &[NewAddress<'_>],
    ) -> Result<Vec<AddressAdded>, StoreError> {
        let row = self.chain_by_key(chain)?;
        let scope = match row.id.is_evm() {
            true => "evm",
            false => row.id.as_str(),
        };
        let from = counts_from(&row)?;
        let version = self.list_version()?.0 + 1;
        let mut merchants = BTreeMap::new();
        let mut outcomes = Vec::with_capacity(rules.len());
        for rule in rules {
            let outcome = match self.known_address(chain, rule)? {
                Some(known) => known,
                None => {
                    let merchant = self.merchant(rule, &mut merchants)?;
                    self.insert_address(chain, rule, merchant, (from, version))?;
                    self.skip_known(scope, &rule.script)?;
                    AddressAdded::Added
                }
            };
            outcomes.push(outcome);
        }
        let is_new = |(_, outcome): &(&NewAddress<'_>, &AddressAdded)| **outcome == AddressAdded::Added;
        let mut added = rules.iter().zip(&outcomes).filter(is_new);
        if let Some((first, _)) = added.next() {
            let more = added.count();
            self.conn()
                .execute("UPDATE meta SET list_version = ?1 WHERE id = 1", [version])?;
            self.audit_addresses(&row, first, more)?;
        }
        Ok(outcomes)
    }

    /// Adds the rule of an address that is handed out. It must be new.
    pub(super) fn add_taken(
        &mut self,
        chain: ChainKey,
        rule: &NewAddress<'_>,
    ) -> Result<AddressKey, StoreError> {
        let row = self.chain_by_key(chain)?;
        let from = counts_from(&row)?;
        let version = self.list_version()?.0 + 1;
        let merchant = self.merchant(rule, &mut BTreeMap::new())?;
        self.insert_address(chain, rule, merchant, (from, version))?;
        let key = self.conn().last_insert_rowid();
        self.conn()
            .prepare_cached("UPDATE meta SET list_version = ?1 WHERE id = 1")?
            .execute([version])?;
        Ok(AddressKey(key))
    }

    fn known_address(
        &self,
        chain: ChainKey,
        rule: &NewAddress<'_>,
    ) -> Result<Option<AddressAdded>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT m.slug, a.kind FROM addresses a JOIN merchants m ON m.id = a.merchant \
             WHERE a.chain = ?1 AND a.script = ?2",
        )?;
        let known: Option<(String, String)> = statement
            .query_row(params![chain.0, rule.script], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        let Some((merchant, kind)) = known else {
            return Ok(None);
        };
        Ok(Some(match (rule.kind, AddressKind::from_word(&kind)) {
            _ if merchant != rule.merchant => {
                AddressAdded::Conflict(AddressConflict::OtherMerchant(merchant))
            }
            (AddressKind::Own, Some(AddressKind::Watch)) => {
                AddressAdded::Conflict(AddressConflict::IsWatched)
            }
            (AddressKind::Watch, Some(AddressKind::Own)) => AddressAdded::Conflict(AddressConflict::IsOwn),
            (AddressKind::Watch, Some(AddressKind::Watch)) | (AddressKind::Own, Some(AddressKind::Own)) => {
                AddressAdded::Known
            }
            (_, None) => return Err(StoreError::Corrupt(format!("address kind {kind:?}"))),
        }))
    }

    fn merchant<'r>(
        &mut self,
        rule: &NewAddress<'r>,
        known: &mut BTreeMap<&'r str, i64>,
    ) -> Result<i64, StoreError> {
        if let Some(merchant) = known.get(rule.merchant) {
            return Ok(*merchant);
        }
        let now = self.now_ms();
        self.conn()
            .prepare_cached(
                "INSERT INTO merchants (slug, internal, created_at) VALUES (?1, ?2, ?3) \
                 ON CONFLICT DO NOTHING",
            )?
            .execute(params![rule.merchant, rule.internal, now])?;
        let merchant = one(
            self.conn(),
            "SELECT id FROM merchants WHERE slug = ?1",
            [rule.merchant],
        )?;
        let merchant = merchant.ok_or_else(|| StoreError::Corrupt("a merchant vanished".into()))?;
        known.insert(rule.merchant, merchant);
        Ok(merchant)
    }

    fn insert_address(
        &mut self,
        chain: ChainKey,
        rule: &NewAddress<'_>,
        merchant: i64,
        (from, version): (Option<i64>, i64),
    ) -> Result<(), StoreError> {
        let now = self.now_ms();
        self.conn()
            .prepare_cached(
                "INSERT INTO addresses \
                 (chain, script, kind, merchant, reference, from_height, version, added_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                chain.0,
                rule.script,
                rule.kind.word(),
                merchant,
                rule.reference,
                from,
                version,
                now
            ])?;
        Ok(())
    }

    /// One row per transaction: a million imported addresses are one act of the operator, in a hundred steps.
    fn audit_addresses(
        &mut self,
        chain: &ChainRow,
        first: &NewAddress<'_>,
        more: usize,
    ) -> Result<(), StoreError> {
        let text = address::print_on(&chain.id, chain.genesis.as_ref(), &first.script);
        let text = text.unwrap_or_else(|| "a script without an address".to_owned());
        let mut cause = format!("{text} for merchant {}", first.merchant);
        if more > 0 {
            cause.push_str(&format!(", and {more} more"));
        }
        let now = self.now_ms();
        self.conn()
            .prepare_cached(
                "INSERT INTO audit (at, chain, action, cause, actor) VALUES (?1, ?2, ?3, ?4, 'operator')",
            )?
            .execute(params![now, chain.key.0, first.kind.word(), cause])?;
        Ok(())
    }
}

/// From which height on a new rule, or a new invoice, counts: after the cursor, or where the chain starts.
pub(super) fn counts_from(row: &ChainRow) -> Result<Option<i64>, StoreError> {
    match (&row.cursor, row.start_height) {
        (Some(tip), _) => Ok(Some(int(tip.height + 1)?)),
        (None, start) => start.map(int).transpose(),
    }
}
