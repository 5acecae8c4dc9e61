//! The `creditd` binary.
fn main() {}
