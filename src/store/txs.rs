//! Transactions, what they spend, and the outputs that are ours. Recording is the same for mempool and block;
//! whether an output counts as a payment is decided once, when it is first met.

use super::chains::{ChainKey, one};
use super::codec::{int, uint};
use super::deposits::{Deposit, HELD_INTERNAL, HELD_OWN_INPUTS};
use super::{StoreError, WriteTx};
use crate::rules::state::State;
use crate::rules::{Ancestor, CandidateOutput, CandidateTx, ChainId, Outpoint, Prevout, Script, Txid, ids};
use rusqlite::{OptionalExtension, params};

/// The origin of a payment that spends nothing of its merchant's.
const EXTERNAL: &str = "external";

/// A rule that a candidate's output hit, checked in the table.
pub(super) struct Matched<'a> {
    pub output: &'a CandidateOutput,
    address: AddressRow,
}

struct AddressRow {
    id: i64,
    is_watched: bool,
    merchant: i64,
    merchant_slug: String,
    internal: String,
    reference: String,
}

/// A deposit that a transaction makes, and why it starts held, if it does.
pub(super) struct Made {
    pub deposit: Deposit,
    pub hold: Option<&'static str>,
}

/// What recording a transaction found.
pub(super) struct Recorded {
    /// The database's own number of the transaction.
    pub tx: i64,
    /// All its deposits at outputs that count here, new ones (without a state) included.
    pub made: Vec<Made>,
    /// How many outputs were not known before.
    pub new_outputs: u64,
}

/// The chain and the asset that a recording is about, looked up once per block or list.
pub(super) struct Context {
    pub chain: ChainKey,
    pub id: ChainId,
    pub asset: i64,
    pub asset_caip: String,
    pub symbol: String,
    pub decimals: u8,
}

