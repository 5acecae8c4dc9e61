//! Transactions, headers and blocks as consensus bytes, written by hand: whoever reads them must not share a
//! mistake with whoever wrote them. There is nothing here that reads.

use crate::rules::{BlockHash, Outpoint, Txid};
use sha2::{Digest, Sha256};

/// The target of every regtest block, in the header's compact form and as printed.
pub(super) const BITS: u32 = 0x207f_ffff;
pub(super) const TARGET: &str = "7fffff0000000000000000000000000000000000000000000000000000000000";

/// Any hash whose printed form begins below 0x7fffff meets the target: about every second one.
const TARGET_TOP: [u8; 3] = [0x7f, 0xff, 0xff];

/// What a wallet that allows replacement puts into its inputs (BIP 125).
pub(super) const REPLACEABLE: u32 = 0xffff_fffd;

/// Where a coinbase has an input: no transaction, no output.
const NOTHING: Outpoint = Outpoint {
    txid: Txid([0; 32]),
    vout: 0xffff_ffff,
};

pub(super) struct Input {
    pub(super) spends: Outpoint,
    pub(super) script: Vec<u8>,
    pub(super) sequence: u32,
    pub(super) witness: Vec<Vec<u8>>,
}

pub(super) struct Output {
    pub(super) sat: u64,
    pub(super) script: Vec<u8>,
}

/// A transaction with the bytes and ids that follow from it.
pub(super) struct Tx {
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: Vec<Output>,
    pub(super) is_coinbase: bool,
    pub(super) txid: Txid,
    /// As nodes send it, witness included.
    pub(super) bytes: Vec<u8>,
    /// The bytes without the witness, which the id is of.
    pub(super) stripped_size: usize,
    /// Hash of all the bytes, in wire order.
    wtxid: [u8; 32],
}

impl Tx {
    /// A payment.
    pub(super) fn new(inputs: Vec<Input>, outputs: Vec<Output>) -> Tx {
        Tx::of_version(2, inputs, outputs)
    }

    fn of_version(version: i32, inputs: Vec<Input>, outputs: Vec<Output>) -> Tx {
        let stripped = tx_bytes(version, &inputs, &outputs, false);
        let has_witness = inputs.iter().any(|input| !input.witness.is_empty());
        let bytes = tx_bytes(version, &inputs, &outputs, has_witness);
        Tx {
            is_coinbase: inputs.iter().any(|input| input.spends == NOTHING),
            txid: Txid(as_printed(sha256d(&stripped))),
            stripped_size: stripped.len(),
            wtxid: sha256d(&bytes),
            inputs,
            outputs,
            bytes,
        }
    }

    /// The first transaction of a block at `height` (BIP 34 puts the height into it). `extra` makes it
    /// another one than that of any other block. The commitment to the witnesses of `others` is that of
    /// BIP 141.
    pub(super) fn coinbase(height: u32, extra: u32, reward: Output, others: &[&Tx]) -> Tx {
        let mut script = push_number(height);
        script.push(4);
        script.extend_from_slice(&extra.to_le_bytes());
        let input = Input {
            spends: NOTHING,
            script,
            sequence: 0xffff_ffff,
            witness: vec![vec![0; 32]],
        };
        // Its own place in the tree is zero: it cannot hold a hash of itself.
        let mut leaves = vec![[0; 32]];
        leaves.extend(others.iter().map(|tx| tx.wtxid));
        let mut commitment = vec![0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed];
        commitment.extend(sha256d(&[merkle_root(leaves), [0; 32]].concat()));
        let witnesses = Output {
            sat: 0,
            script: commitment,
        };
        Tx::new(vec![input], vec![reward, witnesses])
    }

