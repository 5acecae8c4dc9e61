//! What the config says of an EVM chain: its endpoints, its assets and what is believed of the former.

use super::{Checkpoint, SecretFile, Start};
use crate::address::EvmAddress;
use crate::egress::NodeUrl;
use crate::rules::policy::Policy;
use crate::rules::{Asset, ChainId};
use std::path::PathBuf;
use std::time::Duration;

/// One EVM chain and the endpoints that tell us of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvmChain {
    /// Short name for people.
    pub alias: String,
    /// What `eth_chainId` must say.
    pub chain_id: u64,
    /// Tells apart chains with the same id that anyone can start anew.
    pub instance: Option<String>,
    /// The identity, from chain id and instance; never from the alias.
    pub chain: ChainId,
    /// At least one, in the order of preference.
    pub endpoints: Vec<EvmEndpoint>,
    /// The first height that is read, decided once.
    pub start: Start,
    /// Blocks that every endpoint must have, lowest first.
    pub checkpoints: Vec<Checkpoint>,
    /// How often an endpoint is asked for its tip.
    pub poll: Duration,
    /// How often pending transactions are listed; `None` = never.
    pub pending: Option<Duration>,
    /// How long a transaction must be missing from applied lists before it counts as evicted.
    pub evict_after: Duration,
    /// How many blocks a reorg may disconnect.
    pub reorg_window: u64,
    /// How long every endpoint must have served another branch that is no better before it is taken.
    pub fork_patience: Duration,
    /// How many endpoints must have a block before something is credited at it; at most as many as there are.
    pub quorum: usize,
    /// False where the chain fakes the log blooms of its headers.
    pub has_bloom: bool,
    /// True if blocks, receipts and transactions are encoded as on Ethereum, so that they can be proved.
    pub is_ethereum: bool,
    /// The most questions in one exchange.
    pub batch_max: usize,
    /// An endpoint whose tip is older counts as syncing; `None` = any age will do.
    pub tip_age_max: Option<Duration>,
    /// The chain's own coin, where it is watched.
    pub native: Option<EvmNative>,
    /// The tokens that are watched; no two of one contract.
    pub tokens: Vec<EvmToken>,
}

/// One endpoint of an EVM chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvmEndpoint {
    /// Name for people, unique in the chain.
    pub name: String,
    /// Where it is.
    pub url: EndpointUrl,
    /// How it lets us in.
    pub auth: EndpointAuth,
    /// Certificates of authorities that are believed besides the public ones.
    pub ca_file: Option<PathBuf>,
}

/// Where an endpoint is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointUrl {
    /// In the config, because it holds no key.
    Plain(NodeUrl),
    /// In a file of one line, because it does.
    File(SecretFile),
}

/// How an endpoint lets us in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointAuth {
    /// It asks for nothing, or for a key in its URL.
    None,
    /// HTTP basic authentication.
    Basic {
        /// The user name.
        user: String,
        /// The file that holds the password.
        password: SecretFile,
    },
    /// A token in the `Authorization` header: the file that holds it.
    Bearer(SecretFile),
    /// A key in a header of the provider's own.
    Header {
        /// The header, in lower case.
        name: String,
        /// The file that holds the key.
        value: SecretFile,
    },
}

/// The chain's own coin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvmNative {
    /// Short name for people.
    pub symbol: String,
    /// Digits after the point.
    pub decimals: u8,
    /// Its number in the SLIP-44 list, part of the asset's id.
    pub coin_type: u32,
    /// A token contract that is the same coin under another interface: its transfers are not counted again.
    pub contract: Option<EvmAddress>,
    /// How coin that moves inside a transaction is seen.
    pub inner: InnerSource,
    /// When a payment is credited.
    pub policy: Policy,
}

/// How coin that moves inside a transaction is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InnerSource {
    /// By call traces.
    Traces(TraceMethod),
    /// By logs that the chain itself writes (EIP-7708).
    Eip7708,
    /// Not at all: balances are compared from time to time, so that nobody's payment is nothing.
    None {
        /// How often.
        sweep: Duration,
    },
}

/// Which call gives the traces of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceMethod {
    /// Whichever the endpoint knows.
    Auto,
    /// `debug_traceBlockByHash` with the `callTracer` (Geth and most others).
    Debug,
    /// `trace_block` (OpenEthereum's line: Nethermind, Erigon, Reth).
    Block,
}

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvmToken {
    /// Its contract.
    pub contract: EvmAddress,
    /// Short name for people.
    pub symbol: String,
    /// Digits after the point, held against the contract at the start.
    pub decimals: u8,
    /// True where a payment is held against the balance that it should have made: for tokens that take fees
    /// or whose balances move by themselves.
    pub is_balance_checked: bool,
    /// True for an old token whose transfers index neither payer nor payee.
    pub is_unindexed: bool,
    /// Nothing below this height counts; `None` = decided when the token is first listed.
    pub from: Option<u64>,
    /// When a payment is credited.
    pub policy: Policy,
}

/// What can be paid on a chain, for people and lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssetInfo<'c> {
    /// CAIP-19 id.
    pub caip: String,
    /// Short name.
    pub symbol: &'c str,
    /// Digits after the point.
    pub decimals: u8,
    /// The token's contract; `None` = the chain's own coin.
    pub contract: Option<EvmAddress>,
    /// Nothing below this height counts where it is listed anew.
    pub from: Option<u64>,
}

impl AssetInfo<'_> {
    /// What it is on its chain.
    pub fn asset(&self) -> Asset {
        self.contract
            .map_or(Asset::Native, |contract| Asset::Token(contract.0))
    }
}

impl EvmChain {
    /// Everything that can be paid on it, its own coin first.
    pub fn assets(&self) -> Vec<AssetInfo<'_>> {
        let caip2 = self.chain.caip2();
        let native = self.native.iter().map(|native| AssetInfo {
            caip: format!("{caip2}/slip44:{}", native.coin_type),
            symbol: &native.symbol,
            decimals: native.decimals,
            contract: None,
            from: None,
        });
        let tokens = self.tokens.iter().map(|token| AssetInfo {
            caip: format!("{caip2}/erc20:{}", token.contract.to_string().to_lowercase()),
            symbol: &token.symbol,
            decimals: token.decimals,
            contract: Some(token.contract),
            from: token.from,
        });
        native.chain(tokens).collect()
    }
}
