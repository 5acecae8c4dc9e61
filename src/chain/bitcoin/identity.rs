//! Is this node on the chain that the config means? Name and genesis block tell networks apart, checkpoints
//! tell apart the chains that share Bitcoin's genesis; everything is asked again at each reconnect.

use super::BitcoinSource;
use super::calls::{ChainInfo, Hash, NetworkInfo, OUT_OF_RANGE, is_code};
use super::config::LAST_KNOWN_SPLIT;
use crate::address::Network;
use crate::chain::{Help, Identity, SourceError};
use crate::config::Checkpoint;
use crate::egress::Dial;
use crate::rules::{BlockHash, ChainId};
use crate::telemetry::printable;
use serde_json::json;
use std::sync::atomic::Ordering;
use tokio::time::Instant;

/// Bitcoin Core 25.0 as `getnetworkinfo.version` says it.
const OLDEST_VERSION: u64 = 250_000;

/// The challenge of the public signet: whoever has another is on a signet of his own.
const PUBLIC_SIGNET: &str = "512103ad5e0edad18cb1f0fc0d28a3d4f1f3e445640337489abb10404f2d1e086be4302103\
                             59ef5021964fe22d6f8e05b2463c9540ce96883fe3b278760f048f5189f2e6c452ae";

/// What the checkpoints said so far.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Checkpoints above the node's tip: asked again by each `tip` until the node has got there.
    pending: Vec<Checkpoint>,
    /// The highest one that the node has shown.
    passed: Option<u64>,
    /// When the node last showed who it is, and how many connections had been begun by then.
    shown: Option<(Instant, u64)>,
}

impl<D: Dial> BitcoinSource<D> {
    pub(super) async fn check_identity(&self) -> Result<Identity, SourceError> {
        let info = self.chain_info().await?;
        self.identify(&info).await
    }

    /// Asks again who the node is, if the connection is another one than it showed it on, or long ago. `info`
    /// has come over the connection as it is now.
    pub(super) async fn check_again(&self, info: &ChainInfo) -> Result<(), SourceError> {
        let shown = self.standing().shown;
        let is_fresh = shown.is_some_and(|(at, dials)| {
            dials == self.rpc.dials()
                && self.clock.instant().saturating_duration_since(at) < self.config.recheck
        });
        if !is_fresh {
            self.identify(info).await?;
        }
        Ok(())
    }

    async fn identify(&self, info: &ChainInfo) -> Result<Identity, SourceError> {
        let shown = (self.clock.instant(), self.rpc.dials());
        let Hash(genesis) = self.small("getblockhash", json!([0])).await?;
        self.check_network(info, genesis)?;
        let network: NetworkInfo = self.small("getnetworkinfo", json!([])).await?;
        self.rpc.set_software(&network.subversion);
        check_version(&network)?;
        *self.standing() = Standing {
            pending: self.config.all_checkpoints(),
            passed: None,
            shown: None,
        };
        self.check_checkpoints(info.blocks).await?;
        if self.must_be_plain_core() && !is_plain_core(&network.subversion) {
            return Err(SourceError::WrongNetwork(format!(
                "{} is not plain Bitcoin Core, and some releases of such nodes follow other chains \
                 than Bitcoin; configure a checkpoint (height and hash) above {LAST_KNOWN_SPLIT} to use it",
                network.subversion
            )));
        }
        self.odd_tips(info).await?;
        self.probe_rest(genesis).await;
        self.standing().shown = Some(shown);
        Ok(Identity {
            unlisted: Vec::new(),
            chain: self.config.chain(),
            genesis,
            software: network.subversion,
        })
    }

    /// On mainnet, until the operator has named a block above the last known split.
    pub(super) fn must_be_plain_core(&self) -> bool {
        self.config.network == Network::Main && !self.config.has_late_checkpoint()
    }

    fn check_network(&self, info: &ChainInfo, genesis: BlockHash) -> Result<(), SourceError> {
        self.check_name(info)?;
        let expected = self.config.network.genesis();
        if genesis != expected {
            return Err(SourceError::WrongNetwork(format!(
                "the config says {} ({}, genesis {expected}), the node is on {} (genesis {genesis})",
                self.config.network.name(),
                self.config.chain(),
                ChainId::bitcoin(&genesis, None),
            )));
        }
        let is_own_signet = info
            .signet_challenge
            .as_deref()
            .is_some_and(|text| text != PUBLIC_SIGNET);
        if is_own_signet && self.config.instance.is_none() {
            return Err(SourceError::WrongNetwork(format!(
                "the config says {} (the public signet), the node is on a signet of its own (challenge {}): \
                 give it an `instance` name",
                self.config.chain(),
                printable(info.signet_challenge.as_deref().unwrap_or_default())
            )));
        }
        Ok(())
    }

