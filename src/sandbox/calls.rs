//! Every call that the sandbox answers: those that creditd makes, those of other watchers, and a few for the
//! hand of whoever plays with it. Everything else is "Method not found". Fields, types, error codes and texts
//! are Bitcoin Core's (<https://developer.bitcoin.org/reference/rpc/>); a test holds them to a real node.
//!
//! REST paths, in `http`: `/rest/block/HASH.bin`, `/rest/headers/HASH.bin?count=N`,
//! `/rest/headers/N/HASH.bin`.

use super::chain::{Block, Chain};
use super::derive::derive_addresses;
use super::encode::{BITS, TARGET, block_bytes, count_size};
use super::front::RpcError;
use super::others::{self, transactions_of, written_out};
use super::question::{Answer, Arg, Args, Call, Kind};
use super::script_of;
use super::wallet::Payment;
use crate::rules::{Amount, BlockHash, Txid};
use serde_json::{Map, Value, json};

/// The calls, those of creditd first.
pub(super) const CALLS: &[Call] = &[
    Call {
        name: "getblockchaininfo",
        args: &[],
        answer: Answer::Read(blockchain_info),
    },
    Call {
        name: "getnetworkinfo",
        args: &[],
        answer: Answer::Read(network_info),
    },
    Call {
        name: "getbestblockhash",
        args: &[],
        answer: Answer::Read(best_block_hash),
    },
    Call {
        name: "getblockhash",
        args: &[Arg::needed("height", Kind::Number)],
        answer: Answer::Read(block_hash),
    },
    Call {
        name: "getblockheader",
        args: &[
            Arg::needed("blockhash", Kind::Text),
            Arg::optional("verbose", Kind::Bool),
        ],
        answer: Answer::Read(block_header),
    },
    Call {
        name: "getblock",
        args: &[
            Arg::needed("blockhash", Kind::Text),
            Arg::optional("verbosity", Kind::Any),
        ],
        answer: Answer::Read(block),
    },
    Call {
        name: "getchaintips",
        args: &[],
        answer: Answer::Read(chain_tips),
    },
    Call {
        name: "getrawmempool",
        args: &[
            Arg::optional("verbose", Kind::Bool),
            Arg::optional("mempool_sequence", Kind::Bool),
        ],
        answer: Answer::Read(raw_mempool),
    },
    Call {
        name: "getrawtransaction",
        args: &[
            Arg::needed("txid", Kind::Text),
            Arg::optional("verbosity", Kind::Any),
            Arg::optional("blockhash", Kind::Text),
        ],
        answer: Answer::Read(raw_transaction),
    },
    Call {
        name: "waitfornewblock",
        args: &[
            Arg::optional("timeout", Kind::Number),
            Arg::optional("current_tip", Kind::Text),
        ],
        answer: Answer::WaitForBlock,
    },
    Call {
        name: "deriveaddresses",
        args: &[
            Arg::needed("descriptor", Kind::Text),
            Arg::optional("range", Kind::Any),
        ],
        answer: Answer::Read(derive_addresses),
    },
    // ---- of other watchers ----
    Call {
        name: "gettxout",
        args: &[
            Arg::needed("txid", Kind::Text),
            Arg::needed("n", Kind::Number),
            Arg::optional("include_mempool", Kind::Bool),
        ],
        answer: Answer::Read(others::tx_out),
    },
    Call {
        name: "getmempoolentry",
        args: &[Arg::needed("txid", Kind::Text)],
        answer: Answer::Read(others::mempool_entry),
    },
    Call {
        name: "scantxoutset",
        args: &[
            Arg::needed("action", Kind::Text),
            Arg::optional("scanobjects", Kind::Any),
        ],
        answer: Answer::Read(others::scan_tx_outs),
    },
    Call {
        name: "getzmqnotifications",
        args: &[],
        answer: Answer::Read(others::zmq_notifications),
    },
    // ---- by hand ----
    Call {
        name: "getblockcount",
        args: &[],
        answer: Answer::Read(block_count),
    },
    Call {
        name: "sendtoaddress",
        args: &[
            Arg::needed("address", Kind::Text),
            Arg::needed("amount", Kind::Any),
        ],
        answer: Answer::Change(send_to_address),
    },
    Call {
        name: "generatetoaddress",
        args: &[
            Arg::needed("nblocks", Kind::Number),
            Arg::needed("address", Kind::Text),
        ],
        answer: Answer::Change(generate_to_address),
    },
    Call {
        name: "invalidateblock",
        args: &[Arg::needed("blockhash", Kind::Text)],
        answer: Answer::Change(invalidate_block),
    },
    Call {
        name: "reconsiderblock",
        args: &[Arg::needed("blockhash", Kind::Text)],
        answer: Answer::Change(reconsider_block),
    },
];

