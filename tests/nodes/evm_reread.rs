//! The EVM chain read again, over another path than the watcher's; and the trees of blocks of a real node.

use creditd::chain::evm::{Again, EvmSource, Inner, TraceCall, encode, trie};
use creditd::chain::{ChainSource as _, SourceError};
use creditd::egress::HttpDial;
use creditd::index::{Index, short};
use creditd::rules::position::Position;
use creditd::rules::{BlockHash, ListVersion, Outpoint, Paid, Script, TaggedBlock, Txid};
use ethers_core::utils::keccak256;
use serde_json::{Value, json};

use crate::common::anvil::{AnvilNode, quantity};
use crate::common::contracts::Token;
use crate::common::evm::Splitter;
use crate::common::evm_proxy::EvmProxy;
use crate::common::evm_proxy::script::{Asked, Fault};
use crate::common::stub::Call;
use crate::evm_source::{CHAIN_ID, bytes, source};

const D1: &str = "0xd1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1";
const D2: &str = "0xd2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2";
const D3: &str = "0xd3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3d3";

fn script(address: &str) -> Script {
    Script(bytes(address).into())
}

fn hash(text: &str) -> BlockHash {
    BlockHash::from_typed(text).unwrap()
}

fn tip(node: &AnvilNode) -> TaggedBlock {
    TaggedBlock {
        height: node.height(),
        hash: hash(&node.tip()),
    }
}

/// What the watcher makes of a block.
async fn watched(source: &EvmSource<HttpDial>, at: TaggedBlock, ours: &[&str]) -> Vec<Paid> {
    let mut index = Index::default();
    index.add_scripts(ours.iter().map(|address| short(&bytes(address))), ListVersion(1));
    let block = source.block(at.hash, &index).await.unwrap();
    let mut paid = Vec::new();
    for tx in block.txs {
        for output in tx.outputs {
            paid.push(Paid {
                at,
                outpoint: Outpoint {
                    txid: tx.txid,
                    vout: output.vout,
                },
                script: output.script,
                asset: output.asset,
                amount: output.amount,
                from: output.from,
                is_success: true,
            });
        }
    }
    paid
}

/// Every kind of position, found by the watcher, is there when it is looked for by its transaction; and what
/// is looked for by heights is what the watcher found.
#[tokio::test]
async fn payments_read_again_are_those_that_the_watcher_read() {
    let node = AnvilNode::start(CHAIN_ID);
    let (a, b) = (node.account(0), node.account(1));
    let token = Token::deploy(&node, "TUSD", 6);
    let splitter = Splitter::deploy(&node);
    token.mint(&node, &a, 1_000_000);
    let before = tip(&node).height + 1;
    node.mine(1);
    node.pay(&a, D1, 7);
    node.pay(&b, D3, 8);
    token.transfer(&node, &a, D2, 9);
    token.pay(&node, &a, &[(D3, 1), (D1, 12), (D2, 13), (D1, 14)]);
    splitter.split(&node, &a, &[(D1, 15), (D3, 16), (D2, 17)], 50);
    splitter.split_around_revert(&node, &a, (D1, 21), &[(D1, 22)], 22);
    let creation = node.send(json!({"from": a, "value": "0x5", "data": "0x00", "gas": "0x30d40"}));
    node.mine(1);
    let at = tip(&node);
    let made = node.receipt(&creation).unwrap()["contractAddress"]
        .as_str()
        .unwrap()
        .to_owned();
    let all = source(&node.url(), &[&token], Some(Inner::Traces(TraceCall::Any)));
    let found = watched(&all, at, &[D1, D2, &made]).await;
    assert_eq!(found.len(), 9);
    for paid in &found {
        let again = all.payment_again(paid.outpoint, at).await.unwrap();
        assert_eq!(again, Again::Shown(paid.clone()));
        let beyond = Outpoint {
            vout: paid.outpoint.vout + 100,
            ..paid.outpoint
        };
        assert_eq!(all.payment_again(beyond, at).await.unwrap(), Again::Absent);
    }
    let is_log = |paid: &&Paid| {
        matches!(
            Position::of_number(paid.outpoint.vout),
            Some((Position::Log(_), _))
        )
    };
    let mut logged: Vec<Paid> = found.iter().filter(is_log).cloned().collect();
    logged.sort_by_key(|paid| paid.outpoint);
    let ours = [D1, D2].map(script);
    assert_eq!(
        all.tokens_again(before, at.height, Some(&ours)).await.unwrap(),
        logged
    );
    let everybodys = all.tokens_again(at.height, at.height, None).await.unwrap();
    assert_eq!(everybodys.len(), logged.len() + 1, "and the one to D3");
    assert!(
        all.tokens_again(at.height + 1, at.height, None)
            .await
            .unwrap()
            .is_empty()
    );

    let coin = all.coin_again(at.height).await.unwrap();
    assert_eq!(coin.at, at);
    assert_eq!(
        coin.header,
        all.header(at.hash).await.unwrap().unwrap().held.header
    );
    let natives: Vec<&Paid> = found.iter().filter(|paid| paid.outpoint.vout == 0).collect();
    let offered = coin
        .offers
        .iter()
        .filter(|offer| [D1, D2, &made].map(script).contains(&offer.to));
    let offered: Vec<Outpoint> = offered.map(|offer| offer.of).collect();
    assert_eq!(
        natives.iter().map(|paid| paid.outpoint).collect::<Vec<_>>(),
        offered
    );
}

