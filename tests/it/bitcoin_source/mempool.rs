//! The mempool by difference: fetched once, matched again, never guessed.

use super::*;
use bitcoincore_rpc::bitcoin::OutPoint;
use creditd::rules::{CandidateTx, MempoolList};
use std::collections::BTreeMap;

/// A node whose mempool holds `mempool`, and a source of it.
fn node_with(mempool: &[&Transaction]) -> (FakeNode, BitcoinSource<HttpDial>) {
    let node = FakeNode::regtest(3);
    node.state().mempool = mempool.iter().copied().cloned().collect();
    let source = source(config(&node));
    (node, source)
}

async fn list(source: &BitcoinSource<HttpDial>, index: &Index) -> MempoolList {
    source.mempool(index).await.unwrap().unwrap()
}

fn ids(list: &MempoolList) -> Vec<Txid> {
    list.txs.iter().map(|tx| tx.txid).collect()
}

fn family(tx: &CandidateTx) -> Vec<Txid> {
    tx.ancestors.iter().map(|ancestor| ancestor.txid).collect()
}

fn pays(number: u32, to: u8) -> Transaction {
    tx(&[coin(number)], &[(script(9), 1), (script(to), 3_000_000)])
}

#[tokio::test]
async fn each_transaction_is_fetched_once_and_forgotten_when_it_leaves() {
    let (first, second) = (pays(1, 1), pays(2, 9));
    let (node, source) = node_with(&[&first, &second]);
    let index = index_of(&[&script(1)]);
    for _ in 0..3 {
        let list = list(&source, &index).await;
        assert_eq!(
            (ids(&list), list.listed.len(), list.is_complete),
            (vec![our_txid(&first)], 2, true)
        );
        assert_eq!(list.tip, ours(node.state().tip().block_hash()));
        assert_eq!(list.version, ListVersion(1));
    }
    assert_eq!(node.stub.count("getrawtransaction"), 2);
    let third = pays(3, 1);
    node.state().mempool = vec![third.clone()];
    assert_eq!(ids(&list(&source, &index).await), [our_txid(&third)]);
    node.state().mempool = vec![first.clone()];
    assert_eq!(ids(&list(&source, &index).await), [our_txid(&first)]);
    assert_eq!(node.stub.count("getrawtransaction"), 4, "back is new");
}

#[tokio::test]
async fn c24_one_that_cannot_be_fetched_is_listed_and_asked_for_again() {
    let (first, second, third) = (pays(1, 1), pays(2, 1), pays(3, 1));
    let (node, source) = node_with(&[&first, &third]);
    let index = index_of(&[&script(1)]);
    let three = [&first, &second, &third].map(|tx| tx.compute_txid().to_string());
    let answer = Reply::Result(json!(three));
    node.state().overrides.insert("getrawmempool".to_owned(), answer);
    let before = list(&source, &index).await;
    assert_eq!(before.txs.len(), 2);
    assert!(before.listed.contains(&our_txid(&second)) && !ids(&before).contains(&our_txid(&second)));
    assert!(before.is_complete, "there is nothing more to look at");
    list(&source, &index).await;
    assert_eq!(
        node.stub.count("getrawtransaction"),
        4,
        "only the missing one again"
    );
    node.state().mempool.push(second.clone());
    assert!(ids(&list(&source, &index).await).contains(&our_txid(&second)));
}

#[tokio::test]
async fn list_is_not_given_when_the_tip_moves_meanwhile() {
    let (node, source) = node_with(&[&pays(1, 1)]);
    let index = index_of(&[&script(1)]);
    let old = node.state().chain[2].block_hash().to_string();
    node.stub.once("getbestblockhash", Reply::Result(json!(old)));
    assert!(source.mempool(&index).await.unwrap().is_none());
    assert_eq!(list(&source, &index).await.txs.len(), 1);
}

#[tokio::test]
async fn new_rules_are_tried_on_what_is_already_known() {
    let (first, second) = (pays(1, 1), pays(2, 2));
    let (node, source) = node_with(&[&first, &second]);
    let mut index = index_of(&[&script(1)]);
    assert_eq!(ids(&list(&source, &index).await), [our_txid(&first)]);
    index.add_scripts([short(script(2).as_bytes())], ListVersion(2));
    let list = list(&source, &index).await;
    assert_eq!((list.txs.len(), list.version), (2, ListVersion(2)));
    assert_eq!(node.stub.count("getrawtransaction"), 3);
}

#[tokio::test]
async fn new_outpoints_are_tried_on_what_is_already_known() {
    let (spends, other) = (tx(&[coin(5), coin(6)], &[(script(9), 1)]), pays(2, 9));
    let (node, source) = node_with(&[&spends, &other]);
    let mut index = index_of(&[&script(1)]);
    assert!(list(&source, &index).await.txs.is_empty());
    index.add_outpoint(&our_outpoint(coin(6)));
    for _ in 0..2 {
        let list = list(&source, &index).await;
        assert_eq!(ids(&list), [our_txid(&spends)]);
        assert_eq!(list.txs[0].inputs, [our_outpoint(coin(5)), our_outpoint(coin(6))]);
        assert!(list.txs[0].outputs.is_empty());
    }
    assert_eq!(node.stub.count("getrawtransaction"), 3);
}

