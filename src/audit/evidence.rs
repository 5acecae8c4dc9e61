//! Evidence: what proves credits, collected from the nodes after they were made and before pruning nodes drop
//! their blocks. Never in a credit's transaction: no proof may delay a credit. Bodies in the database are
//! binary, a version first; what a proof looks like outside is [`super::proof`]'s.

use crate::chain::bitcoin::proof::{self as bitcoin, Anchor, BitcoinProof, RawHeader};
use crate::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use crate::chain::evm::endpoints::{Endpoints, EndpointsConfig, Node};
use crate::chain::evm::proof::{EvmProof, EvmTold, Unprovable};
use crate::chain::evm::{EvmRules, EvmSource};
use crate::chain::{ChainSource as _, SourceError};
use crate::clock::Clock;
use crate::config::{ChainConfig, Config, SecretError};
use crate::egress::HttpDial;
use crate::jobs::{self, Job};
use crate::rules::position::{self, Position};
use crate::rules::{BlockHash, ChainId, Outpoint, TaggedBlock};
use crate::store::{EvidenceOf, JobOutcome, NewEvidence, Store, StoreError};
use crate::telemetry::error_line;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether something can be proved.
const EVERY: Duration = Duration::from_secs(60);

/// One run; what it has not come to the next one does.
const LONGEST: Duration = Duration::from_secs(600);

/// How many entries of the journal are taken at a time.
const BATCH: u32 = 200;

/// The most headers of a proof: a credit that was released late names a block far above its own.
const HEADERS_MAX: u64 = 2_016;

/// The version of the bodies in the database.
const VERSION: u8 = 1;

/// What proves one payment, or says that it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// On a Bitcoin chain.
    Bitcoin(BitcoinProof),
    /// On a chain that hashes as Ethereum does.
    Evm(EvmProof),
    /// What a node said, and why it can be no more.
    Told(EvmTold, String),
}

/// Why there is no proof.
#[derive(Debug)]
pub enum NoProof {
    /// No node answers now.
    Source(SourceError),
    /// There will be none, for this reason.
    Never(String),
}

impl From<SourceError> for NoProof {
    fn from(error: SourceError) -> NoProof {
        match error {
            error @ (SourceError::Unreachable { .. } | SourceError::WrongNetwork(_)) => {
                NoProof::Source(error)
            }
            error => NoProof::Never(error_line(&error)),
        }
    }
}

/// The nodes of a chain, as proofs ask them.
pub enum Prover {
    /// A Bitcoin chain's.
    Bitcoin(BitcoinSource<HttpDial>),
    /// An EVM chain's.
    Evm {
        /// Its nodes.
        source: EvmSource<HttpDial>,
        /// Blocks and receipts are hashed as on Ethereum.
        is_ethereum: bool,
    },
}

impl Prover {
    /// The nodes that the config names.
    ///
    /// # Errors
    /// The place of a secret is not known.
    pub fn of(chain: ChainConfig<'_>, clock: Clock) -> Result<Prover, SecretError> {
        match chain {
            ChainConfig::Bitcoin(chain) => {
                let config = BitcoinConfig::of(chain)?;
                Ok(Prover::Bitcoin(BitcoinSource::new(
                    config,
                    HttpDial::new(),
                    clock,
                )))
            }
            ChainConfig::Evm(chain) => {
                let mut nodes = Vec::new();
                for endpoint in &chain.endpoints {
                    let dial = HttpDial::believing(endpoint.ca_file.clone());
                    nodes.push(Node::of(endpoint, chain.batch_max, dial)?);
                }
                let endpoints = Endpoints::new(EndpointsConfig::of(chain), nodes, None, clock);
                Ok(Prover::Evm {
                    source: EvmSource::new(EvmRules::of(chain), endpoints, clock),
                    is_ethereum: chain.is_ethereum,
                })
            }
        }
    }

    /// Proves credits of one block; each by itself may have no proof.
    ///
    /// # Errors
    /// [`NoProof`] of all of them.
    pub async fn prove(
        &self,
        block: TaggedBlock,
        of: &[EvidenceOf],
    ) -> Result<Vec<Result<Proof, String>>, NoProof> {
        match self {
            Prover::Bitcoin(source) => of_bitcoin(source, block, of).await,
            Prover::Evm { source, is_ethereum } => of_evm(source, *is_ethereum, block, of).await,
        }
    }

