//! Blocks, transactions, receipts and logs as the node writes them: the fields of Geth, in the forms of the
//! execution API. <https://ethereum.github.io/execution-apis/>

use super::chain::{Block, Included, bloom_of};
use super::tx::{Signed, digest, hex};
use ruint::aliases::U256;
use serde_json::{Map, Value, json};
use std::fmt::{Display, LowerHex};

/// What a block says the least price of gas is; it is burned with the rest of the fee.
const BASE_FEE: u64 = 1_000_000_000;

/// The hash of an empty list of uncles.
const NO_UNCLES: &str = "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347";

/// A number: hex without leading zeros.
pub(super) fn quantity(number: impl LowerHex) -> Value {
    json!(format!("{number:#x}"))
}

/// A hash of ours.
pub(super) fn hash(hash: impl Display) -> Value {
    json!(format!("0x{hash}"))
}

/// Something that looks like a hash, where nobody looks closer.
fn root(name: &str, of: &[u8]) -> Value {
    json!(hex(&digest(&[name.as_bytes(), of])))
}

/// Where a transaction is: none while it waits.
#[derive(Clone, Copy)]
pub(super) struct Position<'a> {
    pub(super) block: &'a Block,
    pub(super) index: usize,
}

/// A block with its transactions whole.
pub(super) fn whole_block(block: &Block) -> Value {
    let tx = |held: &Included| {
        let index = held.index;
        transaction(&held.tx, Some(Position { block, index }))
    };
    Value::Object(block_fields(block, block.txs.iter().map(tx).collect()))
}

/// A block with the hashes of its transactions.
pub(super) fn slim_block(block: &Block) -> Value {
    let hashes = block.txs.iter().map(|held| hash(held.tx.hash));
    Value::Object(block_fields(block, hashes.collect()))
}

/// The block to come: it has no hash yet, and neither have its transactions a place.
pub(super) fn pending_block(block: &Block, is_whole: bool) -> Value {
    let tx = |held: &Included| match is_whole {
        true => transaction(&held.tx, None),
        false => hash(held.tx.hash),
    };
    let mut fields = block_fields(block, block.txs.iter().map(tx).collect());
    for name in ["hash", "nonce", "miner"] {
        fields.insert(name.to_owned(), Value::Null);
    }
    Value::Object(fields)
}

fn block_fields(block: &Block, transactions: Value) -> Map<String, Value> {
    let own = &block.hash.0;
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("number", quantity(block.number));
    put("hash", hash(block.hash));
    put("parentHash", hash(block.parent));
    put("timestamp", quantity(block.timestamp));
    put("logsBloom", json!(hex(&block.bloom())));
    put("difficulty", quantity(0));
    put("nonce", json!("0x0000000000000000"));
    put("miner", json!(super::tx::Address::ZERO.to_string()));
    put("extraData", json!("0x"));
    put("size", quantity(600 + 200 * block.txs.len()));
    put("gasLimit", quantity(60_000_000_u64));
    put("gasUsed", quantity(block.gas_used()));
    put("baseFeePerGas", quantity(BASE_FEE));
    put("mixHash", root("mix", own));
    put("sha3Uncles", json!(NO_UNCLES));
    put("stateRoot", root("state", own));
    put("transactionsRoot", root("transactions", own));
    put("receiptsRoot", root("receipts", own));
    put("uncles", json!([]));
    put("transactions", transactions);
    put("withdrawals", json!([]));
    put("withdrawalsRoot", root("withdrawals", &[]));
    put("blobGasUsed", quantity(0));
    put("excessBlobGas", quantity(0));
    put("parentBeaconBlockRoot", root("beacon", own));
    fields
}

/// A transaction, with the fields of its type.
pub(super) fn transaction(signed: &Signed, position: Option<Position<'_>>) -> Value {
    let tx = &signed.tx;
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("type", quantity(tx.kind));
    put("hash", hash(signed.hash));
    put("from", json!(tx.from.to_string()));
    put("to", json!(tx.to.map(|to| to.to_string())));
    put("value", quantity(tx.value));
    put("input", json!(hex(&tx.input)));
    put("gas", quantity(300_000));
    put("gasPrice", quantity(tx.gas_price));
    put(
        "blockHash",
        json!(position.map(|at| format!("0x{}", at.block.hash))),
    );
    put("blockNumber", json!(position.map(|at| quantity(at.block.number))));
    put("transactionIndex", json!(position.map(|at| quantity(at.index))));
    if let Some(nonce) = signed.nonce {
        put("nonce", quantity(nonce));
    }
    if tx.kind == 0x7e {
        put("sourceHash", root("source", &signed.hash.0));
        put("mint", quantity(tx.value));
        put("isSystemTx", json!(false));
    } else {
        put("chainId", quantity(signed.chain_id));
        // Numbers, of which every 16th is a digit shorter.
        put(
            "r",
            quantity(U256::from_be_bytes(digest(&[b"r", &signed.hash.0]))),
        );
        put(
            "s",
            quantity(U256::from_be_bytes(digest(&[b"s", &signed.hash.0]))),
        );
        let parity = u64::from(signed.hash.0[0] & 1);
        if tx.kind == 0 {
            put(
                "v",
                quantity(signed.chain_id.saturating_mul(2).saturating_add(35 + parity)),
            );
        } else {
            put("v", quantity(parity));
            put("yParity", quantity(parity));
            put("accessList", json!([]));
            put("maxFeePerGas", quantity(tx.gas_price));
            let tip = tx.gas_price.saturating_sub(BASE_FEE);
            put("maxPriorityFeePerGas", quantity(tip));
        }
    }
    tx.odd.apply(&mut fields);
    Value::Object(fields)
}

/// What came of a transaction.
pub(super) fn receipt(block: &Block, held: &Included) -> Value {
    let tx = &held.tx.tx;
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("type", quantity(tx.kind));
    put("status", quantity(u8::from(held.effects.is_success)));
    put("transactionHash", hash(held.tx.hash));
    put("transactionIndex", quantity(held.index));
    put("blockHash", hash(block.hash));
    put("blockNumber", quantity(block.number));
    put("from", json!(tx.from.to_string()));
    put("to", json!(tx.to.map(|to| to.to_string())));
    // Named even where the creation failed.
    let contract = held.tx.contract();
    put("contractAddress", json!(contract.map(|made| made.to_string())));
    put("gasUsed", quantity(held.gas_used));
    put("cumulativeGasUsed", quantity(held.gas_used_so_far));
    put("effectiveGasPrice", quantity(tx.gas_price));
    put("logs", Value::Array(logs(block, held)));
    put("logsBloom", json!(hex(&bloom_of(held.logs()))));
    tx.odd_receipt.apply(&mut fields);
    Value::Object(fields)
}

/// The logs of a transaction. Their numbers count through the whole block.
pub(super) fn logs(block: &Block, held: &Included) -> Vec<Value> {
    let numbered = held.logs().zip(held.first_log..);
    let log = |(log, index): (&super::tx::Log, usize)| {
        let topics: Vec<String> = log.topics.iter().map(|topic| hex(topic)).collect();
        json!({
            "address": log.address.to_string(),
            "topics": topics,
            "data": hex(&log.data),
            "logIndex": quantity(index),
            "transactionHash": hash(held.tx.hash),
            "transactionIndex": quantity(held.index),
            "blockHash": hash(block.hash),
            "blockNumber": quantity(block.number),
            "blockTimestamp": quantity(block.timestamp),
            "removed": false,
        })
    };
    numbered.map(log).collect()
}
