//! The file: JSON, every key of which has to be there and no other. Hashes are written as people of the chain
//! write them: Bitcoin's the other way round than they are hashed, EVM chains' with `0x`.

use crate::audit::evidence::{self, Proof};
use crate::chain::bitcoin::proof::{Anchor, BitcoinProof, RawHeader, turned};
use crate::chain::evm::proof::{EvmProof, EvmTold};
use crate::chain::proof::{Claim, ProofFault};
use crate::clock::rfc3339;
use crate::rules::{Amount, Asset, BlockHash, ChainId, Outpoint, Script, TaggedBlock, Txid};
use crate::store::EvidenceOf;
use serde::de::{Deserializer, Error as _};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use thiserror::Error;

/// Name and version of the form.
const FORMAT: &str = "creditd.proof/1";

/// No file of ours is longer: one that goes back to the first checkpoint has half a million headers.
pub const FILE_BYTES_MAX: usize = 256 << 20;

/// What of a file may be so long; only the headers down to a checkpoint may be longer. The rest of Bitcoin's:
/// transactions have 4 MB at most, and 2,016 headers fewer.
const BITCOIN_TX: usize = 9 << 20;
const BRANCH: usize = 8 << 10;
const HEADERS: usize = 1 << 20;
const CLAIM: usize = 64 << 10;
/// A transaction or receipt of the largest ones that there are has 2 MB.
const EVM: usize = 8 << 20;
const TOLD: usize = 4 << 20;
/// A list or an object of nothing takes hundreds of bytes once it is read.
const TOLD_NESTS: usize = 50_000;

/// What a coin is called; a token is called by its contract.
const COIN: &str = "coin";

/// It is no file of this form.
#[derive(Debug, Error)]
#[error("no proof of the form {FORMAT}: {0}")]
pub struct Unreadable(String);

/// How much a file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// By hashes.
    Proved,
    /// By the word of a node.
    Told,
}

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProofFile {
    /// Its form.
    pub format: String,
    /// The credit.
    pub credit: String,
    /// Its chain, instance included.
    pub chain_id: String,
    /// How much it shows.
    pub level: Level,
    /// Why no more than that is shown; empty of what is proved.
    pub why: String,
    /// What is claimed.
    #[serde(deserialize_with = "capped::<CLAIM, _, _>")]
    pub claim: ClaimJson,
    #[serde(deserialize_with = "even_null")]
    bitcoin: Option<BitcoinJson>,
    #[serde(deserialize_with = "capped::<EVM, _, _>")]
    evm: Option<EvmJson>,
    #[serde(deserialize_with = "told")]
    told: Option<ToldJson>,
    #[serde(deserialize_with = "capped::<CLAIM, _, _>")]
    about: AboutJson,
}

/// What is claimed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimJson {
    txid: String,
    vout: u64,
    script: Hex,
    /// The payee's address.
    pub address: String,
    asset: String,
    amount_base: String,
    block_hash: String,
    block_height: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BitcoinJson {
    #[serde(deserialize_with = "capped::<BITCOIN_TX, _, _>")]
    tx: Hex,
    index: u64,
    #[serde(deserialize_with = "capped::<BRANCH, _, _>")]
    branch: Vec<String>,
    #[serde(deserialize_with = "capped::<BITCOIN_TX, _, _>")]
    coinbase: CoinbaseJson,
    #[serde(deserialize_with = "capped::<HEADERS, _, _>")]
    headers: Vec<HeaderHex>,
    due: PlaceJson,
    #[serde(deserialize_with = "even_null")]
    anchor: Option<AnchorJson>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CoinbaseJson {
    tx: Hex,
    branch: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlaceJson {
    height: u64,
    hash: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnchorJson {
    height: u64,
    hash: String,
    headers: Vec<HeaderHex>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EvmJson {
    header: Hex0x,
    index: u64,
    tx_branch: Vec<Hex0x>,
    receipt_branch: Vec<Hex0x>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToldJson {
    receipt: Value,
    tx: Value,
    trace: Value,
}

/// What the maker says of himself. Nobody can check it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AboutJson {
    made_at: String,
    software: String,
}

/// A key that has to be there, even if it says `null`.
fn even_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(from)
}

/// What has to be there and to be short enough, looked at before it is read: what is read takes many times
/// its room.
fn capped<'de, const MAX: usize, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let raw = <&RawValue>::deserialize(from)?.get();
    if raw.len() > MAX {
        return Err(D::Error::custom(format!(
            "a part of it has more than {MAX} bytes"
        )));
    }
    serde_json::from_str(raw).map_err(D::Error::custom)
}

fn told<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ToldJson>, D::Error> {
    let raw = <&RawValue>::deserialize(from)?.get();
    if raw.len() > TOLD {
        return Err(D::Error::custom(format!(
            "what is told has more than {TOLD} bytes"
        )));
    }
    if raw.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count() > TOLD_NESTS {
        let why = format!("what is told has more than {TOLD_NESTS} lists and objects");
        return Err(D::Error::custom(why));
    }
    serde_json::from_str(raw).map_err(D::Error::custom)
}

/// Bytes in small hex digits, the one form that they have.
#[derive(Clone, Debug, PartialEq)]
struct Hex(Vec<u8>);

/// The same with `0x` in front.
#[derive(Clone, Debug, PartialEq)]
struct Hex0x(Vec<u8>);

fn bytes<E: serde::de::Error>(digits: &str) -> Result<Vec<u8>, E> {
    let is_small = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    match digits.bytes().all(is_small) {
        true => const_hex::decode(digits).map_err(E::custom),
        false => Err(E::custom("bytes in small hex digits were expected")),
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&const_hex::encode(&self.0))
    }
}

/// A header: of 80 bytes at once, so that many short ones cannot take more room than they have in the file.
#[derive(Clone, Debug, PartialEq)]
struct HeaderHex(RawHeader);

impl Serialize for HeaderHex {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&const_hex::encode(self.0))
    }
}

