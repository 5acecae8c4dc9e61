//! The traces of a whole block: which of them belong to which of its transactions.

use super::block::RawBlock;
use super::fields::Field;
use super::trace::{self, FlatTrace, Movement};
use crate::rules::{BlockHash, Txid};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Traced<'a> {
    #[serde(default)]
    tx_hash: Field<Txid>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<String>,
}

/// The answer of `debug_traceBlockByHash`: one trace for each transaction.
pub(super) fn read_calls(text: &RawValue, raw: &RawBlock) -> Result<Vec<Vec<Movement>>, String> {
    let traced: Vec<Traced<'_>> = serde_json::from_str(text.get()).map_err(|error| error.to_string())?;
    let count = raw.txs().count();
    if traced.len() != count {
        return Err(format!("{} traces of {count} transactions", traced.len()));
    }
    check_order(
        traced
            .iter()
            .enumerate()
            .map(|(place, traced)| (place, &traced.tx_hash)),
        raw,
    )?;
    let read = |(place, traced): (usize, Traced<'_>)| {
        let root = match (traced.error, traced.result) {
            (Some(why), _) => Err(why),
            (None, Some(root)) => trace::of_call_frames(root),
            (None, None) => Err("neither result nor error".to_owned()),
        };
        root.map_err(|why| format!("transaction {place}: {why}"))
    };
    traced.into_iter().enumerate().map(read).collect()
}

/// Hashes of traces are those of the transactions at their places. There are chains whose traces repeat one
/// hash: that tells nothing.
fn check_order<'t>(
    traced: impl Iterator<Item = (usize, &'t Field<Txid>)> + Clone,
    raw: &RawBlock,
) -> Result<(), String> {
    let mut told = traced.clone().filter_map(|(_, hash)| hash.get());
    let first = told.next();
    if told.all(|hash| Some(hash) == first) {
        return Ok(());
    }
    let listed: Vec<&Field<Txid>> = raw.txs().map(|(hash, _)| hash).collect();
    for (place, hash) in traced {
        let listed = listed.get(place).and_then(|listed| listed.get());
        if let (Some(hash), Some(listed)) = (hash.get(), listed)
            && hash != listed
        {
            return Err(format!("the trace of transaction {place} is of another"));
        }
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Placed {
    #[serde(flatten)]
    trace: FlatTrace,
    #[serde(default)]
    block_hash: Field<BlockHash>,
}

/// The answer of `trace_block`: the frames of all transactions, and rewards.
pub(super) fn read_flat(
    text: &RawValue,
    hash: BlockHash,
    raw: &RawBlock,
) -> Result<Vec<Vec<Movement>>, String> {
    let placed: Vec<Placed> = serde_json::from_str(text.get()).map_err(|error| error.to_string())?;
    let mut traces: Vec<Vec<FlatTrace>> = vec![Vec::new(); raw.txs().count()];
    for Placed { trace, block_hash } in placed {
        // This call goes by number: another node may have another block there.
        if block_hash.get() != Some(&hash) {
            return Err("a trace is of another block".to_owned());
        }
        let Some(place) = trace.transaction_position else {
            match trace.transaction_hash {
                Field::Missing | Field::Null => continue,
                Field::Odd(_) | Field::Is(_) => return Err("a trace without transactionPosition".to_owned()),
            }
        };
        let of_one = usize::try_from(place)
            .ok()
            .and_then(|place| traces.get_mut(place));
        of_one
            .ok_or_else(|| format!("a trace of transaction {place}"))?
            .push(trace);
    }
    if let Some(place) = traces.iter().position(Vec::is_empty) {
        return Err(format!("no trace of transaction {place}"));
    }
    let hashes = traces.iter().enumerate();
    let hashes = hashes.flat_map(|(place, all)| all.iter().map(move |one| (place, &one.transaction_hash)));
    check_order(hashes, raw)?;
    let read = |(place, traces): (usize, &Vec<FlatTrace>)| {
        trace::of_flat_traces(traces).map_err(|why| format!("transaction {place}: {why}"))
    };
    traces.iter().enumerate().map(read).collect()
}
