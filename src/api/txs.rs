//! `/v1/tx`: what is known of one transaction, as far as it pays the merchant who asks.

use super::Api;
use super::access::Caller;
use super::ledger::{DepositJson, deposit};
use super::names::Names;
use super::problem::{Problem, Problems};
use crate::clock::rfc3339;
use crate::rules::Txid;
use crate::rules::api_key::Scope;
use crate::store::report::{CreditStory, EventRow, OutputStory, TxStory};
use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use utoipa::ToSchema;

/// A transaction.
#[derive(Serialize, ToSchema)]
#[schema(as = Transaction)]
pub(super) struct TxJson {
    /// CAIP-2 id.
    chain: String,
    txid: String,
    is_coinbase: bool,
    first_seen_at: String,
    in_mempool: bool,
    /// The blocks of the best chain that hold it.
    blocks: Vec<BlockJson>,
    replaced_by: Option<String>,
    /// What of it pays the merchant.
    outputs: Vec<OutputJson>,
}

/// A block.
#[derive(Serialize, ToSchema)]
#[schema(as = Block)]
pub(super) struct BlockJson {
    height: u64,
    hash: Option<String>,
    depth: Option<u64>,
}

/// An output to a watched address.
#[derive(Serialize, ToSchema)]
#[schema(as = Output)]
pub(super) struct OutputJson {
    vout: u64,
    address: Option<String>,
    reference: String,
    asset: String,
    symbol: String,
    amount: String,
    amount_base: String,
    origin: String,
    /// Null where it counts as no payment.
    deposit: Option<DepositJson>,
    credit: Option<CreditOfJson>,
    /// Events of the deposit and of its credit, oldest first.
    events: Vec<EventOfJson>,
}

/// The credit of an output.
#[derive(Serialize, ToSchema)]
pub(super) struct CreditOfJson {
    id: String,
    created_at: String,
    /// The amount, or 0 while it is reversed.
    net: String,
    net_base: String,
    journal: Vec<EntryJson>,
}

/// An entry of a credit's journal.
#[derive(Serialize, ToSchema)]
#[schema(as = Entry)]
pub(super) struct EntryJson {
    sequence: u64,
    /// `credit`, `reversal` or `reinstatement`.
    entry: String,
    at: String,
    reason: String,
}

/// An event, without its body.
#[derive(Serialize, ToSchema)]
pub(super) struct EventOfJson {
    id: String,
    seq: i64,
    sequence: i64,
    r#type: String,
    at: String,
}

/// What is known of a transaction
///
/// Scope: `invoice:read`.
#[utoipa::path(
    get, path = "/v1/tx/{chain}/{txid}", operation_id = "show_transaction", tag = "ledger",
    params(("chain" = String, Path), ("txid" = String, Path, pattern = "^(0x)?[0-9a-fA-F]{64}$")),
    responses((status = 200, body = TxJson), Problems)
)]
pub(super) async fn show(
    State(api): State<Api>,
    caller: Caller,
    Path((chain, txid)): Path<(String, String)>,
) -> Result<Json<TxJson>, Problem> {
    let reader = caller.reader(Scope::InvoiceRead)?.map(|merchant| merchant.slug);
    let bad = || Problem::unprocessable("invalid_txid", "txid", "64 hex digits, with 0x or without");
    let txid = Txid::from_typed(&txid).ok_or_else(bad)?;
    let read = api
        .0
        .store
        .read(move |tx| Ok((Names::read(tx)?, tx.tx_story(&txid)?)));
    let (names, stories) = read.await?;
    let key = names.chain(&chain).ok_or_else(|| names.unknown_chain())?.key;
    let mut story = stories
        .into_iter()
        .find(|story| story.chain.key == key)
        .ok_or_else(none)?;
    if let Some(slug) = reader {
        story.outputs.retain(|output| output.merchant == slug);
    }
    match story.outputs.is_empty() {
        true => Err(none()),
        false => Ok(Json(json(&names, story))),
    }
}

fn none() -> Problem {
    Problem::not_found("nothing is known of this transaction, or it pays nothing of yours")
}

fn json(names: &Names, story: TxStory) -> TxJson {
    let chain = &story.chain;
    let tip = chain.cursor.map(|tip| tip.height);
    let block = |(height, hash): (u64, Option<_>)| BlockJson {
        height,
        hash: hash.map(|hash: crate::rules::BlockHash| chain.id.print(hash)),
        depth: tip.and_then(|tip| (tip + 1).checked_sub(height)),
    };
    TxJson {
        chain: chain.id.to_string(),
        txid: chain.id.print(story.txid),
        is_coinbase: story.is_coinbase,
        first_seen_at: rfc3339(story.first_seen_at),
        in_mempool: story.is_listed,
        blocks: story.blocks.into_iter().map(block).collect(),
        replaced_by: story.replaced_by.map(|txid| chain.id.print(txid)),
        outputs: story
            .outputs
            .into_iter()
            .map(|row| output(names, chain.key, row))
            .collect(),
    }
}

fn output(names: &Names, chain: crate::store::ChainKey, row: OutputStory) -> OutputJson {
    let decimals = row.decimals;
    let (found, credit, events) = match row.deposit {
        None => (None, None, Vec::new()),
        Some(story) => (Some(story.deposit), story.credit, story.events),
    };
    OutputJson {
        vout: row.vout,
        address: names.address(chain, &row.script),
        reference: row.reference,
        asset: row.asset,
        symbol: row.symbol,
        amount: row.amount.to_units_string(decimals),
        amount_base: row.amount.to_string(),
        origin: row.origin,
        deposit: found.map(|found| deposit(names, found)),
        credit: credit.map(|row| credit_of(row, decimals)),
        events: events.into_iter().map(event_of).collect(),
    }
}

fn credit_of(row: CreditStory, decimals: u8) -> CreditOfJson {
    let entries = row.journal.into_iter().map(|entry| EntryJson {
        sequence: entry.sequence,
        entry: entry.kind,
        at: rfc3339(entry.at),
        reason: entry.reason,
    });
    CreditOfJson {
        net: row.net.to_units_string(decimals),
        net_base: row.net.to_string(),
        created_at: rfc3339(row.created_at),
        journal: entries.collect(),
        id: row.id,
    }
}

fn event_of(row: EventRow) -> EventOfJson {
    EventOfJson {
        id: row.id,
        seq: row.seq,
        sequence: row.sequence,
        r#type: row.kind,
        at: rfc3339(row.at),
    }
}
