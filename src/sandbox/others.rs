//! Calls that creditd never makes and other watchers do: what a transaction holds, written out, and what is
//! unspent.

use super::chain::{Block, Chain, Coin};
use super::decoded::{Detail, descriptor, transaction};
use super::encode::Tx;
use super::front::{RpcError, coins};
use super::question::Args;
use super::{decoded, script_of};
use crate::rules::{Outpoint, Txid};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The transactions of a block as `getblock` has them from verbosity 2 on.
pub(super) fn transactions_of(chain: &Chain, block: &Block, verbosity: i64) -> Value {
    let detail = match verbosity {
        ..=2 => Detail::Fee,
        3.. => Detail::Spent,
    };
    let txs = block.txs.iter();
    txs.map(|tx| Value::Object(transaction(chain, tx, Some(block), detail)))
        .collect()
}

/// One transaction as `getrawtransaction` has it from verbosity 1 on.
pub(super) fn written_out(chain: &Chain, tx: &Tx, block: Option<&Block>, verbosity: i64) -> Value {
    let detail = match verbosity {
        ..=1 => Detail::Own,
        2.. => Detail::Spent,
    };
    let mut fields = transaction(chain, tx, block, detail);
    let Some(block) = block else {
        return Value::Object(fields);
    };
    let is_active = chain.is_active(block);
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("in_active_chain", json!(is_active));
    put("blockhash", json!(block.hash.to_string()));
    if is_active {
        put("confirmations", json!(depth(chain, block.height)));
        put("time", json!(block.header.time));
        put("blocktime", json!(block.header.time));
    } else {
        put("confirmations", json!(0));
    }
    Value::Object(fields)
}

fn depth(chain: &Chain, height: u32) -> u32 {
    chain.tip().height.saturating_sub(height).saturating_add(1)
}

pub(super) fn tx_out(chain: &Chain, args: &Args) -> Result<Value, RpcError> {
    let txid = Txid(args.hash("txid", "txid")?);
    let Ok(vout) = u64::try_from(args.whole("n", 0)?) else {
        return Ok(Value::Null);
    };
    let outpoint = Outpoint { txid, vout };
    let mempool = args.flag("include_mempool", true).then_some(&chain.mempool);
    let mut waiting = mempool.into_iter().flat_map(|mempool| mempool.iter());
    let is_spent = |tx: &Tx| tx.inputs.iter().any(|input| input.spends == outpoint);
    if waiting.any(|tx| is_spent(tx)) {
        return Ok(Value::Null);
    }
    if let Some(coin) = chain.coins.get(&outpoint) {
        return Ok(unspent(chain, coin, depth(chain, coin.height)));
    }
    let made = mempool.and_then(|mempool| mempool.get(&txid));
    let output = made.and_then(|tx| tx.outputs.get(usize::try_from(vout).ok()?));
    Ok(output.map_or(Value::Null, |output| {
        let coin = Coin {
            sat: output.sat,
            script: output.script.clone(),
            height: 0,
            is_coinbase: false,
        };
        unspent(chain, &coin, 0)
    }))
}

fn unspent(chain: &Chain, coin: &Coin, confirmations: u32) -> Value {
    json!({
        "bestblock": chain.tip().hash.to_string(),
        "confirmations": confirmations,
        "value": coins(coin.sat),
        "scriptPubKey": decoded::script_pub_key(&coin.script),
        "coinbase": coin.is_coinbase,
    })
}

