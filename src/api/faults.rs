//! Which codes a route may answer: `/openapi.json` tells them all, by status, so that a client can be written
//! against them and a foreign one can hold the server to them. What a handler adds is a row here.

use super::problem::PROBLEM_JSON;
use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use utoipa::openapi::OpenApi;

/// Which routes a code belongs to.
enum Of {
    All,
    /// Asked with an API key.
    Keyed,
    /// For which a key needs a scope.
    Scoped,
    /// Done for one merchant: everything under an idempotency key, and these.
    ForOne(&'static [&'static str]),
    /// Done under an idempotency key.
    Once,
    /// With a query.
    Query,
    /// With an id in the path.
    Named,
    /// These, by their operation ids.
    Routes(&'static [&'static str]),
}

const LISTS: &[&str] = &["list_deposits", "list_credits"];
const TAKES: &[&str] = &["create_invoice", "take_address"];
const SIGNS: &[&str] = &["create_invoice", "add_endpoint", "rotate_secret"];
const CALLS: &[&str] = &["create_invoice", "add_endpoint"];
const INVOICE: &[&str] = &["create_invoice"];
const TXIDS: &[&str] = &["list_deposits", "list_credits", "show_transaction"];
const ASSETS: &[&str] = &["create_invoice", "list_deposits", "list_credits"];
const MERCHANTS: &[&str] = &["list_invoices", "list_deposits", "list_credits", "list_balances"];
const CHAINS: &[&str] = &[
    "create_invoice",
    "list_invoices",
    "take_address",
    "list_deposits",
    "list_credits",
    "show_transaction",
];
const PAGES: &[&str] = &["stream_page"];
const STREAMS: &[&str] = &["stream_page", "stream_events"];
const INBOX: &[&str] = &["receive_webhook"];

const FAULTS: &[(u16, &str, Of)] = &[
    (400, "body_incomplete", Of::Once),
    (400, "body_incomplete", Of::Routes(INBOX)),
    (400, "idempotency_key_invalid", Of::Once),
    (400, "idempotency_key_missing", Of::Once),
    (400, "invalid_query", Of::Query),
    (400, "json_too_deep", Of::Once),
    (400, "malformed_json", Of::Once),
    (400, "number_not_exact", Of::Once),
    (401, "bad_signature", Of::Routes(INBOX)),
    (401, "key_expired", Of::Keyed),
    (401, "key_malformed", Of::Keyed),
    (401, "key_missing", Of::Keyed),
    (401, "key_revoked", Of::Keyed),
    (401, "key_unknown", Of::Keyed),
    (401, "stale_time", Of::Routes(INBOX)),
    (403, "merchant_key_needed", Of::ForOne(&["list_endpoints"])),
    (403, "scope_missing", Of::Scoped),
    (404, "not_found", Of::Named),
    (408, "body_too_slow", Of::Once),
    (408, "body_too_slow", Of::Routes(INBOX)),
    (409, "endpoint_exists", Of::Routes(&["add_endpoint"])),
    (409, "in_progress", Of::Once),
    (409, "invoice_settled", Of::Routes(&["cancel_invoice"])),
    (409, "refused", Of::Once),
    (413, "body_too_large", Of::Once),
    (413, "body_too_large", Of::Routes(INBOX)),
    (415, "unsupported_media_type", Of::Once),
    (422, "ambiguous_asset", Of::Routes(INVOICE)),
    (422, "amount_too_large", Of::Routes(INVOICE)),
    (422, "amount_too_precise", Of::Routes(INVOICE)),
    (422, "bad_address_checksum", Of::Routes(LISTS)),
    (422, "idempotency_key_reused", Of::Once),
    (422, "invalid_amount", Of::Routes(INVOICE)),
    (422, "invalid_field", Of::Once),
    (422, "invalid_txid", Of::Routes(TXIDS)),
    (422, "mixed_case_address", Of::Routes(LISTS)),
    (422, "refused_terms", Of::Routes(INVOICE)),
    (422, "unknown_address", Of::Routes(LISTS)),
    (422, "unknown_asset", Of::Routes(ASSETS)),
    (422, "unknown_chain", Of::Routes(CHAINS)),
    (422, "unknown_event_type", Of::Routes(CALLS)),
    (422, "unknown_merchant", Of::Routes(MERCHANTS)),
    (422, "url_refused", Of::Routes(CALLS)),
    (422, "wrong_network", Of::Routes(LISTS)),
    (429, "rate_limited", Of::Keyed),
    (429, "rate_limited", Of::Routes(PAGES)),
    (500, "internal", Of::All),
    (503, "database_unavailable", Of::All),
    (503, "no_address", Of::Routes(TAKES)),
    (503, "no_randomness", Of::Routes(SIGNS)),
    (503, "restoring", Of::Routes(TAKES)),
    (503, "timeout", Of::All),
    (503, "too_many_streams", Of::Routes(STREAMS)),
];

