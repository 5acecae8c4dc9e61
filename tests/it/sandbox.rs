//! The whole of creditd on the simulated node: the real binary, its real client and database, and a chain
//! that the test moves.

use creditd::clock::Clock;
use creditd::rules::Txid;
use creditd::sandbox::{Sandbox, SandboxError};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::daemon::{Daemon, Setup};

struct Shop {
    sandbox: Sandbox,
    daemon: Daemon,
    address: String,
    _folder: TempDir,
}

impl Shop {
    /// A followed chain of 120 blocks, credits at depth 3, and one watched address.
    fn open(chain_lines: &str) -> Shop {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::start(folder.path(), Clock::real()).unwrap();
        let setup = Setup {
            chain_lines: chain_lines.to_owned(),
            ..Setup::new(sandbox.url().to_owned(), sandbox.cookie_file().to_owned())
        };
        let shop = Shop {
            daemon: Daemon::start(&setup),
            address: Sandbox::address("order 1"),
            sandbox,
            _folder: folder,
        };
        shop.follows();
        shop.daemon
            .json(&["watch", "add", &shop.address, "--merchant", "shop"]);
        shop
    }

    fn follows(&self) {
        let height = self.sandbox.height();
        self.daemon
            .wait_for("creditd is at the tip", &["chain", "status"], |answer| {
                (answer["chains"][0]["height"] == height && answer["chains"][0]["state"] == "following")
                    .then_some(())
            });
    }

    fn deposit(&self, txid: Txid) -> Value {
        self.wait("is known", txid, |_| true)
    }

    fn wait(&self, what: &str, txid: Txid, is_so: impl Fn(&Value) -> bool) -> Value {
        let txid = txid.to_string();
        self.daemon
            .wait_for(&format!("{txid} {what}"), &["tx", &txid], |answer| {
                let outputs = answer["transactions"][0]["outputs"].as_array()?;
                let deposit = &outputs.iter().find(|output| !output["deposit"].is_null())?["deposit"];
                is_so(deposit).then(|| deposit.clone())
            })
    }

    fn wait_state(&self, txid: Txid, state: &str) -> Value {
        self.wait(state, txid, |deposit| deposit["state"] == state)
    }

    fn credited(&self) -> String {
        let balances = self.daemon.json(&["balances"]);
        match &balances["balances"][0]["credited_base"] {
            Value::String(sat) => sat.clone(),
            _ => "0".to_owned(),
        }
    }
}

fn entries(deposit: &Value) -> Vec<&str> {
    let journal = deposit["credit"]["journal"].as_array().unwrap();
    journal
        .iter()
        .map(|entry| entry["entry"].as_str().unwrap())
        .collect()
}

#[test]
fn replaced_payment_counts_once() {
    let shop = Shop::open("");
    let first = shop.sandbox.pay(&shop.address, 29_000_000).unwrap();
    shop.wait_state(first, "seen");
    let second = shop.sandbox.replace(first, &shop.address, 28_000_000).unwrap();
    let replaced = shop.wait_state(first, "replaced");
    assert_eq!(replaced["replaced_by"], second.to_string());
    shop.sandbox.mine(1).unwrap();
    shop.wait_state(second, "confirming");
    shop.sandbox.mine(2).unwrap();
    assert_eq!(entries(&shop.wait_state(second, "credited")), ["credit"]);
    assert_eq!(shop.deposit(first)["state"], "replaced");
    assert_eq!(shop.credited(), "28000000");
}

#[test]
fn credit_follows_the_chain_away_and_back_across_restarts() {
    let mut shop = Shop::open("");
    let txid = shop.sandbox.pay(&shop.address, 29_000_000).unwrap();
    shop.sandbox.mine(3).unwrap();
    let credit = shop.wait_state(txid, "credited")["credit"]["id"].clone();
    let old = shop.sandbox.tip();
    // A-B-C with the payment in A against A'-B'-C'-D' without it.
    shop.sandbox.reorg(3, &[]).unwrap();
    let back = shop.wait("reversed and listed", txid, |deposit| deposit["state"] == "seen");
    assert_eq!(entries(&back), ["credit", "reversal"]);
    assert_eq!(shop.credited(), "0");
    shop.daemon.kill9();
    shop.sandbox.mine_on(old, 2).unwrap();
    shop.daemon.start_again();
    let again = shop.wait_state(txid, "credited");
    assert_eq!(entries(&again), ["credit", "reversal", "reinstatement"]);
    assert_eq!(
        (&again["credit"]["id"], shop.credited().as_str()),
        (&credit, "29000000")
    );
    shop.daemon.stop();
    shop.daemon.start_again();
    shop.sandbox.mine(1).unwrap();
    shop.follows();
    assert_eq!(
        shop.deposit(txid)["credit"],
        again["credit"],
        "a restart changes nothing"
    );
}

#[test]
fn double_spend_in_a_longer_branch_takes_the_credit_for_good() {
    let shop = Shop::open("");
    let txid = shop.sandbox.pay(&shop.address, 29_000_000).unwrap();
    shop.sandbox.mine(3).unwrap();
    shop.wait_state(txid, "credited");
    let double = shop
        .sandbox
        .conflict(txid, &Sandbox::address("payer"), 29_000_000)
        .unwrap();
    shop.sandbox.reorg(3, &[double]).unwrap();
    let replaced = shop.wait_state(txid, "replaced");
    assert_eq!(
        (entries(&replaced), &replaced["replaced_by"]),
        (vec!["credit", "reversal"], &json!(double.to_string()))
    );
    assert!(matches!(shop.sandbox.resend(txid), Err(SandboxError::Refused(_))));
}

#[test]
fn evicted_payment_is_seen_again_when_it_is_sent_again() {
    let shop = Shop::open("evict_after_secs = 1\n");
    let txid = shop.sandbox.pay(&shop.address, 29_000_000).unwrap();
    shop.wait_state(txid, "seen");
    assert!(shop.sandbox.evict(txid) && !shop.sandbox.evict(txid));
    shop.wait_state(txid, "evicted");
    shop.sandbox.resend(txid).unwrap();
    shop.wait_state(txid, "seen");
}

#[test]
fn node_that_lags_holds_the_chain_and_reverses_nothing() {
    let shop = Shop::open("");
    let txid = shop.sandbox.pay(&shop.address, 29_000_000).unwrap();
    shop.sandbox.mine(3).unwrap();
    shop.wait_state(txid, "credited");
    let height = shop.sandbox.height();
    shop.sandbox.lag(3);
    assert_eq!(shop.sandbox.height(), height - 3);
    shop.daemon
        .wait_for("the chain is behind", &["chain", "status"], |answer| {
            (answer["chains"][0]["state"] == "behind").then_some(())
        });
    assert_eq!(entries(&shop.deposit(txid)), ["credit"]);
    shop.sandbox.catch_up();
    shop.follows();
    assert_eq!(entries(&shop.deposit(txid)), ["credit"]);
}
