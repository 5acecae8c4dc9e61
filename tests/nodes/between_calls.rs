//! Whatever happens at a node happens between two calls of the daemon. Here it does so on purpose: a proxy
//! before the node lets things happen exactly when the daemon asks for the next piece of something.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::books::{assert_agree, watching};
use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;
use crate::common::stub::{Call, StubNode};
use crate::common::wait::wait_until;
use crate::market::{Draw, Market};
use crate::shop::{Shop, TO_CREDIT, Trouble, fresh_address, settle, text};

const CREDITED: [&str; 3] = ["deposit.seen", "deposit.confirming", "credit.created"];

/// So many things happen, each just before an answer of the node.
const STEPS: u32 = 300;

#[test]
fn daemon_to_whom_everything_happens_between_calls_ends_at_the_same_books() {
    let seed = std::env::var("CREDITD_TEST_SEED").map_or(1, |seed| seed.parse().unwrap());
    eprintln!("seed {seed}; another one with CREDITD_TEST_SEED");
    let node = Arc::new(RegtestNode::start());
    node.fund();
    let coins = node.split_coin(1_000);
    let addresses: Vec<String> = (0..8).map(|_| fresh_address()).collect();
    let stub = StubNode::in_front_of(&node);
    let troubled = watching(&Setup::for_stub(&stub), &addresses, &node);
    let left_alone = watching(&Setup::for_node(&node), &addresses, &node);
    let market = Arc::new(Mutex::new(Market::new(&node, addresses, coins)));
    let steps_left = Arc::new(Mutex::new(STEPS));
    {
        let (market, steps_left, mut draw) = (Arc::clone(&market), Arc::clone(&steps_left), Draw::new(seed));
        stub.handle(move |_| {
            let mut left = steps_left.lock().unwrap();
            if *left > 0 && draw.below(4) == 0 {
                *left -= 1;
                market.lock().unwrap().step(&mut draw);
            }
            None
        });
    }
    let patience = std::time::Duration::from_secs(90);
    wait_until("everything has happened", patience, || {
        (*steps_left.lock().unwrap() == 0).then_some(())
    });
    let mut market = market.lock().unwrap();
    market.close();
    eprintln!("{:?}", market.tally);
    settle(&troubled, "btc", &node);
    settle(&left_alone, "btc", &node);
    let mut setup = Setup::for_node(&node);
    setup.chain_lines = format!("start = {}", market.start + 1);
    let late = watching(&setup, &market.addresses, &node);
    assert_agree(&[&left_alone, &troubled, &late], &market.paid());
}

/// A shop whose daemon speaks to the node through a proxy.
fn shop_behind_a_stub() -> (Shop, StubNode) {
    let node = RegtestNode::start();
    node.fund();
    node.split_coin(20);
    let stub = StubNode::in_front_of(&node);
    let shop = Shop {
        daemon: Daemon::start(&Setup::for_stub(&stub)),
        node,
        trouble: Trouble::None,
    };
    shop.settle();
    (shop, stub)
}

/// Makes these calls to the node, once, just before it answers the first call that `is_it`.
fn just_before<F: Fn(&Call) -> bool + Send + 'static>(
    stub: &StubNode,
    shop: &Shop,
    is_it: F,
    calls: Vec<(&'static str, Vec<Value>)>,
) -> impl Fn() + use<F> {
    let rpc = shop.node.rpc();
    let calls = Arc::new(Mutex::new(calls));
    let left = Arc::clone(&calls);
    stub.handle(move |call| {
        if is_it(call) {
            for (method, params) in std::mem::take(&mut *left.lock().unwrap()) {
                bitcoincore_rpc::RpcApi::call::<Value>(&rpc, method, &params).unwrap();
            }
        }
        None
    });
    move || {
        wait_until("it happened", crate::common::wait::PATIENCE, || {
            calls.lock().unwrap().is_empty().then_some(())
        });
    }
}

/// A block of exactly these transactions.
fn block_of(transactions: &[&str]) -> (&'static str, Vec<Value>) {
    ("generateblock", vec![json!("raw(51)"), json!(transactions)])
}

fn is_block(call: &Call) -> bool {
    call.method == "rest/block" || call.method == "getblock"
}

#[test]
fn block_that_comes_while_the_mempool_is_listed_hides_nothing() {
    let (shop, stub) = shop_behind_a_stub();
    let payment = shop.pay(&shop.watch(), 10_000);
    let is_list = |call: &Call| call.method == "getrawmempool";
    let sent = ("sendrawtransaction", vec![json!(payment.hex)]);
    just_before(&stub, &shop, is_list, vec![sent, block_of(&[&payment.hex])])();
    shop.settle();
    // In no list and not yet in our chain: neither seen nor absent.
    shop.deposit(&payment.txid)
        .assert_is("confirming", &CREDITED[1..2], &[]);
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    shop.deposit(&payment.txid)
        .assert_is("credited", &CREDITED[1..], &["credit"]);
    shop.assert_sound();
}