#[tokio::test]
async fn what_failed_or_left_the_chain_is_told_as_such() {
    let node = AnvilNode::start(CHAIN_ID);
    let a = node.account(0);
    node.refuse_coin_at(D1);
    let failed = node.invoke(&a, D1, "0x", 5);
    let kept = node.pay(&a, D2, 6);
    node.mine(1);
    let at = tip(&node);
    let coin = source(&node.url(), &[], Some(Inner::Unseen));
    let of = |txid: &str| Outpoint {
        txid: Txid::from_typed(txid).unwrap(),
        vout: 0,
    };
    let Again::Shown(paid) = coin.payment_again(of(&failed), at).await.unwrap() else {
        panic!("it is in its block");
    };
    assert!(!paid.is_success);
    assert_eq!(
        coin.coin_again(at.height).await.unwrap().offers.len(),
        2,
        "whether it failed is not asked"
    );

    node.reorg_away(1);
    assert_eq!(coin.payment_again(of(&kept), at).await.unwrap(), Again::Absent);
    let beyond = TaggedBlock {
        height: at.height + 9,
        ..at
    };
    let again = coin.payment_again(of(&kept), beyond).await.unwrap();
    assert!(matches!(again, Again::Unproven(_)), "{again:?}");
    let answer = coin.coin_again(at.height + 9).await;
    assert!(
        matches!(answer, Err(SourceError::Unreachable { .. })),
        "{answer:?}"
    );
}

/// A node that lacks what it should have proves nothing, and what a node refuses at once it gives in parts.
#[tokio::test]
async fn a_node_that_cannot_tell_is_no_absence() {
    let node = AnvilNode::start(CHAIN_ID);
    let a = node.account(0);
    let token = Token::deploy(&node, "TUSD", 6);
    let splitter = Splitter::deploy(&node);
    token.mint(&node, &a, 1_000_000);
    let paid = node.pay(&a, D1, 7);
    token.transfer(&node, &a, D2, 9);
    let split = splitter.split(&node, &a, &[(D1, 15)], 15);
    node.mine(1);
    let at = tip(&node);
    let proxy = EvmProxy::in_front_of(&node.url());
    let all = source(&proxy.url(), &[&token], Some(Inner::Traces(TraceCall::Any)));
    let of = |txid: &str, position: Position| Outpoint {
        txid: Txid::from_typed(txid).unwrap(),
        vout: position.number(0).unwrap(),
    };
    let fault = proxy.always("eth_getTransactionReceipt", Fault::Result(Value::Null));
    let again = all.payment_again(of(&paid, Position::Native), at).await.unwrap();
    assert!(matches!(again, Again::Unproven(_)), "{again:?}");
    proxy.lift(fault);
    for method in ["debug_traceTransaction", "trace_transaction"] {
        proxy.always(method, Fault::Error(-32_000, "historical state is not available"));
    }
    let again = all
        .payment_again(of(&split, Position::Inner(0)), at)
        .await
        .unwrap();
    assert!(
        matches!(&again, Again::Unproven(why) if why.contains("historical state")),
        "{again:?}"
    );

    // More than three blocks at a time are refused.
    let is_wide = |call: &Call| {
        let height = |name: &str| quantity(&call.params[0][name]);
        call.method == "eth_getLogs" && height("toBlock") - height("fromBlock") > 2
    };
    node.mine(20);
    token.transfer(&node, &a, D2, 10);
    node.mine(20);
    proxy.always(
        Asked::when(is_wide),
        Fault::Error(-32_005, "query returned more than 10000 results"),
    );
    let found = all
        .tokens_again(0, tip(&node).height, Some(&[script(D2)]))
        .await
        .unwrap();
    let amounts: Vec<String> = found.iter().map(|paid| paid.amount.to_string()).collect();
    assert_eq!(amounts, ["9", "10"]);
    proxy.always("eth_getLogs", Fault::Error(-32_000, "no"));
    let answer = all.tokens_again(0, 9, None).await;
    assert!(
        matches!(answer, Err(SourceError::Unreachable { .. })),
        "{answer:?}"
    );
}

