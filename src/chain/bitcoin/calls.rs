//! The calls that we make, with structs that hold only what we use. Descriptions:
//! <https://developer.bitcoin.org/reference/rpc/>; the quirks are noted where they bite.

use crate::chain::rpc::RpcError;
use crate::rules::{BlockHash, HEIGHT_MAX, Txid, Work};
use crate::telemetry::printable;
use bitcoincore_rpc::bitcoin;
use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// "Block not found", "No such mempool or blockchain transaction".
pub(super) const NOT_FOUND: i32 = -5;
/// "Block height out of range".
pub(super) const OUT_OF_RANGE: i32 = -8;
/// Everything else that went wrong; only the text tells what.
pub(super) const MISC: i32 = -1;

/// The first bytes of a chainwork that are 0: 2^192 hashes are more than there will be, and sums of less stay
/// far below 2^256.
const CHAINWORK_ZEROS: usize = 8;

pub(super) fn is_code(error: &RpcError, wanted: i32) -> bool {
    matches!(error, RpcError::Node { code, .. } if *code == wanted)
}

/// What a node calls something ends in logs and tables, and a node may call itself anything.
fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| printable(&text))
}

/// `getblockchaininfo`.
#[derive(Deserialize)]
pub(super) struct ChainInfo {
    #[serde(deserialize_with = "name")]
    pub(super) chain: String,
    #[serde(deserialize_with = "height")]
    pub(super) blocks: u64,
    #[serde(deserialize_with = "height")]
    pub(super) headers: u64,
    pub(super) bestblockhash: Hash,
    pub(super) chainwork: WorkText,
    pub(super) initialblockdownload: bool,
    /// Absent before Bitcoin Core 23.
    pub(super) time: Option<u32>,
    #[serde(default)]
    pub(super) pruned: bool,
    #[serde(default, deserialize_with = "optional_height")]
    pub(super) pruneheight: Option<u64>,
    /// Absent before Bitcoin Core 28 and off signet.
    pub(super) signet_challenge: Option<String>,
}

/// `getnetworkinfo`.
#[derive(Deserialize)]
pub(super) struct NetworkInfo {
    pub(super) version: Option<u64>,
    #[serde(deserialize_with = "name")]
    pub(super) subversion: String,
}

/// One entry of `getchaintips`.
#[derive(Deserialize)]
pub(super) struct ChainTip {
    #[serde(deserialize_with = "height")]
    pub(super) height: u64,
    pub(super) hash: Hash,
    #[serde(deserialize_with = "height")]
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
    #[serde(deserialize_with = "confirmations")]
    pub(super) confirmations: i64,
    #[serde(deserialize_with = "height")]
    pub(super) height: u64,
    #[serde(deserialize_with = "chainwork")]
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
    pub(super) time: u32,
}

fn height<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let height = u64::deserialize(from)?;
    if height > HEIGHT_MAX {
        return Err(D::Error::invalid_value(Unexpected::Unsigned(height), &"a height"));
    }
    Ok(height)
}

fn optional_height<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    struct Height(#[serde(deserialize_with = "height")] u64);
    Ok(Option::<Height>::deserialize(from)?.map(|Height(height)| height))
}

/// -1 off the active chain.
fn confirmations<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    let count = i64::deserialize(from)?;
    if !(-1..=i64::from(u32::MAX)).contains(&count) {
        return Err(D::Error::invalid_value(
            Unexpected::Signed(count),
            &"-1 or a count of blocks",
        ));
    }
    Ok(count)
}

/// What is stored and summed up, unlike work that is only compared.
fn chainwork<'de, D: Deserializer<'de>>(from: D) -> Result<WorkText, D::Error> {
    let work = WorkText::deserialize(from)?;
    if work.0.to_be_bytes()[..CHAINWORK_ZEROS]
        .iter()
        .any(|byte| *byte != 0)
    {
        return Err(D::Error::custom("more work than any chain has"));
    }
    Ok(work)
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

impl From<Vec<u8>> for HexBytes {
    fn from(bytes: Vec<u8>) -> HexBytes {
        HexBytes(bytes)
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
