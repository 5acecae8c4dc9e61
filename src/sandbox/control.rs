//! The control of a sandbox over HTTP: a step is a POST, what there is a GET, a scenario a POST whose answer
//! grows line by line. It listens on loopback and takes nothing from a browser: a page that somebody opens
//! must not move the chains. `docs/sandbox.md` is its manual.

use super::front::json_response;
use super::hand::{Done, Hand, Refused};
use super::run::{Ended, Gate, Run};
use super::scenario;
use super::step::{On, Step};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;

/// What the control is given.
#[derive(Clone)]
pub(super) struct Control {
    pub(super) hand: Arc<Hand>,
    pub(super) gate: Arc<Gate>,
}

pub(super) fn routes(control: Control) -> Router {
    Router::new()
        .route("/v1/state", get(state))
        .route("/v1/run", post(run))
        .route("/v1/go", post(go))
        .route("/v1/reset", post(reset))
        .route("/v1/{chain}/{verb}", post(step))
        .fallback(nothing_here)
        .method_not_allowed_fallback(nothing_here)
        .layer(from_fn(refuse_browsers))
        .with_state(control)
}

fn answer(outcome: Result<Done, Refused>) -> Response {
    match outcome {
        Ok(done) => json_response(StatusCode::OK, &json!(done)),
        Err(refused) => json_response(StatusCode::UNPROCESSABLE_ENTITY, &json!(refused)),
    }
}

/// A browser names the page that asks in `Origin`, and in `Host` the name that the page was found under,
/// which may have been made to lead here.
async fn refuse_browsers(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let is_ours = !headers.contains_key(header::ORIGIN) && is_local(headers);
    if is_ours {
        return next.run(request).await;
    }
    let refused = Refused::new(
        "this is not for browsers, nor for other names than those of this machine",
        "ask by 127.0.0.1 or localhost, without the header Origin",
    );
    json_response(StatusCode::FORBIDDEN, &json!(refused))
}

fn is_local(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    ["127.0.0.1", "localhost", "[::1]"].contains(&name)
}

async fn nothing_here() -> Response {
    let places = Step::VERBS.join("|");
    let next = format!("GET /v1/state, POST /v1/{{btc|evm}}/{{{places}}}, /v1/run, /v1/go or /v1/reset");
    let refused = Refused::new("there is nothing at this place", next);
    json_response(StatusCode::NOT_FOUND, &json!(refused))
}

async fn step(
    State(control): State<Control>,
    Path((chain, verb)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    let Some(on) = On::of_word(&chain).filter(|_| Step::VERBS.contains(&verb.as_str())) else {
        return nothing_here().await;
    };
    answer(match Step::read(&verb, &body) {
        Ok(step) => control.hand.step(on, &step),
        Err(why) => Err(Refused::new(why, "docs/sandbox.md has the body of each step")),
    })
}

async fn state(State(control): State<Control>) -> Response {
    json_response(StatusCode::OK, &control.hand.state())
}

async fn go(State(control): State<Control>) -> Response {
    let did = match control.gate.go() {
        true => "whoever pauses goes on",
        false => "nothing pauses now: the next `pause` is let through",
    };
    json_response(StatusCode::OK, &json!({"did": did}))
}

async fn reset(State(control): State<Control>) -> Response {
    match control.hand.reset() {
        Ok(()) => json_response(
            StatusCode::OK,
            &json!({"did": "both chains are as at the start: give creditd a new database"}),
        ),
        Err(error) => answer(Err(Refused::new(error.to_string(), "start the sandbox anew"))),
    }
}

/// Whoever stops reading stops it.
async fn run(State(control): State<Control>, text: String) -> Response {
    let lines = match scenario::read(&text, control.hand.names()) {
        Ok(lines) => lines,
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let body = json!({
                "error": faults.join("; "),
                "next": "mend these lines: nothing was done",
                "faults": faults,
            });
            return json_response(StatusCode::UNPROCESSABLE_ENTITY, &body);
        }
    };
    let run = Run::new(control.hand, control.gate, lines);
    let lines = futures_util::stream::unfold(run, |mut run| async move {
        let ended = run.next().await?;
        Some((Ok::<_, Infallible>(format!("{}\n", line_of(&ended))), run))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    (StatusCode::OK, kind, Body::from_stream(lines)).into_response()
}

fn line_of(ended: &Ended) -> Value {
    let mut line = match &ended.outcome {
        Ok(Some(done)) => json!(done),
        Ok(None) => json!({}),
        Err(refused) => json!(refused),
    };
    if let Some(fields) = line.as_object_mut() {
        fields.insert("line".to_owned(), json!(ended.number));
        fields.insert("step".to_owned(), json!(ended.text));
    }
    line
}
