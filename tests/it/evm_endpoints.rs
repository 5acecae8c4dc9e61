//! Several endpoints of one EVM chain: who is asked, who is passed over, who is never used.

mod rig;
mod wire;

use std::time::Duration;

use creditd::chain::evm::endpoints::Standing;
use creditd::chain::evm::fields::Account;
use creditd::chain::evm::{EvmRules, Inner, NativeRule, TokenRule};
use creditd::chain::{ChainSource as _, SourceError};
use creditd::config::Checkpoint;
use creditd::index::Index;
use creditd::rules::{ChainId, TaggedBlock};

use rig::{Rig, Trouble, block, text};

#[tokio::test(start_paused = true)]
async fn c12_an_endpoint_on_another_chain_is_refused_naming_both_ids() {
    let rig = Rig::new(1, 1, &[]);
    rig.nodes[0].state().chain_id = 1;
    for _ in 0..2 {
        let error = rig.ask().await.unwrap_err();
        assert!(matches!(error, SourceError::WrongNetwork(_)), "{error}");
        assert_eq!(
            text(error),
            "wrong network: p: the config says eip155:31337@test, it is on eip155:1"
        );
    }
    assert_eq!(rig.nodes[0].asked(), 3, "only who it is, and once");
    // It is not asked again even when it is mended: it may be a balancer.
    rig.nodes[0].state().chain_id = 31_337;
    rig.ask().await.unwrap_err();
    assert_eq!(
        rig.standing("p"),
        "not used until a restart: the config says eip155:31337@test, it is on eip155:1"
    );
}

#[tokio::test(start_paused = true)]
async fn c12_a_dead_endpoint_stops_nothing_and_is_checked_before_its_first_use() {
    let rig = Rig::new(2, 1, &[]);
    rig.nodes[0].set(Trouble::Hangs);
    assert_eq!(rig.ask().await.unwrap(), "q");
    assert_eq!(
        rig.standing("p"),
        "unreachable for 0 s: no whole answer within 10000 ms"
    );
    let before = rig.clock.instant();
    for _ in 0..5 {
        assert_eq!(rig.ask().await.unwrap(), "q");
    }
    assert_eq!(
        rig.clock.instant(),
        before,
        "the dead one costs its deadline once"
    );
    // Alive again, and another chain: it is found out before anything of it is used.
    rig.nodes[0].set(Trouble::None);
    rig.nodes[0].state().chain_id = 1;
    rig.run(120).await;
    assert_eq!(rig.current(), "q");
    assert!(
        rig.standing("p").starts_with("not used until a restart"),
        "{}",
        rig.standing("p")
    );
}

#[tokio::test(start_paused = true)]
async fn c12_an_endpoint_that_changes_chains_is_found_out_at_the_reconnect() {
    let rig = Rig::new(2, 1, &[]);
    assert_eq!(rig.ask().await.unwrap(), "p");
    rig.run(3_600).await;
    rig.nodes[0].state().chain_id = 1;
    // The connection breaks, and whoever takes the next one is another.
    rig.nodes[0].state().dials += 1;
    assert_eq!(rig.ask().await.unwrap(), "q", "nothing of p is used");
    assert!(
        rig.standing("p").starts_with("not used until a restart"),
        "{}",
        rig.standing("p")
    );
    assert_eq!(rig.endpoints.list()[0].tip, None);
    rig.run(300).await;
    assert_eq!(rig.current(), "q");
}

/// The connection that was idle is closed, the question goes over a new one, and no error tells of it.
#[tokio::test(start_paused = true)]
async fn c12_an_answer_over_a_new_connection_counts_only_once_that_is_proven() {
    let rig = Rig::new(2, 1, &[]);
    rig.run(5).await;
    rig.nodes[0].state().taken_over_by = Some(1);
    assert_eq!(rig.ask().await.unwrap(), "q", "p answered, and was another");
    assert!(
        rig.standing("p").starts_with("not used until a restart"),
        "{}",
        rig.standing("p")
    );
    let rig = Rig::new(1, 1, &[]);
    rig.ask().await.unwrap();
    rig.nodes[0].state().taken_over_by = Some(31_337);
    assert_eq!(rig.ask().await.unwrap(), "p");
}

