//! The calls that following the chain is made of, each tried once.

use super::{Exam, hex};
use crate::chain::NodeTip;
use crate::chain::evm::answers::{BlockFields, Listed, ReceiptFields};
use crate::chain::evm::fields::{Account, Field};
use crate::chain::evm::transfer::{SYSTEM, TRANSFER};
use crate::check::{Verdict, counted};
use crate::config::{InnerSource, TraceMethod};
use crate::rules::{BlockHash, Txid};
use serde::de::IgnoredAny;
use serde_json::json;

/// In so many blocks below the tip a transaction is looked for.
const BLOCKS: u64 = 16;

/// A block with a transaction in it.
struct Busy {
    height: u64,
    hash: BlockHash,
    txid: Txid,
}

impl Exam<'_> {
    pub(super) async fn calls(&mut self, tip: &NodeTip) {
        self.logs(tip).await;
        let busy = match self.busy(tip).await {
            Ok(busy) => busy,
            Err(why) => {
                self.push("blocks", Verdict::Bad, why, "ask again, or name another endpoint");
                return;
            }
        };
        self.receipts(busy.as_ref()).await;
        let inner = self.chain.native.as_ref().map(|native| native.inner);
        match inner {
            Some(InnerSource::Traces(method)) => {
                let (height, hash) = match &busy {
                    Some(busy) => (busy.height, busy.hash),
                    None => (tip.height, tip.hash),
                };
                self.traces(method, height, hash).await;
            }
            Some(InnerSource::Eip7708) => self.movements(busy.as_ref()).await,
            Some(InnerSource::None { .. }) | None => {}
        }
        self.pool().await;
    }

    async fn logs(&mut self, tip: &NodeTip) {
        let mut contracts: Vec<Account> = Vec::new();
        let tokens = self.chain.tokens.iter();
        contracts.extend(tokens.map(|token| Account(token.contract.0)));
        if contracts.is_empty() {
            return;
        }
        let addresses: Vec<String> = contracts.iter().map(ToString::to_string).collect();
        let filter = json!([{
            "blockHash": hex(tip.hash), "address": addresses, "topics": [TRANSFER.to_string()],
        }]);
        match self.read::<Vec<IgnoredAny>>("eth_getLogs", filter).await {
            Ok(_) => self.good("logs", "logs are told by block hash"),
            Err(why) => self.push(
                "logs",
                Verdict::Bad,
                format!("logs by block hash: {why}"),
                "name an endpoint that answers eth_getLogs with a blockHash: without it no token is seen",
            ),
        }
    }

    /// The highest block near the tip that holds a transaction.
    async fn busy(&self, tip: &NodeTip) -> Result<Option<Busy>, String> {
        for height in (tip.height.saturating_sub(BLOCKS - 1)..=tip.height).rev() {
            let params = json!([format!("{height:#x}"), false]);
            let block: Option<BlockFields> = self.read("eth_getBlockByNumber", params).await?;
            let Some(block) = block else { continue };
            let first = block.transactions.iter().flatten().next();
            let first = first.and_then(|listed| match listed {
                Listed::Hash(hash) => hash.get(),
                Listed::Whole(tx) => tx.hash.get(),
            });
            if let (Field::Is(hash), Some(txid)) = (&block.hash, first) {
                return Ok(Some(Busy {
                    height,
                    hash: *hash,
                    txid: *txid,
                }));
            }
        }
        Ok(None)
    }

    async fn receipts(&mut self, busy: Option<&Busy>) {
        let Some(busy) = busy else {
            let found = format!("no transaction in the last {BLOCKS} blocks to try it with");
            self.good("receipts", found);
            return;
        };
        let params = json!([hex(busy.txid)]);
        let receipt: Result<Option<ReceiptFields>, String> =
            self.read("eth_getTransactionReceipt", params).await;
        let fault = match &receipt {
            Ok(Some(receipt)) => fault_of(receipt, busy),
            Ok(None) => Some(format!(
                "there is none of 0x{} in block {}",
                busy.txid, busy.height
            )),
            Err(why) => Some(why.clone()),
        };
        if let Some(fault) = fault {
            let next = "name an endpoint whose receipts are whole: without them nothing is credited";
            self.push("receipts", Verdict::Bad, format!("receipts: {fault}"), next);
            return;
        }
        let together: Result<Option<Vec<IgnoredAny>>, String> =
            self.read("eth_getBlockReceipts", json!([hex(busy.hash)])).await;
        match together {
            Ok(Some(receipts)) => {
                let count = counted(receipts.len() as u64, "receipt");
                self.good("receipts", format!("whole; block {} has {count}", busy.height));
            }
            Ok(None) | Err(_) => self.push(
                "receipts",
                Verdict::Warning,
                "whole, and only told one by one",
                "an endpoint that knows eth_getBlockReceipts is asked less where a list of logs is in doubt",
            ),
        }
    }

    async fn traces(&mut self, method: TraceMethod, height: u64, hash: BlockHash) {
        let debug = json!([hex(hash), {"tracer": "callTracer"}]);
        let block = json!([format!("{height:#x}")]);
        let tries = match method {
            TraceMethod::Auto => vec![("debug_traceBlockByHash", debug), ("trace_block", block)],
            TraceMethod::Debug => vec![("debug_traceBlockByHash", debug)],
            TraceMethod::Block => vec![("trace_block", block)],
        };
        let mut refusals = Vec::new();
        for (method, params) in tries {
            match self.read::<Vec<IgnoredAny>>(method, params).await {
                Ok(_) => return self.good("traces", format!("blocks are traced by {method}")),
                Err(why) => refusals.push(format!("{method}: {why}")),
            }
        }
        self.push(
            "traces",
            Verdict::Bad,
            refusals.join("; "),
            "open the node's debug or trace API, name an endpoint that offers one, or choose another `inner`",
        );
    }

    /// Whether the chain logs movements of coin by itself.
    async fn movements(&mut self, busy: Option<&Busy>) {
        let next = "see whether the chain has EIP-7708 by now; if not, choose another `inner`";
        let Some(busy) = busy else {
            let found = format!("no transaction in the last {BLOCKS} blocks shows whether coin is logged");
            self.push("eip7708", Verdict::Warning, found, next);
            return;
        };
        let filter = json!([{
            "fromBlock": format!("{:#x}", busy.height.saturating_sub(BLOCKS)),
            "toBlock": format!("{:#x}", busy.height),
            "address": SYSTEM.to_string(), "topics": [TRANSFER.to_string()],
        }]);
        match self.read::<Vec<IgnoredAny>>("eth_getLogs", filter).await {
            Ok(logs) if !logs.is_empty() => self.good("eip7708", "movements of coin are logged"),
            Ok(_) => {
                let found = format!("no movement of coin was logged up to block {}", busy.height);
                self.push("eip7708", Verdict::Warning, found, next);
            }
            Err(why) => self.push("eip7708", Verdict::Bad, format!("logs: {why}"), next),
        }
    }

    async fn pool(&mut self) {
        if self.chain.pending.is_none() {
            return;
        }
        if self.chain.native.is_none() {
            let next = "leave `pending_ms` out, or watch the coin too";
            let found = "pending payments of tokens are not shown, and the coin is not watched";
            self.push("pending", Verdict::Warning, found, next);
            return;
        }
        match self.read::<IgnoredAny>("txpool_content", json!([])).await {
            Ok(_) => self.good("pending", "the pool is shown whole"),
            Err(why) => self.push(
                "pending",
                Verdict::Warning,
                format!(
                    "the pool is not shown ({why}): only what would be in the next block is seen pending"
                ),
                "open the node's txpool API, where pending payments matter",
            ),
        }
    }
}

/// What is wrong with a receipt.
fn fault_of(receipt: &ReceiptFields, busy: &Busy) -> Option<String> {
    let named = |name: &str, fault: Option<String>| fault.map(|fault| format!("`{name}` {fault}"));
    named("transactionHash", receipt.transaction_hash.fault())
        .or_else(|| named("blockHash", receipt.block_hash.fault()))
        .or_else(|| named("status", receipt.status.fault()))
        .or_else(|| receipt.logs.is_none().then(|| "`logs` is missing".to_owned()))
        .or_else(|| {
            let is_other = receipt.block_hash.get() != Some(&busy.hash);
            is_other.then(|| format!("the one of 0x{} names another block", busy.txid))
        })
}