pub(super) fn mempool_entry(chain: &Chain, args: &Args) -> Result<Value, RpcError> {
    let txid = Txid(args.hash("txid", "txid")?);
    let Some(tx) = chain.mempool.get(&txid) else {
        return Err(RpcError::new(-5, "Transaction not in mempool"));
    };
    let spends = |child: &Tx, parent: &Txid| child.inputs.iter().any(|input| input.spends.txid == *parent);
    let depends = chain.mempool.iter().filter(|other| spends(tx, &other.txid));
    let spent_by = chain.mempool.iter().filter(|other| spends(other, &txid));
    let ids = |txs: &mut dyn Iterator<Item = String>| txs.collect::<Vec<_>>();
    let depends = ids(&mut depends.map(|tx| tx.txid.to_string()));
    let spent_by = ids(&mut spent_by.map(|tx| tx.txid.to_string()));
    let family = chain.mempool.with_descendants(&txid);
    let below: u64 = family.iter().map(|tx| chain.fee(tx)).sum();
    let mut above = Vec::new();
    ancestors(chain, tx, &mut above);
    let above: u64 = above.iter().map(|tx| chain.fee(tx)).sum::<u64>() + chain.fee(tx);
    Ok(json!({
        "vsize": tx.virtual_size(),
        "weight": tx.stripped_size * 3 + tx.bytes.len(),
        "wtxid": const_hex::encode(tx.wtxid()),
        "descendantcount": family.len(),
        "fees": {
            "base": coins(chain.fee(tx)),
            "modified": coins(chain.fee(tx)),
            "descendant": coins(below),
            "ancestor": coins(above),
        },
        "depends": depends,
        "spentby": spent_by,
        "bip125-replaceable": true,
    }))
}

fn ancestors<'c>(chain: &'c Chain, tx: &Tx, found: &mut Vec<&'c Tx>) {
    for input in &tx.inputs {
        let parent = chain.mempool.get(&input.spends.txid);
        let is_new = |parent: &&std::sync::Arc<Tx>| !found.iter().any(|known| known.txid == parent.txid);
        if let Some(parent) = parent.filter(is_new) {
            found.push(parent);
            ancestors(chain, parent, found);
        }
    }
}

/// Nobody is told anything here by other ways.
pub(super) fn zmq_notifications(_: &Chain, _: &Args) -> Result<Value, RpcError> {
    Ok(json!([]))
}

/// Every coin of the scripts that are asked for, at once: there is nothing to wait for.
pub(super) fn scan_tx_outs(chain: &Chain, args: &Args) -> Result<Value, RpcError> {
    match args.text("action") {
        "start" => {}
        "status" => return Ok(Value::Null),
        "abort" => return Ok(json!(false)),
        other => return Err(RpcError::new(-8, format!("Invalid action '{other}'"))),
    }
    let Some(Value::Array(wanted)) = args.any("scanobjects") else {
        let why = "scanobjects argument is required for the start action";
        return Err(RpcError::new(-1, why));
    };
    let scripts = wanted.iter().map(script).collect::<Result<BTreeSet<_>, _>>()?;
    let found = chain
        .coins
        .iter()
        .filter(|(_, coin)| scripts.contains(&coin.script));
    let mut total = 0;
    let unspents = found.map(|(outpoint, coin)| {
        total += coin.sat;
        let block = chain.at(coin.height).map(|block| block.hash.to_string());
        json!({
            "txid": outpoint.txid.to_string(),
            "vout": outpoint.vout,
            "scriptPubKey": const_hex::encode(&coin.script),
            "desc": descriptor(&coin.script),
            "amount": coins(coin.sat),
            "coinbase": coin.is_coinbase,
            "height": coin.height,
            "blockhash": block,
            "confirmations": depth(chain, coin.height),
        })
    });
    let mut fields = Map::new();
    let unspents: Vec<Value> = unspents.collect();
    fields.insert("unspents".to_owned(), json!(unspents));
    fields.insert("success".to_owned(), json!(true));
    fields.insert("txouts".to_owned(), json!(chain.coins.len()));
    fields.insert("height".to_owned(), json!(chain.tip().height));
    fields.insert("bestblock".to_owned(), json!(chain.tip().hash.to_string()));
    fields.insert("total_amount".to_owned(), coins(total));
    Ok(Value::Object(fields))
}

/// The script of `raw(HEX)` or `addr(ADDRESS)`, alone or as an object's `desc`, with or without a checksum.
fn script(wanted: &Value) -> Result<Vec<u8>, RpcError> {
    let text = wanted.as_str().or(wanted["desc"].as_str()).unwrap_or_default();
    let words = text.split('#').next().unwrap_or_default();
    let inside = |name: &str| words.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
    let raw = inside("raw").and_then(|hex| const_hex::decode(hex).ok());
    let found = raw.or_else(|| script_of(inside("addr")?));
    found.ok_or_else(|| {
        let why = format!("'{text}' is not a descriptor that the sandbox knows: raw(HEX) and addr(ADDRESS)");
        RpcError::new(-5, why)
    })
}
