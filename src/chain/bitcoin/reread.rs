//! The chain read once more, for whoever holds the books against it: by other calls than the watcher's (the
//! set of unspent coins, whole blocks over RPC), and read by the `bitcoin` crate instead of our own reader of
//! blocks. What decides here what a block pays must share no code with what decided it before, or both would
//! be wrong together; `tests/tidy` holds this file to it.

use super::calls::{Hash, HexBytes, Id};
use super::{BitcoinSource, block_error, convert, odd_answer, pow};
use crate::chain::rpc::Limits;
use crate::chain::{ChainSource as _, SourceError, keep_busy};
use crate::egress::Dial;
use crate::rules::{Amount, Asset, BlockHash, HEIGHT_MAX, Header, Outpoint, Paid, Script, TaggedBlock, Txid};
use bitcoincore_rpc::bitcoin;
use bitcoincore_rpc::bitcoin::consensus::deserialize;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

/// How many coins or headers are asked for in one exchange.
const BATCH: usize = 200;

/// How many scripts one walk through the unspent coins looks for. Their texts are one question.
const SCRIPTS_PER_WALK: usize = 10_000;

/// A walk reads every unspent coin of the chain: minutes on mainnet.
const WALK: Limits = Limits {
    deadline: Duration::from_secs(30 * 60),
    body_bytes_max: 256 << 20,
};

/// How often a walk is asked how far it is.
const LOOK: Duration = Duration::from_secs(2);

/// Bitcoin's amounts have so many digits after the point.
const DECIMALS: u8 = 8;

/// A coin that nobody has spent, on the node's best chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unspent {
    /// The output.
    pub outpoint: Outpoint,
    /// Who may spend it.
    pub script: Script,
    /// Its amount.
    pub amount: Amount,
    /// The height of the block that made it.
    pub height: u64,
    /// The first transaction of a block made it.
    pub is_coinbase: bool,
}

/// The unspent coins of some scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnspentSet {
    /// The height that the node was at, at the beginning.
    pub height: u64,
    /// The coins.
    pub coins: Vec<Unspent>,
}

/// A whole block, its hash, proof of work and merkle root checked.
#[derive(Clone, Debug)]
pub struct BlockAgain {
    /// Its hash and height, as they were asked for.
    pub at: TaggedBlock,
    /// Its header.
    pub header: Header,
    block: bitcoin::Block,
    /// The ids of its transactions, in their order.
    txids: Vec<Txid>,
    places: BTreeMap<Txid, usize>,
}

#[derive(Deserialize)]
struct TxOut {
    bestblock: Hash,
    confirmations: u64,
    /// As text: no amount is ever a float.
    value: Box<RawValue>,
    #[serde(rename = "scriptPubKey")]
    script: ScriptFields,
    coinbase: bool,
}

#[derive(Deserialize)]
struct ScriptFields {
    hex: HexBytes,
}

#[derive(Deserialize)]
struct Walked {
    /// False where it was stopped.
    success: bool,
    height: u64,
    unspents: Vec<Coin>,
}

#[derive(Deserialize)]
struct Coin {
    txid: Id,
    vout: u32,
    #[serde(rename = "scriptPubKey")]
    script: HexBytes,
    amount: Box<RawValue>,
    coinbase: bool,
    height: u64,
}

/// How far a walk is; `null` where none goes on.
#[derive(Deserialize)]
struct Progress {
    progress: u8,
}

impl<D: Dial> BitcoinSource<D> {
    /// What the set of unspent coins has at these outpoints, in their order; `None` = spent, or on no block
    /// of the best chain. A pruned node has the whole set.
    ///
    /// # Errors
    /// [`SourceError::Unreachable`].
    pub async fn unspent(&self, of: &[Outpoint]) -> Result<Vec<Option<Unspent>>, SourceError> {
        let mut coins = Vec::with_capacity(of.len());
        let mut heights: BTreeMap<BlockHash, u64> = BTreeMap::new();
        for part in of.chunks(BATCH) {
            let params = part.iter().map(|of| json!([of.txid.to_string(), of.vout, false]));
            let answers = self
                .rpc
                .batch::<Option<TxOut>>("gettxout", params, self.small_limits())
                .await;
            let answers = answers.map_err(|error| error.into_source("gettxout"))?;
            for (outpoint, answer) in part.iter().zip(answers) {
                let Some(out) = answer.map_err(|error| error.into_source("gettxout"))? else {
                    coins.push(None);
                    continue;
                };
                let Hash(best) = out.bestblock;
                let tip = match heights.get(&best) {
                    Some(height) => *height,
                    None => self.height_of(best).await?,
                };
                heights.insert(best, tip);
                coins.push(Some(out.into_coin(*outpoint, tip)?));
            }
        }
        Ok(coins)
    }

    async fn height_of(&self, hash: BlockHash) -> Result<u64, SourceError> {
        let info = self.header(hash).await?;
        Ok(info.ok_or(SourceError::UnknownBlock(hash))?.held.height)
    }

