//! Two transactions of one nonce, and a node that is behind the others.

use super::reorgs::refusal;
use super::*;

#[test]
fn evm_rival_takes_the_place_of_a_known_transaction() {
    let node = Node::start();
    let paid = node.sandbox.send(node.pay_token(5)).unwrap();
    let again = node.sandbox.rival(paid, |_| {}).unwrap();
    let elsewhere = Address::of("elsewhere");
    let away = node
        .sandbox
        .rival(paid, |tx| *tx = Tx::pay(tx.from, elsewhere, U256::from(3)))
        .unwrap();
    assert_eq!(node.sandbox.pool(), [paid], "a rival is kept back");
    let nonce = node.tx(paid)["nonce"].clone();
    node.sandbox.resend(again).unwrap();
    assert_eq!(node.sandbox.pool(), [again]);
    let shown = node.tx(again);
    assert_eq!(
        (&shown["nonce"], &shown["from"]),
        (&nonce, &json!(node.ann.to_string()))
    );
    assert_eq!(shown["input"], node_input(&node), "it pays the same");
    node.sandbox.mine_with(&[away]).unwrap();
    assert_eq!((node.sandbox.pool().len(), node.tx(again)), (0, Value::Null));
    assert_eq!(node.receipt(away)["to"], elsewhere.to_string());
    assert_eq!(refusal(node.sandbox.resend(paid)), "nonce too low");
}

fn node_input(node: &Node) -> Value {
    json!(format!("0x{}", const_hex::encode(&node.pay_token(5).input)))
}

#[test]
fn evm_transaction_without_a_nonce_has_no_rival() {
    let node = Node::start();
    let brought = node
        .sandbox
        .send(Tx::bring(node.ann, node.bob, U256::from(1)))
        .unwrap();
    assert!(refusal(node.sandbox.rival(brought, |_| {})).contains("has no nonce"));
}

#[test]
fn evm_node_that_lags_knows_less_until_it_catches_up() {
    let node = Node::start();
    node.sandbox.mine(2).unwrap();
    let paid = node.sandbox.send(node.pay(1)).unwrap();
    node.sandbox.mine(3).unwrap();
    let (tip, height) = (node.sandbox.tip(), node.sandbox.height());
    let at = node.receipt(paid)["blockHash"].clone();
    node.sandbox.lag(2);
    node.sandbox.lag(1);
    assert!(node.sandbox.is_lagging());
    assert_eq!(node.ask("eth_blockNumber", &json!([])), "0x2");
    assert_eq!(node.ask("eth_getBlockByHash", &json!([at, false])), Value::Null);
    assert_eq!(
        (node.receipt(paid), node.sandbox.pool()),
        (Value::Null, vec![paid])
    );
    assert_eq!(refusal(node.sandbox.mine(1)), "the node lags behind");
    assert_eq!(refusal(node.sandbox.reorg(1, &[])), "the node lags behind");
    node.sandbox.catch_up();
    assert_eq!(
        (
            node.sandbox.tip(),
            node.sandbox.height(),
            node.sandbox.is_lagging()
        ),
        (tip, height, false)
    );
    assert_eq!(
        (&node.receipt(paid)["blockHash"], node.sandbox.pool().len()),
        (&at, 0)
    );
    node.sandbox.mine(1).unwrap();
}
