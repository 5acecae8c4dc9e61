//! C13: a block with transactions that nobody has met before, or without a field that is needed.

use serde_json::{Value, json};

use super::{COIN, Chain, E1, E2, ELSEWHERE, books, mine, nets, node_with_token, wait_books, wait_state};
use crate::common::anvil::AnvilNode;
use crate::common::contracts::{Contract, Token};
use crate::common::daemon::Daemon;
use crate::common::evm_proxy::EvmProxy;
use crate::common::evm_proxy::script::{Asked, Fault};
use crate::common::stub::Call;
use crate::common::wait::{PATIENCE, wait_until};

/// Changes a transaction wherever the node shows it: in blocks, and by its hash.
fn edit_tx(proxy: &EvmProxy, hash: &str, edit: impl Fn(&mut Value) + Clone + Send + Sync + 'static) {
    let (hash, of_one) = (hash.to_owned(), edit.clone());
    let is_it = move |tx: &Value| tx["hash"] == hash.as_str();
    let is_this = is_it.clone();
    proxy.always(
        "eth_getBlockByHash",
        Fault::edit(move |_, mut block| {
            let txs = block.get_mut("transactions").and_then(Value::as_array_mut);
            txs.into_iter().flatten().filter(|tx| is_it(tx)).for_each(&edit);
            block
        }),
    );
    proxy.always(
        "eth_getTransactionByHash",
        Fault::edit(move |_, mut tx| {
            if is_this(&tx) {
                of_one(&mut tx);
            }
            tx
        }),
    );
}

/// Changes receipts wherever the node shows them.
fn edit_receipts(proxy: &EvmProxy, edit: impl Fn(&mut Value) + Clone + Send + Sync + 'static) {
    let of_one = edit.clone();
    proxy.always(
        "eth_getTransactionReceipt",
        Fault::edit(move |_, mut receipt| {
            if receipt.is_object() {
                of_one(&mut receipt);
            }
            receipt
        }),
    );
    proxy.always(
        "eth_getBlockReceipts",
        Fault::edit(move |_, mut receipts| {
            receipts.as_array_mut().into_iter().flatten().for_each(&edit);
            receipts
        }),
    );
}

fn drop_fields(value: &mut Value, names: &[&str]) {
    names.iter().for_each(|name| {
        value.as_object_mut().unwrap().remove(*name);
    });
}

fn set_fields(value: &mut Value, fields: &Value) {
    for (name, field) in fields.as_object().unwrap() {
        value[name] = field.clone();
    }
}

/// Makes four transactions look like others: of a rollup's own making, with blobs, with delegations, and of a
/// type that there is not.
fn make_strange(proxy: &EvmProxy, [made_by_rollup, blob, delegating, unknown]: [&str; 4]) {
    edit_tx(proxy, made_by_rollup, |tx| {
        drop_fields(
            tx,
            &[
                "nonce",
                "v",
                "r",
                "s",
                "yParity",
                "gasPrice",
                "maxFeePerGas",
                "maxPriorityFeePerGas",
            ],
        );
        let fields =
            json!({ "type": "0x7e", "mint": "0x3782dace9d900000", "sourceHash": null, "isSystemTx": false });
        set_fields(tx, &fields);
    });
    edit_tx(proxy, blob, |tx| {
        set_fields(
            tx,
            &json!({ "type": "0x3", "blobVersionedHashes": ["0x01"], "maxFeePerBlobGas": "0x1" }),
        );
    });
    edit_tx(proxy, delegating, |tx| {
        let list = json!([
            { "chainId": "0x0", "address": E2, "nonce": "0x0", "yParity": "0x1", "r": "0x1", "s": "0x2" },
        ]);
        set_fields(tx, &json!({ "type": "0x4", "authorizationList": list }));
    });
    edit_tx(proxy, unknown, |tx| {
        let fields = json!({
            "type": "0x42", "to_whom": [1, { "a": null }], "gas": "much", "input": 7, "chainId": -1,
        });
        set_fields(tx, &fields);
        drop_fields(tx, &["from", "nonce"]);
    });
}

