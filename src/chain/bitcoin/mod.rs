//! A chain of Bitcoin's kind through one node: Bitcoin Core 25 or later, pruned or not, without its
//! transaction index. Owns the quirks of its RPC and REST interfaces; decides nothing about money. Start at
//! the [`ChainSource`] methods.

mod calls;
mod config;
mod convert;
mod decode;
mod derive;
mod hashes;
mod identity;
mod mempool;
mod pow;
pub mod proof;
mod reread;
mod scan;
mod skim;
mod tip;
mod wait;

pub use config::{BitcoinConfig, checkpoints, is_plain};
pub use reread::{BlockAgain, Unspent, UnspentSet};

use super::rpc::{Limits, RpcClient, RpcError};
use super::{ChainSource, HeaderInfo, Help, Identity, NodeTip, SourceError, keep_busy};
use crate::clock::Clock;
use crate::egress::Dial;
use crate::index::Index;
use crate::rules::{BlockHash, HEIGHT_MAX, Header, HeldHeader, MempoolList, ScannedBlock};
use bytes::Bytes;
use calls::{Hash, HeaderFields, HexBytes, MISC, NOT_FOUND, OUT_OF_RANGE, is_code};
use scan::ScanError;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The largest small answer: `getchaintips` of a test network.
const SMALL_BYTES_MAX: usize = 8 << 20;

/// The largest block (4,000,000 bytes by consensus) in hex with some JSON around it.
const BLOCK_BYTES_MAX: usize = 9 << 20;

/// How many block hashes are asked for in one exchange.
const HASH_BATCH: usize = 500;

/// One Bitcoin chain as its node tells it.
pub struct BitcoinSource<D> {
    rpc: RpcClient<D>,
    config: BitcoinConfig,
    clock: Clock,
    is_rest_on: AtomicBool,
    standing: Mutex<identity::Standing>,
    branches: Mutex<tip::Branches>,
    mempool: Mutex<mempool::Memory>,
    waiting: Mutex<wait::Waiting>,
}

impl<D: Dial> BitcoinSource<D> {
    /// A source that has asked nothing yet. The config's [`BitcoinConfig::faults`] are the caller's to
    /// refuse.
    pub fn new(config: BitcoinConfig, dial: D, clock: Clock) -> BitcoinSource<D> {
        BitcoinSource {
            rpc: RpcClient::new(dial, config.url.clone(), config.auth.clone(), clock),
            config,
            clock,
            is_rest_on: AtomicBool::new(false),
            standing: Mutex::default(),
            branches: Mutex::default(),
            mempool: Mutex::default(),
            waiting: Mutex::default(),
        }
    }

    /// True while blocks come over REST.
    pub fn is_rest_on(&self) -> bool {
        self.is_rest_on.load(Ordering::Relaxed)
    }

    fn standing(&self) -> MutexGuard<'_, identity::Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn branches(&self) -> MutexGuard<'_, tip::Branches> {
        self.branches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn small_limits(&self) -> Limits {
        Limits {
            deadline: self.config.call_deadline,
            body_bytes_max: SMALL_BYTES_MAX,
        }
    }

    fn block_limits(&self) -> Limits {
        Limits {
            deadline: self.config.block_deadline,
            body_bytes_max: BLOCK_BYTES_MAX,
        }
    }

    /// A call with a small answer, none of whose errors means anything but "ask again".
    async fn small<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: Value,
    ) -> Result<T, SourceError> {
        let answer = self.rpc.call(method, params, self.small_limits()).await;
        answer.map_err(|error| error.into_source(method))
    }

    /// The block's bytes, over REST while that works.
    async fn block_bytes(&self, hash: BlockHash) -> Result<Bytes, SourceError> {
        let mut has_rest_failed = false;
        if self.is_rest_on() {
            let reply = self.rpc.get(&block_path(hash), self.block_limits()).await;
            let reply = reply.map_err(|error| error.into_source(format!("read block {hash} over REST")))?;
            if reply.status == 200 {
                return Ok(reply.body);
            }
            // RPC says why in codes where REST has only words.
            has_rest_failed = matches!(reply.status, 403 | 404);
        }
        let params = json!([hash.to_string(), 0]);
        let answer = self
            .rpc
            .call_hex::<HexBytes>("getblock", params, self.block_limits())
            .await;
        let HexBytes(bytes) = answer.map_err(|error| block_error(error, hash))?;
        if has_rest_failed {
            // RPC has what REST has not: REST was switched off. The next identity check probes it again.
            self.is_rest_on.store(false, Ordering::Relaxed);
        }
        Ok(bytes.into())
    }
}

