//! Asking nodes for what proves credits. Whatever they say is held against the claim before anybody has it.

use super::super::proof::hold;
use crate::chain::bitcoin::proof::{self as bitcoin, Anchor, BitcoinProof, RawHeader};
use crate::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use crate::chain::evm::proof::{BlockToProve, EvmProof, EvmTold, Unprovable};
use crate::chain::evm::{EvmSource, Pinned, nodes_of};
use crate::chain::proof::Claim;
use crate::chain::{ChainSource as _, SourceError, keep_busy};
use crate::clock::Clock;
use crate::config::{ChainConfig, SecretError};
use crate::egress::HttpDial;
use crate::rules::position::Position;
use crate::rules::{BlockHash, ChainId, Outpoint, TaggedBlock};
use crate::store::EvidenceOf;
use crate::telemetry::error_line;

/// The most headers of a proof: a credit that was released late names a block far above its own.
pub(super) const HEADERS_MAX: u64 = 2_016;

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

/// A proof that nodes gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The proof.
    pub proof: Proof,
    /// No node will ever give a better one.
    pub is_final: bool,
}

/// Why there is no proof.
#[derive(Debug)]
pub enum NoProof {
    /// Nodes do not answer, or do not have what it takes: today. Blocks that a node has pruned another may
    /// have.
    Source(SourceError),
    /// What nodes say is not enough, or does not hold: another answer may.
    Later(String),
    /// What is hashed says that there is none.
    Never(String),
}

impl From<SourceError> for NoProof {
    fn from(error: SourceError) -> NoProof {
        NoProof::Source(error)
    }
}

impl NoProof {
    /// In words.
    pub fn words(&self, chain: &ChainId) -> String {
        match self {
            NoProof::Source(error) => error.print_on(chain, &error_line(error)),
            NoProof::Later(why) | NoProof::Never(why) => why.clone(),
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
        /// How many nodes there are.
        nodes: usize,
    },
}

/// A claim is of the chain's own: executions are ours to count.
pub fn claim_of(of: &EvidenceOf) -> Claim {
    Claim {
        outpoint: on_chain(of.outpoint, &of.chain),
        script: of.script.clone(),
        asset: of.asset,
        amount: of.amount,
        block: of.block,
    }
}

/// The outpoint as the chain knows it: executions are ours to count.
pub fn on_chain(outpoint: Outpoint, chain: &ChainId) -> Outpoint {
    let place = Position::of_number(outpoint.vout).and_then(|(place, _)| place.number(0));
    match (chain.is_evm(), place) {
        (true, Some(vout)) => Outpoint { vout, ..outpoint },
        _ => outpoint,
    }
}

impl Prover {
    /// The nodes that the config names, held against what the books know of the chain: a proof by a node of
    /// another chain of the same name shows nothing.
    ///
    /// # Errors
    /// The place of a secret is not known.
    pub fn of(chain: ChainConfig<'_>, pinned: &Pinned, clock: Clock) -> Result<Prover, SecretError> {
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
                let nodes = nodes_of(chain, |endpoint| HttpDial::believing(endpoint.ca_file.clone()))?;
                let count = nodes.len();
                Ok(Prover::Evm {
                    source: EvmSource::of(chain, nodes, pinned, clock),
                    is_ethereum: chain.is_ethereum,
                    nodes: count,
                })
            }
        }
    }

    /// Proves credits of one block, in their order; each by itself may have no proof.
    ///
    /// # Errors
    /// [`NoProof`] of all of them.
    pub async fn prove(
        &self,
        block: TaggedBlock,
        of: &[EvidenceOf],
    ) -> Result<Vec<Result<Made, NoProof>>, NoProof> {
        let made = match self {
            Prover::Bitcoin(source) => of_bitcoin(source, block, of).await?,
            Prover::Evm {
                source,
                is_ethereum,
                nodes,
            } => of_evm(source, is_ethereum.then_some(*nodes), block, of).await?,
        };
        let held = |(of, made): (&EvidenceOf, Result<Made, NoProof>)| {
            let made = made?;
            match hold(&of.chain, &claim_of(of), &made.proof) {
                Ok(_) => Ok(made),
                Err(fault) => Err(NoProof::Later(format!(
                    "what the node said shows nothing: {fault}"
                ))),
            }
        };
        Ok(keep_busy(|| of.iter().zip(made).map(held).collect()))
    }

    /// Does a node answer at all?
    pub(super) async fn is_up(&self) -> bool {
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

    /// The headers of a block and those on top of it, `count` in all; `None` on EVM chains.
    ///
    /// # Errors
    /// [`NoProof`].
    pub async fn headers(&self, block: TaggedBlock, count: u64) -> Result<Option<Vec<RawHeader>>, NoProof> {
        let Prover::Bitcoin(source) = self else {
            return Ok(None);
        };
        let hashes = hashes(source, block, count).await?;
        Ok(Some(source.raw_headers(&hashes).await?))
    }
}

/// Can the nodes of a chain make more than a word of it?
pub fn may_prove(chain: ChainConfig<'_>, of: &EvidenceOf) -> bool {
    match chain {
        ChainConfig::Bitcoin(_) => true,
        ChainConfig::Evm(chain) => chain.is_ethereum && !matches!(place(of), Position::Inner(_)),
    }
}

