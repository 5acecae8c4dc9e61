//! The hand on both chains: does one [`Step`] after the other, remembers what transactions are called, and
//! says what it did or why not and what to do instead. Start at [`Hand::step`].

use super::evm::{Address, EvmSandbox};
use super::step::{
    BLOCKS_MAX, Blocks, Deposit, NodeState, OfTx, On, Reorg, Rival, SPAN_MS_MAX, Step, is_word,
};
use super::{Place, Sandbox, SandboxError, Trouble};
use crate::address::EvmAddress;
use crate::rules::{Amount, BlockHash, Txid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

mod bitcoin;
mod both;
mod evm;
pub(super) mod fore;
mod state;

pub(super) use evm::{CHAIN_ID, shown, tokens};

/// Whom a double spend pays if nobody is named.
const ELSEWHERE: &str = "elsewhere";

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// In words.
    pub did: String,
    /// The transaction that it made or was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub txid: Option<String>,
    /// The last block that it mined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// Of the tip, then.
    pub height: u64,
}

/// Why a step was not done; nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// In words.
    pub error: String,
    /// What to do instead.
    pub next: String,
}

impl Refused {
    pub(super) fn new(error: impl Into<String>, next: impl Into<String>) -> Refused {
        Refused {
            error: error.into(),
            next: next.into(),
        }
    }
}

/// A step's outcome before its height is known.
struct Did {
    words: String,
    txid: Option<Txid>,
    block: Option<BlockHash>,
}

impl Did {
    fn new(words: impl Into<String>) -> Did {
        Did {
            words: words.into(),
            txid: None,
            block: None,
        }
    }

    fn of(mut self, txid: Txid) -> Did {
        self.txid = Some(txid);
        self
    }

    fn in_block(mut self, block: BlockHash) -> Did {
        self.block = Some(block);
        self
    }
}

/// Both nodes, and what is remembered of them.
pub(super) struct Hand {
    pub(super) bitcoin: Sandbox,
    pub(super) evm: EvmSandbox,
    desk: Mutex<Desk>,
}

/// Held for one step: what comes at the same time waits.
#[derive(Default)]
struct Desk {
    names: BTreeMap<String, (On, Txid)>,
    /// Each payment of an EVM chain has a payer of its own, so that none waits for another's nonce.
    payers: u64,
}

impl Hand {
    pub(super) fn new(bitcoin: Sandbox, evm: EvmSandbox) -> Hand {
        let hand = Hand {
            bitcoin,
            evm,
            desk: Mutex::default(),
        };
        hand.prepare();
        hand
    }

