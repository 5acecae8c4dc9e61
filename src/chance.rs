//! Random numbers for what is drawn while requests are answered: tokens of payment pages and secrets of
//! endpoints. Everything that draws there is given a [`Chance`], so that tests and the simulator can have the
//! same draws again; the daemon's come from the operating system.

use std::sync::atomic::{AtomicU64, Ordering};

/// Where random bytes come from. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Chance(Source);

#[derive(Clone, Copy, Debug)]
enum Source {
    Real,
    Seeded(&'static AtomicU64),
}

/// Steps of SplitMix64: every state is met once before one comes again.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Chance {
    /// The operating system's.
    pub fn real() -> Chance {
        Chance(Source::Real)
    }

    /// The same bytes in the same order for the same seed: nothing that is to be secret. Its eight bytes are
    /// never freed: all copies draw from one sequence.
    pub fn seeded(seed: u64) -> Chance {
        Chance(Source::Seeded(Box::leak(Box::new(AtomicU64::new(seed)))))
    }

    /// Fills `bytes`.
    ///
    /// # Errors
    /// The operating system has no random numbers to give.
    pub fn fill(&self, bytes: &mut [u8]) -> Result<(), getrandom::Error> {
        match self.0 {
            Source::Real => getrandom::fill(bytes),
            Source::Seeded(state) => {
                for part in bytes.chunks_mut(8) {
                    let before = state.fetch_add(STEP, Ordering::Relaxed);
                    let drawn = mixed(before.wrapping_add(STEP)).to_be_bytes();
                    part.copy_from_slice(&drawn[..part.len()]);
                }
                Ok(())
            }
        }
    }
}

fn mixed(state: u64) -> u64 {
    let first = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let second = (first ^ (first >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    second ^ (second >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(chance: Chance, times: usize) -> Vec<[u8; 20]> {
        let draw = |_| {
            let mut bytes = [0; 20];
            chance.fill(&mut bytes).unwrap();
            bytes
        };
        (0..times).map(draw).collect()
    }

    #[test]
    fn a_seed_gives_the_same_draws_again_and_no_other_seed_does() {
        let first = drawn(Chance::seeded(7), 3);
        assert_eq!(first, drawn(Chance::seeded(7), 3));
        assert_ne!(first, drawn(Chance::seeded(8), 3));
        assert!(first[0] != first[1] && first[1] != first[2], "{first:?}");
        let (one, other) = (Chance::seeded(7), Chance::seeded(7));
        let copy = one;
        assert_eq!(drawn(one, 1), drawn(other, 1));
        assert_eq!(drawn(copy, 1), drawn(other, 1), "copies draw from one sequence");
    }

    #[test]
    fn the_systems_draws_differ() {
        let drawn = drawn(Chance::real(), 2);
        assert_ne!(drawn[0], drawn[1]);
    }

    /// The published sequence of SplitMix64 for the seed 0.
    #[test]
    fn the_sequence_is_that_of_split_mix() {
        let mut bytes = [0; 24];
        Chance::seeded(0).fill(&mut bytes).unwrap();
        let expected = [
            0xe220_a839_7b1d_cdaf_u64,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ];
        assert_eq!(bytes.to_vec(), expected.map(u64::to_be_bytes).concat());
    }
}
