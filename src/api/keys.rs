//! `/v1/key`: what a key is, to try whether it works.

use super::access::Caller;
use super::problem::Problems;
use crate::clock::rfc3339;
use crate::store::KeyOwner;
use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

/// The key of the request.
#[derive(Serialize, ToSchema)]
#[schema(as = Key)]
pub(super) struct KeyJson {
    /// Its public id.
    id: String,
    /// What it is used by.
    name: String,
    /// Whose it is; null for an operator's.
    merchant: Option<String>,
    /// What it may be used for.
    scopes: Vec<&'static str>,
    /// When it ends by itself.
    expires_at: Option<String>,
}

/// The key of this request
///
/// Needs no scope: to try whether a key works, and what it may be used for.
#[utoipa::path(
    get, path = "/v1/key", operation_id = "show_key", tag = "keys",
    responses((status = 200, body = KeyJson), Problems)
)]
pub(super) async fn key(caller: Caller) -> Json<KeyJson> {
    let key = caller.key;
    Json(KeyJson {
        id: key.id,
        name: key.name,
        merchant: match key.owner {
            KeyOwner::Merchant { slug, .. } => Some(slug),
            KeyOwner::Operator => None,
        },
        scopes: key.scopes.iter().map(|scope| scope.word()).collect(),
        expires_at: key.expires_at.map(rfc3339),
    })
}
