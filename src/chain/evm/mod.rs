//! A chain of Ethereum's kind through its nodes' JSON-RPC: what is needed of their answers, and nothing more.

pub mod answers;
pub mod bloom;
pub mod endpoints;
pub mod fields;
pub mod trace;
pub mod transfer;
