//! Transactions, what they spend, and the outputs that are ours. Recording is the same for mempool and block;
//! whether an output counts as a payment is decided once, when it is first met.

use super::chains::{ChainKey, one};
use super::codec::{int, uint};
use super::deposits::{Deposit, HELD_INTERNAL, HELD_OWN_INPUTS, HELD_REEXECUTED};
use super::executions::Execution;
use super::external::HELD_EXTERNAL;
use super::matching::{Context, Matched};
use super::unattributed::HELD_CLOSED_BY_HAND;
use super::{StoreError, WriteTx};
use crate::rules::block::tx_mark;
use crate::rules::state::State;
use crate::rules::{Ancestor, CandidateTx, Doubt, Outpoint, Prevout, Script, Txid, ids};
use rusqlite::params;

/// The origin of a payment that spends nothing of its merchant's.
const EXTERNAL: &str = "external";
/// The origin of a move of the merchant's own coin.
const INTERNAL: &str = "internal";
/// The origin of a payment that the merchant has a part in.
const MIXED: &str = "mixed";

/// A deposit that a transaction makes, and why it starts held, if it does.
pub(super) struct Made {
    pub deposit: Deposit,
    pub hold: Option<&'static str>,
}

/// What recording a transaction found.
pub(super) struct Recorded {
    /// The database's own number of the transaction.
    pub tx: i64,
    /// It was not known before: no list has it, and nobody replaced it.
    pub is_new: bool,
    /// All its deposits at outputs that count here, new ones (without a state) included.
    pub made: Vec<Made>,
    /// How many outputs were not known before.
    pub new_outputs: u64,
}

/// An output in the table.
struct Recording {
    output: i64,
    vout: u64,
    /// The origin of one that was not known before.
    new: Option<&'static str>,
    /// Another content of its position was credited before.
    is_rerun: bool,
}

/// How a transaction is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// In a mempool list, or in a block that is new to us, or that it was not known to be in.
    Anew,
    /// In a block of ours that is known to hold it.
    Again,
}

