//! The simulator: drives the whole daemon (follower, store, deliverer, API) from one number, with a disk,
//! nodes, receivers and clients that fail, and asks after every step whether the books still hold. Start at
//! `run`, which is one seed; `script` is what may happen.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]
#![allow(dead_code, unused_imports, reason = "the parts are joined one by one")]

#[path = "../world/dice.rs"]
mod dice;
#[path = "../world/scripted/mod.rs"]
mod scripted;
#[path = "../world/tables.rs"]
mod tables;

mod again;
mod checks;
mod clients;
mod death;
mod disk;
mod feeding;
mod history;
mod inbox;
mod life;
mod marks;
mod naive;
mod operators;
mod parts;
mod receivers;
mod run;
mod script;
mod setting;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "parts") {
        parts::run();
        return ExitCode::SUCCESS;
    }
    // The test runner asks for names; there are none that it should run by itself.
    if args.iter().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    ExitCode::SUCCESS
}
