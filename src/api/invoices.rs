//! `/v1/invoices`: asked for, read, taken back. The address is taken from the pool in the transaction of the
//! invoice.

use super::Api;
use super::access::Caller;
use super::asked::{Asked, next_position, page};
use super::callbacks::{checked_url, fresh, shown, types};
use super::invoice_shape::{CallbackJson, InvoiceJson, json, payment};
use super::ledger::bound;
use super::names::{self, Names};
use super::once::{Answer, effect, once};
use super::problem::{Problem, Problems};
use super::sent::{Keyed, Sent};
use super::taken::{reference, refused_terms, take};
use crate::rules::Amount;
use crate::rules::amount::AmountError;
use crate::rules::api_key::Scope;
use crate::rules::ids;
use crate::rules::invoice::{AmountState, Life, Tolerance};
use crate::store::report::InvoiceFilter;
use crate::store::{CancelOutcome, Invoice, KnownAsset, METADATA_BYTES_MAX, NewCallback, NewInvoice};
use crate::webhook::Scheme;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

const EXPIRES_IN_SECS: u64 = 3_600;
const EXPIRES_IN_MAX_SECS: u64 = 31_536_000;

/// An invoice to make.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewInvoiceJson {
    /// The chain's alias or CAIP-2 id; needed where several chains have the asset.
    #[serde(default)]
    chain: Option<String>,
    /// A symbol, a token's contract or a CAIP-19 id.
    asset: String,
    /// Whole units, exact: a decimal text such as "0.29".
    #[schema(pattern = "^(0|[1-9][0-9]*)([.][0-9]+)?$")]
    amount: String,
    /// How much less will do, in whole units.
    #[serde(default)]
    #[schema(pattern = "^(0|[1-9][0-9]*)([.][0-9]+)?$")]
    tolerance: Option<String>,
    /// How much less will do, in percent with at most two digits after the point; the larger of both counts.
    #[serde(default)]
    #[schema(pattern = "^(0|[1-9][0-9]?)([.][0-9]{1,2})?$")]
    tolerance_percent: Option<String>,
    /// How many seconds from now payments are in time (60 to 31536000; 3600).
    #[serde(default)]
    #[schema(minimum = 60, maximum = 31536000)]
    expires_in: Option<u64>,
    /// Your own word for it.
    #[serde(default)]
    #[schema(max_length = 200)]
    reference: Option<String>,
    /// Your own data for it.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    metadata: Option<serde_json::Map<String, Value>>,
    /// At least so many confirmations, where the policy asks for fewer.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 2016)]
    confirmations: Option<u32>,
    /// An endpoint that is told of this invoice alone.
    #[serde(default)]
    #[schema(max_length = 2048)]
    callback_url: Option<String>,
    /// What it is told; all of its events where none are given.
    #[serde(default)]
    #[schema(max_items = 32)]
    callback_types: Vec<String>,
}

/// A page of invoices, newest first.
#[derive(Serialize, ToSchema)]
pub(super) struct Invoices {
    invoices: Vec<InvoiceJson>,
    /// For `after`; null on the last page.
    next: Option<String>,
}

