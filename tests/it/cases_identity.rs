//! C12: the URL in the config may lead to a node of another chain.

use bitcoincore_rpc::bitcoin;
use bitcoincore_rpc::bitcoin::block::{Header, Version};
use bitcoincore_rpc::bitcoin::{CompactTarget, Network};
use serde_json::{Value, json};

use crate::common::asks::{D1, script, wait_polls};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, tx};
use crate::common::stub::{Call, Reply, StubNode};

const CORE: &str = "/Satoshi:29.1.0/";
/// CAIP-2 ids: the first 32 digits of the genesis hash.
const MAIN_ID: &str = "bip122:000000000019d6689c085ae165831e93";
const SIGNET_ID: &str = "bip122:00000008819873e925422c1ff0f99f7c";
const TESTNET4_ID: &str = "bip122:00000000da84f2bafbbc53dee25a72ae";
const REGTEST_ID: &str = "bip122:0f9188f13cb7b2c71f2a335e3a4fc328@test";
/// The first block after the split of Bitcoin Cash, on Bitcoin and there.
const BTC_478559: &str = "00000000000000000019f112ec0a9982926f1258cdcc558dd7c3b7e5dc7fa148";
const BCH_478559: &str = "000000000000000000651ef99cb9fcbe0dadde1d424bd9f15ff20136191a5eec";

/// Nothing that came from the node is in the database.
#[track_caller]
fn assert_nothing_stored(daemon: &Daemon) {
    for table in [
        "headers",
        "txs",
        "outputs",
        "deposits",
        "credits",
        "journal",
        "inclusions",
    ] {
        assert_eq!(
            daemon.count(&format!("SELECT count(*) FROM {table}")),
            0,
            "{table}"
        );
    }
    let anchored = "SELECT count(*) FROM chains WHERE cursor_height IS NOT NULL";
    assert_eq!(daemon.count(anchored), 0);
}

#[test]
fn c12_node_of_another_network_is_refused_by_both_names() {
    for (told, id) in [
        ("main", MAIN_ID),
        ("signet", SIGNET_ID),
        ("testnet4", TESTNET4_ID),
        ("test", "a network that we do not know"),
    ] {
        let node = FakeNode::regtest(3);
        node.state().info = json!({ "chain": told });
        let mut daemon = Daemon::start(&Setup::for_stub(&node.stub));
        let status = daemon.wait_state("wrong_network", id);
        let reason = status["reason"].as_str().unwrap();
        assert!(reason.contains(REGTEST_ID) && reason.contains(told), "{reason}");
        assert_eq!(status["is_halted"], true);
        wait_polls(&node.stub, 3);
        assert_nothing_stored(&daemon);
        assert_eq!(node.stub.count("getblock"), 0, "no block of it is even asked for");
        assert!(daemon.is_running(), "other chains may be fine: {told}");
        // The operator points the URL at the right node: it goes on alone.
        node.state().info = json!({});
        daemon.wait_height(3);
    }
}

#[test]
fn c12_right_name_over_another_genesis_is_refused() {
    let node = FakeNode::regtest(3);
    let genesis = bitcoin::constants::genesis_block(Network::Signet).block_hash();
    let answer = Reply::Result(json!(genesis.to_string()));
    node.state().overrides.insert("getblockhash".to_owned(), answer);
    let daemon = Daemon::start(&Setup::for_stub(&node.stub));
    let reason = daemon.wait_state("wrong_network", SIGNET_ID)["reason"].clone();
    assert!(reason.as_str().unwrap().contains(REGTEST_ID), "{reason}");
    assert_nothing_stored(&daemon);
}

#[test]
fn c12_node_changed_for_another_while_running_gives_nothing() {
    let node = FakeNode::regtest(3);
    let daemon = Daemon::start(&Setup::for_stub(&node.stub));
    daemon.wait_height(3);
    daemon.watch(D1);
    let paid = tx(&[coin(1)], &[(script(D1), 1_000)]);
    let txid = paid.compute_txid().to_string();
    // From one answer to the next the node behind the address is another one, and it has more blocks.
    {
        let mut state = node.state();
        state.info = json!({ "chain": "signet" });
    }
    node.mine(vec![paid]);
    daemon.wait_state("wrong_network", SIGNET_ID);
    wait_polls(&node.stub, 3);
    assert_eq!(daemon.count("SELECT max(height) FROM headers"), 3);
    assert_eq!(daemon.count("SELECT count(*) FROM txs"), 0);
    node.state().info = json!({});
    daemon.wait_deposit(&txid, 0, "confirming");
}

