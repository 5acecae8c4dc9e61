//! The node and the daemon come and go: restarts in the middle of everything, a node that is away, that comes
//! back with older data, or that has thrown away what was not read yet.

use serde_json::json;

use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;
use crate::common::wait::PATIENCE;
use crate::shop::{Shop, TO_CREDIT, Trouble, fresh_address};
use crate::{payments, reorgs, replacements};

const CREDITED: [&str; 3] = ["deposit.seen", "deposit.confirming", "credit.created"];

/// The scenarios that the other files run undisturbed, with the same states, events and books.
fn everything_under(trouble: Trouble) {
    let mut shop = Shop::open();
    shop.trouble = trouble;
    payments::payment_becomes_a_credit(&mut shop);
    replacements::two_bumps_in_a_row(&mut shop);
    reorgs::reorg_there_and_back(&mut shop, 4);
    if trouble == Trouble::NodeRestarts {
        // A node takes a second to restart, and a dozen of them have been enough.
        assert_eq!(shop.credits().len(), 3);
    } else {
        replacements::replacement_in_a_block_undone_by_a_reorg(&mut shop);
        reorgs::reorg_there_and_back(&mut shop, 2);
        assert_eq!(shop.credits().len(), 5);
    }
    shop.assert_sound();
}

#[test]
fn daemon_restarted_between_all_steps_changes_nothing() {
    everything_under(Trouble::DaemonRestarts);
}

#[test]
fn daemon_killed_between_all_steps_changes_nothing() {
    everything_under(Trouble::DaemonDies);
}

#[test]
fn node_restarted_between_all_steps_changes_nothing() {
    everything_under(Trouble::NodeRestarts);
}

#[test]
fn what_happened_while_one_side_was_away_is_caught_up_with() {
    let mut shop = Shop::open();
    let (before, during) = (shop.seen_payment(10_000), shop.pay(&shop.watch(), 20_000));
    let lost = shop.seen_payment(30_000);
    // The daemon is away for a reorg, a replacement and more blocks than make a credit.
    shop.daemon.stop();
    let block = shop.node.generateblock(&[&before.txid, &lost.txid]);
    shop.mine_empty(3);
    shop.node.invalidate(&block);
    shop.node.generateblock(&[&during.hex]);
    shop.mine_empty(5);
    shop.node.generateblock(&[&before.hex]);
    shop.daemon.start_again();
    shop.settle();
    shop.deposit(&during.txid)
        .assert_is("credited", &CREDITED[1..], &["credit"]);
    shop.deposit(&before.txid)
        .assert_is("confirming", &CREDITED[..2], &[]);
    shop.deposit(&lost.txid).assert_is("seen", &CREDITED[..1], &[]);
    // The node is away: nothing is true or false of anything, and it is said why.
    shop.node.stop();
    shop.await_chain_state("btc", "unreachable");
    // A node that is still on its way out answers 503, and then no more.
    shop.daemon
        .wait_for("it is said why", &["chain", "status"], |status| {
            let reason = status["chains"][0]["reason"].as_str()?;
            reason.contains("refused").then_some(())
        });
    shop.deposit(&lost.txid).assert_is("seen", &CREDITED[..1], &[]);
    shop.daemon.stop();
    shop.daemon.start_again();
    shop.await_chain_state("btc", "unreachable");
    shop.node.start_again();
    shop.settle();
    shop.node.mine(1 + TO_CREDIT);
    shop.settle();
    for payment in [&before, &lost] {
        shop.deposit(&payment.txid)
            .assert_is("credited", &CREDITED, &["credit"]);
    }
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (3, 60_000));
    shop.assert_sound();
}

/// The policy is edited while payments wait: what is uncredited follows it, what is credited stays.
#[test]
fn edited_policy_moves_what_is_not_credited_yet() {
    let mut shop = Shop::open();
    let mut setup = Setup::for_node(&shop.node);
    let mut restart_with = |shop: &mut Shop, confirmations: u32| {
        setup.confirmations = confirmations;
        shop.daemon.stop();
        shop.daemon.write_config(&setup);
        shop.daemon.start_again();
        shop.settle();
    };
    let early = shop.seen_payment(10_000);
    shop.node.mine(1 + TO_CREDIT);
    let late = shop.seen_payment(20_000);
    shop.node.mine(2);
    shop.settle();
    shop.deposit(&late.txid)
        .assert_is("confirming", &CREDITED[..2], &[]);
    // More: it waits longer.
    restart_with(&mut shop, 6);
    shop.mine_empty(2);
    shop.settle();
    let waiting = shop.deposit(&late.txid);
    waiting.assert_is("confirming", &CREDITED[..2], &[]);
    assert_eq!(
        (&waiting.0["depth"], &waiting.0["confirmations_required"]),
        (&json!(4), &json!(6))
    );
    shop.deposit(&early.txid)
        .assert_is("credited", &CREDITED, &["credit"]);
    // Fewer: it has been due for long, and needs no new block.
    restart_with(&mut shop, 2);
    let due = shop.await_state(&late.txid, "credited");
    due.assert_is("credited", &CREDITED, &["credit"]);
    let entry = &due.0["credit"]["journal"][0];
    assert_eq!(entry["confirmations_required"], 2, "{entry}");
    shop.assert_sound();
}

