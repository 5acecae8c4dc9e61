//! What a proof of a payment is held against, and how it is refused. The proofs themselves are the chains':
//! `bitcoin::proof`, `evm::proof`. Nobody is asked here, and nothing is believed but arithmetic.

use crate::rules::{Amount, Asset, Outpoint, Script, TaggedBlock};
use thiserror::Error;

/// What a proof is to show: that this was paid in this block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Transaction, and output number or position on the chain (of execution 0).
    pub outpoint: Outpoint,
    /// Who is paid.
    pub script: Script,
    /// In what.
    pub asset: Asset,
    /// How much, in base units.
    pub amount: Amount,
    /// The block that holds it.
    pub block: TaggedBlock,
}

/// What of a proof is false.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{check}: {why}")]
pub struct ProofFault {
    /// The check that it fails, one word or two.
    pub check: &'static str,
    /// Why, in words.
    pub why: String,
}

impl ProofFault {
    /// A fault.
    pub fn new(check: &'static str, why: impl Into<String>) -> ProofFault {
        ProofFault {
            check,
            why: why.into(),
        }
    }
}