fn place(of: &EvidenceOf) -> Position {
    let place = Position::of_number(of.outpoint.vout).map(|(position, _)| position);
    place.unwrap_or(Position::Native)
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
        let why = format!("the node does not have block {} on its best chain", from.hash);
        return Err(NoProof::Later(why));
    }
    match hashes.len() == wanted {
        true => Ok(hashes),
        false => Err(NoProof::Later(format!(
            "the node's chain has {} of the {wanted} blocks that are asked for from block {} on",
            hashes.len(),
            from.hash
        ))),
    }
}

async fn of_bitcoin(
    source: &BitcoinSource<HttpDial>,
    block: TaggedBlock,
    of: &[EvidenceOf],
) -> Result<Vec<Result<Made, NoProof>>, NoProof> {
    let last = of.iter().map(|of| of.due_height).max().unwrap_or(block.height);
    let count = (last.saturating_sub(block.height) + 1).min(HEADERS_MAX);
    let hashes = hashes(source, block, count).await?;
    let headers = source.raw_headers(&hashes).await?;
    let whole = source.read_again(block).await?;
    Ok(keep_busy(|| {
        let whole = bitcoin::BlockToProve::of(&whole);
        let prove = |of: &EvidenceOf| {
            let (headers, due) = up_to(&headers, block, of.due_height);
            let proof = whole.prove(&of.outpoint.txid, headers, due);
            final_or_none(proof.map(Proof::Bitcoin))
        };
        of.iter().map(prove).collect()
    }))
}

fn final_or_none(proof: Option<Proof>) -> Result<Made, NoProof> {
    let why = "its block does not hold the transaction";
    let proof = proof.ok_or_else(|| NoProof::Never(why.to_owned()))?;
    Ok(Made {
        proof,
        is_final: true,
    })
}

/// The headers from the payment's block to the due one, or as many as a proof takes; and the last of them.
pub(super) fn up_to(headers: &[RawHeader], block: TaggedBlock, due: u64) -> (Vec<RawHeader>, TaggedBlock) {
    let count = due.saturating_sub(block.height).saturating_add(1);
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(headers.len());
    let headers = headers[..count].to_vec();
    let last = last_of(&headers, block);
    (headers, last)
}

/// The place and hash of the last of a block's headers.
pub fn last_of(headers: &[RawHeader], block: TaggedBlock) -> TaggedBlock {
    TaggedBlock {
        height: block.height + (headers.len() as u64).saturating_sub(1),
        hash: headers.last().map_or(block.hash, bitcoin::hash_of),
    }
}

/// A block that one node does not have, or does not tell so that its hashes come out, another one may.
async fn block_of_any(
    source: &EvmSource<HttpDial>,
    nodes: usize,
    hash: BlockHash,
) -> Result<BlockToProve, Unprovable> {
    let mut asked = 1;
    loop {
        let why = match source.block_to_prove(hash).await {
            Err(Unprovable::Source(error)) if asked < nodes => error_line(&error),
            Err(Unprovable::Forms(why)) if asked < nodes => why,
            outcome => return outcome,
        };
        source.endpoints().pass_over_current(&why);
        asked += 1;
    }
}

/// `nodes` is how many there are; `None` where blocks are not hashed as on Ethereum.
async fn of_evm(
    source: &EvmSource<HttpDial>,
    nodes: Option<usize>,
    block: TaggedBlock,
    of: &[EvidenceOf],
) -> Result<Vec<Result<Made, NoProof>>, NoProof> {
    let is_asked = of.iter().any(|of| !matches!(place(of), Position::Inner(_)));
    let forms = match nodes.filter(|_| is_asked) {
        Some(nodes) => match block_of_any(source, nodes, block.hash).await {
            Ok(block) => Ok(block),
            Err(Unprovable::Source(error)) => return Err(error.into()),
            // A later answer may be told so that its hashes come out.
            Err(Unprovable::Forms(why)) => Err((why, false)),
        },
        None => {
            let why = "the config does not say that the chain hashes as Ethereum does (`ethereum = true`)";
            Err((why.to_owned(), true))
        }
    };
    let mut proofs = Vec::new();
    for of in of {
        proofs.push(one_of_evm(source, &forms, of).await);
    }
    Ok(proofs)
}

/// The block's forms, or why they are none and whether that is the last word.
type Forms = Result<BlockToProve, (String, bool)>;

async fn one_of_evm(source: &EvmSource<HttpDial>, forms: &Forms, of: &EvidenceOf) -> Result<Made, NoProof> {
    let place = place(of);
    let (why, is_final) = match (forms, place) {
        (_, Position::Inner(_)) => (
            "no hash of the block covers what moves inside a transaction".to_owned(),
            true,
        ),
        (Err(why), _) => why.clone(),
        (Ok(block), _) => return final_or_none(block.prove(&of.outpoint.txid).map(Proof::Evm)),
    };
    let told = source.told(of.outpoint.txid, place).await?;
    Ok(Made {
        proof: Proof::Told(told, why),
        is_final,
    })
}
