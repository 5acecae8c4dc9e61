//! Catch-up through a real EVM node: blocks per second of creditd, against the least that asks the same of
//! the same node. `cargo bench --bench catch_up_evm`; see docs/speed.md.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench stops at the first surprise"
)]
#![allow(clippy::float_arithmetic, reason = "a ratio is not money")]

#[path = "../tests/common/mod.rs"]
mod common;
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use common::anvil::AnvilNode;
use common::contracts::{Token, address, uint};
use creditd::chain::evm::endpoints::{Endpoints, EndpointsConfig, Node};
use creditd::chain::evm::fields::Account;
use creditd::chain::evm::{EvmRules, EvmSource, Inner, NativeRule, TokenRule, TraceCall};
use creditd::chain::rpc::{Auth, Place};
use creditd::clock::Clock;
use creditd::egress::HttpDial;
use creditd::follow::{Follower, Settings, Start};
use creditd::rules::policy::{Policy, Requirement, Tier};
use creditd::rules::{Asset, ChainId, Script};
use creditd::store::{Database, NewAsset, NewChain, OpenMode, Store, Terms};
use serde_json::{Value, json};
use support::addresses;
use support::table::{Table, Target, best, per_second, quotient};
use support::timed;
use support::wire::Wire;

const CHAIN_ID: u64 = 73_599;
const BLOCKS: u32 = 500;
const TRANSFERS: u32 = 100;
/// Of a block's transfers, so many are to watched addresses.
const PAID: u32 = 5;
const MANY: u32 = 1_000_000;
const FEW: u32 = 1_000;
const CONFIRMATIONS: u32 = 6;
/// The topic of a transfer.
const TRANSFER: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";

/// What is watched: tokens alone, or the coin too, with inner payments unseen or by traces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    Tokens,
    Coin,
    Traces,
}

impl Watched {
    const ALL: [Watched; 3] = [Watched::Tokens, Watched::Coin, Watched::Traces];

    fn words(self) -> &'static str {
        match self {
            Watched::Tokens => "tokens only",
            Watched::Coin => "tokens and coin",
            Watched::Traces => "tokens, coin and traces",
        }
    }

    /// Each way is run so often, in turns. Anvil recovers every signer of a whole block, which takes nearly
    /// all of the time there, and leaves little to differ.
    fn rounds(self) -> usize {
        match self {
            Watched::Tokens => 3,
            Watched::Coin | Watched::Traces => 1,
        }
    }
}

fn main() {
    let node = AnvilNode::start(CHAIN_ID);
    let token = Token::deploy(&node, "TUSD", 6);
    let first = mine(&node, &token);
    let folder = tempfile::tempdir().unwrap();
    let [many, few] = [("many.db", MANY), ("few.db", FEW)].map(|(name, count)| {
        let path = folder.path().join(name);
        addresses::seed_with(&path, &new_chain(&token), (0..count).map(watched));
        path
    });
    let blocks: Vec<Known> = (first..first + u64::from(BLOCKS))
        .map(|height| known(&node, height))
        .collect();
    let mut table = Table::new("blocks/s");
    for what in Watched::ALL {
        let (mut bare, mut ours, mut small) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..what.rounds() {
            bare.push(timed(|| read(&node, &token, &blocks, first, what)).0);
            ours.push(follow(&node, &token, &many, first, what));
            small.push(follow(&node, &token, &few, first, what));
            // The table comes at the end of many minutes.
            let (bare, ours, small) = (bare.last(), ours.last(), small.last());
            eprintln!(
                "{}: bare {bare:?}, creditd {ours:?}, few addresses {small:?}",
                what.words()
            );
        }
        let figure = |span| format!("{:.1}", per_second(BLOCKS, span));
        let words = what.words();
        let (bare, ours, small) = (best(&bare), best(&ours), best(&small));
        table.figure(
            &format!("{words}: a bare socket, answers thrown away"),
            figure(bare),
        );
        table.ratio(
            &format!("{words}: creditd, {MANY} addresses"),
            figure(ours),
            quotient(bare, ours),
            Target::AtLeast(0.8),
        );
        table.ratio(
            &format!("{words}: the same against {FEW} addresses"),
            figure(small),
            quotient(small, ours),
            Target::AtLeast(0.9),
        );
    }
    table.print(&format!(
        "catch-up on an EVM chain: {BLOCKS} blocks of {TRANSFERS} token transfers, {PAID} of them ours"
    ));
}