/// `A-B-P-.-.` credited; the node comes back as it was at B, then at B with a block of its own on it.
#[test]
fn node_with_older_data_takes_nothing_away() {
    let mut shop = Shop::open();
    let old = shop.node.save_data();
    shop.settle();
    let payment = shop.seen_payment(40_000);
    shop.node.mine(1 + TO_CREDIT);
    shop.settle();
    let new = shop.node.save_data();
    shop.settle();
    let (height, tip) = (shop.node.height(), shop.node.tip());
    let still_credited = |shop: &Shop| {
        shop.deposit(&payment.txid)
            .assert_is("credited", &CREDITED, &["credit"]);
        let status = shop.daemon.json(&["chain", "status"]);
        let chain = &status["chains"][0];
        assert_eq!(
            (&chain["height"], &chain["hash"]),
            (&json!(height), &json!(tip)),
            "our tip stays"
        );
    };
    shop.node.use_data(&old);
    let reason = shop.await_chain_state("btc", "behind");
    assert!(reason.contains("on the same chain"), "{reason}");
    still_credited(&shop);
    // Also for a daemon that knows the node from nowhere else.
    shop.daemon.stop();
    shop.daemon.start_again();
    shop.await_chain_state("btc", "behind");
    still_credited(&shop);
    // Another block at a height that we hold, but not a better branch.
    shop.mine_empty(2);
    let chain = ["chain", "status"];
    shop.daemon
        .wait_for("the other branch is noticed", &chain, |status| {
            let reason = status["chains"][0]["reason"].as_str()?;
            reason.contains("on a branch that is no better").then_some(())
        });
    still_credited(&shop);
    // The right data again: as if nothing had been.
    shop.node.use_data(&new);
    shop.settle();
    still_credited(&shop);
    shop.node.mine(1);
    shop.settle();
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (1, 40_000));
    shop.assert_sound();
}

#[test]
fn crashed_node_that_lost_its_last_blocks_takes_nothing_away() {
    let mut shop = Shop::open();
    let payment = shop.seen_payment(50_000);
    shop.node.mine(1 + TO_CREDIT);
    shop.settle();
    // A killed bitcoind forgets what it had not flushed: here, all of it.
    shop.node.kill9();
    shop.await_chain_state("btc", "unreachable");
    shop.node.start_again();
    assert!(shop.node.height() < 111, "the crash lost blocks");
    shop.daemon
        .wait_for("the node is not followed", &["chain", "status"], |status| {
            let state = status["chains"][0]["state"].as_str()?;
            ["behind", "syncing"].contains(&state).then_some(())
        });
    shop.deposit(&payment.txid)
        .assert_is("credited", &CREDITED, &["credit"]);
    assert_eq!(shop.credited_sat("shop"), 50_000);
    shop.assert_sound();
}

/// While the daemon is away its pruned node throws blocks away that were not read. Another chain goes on.
#[test]
fn pruned_blocks_that_were_not_read_stop_that_chain_alone() {
    let full = RegtestNode::listening();
    full.fund();
    let pruned = RegtestNode::start_with(&["-prune=1", "-fastprune"]);
    pruned.connect_peer(&full);
    pruned.catch_up_with(&full, PATIENCE);
    let other = RegtestNode::start();
    other.fund();
    let mut setup = Setup::for_node(&pruned);
    setup.add_chain("two", &other);
    let mut shop = Shop {
        node: other,
        daemon: Daemon::start(&setup),
        trouble: Trouble::None,
    };
    shop.settle_on("btc", &pruned);
    shop.settle_on("two", &shop.node);
    let watch_on = |daemon: &Daemon, chain: &str| {
        let address = fresh_address();
        daemon.json(&["watch", "add", &address, "--merchant", "shop", "--chain", chain]);
        address
    };
    let (here, there) = (watch_on(&shop.daemon, "btc"), watch_on(&shop.daemon, "two"));
    let first_unread = full.height() + 1;
    shop.daemon.stop();
    let missed = full.send(&here, 60_000);
    full.mine(700);
    pruned.catch_up_with(&full, PATIENCE);
    pruned.call("pruneblockchain", &[json!(first_unread + 300)]);
    let info = pruned.call("getblockchaininfo", &[]);
    let last_gone = info["pruneheight"].as_u64().unwrap() - 1;
    assert!(last_gone >= first_unread, "{info}");
    shop.daemon.start_again();
    let reason = shop.await_chain_state("btc", "pruned_gap");
    let range = format!("blocks {first_unread} to {last_gone}");
    assert!(reason.contains(&range), "{range}: {reason}");
    assert!(
        !shop.daemon.cli(&["tx", &missed]).status.success(),
        "nothing is skipped, nothing is guessed"
    );
    let payment = shop.node.send(&there, 5_000);
    shop.await_state(&payment, "seen");
    shop.node.mine(1 + TO_CREDIT);
    shop.settle_on("two", &shop.node);
    shop.deposit(&payment)
        .assert_is("credited", &CREDITED, &["credit"]);
    // A node that has the blocks ends it.
    let mut whole = Setup::for_node(&full);
    whole.add_chain("two", &shop.node);
    shop.daemon.stop();
    shop.daemon.write_config(&whole);
    shop.daemon.start_again();
    shop.settle_on("btc", &full);
    shop.deposit(&missed)
        .assert_is("credited", &CREDITED[1..], &["credit"]);
    assert_eq!((shop.credits().len(), shop.credited_sat("shop")), (2, 65_000));
    shop.assert_sound();
}
