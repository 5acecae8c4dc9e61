//! The pool and the tree of blocks: what waits, what replaces it, and what becomes of it on a reorg.

use super::{Node, ether, hex};
use creditd::sandbox::SandboxError;
use creditd::sandbox::evm::{Effects, Log, Nonce, Stale, Tx, U256};
use serde_json::{Value, json};

impl Node {
    fn nonce(&self, block: &str) -> Value {
        self.ask("eth_getTransactionCount", &json!([self.ann.to_string(), block]))
    }

    /// A payment with a nonce of its own choice.
    fn nth(&self, nonce: u64, wei: u64) -> Tx {
        Tx {
            nonce: Nonce::Given(nonce),
            ..self.pay(wei)
        }
    }

    /// The payment that takes another's place.
    fn dearer(&self, nonce: u64, wei: u64) -> Tx {
        Tx {
            gas_price: 2_200_000_000,
            ..self.nth(nonce, wei)
        }
    }
}

pub(super) fn refusal<T: std::fmt::Debug>(outcome: Result<T, SandboxError>) -> String {
    match outcome {
        Err(SandboxError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn evm_pool_waits_in_the_order_of_nonces() {
    let node = Node::start();
    let first = node.sandbox.send(node.pay(1)).unwrap();
    let third = node.sandbox.send(node.nth(2, 3)).unwrap();
    let waiting = node.tx(first);
    for name in ["blockHash", "blockNumber", "transactionIndex"] {
        assert_eq!(waiting[name], Value::Null, "{name}");
    }
    assert_eq!(node.receipt(first), Value::Null);
    assert_eq!(
        (node.nonce("latest"), node.nonce("pending")),
        (json!("0x0"), json!("0x1"))
    );
    let ann = node.ann.to_string();
    assert_eq!(
        node.ask("txpool_content", &json!([])),
        json!({"pending": {&ann: {"0": waiting}}, "queued": {&ann: {"2": node.tx(third)}}})
    );
    let to_come = node.block("pending");
    assert_eq!(
        (&to_come["number"], &to_come["transactions"]),
        (&json!("0x1"), &json!([hex(first)]))
    );
    assert_eq!(to_come["parentHash"], hex(node.sandbox.tip()));
    assert_eq!(
        ["hash", "nonce", "miner"].map(|name| to_come[name].clone()),
        [Value::Null, Value::Null, Value::Null]
    );
    let whole = node.ask("eth_getBlockByNumber", &json!(["pending", true]));
    assert_eq!(whole["transactions"], json!([node.tx(first)]));
    node.sandbox.mine(1).unwrap();
    assert_eq!(node.sandbox.pool(), [third], "a gap of nonces is waited for");
    let second = node.sandbox.send(node.pay(2)).unwrap();
    assert_eq!(node.nonce("pending"), "0x3");
    node.sandbox.mine(1).unwrap();
    assert_eq!(
        node.block("latest")["transactions"],
        json!([hex(second), hex(third)])
    );
    assert_eq!(
        (node.sandbox.pool().len(), node.nonce("latest")),
        (0, json!("0x3"))
    );
}

#[test]
fn evm_replacement_must_pay_a_tenth_more() {
    let node = Node::start();
    let old = node.sandbox.send(node.pay(1)).unwrap();
    assert_eq!(
        refusal(node.sandbox.send(node.pay(1)).and(node.sandbox.resend(old))),
        "already known"
    );
    node.sandbox.evict(node.sandbox.pool()[1]);
    let cheap = Tx {
        gas_price: 2_199_999_999,
        ..node.nth(0, 2)
    };
    assert_eq!(
        refusal(node.sandbox.send(cheap)),
        "replacement transaction underpriced"
    );
    let new = node.sandbox.send(node.dearer(0, 2)).unwrap();
    assert_eq!((node.tx(old), node.sandbox.pool()), (Value::Null, vec![new]));
    node.sandbox.mine(1).unwrap();
    assert_eq!(refusal(node.sandbox.resend(old)), "nonce too low");
    assert!(refusal(node.sandbox.mine_with(&[old])).starts_with("nonce too low"));
    assert_eq!(node.receipt(new)["status"], "0x1");
}

#[test]
fn evm_dropped_transaction_can_be_sent_again() {
    let node = Node::start();
    let txid = node.sandbox.send(node.pay(1)).unwrap();
    assert!(node.sandbox.evict(txid) && !node.sandbox.evict(txid));
    assert_eq!(node.tx(txid), Value::Null);
    assert_eq!(node.nonce("pending"), "0x0");
    node.sandbox.resend(txid).unwrap();
    assert_eq!(node.tx(txid)["hash"], hex(txid));
}

#[test]
fn evm_transaction_kept_back_is_seen_first_in_its_block() {
    let node = Node::start();
    let public = node.sandbox.send(node.pay(1)).unwrap();
    let secret = node.sandbox.prepare(node.nth(0, 2));
    assert_eq!(node.tx(secret), Value::Null);
    node.sandbox.mine_with(&[secret]).unwrap();
    assert_eq!(node.receipt(secret)["status"], "0x1");
    assert_eq!((node.tx(public), node.sandbox.pool().len()), (Value::Null, 0));
}

#[test]
fn evm_reorg_returns_what_it_drops_to_the_pool() {
    let node = Node::start();
    node.sandbox.mine(2).unwrap();
    let kept = node.sandbox.send(node.pay(1)).unwrap();
    node.sandbox.mine(1).unwrap();
    let lost = node.sandbox.send(node.pay(2)).unwrap();
    let stale = node.sandbox.mine(1).unwrap()[0];
    // 2-A-B with one payment in each against 2-A'-B'-C' with the first alone.
    node.sandbox.reorg(2, &[kept]).unwrap();
    assert_eq!(node.sandbox.height(), 5);
    assert_eq!(node.receipt(kept)["blockNumber"], "0x3");
    assert_eq!(
        node.receipt(kept)["blockHash"],
        hex(node.sandbox.block_hash(3).unwrap())
    );
    assert_eq!(
        (node.receipt(lost), node.sandbox.pool()),
        (Value::Null, vec![lost])
    );
    assert_eq!(node.sandbox.balance(node.bob), ether(10) + U256::from(1));
    let by_hash = || node.ask("eth_getBlockByHash", &json!([hex(stale), false]));
    assert_eq!(
        by_hash()["hash"],
        hex(stale),
        "a branch is still known by its hash"
    );
    node.sandbox.set_tip(stale, Stale::Kept).unwrap();
    assert_eq!((node.sandbox.height(), node.sandbox.pool().len()), (4, 0));
    assert_eq!(node.receipt(lost)["blockHash"], hex(stale));
    node.sandbox.reorg(2, &[]).unwrap();
    assert_eq!(node.sandbox.pool(), [kept, lost]);
    let tip = node.sandbox.tip();
    node.sandbox.set_tip(tip, Stale::Forgotten).unwrap();
    assert_eq!(by_hash(), Value::Null);
    assert!(matches!(
        node.sandbox.set_tip(stale, Stale::Kept),
        Err(SandboxError::Unknown(_))
    ));
    assert!(matches!(
        node.sandbox.reorg(6, &[]),
        Err(SandboxError::Refused(_))
    ));
}

#[test]
fn evm_side_branch_counts_once_the_node_goes_to_it() {
    let node = Node::start();
    node.sandbox.mine(3).unwrap();
    let tip = node.sandbox.tip();
    let first = node.sandbox.block_hash(1).unwrap();
    let paid = node.sandbox.prepare(node.pay(1));
    let side = node.sandbox.mine_on(first, &[paid]).unwrap();
    assert_eq!((node.sandbox.tip(), node.receipt(paid)), (tip, Value::Null));
    let shown = node.ask("eth_getBlockByHash", &json!([hex(side), true]));
    assert_eq!(
        (&shown["number"], &shown["transactions"][0]["hash"]),
        (&json!("0x2"), &json!(hex(paid)))
    );
    assert_eq!(node.block("0x2")["transactions"], json!([]));
    // A lower tip is as good as any: nothing but the word of the node decides.
    node.sandbox.set_tip(side, Stale::Forgotten).unwrap();
    assert_eq!(node.ask("eth_blockNumber", &json!([])), "0x2");
    assert_eq!(node.block("0x3"), Value::Null);
    assert_eq!(node.receipt(paid)["blockHash"], hex(side));
}

#[test]
fn evm_transaction_mined_again_gets_other_log_numbers_and_may_do_something_else() {
    let node = Node::start();
    let paid = node.sandbox.send(node.pay_token(5)).unwrap();
    node.sandbox.mine(1).unwrap();
    let log = |place: usize| node.receipt(paid)["logs"][place].clone();
    assert_eq!(log(0)["logIndex"], "0x0");
    let earlier = Tx {
        from: node.bob,
        ..node.pay_token(1)
    };
    let earlier = node.sandbox.prepare(earlier);
    node.sandbox.reorg(1, &[earlier, paid]).unwrap();
    assert_eq!(log(0)["logIndex"], "0x1");
    let other = Effects {
        logs: vec![Log::transfer(node.token, node.ann, node.bob, U256::from(4))],
        ..Effects::default()
    };
    node.sandbox.set_effects(paid, other).unwrap();
    assert!(
        log(0)["data"].as_str().unwrap().ends_with('5'),
        "what is mined stays as it was"
    );
    node.sandbox.reorg(2, &[paid]).unwrap();
    assert!(log(0)["data"].as_str().unwrap().ends_with('4'));
    node.sandbox.set_effects(paid, Effects::failed()).unwrap();
    node.sandbox.reorg(3, &[paid]).unwrap();
    assert_eq!(
        (&node.receipt(paid)["status"], log(0)),
        (&json!("0x0"), Value::Null)
    );
}

#[test]
fn evm_double_spend_of_a_nonce_in_another_branch_is_for_good() {
    let node = Node::start();
    let paid = node.sandbox.send(node.pay(1)).unwrap();
    node.sandbox.mine(1).unwrap();
    let double = node.sandbox.prepare(node.nth(0, 2));
    node.sandbox.reorg(1, &[double]).unwrap();
    assert_eq!((node.tx(paid), node.sandbox.pool().len()), (Value::Null, 0));
    assert_eq!(node.receipt(double)["status"], "0x1");
    assert_eq!(refusal(node.sandbox.resend(paid)), "nonce too low");
}