/// A balancer may keep the connection and send us elsewhere.
#[tokio::test(start_paused = true)]
async fn who_an_endpoint_is_is_asked_again_after_a_while() {
    let rig = Rig::new(1, 1, &[]);
    rig.ask().await.unwrap();
    rig.nodes[0].state().chain_id = 1;
    rig.clock.sleep(Duration::from_secs(61)).await;
    let error = rig.ask().await.unwrap_err();
    assert!(matches!(error, SourceError::WrongNetwork(_)), "{error}");
}

/// It downloads the chain, and is asked for its tip again and again meanwhile.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_moves_far_behind_another_is_left_and_gone_back_to() {
    let rig = Rig::new(2, 1, &[]);
    rig.nodes[0].fork(0, 1, 0);
    for height in 1..55 {
        rig.nodes[0].fork(0, height, height);
        rig.run(1).await;
    }
    assert_eq!(rig.current(), "p");
    for height in 55..90 {
        rig.nodes[0].fork(0, height, height);
        rig.run(1).await;
    }
    assert_eq!(rig.current(), "q");
    rig.nodes[0].fork(0, 90, 100);
    rig.run(100).await;
    assert_eq!(rig.current(), "p");
}

/// One bad answer in between takes nobody's payments away.
#[tokio::test(start_paused = true)]
async fn a_token_is_unlisted_by_the_first_answer_since_the_start_alone() {
    for (first, later, unlisted) in [(6, 18, 0), (18, 6, 1)] {
        let (source, nodes, _) = Rig::new(1, 1, &[]).source(one_token());
        nodes[0].state().decimals = first;
        assert_eq!(
            source.identity().await.unwrap().unlisted.len(),
            unlisted,
            "{first}"
        );
        assert_eq!(source.complaint(), "");
        nodes[0].state().decimals = later;
        assert_eq!(
            source.identity().await.unwrap().unlisted.len(),
            unlisted,
            "{later}"
        );
        let complaint = "a node contradicts the decimals of token 0x0707070707070707070707070707070707070707";
        assert_eq!(source.complaint(), if later == 18 { complaint } else { "" });
        nodes[0].state().decimals = 6;
        source.identity().await.unwrap();
        assert_eq!(source.complaint(), "");
    }
}

/// A node that is only starting refuses as one does that never shows its pool.
#[tokio::test(start_paused = true)]
async fn a_pool_that_was_refused_once_is_asked_for_again() {
    let rules = EvmRules {
        native: Some(NativeRule::by(Inner::Unseen)),
        lists_pending: true,
        ..one_token()
    };
    let (source, nodes, clock) = Rig::new(1, 1, &[]).source(rules);
    // (seconds since the last look, shown, asked for, whole)
    for (secs, shows_pool, asked, is_complete) in [
        (0, true, 1, true),
        (0, false, 1, false),
        (29, true, 0, false),
        (1, true, 1, true),
        (0, false, 1, false),
        (30, false, 1, false),
        (29, true, 0, false),
    ] {
        clock.sleep(Duration::from_secs(secs)).await;
        nodes[0].state().shows_pool = shows_pool;
        let list = source.mempool(&Index::default()).await.unwrap().unwrap();
        assert_eq!(
            (nodes[0].asked_for("txpool_content"), list.is_complete),
            (asked, is_complete),
            "after {secs} s, shown: {shows_pool}"
        );
    }
}

