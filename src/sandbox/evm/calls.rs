//! Every call that the node answers, with what it takes and gives. Anything else is -32601. Forms and error
//! codes are Geth's (<https://ethereum.github.io/execution-apis/>,
//! <https://geth.ethereum.org/docs/interacting-with-geth/rpc>), `trace_block` is OpenEthereum's.
//!
//! Where a BLOCK is taken: a number, `latest`, `earliest`, `safe`, `finalized` or `pending`; in calls about
//! accounts also `{"blockHash": HASH}` or `{"blockNumber": NUMBER}` (EIP-1898).

use super::chain::{Block, Chain, Included};
use super::frames::{Frame, Place};
use super::params::{BlockRef, Params, SERVER_ERROR, address, block_hash, block_named, hash, invalid};
use super::shapes::{self, Position};
use super::tx::{Address, GAS_PRICE, Signed, hex};
use crate::sandbox::front::RpcError;
use ruint::aliases::U256;
use serde_json::{Map, Value, json};

type Outcome = Result<Value, RpcError>;

/// One call.
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) answer: fn(&Chain, &Params<'_>) -> Outcome,
}

const fn call(name: &'static str, answer: fn(&Chain, &Params<'_>) -> Outcome) -> Call {
    Call { name, answer }
}

/// The calls.
pub(super) const CALLS: &[Call] = &[
    // [] -> number
    call("eth_chainId", chain_id),
    // [] -> the same as decimal text
    call("net_version", net_version),
    // [] -> text
    call("web3_clientVersion", client_version),
    // [] -> false, or an object of three numbers
    call("eth_syncing", syncing),
    // [] -> number
    call("eth_blockNumber", block_number),
    // [BLOCK, true for whole transactions or false for their hashes] -> block, or null
    call("eth_getBlockByNumber", block_by_number),
    // [hash, the same] -> block, or null
    call("eth_getBlockByHash", block_by_hash),
    // [{blockHash} or {fromBlock, toBlock}, with address and topics, each one or a list] -> logs; a block
    // that is not known by its hash is an error
    call("eth_getLogs", get_logs),
    // [BLOCK or hash] -> receipts, or null
    call("eth_getBlockReceipts", block_receipts),
    // [hash] -> receipt, or null
    call("eth_getTransactionReceipt", transaction_receipt),
    // [hash] -> transaction, without a place while it waits, or null
    call("eth_getTransactionByHash", transaction_by_hash),
    // [address, BLOCK] -> number
    call("eth_getTransactionCount", transaction_count),
    // [address, BLOCK] -> wei
    call("eth_getBalance", balance),
    // [{to, data or input}, BLOCK] -> bytes; `decimals()`, `symbol()` and `balanceOf(address)` of a token
    call("eth_call", eth_call),
    // [hash, {"tracer": "callTracer"}] -> [{txHash, result: frame}]; an unknown block is an error
    call("debug_traceBlockByHash", trace_block_by_hash),
    // [BLOCK] -> flat traces, or null
    call("trace_block", trace_block),
    // [] -> {pending, queued}: transactions by sender and decimal nonce
    call("txpool_content", pool_content),
    // ---- of other watchers ----
    // [address, BLOCK] -> bytes: of tokens one that ends every call, of others none
    call("eth_getCode", code),
    // [] -> wei
    call("eth_gasPrice", gas_price),
    // [hash, {"tracer": "callTracer"}] -> frame; an unknown transaction is an error
    call("debug_traceTransaction", trace_transaction),
    // [bytes]: refused
    call("eth_sendRawTransaction", send_raw_transaction),
];

// ---- the node ----

fn chain_id(chain: &Chain, _: &Params<'_>) -> Outcome {
    Ok(shapes::quantity(chain.chain_id))
}

fn net_version(chain: &Chain, _: &Params<'_>) -> Outcome {
    Ok(json!(chain.chain_id.to_string()))
}

fn client_version(_: &Chain, _: &Params<'_>) -> Outcome {
    Ok(json!(concat!("creditd-sandbox/v", env!("CARGO_PKG_VERSION"))))
}

