//! What took effect: a fault that was drawn and met nothing proves nothing. Each is hit where it happened, on
//! the thread of its seed.

use std::cell::RefCell;
use std::collections::BTreeMap;

thread_local! {
    static HIT: RefCell<Marks> = const { RefCell::new(Marks(BTreeMap::new())) };
}

/// How often each mark was hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(pub BTreeMap<&'static str, u32>);

/// Something took effect in the seed that this thread runs. Names are those of [`REQUIRED`].
pub fn hit(mark: &'static str) {
    HIT.with(|hit| *hit.borrow_mut().0.entry(mark).or_default() += 1);
}

/// All since the last call.
pub fn take() -> Marks {
    HIT.with(|hit| std::mem::take(&mut *hit.borrow_mut()))
}

impl Marks {
    pub fn add(&mut self, other: &Marks) {
        for (mark, count) in &other.0 {
            *self.0.entry(mark).or_default() += count;
        }
    }

    /// Those that a batch must have and has not.
    pub fn zeros(&self) -> Vec<&'static str> {
        let all = REQUIRED.iter().flat_map(|(_, marks)| marks.iter());
        all.filter(|mark| !self.0.contains_key(**mark)).copied().collect()
    }
}

/// The fault matrix: each fault, and what shows that it took effect.
pub const REQUIRED: &[(&str, &[&str])] = &[];

pub fn table() -> Vec<String> {
    let rows = REQUIRED.iter();
    rows.map(|(fault, marks)| format!("{fault}: {}", marks.join(", ")))
        .collect()
}