#[test]
fn c13_block_with_transactions_of_types_never_met_before_is_read() {
    let node = AnvilNode::start(super::CHAIN_ID);
    let proxy = EvmProxy::in_front_of(&node.url());
    let daemon = Chain::at(&proxy.url()).coin("\"traces\"").follow(&node);
    let pay = |payer: usize, to: &str, wei: u128| node.pay(&node.account(payer), to, wei);
    let made_by_rollup = pay(1, E1, COIN / 2);
    let blob = pay(2, ELSEWHERE, 1);
    let delegating = pay(3, ELSEWHERE, 1);
    let unknown = pay(4, ELSEWHERE, 1);
    let creation = Contract::named("Splitter").creation(&[]);
    node.send(json!({ "from": node.account(5), "data": creation, "gas": "0x1e8480", "value": "0x0" }));
    let usual = pay(6, E1, COIN);
    make_strange(&proxy, [&made_by_rollup, &blob, &delegating, &unknown]);
    edit_receipts(&proxy, |receipt| {
        drop_fields(receipt, &["effectiveGasPrice", "cumulativeGasUsed"]);
        set_fields(
            receipt,
            &json!({ "l1Fee": "0x1", "depositNonce": "0x0", "gasUsedForL1": {}, "type": "0x42" }),
        );
    });
    mine(&node, &daemon, 5);
    let waiting = [
        "native: 1000000000000000000 to E1 confirming",
        "native: 500000000000000000 to E1 confirming",
    ];
    wait_books(&daemon, &waiting);
    mine(&node, &daemon, 1);
    wait_books(
        &daemon,
        &waiting
            .map(|line| line.replace("confirming", "credited"))
            .each_ref()
            .map(String::as_str),
    );
    assert_eq!(
        daemon.deposit(&made_by_rollup, 0).unwrap()["amount"],
        json!("0.5"),
        "its value, not its mint"
    );
    assert_eq!(daemon.deposit(&usual, 0).unwrap()["amount"], json!("1"));
    daemon.assert_sound();
}

/// What a needed field that is missing, of a payment to us or of somebody else's, does to its block.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// The chain halts as `bad_block`, in words that name the field, until the field is there.
    BadBlock,
    /// The payment waits, held, and is never credited by itself.
    Held,
    /// It is nobody's: nothing.
    Ignored,
}

/// A block with a payment to us and one to nobody, in coin and in a token.
struct Block {
    node: AnvilNode,
    proxy: EvmProxy,
    daemon: Daemon,
    /// Coin and token to us, then to nobody.
    txs: [String; 4],
}

const ALL: [&str; 2] = ["log 0: 6000000 to E2 credited", "native: 5 to E1 credited"];

impl Block {
    /// Not mined yet.
    fn new(node: AnvilNode, token: &Token, inner: &str) -> Self {
        let proxy = EvmProxy::in_front_of(&node.url());
        let daemon = Chain::at(&proxy.url()).coin(inner).tusd(token).follow(&node);
        let txs = [
            node.pay(&node.account(1), E1, 5),
            token.transfer(&node, &node.account(2), E2, 6_000_000),
            node.pay(&node.account(3), ELSEWHERE, 5),
            token.transfer(&node, &node.account(0), ELSEWHERE, 6_000_000),
        ];
        Self {
            node,
            proxy,
            daemon,
            txs,
        }
    }

    /// The field is missing once, then for ever, then there again.
    #[track_caller]
    fn play(self, field: &'static str, outcome: Outcome) {
        let Self {
            node, proxy, daemon, ..
        } = self;
        let below = node.height();
        node.mine(6);
        match outcome {
            Outcome::BadBlock => {
                let status = wait_state(&daemon, "bad_block", field);
                assert_eq!(
                    (&status["is_halted"], &status["height"]),
                    (&json!(true), &json!(below))
                );
                assert_eq!(books(&daemon), Vec::<String>::new());
                assert_eq!(daemon.events_of("chain.halted").len(), 1);
                proxy.lift_all();
                wait_books(&daemon, &ALL);
                // Told after the round that brought the books.
                wait_until("the chain to be told of as resumed", PATIENCE, || {
                    (!daemon.events_of("chain.resumed").is_empty()).then_some(())
                });
                assert_eq!(daemon.events_of("chain.resumed").len(), 1);
            }
            Outcome::Held => {
                daemon.wait_height_of("dev", node.height());
                let held = [
                    "log 0: 6000000 to E2 credited",
                    "native: 5 to E1 confirming held status_unknown",
                ];
                wait_books(&daemon, &held);
                assert_eq!(nets(&daemon), ["6000000"]);
                assert_eq!(daemon.events_of("deposit.held").len(), 1);
            }
            Outcome::Ignored => {
                daemon.wait_height_of("dev", node.height());
                wait_books(&daemon, &ALL);
            }
        }
        daemon.wait_height_of("dev", node.height());
        daemon.assert_sound();
    }
}

#[test]
fn c13_needed_field_of_a_transaction_that_is_missing_is_never_skipped() {
    // Of whose transaction (in coin to us, in coin to nobody), which field, and what comes of it.
    for (whose, field, outcome) in [
        (0, "hash", Outcome::BadBlock),
        (2, "hash", Outcome::Ignored),
        (0, "to", Outcome::BadBlock),
        (2, "to", Outcome::BadBlock),
        (0, "value", Outcome::BadBlock),
        (2, "value", Outcome::Ignored),
    ] {
        eprintln!("{field} of transaction {whose} is missing");
        let (node, token) = node_with_token();
        let block = Block::new(node, &token, "\"traces\"");
        edit_tx(&block.proxy, &block.txs[whose], move |tx| {
            drop_fields(tx, &[field])
        });
        block.play(field, outcome);
    }
}

