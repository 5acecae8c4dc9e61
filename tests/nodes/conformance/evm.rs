//! Chains of Ethereum's kind: the simulated node, and a real one, each paid in coin and in a token.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use creditd::chain::evm::endpoints::{Endpoints, EndpointsConfig, Node};
use creditd::chain::evm::fields::Account;
use creditd::chain::evm::{EvmRules, EvmSource, Inner, NativeRule, TokenRule, TraceCall};
use creditd::chain::rpc::{Auth, Place};
use creditd::clock::Clock;
use creditd::egress::Dial;
use creditd::rules::{Asset, ChainId, Script};
use creditd::store::{NewAsset, NewChain};

pub const CHAIN_ID: u64 = 73_579;

/// The digits of the token.
pub const DECIMALS: u8 = 6;

/// The watched address.
pub const WATCHED: [u8; 20] = [0xd1; 20];

/// Another, which nobody watches.
pub const NOBODY: [u8; 20] = [0xd2; 20];

/// What is paid.
pub trait Paid {
    const IS_TOKEN: bool;
}

/// The chain's own coin.
pub struct Coin;

/// A token.
pub struct Token;

impl Paid for Coin {
    const IS_TOKEN: bool = false;
}

impl Paid for Token {
    const IS_TOKEN: bool = true;
}

/// What creditd is told of the chain: `token` is watched, or the coin.
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
        let config = EndpointsConfig {
            chain_id: CHAIN_ID,
            chain: Self::id(),
            checkpoints: Vec::new(),
            quorum: 1,
            call_deadline: Duration::from_secs(10),
            recheck: Duration::from_secs(60),
        };
        let node = Node {
            name: "node".to_owned(),
            place: Place::Url(url),
            auth: Auth::None,
            batch_max: 50,
            dial,
        };
        let endpoints = Endpoints::new(config, vec![node], None, clock);
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
        let (tokens, native) = match P::IS_TOKEN {
            true => (BTreeMap::from([(Account(self.token), token)]), None),
            false => (BTreeMap::new(), Some(native)),
        };
        EvmRules {
            chain: Self::id(),
            tokens,
            native,
            has_bloom: true,
            lists_pending: !P::IS_TOKEN,
        }
    }

    pub fn asset(&self) -> Asset {
        match P::IS_TOKEN {
            true => Asset::Token(self.token),
            false => Asset::Native,
        }
    }

    pub fn chain(&self) -> NewChain {
        let id = Self::id();
        let (caip, symbol, decimals) = match P::IS_TOKEN {
            true => (id.erc20(&self.token), "TUSD", DECIMALS),
            false => (id.evm_coin(60), "ETH", 18),
        };
        let asset = NewAsset {
            asset: self.asset(),
            caip,
            symbol: symbol.to_owned(),
            decimals,
            from: None,
        };
        NewChain {
            id,
            genesis: None,
            alias: "evm".to_owned(),
            assets: vec![asset],
        }
    }

    pub fn watched() -> Script {
        Script(WATCHED.into())
    }
}