impl<'de> Deserialize<'de> for HeaderHex {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<HeaderHex, D::Error> {
        let Hex(raw) = Hex::deserialize(from)?;
        let raw = RawHeader::try_from(raw);
        raw.map(HeaderHex)
            .map_err(|_| D::Error::custom("a header is not of 80 bytes"))
    }
}

impl Serialize for Hex0x {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&const_hex::encode_prefixed(&self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Hex, D::Error> {
        bytes(&String::deserialize(from)?).map(Hex)
    }
}

impl<'de> Deserialize<'de> for Hex0x {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Hex0x, D::Error> {
        let text = String::deserialize(from)?;
        let digits = text
            .strip_prefix("0x")
            .ok_or_else(|| D::Error::custom("0x was expected"))?;
        bytes(digits).map(Hex0x)
    }
}

/// A hash in the one form in which the chain's people write it.
fn hash(chain: &ChainId, text: &str) -> Result<[u8; 32], ProofFault> {
    let read = BlockHash::from_typed(text).filter(|hash| chain.print(hash) == text);
    read.map(|hash| hash.0)
        .ok_or_else(|| ProofFault::new("form", "a hash is not written as its chain writes them"))
}

fn plain(text: &str) -> Result<[u8; 32], ProofFault> {
    let read = BlockHash::from_hex(text).filter(|hash| hash.to_string() == text);
    read.map(|hash| hash.0)
        .ok_or_else(|| ProofFault::new("form", "a hash is not 64 small hex digits"))
}

fn branch(texts: &[String]) -> Result<Vec<[u8; 32]>, ProofFault> {
    texts.iter().map(|text| plain(text).map(turned)).collect()
}

fn headers(raw: Vec<HeaderHex>) -> Vec<RawHeader> {
    raw.into_iter().map(|HeaderHex(raw)| raw).collect()
}

impl ProofFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn read(text: &str) -> Result<ProofFile, Unreadable> {
        if text.len() > FILE_BYTES_MAX {
            return Err(Unreadable("it is too long".to_owned()));
        }
        let file: ProofFile = serde_json::from_str(text).map_err(|error| Unreadable(error.to_string()))?;
        match file.format == FORMAT {
            true => Ok(file),
            false => Err(Unreadable("it names another".to_owned())),
        }
    }

    /// The outpoint, of an EVM chain with its execution.
    ///
    /// # Errors
    /// The form of the transaction's id.
    pub fn outpoint(&self, chain: &ChainId) -> Result<Outpoint, ProofFault> {
        Ok(Outpoint {
            txid: Txid(hash(chain, &self.claim.txid)?),
            vout: self.claim.vout,
        })
    }

    /// What is claimed, as the chain knows it.
    ///
    /// # Errors
    /// A part of another form.
    pub fn claim(&self, chain: &ChainId) -> Result<Claim, ProofFault> {
        let claim = &self.claim;
        let asset = match claim.asset.as_str() {
            COIN => Some(Asset::Native),
            contract => Hex0x::deserialize(
                serde::de::value::StrDeserializer::<serde::de::value::Error>::new(contract),
            )
            .ok()
            .and_then(|Hex0x(contract)| contract.try_into().ok())
            .map(Asset::Token),
        };
        let amount = Amount::from_base_str(&claim.amount_base);
        if amount.as_ref().is_ok_and(Amount::is_zero) {
            return Err(ProofFault::new("form", "amount_base: nothing is paid"));
        }
        Ok(Claim {
            outpoint: evidence::on_chain(self.outpoint(chain)?, chain),
            script: Script(claim.script.0.clone().into()),
            asset: asset
                .ok_or_else(|| ProofFault::new("form", "the asset is neither coin nor a contract"))?,
            amount: amount.map_err(|why| ProofFault::new("form", format!("amount_base: {why}")))?,
            block: TaggedBlock {
                height: claim.block_height,
                hash: BlockHash(hash(chain, &claim.block_hash)?),
            },
        })
    }

