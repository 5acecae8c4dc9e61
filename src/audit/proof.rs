//! The file that proves a credit, and what it is held against: arithmetic alone. Reading one needs no config,
//! no database and no network. Start at [`verify`].

mod file;

pub use file::{Level, ProofFile, Unreadable};

use super::evidence::{self, NoProof, Proof, Prover};
use crate::address::{self, EvmAddress, Network};
use crate::chain::proof::{Claim, ProofFault};
use crate::chain::{bitcoin, evm};
use crate::clock::Clock;
use crate::config::{Checkpoint, Config, SecretError};
use crate::rules::{Amount, BlockHash, ChainId, Script, TaggedBlock, Work, ids};
use crate::store::{Database, EvidenceOf, StoreError};
use crate::telemetry::error_line;
use thiserror::Error;

/// Bitcoin's digits after the point.
const DECIMALS: u8 = 8;

/// What a good file shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The credit.
    pub credit: String,
    /// Its chain.
    pub chain: ChainId,
    /// What is claimed.
    pub claim: Claim,
    /// The payee's address.
    pub address: String,
    /// Proved, or only told.
    pub level: Level,
    /// Why it is only told.
    pub why: String,
    /// How long the branch to the block is: of hashes, or of nodes of the tree.
    pub depth: usize,
    /// Blocks from the payment's on, and their work; `None` where there is no proof of work.
    pub worked: Option<(u64, Work)>,
    /// A block that is trusted and vouches for the payment's.
    pub anchored: Option<BlockHash>,
    /// A block below that everybody knows and that the file's headers go down to: they have the work that
    /// they show from there on, and may still be a branch of somebody's own.
    pub reaches: Option<BlockHash>,
}

/// Why a file shows nothing.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// It is no such file.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// It is one, and what it claims is not what it shows.
    #[error(transparent)]
    False(#[from] ProofFault),
}

/// Why no file can be printed.
#[derive(Debug, Error)]
pub enum PrintError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The place of a secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// There is nothing to prove, or nothing to prove it with.
    #[error("{0}")]
    None(String),
    /// No node answers.
    #[error("no node answers: {0}")]
    Node(String),
}

/// Holds a file against what it claims. `trusted` are blocks that the reader knows to be on the chain.
///
/// # Errors
/// [`VerifyError`]: the first check that it fails.
pub fn verify(text: &str, trusted: &[BlockHash]) -> Result<Verified, VerifyError> {
    let file = ProofFile::read(text)?;
    let chain = ChainId::from_stored(file.chain_id.clone());
    let claim = file.claim(&chain)?;
    if file.credit != ids::credit_id(&chain, &file.outpoint(&chain)?) {
        return Err(ProofFault::new("credit", "its id is not that of this outpoint on this chain").into());
    }
    let printed = print_address(&chain, &claim.script);
    if printed.as_deref() != Some(file.claim.address.as_str()) {
        return Err(ProofFault::new("address", "it is not that of the script on this chain").into());
    }
    let mut verified = Verified {
        credit: file.credit.clone(),
        address: file.claim.address.clone(),
        level: file.level,
        why: file.why.clone(),
        depth: 0,
        worked: None,
        anchored: None,
        reaches: None,
        claim,
        chain,
    };
    let claim = &verified.claim;
    match file.proof()? {
        Proof::Bitcoin(proof) => {
            let network = network(&verified.chain)
                .ok_or_else(|| ProofFault::new("chain", "no Bitcoin network begins with this block"))?;
            let shown = bitcoin::proof::verify(network, &proof, claim)?;
            let is_trusted = |hash: &&BlockHash| trusted.contains(hash);
            let trusted = shown.hashes.iter().find(is_trusted).copied();
            verified.anchored = trusted;
            verified.reaches = shown.known.map(|known| known.hash);
            verified.depth = shown.depth;
            verified.worked = Some((shown.blocks, shown.work));
        }
        Proof::Evm(proof) => {
            let Some(id) = verified.chain.evm_id() else {
                return Err(ProofFault::new("chain", "it is none of Ethereum's kind").into());
            };
            evm::proof::verify(id, &proof, claim)?;
            verified.depth = proof.receipt_branch.len();
            verified.anchored = trusted.contains(&claim.block.hash).then_some(claim.block.hash);
        }
        Proof::Told(told, _) => {
            evm::proof::verify_told(&told, claim)?;
            verified.anchored = trusted.contains(&claim.block.hash).then_some(claim.block.hash);
        }
    }
    Ok(verified)
}

/// The network that a chain's id begins with; an EVM chain has none.
fn network(chain: &ChainId) -> Option<Network> {
    let genesis = chain.caip2().strip_prefix("bip122:")?;
    let begins = |network: &Network| network.genesis().to_string().get(..32) == Some(genesis);
    Network::ALL.into_iter().find(begins)
}

fn print_address(chain: &ChainId, script: &Script) -> Option<String> {
    match chain.is_evm() {
        true => EvmAddress::of_script(script).map(|address| address.to_string()),
        false => address::print(network(chain)?, script),
    }
}

impl Verified {
    /// Proved, and in its block.
    pub fn is_included(&self) -> bool {
        self.level == Level::Proved
    }

