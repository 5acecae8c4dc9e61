//! Coin that a contract sends to a watched address, on a real node that nobody asks for traces.

use creditd::chain::evm::{EvmSource, Inner};
use creditd::clock::Clock;
use creditd::egress::HttpDial;
use creditd::follow::{Follower, Settings, Start};
use creditd::rules::policy::{Policy, Requirement, Tier};
use creditd::rules::{Asset, ChainId, Script};
use creditd::store::report::{Filter, Page};
use creditd::store::{
    AddressKind, Database, NewAddress, NewAsset, NewChain, OpenMode, Store, Terms, UnattributedRow,
};
use rusqlite::OpenFlags;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::anvil::AnvilNode;
use crate::common::daemon::{Daemon, Setup};
use crate::common::evm::Splitter;
use crate::common::metrics::Scrape;
use crate::common::wait::{PATIENCE, wait_until};
use crate::evm_source::{CHAIN_ID, bytes, source};

const D1: &str = "0xd1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1";
const D3: &str = "0xd3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3";

/// A round waits for ten milliseconds at its end.
const ROUNDS_MAX: usize = 3_000;

struct Till {
    node: AnvilNode,
    running: Option<(Store, Follower<EvmSource<HttpDial>>)>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Till {
    async fn new() -> Till {
        let folder = tempfile::tempdir().unwrap();
        let mut till = Till {
            node: AnvilNode::start(CHAIN_ID),
            running: None,
            path: folder.path().join("ledger.db"),
            _folder: folder,
        };
        till.start().await;
        till
    }

    async fn start(&mut self) {
        self.running = None;
        let clock = Clock::real();
        let id = ChainId::evm(CHAIN_ID, Some("test"));
        let settings = Settings {
            chain: NewChain {
                assets: vec![NewAsset {
                    asset: Asset::Native,
                    caip: id.evm_coin(60),
                    symbol: "ETH".to_owned(),
                    decimals: 18,
                    from: None,
                }],
                id,
                genesis: None,
                alias: "anvil".to_owned(),
            },
            start: Start::Height(1),
            terms: Terms {
                policies: Terms::native(
                    Policy::new(&[Tier {
                        below: None,
                        needs: Requirement::Confirmations(1),
                    }])
                    .unwrap(),
                ),
                reorg_window: 128,
                evict_after_ms: 60_000,
            },
            poll: Duration::from_millis(10),
            mempool: Duration::from_secs(3_600),
            tip_age_max: None,
            fork_patience: None,
        };
        let database = Database::open(&self.path, OpenMode::Daemon).unwrap();
        let store = Store::inline(database, clock);
        let source = source(&self.node.url(), &[], Some(Inner::Unseen));
        let follower = Follower::open(source, store.clone(), clock, settings)
            .await
            .unwrap();
        let follower = follower.with_sweep(Some(Duration::from_millis(100)));
        self.running = Some((store, follower));
    }

    async fn watch(&self, addresses: &[&str]) {
        let scripts: Vec<Script> = addresses.iter().map(|text| Script(bytes(text).into())).collect();
        let (store, _) = self.running.as_ref().unwrap();
        let adding = store.write(move |tx| {
            let key = tx.chain(&ChainId::evm(CHAIN_ID, Some("test")))?.unwrap().key;
            let rule = |script: &Script| NewAddress {
                script: script.clone(),
                kind: AddressKind::Watch,
                merchant: "shop",
                internal: "ignore",
                reference: "",
            };
            let rules: Vec<NewAddress<'_>> = scripts.iter().map(rule).collect();
            tx.add_addresses(key, &rules)
        });
        adding.await.unwrap();
    }

    fn count(&self, sql: &str) -> i64 {
        let conn = rusqlite::Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY);
        conn.unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Follows the chain until a query gives a number.
    async fn until(&mut self, sql: &str, expected: i64) {
        for _ in 0..ROUNDS_MAX {
            if self.count(sql) == expected {
                return;
            }
            self.running.as_mut().unwrap().1.step().await.unwrap();
        }
        panic!("{sql} gives {}, not {expected}", self.count(sql));
    }

    /// Follows it until every balance is explained up to a block that is not mined yet.
    async fn sweep(&mut self) {
        let sql = format!(
            "SELECT count(*) FROM balance_marks WHERE height IS NULL OR height <= {}",
            self.node.height()
        );
        for round in 0..ROUNDS_MAX {
            if self.count(&sql) == 0 {
                return;
            }
            if round % 100 == 0 {
                // What was the tip is final then.
                self.node.mine(70);
            }
            self.running.as_mut().unwrap().1.step().await.unwrap();
        }
        panic!("no end of the sweep");
    }

    fn found(&self) -> Vec<UnattributedRow> {
        let database = Database::open(&self.path, OpenMode::ReadOnly).unwrap();
        let page = Page {
            after: None,
            limit: 10,
        };
        let rows = database.read(|tx| {
            assert_eq!(tx.violations(128)?, []);
            tx.list_unattributed(&Filter::default(), false, page)
        });
        rows.unwrap().into_iter().map(|listed| listed.row).collect()
    }
}

#[tokio::test]
async fn a_contracts_payment_is_found_by_the_balance_and_credits_nobody() {
    let mut till = Till::new().await;
    let (a, b) = (till.node.account(0), till.node.account(1));
    let splitter = Splitter::deploy(&till.node);
    till.watch(&[D1, &b]).await;
    till.until("SELECT count(*) FROM balance_marks WHERE height IS NOT NULL", 2)
        .await;

    // In one interval: a payment that is seen, one that is not, and coin that an owner sends.
    till.node.pay(&a, D1, 7);
    splitter.split(&till.node, &a, &[(D1, 10), (&b, 3)], 13);
    till.node.pay(&b, D3, 5);
    till.node.mine(1);
    till.sweep().await;
    let found = till.found();
    let amounts: Vec<String> = found.iter().map(|row| row.amount.to_string()).collect();
    assert_eq!(amounts, ["10"]);
    assert_eq!(found[0].script, Script(bytes(D1).into()));
    let credits = "SELECT count(*) FROM credits WHERE amount = '7'";
    let all_credits = "SELECT count(*) FROM credits";
    let events = "SELECT count(*) FROM events WHERE type = 'chain.unattributed'";
    assert_eq!(
        [credits, all_credits, events].map(|sql| till.count(sql)),
        [1, 1, 1]
    );

    till.start().await;
    till.node.pay(&a, D1, 1);
    till.sweep().await;
    till.start().await;
    till.sweep().await;
    assert_eq!(till.found().len(), 1);
    assert_eq!([all_credits, events].map(|sql| till.count(sql)), [2, 1]);
}

/// A chain whose inner coin is not seen, swept all the time.
fn setup(node: &AnvilNode) -> Setup {
    let mut setup = Setup::for_evm(format!(
        "[[evm]]\nalias = \"dev\"\nchain_id = {CHAIN_ID}\ninstance = \"test\"\npoll_ms = 20\n\
         [[evm.endpoint]]\nname = \"own\"\nurl = \"{}\"\n[evm.native]\nsymbol = \"ETH\"\n\
         inner = \"none\"\nsweep_ms = 100\npolicy = [ {{ confirmations = 1 }} ]\n",
        node.url()
    ));
    setup.ops_listen = "127.0.0.1:0".to_owned();
    setup
}

/// The same by the daemon, which is killed at several moments on the way.
#[test]
fn a_killed_daemon_finds_and_tells_it_once() {
    let node = AnvilNode::start(CHAIN_ID);
    let splitter = Splitter::deploy(&node);
    let a = node.account(0);
    let mut daemon = Daemon::start(&setup(&node));
    daemon.wait_for("a database", &["watch", "add", D1, "--merchant", "shop"], |_| {
        Some(())
    });
    let ops = ["endpoint", "add", "https://ops.example/", "--ops"];
    daemon.json(&ops);
    let number = |daemon: &Daemon, sql: &str| -> i64 {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let conn = rusqlite::Connection::open_with_flags(daemon.database(), flags).unwrap();
        conn.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let opened = "SELECT count(*) FROM balance_marks WHERE height IS NOT NULL";
    wait_until("the interval is open", PATIENCE, || {
        (number(&daemon, opened) == 1).then_some(())
    });
    node.pay(&a, D1, 7);
    splitter.split(&node, &a, &[(D1, 10)], 10);
    node.mine(1);
    let list = ["unattributed", "list"];
    let rows = |daemon: &Daemon| daemon.json(&list)["unattributed"].as_array().unwrap().clone();
    for _ in 0..8 {
        daemon.kill9();
        node.mine(40);
        daemon.start_again();
        let height = node.height();
        daemon.wait_for("the tip", &["chain", "status"], |status| {
            (status["chains"][0]["height"] == json!(height)).then_some(())
        });
    }
    wait_until("the amount is found", PATIENCE, || {
        node.mine(10);
        (!rows(&daemon).is_empty()).then_some(())
    });
    let found = rows(&daemon);
    assert_eq!((found.len(), &found[0]["amount_base"]), (1, &json!("10")));
    assert_eq!(found[0]["is_explained"], json!(false));
    let queued = "SELECT count(*) FROM deliveries d JOIN events e ON e.seq = d.event \
         WHERE e.type = 'chain.unattributed'";
    let events = "SELECT count(*) FROM events WHERE type = 'chain.unattributed'";
    let credits = "SELECT count(*) FROM credits";
    assert_eq!(
        [events, queued, credits].map(|sql| number(&daemon, sql)),
        [1, 1, 1]
    );
    let credited = daemon.json(&["balances"]);
    assert_eq!(credited["balances"][0]["credited_base"], json!("7"));
    let gauge = || {
        let page = Scrape::parse(&daemon.ops("/metrics").1);
        page.value("creditd_unattributed_open", &[("chain", "dev")])
    };
    assert!((gauge() - 1.0).abs() < f64::EPSILON);
    let id = found[0]["id"].as_str().unwrap();
    let close = [
        "unattributed",
        "close",
        id,
        "--not-a-payment",
        "--reason",
        "a test",
        "--apply",
    ];
    assert_eq!(daemon.json(&close)["outcome"], json!("done"));
    assert!(gauge().abs() < f64::EPSILON);
    assert_eq!(number(&daemon, credits), 1);
}