/// Whichever way the ids happen to sort.
#[tokio::test]
async fn parents_come_before_children_and_their_inputs_are_known() {
    for number in 0..8 {
        let spent: Vec<OutPoint> = vec![coin(100 + number), coin(200 + number)];
        let grand = tx(&spent, &[(script(1), 50), (script(9), 7)]);
        let parent = tx(&[output(&grand, 1)], &[(script(9), 40)]);
        let child = tx(&[output(&parent, 0)], &[(script(1), 30)]);
        let spender = tx(&[output(&child, 0)], &[(script(9), 20)]);
        let (_node, source) = node_with(&[&spender, &child, &parent, &grand]);
        let index = index_of(&[&script(1)]);
        for _ in 0..2 {
            let list = list(&source, &index).await;
            assert_eq!(
                ids(&list),
                [our_txid(&grand), our_txid(&child), our_txid(&spender)]
            );
            assert!(family(&list.txs[0]).is_empty());
            assert_eq!(family(&list.txs[1]), [our_txid(&parent), our_txid(&grand)]);
            assert_eq!(
                family(&list.txs[2]),
                [our_txid(&child), our_txid(&parent), our_txid(&grand)]
            );
            let spent: Vec<Outpoint> = spent.iter().copied().map(our_outpoint).collect();
            assert_eq!(list.txs[2].ancestors[2].inputs, spent);
        }
    }
}

#[tokio::test]
async fn large_mempool_is_read_over_several_polls() {
    let many = (0..5_200).map(|number| pays(number, 9));
    let many: BTreeMap<String, String> = many
        .map(|tx| (tx.compute_txid().to_string(), serialize_hex(&tx)))
        .collect();
    let (node, source) = node_with(&[]);
    let tip = node.state().tip().block_hash().to_string();
    node.stub.handle(move |call| {
        Some(Reply::Result(match call.method.as_str() {
            "getbestblockhash" => json!(tip),
            "getrawmempool" => json!(many.keys().collect::<Vec<_>>()),
            _ => json!(many.get(call.params[0].as_str()?)?),
        }))
    });
    let index = index_of(&[&script(1)]);
    let (first, second) = (list(&source, &index).await, list(&source, &index).await);
    assert_eq!((first.is_complete, second.is_complete), (false, true));
    assert_eq!(first.listed, second.listed);
}

#[tokio::test]
async fn large_transactions_are_fetched_in_smaller_parts() {
    let large: Vec<Transaction> = (0..24)
        .map(|number| {
            let data = ScriptBuf::from([&[0x6a][..], &vec![0; 390_000]].concat());
            tx(&[coin(number)], &[(data, 0), (script(1), 1)])
        })
        .collect();
    let (_node, source) = node_with(&large.iter().collect::<Vec<_>>());
    let list = list(&source, &index_of(&[&script(1)])).await;
    assert_eq!((list.txs.len(), list.is_complete), (24, true));
}

#[tokio::test]
async fn wrong_or_missing_answers_never_count_as_seen() {
    let (first, second) = (pays(1, 1), pays(2, 1));
    let (node, source) = node_with(&[&first, &second]);
    let index = index_of(&[&script(1)]);
    for reply in [
        Reply::Result(json!(serialize_hex(&second))),
        Reply::Result(json!("00")),
        Reply::Result(Value::Null),
        Reply::Error(-1, "busy"),
        Reply::WrongId(json!("00")),
    ] {
        // Whichever of the two it answers, it is the wrong one at least once.
        node.stub.once("getrawtransaction", reply.clone());
        node.stub.once("getrawtransaction", reply.clone());
        let answer = source.mempool(&index).await;
        assert!(
            matches!(answer, Err(SourceError::Unreachable { .. })),
            "{reply:?}: {answer:?}"
        );
    }
    // What the failed polls had queued is used up; the next one is whole.
    while source.mempool(&index).await.is_err() {}
    assert_eq!(list(&source, &index).await.txs.len(), 2);
}

#[tokio::test]
async fn a_dropped_poll_leaves_the_next_one_whole() {
    let (node, source) = node_with(&[&pays(1, 1), &pays(2, 1)]);
    let index = index_of(&[&script(1)]);
    for (method, more) in [
        ("getbestblockhash", 3),
        ("getrawmempool", 4),
        ("getrawtransaction", 5),
    ] {
        node.stub.once(method, Reply::Hang);
        let before = node.stub.count(method);
        {
            let mut poll = std::pin::pin!(source.mempool(&index));
            // It is dropped once its call hangs, however long that takes to arrive.
            while node.stub.count(method) == before {
                let polled = tokio::time::timeout(Duration::from_millis(5), &mut poll).await;
                assert!(polled.is_err());
            }
        }
        node.state().mempool.push(pays(more, 1));
    }
    assert_eq!(list(&source, &index).await.txs.len(), 5);
}
