//! `/v1/deposits`, `/v1/credits` and `/v1/balances`: what was paid and what was credited, of the merchant
//! whose key asks.

use super::Api;
use super::access::{Caller, Merchant};
use super::asked::{Asked, next_position, page};
use super::names::{self, Names};
use super::problem::{Problem, Problems};
use crate::clock::rfc3339;
use crate::config::is_name;
use crate::rules::api_key::Scope;
use crate::rules::state::State as DepositState;
use crate::rules::{Script, Txid};
use crate::store::report::{Balance, CreditRow, Filter, Listed, Page};
use crate::store::{Deposit, ReadTx, StoreError};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// What deposits and credits can be narrowed to.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Narrowed {
    /// Only this chain: an alias or a CAIP-2 id.
    chain: Option<String>,
    /// Only this asset: a symbol, a token's contract or a CAIP-19 id.
    asset: Option<String>,
    /// Only payments to this address.
    address: Option<String>,
    /// Only payments to addresses with this reference.
    reference: Option<String>,
    /// Only payments of this transaction.
    #[param(pattern = "^(0x)?[0-9a-fA-F]{64}$")]
    txid: Option<String>,
    /// Only deposits in this state.
    #[param(pattern = "^(seen|confirming|credited|evicted|replaced|orphaned|failed)$")]
    state: Option<String>,
    /// Only this merchant: for an operator's key.
    merchant: Option<String>,
    /// At most so many (1 to 1000; 100).
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `next` of the page before.
    #[param(pattern = "^[0-9]{1,18}$")]
    after: Option<String>,
}

/// A narrowing, checked as far as that goes without the database.
#[derive(Clone)]
struct Wanted {
    merchant: Option<String>,
    chain: Option<String>,
    asset: Option<String>,
    script: Option<Script>,
    reference: Option<String>,
    txid: Option<Txid>,
    state: Option<DepositState>,
    page: Page,
}

/// A payment to a watched address.
#[derive(Serialize, ToSchema)]
#[schema(as = Deposit)]
pub(super) struct DepositJson {
    id: String,
    /// CAIP-2 id.
    chain: String,
    txid: String,
    vout: u64,
    address: Option<String>,
    merchant: String,
    reference: String,
    /// CAIP-19 id.
    asset: String,
    symbol: String,
    /// Whole units, exact.
    amount: String,
    /// Base units.
    amount_base: String,
    /// `external`, `mixed` or `internal`.
    origin: String,
    /// `seen`, `confirming`, `credited`, `evicted`, `replaced`, `orphaned` or `failed`.
    state: &'static str,
    block_height: Option<u64>,
    confirmations_required: Option<u32>,
    finality_required: Option<&'static str>,
    due_height: Option<u64>,
    /// Why it is held, if it is.
    held: Option<String>,
    replaced_by: Option<String>,
    first_seen_at: String,
}

/// A page of deposits, newest first.
#[derive(Serialize, ToSchema)]
pub(super) struct Deposits {
    deposits: Vec<DepositJson>,
    /// For `after`; null on the last page.
    next: Option<String>,
}

/// A credit: made once per payment, never deleted.
#[derive(Serialize, ToSchema)]
#[schema(as = Credit)]
pub(super) struct CreditJson {
    id: String,
    /// CAIP-2 id.
    chain: String,
    txid: String,
    vout: u64,
    address: Option<String>,
    merchant: String,
    reference: String,
    /// CAIP-19 id.
    asset: String,
    symbol: String,
    amount: String,
    amount_base: String,
    /// The amount, or 0 while it is reversed.
    net: String,
    net_base: String,
    /// `credit`, `reversal` or `reinstatement`.
    last_entry: String,
    last_entry_at: String,
    /// How many entries its journal has.
    entries: u64,
    /// Null where another provider told of the payment.
    block_height: Option<u64>,
    /// The webhook by which another provider told of the payment.
    inbox: Option<String>,
    created_at: String,
}

/// A page of credits, newest first.
#[derive(Serialize, ToSchema)]
pub(super) struct Credits {
    credits: Vec<CreditJson>,
    /// For `after`; null on the last page.
    next: Option<String>,
}

/// The sums of one asset.
#[derive(Serialize, ToSchema)]
#[schema(as = Balance)]
pub(super) struct BalanceJson {
    merchant: String,
    /// CAIP-2 id.
    chain: String,
    /// CAIP-19 id.
    asset: String,
    symbol: String,
    /// The sum of all credits, reversed ones counting nothing.
    credited: String,
    credited_base: String,
    /// How many credits that is.
    credits: u64,
    /// How many are reversed.
    reversed: u64,
    /// The sum of payments in blocks that are not deep enough yet.
    confirming: String,
    confirming_base: String,
    /// The sum of held payments in blocks.
    held: String,
    held_base: String,
}

