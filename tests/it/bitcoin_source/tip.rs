//! Where the node stands, its headers, and waiting for the next block.

use super::*;

#[tokio::test]
async fn tip_says_where_the_node_stands() {
    let node = FakeNode::regtest(5);
    let source = source(config(&node));
    let tip = source.tip().await.unwrap();
    let (hash, time) = {
        let state = node.state();
        (ours(state.tip().block_hash()), u64::from(state.tip().header.time))
    };
    assert_eq!(
        (tip.hash, tip.height, tip.headers, tip.time_secs),
        (hash, 5, 5, time)
    );
    assert_eq!(
        (tip.is_syncing, tip.pruned_below, tip.credit_ceiling),
        (false, None, None)
    );
    let held = source.header(hash).await.unwrap().unwrap().held;
    assert_eq!((held.height, held.chainwork), (5, tip.chainwork));

    let cases = [
        (json!({"initialblockdownload": true}), true, None),
        (json!({"headers": 9}), true, None),
        (json!({"pruned": true, "pruneheight": 3}), false, Some(3)),
        (json!({"pruned": true}), false, Some(0)),
        (json!({"time": null, "warnings": null}), false, None),
    ];
    for (info, is_syncing, pruned_below) in cases {
        node.state().info = info.clone();
        let tip = source.tip().await.unwrap();
        assert_eq!(
            (tip.is_syncing, tip.pruned_below, tip.time_secs),
            (is_syncing, pruned_below, time),
            "{info}"
        );
    }
}

#[tokio::test]
async fn c29_dialects_of_the_node_make_no_difference() {
    let node = FakeNode::regtest(2);
    let block = node.mine(vec![tx(&[coin(1)], &[(script(1), 1_000_000)])]);
    let index = index_of(&[&script(1)]);
    for dialect in [
        json!({"warnings": ""}),
        json!({"warnings": []}),
        json!({"warnings": ["a", "b"]}),
        json!({"warnings": null}),
        json!({"new field": {"deep": [1, 2.5, null]}, "softforks": {"a": {}}}),
    ] {
        node.state().info = dialect.clone();
        node.state().network_info =
            json!({"subversion": "/Satoshi:28.1.0/", "warnings": dialect["warnings"]});
        let source = source(config(&node));
        source.identity().await.unwrap();
        source.tip().await.unwrap();
        let scanned = source.block(ours(block.block_hash()), &index).await.unwrap();
        assert_eq!(amounts(&scanned), [1_000_000], "{dialect}");
    }
    node.state().info = json!({"blocks": "3"});
    let error = source(config(&node)).tip().await.unwrap_err().to_string();
    assert!(
        error.contains("getblockchaininfo") && error.contains("blocks"),
        "{error}"
    );
    assert!(!error.contains("connect"), "{error}");
}

/// Numbers that no chain has: past what the database keeps, past what the node's own software counts to.
#[tokio::test]
async fn absurd_numbers_are_a_bad_answer_that_names_the_field() {
    let (past_signed, last) = (1_u64 << 63, u64::MAX);
    let node = FakeNode::regtest(3);
    let source = source(config(&node));
    for number in [1 << 32, past_signed, last] {
        for field in ["blocks", "headers", "pruneheight", "time"] {
            let mut info = json!({"pruned": true});
            info[field] = json!(number);
            node.state().info = info;
            assert_odd(source.tip().await, field);
        }
        node.state().info = json!({});
        for field in ["height", "branchlen"] {
            let mut tip =
                json!({"height": 4, "hash": "5a".repeat(32), "branchlen": 1, "status": "headers-only"});
            tip[field] = json!(number);
            node.state().odd_tips = vec![tip];
            assert_odd(source.tip().await, field);
        }
        node.state().odd_tips.clear();
        for field in ["height", "confirmations", "time", "version", "nonce"] {
            let mut extra = json!({});
            extra[field] = json!(number);
            node.state().header_extra = extra;
            let hash = ours(node.state().tip().block_hash());
            assert_odd(source.header(hash).await, field);
        }
        node.state().header_extra = json!({});
        assert_eq!(source.hashes(number, 5).await.unwrap(), [], "{number}");
        assert_eq!(source.hashes(number - 2, 5).await.unwrap(), [], "{number}");
    }
    let hash = ours(node.state().tip().block_hash());
    for (field, value) in [("chainwork", json!("f".repeat(64))), ("confirmations", json!(-2))] {
        node.state().header_extra = json!({field: value});
        assert_odd(source.header(hash).await, field);
    }
    node.state().header_extra = json!({});
    source.tip().await.unwrap();
}

