//! What each merchant has been credited. Summed in Rust: SQL would sum decimal text as floats. A sum that
//! passes 2^256 - 1, which only logs of a token that claim anything can make, is no balance: it is refused.

use super::super::assets::AssetKey;
use super::super::chains::ChainKey;
use super::super::codec::uint;
use super::super::{ReadTx, StoreError};
use super::lists::net;
use crate::rules::Amount;
use rusqlite::params_from_iter;
use std::collections::BTreeMap;

/// A merchant's sums of one asset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// The merchant's slug.
    pub merchant: String,
    /// The chain.
    pub chain: ChainKey,
    /// The asset.
    pub asset_key: AssetKey,
    /// CAIP-19 id of the asset.
    pub asset: String,
    /// The asset's symbol.
    pub symbol: String,
    /// The asset's decimals.
    pub decimals: u8,
    /// The sum of all credits, reversed ones counting nothing. Base units.
    pub credited: Amount,
    /// How many credits that is.
    pub credits: u64,
    /// How many credits are reversed.
    pub reversed: u64,
    /// The sum of deposits in blocks that are not deep enough yet. Base units.
    pub confirming: Amount,
    /// The sum of held deposits in blocks. Base units.
    pub held: Amount,
}

/// Sums by merchant and asset.
type Sums = BTreeMap<(i64, i64), Sum>;

#[derive(Default)]
struct Sum {
    credited: Amount,
    credits: u64,
    reversed: u64,
    confirming: Amount,
    held: Amount,
    /// One of the sums was too large.
    is_past: bool,
}

impl Sum {
    fn add(&mut self, to: fn(&mut Sum) -> &mut Amount, amount: Amount) {
        match to(self).checked_add(amount) {
            Some(sum) => *to(self) = sum,
            None => self.is_past = true,
        }
    }
}

impl ReadTx<'_> {
    /// The balances of all merchants, or of one, by slug and asset.
    ///
    /// # Errors
    /// `Refused` for an unknown merchant, and for a sum that is more than an amount can be.
    pub fn balances(&self, merchant: Option<&str>) -> Result<Vec<Balance>, StoreError> {
        let merchant = merchant.map(|slug| self.merchant_key(slug)).transpose()?;
        let mut sums = Sums::new();
        self.sum_credits(merchant, &mut sums)?;
        self.sum_confirming(merchant, &mut sums)?;
        let mut balances = Vec::with_capacity(sums.len());
        for ((merchant, asset), sum) in sums {
            balances.push(self.named(merchant, asset, sum)?);
        }
        balances.sort_by(|a, b| (&a.merchant, &a.asset, a.chain).cmp(&(&b.merchant, &b.asset, b.chain)));
        Ok(balances)
    }

    fn sum_credits(&self, merchant: Option<i64>, sums: &mut Sums) -> Result<(), StoreError> {
        let mut statement = self.conn().prepare_cached(&format!(
            "SELECT c.merchant, c.asset, c.amount, (SELECT max(sequence) FROM journal WHERE credit = c.id) \
             FROM credits c {}",
            of_merchant("WHERE c.merchant", merchant)
        ))?;
        let mut rows = statement.query(params_from_iter(merchant))?;
        while let Some(row) = rows.next()? {
            let sum = sums.entry((row.get(0)?, row.get(1)?)).or_default();
            let net = net(row.get(2)?, uint(row.get(3)?)?);
            if net.is_zero() {
                sum.reversed += 1;
            } else {
                sum.credits += 1;
                sum.add(|sum| &mut sum.credited, net);
            }
        }
        Ok(())
    }

    /// Deposits in blocks that are not credited: few beside all that ever were, so their own indexes lead.
    fn sum_confirming(&self, merchant: Option<i64>, sums: &mut Sums) -> Result<(), StoreError> {
        for (index, held) in [("deposits_due", "IS NULL"), ("deposits_held", "IS NOT NULL")] {
            let mut statement = self.conn().prepare_cached(&format!(
                "SELECT d.merchant, d.asset, o.amount, d.held_reason IS NOT NULL \
                 FROM deposits d INDEXED BY {index} JOIN outputs o ON o.id = d.output \
                 WHERE d.state = 'confirming' AND d.held_reason {held} {}",
                of_merchant("AND d.merchant", merchant)
            ))?;
            let mut rows = statement.query(params_from_iter(merchant))?;
            while let Some(row) = rows.next()? {
                let sum = sums.entry((row.get(0)?, row.get(1)?)).or_default();
                if row.get(3)? {
                    sum.add(|sum| &mut sum.held, row.get(2)?);
                } else {
                    sum.add(|sum| &mut sum.confirming, row.get(2)?);
                }
            }
        }
        Ok(())
    }

    fn named(&self, merchant: i64, asset: i64, sum: Sum) -> Result<Balance, StoreError> {
        let mut statement = self.conn().prepare_cached(
            "SELECT m.slug, s.chain, s.caip, s.symbol, s.decimals \
             FROM merchants m JOIN assets s ON s.id = ?2 WHERE m.id = ?1",
        )?;
        let balance = statement.query_row([merchant, asset], |row| {
            Ok(Balance {
                merchant: row.get(0)?,
                chain: ChainKey(row.get(1)?),
                asset_key: AssetKey(asset),
                asset: row.get(2)?,
                symbol: row.get(3)?,
                decimals: row.get(4)?,
                credited: sum.credited,
                credits: sum.credits,
                reversed: sum.reversed,
                confirming: sum.confirming,
                held: sum.held,
            })
        })?;
        if sum.is_past {
            let Balance { merchant, symbol, .. } = balance;
            return Err(StoreError::Refused(format!(
                "a sum of {symbol} of {merchant} is more than 2^256 - 1 base units: `creditd credits` shows \
                 each credit"
            )));
        }
        Ok(balance)
    }
}

/// A condition on the merchant, where one is asked for.
fn of_merchant(column: &str, merchant: Option<i64>) -> String {
    merchant.map_or_else(String::new, |_| format!("{column} = ?"))
}
