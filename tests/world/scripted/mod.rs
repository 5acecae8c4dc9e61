//! A chain made of values: a tree of blocks that several nodes share, each with a tip, a mempool and faults
//! of its own. It speaks the follower's language (`ChainSource`) and filters through the same index as a real
//! source does, with code of its own. Every id is derived from a counter, so that a seed names one run.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses its own part of this module"
)]

mod coins;
mod evm;
mod filter;
mod near;
mod node;
mod source;
mod told;
mod tree;

pub use coins::Coins;
pub use evm::{Call, Finality, Leg, account, asset_key, token};
pub use source::{Hook, Scripted, World};
pub use told::{LeftTold, ListTold, TipTold, Told};
pub use tree::{Block, Coinbase, Out, Tree, Tx};

use creditd::rules::Script;

/// A script of 22 bytes, as long as a witness program.
pub fn script(number: u32) -> Script {
    let mut bytes = vec![0, 20];
    bytes.extend([0x5c; 16]);
    bytes.extend(number.to_be_bytes());
    Script(bytes.into())
}
