//! What EVM chains have beside: senders with nonces, several movements in one transaction, runs that differ
//! from block to block, and finality tags.

use super::tree::{Out, Tree, Tx};
use creditd::rules::block::sender_outpoint;
use creditd::rules::position::Position;
use creditd::rules::{Asset, BlockHash, Doubt, Outpoint, Script, TaggedBlock, Tags, Txid};
use std::sync::Arc;

/// An account of 20 bytes.
pub fn account(number: u32) -> Script {
    let mut bytes = vec![0xac; 16];
    bytes.extend(number.to_be_bytes());
    Script(bytes.into())
}

/// A token's contract.
pub fn token(number: u8) -> [u8; 20] {
    [number; 20]
}

/// A number that stands for an asset where outpoints are compared.
pub fn asset_key(asset: &Asset) -> u64 {
    match asset {
        Asset::Native => 0,
        Asset::Token(contract) => 1 + u64::from(contract[0]),
    }
}

/// Where a movement stands and what moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    pub place: u64,
    pub asset: Asset,
    pub from: Script,
    pub doubt: Option<Doubt>,
}

/// A transaction as it is being written.
#[derive(Clone, Debug)]
pub struct Call {
    sender: Script,
    nonce: Option<u64>,
    legs: Vec<Out>,
    is_failed: bool,
}

impl Call {
    /// By an account that uses a nonce up.
    pub fn new(sender: &Script, nonce: u64) -> Call {
        Call {
            sender: sender.clone(),
            nonce: Some(nonce),
            legs: vec![],
            is_failed: false,
        }
    }

    /// A deposit of a rollup: it has no nonce, so nothing replaces it.
    pub fn deposit(sender: &Script) -> Call {
        Call {
            nonce: None,
            ..Call::new(sender, 0)
        }
    }

    /// By the same sender with the same nonce, and nothing in it yet.
    pub fn emptied(&self) -> Call {
        Call {
            legs: vec![],
            is_failed: false,
            ..self.clone()
        }
    }

    /// Its own value.
    pub fn value(self, to: &Script, amount: u64) -> Call {
        let from = self.sender.clone();
        self.leg(Position::Native, Asset::Native, &from, to, amount)
    }

    /// A log of a token, the k-th of the receipt.
    pub fn log(self, log: u32, contract: u8, to: &Script, amount: u64) -> Call {
        let from = self.sender.clone();
        self.log_from(log, contract, &from, to, amount)
    }

    /// The same of somebody else's tokens.
    pub fn log_from(self, log: u32, contract: u8, from: &Script, to: &Script, amount: u64) -> Call {
        let asset = Asset::Token(token(contract));
        self.leg(Position::Log(log), asset, from, to, amount)
    }

    /// An inner call that moves coin, the k-th.
    pub fn inner(self, call: u32, from: &Script, to: &Script, amount: u64) -> Call {
        self.leg(Position::Inner(call), Asset::Native, from, to, amount)
    }

    fn leg(mut self, at: Position, asset: Asset, from: &Script, to: &Script, amount: u64) -> Call {
        self.legs.push(Out {
            leg: Some(Leg {
                place: at.number(0).unwrap(),
                asset,
                from: from.clone(),
                doubt: None,
            }),
            ..Out::new(to.clone(), amount)
        });
        self
    }

    /// Whether the last movement is to be believed is doubtful.
    pub fn doubt(mut self, doubt: Doubt) -> Call {
        let leg = self.legs.last_mut().and_then(|out| out.leg.as_mut());
        leg.unwrap().doubt = Some(doubt);
        self
    }

    /// This run fails: only its own value could have been a payment.
    pub fn fails(mut self) -> Call {
        self.is_failed = true;
        self.legs
            .retain(|out| out.leg.as_ref().is_some_and(|leg| leg.place == 0));
        self
    }

    /// Calls of an account by itself become calls by another: they move nothing, and real nodes do not count
    /// them.
    pub fn without_self_calls(mut self, other: &Script) -> Call {
        for out in &mut self.legs {
            let leg = out.leg.as_mut().unwrap();
            if leg.place >> 32 > 0 && leg.from == out.script {
                leg.from = other.clone();
            }
        }
        self
    }

