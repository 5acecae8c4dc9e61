//! The daemon is killed at random moments, again and again, while payments, replacements, blocks and small
//! reorgs go on. In the end its books are those of a daemon that was left alone, and of the chain.

use std::collections::BTreeMap;
use std::time::Duration;

use creditd::rules::Txid;
use serde_json::Value;

use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;
use crate::common::wait::let_pass;
use crate::market::{Draw, Market};
use crate::shop::{assert_sound, fresh_address, read, settle, text};

/// At least so many kills, or the test has failed.
const KILLS: u32 = 200;

/// What a daemon's books say of one payment.
#[derive(Debug, PartialEq)]
struct Booked {
    credit: String,
    net_sat: u64,
    created_event: String,
}

#[test]
fn daemon_killed_two_hundred_times_ends_at_the_books_of_one_that_was_not() {
    let seed = std::env::var("CREDITD_TEST_SEED").map_or(1, |seed| seed.parse().unwrap());
    eprintln!("seed {seed}; another one with CREDITD_TEST_SEED");
    let mut draw = Draw::new(seed);
    let node = RegtestNode::start();
    node.fund();
    let coins = node.split_coin(1_000);
    let setup = Setup::for_node(&node);
    let addresses: Vec<String> = (0..8).map(|_| fresh_address()).collect();
    let [mut killed, left_alone] = [(); 2].map(|()| watching(&setup, &addresses, &node));
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
    let [killed, left_alone] = [killed, left_alone].map(|daemon| {
        settle(&daemon, "btc", &node);
        daemon
    });
    assert_sound(&killed);
    assert_sound(&left_alone);
    let books = books(&killed);
    assert_eq!(books, self::books(&left_alone));
    let [ours, theirs] = [&killed, &left_alone].map(|daemon| read(daemon, |tx| tx.agreed_projection()));
    assert_eq!(ours, theirs);
    let credited: BTreeMap<_, _> = books
        .iter()
        .map(|(outpoint, booked)| (outpoint.clone(), booked.net_sat))
        .collect();
    assert_eq!(credited, paid);
}

/// Mostly after the start, sometimes in it, sometimes when everything has been done.
fn moment(draw: &mut Draw) -> u64 {
    match draw.below(4) {
        0 => draw.below(30),
        1 | 2 => 30 + draw.below(150),
        _ => 150 + draw.below(350),
    }
}

/// A daemon that watches the addresses and has found the node.
fn watching(setup: &Setup, addresses: &[String], node: &RegtestNode) -> Daemon {
    let mut daemon = Daemon::prepare(setup);
    let file = daemon.folder().join("addresses.txt");
    std::fs::write(&file, addresses.join("\n")).unwrap();
    daemon.json(&["watch", "import", file.to_str().unwrap(), "--merchant", "shop"]);
    daemon.start_again();
    settle(&daemon, "btc", node);
    daemon
}

/// The credits of a daemon by what they are for. Each was created by one event.
fn books(daemon: &Daemon) -> BTreeMap<(String, u64), Booked> {
    let answer = daemon.json(&["credits", "--limit", "100000"]);
    let book = |credit: &Value| {
        let (txid, vout) = (text(&credit["txid"]), credit["vout"].as_u64().unwrap());
        let id = Txid::from_hex(&txid).unwrap();
        let story = read(daemon, |tx| tx.tx_story(&id)).remove(0);
        let output = story.outputs.into_iter().find(|output| output.vout == vout);
        let events = output.unwrap().deposit.unwrap().events;
        let mut created = events.iter().filter(|event| event.kind == "credit.created");
        let created_event = created.next().unwrap().id.clone();
        assert!(created.next().is_none(), "created twice: {txid}:{vout}");
        let booked = Booked {
            credit: text(&credit["id"]),
            net_sat: text(&credit["net_base"]).parse().unwrap(),
            created_event,
        };
        ((txid, vout), booked)
    };
    answer["credits"].as_array().unwrap().iter().map(book).collect()
}
