//! What an operator says of a Bitcoin chain, and what follows from it before any node is asked.

use crate::address::Network;
use crate::chain::rpc::Auth;
use crate::config::{BitcoinChain, Checkpoint, RpcAuth, SecretError};
use crate::rules::{BlockHash, ChainId};
use bitcoincore_rpc::bitcoin;
use std::time::Duration;

/// True where the difficulty of a block follows from the block before it, but for every 2016th.
pub(super) fn has_steady_difficulty(network: Network) -> bool {
    match network {
        Network::Main | Network::Signet => true,
        // testnet4 allows a block of minimum difficulty after 20 minutes; regtest has no difficulty.
        Network::Testnet4 | Network::Regtest => false,
    }
}

/// The network as the `bitcoin` crate knows it.
pub(super) fn known(network: Network) -> bitcoin::Network {
    match network {
        Network::Main => bitcoin::Network::Bitcoin,
        Network::Testnet4 => bitcoin::Network::Testnet4,
        Network::Signet => bitcoin::Network::Signet,
        Network::Regtest => bitcoin::Network::Regtest,
    }
}

/// The first mainnet block after Bitcoin Cash split off.
pub(super) const MAIN_478559: Checkpoint = Checkpoint {
    height: 478_559,
    hash: BlockHash([
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0x19, 0xf1, 0x12, 0xec, 0x0a, 0x99, 0x82, 0x92, 0x6f, 0x12, 0x58, 0xcd,
        0xcc, 0x55, 0x8d, 0xd7, 0xc3, 0xb7, 0xe5, 0xdc, 0x7f, 0xa1, 0x48,
    ]),
};

/// The blocks of a network that are compiled in.
pub fn checkpoints(network: Network) -> Vec<Checkpoint> {
    match network {
        Network::Main => vec![MAIN_478559],
        Network::Testnet4 | Network::Signet | Network::Regtest => Vec::new(),
    }
}

/// Chains followed by releases of Bitcoin Knots left mainnet at 961632 and 961640: only a block above tells
/// them apart.
pub(super) const LAST_KNOWN_SPLIT: u64 = 961_640;

/// One Bitcoin chain through one node.
#[derive(Clone, Debug)]
pub struct BitcoinConfig {
    /// `http://HOST:PORT` of the node's RPC.
    pub url: String,
    /// How the node lets us in.
    pub auth: Auth,
    /// The network that the node must be on.
    pub network: Network,
    /// The name of a chain that anyone can start anew: needed on regtest and own signets, refused elsewhere.
    pub instance: Option<String>,
    /// Blocks that the node must have, besides those that we know.
    pub checkpoints: Vec<Checkpoint>,
    /// False to never try the node's REST interface.
    pub may_use_rest: bool,
    /// Total time of one small call.
    pub call_deadline: Duration,
    /// Total time of one block or one list of the mempool.
    pub block_deadline: Duration,
    /// How long a node is believed to be the one that it was, as long as its connection lasts: a proxy may
    /// keep that and send us to another.
    pub recheck: Duration,
}

impl BitcoinConfig {
    /// A config with the usual deadlines and nothing optional.
    pub fn new(url: impl Into<String>, auth: Auth, network: Network) -> BitcoinConfig {
        BitcoinConfig {
            url: url.into(),
            auth,
            network,
            instance: None,
            checkpoints: Vec::new(),
            may_use_rest: true,
            call_deadline: Duration::from_secs(10),
            block_deadline: Duration::from_secs(60),
            recheck: Duration::from_secs(60),
        }
    }

    /// What the operator's config says of a chain.
    ///
    /// # Errors
    /// The place of a secret is not known: [`SecretError`].
    pub fn of(chain: &BitcoinChain) -> Result<BitcoinConfig, SecretError> {
        let auth = match &chain.auth {
            RpcAuth::Cookie(file) => Auth::Cookie(file.path()?),
            RpcAuth::Password { user, password } => Auth::UserPass {
                user: user.clone(),
                password_file: password.path()?,
            },
        };
        Ok(BitcoinConfig {
            instance: chain.instance.clone(),
            checkpoints: chain.checkpoints.clone(),
            ..BitcoinConfig::new(chain.rpc_url.clone(), auth, chain.network)
        })
    }

    /// The chain's id. It follows from the config alone, because a node on another chain is refused.
    pub fn chain(&self) -> ChainId {
        ChainId::bitcoin(&self.network.genesis(), self.instance.as_deref())
    }

    /// What is wrong with this config, all at once.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        match (self.network, self.instance.as_deref()) {
            (Network::Regtest, None) => faults.push(
                "a regtest chain needs an `instance` name: all of them start with the same block".to_owned(),
            ),
            (Network::Main | Network::Testnet4, Some(instance)) => faults.push(format!(
                "`instance` {instance:?} on {}: there is only one",
                self.network.name()
            )),
            (Network::Regtest | Network::Signet, Some(instance)) if !is_plain(instance) => faults.push(
                format!("`instance` {instance:?}: letters, digits, - and _ only, 1 to 32 of them"),
            ),
            (Network::Main | Network::Testnet4 | Network::Signet, None)
            | (Network::Regtest | Network::Signet, Some(_)) => {}
        }
        let all = self.all_checkpoints();
        for (place, checkpoint) in all.iter().enumerate() {
            let others = &all[..place];
            if others
                .iter()
                .any(|other| other.height == checkpoint.height && other.hash != checkpoint.hash)
            {
                faults.push(format!("two checkpoints for height {}", checkpoint.height));
            }
        }
        if !self.url.starts_with("http://") {
            faults.push("the node's `url` must start with http://".to_owned());
        }
        faults
    }

    /// The compiled-in and the configured checkpoints, lowest first.
    pub(super) fn all_checkpoints(&self) -> Vec<Checkpoint> {
        let mut all = checkpoints(self.network);
        all.extend(&self.checkpoints);
        all.sort_by_key(|checkpoint| checkpoint.height);
        all.dedup();
        all
    }

    /// True when the operator has named a block that only the chain meant can hold.
    pub(super) fn has_late_checkpoint(&self) -> bool {
        self.checkpoints
            .iter()
            .any(|checkpoint| checkpoint.height > LAST_KNOWN_SPLIT)
    }
}

/// True of a name that an instance may have.
pub fn is_plain(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}
