//! The cases on an EVM chain, by the real daemon beside a real node (Anvil), often through a proxy that has
//! things go wrong in between. The node's chain is `dev`, credited at depth 6; E1 and E2 are watched.

mod blooms;
mod decimals;
mod endpoints;
mod executions;
mod failures;
mod invoices;
mod late;
mod log_numbers;
mod lookalikes;
mod payouts;
mod reorgs;
mod restarts;
mod spellings;
mod standby;
mod transfer_shapes;
mod unknown_fields;

use serde_json::{Value, json};

use crate::common::anvil::{AnvilNode, hex};
use crate::common::contracts::Token;
use crate::common::daemon::{Daemon, Setup};
use crate::common::metrics::Scrape;
use crate::common::wait::{PATIENCE, wait_until};

pub const E1: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
pub const E2: &str = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359";
/// Nobody watches it.
pub const ELSEWHERE: &str = "0xe1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1";

pub const CHAIN_ID: u64 = 31_337;
/// One coin in its smallest units.
pub const COIN: u128 = 1_000_000_000_000_000_000;

/// The `vout` of a log of a transaction's receipt.
pub const fn log(place: u64) -> u64 {
    1 + place
}

/// The `vout` of a movement inside a transaction.
pub const fn inner(place: u64) -> u64 {
    (1 << 32) + place
}

/// The same position in a later execution.
pub const fn again(vout: u64, execution: u64) -> u64 {
    execution * (1 << 40) + vout
}

/// What the config says of a chain.
#[derive(Clone)]
pub struct Chain {
    alias: String,
    chain_id: u64,
    endpoints: String,
    lines: String,
    assets: String,
}

impl Chain {
    /// `dev`, read from here.
    pub fn at(url: &str) -> Self {
        Self::of(&[("own", url)])
    }

    /// `dev`, read from these by their names.
    pub fn of(endpoints: &[(&str, &str)]) -> Self {
        let endpoint =
            |(name, url): &(&str, &str)| format!("[[evm.endpoint]]\nname = \"{name}\"\nurl = \"{url}\"\n");
        Self {
            alias: "dev".to_owned(),
            chain_id: CHAIN_ID,
            endpoints: endpoints.iter().map(endpoint).collect(),
            lines: String::new(),
            assets: String::new(),
        }
    }

    #[must_use]
    pub fn named(mut self, alias: &str, chain_id: u64) -> Self {
        self.alias = alias.to_owned();
        self.chain_id = chain_id;
        self
    }

    /// A line more of the chain's table.
    #[must_use]
    pub fn with(mut self, line: &str) -> Self {
        self.lines += &format!("{line}\n");
        self
    }

    /// Watches the chain's coin, seen inside transactions by these lines.
    #[must_use]
    pub fn coin(mut self, inner: &str) -> Self {
        self.assets += &format!(
            "[evm.native]\nsymbol = \"ETH\"\ninner = {inner}\npolicy = [ {{ confirmations = 6 }} ]\n"
        );
        self
    }

    #[must_use]
    pub fn token(self, contract: &str, symbol: &str, decimals: u8) -> Self {
        self.token_with(contract, symbol, decimals, "")
    }

    #[must_use]
    pub fn token_with(mut self, contract: &str, symbol: &str, decimals: u8, line: &str) -> Self {
        self.assets += &format!(
            "[[evm.token]]\ncontract = \"{contract}\"\nsymbol = \"{symbol}\"\ndecimals = {decimals}\n{line}\n\
             policy = [ {{ confirmations = 6 }} ]\n"
        );
        self
    }

    /// The token `TUSD` of 6 decimals.
    #[must_use]
    pub fn tusd(self, token: &Token) -> Self {
        self.token(&token.address, "TUSD", 6)
    }

    pub fn toml(&self) -> String {
        let Self {
            alias,
            chain_id,
            endpoints,
            lines,
            assets,
        } = self;
        format!(
            "[[evm]]\nalias = \"{alias}\"\nchain_id = {chain_id}\ninstance = \"test\"\npoll_ms = 50\n\
             {lines}{endpoints}{assets}"
        )
    }

    pub fn setup(&self) -> Setup {
        Setup {
            ops_listen: "127.0.0.1:0".to_owned(),
            ..Setup::for_evm(self.toml())
        }
    }

    /// A daemon that watches E1 and E2 and has come to the node's tip.
    #[track_caller]
    pub fn follow(&self, node: &AnvilNode) -> Daemon {
        let mut daemon = Daemon::prepare(&self.setup());
        watch(&daemon, E1);
        watch(&daemon, E2);
        daemon.start_again();
        daemon.wait_height_of(&self.alias, node.height());
        daemon
    }
}

