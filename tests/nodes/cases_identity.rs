//! C12 and real nodes: one of another network behind the URL, and one whose chain was thrown away.

use crate::common::asks::D1;
use crate::common::daemon::{Daemon, Setup};
use crate::common::node::RegtestNode;

const REGTEST_ID: &str = "bip122:0f9188f13cb7b2c71f2a335e3a4fc328@test";

#[test]
fn c12_real_node_of_another_network_is_refused_by_both_names() {
    for (network, id) in [
        ("signet", "bip122:00000008819873e925422c1ff0f99f7c"),
        ("main", "bip122:000000000019d6689c085ae165831e93"),
    ] {
        let node = RegtestNode::alone_on(network);
        let mut daemon = Daemon::start(&Setup::for_node(&node));
        let status = daemon.wait_state("wrong_network", id);
        let reason = status["reason"].as_str().unwrap();
        assert!(reason.contains(REGTEST_ID), "{reason}");
        assert_eq!(status["is_halted"], true);
        for table in ["headers", "txs", "inclusions", "outputs", "deposits", "credits"] {
            let rows = daemon.count(&format!("SELECT count(*) FROM {table}"));
            assert_eq!(rows, 0, "{network}: {table}");
        }
        assert!(daemon.is_running(), "other chains may be fine");
    }
}

/// A regtest chain is thrown away and mined anew under the same `instance`: the same coinbase transactions,
/// in other blocks. First the node is lower than we are, then on a branch that is no better, then on a better
/// one.
#[test]
fn c12_regtest_that_is_begun_anew_is_noticed_and_credits_no_coinbase_twice() {
    let mut node = RegtestNode::start();
    let empty = node.save_data();
    let setup = Setup {
        chain_lines: "start = 1\n".to_owned(),
        ..Setup::for_node(&node)
    };
    let mut daemon = Daemon::prepare(&setup);
    daemon.watch(D1);
    let coinbase = |node: &RegtestNode| {
        node.mine(4);
        let block = node.mine_to(D1, 1).remove(0);
        let answer = node.call("getblock", &[block.clone().into()]);
        (block, answer["tx"][0].as_str().unwrap().to_owned())
    };
    let (block, txid) = coinbase(&node);
    node.mine(100);
    daemon.start_again();
    daemon.wait_height(105);
    daemon.wait_deposit(&txid, 0, "credited");
    let paid = daemon.net_sum();

    node.use_data(&empty);
    daemon.wait_state("behind", "the node is at height 0");
    let (other, again) = coinbase(&node);
    assert_ne!(block, other);
    assert_eq!(txid, again, "a coinbase of the same height to the same address");
    daemon.wait_state("behind", "is on a branch that is no better than ours at 105");
    assert_eq!(
        (daemon.net_sum(), daemon.events_of("credit.reversed").len()),
        (paid, 0)
    );
    // Its window is larger than all of that chain: an ordinary reorg.
    node.mine(120);
    daemon.wait_height(125);
    daemon.wait_deposit(&txid, 0, "credited");
    assert_eq!(daemon.net_sum(), paid);
    assert_eq!(daemon.events_of("credit.created").len(), 1);
    daemon.assert_sound();
}