    /// How a later run may differ: what the transaction says by itself stays. `what` picks a movement.
    pub fn changed(&self, how: usize, what: usize, other: &Script) -> Call {
        let mut call = self.clone();
        let runs: Vec<usize> = (0..call.legs.len())
            .filter(|at| call.legs[*at].leg.as_ref().is_some_and(|leg| leg.place != 0))
            .collect();
        let Some(at) = runs.get(what % runs.len().max(1)).copied() else {
            return call;
        };
        match how {
            0 => {
                for leg in call.legs.iter_mut().filter_map(|out| out.leg.as_mut()) {
                    leg.place += u64::from(leg.place != 0);
                }
            }
            1 => call.legs[at].amount += 1,
            2 => drop(call.legs.remove(at)),
            3 => call.legs[at].leg.as_mut().unwrap().from = other.clone(),
            4 => call.legs[at].script = other.clone(),
            5 => {
                // The same movements in another order.
                let with = runs[(what + 1) % runs.len()];
                let places = [at, with].map(|leg| call.legs[leg].leg.as_ref().unwrap().place);
                // A log stays a log, and a call a call.
                if places[0] >> 32 == places[1] >> 32 {
                    call.legs[at].leg.as_mut().unwrap().place = places[1];
                    call.legs[with].leg.as_mut().unwrap().place = places[0];
                }
            }
            _ => call.is_failed = true,
        }
        match call.is_failed {
            true => call.fails(),
            false => call,
        }
    }

    fn run(&self, txid: Txid) -> Arc<Tx> {
        let mut bytes = [0; 20];
        bytes.copy_from_slice(&self.sender.0);
        Arc::new(Tx {
            txid,
            is_coinbase: false,
            inputs: self
                .nonce
                .map(|nonce| sender_outpoint(&bytes, nonce))
                .into_iter()
                .collect(),
            outputs: self.legs.clone(),
            sender: Some(self.sender.clone()),
            is_failed: self.is_failed,
        })
    }

    /// The transaction, as it is met for the first time.
    pub fn send(&self, tree: &mut Tree) -> Arc<Tx> {
        let id = tree.id("tx");
        self.run(Txid(id))
    }

    /// The same transaction, run in another way: sender and nonce are its own.
    pub fn again(&self, tx: &Tx) -> Arc<Tx> {
        let mut run = Tx::clone(&self.run(tx.txid));
        run.inputs.clone_from(&tx.inputs);
        run.sender.clone_from(&tx.sender);
        Arc::new(run)
    }
}

impl Tx {
    /// The k-th log's outpoint in an execution.
    pub fn log(&self, log: u32, execution: u64) -> Outpoint {
        self.outpoint(Position::Log(log).number(execution).unwrap())
    }

    /// What a node shows of it before it is mined: its own value, and no run.
    pub fn pending(&self) -> Arc<Tx> {
        let mut tx = self.clone();
        tx.is_failed = false;
        tx.outputs
            .retain(|out| out.leg.as_ref().is_some_and(|leg| leg.place == 0));
        for leg in tx.outputs.iter_mut().filter_map(|out| out.leg.as_mut()) {
            leg.doubt = None;
        }
        Arc::new(tx)
    }

    /// What stands for one of its payments where a rule asks whether it was met before: of Bitcoin's the
    /// output, of an EVM transaction the asset, for the next run may have it elsewhere.
    pub fn met_key(&self, vout: u64) -> Outpoint {
        let leg = usize::try_from(vout)
            .ok()
            .and_then(|place| self.outputs[place].leg.as_ref());
        self.outpoint(leg.map_or(vout, |leg| asset_key(&leg.asset)))
    }

    /// The same run, but it fails.
    pub fn failed(&self) -> Arc<Tx> {
        let mut tx = Tx::clone(&self.pending());
        tx.is_failed = true;
        Arc::new(tx)
    }
}

/// The finality tags that a node tells.
#[derive(Clone, Copy, Debug, Default)]
pub enum Finality {
    /// It knows of none.
    #[default]
    Untold,
    /// The blocks so far below its tip.
    Below { safe: u64, finalized: u64 },
    /// These, whatever its tip is.
    Says(Tags),
}

impl Finality {
    pub fn tags(&self, tree: &Tree, tip: &BlockHash) -> Tags {
        let below = |lag: u64| {
            let height = tree.block(tip).height().saturating_sub(lag);
            let hash = tree.ancestor(tip, height)?;
            Some(TaggedBlock { height, hash })
        };
        match self {
            Finality::Untold => Tags::default(),
            Finality::Below { safe, finalized } => Tags {
                safe: below(*safe),
                finalized: below(*finalized),
            },
            Finality::Says(tags) => *tags,
        }
    }
}
