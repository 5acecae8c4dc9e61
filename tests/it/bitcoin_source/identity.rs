//! Is it the chain that the config means?

use super::*;

#[tokio::test]
async fn the_node_that_the_config_means_is_taken() {
    let node = FakeNode::regtest(3);
    let identity = source(config(&node)).identity().await.unwrap();
    assert_eq!(identity.chain.as_str(), format!("{REGTEST}@test"));
    assert_eq!(identity.software, "/Satoshi:28.1.0/");
    assert_eq!(identity.chain, config(&node).chain());
}

#[tokio::test]
async fn c12_node_on_another_network_is_refused_and_both_ids_are_named() {
    let cases = [
        (Network::Regtest, bitcoin::Network::Bitcoin, REGTEST, MAIN),
        (Network::Regtest, bitcoin::Network::Signet, REGTEST, SIGNET),
        (Network::Signet, bitcoin::Network::Regtest, SIGNET, REGTEST),
        (Network::Main, bitcoin::Network::Testnet4, MAIN, "testnet4"),
        (Network::Main, bitcoin::Network::Testnet, MAIN, "test"),
    ];
    for (expected, told, expected_id, told_id) in cases {
        let node = node_at_genesis(told);
        let why = wrong_network(source(on(expected, &node)).identity().await);
        for part in [expected_id, told_id, told.to_core_arg(), expected.name()] {
            assert!(why.contains(part), "{part}: {why}");
        }
    }
}

#[tokio::test]
async fn c12_right_name_over_another_genesis_block_is_refused() {
    let node = node_at_genesis(bitcoin::Network::Signet);
    node.state().info = json!({"chain": "regtest"});
    let why = wrong_network(source(config(&node)).identity().await);
    assert!(why.contains(REGTEST) && why.contains(SIGNET), "{why}");
}

#[tokio::test]
async fn a_node_that_changes_its_network_behind_the_url_is_noticed_at_the_next_tip() {
    let node = FakeNode::regtest(3);
    let source = source(config(&node));
    source.identity().await.unwrap();
    node.state().info = json!({"chain": "main"});
    let why = wrong_network(source.tip().await);
    assert!(why.contains(MAIN), "{why}");
}

/// Behind one URL the node is changed for another, once with the connection cut, once without anybody
/// noticing.
#[tokio::test]
async fn c12_node_is_asked_who_it_is_again_at_each_reconnect_and_once_in_a_while() {
    type Change = fn(&FakeNode);
    let changes: [(Change, &str); 3] = [
        (
            |node| {
                node.state().network_info =
                    json!({"version": 290_300, "subversion": "/Satoshi:29.3.0/Knots:1/"})
            },
            "Knots",
        ),
        (
            |node| {
                let signet = bitcoin::constants::genesis_block(bitcoin::Network::Signet);
                node.state().chain[0] = signet;
            },
            SIGNET,
        ),
        (
            |node| {
                let other = Reply::Result(json!("ab".repeat(32)));
                node.state().info = json!({"chain": "main", "blocks": 478_559, "headers": 478_559});
                node.state().overrides.insert("getblockhash".to_owned(), other);
            },
            "abab",
        ),
    ];
    for (change, words) in changes {
        for recheck in [Duration::from_secs(3600), Duration::ZERO] {
            let node = node_at_genesis(bitcoin::Network::Bitcoin);
            let source = source(BitcoinConfig {
                recheck,
                ..on(Network::Main, &node)
            });
            source.identity().await.unwrap();
            source.tip().await.unwrap();
            change(&node);
            if recheck > Duration::ZERO {
                node.stub.cut_connections();
            }
            // The first call may fail on the connection that was cut.
            let mut tip = source.tip().await;
            if matches!(tip, Err(SourceError::Unreachable { .. })) {
                tip = source.tip().await;
            }
            let why = wrong_network(tip);
            assert!(why.contains(words), "{why}");
        }
    }
}

#[tokio::test]
async fn a_node_that_stays_is_not_asked_who_it_is_at_every_look() {
    let node = FakeNode::regtest(3);
    let source = source(config(&node));
    source.identity().await.unwrap();
    for _ in 0..5 {
        source.tip().await.unwrap();
    }
    assert_eq!(node.stub.count("getnetworkinfo"), 1);
    node.stub.cut_connections();
    let _ = source.tip().await;
    source.tip().await.unwrap();
    assert_eq!(node.stub.count("getnetworkinfo"), 2);
}

#[tokio::test]
async fn own_signet_needs_an_instance_name() {
    let node = node_at_genesis(bitcoin::Network::Signet);
    node.state().info = json!({"chain": "signet", "signet_challenge": "51"});
    let why = wrong_network(source(on(Network::Signet, &node)).identity().await);
    assert!(why.contains("instance"), "{why}");
    let named = BitcoinConfig {
        instance: Some("own".to_owned()),
        ..on(Network::Signet, &node)
    };
    let identity = source(named).identity().await.unwrap();
    assert_eq!(identity.chain.as_str(), format!("{SIGNET}@own"));
}

#[tokio::test]
async fn old_node_is_refused_in_words() {
    let node = FakeNode::regtest(3);
    node.state().network_info = json!({"version": 240_200, "subversion": "/Satoshi:24.2.0/", "warnings": ""});
    let error = source(config(&node)).identity().await.unwrap_err().to_string();
    assert!(
        error.contains("/Satoshi:24.2.0/") && error.contains("25"),
        "{error}"
    );
}