    /// The only transaction of the genesis block that all of Bitcoin's networks but testnet4 share.
    pub(super) fn genesis() -> Tx {
        const HEADLINE: &[u8] = b"The Times 03/Jan/2009 Chancellor on brink of second bailout for banks";
        const KEY: &str = "04678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb6\
                           49f6bc3f4cef38c4f35504e51ec112de5c384df7ba0b8d578a4c702b6bf11d5f";
        let mut script = vec![0x04, 0xff, 0xff, 0x00, 0x1d, 0x01, 0x04, 0x45];
        script.extend_from_slice(HEADLINE);
        let mut pays = vec![0x41];
        pays.extend(const_hex::decode(KEY).unwrap_or_default());
        pays.push(0xac);
        let input = Input {
            spends: NOTHING,
            script,
            sequence: 0xffff_ffff,
            witness: Vec::new(),
        };
        let output = Output {
            sat: 5_000_000_000,
            script: pays,
        };
        Tx::of_version(1, vec![input], vec![output])
    }

    /// As its first four bytes say.
    pub(super) fn version(&self) -> i32 {
        let head = self.bytes.first_chunk().copied().unwrap_or_default();
        i32::from_le_bytes(head)
    }

    /// Hash of all the bytes, as printed.
    pub(super) fn wtxid(&self) -> [u8; 32] {
        as_printed(self.wtxid)
    }

    /// Size as fees count it: bytes of the witness weigh a quarter.
    pub(super) fn virtual_size(&self) -> u64 {
        (self.stripped_size * 3 + self.bytes.len()).div_ceil(4) as u64
    }
}

fn tx_bytes(version: i32, inputs: &[Input], outputs: &[Output], has_witness: bool) -> Vec<u8> {
    let mut to = version.to_le_bytes().to_vec();
    if has_witness {
        to.extend([0, 1]);
    }
    put_count(&mut to, inputs.len());
    for input in inputs {
        to.extend(as_printed(input.spends.txid.0));
        // The field has four bytes; ours are never larger.
        to.extend_from_slice(&input.spends.vout.to_le_bytes()[..4]);
        put_bytes(&mut to, &input.script);
        to.extend(input.sequence.to_le_bytes());
    }
    put_count(&mut to, outputs.len());
    for output in outputs {
        to.extend(output.sat.to_le_bytes());
        put_bytes(&mut to, &output.script);
    }
    if has_witness {
        for input in inputs {
            put_count(&mut to, input.witness.len());
            input.witness.iter().for_each(|item| put_bytes(&mut to, item));
        }
    }
    to.extend(0_u32.to_le_bytes()); // No lock time.
    to
}

/// The 80 bytes that are a block's identity.
#[derive(Clone)]
pub(super) struct Header {
    pub(super) version: i32,
    pub(super) parent: BlockHash,
    /// As printed.
    pub(super) merkle_root: [u8; 32],
    pub(super) time: u32,
    pub(super) nonce: u32,
}

impl Header {
    pub(super) fn genesis() -> Header {
        Header {
            version: 1,
            parent: BlockHash([0; 32]),
            merkle_root: Tx::genesis().txid.0,
            time: 1_296_688_602,
            nonce: 2,
        }
    }

    /// A header with its work done.
    pub(super) fn mined(parent: BlockHash, time: u32, txs: &[&Tx]) -> Header {
        let leaves = txs.iter().map(|tx| as_printed(tx.txid.0)).collect();
        let mut header = Header {
            version: 0x2000_0000,
            parent,
            merkle_root: as_printed(merkle_root(leaves)),
            time,
            nonce: 0,
        };
        while header.hash().0[..3] >= TARGET_TOP[..] {
            header.nonce += 1;
        }
        header
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut to = self.version.to_le_bytes().to_vec();
        to.extend(as_printed(self.parent.0));
        to.extend(as_printed(self.merkle_root));
        to.extend(self.time.to_le_bytes());
        to.extend(BITS.to_le_bytes());
        to.extend(self.nonce.to_le_bytes());
        to
    }

    pub(super) fn hash(&self) -> BlockHash {
        BlockHash(as_printed(sha256d(&self.bytes())))
    }
}

