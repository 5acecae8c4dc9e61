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

/// Something took effect in the seed that this thread runs. Names are those of the table in `marks`.
pub fn hit(mark: &'static str) {
    HIT.with(|hit| *hit.borrow_mut().0.entry(mark).or_default() += 1);
}

/// All since the last call.
pub fn take() -> Marks {
    HIT.with(|hit| std::mem::take(&mut *hit.borrow_mut()))
}