impl<D: Dial> ChainSource for BitcoinSource<D> {
    type Raw = Bytes;

    async fn identity(&self) -> Result<Identity, SourceError> {
        self.check_identity().await
    }

    async fn tip(&self) -> Result<NodeTip, SourceError> {
        self.node_tip().await
    }

    async fn header(&self, hash: BlockHash) -> Result<Option<HeaderInfo>, SourceError> {
        let params = json!([hash.to_string(), true]);
        let answer = self
            .rpc
            .call::<HeaderFields>("getblockheader", params, self.small_limits())
            .await;
        let fields = match answer {
            Ok(fields) => fields,
            Err(error) if is_code(&error, NOT_FOUND) => return Ok(None),
            Err(error) => return Err(error.into_source(format!("read header {hash}"))),
        };
        let header = fields
            .header()
            .filter(|header| convert::block_hash(header.block_hash()) == hash);
        let Some(header) = header else {
            return Err(odd_answer(
                format!("read header {hash}"),
                "its fields do not make this hash",
            ));
        };
        let header = pow::checked_header(self.config.network, &header)
            .map_err(|why| SourceError::BadBlock { hash, why })?;
        Ok(Some(HeaderInfo {
            held: HeldHeader {
                height: fields.height,
                header,
                chainwork: fields.chainwork.0,
            },
            is_active: fields.confirmations != -1,
        }))
    }

    async fn hashes(&self, height: u64, count: usize) -> Result<Vec<BlockHash>, SourceError> {
        let mut hashes = Vec::new();
        while hashes.len() < count {
            let from = height.saturating_add(hashes.len() as u64);
            if from > HEIGHT_MAX {
                break;
            }
            let heights = (from..=HEIGHT_MAX).take(HASH_BATCH.min(count - hashes.len()));
            let params = heights.map(|height| json!([height]));
            let answers = self
                .rpc
                .batch::<Hash>("getblockhash", params, self.small_limits())
                .await;
            for answer in answers.map_err(|error| error.into_source("getblockhash"))? {
                match answer {
                    Ok(Hash(hash)) => hashes.push(hash),
                    Err(error) if is_code(&error, OUT_OF_RANGE) => return Ok(hashes),
                    Err(error) => return Err(error.into_source("getblockhash")),
                }
            }
        }
        Ok(hashes)
    }

    async fn fetch(&self, hash: BlockHash) -> Result<Bytes, SourceError> {
        self.block_bytes(hash).await
    }

    async fn scan(&self, hash: BlockHash, raw: &Bytes, index: &Index) -> Result<ScannedBlock, SourceError> {
        let scan = || scan::scan_block(self.config.network, hash, raw, index);
        keep_busy(scan).map_err(|error| match error {
            ScanError::Broken(why) => SourceError::BadBlock { hash, why },
            ScanError::OtherBlock(other) => odd_answer(
                format!("read block {hash}"),
                &format!("the answer is block {other}"),
            ),
            ScanError::Unreadable(why) => odd_answer(
                format!("read block {hash}"),
                &format!("cannot decode what {} sent as it: {why}", self.rpc.software()),
            ),
        })
    }

    fn check_link(&self, parent: &HeldHeader, header: &Header) -> Result<(), SourceError> {
        let hash = header.hash;
        pow::check_link(self.config.network, parent, header)
            .map_err(|why| SourceError::BadBlock { hash, why })
    }

    async fn mempool(&self, index: &Index) -> Result<Option<MempoolList>, SourceError> {
        self.list_mempool(index).await
    }

    async fn wait(&self, tip: BlockHash, span: Duration) {
        self.wait_for_tip(tip, span).await;
    }
}

fn block_path(hash: BlockHash) -> String {
    format!("/rest/block/{hash}.bin")
}

/// The node's texts: <https://github.com/bitcoin/bitcoin/blob/master/src/rpc/blockchain.cpp> ("Block not
/// available").
fn block_error(error: RpcError, hash: BlockHash) -> SourceError {
    if is_code(&error, NOT_FOUND) {
        return SourceError::UnknownBlock(hash);
    }
    if let RpcError::Node { code: MISC, message } = &error {
        if message.contains("pruned") {
            return SourceError::Pruned { hash };
        }
        if message.contains("not fully downloaded") || message.contains("not found on disk") {
            return SourceError::MissingData(hash);
        }
    }
    error.into_source(format!("read block {hash}"))
}

fn odd_answer(doing: String, why: &str) -> SourceError {
    SourceError::Unreachable {
        doing,
        why: format!("odd answer: {why}"),
        help: Help::Node,
        source: None,
    }
}
