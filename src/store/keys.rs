//! API keys: made, found by their hash, revoked. What a key is for is decided elsewhere.

use super::chains::one;
use super::{ReadTx, StoreError, WriteTx};
use crate::rules::api_key::{KeyHash, Scope};
use rusqlite::{Row, params};

/// Keys of one owner and name that live at once: one, and the one that takes its place.
const LIVE_MAX: usize = 2;

/// Whose a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOwner {
    /// A merchant's.
    Merchant {
        /// The database's own number.
        key: i64,
        /// Its name.
        slug: String,
    },
    /// An operator's.
    Operator,
}

/// Whether a key can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// It can.
    Live,
    /// Its time is over.
    Expired,
    /// An operator ended it.
    Revoked,
}

impl KeyState {
    /// Its word in tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            KeyState::Live => "live",
            KeyState::Expired => "expired",
            KeyState::Revoked => "revoked",
        }
    }
}

/// A key to make.
#[derive(Clone, Debug)]
pub struct NewApiKey<'a> {
    /// Whose; `None` = an operator's.
    pub merchant: Option<&'a str>,
    /// What it is used by.
    pub name: &'a str,
    /// What for.
    pub scopes: &'a [Scope],
    /// Its hash.
    pub hash: KeyHash,
    /// When it ends by itself, Unix milliseconds.
    pub expires_at: Option<i64>,
}

/// A key, without its secret.
#[derive(Clone, Debug)]
pub struct ApiKeyRow {
    /// Its public id.
    pub id: String,
    /// Whose it is.
    pub owner: KeyOwner,
    /// What it is used by.
    pub name: String,
    /// What for.
    pub scopes: Vec<Scope>,
    /// Its hash.
    hash: KeyHash,
    /// Unix milliseconds.
    pub created_at: i64,
    /// When it ends by itself.
    pub expires_at: Option<i64>,
    /// When it was ended.
    pub revoked_at: Option<i64>,
    /// When it was used last, to the minute.
    pub last_used_at: Option<i64>,
}

impl ApiKeyRow {
    /// Whether it can be used at a moment.
    pub fn state(&self, now_ms: i64) -> KeyState {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => KeyState::Revoked,
            (None, Some(end)) if end <= now_ms => KeyState::Expired,
            (None, _) => KeyState::Live,
        }
    }
}

const KEY_SELECT: &str = "SELECT k.key_id, k.merchant, m.slug, k.name, k.scopes, k.hash, k.created_at, \
     k.expires_at, k.revoked_at, k.last_used_at \
     FROM api_keys k LEFT JOIN merchants m ON m.id = k.merchant";

fn key_row(row: &Row<'_>) -> Result<ApiKeyRow, StoreError> {
    let owner: (Option<i64>, Option<String>) = (row.get(1)?, row.get(2)?);
    let words: String = row.get(4)?;
    let scope = |word| Scope::from_word(word).ok_or_else(|| StoreError::Corrupt(format!("scope {word:?}")));
    let id: String = row.get(0)?;
    Ok(ApiKeyRow {
        owner: match owner {
            (Some(key), Some(slug)) => KeyOwner::Merchant { key, slug },
            (None, _) => KeyOwner::Operator,
            // It must not become an operator's by that.
            (Some(_), None) => return Err(StoreError::Corrupt(format!("the merchant of {id} is gone"))),
        },
        id,
        name: row.get(3)?,
        scopes: words.split_whitespace().map(scope).collect::<Result<_, _>>()?,
        hash: KeyHash(row.get(5)?),
        created_at: row.get(6)?,
        expires_at: row.get(7)?,
        revoked_at: row.get(8)?,
        last_used_at: row.get(9)?,
    })
}

