//! How far an audit reaches: what it did not look at it says, and what it found it takes back only where it
//! looked again.

use std::collections::BTreeSet;

use super::planted::{Spoilt, answer, kinds, sql};
use super::{
    AUDIT, NOBODY, assert_clean, assert_found, assert_unchecked, audit, begun, change, change_past_guards,
    credited,
};
use super::{number, open};
use crate::common::daemon::Setup;
use crate::common::wait::{PATIENCE, wait_until};
use crate::shop::Shop;

#[test]
fn blocks_that_a_reorg_put_below_the_mark_are_read() {
    let mut shop = open();
    let address = shop.watch();
    shop.node.mine(10);
    shop.settle();
    assert_clean(&shop.daemon, &[]);
    let fork = shop.node.block_hash(shop.node.height() - 3);
    shop.node.invalidate(&fork);
    let payment = shop.pay(&address, 10_000_000);
    shop.node.broadcast(&payment);
    shop.node.mine(8);
    shop.settle();
    shop.await_state(&payment.txid, "credited");
    shop.daemon.stop();
    let spoilt = Spoilt::of(&shop.daemon, &payment.txid, NOBODY).spoil(sql("a payment that is gone"));
    assert_found(&spoilt.audit(&["--chain", "btc"]), &["unbooked"]);
}

/// Somebody asked for the block below the first that counts, and a reorg replaces that one too: it is not
/// read again, and the walk above it goes on.
#[test]
fn a_reorg_of_the_block_below_the_first_that_counts_holds_nothing_up() {
    let shop = open();
    shop.watch();
    shop.node.mine(10);
    shop.settle();
    let first = assert_clean(&shop.daemon, &[])["chains"][0]["outputs"]["from_height"]
        .as_u64()
        .unwrap();
    let below = (first - 1).to_string();
    assert_clean(&shop.daemon, &["--chain", "btc", "--from", &below]);
    shop.node.invalidate(&shop.node.block_hash(first - 2));
    shop.node.mine(20);
    shop.settle();
    let outputs = assert_clean(&shop.daemon, &[])["chains"][0]["outputs"].clone();
    assert_eq!(outputs["from_height"], first, "{outputs}");
    assert_clean(&shop.daemon, &[]);
}

#[test]
fn a_node_far_behind_proves_nothing() {
    let mut shop = open();
    credited(&shop, 10_000_000);
    shop.node.mine(30);
    shop.settle();
    shop.daemon.stop();
    let top = shop.node.height();
    shop.node.invalidate(&shop.node.block_hash(top - 40));
    let found = assert_unchecked(&audit(&shop.daemon, &[]), "node_behind");
    let what = found["what"].as_str().unwrap();
    assert!(what.contains(&format!("{} to {top}", top - 40)), "{what}");
    assert!(what.contains("1 credit"), "{what}");
    let stdout = shop.daemon.cli(&["audit"]).stdout;
    let stdout = String::from_utf8_lossy(&stdout);
    assert!(stdout.contains("btc            unproven: "), "{stdout}");
    assert!(!stdout.contains("\nnothing found\n"), "{stdout}");
}

#[test]
fn blocks_beyond_the_books_are_not_said_to_be_read() {
    let shop = Shop::open_with(|setup| setup.tables += "[audit]\nevery_hours = 0\nage_blocks = 2\n");
    shop.watch();
    shop.node.mine(2);
    shop.settle();
    let found = audit(&shop.daemon, &["--chain", "btc", "--from", "99999999"]);
    let what = assert_unchecked(&found, "beyond")["what"].to_string();
    let tip = shop.node.height();
    let heights = format!(
        "{} is the last that could be: its node is at height {tip}, the books are at {tip}, and 2 blocks \
         below that are left alone",
        tip - 2
    );
    assert!(what.contains(&heights), "{what}");
    assert_clean(&shop.daemon, &[]);
}

/// Blocks that nobody has read are not proven to hold nothing.
#[test]
fn books_far_behind_the_node_are_said_to_be() {
    let mut shop = open();
    credited(&shop, 10_000_000);
    shop.daemon.stop();
    let height = shop.node.height();
    shop.node.mine(200);
    let found = assert_unchecked(&audit(&shop.daemon, &[]), "books_behind");
    let what = found["what"].as_str().unwrap();
    assert!(
        what.contains(&format!("{} to {}", height + 1, height + 200)),
        "{what}"
    );
}

#[test]
fn a_chain_that_the_config_forgot_is_named() {
    let mut shop = open();
    credited(&shop, 10_000_000);
    shop.daemon.stop();
    let mut setup = Setup::for_node(&shop.node);
    setup.instance = "other".to_owned();
    setup.tables += AUDIT;
    shop.daemon.write_config(&setup);
    let found = audit(&shop.daemon, &[]);
    let forgotten = assert_unchecked(&found, "not_in_config");
    assert!(
        forgotten["what"].as_str().unwrap().contains("1 credit"),
        "{forgotten}"
    );
    assert_unchecked(&found, "never_followed");
}