    /// A block, whole. Always over RPC: the watcher reads over REST where it can.
    ///
    /// # Errors
    /// As [`fetch`](crate::chain::ChainSource::fetch), and [`SourceError::BadBlock`].
    pub async fn read_again(&self, at: TaggedBlock) -> Result<BlockAgain, SourceError> {
        let params = json!([at.hash.to_string(), 0]);
        let answer = self
            .rpc
            .call_hex::<HexBytes>("getblock", params, self.block_limits())
            .await;
        let HexBytes(bytes) = answer.map_err(|error| block_error(error, at.hash))?;
        keep_busy(|| self.checked(at, &bytes))
    }

    fn checked(&self, at: TaggedBlock, bytes: &[u8]) -> Result<BlockAgain, SourceError> {
        let hash = at.hash;
        let doing = || format!("read block {hash} again");
        let block: bitcoin::Block =
            deserialize(bytes).map_err(|error| odd_answer(doing(), &error.to_string()))?;
        if convert::block_hash(block.block_hash()) != hash {
            return Err(odd_answer(doing(), "it is another block"));
        }
        let bad = |why: String| SourceError::BadBlock { hash, why };
        let header = pow::checked_header(self.config.network, &block.header).map_err(bad)?;
        if !block.check_merkle_root() {
            return Err(bad("its transactions do not make its merkle root".to_owned()));
        }
        let txids: Vec<Txid> = block
            .txdata
            .iter()
            .map(|tx| convert::txid(tx.compute_txid()))
            .collect();
        let places: BTreeMap<Txid, usize> = txids.iter().copied().zip(0..).collect();
        // The merkle root of some lists is that of the list with its end said twice (CVE-2012-2459).
        if places.len() != block.txdata.len() {
            return Err(bad("a transaction is in it twice".to_owned()));
        }
        Ok(BlockAgain {
            at,
            header,
            block,
            txids,
            places,
        })
    }

    /// Headers as their 80 bytes, in the order of the hashes that they have.
    ///
    /// # Errors
    /// [`SourceError::Unreachable`], and of a hash that the node does not know [`SourceError::UnknownBlock`].
    pub async fn raw_headers(&self, hashes: &[BlockHash]) -> Result<Vec<[u8; 80]>, SourceError> {
        let mut headers = Vec::with_capacity(hashes.len());
        for part in hashes.chunks(BATCH) {
            let params = part.iter().map(|hash| json!([hash.to_string(), false]));
            let answers = self
                .rpc
                .batch::<HexBytes>("getblockheader", params, self.small_limits())
                .await;
            let answers = answers.map_err(|error| error.into_source("read headers"))?;
            for (hash, answer) in part.iter().zip(answers) {
                let HexBytes(bytes) = answer.map_err(|error| block_error(error, *hash))?;
                let header: Option<bitcoin::block::Header> = deserialize(&bytes).ok();
                let raw = <[u8; 80]>::try_from(bytes).ok();
                let is_it = header.is_some_and(|header| convert::block_hash(header.block_hash()) == *hash);
                let Some(raw) = raw.filter(|_| is_it) else {
                    return Err(odd_answer(format!("read header {hash}"), "it is another header"));
                };
                headers.push(raw);
            }
        }
        Ok(headers)
    }

    /// Every unspent coin of these scripts, from one walk (`scantxoutset`) for each 10,000 of them: minutes
    /// each, and a node walks once at a time. `told` hears hundredths of the whole.
    ///
    /// # Errors
    /// [`SourceError::Unreachable`]; where the future is dropped the node walks on until
    /// [`stop_walk`](Self::stop_walk).
    pub async fn unspent_of(
        &self,
        scripts: &[Script],
        told: &mut (dyn FnMut(u8) + Send),
    ) -> Result<UnspentSet, SourceError> {
        let mut set = UnspentSet {
            height: HEIGHT_MAX,
            coins: Vec::new(),
        };
        let walks = scripts.len().div_ceil(SCRIPTS_PER_WALK).max(1);
        for (done, part) in scripts.chunks(SCRIPTS_PER_WALK).enumerate() {
            let walked = {
                let mut told = |progress: u8| {
                    let whole = (100 * done + usize::from(progress)) / walks;
                    told(u8::try_from(whole).unwrap_or(100));
                };
                tokio::select! {
                    biased;
                    walked = self.walk(part) => walked?,
                    never = self.look_at_walk(&mut told) => match never {},
                }
            };
            set.height = set.height.min(walked.height);
            for coin in walked.unspents {
                set.coins.push(coin.into_coin()?);
            }
        }
        told(100);
        Ok(set)
    }

    async fn walk(&self, scripts: &[Script]) -> Result<Walked, SourceError> {
        let doing = "walk through the unspent coins";
        let raw = |script: &Script| format!("raw({})", const_hex::encode(&script.0));
        let wanted: Vec<String> = scripts.iter().map(raw).collect();
        let params = json!(["start", wanted]);
        let walked: Walked = self
            .rpc
            .call("scantxoutset", params, WALK)
            .await
            .map_err(|error| error.into_source(doing))?;
        match walked.success {
            true => Ok(walked),
            false => Err(odd_answer(doing.to_owned(), "somebody stopped it")),
        }
    }

