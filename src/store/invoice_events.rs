//! The events of invoices. Each has the whole invoice at that moment, in absolute amounts, so that whoever
//! keeps the highest version of each needs no other.

use super::chains::one;
use super::events::{Heading, Receivers};
use super::invoices::Invoice;
use super::{StoreError, WriteTx};
use crate::clock::rfc3339;
use crate::rules::Amount;
use crate::rules::ids;
use crate::rules::invoice::Change;
use serde::Serialize;
use serde_json::Value;

/// An invoice at the moment of an event.
#[derive(Serialize)]
struct InvoiceData<'a> {
    invoice: &'a str,
    version: i64,
    sequence: i64,
    merchant: &'a str,
    reference: &'a str,
    metadata: Value,
    chain: &'a str,
    address: Option<&'a str>,
    asset: &'a str,
    symbol: &'a str,
    amount: String,
    amount_base: String,
    required: String,
    required_base: String,
    paid: String,
    paid_base: String,
    pending: String,
    pending_base: String,
    overpaid: String,
    overpaid_base: String,
    amount_state: &'static str,
    time: &'static str,
    life: &'static str,
    /// How many credited payments belong to no order.
    strays: u64,
    confirmations: Option<u32>,
    created_at: String,
    expires_at: String,
    expired_at: Option<String>,
    cancelled_at: Option<String>,
}

impl WriteTx<'_> {
    /// Tells an invoice anew, as it stands. Returns the event's id.
    pub(super) fn state_invoice(&mut self, id: &str) -> Result<String, StoreError> {
        let invoice = self.invoice(id)?;
        let invoice = invoice.ok_or_else(|| StoreError::Corrupt(format!("invoice {id} vanished")))?;
        self.invoice_event(&invoice, Change::State)
    }

    /// Writes the event of one change of an invoice. Returns its id.
    pub(super) fn invoice_event(&mut self, invoice: &Invoice, change: Change) -> Result<String, StoreError> {
        let sequence = self.next_sequence(&invoice.id)?;
        let data = data(invoice, sequence)?;
        let heading = Heading {
            subject: &invoice.id,
            kind: change.word(),
            merchant: Some(invoice.merchant_key),
            is_first_of_its_kind: change == Change::Paid && !self.was_paid_before(&invoice.id)?,
            to: Receivers::AlsoOfInvoice(invoice.key),
        };
        self.write_event(&heading, sequence, data)
    }

    /// Whoever acts on the first `invoice.paid` finds it under one id for ever, restores included.
    fn was_paid_before(&self, invoice: &str) -> Result<bool, StoreError> {
        let first = ids::first_event_id(invoice, Change::Paid.word());
        Ok(one::<i64>(self.conn(), "SELECT 1 FROM events WHERE id = ?1", [first])?.is_some())
    }
}

fn data(invoice: &Invoice, sequence: i64) -> Result<InvoiceData<'_>, StoreError> {
    let (terms, status) = (&invoice.terms, &invoice.status);
    let units = |amount: Amount| amount.to_units_string(invoice.decimals);
    let required = terms.required();
    let metadata = serde_json::from_str(&invoice.metadata)
        .map_err(|_| StoreError::Corrupt(format!("the metadata of invoice {}", invoice.id)))?;
    Ok(InvoiceData {
        invoice: &invoice.id,
        version: sequence,
        sequence,
        merchant: &invoice.merchant,
        reference: &invoice.reference,
        metadata,
        chain: invoice.chain_id.as_str(),
        address: invoice.address.as_deref(),
        asset: &invoice.asset,
        symbol: &invoice.symbol,
        amount: units(terms.amount),
        amount_base: terms.amount.to_string(),
        required: units(required),
        required_base: required.to_string(),
        paid: units(status.paid),
        paid_base: status.paid.to_string(),
        pending: units(status.pending),
        pending_base: status.pending.to_string(),
        overpaid: units(invoice.overpaid()),
        overpaid_base: invoice.overpaid().to_string(),
        amount_state: status.amount.word(),
        time: status.time.word(),
        life: status.life.word(),
        strays: status.strays,
        confirmations: invoice.confirmations,
        created_at: rfc3339(invoice.created_at),
        expires_at: rfc3339(terms.expires_at),
        expired_at: invoice.expired_at.map(rfc3339),
        cancelled_at: terms.cancelled_at.map(rfc3339),
    })
}
