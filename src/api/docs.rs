//! The description of the API: made from the code, served as OpenAPI and as a page.

use super::html::Kind;
use super::problem::ProblemJson;
use super::{Api, faults, reference};
use crate::config::ApiConfig;
use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::routing::get;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

/// What stands before the routes.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "creditd",
        description = "Invoices, addresses, payments, credits and callbacks of one merchant. The same \
                       request, sent again or in parallel, answers the same and acts once."
    ),
    modifiers(&Keys),
    components(schemas(ProblemJson)),
    security(("key" = []))
)]
pub(super) struct Description;

/// How a key is sent.
struct Keys;

impl Modify for Keys {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(bearer));
    }
}

/// Says how long answers are kept, as this daemon is set.
pub(super) fn with_keeping(
    mut description: utoipa::openapi::OpenApi,
    keep: Duration,
) -> utoipa::openapi::OpenApi {
    let days = keep.as_secs() / 86_400;
    let text = description.info.description.get_or_insert_default();
    text.push_str(&format!(
        " Answers are kept under their Idempotency-Key for {days} days, and never shorter than the \
         invoice lives."
    ));
    description
}

/// Both texts. Written when somebody asks for the first time: few do, and every start would wait for it.
struct Told {
    json: String,
    kind: Kind,
    body: String,
}

impl Told {
    fn of(description: &utoipa::openapi::OpenApi, config: &ApiConfig) -> Told {
        let json = faults::told(description);
        Told {
            kind: Kind::new(include_str!("reference/page.css"), None),
            body: reference::body(&serde_json::from_str(&json).unwrap_or_default(), config),
            json,
        }
    }
}

/// `/openapi.json` and `/docs`, the same bytes for everybody.
pub(super) fn routes(description: utoipa::openapi::OpenApi, config: &ApiConfig) -> Router<Api> {
    let config = config.clone();
    let told = Arc::new(LazyLock::new(move || Told::of(&description, &config)));
    let page = told.clone();
    let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let titled = |told: &Told| {
        told.kind
            .page(StatusCode::OK, "creditd: the HTTP API", "", &told.body)
    };
    Router::new()
        .route(
            "/openapi.json",
            get(async move || (content_type, told.json.clone())),
        )
        .route("/docs", get(async move || titled(&page)))
}
