//! Pending transactions. Of those only payments of coin by the transaction itself are known before they run.

use super::answers::{BlockFields, Listed, TxFields};
use super::block::{decode, decode_known};
use super::scan::script;
use super::wanted::spends;
use super::{EvmSource, locked, odd_answer};
use crate::chain::SourceError;
use crate::chain::rpc::{Answer, Question, RpcError};
use crate::egress::Dial;
use crate::index::{Index, short};
use crate::rules::block::tx_mark;
use crate::rules::position::Position;
use crate::rules::{Asset, BlockHash, CandidateOutput, CandidateTx, MempoolList, Txid};
use serde::Deserialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// So long an endpoint that refused to show its pool is not asked for it. It is asked again, because whoever
/// cannot do it says so with the same codes as one that had no time for it.
const POOL_AGAIN: Duration = Duration::from_secs(30);

/// `txpool_content` of Geth and its kin: by sender and nonce. What is queued waits for another transaction of
/// its sender, and is in the pool all the same.
#[derive(Deserialize)]
struct Pool {
    pending: BTreeMap<String, BTreeMap<String, TxFields>>,
    #[serde(default)]
    queued: BTreeMap<String, BTreeMap<String, TxFields>>,
}

impl<D: Dial> EvmSource<D> {
    /// The pool where the node shows it as a whole, else what the node would put into its next block: who is
    /// not in that may still wait, so nothing is evicted by it.
    pub(super) async fn list_pending(&self, index: &Index) -> Result<Option<MempoolList>, SourceError> {
        let doing = "list the pending transactions";
        if !self.was_refused_lately() {
            let pool = Question::new("txpool_content", json!([]));
            let (tip, answer) = self.between_tips(doing, pool).await?;
            match decode_known::<Pool>(answer) {
                Ok(pool) => {
                    let by_sender = pool.pending.into_values().chain(pool.queued.into_values());
                    let txs: Vec<TxFields> = by_sender.flat_map(BTreeMap::into_values).collect();
                    return Ok(tip.map(|tip| list(tip, &txs, index, true)));
                }
                // Providers refuse it in many words, and one that starts refuses everything for a while.
                Err(RpcError::Node { .. }) => {
                    let in_use = self.endpoints.in_use();
                    *locked(&self.lacks_pool) = in_use.map(|endpoint| (endpoint, self.clock.instant()));
                }
                Err(error) => return Err(odd_answer(doing, &error.to_string())),
            }
        }
        let question = Question::new("eth_getBlockByNumber", json!(["pending", true]));
        let (tip, answer) = self.between_tips(doing, question).await?;
        let block: Option<BlockFields> = decode(answer, doing)?;
        let (Some(tip), Some(block)) = (tip, block) else {
            return Ok(None);
        };
        if block.parent.get() != Some(&tip) {
            return Ok(None);
        }
        let whole = |listed| match listed {
            Listed::Whole(tx) => Some(tx),
            Listed::Hash(_) => None,
        };
        let txs: Vec<TxFields> = block
            .transactions
            .into_iter()
            .flatten()
            .filter_map(whole)
            .collect();
        Ok(Some(list(tip, &txs, index, false)))
    }

    /// The endpoint in use would not show its pool when it was last asked, and that is not long ago.
    fn was_refused_lately(&self) -> bool {
        let refused = *locked(&self.lacks_pool);
        refused.is_some_and(|(endpoint, at)| {
            self.endpoints.in_use() == Some(endpoint) && self.clock.instant() - at < POOL_AGAIN
        })
    }

    /// An answer, and the node's tip if it was the same before and after.
    async fn between_tips(
        &self,
        doing: &str,
        question: Question,
    ) -> Result<(Option<BlockHash>, Option<Answer>), SourceError> {
        let tip = || Question::new("eth_getBlockByNumber", json!(["latest", false]));
        let mut answers = self.ask(doing, &[tip(), question, tip()]).await?.into_iter();
        let (before, answer, after) = (answers.next(), answers.next(), answers.next());
        let hash = |answer| -> Result<BlockHash, SourceError> {
            let fields: Option<BlockFields> = decode(answer, doing)?;
            let hash = fields.and_then(|fields| fields.hash.get().copied());
            hash.ok_or_else(|| odd_answer(doing, "a tip without hash"))
        };
        let (before, after) = (hash(before)?, hash(after)?);
        Ok(((before == after).then_some(before), answer))
    }
}

fn list(tip: BlockHash, txs: &[TxFields], index: &Index, is_complete: bool) -> MempoolList {
    let listed: BTreeSet<Txid> = txs.iter().filter_map(|tx| tx.hash.get().copied()).collect();
    // Whose hash cannot be read may be any that seems to be absent.
    let is_complete = is_complete && txs.iter().all(|tx| tx.hash.get().is_some());
    MempoolList {
        tip,
        version: index.version(),
        listed: Arc::new(listed),
        txs: txs.iter().filter_map(|tx| candidate(tx, index)).collect(),
        is_complete,
    }
}

/// A pending transaction that pays us, or that takes the place of one that is stored. One that cannot be read
/// whole is neither seen nor absent: it may be read in the next list, or in its block.
fn candidate(tx: &TxFields, index: &Index) -> Option<CandidateTx> {
    let (txid, sender) = (tx.hash.get()?, tx.from.get()?);
    let spends = spends(tx);
    let paid = tx
        .to
        .get()
        .zip(tx.value.get())
        .filter(|(to, amount)| !amount.is_zero() && index.may_hold_script(short(&to.0)));
    let is_known = index.may_hold_outpoint(&tx_mark(*txid))
        || spends.is_some_and(|spends| index.may_hold_outpoint(&spends));
    if paid.is_none() && !is_known {
        return None;
    }
    let output = |(to, amount): (&super::fields::Account, &crate::rules::Amount)| {
        Some(CandidateOutput {
            vout: Position::Native.number(0)?,
            script: script(to),
            asset: Asset::Native,
            amount: *amount,
            from: Some(script(sender)),
            doubt: None,
        })
    };
    Some(CandidateTx {
        txid: *txid,
        is_coinbase: false,
        sender: Some(script(sender)),
        is_failed: false,
        inputs: spends.into_iter().collect(),
        outputs: paid.and_then(output).into_iter().collect(),
        ancestors: Vec::new(),
    })
}
