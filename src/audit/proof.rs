//! The file that proves a credit, and what it is held against: arithmetic alone. Reading one needs no config,
//! no database and no network. Start at [`verify`].

mod chain;
mod file;
mod print;

pub use chain::chain;
pub use file::{FILE_BYTES_MAX, Level, ProofFile, Unreadable};
pub use print::{More, Next, PrintError, Printed, print};

use super::evidence::Proof;
use crate::address::{EvmAddress, Network};
use crate::chain::proof::{Claim, ProofFault};
use crate::chain::{bitcoin, evm};
use crate::rules::{Amount, Asset, BlockHash, ChainId, Work, ids};
use chain::{network, print_address};
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
    /// The output, or the position with the execution before which it is, as the credit names it.
    pub vout: u64,
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

/// Holds a file against what it claims. `trusted` are blocks that the reader knows to be on the chain.
///
/// # Errors
/// [`VerifyError`]: the first check that it fails.
pub fn verify(text: &str, trusted: &[BlockHash]) -> Result<Verified, VerifyError> {
    let file = ProofFile::read(text)?;
    let chain = chain(&file.chain_id).map_err(|why| ProofFault::new("chain", why))?;
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
        vout: file.outpoint(&chain)?.vout,
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
    let shown = hold(&verified.chain, &verified.claim, &file.proof()?)?;
    verified.depth = shown.depth;
    verified.worked = shown.worked;
    verified.reaches = shown.reaches;
    let is_trusted = |hash: &&BlockHash| trusted.contains(hash);
    verified.anchored = shown.vouching.iter().find(is_trusted).copied();
    Ok(verified)
}

/// What a proof shows of a claim.
pub(super) struct Shown {
    depth: usize,
    worked: Option<(u64, Work)>,
    /// Each of these blocks, if it is trusted, vouches for the payment's.
    vouching: Vec<BlockHash>,
    reaches: Option<BlockHash>,
}

/// Holds a proof against a claim.
///
/// # Errors
/// The first check that it fails.
pub(super) fn hold(chain: &ChainId, claim: &Claim, proof: &Proof) -> Result<Shown, ProofFault> {
    let by_hash = |depth, vouching| Shown {
        depth,
        worked: None,
        vouching,
        reaches: None,
    };
    match proof {
        Proof::Bitcoin(proof) => {
            let network = network(chain)
                .ok_or_else(|| ProofFault::new("chain", "no Bitcoin network begins with this block"))?;
            let shown = bitcoin::proof::verify(network, proof, claim)?;
            Ok(Shown {
                depth: shown.depth,
                worked: Some((shown.blocks, shown.work)),
                vouching: shown.hashes,
                reaches: shown.known.map(|known| known.hash),
            })
        }
        Proof::Evm(proof) => {
            let Some(id) = chain.evm_id() else {
                return Err(ProofFault::new("chain", "it is none of Ethereum's kind"));
            };
            evm::proof::verify(id, proof, claim)?;
            Ok(by_hash(proof.receipt_branch.len(), vec![claim.block.hash]))
        }
        Proof::Told(..) if !chain.is_evm() => Err(ProofFault::new(
            "chain",
            "nothing is told of payments on Bitcoin chains",
        )),
        Proof::Told(told, _) => {
            evm::proof::verify_told(told, claim)?;
            // No hash binds the text to the block, so the block vouches for nothing.
            Ok(by_hash(0, Vec::new()))
        }
    }
}

impl Verified {
    /// Proved, and in its block.
    pub fn is_included(&self) -> bool {
        self.level == Level::Proved
    }

    /// The amount in whole units, where they need no config: nothing on an EVM chain says how many digits an
    /// asset has.
    pub fn units(&self) -> Option<String> {
        (!self.chain.is_evm()).then(|| self.claim.amount.to_units_string(DECIMALS))
    }

    /// The CAIP-19 id of what was paid; `coin` for an EVM chain's own, whose number the config alone knows.
    pub fn asset(&self) -> String {
        match (self.chain.is_evm(), self.claim.asset) {
            (false, _) => self.chain.bitcoin_asset(),
            (true, Asset::Native) => "coin".to_owned(),
            (true, Asset::Token(contract)) => self.chain.erc20(&contract),
        }
    }

    /// The amount for people.
    pub fn amount(&self) -> String {
        match (self.units(), self.claim.asset) {
            (Some(units), _) => format!("{units} BTC"),
            (None, Asset::Native) => format!("{} base units of coin", self.claim.amount),
            (None, Asset::Token(contract)) => {
                let contract = EvmAddress(contract);
                format!("{} base units of token {contract}", self.claim.amount)
            }
        }
    }
}

/// Hashes that a Bitcoin block is taken to have cost at least, where nobody says how many: about what one did
/// in January 2022. It has to be a number that is not free, and one that payments of these years reach.
const MAIN_HASHES_PER_BLOCK: &str = "1e23";

/// The hashes that blocks of a chain have to have cost where nobody says how many: none on test networks,
/// where work costs nothing.
pub fn usual_work(chain: &ChainId, blocks: u64) -> Work {
    let one = work_of_words(MAIN_HASHES_PER_BLOCK).filter(|_| network(chain) == Some(Network::Main));
    let one = one.unwrap_or_default();
    (0..blocks).fold(Work::default(), |sum, _| sum.checked_add(one).unwrap_or(sum))
}

/// Reads a number of hashes: `3900`, `3.9e24`.
pub fn work_of_words(text: &str) -> Option<Work> {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent = exponent.parse().ok().filter(|exponent| *exponent <= 77)?;
    let number = Amount::from_units_str(digits, exponent).ok()?;
    Some(Work::from_be_bytes(number.to_be_bytes()))
}

/// Work in two digits, as there is no doubt about more: `5.1e23`.
pub fn work_words(work: Work) -> String {
    let digits = Amount::from_be_bytes(work.to_be_bytes()).to_string();
    match (digits.get(..1), digits.get(1..2)) {
        (Some(first), Some(second)) if digits.len() > 3 => format!("{first}.{second}e{}", digits.len() - 1),
        _ => digits,
    }
}