/// Our own looks are quicker than it answers.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_slower_than_our_looks_is_seen_all_the_same() {
    let (source, nodes, _) = Rig::new(2, 1, &[]).source(one_token());
    nodes[1].set(Trouble::Slow);
    for _ in 0..30 {
        source.identity().await.unwrap();
        source.wait(block(0, 100), Duration::from_secs(1)).await;
    }
    let slow = &source.endpoints().list()[1];
    assert_eq!(slow.tip.unwrap().block.height, 100);
}

fn one_token() -> EvmRules {
    let rule = TokenRule {
        symbol: "TUSD".to_owned(),
        decimals: 6,
        is_balance_checked: false,
        is_unindexed: false,
    };
    EvmRules {
        chain: ChainId::evm(31_337, Some("test")),
        tokens: [(Account([7; 20]), rule)].into(),
        native: None,
        has_bloom: true,
        lists_pending: false,
    }
}

#[tokio::test(start_paused = true)]
async fn another_first_block_and_another_checkpoint_are_other_chains() {
    let checkpoint = Checkpoint {
        height: 50,
        hash: block(0, 50),
    };
    let rig = Rig::new(3, 1, &[checkpoint]);
    rig.nodes[1].fork(9, 0, 100);
    rig.nodes[2].fork(7, 50, 100);
    rig.ask().await.unwrap();
    rig.nodes[0].set(Trouble::Down);
    let told = text(rig.ask().await.unwrap_err());
    let parts: Vec<&str> = told.split("; ").collect();
    assert!(
        parts[0].contains("ask for the tip: p: connection refused"),
        "{told}"
    );
    assert!(
        parts[1].starts_with("q: its first block is 0x0000000000000000090909"),
        "{told}"
    );
    assert!(parts[1].ends_with("(by p)"), "{told}");
    assert!(parts[2].starts_with("r: at height 50 it has block "), "{told}");
    rig.nodes[0].set(Trouble::None);
    assert_eq!(rig.ask().await.unwrap(), "p");
    assert_eq!(rig.endpoints.unproven_above(), None);

    let above = Checkpoint {
        height: 200,
        hash: block(0, 200),
    };
    let rig = Rig::new(1, 1, &[checkpoint, above]);
    rig.ask().await.unwrap();
    assert_eq!(
        rig.endpoints.unproven_above(),
        Some(50),
        "it has not got there yet"
    );
    rig.nodes[0].fork(0, 0, 300);
    rig.run(61).await;
    assert_eq!(rig.endpoints.unproven_above(), None);
}

