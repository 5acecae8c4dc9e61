//! The chain read again, over another path than the watcher's: what it shows of a real node's blocks.

use creditd::address::{Network, parse, print};
use creditd::chain::bitcoin::{BitcoinConfig, BitcoinSource, Unspent};
use creditd::chain::rpc::Auth;
use creditd::chain::{ChainSource as _, SourceError};
use creditd::clock::Clock;
use creditd::egress::HttpDial;
use creditd::index::{Index, short};
use creditd::rules::{BlockHash, ListVersion, Outpoint, Script, TaggedBlock, Txid};
use serde_json::json;

use crate::common::node::RegtestNode;

/// The address of private key 1 (BIP 173).
const D1: &str = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080";
/// A witness program of version 1, by the same key.
const D2: &str = "bcrt1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqc8gma6";

fn source(node: &RegtestNode) -> BitcoinSource<HttpDial> {
    let config = BitcoinConfig {
        instance: Some("test".to_owned()),
        ..BitcoinConfig::new(node.url(), Auth::Cookie(node.cookie_file()), Network::Regtest)
    };
    BitcoinSource::new(config, HttpDial::new(), Clock::real())
}

fn script(address: &str) -> Script {
    parse(Network::Regtest, address).unwrap()
}

fn at(node: &RegtestNode, height: u64) -> TaggedBlock {
    let hash = BlockHash::from_hex(&node.block_hash(height)).unwrap();
    TaggedBlock { height, hash }
}

fn out(txid: &str, vout: u64) -> Outpoint {
    let txid = Txid::from_hex(txid).unwrap();
    Outpoint { txid, vout }
}

/// Whoever pays `to` in a transaction, and at which output.
fn place_of(node: &RegtestNode, txid: &str, to: &str) -> Outpoint {
    let tx = node.call("getrawtransaction", &[json!(txid), json!(true)]);
    let outputs = tx["vout"].as_array().unwrap().iter();
    let mut found = outputs.filter(|output| output["scriptPubKey"]["address"] == to);
    out(txid, found.next().unwrap()["n"].as_u64().unwrap())
}

/// Both ways of reading a block say the same of it, and so does the set of unspent coins.
#[tokio::test]
async fn blocks_read_again_pay_what_the_watcher_read() {
    let node = RegtestNode::start();
    node.fund();
    let places: Vec<Outpoint> = [(D1, 29_000_000), (D2, 1_234_567), (D1, 546)]
        .map(|(to, sat)| (to, node.send(to, sat)))
        .map(|(to, txid)| place_of(&node, &txid, to))
        .into();
    node.mine_to(D2, 1);
    let (source, height) = (source(&node), node.height());
    let at = at(&node, height);
    let again = source.read_again(at).await.unwrap();

    let mut index = Index::default();
    index.add_scripts([D1, D2].map(|to| short(&script(to).0)), ListVersion(1));
    let seen = source.block(at.hash, &index).await.unwrap();
    assert_eq!(again.header, seen.header);
    let ours = |script: &Script| [D1, D2].map(self::script).contains(script);
    let paid: Vec<_> = again.paid().filter(|paid| ours(&paid.script)).collect();
    let seen_paid: Vec<_> = seen
        .txs
        .iter()
        .flat_map(|tx| tx.outputs.iter().map(|output| (tx.txid, output)))
        .collect();
    assert_eq!((paid.len(), seen_paid.len()), (4, 4));
    for (paid, (txid, output)) in paid.iter().zip(seen_paid) {
        assert_eq!(
            paid.outpoint,
            Outpoint {
                txid,
                vout: output.vout
            }
        );
        assert_eq!((&paid.script, paid.amount), (&output.script, output.amount));
        assert_eq!((paid.at, again.paid_at(paid.outpoint)), (at, Some(paid.clone())));
    }
    for tx in &seen.txs {
        assert_eq!(again.spends(&tx.txid).unwrap(), tx.inputs);
    }
    assert_eq!(again.spends(&Txid([7; 32])), None);
    assert_eq!(again.paid_at(out(&"07".repeat(32), 0)), None);

    let coins = source.unspent(&places).await.unwrap();
    for (coin, place) in coins.iter().zip(&places) {
        let paid = again.paid_at(*place).unwrap();
        let expected = Unspent {
            outpoint: *place,
            script: paid.script,
            amount: paid.amount,
            height,
            is_coinbase: false,
        };
        assert_eq!(coin.as_ref(), Some(&expected));
    }
    let mut told = Vec::new();
    let set = source
        .unspent_of(&[script(D1), script(D2)], &mut |progress| told.push(progress))
        .await
        .unwrap();
    assert_eq!(
        (set.height, set.coins.len(), told.last()),
        (height, 4, Some(&100))
    );
    let coinbase: Vec<_> = set.coins.iter().filter(|coin| coin.is_coinbase).collect();
    assert_eq!(coinbase.len(), 1);
    assert_eq!(print(Network::Regtest, &coinbase[0].script).as_deref(), Some(D2));
    for coin in coins.into_iter().flatten() {
        assert!(set.coins.contains(&coin), "{coin:?}");
    }
    assert!(!source.stop_walk().await.unwrap());
}

/// `null` is spent, or never was: which of both the block of the credit tells.
#[tokio::test]
async fn spent_and_unknown_coins_are_none() {
    let node = RegtestNode::start();
    node.fund();
    let own = node.new_address();
    let first = node.send(&own, 50_000_000);
    let place = place_of(&node, &first, &own);
    let source = source(&node);
    assert_eq!(
        source.unspent(&[place]).await.unwrap(),
        [None],
        "not in a block yet"
    );
    node.mine(1);
    let height = node.height();
    let found = source.unspent(&[place, out(&"07".repeat(32), 0)]).await.unwrap();
    assert_eq!(found[0].as_ref().map(|coin| coin.height), Some(height));
    assert_eq!(found[1], None);
    node.call("sendall", &[json!([D1])]);
    node.mine(1);
    assert_eq!(source.unspent(&[place]).await.unwrap(), [None], "spent");
    assert!(source.unspent(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_not_there_is_told_as_such() {
    let node = RegtestNode::start_with(&["-fastprune", "-prune=1"]);
    node.mine(1_000);
    node.call("pruneblockchain", &[json!(700)]);
    let source = source(&node);
    let pruned = at(&node, 1);
    let answer = source.read_again(pruned).await;
    assert!(matches!(answer, Err(SourceError::Pruned { .. })), "{answer:?}");
    let unknown = TaggedBlock {
        hash: BlockHash([7; 32]),
        ..pruned
    };
    let answer = source.read_again(unknown).await;
    assert!(matches!(answer, Err(SourceError::UnknownBlock(_))), "{answer:?}");
    let hashes = source.hashes(1, 6).await.unwrap();
    let headers = source.raw_headers(&hashes).await.unwrap();
    assert_eq!(headers.len(), 6, "headers are never pruned");
    for (header, parent) in headers[1..].iter().zip(&hashes) {
        let mut below: [u8; 32] = header[4..36].try_into().unwrap();
        below.reverse();
        assert_eq!(BlockHash(below), *parent);
    }
    let answer = source.raw_headers(&[unknown.hash]).await;
    assert!(matches!(answer, Err(SourceError::UnknownBlock(_))), "{answer:?}");
}