/// For the merchant `shop`, on the only chain.
#[track_caller]
pub fn watch(daemon: &Daemon, address: &str) {
    daemon.json(&["watch", "add", address, "--merchant", "shop"]);
}

/// A node with a token `TUSD`, of which each of its first accounts has plenty.
#[track_caller]
pub fn node_with_token() -> (AnvilNode, Token) {
    let node = AnvilNode::start(CHAIN_ID);
    let token = Token::deploy(&node, "TUSD", 6);
    (0..4).for_each(|payer| {
        token.mint(&node, &node.account(payer), 1_000_000_000_000);
    });
    node.mine(1);
    (node, token)
}

/// Lets a held deposit be credited.
#[track_caller]
pub fn release(daemon: &Daemon, id: &str) {
    let why = ["--reason", "asked another node", "--apply"];
    daemon.json(&[&["deposits", "release", id], why.as_slice()].concat());
}

/// Mines blocks, and waits until the daemon has them.
#[track_caller]
pub fn mine(node: &AnvilNode, daemon: &Daemon, count: u32) {
    node.mine(count);
    daemon.wait_height_of("dev", node.height());
}

/// Every deposit: where in its transaction, to whom, how much in base units, and its state. In order of text.
#[track_caller]
pub fn books(daemon: &Daemon) -> Vec<String> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let to = |row: &Value| match text(row, "address") {
        e1 if e1 == E1 => "E1".to_owned(),
        e2 if e2 == E2 => "E2".to_owned(),
        other => other,
    };
    let line = |row: &Value| {
        let (position, amount, state) = (
            text(row, "position"),
            text(row, "amount_base"),
            text(row, "state"),
        );
        let held = row["held"]
            .as_str()
            .map(|why| format!(" held {why}"))
            .unwrap_or_default();
        format!("{position}: {amount} to {} {state}{held}", to(row))
    };
    let answer = daemon.json(&["deposits", "list"]);
    let mut lines: Vec<String> = answer["deposits"].as_array().unwrap().iter().map(line).collect();
    lines.sort();
    lines
}

/// Waits until the books say this, and nothing else. What they said before is shown where it is in vain.
#[track_caller]
pub fn wait_books(daemon: &Daemon, expected: &[&str]) {
    let mut last = Vec::new();
    wait_until(&format!("the books say {expected:#?}"), PATIENCE, || {
        let now = books(daemon);
        if now != last {
            eprintln!("the books say {now:#?}");
        }
        last = now;
        (last == expected).then_some(())
    });
}

/// The live credits: what each nets to in base units, those that net to nothing left out, in order of text.
#[track_caller]
pub fn nets(daemon: &Daemon) -> Vec<String> {
    let credits = daemon.credits();
    let net = |credit: &Value| credit["net_base"].as_str().unwrap().to_owned();
    let mut nets: Vec<String> = credits.iter().map(net).filter(|net| net != "0").collect();
    nets.sort();
    nets
}

/// The entries of the books of one deposit, oldest first.
#[track_caller]
pub fn journal(daemon: &Daemon, txid: &str, vout: u64) -> Vec<String> {
    let deposit = daemon.deposit(txid, vout).unwrap();
    let entries = deposit["credit"]["journal"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let entry = |entry: &Value| entry["entry"].as_str().unwrap().to_owned();
    entries.iter().map(entry).collect()
}

/// A counter of the chain `dev`.
#[track_caller]
pub fn counter(daemon: &Daemon, name: &str) -> u64 {
    let page = Scrape::parse(&daemon.ops("/metrics").1);
    let value = page.value(name, &[("chain", "dev")]);
    format!("{value:.0}").parse().unwrap()
}

pub const LOG_MISMATCHES: &str = "creditd_log_mismatches_total";
pub const UNSUPPORTED: &str = "creditd_unsupported_transfers_total";

/// Waits until `dev` is in a state whose reason holds `words`; the status.
#[track_caller]
pub fn wait_state(daemon: &Daemon, state: &str, words: &str) -> Value {
    let mut last = Value::Null;
    wait_until(&format!("dev is {state}: {words}"), PATIENCE, || {
        let chain = daemon.chain("dev")?;
        let now = json!([chain["state"], chain["reason"]]);
        if now != last {
            eprintln!("dev is {now}");
        }
        last = now;
        let has_words = chain["reason"].as_str()?.contains(words);
        (chain["state"] == state && has_words).then_some(chain)
    })
}

/// A transaction that was signed and not sent; its bytes for a reorg, whose hash does not change.
#[track_caller]
pub fn signed(node: &AnvilNode, mut fields: Value) -> Value {
    fields["chainId"] = json!(hex(node.chain_id().into()));
    for name in ["maxFeePerGas", "maxPriorityFeePerGas"] {
        fields[name] = json!(hex(20_000_000_000));
    }
    node.call("eth_signTransaction", json!([fields]))
}