    /// The one proof in it.
    ///
    /// # Errors
    /// None or more than one, or one of another level than is said; a part of another form.
    pub fn proof(self) -> Result<Proof, ProofFault> {
        match (self.level, self.bitcoin, self.evm, self.told) {
            (Level::Proved, Some(proof), None, None) if self.why.is_empty() => {
                proof.proof().map(Proof::Bitcoin)
            }
            (Level::Proved, None, Some(proof), None) if self.why.is_empty() => {
                let nodes = |nodes: Vec<Hex0x>| nodes.into_iter().map(|Hex0x(node)| node).collect();
                Ok(Proof::Evm(EvmProof {
                    header: proof.header.0,
                    index: proof.index,
                    tx_branch: nodes(proof.tx_branch),
                    receipt_branch: nodes(proof.receipt_branch),
                }))
            }
            (Level::Told, None, None, Some(ToldJson { receipt, tx, trace })) if !self.why.is_empty() => {
                Ok(Proof::Told(EvmTold { receipt, tx, trace }, self.why))
            }
            _ => Err(ProofFault::new(
                "level",
                "the file does not have the one proof that its level says",
            )),
        }
    }

    /// The file of a proof.
    pub fn of(of: &EvidenceOf, proof: Proof, address: String, made_at: i64) -> ProofFile {
        let chain = &of.chain;
        let (mut bitcoin, mut evm, mut told, mut why) = (None, None, None, String::new());
        match proof {
            Proof::Bitcoin(proof) => bitcoin = Some(BitcoinJson::of(proof)),
            Proof::Evm(proof) => {
                let nodes = |nodes: Vec<Vec<u8>>| nodes.into_iter().map(Hex0x).collect();
                evm = Some(EvmJson {
                    header: Hex0x(proof.header),
                    index: proof.index,
                    tx_branch: nodes(proof.tx_branch),
                    receipt_branch: nodes(proof.receipt_branch),
                });
            }
            Proof::Told(EvmTold { receipt, tx, trace }, reason) => {
                told = Some(ToldJson { receipt, tx, trace });
                why = reason;
            }
        }
        let level = match told.is_some() {
            true => Level::Told,
            false => Level::Proved,
        };
        ProofFile {
            format: FORMAT.to_owned(),
            credit: of.credit.clone(),
            chain_id: chain.to_string(),
            level,
            why,
            claim: ClaimJson {
                txid: chain.print(of.outpoint.txid),
                vout: of.outpoint.vout,
                script: Hex(of.script.0.to_vec()),
                address,
                asset: match of.asset {
                    Asset::Native => COIN.to_owned(),
                    Asset::Token(contract) => const_hex::encode_prefixed(contract),
                },
                amount_base: of.amount.to_string(),
                block_hash: chain.print(of.block.hash),
                block_height: of.block.height,
            },
            bitcoin,
            evm,
            told,
            about: AboutJson {
                made_at: rfc3339(made_at),
                software: concat!("creditd ", env!("CARGO_PKG_VERSION")).to_owned(),
            },
        }
    }
}

impl BitcoinJson {
    fn of(proof: BitcoinProof) -> BitcoinJson {
        let branch =
            |branch: Vec<[u8; 32]>| branch.into_iter().map(|hash| BlockHash(turned(hash)).to_string());
        let headers = |headers: Vec<RawHeader>| headers.into_iter().map(HeaderHex).collect();
        BitcoinJson {
            tx: Hex(proof.tx),
            index: proof.index,
            branch: branch(proof.branch).collect(),
            coinbase: CoinbaseJson {
                tx: Hex(proof.coinbase),
                branch: branch(proof.coinbase_branch).collect(),
            },
            headers: headers(proof.headers),
            due: PlaceJson {
                height: proof.due.height,
                hash: proof.due.hash.to_string(),
            },
            anchor: proof.anchor.map(|anchor| AnchorJson {
                height: anchor.at.height,
                hash: anchor.at.hash.to_string(),
                headers: headers(anchor.headers),
            }),
        }
    }

    fn proof(self) -> Result<BitcoinProof, ProofFault> {
        let place = |height, hash: &str| {
            plain(hash).map(|hash| TaggedBlock {
                height,
                hash: BlockHash(hash),
            })
        };
        let anchor = match self.anchor {
            Some(anchor) => Some(Anchor {
                at: place(anchor.height, &anchor.hash)?,
                headers: headers(anchor.headers),
            }),
            None => None,
        };
        Ok(BitcoinProof {
            tx: self.tx.0,
            branch: branch(&self.branch)?,
            index: self.index,
            coinbase: self.coinbase.tx.0,
            coinbase_branch: branch(&self.coinbase.branch)?,
            headers: headers(self.headers),
            due: place(self.due.height, &self.due.hash)?,
            anchor,
        })
    }
}