/// Sends `count` transactions of this type, and mines them into one block; its hash.
fn block_of(node: &AnvilNode, count: usize, kind: &str) -> String {
    let a = node.account(0);
    let nonce = node.next_nonce(&a);
    let send = |number: usize| {
        let mut tx = json!({
            "nonce": format!("{:#x}", nonce + number as u64),
            "from": a, "to": format!("0x{:040x}", 0xd000 + number), "value": format!("{:#x}", 1 + number),
            "gas": "0x186a0", "type": kind,
        });
        if matches!(kind, "0x0" | "0x1") {
            tx["gasPrice"] = json!("0x77359400");
        }
        if kind != "0x0" {
            let key = format!("0x{:064x}", number);
            tx["accessList"] = json!([{"address": D3, "storageKeys": [key, key]}]);
        }
        if kind == "0x4" {
            // Whose signature does not matter: an authorization that is none changes nothing.
            tx["authorizationList"] = json!([{
                "chainId": "0x0", "address": D3, "nonce": "0x0", "yParity": "0x1",
                "r": format!("0x{:064x}", 0x1234 + number), "s": format!("0x{:064x}", 7),
            }]);
        }
        ("eth_sendTransaction", json!([tx]))
    };
    if count > 0 {
        node.batch((0..count).map(send).collect());
    }
    node.mine(1).remove(0)
}

fn digest(text: &Value) -> [u8; 32] {
    const_hex::decode_to_array(text.as_str().unwrap()).unwrap()
}

/// Header, transactions and receipts of a block make the hashes that its header names, and each branch shows
/// its item.
fn check_block(node: &AnvilNode, block_hash: &str, count: usize) {
    let block = node.call("eth_getBlockByHash", json!([block_hash, true]));
    let header = encode::header(&block).unwrap();
    assert_eq!(keccak256(&header), digest(&block["hash"]), "{block}");
    let txs = block["transactions"].as_array().unwrap();
    assert_eq!(txs.len(), count);
    let receipts = node.receipts(block_hash).unwrap();
    let encoded_txs: Vec<Vec<u8>> = txs.iter().map(|tx| encode::transaction(tx).unwrap()).collect();
    let encoded: Vec<Vec<u8>> = receipts.iter().map(|one| encode::receipt(one).unwrap()).collect();
    for (tx, encoded) in txs.iter().zip(&encoded_txs) {
        assert_eq!(keccak256(encoded), digest(&tx["hash"]), "{tx}");
    }
    for (items, root) in [(&encoded_txs, "transactionsRoot"), (&encoded, "receiptsRoot")] {
        let root = digest(&block[root]);
        let tree = trie::Trie::over(items);
        assert_eq!(tree.root(), root, "block of {count}");
        for (index, item) in items.iter().enumerate() {
            let branch = tree.branch(index);
            assert_eq!(
                trie::value(&root, index, &branch).as_ref(),
                Ok(item),
                "{index} of {count}"
            );
        }
    }
}

#[test]
fn trie_roots_are_anvils() {
    let node = AnvilNode::start(CHAIN_ID);
    for count in [0, 1, 2, 16, 127, 128, 129, 300] {
        let block = block_of(&node, count, "0x2");
        check_block(&node, &block, count);
    }
    for kind in ["0x0", "0x1", "0x2", "0x4"] {
        let block = block_of(&node, 3, kind);
        let told = node.call("eth_getBlockByHash", json!([block, true]));
        for tx in told["transactions"].as_array().unwrap() {
            assert_eq!(quantity(&tx["type"]), quantity(&json!(kind)));
        }
        check_block(&node, &block, 3);
    }
    // Logs, a creation, and one that failed.
    let a = node.account(0);
    let token = Token::deploy(&node, "TUSD", 6);
    token.mint(&node, &a, 100);
    token.pay(&node, &a, &[(D1, 1), (D2, 2), (D3, 3)]);
    node.refuse_coin_at(D1);
    node.invoke(&a, D1, "0x", 5);
    node.send(json!({"from": a, "value": "0x5", "data": "0x00", "gas": "0x30d40"}));
    let block = node.mine(1).remove(0);
    check_block(&node, &block, 4);
}
