//! C24 (b, c): "no such transaction" says nothing about a payment.

use serde_json::json;

use crate::common::asks::{D1, script, wait_calls, wait_polls};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, output, tx};
use crate::common::stub::Reply;
use crate::common::wait::{PATIENCE, wait_until};

#[test]
fn c24_transaction_that_vanishes_while_a_list_is_read_ends_nothing() {
    let node = FakeNode::regtest(3);
    let daemon = Daemon::watching(&Setup::for_stub(&node.stub), D1, 3);
    let three = [1, 2, 3].map(|number| tx(&[coin(number)], &[(script(D1), u64::from(number) * 1_000)]));
    let [id1, id2, id3] = three.each_ref().map(|tx| tx.compute_txid().to_string());
    // The list names all three; whoever asks for the second is told that there is none.
    let listed = json!([id1, id2, id3]);
    {
        let mut state = node.state();
        state.mempool = vec![three[0].clone(), three[2].clone()];
        state
            .overrides
            .insert("getrawmempool".to_owned(), Reply::Result(listed));
    }
    daemon.wait_deposit(&id1, 0, "seen");
    daemon.wait_deposit(&id3, 0, "seen");
    wait_calls(&node.stub, "getrawmempool", 3);
    assert_eq!(daemon.tx(&id2), None, "neither seen nor gone");
    assert_eq!(daemon.chain("btc").unwrap()["state"], "following");
    node.state().overrides.clear();
    node.mine(three.to_vec());
    node.mine(Vec::new());
    node.mine(Vec::new());
    for txid in [&id1, &id2, &id3] {
        daemon.wait_deposit(txid, 0, "credited");
    }
    assert_eq!((daemon.credits().len(), daemon.net_sum()), (3, 6_000));
    assert_eq!(daemon.events_of("deposit.evicted").len(), 0);
    assert_eq!(
        daemon.events_of("deposit.seen").len(),
        2,
        "the block was the first to bring the second"
    );
    daemon.assert_sound();
}

#[test]
fn c24_mined_payment_is_never_looked_up_and_never_evicted() {
    let node = FakeNode::regtest(3);
    let setup = Setup {
        chain_lines: "evict_after_secs = 1\n".to_owned(),
        ..Setup::for_stub(&node.stub)
    };
    let daemon = Daemon::watching(&setup, D1, 3);
    let paid = tx(&[coin(1)], &[(script(D1), 3_000_000)]);
    let child = tx(&[output(&paid, 0)], &[(script(D1), 2_900_000)]);
    let txid = paid.compute_txid().to_string();
    node.state().mempool.push(paid.clone());
    daemon.wait_deposit(&txid, 0, "seen");
    // From now on every lookup says that there is no such transaction, as a node without its index does.
    let gone = Reply::Error(-5, "No such mempool transaction. Use -txindex");
    node.state()
        .overrides
        .insert("getrawtransaction".to_owned(), gone);
    node.mine(vec![paid, child]);
    daemon.wait_deposit(&txid, 0, "confirming");
    let clock = || daemon.count("SELECT list_clock_ms FROM chains");
    let (began, mut strangers) = (clock(), 1_000..);
    wait_until("more than a second of applied lists", PATIENCE, || {
        // Another list each time, so that each is applied.
        node.state().mempool = vec![tx(&[coin(strangers.next()?)], &[(script(D1), 1)])];
        (clock() >= began + 1_500).then_some(())
    });
    assert_eq!(daemon.deposit(&txid, 0).unwrap()["state"], "confirming");
    node.state().mempool.clear();
    node.mine(Vec::new());
    node.mine(Vec::new());
    daemon.wait_deposit(&txid, 0, "credited");
    let calls = node.stub.calls();
    let of_it = calls
        .iter()
        .filter(|call| call.method == "getrawtransaction" && call.params[0] == json!(txid));
    assert_eq!(of_it.count(), 1, "once, when it was new in the mempool");
    daemon.assert_sound();
}

#[test]
fn c24_coinbase_of_the_genesis_block_is_never_looked_up() {
    let node = FakeNode::regtest(3);
    let genesis = node.state().chain[0].clone();
    let coinbase = genesis.txdata[0].compute_txid().to_string();
    for start in ["start = 0\n", "start = 1\n", ""] {
        let setup = Setup {
            chain_lines: start.to_owned(),
            ..Setup::for_stub(&node.stub)
        };
        let mut daemon = Daemon::watching(&setup, D1, 3);
        daemon.json(&[
            "rescan",
            "--from",
            "0",
            "--backfill",
            "all",
            "--reason",
            "test",
            "--apply",
        ]);
        wait_until("the rescan is done", PATIENCE, || {
            daemon.chain("btc")?["rescans"]
                .as_array()?
                .is_empty()
                .then_some(())
        });
        wait_polls(&node.stub, 2);
        daemon.stop();
    }
    let genesis_hash = genesis.block_hash().to_string();
    for call in node.stub.calls() {
        let names = |text: &str| call.params.iter().any(|param| param.as_str() == Some(text));
        assert!(!names(&coinbase), "{call:?}");
        assert!(call.method != "getblock" || !names(&genesis_hash), "{call:?}");
        assert_ne!(
            call.method, "getrawtransaction",
            "an empty mempool needs none: {call:?}"
        );
    }
}