    /// Tells how far the walk is, for ever.
    async fn look_at_walk(&self, told: &mut (dyn FnMut(u8) + Send)) -> Infallible {
        loop {
            self.clock.sleep(LOOK).await;
            let status =
                self.rpc
                    .call::<Option<Progress>>("scantxoutset", json!(["status"]), self.small_limits());
            if let Ok(Some(Progress { progress })) = status.await {
                told(progress.min(100));
            }
        }
    }

    /// Stops a walk, whoever began it; false where none was under way.
    ///
    /// # Errors
    /// [`SourceError::Unreachable`].
    pub async fn stop_walk(&self) -> Result<bool, SourceError> {
        self.small("scantxoutset", json!(["abort"])).await
    }
}

impl TxOut {
    fn into_coin(self, outpoint: Outpoint, tip: u64) -> Result<Unspent, SourceError> {
        let above = self.confirmations.checked_sub(1);
        let height = above.and_then(|above| tip.checked_sub(above));
        let height = height.ok_or_else(|| {
            let why = format!("{} confirmations at height {tip}", self.confirmations);
            odd_answer("gettxout".to_owned(), &why)
        })?;
        Ok(Unspent {
            outpoint,
            script: Script(self.script.hex.0.into()),
            amount: amount(&self.value)?,
            height,
            is_coinbase: self.coinbase,
        })
    }
}

impl Coin {
    fn into_coin(self) -> Result<Unspent, SourceError> {
        Ok(Unspent {
            outpoint: Outpoint {
                txid: self.txid.0,
                vout: u64::from(self.vout),
            },
            script: Script(self.script.0.into()),
            amount: amount(&self.amount)?,
            height: self.height,
            is_coinbase: self.coinbase,
        })
    }
}

/// What JSON writes as a number, read digit by digit.
fn amount(value: &RawValue) -> Result<Amount, SourceError> {
    Amount::from_units_str(value.get(), DECIMALS)
        .map_err(|why| odd_answer("read an amount".to_owned(), &format!("{}: {why}", value.get())))
}

impl BlockAgain {
    /// Everything that it pays, in its order: to scripts of anybody, and of nobody.
    pub fn paid(&self) -> impl Iterator<Item = Paid> {
        let txs = self.block.txdata.iter().zip(&self.txids);
        txs.flat_map(|(tx, txid)| {
            let of_one = (0..).zip(&tx.output);
            of_one.map(|(vout, output)| self.payment(Outpoint { txid: *txid, vout }, output))
        })
    }

    /// What it pays at an outpoint.
    pub fn paid_at(&self, outpoint: Outpoint) -> Option<Paid> {
        let output = self
            .tx(&outpoint.txid)?
            .output
            .get(usize::try_from(outpoint.vout).ok()?)?;
        Some(self.payment(outpoint, output))
    }

    /// What one of its transactions spends; the first one spends nothing. `None` where it has none of this
    /// id.
    pub fn spends(&self, txid: &Txid) -> Option<Vec<Outpoint>> {
        let tx = self.tx(txid)?;
        let spent = tx.input.iter().map(|input| Outpoint {
            txid: convert::txid(input.previous_output.txid),
            vout: u64::from(input.previous_output.vout),
        });
        Some(match tx.is_coinbase() {
            true => Vec::new(),
            false => spent.collect(),
        })
    }

    /// Where in the block a transaction stands.
    pub(super) fn place(&self, txid: &Txid) -> Option<usize> {
        self.places.get(txid).copied()
    }

    /// Its transactions.
    pub(super) fn transactions(&self) -> &[bitcoin::Transaction] {
        &self.block.txdata
    }

    fn tx(&self, txid: &Txid) -> Option<&bitcoin::Transaction> {
        self.block.txdata.get(*self.places.get(txid)?)
    }

    fn payment(&self, outpoint: Outpoint, output: &bitcoin::TxOut) -> Paid {
        Paid {
            at: self.at,
            outpoint,
            script: Script(output.script_pubkey.as_bytes().into()),
            asset: Asset::Native,
            amount: Amount::from_u64(output.value.to_sat()),
            from: None,
            is_success: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number of JSON has many forms; eight digits after the point are all that there are of a coin.
    #[test]
    fn an_amount_of_odd_decimals_is_read_exactly_or_not_at_all() {
        for (text, sat) in [
            ("0", Some(0)),
            ("0.00000001", Some(1)),
            ("0.1", Some(10_000_000)),
            ("0.10", Some(10_000_000)),
            ("0.29000000", Some(29_000_000)),
            ("1", Some(100_000_000)),
            ("20999999.97690000", Some(2_099_999_997_690_000)),
            ("184467440737.09551615", Some(u64::MAX)),
            ("0.000000001", None),
            ("0.123456789", None),
            ("1e-8", None),
            ("1E8", None),
            ("-0.1", None),
            ("\"0.1\"", None),
            ("null", None),
        ] {
            let value = RawValue::from_string(text.to_owned()).unwrap();
            assert_eq!(amount(&value).ok(), sat.map(Amount::from_u64), "{text}");
        }
    }
}