/// The account number `n` of those that are watched.
fn watched(n: u32) -> Script {
    let mut bytes = [0x77; 20];
    bytes[16..].copy_from_slice(&n.to_be_bytes());
    Script(bytes.into())
}

fn account(script: &Script) -> String {
    format!("0x{}", const_hex::encode(&script.0))
}

/// Mines the blocks; the height of the first.
fn mine(node: &AnvilNode, token: &Token) -> u64 {
    let payer = node.account(0);
    token.mint(node, &payer, 1 << 60);
    node.mine(1);
    let first = node.height() + 1;
    for block in 0..BLOCKS {
        let one = |place: u32| {
            let to = match place < PAID {
                true => account(&watched((block * PAID + place) % FEW)),
                false => format!(
                    "0x{:040x}",
                    0xabcd_0000_u64 + u64::from(block * TRANSFERS + place)
                ),
            };
            let data = token
                .contract
                .call_data("transfer", &[address(&to), uint(u128::from(place) + 1)]);
            let tx = json!([{"from": payer, "to": token.address, "data": data, "gas": "0x186a0"}]);
            ("eth_sendTransaction", tx)
        };
        node.batch((0..TRANSFERS).map(one).collect());
        node.mine(1);
    }
    let last = node.block(node.height());
    assert_eq!(
        last["transactions"].as_array().map(Vec::len),
        Some(TRANSFERS as usize)
    );
    first
}

/// A block as the bare socket knows it: its hash, and which transactions in it pay us.
struct Known {
    hash: String,
    paying: Vec<String>,
}

