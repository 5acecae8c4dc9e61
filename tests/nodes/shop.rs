//! A shop: a funded regtest node, the daemon that follows it, watched addresses, and what creditd says of the
//! payments to them. Every answer comes from the command line; the books are held against the invariants in
//! the database file.

use bitcoincore_rpc::bitcoin::hashes::{Hash, sha256};
use bitcoincore_rpc::bitcoin::{Address, Network, ScriptBuf, WPubkeyHash};
use creditd::store::{Database, OpenMode, ReadTx, StoreError};
use serde_json::Value;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;
use crate::common::wallet::RawTx;

/// Blocks above a payment's own that make it credited: depth 3.
pub const TO_CREDIT: u32 = 2;

/// How far below the tip every header is held: the default of the config.
const REORG_WINDOW: u64 = 144;

/// What happens between the steps of a scenario. Nothing of it may change the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// SIGTERM, and another daemon.
    DaemonRestarts,
    /// SIGKILL, and another daemon.
    DaemonDies,
    /// The node ends and comes back with a new cookie.
    NodeRestarts,
}

pub struct Shop {
    pub node: RegtestNode,
    pub daemon: Daemon,
    pub trouble: Trouble,
}

impl Shop {
    /// A funded node, and a daemon that follows it from there on.
    pub fn open() -> Self {
        Self::open_with(|_| {})
    }

    /// The same with another config.
    pub fn open_with(change: impl FnOnce(&mut Setup)) -> Self {
        Self::open_at(RegtestNode::start(), change)
    }

    /// The same at a node that was started otherwise.
    pub fn open_at(node: RegtestNode, change: impl FnOnce(&mut Setup)) -> Self {
        node.fund();
        node.split_coin(40);
        let mut setup = Setup::for_node(&node);
        change(&mut setup);
        let shop = Self {
            node,
            daemon: Daemon::start(&setup),
            trouble: Trouble::None,
        };
        shop.settle();
        shop
    }

    /// Lets the trouble of this shop happen, and waits until it is over.
    pub fn meanwhile(&mut self) {
        match self.trouble {
            Trouble::None => return,
            Trouble::DaemonRestarts => {
                self.daemon.stop();
                self.daemon.start_again();
            }
            Trouble::DaemonDies => {
                self.daemon.kill9();
                self.daemon.start_again();
            }
            Trouble::NodeRestarts => self.node.restart(),
        }
        self.settle();
    }

    // ---- addresses ----

    /// A fresh address that merchant `shop` watches.
    #[track_caller]
    pub fn watch(&self) -> String {
        let address = fresh_address();
        self.watch_for("shop", &address);
        address
    }

    #[track_caller]
    pub fn watch_for(&self, merchant: &str, address: &str) {
        let added = self
            .daemon
            .json(&["watch", "add", address, "--merchant", merchant]);
        assert_eq!(added["outcome"], "added", "{added}");
    }

    // ---- blocks ----

    /// Mines `count` blocks without any transaction.
    #[track_caller]
    pub fn mine_empty(&self, count: u32) -> Vec<String> {
        (0..count).map(|_| self.node.generateblock(&[])).collect()
    }

    /// Waits until the daemon has the node's tip and is content.
    #[track_caller]
    pub fn settle(&self) {
        self.settle_on("btc", &self.node);
    }

    /// The same for one chain of several.
    #[track_caller]
    pub fn settle_on(&self, alias: &str, node: &RegtestNode) {
        settle(&self.daemon, alias, node);
    }

    /// Waits until the daemon names this state of a chain; the reason that it gives.
    #[track_caller]
    pub fn await_chain_state(&self, alias: &str, state: &str) -> String {
        let what = format!("{alias} is {state}");
        let chain = await_chain(&self.daemon, alias, &what, |chain| chain["state"] == state);
        text(&chain["reason"])
    }

    // ---- payments ----

    /// A payment from a coin of its own, so that no other depends on it. Not sent.
    #[track_caller]
    pub fn pay(&self, address: &str, sat: u64) -> RawTx {
        let coin = self.node.coin();
        self.node.spend(
            &[&coin],
            &[(address, sat), (&fresh_address(), coin.sat - sat - 1_000)],
        )
    }

    /// The same, listed and seen.
    #[track_caller]
    pub fn seen_payment(&self, sat: u64) -> RawTx {
        let payment = self.pay(&self.watch(), sat);
        self.node.broadcast(&payment);
        self.await_state(&payment.txid, "seen");
        payment
    }

    /// What creditd tells of a transaction.
    #[track_caller]
    pub fn tx(&self, txid: &str) -> Value {
        let answer = self.daemon.json(&["tx", txid]);
        let [tx] = answer["transactions"].as_array().unwrap().as_slice() else {
            panic!("one chain knows it: {answer}");
        };
        tx.clone()
    }

    /// The deposit of a transaction that makes exactly one.
    #[track_caller]
    pub fn deposit(&self, txid: &str) -> Deposit {
        let tx = self.tx(txid);
        only_deposit(&tx).unwrap_or_else(|| panic!("not one deposit: {tx}"))
    }

    /// Waits until that deposit is in this state.
    #[track_caller]
    pub fn await_state(&self, txid: &str, state: &str) -> Deposit {
        self.await_deposit(txid, state, |deposit| deposit.0["state"] == state)
    }