/// A whole block.
pub(super) fn block_bytes<'a>(header: &Header, txs: impl ExactSizeIterator<Item = &'a Tx>) -> Vec<u8> {
    let mut to = header.bytes();
    put_count(&mut to, txs.len());
    txs.for_each(|tx| to.extend_from_slice(&tx.bytes));
    to
}

/// The bytes that [`put_count`] takes.
pub(super) fn count_size(count: usize) -> usize {
    let mut to = Vec::new();
    put_count(&mut to, count);
    to.len()
}

/// The first 20 bytes of a hash, as keys and scripts are named by. No key is behind them: nobody needs to
/// spend what a sandbox pays.
pub(super) fn key_hash(label: &[u8]) -> [u8; 20] {
    let mut short = [0; 20];
    short.copy_from_slice(&Sha256::digest(label)[..20]);
    short
}

pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn sha256d(bytes: &[u8]) -> [u8; 32] {
    sha256(&sha256(bytes))
}

/// Bitcoin prints its hashes backwards; and back again.
fn as_printed(mut hash: [u8; 32]) -> [u8; 32] {
    hash.reverse();
    hash
}

/// A level of odd length repeats its last hash.
fn merkle_root(mut level: Vec<[u8; 32]>) -> [u8; 32] {
    while level.len() > 1 {
        level = level
            .chunks(2)
            .map(|pair| sha256d(&[pair[0], *pair.last().unwrap_or(&pair[0])].concat()))
            .collect();
    }
    level.first().copied().unwrap_or_default()
}

/// The shortest push of a number: one opcode up to 16, else its bytes with a sign bit to spare.
fn push_number(number: u32) -> Vec<u8> {
    match u8::try_from(number) {
        Ok(0) => vec![0],
        Ok(small @ 1..=16) => vec![0x50 + small],
        _ => {
            let mut bytes = u64::from(number).to_le_bytes().to_vec();
            while bytes.last() == Some(&0) {
                bytes.pop();
            }
            if bytes.last().is_some_and(|top| top & 0x80 != 0) {
                bytes.push(0);
            }
            let mut push = vec![u8::try_from(bytes.len()).unwrap_or(0)];
            push.extend(bytes);
            push
        }
    }
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_count(to, bytes.len());
    to.extend_from_slice(bytes);
}

/// A count in the wire's variable form.
fn put_count(to: &mut Vec<u8>, count: usize) {
    let bytes = (count as u64).to_le_bytes();
    match count {
        0..=0xfc => to.push(bytes[0]),
        0xfd..=0xffff => {
            to.push(0xfd);
            to.extend_from_slice(&bytes[..2]);
        }
        0x1_0000..=0xffff_ffff => {
            to.push(0xfe);
            to.extend_from_slice(&bytes[..4]);
        }
        _ => {
            to.push(0xff);
            to.extend_from_slice(&bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn genesis_is_that_of_regtest() {
        let header = Header::genesis();
        assert_eq!(
            header.hash().to_string(),
            "0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206"
        );
        let tx = Tx::genesis();
        assert_eq!(
            tx.txid.to_string(),
            "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b"
        );
        assert_eq!(block_bytes(&header, [&tx].into_iter()).len(), 285);
    }

    #[test]
    fn numbers_are_pushed_as_bip_34_wants_them() {
        let cases: [(u32, &[u8]); 7] = [
            (0, &[0]),
            (1, &[0x51]),
            (16, &[0x60]),
            (17, &[1, 17]),
            (128, &[2, 128, 0]),
            (255, &[2, 255, 0]),
            (32_768, &[3, 0, 128, 0]),
        ];
        for (number, push) in cases {
            assert_eq!(push_number(number), push, "{number}");
        }
    }

    #[test]
    fn counts_grow_with_their_values() {
        for (count, size) in [(0xfc, 1), (0xfd, 3), (0xffff, 3), (0x1_0000, 5), (1 << 32, 9)] {
            assert_eq!(count_size(count), size, "{count}");
        }
    }
}