#[test]
fn a_node_of_another_network_proves_nothing() {
    let mut shop = open();
    credited(&shop, 10_000_000);
    shop.daemon.stop();
    let mut setup = Setup::for_node(&shop.node);
    (setup.network, setup.instance) = ("signet".to_owned(), String::new());
    setup.tables += AUDIT;
    shop.daemon.write_config(&setup);
    assert_unchecked(&audit(&shop.daemon, &[]), "other_network");
}

/// What is unspent and what blocks pay are two questions: the one takes back nothing of the other.
#[test]
fn each_pass_takes_back_its_own_findings_alone() {
    let mut shop = open();
    let payment = credited(&shop, 10_000_000);
    shop.daemon.stop();
    let spoilt = Spoilt::of(&shop.daemon, &payment.txid, NOBODY).spoil("");
    for pass in ["outputs", "unspent"] {
        spoilt.change(&format!(
            "INSERT INTO audit_findings (chain, pass, kind, subject, height, what, found_at, seen_at) \
             SELECT 1, '{pass}', 'unbooked', '{}:0', height, '', 0, 0 FROM deposits",
            payment.txid
        ));
    }
    let stand = |answer: &serde_json::Value| {
        let found = answer["found"].as_array().unwrap().iter();
        found
            .map(|found| found["pass"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let (answer, code) = spoilt.audit(&["--chain", "btc"]);
    assert_eq!(
        (stand(&answer), code),
        (vec!["unspent".to_owned()], 1),
        "{answer:#}"
    );
    let (answer, code) = spoilt.audit(&["--unspent", "--chain", "btc"]);
    assert_eq!((stand(&answer), code), (Vec::new(), 0), "{answer:#}");
}

/// Headers that a smaller window forgot are not missing, and what was due by an older policy was due.
#[test]
fn a_raised_window_and_policy_are_no_finding() {
    let mut shop = Shop::open_with(|setup| {
        setup.tables += AUDIT;
        setup.chain_lines += "reorg_window = 6\n";
    });
    credited(&shop, 10_000_000);
    shop.node.mine(40);
    shop.settle();
    for (window, confirmations) in [(100, 10), (200, 2), (6, 3), (144, 3)] {
        shop.daemon.stop();
        let mut setup = Setup::for_node(&shop.node);
        setup.tables += AUDIT;
        setup.chain_lines += &format!("reorg_window = {window}\n");
        setup.confirmations = confirmations;
        shop.daemon.write_config(&setup);
        assert_clean(&shop.daemon, &[]);
        shop.daemon.start_again();
        shop.settle();
        shop.node.mine(3);
        shop.settle();
        assert_clean(&shop.daemon, &[]);
    }
    // One that is gone from within is missing.
    shop.daemon.stop();
    let hole = "DELETE FROM headers WHERE height = (SELECT max(height) - 4 FROM headers)";
    change(&shop.daemon, hole);
    assert_found(&audit(&shop.daemon, &["--books"]), &["invariant"]);
}

#[test]
fn the_ledger_of_a_run_that_was_killed_is_compared() {
    let mut shop = open();
    credited(&shop, 10_000_000);
    shop.node.mine(60);
    shop.settle();
    let mut child = begun(&shop.daemon, &["--blocks-per-second", "1"]);
    wait_until("the books are through", PATIENCE, || {
        (number(&shop.daemon, "SELECT count(*) FROM audit_marks") > 0).then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    shop.daemon.stop();
    change_past_guards(&shop.daemon, "UPDATE credits SET created_at = created_at + 1;");
    let found = audit(&shop.daemon, &["--books"]);
    assert_found(&found, &["invariant"]);
    assert_eq!(found.0["found"][0]["subject"], "I2 ledger", "{found:#?}");
}

#[test]
fn two_audits_at_once_end_as_one_does() {
    let mut shop = open();
    let payment = credited(&shop, 10_000_000);
    shop.node.mine(30);
    shop.settle();
    let both = |of: &(dyn Fn() -> (serde_json::Value, i32) + Sync)| {
        std::thread::scope(|scope| {
            let other = scope.spawn(of);
            [of(), other.join().unwrap()]
        })
    };
    for (found, code) in both(&|| audit(&shop.daemon, &["--again"])) {
        assert_eq!((kinds(&found), code), (BTreeSet::new(), 0), "{found:#}");
    }
    assert_clean(&shop.daemon, &[]);
    shop.daemon.stop();
    let spoilt = Spoilt::of(&shop.daemon, &payment.txid, NOBODY).spoil(sql("a payment that is gone"));
    for found in both(&|| spoilt.audit(&["--again", "--chain", "btc"])) {
        assert_found(&found, &["unbooked"]);
    }
    let output = shop.daemon.cli(&["audit", "--json", "--allow-unproven"]);
    assert_eq!(answer(&output).1, 0);
}
