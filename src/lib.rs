//! creditd runs beside a Bitcoin node and EVM nodes, sees every payment to the addresses it watches, follows
//! each one through confirmations and reorgs, and credits it exactly once in an embedded SQLite ledger.
//!
//! Data flows one way: `chain` -> `follow` -> `rules` -> `store`. Start reading at `follow`, which is the
//! loop that tells the whole story, then [`rules`] for the decisions and [`store`] for what one transaction
//! writes.

pub mod rules;

pub mod address;
pub mod chance;
pub mod clock;
pub mod config;
pub mod egress;
pub mod ends;
pub mod index;
pub mod listen;
pub mod points;
pub mod pools;
pub mod pulse;
pub mod telemetry;
pub mod webhook;

pub mod chain;
pub mod deliver;
pub mod follow;
pub mod inbox;
pub mod jobs;
pub mod store;

pub mod sandbox;

pub mod api;
pub mod audit;
pub mod check;
pub mod cli;
pub mod daemon;
pub mod demo;
pub mod drill;
pub mod ops;
