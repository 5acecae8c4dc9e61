//! Tests against what is not ours: a real bitcoind on regtest, a real EVM node (Anvil), a real browser, and
//! receivers of callbacks in other languages. They fail where there is none; `tests/run tools` fetches them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

mod anvil;
mod audit;
mod between_calls;
mod bitcoin_source;
mod books;
mod browser;
mod cases_atomic;
mod cases_evm;
mod cases_identity;
mod cases_invoices;
mod cases_outputs;
mod cases_reorg;
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod drill;
mod evm_daemon;
mod evm_proxy;
mod evm_reread;
mod evm_rig;
mod evm_source;
mod evm_sweep;
mod first_payment;
mod foreign_webhooks;
mod harness;
mod hints;
mod kill;
mod kill_callbacks;
mod logins;
mod lossy;
mod market;
mod merchant;
mod n_loop;
mod openapi;
mod own_coins;
mod pay_page;
mod payments;
mod pools;
mod proof;
mod reorgs;
mod replacements;
mod reread;
mod restarts;
mod restores;
mod sandbox_conformance;
mod sandbox_evm_conformance;
mod shop;