/// The balances by merchant and asset.
#[derive(Serialize, ToSchema)]
pub(super) struct Balances {
    balances: Vec<BalanceJson>,
}

/// Which balances.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BalancesAsked {
    /// Only this merchant: for an operator's key.
    merchant: Option<String>,
}

/// Deposits, newest first
///
/// Payments to watched addresses, and what became of them. Scope: `invoice:read`.
#[utoipa::path(
    get, path = "/v1/deposits", operation_id = "list_deposits", tag = "ledger", params(Narrowed),
    responses((status = 200, body = Deposits), Problems)
)]
pub(super) async fn deposits(
    State(api): State<Api>,
    caller: Caller,
    Asked(asked): Asked<Narrowed>,
) -> Result<Json<Deposits>, Problem> {
    let wanted = wanted(&api, caller.reader(Scope::InvoiceRead)?, asked)?;
    let page = wanted.page;
    let read = api.0.store.read(move |tx| {
        Ok(match filter(tx, &wanted)? {
            Ok((names, Some(filter))) => Ok((names, tx.list_deposits(&filter, page)?)),
            Ok((names, None)) => Ok((names, Vec::new())),
            Err(problem) => Err(problem),
        })
    });
    let (names, rows) = read.await??;
    let next = next_position(&rows, page);
    let deposits = rows.into_iter().map(|listed| deposit(&names, listed.row));
    Ok(Json(Deposits {
        deposits: deposits.collect(),
        next,
    }))
}

/// Credits, newest first
///
/// Scope: `invoice:read`.
#[utoipa::path(
    get, path = "/v1/credits", operation_id = "list_credits", tag = "ledger", params(Narrowed),
    responses((status = 200, body = Credits), Problems)
)]
pub(super) async fn credits(
    State(api): State<Api>,
    caller: Caller,
    Asked(asked): Asked<Narrowed>,
) -> Result<Json<Credits>, Problem> {
    let wanted = wanted(&api, caller.reader(Scope::InvoiceRead)?, asked)?;
    if wanted.state.is_some() {
        let detail = "credits have no state: `net` is 0 while one is reversed";
        return Err(Problem::bad_request("invalid_query", detail).at("state"));
    }
    let page = wanted.page;
    let read = api.0.store.read(move |tx| {
        Ok(match filter(tx, &wanted)? {
            Ok((names, Some(filter))) => Ok((names, tx.list_credits(&filter, page)?)),
            Ok((names, None)) => Ok((names, Vec::new())),
            Err(problem) => Err(problem),
        })
    });
    let (names, rows) = read.await??;
    let next = next_position(&rows, page);
    let credits = rows
        .into_iter()
        .map(|listed: Listed<_>| credit(&names, listed.row));
    Ok(Json(Credits {
        credits: credits.collect(),
        next,
    }))
}

/// Balances by asset
///
/// Scope: `invoice:read`.
#[utoipa::path(
    get, path = "/v1/balances", operation_id = "list_balances", tag = "ledger", params(BalancesAsked),
    responses((status = 200, body = Balances), Problems)
)]
pub(super) async fn balances(
    State(api): State<Api>,
    caller: Caller,
    Asked(asked): Asked<BalancesAsked>,
) -> Result<Json<Balances>, Problem> {
    let merchant = bound(caller.reader(Scope::InvoiceRead)?, asked.merchant)?;
    let read = api.0.store.read(move |tx| {
        let names = Names::read(tx)?;
        let is_known = match &merchant {
            Some(slug) => tx.has_merchant(slug)?,
            None => true,
        };
        Ok(match is_known {
            true => Some((names, tx.balances(merchant.as_deref())?)),
            false => None,
        })
    });
    let (names, balances) = read.await?.ok_or_else(unknown_merchant)?;
    let balances = balances.into_iter().map(|row| balance(&names, row));
    Ok(Json(Balances {
        balances: balances.collect(),
    }))
}

pub(super) fn unknown_merchant() -> Problem {
    Problem::unprocessable("unknown_merchant", "merchant", "there is no such merchant")
}

/// The merchant that a query is bound to: that of the key, or the one that an operator names.
pub(super) fn bound(reader: Option<Merchant>, named: Option<String>) -> Result<Option<String>, Problem> {
    match (reader, named) {
        (Some(own), None) => Ok(Some(own.slug)),
        (Some(own), Some(named)) if own.slug == named => Ok(Some(named)),
        (Some(_), Some(_)) => Err(unknown_merchant()),
        (None, Some(named)) if !is_name(&named) => Err(unknown_merchant()),
        (None, named) => Ok(named),
    }
}