    /// Does a node answer at all?
    async fn is_up(&self) -> bool {
        match self {
            Prover::Bitcoin(source) => source.tip().await.is_ok(),
            Prover::Evm { source, .. } => source.tip().await.is_ok(),
        }
    }

    /// Headers from a block below up to the one right below `block`; `None` on EVM chains.
    ///
    /// # Errors
    /// [`NoProof`].
    pub async fn anchor(&self, from: TaggedBlock, block: TaggedBlock) -> Result<Option<Anchor>, NoProof> {
        let Prover::Bitcoin(source) = self else {
            return Ok(None);
        };
        let count = block.height.saturating_sub(from.height);
        let hashes = hashes(source, from, count).await?;
        Ok(Some(Anchor {
            at: from,
            headers: source.raw_headers(&hashes).await?,
        }))
    }
}

/// The hashes of a node's chain from a block on, which has to be on it.
async fn hashes(
    source: &BitcoinSource<HttpDial>,
    from: TaggedBlock,
    count: u64,
) -> Result<Vec<BlockHash>, NoProof> {
    let wanted = usize::try_from(count).unwrap_or(usize::MAX);
    let hashes = source.hashes(from.height, wanted).await?;
    if hashes.first() != Some(&from.hash) {
        return Err(NoProof::Never(format!(
            "block {} is not on the best chain",
            from.hash
        )));
    }
    match hashes.len() == wanted {
        true => Ok(hashes),
        false => Err(NoProof::Never(
            "the node's chain ends below the due block".to_owned(),
        )),
    }
}

async fn of_bitcoin(
    source: &BitcoinSource<HttpDial>,
    block: TaggedBlock,
    of: &[EvidenceOf],
) -> Result<Vec<Result<Proof, String>>, NoProof> {
    let last = of.iter().map(|of| of.due.height).max().unwrap_or(block.height);
    let count = (last.saturating_sub(block.height) + 1).min(HEADERS_MAX);
    let hashes = hashes(source, block, count).await?;
    let headers = source.raw_headers(&hashes).await?;
    let whole = source.read_again(block).await?;
    let prove = |of: &EvidenceOf| {
        let (headers, due) = up_to(&headers, block, of.due.height);
        let proof = bitcoin::make(&whole, &of.outpoint.txid, headers, due);
        let proof = proof.ok_or("its block does not hold the transaction")?;
        Ok(Proof::Bitcoin(proof))
    };
    Ok(of.iter().map(prove).collect())
}

/// The headers from the payment's block to the due one, or as many as a proof takes; and the last of them.
fn up_to(headers: &[RawHeader], block: TaggedBlock, due: u64) -> (Vec<RawHeader>, TaggedBlock) {
    let count = due.saturating_sub(block.height).saturating_add(1);
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(headers.len());
    let headers = headers[..count].to_vec();
    let last = TaggedBlock {
        height: block.height + (count as u64).saturating_sub(1),
        hash: headers.last().map_or(block.hash, bitcoin::hash_of),
    };
    (headers, last)
}

async fn of_evm(
    source: &EvmSource<HttpDial>,
    is_ethereum: bool,
    block: TaggedBlock,
    of: &[EvidenceOf],
) -> Result<Vec<Result<Proof, String>>, NoProof> {
    let forms = match is_ethereum {
        true => match source.block_to_prove(block.hash).await {
            Ok(block) => Ok(block),
            Err(Unprovable::Source(error)) => return Err(error.into()),
            Err(Unprovable::Forms(why)) => Err(why),
        },
        false => Err("the config does not say that the chain hashes as Ethereum does".to_owned()),
    };
    let mut proofs = Vec::new();
    for of in of {
        let place = position::Position::of_number(of.outpoint.vout).map(|(position, _)| position);
        let place = place.unwrap_or(Position::Native);
        let why = match (&forms, place) {
            (_, Position::Inner(_)) => {
                "no hash of the block covers what moves inside a transaction".to_owned()
            }
            (Err(why), _) => why.clone(),
            (Ok(block), _) => {
                let proof = block.prove(&of.outpoint.txid).map(Proof::Evm);
                proofs.push(proof.ok_or_else(|| "its block does not hold the transaction".to_owned()));
                continue;
            }
        };
        proofs.push(Ok(Proof::Told(source.told(of.outpoint.txid, place).await?, why)));
    }
    Ok(proofs)
}

/// The outpoint as the chain knows it: executions are ours to count.
pub fn on_chain(outpoint: Outpoint, chain: &ChainId) -> Outpoint {
    let place = Position::of_number(outpoint.vout).and_then(|(place, _)| place.number(0));
    match (chain.is_evm(), place) {
        (true, Some(vout)) => Outpoint { vout, ..outpoint },
        _ => outpoint,
    }
}

