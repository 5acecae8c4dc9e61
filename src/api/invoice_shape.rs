//! Invoices as the API shows them.

use super::names::Names;
use crate::clock::rfc3339;
use crate::config::ApiConfig;
use crate::rules::Amount;
use crate::rules::invoice::Mark;
use crate::rules::state::State as DepositState;
use crate::store::{Invoice, InvoicePayment};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// An invoice and what has become of it.
#[derive(Serialize, ToSchema)]
#[schema(as = Invoice)]
pub(super) struct InvoiceJson {
    pub(super) id: String,
    /// The number of its last event.
    pub(super) version: i64,
    pub(super) merchant: String,
    /// CAIP-2 id.
    pub(super) chain: String,
    /// Where it is to be paid.
    pub(super) address: Option<String>,
    /// CAIP-19 id.
    pub(super) asset: String,
    pub(super) symbol: String,
    pub(super) amount: String,
    pub(super) amount_base: String,
    /// The amount less the tolerance: what will do.
    pub(super) required: String,
    pub(super) required_base: String,
    /// Credited payments that count.
    pub(super) paid: String,
    pub(super) paid_base: String,
    /// Payments that count and wait for confirmations, or are held.
    pub(super) pending: String,
    pub(super) pending_base: String,
    /// What is credited beyond the amount.
    pub(super) overpaid: String,
    pub(super) overpaid_base: String,
    /// `unpaid`, `partial`, `paid` or `overpaid`.
    pub(super) amount_state: &'static str,
    /// `in_time` or `late`.
    pub(super) time: &'static str,
    /// `open`, `settled`, `expired` or `cancelled`.
    pub(super) life: &'static str,
    pub(super) confirmations: Option<u32>,
    pub(super) reference: String,
    #[schema(value_type = Object)]
    pub(super) metadata: Value,
    /// What its payment page is found by: `/i/` and this.
    pub(super) token: String,
    /// The payment page, where `[api] public_url` is set: send the payer there.
    pub(super) payment_url: Option<String>,
    /// What wallets open, for what is still missing; null where nothing is asked for any more.
    pub(super) payment_uri: Option<String>,
    pub(super) created_at: String,
    pub(super) expires_at: String,
    pub(super) expired_at: Option<String>,
    pub(super) cancelled_at: Option<String>,
    /// Payments to its address; of one invoice that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payments: Option<Vec<PaymentJson>>,
    /// The endpoint of its own, where it was made with one; in the answer to that request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) callback: Option<CallbackJson>,
}

/// A payment to an invoice's address.
#[derive(Serialize, ToSchema)]
#[schema(as = Payment)]
pub(super) struct PaymentJson {
    pub(super) deposit: String,
    pub(super) txid: String,
    pub(super) vout: u64,
    pub(super) asset: String,
    pub(super) symbol: String,
    pub(super) amount: String,
    pub(super) amount_base: String,
    pub(super) state: &'static str,
    pub(super) held: Option<String>,
    /// The earlier of first seen and block time.
    pub(super) paid_at: String,
    /// `in_time`, `late` or `unassigned`; null: it is in no mempool and on no best chain.
    pub(super) mark: Option<&'static str>,
}

/// The endpoint of one invoice.
#[derive(Clone, Serialize, ToSchema)]
#[schema(as = Callback)]
pub(super) struct CallbackJson {
    pub(super) endpoint: String,
    pub(super) url: String,
    pub(super) secret: String,
    /// What speaks against it though it is added.
    pub(super) warning: Option<String>,
}

pub(super) fn json(config: &ApiConfig, row: Invoice) -> InvoiceJson {
    let units = |amount: Amount| amount.to_units_string(row.decimals);
    let (required, overpaid) = (row.terms.required(), row.overpaid());
    InvoiceJson {
        version: row.version,
        chain: row.chain_id.to_string(),
        amount: units(row.terms.amount),
        amount_base: row.terms.amount.to_string(),
        required: units(required),
        required_base: required.to_string(),
        paid: units(row.status.paid),
        paid_base: row.status.paid.to_string(),
        pending: units(row.status.pending),
        pending_base: row.status.pending.to_string(),
        overpaid: units(overpaid),
        overpaid_base: overpaid.to_string(),
        amount_state: row.status.amount.word(),
        time: row.status.time.word(),
        life: row.status.life.word(),
        confirmations: row.confirmations,
        metadata: serde_json::from_str(&row.metadata).unwrap_or_default(),
        created_at: rfc3339(row.created_at),
        expires_at: rfc3339(row.terms.expires_at),
        expired_at: row.expired_at.map(rfc3339),
        cancelled_at: row.terms.cancelled_at.map(rfc3339),
        payment_url: config.payment_url(&row.token),
        payment_uri: row.payment_uri(),
        id: row.id,
        merchant: row.merchant,
        address: row.address,
        asset: row.asset,
        symbol: row.symbol,
        reference: row.reference,
        token: row.token,
        payments: None,
        callback: None,
    }
}

pub(super) fn payment(names: &Names, payment: InvoicePayment) -> PaymentJson {
    let deposit = payment.deposit;
    PaymentJson {
        txid: names.txid(deposit.chain, deposit.outpoint.txid),
        vout: deposit.outpoint.vout,
        amount: deposit.amount.to_units_string(deposit.decimals),
        amount_base: deposit.amount.to_string(),
        state: deposit.state.map_or("", DepositState::word),
        held: deposit.held_reason,
        paid_at: rfc3339(payment.paid_at),
        mark: payment.mark.map(Mark::word),
        deposit: deposit.id,
        asset: deposit.asset,
        symbol: deposit.symbol,
    }
}