#[test]
fn transaction_replaced_before_it_is_fetched_was_never_seen() {
    let (shop, stub) = shop_behind_a_stub();
    let (coin, address) = (shop.node.coin(), shop.watch());
    let [t1, t2] = [1_000, 10_000].map(|fee| shop.node.spend(&[&coin], &[(&address, coin.sat - fee)]));
    let is_fetch = |call: &Call| call.method == "getrawtransaction";
    let bump = ("sendrawtransaction", vec![json!(t2.hex), json!(0)]);
    let happened = just_before(&stub, &shop, is_fetch, vec![bump]);
    shop.node.broadcast(&t1);
    happened();
    shop.await_state(&t2.txid, "seen");
    assert_eq!(
        shop.daemon.cli(&["tx", &t1.txid]).status.code(),
        Some(1),
        "unknown"
    );
    shop.node.mine(1 + TO_CREDIT);
    shop.settle();
    shop.deposit(&t2.txid)
        .assert_is("credited", &CREDITED, &["credit"]);
    assert_eq!(
        shop.daemon.cli(&["tx", &t1.txid]).status.code(),
        Some(1),
        "unknown"
    );
    shop.assert_sound();
}

/// The block that the daemon is reading goes stale, and a payment in it is spent elsewhere.
#[test]
fn block_that_goes_stale_while_it_is_read_pays_nothing_in_the_end() {
    let (shop, stub) = shop_behind_a_stub();
    let (coin, address) = (shop.node.coin(), shop.watch());
    let ours = shop.node.spend(&[&coin], &[(&address, coin.sat - 1_000)]);
    let theirs = shop.node.spend(&[&coin], &[(&fresh_address(), coin.sat - 2_000)]);
    let kept = shop.seen_payment(20_000);
    // The hash is known only once the block is there, so the daemon is away while it is mined.
    let mut shop = shop;
    shop.daemon.stop();
    let stale = shop.node.generateblock(&[&ours.hex, &kept.txid]);
    let other = vec![
        ("invalidateblock", vec![json!(stale)]),
        block_of(&[&theirs.hex]),
        block_of(&[]),
        block_of(&[&kept.hex]),
    ];
    let happened = just_before(&stub, &shop, is_block, other);
    shop.daemon.start_again();
    happened();
    shop.settle();
    let lost = shop.deposit(&ours.txid);
    lost.assert_is("replaced", &["deposit.confirming", "deposit.replaced"], &[]);
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    // The new branch had won before the block that brings it again.
    let events = [
        "deposit.seen",
        "deposit.confirming",
        "deposit.orphaned",
        "deposit.confirming",
        "credit.created",
    ];
    shop.deposit(&kept.txid)
        .assert_is("credited", &events, &["credit"]);
    assert_eq!(shop.credited_sat("shop"), 20_000);
    shop.assert_sound();
}

/// While the daemon reads the first block of a new branch, the node goes back to the old one and beyond.
#[test]
fn reorg_taken_back_while_it_is_read_reverses_nothing() {
    let (shop, stub) = shop_behind_a_stub();
    let payment = shop.seen_payment(30_000);
    let block = shop.node.mine(1).remove(0);
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    let mut shop = shop;
    shop.daemon.stop();
    shop.node.invalidate(&block);
    let new = shop.mine_empty(4).remove(0);
    let back = vec![
        ("reconsiderblock", vec![json!(block)]),
        ("invalidateblock", vec![json!(new)]),
        block_of(&[]),
        block_of(&[]),
    ];
    let happened = just_before(&stub, &shop, is_block, back);
    shop.daemon.start_again();
    happened();
    shop.settle();
    let deposit = shop.deposit(&payment.txid);
    assert_eq!(
        (deposit.state().as_str(), deposit.net_sat()),
        ("credited", 30_000)
    );
    // Either the branch was read whole before it went, or nothing of it was.
    let whole = ["credit", "reversal", "reinstatement"].map(str::to_owned);
    assert!([1, 3].contains(&deposit.journal().len()) && whole.starts_with(&deposit.journal()));
    shop.assert_sound();
}

/// A rescan reads an old block; before it has it, a reorg takes that block away.
#[test]
fn rescan_of_a_block_that_a_reorg_takes_away_credits_nothing() {
    let (shop, stub) = shop_behind_a_stub();
    let (coin, address) = (shop.node.coin(), fresh_address());
    let ours = shop.node.spend(&[&coin], &[(&address, coin.sat - 1_000)]);
    let theirs = shop.node.spend(&[&coin], &[(&fresh_address(), coin.sat - 2_000)]);
    let stale = shop.node.generateblock(&[&ours.hex]);
    let height = shop.node.height().to_string();
    shop.mine_empty(TO_CREDIT);
    shop.settle();
    shop.watch_for("shop", &address);
    let mut other = vec![("invalidateblock", vec![json!(stale)]), block_of(&[&theirs.hex])];
    other.extend((0..TO_CREDIT + 1).map(|_| block_of(&[])));
    let hash = stale.clone();
    let is_stale = move |call: &Call| is_block(call) && call.params[0].as_str().unwrap().contains(&hash);
    let happened = just_before(&stub, &shop, is_stale, other);
    let args = [
        "rescan",
        "--from",
        &height,
        "--backfill",
        &address,
        "--reason",
        "older",
        "--apply",
    ];
    shop.daemon.json(&args);
    happened();
    shop.settle();
    shop.daemon
        .wait_for("the rescan is done", &["chain", "status"], |status| {
            status["chains"][0]["rescans"]
                .as_array()?
                .is_empty()
                .then_some(())
        });
    shop.mine_empty(5);
    shop.settle();
    assert_eq!(shop.credited_sat("shop"), 0);
    let told = shop.daemon.cli(&["--json", "tx", &ours.txid]);
    if told.status.success() {
        // It was ours for a moment, in a block that we held.
        let deposit = shop.deposit(&ours.txid);
        assert_eq!(
            (text(&deposit.0["state"]).as_str(), deposit.net_sat()),
            ("replaced", 0)
        );
    }
    shop.assert_sound();
}
