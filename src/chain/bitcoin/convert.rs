//! Between the `bitcoin` crate's types and ours. Theirs keep hashes as they are hashed, ours as they are
//! printed.

use crate::rules::{BlockHash, Header, Outpoint, Txid, Work};
use bitcoincore_rpc::bitcoin;
use bitcoincore_rpc::bitcoin::hashes::Hash;

pub(super) fn block_hash(theirs: bitcoin::BlockHash) -> BlockHash {
    BlockHash(reversed(theirs.to_byte_array()))
}

pub(super) fn txid(theirs: bitcoin::Txid) -> Txid {
    Txid(reversed(theirs.to_byte_array()))
}

pub(super) fn outpoint(theirs: bitcoin::OutPoint) -> Outpoint {
    Outpoint {
        txid: txid(theirs.txid),
        vout: u64::from(theirs.vout),
    }
}

/// From the 36 bytes in which an input names what it spends.
pub(super) fn raw_outpoint(raw: &[u8; 36]) -> Outpoint {
    let (mut txid, mut vout) = ([0; 32], [0; 4]);
    txid.copy_from_slice(&raw[..32]);
    vout.copy_from_slice(&raw[32..]);
    Outpoint {
        txid: Txid(reversed(txid)),
        vout: u64::from(u32::from_le_bytes(vout)),
    }
}

pub(super) fn header(theirs: &bitcoin::block::Header, hash: bitcoin::BlockHash) -> Header {
    Header {
        hash: block_hash(hash),
        parent: block_hash(theirs.prev_blockhash),
        time_secs: u64::from(theirs.time),
        work: Work::from_be_bytes(theirs.work().to_be_bytes()),
        bits: theirs.bits.to_consensus(),
    }
}

/// From one of the two orders to the other.
pub(super) fn reversed(mut bytes: [u8; 32]) -> [u8; 32] {
    bytes.reverse();
    bytes
}