#[tokio::test]
async fn checkpoint_is_asked_of_the_node_and_later_if_it_is_not_there_yet() {
    let node = FakeNode::regtest(3);
    let at = |height: usize| Checkpoint {
        height: height as u64,
        hash: ours(node.state().chain[height].block_hash()),
    };
    let (right, wrong) = (
        at(2),
        Checkpoint {
            hash: BlockHash([9; 32]),
            ..at(2)
        },
    );
    let with = |checkpoints: Vec<Checkpoint>| {
        source(BitcoinConfig {
            checkpoints,
            ..config(&node)
        })
    };
    let passes = with(vec![right]);
    passes.identity().await.unwrap();
    let tip = passes.tip().await.unwrap();
    assert_eq!((tip.is_syncing, tip.credit_ceiling), (false, None));

    let why = wrong_network(with(vec![wrong]).identity().await);
    assert!(
        why.contains(&right.hash.to_string()) && why.contains(&wrong.hash.to_string()),
        "{why}"
    );

    let later = Checkpoint { height: 4, ..wrong };
    let early = with(vec![later, right]);
    early.identity().await.unwrap();
    let tip = early.tip().await.unwrap();
    assert_eq!(
        (tip.is_syncing, tip.credit_ceiling),
        (true, Some(2)),
        "behind by definition"
    );
    node.mine(vec![]);
    let why = wrong_network(early.tip().await);
    assert!(why.contains("height 4"), "{why}");
}

#[tokio::test]
async fn fork_of_bitcoin_is_told_by_the_block_that_bitcoin_cash_does_not_have() {
    let node = node_at_genesis(bitcoin::Network::Bitcoin);
    let genesis = node.state().tip().block_hash().to_string();
    node.state().info = json!({"chain": "main", "blocks": 800_000, "headers": 800_000});
    node.stub.once("getblockhash", Reply::Result(json!(genesis)));
    let bch = "000000000000000000651ef99cb9fcbe0dadde1d424bd9f15ff20136191a5eec";
    node.stub.once("getblockhash", Reply::Result(json!(bch)));
    let why = wrong_network(source(on(Network::Main, &node)).identity().await);
    assert!(why.contains("478559") && why.contains(bch), "{why}");
}

#[tokio::test]
async fn on_mainnet_other_software_needs_a_checkpoint_above_the_last_split() {
    let node = node_at_genesis(bitcoin::Network::Bitcoin);
    node.state().network_info = json!({"version": 290_300, "subversion": "/Satoshi:29.3.0/Knots:20260508/"});
    let why = wrong_network(source(on(Network::Main, &node)).identity().await);
    assert!(why.contains("Knots") && why.contains("961640"), "{why}");

    let at = |height| BitcoinConfig {
        checkpoints: vec![Checkpoint {
            height,
            hash: BlockHash([1; 32]),
        }],
        ..on(Network::Main, &node)
    };
    wrong_network(source(at(961_640)).identity().await);
    let allowed = source(at(961_641));
    allowed.identity().await.unwrap();
    let tip = allowed.tip().await.unwrap();
    assert_eq!(
        tip.credit_ceiling,
        Some(0),
        "nothing is credited before it has shown that block"
    );

    node.state().network_info = json!({"version": 290_300, "subversion": "/Satoshi:29.3.0/"});
    source(on(Network::Main, &node)).identity().await.unwrap();
    let regtest = FakeNode::regtest(1);
    regtest.state().network_info =
        json!({"version": 290_300, "subversion": "/Satoshi:29.3.0/Knots:20260508/"});
    source(config(&regtest)).identity().await.unwrap();
}

#[tokio::test]
async fn on_mainnet_an_invalid_branch_with_more_work_is_another_network() {
    let node = node_at_genesis(bitcoin::Network::Bitcoin);
    let (hash, cases) = ("1f".repeat(32), [(0_u64, true), (1 << 40, false)]);
    for (work, is_fine) in cases {
        let invalid = json!({"height": 9, "hash": hash, "branchlen": 9, "status": "invalid"});
        node.state().odd_tips = vec![invalid];
        node.state().odd_work.insert(hash.clone(), work);
        let source = source(on(Network::Main, &node));
        let answer = source.identity().await;
        if is_fine {
            answer.unwrap();
        } else {
            assert!(wrong_network(answer).contains("invalid"));
        }
    }
}

#[test]
fn config_that_cannot_mean_one_chain_is_told_all_its_faults() {
    let at = |height, byte| Checkpoint {
        height,
        hash: BlockHash([byte; 32]),
    };
    let base = |network| BitcoinConfig::new("http://127.0.0.1:8332", Auth::None, network);
    let named = |network, name: &str| BitcoinConfig {
        instance: Some(name.to_owned()),
        ..base(network)
    };
    let with = |checkpoints| BitcoinConfig {
        checkpoints,
        ..base(Network::Main)
    };
    let cases = [
        (base(Network::Main), 0),
        (base(Network::Signet), 0),
        (named(Network::Signet, "own"), 0),
        (base(Network::Regtest), 1),
        (named(Network::Regtest, "a b"), 1),
        (named(Network::Main, "own"), 1),
        (with(vec![at(1, 1), at(2, 2), at(1, 1)]), 0),
        (with(vec![at(1, 1), at(1, 2)]), 1),
        (with(vec![at(478_559, 1)]), 1),
        (
            BitcoinConfig {
                url: "node".to_owned(),
                ..base(Network::Regtest)
            },
            2,
        ),
    ];
    for (config, count) in cases {
        let faults = config.faults();
        assert_eq!(faults.len(), count, "{config:?}: {faults:?}");
    }
}