#[test]
fn c13_needed_field_of_a_receipt_that_is_missing_is_never_skipped() {
    for (whose, field, outcome) in [
        (0, "status", Outcome::Held),
        (2, "status", Outcome::Ignored),
        (3, "status", Outcome::Ignored),
        (0, "logs", Outcome::BadBlock),
        (1, "logs", Outcome::BadBlock),
        (3, "logs", Outcome::Ignored),
    ] {
        eprintln!("{field} of the receipt of transaction {whose} is missing");
        let (node, token) = node_with_token();
        let block = Block::new(node, &token, "\"traces\"");
        let tx = block.txs[whose].clone();
        edit_receipts(&block.proxy, move |receipt| {
            if receipt["transactionHash"] == tx.as_str() {
                drop_fields(receipt, &[field]);
            }
        });
        block.play(field, outcome);
    }
}

/// In the list of logs, where the log stands for its transaction, and in the receipt, from which it is read.
#[test]
fn c13_needed_field_of_a_log_that_is_missing_is_never_skipped() {
    use Outcome::{BadBlock, Ignored};
    // In the list or the receipt, which field, what comes of it where the log pays us and where it does not.
    for (in_list, field, ours, others) in [
        (true, "address", BadBlock, BadBlock),
        (true, "topics", BadBlock, BadBlock),
        (true, "data", BadBlock, BadBlock),
        (true, "transactionHash", BadBlock, Ignored),
        (false, "address", BadBlock, Ignored),
        (false, "topics", BadBlock, Ignored),
        (false, "data", BadBlock, Ignored),
    ] {
        for (whose, outcome) in [(1, ours), (3, others)] {
            eprintln!("{field} of the log of transaction {whose} is missing, in the list: {in_list}");
            let (node, token) = node_with_token();
            let block = Block::new(node, &token, "\"none\"");
            let tx = block.txs[whose].clone();
            let spoil = move |log: &mut Value| {
                if log["transactionHash"] == tx.as_str() {
                    drop_fields(log, &[field]);
                }
            };
            if in_list {
                let of_list = Fault::edit(move |_, mut logs| {
                    logs.as_array_mut().into_iter().flatten().for_each(&spoil);
                    logs
                });
                block.proxy.always("eth_getLogs", of_list);
            } else {
                edit_receipts(&block.proxy, move |receipt| {
                    receipt["logs"]
                        .as_array_mut()
                        .unwrap()
                        .iter_mut()
                        .for_each(&spoil);
                });
            }
            block.play(field, outcome);
        }
    }
}

/// A proxy under load dropped the field: asked again, it is there, and nothing is held.
#[test]
fn c13_field_that_was_dropped_on_the_way_once_is_asked_for_again() {
    let (node, token) = node_with_token();
    let block = Block::new(node, &token, "\"traces\"");
    let without = |name: &'static str| {
        Fault::edit(move |_, mut answer| {
            let txs = answer.get_mut("transactions").and_then(Value::as_array_mut);
            txs.into_iter().flatten().for_each(|tx| drop_fields(tx, &[name]));
            answer
        })
    };
    block
        .proxy
        .once("eth_getTransactionReceipt", Fault::without_field("status"));
    block
        .proxy
        .once("eth_getTransactionReceipt", Fault::without_field("status"));
    block.node.mine(6);
    wait_books(&block.daemon, &ALL);
    let tx = block.node.pay(&block.node.account(1), E1, 9);
    for name in ["to", "value"] {
        let is_block =
            |call: &Call| call.method == "eth_getBlockByHash" && call.params.get(1) == Some(&json!(true));
        block.proxy.once(Asked::when(is_block), without(name));
    }
    block.node.mine(6);
    block.daemon.wait_deposit(&tx, 0, "credited");
    assert_eq!(block.daemon.events_of("deposit.held").len(), 0);
    assert_eq!(block.daemon.events_of("chain.halted").len(), 0);
    block.daemon.assert_sound();
}

#[test]
fn c13_status_that_is_not_plainly_one_is_no_success() {
    let (node, token) = node_with_token();
    let proxy = EvmProxy::in_front_of(&node.url());
    let daemon = Chain::at(&proxy.url()).tusd(&token).follow(&node);
    let statuses = [
        json!("0x2"),
        json!(1),
        json!(true),
        json!(null),
        json!("1"),
        json!(""),
    ];
    let txs: Vec<String> = (1_u128..)
        .zip(&statuses)
        .map(|(amount, _)| token.transfer(&node, &node.account(1), E1, amount))
        .collect();
    let of: std::collections::HashMap<String, Value> = txs.iter().cloned().zip(statuses).collect();
    edit_receipts(&proxy, move |receipt| {
        if let Some(status) = of.get(receipt["transactionHash"].as_str().unwrap()) {
            receipt["status"] = status.clone();
        }
    });
    mine(&node, &daemon, 7);
    wait_until("all are held", PATIENCE, || {
        let books = books(&daemon);
        let is_held = |line: &String| line.ends_with("confirming held status_unknown");
        (books.len() == txs.len() && books.iter().all(is_held)).then_some(())
    });
    assert_eq!(daemon.credits().len(), 0);
    daemon.assert_sound();
}
