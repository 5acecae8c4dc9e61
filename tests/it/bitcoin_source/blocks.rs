//! What a block holds, and what is no block.

use super::*;

#[tokio::test]
async fn c33_values_are_the_integers_of_the_block() {
    let sats = [
        29_000_000,
        115_000_000,
        57_000_000,
        435_000_000,
        1_640_000_000,
        230_000_000,
        59,
        2_099_999_997_690_000,
    ];
    let node = FakeNode::regtest(2);
    let outputs: Vec<_> = sats.iter().map(|sat| (script(1), *sat)).collect();
    let block = node.mine(vec![tx(&[coin(1)], &outputs)]);
    let source = source(config(&node));
    let scanned = source
        .block(ours(block.block_hash()), &index_of(&[&script(1)]))
        .await
        .unwrap();
    assert_eq!(amounts(&scanned), sats);
}

#[tokio::test]
async fn block_is_filtered_to_what_may_be_ours() {
    let node = FakeNode::regtest(2);
    let pays = tx(
        &[coin(1)],
        &[(script(9), 5), (script(1), 6), (script(9), 7), (script(1), 8)],
    );
    let strange = tx(&[coin(2)], &[(script(9), 5)]);
    let spends = tx(&[coin(3), coin(4)], &[(script(9), 5)]);
    let block = node.mine(vec![pays.clone(), strange, spends.clone()]);
    let mut index = index_of(&[&script(1)]);
    index.add_outpoint(&our_outpoint(coin(4)));
    let scanned = source(config(&node))
        .block(ours(block.block_hash()), &index)
        .await
        .unwrap();
    assert_eq!(scanned.version, ListVersion(1));
    assert_eq!(scanned.header.hash, ours(block.block_hash()));
    let [first, second] = &scanned.txs[..] else {
        panic!("two candidates, not {:?}", scanned.txs);
    };
    assert_eq!((first.txid, first.is_coinbase), (our_txid(&pays), false));
    let outputs: Vec<_> = first
        .outputs
        .iter()
        .map(|output| (output.vout, output.amount))
        .collect();
    assert_eq!(outputs, [(1, Amount::from_u64(6)), (3, Amount::from_u64(8))]);
    assert_eq!(*first.outputs[0].script.0, *script(1).as_bytes());
    assert_eq!(second.inputs, [our_outpoint(coin(3)), our_outpoint(coin(4))]);
    assert!(second.outputs.is_empty() && second.ancestors.is_empty());
    assert_eq!(
        scanned.output_shorts.len(),
        6,
        "all with an address, so not the coinbase's"
    );
}

#[tokio::test]
async fn parents_in_the_same_block_are_ancestors_and_fresh_outputs_of_ours_are_watched() {
    let node = FakeNode::regtest(2);
    let grand = tx(&[coin(1)], &[(script(9), 50)]);
    let parent = tx(&[output(&grand, 0), coin(2)], &[(script(9), 40)]);
    let pays = tx(&[output(&parent, 0)], &[(script(1), 30)]);
    let spends = tx(&[output(&pays, 0)], &[(script(9), 20)]);
    let after = tx(&[output(&spends, 0)], &[(script(9), 10)]);
    let block = node.mine(vec![
        grand.clone(),
        parent.clone(),
        pays.clone(),
        spends.clone(),
        after,
    ]);
    let scanned = source(config(&node))
        .block(ours(block.block_hash()), &index_of(&[&script(1)]))
        .await
        .unwrap();
    let ids: Vec<Txid> = scanned.txs.iter().map(|tx| tx.txid).collect();
    assert_eq!(ids, [our_txid(&pays), our_txid(&spends)]);
    let family = |place: usize| {
        scanned.txs[place]
            .ancestors
            .iter()
            .map(|one| one.txid)
            .collect::<Vec<_>>()
    };
    assert_eq!(family(0), [our_txid(&parent), our_txid(&grand)]);
    assert_eq!(family(1), [our_txid(&pays), our_txid(&parent), our_txid(&grand)]);
    assert_eq!(
        scanned.txs[0].ancestors[0].inputs,
        [our_outpoint(output(&grand, 0)), our_outpoint(coin(2))]
    );
}

