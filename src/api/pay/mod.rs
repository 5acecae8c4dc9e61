//! `/i/{token}`: the page of an invoice for whoever pays it, and its news as they come. The token is the key:
//! 256 random bits that only the merchant is told. All that matters is in the page as it is sent; the script
//! in it only keeps it fresh. Start at [`page`].

mod qr;
mod standing;
mod streams;
mod view;
mod words;

use super::Api;
use super::html::{Escaped, Kind};
use super::places::{Place, Places};
use super::problem::Problem;
use super::rate::Rates;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::sse::Sse;
use axum::response::{IntoResponse as _, Response};
use std::fmt::Write as _;
use std::sync::Arc;
use streams::{OF_ONE_MAX, Watcher};
use view::{Read, View};

/// Requests for one invoice in a second, on average: a payer has a few windows, not a fleet.
const RATE_PER_SEC: u32 = 10;

/// Without the script the page is asked for again so often.
const REFRESH_SECS: u32 = 20;

/// How long whoever finds no place for a stream, or no database, waits.
const AGAIN_SECS: u64 = 10;

/// What the pages of all invoices share.
#[derive(Debug)]
pub(super) struct Pages {
    kind: Kind,
    notices: Kind,
    rates: Rates,
    streams: Arc<Places>,
}

impl Pages {
    /// Of the connections a quarter is for streams of payers: merchants need the rest.
    pub(super) fn new(connections_max: usize) -> Pages {
        Pages {
            kind: Kind::new(include_str!("page.css"), Some(include_str!("page.js"))),
            notices: Kind::new(include_str!("page.css"), None),
            rates: Rates::new(RATE_PER_SEC),
            streams: Arc::new(Places::new(connections_max / 4, OF_ONE_MAX)),
        }
    }

    /// A page that says one thing.
    fn notice(&self, status: StatusCode, title: &str, text: &str) -> Response {
        let (shown, text) = (Escaped(title), Escaped(text));
        let body = format!("<body>\n<main>\n<h1>{shown}</h1>\n<p>{text}</p>\n</main>\n</body>\n");
        self.notices.page(status, title, "", &body)
    }

    fn refused(&self, problem: &Problem) -> Response {
        let (title, text) = match problem.status {
            StatusCode::NOT_FOUND => (
                "No such page",
                "The address of this page is not complete, or wrong.",
            ),
            StatusCode::TOO_MANY_REQUESTS => ("Too many requests", "Load this page again in a moment."),
            _ => (
                "Not now",
                "This page cannot be shown right now. Load it again in a moment.",
            ),
        };
        let mut response = self.notice(problem.status, title, text);
        if let Some(secs) = problem.retry_after_secs {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        response
    }
}

type Token = Result<Path<String>, PathRejection>;

/// What is no text is no token, as much as any other that is none.
fn named(token: Token) -> String {
    token.map(|Path(token)| token).unwrap_or_default()
}

/// The page of an invoice, for its payer
///
/// Needs no key: the token of the invoice is the key. HTML that loads nothing else, with amount, address, QR
/// code and state; it works without a script and stays fresh with it.
#[utoipa::path(
    get, path = "/i/{token}", operation_id = "show_page",
    tag = "pages", params(("token" = String, Path)), security(()),
    responses(
        (status = 200, body = String, content_type = "text/html"),
        (status = 404, body = String, content_type = "text/html"),
        (status = 429, body = String, content_type = "text/html"),
        (status = 503, body = String, content_type = "text/html")
    )
)]
pub(super) async fn page(State(api): State<Api>, token: Token) -> Response {
    let (pages, token) = (&api.0.pages, named(token));
    match look(&api, &token).await {
        Ok((view, now_ms)) => shown(pages, &token, &view, now_ms),
        Err(problem) => pages.refused(&problem),
    }
}

/// The news of an invoice, for its payer
///
/// Server-sent events `standing`, the first at once. `data` is JSON: `standing` (`waiting`, `partial`,
/// `seen`, `paid`, `overpaid`, `late`, `expired` or `cancelled`), `left_ms` until its time is over, and
/// `title`, `state` and `pay` as the page shows them. Needs no key: the token of the invoice is the key.
#[utoipa::path(
    get, path = "/i/{token}/events", operation_id = "stream_page",
    tag = "pages", params(("token" = String, Path)), security(()),
    responses(
        (status = 200, body = String, content_type = "text/event-stream"),
        super::problem::Problems
    )
)]
pub(super) async fn events(State(api): State<Api>, token: Token) -> Result<Response, Problem> {
    let token = named(token);
    look(&api, &token).await?;
    let place = Place::take(&api.0.pages.streams, &token).ok_or_else(|| {
        let detail = "too many windows show this page, or pages like it";
        Problem::unavailable("too_many_streams", detail).after(AGAIN_SECS)
    })?;
    Ok(Sse::new(Watcher::new(api, token, place).news()).into_response())
}

/// The page of a token now. That there is none is told to everybody in the same words.
async fn look(api: &Api, token: &str) -> Result<(View, i64), Problem> {
    let (parts, wanted) = (&api.0, token.to_owned());
    let found = parts.store.read(move |tx| Read::by_token(tx, &wanted)).await?;
    let read = found.ok_or_else(|| Problem::not_found("there is no such invoice"))?;
    let since = parts.clock.instant().duration_since(parts.started);
    // Counted once it is known to be one of ours: what strangers make up takes no room.
    if let Err(wait) = parts.pages.rates.admit(token, since) {
        let secs = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let detail = "too many requests for this invoice";
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).after(secs));
    }
    let now_ms = parts.clock.now_ms();
    Ok((View::new(&parts.config, read, now_ms), now_ms))
}

fn shown(pages: &Pages, token: &str, view: &View, now_ms: i64) -> Response {
    let head = format!("<noscript><meta http-equiv=\"refresh\" content=\"{REFRESH_SECS}\"></noscript>\n");
    let token = Escaped(token);
    let mut body = format!(
        "<body data-standing=\"{}\" data-left=\"{}\" data-events=\"{token}/events\">\n<main>\n<h1>{}</h1>\n",
        view.standing.word(),
        view.left_ms(now_ms),
        Escaped(&view.amount)
    );
    if !view.reference.is_empty() {
        let _ = writeln!(body, "<p class=\"for\">for {}</p>", Escaped(&view.reference));
    }
    let _ = write!(
        body,
        "<div id=\"state\" role=\"status\">{}</div>\n\
         <p id=\"lost\" class=\"lost\" hidden>The connection is lost: trying again.</p>\n\
         <section id=\"pay\" aria-label=\"Payment\">{}</section>\n\
         <noscript><p>This page loads again every {REFRESH_SECS} seconds. \
         <a href=\"{token}\">Load it now</a></p></noscript>\n</main>\n",
        words::state(view),
        words::pay(view)
    );
    pages.kind.page(StatusCode::OK, &words::title(view), &head, &body)
}
