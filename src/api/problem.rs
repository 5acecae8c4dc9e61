//! What is answered when something cannot be: `application/problem+json` (RFC 9457) with a stable code and
//! the field at fault. Never an internal text.

use crate::store::StoreError;
use crate::telemetry::error_line;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

/// The media type.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// How long a client waits before it asks a database again that takes no write now.
const DATABASE_AGAIN_SECS: u64 = 2;

/// What is said of a request holds words of it, and some answers are kept: neither grows with the request.
const DETAIL_CHARS_MAX: usize = 500;
const FIELD_CHARS_MAX: usize = 100;

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) detail: String,
    pub(super) field: Option<String>,
    pub(super) retry_after_secs: Option<u64>,
    /// The same request may be answered otherwise later, though its status is that of a body.
    pub(super) is_passing: bool,
}

/// A request was not done.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemJson<'a> {
    /// `about:blank`: what kind of problem it is, `code` tells.
    r#type: &'a str,
    /// The status in words.
    title: &'a str,
    /// The status.
    status: u16,
    /// Stable: programs go by this one.
    code: &'a str,
    /// For people; may change.
    detail: &'a str,
    /// The field of the body, the query or the header at fault, if one is.
    field: Option<&'a str>,
}

/// What any route may answer instead. The document has each status with its codes in the place of this
/// ([`super::faults`]).
#[derive(IntoResponses)]
#[allow(dead_code, reason = "it is there for the description alone")]
pub(super) enum Problems {
    /// The request cannot be done.
    #[response(status = "4XX", content_type = "application/problem+json")]
    Any(#[to_schema] ProblemJson<'static>),
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Problem {
        Problem {
            status,
            code,
            detail: clipped(detail.into(), DETAIL_CHARS_MAX),
            field: None,
            retry_after_secs: None,
            is_passing: false,
        }
    }

    /// The request cannot be read.
    pub(super) fn bad_request(code: &'static str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// The request can be read, and what it says cannot be.
    pub(super) fn unprocessable(
        code: &'static str,
        field: impl Into<String>,
        detail: impl Into<String>,
    ) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail).at(field)
    }

    /// There is no such thing, or it is another merchant's.
    pub(super) fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// What is asked for does not fit how things stand.
    pub(super) fn conflict(code: &'static str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, code, detail)
    }

    /// It cannot be done now; the same request may succeed later.
    pub(super) fn unavailable(code: &'static str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail).after(DATABASE_AGAIN_SECS)
    }

    /// Names the field at fault.
    pub(super) fn at(self, field: impl Into<String>) -> Problem {
        let field = Some(clipped(field.into(), FIELD_CHARS_MAX));
        Problem { field, ..self }
    }

    /// Says that the answer hangs on more than the request: on the config, or on where a name leads now. It
    /// is kept under no key.
    pub(super) fn passing(self) -> Problem {
        Problem {
            is_passing: true,
            ..self
        }
    }

    /// Says when to come again.
    pub(super) fn after(self, secs: u64) -> Problem {
        let retry_after_secs = Some(secs);
        Problem {
            retry_after_secs,
            ..self
        }
    }

    /// The body of the answer.
    pub(super) fn body(&self) -> String {
        let json = ProblemJson {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or_default(),
            status: self.status.as_u16(),
            code: self.code,
            detail: &self.detail,
            field: self.field.as_deref(),
        };
        serde_json::to_string(&json).unwrap_or_default()
    }
}

fn clipped(text: String, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}\u{2026}", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let content_type = (header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        let mut response = (self.status, [content_type], self.body()).into_response();
        let headers = response.headers_mut();
        if let Some(secs) = self.retry_after_secs {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        match error {
            StoreError::Refused(text) => {
                // What follows tells an operator which command helps.
                let said = text.split(": `creditd").next().unwrap_or_default();
                Problem::conflict("refused", said)
            }
            // Nobody knows whether the write was committed: the repeat of the request finds out.
            StoreError::DiskFull(_)
            | StoreError::Busy(_)
            | StoreError::Io(_)
            | StoreError::File { .. }
            | StoreError::Closed
            | StoreError::StaleEpoch { .. }
            | StoreError::Locked { .. } => {
                tracing::debug!("the API cannot use the database: {}", error_line(&error));
                Problem::unavailable(
                    "database_unavailable",
                    "the database takes no request now: send the same request again",
                )
            }
            StoreError::Constraint(_)
            | StoreError::Contradiction(_)
            | StoreError::Corrupt(_)
            | StoreError::Missing(_)
            | StoreError::NotOurs { .. }
            | StoreError::Damaged { .. }
            | StoreError::SchemaTooNew { .. }
            | StoreError::SchemaTooOld { .. }
            | StoreError::SchemaChanged { .. } => {
                tracing::error!("a request to the API failed: {}", error_line(&error));
                Problem::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal",
                    "this is our fault; the log of creditd says more",
                )
            }
        }
    }
}
