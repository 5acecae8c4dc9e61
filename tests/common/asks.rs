//! What tests ask a daemon again and again: the JSON of its commands, and its tables where no command shows
//! them.

use bitcoincore_rpc::bitcoin::{Address, ScriptBuf};
use creditd::store::{Database, OpenMode};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::daemon::{Daemon, Setup};
use super::stub::StubNode;
use super::wait::{PATIENCE, wait_until};

/// The default of the config.
const REORG_WINDOW: u64 = 144;

/// Addresses of private key 1: BIP 173, BIP 86, and the legacy form of the first.
pub const D1: &str = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080";
pub const D2: &str = "bcrt1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqc8gma6";
pub const D3: &str = "mrCDrCybB6J1vRfbwM5hemdJz73FwDBC8r";

/// The script that an address stands for.
pub fn script(address: &str) -> ScriptBuf {
    let address: Address<_> = address.parse().unwrap();
    address.assume_checked().script_pubkey()
}

/// A script that no test watches.
pub fn stranger() -> ScriptBuf {
    ScriptBuf::from([&[0x00, 0x14][..], &[0xab; 20]].concat())
}

/// One row of the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub id: String,
    pub kind: String,
    pub subject: String,
    pub body: Value,
}

impl Daemon {
    /// A running daemon that watches an address and has followed the chain to a height.
    #[track_caller]
    pub fn watching(setup: &Setup, address: &str, height: u64) -> Daemon {
        let mut daemon = Daemon::prepare(setup);
        daemon.watch(address);
        daemon.start_again();
        daemon.wait_height(height);
        daemon
    }

    /// Watches an address for the merchant `shop`.
    #[track_caller]
    pub fn watch(&self, address: &str) {
        self.json(&["watch", "add", address, "--merchant", "shop", "--chain", "btc"]);
    }

    /// The JSON of a command, also of one that reports a problem; `None` where it has none.
    pub fn ask(&self, args: &[&str]) -> Option<Value> {
        let output = self.cli(&[args, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).ok()
    }

    /// What `creditd tx` knows of a transaction.
    pub fn tx(&self, txid: &str) -> Option<Value> {
        let answer = self.ask(&["tx", txid])?;
        answer["transactions"].get(0).cloned()
    }

    /// The deposit at an outpoint, as `creditd tx` tells it.
    pub fn deposit(&self, txid: &str, vout: u64) -> Option<Value> {
        let tx = self.tx(txid)?;
        let outputs = tx["outputs"].as_array()?;
        let output = outputs.iter().find(|output| output["vout"] == vout)?;
        Some(output["deposit"].clone()).filter(Value::is_object)
    }

    #[track_caller]
    pub fn wait_deposit(&self, txid: &str, vout: u64, state: &str) -> Value {
        wait_until(&format!("{txid}:{vout} is {state}"), PATIENCE, || {
            self.deposit(txid, vout)
                .filter(|deposit| deposit["state"] == state)
        })
    }

    /// All credits, oldest first.
    #[track_caller]
    pub fn credits(&self) -> Vec<Value> {
        let mut credits = self.json(&["credits"])["credits"].as_array().unwrap().clone();
        credits.reverse();
        credits
    }

    /// The sum of what all credits net to, in base units.
    #[track_caller]
    pub fn net_sum(&self) -> u64 {
        let net = |credit: &Value| credit["net_base"].as_str().unwrap().parse::<u64>().unwrap();
        self.credits().iter().map(net).sum()
    }

    /// The status of a chain.
    pub fn chain(&self, alias: &str) -> Option<Value> {
        let status = self.ask(&["chain", "status"])?;
        let chains = status["chains"].as_array()?;
        chains.iter().find(|chain| chain["chain"] == alias).cloned()
    }

    /// Waits until `btc` is followed up to `height`.
    #[track_caller]
    pub fn wait_height(&self, height: u64) {
        self.wait_height_of("btc", height);
    }

    #[track_caller]
    pub fn wait_height_of(&self, alias: &str, height: u64) {
        wait_until(&format!("{alias} is at height {height}"), PATIENCE, || {
            let chain = self.chain(alias)?;
            (chain["height"] == height && chain["state"] == "following").then_some(())
        });
    }

    /// Waits until `btc` is in a state whose reason holds `words`; the status.
    #[track_caller]
    pub fn wait_state(&self, state: &str, words: &str) -> Value {
        wait_until(&format!("btc is {state}: {words}"), PATIENCE, || {
            let chain = self.chain("btc")?;
            let has_words = chain["reason"].as_str()?.contains(words);
            (chain["state"] == state && has_words).then_some(chain)
        })
    }

    /// The number that a query answers.
    #[track_caller]
    pub fn count(&self, sql: &str) -> i64 {
        self.sql(sql, |row| row.get(0)).pop().unwrap()
    }

    /// The outbox, oldest first.
    #[track_caller]
    pub fn events(&self) -> Vec<Event> {
        self.sql("SELECT id, type, subject, body FROM events ORDER BY seq", |row| {
            Ok(Event {
                id: row.get(0)?,
                kind: row.get(1)?,
                subject: row.get(2)?,
                body: serde_json::from_str(&row.get::<_, String>(3)?).unwrap(),
            })
        })
    }

    /// The events of one kind.
    #[track_caller]
    pub fn events_of(&self, kind: &str) -> Vec<Event> {
        self.events()
            .into_iter()
            .filter(|event| event.kind == kind)
            .collect()
    }

    #[track_caller]
    pub fn sql<T>(&self, sql: &str, read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>) -> Vec<T> {
        let database =
            Connection::open_with_flags(self.database(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let mut statement = database.prepare(sql).unwrap();
        statement
            .query_map([], read)
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    /// Nothing in the database breaks an invariant.
    #[track_caller]
    pub fn assert_sound(&self) {
        self.assert_sound_in(REORG_WINDOW);
    }

    /// The same where the config has another window.
    #[track_caller]
    pub fn assert_sound_in(&self, reorg_window: u64) {
        let database = Database::open(&self.database(), OpenMode::ReadOnly).unwrap();
        let violations = database.read(|tx| tx.violations(reorg_window)).unwrap();
        assert!(violations.is_empty(), "{violations:#?}");
        // Beyond the list: one event of each entry of the books, never more.
        let differ = "SELECT (SELECT count(*) FROM journal) - (SELECT count(*) FROM events \
                      WHERE type IN ('credit.created', 'credit.reversed', 'credit.reinstated'))";
        assert_eq!(self.count(differ), 0, "journal entries and their events");
    }
}

/// Lets the daemon look at the node `polls` times more.
#[track_caller]
pub fn wait_polls(stub: &StubNode, polls: usize) {
    wait_calls(stub, "getblockchaininfo", polls);
}

/// Waits until a method was called `more` times more.
#[track_caller]
pub fn wait_calls(stub: &StubNode, method: &str, more: usize) {
    let before = stub.count(method);
    wait_until(&format!("{more} more calls of {method}"), PATIENCE, || {
        (stub.count(method) >= before + more).then_some(())
    });
}

impl Setup {
    /// A second chain, `other`, on a node of its own.
    #[must_use]
    pub fn beside(mut self, other: &StubNode) -> Self {
        self.add_chain_at("other", &other.url(), &other.cookie_file());
        self
    }
}