fn wanted(api: &Api, reader: Option<Merchant>, asked: Narrowed) -> Result<Wanted, Problem> {
    let chain = asked.chain;
    let script = asked
        .address
        .map(|text| names::script(&api.0.config, chain.as_deref(), &text))
        .transpose()?;
    let txid = asked.txid.map(|text| {
        let bad = || Problem::unprocessable("invalid_txid", "txid", "64 hex digits, with 0x or without");
        Txid::from_typed(&text).ok_or_else(bad)
    });
    let state = asked.state.map(|word| {
        let bad = || Problem::bad_request("invalid_query", "no deposit has this state").at("state");
        DepositState::from_word(&word).ok_or_else(bad)
    });
    Ok(Wanted {
        merchant: bound(reader, asked.merchant)?,
        chain,
        asset: asked.asset,
        script,
        reference: asked.reference,
        txid: txid.transpose()?,
        state: state.transpose()?,
        page: page(asked.limit, asked.after.as_deref())?,
    })
}

/// The filter for a list; `None` where nothing can be found.
type Narrow = Result<(Names, Option<Filter>), Problem>;

fn filter(tx: &ReadTx<'_>, wanted: &Wanted) -> Result<Narrow, StoreError> {
    if let Some(slug) = &wanted.merchant
        && !tx.has_merchant(slug)?
    {
        return Ok(Err(unknown_merchant()));
    }
    let names = Names::read(tx)?;
    let chain = match &wanted.chain {
        None => None,
        Some(name) => match names.place(name) {
            Some(row) => Some(row.key),
            None => return Ok(Err(names.unknown_chain())),
        },
    };
    let assets = wanted.asset.as_ref().map(|name| names.assets(chain, name));
    if assets.as_ref().is_some_and(Vec::is_empty) {
        return Ok(Err(names.unknown_asset()));
    }
    let filter = Filter {
        merchant: wanted.merchant.clone(),
        chain,
        assets,
        state: wanted.state,
        script: wanted.script.clone(),
        reference: wanted.reference.clone(),
        txid: wanted.txid,
        ..Filter::default()
    };
    // The index of references leaves out the many that have none.
    let is_possible = wanted.reference.as_deref() != Some("");
    Ok(Ok((names, is_possible.then_some(filter))))
}

pub(super) fn deposit(names: &Names, row: Deposit) -> DepositJson {
    use crate::rules::policy::Requirement;
    DepositJson {
        chain: names.id(row.chain),
        txid: names.txid(row.chain, row.outpoint.txid),
        vout: row.outpoint.vout,
        address: names.address(row.chain, &row.script),
        amount: row.amount.to_units_string(row.decimals),
        amount_base: row.amount.to_string(),
        state: row.state.map_or("", DepositState::word),
        block_height: row.height,
        confirmations_required: row.needs.and_then(Requirement::confirmations),
        finality_required: row.needs.and_then(Requirement::tag),
        due_height: row.due_height,
        replaced_by: row.replaced_by.map(|txid| names.txid(row.chain, txid)),
        first_seen_at: rfc3339(row.first_seen_at),
        id: row.id,
        merchant: row.merchant,
        reference: row.reference,
        asset: row.asset,
        symbol: row.symbol,
        origin: row.origin,
        held: row.held_reason,
    }
}

fn credit(names: &Names, row: CreditRow) -> CreditJson {
    CreditJson {
        chain: names.id(row.chain),
        txid: names.txid(row.chain, row.outpoint.txid),
        vout: row.outpoint.vout,
        address: row.script.and_then(|script| names.address(row.chain, &script)),
        amount: row.amount.to_units_string(row.decimals),
        amount_base: row.amount.to_string(),
        net: row.net.to_units_string(row.decimals),
        net_base: row.net.to_string(),
        last_entry_at: rfc3339(row.last_at),
        created_at: rfc3339(row.created_at),
        id: row.id,
        merchant: row.merchant,
        reference: row.reference,
        asset: row.asset,
        symbol: row.symbol,
        last_entry: row.last_kind,
        entries: row.entries,
        block_height: row.block_height,
        inbox: row.inbox,
    }
}

fn balance(names: &Names, row: Balance) -> BalanceJson {
    let units = |amount: crate::rules::Amount| amount.to_units_string(row.decimals);
    BalanceJson {
        chain: names.id(row.chain),
        credited: units(row.credited),
        credited_base: row.credited.to_string(),
        credits: row.credits,
        reversed: row.reversed,
        confirming: units(row.confirming),
        confirming_base: row.confirming.to_string(),
        held: units(row.held),
        held_base: row.held.to_string(),
        merchant: row.merchant,
        asset: row.asset,
        symbol: row.symbol,
    }
}