fn syncing(chain: &Chain, _: &Params<'_>) -> Outcome {
    Ok(match chain.syncs_to {
        None => json!(false),
        Some(height) => json!({
            "startingBlock": shapes::quantity(0),
            "currentBlock": shapes::quantity(chain.tip().number),
            "highestBlock": shapes::quantity(height),
        }),
    })
}

fn block_number(chain: &Chain, _: &Params<'_>) -> Outcome {
    Ok(shapes::quantity(chain.tip().number))
}

// ---- blocks ----

fn block_by_number(chain: &Chain, params: &Params<'_>) -> Outcome {
    let is_whole = params.flag(1)?;
    Ok(match block_named(chain, params.get(0)?)? {
        Some(BlockRef::Mined(block)) => shown(block, is_whole),
        Some(BlockRef::Pending) => shapes::pending_block(&next_block(chain)?, is_whole),
        None => Value::Null,
    })
}

fn block_by_hash(chain: &Chain, params: &Params<'_>) -> Outcome {
    let is_whole = params.flag(1)?;
    let block = chain.block(&params.block_hash(0)?);
    Ok(block.map_or(Value::Null, |block| shown(block, is_whole)))
}

fn shown(block: &Block, is_whole: bool) -> Value {
    if is_whole {
        shapes::whole_block(block)
    } else {
        shapes::slim_block(block)
    }
}

fn next_block(chain: &Chain) -> Result<Block, RpcError> {
    chain
        .next_block()
        .map_err(|error| RpcError::new(SERVER_ERROR, error.to_string()))
}

fn block_receipts(chain: &Chain, params: &Params<'_>) -> Outcome {
    let value = params.get(0)?;
    let block = match value.as_str() {
        Some(text) if text.len() == 66 => chain.block(&block_hash(value)?),
        Some(_) | None => mined(block_named(chain, value)?),
    };
    let receipts = block.map(|block| block.txs.iter().map(|held| shapes::receipt(block, held)));
    Ok(receipts.map_or(Value::Null, Iterator::collect))
}

fn mined(found: Option<BlockRef<'_>>) -> Option<&Block> {
    match found {
        Some(BlockRef::Mined(block)) => Some(block),
        Some(BlockRef::Pending) | None => None,
    }
}

// ---- logs ----

/// Which logs are wanted: of any of the contracts, with any of the topics at each place; an empty list is
/// any at all.
struct Filter {
    contracts: Vec<Address>,
    topics: Vec<Vec<[u8; 32]>>,
}

fn get_logs(chain: &Chain, params: &Params<'_>) -> Outcome {
    let asked = params.get(0)?;
    let filter = Filter {
        contracts: one_or_more(asked.get("address"), address)?,
        topics: match asked.get("topics") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(places)) => {
                let place = |place| one_or_more(Some(place), hash);
                places.iter().map(place).collect::<Result<_, _>>()?
            }
            Some(_) => return Err(invalid("invalid topics")),
        },
    };
    let blocks = blocks_of_logs(chain, asked)?;
    let mut logs = Vec::new();
    for block in blocks {
        for held in &block.txs {
            let wanted = held.logs().map(|log| filter.takes(log));
            let shown = shapes::logs(block, held).into_iter().zip(wanted);
            logs.extend(shown.filter_map(|(log, is_wanted)| is_wanted.then_some(log)));
        }
    }
    Ok(Value::Array(logs))
}

fn blocks_of_logs<'c>(chain: &'c Chain, asked: &Value) -> Result<Vec<&'c Block>, RpcError> {
    let end = |name: &str| match asked.get(name) {
        None | Some(Value::Null) => Ok(chain.tip().number),
        Some(value) => match block_named(chain, value)? {
            Some(BlockRef::Mined(block)) => Ok(block.number),
            Some(BlockRef::Pending) => Err(invalid("pending logs are not supported")),
            // Above the tip.
            None => super::params::quantity(value),
        },
    };
    let Some(hash) = asked.get("blockHash") else {
        let (from, to) = (end("fromBlock")?, end("toBlock")?);
        if from > to {
            return Err(invalid("invalid block range params"));
        }
        return Ok((from..=to).map_while(|number| chain.at(number)).collect());
    };
    if asked.get("fromBlock").is_some() || asked.get("toBlock").is_some() {
        return Err(invalid(
            "cannot specify both BlockHash and FromBlock/ToBlock, choose one or the other",
        ));
    }
    match chain.block(&block_hash(hash)?) {
        Some(block) => Ok(vec![block]),
        None => Err(RpcError::new(SERVER_ERROR, "unknown block")),
    }
}