/// The job that collects evidence; `None` where none is wanted.
pub fn job(config: &Config, store: &Store, clock: Clock) -> Option<Job> {
    let (config, store) = (Arc::new(config.clone()), store.clone());
    config.is_evidence_stored.then(|| {
        Job::new("evidence", EVERY, LONGEST, move || {
            let (config, store) = (Arc::clone(&config), store.clone());
            async move { jobs::outcome(collect(&config, &store, clock).await) }
        })
    })
}

/// One round: of each chain what is due. A chain whose nodes do not answer holds up no other.
async fn collect(config: &Config, store: &Store, clock: Clock) -> Result<JobOutcome, StoreError> {
    let (mut made, mut failed, mut has_more) = (0, Vec::new(), false);
    for chain in config.chains() {
        match collect_of(chain, store, clock, &mut made).await? {
            Collected::All => {}
            Collected::Some => has_more = true,
            Collected::Failed(why) => failed.push(format!("{}: {why}", chain.alias())),
        }
    }
    let done = match made {
        0 => String::new(),
        made => format!("{made} credits proved"),
    };
    Ok(match (failed.is_empty(), has_more) {
        (false, _) => JobOutcome::Failed(failed.join("; ")),
        (true, true) => JobOutcome::More(done),
        (true, false) => JobOutcome::Done(done),
    })
}

enum Collected {
    All,
    Some,
    Failed(String),
}

async fn collect_of(
    config: ChainConfig<'_>,
    store: &Store,
    clock: Clock,
    made: &mut usize,
) -> Result<Collected, StoreError> {
    let chain = config.chain();
    let asked = chain.clone();
    let (due, last) = store.read(move |tx| tx.evidence_due(&asked, BATCH)).await?;
    let Some(last) = last else {
        return Ok(Collected::All);
    };
    let prover = match Prover::of(config, clock) {
        Ok(prover) => prover,
        Err(error) => return Ok(Collected::Failed(error_line(&error))),
    };
    let is_full = due.len() >= BATCH as usize;
    let mut blocks: BTreeMap<(u64, [u8; 32]), Vec<EvidenceOf>> = BTreeMap::new();
    for of in due {
        blocks
            .entry((of.block.height, of.block.hash.0))
            .or_default()
            .push(of);
    }
    for ((height, hash), of) in blocks {
        let block = TaggedBlock {
            height,
            hash: BlockHash(hash),
        };
        let credits = match prover.prove(block, &of).await {
            Ok(proofs) => {
                let proved = proofs.iter().filter(|proof| proof.is_ok());
                *made += proved.count();
                proofs
            }
            Err(NoProof::Never(why)) => vec![Err(why); of.len()],
            // One block that cannot be had must not stop those behind it.
            Err(NoProof::Source(error)) if prover.is_up().await => vec![Err(error_line(&error)); of.len()],
            Err(NoProof::Source(error)) => return Ok(Collected::Failed(error_line(&error))),
        };
        let new = packed(block, of, credits);
        let chain = chain.clone();
        store.write(move |tx| tx.keep_evidence(&chain, &new)).await?;
    }
    let chain = chain.clone();
    store.write(move |tx| tx.mark_evidence(&chain, last)).await?;
    Ok(match is_full {
        true => Collected::Some,
        false => Collected::All,
    })
}

fn packed(block: TaggedBlock, of: Vec<EvidenceOf>, proofs: Vec<Result<Proof, String>>) -> NewEvidence {
    let mut shared: Option<Vec<u8>> = None;
    let mut credits = Vec::new();
    for (of, proof) in of.into_iter().zip(proofs) {
        let own = proof.map(|proof| {
            let (own, whole) = pack(&proof);
            let is_longer = shared.as_ref().is_none_or(|shared| whole.len() > shared.len());
            if is_longer && !whole.is_empty() {
                shared = Some(whole);
            }
            own
        });
        credits.push((of.credit, own));
    }
    NewEvidence {
        block,
        shared,
        credits,
    }
}

