//! The settings: read once, checked once, trusted afterwards. `default.toml` beside this file is their
//! documentation; [`Config::load`] finds and reads a file and reports all of its faults together.

mod addresses;
mod evm;
mod inbox;
mod read;
mod secret;
mod section;

pub use addresses::{AddressSource, ListError, Scope, SourceFrom};
pub use evm::{
    AssetInfo, EndpointAuth, EndpointUrl, EvmChain, EvmEndpoint, EvmNative, EvmToken, InnerSource,
    TraceMethod,
};
pub use inbox::{Condition, CreditRule, INBOX_KEEP, InboxEffect, InboxSource, InboxVerifier};
pub use secret::{Secret, SecretError, SecretFile, read_secret_text};
pub use section::Fault;

use crate::address::{self, AddressError, EvmAddress, Network};
use crate::egress;
use crate::rules::policy::Policy;
use crate::rules::{BlockHash, ChainId, Script};
use sha2::{Digest as _, Sha256};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// The commented file that `creditd init` writes.
pub const DEFAULT_TOML: &str = include_str!("default.toml");

/// Where a config is looked for when no path is given.
pub const PLACES: [&str; 2] = ["creditd.toml", "/etc/creditd/creditd.toml"];

/// Digits after the point of a bitcoin.
const BITCOIN_DECIMALS: u8 = 8;

/// All settings, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The file they came from.
    pub file: PathBuf,
    /// The same for two files that say the same, whatever their comments and layout.
    pub mark: String,
    /// The database file.
    pub database: PathBuf,
    /// How to log.
    pub log: LogConfig,
    /// How callbacks are sent.
    pub callbacks: CallbacksConfig,
    /// Where operators look.
    pub ops: OpsConfig,
    /// Backups by the clock; `None` = none.
    pub backup: Option<BackupConfig>,
    /// How the audit goes about it.
    pub audit: AuditConfig,
    /// True if proofs of credits are stored.
    pub is_evidence_stored: bool,
    /// Where merchants ask.
    pub api: ApiConfig,
    /// The Bitcoin chains.
    pub bitcoin: Vec<BitcoinChain>,
    /// The EVM chains. There is at least one chain of either kind.
    pub evm: Vec<EvmChain>,
    /// Where addresses to hand out come from.
    pub addresses: Vec<AddressSource>,
    /// Merchants that differ from the defaults.
    pub merchants: Vec<MerchantConfig>,
    /// Who sends webhooks to us.
    pub inbox: Vec<InboxSource>,
}

/// How callbacks are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbacksConfig {
    /// Which addresses they go to.
    pub policy: egress::Policy,
    /// Certificates of authorities that are believed besides the public ones.
    pub ca_file: Option<PathBuf>,
    /// How long one attempt may take in all.
    pub attempt_timeout: Duration,
    /// How long a failing delivery holds back newer ones of its subject.
    pub order_patience: Duration,
    /// How many attempts run at once.
    pub concurrency: usize,
}

/// How to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Text or JSON.
    pub format: LogFormat,
    /// The least important level that is written.
    pub level: tracing::Level,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people and journald.
    Text,
    /// One JSON object per line, for collectors.
    Json,
}

/// Backups by the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupConfig {
    /// The folder that they go to.
    pub folder: PathBuf,
    /// From one to the next.
    pub every: Duration,
    /// So many of the newest are kept.
    pub keep: usize,
}

/// How the audit goes about it; all but the age concerns the daemon's own runs alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// From one run to the next; `None` = none by itself.
    pub every: Option<Duration>,
    /// How long one run may take; what is left then is for the next.
    pub longest: Duration,
    /// How many blocks a chain's node is asked for in a second.
    pub blocks_per_second: u32,
    /// Blocks and dues younger than that are left alone.
    pub age_blocks: u64,
    /// True if the node's unspent coins are gone through, too.
    pub has_unspent: bool,
}

/// Where health, readiness and metrics are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpsConfig {
    /// The address; `None` = nowhere.
    pub listen: Option<SocketAddr>,
}

/// Where merchants ask, and how much of it each may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiConfig {
    /// The address; `None` = nowhere.
    pub listen: Option<SocketAddr>,
    /// The certificate and its key; `None` = in the clear.
    pub tls: Option<ApiTls>,
    /// Connections at a time.
    pub connections_max: usize,
    /// Requests of one key in a second, on average.
    pub rate_per_sec: u32,
    /// How long the answer to an idempotency key is kept.
    pub idempotency_keep: Duration,
    /// Where payers reach it, without a slash at the end; `None` = nobody has said.
    pub public_url: Option<String>,
}

