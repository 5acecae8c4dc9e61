//! The query of a request, read into what a route takes: an unknown field is refused, as a misspelt filter
//! would else list everything.

use super::problem::Problem;
use crate::store::report::Page;
use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

/// Rows of a page where none are asked for, and at most.
const PAGE_ROWS: u32 = 100;
const PAGE_ROWS_MAX: u32 = 1_000;

/// The query.
pub(super) struct Asked<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Asked<T>, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(asked)) => Ok(Asked(asked)),
            Err(error) => {
                let text = error.body_text();
                let said = text.rsplit("query string: ").next().unwrap_or_default();
                let problem = Problem::bad_request("invalid_query", said);
                let field = said.split_once(": ").map(|(field, _)| field.to_owned());
                let field = field.or_else(|| said.split('`').nth(1).map(str::to_owned));
                Err(match field {
                    Some(field) => problem.at(field),
                    None => problem,
                })
            }
        }
    }
}

/// The page that is asked for: at most `limit` rows, after the position `after` that the page before named.
pub(super) fn page(limit: Option<u32>, after: Option<&str>) -> Result<Page, Problem> {
    let limit = limit.unwrap_or(PAGE_ROWS);
    if !(1..=PAGE_ROWS_MAX).contains(&limit) {
        let detail = format!("a whole number from 1 to {PAGE_ROWS_MAX}");
        return Err(Problem::bad_request("invalid_query", detail).at("limit"));
    }
    let after = after
        .map(|text| {
            let position = text.parse().ok().filter(|position| *position >= 0);
            position.ok_or_else(|| {
                Problem::bad_request("invalid_query", "take `next` of the page before as it is").at("after")
            })
        })
        .transpose()?;
    Ok(Page { after, limit })
}

/// Where the page after this one begins: a full page may have one.
pub(super) fn next_position<T>(rows: &[crate::store::report::Listed<T>], page: Page) -> Option<String> {
    let is_full = rows.len() == page.limit as usize;
    rows.last()
        .filter(|_| is_full)
        .map(|last| last.position.to_string())
}
