//! Who mines and pays in the sandbox: one wallet that holds every reward and makes transactions of them.

use super::SandboxError;
use super::chain::{Chain, Coin};
use super::encode::{Input, Output, REPLACEABLE, Tx, sha256};
use crate::rules::{BlockHash, Outpoint, Txid};
use std::sync::Arc;

/// The script that anyone can spend by showing it: `OP_TRUE`. A real node takes such transactions too.
const OPEN_SCRIPT: [u8; 1] = [0x51];

/// What a payment pays to the miner, and what each replacement adds.
const FEE: u64 = 1_000;

/// Change below this is left to the miner, as wallets do: a real node would not relay it.
const DUST: u64 = 1_000;

/// The wallet's own script: the witness program of [`OPEN_SCRIPT`].
pub(super) fn own_script() -> Vec<u8> {
    let mut script = vec![0x00, 0x20];
    script.extend(sha256(&OPEN_SCRIPT));
    script
}

/// What a transaction is to pay, and to whom.
pub(super) struct Payment {
    pub(super) script: Vec<u8>,
    pub(super) sat: u64,
}

impl Chain {
    /// Pays from the oldest coins, which a reorg touches last, and sends it.
    pub(super) fn pay(&mut self, payment: Payment) -> Result<Txid, SandboxError> {
        let mut free = self.free_coins();
        free.sort_by_key(|(outpoint, coin)| (coin.height, *outpoint));
        let mut inputs = Vec::new();
        let mut sat = 0;
        for (outpoint, coin) in free {
            inputs.push(input(outpoint));
            sat += coin.sat;
            if sat >= payment.sat.saturating_add(FEE) {
                let tx = self.know(spend(inputs, sat, payment, FEE)?);
                return self.send(tx);
            }
        }
        Err(SandboxError::Funds)
    }

    /// Makes a transaction that spends what `txid` spends, pays elsewhere and offers the miner more. It is
    /// not sent.
    pub(super) fn conflict(&mut self, txid: &Txid, payment: Payment) -> Result<Arc<Tx>, SandboxError> {
        let Some(first) = self.txs.get(txid).cloned() else {
            return Err(SandboxError::Unknown(txid.to_string()));
        };
        let displaced = self.mempool.with_descendants(txid);
        let fees: u64 = displaced.iter().map(|tx| self.fee(tx)).sum();
        let inputs = first.inputs.iter().map(|old| input(old.spends)).collect();
        let paid: u64 = first.outputs.iter().map(|output| output.sat).sum();
        let sat = paid + self.fee(&first);
        let tx = spend(inputs, sat, payment, fees.max(self.fee(&first)) + FEE)?;
        Ok(self.know(tx))
    }

    /// The same, sent: it replaces `txid` in the mempool.
    pub(super) fn replace(&mut self, txid: &Txid, payment: Payment) -> Result<Txid, SandboxError> {
        if self.mempool.get(txid).is_none() {
            return Err(SandboxError::Unknown(txid.to_string()));
        }
        let tx = self.conflict(txid, payment)?;
        self.send(tx)
    }

    fn send(&mut self, tx: Arc<Tx>) -> Result<Txid, SandboxError> {
        let txid = tx.txid;
        self.accept(tx)?;
        Ok(txid)
    }

    /// Sends a transaction again that is neither in the mempool nor in a block.
    pub(super) fn resend(&mut self, txid: &Txid) -> Result<(), SandboxError> {
        match self.txs.get(txid).cloned() {
            Some(tx) => self.send(tx).map(|_| ()),
            None => Err(SandboxError::Unknown(txid.to_string())),
        }
    }

    /// Mines one block on the tip with the whole mempool.
    pub(super) fn mine(&mut self, pays_to: &[u8]) -> Result<BlockHash, SandboxError> {
        let txs: Vec<Arc<Tx>> = self.mempool.iter().cloned().collect();
        let tip = self.tip().hash;
        self.mine_block(&tip, &txs, pays_to)
    }

    /// Mines one block on any block with exactly these transactions.
    pub(super) fn mine_on(&mut self, parent: &BlockHash, txids: &[Txid]) -> Result<BlockHash, SandboxError> {
        let known = |txid: &Txid| {
            let tx = self.txs.get(txid).cloned();
            tx.ok_or_else(|| SandboxError::Unknown(txid.to_string()))
        };
        let txs = txids.iter().map(known).collect::<Result<Vec<_>, _>>()?;
        self.mine_block(parent, &txs, &own_script())
    }

    fn mine_block(
        &mut self,
        parent: &BlockHash,
        txs: &[Arc<Tx>],
        pays_to: &[u8],
    ) -> Result<BlockHash, SandboxError> {
        if self.is_lagging() {
            // The block would come later than what this node knows.
            return Err(SandboxError::Refused("the node lags behind".to_owned()));
        }
        let (header, txs) = self.build(parent, txs, pays_to)?;
        self.submit(header, txs)
    }

    /// Takes the last `depth` blocks off the best chain by a branch that is one block longer, whose first
    /// block holds `keep`. What is not kept goes back to the mempool, unless `keep` spends the same.
    pub(super) fn reorg(&mut self, depth: u32, keep: &[Txid]) -> Result<BlockHash, SandboxError> {
        let fork = self
            .tip()
            .height
            .checked_sub(depth)
            .and_then(|height| self.at(height));
        let Some(fork) = fork.map(|block| block.hash) else {
            return Err(SandboxError::Refused(format!("there are no {depth} blocks")));
        };
        let mut tip = self.mine_on(&fork, keep)?;
        for _ in 0..depth {
            tip = self.mine_on(&tip, &[])?;
        }
        match self.tip().hash == tip {
            true => Ok(tip),
            false => Err(SandboxError::Refused(
                "a transaction to keep does not fit in there".to_owned(),
            )),
        }
    }

    /// Own coins that can be spent now.
    fn free_coins(&self) -> Vec<(Outpoint, Coin)> {
        let (script, next) = (own_script(), self.tip().height + 1);
        let is_spent = |outpoint: &Outpoint| {
            let mut inputs = self.mempool.iter().flat_map(|tx| &tx.inputs);
            inputs.any(|input| input.spends == *outpoint)
        };
        let free = self
            .coins
            .iter()
            .filter(|(outpoint, coin)| coin.script == script && coin.is_mature(next) && !is_spent(outpoint));
        free.map(|(outpoint, coin)| (*outpoint, coin.clone())).collect()
    }
}

fn input(spends: Outpoint) -> Input {
    Input {
        spends,
        script: Vec::new(),
        sequence: REPLACEABLE,
        witness: vec![OPEN_SCRIPT.to_vec()],
    }
}

/// A transaction with the payment first and the change behind it.
fn spend(inputs: Vec<Input>, sat: u64, payment: Payment, fee: u64) -> Result<Tx, SandboxError> {
    let paid = payment.sat.checked_add(fee);
    let change = paid
        .and_then(|paid| sat.checked_sub(paid))
        .ok_or(SandboxError::Funds)?;
    let mut outputs = vec![Output {
        sat: payment.sat,
        script: payment.script,
    }];
    if change >= DUST {
        outputs.push(Output {
            sat: change,
            script: own_script(),
        });
    }
    Ok(Tx::new(inputs, outputs))
}
