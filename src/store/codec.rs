//! How our types stand in the database: hashes and scripts as BLOBs, amounts as decimal TEXT, states as their
//! words. What is read back is checked: a stored value that is none of ours is an error, never a default.

use super::StoreError;
use crate::rules::state::State;
use crate::rules::{Amount, Asset, BlockHash, Script, Txid, Work};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

/// A height, count or output number as SQLite's signed integer. Whoever says a number bounds it; what comes
/// through all the same is refused, and the file is as good as before.
pub(super) fn int(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::Contradiction(format!("{value} does not fit the database")))
}

/// The way back of [`int`].
pub(super) fn uint(value: i64) -> Result<u64, StoreError> {
    u64::try_from(value)
        .map_err(|_| StoreError::Corrupt(format!("{value} is stored where nothing is negative")))
}

/// The asset of a column `contract`.
pub(super) fn asset(contract: Option<Vec<u8>>) -> Result<Asset, StoreError> {
    let Some(contract) = contract else {
        return Ok(Asset::Native);
    };
    match contract.try_into() {
        Ok(contract) => Ok(Asset::Token(contract)),
        Err(_) => Err(StoreError::Corrupt("a contract that is not 20 bytes long".into())),
    }
}

fn hash32(value: ValueRef<'_>) -> FromSqlResult<[u8; 32]> {
    let bytes = value.as_blob()?;
    bytes.try_into().map_err(|_| FromSqlError::InvalidBlobSize {
        expected_size: 32,
        blob_size: bytes.len(),
    })
}

macro_rules! blob32 {
    ($name:ident) => {
        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(ToSqlOutput::from(&self.0[..]))
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<$name> {
                hash32(value).map($name)
            }
        }
    };
}

blob32!(Txid);
blob32!(BlockHash);

impl ToSql for Work {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.to_be_bytes().to_vec()))
    }
}

impl FromSql for Work {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Work> {
        hash32(value).map(Work::from_be_bytes)
    }
}

impl ToSql for Script {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(&self.0[..]))
    }
}

impl FromSql for Script {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Script> {
        Ok(Script(value.as_blob()?.into()))
    }
}

impl ToSql for Amount {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.to_string()))
    }
}

impl FromSql for Amount {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Amount> {
        Amount::from_base_str(value.as_str()?).map_err(|error| FromSqlError::Other(Box::new(error)))
    }
}

impl ToSql for State {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.word()))
    }
}

impl FromSql for State {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<State> {
        State::from_word(value.as_str()?).ok_or(FromSqlError::InvalidType)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_on_disk_are_pinned() {
        let words: Vec<&str> = State::ALL.into_iter().map(State::word).collect();
        assert_eq!(
            words,
            [
                "seen",
                "confirming",
                "credited",
                "evicted",
                "replaced",
                "orphaned",
                "failed"
            ]
        );
    }
}