    /// Waits until that deposit is as wanted.
    #[track_caller]
    pub fn await_deposit(&self, txid: &str, what: &str, is_so: impl Fn(&Deposit) -> bool) -> Deposit {
        self.daemon
            .wait_for(&format!("{txid} is {what}"), &["tx", txid], |answer| {
                only_deposit(&answer["transactions"][0]).filter(&is_so)
            })
    }

    /// All credits, newest first.
    #[track_caller]
    pub fn credits(&self) -> Vec<Value> {
        let answer = self.daemon.json(&["credits", "--limit", "100000"]);
        answer["credits"].as_array().unwrap().clone()
    }

    /// What a merchant has been credited, in satoshi, on all chains.
    #[track_caller]
    pub fn credited_sat(&self, merchant: &str) -> u64 {
        let answer = self.daemon.json(&["balances", "--merchant", merchant]);
        let balances = answer["balances"].as_array().unwrap().iter();
        balances
            .map(|balance| text(&balance["credited_base"]).parse::<u64>().unwrap())
            .sum()
    }

    /// Nothing in the database breaks an invariant.
    #[track_caller]
    pub fn assert_sound(&self) {
        assert_sound(&self.daemon);
    }
}

/// Waits until a daemon has the node's tip and is content.
#[track_caller]
pub fn settle(daemon: &Daemon, alias: &str, node: &RegtestNode) {
    let (tip, height) = (node.tip(), node.height());
    let what = format!("{alias} follows {tip} at {height}");
    await_chain(daemon, alias, &what, |chain| {
        chain["hash"] == tip.as_str() && chain["height"] == height && chain["state"] == "following"
    });
}

#[track_caller]
fn await_chain(daemon: &Daemon, alias: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    daemon.wait_for(what, &["chain", "status"], |status| {
        let chains = status["chains"].as_array()?;
        let chain = chains.iter().find(|chain| chain["chain"] == alias)?;
        is_so(chain).then(|| chain.clone())
    })
}

/// Nothing in the database of a daemon breaks an invariant.
#[track_caller]
pub fn assert_sound(daemon: &Daemon) {
    let found = read(daemon, |tx| tx.violations(REORG_WINDOW));
    assert!(found.is_empty(), "{found:#?}");
}

/// Reads the database beside the daemon, as the commands do.
#[track_caller]
pub fn read<T>(daemon: &Daemon, look: impl FnMut(&ReadTx<'_>) -> Result<T, StoreError>) -> T {
    let database = Database::open(&daemon.database(), OpenMode::ReadOnly).unwrap();
    database.read(look).unwrap()
}

/// A deposit as `creditd tx --json` tells it.
#[derive(Clone, Debug)]
pub struct Deposit(pub Value);

impl Deposit {
    pub fn state(&self) -> String {
        text(&self.0["state"])
    }

    /// The types of its events and of its credit's, in the order in which they happened. No id is there
    /// twice.
    #[track_caller]
    pub fn events(&self) -> Vec<String> {
        let events = self.0["events"].as_array().unwrap();
        let mut ids: Vec<&Value> = events.iter().map(|event| &event["id"]).collect();
        ids.sort_by_key(|id| id.to_string());
        ids.dedup();
        assert_eq!(ids.len(), events.len(), "an id twice: {}", self.0);
        events.iter().map(|event| text(&event["type"])).collect()
    }

    /// The kinds of its journal entries, in order; none before it is credited.
    pub fn journal(&self) -> Vec<String> {
        let entries = self.0["credit"]["journal"].as_array();
        let entries = entries.map(Vec::as_slice).unwrap_or_default();
        entries.iter().map(|entry| text(&entry["entry"])).collect()
    }

    /// What its credit nets to, in satoshi; 0 before it is credited.
    pub fn net_sat(&self) -> u64 {
        let net = self.0["credit"]["net_base"].as_str();
        net.map_or(0, |net| net.parse().unwrap())
    }

    /// Holds state, events and journal against what they must be.
    #[track_caller]
    pub fn assert_is(&self, state: &str, events: &[&str], journal: &[&str]) {
        let wanted = (state.to_owned(), strings(events), strings(journal));
        assert_eq!(
            (self.state(), self.events(), self.journal()),
            wanted,
            "{:#}",
            self.0
        );
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// The deposit of a transaction of the CLI's JSON, if it makes exactly one.
fn only_deposit(tx: &Value) -> Option<Deposit> {
    let mut deposits = tx["outputs"]
        .as_array()?
        .iter()
        .filter(|output| !output["deposit"].is_null());
    match (deposits.next(), deposits.next()) {
        (Some(output), None) => Some(Deposit(output["deposit"].clone())),
        _ => None,
    }
}

#[track_caller]
pub fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("a string, not {value}"))
        .to_owned()
}

/// An address that nobody holds the key of, another one at each call.
pub fn fresh_address() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let seed = sha256::Hash::hash(&MADE.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    let program = WPubkeyHash::from_slice(&seed[..20]).unwrap();
    print_address(&ScriptBuf::new_p2wpkh(&program))
}

/// The regtest address of a script that has one.
#[track_caller]
pub fn print_address(script: &ScriptBuf) -> String {
    Address::from_script(script, Network::Regtest)
        .unwrap()
        .to_string()
}
