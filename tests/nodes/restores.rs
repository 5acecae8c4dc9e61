//! A database restored from a backup beside real nodes, from the merchant's and the receiver's side.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::common::anvil::AnvilNode;
use crate::common::api::Client;
use crate::common::daemon::{Daemon, Setup};
use crate::common::metrics::Scrape;
use crate::common::node::RegtestNode;
use crate::common::receiver::{Receiver, answer};
use crate::common::wait::{PATIENCE, wait_until};
use crate::pools::{EVM_ACCOUNT, descriptor};

/// A merchant with a chain of each kind, and a receiver of callbacks.
pub struct Market {
    pub bitcoin: RegtestNode,
    pub anvil: AnvilNode,
    pub receiver: Receiver,
    pub daemon: Daemon,
    client: Client,
    folder: tempfile::TempDir,
    addresses: BTreeSet<String>,
}

impl Market {
    pub fn open(chain_id: u64) -> Market {
        let (bitcoin, anvil) = (RegtestNode::start(), AnvilNode::start(chain_id));
        bitcoin.fund();
        let receiver = Receiver::http(Ipv4Addr::LOCALHOST, |_, to| answer(to, 204, b""));
        let tables = format!(
            "[callbacks]\nallow_ranges = [\"127.0.0.0/8\"]\n\n[[evm]]\nalias = \"eth\"\n\
             chain_id = {chain_id}\ninstance = \"test\"\npoll_ms = 50\n\
             [[evm.endpoint]]\nname = \"own\"\nurl = \"{}\"\n[evm.native]\n\
             symbol = \"ETH\"\ninner = \"none\"\npolicy = [ {{ confirmations = 2 }} ]\n\n\
             [[addresses]]\nname = \"btc\"\nchain = \"btc\"\npool = 8\ndescriptor = {}\n\n\
             [[addresses]]\nname = \"evm\"\nchain = \"evm\"\npool = 8\nxpub = \"{EVM_ACCOUNT}\"\n",
            anvil.url(),
            json!(descriptor(&bitcoin)),
        );
        let daemon = Daemon::start(&Setup {
            api: "listen = \"127.0.0.1:0\"".to_owned(),
            ops_listen: "127.0.0.1:0".to_owned(),
            tables,
            ..Setup::for_node(&bitcoin)
        });
        let client = daemon.client("shop", "invoice:write,invoice:read");
        let url = format!("http://{}/hook", receiver.address);
        daemon.json(&["endpoint", "add", &url, "--merchant", "shop"]);
        let market = Market {
            bitcoin,
            anvil,
            receiver,
            daemon,
            client,
            folder: tempfile::tempdir().unwrap(),
            addresses: BTreeSet::new(),
        };
        for alias in ["btc", "eth"] {
            market
                .daemon
                .wait_for("it is followed", &["chain", "status"], |status| {
                    let mut chains = status["chains"].as_array()?.iter();
                    chains
                        .any(|chain| chain["chain"] == alias && chain["state"] == "following")
                        .then_some(())
                });
        }
        market
    }

    /// An invoice, on an address that nobody ever had.
    #[track_caller]
    pub fn invoice(&mut self, key: &str, asset: &str, amount: &str) -> Value {
        let body = json!({"asset": asset, "amount": amount, "expires_in": 86400}).to_string();
        let made = wait_until("an address is handed out", PATIENCE, || {
            let reply = self.client.post("/v1/invoices", key, &body);
            assert!([201, 503].contains(&reply.status), "{reply:?}");
            (reply.status == 201).then(|| reply.json())
        });
        assert!(self.addresses.insert(text(&made["address"])), "{made}: again");
        made
    }

    /// Pays on Bitcoin; in the pool of the node alone.
    pub fn pay(&self, address: &Value, sat: u64) -> String {
        let (coin, change) = (self.bitcoin.coin(), self.bitcoin.new_address());
        let rest = coin.sat - sat - 1_000;
        let paid = self
            .bitcoin
            .spend(&[&coin], &[(address.as_str().unwrap(), sat), (&change, rest)]);
        paid.hex
    }