/// Which invoices.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Only on this chain: an alias or a CAIP-2 id.
    chain: Option<String>,
    /// Only with this reference.
    reference: Option<String>,
    /// Only those that are `open`, `settled`, `expired` or `cancelled`.
    #[param(pattern = "^(open|settled|expired|cancelled)$")]
    life: Option<String>,
    /// Only those that are `unpaid`, `partial`, `paid` or `overpaid`.
    #[param(pattern = "^(unpaid|partial|paid|overpaid)$")]
    amount_state: Option<String>,
    /// Only this merchant: for an operator's key.
    merchant: Option<String>,
    /// At most so many (1 to 1000; 100).
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next` of the page before.
    #[param(pattern = "^[0-9]{1,18}$")]
    after: Option<String>,
}

/// Make an invoice
///
/// Takes an address that was never used. 503 says why there is none. Scope: `invoice:write`.
#[utoipa::path(
    post, path = "/v1/invoices", operation_id = "create_invoice",
    tag = "invoices", request_body = NewInvoiceJson,
    params(Keyed),
    responses((status = 201, body = InvoiceJson), Problems)
)]
pub(super) async fn create(State(api): State<Api>, caller: Caller, sent: Sent) -> Result<Response, Problem> {
    let merchant = caller.merchant(Scope::InvoiceWrite)?;
    let slug = merchant.slug.clone();
    let internal = api.0.config.internal_rule(&slug).word();
    let config = api.0.config.clone();
    let prepare = async {
        let new: NewInvoiceJson = sent.read()?;
        let callback = callback(&api, &new).await?;
        let token = token(&api)?;
        Ok(effect(move |tx| {
            // Of this transaction: a daemon that starts takes names and decimals from another config.
            let names = Names::read(tx)?;
            let asset = names.payable_asset(&config, new.chain.as_deref(), &new.asset)?;
            let terms = Terms::read(&new, asset)?;
            let window = names::reorg_window(&config, &names.id(asset.chain));
            if new
                .confirmations
                .is_some_and(|count| !(1..=window).contains(&u64::from(count)))
            {
                let detail = format!("a whole number from 1 to {window}");
                return Err(Problem::unprocessable("invalid_field", "confirmations", detail)
                    .passing()
                    .into());
            }
            let address = take(tx, asset.chain, (&slug, internal), &terms.reference)?.address;
            let expires_at = tx.now_ms().saturating_add(terms.expires_in_ms);
            let invoice = tx.create_invoice(&NewInvoice {
                merchant: slug.clone(),
                asset: terms.asset,
                address,
                amount: terms.amount,
                tolerance: terms.tolerance,
                expires_at,
                reference: terms.reference.clone(),
                metadata: terms.metadata.clone(),
                confirmations: terms.confirmations,
                token: token.clone(),
                callback: callback.as_ref().map(|(callback, _)| callback.clone()),
            });
            let invoice = invoice.map_err(refused_terms)?;
            let callback = callback.as_ref().map(|(callback, warning)| CallbackJson {
                endpoint: ids::invoice_endpoint_id(&invoice.id, &callback.url),
                url: callback.url.clone(),
                secret: shown(&callback.key),
                warning: warning.clone(),
            });
            let answer = InvoiceJson {
                callback,
                ..json(&config.api, invoice)
            };
            Ok(Answer::new(StatusCode::CREATED, &answer)?.of_invoice(answer.id, expires_at))
        }))
    };
    once(&api, &merchant, &sent, prepare).await
}

/// What was asked for, checked as far as that goes without the database.
struct Terms {
    asset: crate::store::AssetKey,
    amount: Amount,
    tolerance: Tolerance,
    expires_in_ms: i64,
    reference: String,
    metadata: String,
    confirmations: Option<u32>,
}

impl Terms {
    fn read(new: &NewInvoiceJson, asset: &KnownAsset) -> Result<Terms, Problem> {
        let amount = amount(&new.amount, asset.decimals, "amount")?;
        if amount.is_zero() {
            let detail = "an invoice asks for more than 0";
            return Err(Problem::unprocessable("invalid_amount", "amount", detail));
        }
        let base = match &new.tolerance {
            Some(text) => self::amount(text, asset.decimals, "tolerance")?,
            None => Amount::ZERO,
        };
        let percent = match &new.tolerance_percent {
            Some(text) => self::amount(text, 2, "tolerance_percent")?,
            None => Amount::ZERO,
        };
        let percent_hundredths = percent
            .to_string()
            .parse()
            .ok()
            .filter(|count| *count < 10_000_u16);
        let percent_hundredths = percent_hundredths.ok_or_else(|| {
            Problem::unprocessable("invalid_field", "tolerance_percent", "less than 100 percent")
        })?;
        let secs = new.expires_in.unwrap_or(EXPIRES_IN_SECS);
        if !(60..=EXPIRES_IN_MAX_SECS).contains(&secs) {
            let detail = format!("a whole number of seconds from 60 to {EXPIRES_IN_MAX_SECS}");
            return Err(Problem::unprocessable("invalid_field", "expires_in", detail));
        }
        let metadata = new.metadata.clone().unwrap_or_default();
        let metadata = Value::Object(metadata).to_string();
        if metadata.len() > METADATA_BYTES_MAX {
            let detail = format!("at most {METADATA_BYTES_MAX} bytes");
            return Err(Problem::unprocessable("invalid_field", "metadata", detail));
        }
        Ok(Terms {
            asset: asset.key,
            amount,
            tolerance: Tolerance {
                base,
                percent_hundredths,
            },
            expires_in_ms: i64::try_from(secs * 1_000).unwrap_or(i64::MAX),
            reference: reference(new.reference.as_deref())?,
            metadata,
            confirmations: new.confirmations,
        })
    }
}

fn amount(text: &str, decimals: u8, field: &str) -> Result<Amount, Problem> {
    Amount::from_units_str(text, decimals).map_err(|error| {
        let refused = |code| Problem::unprocessable(code, field, error.to_string());
        match error {
            AmountError::Malformed => refused("invalid_amount"),
            // By the digits that the config gives to what is called so.
            AmountError::TooPrecise { .. } => refused("amount_too_precise").passing(),
            AmountError::TooLarge => refused("amount_too_large").passing(),
        }
    })
}

async fn callback(api: &Api, new: &NewInvoiceJson) -> Result<Option<(NewCallback, Option<String>)>, Problem> {
    let Some(text) = &new.callback_url else {
        return match new.callback_types.is_empty() {
            true => Ok(None),
            false => {
                let detail = "types are for a callback_url, and there is none";
                Err(Problem::unprocessable("invalid_field", "callback_types", detail))
            }
        };
    };
    let types = types(&new.callback_types, "callback_types")?;
    let (url, warning) = checked_url(api, text, "callback_url").await?;
    let callback = NewCallback {
        url: url.as_str().to_owned(),
        types,
        key: fresh(api, Scheme::V1)?,
    };
    Ok(Some((callback, warning)))
}

/// 256 random bits.
fn token(api: &Api) -> Result<String, Problem> {
    let mut bytes = [0; 32];
    let chance = api.0.chance;
    chance
        .fill(&mut bytes)
        .map_err(|_| Problem::unavailable("no_randomness", "the system gives no random numbers"))?;
    Ok(const_hex::encode(bytes))
}

/// Invoices, newest first
///
/// Scope: `invoice:read`.
#[utoipa::path(
    get, path = "/v1/invoices", operation_id = "list_invoices", tag = "invoices", params(Wanted),
    responses((status = 200, body = Invoices), Problems)
)]
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Asked(asked): Asked<Wanted>,
) -> Result<Json<Invoices>, Problem> {
    let reader = caller.reader(Scope::InvoiceRead)?;
    let word = |field| move || Problem::bad_request("invalid_query", "there is no such word").at(field);
    let life = asked
        .life
        .map(|text| Life::from_word(&text).ok_or_else(word("life")));
    let amount = asked
        .amount_state
        .map(|text| AmountState::from_word(&text).ok_or_else(word("amount_state")));
    let page = page(asked.limit, asked.after.as_deref())?;
    let filter = InvoiceFilter {
        merchant: bound(reader, asked.merchant)?,
        chain: None,
        reference: asked.reference,
        life: life.transpose()?,
        amount: amount.transpose()?,
        is_strayed: false,
    };
    let chain = asked.chain;
    let rows = api.0.store.read(move |tx| {
        let names = Names::read(tx)?;
        let mut filter = filter.clone();
        if let Some(name) = &chain {
            match names.chain(name) {
                Some(row) => filter.chain = Some(row.key),
                None => return Ok(Err(names.unknown_chain())),
            }
        }
        if let Some(slug) = &filter.merchant
            && !tx.has_merchant(slug)?
        {
            return Ok(Err(super::ledger::unknown_merchant()));
        }
        Ok(Ok(tx.list_invoices(&filter, page)?))
    });
    let rows = rows.await??;
    let next = next_position(&rows, page);
    Ok(Json(Invoices {
        invoices: rows
            .into_iter()
            .map(|listed| json(&api.0.config.api, listed.row))
            .collect(),
        next,
    }))
}

fn none() -> Problem {
    Problem::not_found("there is no such invoice")
}

/// An invoice with its payments
///
/// Scope: `invoice:read`.
#[utoipa::path(
    get, path = "/v1/invoices/{id}", operation_id = "show_invoice",
    tag = "invoices", params(("id" = String, Path)),
    responses((status = 200, body = InvoiceJson), Problems)
)]
pub(super) async fn show(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<InvoiceJson>, Problem> {
    let reader = caller.reader(Scope::InvoiceRead)?;
    let found = api.0.store.read(move |tx| {
        let is_theirs = |invoice: &Invoice| {
            reader
                .as_ref()
                .is_none_or(|merchant| merchant.slug == invoice.merchant)
        };
        let Some(invoice) = tx.invoice(&id)?.filter(is_theirs) else {
            return Ok(None);
        };
        let payments = tx.invoice_payments(&invoice)?;
        Ok(Some((invoice, payments, Names::read(tx)?)))
    });
    let (invoice, payments, names) = found.await?.ok_or_else(none)?;
    let payments = payments.into_iter().map(|row| payment(&names, row));
    Ok(Json(InvoiceJson {
        payments: Some(payments.collect()),
        ..json(&api.0.config.api, invoice)
    }))
}

/// Take an invoice back
///
/// Payments from now on are credited, and not the invoice's. 409 where it is paid. Scope: `invoice:write`.
#[utoipa::path(
    post, path = "/v1/invoices/{id}/cancel", operation_id = "cancel_invoice",
    tag = "invoices", request_body = super::callbacks::Nothing,
    params(("id" = String, Path), Keyed),
    responses((status = 200, body = InvoiceJson), Problems)
)]
pub(super) async fn cancel(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    sent: Sent,
) -> Result<Response, Problem> {
    let merchant = caller.merchant(Scope::InvoiceWrite)?;
    let slug = merchant.slug.clone();
    let config = api.0.config.api.clone();
    let prepare = async {
        let _: super::callbacks::Nothing = sent.read()?;
        Ok(effect(move |tx| {
            if tx.invoice(&id)?.is_none_or(|invoice| invoice.merchant != slug) {
                return Err(none().into());
            }
            match tx.cancel_invoice(&id, "merchant", "taken back")? {
                CancelOutcome::Cancelled(invoice) => Answer::new(StatusCode::OK, &json(&config, invoice)),
                CancelOutcome::Settled(_) => {
                    let detail = "this invoice is paid: nothing was changed";
                    Err(Problem::conflict("invoice_settled", detail).into())
                }
            }
        }))
    };
    once(&api, &merchant, &sent, prepare).await
}