    fn prepare(&self) {
        for (contract, token) in tokens() {
            self.evm.set_token(contract, token);
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Both chains as at the start, nothing remembered and no trouble.
    pub(super) fn reset(&self) -> Result<(), SandboxError> {
        let mut desk = self.desk();
        *desk = Desk::default();
        self.bitcoin.reset()?;
        self.evm.reset()?;
        self.prepare();
        Ok(())
    }

    /// What has a name, and on which chain.
    pub(super) fn names(&self) -> BTreeMap<String, On> {
        let desk = self.desk();
        let names = desk.names.iter().map(|(name, (on, _))| (name.clone(), *on));
        names.collect()
    }

    /// Does one step.
    pub(super) fn step(&self, on: On, step: &Step) -> Result<Done, Refused> {
        let mut desk = self.desk();
        let did = match on {
            On::Btc => self.on_bitcoin(&mut desk, step),
            On::Evm => self.on_evm(&mut desk, step),
        }?;
        let height = match on {
            On::Btc => self.bitcoin.height(),
            On::Evm => self.evm.height(),
        };
        Ok(Done {
            did: did.words,
            txid: did.txid.map(|txid| printed(on, &txid)),
            block: did.block.map(|block| printed(on, &block)),
            height,
        })
    }
}

/// A hash as the chain's people write it.
fn printed(on: On, hash: &impl std::fmt::Display) -> String {
    match on {
        On::Btc => hash.to_string(),
        On::Evm => format!("0x{hash}"),
    }
}

impl Desk {
    /// The transaction of a name or an id.
    fn find(&self, on: On, text: &str) -> Result<Txid, Refused> {
        if let Some((of, txid)) = self.names.get(text) {
            return match *of == on {
                true => Ok(*txid),
                false => Err(Refused::new(
                    format!("{text} is a transaction of {}", of.word()),
                    format!("say {} where it says {}", of.word(), on.word()),
                )),
            };
        }
        let digits = text.strip_prefix("0x").unwrap_or(text);
        BlockHash::from_hex(digits)
            .map(|hash| Txid(hash.0))
            .ok_or_else(|| {
                let known: Vec<&str> = self.names.keys().map(String::as_str).collect();
                let next = match known.is_empty() {
                    true => "name a payment when it is made, or give its 64 hex digits".to_owned(),
                    false => format!("names are: {}; or give 64 hex digits", known.join(", ")),
                };
                Refused::new(format!("no transaction is called {text:?}"), next)
            })
    }

    /// Gives a transaction a name, and says whose it was before.
    fn call(&mut self, name: Option<&String>, on: On, txid: Txid) -> String {
        let Some(name) = name else {
            return String::new();
        };
        match self.names.insert(name.clone(), (on, txid)) {
            Some((of, before)) if (of, before) != (on, txid) => {
                format!("; {name} was {} before", printed(of, &before))
            }
            Some(_) | None => String::new(),
        }
    }
}

/// A name must be one before anything is done.
fn check_name(name: Option<&String>) -> Result<(), Refused> {
    match name.filter(|name| !is_word(name) || *name == "all") {
        None => Ok(()),
        Some(name) => Err(Refused::new(
            format!("{name:?} is no name"),
            "take up to 24 letters, digits, dots, dashes and underlines, and not `all`",
        )),
    }
}

fn check_blocks(count: u32) -> Result<(), Refused> {
    match (1..=BLOCKS_MAX).contains(&count) {
        true => Ok(()),
        false => Err(Refused::new(
            format!("{} at once", blocks(count)),
            format!("take 1 to {BLOCKS_MAX}"),
        )),
    }
}

/// A positive amount in base units.
fn amount(text: &str, decimals: u8, symbol: &str) -> Result<Amount, Refused> {
    match Amount::from_units_str(text, decimals) {
        Ok(amount) if !amount.is_zero() => Ok(amount),
        Ok(_) | Err(_) => Err(Refused::new(
            format!("{text:?} is no amount of {symbol}"),
            format!("write whole {symbol} as in 0.29, with at most {decimals} digits after the point"),
        )),
    }
}

/// What the nodes refuse, with the next step.
fn refused(error: SandboxError) -> Refused {
    let next = match &error {
        SandboxError::System(_) => "see what the operating system says",
        SandboxError::Address(_) => {
            "give an address of this chain, or a label of up to 24 letters and digits such as order-1"
        }
        SandboxError::Unknown(_) => "`creditd trigger state` shows what there is",
        SandboxError::Funds => "pay less, or mine 100 blocks: each brings a reward, which can be spent then",
        SandboxError::Refused(why) if why.contains("lags") => "catch up first: lag 0",
        SandboxError::Refused(why) if why.contains("underpriced") || why.contains("insufficient fee") => {
            "another one took its place already: replace that one, by the name that it was given"
        }
        SandboxError::Refused(_) => "`creditd trigger state` shows where each transaction is",
    };
    Refused::new(error.to_string(), next)
}

/// What both chains say of a trouble.
fn trouble_words(state: &NodeState) -> Result<String, Refused> {
    match state.meant() {
        None => Err(Refused::new(
            format!("{:?} is no trouble of a node", state.trouble),
            "say down, hang, limit, login, warming or up",
        )),
        Some(_) if state.for_ms.is_some_and(|ms| ms > SPAN_MS_MAX) => Err(Refused::new(
            "a trouble for longer than a day",
            format!("take up to {SPAN_MS_MAX} ms, or leave the time out: then it stays until `up`"),
        )),
        Some(None) => Ok("the node is up".to_owned()),
        Some(Some(trouble)) => Ok(match state.for_ms {
            Some(ms) => format!("the node is in trouble for {ms} ms: {}", trouble.word()),
            None => format!("the node is in trouble until `up`: {}", trouble.word()),
        }),
    }
}

fn span(state: &NodeState) -> Option<Duration> {
    state.for_ms.map(Duration::from_millis)
}

/// `1 block`, `2 blocks`.
fn blocks(count: u32) -> String {
    match count {
        1 => "1 block".to_owned(),
        _ => format!("{count} blocks"),
    }
}

fn reorg_words(reorg: &Reorg, kept: usize) -> String {
    let others = blocks(reorg.depth.saturating_add(1));
    let kept = match kept {
        0 => "none of their transactions is in those".to_owned(),
        1 => "one transaction is in the first of them".to_owned(),
        kept => format!("{kept} transactions are in the first of them"),
    };
    format!("the last {} gave way to {others}: {kept}", blocks(reorg.depth))
}

fn lag_words(lag: Blocks) -> String {
    match lag.blocks {
        0 => "the node knows all blocks again".to_owned(),
        count => format!("the node has forgotten its last {}, until `lag 0`", blocks(count)),
    }
}