/// Parameters that routes share a description with, and always refuse.
const NOT_TAKEN: &[(&str, &str)] = &[("list_credits", "state"), ("stream_events", "limit")];

/// The document, with every code that each route may answer.
pub(super) fn told(description: &OpenApi) -> String {
    let mut document = serde_json::to_value(description).unwrap_or_default();
    let bodies = document["components"]["schemas"].clone();
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    let paths = paths.into_iter().flat_map(|paths| paths.values_mut());
    let operations = paths.filter_map(|path| path.as_object_mut().map(Map::values_mut));
    for operation in operations.flatten() {
        tell(operation, &bodies);
    }
    document.to_string()
}

fn tell(operation: &mut Value, bodies: &Value) {
    let Facts { id, is_once, faults } = Facts::of(operation);
    if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
        let is_refused = |name: &Value| NOT_TAKEN.iter().any(|(of, taken)| *of == id && name == taken);
        parameters.retain(|parameter| !is_refused(&parameter["name"]));
    }
    // A body in which nothing is required can be left out.
    if let Some(body) = operation.get_mut("requestBody") {
        let schema = &body["content"]["application/json"]["schema"]["$ref"];
        let name = schema.as_str().and_then(|text| text.rsplit('/').next());
        let is_required = name.is_some_and(|name| !bodies[name]["required"].is_null());
        body["required"] = json!(is_required);
    }
    let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) else {
        return;
    };
    let has_problems = responses.remove("4XX").is_some();
    for (status, response) in responses.iter_mut() {
        if response["description"].is_null() {
            response["description"] = json!(words(status.parse().unwrap_or_default()));
        }
        if is_once {
            response["headers"]["Idempotent-Replayed"] = REPLAYED.clone();
        }
    }
    // A page is answered with pages.
    for (status, codes) in faults.iter().filter(|_| has_problems) {
        responses.insert(status.to_string(), problem(*status, codes, is_once));
    }
}

/// What of a route its codes depend on.
struct Facts {
    id: String,
    is_once: bool,
    faults: BTreeMap<u16, Vec<&'static str>>,
}

impl Facts {
    fn of(operation: &Value) -> Facts {
        let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
        let parameters = operation["parameters"].as_array();
        let parameters = parameters.map(Vec::as_slice).unwrap_or_default();
        let has = |field: &str, word: &str| parameters.iter().any(|parameter| parameter[field] == word);
        let is_once = has("name", "Idempotency-Key");
        let is_keyed = operation["security"].is_null();
        let mut faults = BTreeMap::<u16, Vec<&'static str>>::new();
        for (status, code, of) in FAULTS {
            let is_of = match of {
                Of::All => true,
                Of::Keyed => is_keyed,
                Of::Scoped => is_keyed && id != "show_key",
                Of::ForOne(routes) => is_once || routes.contains(&id.as_str()),
                Of::Once => is_once,
                Of::Query => has("in", "query"),
                Of::Named => has("in", "path"),
                Of::Routes(routes) => routes.contains(&id.as_str()),
            };
            if is_of {
                faults.entry(*status).or_default().push(code);
            }
        }
        Facts { id, is_once, faults }
    }
}

/// A status in words.
fn words(status: u16) -> &'static str {
    let status = StatusCode::from_u16(status).ok();
    status
        .and_then(|status| status.canonical_reason())
        .unwrap_or_default()
}

fn problem(status: u16, codes: &[&str], is_once: bool) -> Value {
    let mut headers = Map::new();
    if is_once && status == 422 {
        headers.insert("Idempotent-Replayed".to_owned(), REPLAYED.clone());
    }
    if codes.contains(&"in_progress") || matches!(status, 429 | 503) {
        let described = "Send the same request again after so many seconds.";
        let header = json!({"description": described, "schema": {"type": "integer", "minimum": 0}});
        headers.insert("Retry-After".to_owned(), header);
    }
    json!({
        "description": format!("{}: {}", words(status), codes.join(", ")),
        "headers": headers,
        "content": {PROBLEM_JSON: {"schema": {"allOf": [
            {"$ref": "#/components/schemas/Problem"},
            {"properties": {"status": {"const": status}, "code": {"enum": codes}}},
        ]}}},
    })
}

/// Said of an answer that was given before.
static REPLAYED: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| {
    let described = "The request was done before: this is the answer that it had.";
    json!({"description": described, "schema": {"type": "string", "enum": ["true"]}})
});
