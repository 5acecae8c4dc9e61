//! Candidates, the slow way: look at everything, keep what the index may hold, walk ancestors one by one.

use super::tree::{Block, Tx};
use creditd::index::{Index, short};
use creditd::rules::block::tx_mark;
use creditd::rules::{
    Amount, Ancestor, Asset, BlockHash, CandidateOutput, CandidateTx, MempoolList, Outpoint, ScannedBlock,
    Txid,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Filters transactions that lie together (in a block, in a mempool), parents before children. With
/// `is_noisy` the index is taken to say "maybe" to everything, as if all short hashes collided.
fn candidates(txs: &[Arc<Tx>], index: &Index, is_noisy: bool) -> Vec<CandidateTx> {
    let together: BTreeMap<Txid, &Arc<Tx>> = txs.iter().map(|tx| (tx.txid, tx)).collect();
    let mut ours: BTreeSet<Outpoint> = BTreeSet::new();
    let mut found = Vec::new();
    for tx in txs {
        let hit = |(_, out): &(u64, &super::Out)| is_noisy || index.may_hold_script(short(&out.script.0));
        let outputs: Vec<CandidateOutput> = (0_u64..)
            .zip(&tx.outputs)
            .filter(hit)
            .map(|(vout, out)| CandidateOutput {
                asset: out.leg.as_ref().map_or(Asset::Native, |leg| leg.asset),
                from: out.leg.as_ref().map(|leg| leg.from.clone()),
                doubt: out.leg.as_ref().and_then(|leg| leg.doubt),
                vout: out.leg.as_ref().map_or(vout, |leg| leg.place),
                script: out.script.clone(),
                amount: Amount::from_u64(out.amount),
            })
            .collect();
        ours.extend(outputs.iter().map(|output| tx.outpoint(output.vout)));
        let is_spend = tx
            .inputs
            .iter()
            .any(|input| index.may_hold_outpoint(input) || ours.contains(input));
        let is_stored = tx.sender.is_some() && index.may_hold_outpoint(&tx_mark(tx.txid));
        if is_noisy || is_spend || is_stored || !outputs.is_empty() {
            found.push(CandidateTx {
                sender: tx.sender.clone(),
                is_failed: tx.is_failed,
                txid: tx.txid,
                is_coinbase: tx.is_coinbase,
                inputs: tx.inputs.clone(),
                outputs,
                ancestors: ancestors(tx, &together),
            });
        }
    }
    found
}

fn ancestors(tx: &Tx, together: &BTreeMap<Txid, &Arc<Tx>>) -> Vec<Ancestor> {
    let mut met = BTreeSet::new();
    let mut found = Vec::new();
    let mut open: Vec<Txid> = tx.inputs.iter().map(|input| input.txid).collect();
    while let Some(txid) = open.pop() {
        let Some(parent) = together.get(&txid).filter(|_| met.insert(txid)) else {
            continue;
        };
        open.extend(parent.inputs.iter().map(|input| input.txid));
        found.push(Ancestor {
            txid,
            inputs: parent.inputs.clone(),
        });
    }
    found
}

/// A block as a source reports it.
pub fn scan(block: &Block, index: &Index, is_noisy: bool) -> ScannedBlock {
    let outputs = block.txs.iter().flat_map(|tx| &tx.outputs);
    ScannedBlock {
        header: block.held.header,
        version: index.version(),
        txs: candidates(&block.txs, index, is_noisy),
        output_shorts: outputs.map(|out| short(&out.script.0)).collect(),
    }
}

/// A mempool as a source reports it. Those in `unfetchable` are listed and nothing more is known of them.
pub fn list(
    tip: BlockHash,
    mempool: &[Arc<Tx>],
    unfetchable: &BTreeSet<Txid>,
    index: &Index,
    is_noisy: bool,
) -> MempoolList {
    let fetched: Vec<Arc<Tx>> = mempool
        .iter()
        .filter(|tx| !unfetchable.contains(&tx.txid))
        .map(|tx| {
            if tx.sender.is_some() {
                tx.pending()
            } else {
                tx.clone()
            }
        })
        .collect();
    MempoolList {
        tip,
        version: index.version(),
        listed: Arc::new(mempool.iter().map(|tx| tx.txid).collect()),
        txs: candidates(&fetched, index, is_noisy),
        is_complete: true,
    }
}