fn found<'c>(chain: &'c Chain, args: &Args, title: &str) -> Result<&'c Block, RpcError> {
    let hash = BlockHash(args.hash("blockhash", title)?);
    let block = chain.block(&hash);
    block.ok_or_else(|| RpcError::new(-5, "Block not found"))
}

// ---- answers ----

/// The difficulty of every regtest block, as the node prints it.
const DIFFICULTY: f64 = 4.656_542_373_906_925e-10;

/// Each regtest block is two hashes of work.
fn chainwork(block: &Block) -> String {
    format!("{:064x}", (u64::from(block.height) + 1) * 2)
}

fn bits() -> String {
    format!("{BITS:08x}")
}

fn blockchain_info(chain: &Chain, _: &Args) -> Result<Value, RpcError> {
    let tip = chain.tip();
    Ok(json!({
        "chain": "regtest",
        "blocks": tip.height,
        "headers": chain.best_header_height(),
        "bestblockhash": tip.hash.to_string(),
        "bits": bits(),
        "target": TARGET,
        "difficulty": DIFFICULTY,
        "time": tip.header.time,
        "mediantime": chain.median_time(&tip.hash),
        "verificationprogress": 1,
        "initialblockdownload": chain.is_in_initial_download(),
        "chainwork": chainwork(tip),
        "size_on_disk": 0,
        "pruned": false,
        "warnings": [],
    }))
}

fn network_info(_: &Chain, _: &Args) -> Result<Value, RpcError> {
    Ok(json!({
        "version": 290_000,
        "subversion": "/Satoshi:29.0.0(creditd sandbox)/",
        "protocolversion": 70_016,
        "localservices": "0000000000000000",
        "localservicesnames": [],
        "localrelay": true,
        "timeoffset": 0,
        "networkactive": false,
        "connections": 0,
        "connections_in": 0,
        "connections_out": 0,
        "networks": [],
        "localaddresses": [],
        "warnings": [],
    }))
}

fn best_block_hash(chain: &Chain, _: &Args) -> Result<Value, RpcError> {
    Ok(json!(chain.tip().hash.to_string()))
}

fn block_count(chain: &Chain, _: &Args) -> Result<Value, RpcError> {
    Ok(json!(chain.tip().height))
}

/// The answer to the calls that wait.
pub(super) fn block_and_height(chain: &Chain) -> Value {
    json!({"hash": chain.tip().hash.to_string(), "height": chain.tip().height})
}

fn block_hash(chain: &Chain, args: &Args) -> Result<Value, RpcError> {
    let height = u32::try_from(args.whole("height", 0)?).ok();
    match height.and_then(|height| chain.at(height)) {
        Some(block) => Ok(json!(block.hash.to_string())),
        None => Err(RpcError::new(-8, "Block height out of range")),
    }
}

fn block_header(chain: &Chain, args: &Args) -> Result<Value, RpcError> {
    let block = found(chain, args, "hash")?;
    if args.flag("verbose", true) {
        Ok(Value::Object(header_fields(chain, block)))
    } else {
        Ok(json!(const_hex::encode(block.header.bytes())))
    }
}

fn header_fields(chain: &Chain, block: &Block) -> Map<String, Value> {
    let header = &block.header;
    let is_active = chain.is_active(block);
    let depth = i64::from(chain.tip().height) - i64::from(block.height) + 1;
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("hash", json!(block.hash.to_string()));
    put("confirmations", json!(if is_active { depth } else { -1 }));
    put("height", json!(block.height));
    put("version", json!(header.version));
    put("versionHex", json!(format!("{:08x}", header.version)));
    put("merkleroot", json!(const_hex::encode(header.merkle_root)));
    put("time", json!(header.time));
    put("mediantime", json!(chain.median_time(&block.hash)));
    put("nonce", json!(header.nonce));
    put("bits", json!(bits()));
    put("target", json!(TARGET));
    put("difficulty", json!(DIFFICULTY));
    put("chainwork", json!(chainwork(block)));
    put("nTx", json!(block.txs.len()));
    if block.height > 0 {
        put("previousblockhash", json!(header.parent.to_string()));
    }
    if let Some(next) = chain.at(block.height + 1).filter(|_| is_active) {
        put("nextblockhash", json!(next.hash.to_string()));
    }
    fields
}