#[tokio::test]
async fn coinbase_to_us_is_a_candidate_without_inputs() {
    let node = FakeNode::regtest(2);
    let tip = node.state().tip().clone();
    let mut coinbase = mine(tip.block_hash(), 3, vec![]).txdata.remove(0);
    coinbase.output[0].script_pubkey = script(1);
    let block = mine_exactly(tip.block_hash(), tip.header.time + 600, vec![coinbase]);
    node.state().chain.push(block.clone());
    let scanned = source(config(&node))
        .block(ours(block.block_hash()), &index_of(&[&script(1)]))
        .await
        .unwrap();
    assert_eq!(
        (scanned.txs[0].is_coinbase, scanned.txs[0].inputs.len()),
        (true, 0)
    );
    assert_eq!(amounts(&scanned), [5_000_000_000]);
}

#[tokio::test]
async fn scripts_without_an_address_never_match_even_if_the_index_holds_them() {
    let key = [&[33][..], &[2; 33]].concat();
    let without = [
        [&key[..], &[0xac]].concat(),
        [&[0x51][..], &key, &[0x51, 0xae]].concat(),
        [&[0x6a, 4][..], &[7; 4]].concat(),
        vec![],
        vec![0x51],
    ];
    let with = [
        [&[0x76, 0xa9, 20][..], &[7; 20], &[0x88, 0xac]].concat(),
        [&[0xa9, 20][..], &[7; 20], &[0x87]].concat(),
        [&[0, 20][..], &[7; 20]].concat(),
        [&[0, 32][..], &[7; 32]].concat(),
        [&[0x51, 32][..], &[7; 32]].concat(),
        vec![0x51, 2, 0x4e, 0x73],
        [&[0x60, 40][..], &[7; 40]].concat(),
    ];
    let scripts: Vec<ScriptBuf> = without
        .iter()
        .chain(&with)
        .cloned()
        .map(ScriptBuf::from)
        .collect();
    let node = FakeNode::regtest(1);
    let outputs: Vec<_> = scripts.iter().cloned().map(|script| (script, 1)).collect();
    let block = node.mine(vec![tx(&[coin(1)], &outputs)]);
    let index = index_of(&scripts.iter().collect::<Vec<_>>());
    let scanned = source(config(&node))
        .block(ours(block.block_hash()), &index)
        .await
        .unwrap();
    let vouts: Vec<u64> = scanned.txs[0].outputs.iter().map(|output| output.vout).collect();
    assert_eq!(
        vouts,
        (without.len() as u64..scripts.len() as u64).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn rest_and_rpc_give_the_same_block_and_rest_is_left_when_it_goes() {
    let node = FakeNode::regtest(2);
    let block = node.mine(vec![tx(&[coin(1)], &[(script(1), 6)])]);
    let (hash, index) = (ours(block.block_hash()), index_of(&[&script(1)]));
    let over_rpc = source(config(&node)).block(hash, &index).await.unwrap();
    node.state().is_rest_on = true;
    let source = source(config(&node));
    source.identity().await.unwrap();
    assert!(source.is_rest_on());
    let before = node.stub.count("getblock");
    assert_eq!(source.block(hash, &index).await.unwrap(), over_rpc);
    assert_eq!(node.stub.count("getblock"), before, "not over RPC");

    let unknown = source.block(BlockHash([5; 32]), &index).await.unwrap_err();
    assert!(matches!(unknown, SourceError::UnknownBlock(hash) if hash == BlockHash([5; 32])));
    assert!(source.is_rest_on(), "one missing block does not switch it off");
    node.state().is_rest_on = false;
    assert_eq!(source.block(hash, &index).await.unwrap(), over_rpc);
    assert!(!source.is_rest_on());
    node.state().is_rest_on = true;
    source.identity().await.unwrap();
    assert!(source.is_rest_on(), "probed again at the next reconnect");
}

#[tokio::test]
async fn node_without_the_block_says_why() {
    let node = FakeNode::regtest(2);
    let (hash, index) = (ours(node.state().tip().block_hash()), Index::default());
    let source = source(config(&node));
    let ask = async |reply: Reply| {
        node.stub.once("getblock", reply);
        format!("{:?}", source.block(hash, &index).await.unwrap_err())
    };
    let cases = [
        (Reply::Error(-5, "Block not found"), "UnknownBlock"),
        (Reply::Error(-1, "Block not available (pruned data)"), "Pruned"),
        (
            Reply::ErrorIn200(-1, "Block not available (pruned data)"),
            "Pruned",
        ),
        (
            Reply::Error(-1, "Block not available (not fully downloaded)"),
            "MissingData",
        ),
        (Reply::Error(-1, "Block not found on disk"), "MissingData"),
        (Reply::Error(-1, "Can't read block from disk"), "Unreachable"),
        (Reply::Error(-28, "Verifying blocks"), "Unreachable"),
        (Reply::Result(Value::Null), "Unreachable"),
        (Reply::Result(json!("zz")), "Unreachable"),
        (Reply::Cut(json!("00")), "Unreachable"),
    ];
    for (reply, expected) in cases {
        let shown = format!("{reply:?}");
        let got = ask(reply).await;
        assert!(got.starts_with(expected), "{shown}: {got}");
    }
}

#[tokio::test]
async fn block_that_breaks_a_rule_is_no_block() {
    let node = FakeNode::regtest(2);
    let good = node.mine(vec![
        tx(&[coin(1)], &[(script(1), 6)]),
        tx(&[coin(2)], &[(script(1), 7)]),
    ]);
    let remined = |change: &dyn Fn(&mut Block)| {
        let mut block = good.clone();
        change(&mut block);
        block.header.merkle_root = block.compute_merkle_root().unwrap_or(block.header.merkle_root);
        grind(&mut block.header);
        block
    };
    let mut other_amount = good.clone();
    other_amount.txdata[1].output[0].value = bitcoin::Amount::from_sat(600);
    let mut easy = good.clone();
    easy.header.bits = bitcoin::CompactTarget::from_consensus(0x2100_ffff);
    grind(&mut easy.header);
    let mut no_work = good.clone();
    while no_work.header.target().is_met_by(no_work.header.block_hash()) {
        no_work.header.nonce += 1;
    }
    let mut repeated = good.clone();
    repeated.txdata.push(repeated.txdata[2].clone());
    let cases = [
        ("altered amount", other_amount, "merkle root"),
        ("target of no network", easy, "target"),
        ("no work", no_work, "above its target"),
        ("last transaction twice, same root", repeated, "twice"),
        (
            "no coinbase",
            remined(&|block| drop(block.txdata.remove(0))),
            "coinbase",
        ),
        (
            "coinbase last",
            remined(&|block| block.txdata.reverse()),
            "coinbase",
        ),
        (
            "no transaction",
            remined(&|block| block.txdata.clear()),
            "no transaction",
        ),
    ];
    let source = source(config(&node));
    for (name, block, expected) in cases {
        node.stub
            .once("getblock", Reply::Result(json!(serialize_hex(&block))));
        match source
            .block(ours(block.block_hash()), &index_of(&[&script(1)]))
            .await
        {
            Err(SourceError::BadBlock { hash, why }) => {
                assert_eq!(hash, ours(block.block_hash()));
                assert!(why.contains(expected), "{name}: {why}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// A node or proxy that mixes answers up may do so for a moment: no reason to halt, and none to believe it.
#[tokio::test]
async fn another_block_or_half_a_block_is_an_odd_answer() {
    let node = FakeNode::regtest(2);
    let good = node.mine(vec![tx(&[coin(1)], &[(script(1), 6)])]);
    let bytes = serialize(&good);
    let longer = [&bytes[..], &[0]].concat();
    let cases = [
        (serialize(&node.state().chain[1]), "the answer is block"),
        (bytes[..bytes.len() - 1].to_vec(), "cannot decode"),
        (bytes[..90].to_vec(), "cannot decode"),
        (vec![], "cannot decode"),
        (longer, "1 bytes after"),
    ];
    let source = source(config(&node));
    for (bytes, expected) in cases {
        node.stub
            .once("getblock", Reply::Result(json!(const_hex::encode(&bytes))));
        match source.block(ours(good.block_hash()), &Index::default()).await {
            Err(SourceError::Unreachable { why, .. }) => assert!(why.contains(expected), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

/// A block with a bit of everything, for the mutations below.
fn varied_block() -> Block {
    let first = tx(&[coin(1), coin(2)], &[(script(1), 6), (script(2), 0)]);
    let mut second = tx(
        &[output(&first, 0)],
        &[(ScriptBuf::from(vec![0x6a; 300]), 0), (script(1), 9)],
    );
    second.input[0].witness = bitcoin::Witness::new();
    second.input[0].script_sig = ScriptBuf::from(vec![1; 80]);
    let parent = bitcoin::BlockHash::from_byte_array([4; 32]);
    mine(parent, 70_000, vec![first, second])
}

fn without_witness(bytes: &[u8]) -> Option<Block> {
    let mut block: Block = bitcoin::consensus::deserialize(bytes).ok()?;
    for input in block.txdata.iter_mut().flat_map(|tx| &mut tx.input) {
        input.witness = bitcoin::Witness::new();
    }
    Some(block)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn mutated_block_never_panics_and_never_passes_as_the_block(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..4),
    ) {
        let block = varied_block();
        let good = serialize(&block);
        let mut bytes = good.clone();
        for (place, value, kind) in edits {
            let place = if bytes.is_empty() { 0 } else { place.index(bytes.len()) };
            match kind {
                0 if !bytes.is_empty() => bytes[place] = value,
                1 => bytes.insert(place, value),
                2 if !bytes.is_empty() => { bytes.remove(place); }
                _ => bytes.truncate(place),
            }
        }
        // Witnesses are not under the merkle root, and nothing of ours depends on them.
        let is_same = without_witness(&bytes) == without_witness(&good);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = runtime.block_on(async {
            let node = FakeNode::regtest(0);
            node.stub.once("getblock", Reply::Result(json!(const_hex::encode(&bytes))));
            let index = index_of(&[&script(1), &script(2)]);
            source(config(&node)).block(ours(block.block_hash()), &index).await
        });
        prop_assert_eq!(answer.is_ok(), is_same);
    }
}

/// More than all the coins that there can be: nobody's consensus allows it, so nobody is paid by it.
#[tokio::test]
async fn an_output_of_more_than_all_coins_is_a_bad_block_and_no_mempool_transaction() {
    const ALL: u64 = 2_100_000_000_000_000;
    for (sat, is_fine) in [(ALL, true), (ALL + 1, false), (1 << 63, false), (u64::MAX, false)] {
        let node = FakeNode::regtest(1);
        let source = source(config(&node));
        let index = index_of(&[&script(1)]);
        let paid = tx(&[coin(1)], &[(script(1), sat)]);
        node.state().mempool.push(paid.clone());
        let list = source.mempool(&index).await;
        let block = node.mine(vec![paid]);
        let scanned = source.block(ours(block.block_hash()), &index).await;
        if is_fine {
            assert_eq!(list.unwrap().unwrap().txs.len(), 1);
            assert_eq!(amounts(&scanned.unwrap()), [sat]);
            continue;
        }
        let (list, scanned) = (list.unwrap_err().to_string(), scanned.unwrap_err());
        assert!(list.contains("more than all coins"), "{list}");
        let is_bad =
            matches!(&scanned, SourceError::BadBlock { why, .. } if why.contains("more than all coins"));
        assert!(is_bad, "{scanned}");
    }
}