    pub fn back_up(&self, name: &str) -> PathBuf {
        let copy = self.folder.path().join(name);
        self.daemon.json(&["backup", copy.to_str().unwrap()]);
        copy
    }

    /// The daemon is killed, and a backup takes the place of its database.
    pub fn put_in_place(&mut self, copy: &Path) {
        self.daemon.kill9();
        let database = self.daemon.database();
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", database.display()));
        }
        std::fs::copy(copy, database).unwrap();
    }

    pub fn start(&mut self) {
        self.daemon.start_again();
        self.client.port = self.daemon.api_port();
    }

    #[track_caller]
    pub fn wait_restored(&self) {
        wait_until("the restore is over", PATIENCE, || {
            let open = "SELECT count(*) FROM restored_chains WHERE state IN ('catching_up', 'stating')";
            (self.daemon.count(open) == 0).then_some(())
        });
    }

    fn credit_ids(&self) -> BTreeSet<String> {
        let ids = self.daemon.credits().into_iter();
        ids.map(|credit| text(&credit["id"])).collect()
    }

    /// Every callback so far: its id and its body.
    fn heard(&self) -> Vec<(String, Value)> {
        let heard = self.receiver.heard().into_iter();
        heard
            .map(|heard| {
                let id = heard.header("webhook-id").unwrap().to_owned();
                (id, serde_json::from_slice(&heard.body).unwrap())
            })
            .collect()
    }

    #[track_caller]
    pub fn wait_delivered(&self) {
        wait_until("all is delivered", PATIENCE, || {
            let waiting = "SELECT count(*) FROM deliveries WHERE state <> 'delivered'";
            (self.daemon.count(waiting) == 0).then_some(())
        });
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The ids of one kind of callback.
fn ids(heard: &[(String, Value)], kind: &str) -> BTreeSet<String> {
    let of = |(_, body): &&(String, Value)| body["type"] == kind;
    heard.iter().filter(of).map(|(id, _)| id.clone()).collect()
}

/// What a receiver has credited that acts once per id, adds and subtracts.
fn by_difference(heard: &[(String, Value)]) -> BTreeMap<String, i64> {
    let (mut known, mut credited) = (BTreeSet::new(), BTreeMap::new());
    for (id, body) in heard {
        let sign = match body["type"].as_str().unwrap() {
            "credit.created" | "credit.reinstated" => 1,
            "credit.reversed" => -1,
            _ => continue,
        };
        if known.insert(id) {
            *credited.entry(text(&body["data"]["credit"])).or_default() += sign;
        }
    }
    credited
}

/// What a receiver holds that keeps the highest version of each credit.
fn by_version(heard: &[(String, Value)]) -> BTreeMap<String, String> {
    let mut held: BTreeMap<String, (i64, String)> = BTreeMap::new();
    for (_, body) in heard
        .iter()
        .filter(|(_, body)| body["data"]["credit"].is_string())
    {
        let data = &body["data"];
        let known = held.entry(text(&data["credit"])).or_default();
        let version = data["version"].as_i64().unwrap();
        if version > known.0 {
            *known = (version, text(&data["net_base"]));
        }
    }
    held.into_iter().map(|(credit, (_, net))| (credit, net)).collect()
}

fn books(daemon: &Daemon) -> BTreeMap<String, String> {
    let credits = daemon.credits().into_iter();
    credits
        .map(|credit| (text(&credit["id"]), text(&credit["net_base"])))
        .collect()
}

/// How far a repair is; the daemon is killed at each.
const MOMENTS: [(&str, &str); 5] = [
    (
        "it is written down",
        "SELECT count(*) FROM restores WHERE at IS NOT NULL",
    ),
    (
        "addresses are watched",
        "SELECT count(*) FROM restored_ranges WHERE state = 'done'",
    ),
    (
        "a payment is found again",
        "SELECT max(0, count(*) - 1) FROM credits",
    ),
    (
        "one is told anew",
        "SELECT count(*) FROM restated WHERE event IS NOT NULL",
    ),
    (
        "a chain is done",
        "SELECT count(*) FROM restored_chains WHERE state = 'done'",
    ),
];

/// By the second restore: each credit once, and the invoices that the backup knew.
#[track_caller]
fn assert_told_once(daemon: &Daemon) {
    let told = |kind: &str| {
        let count = format!(
            "SELECT count(*) FROM events e JOIN restated r ON r.event = e.id \
             WHERE e.type = '{kind}' AND r.generation = 2"
        );
        daemon.count(&count)
    };
    assert_eq!((told("credit.state"), told("invoice.state")), (4, 2));
    let generation = "SELECT generation FROM meta";
    assert_eq!(daemon.count(generation), 2, "the kills began none");
    let all = "SELECT count(*) FROM events WHERE type = 'credit.state'";
    assert_eq!(daemon.count(all), 4);
}

#[test]
fn c53_a_restored_backup_ends_at_the_same_books_for_every_receiver() {
    let mut market = Market::open(31_911);
    let first = market.invoice("first", "BTC", "0.01");
    let old = market.invoice("old", "BTC", "0.5");
    let old = market.pay(&old["address"], 50_000_000);
    market.bitcoin.generateblock(&[&old]);
    market.bitcoin.mine(2);
    market.daemon.wait_for("it is credited", &["credits"], |listed| {
        (listed["credits"].as_array()?.len() == 1).then_some(())
    });
    let copy = market.back_up("early.db");
    market.bitcoin.mine(3);
    // Since then: two invoices made and paid, one of before paid.
    let second = market.invoice("second", "BTC", "0.02");
    let third = market.invoice("third", "ETH", "0.5");
    let later = market.back_up("later.db");
    let paid = [
        market.pay(&first["address"], 1_000_000),
        market.pay(&second["address"], 2_000_000),
    ];
    market.bitcoin.generateblock(&[&paid[0], &paid[1]]);
    market.bitcoin.mine(2);
    let transfer = json!([{"from": market.anvil.account(0), "to": third["address"],
                           "value": "0x6f05b59d3b20000"}]);
    market.anvil.call("eth_sendTransaction", transfer);
    market.anvil.mine(3);
    for invoice in [&first, &second, &third] {
        market
            .daemon
            .wait_invoice(&text(&invoice["id"]), "settled", "paid");
    }
    market.wait_delivered();
    let (before, credits) = (market.heard(), market.credit_ids());
    assert_eq!(credits.len(), 4);

    // Two backups of different age, one on top of the other.
    market.put_in_place(&later);
    market.start();
    market.wait_restored();
    assert_eq!(market.credit_ids(), credits);
    market.put_in_place(&copy);
    for (what, sql) in MOMENTS {
        market.daemon.start_again();
        wait_until(what, PATIENCE, || (market.daemon.count(sql) > 0).then_some(()));
        market.daemon.kill9();
    }
    market.start();
    market.wait_restored();
    market.wait_delivered();
    assert_eq!(market.credit_ids(), credits, "the same credits");
    let now = market.heard();
    assert_eq!(ids(&now, "credit.created"), ids(&before, "credit.created"));
    assert_eq!(ids(&now, "invoice.paid"), ids(&before, "invoice.paid"));
    assert!(by_difference(&now).values().all(|count| *count == 1), "{now:?}");
    assert_eq!(by_difference(&now).len(), 4);
    assert_eq!(by_version(&now), books(&market.daemon));
    assert_told_once(&market.daemon);
    // None is handed out twice.
    market.invoice("after", "BTC", "0.01");
    market.invoice("after-evm", "ETH", "0.01");
    let report = market.daemon.json(&["restored"]);
    assert_eq!(report["restores"][0]["is_done"], true, "{report}");
    assert!(report["lost"].as_array().unwrap().len() > 5);
    market.daemon.assert_sound();
}

#[test]
fn c35_no_address_is_handed_out_before_the_tip_of_its_chain_is_reached() {
    let mut market = Market::open(31_912);
    market.invoice("before", "BTC", "0.01");
    market.invoice("before-evm", "ETH", "0.01");
    let copy = market.back_up("early.db");
    for key in ["one", "two", "three"] {
        market.invoice(key, "BTC", "0.01");
        market.invoice(&format!("{key}-evm"), "ETH", "0.01");
    }
    market.bitcoin.mine(4);
    market.anvil.mine(4);
    market.daemon.wait_height(market.bitcoin.height());
    market.put_in_place(&copy);
    market.bitcoin.stop();
    market.start();
    let asked = json!({"asset": "BTC", "amount": "0.01"}).to_string();
    for _ in 0..2 {
        for (path, body) in [
            ("/v1/invoices", asked.clone()),
            ("/v1/addresses", json!({"chain": "btc"}).to_string()),
        ] {
            let reply = market.client.post(path, "asked", &body);
            assert_eq!(reply.problem(503).0, "restoring", "{reply:?}");
            assert_eq!(reply.header("retry-after"), Some("30"));
        }
    }
    // The other chain is not held up by it, nor by what it has to do itself.
    market.invoice("free", "ETH", "0.01");
    let status = market.daemon.json(&["chain", "status"]);
    assert_eq!(status["chains"][0]["restoring"], "catching_up", "{status}");
    let report = market.daemon.cli(&["restored"]);
    assert_eq!(report.status.code(), Some(1), "{report:?}");
    let shown = String::from_utf8(report.stdout).unwrap();
    assert!(
        shown.contains("cannot be rebuilt") && shown.contains("lost with heights"),
        "{shown}"
    );
    let restoring = |chain| {
        let page = market.daemon.ops("/metrics").1;
        Scrape::parse(&page).value("creditd_restoring", &[("chain", chain)])
    };
    assert_eq!((restoring("btc"), restoring("eth")), (1.0, 0.0));
    assert!(
        market
            .daemon
            .ops("/readyz")
            .1
            .contains("\"restoring\": \"catching_up\"")
    );
    market.bitcoin.start_again();
    let made = wait_until("it opens by itself", PATIENCE, || {
        let reply = market.client.post("/v1/invoices", "asked", &asked);
        (reply.status == 201).then(|| reply.json())
    });
    assert!(market.addresses.insert(text(&made["address"])), "{made}");
    market.daemon.stop();
    market.start();
    market.invoice("later", "BTC", "0.01");
    market.daemon.assert_sound();
}

/// Credited before the backup, and gone since: the restored books follow the chain, and say so in absolutes.
#[test]
fn c53_a_reorg_between_backup_and_restore_ends_at_the_same_books() {
    let mut market = Market::open(31_913);
    let first = market.invoice("first", "BTC", "0.01");
    let paid = market.pay(&first["address"], 1_000_000);
    let root = market.bitcoin.height();
    market.bitcoin.generateblock(&[&paid]);
    market.bitcoin.mine(2);
    market.daemon.wait_invoice(&text(&first["id"]), "settled", "paid");
    let copy = market.back_up("early.db");
    let fork = market.bitcoin.block_hash(root + 1);
    market.bitcoin.invalidate(&fork);
    for _ in 0..6 {
        market.bitcoin.generateblock(&[]);
    }
    market.daemon.wait_height(root + 6);
    market.daemon.wait_for("it is reversed", &["credits"], |listed| {
        (listed["credits"][0]["net_base"] == "0").then_some(())
    });
    market.wait_delivered();
    market.put_in_place(&copy);
    market.start();
    market.wait_restored();
    market.wait_delivered();
    assert_eq!(by_version(&market.heard()), books(&market.daemon));
    let heard = market.heard();
    let states = ids(&heard, "credit.state");
    assert_eq!(states.len(), 1);
    assert_eq!(ids(&heard, "credit.reversed").len(), 2, "of another number");
    let state = heard.iter().find(|(id, _)| states.contains(id)).unwrap();
    assert_eq!(state.1["data"]["net_base"], "0");
    assert_eq!(state.1["data"]["version"].as_i64().unwrap() >> 32, 1);
    market.daemon.assert_sound();
}