#[test]
fn c12_node_changed_behind_its_url_is_asked_again_who_it_is_and_undoes_nothing() {
    let node = FakeNode::regtest(2);
    let at_two = node.state().chain[2].block_hash();
    let setup = Setup {
        chain_lines: format!("start = 1\ncheckpoints = [{{ height = 2, hash = \"{at_two}\" }}]\n"),
        confirmations: 1,
        ..Setup::for_stub(&node.stub)
    };
    let mut daemon = Daemon::prepare(&setup);
    daemon.watch(D1);
    daemon.start_again();
    node.mine(vec![tx(&[coin(1)], &[(script(D1), 1_000)])]);
    daemon.wait_height(3);
    assert_eq!(daemon.net_sum(), 1_000);
    // The address leads to a node of a chain that began with the same blocks and has more work.
    let other = FakeNode::regtest(1);
    (0..9).for_each(|number| {
        other.mine(vec![tx(&[coin(100 + number)], &[(script(D1), 7)])]);
    });
    let ours = {
        let mut state = node.state();
        let theirs = other.state().chain.clone();
        let ours = std::mem::replace(&mut state.chain, theirs);
        node.stub.cut_connections();
        ours
    };
    let status = daemon.wait_state("wrong_network", &at_two.to_string());
    assert_eq!(status["is_halted"], true);
    wait_polls(&node.stub, 3);
    assert_eq!(daemon.events_of("credit.reversed").len(), 0);
    assert_eq!(daemon.count("SELECT count(*) FROM txs"), 1);
    assert_eq!(daemon.net_sum(), 1_000);
    node.state().chain = ours;
    daemon.wait_height(3);
    daemon.assert_sound();
}

#[test]
fn c12_configured_checkpoint_tells_a_fork_apart() {
    let node = FakeNode::regtest(5);
    let other = FakeNode::regtest(5);
    other.mine(vec![tx(&[coin(9)], &[(script(D1), 1)])]);
    let at_five = other.state().chain[5].block_hash();
    let wrong = "11".repeat(32);
    for (hash, is_right) in [(wrong.as_str(), false), (&at_five.to_string(), true)] {
        let setup = Setup {
            chain_lines: format!("checkpoints = [{{ height = 5, hash = \"{hash}\" }}]\n"),
            ..Setup::for_stub(&node.stub)
        };
        let daemon = Daemon::start(&setup);
        if is_right {
            daemon.wait_height(5);
        } else {
            let reason = daemon.wait_state("wrong_network", hash)["reason"].clone();
            assert!(
                reason.as_str().unwrap().contains(&at_five.to_string()),
                "{reason}"
            );
            assert_nothing_stored(&daemon);
        }
    }
}

#[test]
fn c12_node_below_its_checkpoint_credits_nothing_yet() {
    let node = FakeNode::regtest(3);
    let ahead = FakeNode::regtest(8);
    let at_eight = ahead.state().chain[8].block_hash();
    let setup = Setup {
        chain_lines: format!("start = 1\ncheckpoints = [{{ height = 8, hash = \"{at_eight}\" }}]\n"),
        confirmations: 1,
        ..Setup::for_stub(&node.stub)
    };
    let mut daemon = Daemon::prepare(&setup);
    daemon.watch(D1);
    daemon.start_again();
    daemon.wait_state("syncing", "");
    let paid = tx(&[coin(1)], &[(script(D1), 1_000)]);
    let txid = paid.compute_txid().to_string();
    node.mine(vec![paid]);
    daemon.wait_deposit(&txid, 0, "confirming");
    wait_polls(&node.stub, 3);
    assert_eq!(
        daemon.credits().len(),
        0,
        "which chain this is has not been shown yet"
    );
    // It turns out to be another chain than the checkpoint's.
    (5..=8).for_each(|_| drop(node.mine(Vec::new())));
    daemon.wait_state("wrong_network", &at_eight.to_string());
    assert_eq!(daemon.credits().len(), 0);
    daemon.assert_sound();
}

