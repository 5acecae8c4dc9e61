//! A rig on a scripted EVM chain.

use crate::rig::{Rig, policy, settings};
use crate::scripted::{Call, Finality, Scripted, Tree, Tx, World, account, token};
use creditd::clock::Clock;
use creditd::follow::Settings;
use creditd::rules::policy::{Policy, Requirement, Tier};
use creditd::rules::{Asset, BlockHash, Outpoint, Script, TaggedBlock, Tags};
use creditd::store::NewAsset;
use std::sync::Arc;
use std::time::Duration;

/// The token that is listed from the start.
pub const TUSD: u8 = 0x71;
/// One that may be listed later.
pub const LATER: u8 = 0x72;

/// A token as the config lists it.
pub fn listed(settings: &Settings, number: u8) -> NewAsset {
    NewAsset {
        asset: Asset::Token(token(number)),
        caip: settings.chain.id.erc20(&token(number)),
        symbol: format!("T{number}"),
        decimals: 6,
        from: None,
    }
}

/// Lists a token, under the policy of the coin.
pub fn list(settings: &mut Settings, number: u8) {
    let asset = listed(settings, number);
    let policy = settings.terms.policies[&Asset::Native].clone();
    settings.terms.policies.insert(asset.asset, policy);
    settings.chain.assets.push(asset);
}

/// A policy of one requirement.
pub fn flat(needs: Requirement) -> Policy {
    Policy::new(&[Tier { below: None, needs }]).unwrap()
}

/// Every asset needs this.
pub fn need(settings: &mut Settings, policy: &Policy) {
    let policies = settings.terms.policies.values_mut();
    policies.for_each(|of| of.clone_from(policy));
}

/// A chain with nodes; coin and one token are credited at depth 3, followed from block 1.
pub async fn evm_with(nodes: usize, change: impl FnOnce(&mut Settings)) -> Rig {
    let clock = Clock::simulated(1_700_000_000_000);
    let chain = Scripted::on(Tree::evm("evm genesis"), nodes, clock);
    let mut settings = settings(&chain);
    settings.chain.alias = "evm".to_owned();
    settings.chain.assets = vec![NewAsset {
        asset: Asset::Native,
        caip: settings.chain.id.evm_coin(60),
        symbol: "ETH".to_owned(),
        decimals: 18,
        from: None,
    }];
    settings.terms.policies = [(Asset::Native, policy(&[], 3))].into();
    settings.fork_patience = Some(Duration::from_secs(600));
    list(&mut settings, TUSD);
    change(&mut settings);
    Rig::on(chain, clock, settings).await
}

pub async fn evm() -> Rig {
    evm_with(2, |_| {}).await
}

/// Somebody who pays, with a nonce that nobody used.
pub fn payer(rig: &Rig) -> Call {
    let coin = rig.coin();
    let number = u32::from_be_bytes(coin.txid.0[4..8].try_into().unwrap());
    Call::new(&account(number | 0x8000_0000), 0)
}

impl Rig {
    /// Makes a transaction, without any node hearing of it.
    pub fn make(&self, call: &Call) -> Arc<Tx> {
        call.send(&mut self.chain.world().tree)
    }

    /// A payment of coin.
    pub fn pay_coin(&self, to: &Script, amount: u64) -> Arc<Tx> {
        self.make(&payer(self).value(to, amount))
    }

    /// A payment of the listed token, by log `log`.
    pub fn pay_token(&self, log: u32, to: &Script, amount: u64) -> Arc<Tx> {
        self.make(&payer(self).log(log, TUSD, to, amount))
    }

    /// All nodes tell these tags from now on.
    pub fn finality(&self, finality: Finality) {
        let mut world = self.chain.world();
        world.nodes.iter_mut().for_each(|node| node.finality = finality);
    }

    /// All nodes say that this block is final, and that one safe.
    pub fn says(&self, safe: Option<BlockHash>, finalized: Option<BlockHash>) {
        let tags = Tags {
            safe: safe.map(|hash| self.tagged(hash)),
            finalized: finalized.map(|hash| self.tagged(hash)),
        };
        self.finality(Finality::Says(tags));
    }

    pub fn tagged(&self, hash: BlockHash) -> TaggedBlock {
        let height = self.chain.world().tree.block(&hash).height();
        TaggedBlock { height, hash }
    }

    /// Node `number` alone answers, with this tip.
    pub fn only(&self, number: usize, tip: BlockHash) {
        let mut world = self.chain.world();
        let World {
            tree,
            nodes,
            current,
            alternates,
            ..
        } = &mut *world;
        nodes[number].restore(tree, tip);
        (*current, *alternates) = (number, false);
    }

    pub fn mempools_forget(&self) {
        let mut world = self.chain.world();
        world.nodes.iter_mut().for_each(|node| node.mempool.clear());
    }

    /// State and hold of a deposit, as `confirming`, `confirming held:own_inputs`; `absent`.
    pub fn deposit_state(&self, of: &Outpoint) -> String {
        let deposits = self.tables.deposits();
        let Some(deposit) = deposits.get(of) else {
            return "absent".to_owned();
        };
        let held = deposit.held.as_ref().map(|held| format!(" held:{held}"));
        format!("{}{}", deposit.state, held.unwrap_or_default())
    }

    /// The operator's word for a deposit.
    pub async fn release(&self, of: &Outpoint) -> Result<bool, String> {
        let id = self.tables.deposit(of).id;
        let released = self.store().write(move |tx| tx.release(&id, "test")).await;
        released.map_err(|error| error.to_string())
    }

    pub fn accepted(&self) -> (Option<u64>, Option<u64>) {
        let key = self.key;
        let row = self.read(|tx| tx.chain_by_key(key));
        (row.safe, row.finalized)
    }
}