/// Over its limit, an endpoint is left alone until its time has come.
#[tokio::test(start_paused = true)]
async fn an_endpoint_over_its_limit_is_passed_over_and_left_alone() {
    let rig = Rig::new(2, 1, &[]);
    rig.ask().await.unwrap();
    rig.nodes[0].asked();
    rig.nodes[0].set(Trouble::Limits(20));
    assert_eq!(rig.ask().await.unwrap(), "q");
    assert_eq!(
        rig.standing("p"),
        "over its limit, left alone for 20 s: HTTP status 429: "
    );
    rig.run(19).await;
    assert_eq!(rig.nodes[0].asked(), 1, "nothing more is asked of it");
    rig.nodes[0].set(Trouble::None);
    rig.run(30).await;
    assert!(rig.nodes[0].asked() > 0);
    assert_eq!(rig.current(), "q", "not gone back to at once");
    rig.run(90).await;
    assert_eq!(rig.current(), "p");

    let rig = Rig::new(1, 1, &[]);
    rig.nodes[0].set(Trouble::Limits(20));
    let told = text(rig.ask().await.unwrap_err());
    assert_eq!(
        told,
        "ask for the tip: over the node's limit, left alone for 20 s: HTTP status 429: "
    );
    let error = rig.ask().await.unwrap_err();
    assert!(matches!(error, SourceError::Unreachable { .. }), "{error}");
    assert_eq!(rig.nodes[0].asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_preferred_endpoint_that_comes_and_goes_is_not_followed() {
    let rig = Rig::new(2, 1, &[]);
    rig.ask().await.unwrap();
    for _ in 0..10 {
        rig.nodes[0].set(Trouble::Down);
        rig.run(30).await;
        assert_eq!(rig.current(), "q");
        rig.nodes[0].set(Trouble::None);
        rig.run(40).await;
        assert_eq!(rig.current(), "q");
    }
    rig.run(120).await;
    assert_eq!(rig.current(), "p");
    // Nor is one that answers and is far behind.
    rig.nodes[0].set(Trouble::Down);
    rig.run(5).await;
    rig.nodes[0].set(Trouble::None);
    rig.nodes[0].fork(0, 0, 60);
    rig.run(300).await;
    assert_eq!(rig.current(), "q");
    rig.nodes[0].fork(0, 0, 100);
    rig.run(30).await;
    assert_eq!(rig.current(), "p");
}

/// It answers everything, and has lost its peers.
#[tokio::test(start_paused = true)]
async fn an_endpoint_whose_tip_stands_is_left_for_one_that_goes_on() {
    let rig = Rig::new(2, 1, &[]);
    rig.run(120).await;
    assert_eq!(rig.current(), "p", "both stand: the chain has no new block");
    rig.nodes[1].fork(0, 0, 102);
    rig.run(120).await;
    assert_eq!(rig.current(), "p", "two blocks are no difference");
    rig.nodes[1].fork(0, 0, 103);
    rig.run(17).await;
    assert_eq!(rig.current(), "q");
    rig.run(120).await;
    assert_eq!(rig.current(), "q", "not back to one that is behind");
    for height in 104..110 {
        rig.nodes.iter().for_each(|node| node.fork(0, 0, height));
        rig.run(20).await;
    }
    assert_eq!(rig.current(), "p", "it goes on again");
    // One that goes on and stays behind is left, too.
    for (height, current) in (110..).zip(["p", "p", "q", "q"]) {
        rig.nodes[0].fork(0, 0, height);
        rig.nodes[1].fork(0, 0, height + 5);
        rig.run(30).await;
        assert_eq!(rig.current(), current);
    }
}

#[tokio::test(start_paused = true)]
async fn all_dead_is_unreachable_with_each_ones_words_and_passes() {
    let rig = Rig::new(2, 1, &[]);
    rig.nodes[0].set(Trouble::Down);
    rig.nodes[1].set(Trouble::Hangs);
    let told = text(rig.ask().await.unwrap_err());
    assert_eq!(
        told,
        "ask for the tip: p: connection refused or host not found; q: no whole answer within 10000 ms"
    );
    rig.nodes[1].set(Trouble::None);
    assert_eq!(rig.ask().await.unwrap(), "q");
    let identity = rig.endpoints.identity().await.unwrap();
    assert_eq!(
        (identity.genesis, identity.software.as_str()),
        (block(0, 0), "fake/v1")
    );
    assert_eq!(identity.chain.as_str(), "eip155:31337@test");
    let standings: Vec<Standing> = rig
        .endpoints
        .list()
        .into_iter()
        .map(|view| view.standing)
        .collect();
    assert!(
        matches!(
            standings[..],
            [Standing::Unreachable { .. }, Standing::Healthy { .. }]
        ),
        "{standings:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_quorum_counts_those_that_have_the_block_and_waits_for_the_others() {
    let ours = TaggedBlock {
        height: 90,
        hash: block(0, 90),
    };
    let rig = Rig::new(3, 2, &[]);
    rig.ask().await.unwrap();
    let agreed = rig.endpoints.agreement(ours).await;
    assert!(agreed.is_reached(), "{agreed}");
    assert_eq!(rig.nodes[2].asked(), 0, "two are enough");
    // One of two is on another branch: the third is asked.
    rig.nodes[0].fork(5, 80, 100);
    let agreed = rig.endpoints.agreement(ours).await;
    assert!(agreed.is_reached(), "{agreed}");
    assert_eq!(agreed.agreeing, ["q", "r"]);
    rig.nodes[1].fork(0, 0, 89);
    rig.nodes[2].set(Trouble::Down);
    let agreed = rig.endpoints.agreement(ours).await;
    assert!(!agreed.is_reached());
    let told = agreed.to_string();
    assert!(
        told.starts_with("0 of 2 endpoints agree; p: has block 0x000000000000005a0505"),
        "{told}"
    );
    assert!(
        told.contains("; q: has no block at height 90 yet; r: unreachable for 0 s: connection refused"),
        "{told}"
    );
    // The chain goes on meanwhile.
    assert_eq!(rig.ask().await.unwrap(), "p");
    rig.nodes[0].fork(0, 80, 100);
    rig.nodes[1].fork(0, 80, 100);
    assert!(rig.endpoints.agreement(ours).await.is_reached());

    let alone = Rig::new(2, 1, &[]);
    alone.ask().await.unwrap();
    let asked = alone.nodes[0].asked();
    assert!(alone.endpoints.agreement(ours).await.is_reached() && asked > 0);
    assert_eq!(
        alone.nodes[0].asked() + alone.nodes[1].asked(),
        0,
        "its word is enough"
    );
}

#[tokio::test(start_paused = true)]
async fn a_branch_is_left_when_every_endpoint_says_so_and_none_is_silent() {
    let ours = TaggedBlock {
        height: 100,
        hash: block(0, 100),
    };
    let rig = Rig::new(2, 1, &[]);
    rig.ask().await.unwrap();
    assert!(!rig.endpoints.is_left_by_all(ours).await);
    rig.nodes[0].fork(5, 95, 100);
    rig.ask().await.unwrap();
    assert!(!rig.endpoints.is_left_by_all(ours).await, "q has it");
    rig.nodes[1].fork(5, 95, 100);
    assert!(rig.endpoints.is_left_by_all(ours).await);
    // A lower tip says nothing of its own, unless it is on the branch that is in use.
    rig.nodes[0].fork(5, 95, 98);
    rig.nodes[1].fork(5, 95, 98);
    rig.ask().await.unwrap();
    assert!(rig.endpoints.is_left_by_all(ours).await);
    rig.nodes[1].fork(0, 0, 98);
    assert!(!rig.endpoints.is_left_by_all(ours).await, "q is only behind");
    rig.nodes[1].fork(5, 95, 96);
    assert!(
        !rig.endpoints.is_left_by_all(ours).await,
        "q has not shown that block"
    );
    rig.nodes[1].fork(5, 95, 100);
    assert!(rig.endpoints.is_left_by_all(ours).await);
    rig.nodes[1].set(Trouble::Down);
    for _ in 0..3 {
        assert!(!rig.endpoints.is_left_by_all(ours).await, "silence says nothing");
    }
    // One on another chain has no say.
    rig.nodes[1].set(Trouble::None);
    rig.nodes[1].state().chain_id = 1;
    rig.run(40).await;
    assert!(rig.endpoints.is_left_by_all(ours).await);
}

#[tokio::test(start_paused = true)]
async fn the_tip_of_every_endpoint_is_remembered_with_its_age() {
    let rig = Rig::new(2, 1, &[]);
    rig.run(40).await;
    rig.nodes[1].fork(5, 95, 99);
    rig.run(40).await;
    let tips: Vec<_> = rig
        .endpoints
        .list()
        .into_iter()
        .map(|view| view.tip.unwrap())
        .collect();
    assert_eq!((tips[0].block.height, tips[1].block.hash), (100, block(5, 99)));
    let age = |since| rig.clock.instant().duration_since(since).as_secs();
    assert_eq!(age(tips[0].since), 80);
    assert!((20..=40).contains(&age(tips[1].since)), "{}", age(tips[1].since));
    assert!(age(tips[1].at) <= 15);
}
