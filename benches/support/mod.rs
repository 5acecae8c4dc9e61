//! Support for the benches: a chain of full blocks, databases with many addresses, a bare HTTP client,
//! and the tables that they print. A bench measures creditd against the least that could do the same
//! work, in one run, because figures of two runs do not compare.

#![allow(dead_code, reason = "each bench uses its own part of this module")]

pub mod addresses;
pub mod chain;
pub mod table;
pub mod wire;

use std::path::PathBuf;
use std::time::Duration;

use creditd::clock::Clock;

/// Runs `work` and says how long it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let began = Clock::real().instant();
    let done = work();
    (began.elapsed(), done)
}

/// The folder that `tests/run` keeps its tools in; what takes long to make is kept there too.
pub fn cache() -> PathBuf {
    let named = |name| std::env::var_os(name).map(PathBuf::from);
    let folder = named("CREDITD_CACHE")
        .or_else(|| Some(named("XDG_CACHE_HOME")?.join("creditd")))
        .or_else(|| Some(named("HOME")?.join(".cache/creditd")))
        .expect("CREDITD_CACHE or HOME is set");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
