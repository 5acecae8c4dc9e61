//! `/v1/addresses`: a lasting address for somebody who pays again and again; and how an address is taken.

use super::Api;
use super::access::Caller;
use super::names::Names;
use super::once::{Answer, Halt, effect, once};
use super::problem::{Problem, Problems};
use super::sent::{Keyed, Sent};
use crate::rules::api_key::Scope;
use crate::store::{ChainKey, PoolEmpty, StoreError, TakeAddress, TakenAddress, WriteTx};
use crate::telemetry::is_unsafe;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const REFERENCE_CHARS_MAX: usize = 200;

/// An empty pool is filled within this, where nothing keeps it from that.
const POOL_AGAIN_SECS: u64 = 5;

/// A restored backup catches up within minutes, mostly.
const RESTORING_AGAIN_SECS: u64 = 30;

/// An address to take.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewAddressJson {
    /// The chain's alias or CAIP-2 id.
    chain: String,
    /// Whose it is or what it is for: in every deposit to it.
    #[serde(default)]
    #[schema(max_length = 200)]
    reference: Option<String>,
}

/// An address that is watched from now on.
#[derive(Serialize, ToSchema)]
#[schema(as = Address)]
pub(super) struct AddressJson {
    /// CAIP-2 id.
    chain: String,
    address: Option<String>,
    reference: String,
    /// Every chain that it is watched on: an EVM address is the same on all of them.
    watched_on: Vec<String>,
}

/// Take a lasting deposit address
///
/// Never handed out before, and to nobody else. 503 says why there is none. Scope: `invoice:write`.
#[utoipa::path(
    post, path = "/v1/addresses", operation_id = "take_address",
    tag = "addresses", request_body = NewAddressJson,
    params(Keyed),
    responses((status = 201, body = AddressJson), Problems)
)]
pub(super) async fn create(State(api): State<Api>, caller: Caller, sent: Sent) -> Result<Response, Problem> {
    let merchant = caller.merchant(Scope::InvoiceWrite)?;
    let slug = merchant.slug.clone();
    let internal = api.0.config.internal_rule(&slug).word();
    let config = api.0.config.clone();
    let prepare = async {
        let new: NewAddressJson = sent.read()?;
        let reference = reference(new.reference.as_deref())?;
        Ok(effect(move |tx| {
            let names = Names::read(tx)?;
            let chain = names.payable_chain(&config, &new.chain)?.key;
            let taken = take(tx, chain, (&slug, internal), &reference)?;
            let answer = AddressJson {
                chain: names.id(chain),
                address: names.address(chain, &taken.script),
                reference: reference.clone(),
                watched_on: taken.on.iter().map(|(chain, _)| names.id(*chain)).collect(),
            };
            Answer::new(StatusCode::CREATED, &answer)
        }))
    };
    once(&api, &merchant, &sent, prepare).await
}

/// Takes the next address for a merchant, by the rule for its own transfers.
pub(super) fn take(
    tx: &mut WriteTx<'_>,
    chain: ChainKey,
    (merchant, internal): (&str, &str),
    reference: &str,
) -> Result<TakenAddress, Halt> {
    let take = TakeAddress {
        chain,
        merchant,
        internal,
        reference,
    };
    tx.take_address(&take)?.map_err(|empty| {
        let (code, secs) = match empty {
            PoolEmpty::Restoring(_) => ("restoring", RESTORING_AGAIN_SECS),
            PoolEmpty::NoSource | PoolEmpty::NotPinned { .. } | PoolEmpty::Empty { .. } => {
                ("no_address", POOL_AGAIN_SECS)
            }
        };
        Problem::unavailable(code, empty.to_string()).after(secs).into()
    })
}

/// What a merchant calls it.
pub(super) fn reference(text: Option<&str>) -> Result<String, Problem> {
    let text = text.unwrap_or_default();
    match text.chars().count() <= REFERENCE_CHARS_MAX && !text.chars().any(is_unsafe) {
        true => Ok(text.to_owned()),
        false => {
            let detail = format!("one line of at most {REFERENCE_CHARS_MAX} characters");
            Err(Problem::unprocessable("invalid_field", "reference", detail))
        }
    }
}

/// Terms that the store does not take are the client's to change.
pub(super) fn refused_terms(error: StoreError) -> Halt {
    match error {
        // Of which field is in the words alone.
        StoreError::Refused(text) => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "refused_terms", text).into()
        }
        error => error.into(),
    }
}