fn known(node: &AnvilNode, height: u64) -> Known {
    let block = node.block(height);
    let txs = block["transactions"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    Known {
        hash: text(&block["hash"]),
        // They are mined in the order in which they were sent.
        paying: txs.iter().take(PAID as usize).map(text).collect(),
    }
}

/// The least that asks the same, over one connection: a block's header, then what is in it, then the
/// transactions that pay us with their receipts. It has to look for nothing, and throws everything away.
fn read(node: &AnvilNode, token: &Token, blocks: &[Known], first: u64, what: Watched) {
    let mut wire = Wire::open(node.port(), None);
    let mut bytes = 0;
    for (height, block) in (first..).zip(blocks) {
        let hash = &block.hash;
        bytes += wire
            .post(&questions(&[json!([
                "eth_getBlockByNumber",
                [format!("{height:#x}"), false]
            ])]))
            .len();
        let filter = json!({"blockHash": hash, "address": [token.address], "topics": [TRANSFER]});
        let mut content = vec![json!(["eth_getLogs", [filter]])];
        if what != Watched::Tokens {
            content.push(json!(["eth_getBlockByHash", [hash, true]]));
        }
        bytes += wire.post(&questions(&content)).len();
        if what == Watched::Traces {
            let trace = json!(["debug_traceBlockByHash", [hash, {"tracer": "callTracer"}]]);
            bytes += wire.post(&questions(&[trace])).len();
        }
        let mut looked_up = Vec::new();
        if what == Watched::Tokens {
            // Whole blocks hold them already.
            looked_up.extend(
                block
                    .paying
                    .iter()
                    .map(|txid| json!(["eth_getTransactionByHash", [txid]])),
            );
        }
        looked_up.extend(
            block
                .paying
                .iter()
                .map(|txid| json!(["eth_getTransactionReceipt", [txid]])),
        );
        bytes += wire.post(&questions(&looked_up)).len();
    }
    assert!(bytes > blocks.len() * TRANSFERS as usize * 100);
}

/// One question, or a batch of several.
fn questions(calls: &[Value]) -> String {
    let question = |(id, call): (usize, &Value)| {
        let (method, params) = (&call[0], &call[1]);
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    };
    let mut all: Vec<Value> = calls.iter().enumerate().map(question).collect();
    match all.len() {
        1 => all.remove(0).to_string(),
        _ => Value::Array(all).to_string(),
    }
}

fn new_chain(token: &Token) -> NewChain {
    let id = ChainId::evm(CHAIN_ID, Some("bench"));
    let contract = const_hex::decode_to_array(&token.address).unwrap();
    let asset = |asset, caip, symbol: &str, decimals| NewAsset {
        asset,
        caip,
        symbol: symbol.to_owned(),
        decimals,
        from: None,
    };
    NewChain {
        assets: vec![
            asset(Asset::Native, id.evm_coin(60), "ETH", 18),
            asset(Asset::Token(contract), id.erc20(&contract), "TUSD", 6),
        ],
        id,
        genesis: None,
        alias: "evm".to_owned(),
    }
}

fn source(node: &AnvilNode, token: &Token, what: Watched, clock: Clock) -> EvmSource<HttpDial> {
    let chain = ChainId::evm(CHAIN_ID, Some("bench"));
    let config = EndpointsConfig {
        chain_id: CHAIN_ID,
        chain: chain.clone(),
        checkpoints: Vec::new(),
        quorum: 1,
        call_deadline: Duration::from_secs(60),
        recheck: Duration::from_secs(60),
    };
    let endpoint = Node {
        name: "anvil".to_owned(),
        place: Place::Url(node.url()),
        auth: Auth::None,
        batch_max: 50,
        dial: HttpDial::new(),
    };
    let rule = TokenRule {
        symbol: "TUSD".to_owned(),
        decimals: 6,
        is_balance_checked: false,
        is_unindexed: false,
    };
    let contract = Account(const_hex::decode_to_array(&token.address).unwrap());
    let inner = match what {
        Watched::Tokens => None,
        Watched::Coin => Some(Inner::Unseen),
        Watched::Traces => Some(Inner::Traces(TraceCall::Debug)),
    };
    let rules = EvmRules {
        chain,
        tokens: BTreeMap::from([(contract, rule)]),
        native: inner.map(NativeRule::by),
        has_bloom: true,
        lists_pending: false,
    };
    EvmSource::new(rules, Endpoints::new(config, vec![endpoint], None, clock), clock)
}

/// The daemon's own loop on a fresh copy of the database, from its first block to the tip.
fn follow(node: &AnvilNode, token: &Token, template: &Path, first: u64, what: Watched) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let path = addresses::copy(template, folder.path(), "ledger.db");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let clock = Clock::real();
    let source = source(node, token, what, clock);
    let settings = settings(token, first);
    let tip = first + u64::from(BLOCKS) - 1;
    let took = runtime.block_on(runtime.spawn(async move {
        let database = Database::open(&path, OpenMode::Daemon).unwrap();
        let store = Store::threaded(database, clock).unwrap();
        let mut follower = Follower::open(source, store.clone(), clock, settings)
            .await
            .unwrap();
        // The first round asks who the node is and sets the cursor.
        follower.step().await.unwrap();
        let began = clock.instant();
        while height(&store).await < tip {
            follower.step().await.unwrap();
        }
        let took = began.elapsed();
        store.close().await.unwrap();
        took
    }));
    let conn = rusqlite::Connection::open(folder.path().join("ledger.db")).unwrap();
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM deposits"), BLOCKS * PAID);
    let due = (BLOCKS + 1 - CONFIRMATIONS) * PAID;
    assert_eq!(count("SELECT count(*) FROM credits"), due);
    took.unwrap()
}

async fn height(store: &Store) -> u64 {
    let chains = store.read(|tx| tx.chains()).await.unwrap();
    chains[0].cursor.map_or(0, |cursor| cursor.height)
}

fn settings(token: &Token, first: u64) -> Settings {
    let tier = Tier {
        below: None,
        needs: Requirement::Confirmations(CONFIRMATIONS),
    };
    let policy = Policy::new(&[tier]).unwrap();
    let chain = new_chain(token);
    Settings {
        terms: Terms {
            policies: chain
                .assets
                .iter()
                .map(|asset| (asset.asset, policy.clone()))
                .collect(),
            reorg_window: 128,
            evict_after_ms: 600_000,
        },
        chain,
        start: Start::Height(first),
        // The step that reaches the tip ends with a look's wait, which is no part of catching up.
        poll: Duration::from_millis(1),
        mempool: Duration::from_secs(60),
        tip_age_max: None,
        fork_patience: None,
    }
}
