//! The same request acts once: its key, its effect, its answer and its events are one transaction. A parallel
//! repeat waits for the first in a table in memory and gets its answer. Only answers of committed effects and
//! the 422 of a body are kept; whatever may be another next time is not.

use super::Api;
use super::access::{Merchant, live};
use super::problem::{PROBLEM_JSON, Problem};
use super::sent::Sent;
use crate::clock::millis;
use crate::store::{Keep, Kept, KeptAnswer, KeyScope, StoreError, WriteTx};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How long a repeat waits for the first.
const WAIT: Duration = Duration::from_secs(5);

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// What an effect is answered with.
#[derive(Debug)]
pub(super) struct Answer {
    status: StatusCode,
    body: String,
    keep: Option<Keep>,
}

impl Answer {
    pub(super) fn new(status: StatusCode, body: &impl Serialize) -> Result<Answer, Halt> {
        let body = serde_json::to_string(body).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        Ok(Answer {
            status,
            body,
            keep: None,
        })
    }

    /// It is kept at least until then, and while the invoice that it tells of is open.
    pub(super) fn of_invoice(self, id: String, until: i64) -> Answer {
        let invoice = Some(id);
        Answer {
            keep: Some(Keep { until, invoice }),
            ..self
        }
    }
}

/// Why an effect is given up: all that it wrote is undone.
#[derive(Debug)]
pub(super) enum Halt {
    Store(StoreError),
    Problem(Problem),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Halt {
        Halt::Store(error)
    }
}

impl From<Problem> for Halt {
    fn from(problem: Problem) -> Halt {
        Halt::Problem(problem)
    }
}

