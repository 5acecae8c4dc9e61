//! Answers that a node, or what stands between, should never give: lies, halves, leftovers of another node.
//! None of them becomes money, none moves the cursor, and each is named.

use bitcoincore_rpc::bitcoin::consensus::encode::{serialize, serialize_hex};
use bitcoincore_rpc::bitcoin::{Amount, Block, CompactTarget};
use serde_json::{Value, json};

use crate::common::asks::{D1, script, wait_calls, wait_polls};
use crate::common::daemon::{Daemon, Setup};
use crate::common::fake_chain::{FakeNode, coin, grind, mine_exactly, tx};
use crate::common::stub::Reply;

/// A daemon at height 3 that credits at once, with one credit of 1,000 in block 3.
fn with_a_credit(node: &FakeNode) -> Daemon {
    node.mine(Vec::new());
    node.mine(vec![tx(&[coin(7)], &[(script(D1), 1_000)])]);
    let setup = Setup {
        confirmations: 1,
        chain_lines: "start = 1\n".to_owned(),
        ..Setup::for_stub(&node.stub)
    };
    let daemon = Daemon::watching(&setup, D1, 3);
    assert_eq!(daemon.net_sum(), 1_000);
    daemon
}

/// The books as they were after [`with_a_credit`].
#[track_caller]
fn assert_untouched(daemon: &Daemon, what: &str) {
    assert_eq!(
        daemon.count("SELECT cursor_height FROM chains"),
        3,
        "{what}: the cursor"
    );
    assert_eq!(daemon.count("SELECT count(*) FROM outputs"), 1, "{what}: outputs");
    assert_eq!(daemon.net_sum(), 1_000, "{what}: credits");
    assert_eq!(
        daemon.count("SELECT count(*) FROM journal"),
        1,
        "{what}: the journal"
    );
    daemon.assert_sound();
}