#[track_caller]
fn assert_odd<T: std::fmt::Debug>(answer: Result<T, SourceError>, field: &str) {
    match answer {
        Err(error @ SourceError::Unreachable { .. }) => {
            assert!(error.to_string().contains(field), "{field}: {error}");
        }
        other => panic!("{field}: {other:?}"),
    }
}

/// A branch that the node knows besides its own.
struct Branch(&'static str, u64, u64, u64);

#[tokio::test]
async fn nothing_is_credited_above_the_fork_point_of_a_better_branch() {
    let node = FakeNode::regtest(10);
    let own_work = 22;
    // Status, height, length, work.
    let cases = [
        (
            "better",
            vec![Branch("headers-only", 14, 7, own_work + 8)],
            Some(7),
        ),
        ("as good", vec![Branch("valid-fork", 10, 3, own_work)], None),
        ("worse", vec![Branch("valid-headers", 9, 2, own_work - 2)], None),
        (
            "shorter but better",
            vec![Branch("valid-headers", 9, 2, own_work + 1)],
            Some(7),
        ),
        ("invalid", vec![Branch("invalid", 19, 12, own_work * 2)], None),
        ("unheard of", vec![Branch("odd", 19, 12, own_work * 2)], None),
        (
            "several: the lowest fork point",
            vec![
                Branch("valid-fork", 14, 6, own_work + 8),
                Branch("headers-only", 13, 9, own_work + 6),
            ],
            Some(4),
        ),
    ];
    for (name, branches, expected) in cases {
        {
            let mut state = node.state();
            state.odd_tips.clear();
            for (place, Branch(status, height, branchlen, work)) in branches.into_iter().enumerate() {
                let hash = format!("{place:02x}").repeat(32);
                let tip = json!({"height": height, "hash": hash, "branchlen": branchlen, "status": status});
                state.odd_tips.push(tip);
                state.odd_work.insert(hash, work);
            }
        }
        let tip = source(config(&node)).tip().await.unwrap();
        assert_eq!(tip.credit_ceiling, expected, "{name}");
    }
}

#[tokio::test]
async fn branches_are_asked_for_only_when_something_moved() {
    let node = FakeNode::regtest(10);
    let source = source(config(&node));
    for _ in 0..3 {
        source.tip().await.unwrap();
    }
    assert_eq!(node.stub.count("getchaintips"), 1);
    let hash = "11".repeat(32);
    {
        let mut state = node.state();
        state.info = json!({"headers": 14});
        state.odd_tips = vec![json!({"height": 14, "hash": hash, "branchlen": 7, "status": "headers-only"})];
        state.odd_work.insert(hash, 30);
    }
    assert_eq!(
        source.tip().await.unwrap().credit_ceiling,
        Some(7),
        "headers came, the tip stayed"
    );
    assert_eq!(source.tip().await.unwrap().credit_ceiling, Some(7));
    assert_eq!(
        (node.stub.count("getchaintips"), node.stub.count("getblockheader")),
        (2, 1)
    );
    node.mine(vec![]);
    source.tip().await.unwrap();
    assert_eq!(
        (node.stub.count("getchaintips"), node.stub.count("getblockheader")),
        (3, 1)
    );
}

// ---- headers ----

#[tokio::test]
async fn header_is_found_by_hash_on_and_off_the_chain() {
    let node = FakeNode::regtest(5);
    let left = node.state().chain[4].block_hash();
    node.back_to(3);
    node.mine(vec![tx(&[coin(1)], &[(script(1), 1)])]);
    let source = source(config(&node));
    let stale = source.header(ours(left)).await.unwrap().unwrap();
    assert_eq!((stale.held.height, stale.is_active), (4, false));
    let active = node.state().chain[4].clone();
    let info = source.header(ours(active.block_hash())).await.unwrap().unwrap();
    assert_eq!((info.held.height, info.is_active), (4, true));
    assert_eq!(info.held.header.parent, ours(active.header.prev_blockhash));
    assert_eq!(info.held.header.time_secs, u64::from(active.header.time));
    assert_eq!(info.held.header.bits, active.header.bits.to_consensus());
    assert_eq!(source.header(BlockHash([3; 32])).await.unwrap(), None);
    let genesis = source.header(Network::Regtest.genesis()).await.unwrap().unwrap();
    assert_eq!(
        (genesis.held.height, genesis.held.header.parent),
        (0, BlockHash([0; 32]))
    );

    let mut other = node.state().chain[2].clone();
    other.header.time += 1;
    let claimed = ours(node.state().chain[2].block_hash());
    let fields = json!({
        "confirmations": 3, "height": 2, "version": 2, "merkleroot": other.header.merkle_root.to_string(),
        "time": other.header.time, "nonce": other.header.nonce, "bits": "207fffff",
        "chainwork": "00".repeat(32), "previousblockhash": other.header.prev_blockhash.to_string(),
    });
    node.stub.once("getblockheader", Reply::Result(fields));
    let error = source.header(claimed).await.unwrap_err();
    assert!(matches!(error, SourceError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn hashes_end_at_the_tip() {
    let node = FakeNode::regtest(1_200);
    let source = source(config(&node));
    let all: Vec<BlockHash> = node
        .state()
        .chain
        .iter()
        .map(|block| ours(block.block_hash()))
        .collect();
    assert_eq!(source.hashes(0, 3).await.unwrap(), all[..3]);
    assert_eq!(source.hashes(1_195, 10).await.unwrap(), all[1_195..]);
    assert_eq!(
        source.hashes(0, 9_999).await.unwrap(),
        all,
        "more than one exchange"
    );
    assert!(source.hashes(1_201, 10).await.unwrap().is_empty());
    assert!(source.hashes(0, 0).await.unwrap().is_empty());
}

// ---- waiting ----

const SPAN: Duration = Duration::from_millis(400);

/// How long one wait took.
async fn waited(source: &BitcoinSource<HttpDial>, tip: BlockHash) -> Duration {
    let clock = Clock::real();
    let began = clock.instant();
    source.wait(tip, SPAN).await;
    clock.instant() - began
}

#[tokio::test]
async fn wait_ends_with_a_new_tip_but_only_once_for_the_same() {
    let node = FakeNode::regtest(3);
    let source = source(config(&node));
    let tip = ours(node.state().tip().block_hash());
    let next = node.mine(vec![]);
    assert!(
        waited(&source, tip).await < SPAN,
        "a block that came before the wait began"
    );
    assert!(
        waited(&source, tip).await >= SPAN,
        "a follower that does not go there must not spin"
    );

    let tip = ours(next.block_hash());
    let newer = mine(next.block_hash(), 5, vec![]).block_hash();
    let news = Reply::Result(json!({"hash": newer.to_string(), "height": 5}));
    node.stub.once("waitfornewblock", news);
    assert!(waited(&source, tip).await < SPAN);
}

#[tokio::test]
async fn wait_lasts_its_span_when_the_node_fails_at_once() {
    let mut node = FakeNode::regtest(3);
    let source = source(config(&node));
    let tip = ours(node.state().tip().block_hash());
    assert!(waited(&source, tip).await >= SPAN, "method not found");
    let same = Reply::Result(json!({"hash": tip.to_string(), "height": 3}));
    node.stub.once("waitfornewblock", same);
    assert!(waited(&source, tip).await >= SPAN, "too early");
    node.stub.refuse();
    assert!(waited(&source, tip).await >= SPAN, "refused");
}

#[tokio::test]
async fn dropped_wait_does_not_take_a_second_thread_of_the_node() {
    let node = FakeNode::regtest(3);
    let source = source(config(&node));
    let tip = ours(node.state().tip().block_hash());
    node.state()
        .overrides
        .insert("waitfornewblock".to_owned(), Reply::Hang);
    for _ in 0..3 {
        let wait = source.wait(tip, Duration::from_secs(60));
        let _ = tokio::time::timeout(Duration::from_millis(100), wait).await;
    }
    assert_eq!(node.stub.count("waitfornewblock"), 1);
    source.tip().await.unwrap();
}