impl ApiConfig {
    /// Where a payer finds the page of an invoice with this token.
    pub fn payment_url(&self, token: &str) -> Option<String> {
        self.public_url
            .as_ref()
            .map(|public| format!("{public}/i/{token}"))
    }
}

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiTls {
    /// The chain of certificates, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: SecretFile,
}

/// One Bitcoin chain and the node that tells us of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitcoinChain {
    /// Short name for people.
    pub alias: String,
    /// The network.
    pub network: Network,
    /// Tells apart chains that share a genesis block.
    pub instance: Option<String>,
    /// The network's genesis block.
    pub genesis: BlockHash,
    /// The identity, from genesis and instance; never from the alias.
    pub chain: ChainId,
    /// The node's RPC, `http://HOST:PORT` without a slash at the end.
    pub rpc_url: String,
    /// How to log in there.
    pub auth: RpcAuth,
    /// The first height that is read, decided once.
    pub start: Start,
    /// Blocks that the node must have: the network's own and the operator's.
    pub checkpoints: Vec<Checkpoint>,
    /// How often the node's tip is asked for.
    pub poll: Duration,
    /// How often the node's mempool is listed.
    pub mempool: Duration,
    /// How long a transaction must be missing from applied mempool lists before it counts as evicted.
    pub evict_after: Duration,
    /// How many blocks a reorg may disconnect.
    pub reorg_window: u64,
    /// A node whose tip is older counts as syncing; `None` = any age will do.
    pub tip_age_max: Option<Duration>,
    /// The asset's short name for people.
    pub symbol: String,
    /// How deep a payment must be.
    pub policy: Policy,
}

/// A chain of any kind, as far as they are alike.
#[derive(Clone, Copy, Debug)]
pub enum ChainConfig<'c> {
    /// Of Bitcoin's kind.
    Bitcoin(&'c BitcoinChain),
    /// Of Ethereum's.
    Evm(&'c EvmChain),
}

impl<'c> ChainConfig<'c> {
    /// Short name for people.
    pub fn alias(self) -> &'c str {
        match self {
            ChainConfig::Bitcoin(chain) => &chain.alias,
            ChainConfig::Evm(chain) => &chain.alias,
        }
    }

    /// The identity.
    pub fn chain(self) -> &'c ChainId {
        match self {
            ChainConfig::Bitcoin(chain) => &chain.chain,
            ChainConfig::Evm(chain) => &chain.chain,
        }
    }

    /// How many blocks a reorg may disconnect.
    pub fn reorg_window(self) -> u64 {
        match self {
            ChainConfig::Bitcoin(chain) => chain.reorg_window,
            ChainConfig::Evm(chain) => chain.reorg_window,
        }
    }

    /// What kind of chain it is, for people.
    pub fn kind(self) -> String {
        match self {
            ChainConfig::Bitcoin(chain) => format!("on {}", chain.network.name()),
            ChainConfig::Evm(chain) => format!("an EVM chain, chain id {}", chain.chain_id),
        }
    }

    /// What an address of it stands for.
    ///
    /// # Errors
    /// [`AddressError`]; in particular nothing is corrected or guessed.
    pub fn script(self, address: &str) -> Result<Script, AddressError> {
        match self {
            ChainConfig::Bitcoin(chain) => address::parse(chain.network, address),
            ChainConfig::Evm(_) => Ok(EvmAddress::parse(address)?.script()),
        }
    }

    /// The canonical spelling of a script's address; `None` for scripts that have none.
    pub fn address(self, script: &Script) -> Option<String> {
        match self {
            ChainConfig::Bitcoin(chain) => address::print(chain.network, script),
            ChainConfig::Evm(_) => EvmAddress::of_script(script).map(|address| address.to_string()),
        }
    }

    /// Everything that can be paid on it.
    pub fn assets(self) -> Vec<AssetInfo<'c>> {
        match self {
            ChainConfig::Bitcoin(chain) => vec![AssetInfo {
                caip: chain.chain.bitcoin_asset(),
                symbol: &chain.symbol,
                decimals: BITCOIN_DECIMALS,
                contract: None,
                from: None,
            }],
            ChainConfig::Evm(chain) => chain.assets(),
        }
    }
}

/// How to log in at a Bitcoin node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RpcAuth {
    /// The file that bitcoind writes anew at every start.
    Cookie(SecretFile),
    /// `rpcauth` of bitcoin.conf.
    Password {
        /// The user name.
        user: String,
        /// The file that holds the password.
        password: SecretFile,
    },
}

/// Where a chain that was never followed begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the block after the node's tip of that moment.
    Tip,
    /// At this height.
    Height(u64),
}

