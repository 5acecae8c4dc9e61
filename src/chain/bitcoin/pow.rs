//! Proof of work: what a header must show on its own, and next to its parent.

use super::config::{has_steady_difficulty, known};
use super::convert;
use crate::address::Network;
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
    let limit = Params::new(known(network)).max_attainable_target;
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
    if !has_steady_difficulty(network) || before == after {
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
    let highest = before_target.max_transition_threshold(Params::new(known(network)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{BlockHash, Work};

    fn header(bits: u32) -> Header {
        Header {
            hash: BlockHash([1; 32]),
            parent: BlockHash([0; 32]),
            time_secs: 0,
            work: Work::default(),
            bits,
        }
    }

    #[test]
    fn difficulty_moves_only_where_and_as_far_as_it_may() {
        // Mainnet's first change is that of block 32256; the largest step so far was that of block 68544.
        let cases = [
            (Network::Main, 32_254, 0x1d00_ffff, 0x1d00_ffff, true),
            (Network::Main, 32_255, 0x1d00_ffff, 0x1d00_d86a, true),
            (Network::Main, 32_256, 0x1d00_ffff, 0x1d00_d86a, false),
            (Network::Main, 68_543, 0x1c05_a3f4, 0x1c01_68fd, true),
            (Network::Main, 68_543, 0x1c05_a3f4, 0x1c01_68fc, false),
            (Network::Main, 68_543, 0x1c01_68fd, 0x1c05_a3f4, true),
            (Network::Main, 68_543, 0x1c01_68fd, 0x1c05_a3f5, false),
            (Network::Main, 2_015, 0x1d00_ffff, 0x1e00_ffff, false),
            (Network::Main, 2_015, 0x1d00_ffff, 0, false),
            (Network::Signet, 100, 0x1e03_77ae, 0x1e03_77ad, false),
            (Network::Testnet4, 100, 0x1d00_ffff, 0x1c00_ffff, true),
            (Network::Regtest, 100, 0x207f_ffff, 0x1d00_ffff, true),
        ];
        for (network, height, before, after, is_fine) in cases {
            let parent = HeldHeader {
                height,
                header: header(before),
                chainwork: Work::default(),
            };
            let answer = check_link(network, &parent, &header(after));
            assert_eq!(
                answer.is_ok(),
                is_fine,
                "{network:?} {height} {before:08x} {after:08x}: {answer:?}"
            );
        }
    }

    #[test]
    fn genesis_blocks_show_their_work_and_targets_of_no_network_are_refused() {
        for network in [
            Network::Main,
            Network::Testnet4,
            Network::Signet,
            Network::Regtest,
        ] {
            let mut header = bitcoin::constants::genesis_block(known(network)).header;
            assert_eq!(checked_header(network, &header).unwrap().hash, network.genesis());
            for bits in [0, 0x2300_0001, 0x0100_3456, 0x04ff_ffff, 0xffff_ffff] {
                header.bits = CompactTarget::from_consensus(bits);
                assert!(
                    checked_header(network, &header).is_err(),
                    "{network:?} {bits:08x}"
                );
            }
        }
    }
}