fn hex(bytes: &[u8]) -> Value {
    json!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

type Spoil = fn(&Block) -> Reply;

/// What is done to the block that pays us, the state it leads to, and words of the reason.
const SPOILT_BLOCKS: [(&str, Spoil, &str, &str); 11] = [
    (
        "an amount that was altered",
        |block| {
            let mut block = block.clone();
            block.txdata[1].output[0].value = Amount::from_sat(900_000_000);
            Reply::Result(json!(serialize_hex(&block)))
        },
        "bad_block",
        "merkle root",
    ),
    (
        "a payment that was added",
        |block| {
            let mut block = block.clone();
            block.txdata.push(tx(&[coin(5)], &[(script(D1), 5)]));
            Reply::Result(json!(serialize_hex(&block)))
        },
        "bad_block",
        "merkle root",
    ),
    (
        "the payment taken out",
        |block| {
            let mut block = block.clone();
            block.txdata.pop();
            Reply::Result(json!(serialize_hex(&block)))
        },
        "bad_block",
        "merkle root",
    ),
    (
        "transactions twice under the same root",
        |block| {
            let mut block = block.clone();
            block.txdata.extend(block.txdata.clone().into_iter().skip(2));
            Reply::Result(json!(serialize_hex(&block)))
        },
        "bad_block",
        "twice",
    ),
    (
        "another block than was asked for",
        |block| {
            let other = mine_exactly(block.header.prev_blockhash, 1, block.txdata.clone());
            Reply::Result(json!(serialize_hex(&other)))
        },
        "unreachable",
        "the answer is block",
    ),
    (
        "half of the block",
        |block| {
            let bytes = serialize(block);
            Reply::Result(hex(&bytes[..bytes.len() / 2]))
        },
        "unreachable",
        "cannot decode",
    ),
    (
        "all but the last byte",
        |block| {
            let bytes = serialize(block);
            Reply::Result(hex(&bytes[..bytes.len() - 1]))
        },
        "unreachable",
        "cannot decode",
    ),
    (
        "a byte too much",
        |block| Reply::Result(hex(&[serialize(block), vec![0]].concat())),
        "unreachable",
        "after its last transaction",
    ),
    (
        "nothing",
        |_| Reply::Result(json!("")),
        "unreachable",
        "cannot decode",
    ),
    ("null", |_| Reply::Result(Value::Null), "unreachable", "getblock"),
    (
        "an error inside a 200",
        |_| Reply::ErrorIn200(-32603, "upstream timed out"),
        "unreachable",
        "upstream timed out",
    ),
];

/// Puts a block on the node's tip, of which it sends `reply`, over RPC and over REST.
fn show(node: &FakeNode, block: &Block, reply: &Reply) {
    let rest = match reply {
        Reply::Result(Value::String(hex)) => {
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            Reply::Bytes((0..hex.len()).step_by(2).map(byte).collect())
        }
        // REST has no words for it, so the daemon asks again over RPC.
        _ => Reply::Text(404, "not found"),
    };
    let mut state = node.state();
    state.overrides.insert("getblock".to_owned(), reply.clone());
    if state.is_rest_on {
        state.overrides.insert("rest/block".to_owned(), rest);
    }
    state.chain.push(block.clone());
}

#[test]
fn lying_or_broken_block_gives_no_credit_and_is_named() {
    for is_rest_on in [false, true] {
        let node = FakeNode::regtest(1);
        node.state().is_rest_on = is_rest_on;
        let daemon = with_a_credit(&node);
        // An odd number of transactions, so that the last can be repeated under the same root.
        let pays = |number| tx(&[coin(number)], &[(script(D1), 50_000)]);
        let honest = {
            let parent = node.state().tip().clone();
            let all = [parent.txdata[0].clone(), pays(1), pays(2)];
            mine_exactly(parent.block_hash(), parent.header.time + 600, all.to_vec())
        };
        for (what, spoil, state, words) in SPOILT_BLOCKS {
            show(&node, &honest, &spoil(&honest));
            daemon.wait_state(state, words);
            wait_polls(&node.stub, 2);
            assert_untouched(&daemon, what);
            // A good round in between, or the pauses between looks would grow from fault to fault.
            node.state().chain.truncate(4);
            daemon.wait_height(3);
        }
        let halts = daemon.events_of("chain.halted");
        assert!(!halts.is_empty(), "operators are told of a bad block");
        node.state().chain.push(honest);
        node.state().overrides.clear();
        daemon.wait_height(4);
        assert_eq!(daemon.net_sum(), 101_000, "the honest block, once");
        assert_eq!(daemon.credits().len(), 3);
        daemon.assert_sound();
    }
}

type SpoilHeader = fn(&mut Block);

#[test]
fn header_without_the_work_it_claims_is_a_bad_block() {
    let spoils: [(SpoilHeader, &str); 3] = [
        (
            |block| {
                while block.header.target().is_met_by(block.block_hash()) {
                    block.header.nonce += 1;
                }
            },
            "above its target",
        ),
        (
            |block| {
                // Easier than the network allows.
                block.header.bits = CompactTarget::from_consensus(0x2100_ffff);
                grind(&mut block.header);
            },
            "none of this network",
        ),
        (
            |block| block.header.bits = CompactTarget::from_consensus(0),
            "none of this network",
        ),
    ];
    for (spoil, words) in spoils {
        let node = FakeNode::regtest(1);
        let mut daemon = with_a_credit(&node);
        let mut block = node.mine(vec![tx(&[coin(1)], &[(script(D1), 50_000)])]);
        node.back_to(3);
        spoil(&mut block);
        node.state().chain.push(block);
        daemon.wait_state("bad_block", words);
        wait_polls(&node.stub, 2);
        assert_untouched(&daemon, words);
        // The node comes to its senses, and the chain goes on by itself.
        node.back_to(3);
        node.mine(Vec::new());
        daemon.wait_height(4);
        assert!(daemon.is_running());
    }
}

#[test]
fn node_with_a_lower_tip_undoes_nothing() {
    let node = FakeNode::regtest(1);
    let mut daemon = with_a_credit(&node);
    let [two, three] = [2, 3].map(|height: usize| node.state().chain[height].clone());
    // Restarted from an older folder: it does not even know our tip.
    let forget = |node: &FakeNode| node.state().stale.clear();
    node.back_to(1);
    forget(&node);
    daemon.wait_state("behind", "the node is at height 1, we are at 3 on the same chain");
    // The table's column says what the reason says.
    let status = daemon.json(&["chain", "status"]);
    assert_eq!(status["chains"][0]["node_height"], 1, "{status}");
    wait_polls(&node.stub, 3);
    assert_untouched(&daemon, "a lower tip");
    // The same while the daemon starts.
    daemon.stop();
    daemon.start_again();
    daemon.wait_state("behind", "on the same chain");
    assert_untouched(&daemon, "a lower tip at the start");
    // The other half of the folder: one stale block of old, with less work than ours has.
    let stale = tx(&[coin(70)], &[(script(D1), 7_777)]);
    node.mine(vec![stale]);
    daemon.wait_state("behind", "no better than ours");
    wait_polls(&node.stub, 3);
    assert_untouched(&daemon, "a worse branch");
    // It catches up.
    node.back_to(1);
    node.state().chain.extend([two, three]);
    node.mine(Vec::new());
    daemon.wait_height(4);
    assert_eq!(daemon.events_of("credit.reversed").len(), 0);
    assert_eq!(daemon.net_sum(), 1_000);
    daemon.assert_sound();
}

#[test]
fn longer_branch_with_less_work_is_not_taken() {
    let node = FakeNode::regtest(1);
    let daemon = with_a_credit(&node);
    node.back_to(2);
    for _ in 0..5 {
        node.mine(Vec::new());
    }
    // The headers say the same difficulty; the node, asked for its work, admits that it is less.
    node.state().info = json!({ "chainwork": format!("{:064x}", 5) });
    daemon.wait_state("behind", "no better than ours");
    wait_polls(&node.stub, 3);
    assert_untouched(&daemon, "less work");
    node.state().info = json!({});
    daemon.wait_height(7);
    assert_eq!(daemon.net_sum(), 0, "a better branch without the payment");
    daemon.assert_sound();
}

#[test]
fn more_work_claimed_than_the_headers_have_reverses_nothing() {
    // A node that claims work it cannot show: the branch itself must be heavier than ours.
    let node = FakeNode::regtest(1);
    let daemon = with_a_credit(&node);
    node.back_to(1);
    node.mine(Vec::new());
    node.state().info = json!({ "chainwork": "f".repeat(64) });
    daemon.wait_state("behind", "");
    wait_polls(&node.stub, 3);
    assert_untouched(&daemon, "work that is only claimed");
}

#[test]
fn tip_of_one_node_and_blocks_of_another_wait() {
    let node = FakeNode::regtest(1);
    let daemon = with_a_credit(&node);
    let parent = node.state().tip().clone();
    let pays = vec![parent.txdata[0].clone(), tx(&[coin(1)], &[(script(D1), 50_000)])];
    let block = mine_exactly(parent.block_hash(), parent.header.time + 600, pays);
    let above = mine_exactly(
        block.block_hash(),
        parent.header.time + 1_200,
        parent.txdata[..1].to_vec(),
    );
    let tip = block.block_hash().to_string();
    // Of a balancer's two nodes one has the new block and one has not; each answers some of the calls.
    let lagging: [(&str, Reply); 5] = [
        ("getblockhash", Reply::Error(-8, "Block height out of range")),
        ("getblock", Reply::Error(-5, "Block not found")),
        (
            "getblock",
            Reply::Error(-1, "Block not available (not fully downloaded)"),
        ),
        // A hash that is no child of our tip.
        (
            "getblockhash",
            Reply::Result(json!(node.state().chain[1].block_hash().to_string())),
        ),
        ("getblockhash", Reply::Result(json!("ab".repeat(32)))),
    ];
    for (method, reply) in lagging {
        let what = format!("{method} {reply:?}");
        {
            let mut state = node.state();
            state.overrides = [(method.to_owned(), reply)].into();
            state.chain.extend([block.clone(), above.clone()]);
        }
        wait_calls(&node.stub, method, 2);
        wait_polls(&node.stub, 2);
        assert_untouched(&daemon, &what);
        {
            let mut state = node.state();
            state.overrides.clear();
            state.chain.truncate(4);
        }
        // A round that began under this answer ends before the next one begins.
        wait_polls(&node.stub, 2);
    }
    node.state().chain.extend([block, above]);
    daemon.wait_height(5);
    assert_eq!(daemon.net_sum(), 51_000);
    let story = daemon.credits().pop().unwrap();
    assert_eq!(
        daemon.tx(story["txid"].as_str().unwrap()).unwrap()["blocks"][0]["hash"],
        tip
    );
    daemon.assert_sound();
}

#[test]
fn our_tip_unknown_to_one_node_of_two_is_no_reorg() {
    let node = FakeNode::regtest(1);
    let daemon = with_a_credit(&node);
    let unknown = Reply::Error(-5, "Block not found");
    node.state()
        .overrides
        .insert("getblockheader".to_owned(), unknown);
    node.mine(vec![tx(&[coin(1)], &[(script(D1), 50_000)])]);
    daemon.wait_height(4);
    assert_eq!(daemon.net_sum(), 51_000);
    assert!(!daemon.log().contains("reorg"), "{}", daemon.log());
    daemon.assert_sound();
}

#[test]
fn one_failed_entry_of_a_batch_fails_that_entry_alone() {
    let node = FakeNode::regtest(1);
    let daemon = with_a_credit(&node);
    let mine = |number: u32| node.mine(vec![tx(&[coin(number)], &[(script(D1), 10_000)])]);
    for reply in [
        Reply::Error(-32603, "upstream"),
        Reply::Result(Value::Null),
        Reply::WrongId(json!("00".repeat(32))),
        Reply::Text(503, "Work queue depth exceeded"),
    ] {
        node.stub.once("getblockhash", reply);
        let number = u32::try_from(node.height()).unwrap();
        mine(number);
        daemon.wait_height(node.height());
    }
    assert_eq!(daemon.net_sum(), 41_000);
    assert_eq!(daemon.credits().len(), 5);
    daemon.assert_sound();
}

#[test]
fn mempool_list_during_which_the_tip_moved_says_nothing() {
    let node = FakeNode::regtest(3);
    let setup = Setup {
        chain_lines: "evict_after_secs = 1\n".to_owned(),
        ..Setup::for_stub(&node.stub)
    };
    let daemon = Daemon::watching(&setup, D1, 3);
    let before = tx(&[coin(1)], &[(script(D1), 1_000)]);
    let [seen, hidden] = [&before, &tx(&[coin(2)], &[(script(D1), 2_000)])].map(Clone::clone);
    let [seen_id, hidden_id] = [&seen, &hidden].map(|tx| tx.compute_txid().to_string());
    node.state().mempool = vec![seen];
    daemon.wait_deposit(&seen_id, 0, "seen");
    let polls = daemon.count("SELECT mempool_poll FROM chains");
    node.state().is_tip_moving = true;
    node.state().mempool = vec![hidden];
    wait_calls(&node.stub, "getrawmempool", 5);
    assert_eq!(daemon.deposit(&hidden_id, 0), None);
    assert_eq!(daemon.deposit(&seen_id, 0).unwrap()["state"], "seen");
    assert_eq!(
        daemon.count("SELECT mempool_poll FROM chains"),
        polls,
        "none was applied"
    );
    node.state().is_tip_moving = false;
    daemon.wait_deposit(&hidden_id, 0, "seen");
}

#[test]
fn error_inside_a_200_to_any_call_is_an_error() {
    let node = FakeNode::regtest(1);
    let daemon = with_a_credit(&node);
    for method in [
        "getblockchaininfo",
        "getrawmempool",
        "getblockhash",
        "getblock",
        "getnetworkinfo",
    ] {
        let reply = Reply::ErrorIn200(-32000, "backend is busy");
        if method == "getnetworkinfo" {
            // Asked only of a node that was out of reach.
            node.state()
                .overrides
                .insert("getblockchaininfo".to_owned(), reply.clone());
            daemon.wait_state("unreachable", "backend is busy");
            node.state().overrides.clear();
        }
        node.state().overrides.insert(method.to_owned(), reply);
        let height = node.height() + 1;
        node.mine(Vec::new());
        daemon.wait_state("unreachable", "backend is busy");
        assert_eq!(daemon.net_sum(), 1_000);
        node.state().overrides.clear();
        daemon.wait_height(height);
    }
    daemon.assert_sound();
}
