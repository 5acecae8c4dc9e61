//! Catch-up through a real node: blocks per second of creditd, against the least that could read the same
//! blocks. `cargo bench --bench catch_up`; see docs/speed.md.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench stops at the first surprise"
)]
#![allow(clippy::float_arithmetic, reason = "a ratio is not money")]

#[path = "../tests/common/mod.rs"]
mod common;
mod support;

use std::path::Path;
use std::time::Duration;

use bitcoincore_rpc::RpcApi as _;
use bitcoincore_rpc::bitcoin::Block;
use bitcoincore_rpc::bitcoin::consensus::encode::deserialize;
use common::node::RegtestNode;
use creditd::address::Network;
use creditd::chain::bitcoin::{BitcoinConfig, BitcoinSource};
use creditd::chain::rpc::Auth;
use creditd::clock::Clock;
use creditd::egress::HttpDial;
use creditd::follow::{Follower, Settings, Start};
use creditd::index::{self, Index};
use creditd::rules::ListVersion;
use creditd::rules::policy::{Policy, Requirement, Tier};
use creditd::store::{Database, OpenMode, Store, Terms};
use support::addresses::{self, INSTANCE};
use support::chain::{self, Plan};
use support::table::{Table, Target, best, per_second, quotient};
use support::timed;
use support::wire::Wire;

const PLAN: Plan = Plan {
    blocks: 200,
    txs: 6_000,
    paid: 20,
    watched: 1_000_000,
};

/// Each way is run so often, in turns.
const ROUNDS: usize = 3;

const CONFIRMATIONS: u32 = 6;

const TARGET: Target = Target::AtLeast(0.8);

fn main() {
    let node = chain::node(&PLAN, &[]);
    let folder = tempfile::tempdir().unwrap();
    let [template, unpaid] = ["template.db", "unpaid.db"].map(|name| folder.path().join(name));
    addresses::seed(&template, 0..PLAN.watched);
    // As many addresses that no block pays.
    addresses::seed(&unpaid, PLAN.watched..2 * PLAN.watched);
    let index = index();
    let hashes: Vec<String> = (PLAN.first_height()..=PLAN.tip_height())
        .map(|height| node.block_hash(height))
        .collect();
    let mut rest = Compared::default();
    let mut rpc = Compared::default();
    let mut stock = Vec::new();
    for _ in 0..ROUNDS {
        rest.bare.push(timed(|| read_rest(&node, &hashes, &index)).0);
        rest.unpaid.push(follow(&node, &unpaid, true, 0));
        rest.paid.push(follow(&node, &template, true, PLAN.paid));
        rpc.bare.push(timed(|| read_hex(&node, &hashes)).0);
        stock.push(timed(|| read_hex_by_library(&node, &hashes)).0);
        rpc.unpaid.push(follow(&node, &unpaid, false, 0));
        rpc.paid.push(follow(&node, &template, false, PLAN.paid));
    }
    let mut table = Table::new("blocks/s");
    let bare = "REST, a bare socket: fetch, decode, match";
    rest.add_to(&mut table, bare, "REST", TARGET);
    // What throws the blocks away does no part of what a payment costs: writing it down for good.
    let bare = "RPC, a bare socket: fetch hex, throw away";
    rpc.add_to(&mut table, bare, "RPC", Target::None);
    rpc.bare = stock;
    let library = "RPC, bitcoincore-rpc: fetch hex, throw away";
    rpc.add_to(&mut table, library, "RPC", TARGET);
    table.print(&format!(
        "catch-up: {} blocks of {} transactions, {} watched addresses, best of {ROUNDS}",
        PLAN.blocks, PLAN.txs, PLAN.watched
    ));
}

/// Times of one way to read.
#[derive(Default)]
struct Compared {
    bare: Vec<Duration>,
    /// Of creditd, where it finds nothing.
    unpaid: Vec<Duration>,
    /// Of creditd, where it finds and credits payments.
    paid: Vec<Duration>,
}

impl Compared {
    /// `paid` is the target where it credits payments.
    fn add_to(&self, table: &mut Table, least: &str, way: &str, paid: Target) {
        let figure = |span| format!("{:.1}", per_second(PLAN.blocks, span));
        let bare = best(&self.bare);
        table.figure(least, figure(bare));
        let mut compare = |what: &str, spans: &[Duration], target| {
            let ours = best(spans);
            let what = format!("{way}, creditd, {what}");
            table.ratio(&what, figure(ours), quotient(bare, ours), target);
        };
        compare("none of them paid", &self.unpaid, TARGET);
        compare(
            &format!("{} payments a block credited", PLAN.paid),
            &self.paid,
            paid,
        );
    }
}

