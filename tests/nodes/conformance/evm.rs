//! Chains of Ethereum's kind: the simulated node, and a real one, each paid in coin and in a token.

use std::marker::PhantomData;

use creditd::chain::evm::fields::Account;
use creditd::chain::evm::{EvmRules, EvmSource, Inner, NativeRule, TokenRule, TraceCall};
use creditd::clock::Clock;
use creditd::egress::Dial;
use creditd::rules::{Asset, ChainId, Script};
use creditd::store::{NewAsset, NewChain};

use crate::common::evm_endpoint;

pub const CHAIN_ID: u64 = 73_579;

/// The digits of the token.
pub const DECIMALS: u8 = 6;

/// The watched address.
pub const WATCHED: [u8; 20] = [0xd1; 20];

/// Another, which nobody watches.
pub const NOBODY: [u8; 20] = [0xd2; 20];

/// What is paid, and what creditd watches.
pub trait Paid {
    /// A token is paid, else coin.
    const IS_TOKEN: bool;
    /// The chain's coin is watched, and pending transactions are listed for it. A token is watched where this
    /// is not all.
    const HAS_COIN: bool;
    /// Coin is paid by a contract, in a call of its own.
    const IS_INNER: bool;
    /// The payment stands in the transaction itself.
    const SHOWS_WAITING: bool = !Self::IS_TOKEN && !Self::IS_INNER;
    const HAS_TOKEN: bool = !Self::SHOWS_WAITING;
}

/// Coin, and it alone is watched.
pub struct Coin;

/// A token, and it alone is watched.
pub struct Token;

/// Coin from a contract, which pays out what it is sent.
pub struct InnerCoin;

/// A token where the coin is watched too.
pub struct TokenBesideCoin;

impl Paid for Coin {
    const IS_TOKEN: bool = false;
    const HAS_COIN: bool = true;
    const IS_INNER: bool = false;
}

impl Paid for Token {
    const IS_TOKEN: bool = true;
    const HAS_COIN: bool = false;
    const IS_INNER: bool = false;
}

impl Paid for InnerCoin {
    const IS_TOKEN: bool = false;
    const HAS_COIN: bool = true;
    const IS_INNER: bool = true;
}

impl Paid for TokenBesideCoin {
    const IS_TOKEN: bool = true;
    const HAS_COIN: bool = true;
    const IS_INNER: bool = false;
}

/// What creditd is told of the chain.
pub struct Watching<P> {
    token: [u8; 20],
    paid: PhantomData<P>,
}

impl<P: Paid> Watching<P> {
    pub fn new(token: [u8; 20]) -> Self {
        let paid = PhantomData;
        Self { token, paid }
    }

    fn id() -> ChainId {
        ChainId::evm(CHAIN_ID, Some("test"))
    }

    pub fn source<D: Dial>(&self, url: String, dial: D) -> EvmSource<D> {
        let clock = Clock::real();
        let endpoints = evm_endpoint::only(CHAIN_ID, &url, dial, clock);
        EvmSource::new(self.rules(), endpoints, clock)
    }

    fn rules(&self) -> EvmRules {
        let token = TokenRule {
            symbol: "TUSD".to_owned(),
            decimals: DECIMALS,
            is_balance_checked: false,
            is_unindexed: false,
        };
        let native = NativeRule::by(Inner::Traces(TraceCall::Any));
        let token = (Account(self.token), token);
        EvmRules {
            chain: Self::id(),
            tokens: P::HAS_TOKEN.then_some(token).into_iter().collect(),
            native: P::HAS_COIN.then_some(native),
            has_bloom: true,
            lists_pending: P::HAS_COIN,
        }
    }

    pub fn chain(&self) -> NewChain {
        let id = Self::id();
        let asset = |asset, caip, symbol: &str, decimals| NewAsset {
            asset,
            caip,
            symbol: symbol.to_owned(),
            decimals,
            from: None,
        };
        let token = asset(Asset::Token(self.token), id.erc20(&self.token), "TUSD", DECIMALS);
        let coin = asset(Asset::Native, id.evm_coin(60), "ETH", 18);
        let coin = P::HAS_COIN.then_some(coin);
        let token = P::HAS_TOKEN.then_some(token);
        NewChain {
            id,
            genesis: None,
            alias: "evm".to_owned(),
            assets: coin.into_iter().chain(token).collect(),
        }
    }

    pub fn watched() -> Script {
        Script(WATCHED.into())
    }
}
