//! Transactions and scripts as the node writes them out in JSON: what creditd never asks for, and other
//! watchers do. Fields and words are Bitcoin Core's.

use super::chain::{Block, Chain};
use super::encode::{Input, Output, Tx};
use super::front::coins;
use bitcoincore_rpc::bitcoin::opcodes::all::{OP_PUSHNUM_1, OP_PUSHNUM_16, OP_PUSHNUM_NEG1};
use bitcoincore_rpc::bitcoin::script::Instruction;
use bitcoincore_rpc::bitcoin::{Address, Network, Script};
use miniscript::descriptor::checksum::desc_checksum;
use serde_json::{Map, Value, json};

/// How much is told of a transaction in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// What is in it.
    Own,
    /// And its fee.
    Fee,
    /// And what it spends.
    Spent,
}

/// A transaction written out. What it spends is told where `block` was on the best chain.
pub(super) fn transaction(
    chain: &Chain,
    tx: &Tx,
    block: Option<&Block>,
    detail: Detail,
) -> Map<String, Value> {
    let known = block.filter(|block| block.was_active() && !tx.is_coinbase);
    let spent = known.filter(|_| detail == Detail::Spent);
    let inputs = tx.inputs.iter().map(|one| input(chain, tx, one, spent));
    let outputs = (0_u64..).zip(&tx.outputs).map(|(n, output)| {
        json!({
            "value": coins(output.sat),
            "n": n,
            "scriptPubKey": script_pub_key(&output.script),
        })
    });
    let weight = tx.stripped_size * 3 + tx.bytes.len();
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("txid", json!(tx.txid.to_string()));
    put("hash", json!(const_hex::encode(tx.wtxid())));
    put("version", json!(tx.version()));
    put("size", json!(tx.bytes.len()));
    put("vsize", json!(tx.virtual_size()));
    put("weight", json!(weight));
    put("locktime", json!(0));
    put("vin", inputs.collect());
    put("vout", outputs.collect());
    put("hex", json!(const_hex::encode(&tx.bytes)));
    if known.is_some() && detail != Detail::Own {
        put("fee", coins(chain.fee(tx)));
    }
    fields
}

fn input(chain: &Chain, tx: &Tx, input: &Input, spent: Option<&Block>) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    if tx.is_coinbase {
        put("coinbase", json!(const_hex::encode(&input.script)));
    } else {
        put("txid", json!(input.spends.txid.to_string()));
        put("vout", json!(input.spends.vout));
        let script = &input.script;
        put(
            "scriptSig",
            json!({"asm": asm(script), "hex": const_hex::encode(script)}),
        );
    }
    if !input.witness.is_empty() {
        let items = input.witness.iter().map(const_hex::encode);
        put("txinwitness", items.collect::<Vec<_>>().into());
    }
    put("sequence", json!(input.sequence));
    if let Some(coin) = spent.and_then(|block| block.spent(&input.spends)) {
        put(
            "prevout",
            json!({
                "generated": coin.is_coinbase,
                "height": coin.height,
                "value": coins(coin.sat),
                "scriptPubKey": script_pub_key(&coin.script),
            }),
        );
    } else if let Some(output) = spent.and_then(|_| made(chain, input)) {
        // Mined in this same block, or on a branch that was left.
        let script = script_pub_key(&output.script);
        put(
            "prevout",
            json!({"value": coins(output.sat), "scriptPubKey": script}),
        );
    }
    Value::Object(fields)
}

/// The output that an input spends.
fn made<'c>(chain: &'c Chain, input: &Input) -> Option<&'c Output> {
    let tx = chain.txs.get(&input.spends.txid)?;
    tx.outputs.get(usize::try_from(input.spends.vout).ok()?)
}

/// An output's script with all its names.
pub(super) fn script_pub_key(script: &[u8]) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("asm", json!(asm(script)));
    put("desc", json!(descriptor(script)));
    put("hex", json!(const_hex::encode(script)));
    // A key alone has no address, though one could be made of it.
    if let Some(address) = address(script).filter(|_| kind(script) != "pubkey") {
        put("address", json!(address));
    }
    put("type", json!(kind(script)));
    Value::Object(fields)
}

fn address(script: &[u8]) -> Option<String> {
    let address = Address::from_script(Script::from_bytes(script), Network::Regtest);
    address.ok().map(|address| address.to_string())
}

fn kind(script: &[u8]) -> &'static str {
    let script = Script::from_bytes(script);
    match script {
        _ if script.is_p2wpkh() => "witness_v0_keyhash",
        _ if script.is_p2wsh() => "witness_v0_scripthash",
        _ if script.is_p2tr() => "witness_v1_taproot",
        _ if script.is_p2pkh() => "pubkeyhash",
        _ if script.is_p2sh() => "scripthash",
        _ if script.is_p2pk() => "pubkey",
        _ if script.is_op_return() => "nulldata",
        _ => "nonstandard",
    }
}

/// What a node that has no keys makes of a script, with its checksum.
pub(super) fn descriptor(script: &[u8]) -> String {
    let all = const_hex::encode(script);
    let words = match (kind(script), address(script)) {
        // Length, key, OP_CHECKSIG.
        ("pubkey", _) => format!("pk({})", const_hex::encode(&script[1..script.len() - 1])),
        ("witness_v1_taproot", _) => format!("rawtr({})", const_hex::encode(&script[2..])),
        (_, Some(address)) => format!("addr({address})"),
        (_, None) => format!("raw({all})"),
    };
    match desc_checksum(&words) {
        Ok(checksum) => format!("{words}#{checksum}"),
        Err(_) => words,
    }
}

/// A script in words: pushes of up to four bytes are numbers, longer ones are hex.
fn asm(script: &[u8]) -> String {
    let word = |instruction| match instruction {
        Ok(Instruction::PushBytes(bytes)) if bytes.len() <= 4 => number(bytes.as_bytes()),
        Ok(Instruction::PushBytes(bytes)) => const_hex::encode(bytes.as_bytes()),
        Ok(Instruction::Op(op)) => match op.to_u8() {
            code if op == OP_PUSHNUM_NEG1 => format!("-{}", code - OP_PUSHNUM_NEG1.to_u8() + 1),
            code if (OP_PUSHNUM_1.to_u8()..=OP_PUSHNUM_16.to_u8()).contains(&code) => {
                (code - OP_PUSHNUM_1.to_u8() + 1).to_string()
            }
            _ => op.to_string(),
        },
        Err(_) => "[error]".to_owned(),
    };
    let words = Script::from_bytes(script).instructions().map(word);
    words.collect::<Vec<_>>().join(" ")
}

/// Little end first, the highest bit is the sign.
fn number(bytes: &[u8]) -> String {
    let Some((top, rest)) = bytes.split_last() else {
        return "0".to_owned();
    };
    let mut value = i64::from(top & 0x7f);
    for byte in rest.iter().rev() {
        value = value << 8 | i64::from(*byte);
    }
    match top & 0x80 {
        0 => value.to_string(),
        _ => format!("-{value}"),
    }
}