/// A closure that may be run again, and whose last run counts.
pub(super) fn effect<E>(effect: E) -> E
where
    E: FnMut(&mut WriteTx<'_>) -> Result<Answer, Halt> + Send + 'static,
{
    effect
}

/// Requests that are queued or run, by their keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Running(Arc<Mutex<BTreeMap<KeyScope, Run>>>);

#[derive(Debug)]
struct Run {
    fingerprint: [u8; 32],
    done: watch::Receiver<()>,
}

/// A place in the table; whoever waits is woken when it is given up.
struct Claim {
    scope: KeyScope,
    running: Running,
    _done: watch::Sender<()>,
}

enum Entered {
    Ours(Claim),
    Wait(watch::Receiver<()>),
    OtherRequest,
}

impl Running {
    fn enter(&self, scope: &KeyScope, fingerprint: [u8; 32]) -> Entered {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match table.get(scope) {
            // Before anything is said of "in progress": that one will never be its answer.
            Some(run) if run.fingerprint != fingerprint => Entered::OtherRequest,
            Some(run) => Entered::Wait(run.done.clone()),
            None => {
                let (sender, done) = watch::channel(());
                table.insert(scope.clone(), Run { fingerprint, done });
                Entered::Ours(Claim {
                    scope: scope.clone(),
                    running: self.clone(),
                    _done: sender,
                })
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut table = self.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.remove(&self.scope);
    }
}

/// What a transaction came to.
enum Done {
    Fresh(KeptAnswer),
    Replayed(KeptAnswer),
    OtherRequest,
}

/// Does what `prepare` comes to, once for all requests of this key, and answers as the first time.
pub(super) async fn once<E>(
    api: &Api,
    merchant: &Merchant,
    sent: &Sent,
    prepare: impl Future<Output = Result<E, Problem>>,
) -> Result<Response, Problem>
where
    E: FnMut(&mut WriteTx<'_>) -> Result<Answer, Halt> + Send + 'static,
{
    let parts = &api.0;
    let (scope, fingerprint) = (sent.scope(merchant), sent.fingerprint);
    let claim = Arc::new(claim(api, &scope, fingerprint).await?);
    let (asked, by, now) = (scope.clone(), merchant.by.clone(), parts.clock.now_ms());
    let read = parts.store.read(move |tx| {
        let kept = tx.kept_answer(&asked, &fingerprint, now)?;
        Ok((tx.api_key_of_id(&by)?, kept))
    });
    let (key, kept) = read.await?;
    // Its body may have taken its time, and another request of that key too.
    live(key, now)?;
    match kept {
        Kept::Answer(answer) => return Ok(replayed(answer)),
        Kept::OtherRequest => return Err(other_request()),
        Kept::Nothing => {}
    }
    let keep_ms = millis(parts.config.api.idempotency_keep);
    let mut effect = match prepare.await {
        Ok(effect) => effect,
        Err(problem) => return refuse(api, scope, fingerprint, problem).await,
    };
    let halted = Arc::new(Mutex::new(None));
    let (halts, asked, by) = (halted.clone(), scope.clone(), merchant.by.clone());
    // A request that nobody waits for any more is under way as long as its write is queued.
    let queued = claim.clone();
    let written = parts.store.write(move |tx| {
        let _ = &queued;
        let now = tx.now_ms();
        match tx.kept_answer(&asked, &fingerprint, now)? {
            Kept::Answer(answer) => return Ok(Done::Replayed(answer)),
            Kept::OtherRequest => return Ok(Done::OtherRequest),
            Kept::Nothing => {}
        }
        let key = live(tx.api_key_of_id(&by)?, now);
        tx.act_for_merchant();
        let answer = match key.map_err(Halt::from).and_then(|_| effect(tx)) {
            Ok(answer) => answer,
            Err(Halt::Store(error)) => return Err(error),
            Err(Halt::Problem(problem)) => {
                let text = problem.detail.clone();
                *halts.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
                return Err(StoreError::Refused(text));
            }
        };
        let usual = now.saturating_add(keep_ms);
        let keep = answer.keep.unwrap_or_else(|| Keep::until(usual));
        let keep = Keep {
            until: keep.until.max(usual),
            ..keep
        };
        let kept = KeptAnswer {
            status: answer.status.as_u16(),
            body: answer.body,
        };
        tx.keep_answer(&asked, &fingerprint, &kept, &keep)?;
        Ok(Done::Fresh(kept))
    });
    let done = written.await;
    // Of runs before the last one something may have been left here.
    let problem = halted.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (done, problem) {
        (Ok(Done::Fresh(answer)), _) => {
            crate::points::pass("api.committed");
            parts.store.wake();
            Ok(response(answer))
        }
        (Ok(Done::Replayed(answer)), _) => Ok(replayed(answer)),
        (Ok(Done::OtherRequest), _) => Err(other_request()),
        (Err(StoreError::Refused(_)), Some(problem)) => refuse(api, scope, fingerprint, problem).await,
        (Err(error), _) => Err(error.into()),
    }
}

/// Waits for the turn of a request.
async fn claim(api: &Api, scope: &KeyScope, fingerprint: [u8; 32]) -> Result<Claim, Problem> {
    let mut deadline = pin!(api.0.clock.sleep(WAIT));
    loop {
        let mut done = match api.0.running.enter(scope, fingerprint) {
            Entered::Ours(claim) => return Ok(claim),
            Entered::OtherRequest => return Err(other_request()),
            Entered::Wait(done) => done,
        };
        tokio::select! { biased;
            _ = done.changed() => {}
            () = &mut deadline => {
                let detail = "the same request is being done: send it again for its answer";
                return Err(Problem::conflict("in_progress", detail).after(1));
            }
        }
    }
}

/// Keeps the 422 of a body, which is the same whenever it is asked, and answers with the problem. One that
/// hangs on more than the body is not kept: it may be done next time.
async fn refuse(
    api: &Api,
    scope: KeyScope,
    fingerprint: [u8; 32],
    problem: Problem,
) -> Result<Response, Problem> {
    if problem.status != StatusCode::UNPROCESSABLE_ENTITY || problem.is_passing {
        return Err(problem);
    }
    let kept = KeptAnswer {
        status: problem.status.as_u16(),
        body: problem.body(),
    };
    let keep_ms = millis(api.0.config.api.idempotency_keep);
    let written = api.0.store.write(move |tx| {
        let now = tx.now_ms();
        Ok(match tx.kept_answer(&scope, &fingerprint, now)? {
            Kept::Answer(answer) => Done::Replayed(answer),
            Kept::OtherRequest => Done::OtherRequest,
            Kept::Nothing => {
                let keep = Keep::until(now.saturating_add(keep_ms));
                tx.keep_answer(&scope, &fingerprint, &kept, &keep)?;
                Done::Fresh(kept.clone())
            }
        })
    });
    match written.await? {
        Done::Fresh(answer) => Ok(response(answer)),
        Done::Replayed(answer) => Ok(replayed(answer)),
        Done::OtherRequest => Err(other_request()),
    }
}

fn other_request() -> Problem {
    Problem::unprocessable(
        "idempotency_key_reused",
        "Idempotency-Key",
        "this key was used for another request (done, or refused): repeat that one, or take a new key",
    )
}

fn response(answer: KeptAnswer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let media = match status.is_success() {
        true => "application/json",
        false => PROBLEM_JSON,
    };
    let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static(media))];
    (status, content_type, answer.body).into_response()
}

fn replayed(answer: KeptAnswer) -> Response {
    let mut response = response(answer);
    response
        .headers_mut()
        .insert(REPLAYED, HeaderValue::from_static("true"));
    response
}