fn one_or_more<T>(
    value: Option<&Value>,
    read: fn(&Value) -> Result<T, RpcError>,
) -> Result<Vec<T>, RpcError> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(read).collect(),
        Some(one) => Ok(vec![read(one)?]),
    }
}

impl Filter {
    fn takes(&self, log: &super::tx::Log) -> bool {
        let has_contract = self.contracts.is_empty() || self.contracts.contains(&log.address);
        let fits = |(place, any): (usize, &Vec<[u8; 32]>)| match log.topics.get(place) {
            Some(topic) => any.is_empty() || any.contains(topic),
            None => false,
        };
        has_contract && self.topics.iter().enumerate().all(fits)
    }
}

// ---- transactions ----

fn transaction_receipt(chain: &Chain, params: &Params<'_>) -> Outcome {
    let place = chain.mined(&params.txid(0)?);
    Ok(place.map_or(Value::Null, |(block, held)| shapes::receipt(block, held)))
}

fn transaction_by_hash(chain: &Chain, params: &Params<'_>) -> Outcome {
    let hash = params.txid(0)?;
    if let Some((block, held)) = chain.mined(&hash) {
        let index = held.index;
        return Ok(shapes::transaction(&held.tx, Some(Position { block, index })));
    }
    let waiting = chain.pool.get(&hash);
    Ok(waiting.map_or(Value::Null, |tx| shapes::transaction(tx, None)))
}

fn pool_content(chain: &Chain, _: &Params<'_>) -> Outcome {
    let state = &chain.tip().state;
    let by_sender = |is_wanted: &dyn Fn(&Signed) -> bool| {
        let mut senders = Map::new();
        for tx in chain.pool.all().filter(|tx| is_wanted(tx)) {
            // What has no nonce waits in no node's pool.
            let Some(nonce) = tx.nonce else { continue };
            let sender = senders.entry(tx.tx.from.to_string());
            if let Value::Object(txs) = sender.or_insert_with(|| json!({})) {
                txs.insert(nonce.to_string(), shapes::transaction(tx, None));
            }
        }
        senders
    };
    Ok(json!({
        "pending": by_sender(&|tx| chain.pool.is_ready(tx, state)),
        "queued": by_sender(&|tx| !chain.pool.is_ready(tx, state)),
    }))
}

// ---- accounts ----

fn transaction_count(chain: &Chain, params: &Params<'_>) -> Outcome {
    let account = params.address(0)?;
    Ok(shapes::quantity(match params.state_block(1, chain)? {
        BlockRef::Mined(block) => block.state.nonce(account),
        BlockRef::Pending => chain.pool.next_nonce(account, &chain.tip().state),
    }))
}

fn balance(chain: &Chain, params: &Params<'_>) -> Outcome {
    let account = params.address(0)?;
    Ok(shapes::quantity(match params.state_block(1, chain)? {
        BlockRef::Mined(block) => chain.balance(&block.state, account),
        BlockRef::Pending => chain.balance(&next_block(chain)?.state, account),
    }))
}

/// The first four bytes of `keccak256("decimals()")` and its like.
const DECIMALS: &[u8] = &[0x31, 0x3c, 0xe5, 0x67];
const SYMBOL: &[u8] = &[0x95, 0xd8, 0x9b, 0x41];
const BALANCE_OF: &[u8] = &[0x70, 0xa0, 0x82, 0x31];

