//! Random bytes for what the API hands out. Everything driven by a simulator draws them here, so that a seed
//! decides them too.

/// Where random bytes come from. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Chance(());

impl Chance {
    /// The machine's own.
    pub fn real() -> Chance {
        Chance(())
    }

    /// Fills `bytes`.
    ///
    /// # Errors
    /// When the machine has none to give.
    pub fn fill(&self, bytes: &mut [u8]) -> Result<(), getrandom::Error> {
        getrandom::fill(bytes)
    }
}
