//! Support for the test binaries: waiting, real nodes, scripted nodes, the daemon as a child process.
//!
//! Nothing here asserts what the product should do; the tests say that.

#![allow(dead_code, reason = "each test binary uses its own part of this module")]

pub mod accounts;
pub mod anvil;
pub mod api;
pub mod asks;
pub mod bloom;
pub mod contracts;
pub mod daemon;
pub mod evm;
pub mod evm_endpoint;
pub mod evm_proxy;
pub mod fake_chain;
pub mod http;
pub mod invoices;
pub mod metrics;
pub mod net;
pub mod node;
pub mod planted;
pub mod receiver;
pub mod server;
pub mod service_manager;
pub mod stub;
pub mod unit;
pub mod wait;
pub mod wallet;
