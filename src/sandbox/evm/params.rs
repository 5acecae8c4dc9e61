//! The arguments of a call, read strictly: what creditd writes wrongly must not be understood.

use super::chain::{Block, Chain};
use super::tx::Address;
use crate::rules::{BlockHash, Txid};
use crate::sandbox::front::RpcError;
use serde_json::Value;

/// An argument is missing or not what it should be.
const INVALID_PARAMS: i32 = -32_602;
/// Whatever else goes wrong.
pub(super) const SERVER_ERROR: i32 = -32_000;

/// The arguments by position.
pub(super) struct Params<'a>(&'a [Value]);

impl<'a> Params<'a> {
    pub(super) fn new(given: Option<&'a Value>) -> Result<Params<'a>, RpcError> {
        match given {
            None | Some(Value::Null) => Ok(Params(&[])),
            Some(Value::Array(given)) => Ok(Params(given)),
            Some(_) => Err(invalid("non-array args")),
        }
    }

    pub(super) fn get(&self, place: usize) -> Result<&'a Value, RpcError> {
        let value = self.0.get(place).filter(|value| !value.is_null());
        value.ok_or_else(|| invalid(format!("missing value for required argument {place}")))
    }

    pub(super) fn flag(&self, place: usize) -> Result<bool, RpcError> {
        let flag = self.get(place)?.as_bool();
        flag.ok_or_else(|| invalid(format!("invalid argument {place}: not a bool")))
    }

    pub(super) fn block_hash(&self, place: usize) -> Result<BlockHash, RpcError> {
        block_hash(self.get(place)?)
    }

    pub(super) fn txid(&self, place: usize) -> Result<Txid, RpcError> {
        Ok(Txid(hash(self.get(place)?)?))
    }

    pub(super) fn address(&self, place: usize) -> Result<Address, RpcError> {
        address(self.get(place)?)
    }

    /// A number, a tag, or an object with a `blockHash` or `blockNumber` (EIP-1898).
    pub(super) fn state_block<'c>(&self, place: usize, chain: &'c Chain) -> Result<BlockRef<'c>, RpcError> {
        let value = self.get(place)?;
        let found = match (value.get("blockHash"), value.get("blockNumber")) {
            (Some(hash), None) => chain.block(&block_hash(hash)?).map(BlockRef::Mined),
            (None, Some(number)) => block_named(chain, number)?,
            (None, None) => block_named(chain, value)?,
            (Some(_), Some(_)) => return Err(invalid("cannot specify both blockHash and blockNumber")),
        };
        found.ok_or_else(|| RpcError::new(SERVER_ERROR, "header not found"))
    }
}

/// A block that was asked for.
#[derive(Clone, Copy)]
pub(super) enum BlockRef<'c> {
    Mined(&'c Block),
    /// The one to come.
    Pending,
}

pub(super) fn invalid(why: impl Into<String>) -> RpcError {
    RpcError::new(INVALID_PARAMS, why)
}

pub(super) fn block_hash(value: &Value) -> Result<BlockHash, RpcError> {
    hash(value).map(BlockHash)
}

/// `0x` and 64 hex digits.
pub(super) fn hash(value: &Value) -> Result<[u8; 32], RpcError> {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    let hash = digits.and_then(BlockHash::from_hex);
    hash.map(|hash| hash.0)
        .ok_or_else(|| invalid(format!("invalid hash: {value}")))
}

pub(super) fn address(value: &Value) -> Result<Address, RpcError> {
    let address = value.as_str().and_then(Address::from_hex);
    address.ok_or_else(|| invalid(format!("invalid address: {value}")))
}

/// `0x` and the digits of a number, none of them a leading zero.
pub(super) fn quantity(value: &Value) -> Result<u64, RpcError> {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    let is_plain = |digits: &&str| {
        let is_short = *digits == "0" || !digits.starts_with('0');
        is_short && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    let number = digits
        .filter(is_plain)
        .map(|digits| u64::from_str_radix(digits, 16));
    match number {
        Some(Ok(number)) => Ok(number),
        Some(Err(_)) | None => Err(invalid(format!("invalid quantity: {value}"))),
    }
}

/// The block of a tag or number; `None` where there is none yet.
pub(super) fn block_named<'c>(chain: &'c Chain, value: &Value) -> Result<Option<BlockRef<'c>>, RpcError> {
    let marked = |name: &str, mark| match chain.marked(mark) {
        Some(block) => Ok(Some(BlockRef::Mined(block))),
        None => Err(RpcError::new(SERVER_ERROR, format!("{name} block not found"))),
    };
    match value.as_str() {
        Some("pending") => Ok(Some(BlockRef::Pending)),
        Some("latest") => Ok(Some(BlockRef::Mined(chain.tip()))),
        Some("earliest") => Ok(chain.at(0).map(BlockRef::Mined)),
        Some("safe") => marked("safe", chain.safe),
        Some("finalized") => marked("finalized", chain.finalized),
        Some(_) | None => Ok(chain.at(quantity(value)?).map(BlockRef::Mined)),
    }
}
