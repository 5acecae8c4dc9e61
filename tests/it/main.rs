//! Tests that need no node: the public parts of the library, the command line, scripted nodes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "../common/mod.rs"]
mod common;

mod absurd_numbers;
mod accept_reorg;
mod address;
mod await_sweep;
mod bad_nodes;
mod balancers;
mod bitcoin_source;
mod callback_clock;
mod callback_dial;
mod callback_leases;
mod callback_order;
mod callback_receivers;
mod callback_urls;
mod callbacks;
mod cases_addresses;
mod cases_amounts;
mod cases_answers;
mod cases_backup;
mod cases_callback_urls;
mod cases_config;
mod cases_identity;
mod cases_lookup;
mod cases_rescan;
mod cases_restart;
mod cases_shapes;
mod cases_sync;
mod cli_accounts;
mod cli_check;
mod cli_check_evm;
mod cli_errors;
mod cli_evm;
mod cli_find;
mod cli_help;
mod cli_json;
mod cli_reports;
mod cli_running;
mod cli_unattributed;
mod cli_watch;
mod config;
mod config_evm;
mod daemon_evm;
mod demo;
mod depths;
mod evm_endpoints;
mod evm_forks;
mod evm_naive;
mod evm_player;
mod evm_properties;
mod evm_proxy;
mod evm_repeats;
mod evm_rig;
mod evm_runs;
mod evm_tags;
mod evm_transfers;
mod full_disk;
mod harness;
mod lists;
mod long_rescans;
mod mail;
mod many_endpoints;
mod memory;
mod mempool_pace;
mod mempools;
mod monitoring;
mod naive;
mod operations;
mod operations_page;
mod operator;
mod ops;
mod planted;
mod player;
mod properties;
mod reorgs;
mod repeats;
mod rescans;
mod resends;
mod retargets;
mod rig;
mod rpc_client;
mod rpc_provider;
mod sample;
mod sample_evm;
mod sandbox;
mod sandbox_evm;
mod schema;
mod scripted;
mod secrets;
mod service;
mod starts;
mod store_open;
mod stub;
mod sweeps;
mod tables;
mod telemetry;
mod two_chains;
mod unit;
mod webhook;
