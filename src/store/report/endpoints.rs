//! Endpoints, for people.

use super::super::endpoints::{ENDPOINT_SELECT, Endpoint, endpoint_row};
use super::super::{ReadTx, StoreError};
use super::lists::{Listed, Page};
use rusqlite::types::Value;

/// Which endpoints. Everything that is set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointFilter {
    /// Only this merchant's.
    pub merchant: Option<String>,
    /// Only that of this invoice. Of invoices there may be millions: without this, and unless they are
    /// paused, those that are told of one invoice each are left out.
    pub invoice: Option<String>,
    /// Only paused ones, those of one invoice among them.
    pub is_paused: bool,
}

/// The query of a page, and what is bound. Each has its index: what is left out is not walked through.
pub(in super::super) fn endpoints_query(
    filter: &EndpointFilter,
    merchant: Option<i64>,
    page: Page,
) -> (String, Vec<Value>) {
    let (index, condition) = match filter {
        EndpointFilter { invoice: Some(_), .. } => ("endpoints_by_invoice", "e.invoice IS NOT NULL"),
        EndpointFilter { is_paused: true, .. } => ("endpoints_paused", "e.paused_reason IS NOT NULL"),
        _ => ("endpoints_by_merchant", "e.invoice IS NULL"),
    };
    let mut sql = ENDPOINT_SELECT.replace("endpoints e", &format!("endpoints e INDEXED BY {index}"));
    sql.push_str(&format!(" WHERE {condition} AND e.id > ?"));
    let mut values = vec![Value::from(page.after.unwrap_or(0))];
    if let Some(merchant) = merchant {
        sql.push_str(" AND e.merchant = ?");
        values.push(Value::from(merchant));
    }
    if let Some(invoice) = &filter.invoice {
        sql.push_str(" AND e.invoice = (SELECT id FROM invoices WHERE inv_id = ?)");
        values.push(Value::from(invoice.clone()));
    }
    if filter.is_paused {
        sql.push_str(" AND e.paused_reason IS NOT NULL");
    }
    sql.push_str(" ORDER BY e.id LIMIT ?");
    values.push(Value::from(i64::from(page.limit)));
    (sql, values)
}

impl ReadTx<'_> {
    /// Endpoints, oldest first.
    ///
    /// # Errors
    /// `Refused` for an unknown merchant.
    pub fn list_endpoints(
        &self,
        filter: &EndpointFilter,
        page: Page,
    ) -> Result<Vec<Listed<Endpoint>>, StoreError> {
        let merchant = filter.merchant.as_deref();
        let merchant = merchant.map(|slug| self.merchant_key(slug)).transpose()?;
        let (sql, values) = endpoints_query(filter, merchant, page);
        let mut statement = self.conn().prepare_cached(&sql)?;
        let rows = statement.query_map(rusqlite::params_from_iter(values), |row| {
            Ok(Listed {
                position: row.get(0)?,
                row: endpoint_row(row)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
