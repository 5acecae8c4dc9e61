//! Log blooms as a test computes them: bit by bit from the Yellow Paper, section 4.3.1.

use ethers_core::utils::keccak256;
use serde_json::Value;

/// The bloom of logs as the RPC writes both.
#[track_caller]
pub fn of_logs<'a>(logs: impl IntoIterator<Item = &'a Value>) -> String {
    let mut bits = [0; 256];
    for log in logs {
        let topics = log["topics"].as_array().unwrap();
        for input in std::iter::once(&log["address"]).chain(topics) {
            add(&mut bits, &const_hex::decode(input.as_str().unwrap()).unwrap());
        }
    }
    const_hex::encode_prefixed(bits)
}

/// Eleven bits each of the first three pairs of bytes say which bit to set, the last of the bloom being 0.
fn add(bits: &mut [u8; 256], input: &[u8]) {
    for pair in keccak256(input).chunks(2).take(3) {
        let bit = usize::from(u16::from_be_bytes([pair[0], pair[1]]) % 2048);
        bits[255 - bit / 8] |= 1 << (bit % 8);
    }
}
