//! The calls that we make, with structs that hold only what we use. Descriptions:
//! <https://developer.bitcoin.org/reference/rpc/>; the quirks are noted where they bite.

use crate::chain::rpc::RpcError;
use crate::rules::{BlockHash, Txid, Work};
use bitcoincore_rpc::bitcoin;
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// "Block not found", "No such mempool or blockchain transaction".
pub(super) const NOT_FOUND: i32 = -5;
/// "Block height out of range".
pub(super) const OUT_OF_RANGE: i32 = -8;
/// Everything else that went wrong; only the text tells what.
pub(super) const MISC: i32 = -1;

pub(super) fn is_code(error: &RpcError, wanted: i32) -> bool {
    matches!(error, RpcError::Node { code, .. } if *code == wanted)
}

/// `getblockchaininfo`.
#[derive(Deserialize)]
pub(super) struct ChainInfo {
    pub(super) chain: String,
    pub(super) blocks: u64,
    pub(super) headers: u64,
    pub(super) bestblockhash: Hash,
    pub(super) chainwork: WorkText,
    pub(super) initialblockdownload: bool,
    /// Absent before Bitcoin Core 23.
    pub(super) time: Option<u64>,
    #[serde(default)]
    pub(super) pruned: bool,
    pub(super) pruneheight: Option<u64>,
    /// Absent before Bitcoin Core 28 and off signet.
    pub(super) signet_challenge: Option<String>,
}

/// `getnetworkinfo`.
#[derive(Deserialize)]
pub(super) struct NetworkInfo {
    pub(super) version: Option<u64>,
    pub(super) subversion: String,
}

/// One entry of `getchaintips`.
#[derive(Deserialize)]
pub(super) struct ChainTip {
    pub(super) height: u64,
    pub(super) hash: Hash,
    pub(super) branchlen: u64,
    pub(super) status: TipStatus,
}

/// The status of a chain tip.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TipStatus {
    Active,
    ValidFork,
    ValidHeaders,
    HeadersOnly,
    Invalid,
    #[serde(other)]
    Other,
}

/// `getblockheader`, verbose: its fields make up the 80 bytes again, so the hash can be checked.
#[derive(Deserialize)]
pub(super) struct HeaderFields {
    pub(super) confirmations: i64,
    pub(super) height: u64,
    pub(super) chainwork: WorkText,
    version: i32,
    merkleroot: bitcoin::TxMerkleNode,
    time: u32,
    nonce: u32,
    bits: String,
    /// Absent in the genesis block.
    previousblockhash: Option<bitcoin::BlockHash>,
}

impl HeaderFields {
    pub(super) fn header(&self) -> Option<bitcoin::block::Header> {
        use bitcoin::hashes::Hash as _;
        Some(bitcoin::block::Header {
            version: bitcoin::block::Version::from_consensus(self.version),
            prev_blockhash: self.previousblockhash.unwrap_or(bitcoin::BlockHash::all_zeros()),
            merkle_root: self.merkleroot,
            time: self.time,
            bits: bitcoin::CompactTarget::from_unprefixed_hex(&self.bits).ok()?,
            nonce: self.nonce,
        })
    }
}

/// Only the `chainwork` of `getblockheader`.
#[derive(Deserialize)]
pub(super) struct HeaderWork {
    pub(super) chainwork: WorkText,
}

/// Only the `time` of `getblockheader`.
#[derive(Deserialize)]
pub(super) struct HeaderTime {
    pub(super) time: u64,
}

/// A block hash in hex.
#[derive(Clone, Copy)]
pub(super) struct Hash(pub(super) BlockHash);

/// A transaction id in hex.
pub(super) struct Id(pub(super) Txid);

/// Work in hex.
pub(super) struct WorkText(pub(super) Work);

/// Bytes in hex, decoded while the answer is read: a block's text is never copied.
pub(super) struct HexBytes(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Hash, D::Error> {
        from.deserialize_str(Text("64 hex digits", |text: &str| {
            BlockHash::from_hex(text).map(Hash)
        }))
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Id, D::Error> {
        from.deserialize_str(Text("64 hex digits", |text: &str| Txid::from_hex(text).map(Id)))
    }
}

impl<'de> Deserialize<'de> for WorkText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<WorkText, D::Error> {
        from.deserialize_str(Text("64 hex digits", |text: &str| {
            Work::from_hex(text).map(WorkText)
        }))
    }
}

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<HexBytes, D::Error> {
        from.deserialize_str(Text("bytes in hex", |text: &str| {
            const_hex::decode(text).ok().map(HexBytes)
        }))
    }
}

/// Reads a text without owning it.
struct Text<F>(&'static str, F);

impl<T, F: FnOnce(&str) -> Option<T>> Visitor<'_> for Text<F> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        let expected = self.0;
        let start = text.get(..text.len().min(80)).unwrap_or("");
        (self.1)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(start), &expected))
    }
}