impl ReadTx<'_> {
    /// All keys, oldest first.
    ///
    /// # Errors
    /// Those of the database.
    pub fn api_keys(&self) -> Result<Vec<ApiKeyRow>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached(&format!("{KEY_SELECT} ORDER BY k.id"))?;
        let mut rows = statement.query([])?;
        let mut keys = Vec::new();
        while let Some(row) = rows.next()? {
            keys.push(key_row(row)?);
        }
        Ok(keys)
    }

    /// The key of this hash, live or not. It is looked up by an id that is made of the hash, and the hash
    /// itself is compared in constant time.
    ///
    /// # Errors
    /// Those of the database.
    pub fn api_key(&self, hash: &KeyHash) -> Result<Option<ApiKeyRow>, StoreError> {
        let found = self.api_key_of_id(&hash.id())?;
        Ok(found.filter(|key| key.hash.is(hash)))
    }

    /// The key of a public id.
    ///
    /// # Errors
    /// Those of the database.
    pub fn api_key_of_id(&self, id: &str) -> Result<Option<ApiKeyRow>, StoreError> {
        let mut statement = self
            .conn()
            .prepare_cached(&format!("{KEY_SELECT} WHERE k.key_id = ?1"))?;
        let mut rows = statement.query([id])?;
        rows.next()?.map(key_row).transpose()
    }
}

impl WriteTx<'_> {
    /// Makes a key. The merchant must be there: a misspelt one would get a key of its own.
    ///
    /// # Errors
    /// `Refused` for an unknown merchant, and where two keys of that name live already.
    pub fn add_api_key(&mut self, new: &NewApiKey<'_>) -> Result<ApiKeyRow, StoreError> {
        let now = self.now_ms();
        let merchant = match new.merchant {
            None => None,
            Some(slug) => {
                let known: Option<i64> =
                    one(self.conn(), "SELECT id FROM merchants WHERE slug = ?1", [slug])?;
                Some(known.ok_or_else(|| {
                    StoreError::Refused(format!(
                        "there is no merchant {slug}: `creditd merchant add {slug}` makes it"
                    ))
                })?)
            }
        };
        let is_twin = |key: &ApiKeyRow| {
            let owner = match &key.owner {
                KeyOwner::Merchant { key, .. } => Some(*key),
                KeyOwner::Operator => None,
            };
            owner == merchant && key.name == new.name && key.state(now) == KeyState::Live
        };
        let live: Vec<_> = self.api_keys()?.into_iter().filter(is_twin).collect();
        if live.len() >= LIVE_MAX {
            let ids: Vec<&str> = live.iter().map(|key| key.id.as_str()).collect();
            return Err(StoreError::Refused(format!(
                "two keys named {} live already ({}): `creditd key revoke` ends one",
                new.name,
                ids.join(", ")
            )));
        }
        let words: Vec<&str> = new.scopes.iter().map(|scope| scope.word()).collect();
        let id = new.hash.id();
        self.conn().execute(
            "INSERT INTO api_keys (key_id, merchant, name, scopes, hash, created_at, expires_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                id,
                merchant,
                new.name,
                words.join(" "),
                new.hash.0,
                now,
                new.expires_at
            ],
        )?;
        self.audit_key(&id, "key", &format!("made for {}", words.join(" ")))?;
        let made = self.api_key_of_id(&id)?;
        made.ok_or_else(|| StoreError::Corrupt("a key vanished".into()))
    }

    /// Ends a key at once. False when it is revoked already.
    ///
    /// # Errors
    /// `Refused` where there is none.
    pub fn revoke_api_key(&mut self, id: &str, reason: &str) -> Result<bool, StoreError> {
        let known = self.api_key_of_id(id)?;
        let Some(known) = known else {
            return Err(StoreError::Refused(format!(
                "there is no key {id}: `creditd key list` shows ids"
            )));
        };
        if known.revoked_at.is_some() {
            return Ok(false);
        }
        self.conn().execute(
            "UPDATE api_keys SET revoked_at = ?2 WHERE key_id = ?1",
            params![id, self.now_ms()],
        )?;
        self.audit_key(id, "key-revoke", reason)?;
        Ok(true)
    }

    /// Notes that a key was used. A clock that was ahead is not believed for ever.
    ///
    /// # Errors
    /// Those of the database.
    pub fn api_key_used(&mut self, id: &str) -> Result<(), StoreError> {
        self.conn()
            .prepare_cached("UPDATE api_keys SET last_used_at = ?2 WHERE key_id = ?1")?
            .execute(params![id, self.now_ms()])?;
        Ok(())
    }

    fn audit_key(&mut self, id: &str, action: &str, words: &str) -> Result<(), StoreError> {
        self.conn().execute(
            "INSERT INTO audit (at, action, cause, actor) VALUES (?1, ?2, ?3, 'operator')",
            params![self.now_ms(), action, format!("{id}: {words}")],
        )?;
        Ok(())
    }
}