/// The same short hashes as the daemon's.
fn index() -> Index {
    let mut index = Index::default();
    index.reserve_scripts(PLAN.watched as usize);
    let shorts = (0..PLAN.watched).map(|n| index::short(&addresses::watched(n).0));
    index.add_scripts(shorts, ListVersion(1));
    index
}

fn read_rest(node: &RegtestNode, hashes: &[String], index: &Index) {
    let mut wire = Wire::connect(node);
    let mut hits = 0;
    for hash in hashes {
        let block: Block = deserialize(wire.get(&format!("/rest/block/{hash}.bin"))).unwrap();
        let outputs = block.txdata.iter().flat_map(|tx| &tx.output);
        hits += outputs
            .filter(|output| index.may_hold_script(index::short(output.script_pubkey.as_bytes())))
            .count();
    }
    assert_eq!(hits, (PLAN.blocks * PLAN.paid) as usize);
}

fn read_hex(node: &RegtestNode, hashes: &[String]) {
    let mut wire = Wire::connect(node);
    let mut bytes = 0;
    for hash in hashes {
        let question = format!(r#"{{"id":1,"method":"getblock","params":["{hash}",0]}}"#);
        let answer: Answer = serde_json::from_slice(wire.post(&question)).unwrap();
        bytes += answer.result.len();
    }
    assert!(bytes > hashes.len() * PLAN.txs as usize * 200);
}

/// The same with the library that everybody uses.
fn read_hex_by_library(node: &RegtestNode, hashes: &[String]) {
    let client = node.rpc();
    let mut bytes = 0;
    for hash in hashes {
        bytes += client.get_block_hex(&hash.parse().unwrap()).unwrap().len();
    }
    assert!(bytes > hashes.len() * PLAN.txs as usize * 200);
}

#[derive(serde::Deserialize)]
struct Answer {
    result: String,
}

/// The daemon's own loop on a fresh copy of the database, from its first block to the tip.
fn follow(node: &RegtestNode, template: &Path, may_use_rest: bool, paid: u32) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let path = addresses::copy(template, folder.path(), "ledger.db");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let auth = Auth::Cookie(node.cookie_file());
    let mut config = BitcoinConfig::new(node.url(), auth, Network::Regtest);
    config.instance = Some(INSTANCE.to_owned());
    config.may_use_rest = may_use_rest;
    let clock = Clock::real();
    let took = runtime.block_on(runtime.spawn(async move {
        let source = BitcoinSource::new(config, HttpDial::new(), clock);
        let database = Database::open(&path, OpenMode::Daemon).unwrap();
        let store = Store::threaded(database, clock).unwrap();
        let opening = Follower::open(source, store.clone(), clock, settings()).await;
        let mut follower = opening.unwrap();
        // The first round asks who the node is and sets the cursor.
        follower.step().await.unwrap();
        let began = clock.instant();
        while height(&store).await < PLAN.tip_height() {
            follower.step().await.unwrap();
        }
        let took = began.elapsed();
        store.close().await.unwrap();
        took
    }));
    let conn = rusqlite::Connection::open(folder.path().join("ledger.db")).unwrap();
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM deposits"), PLAN.blocks * paid);
    let due = (PLAN.blocks + 1 - CONFIRMATIONS) * paid;
    assert_eq!(count("SELECT count(*) FROM credits"), due);
    took.unwrap()
}

async fn height(store: &Store) -> u64 {
    let chains = store.read(|tx| tx.chains()).await.unwrap();
    chains[0].cursor.map_or(0, |cursor| cursor.height)
}

fn settings() -> Settings {
    let tier = Tier {
        below: None,
        needs: Requirement::Confirmations(CONFIRMATIONS),
    };
    Settings {
        chain: addresses::new_chain(),
        start: Start::Height(PLAN.first_height()),
        terms: Terms {
            policies: Terms::native(Policy::new(&[tier]).unwrap()),
            reorg_window: 144,
            evict_after_ms: 600_000,
        },
        // The step that reaches the tip ends with a look's wait, which is no part of catching up.
        poll: Duration::from_millis(1),
        mempool: Duration::from_secs(2),
        tip_age_max: None,
        fork_patience: None,
    }
}
