//! Which outputs of a candidate hit a rule that counts: filters only say "maybe", the tables are the truth.

use super::chains::{ChainKey, one};
use super::codec::{asset, int};
use super::invoices::InvoiceMark;
use super::{StoreError, WriteTx};
use crate::rules::{Asset, CandidateOutput, CandidateTx, ChainId, Script};
use rusqlite::{OptionalExtension, params};
use std::collections::BTreeMap;

/// A rule that a candidate's output hit, checked in the table.
pub(super) struct Matched<'a> {
    pub output: &'a CandidateOutput,
    pub address: AddressRow,
}

/// A rule as the table has it.
pub(super) struct AddressRow {
    pub id: i64,
    pub is_watched: bool,
    pub merchant: i64,
    pub merchant_slug: String,
    pub internal: String,
    pub reference: String,
    /// Nothing below it counts; `None` = the chain has no start yet.
    pub from: Option<i64>,
    /// The invoice that it is for.
    pub invoice: Option<InvoiceMark>,
}

/// The chain that a recording is about, looked up once per step.
pub(super) struct Context {
    pub chain: ChainKey,
    pub id: ChainId,
    /// EVM: the last block that the nodes called final.
    pub finalized: Option<u64>,
    /// What the config lists.
    pub assets: BTreeMap<Asset, AssetRow>,
}

/// An asset as the database knows it.
pub(super) struct AssetRow {
    pub id: i64,
    pub caip: String,
    pub symbol: String,
    pub decimals: u8,
    /// Nothing below it counts; `None` = the chain has no start yet.
    pub from: Option<i64>,
}

impl Context {
    pub(super) fn asset(&self, asset: Asset) -> Result<&AssetRow, StoreError> {
        let known = self.assets.get(&asset);
        known.ok_or_else(|| StoreError::Corrupt(format!("{asset:?} of {} is not listed", self.id)))
    }
}

impl WriteTx<'_> {
    pub(super) fn context(&self, chain: ChainKey) -> Result<Context, StoreError> {
        let row = self.chain_by_key(chain)?;
        let mut statement = self.conn().prepare_cached(
            "SELECT contract, id, caip, symbol, decimals, from_height FROM assets \
             WHERE chain = ?1 AND is_listed = 1",
        )?;
        let mut rows = statement.query([chain.0])?;
        let mut assets = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let known = AssetRow {
                id: row.get(1)?,
                caip: row.get(2)?,
                symbol: row.get(3)?,
                decimals: row.get(4)?,
                from: row.get(5)?,
            };
            assets.insert(asset(row.get(0)?)?, known);
        }
        Ok(Context {
            chain,
            id: row.id,
            finalized: row.finalized,
            assets,
        })
    }

    /// The outputs of a candidate that hit a rule in the table which counts at `height`. One that was met
    /// already counts wherever a reorg puts it: mined again below the height from which its rule counts, it
    /// is still the same payment.
    pub(super) fn matched<'c>(
        &self,
        at: &Context,
        candidate: &'c CandidateTx,
        height: u64,
    ) -> Result<Vec<Matched<'c>>, StoreError> {
        let height = int(height)?;
        let mut hits = Vec::new();
        for output in &candidate.outputs {
            let Some(asset) = at.assets.get(&output.asset) else {
                continue;
            };
            // Nobody pays anything by a transfer of 0.
            if candidate.sender.is_some() && output.amount.is_zero() {
                continue;
            }
            let Some(address) = self.rule_for(at.chain, &output.script)? else {
                continue;
            };
            let counts = |from: Option<i64>| from.is_some_and(|from| from <= height);
            if (counts(address.from) && counts(asset.from))
                || self.is_met(at.chain, candidate, output.vout, (address.id, asset.id))?
            {
                hits.push(Matched { output, address });
            }
        }
        Ok(hits)
    }

    fn rule_for(&self, chain: ChainKey, script: &Script) -> Result<Option<AddressRow>, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT a.id, a.kind = 'watch', a.merchant, m.slug, m.internal, a.reference, a.from_height, \
             v.id, v.inv_id, v.confirmations FROM addresses a JOIN merchants m ON m.id = a.merchant \
             LEFT JOIN invoices v ON v.address = a.id \
             WHERE a.chain = ?1 AND a.script = ?2",
        )?;
        let row = statement.query_row(params![chain.0, script], |row| {
            Ok(AddressRow {
                id: row.get(0)?,
                is_watched: row.get(1)?,
                merchant: row.get(2)?,
                merchant_slug: row.get(3)?,
                internal: row.get(4)?,
                reference: row.get(5)?,
                from: row.get(6)?,
                invoice: InvoiceMark::read(row, 7)?,
            })
        });
        Ok(row.optional()?)
    }

    /// Is this output known? Of an EVM transaction: one of the same asset to the same address, for a run may
    /// show it elsewhere than the one before.
    fn is_met(
        &self,
        chain: ChainKey,
        candidate: &CandidateTx,
        vout: u64,
        (address, asset): (i64, i64),
    ) -> Result<bool, StoreError> {
        let found = match candidate.sender {
            None => one::<i64>(
                self.conn(),
                "SELECT 1 FROM txs t JOIN outputs o ON o.tx = t.id \
                 WHERE t.chain = ?1 AND t.txid = ?2 AND o.vout = ?3",
                params![chain.0, candidate.txid, int(vout)?],
            )?,
            Some(_) => one::<i64>(
                self.conn(),
                "SELECT 1 FROM txs t JOIN outputs o ON o.tx = t.id \
                 WHERE t.chain = ?1 AND t.txid = ?2 AND o.address = ?3 AND o.asset = ?4 LIMIT 1",
                params![chain.0, candidate.txid, address, asset],
            )?,
        };
        Ok(found.is_some())
    }
}