    /// The name alone is in every `getblockchaininfo`, so it is held against the config at every tip.
    pub(super) fn check_name(&self, info: &ChainInfo) -> Result<(), SourceError> {
        let expected = self.config.network;
        if info.chain == expected.name() {
            return Ok(());
        }
        let told = Network::from_name(&info.chain);
        let told_id = told.map(|network| ChainId::bitcoin(&network.genesis(), None).to_string());
        Err(SourceError::WrongNetwork(format!(
            "the config says {} ({}), the node is on {} ({})",
            expected.name(),
            self.config.chain(),
            info.chain,
            told_id.as_deref().unwrap_or("a network that we do not know"),
        )))
    }

    /// Asks for the checkpoints that the node, which stands at `height`, must have by now.
    pub(super) async fn check_checkpoints(&self, height: u64) -> Result<(), SourceError> {
        let due: Vec<Checkpoint> = {
            let standing = self.standing();
            standing
                .pending
                .iter()
                .filter(|checkpoint| checkpoint.height <= height)
                .copied()
                .collect()
        };
        for checkpoint in due {
            let told = self
                .rpc
                .call::<Hash>("getblockhash", json!([checkpoint.height]), self.small_limits());
            let Hash(told) = match told.await {
                Ok(told) => told,
                // The node has gone back below it since it told its height.
                Err(error) if is_code(&error, OUT_OF_RANGE) => continue,
                Err(error) => return Err(error.into_source("getblockhash of a checkpoint")),
            };
            if told != checkpoint.hash {
                return Err(SourceError::WrongNetwork(format!(
                    "at height {} this node of {} has block {told}, and the checkpoint is {}: it follows \
                     another chain that began with the same blocks",
                    checkpoint.height,
                    self.config.chain(),
                    checkpoint.hash
                )));
            }
            let mut standing = self.standing();
            standing.pending.retain(|pending| *pending != checkpoint);
            standing.passed = standing.passed.max(Some(checkpoint.height));
        }
        Ok(())
    }

    /// While the node is below a checkpoint it is behind by definition, and above the last one that it has
    /// shown it may be on any chain: nothing there is to be credited yet.
    pub(super) fn unproven_above(&self) -> Option<u64> {
        let standing = self.standing();
        (!standing.pending.is_empty()).then(|| standing.passed.unwrap_or(0))
    }

    /// Uses REST when it is on and serves this chain: a block as it is on disk, half the bytes and no hex. A
    /// header is asked for, because a pruned node no longer has the genesis block.
    async fn probe_rest(&self, genesis: BlockHash) {
        let mut is_on = false;
        if self.config.may_use_rest
            && let Ok(reply) = self
                .rpc
                .get(&format!("/rest/headers/1/{genesis}.bin"), self.small_limits())
                .await
        {
            is_on = reply.status == 200 && starts_with_header_of(&reply.body, genesis);
        }
        self.is_rest_on.store(is_on, Ordering::Relaxed);
    }
}

fn starts_with_header_of(bytes: &[u8], hash: BlockHash) -> bool {
    use bitcoincore_rpc::bitcoin::block::Header;
    use bitcoincore_rpc::bitcoin::consensus::Decodable;
    let header = Header::consensus_decode(&mut &*bytes);
    header.is_ok_and(|header| super::convert::block_hash(header.block_hash()) == hash)
}

fn check_version(network: &NetworkInfo) -> Result<(), SourceError> {
    if network.version.is_none_or(|version| version >= OLDEST_VERSION) {
        return Ok(());
    }
    Err(SourceError::Unreachable {
        doing: "ask for the node's version".to_owned(),
        why: format!(
            "the node is {}, and Bitcoin Core 25 or later is needed",
            network.subversion
        ),
        help: Help::Node,
        source: None,
    })
}

/// `/Satoshi:28.1.0/`, perhaps with comments in brackets. Derived nodes add a part of their own.
fn is_plain_core(subversion: &str) -> bool {
    let Some(inner) = subversion
        .strip_prefix("/Satoshi:")
        .and_then(|rest| rest.strip_suffix('/'))
    else {
        return false;
    };
    let (version, comment) = inner.split_once('(').unwrap_or((inner, ")"));
    let is_version = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_version && !comment.contains('/') && comment.ends_with(')')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_core_is_told_from_what_derives_from_it() {
        for plain in [
            "/Satoshi:25.0.0/",
            "/Satoshi:30.0.0/",
            "/Satoshi:28.1.0(shop; two)/",
        ] {
            assert!(is_plain_core(plain), "{plain}");
        }
        for other in [
            "/Satoshi:29.1.0/Knots:20250903/",
            "/Satoshi:29.3.0(x)/Knots:20260508/",
            "/Bitcoin Cash Node:28.0.0(EB32.0)/",
            "/Satoshi:27.0.0/UASF-BIP110:1/",
            "/Satoshi:/",
            "/Satoshi:27.0.0",
            "",
        ] {
            assert!(!is_plain_core(other), "{other}");
        }
    }
}