    /// The amount for people: Bitcoin's has a unit that needs no config.
    pub fn amount(&self) -> String {
        match (self.chain.is_evm(), self.claim.asset) {
            (false, _) => format!("{} BTC", self.claim.amount.to_units_string(DECIMALS)),
            (true, crate::rules::Asset::Native) => format!("{} base units of coin", self.claim.amount),
            (true, crate::rules::Asset::Token(contract)) => {
                let contract = EvmAddress(contract);
                format!("{} base units of token {contract}", self.claim.amount)
            }
        }
    }
}

/// Work in two digits, as there is no doubt about more: `5.1e23`.
pub fn work_words(work: Work) -> String {
    let digits = Amount::from_be_bytes(work.to_be_bytes()).to_string();
    match (digits.get(..1), digits.get(1..2)) {
        (Some(first), Some(second)) if digits.len() > 3 => format!("{first}.{second}e{}", digits.len() - 1),
        _ => digits,
    }
}

/// The file that proves a credit: from what is stored, else from the nodes. `from_checkpoint` adds the
/// headers from the next lower block that everybody knows.
///
/// # Errors
/// [`PrintError`].
pub fn print(
    (config, clock): (&Config, Clock),
    database: &Database,
    credit: &str,
    is_from_checkpoint: bool,
) -> Result<ProofFile, PrintError> {
    let id = credit.to_owned();
    let subject = database.read(|tx| tx.evidence_subject(&id))?;
    let Some(of) = subject else {
        let what = format!("{credit}: no such credit that a chain is the cause of, or it is reversed now");
        return Err(PrintError::None(what));
    };
    let stored = stored(database, &of)?;
    let chain = config.chains().find(|chain| *chain.chain() == of.chain);
    let (mut proof, mut made_at) = match stored {
        Some((proof, made_at)) => (Some(proof), made_at),
        None => (None, clock.now_ms()),
    };
    if proof.is_none() || is_from_checkpoint {
        let chain = chain.ok_or_else(|| {
            PrintError::None(format!("{credit}: the config does not name chain {}", of.chain))
        })?;
        let prover = Prover::of(chain, clock)?;
        let checkpoints = match chain {
            crate::config::ChainConfig::Bitcoin(chain) => chain.checkpoints.clone(),
            crate::config::ChainConfig::Evm(_) => Vec::new(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| PrintError::Node(error.to_string()))?;
        let asked = async {
            let mut proof = match proof.take() {
                Some(proof) => proof,
                None => {
                    made_at = clock.now_ms();
                    let proofs = prover.prove(of.block, std::slice::from_ref(&of)).await?;
                    let proof = proofs.into_iter().next();
                    proof
                        .unwrap_or_else(|| Err("nothing came".to_owned()))
                        .map_err(NoProof::Never)?
                }
            };
            if let (true, Proof::Bitcoin(proof)) = (is_from_checkpoint, &mut proof) {
                let from = lower(&of.chain, &checkpoints, of.block.height);
                let from = from.ok_or_else(|| NoProof::Never("no checkpoint is below it".to_owned()))?;
                proof.anchor = prover.anchor(from, of.block).await?;
            }
            Ok::<Proof, NoProof>(proof)
        };
        proof = Some(runtime.block_on(asked).map_err(|error| match error {
            NoProof::Source(error) => PrintError::Node(error_line(&error)),
            NoProof::Never(why) => PrintError::None(format!("{credit}: {why}")),
        })?);
    }
    let proof = proof.ok_or_else(|| PrintError::None(format!("{credit}: no proof")))?;
    let address = print_address(&of.chain, &of.script)
        .ok_or_else(|| PrintError::None(format!("{credit}: its script has no address")))?;
    Ok(ProofFile::of(&of, proof, address, made_at))
}

/// What is stored of a credit in the block where the books have it now.
fn stored(database: &Database, of: &EvidenceOf) -> Result<Option<(Proof, i64)>, StoreError> {
    let (rows, shared) = database.read(|tx| {
        let shared = tx.evidence_block(&of.chain, &of.block.hash)?;
        Ok((tx.evidence_of(&of.credit)?, shared))
    })?;
    let row = rows.into_iter().find(|row| row.block == of.block.hash);
    let Some((body, made_at)) = row.and_then(|row| Some((row.body?, row.made_at))) else {
        return Ok(None);
    };
    let proof = evidence::unpack(&body, shared.as_deref(), of.block, of.due.height);
    Ok(proof.map(|proof| (proof, made_at)))
}

/// The next block below a height that everybody knows: a checkpoint, or the first block.
fn lower(chain: &ChainId, configured: &[Checkpoint], height: u64) -> Option<TaggedBlock> {
    let network = network(chain)?;
    let first = TaggedBlock {
        height: 0,
        hash: network.genesis(),
    };
    let known = bitcoin::checkpoints(network)
        .into_iter()
        .chain(configured.iter().copied());
    let known = known.map(|known| TaggedBlock {
        height: known.height,
        hash: known.hash,
    });
    known
        .chain([first])
        .filter(|known| known.height < height)
        .max_by_key(|known| known.height)
}
