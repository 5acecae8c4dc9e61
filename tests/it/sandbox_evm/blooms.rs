//! The blooms of blocks and receipts.

use serde_json::{Value, json};

use super::Node;
use crate::common::bloom;

#[test]
fn evm_bloom_holds_every_log_and_no_other() {
    let node = Node::start();
    node.sandbox.send(node.pay(5)).unwrap();
    node.sandbox.mine(1).unwrap();
    let empty = json!(format!("0x{}", "00".repeat(256)));
    assert_eq!(node.block("latest")["logsBloom"], empty);
    let mut other = node.pay_token(6);
    other.effects.logs[0].topics.push([9; 32]);
    let paid = [node.pay_token(5), other].map(|tx| node.sandbox.send(tx).unwrap());
    let hash = node.sandbox.mine(1).unwrap()[0];
    let receipts = paid.map(|txid| node.receipt(txid));
    let logs = |receipt: &Value| receipt["logs"].as_array().unwrap().clone();
    for receipt in &receipts {
        assert_eq!(receipt["logsBloom"], bloom::of_logs(&logs(receipt)));
    }
    let all = receipts.each_ref().map(logs).concat();
    assert_eq!(all.len(), 2);
    assert_eq!(node.block("latest")["logsBloom"], bloom::of_logs(&all));

    let mut told = [0; 256];
    told[255] = 0x81;
    node.sandbox.set_bloom(hash, told).unwrap();
    let bloom = node.block("latest")["logsBloom"].clone();
    assert!(bloom.as_str().unwrap().ends_with("0081"));
}