impl WriteTx<'_> {
    pub(super) fn find_tx(&self, chain: ChainKey, txid: &Txid) -> Result<Option<i64>, StoreError> {
        one(
            self.conn(),
            "SELECT id FROM txs WHERE chain = ?1 AND txid = ?2",
            params![chain.0, txid],
        )
    }

    /// Records a transaction with the outputs of ours that it makes; everything that is known already stays
    /// as it is.
    pub(super) fn record_tx(
        &mut self,
        at: &Context,
        candidate: &CandidateTx,
        matched: &[Matched<'_>],
        met: Met,
    ) -> Result<Recorded, StoreError> {
        let (txid, sender) = (&candidate.txid, candidate.sender.as_ref());
        let (tx, is_new) =
            self.ensure_tx(at.chain, txid, candidate.is_coinbase, sender, &candidate.inputs)?;
        for Ancestor { txid, inputs } in &candidate.ancestors {
            self.ensure_tx(at.chain, txid, false, None, inputs)?;
        }
        let mut made = Vec::new();
        let mut new_outputs = 0;
        for hit in matched {
            let Some(recording) = self.ensure_output(at, (tx, is_new), hit, candidate, met)? else {
                continue;
            };
            new_outputs += u64::from(recording.new.is_some());
            if recording.new.is_some() {
                made.extend(self.new_deposit(at, tx, &recording, hit, candidate)?);
            } else if let Some(mut deposit) = self.deposit_of_output(recording.output)? {
                let hold = self.reconsider_origin(at, &mut deposit, hit, candidate)?;
                let rerun = recording.is_rerun.then_some(HELD_REEXECUTED);
                // Who reads a block again has nothing new to doubt: it was held then, and maybe released.
                let doubt = hit.output.doubt.filter(|_| met == Met::Anew).map(Doubt::word);
                let hold = doubt.or(rerun).or(hold);
                made.push(Made { deposit, hold });
            }
        }
        Ok(Recorded {
            tx,
            is_new,
            made,
            new_outputs,
        })
    }

    /// The transaction's number, and whether it was not known before.
    fn ensure_tx(
        &mut self,
        chain: ChainKey,
        txid: &Txid,
        is_coinbase: bool,
        sender: Option<&Script>,
        inputs: &[Prevout],
    ) -> Result<(i64, bool), StoreError> {
        if let Some(tx) = self.find_tx(chain, txid)? {
            return Ok((tx, false));
        }
        let now = self.now_ms();
        let tx = self
            .conn()
            .prepare_cached(
                "INSERT INTO txs (chain, txid, is_coinbase, sender, first_seen_at) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .insert(params![chain.0, txid, is_coinbase, sender, now])?;
        let mut insert = self.conn().prepare_cached(
            "INSERT INTO inputs (tx, prev_txid, prev_vout) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )?;
        for input in inputs {
            insert.execute(params![tx, input.txid, int(input.vout)?])?;
        }
        Ok((tx, true))
    }

    fn ensure_output(
        &mut self,
        at: &Context,
        (tx, is_new_tx): (i64, bool),
        hit: &Matched<'_>,
        candidate: &CandidateTx,
        met: Met,
    ) -> Result<Option<Recording>, StoreError> {
        let asset = at.asset(hit.output.asset)?.id;
        let execution = match &candidate.sender {
            Some(sender) => self.execution(at, tx, hit, sender, met == Met::Again)?,
            None if is_new_tx => Execution::New(hit.output.vout),
            None => self.output_at(tx, hit.output.vout)?,
        };
        let vout = match execution {
            Execution::Known(output, vout) => {
                let is_rerun = candidate.sender.is_some() && self.is_rerun(tx, output, vout)?;
                if candidate.sender.is_some() {
                    self.conn()
                        .prepare_cached("UPDATE outputs SET payer = ?2 WHERE id = ?1 AND payer IS NOT ?2")?
                        .execute(params![output, hit.output.from])?;
                }
                return Ok(Some(Recording {
                    output,
                    vout,
                    new: None,
                    is_rerun,
                }));
            }
            Execution::Contradicted => {
                let outpoint = at.id.print(Outpoint {
                    txid: candidate.txid,
                    vout: hit.output.vout,
                });
                tracing::error!(
                    "{outpoint} stands for something else in the block that holds it: not believed"
                );
                return Ok(None);
            }
            Execution::New(vout) => vout,
        };
        let origin = self.origin(at.chain, hit, candidate)?;
        let output = self
            .conn()
            .prepare_cached(
                "INSERT INTO outputs (tx, vout, address, asset, amount, payer, origin) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .insert(params![
                tx,
                int(vout)?,
                hit.address.id,
                asset,
                hit.output.amount,
                hit.output.from,
                origin
            ])?;
        Ok(Some(Recording {
            output,
            vout,
            new: Some(origin),
            is_rerun: candidate.sender.is_some()
                && (self.is_rerun(tx, output, vout)? || (!is_new_tx && self.is_beside_barred(tx, output)?)),
        }))
    }

    /// On Bitcoin a transaction's id covers what its outputs are.
    fn output_at(&self, tx: i64, vout: u64) -> Result<Execution, StoreError> {
        let known = one::<i64>(
            self.conn(),
            "SELECT id FROM outputs WHERE tx = ?1 AND vout = ?2",
            params![tx, int(vout)?],
        )?;
        Ok(known.map_or(Execution::New(vout), |output| Execution::Known(output, vout)))
    }

    /// Whose coin moves, seen from the merchant that it is paid to. Bitcoin: none of the merchant's recorded
    /// outputs among the inputs is a payment, nothing else is a move of own coin, some of them is left to the
    /// operator (payjoin, batches). EVM: a transfer from an address of the merchant is a move of own coin;
    /// one from elsewhere that the merchant's own transaction causes (a swap, a withdrawal) is left to the
    /// operator.
    fn origin(
        &self,
        chain: ChainKey,
        hit: &Matched<'_>,
        candidate: &CandidateTx,
    ) -> Result<&'static str, StoreError> {
        let merchant = hit.address.merchant;
        if let Some(sender) = &candidate.sender {
            return self.evm_origin(chain, hit.output.from.as_ref(), sender, merchant);
        }
        let mut ours = 0;
        for input in &candidate.inputs {
            let is_ours = one::<i64>(
                self.conn(),
                "SELECT 1 FROM txs t JOIN outputs o ON o.tx = t.id JOIN addresses a ON a.id = o.address \
                 WHERE t.chain = ?1 AND t.txid = ?2 AND o.vout = ?3 AND a.merchant = ?4",
                params![chain.0, input.txid, int(input.vout)?, merchant],
            )?;
            ours += usize::from(is_ours.is_some());
        }
        Ok(match ours {
            0 => EXTERNAL,
            all if all == candidate.inputs.len() => INTERNAL,
            _ => MIXED,
        })
    }

    pub(super) fn evm_origin(
        &self,
        chain: ChainKey,
        payer: Option<&Script>,
        sender: &Script,
        merchant: i64,
    ) -> Result<&'static str, StoreError> {
        Ok(match self.is_of(chain, payer.unwrap_or(sender), merchant)? {
            true => INTERNAL,
            false if self.is_of(chain, sender, merchant)? => MIXED,
            false => EXTERNAL,
        })
    }

    /// Is it a watched or own address of this merchant?
    fn is_of(&self, chain: ChainKey, script: &Script, merchant: i64) -> Result<bool, StoreError> {
        let found = one::<i64>(
            self.conn(),
            "SELECT 1 FROM addresses WHERE chain = ?1 AND script = ?2 AND merchant = ?3",
            params![chain.0, script, merchant],
        )?;
        Ok(found.is_some())
    }

    /// A payment that looked like money from outside may spend coin of ours that was not known when it was
    /// first met (its parent could not be fetched, or its rule is younger). What is not credited yet is held
    /// then; a credit stands as it was justified.
    fn reconsider_origin(
        &mut self,
        at: &Context,
        deposit: &mut Deposit,
        hit: &Matched<'_>,
        candidate: &CandidateTx,
    ) -> Result<Option<&'static str>, StoreError> {
        if deposit.origin != EXTERNAL || deposit.state == Some(State::Credited) {
            return Ok(None);
        }
        let origin = self.origin(at.chain, hit, candidate)?;
        if origin == EXTERNAL {
            return Ok(None);
        }
        self.conn()
            .prepare_cached("UPDATE outputs SET origin = ?2 WHERE id = ?1")?
            .execute(params![deposit.output, origin])?;
        origin.clone_into(&mut deposit.origin);
        Ok(match (origin, hit.address.internal.as_str()) {
            (INTERNAL, "credit") => None,
            (INTERNAL, _) => Some(HELD_INTERNAL),
            _ => Some(HELD_OWN_INPUTS),
        })
    }

    fn new_deposit(
        &self,
        at: &Context,
        tx: i64,
        recording: &Recording,
        hit: &Matched<'_>,
        candidate: &CandidateTx,
    ) -> Result<Option<Made>, StoreError> {
        let Some(origin) = recording.new else {
            return Ok(None);
        };
        let hold = match (origin, hit.address.internal.as_str()) {
            _ if !hit.address.is_watched || hit.output.amount.is_zero() => return Ok(None),
            (EXTERNAL, _) | (INTERNAL, "credit") => None,
            (MIXED, _) => Some(HELD_OWN_INPUTS),
            (INTERNAL, "hold") => Some(HELD_INTERNAL),
            _ => return Ok(None),
        };
        let rerun = recording.is_rerun.then_some(HELD_REEXECUTED);
        let hold = hit.output.doubt.map(Doubt::word).or(rerun).or(hold);
        let outpoint = Outpoint {
            txid: candidate.txid,
            vout: recording.vout,
        };
        let is_closed = candidate.sender.is_some() && self.closes_unattributed(at.chain, &outpoint)?;
        let is_told = self.is_told_externally(&at.id, &outpoint)?;
        let hold = is_closed
            .then_some(HELD_CLOSED_BY_HAND)
            .or(is_told.then_some(HELD_EXTERNAL))
            .or(hold);
        let asset = at.asset(hit.output.asset)?;
        let deposit = Deposit {
            output: recording.output,
            tx,
            chain: at.chain,
            id: ids::deposit_id(&at.id, &outpoint),
            outpoint,
            script: hit.output.script.clone(),
            merchant: hit.address.merchant_slug.clone(),
            merchant_key: hit.address.merchant,
            reference: hit.address.reference.clone(),
            asset_key: asset.id,
            kind: hit.output.asset,
            asset: asset.caip.clone(),
            symbol: asset.symbol.clone(),
            decimals: asset.decimals,
            amount: hit.output.amount,
            sender: candidate.sender.clone(),
            payer: hit.output.from.clone(),
            origin: origin.to_owned(),
            is_coinbase: candidate.is_coinbase,
            state: None,
            height: None,
            needs: None,
            due_height: None,
            held_reason: None,
            replaced_by: None,
            first_seen_at: self.now_ms(),
            invoice: hit.address.invoice.clone(),
        };
        Ok(Some(Made { deposit, hold }))
    }

    /// Notes on our outputs that a transaction spends them; `height` is its block, `None` in the mempool. On
    /// EVM chains nobody spends outputs.
    pub(super) fn note_spends(
        &mut self,
        chain: ChainKey,
        candidate: &CandidateTx,
        height: Option<u64>,
    ) -> Result<(), StoreError> {
        if candidate.sender.is_some() {
            return Ok(());
        }
        let height = height.map(int).transpose()?;
        let mut update = self.conn().prepare_cached(
            "UPDATE outputs SET spent_by = ?4, spent_height = ?5 \
             WHERE vout = ?3 AND tx = (SELECT id FROM txs WHERE chain = ?1 AND txid = ?2) \
             AND (?5 IS NOT NULL OR spent_height IS NULL)",
        )?;
        for input in &candidate.inputs {
            update.execute(params![
                chain.0,
                input.txid,
                int(input.vout)?,
                candidate.txid,
                height
            ])?;
        }
        Ok(())
    }

    /// The height of the highest best-chain block that holds a transaction.
    pub(super) fn included_at(&self, tx: i64) -> Result<Option<u64>, StoreError> {
        let height: Option<i64> = self
            .conn()
            .prepare_cached("SELECT max(height) FROM inclusions WHERE tx = ?1")?
            .query_row([tx], |row| row.get(0))?;
        height.map(uint).transpose()
    }
}

/// What the index must know of a stored transaction: its inputs and those of its ancestors (whoever spends
/// them replaces it), and its outputs of ours (whoever spends them moves our coin).
pub(super) fn remember(
    candidate: &CandidateTx,
    vouts: impl Iterator<Item = u64>,
    outpoints: &mut Vec<Outpoint>,
) {
    outpoints.extend(candidate.inputs.iter().copied());
    outpoints.extend(
        candidate
            .ancestors
            .iter()
            .flat_map(|ancestor| ancestor.inputs.iter().copied()),
    );
    if candidate.sender.is_some() {
        outpoints.push(tx_mark(candidate.txid));
    } else {
        outpoints.extend(vouts.map(|vout| Outpoint {
            txid: candidate.txid,
            vout,
        }));
    }
}