/// A block that tells the chain apart from others with the same genesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its height.
    pub height: u64,
    /// Its hash.
    pub hash: BlockHash,
}

/// Settings of one merchant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MerchantConfig {
    /// The merchant.
    pub slug: String,
    /// What the merchant's own transfers are.
    pub internal: InternalRule,
}

/// What a transfer between a merchant's own addresses is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum InternalRule {
    /// Not a deposit, only shown.
    #[default]
    Ignore,
    /// A deposit that waits for the operator.
    Hold,
    /// A deposit like any other.
    Credit,
}

impl InternalRule {
    /// The word in the config and the database.
    pub fn word(self) -> &'static str {
        match self {
            InternalRule::Ignore => "ignore",
            InternalRule::Hold => "hold",
            InternalRule::Credit => "credit",
        }
    }

    fn from_word(word: &str) -> Option<InternalRule> {
        [InternalRule::Ignore, InternalRule::Hold, InternalRule::Credit]
            .into_iter()
            .find(|rule| rule.word() == word)
    }
}

/// Why there are no settings.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// No path was given and none of the usual places has a file.
    #[error(
        "no config file: looked for {} and {}; --config or $CREDITD_CONFIG names another",
        PLACES[0], PLACES[1]
    )]
    NotFound,
    /// The file cannot be read.
    #[error("read config {}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The file is wrong in these places.
    #[error("{}", list_faults(file, faults))]
    Faulty {
        /// The file.
        file: PathBuf,
        /// Everything that is wrong with it.
        faults: Vec<Fault>,
    },
}

fn list_faults(file: &Path, faults: &[Fault]) -> String {
    let count = match faults.len() {
        1 => "1 fault".to_owned(),
        count => format!("{count} faults"),
    };
    let mut text = format!("config {} has {count}", file.display());
    for fault in faults {
        text.push_str("\n  ");
        text.push_str(&fault.to_string());
    }
    text
}

/// The hash of what a text says; of the text itself where it is no TOML.
fn mark(text: &str) -> String {
    let said = text
        .parse::<toml::Table>()
        .map_or_else(|_| text.to_owned(), |table| format!("{table:?}"));
    const_hex::encode(&Sha256::digest(said)[..8])
}

impl Config {
    /// Reads the file at `path`, or the first one of [`PLACES`].
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
        let file = match path {
            Some(path) => path.to_owned(),
            None => PLACES
                .iter()
                .map(PathBuf::from)
                .find(|place| place.exists())
                .ok_or(ConfigError::NotFound)?,
        };
        match std::fs::read_to_string(&file) {
            Ok(text) => Config::parse(&file, &text),
            Err(source) => Err(ConfigError::Unreadable { file, source }),
        }
    }

    /// Checks the text of a config; paths in it are relative to the folder of `file`.
    ///
    /// # Errors
    /// [`ConfigError::Faulty`] with every fault of the text.
    pub fn parse(file: &Path, text: &str) -> Result<Config, ConfigError> {
        let config = read::config(file, text).map_err(|faults| ConfigError::Faulty {
            file: file.to_owned(),
            faults,
        })?;
        let mark = mark(text);
        Ok(Config { mark, ..config })
    }

    /// Every chain, those of Bitcoin's kind first.
    pub fn chains(&self) -> impl Iterator<Item = ChainConfig<'_>> {
        let bitcoin = self.bitcoin.iter().map(ChainConfig::Bitcoin);
        bitcoin.chain(self.evm.iter().map(ChainConfig::Evm))
    }

    /// The smallest reorg window of the chains: that far down no header may be missing.
    pub fn smallest_window(&self) -> u64 {
        self.chains()
            .map(ChainConfig::reorg_window)
            .min()
            .unwrap_or_default()
    }

    /// The chain of that alias, of whatever kind.
    pub fn find(&self, alias: &str) -> Option<ChainConfig<'_>> {
        self.chains().find(|chain| chain.alias() == alias)
    }

    /// The Bitcoin chain of that alias.
    pub fn chain(&self, alias: &str) -> Option<&BitcoinChain> {
        self.bitcoin.iter().find(|chain| chain.alias == alias)
    }

    /// What own transfers of a merchant are.
    pub fn internal_rule(&self, slug: &str) -> InternalRule {
        self.merchants
            .iter()
            .find(|merchant| merchant.slug == slug)
            .map_or_else(InternalRule::default, |merchant| merchant.internal)
    }
}

/// Names of merchants, chains and instances: 1 to 32 of a-z, 0-9 and `-`, not beginning or ending with `-`.
pub fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=32).contains(&text.len())
        && text.bytes().all(is_letter)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