/// A mainnet node at `blocks`, as far as its identity goes, with block 1 for its tip.
fn main_node(blocks: u64, subversion: &'static str, at_478559: &'static str, tips: Value) -> StubNode {
    let genesis = bitcoin::constants::genesis_block(Network::Bitcoin);
    let first = Header {
        version: Version::ONE,
        prev_blockhash: genesis.block_hash(),
        merkle_root: "0e3e2357e806b6cdb1f70b54c3a3a17b6714ee1f0e68bebb44a74b1efd512098"
            .parse()
            .unwrap(),
        time: 1_231_469_665,
        bits: CompactTarget::from_consensus(0x1d00_ffff),
        nonce: 2_573_394_689,
    };
    let tip = first.block_hash().to_string();
    let stub = StubNode::alone();
    let info = json!({
        "chain": "main", "blocks": blocks, "headers": blocks, "bestblockhash": tip,
        "chainwork": format!("{:064x}", 0x2_0002_0002_u64), "initialblockdownload": false,
        "time": 1_231_469_665, "pruned": false,
    });
    let header_of = move |height: u64, header: &Header| {
        let mut fields = json!({
            "confirmations": 2 - height, "height": height, "version": 1, "time": header.time,
            "merkleroot": header.merkle_root.to_string(), "nonce": header.nonce, "bits": "1d00ffff",
            "chainwork": format!("{:064x}", 0x1_0001_0001_u64 * (height + 1)),
        });
        if height > 0 {
            fields["previousblockhash"] = json!(header.prev_blockhash.to_string());
        }
        fields
    };
    stub.handle(move |call: &Call| {
        Some(Reply::Result(match call.method.as_str() {
            "getblockchaininfo" => info.clone(),
            "getnetworkinfo" => json!({ "version": 290_100, "subversion": subversion }),
            "getblockhash" => match call.params[0].as_u64()? {
                0 => json!(genesis.block_hash().to_string()),
                1 => json!(tip),
                478_559 => json!(at_478559),
                _ => return Some(Reply::Error(-8, "Block height out of range")),
            },
            "getbestblockhash" => json!(tip),
            "getblockheader" if call.params[0] == json!("77".repeat(32)) => {
                json!({ "chainwork": "f".repeat(64) })
            }
            "getblockheader" if call.params[0] == json!(tip) => header_of(1, &first),
            "getblockheader" => header_of(0, &genesis.header),
            "getchaintips" => tips.clone(),
            "getrawmempool" => json!([]),
            _ => return None,
        }))
    });
    stub
}

fn main_setup(stub: &StubNode) -> Setup {
    Setup {
        network: "main".to_owned(),
        instance: String::new(),
        ..Setup::for_stub(stub)
    }
}

#[test]
fn c12_chains_that_share_the_genesis_of_bitcoin_are_told_apart() {
    let heavier_invalid = json!([
        { "height": 1, "hash": "00".repeat(32), "branchlen": 0, "status": "active" },
        { "height": 961_700, "hash": "77".repeat(32), "branchlen": 68, "status": "invalid" },
    ]);
    let cases = [
        (
            "Bitcoin Cash",
            900_000,
            "/Bitcoin Cash Node:28.0.0/",
            BCH_478559,
            json!([]),
            BTC_478559,
        ),
        (
            "its blocks under Core's name",
            900_000,
            CORE,
            BCH_478559,
            json!([]),
            BCH_478559,
        ),
        (
            "Knots",
            900_000,
            "/Satoshi:29.3.0/Knots:20260508/",
            BTC_478559,
            json!([]),
            "Knots:20260508",
        ),
        (
            "a comment in the name",
            900_000,
            "/Satoshi:29.3.0(a/b)/X:1/",
            BTC_478559,
            json!([]),
            "X:1",
        ),
        (
            "a heavier branch held invalid",
            900_000,
            CORE,
            BTC_478559,
            heavier_invalid,
            "961700",
        ),
    ];
    for (what, blocks, subversion, at_478559, tips, words) in cases {
        let stub = main_node(blocks, subversion, at_478559, tips);
        let mut daemon = Daemon::start(&main_setup(&stub));
        let status = daemon.wait_state("wrong_network", words);
        assert_eq!(status["chain_id"], MAIN_ID, "{what}");
        wait_polls(&stub, 3);
        assert_nothing_stored(&daemon);
        assert!(daemon.is_running(), "{what}");
    }
}

#[test]
fn c12_plain_core_is_accepted_and_lighter_invalid_branches_say_nothing() {
    let lighter = json!([{ "height": 1, "hash": "55".repeat(32), "branchlen": 1, "status": "invalid" }]);
    for tips in [json!([]), lighter] {
        let stub = main_node(1, CORE, BTC_478559, tips);
        let daemon = Daemon::start(&main_setup(&stub));
        // Far below the checkpoint, so it is catching up by definition; its chain is the right one so far.
        let status = daemon.wait_state("syncing", "catching up");
        assert_eq!(
            (&status["height"], &status["is_halted"]),
            (&json!(1), &json!(false))
        );
    }
}