fn block(chain: &Chain, args: &Args) -> Result<Value, RpcError> {
    let block = found(chain, args, "blockhash")?;
    let bytes = block_bytes(&block.header, block.txs.iter().map(AsRef::as_ref));
    let verbosity = args.verbosity("verbosity", 1)?;
    if verbosity <= 0 {
        return Ok(json!(const_hex::encode(bytes)));
    }
    let stripped: usize = block.txs.iter().map(|tx| tx.stripped_size).sum();
    let stripped = 80 + count_size(block.txs.len()) + stripped;
    let mut fields = header_fields(chain, block);
    fields.insert("strippedsize".to_owned(), json!(stripped));
    fields.insert("size".to_owned(), json!(bytes.len()));
    fields.insert("weight".to_owned(), json!(stripped * 3 + bytes.len()));
    let txs = match verbosity {
        ..=1 => block.txs.iter().map(|tx| json!(tx.txid.to_string())).collect(),
        2.. => transactions_of(chain, block, verbosity),
    };
    fields.insert("tx".to_owned(), txs);
    Ok(Value::Object(fields))
}

fn chain_tips(chain: &Chain, _: &Args) -> Result<Value, RpcError> {
    let tips = chain.branch_tips().into_iter().map(|tip| {
        json!({
            "height": tip.height,
            "hash": tip.hash.to_string(),
            "branchlen": tip.branch_length,
            "status": tip.status,
        })
    });
    Ok(Value::Array(tips.collect()))
}

fn raw_mempool(chain: &Chain, args: &Args) -> Result<Value, RpcError> {
    if args.flag("verbose", false) || args.flag("mempool_sequence", false) {
        return Err(RpcError::new(-8, "the sandbox lists ids only"));
    }
    let ids = chain.mempool.iter().map(|tx| json!(tx.txid.to_string()));
    Ok(Value::Array(ids.collect()))
}

fn raw_transaction(chain: &Chain, args: &Args) -> Result<Value, RpcError> {
    let txid = Txid(args.hash("txid", "parameter 1")?);
    let is_genesis = |block: &Block| block.txs.iter().any(|tx| tx.txid == txid);
    if chain.at(0).is_some_and(is_genesis) {
        return Err(RpcError::new(
            -5,
            "The genesis block coinbase is not considered an ordinary transaction and cannot be retrieved",
        ));
    }
    let verbosity = args.verbosity("verbosity", 0)?;
    let (tx, block, why) = if args.text("blockhash").is_empty() {
        // Without an index of transactions only the mempool is looked at.
        let why = "No such mempool transaction. Use -txindex or provide a block hash to enable blockchain \
                   transaction queries";
        (chain.mempool.get(&txid), None, why)
    } else {
        let hash = BlockHash(args.hash("blockhash", "parameter 3")?);
        let Some(block) = chain.block(&hash) else {
            return Err(RpcError::new(-5, "Block hash not found"));
        };
        let tx = block.txs.iter().find(|tx| tx.txid == txid);
        (tx, Some(block), "No such transaction found in the provided block")
    };
    match tx {
        Some(tx) if verbosity > 0 => Ok(written_out(chain, tx, block, verbosity)),
        Some(tx) => Ok(json!(const_hex::encode(&tx.bytes))),
        None => Err(RpcError::new(
            -5,
            format!("{why}. Use gettransaction for wallet transactions."),
        )),
    }
}

// ---- answers by hand ----

/// Satoshi per bitcoin is 10^8.
const DECIMALS: u8 = 8;

fn send_to_address(chain: &mut Chain, args: &Args) -> Result<Value, RpcError> {
    let Some(script) = script_of(args.text("address")) else {
        return Err(RpcError::new(-5, "Invalid address"));
    };
    let amount = match args.any("amount") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => return Err(RpcError::new(-3, "Amount is not a number or string")),
    };
    let sat = Amount::from_units_str(&amount, DECIMALS)
        .ok()
        .and_then(|amount| amount.to_units_string(0).parse().ok())
        .filter(|sat| *sat > 0)
        .ok_or_else(|| RpcError::new(-3, "Invalid amount"))?;
    Ok(json!(chain.pay(Payment { script, sat })?.to_string()))
}

fn generate_to_address(chain: &mut Chain, args: &Args) -> Result<Value, RpcError> {
    let count = args.whole("nblocks", 0)?;
    let Some(script) = script_of(args.text("address")) else {
        return Err(RpcError::new(-5, "Error: Invalid address"));
    };
    let mut hashes = Vec::new();
    for _ in 0..count {
        hashes.push(json!(chain.mine(&script)?.to_string()));
    }
    Ok(Value::Array(hashes))
}

fn invalidate_block(chain: &mut Chain, args: &Args) -> Result<Value, RpcError> {
    chain.invalidate(&BlockHash(args.hash("blockhash", "blockhash")?))?;
    Ok(Value::Null)
}

fn reconsider_block(chain: &mut Chain, args: &Args) -> Result<Value, RpcError> {
    chain.reconsider(&BlockHash(args.hash("blockhash", "blockhash")?))?;
    Ok(Value::Null)
}
