//! Pure decisions: amounts, ids, the state table, policy, fork steps. No I/O, no async, no clock, no
//! randomness, no serde and no logging: whatever is decided here can be replayed from its arguments. Start at
//! [`state`].

pub mod amount;
pub mod api_key;
pub mod audit;
pub mod block;
pub mod chain_state;
pub mod event_types;
pub mod fork;
pub mod ids;
pub mod invariants;
pub mod invoice;
pub mod policy;
pub mod position;
pub mod retry;
pub mod state;

pub use amount::{Amount, Work};
pub use block::{
    Ancestor, CandidateOutput, CandidateTx, Doubt, HEIGHT_MAX, Header, HeldHeader, MempoolList, Paid,
    Prevout, ScannedBlock, TaggedBlock, Tags,
};
pub use ids::{Asset, BlockHash, ChainId, ListVersion, Outpoint, Script, Txid};
