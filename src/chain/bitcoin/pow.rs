//! Proof of work: what a header must show on its own, and next to its parent.

use super::config::Network;
use super::convert;
use crate::rules::{Header, HeldHeader};
use bitcoincore_rpc::bitcoin;
use bitcoincore_rpc::bitcoin::consensus::Params;
use bitcoincore_rpc::bitcoin::{CompactTarget, Target};

/// Difficulty may move at every 2016th block.
const RETARGET_BLOCKS: u64 = 2_016;

/// Does the hash meet the target that the header states, and is that target one of the network?
pub(super) fn check(
    network: Network,
    header: &bitcoin::block::Header,
    hash: bitcoin::BlockHash,
) -> Result<(), String> {
    let target = header.target();
    let limit = Params::new(network.known()).max_attainable_target;
    if target == Target::ZERO || target > limit {
        return Err(format!(
            "its target (bits {:08x}) is none of this network",
            header.bits.to_consensus()
        ));
    }
    if !target.is_met_by(hash) {
        return Err("its hash is above its target".to_owned());
    }
    Ok(())
}

/// Does the header's difficulty follow from its parent's? Between retargets it is the same; at one it moves
/// by a factor of 4 at most.
pub(super) fn check_link(network: Network, parent: &HeldHeader, header: &Header) -> Result<(), String> {
    let (before, after) = (parent.header.bits, header.bits);
    if !network.has_steady_difficulty() || before == after {
        return Ok(());
    }
    let height = parent.height.saturating_add(1);
    if !height.is_multiple_of(RETARGET_BLOCKS) {
        return Err(format!(
            "difficulty bits {after:08x} after {before:08x} at height {height}"
        ));
    }
    let (before_target, after_target) = (
        Target::from_compact(CompactTarget::from_consensus(before)),
        Target::from_compact(CompactTarget::from_consensus(after)),
    );
    // The compact form cuts low bits off, so the lower bound is cut likewise.
    let lowest = Target::from_compact(before_target.min_transition_threshold().to_compact_lossy());
    let highest = before_target.max_transition_threshold(Params::new(network.known()));
    if after_target < lowest || after_target > highest {
        return Err(format!(
            "difficulty moved by more than 4 at height {height}: {before:08x} to {after:08x}"
        ));
    }
    Ok(())
}

/// A header of the node's, checked on its own.
pub(super) fn checked_header(network: Network, header: &bitcoin::block::Header) -> Result<Header, String> {
    let hash = header.block_hash();
    check(network, header, hash)?;
    Ok(convert::header(header, hash))
}
