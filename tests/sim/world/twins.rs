//! Simulated nodes beside the scripted ones of an EVM chain: whatever is mined in the tree is mined there
//! too, under the same hash and with the same effects, so that the real source can ask for it in JSON.

use super::rules::{LATER, SENDERS, TUSD};
use crate::scripted::{Finality, Out, Tree, Tx, World as Nodes, account, token};
use creditd::clock::Clock;
use creditd::rules::{Asset, BlockHash, Script, Txid};
use creditd::sandbox::evm::{
    Address, CallKind, Effects, EvmSandbox, InnerCall, Log, Mark, Nonce, Stale, Token, Tx as Sent, U256,
};
use std::collections::BTreeSet;

pub const CHAIN_ID: u64 = 31_337;

/// Where inner calls begin among the places of a transaction.
const INNER: u64 = 1 << 32;

pub struct Twins {
    nodes: Vec<EvmSandbox>,
    /// What they have.
    blocks: BTreeSet<BlockHash>,
    txs: BTreeSet<Txid>,
}

impl std::fmt::Debug for Twins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} twins", self.nodes.len())
    }
}

fn address(script: &Script) -> Address {
    let mut bytes = [0; 20];
    bytes.copy_from_slice(&script.0);
    Address(bytes)
}

/// What transactions call that pay nobody themselves.
fn hub() -> Address {
    Address::of("hub")
}

impl Twins {
    pub fn new(count: usize, genesis: BlockHash) -> Twins {
        // It shows 1970: blocks have the time of their parent and a second, wherever they are mined.
        let clock = Clock::simulated(0);
        let nodes: Vec<EvmSandbox> = (0..count)
            .map(|_| EvmSandbox::quiet(CHAIN_ID, genesis, clock))
            .collect();
        for node in &nodes {
            for number in SENDERS {
                let wei = U256::from(10_u64).pow(U256::from(30_u64));
                node.endow(address(&account(number)), wei);
            }
            for number in [TUSD, LATER] {
                let described = Token {
                    decimals: 6,
                    symbol: format!("T{number}"),
                };
                node.set_token(Address(token(number)), described);
            }
        }
        Twins {
            blocks: [genesis].into(),
            txs: BTreeSet::new(),
            nodes,
        }
    }

    /// What each of them answers.
    pub fn routers(&self) -> Vec<axum::Router> {
        self.nodes.iter().map(EvmSandbox::routes).collect()
    }

    /// Mines what is new, and takes each twin to where its node is.
    pub fn follow(&mut self, world: &Nodes) {
        let tree = &world.tree;
        let mut new: Vec<_> = tree
            .blocks()
            .filter(|block| !self.blocks.contains(&block.hash()))
            .cloned()
            .collect();
        new.sort_by_key(|block| block.height());
        for block in new {
            let (hash, parent) = (block.hash(), block.held.header.parent);
            block.txs.iter().for_each(|tx| self.run(tx));
            let txids: Vec<Txid> = block.txs.iter().map(|tx| tx.txid).collect();
            for node in &self.nodes {
                node.mine_as(parent, &txids, hash).unwrap();
            }
            self.blocks.insert(hash);
        }
        for (number, node) in world.nodes.iter().enumerate() {
            node.mempool.iter().for_each(|tx| self.know(tx));
            let pending: Vec<Txid> = node.mempool.iter().map(|tx| tx.txid).collect();
            let twin = &self.nodes[number];
            twin.set_tip(node.tip, Stale::Kept).unwrap();
            twin.pool()
                .iter()
                .filter(|tx| !pending.contains(tx))
                .for_each(|tx| {
                    twin.evict(*tx);
                });
            for txid in pending {
                // It waits there already, or behind another of its sender.
                let _ = twin.resend(txid);
            }
            let height = tree.block(&node.tip).height();
            twin.set_syncing(node.faults.is_syncing.then_some(height + 9));
            let (safe, finalized) = marks(&node.finality, tree, &node.tip);
            twin.set_safe(safe);
            twin.set_finalized(finalized);
        }
    }

    fn know(&mut self, tx: &Tx) {
        if !self.txs.insert(tx.txid) {
            return;
        }
        let own = tx.outputs.iter().find(|out| place(out) == 0);
        let sender = address(tx.sender.as_ref().unwrap());
        let sent = Sent {
            kind: if tx.inputs.is_empty() { 0x7e } else { 2 },
            from: sender,
            nonce: match tx.inputs.first() {
                Some(input) => Nonce::Given(input.vout - 1),
                None => Nonce::Absent,
            },
            to: Some(own.map_or_else(hub, |out| address(&out.script))),
            value: U256::from(own.map_or(0, |out| out.amount)),
            // Two with one sender and nonce are two.
            input: tx.txid.0.to_vec(),
            ..Sent::pay(sender, hub(), U256::ZERO)
        };
        for node in &self.nodes {
            node.prepare_as(sent.clone(), tx.txid);
        }
    }

    /// From now on a transaction does what this run of it does.
    fn run(&mut self, tx: &Tx) {
        self.know(tx);
        for node in &self.nodes {
            node.set_effects(tx.txid, effects(tx)).unwrap();
        }
    }
}

fn marks(finality: &Finality, tree: &Tree, tip: &BlockHash) -> (Mark, Mark) {
    match finality {
        Finality::Untold => (Mark::Missing, Mark::Missing),
        Finality::Below { safe, finalized } => (Mark::Behind(*safe), Mark::Behind(*finalized)),
        Finality::Says(_) => {
            let tags = finality.tags(tree, tip);
            let at = |tag: Option<creditd::rules::TaggedBlock>| {
                tag.map_or(Mark::Missing, |tag| Mark::At(tag.height))
            };
            (at(tags.safe), at(None))
        }
    }
}

fn place(out: &Out) -> u64 {
    out.leg.as_ref().map_or(0, |leg| leg.place)
}

/// What is between the movements of ours: a log of another contract, a call that pays a stranger.
fn effects(tx: &Tx) -> Effects {
    let other = Address::of("other");
    let mut effects = Effects::default();
    if tx.is_failed {
        return Effects::failed();
    }
    let mut legs: Vec<&Out> = tx.outputs.iter().filter(|out| place(out) > 0).collect();
    legs.sort_by_key(|out| place(out));
    for out in legs {
        let leg = out.leg.as_ref().unwrap();
        let (from, to, amount) = (address(&leg.from), address(&out.script), U256::from(out.amount));
        match leg.asset {
            Asset::Token(contract) => {
                while (effects.logs.len() as u64) < leg.place - 1 {
                    effects.logs.push(Log {
                        address: other,
                        topics: vec![[9; 32]],
                        data: vec![],
                    });
                }
                let log = Log::transfer(Address(contract), from, to, amount);
                effects.logs.push(log);
            }
            Asset::Native => {
                while (effects.calls.len() as u64) < leg.place - INNER {
                    let filler = InnerCall::new(CallKind::Call, other, U256::ONE);
                    effects.calls.push(filler);
                }
                let mut caller = InnerCall::new(CallKind::Call, from, U256::ZERO);
                caller.calls.push(InnerCall::new(CallKind::Call, to, amount));
                effects.calls.push(caller);
            }
        }
    }
    effects
}
