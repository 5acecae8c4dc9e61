//! Short hashes in memory of everything that a transaction could touch: watched and own scripts, unspent
//! outputs to them, and the inputs of stored transactions that are unconfirmed or inside the reorg window. It
//! only says "maybe": the tables are the truth and every hit is checked there, so a collision costs one look
//! and changes nothing.

use crate::rules::{ListVersion, Outpoint};
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// What one follower filters its chain with.
#[derive(Clone, Debug, Default)]
pub struct Index {
    scripts: HashSet<u64, BuildHasherDefault<AlreadyHashed>>,
    outpoints: HashSet<u64, BuildHasherDefault<AlreadyHashed>>,
    version: ListVersion,
}

impl Index {
    /// The version of the watch rules that the scripts stand at.
    pub fn version(&self) -> ListVersion {
        self.version
    }

    /// Adds the scripts of newer rules.
    pub fn add_scripts(&mut self, shorts: impl IntoIterator<Item = u64>, version: ListVersion) {
        self.scripts.extend(shorts);
        self.version = version;
    }

    /// Adds an outpoint of interest.
    pub fn add_outpoint(&mut self, outpoint: &Outpoint) {
        self.outpoints.insert(short_outpoint(outpoint));
    }

    /// Replaces all outpoints, so that those which left the reorg window are forgotten.
    pub fn replace_outpoints(&mut self, outpoints: impl IntoIterator<Item = Outpoint>) {
        self.outpoints = outpoints
            .into_iter()
            .map(|outpoint| short_outpoint(&outpoint))
            .collect();
    }

    /// Makes room for a known number of scripts, so that loading a million does not rehash.
    pub fn reserve_scripts(&mut self, count: usize) {
        self.scripts.reserve(count);
    }

    /// How many scripts there are.
    pub fn script_count(&self) -> usize {
        self.scripts.len()
    }

    /// May this script (by its short hash) be ours?
    pub fn may_hold_script(&self, short: u64) -> bool {
        self.scripts.contains(&short)
    }

    /// May this outpoint concern us?
    pub fn may_hold_outpoint(&self, outpoint: &Outpoint) -> bool {
        self.may_hold_short_outpoint(short_outpoint(outpoint))
    }

    /// The same by the outpoint's short hash.
    pub fn may_hold_short_outpoint(&self, short: u64) -> bool {
        self.outpoints.contains(&short)
    }
}

/// The short hash of a script. Fixed keys: a forged collision only costs a look in the table.
pub fn short(script: &[u8]) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325_u64 ^ script.len() as u64;
    for chunk in script.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = mix(state ^ u64::from_le_bytes(word));
    }
    state
}

/// The short hash of an outpoint. A txid is already a hash, so its last bytes serve.
pub fn short_outpoint(outpoint: &Outpoint) -> u64 {
    let mut tail = [0; 8];
    tail.copy_from_slice(&outpoint.txid.0[24..]);
    mix(u64::from_le_bytes(tail) ^ outpoint.vout.rotate_left(32))
}

/// The finaliser of MurmurHash3: every input bit reaches every output bit.
fn mix(mut word: u64) -> u64 {
    word ^= word >> 33;
    word = word.wrapping_mul(0xff51_afd7_ed55_8ccd);
    word ^= word >> 33;
    word = word.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}

/// A hasher for keys that are hashes already.
#[derive(Clone, Debug, Default)]
pub struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Txid;

    #[test]
    fn short_hashes_tell_scripts_and_outpoints_apart() {
        let scripts: HashSet<u64> = (0..100_000_u32)
            .map(|n| short(&n.to_le_bytes().repeat(6)))
            .collect();
        assert_eq!(scripts.len(), 100_000);
        assert_ne!(short(&[0]), short(&[0, 0]), "length counts");
        let mut txid = [0; 32];
        let mut outpoints = HashSet::new();
        for vout in 0..1_000 {
            txid[31] = (vout % 7) as u8;
            outpoints.insert(short_outpoint(&Outpoint {
                txid: Txid(txid),
                vout,
            }));
        }
        assert_eq!(outpoints.len(), 1_000);
    }

    #[test]
    fn what_was_added_is_found() {
        let mut index = Index::default();
        index.add_scripts([short(b"a")], ListVersion(3));
        assert!(index.may_hold_script(short(b"a")) && !index.may_hold_script(short(b"b")));
        assert_eq!(index.version(), ListVersion(3));
        let (kept, dropped) = (
            Outpoint {
                txid: Txid([1; 32]),
                vout: 0,
            },
            Outpoint {
                txid: Txid([1; 32]),
                vout: 1,
            },
        );
        index.add_outpoint(&dropped);
        index.replace_outpoints([kept]);
        assert!(index.may_hold_outpoint(&kept) && !index.may_hold_outpoint(&dropped));
    }
}