impl WriteTx<'_> {
    pub(super) fn context(&self, chain: ChainKey) -> Result<Context, StoreError> {
        let id = self.chain_by_key(chain)?.id;
        let asset_caip = id.bitcoin_asset();
        let row = self
            .conn()
            .prepare_cached("SELECT id, symbol, decimals FROM assets WHERE chain = ?1 AND caip = ?2")?
            .query_row(params![chain.0, asset_caip], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        let Some((asset, symbol, decimals)) = row else {
            return Err(StoreError::Corrupt(format!(
                "asset {asset_caip} is not in the database"
            )));
        };
        Ok(Context {
            chain,
            id,
            asset,
            asset_caip,
            symbol,
            decimals,
        })
    }

    /// The outputs of a candidate that hit a rule in the table which counts at `height`.
    pub(super) fn matched<'c>(
        &self,
        chain: ChainKey,
        candidate: &'c CandidateTx,
        height: u64,
    ) -> Result<Vec<Matched<'c>>, StoreError> {
        let mut hits = Vec::new();
        for output in &candidate.outputs {
            let outpoint = Outpoint {
                txid: candidate.txid,
                vout: output.vout,
            };
            if let Some(address) = self.rule_for(chain, &output.script, &outpoint, height)? {
                hits.push(Matched { output, address });
            }
        }
        Ok(hits)
    }

    /// The rule of a script that counts for this output at this height. One that was met already counts
    /// wherever a reorg puts it: mined again below the height from which its rule counts, it is still the
    /// same payment.
    fn rule_for(
        &self,
        chain: ChainKey,
        script: &Script,
        outpoint: &Outpoint,
        height: u64,
    ) -> Result<Option<AddressRow>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT a.id, a.kind = 'watch', a.merchant, m.slug, m.internal, a.reference \
             FROM addresses a JOIN merchants m ON m.id = a.merchant \
             WHERE a.chain = ?1 AND a.script = ?2 AND (a.from_height <= ?3 OR EXISTS \
             (SELECT 1 FROM txs t JOIN outputs o ON o.tx = t.id \
              WHERE t.chain = ?1 AND t.txid = ?4 AND o.vout = ?5))",
        )?;
        let vout = int(outpoint.vout)?;
        let params = params![chain.0, script, int(height)?, outpoint.txid, vout];
        let row = statement.query_row(params, |row| {
            Ok(AddressRow {
                id: row.get(0)?,
                is_watched: row.get(1)?,
                merchant: row.get(2)?,
                merchant_slug: row.get(3)?,
                internal: row.get(4)?,
                reference: row.get(5)?,
            })
        });
        Ok(row.optional()?)
    }

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
    ) -> Result<Recorded, StoreError> {
        let tx = self.ensure_tx(
            at.chain,
            &candidate.txid,
            candidate.is_coinbase,
            &candidate.inputs,
        )?;
        for ancestor in &candidate.ancestors {
            let Ancestor { txid, inputs } = ancestor;
            self.ensure_tx(at.chain, txid, false, inputs)?;
        }
        let mut made = Vec::new();
        let mut new_outputs = 0;
        for hit in matched {
            let (output, new_origin) = self.ensure_output(at.chain, tx, hit, candidate)?;
            new_outputs += u64::from(new_origin.is_some());
            if let Some(origin) = new_origin {
                if let Some(new) = self.new_deposit(at, tx, (output, origin), hit, candidate)? {
                    made.push(new);
                }
            } else if let Some(mut deposit) = self.deposit_of_output(output)? {
                let hold = self.reconsider_origin(at, &mut deposit, hit, candidate)?;
                made.push(Made { deposit, hold });
            }
        }
        Ok(Recorded {
            tx,
            made,
            new_outputs,
        })
    }

    fn ensure_tx(
        &mut self,
        chain: ChainKey,
        txid: &Txid,
        is_coinbase: bool,
        inputs: &[Prevout],
    ) -> Result<i64, StoreError> {
        if let Some(tx) = self.find_tx(chain, txid)? {
            return Ok(tx);
        }
        let now = self.now_ms();
        let tx = self
            .conn()
            .prepare_cached(
                "INSERT INTO txs (chain, txid, is_coinbase, first_seen_at) VALUES (?1, ?2, ?3, ?4)",
            )?
            .insert(params![chain.0, txid, is_coinbase, now])?;
        let mut insert = self.conn().prepare_cached(
            "INSERT INTO inputs (tx, prev_txid, prev_vout) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )?;
        for input in inputs {
            insert.execute(params![tx, input.txid, int(input.vout)?])?;
        }
        Ok(tx)
    }

    /// The output, and its origin when it was not known before.
    fn ensure_output(
        &mut self,
        chain: ChainKey,
        tx: i64,
        hit: &Matched<'_>,
        candidate: &CandidateTx,
    ) -> Result<(i64, Option<&'static str>), StoreError> {
        let vout = int(hit.output.vout)?;
        let known = one::<i64>(
            self.conn(),
            "SELECT id FROM outputs WHERE tx = ?1 AND vout = ?2",
            params![tx, vout],
        )?;
        if let Some(output) = known {
            return Ok((output, None));
        }
        let origin = self.origin(chain, candidate, hit.address.merchant)?;
        let output = self
            .conn()
            .prepare_cached(
                "INSERT INTO outputs (tx, vout, address, amount, origin) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .insert(params![tx, vout, hit.address.id, hit.output.amount, origin])?;
        Ok((output, Some(origin)))
    }

    /// Whose coins a transaction spends, seen from the merchant that it pays: none of the merchant's recorded
    /// outputs is a payment, all of them is a move of own coin, some of them is left to the operator
    /// (payjoin, batches).
    fn origin(
        &self,
        chain: ChainKey,
        candidate: &CandidateTx,
        merchant: i64,
    ) -> Result<&'static str, StoreError> {
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
            all if all == candidate.inputs.len() => "internal",
            _ => "mixed",
        })
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
        let origin = self.origin(at.chain, candidate, hit.address.merchant)?;
        if origin == EXTERNAL {
            return Ok(None);
        }
        self.conn()
            .prepare_cached("UPDATE outputs SET origin = ?2 WHERE id = ?1")?
            .execute(params![deposit.output, origin])?;
        origin.clone_into(&mut deposit.origin);
        Ok(match (origin, hit.address.internal.as_str()) {
            ("internal", "credit") => None,
            ("internal", _) => Some(HELD_INTERNAL),
            _ => Some(HELD_OWN_INPUTS),
        })
    }

    fn new_deposit(
        &self,
        at: &Context,
        tx: i64,
        (output, origin): (i64, &str),
        hit: &Matched<'_>,
        candidate: &CandidateTx,
    ) -> Result<Option<Made>, StoreError> {
        let hold = match (origin, hit.address.internal.as_str()) {
            _ if !hit.address.is_watched || hit.output.amount.is_zero() => return Ok(None),
            (EXTERNAL, _) | ("internal", "credit") => None,
            ("mixed", _) => Some(HELD_OWN_INPUTS),
            ("internal", "hold") => Some(HELD_INTERNAL),
            _ => return Ok(None),
        };
        let outpoint = Outpoint {
            txid: candidate.txid,
            vout: hit.output.vout,
        };
        let deposit = Deposit {
            output,
            tx,
            chain: at.chain,
            id: ids::deposit_id(&at.id, &outpoint),
            outpoint,
            script: hit.output.script.clone(),
            merchant: hit.address.merchant_slug.clone(),
            merchant_key: hit.address.merchant,
            reference: hit.address.reference.clone(),
            asset_key: at.asset,
            asset: at.asset_caip.clone(),
            symbol: at.symbol.clone(),
            decimals: at.decimals,
            amount: hit.output.amount,
            origin: origin.to_owned(),
            is_coinbase: candidate.is_coinbase,
            state: None,
            height: None,
            confirmations: None,
            due_height: None,
            held_reason: None,
            replaced_by: None,
            first_seen_at: self.now_ms(),
        };
        Ok(Some(Made { deposit, hold }))
    }

    /// Notes on our outputs that a transaction spends them; `height` is its block, `None` in the mempool.
    pub(super) fn note_spends(
        &mut self,
        chain: ChainKey,
        candidate: &CandidateTx,
        height: Option<u64>,
    ) -> Result<(), StoreError> {
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
    outpoints.extend(vouts.map(|vout| Outpoint {
        txid: candidate.txid,
        vout,
    }));
}
