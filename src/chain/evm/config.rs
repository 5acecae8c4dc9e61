//! What the operator says of an EVM chain, as far as its source needs it.

use super::fields::Account;
use crate::config::{EvmChain, EvmNative, EvmToken, InnerSource, TraceMethod};
use crate::rules::ChainId;
use std::collections::BTreeMap;

/// What is looked for on an EVM chain, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvmRules {
    /// The chain.
    pub chain: ChainId,
    /// The tokens that are listed, by contract.
    pub tokens: BTreeMap<Account, TokenRule>,
    /// How the chain's own coin is watched; `None` = it is not.
    pub native: Option<NativeRule>,
    /// False where the chain's headers have no true log blooms.
    pub has_bloom: bool,
    /// True where pending transactions are listed.
    pub lists_pending: bool,
}

/// A listed token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRule {
    /// Its short name, for messages.
    pub symbol: String,
    /// Digits after the point, held against the contract.
    pub decimals: u8,
    /// True where a payment is held against the balance that it should have made.
    pub is_balance_checked: bool,
    /// True for an old token whose transfers index neither payer nor payee.
    pub is_unindexed: bool,
}

/// How the chain's own coin is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeRule {
    /// Where coin that moves inside transactions is read from which height on, lowest first.
    pub inner: Vec<(u64, Inner)>,
}

impl NativeRule {
    /// One way for all heights.
    pub fn by(inner: Inner) -> NativeRule {
        NativeRule {
            inner: vec![(0, inner)],
        }
    }

    /// Where it is read in the block at a height.
    pub fn inner_at(&self, height: u64) -> Inner {
        let reached = self.inner.iter().rev().find(|(from, _)| *from <= height);
        reached.map_or(Inner::Unseen, |(_, inner)| *inner)
    }
}

/// Where coin that moves inside transactions is read: one place only, or the same coin would have two
/// outpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inner {
    /// In call traces: `debug_traceBlockByHash`, `trace_block`, or whichever the node has.
    Traces(TraceCall),
    /// In the logs that the chain itself writes (EIP-7708).
    Logs,
    /// Nowhere.
    Unseen,
}

/// Which call gives a block's traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceCall {
    /// Whichever the node has.
    Any,
    /// `debug_traceBlockByHash` with the `callTracer`.
    Debug,
    /// `trace_block`.
    Flat,
}

impl Inner {
    fn of(source: InnerSource) -> Inner {
        match source {
            InnerSource::Traces(TraceMethod::Auto) => Inner::Traces(TraceCall::Any),
            InnerSource::Traces(TraceMethod::Debug) => Inner::Traces(TraceCall::Debug),
            InnerSource::Traces(TraceMethod::Block) => Inner::Traces(TraceCall::Flat),
            InnerSource::Eip7708 => Inner::Logs,
            InnerSource::None { .. } => Inner::Unseen,
        }
    }

    /// The word in the database; which call gives the traces changes nothing about what they say.
    pub fn word(self) -> &'static str {
        match self {
            Inner::Traces(_) => "traces",
            Inner::Logs => "eip7708",
            Inner::Unseen => "none",
        }
    }
}

impl EvmRules {
    /// Reads inner coin as it is pinned: heights and [`Inner::word`]s, lowest first.
    #[must_use]
    pub fn with_pinned(mut self, pinned: &[(u64, String)]) -> EvmRules {
        if let Some(native) = &mut self.native {
            let now = native.inner.last().map_or(Inner::Unseen, |(_, inner)| *inner);
            let read = |word: &str| match word {
                "traces" if matches!(now, Inner::Traces(_)) => now,
                "traces" => Inner::Traces(TraceCall::Any),
                "eip7708" => Inner::Logs,
                _ => Inner::Unseen,
            };
            native.inner = pinned.iter().map(|(from, word)| (*from, read(word))).collect();
        }
        self
    }

    /// The [`Inner::word`] of where inner coin is read now; `None` where no coin is watched.
    pub fn last_inner(&self) -> Option<&'static str> {
        let (_, inner) = self.native.as_ref()?.inner.last()?;
        Some(inner.word())
    }

    /// What the operator's config says.
    pub fn of(chain: &EvmChain) -> EvmRules {
        let token = |token: &EvmToken| {
            let rule = TokenRule {
                symbol: token.symbol.clone(),
                decimals: token.decimals,
                is_balance_checked: token.is_balance_checked,
                is_unindexed: token.is_unindexed,
            };
            (Account(token.contract.0), rule)
        };
        let native = |native: &EvmNative| NativeRule::by(Inner::of(native.inner));
        EvmRules {
            chain: chain.chain.clone(),
            tokens: chain.tokens.iter().map(token).collect(),
            native: chain.native.as_ref().map(native),
            has_bloom: chain.has_bloom,
            lists_pending: chain.pending.is_some(),
        }
    }
}
