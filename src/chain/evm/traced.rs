//! What moved inside the transactions of a block, by traces.

use super::block::{RawBlock, is_no_method, quantity, says_unknown};
use super::config::TraceCall;
use super::trace::{self, FlatTrace, Movement};
use super::traces::{read_calls, read_flat};
use super::{EvmSource, odd_answer};
use crate::chain::SourceError;
use crate::chain::rpc::{Answer, Limits, Question};
use crate::egress::Dial;
use crate::rules::{BlockHash, Txid};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What the traces of a block may take. They hold what each call was told, so a transaction of anybody's can
/// make them as large as it likes.
const TRACES: Limits = Limits {
    deadline: Duration::from_secs(60),
    body_bytes_max: 128 << 20,
};

impl<D: Dial> EvmSource<D> {
    /// What moved inside each transaction of a block.
    pub(super) async fn movements(
        &self,
        hash: BlockHash,
        raw: &RawBlock,
        call: TraceCall,
    ) -> Result<Vec<Vec<Movement>>, SourceError> {
        if raw.fields.transactions.as_ref().is_none_or(Vec::is_empty) {
            return Ok(Vec::new());
        }
        match self.movements_of_block(hash, raw, call).await {
            // One transaction that nobody can trace must not stop everybody's payments.
            Err(error @ SourceError::Unreachable { .. }) if self.untraced.are_enough(hash) => {
                self.movements_one_by_one(hash, raw, call, error).await
            }
            outcome => outcome,
        }
    }

    fn is_flat(&self, call: TraceCall) -> bool {
        call == TraceCall::Flat || (call == TraceCall::Any && self.traces_flat.load(Ordering::Relaxed))
    }

    async fn movements_of_block(
        &self,
        hash: BlockHash,
        raw: &RawBlock,
        call: TraceCall,
    ) -> Result<Vec<Vec<Movement>>, SourceError> {
        let doing = || format!("trace block 0x{hash}");
        let is_flat = self.is_flat(call);
        let question = |is_flat| match is_flat {
            true => Question::new("trace_block", json!([quantity(self.height_of(raw))])),
            false => Question::new(
                "debug_traceBlockByHash",
                json!([format!("0x{hash}"), {"tracer": "callTracer"}]),
            ),
        };
        let answer = self.trace(&doing(), question(is_flat)).await?;
        let (answer, is_flat) = match answer.map(Answer::raw) {
            Some(Err(error)) if call == TraceCall::Any && is_no_method(&error) => {
                let other = self.trace(&doing(), question(!is_flat)).await?;
                self.traces_flat.store(!is_flat, Ordering::Relaxed);
                (other.map(Answer::raw), !is_flat)
            }
            answer => (answer, is_flat),
        };
        let text = match answer {
            Some(Ok(text)) => text,
            Some(Err(error)) if says_unknown(&error) => return Err(SourceError::UnknownBlock(hash)),
            Some(Err(error)) => return Err(odd_answer(doing(), &error.to_string())),
            None => return Err(odd_answer(doing(), "no answer")),
        };
        let read = match is_flat {
            true => read_flat(&text, hash, raw),
            false => read_calls(&text, raw),
        };
        read.map_err(|why| odd_answer(doing(), &why))
    }

    /// Each transaction by itself. One that cannot be traced counts as one in which no coin moves, and is
    /// named; where none can be, it is the node that cannot.
    async fn movements_one_by_one(
        &self,
        hash: BlockHash,
        raw: &RawBlock,
        call: TraceCall,
        error: SourceError,
    ) -> Result<Vec<Vec<Movement>>, SourceError> {
        let mut all = Vec::new();
        let mut untraced = Vec::new();
        for (txid, _) in raw.txs() {
            let movements = match txid.get() {
                Some(txid) => self.movements_of(txid, self.is_flat(call)).await,
                None => None,
            };
            if movements.is_none() {
                untraced.push(
                    txid.get()
                        .map_or_else(|| "?".to_owned(), |txid| format!("0x{txid}")),
                );
            }
            all.push(movements.unwrap_or_default());
        }
        if untraced.len() == all.len() {
            return Err(error);
        }
        self.untraced.forget(hash);
        self.counters
            .untraced
            .fetch_add(untraced.len() as u64, Ordering::Relaxed);
        tracing::error!(
            chain = %self.rules.chain, block = %hash,
            "block 0x{hash}: these transactions cannot be traced, so coin inside them is not seen: {}",
            untraced.join(", ")
        );
        Ok(all)
    }

    async fn movements_of(&self, txid: &Txid, is_flat: bool) -> Option<Vec<Movement>> {
        let doing = format!("trace transaction 0x{txid}");
        let question = match is_flat {
            true => Question::new("trace_transaction", json!([format!("0x{txid}")])),
            false => Question::new(
                "debug_traceTransaction",
                json!([format!("0x{txid}"), {"tracer": "callTracer"}]),
            ),
        };
        let text = self.trace(&doing, question).await.ok()??.raw().ok()?;
        match is_flat {
            true => {
                let traces: Vec<FlatTrace> = serde_json::from_str(text.get()).ok()?;
                trace::of_flat_traces(&traces).ok()
            }
            false => trace::of_call_frames(&text).ok(),
        }
    }

    async fn trace(&self, doing: &str, question: Question) -> Result<Option<Answer>, SourceError> {
        Ok(self
            .endpoints
            .ask(doing, &[question], TRACES)
            .await?
            .answers
            .pop())
    }
}
