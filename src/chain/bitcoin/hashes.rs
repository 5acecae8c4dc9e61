//! Many double SHA-256 hashes in a row. Each step of a hash waits for the step before it, so a processor that
//! hashes one message after the other waits most of the time. Taken a block of each in turn, the messages do
//! not depend on each other, and their steps overlap: ids and merkle root of 6,000 transactions take 1.1 ms
//! instead of 1.9.

use sha2::block_api::compress256;

/// How many messages take turns.
const LANES: usize = 16;

/// What SHA-256 takes in at a time.
const BLOCK: usize = 64;

/// The first state of SHA-256 (FIPS 180-4, 5.3.3).
const START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// Hashes messages in the order in which they are added.
pub(super) struct DoubleHasher {
    /// The padded messages that wait, one after the other: whole blocks.
    waiting: Vec<u8>,
    /// At which block each of them begins.
    begins: Vec<usize>,
    done: Vec<[u8; 32]>,
}

impl DoubleHasher {
    /// Expects so many messages.
    pub(super) fn with_room(count: usize) -> DoubleHasher {
        DoubleHasher {
            waiting: Vec::new(),
            begins: Vec::with_capacity(LANES),
            done: Vec::with_capacity(count),
        }
    }

    /// Adds a message that is given in parts.
    pub(super) fn add(&mut self, parts: &[&[u8]]) {
        let begin = self.waiting.len();
        self.begins.push(begin / BLOCK);
        for part in parts {
            self.waiting.extend_from_slice(part);
        }
        // One bit, zeros, and the number of bits at the very end of a block.
        let bits = 8 * (self.waiting.len() - begin) as u64;
        self.waiting.push(0x80);
        let end = (self.waiting.len() + 8).next_multiple_of(BLOCK);
        self.waiting.resize(end - 8, 0);
        self.waiting.extend_from_slice(&bits.to_be_bytes());
        if self.begins.len() == LANES {
            self.work();
        }
    }

    /// All hashes.
    pub(super) fn finish(mut self) -> Vec<[u8; 32]> {
        self.work();
        self.done
    }

    fn work(&mut self) {
        let mut states = [START; LANES];
        let count = self.begins.len();
        let (blocks, _) = self.waiting.as_chunks::<BLOCK>();
        let ends = self.begins.iter().skip(1).copied().chain([blocks.len()]);
        let mut messages: [&[[u8; BLOCK]]; LANES] = [&[]; LANES];
        for ((message, begin), end) in messages.iter_mut().zip(&self.begins).zip(ends) {
            *message = &blocks[*begin..end];
        }
        let longest = messages.iter().map(|message| message.len()).max().unwrap_or(0);
        for turn in 0..longest {
            for (state, message) in states.iter_mut().zip(&messages) {
                if let Some(block) = message.get(turn) {
                    compress256(state, std::slice::from_ref(block));
                }
            }
        }
        let mut seconds = [START; LANES];
        for (second, first) in seconds.iter_mut().zip(&states).take(count) {
            let mut block = [0; BLOCK];
            block[..32].copy_from_slice(&bytes_of(first));
            block[32] = 0x80;
            block[56..].copy_from_slice(&256_u64.to_be_bytes());
            compress256(second, std::slice::from_ref(&block));
        }
        self.done.extend(seconds.iter().take(count).map(bytes_of));
        self.begins.clear();
        self.waiting.clear();
    }
}

fn bytes_of(state: &[u32; 8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (four, word) in bytes.chunks_exact_mut(4).zip(state) {
        four.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use bitcoincore_rpc::bitcoin::hashes::{Hash, sha256d};

    /// Every length around the ends of blocks, in every place of a turn.
    #[test]
    fn hashes_are_those_of_the_bitcoin_crate() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1_000).collect();
        let lengths: Vec<usize> = (0..200).chain([999, 3, 0, 640, 64]).collect();
        let mut hasher = DoubleHasher::with_room(lengths.len());
        for (number, length) in lengths.iter().enumerate() {
            let message = &bytes[..*length];
            let (first, rest) = message.split_at(number % 7 * length / 7);
            hasher.add(&[first, &[], rest]);
        }
        let expected = lengths
            .iter()
            .map(|length| sha256d::Hash::hash(&bytes[..*length]).to_byte_array());
        assert_eq!(hasher.finish(), expected.collect::<Vec<_>>());
        assert!(DoubleHasher::with_room(0).finish().is_empty());
    }
}