fn eth_call(chain: &Chain, params: &Params<'_>) -> Outcome {
    let asked = params.get(0)?;
    let contract = address(asked.get("to").unwrap_or(&Value::Null))?;
    let data = asked.get("input").or(asked.get("data"));
    let data = data.and_then(Value::as_str).unwrap_or("0x");
    let data = data.strip_prefix("0x").map(const_hex::decode);
    let Some(Ok(data)) = data else {
        return Err(invalid("invalid data"));
    };
    let state = match params.state_block(1, chain)? {
        BlockRef::Mined(block) => block.state.clone(),
        BlockRef::Pending => next_block(chain)?.state,
    };
    let Some(token) = chain.tokens.get(&contract) else {
        // Where there is no code, nothing runs and nothing is answered.
        return Ok(json!("0x"));
    };
    let reverted = || RpcError::new(3, "execution reverted");
    let (selector, rest) = data.split_at_checked(4).ok_or_else(reverted)?;
    let word = |number: U256| number.to_be_bytes::<32>();
    let answer = match (selector, <[u8; 32]>::try_from(rest)) {
        (DECIMALS, _) => word(U256::from(token.decimals)).to_vec(),
        (SYMBOL, _) => {
            let text = token.symbol.as_bytes();
            let mut bytes = word(U256::from(32)).to_vec();
            bytes.extend(word(U256::from(text.len())));
            bytes.extend(text);
            bytes.resize(bytes.len().next_multiple_of(32), 0);
            bytes
        }
        (BALANCE_OF, Ok(holder)) => {
            let holder = Address::of_word(&holder);
            word(state.token_balance(contract, holder)).to_vec()
        }
        _ => return Err(reverted()),
    };
    Ok(json!(hex(&answer)))
}

/// Contracts have code, and other accounts have none. Nobody runs this one, which is `INVALID`.
fn code(chain: &Chain, params: &Params<'_>) -> Outcome {
    let account = params.address(0)?;
    params.state_block(1, chain)?;
    Ok(json!(match chain.tokens.contains_key(&account) {
        true => "0xfe",
        false => "0x",
    }))
}

fn gas_price(_: &Chain, _: &Params<'_>) -> Outcome {
    Ok(shapes::quantity(GAS_PRICE))
}

fn send_raw_transaction(_: &Chain, _: &Params<'_>) -> Outcome {
    let why =
        "the sandbox checks no signature and takes no transaction: `creditd trigger deposit --chain evm`";
    Err(RpcError::new(SERVER_ERROR, why))
}

// ---- traces ----

fn trace_transaction(chain: &Chain, params: &Params<'_>) -> Outcome {
    let hash = params.txid(0)?;
    if params.get(1)?.get("tracer") != Some(&json!("callTracer")) {
        return Err(invalid("the sandbox knows callTracer only"));
    }
    match chain.mined(&hash) {
        Some((_, held)) => Ok(Frame::of(&held.tx, &held.effects).to_call_tracer()),
        None => Err(RpcError::new(SERVER_ERROR, "transaction not found")),
    }
}

fn trace_block_by_hash(chain: &Chain, params: &Params<'_>) -> Outcome {
    let hash = params.block_hash(0)?;
    if params.get(1)?.get("tracer") != Some(&json!("callTracer")) {
        return Err(invalid("the sandbox knows callTracer only"));
    }
    let Some(block) = chain.block(&hash) else {
        return Err(RpcError::new(SERVER_ERROR, format!("block 0x{hash} not found")));
    };
    let trace = |held: &Included| {
        let frame = Frame::of(&held.tx, &held.effects).to_call_tracer();
        json!({"txHash": shapes::hash(held.tx.hash), "result": frame})
    };
    Ok(block.txs.iter().map(trace).collect())
}

fn trace_block(chain: &Chain, params: &Params<'_>) -> Outcome {
    let Some(block) = mined(block_named(chain, params.get(0)?)?) else {
        return Ok(Value::Null);
    };
    let traces = block.txs.iter().flat_map(|held| {
        let place = Place {
            block: block.hash,
            number: block.number,
            tx: held.tx.hash,
            index: held.index,
        };
        Frame::of(&held.tx, &held.effects).to_flat(&place)
    });
    Ok(traces.collect())
}
