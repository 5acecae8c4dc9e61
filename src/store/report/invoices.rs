//! Lists of invoices, a page at a time.

use super::super::invoices::Invoice;
use super::super::{ChainKey, ReadTx, StoreError};
use super::lists::{Listed, Page};
use crate::rules::invoice::{AmountState, Life};
use rusqlite::types::Value;

/// Which invoices. Everything that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvoiceFilter {
    /// Only this merchant's.
    pub merchant: Option<String>,
    /// Only on this chain.
    pub chain: Option<ChainKey>,
    /// Only with this reference.
    pub reference: Option<String>,
    /// Only where they stand so.
    pub life: Option<Life>,
    /// Only with so much credited.
    pub amount: Option<AmountState>,
    /// Only those with credited payments that belong to no order.
    pub is_strayed: bool,
}

impl ReadTx<'_> {
    /// Invoices, newest first.
    ///
    /// # Errors
    /// `Refused` for an unknown merchant.
    pub fn list_invoices(
        &self,
        filter: &InvoiceFilter,
        page: Page,
    ) -> Result<Vec<Listed<Invoice>>, StoreError> {
        let mut sql = String::from("WHERE i.id < ?");
        let mut values = vec![Value::from(page.after.unwrap_or(i64::MAX))];
        let mut narrow = |condition: &str, value: Value| {
            sql.push_str(condition);
            values.push(value);
        };
        if let Some(slug) = &filter.merchant {
            narrow(" AND i.merchant = ?", Value::from(self.merchant_key(slug)?));
        }
        if let Some(chain) = filter.chain {
            narrow(" AND i.chain = ?", Value::from(chain.0));
        }
        if let Some(reference) = &filter.reference {
            // The index leaves out the many that have none.
            narrow(
                " AND i.reference = ? AND i.reference <> ''",
                Value::from(reference.clone()),
            );
        }
        if let Some(life) = filter.life {
            narrow(" AND i.life = ?", Value::from(life.word().to_owned()));
        }
        if let Some(amount) = filter.amount {
            narrow(" AND i.amount_state = ?", Value::from(amount.word().to_owned()));
        }
        if filter.is_strayed {
            sql.push_str(" AND i.strays > 0");
        }
        sql.push_str(" ORDER BY i.id DESC LIMIT ?");
        values.push(Value::from(page.limit));
        let invoices = self.invoices_where(&sql, rusqlite::params_from_iter(values))?;
        let listed = invoices.into_iter().map(|row| Listed {
            position: row.key,
            row,
        });
        Ok(listed.collect())
    }
}
