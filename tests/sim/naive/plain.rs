//! A chain and its rules in plain numbers and bytes.

use std::collections::{BTreeMap, BTreeSet};

pub type Id = [u8; 32];
/// A transaction and a place in it; on EVM chains without the number of the execution.
pub type At = (Id, u64);

#[derive(Clone, Debug)]
pub struct Out {
    pub place: u64,
    pub script: Vec<u8>,
    pub asset: u64,
    pub amount: u64,
    /// EVM: whose it was.
    pub from: Option<Vec<u8>>,
    pub is_doubtful: bool,
}

#[derive(Clone, Debug)]
pub struct Tx {
    pub id: Id,
    pub is_coinbase: bool,
    /// What only one transaction can use up: outputs, or the nonce of a sender.
    pub inputs: Vec<At>,
    pub sender: Option<Vec<u8>>,
    pub is_failed: bool,
    pub outs: Vec<Out>,
}

/// A watch rule. `met`: payments that came to be known while it counted, by output, or by asset on EVM
/// chains.
#[derive(Clone, Debug)]
pub struct Rule {
    pub script: Vec<u8>,
    pub merchant: String,
    pub is_watched: bool,
    pub internal: String,
    pub from: Option<u64>,
    /// So many confirmations at least, by its invoice.
    pub raised: u64,
    pub met: BTreeSet<At>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Depth(u64),
    Safe,
    Final,
}

#[derive(Debug, Default)]
pub struct Terms {
    pub rules: Vec<Rule>,
    /// From which height assets count.
    pub assets: BTreeMap<u64, u64>,
    /// What sums below a bound need, and all others.
    pub tiers: Vec<(Option<u64>, Needs)>,
    /// What invoices ask for at least, by their script.
    pub raised: BTreeMap<Vec<u8>, u64>,
}

/// An output on the best chain that a rule matches.
#[derive(Clone, Debug)]
pub struct Paid {
    pub height: u64,
    pub out: Out,
    pub merchant: String,
    pub origin: &'static str,
    pub spent: Option<At>,
    pub raised: u64,
    /// Is it a payment, and does it start held?
    pub deposit: Option<bool>,
    pub is_coinbase: bool,
}
