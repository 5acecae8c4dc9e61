//! Who asks: the key of a request, whose it is and what it may be used for. A handler gets at a merchant only
//! by naming the scope that it needs, so none is forgotten.

use super::Api;
use super::problem::Problem;
use super::uses::USED_EVERY_MS;
use crate::rules::api_key::{ApiKey, Scope};
use crate::store::{ApiKeyRow, KeyOwner, KeyState};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};

/// Whoever asks.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) key: ApiKeyRow,
}

/// The merchant whose key was used: what every query is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Merchant {
    /// The database's own number.
    pub(super) key: i64,
    /// Its name.
    pub(super) slug: String,
    /// The public id of the key.
    pub(super) by: String,
}

impl Caller {
    /// The merchant of a key that has this scope.
    pub(super) fn merchant(&self, scope: Scope) -> Result<Merchant, Problem> {
        match &self.key.owner {
            KeyOwner::Operator => Err(forbidden(
                "merchant_key_needed",
                "this is done for a merchant: an operator's key has none",
            )),
            KeyOwner::Merchant { key, slug } => self.has(scope).map(|()| Merchant {
                key: *key,
                slug: slug.clone(),
                by: self.key.id.clone(),
            }),
        }
    }

    /// The merchant that a reader is bound to, or `None` for an operator, who reads everything.
    pub(super) fn reader(&self, scope: Scope) -> Result<Option<Merchant>, Problem> {
        match &self.key.owner {
            KeyOwner::Operator => self.has(Scope::OpsRead).map(|()| None),
            KeyOwner::Merchant { .. } => self.merchant(scope).map(Some),
        }
    }

    pub(super) fn has(&self, scope: Scope) -> Result<(), Problem> {
        match self.key.scopes.contains(&scope) {
            true => Ok(()),
            false => Err(forbidden(
                "scope_missing",
                &format!("this key does not have the scope {}", scope.word()),
            )),
        }
    }
}

/// Whether a key that was found can be used at a moment.
pub(super) fn live(found: Option<ApiKeyRow>, now_ms: i64) -> Result<ApiKeyRow, Problem> {
    let key = found.ok_or_else(|| unauthorized("key_unknown", "there is no such API key"))?;
    match key.state(now_ms) {
        KeyState::Live => Ok(key),
        KeyState::Expired => Err(unauthorized("key_expired", "this API key has expired")),
        KeyState::Revoked => Err(unauthorized("key_revoked", "this API key was revoked")),
    }
}

fn forbidden(code: &'static str, detail: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, code, detail)
}

fn unauthorized(code: &'static str, detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, code, detail)
}

/// The key in the one `Authorization: Bearer` header.
fn bearer(headers: &HeaderMap) -> Result<ApiKey, Problem> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let missing = || {
        unauthorized(
            "key_missing",
            "send the API key as `Authorization: Bearer ck_...`",
        )
    };
    let (Some(value), None) = (all.next(), all.next()) else {
        return Err(missing());
    };
    let (scheme, key) = value
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .ok_or_else(missing)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(missing());
    }
    ApiKey::parse(key.trim()).map_err(|error| unauthorized("key_malformed", &error.to_string()))
}

impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Caller, Problem> {
        let hash = bearer(&parts.headers)?.hash();
        let parts = &api.0;
        let now_ms = parts.clock.now_ms();
        let found = parts.store.read(move |tx| tx.api_key(&hash)).await?;
        let key = live(found, now_ms)?;
        let now = parts.clock.instant().duration_since(parts.started);
        if let Err(wait) = parts.rates.admit(&key.id, now) {
            let detail = "too many requests with this key";
            let secs = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).after(secs));
        }
        let is_noted = key
            .last_used_at
            .is_some_and(|last| (0..USED_EVERY_MS).contains(&now_ms.saturating_sub(last)));
        if !is_noted {
            parts.uses.note(&parts.store, &key.id, now_ms);
        }
        Ok(Caller { key })
    }
}