/// A credit's own part, and what it shares with the others of its block; empty where that is nothing.
fn pack(proof: &Proof) -> (Vec<u8>, Vec<u8>) {
    match proof {
        Proof::Bitcoin(proof) => {
            let branch = |branch: &[[u8; 32]]| branch.iter().map(|hash| hash.to_vec()).collect();
            let headers = proof.headers.iter().map(|header| header.to_vec()).collect();
            (
                write(&[
                    vec![b"bitcoin".to_vec()],
                    vec![proof.tx.clone()],
                    vec![proof.index.to_be_bytes().to_vec()],
                    branch(&proof.branch),
                ]),
                write(&[
                    vec![proof.coinbase.clone()],
                    branch(&proof.coinbase_branch),
                    headers,
                ]),
            )
        }
        Proof::Evm(proof) => (
            write(&[
                vec![b"evm".to_vec()],
                vec![proof.index.to_be_bytes().to_vec()],
                proof.tx_branch.clone(),
                proof.receipt_branch.clone(),
            ]),
            write(&[vec![proof.header.clone()]]),
        ),
        Proof::Told(told, why) => {
            let text = |value: &Value| vec![value.to_string().into_bytes()];
            let parts = [
                vec![b"told".to_vec()],
                text(&told.receipt),
                text(&told.tx),
                text(&told.trace),
                vec![why.clone().into_bytes()],
            ];
            (write(&parts), Vec::new())
        }
    }
}

/// Reads back what `pack` made, for a credit that was due at a height.
pub fn unpack(own: &[u8], shared: Option<&[u8]>, block: TaggedBlock, due: u64) -> Option<Proof> {
    let own = read(own)?;
    let number = |part: &[Vec<u8>]| Some(u64::from_be_bytes(part.first()?.as_slice().try_into().ok()?));
    let hashes = |part: &[Vec<u8>]| -> Option<Vec<[u8; 32]>> {
        part.iter().map(|hash| hash.as_slice().try_into().ok()).collect()
    };
    match own.first()?.first()?.as_slice() {
        b"bitcoin" => {
            let shared = read(shared?)?;
            let [_, tx, index, branch] = own.as_slice() else {
                return None;
            };
            let [coinbase, coinbase_branch, headers] = shared.as_slice() else {
                return None;
            };
            let headers: Option<Vec<RawHeader>> = headers
                .iter()
                .map(|header| header.as_slice().try_into().ok())
                .collect();
            let headers = headers?;
            let is_there = due.saturating_sub(block.height) < (headers.len() as u64).max(1);
            if !is_there && (headers.len() as u64) < HEADERS_MAX {
                return None;
            }
            let (headers, due) = up_to(&headers, block, due);
            Some(Proof::Bitcoin(BitcoinProof {
                tx: tx.first()?.clone(),
                branch: hashes(branch)?,
                index: number(index)?,
                coinbase: coinbase.first()?.clone(),
                coinbase_branch: hashes(coinbase_branch)?,
                headers,
                due,
                anchor: None,
            }))
        }
        b"evm" => {
            let [_, index, tx_branch, receipt_branch] = own.as_slice() else {
                return None;
            };
            Some(Proof::Evm(EvmProof {
                header: read(shared?)?.first()?.first()?.clone(),
                index: number(index)?,
                tx_branch: tx_branch.clone(),
                receipt_branch: receipt_branch.clone(),
            }))
        }
        b"told" => {
            let json = |place: usize| serde_json::from_slice(own.get(place)?.first()?).ok();
            let told = EvmTold {
                receipt: json(1)?,
                tx: json(2)?,
                trace: json(3)?,
            };
            let why = String::from_utf8(own.get(4)?.first()?.clone()).ok()?;
            Some(Proof::Told(told, why))
        }
        _ => None,
    }
}

/// Lists of parts, each with its length before it.
fn write(lists: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let length = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes();
    let mut bytes = vec![VERSION];
    for list in lists {
        bytes.extend(length(list.len()));
        for part in list {
            bytes.extend(length(part.len()));
            bytes.extend(part);
        }
    }
    bytes
}

/// The lists that [`write()`] wrote.
fn read(bytes: &[u8]) -> Option<Vec<Vec<Vec<u8>>>> {
    let mut rest = bytes.strip_prefix(&[VERSION])?;
    let mut lists = Vec::new();
    while !rest.is_empty() {
        let mut list = Vec::new();
        for _ in 0..take(&mut rest)? {
            let length = usize::try_from(take(&mut rest)?).ok()?;
            let (part, behind) = rest.split_at_checked(length)?;
            list.push(part.to_vec());
            rest = behind;
        }
        lists.push(list);
    }
    Some(lists)
}

fn take(rest: &mut &[u8]) -> Option<u32> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    *rest = behind;
    Some(u32::from_be_bytes(*length))
}
