//! The daemon is killed at random moments, again and again, while payments, replacements, blocks and small
//! reorgs go on. In the end its books are those of a daemon that was left alone, and of the chain.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::books::{assert_agree, watching};
use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;
use crate::common::wait::let_pass;
use crate::market::{Draw, Market};
use crate::shop::{fresh_address, read, settle};

/// At least so many kills, or the test has failed.
const KILLS: u32 = 200;

#[test]
fn daemon_killed_two_hundred_times_ends_at_the_books_of_one_that_was_not() {
    let seed = std::env::var("CREDITD_TEST_SEED").map_or(1, |seed| seed.parse().unwrap());
    eprintln!("seed {seed}; another one with CREDITD_TEST_SEED");
    let mut draw = Draw::new(seed);
    let node = Arc::new(RegtestNode::start());
    node.fund();
    let coins = node.split_coin(1_000);
    let mut setup = Setup::for_node(&node);
    let addresses: Vec<String> = (0..8).map(|_| fresh_address()).collect();
    let [mut killed, left_alone] = [(); 2].map(|()| watching(&setup, &addresses, &node));
    let invoices: Vec<String> = addresses
        .iter()
        .map(|address| {
            let ids = [&killed, &left_alone].map(|daemon| daemon.invoice(address, "BTC", "0.002"));
            assert_eq!(ids[0], ids[1], "of the address alone");
            ids[0].clone()
        })
        .collect();
    let mut market = Market::new(&node, addresses, coins);
    let mut ledger = read(&killed, |tx| tx.ledger_snapshot());
    let mut kills = 0;
    while kills < KILLS {
        for _ in 0..draw.below(8) {
            market.step(&mut draw);
        }
        let_pass(Duration::from_millis(moment(&mut draw)));
        assert!(killed.is_running(), "it ended by itself:\n{}", killed.log());
        killed.kill9();
        kills += 1;
        // Seldom, because reading recovers the log before the next daemon has to.
        if kills % 20 == 0 {
            let later = read(&killed, |tx| tx.ledger_snapshot());
            assert_eq!(ledger.lost_in(&later), []);
            ledger = later;
        }
        if draw.below(4) == 0 {
            market.step(&mut draw);
        }
        killed.start_again();
    }
    market.close();
    let log = killed.log();
    let [starts, commits] =
        ["creditd is ready", "connected up to block"].map(|line| log.matches(line).count());
    eprintln!(
        "{kills} kills, {starts} starts got ready, {commits} commits of blocks, {:?}",
        market.tally
    );
    let paid = market.paid();
    assert!(paid.len() > 100, "too little happened: {:?}", market.tally);
    assert!(
        starts > 100 && commits > 100,
        "it was killed before it did anything"
    );
    settle(&killed, "btc", &node);
    settle(&left_alone, "btc", &node);
    let is_paid = |id: &&String| told(&killed, id)[0][2] != "unpaid";
    assert!(invoices.iter().filter(is_paid).count() > 4, "too little was paid");
    for id in &invoices {
        let told = [&killed, &left_alone].map(|daemon| told(daemon, id));
        assert_eq!(told[0], told[1], "{id}");
    }
    // And one that sees all of it for the first time.
    setup.chain_lines = format!("start = {}", market.start + 1);
    let late = watching(&setup, &market.addresses, &node);
    assert_agree(&[&left_alone, &killed, &late], &paid);
}

/// What tells how an invoice ended, in its own books and in its events.
pub const FACTS: [&str; 6] = [
    "paid_base",
    "overpaid_base",
    "amount_state",
    "time",
    "life",
    "strays",
];

/// What has become of an invoice, by its own books and by its last event.
fn told(daemon: &Daemon, id: &str) -> [Vec<Value>; 2] {
    let invoice = daemon.json(&["invoices", "show", id])["invoice"].clone();
    let last = daemon.events().into_iter().rfind(|event| event.subject == id);
    let event = last.unwrap().body["data"].clone();
    [invoice, event].map(|told| FACTS.iter().map(|key| told[*key].clone()).collect())
}

/// Mostly after the start, sometimes in it, sometimes when everything has been done.
fn moment(draw: &mut Draw) -> u64 {
    match draw.below(4) {
        0 => draw.below(30),
        1 | 2 => 30 + draw.below(150),
        _ => 150 + draw.below(350),
    }
}
